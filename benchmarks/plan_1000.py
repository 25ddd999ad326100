"""Seconds that `memfold plan` takes on 1,000 memories as a whole process, and how many of them are not imports."""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

MEMORIES = 1_000
SCOPES = 5
SHARE_OF_COPIES = 0.3
RUNS = 5
SAMPLE = Path(__file__).parents[1] / "data/sample/memories.jsonl"
MEMFOLD = str(Path(sys.executable).with_name("memfold"))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "memories.jsonl"
        store.write_text("".join(f"{json.dumps(memory)}\n" for memory in _memories(random.Random(1))), encoding="utf-8")
        environment = os.environ | {"MEMFOLD_HOME": folder}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        # The first run may have to compile files, which an installed program has done long ago.
        _measure([MEMFOLD, "plan", f"jsonl:{store}"], environment)
        plan = [_measure([MEMFOLD, "plan", f"jsonl:{store}"], environment) for _ in range(RUNS)]
        loaded = _modules_of([MEMFOLD, "plan", f"jsonl:{store}"], environment)
        imports = [_measure([sys.executable, "-c", _IMPORT, *loaded], environment) for _ in range(RUNS)]
    wall, cpu = (median(figures) for figures in zip(*plan, strict=True))
    wall_imports, cpu_imports = (median(figures) for figures in zip(*imports, strict=True))
    print(f"memfold plan, {MEMORIES:,} memories: {wall:.2f} s, {cpu:.2f} s of CPU (whole process, median of {RUNS})")
    print(f"over its imports alone: {wall - wall_imports:.2f} s, {cpu - cpu_imports:.2f} s of CPU")


_IMPORT = """
import importlib, sys
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ImportError:
        pass
"""


def _modules_of(command: list[str], environment: dict[str, str]) -> list[str]:
    """Every module that a command loads, in the order in which it first asks for them."""
    ended = subprocess.run(
        [sys.executable, "-X", "importtime", *command],
        env=environment,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    lines = [line for line in ended.stderr.splitlines() if line.startswith("import time:")]
    return [line.rsplit("|", 1)[1].strip() for line in lines[1:]]


def _memories(draw: random.Random) -> list[dict[str, object]]:
    """The sample's texts, each with a ticket number of its own; some are copies of an earlier one in another case."""
    texts = [json.loads(line)["text"] for line in SAMPLE.open(encoding="utf-8")]
    memories: list[dict[str, object]] = []
    for number in range(MEMORIES):
        if memories and draw.random() < SHARE_OF_COPIES:
            twin = draw.choice(memories)
            text, scope = str(twin["text"]).upper(), twin["scope"]
        else:
            text, scope = f"{draw.choice(texts)} Ticket {number}.", f"team:{draw.randrange(SCOPES)}"
        memories.append({"id": f"m{number:04}", "scope": scope, "text": text, "created_at": 1_750_000_000 + number})
    return memories


def _measure(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Seconds on the clock and of CPU that a whole process takes."""
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - began, cpu


if __name__ == "__main__":
    main()
