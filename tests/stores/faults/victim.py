"""A program that runs memfold commands, each in a process of its own, and lets a fault happen in the middle.

It imports memfold once and forks for each command, so that a kill costs milliseconds. A fault is armed from outside:
the interpreter's own profiler waits for a function to be called or to return, its tracer for a number of lines. memfold
knows nothing of it. One JSON object a line comes in on standard input, and one goes out on standard output.
"""

from __future__ import annotations

import ctypes
import errno
import importlib
import json
import os
import resource
import signal
import sqlite3
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from disk import Disk

Job = dict[str, Any]

#: Without these root may write where a folder is read-only; numbers of capabilities(7).
_OVERRIDES = (1, 2, 3)


def serve() -> None:
    """Run the commands that come in, until there are no more."""
    _import_memfold()
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        answers.write(json.dumps(_run(json.loads(line))) + "\n")
        answers.flush()


def _run(job: Job) -> Job:
    """One command in a child; says how it ended: its exit code, or the signal that ended it, and what it said."""
    ours, theirs = os.pipe()
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        os.close(ours)
        _command(job, theirs)
    os.close(theirs)
    if "kill_after_seconds" in job:
        time.sleep(job["kill_after_seconds"])
        os.kill(child, signal.SIGKILL)
    with os.fdopen(ours, encoding="utf-8", errors="backslashreplace") as said:
        text = said.read()
    _, status = os.waitpid(child, 0)
    seconds = time.monotonic() - began
    return {"code": os.waitstatus_to_exitcode(status), "said": text, "seconds": seconds}


def _command(job: Job, output: int) -> None:
    from memfold_flows import cli

    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(output, number)
        setattr(sys, name, os.fdopen(number, "w", encoding="utf-8", closefd=False))
    os.environ.update(job.get("environment", {}))
    os.chdir(job["folder"])
    code: Any = 70
    try:
        _arm(job)
        cli.main(job["command"])
    except SystemExit as ended:
        code = ended.code or 0
    except BaseException:  # noqa: BLE001  (whatever it was, the test shows it)
        traceback.print_exc()
    finally:
        sys.setprofile(None)
        sys.settrace(None)
        if "counts_lines" in job:
            print(f"\n{len(_lines)} lines")
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 71)


def _arm(job: Job) -> None:
    if "rows_per_transaction" in job:
        _split_transactions(job["rows_per_transaction"])
    if "busy_seconds" in job:
        _wait_no_longer_than(job["busy_seconds"])
    if "kill_at_line" in job or "counts_lines" in job:
        _kill_at_line(job.get("kill_at_line"))
    if "loses_power" in job:
        disk = Disk(Path(job["folder"]) / "world")
        disk.watch()
        _disks.append(disk)
    if "at" in job:
        at = job["at"]
        _when(at["function"], at["event"], at.get("nth", 1), lambda: _FAULTS[job["fault"]](job))


def _when(function: str, event: str, nth: int, happen: Callable[[], None]) -> None:
    """Let something happen when a function, named as ``module:qualified.name``, is called or returns the nth time."""
    module, _, name = function.partition(":")
    seen = 0

    def watch(frame: FrameType, what: str, _: Any) -> None:
        nonlocal seen
        if what == event and frame.f_code.co_qualname == name and frame.f_globals["__name__"] == module:
            seen += 1
            if seen == nth:
                sys.setprofile(None)
                happen()

    sys.setprofile(watch)


def _kill_at_line(number: int | None) -> None:
    """SIGKILL before the nth line of memfold's own that is executed; without a number, they are only counted."""

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_globals.get("__name__", "").startswith("memfold"):
            return None
        if event == "line":
            _lines.append(None)
            if len(_lines) == number:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)


def _kill(_: Job) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _cut_power(job: Job) -> None:
    _disks[-1].lose(keeps_names=job["loses_power"] == "contents")
    os.kill(os.getpid(), signal.SIGKILL)


def _fill_disk(_: Job) -> None:
    """No file can grow from now on; pipes go on."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))


def _take_store_away(job: Job) -> None:
    if isinstance(job["away"], str):
        Path(job["store_folder"]).rename(job["away"])
        return
    import psycopg

    server, *statements = job["away"]
    with psycopg.connect(server, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


def _forbid_writing(job: Job) -> None:
    """The folder and the files in it are read-only, for root too."""
    folder = Path(job["read_only"])
    for path in (*folder.rglob("*"), folder):
        path.chmod(0o500 if path.is_dir() else 0o400)
    _drop_overrides()


#: What the disk of the command holds, where that is watched.
_disks: list[Disk] = []

#: One entry per line of memfold's own that was executed while somebody counted.
_lines: list[None] = []

_FAULTS: dict[str, Callable[[Job], None]] = {
    "kill": _kill,
    "power cut": _cut_power,
    "disk full": _fill_disk,
    "store vanishes": _take_store_away,
    "store folder read-only": _forbid_writing,
    "run directory read-only": _forbid_writing,
}


class _Capabilities(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint32) for name in ("effective", "permitted", "inheritable")]


def _drop_overrides() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    data = (_Capabilities * 2)()
    if libc.capget(header, data) != 0:
        raise OSError(ctypes.get_errno(), errno.errorcode[ctypes.get_errno()])
    data[0].effective &= ~sum(1 << number for number in _OVERRIDES)
    if libc.capset(header, data) != 0:
        raise OSError(ctypes.get_errno(), errno.errorcode[ctypes.get_errno()])


def _split_transactions(rows: int) -> None:
    from memfold_flows import stores

    open_store = stores.open_store

    def opened(url: str, **options: Any) -> Any:
        store = open_store(url, **options)
        if store.traits.rows_per_transaction is not None:
            store.traits = replace(store.traits, rows_per_transaction=rows)
        return store

    stores.open_store = opened


def _wait_no_longer_than(seconds: float) -> None:
    from memfold_flows.stores import postgresql_connections

    postgresql_connections.LOCK_SECONDS = seconds
    connect = sqlite3.connect
    sqlite3.connect = lambda *given, **options: connect(*given, **(options | {"timeout": seconds}))  # type: ignore[assignment]


def _import_memfold() -> None:
    """All that a command would import, so that a forked child has it; nothing that starts a thread."""
    for name in _IMPORTED_LATE:
        importlib.import_module(name)
    from memfold_flows import stores

    for kind in stores.KINDS.values():
        with suppress(ImportError):  # of a driver that is not installed
            kind.options()


#: Modules that memfold imports in the functions that need them.
_IMPORTED_LATE = (
    *("duckdb", "polars", "memfold.clusters", "memfold.rewrite", "memfold.sightings"),
    *(f"memfold_flows.{name}" for name in ("cli", "console", "noting", "pipeline", "redirects", "upkeep", "views")),
)

if __name__ == "__main__":
    serve()
