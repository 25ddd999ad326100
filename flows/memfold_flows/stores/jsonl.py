"""JSONL archives: one JSON object a line. A line that nothing changes keeps its exact bytes.

A changed line keeps the order, the spelling and the spaces of everything but the changed values. Blank lines are no
memories and stay. Bad lines stop the reading, or stay where they are and are copied aside (``skip_bad``).
"""

from __future__ import annotations

import json
import logging
import math
import os
from array import array
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from memfold.errors import BadRecord, StoreError
from memfold.memory import Memory
from memfold_flows.stores import archive
from memfold_flows.stores.archive import ArchiveStore, as_flag, require_archive
from memfold_flows.stores.archive_fields import PLACES, FieldReader, same
from memfold_flows.stores.archive_landing import file_errors
from memfold_flows.stores.archive_rows import Edits
from memfold_flows.stores.base import StoreTraits

logger = logging.getLogger(__name__)

OPTIONS = {
    **archive.OPTIONS,
    "skip_bad": "true: leave lines that cannot be read where they are, instead of stopping",
    "set_aside": "with skip_bad: the file that gets a copy of those lines",
}


def open_store(path: str, options: Mapping[str, Any]) -> JsonlStore:
    """Open a JSONL archive."""
    return JsonlStore(path, options)


class JsonlStore(ArchiveStore):
    """A JSONL archive as a store. ``skipped`` counts the bad lines that the last snapshot left out."""

    def __init__(self, path: str, options: Mapping[str, Any]) -> None:
        self.skipped = 0
        self._skip_bad = as_flag("skip_bad", options.get("skip_bad", False))
        self._set_aside = Path(options["set_aside"]) if options.get("set_aside") else None
        self._aside: BinaryIO | None = None
        super().__init__(
            "jsonl",
            path,
            options,
            open_source=lambda path, fields: JsonlSource(path, fields, self._leave_out if self._skip_bad else None),
            traits=StoreTraits(places=PLACES, promotes=True, rows_per_transaction=None),
            kept_options={"skip_bad": "true"} if self._skip_bad else {},
        )

    def snapshot(self, scopes: Collection[str] | None = None) -> Iterator[pa.RecordBatch]:
        self.skipped = 0
        try:
            yield from super().snapshot(scopes)
        finally:
            if self._aside is not None:
                self._aside.close()
                self._aside, self._set_aside = None, None
        if self.skipped:
            logger.warning("%s: %d lines cannot be read and were left out", self.url, self.skipped)

    def _leave_out(self, line: bytes) -> None:
        self.skipped += 1
        if self._aside is None and self._set_aside is not None:
            with file_errors(self._set_aside):
                self._aside = os.fdopen(os.open(self._set_aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
        if self._aside is not None:
            self._aside.write(line if line.endswith(b"\n") else line + b"\n")


class JsonlSource:
    """One JSONL file. A place is the number of a line, from 0; a body is the line with its end.

    ``on_bad`` takes each line that cannot be read; without it such a line is an error.
    """

    def __init__(self, path: Path, fields: FieldReader, on_bad: Callable[[bytes], None] | None = None) -> None:
        self._path = path
        self._fields = fields
        self._on_bad = on_bad
        self._offsets = array("q")
        self._bad_lines = 0
        self._first_bad = ""
        _require_lines(path)

    def memories(self) -> Iterator[tuple[int, Memory]]:
        offset = 0
        with self._path.open("rb", buffering=1 << 20) as file:
            for place, line in enumerate(file):
                self._offsets.append(offset)
                offset += len(line)
                if line.isspace():
                    continue
                try:
                    memory = self.memory(line)
                except ValueError as error:
                    self._refuse(place, line, error)
                else:
                    yield place, memory

    def fetch(self, places: Sequence[int]) -> Iterator[tuple[int, bytes, Memory]]:
        with self._path.open("rb") as file:
            for place in places:
                file.seek(self._offsets[place])
                line = file.readline()
                yield place, line, self.memory(line)

    def memory(self, body: bytes) -> Memory:
        record = read_line(body)
        try:
            return self._fields.memory(record)
        except RecursionError:
            raise ValueError("is nested too deeply") from None

    def changed(self, body: bytes, before: Memory, after: Memory) -> bytes:
        changes = self._fields.changes(read_line(body), before, after)
        # Half a surrogate pair has no UTF-8, and Python's replacement for it is the very escape that JSON has.
        return set_values(body.decode(), changes).encode("utf-8", "backslashreplace") if changes else body

    def rewrite(self, file: BinaryIO, edits: Edits) -> None:
        waiting = deque(edits.inserted)
        lines = _LineWriter(file)
        with self._path.open("rb", buffering=1 << 20) as source:
            for place, line in enumerate(source):
                if place not in edits.removed:
                    while waiting and waiting[0][0] <= lines.written:
                        lines.write(waiting.popleft()[1])
                    lines.write(edits.changed.get(place, line))
        for _, line in waiting:
            lines.write(line)

    def name_place(self, place: int) -> str:
        return f"line {place + 1}"

    def without_memories(self) -> str:
        if not self._bad_lines:
            return "holds no memory; nothing was planned or written. Check the path."
        said = f"all {self._bad_lines} lines were" if self._bad_lines > 1 else "its one line was"
        return (
            f"holds no memory that can be read: {said} left out ({self._first_bad}); nothing was planned or written. "
            "Correct the lines, or check the path."
        )

    def _refuse(self, place: int, line: bytes, error: ValueError) -> None:
        if self._on_bad is None:
            raise BadRecord(
                f"{self._path.name} line {place + 1}: {error}; nothing was planned or written. "
                "Correct the line, or leave such lines out with --skip-bad."
            ) from None
        self._bad_lines += 1
        self._first_bad = self._first_bad or f"line {place + 1} {error}"
        self._on_bad(line)


def read_line(line: bytes) -> dict[str, Any]:
    """The JSON object of one line.

    Raises:
        ValueError: it is not exactly one JSON object in UTF-8, or a name or number in it has no single meaning.
    """
    try:
        # Without the line's end: it is no part of a text that was cut off.
        record = _decode(line.removeprefix(_BYTE_ORDER_MARK).rstrip(b"\r\n").decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8 at byte {error.start + 1}") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {error.msg.removesuffix(' at')} at column {error.colno}") from None
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    if not isinstance(record, dict):
        raise ValueError("is not a JSON object")
    return record


def set_values(text: str, changes: Mapping[str, Any]) -> str:
    """The text of a JSON object with some values set, and everything else spelled as it was.

    Objects are changed within themselves as long as no key of theirs goes.
    """
    pieces: list[str] = []
    copied = 0
    space = " "
    missing = dict(changes)
    for key, start, end in _values(text):
        space = " " if text[start - 1] == " " else ""
        if key in missing:
            pieces += [text[copied:start], _new_value(text[start:end], missing.pop(key), space)]
            copied = end
    if missing:
        # After the last value, before whatever space the object ends with.
        end = len(text[: text.rindex("}")].rstrip())
        added = _dumps[space](missing)[1:-1]
        pieces += [text[copied:end], "" if text[end - 1] == "{" else f",{space}", added]
        copied = end
    return "".join([*pieces, text[copied:]])


def _new_value(old: str, value: Any, space: str) -> str:
    if isinstance(value, dict) and old.startswith("{"):
        before = _decode(old)
        if before.keys() <= value.keys():
            return set_values(old, {k: v for k, v in value.items() if k not in before or not same(before[k], v)})
    return _dumps[space](value)


def _values(text: str) -> Iterator[tuple[str, int, int]]:
    """Key, and start and end of the value, of each pair of a JSON object that is known to be well-formed."""
    at = _after_space(text, text.index("{") + 1)
    while text[at] != "}":
        key, at = _SCANNER.raw_decode(text, at)
        start = _after_space(text, _after_space(text, at) + 1)
        _, end = _SCANNER.raw_decode(text, start)
        yield key, start, end
        at = _after_space(text, end)
        if text[at] == ",":
            at = _after_space(text, at + 1)


def _after_space(text: str, at: int) -> int:
    while text[at] in " \t\r\n":
        at += 1
    return at


class _LineWriter:
    """Writes lines; a line without an end gets one as soon as another follows."""

    def __init__(self, file: BinaryIO) -> None:
        self.written = 0
        self._file = file
        self._line_end = b"\n"
        self._is_open = False

    def write(self, line: bytes) -> None:
        if self._is_open:
            self._file.write(self._line_end)
        elif line.endswith(b"\r\n"):
            self._line_end = b"\r\n"
        self._file.write(line)
        self._is_open = not line.endswith(b"\n")
        self.written += 1


def _require_lines(path: Path) -> None:
    start = require_archive(path, expected="a JSONL archive")
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise StoreError(
            f"{path} is UTF-16; nothing was read. Convert it first: iconv -f UTF-16 -t UTF-8 FILE > NEW.jsonl"
        )
    if start.removeprefix(_BYTE_ORDER_MARK).lstrip().startswith(b"["):
        raise StoreError(
            f"{path} is one JSON array, not one object per line; nothing was read. "
            "Convert it first: jq -c '.[]' FILE > NEW.jsonl"
        )


def _single_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(key for at, (key, _) in enumerate(pairs) if key in dict(pairs[:at]))
        raise ValueError(f"has the key {twice!r} twice in one object")
    return found


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError("holds a number that is out of range")
    return number


def _whole(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"holds a number of more than {_MOST_DIGITS} digits")
    return int(digits)


def _no_constant(name: str) -> None:
    raise ValueError(f"holds {name}, which is not JSON")


_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# Python converts no longer ones; a number like that is no value that anyone compares.
_MOST_DIGITS = 4300
_SCANNER = json.JSONDecoder(
    object_pairs_hook=_single_keys, parse_float=_finite, parse_int=_whole, parse_constant=_no_constant
)
_decode = _SCANNER.decode
# How a line that has a space after its colons spells a value, and how one that has none.
_dumps = {
    " ": json.JSONEncoder(ensure_ascii=False).encode,
    "": json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode,
}
