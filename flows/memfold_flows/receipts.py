"""What a pass would do and what it did, as values: the printed text, ``--json`` and the exit code come from here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from enum import IntEnum, StrEnum
from typing import Any

import pyarrow as pa

from memfold_flows.proposer.report import ModelReport
from memfold_flows.stores.base import ApplyReport, Drift, Landed, UndoReport
from memfold_flows.stores.outcomes import Applied, Progress
from memfold_flows.stores.undo_units import EVERYTHING, Selection


class ExitCode(IntEnum):
    """How a command ended, for scripts."""

    DONE = 0
    FAILED = 1
    BAD_USAGE = 2
    REFUSED = 3
    PARTLY = 4
    NOT_DUE = 5


class State(StrEnum):
    """How a pass ended; also the name of the flow's final state."""

    CONSOLIDATED = "Consolidated"
    NOTHING_TO_DO = "NothingToDo"
    REJECTED = "Rejected"
    PARTLY_APPLIED = "PartlyApplied"

    @property
    def exit_code(self) -> ExitCode:
        """How a command ends whose pass ended like this."""
        return _EXIT_CODES[self]


_EXIT_CODES = {
    State.CONSOLIDATED: ExitCode.DONE,
    State.NOTHING_TO_DO: ExitCode.DONE,
    State.REJECTED: ExitCode.REFUSED,
    State.PARTLY_APPLIED: ExitCode.PARTLY,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeTally:
    """What the plan does to one scope and what the gate says of it: one row of the ``tally`` relation."""

    scope: str
    entries_before: int
    entries_after: int
    merged: int
    promoted: int
    pruned: int
    expired: int
    held: int
    waits: int
    lost: int
    lost_strict: int
    lost_recently: int
    retained_originals: int
    loss_fraction: float
    loss_fraction_strict: float
    accepted: bool
    refused: tuple[str, ...]

    @property
    def changes(self) -> int:
        """How many memories the plan touches in this scope, survivors not counted."""
        return self.merged + self.promoted + self.pruned

    def left_alone(self) -> ScopeTally:
        """The same scope with nothing done to it."""
        return replace(
            self,
            entries_after=self.entries_before,
            retained_originals=self.entries_before,
            merged=0,
            promoted=0,
            pruned=0,
            expired=0,
            lost=0,
            lost_strict=0,
            loss_fraction=0.0,
            loss_fraction_strict=0.0,
        )


@dataclass(frozen=True, slots=True)
class LossLimit:
    """What a scope may lose, and whether exact copies and expired memories count."""

    max_loss_fraction: float
    strict_entries: bool

    def loss_of(self, scope: ScopeTally) -> float:
        """The loss figure that is held against the limit."""
        return scope.loss_fraction_strict if self.strict_entries else scope.loss_fraction

    def exceeded_by(self, scopes: Sequence[ScopeTally]) -> tuple[ScopeTally, ...]:
        """The scopes that are over the limit."""
        return tuple(scope for scope in scopes if self.loss_of(scope) > self.max_loss_fraction)


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Counts over all scopes, and the two loss figures over all their entries."""

    entries_before: int
    entries_after: int
    merged: int
    promoted: int
    pruned: int
    expired: int
    held: int
    waits: int
    lost: int
    lost_strict: int
    loss_fraction: float
    loss_fraction_strict: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReport:
    """A plan before anything is written. ``held_back`` names the first hundred memories that stay apart, and why.

    ``left_alone`` counts the rows that the store's own system cannot read, by what is wrong with them.
    """

    run_id: str
    run_dir: str
    store: str
    as_of: datetime
    limit: LossLimit
    scopes: tuple[ScopeTally, ...]
    held_back: tuple[Drift, ...] = ()
    left_alone: dict[str, int] = field(default_factory=dict)
    proposer: ModelReport | None = None
    #: What a person decided in this plan: keep or prune, by memory.
    edits: dict[str, str] = field(default_factory=dict)

    @property
    def refused(self) -> tuple[ScopeTally, ...]:
        """The scopes that the gate refuses."""
        return tuple(scope for scope in self.scopes if not scope.accepted)

    @property
    def writable(self) -> tuple[ScopeTally, ...]:
        """The scopes that an apply would write."""
        return tuple(scope for scope in self.scopes if scope.accepted and scope.changes)

    @property
    def totals(self) -> Totals:
        """What the plan would do if the gate accepted every scope."""
        return total(self.scopes)

    @property
    def to_be_written(self) -> Totals:
        """What an apply would do: a refused scope counts as it is."""
        return total([scope if scope.accepted else scope.left_alone() for scope in self.scopes])

    @property
    def verdict(self) -> str:
        """accepted, refused, partly accepted or nothing to do."""
        if self.refused:
            return "partly accepted" if self.writable else "refused"
        return "accepted" if self.writable else "nothing to do"

    def as_json(self) -> dict[str, Any]:
        """For ``--json``: the verdict first."""
        return {
            "verdict": self.verdict,
            "run_id": self.run_id,
            "run_dir": self.run_dir,
            "store": self.store,
            "as_of": self.as_of.isoformat(),
            **asdict(self.limit),
            **asdict(self.totals),
            "to_be_written": asdict(self.to_be_written),
            "scopes": _plain(self.scopes),
            "held_back": _plain(self.held_back),
            "left_alone": self.left_alone,
            "edits": self.edits,
            "proposer": _plain(self.proposer),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What a pass did to a store. A scope that was refused keeps the figures for which it was."""

    state: State
    run_id: str
    run_dir: str
    store: str
    as_of: datetime
    began_at: datetime
    ended_at: datetime
    limit: LossLimit
    already_applied_at: datetime | None = None
    written_to: str | None = None
    scopes: tuple[ScopeTally, ...]
    held_back: tuple[Drift, ...] = ()
    left_alone: dict[str, int] = field(default_factory=dict)
    proposer: ModelReport | None = None
    drifted: tuple[Drift, ...] = ()
    metadata_conflicts: tuple[Drift, ...] = ()
    fields_left_out: tuple[str, ...] = ()
    new_ids: dict[str, str] = field(default_factory=dict)
    transactions: int = 0
    longest_hold_seconds: float = 0.0

    @property
    def exit_code(self) -> ExitCode:
        return self.state.exit_code

    @property
    def totals(self) -> Totals:
        """What was written: a refused scope counts as it was."""
        return total([scope if scope.accepted else scope.left_alone() for scope in self.scopes])

    @property
    def refused(self) -> tuple[ScopeTally, ...]:
        """The scopes that were refused; nothing of them was written."""
        return tuple(scope for scope in self.scopes if not scope.accepted)

    def as_json(self) -> dict[str, Any]:
        """For ``receipt.json`` and ``--json``."""
        return {
            **{field.name: _plain(getattr(self, field.name)) for field in fields(self) if field.name != "limit"},
            **asdict(self.limit),
            "exit_code": int(self.exit_code),
            **asdict(self.totals),
            "seconds": (self.ended_at - self.began_at).total_seconds(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoReceipt:
    """What an undo gave back, of a whole run or of a part."""

    run_id: str
    store: str
    ended_at: datetime
    report: UndoReport
    of: Selection = EVERYTHING

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode.PARTLY if self.report.not_restored else ExitCode.DONE

    def as_json(self) -> dict[str, Any]:
        """For ``undo.json`` and ``--json``."""
        report = {name: _plain(value) for name, value in asdict(self.report).items()}
        return {
            "state": "PartlyUndone" if self.report.not_restored or not self.report.is_whole else "Undone",
            "run_id": self.run_id,
            "store": self.store,
            "scope": self.of.scope,
            "memory_id": self.of.memory_id,
            "ended_at": self.ended_at.isoformat(),
            "exit_code": int(self.exit_code),
            **report,
        }


def read_tally(tally: pa.Table) -> tuple[ScopeTally, ...]:
    """The rows of the ``tally`` relation, in its order."""
    return tuple(ScopeTally(**{**row, "refused": tuple(row["refused"])}) for row in tally.to_pylist())


def settled(planned: Sequence[ScopeTally], landed: Sequence[Landed]) -> tuple[ScopeTally, ...]:
    """The tally as it came out: what the ledger says was done to each accepted scope, drift taken into account."""
    progress = Progress(Applied, landed)
    return tuple(_settled(scope, progress) if scope.accepted else scope for scope in planned)


def changed_rows(landed: Landed) -> int:
    """How many rows a committed transaction removed or promoted in one scope."""
    progress = Progress(Applied, [landed])
    return sum(progress.total(landed.scope, name) for name in ("merged", "pruned", "promoted"))


def total(scopes: Sequence[ScopeTally]) -> Totals:
    """Sums over scopes. The loss fraction of no entries is 0.0."""
    before = sum(scope.entries_before for scope in scopes)
    lost = sum(scope.lost for scope in scopes)
    lost_strict = sum(scope.lost_strict for scope in scopes)
    return Totals(
        entries_before=before,
        entries_after=sum(scope.entries_after for scope in scopes),
        merged=sum(scope.merged for scope in scopes),
        promoted=sum(scope.promoted for scope in scopes),
        pruned=sum(scope.pruned for scope in scopes),
        expired=sum(scope.expired for scope in scopes),
        held=sum(scope.held for scope in scopes),
        waits=sum(scope.waits for scope in scopes),
        lost=lost,
        lost_strict=lost_strict,
        loss_fraction=lost / before if before else 0.0,
        loss_fraction_strict=lost_strict / before if before else 0.0,
    )


def state_of(scopes: Sequence[ScopeTally], report: ApplyReport) -> State:
    """How the pass ended: refusals and drift beside written scopes make it partial."""
    refused = [scope for scope in scopes if not scope.accepted]
    wrote = report.merged + report.pruned + report.promoted > 0
    if report.drifted or (refused and wrote):
        return State.PARTLY_APPLIED
    if refused:
        return State.REJECTED
    return State.CONSOLIDATED if wrote else State.NOTHING_TO_DO


def _settled(scope: ScopeTally, progress: Progress[Applied]) -> ScopeTally:
    refused = tuple(part.refused for part in progress.outcomes.get(scope.scope, ()) if part.refused)
    merged, pruned, lost = (progress.total(scope.scope, name) for name in ("merged", "pruned", "lost"))
    before = scope.entries_before
    return replace(
        scope,
        entries_after=before - merged - pruned,
        merged=merged,
        promoted=progress.total(scope.scope, "promoted"),
        pruned=pruned,
        expired=progress.total(scope.scope, "expired"),
        lost=lost,
        lost_strict=max(merged + pruned, lost),
        retained_originals=before - lost,
        loss_fraction=lost / before if before else 0.0,
        loss_fraction_strict=max(merged + pruned, lost) / before if before else 0.0,
        accepted=not refused,
        refused=refused,
    )


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    if isinstance(value, ModelReport):
        return value.as_json()
    if isinstance(value, Drift | ScopeTally):
        return {name: _plain(each) for name, each in asdict(value).items()}
    return value
