"""Apply: write an accepted rewrite into a store, row by row as it stands now, in short transactions.

What is the same for every store lives here and beside it: what drifted and what folds (``settling``), how it is taken
back (``undoing``), what is reported (``outcomes``). How a row is read and written is the adapter's.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa

from memfold.errors import BadUsage, PlanDamaged
from memfold.frames import UNDO
from memfold.policy import Policy
from memfold_flows import progress as reporting
from memfold_flows.stores.base import (
    ApplyReport,
    Landed,
    MemoryStore,
    RunRecord,
    RunRef,
    StoreTraits,
    Transaction,
    Update,
)
from memfold_flows.stores.folded_fields import changed_fields, to_json
from memfold_flows.stores.outcomes import Applied, Progress, apply_report, landed
from memfold_flows.stores.sessions import Clock, Session
from memfold_flows.stores.settling import Losses, Settled, counts_as_lost, rewritten, settle, why_refused
from memfold_flows.stores.undoing import undo
from memfold_flows.stores.units import PlannedRow, Unit, next_transaction, read_units

__all__ = ["UndoWriter", "apply", "undo"]

#: Takes the number of a transaction and its undo rows, and returns once they are durable. A transaction that did not
#: commit is tried again under the same number: what was written for it then must be overwritten, not kept beside.
UndoWriter = Callable[[int, pa.Table], None]


def apply(
    store: MemoryStore,
    rewrite: pa.Table,
    *,
    run: RunRef,
    policy: Policy,
    tally: pa.Table,
    undo: UndoWriter,
    clock: Clock,
    monotonic: Callable[[], float] = time.monotonic,
    fence: int | None = None,
) -> ApplyReport:
    """Write the rewrite of a run into its store; what drifted since the snapshot is left alone and reported.

    An apply that was interrupted goes on where it stopped; one that ended writes nothing and says when it ended. With a
    ``fence``, nothing is written unless this run still holds the lease under that number.

    Raises:
        PlanDamaged: the rewrite contradicts itself, its tally, or what was begun under this run id.
        BadUsage: the run was taken back, or was planned for a time that has not come.
        Transient: the store is busy; what was committed stays, and the same call goes on from there.
    """
    units = read_units(rewrite, tally)
    with store.ledger() as ledger:
        known = ledger.run(run.run_id) if ledger else None
        progress = Progress(Applied, ledger.landed(run.run_id, "apply") if ledger else ())
    _require_applicable(run, known, policy, clock())
    session = Session(store, run.run_id, clock=clock, monotonic=monotonic, fence=fence)
    todo = [unit for unit in units if not progress.covers(unit.scope, unit.unit_id)]
    ahead = _Ahead(todo, policy)
    written, rows = 0, sum(len(unit.rows) for unit in todo)
    while todo:
        reporting.report("writing", written, rows)
        batch = next_transaction(todo, session.rows_at_most)
        written += sum(len(unit.rows) for unit in batch)
        todo = todo[len(batch) :]
        ahead.pass_by(batch)
        is_last = not todo
        with session.transaction(is_last=is_last) as (transaction, now):
            transaction.ledger.begin(run, now)
            writer = _Writer(transaction, store.traits, policy, run.run_id, now)
            parts = writer.write(batch, progress, ahead, undo)
            if is_last:
                transaction.ledger.finish(run.run_id, "apply", now)
        progress.add(parts)
    report = apply_report(progress)
    report.already_applied_at = known.applied_at if known else None
    report.longest_hold_seconds = session.longest_hold_seconds
    return report


def _require_applicable(run: RunRef, known: RunRecord | None, policy: Policy, now: datetime) -> None:
    if policy.as_of > now:
        raise BadUsage(
            f"run {run.run_id} was planned as of {policy.as_of:%Y-%m-%d %H:%M:%S} UTC, which has not come yet; "
            "nothing was written. Plan again with an earlier as_of."
        )
    if known is None:
        return
    if run.digest != known.digest:
        raise PlanDamaged(
            f"run {run.run_id} was begun on this store with another plan; nothing was written now. Plan again."
        )
    if known.undone_at is not None:
        raise BadUsage(
            f"run {run.run_id} was taken back at {known.undone_at:%Y-%m-%d %H:%M:%S} UTC; nothing was written. "
            "Plan again."
        )


class _Ahead:
    """What the transactions that are still to come will take from each scope, as it was planned."""

    def __init__(self, units: Iterable[Unit], policy: Policy) -> None:
        self._policy = policy
        self.lost: Counter[str] = Counter()
        self.expired: Counter[str] = Counter()
        for unit in units:
            self._count(unit, 1)

    def pass_by(self, units: Iterable[Unit]) -> None:
        """These units are no longer ahead: their transaction is the next one."""
        for unit in units:
            self._count(unit, -1)

    def _count(self, unit: Unit, sign: int) -> None:
        self.lost[unit.scope] += sign * (unit.new_content is not None)
        for row in unit.removed:
            self.lost[row.scope] += sign * counts_as_lost(row, self._policy)
            self.expired[row.scope] += sign * (row.reason == "expired")


@dataclass(slots=True)
class _Writer:
    """One transaction of an apply."""

    transaction: Transaction
    traits: StoreTraits
    policy: Policy
    run_id: str
    now: datetime

    def write(
        self, units: Sequence[Unit], progress: Progress[Applied], ahead: _Ahead, keep: UndoWriter
    ) -> list[Landed]:
        """Write what of these units still stands, its undo data before anything is committed; returns the record."""
        settled = self._settle(units)
        outcomes = self._outcomes(settled, progress, ahead)
        going = [each for each in settled if outcomes[each.unit.scope].refused is None]
        promoted = self._write_rows(going)
        for each in going:
            outcome = outcomes[each.unit.scope]
            for row in each.promoted:
                outcome.promoted += 1
                if (new_id := promoted[row.memory_id].new_id) != row.memory_id:
                    outcome.new_ids[row.memory_id] = new_id
        if undo_rows := [row for each in going for row in _undo_rows(each, promoted, self.policy)]:
            keep(progress.next_batch, pa.Table.from_pylist(undo_rows, UNDO))
        parts = landed(progress.next_batch, outcomes, units)
        self._write_ledger(going, outcomes, promoted, parts)
        return parts

    def _settle(self, units: Sequence[Unit]) -> list[Settled]:
        ids = {row.memory_id for unit in units for row in unit.rows}
        ids |= {row.superseded_by for unit in units for row in unit.rows if row.superseded_by is not None}
        forgotten = self.transaction.ledger.tombstones()
        # Brought back by hand, from a copy of old, a memory that was forgotten is none that this plan may rely on.
        rows = {
            memory_id: row
            for memory_id, row in self.transaction.read(ids).items()
            if not (
                forgotten.forgot_since(memory_id, self.policy.as_of)
                and forgotten.forgot_text(memory_id, row.memory.content)
            )
        }
        return [settle(unit, rows, self.traits, self.policy) for unit in units]

    def _outcomes(self, settled: list[Settled], progress: Progress[Applied], ahead: _Ahead) -> dict[str, Applied]:
        since = self.policy.as_of - timedelta(days=self.policy.rolling_days)
        lost_recently = self.transaction.ledger.losses(since, but=self.run_id)
        by_scope: defaultdict[str, list[Settled]] = defaultdict(list)
        for each in settled:
            by_scope[each.unit.scope].append(each)
        outcomes: dict[str, Applied] = {}
        for scope, of_scope in by_scope.items():
            outcome = self._outcome(of_scope)
            losses = Losses(
                entries=self.transaction.count(scope) + progress.total(scope, "removed"),
                lost=progress.total(scope, "lost") + outcome.lost + ahead.lost[scope],
                expired=progress.total(scope, "expired") + outcome.expired + ahead.expired[scope],
                lost_recently=lost_recently.get(scope, 0),
            )
            refused = progress.refused(scope) or (why_refused(losses, self.policy) if outcome.removed else None)
            outcomes[scope] = Applied(refused=refused) if refused else outcome
        return outcomes

    def _outcome(self, settled: list[Settled]) -> Applied:
        removed = [row for each in settled for row in each.removed]
        return Applied(
            merged=sum(row.role == "member" for row in removed),
            pruned=sum(row.role == "prune" for row in removed),
            lost=sum(counts_as_lost(row, self.policy) for row in removed) + sum(map(rewritten, settled)),
            expired=sum(row.reason == "expired" for row in removed),
            drifted=[remark for each in settled for remark in each.drifted],
            metadata_conflicts=[
                (each.unit.survivor.memory_id, f"keeps its own {', '.join(each.metadata_conflicts)}")
                for each in settled
                if each.metadata_conflicts and each.unit.survivor
            ],
            fields_left_out=sorted({name for each in settled for name in each.fields_left_out}),
        )

    def _write_rows(self, settled: list[Settled]) -> dict[str, _Promoted]:
        """Write the rows; returns what became of those that were promoted."""
        transaction = self.transaction
        folded = [(each.rows[each.folded.memory_id].memory, each.folded) for each in settled if each.folded is not None]
        transaction.update([Update(before, after) for before, after in folded])
        transaction.delete({row.memory_id for each in settled for row in each.removed})
        by_tier: defaultdict[str, set[str]] = defaultdict(set)
        for row in (row for each in settled for row in each.promoted):
            by_tier[row.promote_to or ""].add(row.memory_id)
        new_ids: dict[str, str] = {}
        for tier, ids in sorted(by_tier.items()):
            new_ids |= transaction.promote(transaction.read(ids), tier)
        now = transaction.read(new_ids.values())
        return {old: _Promoted(new, now[new].memory.row_digest) for old, new in new_ids.items()}

    def _write_ledger(
        self, settled: list[Settled], outcomes: dict[str, Applied], promoted: dict[str, _Promoted], parts: list[Landed]
    ) -> None:
        ledger = self.transaction.ledger
        redirects = {old: each.new_id for old, each in promoted.items() if each.new_id != old}
        redirects |= {
            row.memory_id: _live_id(row.into_id, promoted)
            for each in settled
            for row in each.removed
            if row.into_id is not None
        }
        ledger.redirect(self.run_id, redirects)
        stays = {row.memory_id for each in settled for row in each.unit.rows if row.role == "survivor"}
        decided = ledger.decided(stays | redirects.keys())
        ledger.carry_rejections(_carried(settled, promoted, decided))
        for scope, outcome in sorted(outcomes.items()):
            if outcome.lost:
                ledger.lose(self.run_id, scope, outcome.lost, self.now)
        ledger.land(self.run_id, "apply", parts, self.now)


class _Promoted(NamedTuple):
    new_id: str
    row_digest: str


def _carried(
    settled: Iterable[Settled], promoted: Mapping[str, _Promoted], decided: Collection[str]
) -> dict[tuple[str, str], tuple[str, str]]:
    """Of the rows that a rejected decision names, those that memfold itself changes: (id, digest) before -> after.

    What was decided of a memory that is merged holds for the one that stays for it.
    """
    changed: dict[tuple[str, str], tuple[str, str]] = {}
    for each in settled:
        if (stays := each.unit.survivor) is not None:
            digest = each.folded.row_digest if each.folded else stays.row_digest
            now = promoted.get(stays.memory_id, _Promoted(stays.memory_id, digest))
            changed |= {(row.memory_id, row.row_digest): now for row in each.removed if row.memory_id in decided}
    for row, folded in ((row, each.folded) for each in settled for row in each.unit.rows if row.memory_id in decided):
        if row.memory_id in promoted:
            changed[row.memory_id, row.row_digest] = promoted[row.memory_id]
        elif folded is not None and folded.memory_id == row.memory_id and folded.row_digest != row.row_digest:
            changed[row.memory_id, row.row_digest] = (row.memory_id, folded.row_digest)
    return changed


def _undo_rows(settled: Settled, promoted: Mapping[str, _Promoted], policy: Policy) -> Iterator[dict[str, Any]]:
    """What an undo needs of one unit: see ``frames.UNDO``; fields and times as the rows had them before."""
    survivor = settled.unit.survivor
    for row in settled.removed:
        into_id = None if row.into_id is None else _live_id(row.into_id, promoted)
        yield _undo_row(
            settled,
            row,
            "removed",
            into_id=into_id,
            into_digest=survivor.row_digest if survivor else None,
            is_lost=counts_as_lost(row, policy),
        )
    if survivor and settled.folded:
        before = settled.rows[survivor.memory_id].memory
        names = changed_fields(before, settled.folded)
        fields = {"before": to_json(before, names), "after": to_json(settled.folded, names)}
        is_lost = bool(rewritten(settled))
        yield _undo_row(
            settled, survivor, "folded", new_id=_live_id(survivor.memory_id, promoted), is_lost=is_lost, **fields
        )
    for row in settled.promoted:
        new_id, digest = promoted[row.memory_id]
        before = settled.rows[row.memory_id].memory
        fields = {"before": to_json(before, ["tier"]), "after": to_json(replace(before, tier=row.promote_to), ["tier"])}
        yield _undo_row(settled, row, "promoted", new_id=new_id, into_digest=digest, **fields)


def _undo_row(settled: Settled, row: PlannedRow, change: str, **values: str | bool | None) -> dict[str, Any]:
    return {
        "unit_id": row.unit_id,
        "scope": row.scope,
        "memory_id": row.memory_id,
        "change": change,
        "is_lost": False,
        "row_digest": row.row_digest,
        "raw": settled.rows[row.memory_id].raw,
        **values,
    }


def _live_id(memory_id: str, promoted: Mapping[str, _Promoted]) -> str:
    return promoted[memory_id].new_id if memory_id in promoted else memory_id
