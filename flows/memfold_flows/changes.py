"""The change feed of a run, for whoever keeps an index or links beside a store: which ids went, came back or changed.

One JSON object a line, the memories that stay before those that went into them. Written from what landed, so that a
run that was interrupted and went on says the same as one that was not.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from memfold_flows.files import write_bytes
from memfold_flows.receipts import changed_rows
from memfold_flows.runs import RunDirectory
from memfold_flows.stores.base import Landed
from memfold_flows.stores.outcomes import Progress, Undone

APPLIED = "changes.jsonl"
UNDONE = "undo-changes.jsonl"


@dataclass(frozen=True, slots=True)
class Change:
    """What became of one id. Where it was removed, ``into`` is the memory that stays for it, if there is one."""

    id: str
    change: Literal["updated", "restored", "removed"]
    into: str | None = None
    superseded_by: str | None = None

    def as_json(self) -> dict[str, Any]:
        """The keys that say something of this change."""
        said = {"id": self.id, "change": self.change}
        return {**said, "into": self.into, "superseded_by": self.superseded_by} if self.change == "removed" else said


def of_apply(undo_rows: pa.Table, superseded_by: Mapping[str, str]) -> list[Change]:
    """What an apply did, from the undo rows of its committed transactions."""
    rows = _rows(undo_rows)
    moved = {row["memory_id"]: row["new_id"] for row in rows if row["change"] == "promoted"}
    stays = {row["into_id"] for row in rows if row["into_id"] is not None}
    stays |= {row["new_id"] for row in rows if row["change"] in ("folded", "promoted")}
    removed = {row["memory_id"]: row["into_id"] for row in rows if row["change"] == "removed"}
    removed |= {old: new for old, new in moved.items() if old != new}
    # The memory that replaced another may have gone into a third one.
    successors = {old: removed.get(new) or new for old, new in superseded_by.items()}
    return [
        *(Change(each, "updated") for each in sorted(stays)),
        *(Change(each, "removed", into, successors.get(each)) for each, into in sorted(removed.items())),
    ]


def of_undo(undo_rows: pa.Table, landed: Sequence[Landed]) -> list[Change]:
    """What the undos of a run did so far, all of them together."""
    progress = Progress(Undone, landed)
    remarks = [outcome for of_scope in progress.outcomes.values() for outcome in of_scope]
    failed = {memory_id for outcome in remarks for memory_id, _ in outcome.not_restored}
    unchanged = {memory_id for outcome in remarks for memory_id in outcome.unchanged}
    rows = [row for row in _rows(undo_rows) if _is_back(row, progress) and row["memory_id"] not in failed]
    moved = {row["new_id"]: row["memory_id"] for row in rows if row["change"] == "promoted"}
    moved = {new: old for new, old in moved.items() if new != old}
    restored = {row["memory_id"] for row in rows if row["change"] == "removed"} | set(moved.values())
    touched = {row["into_id"] for row in rows if row["into_id"] is not None}
    touched |= {row["memory_id"] for row in rows if row["change"] != "removed"}
    return [
        *(Change(each, "restored") for each in sorted(restored)),
        *(Change(each, "updated") for each in sorted(touched - restored - unchanged - moved.keys())),
        *(Change(new, "removed", old) for new, old in sorted(moved.items()) if new not in unchanged),
    ]


def write_applied(run: RunDirectory, landed: Sequence[Landed]) -> None:
    """Write the feed of an apply from what the ledger says of it."""
    rewrite = run.read("rewrite", ["memory_id", "superseded_by"]).to_pylist()
    superseded_by = {row["memory_id"]: row["superseded_by"] for row in rewrite if row["superseded_by"] is not None}
    rows = run.undo_rows({part.batch for part in landed if changed_rows(part)})
    write_bytes(run.path / APPLIED, as_lines(of_apply(rows, superseded_by)))


def write_undone(run: RunDirectory, undo_rows: pa.Table, landed: Sequence[Landed]) -> None:
    """Write the feed of the undos of a run, in place of the one that an earlier undo left."""
    write_bytes(run.path / UNDONE, as_lines(of_undo(undo_rows, landed)))


def as_lines(changes: Iterable[Change]) -> bytes:
    """The feed as a file holds it."""
    return b"".join(json.dumps(change.as_json()).encode() + b"\n" for change in changes)


def _rows(undo_rows: pa.Table) -> list[dict[str, Any]]:
    names = ["unit_id", "scope", "memory_id", "change", "into_id", "new_id"]
    rows: list[dict[str, Any]] = undo_rows.select(names).to_pylist()
    return rows


def _is_back(row: Mapping[str, Any], progress: Progress[Undone]) -> bool:
    scope, unit_id = row["scope"], row["unit_id"]
    return progress.covers(scope, unit_id) or row["memory_id"] in progress.taken(scope, unit_id)
