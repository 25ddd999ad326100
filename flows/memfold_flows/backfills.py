"""The folder of a backfill as relations, for those who look at one; they are empty where the folder is none."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from memfold.frames import TALLY

_NUMBERS = ("rows", "merged", "pruned", "promoted", "lost", "scopes", "scopes_refused")
_COUNTS = [pa.field(name, pa.int64()) for name in _NUMBERS]

REPORT = pa.schema(
    [
        pa.field("state", pa.string()),
        pa.field("as_of", pa.string()),
        *_COUNTS,
        pa.field("rows_after", pa.int64()),
        pa.field("shards_failed", pa.int64()),
    ]
)
SHARDS = pa.schema(
    [
        pa.field("name", pa.string()),
        pa.field("state", pa.string()),
        *_COUNTS,
        pa.field("seconds", pa.float64()),
        pa.field("error", pa.string()),
    ]
)
TALLIES = TALLY.insert(0, pa.field("shard", pa.string()))


@dataclass(frozen=True, slots=True)
class Backfill:
    """What a backfill came to, its shards, and what was planned for each scope of each shard that got so far.

    ``missing`` says what is wrong with a folder that holds none.
    """

    report: pa.Table
    shards: pa.Table
    tallies: pa.Table
    missing: str | None = None


def look(folder: Path) -> Backfill:
    """The backfill in this folder."""
    value = _report(folder)
    if value is None:
        missing = f"{folder} is no folder of a finished backfill: it has no report.json. Set BACKFILL to that of --out."
        return Backfill(REPORT.empty_table(), SHARDS.empty_table(), TALLIES.empty_table(), missing)
    parts = [_tally(path) for path in sorted(folder.glob("shards/*/run/tally.parquet"))]
    return Backfill(
        pa.Table.from_pylist([value], schema=REPORT),
        pa.Table.from_pylist(value["shards"], schema=SHARDS),
        pa.concat_tables([TALLIES.empty_table(), *parts]),
    )


def _report(folder: Path) -> dict[str, Any] | None:
    try:
        value: dict[str, Any] = json.loads((folder / "report.json").read_bytes())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) and "shards" in value else None


def _tally(path: Path) -> pa.Table:
    tally = pq.read_table(path)
    shard = pa.array([path.parts[-3]] * len(tally), pa.string())
    return tally.add_column(0, TALLIES.field("shard"), shard).cast(TALLIES)
