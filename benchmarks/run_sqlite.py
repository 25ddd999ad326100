"""Seconds that `memfold run` takes on a large SQLite store, beside copying the table and deleting the rows alone.

A quarter of the memories are copies of others and are to be removed. The time covers the whole process, from reading
the store to the last commit; the receipt says how long the write lock was held at most.

python benchmarks/run_sqlite.py --size 1000000
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import workload

from memfold_flows.stores import sqlite

COPIES = 4  # every fourth memory is a copy
MEMORIES_PER_SCOPE = 250
ROWS_AT_ONCE = 65_536
START = 1_767_225_600_000_000  # 2026-01-01 in microseconds
MEMFOLD = str(Path(sys.executable).with_name("memfold"))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--size", type=int, default=1_000_000)
    size = arguments.parse_args().size
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store, twin = folder / "memories.db", folder / "twin.db"
        gone = _fill(store, size)
        shutil.copyfile(store, twin)
        copying = _seconds(lambda: _copy(twin, folder / "memories.parquet"))
        deleting = _seconds(lambda: _delete(twin, gone))
        began = time.perf_counter()
        environment = os.environ | {"MEMFOLD_HOME": name}
        command = [MEMFOLD, "run", f"sqlite:{store}", "--yes", "--json"]
        done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE)
        seconds = time.perf_counter() - began
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
    receipt = json.loads(done.stdout)
    print(f"{size:,} memories, {len(gone):,} copies: copying {copying:.1f} s, deleting {deleting:.1f} s")
    print(
        f"memfold run: {seconds:.1f} s, {used.ru_utime + used.ru_stime:.1f} s of CPU, {used.ru_maxrss >> 10:,} MB, "
        f"{seconds / (copying + deleting):.1f} times both; {receipt['merged']:,} merged; "
        f"the write lock was held {receipt['longest_hold_seconds']:.2f} s at most"
    )


def _fill(store: Path, size: int) -> list[str]:
    """A store of made-up notes and copies of them; returns the ids of the copies."""
    sqlite.init(store)
    gone: list[str] = []
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.executemany(
            "insert into memories (memory_id, scope, content, created_at) values (?, ?, ?, ?)",
            _rows(size, gone.append),
        )
        connection.commit()
        connection.execute("pragma wal_checkpoint(truncate)")
    return gone


def _rows(size: int, is_copy: Callable[[str], None]) -> Iterator[tuple[str, str, str, int]]:
    writer = workload.Writer(random.Random(7))
    scopes = max(1, size // MEMORIES_PER_SCOPE)
    last = [""] * scopes
    for number in range(size):
        memory_id, scope = f"m{number:08}", number % scopes
        if number // scopes % COPIES == COPIES - 1:
            is_copy(memory_id)
            text = last[scope].removesuffix(".")
        else:
            text = last[scope] = f"{writer.note().removesuffix('.')} {number}."
        yield memory_id, f"agent-{scope:05}", text, START + number * 60_000_000


def _copy(store: Path, target: Path) -> None:
    """The table as Parquet, read and written in batches, nothing decided."""
    with closing(sqlite3.connect(store)) as connection:
        cursor = connection.execute("select * from memories order by memory_id")
        names = [column[0] for column in cursor.description]
        schema = pa.schema([(name, _type_of(name)) for name in names])
        with pq.ParquetWriter(target, schema, compression="zstd") as writer:
            while rows := cursor.fetchmany(ROWS_AT_ONCE):
                columns = zip(*rows, strict=True)
                writer.write_batch(
                    pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)
                )


def _type_of(name: str) -> pa.DataType:
    if name in ("importance", "confidence"):
        return pa.float64()
    is_integer = name.endswith(("_at", "_time", "_count")) or name in ("pinned", "protected", "valid_from", "valid_to")
    return pa.int64() if is_integer else pa.string()


def _delete(store: Path, gone: list[str]) -> None:
    with closing(sqlite3.connect(store, isolation_level=None)) as connection:
        connection.execute("pragma synchronous = full")
        connection.execute("begin immediate")
        connection.executemany("delete from memories where memory_id = ?", [(memory_id,) for memory_id in gone])
        connection.execute("commit")


def _seconds(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
