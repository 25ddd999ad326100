"""Seconds that one sweep takes over very many small scopes, beside the same memories in a few large ones.

Both stores are SQLite files, every scope is due, and the sweep is the flow itself on a temporary Prefect server. The
bound on losses is taken off, so that the same is to be written in both.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import workload

from memfold_flows.stores import sqlite

START = 1_767_225_600_000_000  # 2026-01-01 in microseconds
QUIET = {
    "DO_NOT_TRACK": "1",
    "PREFECT_LOGGING_LEVEL": "ERROR",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--scopes", type=int, default=50_000)
    arguments.add_argument("--per-scope", type=int, default=20)
    arguments.add_argument("--few", type=int, default=50, help="scopes of the store that it is compared with")
    chosen = arguments.parse_args()
    memories = chosen.scopes * chosen.per_scope
    texts = [row.text for row in workload.rows(memories, scopes=1)]
    seconds = {}
    with tempfile.TemporaryDirectory() as folder:
        _write(Path(folder) / "warm-up.db", texts[:100], scopes=5)
        for scopes in (chosen.few, chosen.scopes):
            store = Path(folder) / f"{scopes}.db"
            _write(store, texts, scopes=scopes)
            found = _measured_apart(store, Path(folder))
            seconds[scopes] = found["seconds"]
            print(
                f"{scopes:,} scopes of {memories // scopes:,} memories: {found['seconds']:.1f} s, "
                f"{found['seconds'] / memories * 1e6:.0f} us a memory, peak {found['peak_mb']:,.0f} MB",
                flush=True,
            )
            print(f"  {found['state']}", flush=True)
    ratio = seconds[chosen.scopes] / seconds[chosen.few]
    print(f"time per memory, {chosen.scopes:,} scopes to {chosen.few:,}: {ratio:.2f}")


def _write(path: Path, texts: list[str], *, scopes: int) -> None:
    """A store in which neighbours share a scope, as a text and what was made from it are close together."""
    sqlite.init(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany(
            "insert into memories (memory_id, scope, content, created_at) values (?, ?, ?, ?)",
            _rows(texts, per_scope=len(texts) // scopes),
        )


def _rows(texts: list[str], *, per_scope: int) -> Iterator[tuple[str, str, str, int]]:
    for number, text in enumerate(texts):
        yield f"m{number:08}", f"agent-{number // per_scope:06}", text, START + number * 60_000_000


def _measured_apart(store: Path, folder: Path) -> dict[str, Any]:
    """The sweep in a process of its own, as nothing of the other one should be warm."""
    environment = {**os.environ, **QUIET, "MEMFOLD_HOME": str(folder), "PREFECT_HOME": str(folder / "prefect")}
    command = [sys.executable, __file__, "--measure", str(folder / "warm-up.db"), str(store)]
    ended = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    measured: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return measured


def _measure(warm_up: str, store: str) -> None:
    """Sweep one store, once the server is up and everything imported; print what it took."""
    logging.disable(logging.WARNING)
    from memfold_flows.sweep import sweep

    bounds = {"max_loss_fraction": 1, "max_rolling_loss_fraction": 1}
    sweep(f"sqlite:{warm_up}", thresholds=bounds, return_state=True)
    began = time.perf_counter()
    state: Any = sweep(f"sqlite:{store}", thresholds=bounds, return_state=True)
    seconds = time.perf_counter() - began
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "peak_mb": peak_mb, "state": f"{state.name}: {state.message}"}))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        _measure(*sys.argv[2:])
    else:
        main()
