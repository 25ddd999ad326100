"""The texts of a large store read by several processes at once, with the very result that one process gives."""

from __future__ import annotations

import logging
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import repeat
from queue import SimpleQueue
from typing import BinaryIO

from memfold import text
from memfold.text import Corpus, Report, ignore

logger = logging.getLogger(__name__)

#: From this many texts on (some ten seconds of reading), a second process pays for its start.
SEVERAL_FROM_TEXTS = 100_000
TEXTS_AT_ONCE = 25_000

Read = tuple[Corpus, list[str]]


def read_texts(texts: Sequence[str], *, report: Report = ignore, processes: int | None = None) -> Read:
    """The corpus of these texts and the key of each, read by as many processes as there are cores."""
    processes = processes or len(os.sched_getaffinity(0))
    if processes < 2 or len(texts) < SEVERAL_FROM_TEXTS:
        return text.read_with_keys(texts, report=report)
    parts: list[Corpus] = []
    keys: list[str] = []
    blocks = [texts[start : start + TEXTS_AT_ONCE] for start in range(0, len(texts), TEXTS_AT_ONCE)]
    with _readers(processes) as idle, ThreadPoolExecutor(processes) as threads:
        if idle.empty():
            return text.read_with_keys(texts, report=report)
        for part, part_keys in threads.map(_read_block, blocks, repeat(idle)):
            parts.append(part)
            keys += part_keys
            report("reading texts", len(keys), len(texts))
    return text.joined(parts), keys


def serve(source: BinaryIO, target: BinaryIO) -> None:
    """Read block after block until there are no more: what a reader does with its standard input and output."""
    while True:
        try:
            block = pickle.load(source)
        except EOFError:
            return
        pickle.dump(text.read_with_keys(block), target, pickle.HIGHEST_PROTOCOL)
        target.flush()


Readers = SimpleQueue["subprocess.Popen[bytes]"]

# Not multiprocessing: that would run the main module of whoever embeds memfold once more.
_READER = "import sys; sys.path[:] = {path!r}; from memfold_flows import reading; " + (
    "reading.serve(sys.stdin.buffer, sys.stdout.buffer)"
)


@contextmanager
def _readers(count: int) -> Iterator[Readers]:
    command = [sys.executable, "-c", _READER.format(path=sys.path)]
    started: list[subprocess.Popen[bytes]] = []
    idle: Readers = SimpleQueue()
    try:
        try:
            for _ in range(count):
                started.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
                idle.put(started[-1])
        except OSError as error:
            logger.warning("no second process could be started (%s)", error)
        yield idle
    finally:
        for reader in started:
            reader.kill()
            reader.communicate()


def _read_block(block: Sequence[str], idle: Readers) -> Read:
    reader = idle.get()
    try:
        if reader.stdin is None or reader.stdout is None:
            raise OSError("the reader has no pipes")
        pickle.dump(block, reader.stdin, pickle.HIGHEST_PROTOCOL)
        reader.stdin.flush()
        found: Read = pickle.load(reader.stdout)
    except (OSError, EOFError, pickle.UnpicklingError) as error:
        logger.warning("a second process could not read %d texts (%s); this one does", len(block), error)
        return text.read_with_keys(block)
    finally:
        idle.put(reader)
    return found
