"""The runs of a store as its own ledger tells them, and those that began to write and did not end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from memfold_flows.stores.base import Landed, MemoryStore, RunRecord
from memfold_flows.stores.outcomes import Applied, Progress, Undone


class RunState(StrEnum):
    """How far a run has come."""

    APPLIED = "Applied"
    IN_APPLY = "InTheMiddleOfApply"
    IN_UNDO = "InTheMiddleOfUndo"
    PARTLY_UNDONE = "PartlyUndone"
    UNDONE = "Undone"


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRun:
    """One run that wrote to a store: what landed, and what was taken back of it. ``removed`` counts what left."""

    run_id: str
    state: RunState
    began_at: datetime
    applied_at: datetime | None
    undone_at: datetime | None
    merged: int
    pruned: int
    promoted: int
    lost: int
    restored: int
    not_restored: int
    directory: str
    has_directory: bool

    @property
    def is_in_the_middle(self) -> bool:
        """Whether it is at work, or was interrupted."""
        return self.state in (RunState.IN_APPLY, RunState.IN_UNDO)

    def as_json(self) -> dict[str, Any]:
        """For ``--json``."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in values.items()}


def runs_of(store: MemoryStore) -> list[PastRun]:
    """Every run that wrote to this store, newest first."""
    with store.ledger() as ledger:
        if ledger is None:
            return []
        return [
            _past_run(record, ledger.landed(record.run_id, "apply"), ledger.landed(record.run_id, "undo"))
            for record in ledger.runs()
        ]


def run_of(store: MemoryStore, run_id: str) -> PastRun | None:
    """One run as the store tells it; None where it never wrote there."""
    return next((run for run in runs_of(store) if run.run_id == run_id), None)


def what_to_do(run: PastRun, *, store: str, runs_folder: Path) -> str:
    """In words: a run in the middle of its apply or undo, what of it stands, and how to end it."""
    step = "undo" if run.state is RunState.IN_UNDO else "apply"
    named = run.run_id if runs_folder / run.run_id == Path(run.directory) else run.directory
    found = (
        f"run {run.run_id} is in the middle of its {step} on {store} since {run.began_at:%Y-%m-%d %H:%M} UTC: it is "
        "still at work, or it was interrupted. What it committed stands"
    )
    if not run.has_directory:
        return f"{found}; its run directory {run.directory} is gone, so it can neither go on nor be taken back."
    ways = (
        f"memfold undo {named} goes on"
        if step == "undo"
        else (f"memfold apply {named} goes on, memfold undo {named} takes it back")
    )
    return f"{found}; {ways}."


def _past_run(record: RunRecord, applied: Sequence[Landed], undone: Sequence[Landed]) -> PastRun:
    did, took_back = Progress(Applied, applied), Progress(Undone, undone)
    counts = {
        name: sum(did.total(scope, name) for scope in did.outcomes) for name in ("merged", "pruned", "promoted", "lost")
    }
    outcomes = [outcome for of_scope in took_back.outcomes.values() for outcome in of_scope]
    return PastRun(
        run_id=record.run_id,
        state=_state(record, undone),
        began_at=record.began_at,
        applied_at=record.applied_at,
        undone_at=record.undone_at,
        restored=sum(outcome.restored for outcome in outcomes),
        not_restored=sum(len(outcome.not_restored) for outcome in outcomes),
        directory=record.directory,
        has_directory=(Path(record.directory) / "manifest.json").is_file(),
        **counts,
    )


def _state(record: RunRecord, undone: Sequence[Landed]) -> RunState:
    if record.undone_at is not None:
        return RunState.UNDONE
    if undone:
        last = max(part.batch for part in undone)
        outcomes = Progress(Undone, [part for part in undone if part.batch == last]).outcomes
        if not all(outcome.ended for of_scope in outcomes.values() for outcome in of_scope):
            return RunState.IN_UNDO
    if record.applied_at is None:
        return RunState.IN_APPLY
    return RunState.PARTLY_UNDONE if undone else RunState.APPLIED
