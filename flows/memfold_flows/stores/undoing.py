"""Undo: take back what an apply did, as far as nobody changed it since."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import combinations
from typing import NamedTuple

import pyarrow as pa

from memfold.errors import BadUsage, PlanDamaged, StoreError
from memfold.frames import UNDO
from memfold.memory import Memory
from memfold_flows.stores.base import Landed, MemoryStore, Rejection, RunRef, Transaction, UndoReport, Update
from memfold_flows.stores.folded_fields import from_json, take_back
from memfold_flows.stores.outcomes import Applied, Progress, Undone, landed, undo_report
from memfold_flows.stores.sessions import Clock, Session
from memfold_flows.stores.units import next_transaction

#: Up to here the members of a cluster that was taken back are kept apart from one another too, pair by pair.
_PAIRED_MEMBERS = 30


class UndoRow(NamedTuple):
    """One row of ``frames.UNDO``."""

    unit_id: int
    scope: str
    memory_id: str
    change: str
    into_id: str | None
    new_id: str | None
    is_lost: bool
    row_digest: str
    into_digest: str | None
    raw: bytes
    before: str | None
    after: str | None


@dataclass(slots=True)
class _UndoUnit:
    """The changes of one unit."""

    unit_id: int
    scope: str
    removed: list[UndoRow] = field(default_factory=list)
    folded: UndoRow | None = None
    promoted: list[UndoRow] = field(default_factory=list)

    @property
    def size(self) -> int:
        return len(self.removed) + len(self.promoted) + 1


def undo(
    store: MemoryStore,
    undo_rows: pa.Table,
    *,
    run: RunRef,
    clock: Clock,
    monotonic: Callable[[], float] = time.monotonic,
) -> UndoReport:
    """Take back what a run did to its store: removed rows, redirects, promotions, folded fields, counted losses.

    Nothing that was written since is overwritten: what cannot be taken back for that reason is reported. What was
    taken back is remembered, so that it is not proposed again until a text changes.

    Raises:
        BadUsage: this run never wrote to this store.
        PlanDamaged: the undo data lacks rows that the ledger says were removed; nothing was restored.
        Transient: the store is busy; what was committed stays, and the same call goes on from there.
    """
    with store.ledger() as ledger:
        known = ledger.run(run.run_id) if ledger else None
        applied = Progress(Applied, ledger.landed(run.run_id, "apply") if ledger else ())
        progress = Progress(Undone, ledger.landed(run.run_id, "undo") if ledger else ())
    if known is None:
        raise BadUsage(
            f"run {run.run_id} never wrote to {store.url}; nothing was restored. Check the run and the store."
        )
    units = [unit for unit in _units(undo_rows) if applied.covers(unit.scope, unit.unit_id)]
    _require_complete(units, applied, run.run_id)
    todo = [unit for unit in units if not progress.covers(unit.scope, unit.unit_id)]
    session = Session(store, f"{run.run_id} (undo)", clock=clock, monotonic=monotonic)
    is_last = known.undone_at is not None
    while not is_last:
        batch = next_transaction(todo, session.rows_at_most)
        todo = todo[len(batch) :]
        is_last = not todo
        with session.transaction(is_last=is_last) as (transaction, now):
            parts = _Taker(transaction, run.run_id, now).take_back(batch, progress)
            if is_last:
                transaction.ledger.finish(run.run_id, "undo", now)
        progress.add(parts)
    report = undo_report(progress)
    report.already_undone_at = known.undone_at
    report.longest_hold_seconds = session.longest_hold_seconds
    return report


def _units(undo_rows: pa.Table) -> list[_UndoUnit]:
    units: dict[tuple[str, int], _UndoUnit] = {}
    for values in zip(*(column.to_pylist() for column in undo_rows.select(UNDO.names).columns), strict=True):
        row = UndoRow(*values)
        unit = units.setdefault((row.scope, row.unit_id), _UndoUnit(row.unit_id, row.scope))
        if row.change == "removed":
            unit.removed.append(row)
        elif row.change == "folded":
            unit.folded = row
        else:
            unit.promoted.append(row)
    return [units[key] for key in sorted(units)]


def _require_complete(units: Iterable[_UndoUnit], applied: Progress[Applied], run_id: str) -> None:
    removed: Counter[str] = Counter()
    for unit in units:
        removed[unit.scope] += len(unit.removed)
    for scope in applied.outcomes:
        if removed[scope] != (recorded := applied.total(scope, "removed")):
            raise PlanDamaged(
                f"the undo data of run {run_id} holds {removed[scope]} removed memories of scope {scope!r}, the ledger "
                f"of the store {recorded}; nothing was restored. Bring back the run's undo folder as it was."
            )


@dataclass(slots=True)
class _Taker:
    """One transaction of an undo."""

    transaction: Transaction
    run_id: str
    now: datetime
    outcomes: defaultdict[str, Undone] = field(default_factory=lambda: defaultdict(Undone))
    deletes: set[str] = field(default_factory=set)
    updates: list[Update] = field(default_factory=list)
    raws: dict[str, bytes] = field(default_factory=dict)
    #: The id that a promoted row has now -> the one that it goes back to.
    old_ids: dict[str, str] = field(default_factory=dict)

    def take_back(self, units: Sequence[_UndoUnit], progress: Progress[Undone]) -> list[Landed]:
        """Take back what of these units still can be; returns the record."""
        rows = {memory_id: stored.memory for memory_id, stored in self.transaction.read(_touched(units)).items()}
        for unit in units:
            outcome = self.outcomes[unit.scope]
            for row in unit.promoted:
                self._demote(row, _folded_of(unit, row), rows, outcome)
            if unit.folded is not None and _folded_of(unit, *unit.promoted) is None:
                self._revert(unit.folded, rows, outcome)
            for row in unit.removed:
                if row.memory_id in rows:
                    outcome.not_restored.append((row.memory_id, "is there again: it was written since"))
                else:
                    self.raws[row.memory_id] = row.raw
                    outcome.restored += 1
        self._write_rows()
        self._write_ledger(units)
        parts = landed(progress.next_batch, dict(self.outcomes), units)
        self.transaction.ledger.land(self.run_id, "undo", parts, self.now)
        return parts

    def _demote(self, row: UndoRow, folded: UndoRow | None, rows: dict[str, Memory], outcome: Undone) -> None:
        new_id = row.new_id or row.memory_id
        current = rows.get(new_id)
        if current is None and self.transaction.ledger.resolve(new_id) == new_id:
            outcome.not_restored.append((row.memory_id, f"was promoted to {new_id!r}, which is gone"))
        elif current is not None and new_id == row.memory_id:
            self._take_back_fields(current, [row, *([folded] if folded else [])], outcome)
            outcome.demoted += 1
        elif row.memory_id in rows:
            outcome.not_restored.append((row.memory_id, "is there again: it was written since"))
        elif current is not None and current.row_digest != row.into_digest:
            outcome.not_restored.append((row.memory_id, f"was promoted to {new_id!r}, which was changed since"))
        else:
            # The row as it was before it took anything in: nothing but what a digest leaves out can have changed since.
            # Where a later pass merged the promoted row, it comes back beside the one that took it in.
            self.raws[row.memory_id] = row.raw
            self.old_ids[new_id] = row.memory_id
            outcome.demoted += 1
            outcome.reverted += folded is not None
            if current is not None:
                self.deletes.add(new_id)

    def _revert(self, row: UndoRow, rows: dict[str, Memory], outcome: Undone) -> None:
        if row.memory_id not in rows:
            outcome.kept_fields.append((row.memory_id, "is gone, and the fields that it had taken in with it"))
            return
        self._take_back_fields(rows[row.memory_id], [row], outcome)

    def _take_back_fields(self, current: Memory, changes: list[UndoRow], outcome: Undone) -> None:
        reverted = self._reverted(current, changes, outcome)
        if reverted != current:
            # The last of the changes is the one made first, on the row as it had always been.
            self.updates.append(Update(current, reverted, changes[-1].raw))

    def _reverted(self, current: Memory, changes: list[UndoRow], outcome: Undone) -> Memory:
        before = {name: value for row in changes for name, value in from_json(row.before).items()}
        after = {name: value for row in changes for name, value in from_json(row.after).items()}
        reverted, kept = take_back(current, before, after)
        if kept:
            outcome.kept_fields.append((current.memory_id, f"keeps {', '.join(kept)}, written since"))
        if reverted != current and any(row.change == "folded" for row in changes):
            outcome.reverted += 1
        return reverted

    def _write_rows(self) -> None:
        transaction = self.transaction
        transaction.delete(self.deletes)
        if taken := transaction.restore(self.raws):
            raise StoreError(f"{min(taken)!r} stands in the store and could not be read; nothing was restored")
        transaction.update(self.updates)

    def _write_ledger(self, units: Sequence[_UndoUnit]) -> None:
        ledger = self.transaction.ledger
        restored = [row for unit in units for row in unit.removed if row.memory_id in self.raws]
        ledger.reject(self._rejections(units, restored))
        ledger.drop_redirects(self.raws)
        lost = Counter(row.scope for row in restored if row.is_lost)
        for scope, rows in sorted(lost.items()):
            ledger.give_back(self.run_id, scope, rows)

    def _rejections(self, units: Sequence[_UndoUnit], restored: list[UndoRow]) -> set[Rejection]:
        """The decisions that are not to be made again, with the digests of the rows as they stand now."""
        heirs = {row.into_id: self._heirs(row.into_id) for row in restored if row.into_id is not None}
        demoted = [row.memory_id for unit in units for row in unit.promoted]
        ids = {heir for each in heirs.values() for heir in each} | set(demoted)
        now = {memory_id: stored.memory.row_digest for memory_id, stored in self.transaction.read(ids).items()}
        rejections = {Rejection(memory_id, None, now[memory_id], None) for memory_id in demoted if memory_id in now}
        clusters: defaultdict[str, list[UndoRow]] = defaultdict(list)
        for row in restored:
            if row.into_id is None:
                rejections.add(Rejection(row.memory_id, None, row.row_digest, None))
                continue
            clusters[row.into_id].append(row)
            for heir in heirs[row.into_id]:
                rejections.add(Rejection(row.memory_id, heir, row.row_digest, now.get(heir, row.into_digest)))
        for members in clusters.values():
            for left, right in combinations(members, 2) if len(members) <= _PAIRED_MEMBERS else ():
                rejections.add(Rejection(left.memory_id, right.memory_id, left.row_digest, right.row_digest))
        return rejections

    def _heirs(self, into_id: str) -> set[str]:
        """The survivor as it is called after this undo, and what became of it since."""
        return {self.old_ids.get(into_id, into_id), self.transaction.ledger.resolve(into_id)}


def _touched(units: Iterable[_UndoUnit]) -> set[str]:
    rows = [row for unit in units for row in (*unit.removed, *unit.promoted, *([unit.folded] if unit.folded else []))]
    return {row.memory_id for row in rows} | {row.new_id for row in rows if row.new_id is not None}


def _folded_of(unit: _UndoUnit, *promoted: UndoRow) -> UndoRow | None:
    """The fold of the row that was also promoted, if it is one of these."""
    if unit.folded is not None and unit.folded.memory_id in {row.memory_id for row in promoted}:
        return unit.folded
    return None
