"""Undo: take back what an apply did, as far as nobody changed it since."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import combinations, product

import pyarrow as pa

from memfold.errors import BadUsage, StoreError
from memfold.memory import Memory
from memfold_flows.stores.base import (
    InOrder,
    Landed,
    MemoryStore,
    Rejection,
    RunRecord,
    RunRef,
    Transaction,
    UndoReport,
    Update,
)
from memfold_flows.stores.folded_fields import from_json, take_back
from memfold_flows.stores.outcomes import Applied, Progress, Undone, interrupted, landed, undo_report
from memfold_flows.stores.sessions import Clock, Session
from memfold_flows.stores.tombstones import Tombstones
from memfold_flows.stores.undo_units import EVERYTHING, Chosen, Selection, UndoRow, UndoUnit, choose, read_units
from memfold_flows.stores.units import next_transaction

#: Up to here the members of a cluster that was taken back are kept apart from one another too, pair by pair.
_PAIRED_MEMBERS = 30


def undo(
    store: MemoryStore,
    undo_rows: pa.Table,
    *,
    run: RunRef,
    clock: Clock,
    selection: Selection = EVERYTHING,
    monotonic: Callable[[], float] = time.monotonic,
) -> UndoReport:
    """Take back what a run did to its store: removed rows, redirects, promotions, folded fields, counted losses.

    Nothing that was written since is overwritten: what cannot be taken back for that reason is reported. What was
    taken back is remembered, so that it is not proposed again until a text changes. With a ``selection`` only that part
    of the run comes back; a later undo of the whole run does the rest.

    Raises:
        BadUsage: this run never wrote to this store, or not to what was selected.
        PlanDamaged: the undo data lacks rows that the ledger says were removed; nothing was restored.
        Transient: the store is busy; what was committed stays, and the same call goes on from there.
    """
    with store.ledger() as ledger:
        known = ledger.run(run.run_id) if ledger else None
        applied = Progress(Applied, ledger.landed(run.run_id, "apply") if ledger else ())
        undone = ledger.landed(run.run_id, "undo") if ledger else []
    progress = Progress(Undone, undone)
    if known is None:
        raise BadUsage(
            f"run {run.run_id} never wrote to {store.url}; nothing was restored. Check the run and the store."
        )
    chosen = choose(read_units(undo_rows, applied, run.run_id), selection, progress, run.run_id)
    # An apply that did not end may have more to come, which only an undo of the whole run rules out.
    is_whole = selection.is_all or (chosen.is_rest and known.applied_at is not None)
    session = Session(store, f"{run.run_id} (undo)", clock=clock, monotonic=monotonic)
    todo: Sequence[UndoUnit] = chosen.units
    # One memory takes one transaction, which is never half done.
    this_undo = interrupted(undone) if selection.memory_id is None else []
    is_last = known.undone_at is not None or (not selection.is_all and not todo)
    while not is_last:
        batch = next_transaction(todo, session.rows_at_most)
        todo = todo[len(batch) :]
        is_last = not todo
        with session.transaction(is_last=is_last) as (transaction, now):
            forgotten = transaction.ledger.tombstones()
            parts = _Taker(transaction, run.run_id, now, chosen.away, known.began_at, forgotten).take_back(
                batch, progress.next_batch, ended=is_last
            )
            if is_last and is_whole:
                transaction.ledger.finish(run.run_id, "undo", now)
        progress.add(parts)
        this_undo += parts
    already = _already(known, chosen, selection)
    is_told_again = already is not None and selection.memory_id is None
    report = undo_report(undone if is_told_again else this_undo, scope=selection.scope)
    report.already_undone_at = already
    report.is_whole = is_whole or known.undone_at is not None
    report.longest_hold_seconds = session.longest_hold_seconds
    return report


def _already(known: RunRecord, chosen: Chosen, selection: Selection) -> datetime | None:
    return known.undone_at if selection.is_all or chosen.taken_at is None else chosen.taken_at


@dataclass(slots=True)
class _Taker:
    """One transaction of an undo."""

    transaction: Transaction
    run_id: str
    now: datetime
    away: Mapping[str, bytes]
    began_at: datetime
    forgotten: Tombstones
    outcomes: defaultdict[str, Undone] = field(default_factory=lambda: defaultdict(Undone))
    deletes: set[str] = field(default_factory=set)
    updates: dict[str, Update] = field(default_factory=dict)
    raws: dict[str, bytes] = field(default_factory=dict)
    #: The id that a promoted row has now -> the one that it goes back to.
    old_ids: dict[str, str] = field(default_factory=dict)

    def take_back(self, units: Sequence[UndoUnit], number: int, *, ended: bool) -> list[Landed]:
        """Take back what of these units still can be; returns the record of this transaction, which has that number."""
        rows = {memory_id: stored.memory for memory_id, stored in self.transaction.read(_touched(units)).items()}
        units = [self._as_far_as_it_comes(unit, rows) for unit in units]
        for unit in units:
            outcome = self.outcomes[unit.scope]
            for row in unit.promoted:
                self._demote(row, _folded_of(unit, row), unit.returned, rows, outcome)
            if unit.folded is not None and _folded_of(unit, *unit.promoted) is None:
                self._revert(unit.folded, unit.returned, rows, outcome)
            for row in unit.removed:
                if why := self._why_not(row, rows):
                    outcome.not_restored.append((row.memory_id, why))
                else:
                    self.raws[row.memory_id] = row.raw
                    outcome.restored += 1
            if unit.is_part:
                outcome.only = [row.memory_id for row in unit.removed]
            outcome.ended = ended
        self._restore_rows()
        for unit in units:
            if unit.kept_fold is not None:
                self._return_uses(unit, unit.kept_fold, rows)
        self.transaction.update([*self.updates.values()])
        self._write_ledger(units, rows)
        parts = [replace(part, landed_at=self.now) for part in landed(number, dict(self.outcomes), units)]
        self.transaction.ledger.land(self.run_id, "undo", parts, self.now)
        return parts

    def _as_far_as_it_comes(self, unit: UndoUnit, rows: Mapping[str, Memory]) -> UndoUnit:
        """Where a member cannot come back, its survivor is all that is left of it and keeps what it took in."""
        if unit.folded is None or not (unit.is_short or any(self._why_not(row, rows) for row in unit.removed)):
            return unit
        return replace(unit, folded=None, kept_fold=unit.folded)

    def _why_not(self, row: UndoRow, rows: Mapping[str, Memory]) -> str | None:
        """Why a removed memory cannot come back; None where it can."""
        if row.memory_id in rows:
            return "is there again: it was written since"
        return "was forgotten since" if self._is_forgotten(row) else None

    def _is_forgotten(self, row: UndoRow) -> bool:
        """Whether the memory was to be forgotten: its undo data is empty, or a copy of what it was."""
        return not row.raw or self.forgotten.forgot_since(row.memory_id, self.began_at)

    def _return_uses(self, unit: UndoUnit, fold: UndoRow, rows: Mapping[str, Memory]) -> None:
        """Give restored members their uses back; whatever else their survivor took in stays with it."""
        outcome = self.outcomes[unit.scope]
        names = from_json(fold.after).keys()
        restored = [row.memory_id for row in unit.removed if row.memory_id in self.raws]
        kept = ", ".join(sorted(names - {"use_count"}))
        if kept and (unit.is_short or len(restored) < len(unit.removed)):
            outcome.kept_fields.append((fold.memory_id, f"keeps {kept}, as not all of its cluster could come back"))
        elif kept:
            outcome.kept_fields.append((fold.memory_id, f"keeps {kept} until all of its cluster is taken back"))
        before, survivor = self._as_it_stays(fold, names, rows)
        if before is None or survivor is None:
            return
        back = self.transaction.read(restored).values() if "use_count" in names else ()
        uses = sum(stored.memory.use_count or 0 for stored in back)
        if survivor.use_count is not None and 0 < uses <= survivor.use_count:
            survivor = replace(survivor, use_count=survivor.use_count - uses)
            outcome.returned = uses
            outcome.reverted += 1
        if survivor != before:
            pending = self.updates.get(before.memory_id)
            self.updates[before.memory_id] = Update(before, survivor, pending.raw if pending else None)

    def _as_it_stays(
        self, fold: UndoRow, names: Collection[str], rows: Mapping[str, Memory]
    ) -> tuple[Memory | None, Memory | None]:
        """A survivor that keeps its fold: as it stands in this transaction, and as it is to stand."""
        current = rows.get(fold.new_id or fold.memory_id)
        if fold.memory_id not in self.raws:
            pending = self.updates.get(current.memory_id) if current else None
            return current, pending.after if pending else current
        # It moved back under its old id as it was before the fold, which it takes along.
        moved = self.transaction.read([fold.memory_id])[fold.memory_id].memory
        return moved, current and replace(moved, **{name: getattr(current, name) for name in names})

    def _demote(
        self, row: UndoRow, folded: UndoRow | None, returned: int, rows: Mapping[str, Memory], outcome: Undone
    ) -> None:
        new_id = row.new_id or row.memory_id
        current = rows.get(new_id)
        if current is None and self.transaction.ledger.resolve(new_id) == new_id:
            outcome.not_restored.append((row.memory_id, f"was promoted to {new_id!r}, which is gone"))
        elif current is not None and new_id == row.memory_id:
            self._take_back_fields(current, [row, *([folded] if folded else [])], returned, outcome)
            outcome.demoted += 1
        elif row.memory_id in rows:
            outcome.not_restored.append((row.memory_id, "is there again: it was written since"))
        elif current is not None and current.row_digest != row.into_digest:
            outcome.not_restored.append((row.memory_id, f"was promoted to {new_id!r}, which was changed since"))
        elif self._is_forgotten(row):
            outcome.not_restored.append((row.memory_id, "was forgotten since"))
        else:
            # The row as it was before it took anything in: nothing but what a digest leaves out can have changed since.
            # Where a later pass merged the promoted row, it comes back beside the one that took it in.
            self.raws[row.memory_id] = row.raw
            self.old_ids[new_id] = row.memory_id
            outcome.demoted += 1
            outcome.reverted += folded is not None
            if current is not None:
                self.deletes.add(new_id)
            else:
                outcome.unchanged.append(new_id)

    def _revert(self, row: UndoRow, returned: int, rows: Mapping[str, Memory], outcome: Undone) -> None:
        if row.memory_id not in rows:
            outcome.kept_fields.append((row.memory_id, "is gone, and the fields that it had taken in with it"))
            outcome.unchanged.append(row.memory_id)
            return
        self._take_back_fields(rows[row.memory_id], [row], returned, outcome)

    def _take_back_fields(self, current: Memory, changes: list[UndoRow], returned: int, outcome: Undone) -> None:
        reverted = self._reverted(current, changes, returned, outcome)
        if reverted != current:
            # The last of the changes is the one made first, on the row as it had always been.
            self.updates[current.memory_id] = Update(current, reverted, changes[-1].raw)
        else:
            outcome.unchanged.append(current.memory_id)

    def _reverted(self, current: Memory, changes: list[UndoRow], returned: int, outcome: Undone) -> Memory:
        before = {name: value for row in changes for name, value in from_json(row.before).items()}
        after = {name: value for row in changes for name, value in from_json(row.after).items()}
        if returned and after.get("use_count") is not None:
            after["use_count"] -= returned
        reverted, kept = take_back(current, before, after)
        if kept:
            outcome.kept_fields.append((current.memory_id, f"keeps {', '.join(kept)}, written since"))
        if reverted != current and any(row.change == "folded" for row in changes):
            outcome.reverted += 1
        return reverted

    def _restore_rows(self) -> None:
        self.transaction.delete(self.deletes)
        if isinstance(self.transaction, InOrder) and (away := {each: raw for each, raw in self.away.items() if raw}):
            self.transaction.stay_away(away)
        if taken := self.transaction.restore(self.raws):
            raise StoreError(f"{min(taken)!r} stands in the store and could not be read; nothing was restored")

    def _write_ledger(self, units: Sequence[UndoUnit], rows: Mapping[str, Memory]) -> None:
        ledger = self.transaction.ledger
        restored = [row for unit in units for row in unit.removed if row.memory_id in self.raws]
        ledger.carry_rejections(self._carried(units, rows))
        ledger.reject(self._rejections(units, restored))
        ledger.drop_redirects(self.raws)
        lost = Counter(row.scope for row in [*restored, *self._texts_back(units)] if row.is_lost)
        for scope, lost_rows in sorted(lost.items()):
            ledger.give_back(self.run_id, scope, lost_rows)

    def _texts_back(self, units: Sequence[UndoUnit]) -> list[UndoRow]:
        """The survivors that have their own text again."""
        after = {memory_id: update.after for memory_id, update in self.updates.items()}
        folds = [unit.folded for unit in units if unit.folded is not None and unit.folded.is_lost]
        return [
            row
            for row in folds
            if (now := after.get(row.new_id or row.memory_id)) is not None
            and now.content == from_json(row.before).get("content")
        ]

    def _carried(self, units: Sequence[UndoUnit], rows: Mapping[str, Memory]) -> dict[tuple[str, str], tuple[str, str]]:
        """Of the rows that a rejected decision names, those that this undo changes: (id, digest) before -> after."""
        updated = self.updates.keys()
        decided = self.transaction.ledger.decided(updated | self.deletes)
        now = self.transaction.read(decided & updated)
        changed = {(each, rows[each].row_digest): (each, stored.memory.row_digest) for each, stored in now.items()}
        for row in (row for unit in units for row in unit.promoted if row.new_id in decided & self.deletes):
            changed[row.new_id or "", rows[row.new_id or ""].row_digest] = (row.memory_id, row.row_digest)
        return {before: after for before, after in changed.items() if before != after}

    def _rejections(self, units: Sequence[UndoUnit], restored: list[UndoRow]) -> set[Rejection]:
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
        earlier: defaultdict[str | None, list[UndoRow]] = defaultdict(list)
        for row in (row for unit in units for row in unit.earlier):
            earlier[row.into_id].append(row)
        for into_id, members in clusters.items():
            pairs = [*combinations(members, 2), *product(members, earlier[into_id])]
            for left, right in pairs if len(members) + len(earlier[into_id]) <= _PAIRED_MEMBERS else ():
                rejections.add(Rejection(left.memory_id, right.memory_id, left.row_digest, right.row_digest))
        return rejections

    def _heirs(self, into_id: str) -> set[str]:
        """The survivor as it is called after this undo, and what became of it since."""
        return {self.old_ids.get(into_id, into_id), self.transaction.ledger.resolve(into_id)}


def _touched(units: Iterable[UndoUnit]) -> set[str]:
    rows = [row for unit in units for row in (*unit.rows, *([unit.kept_fold] if unit.kept_fold else []))]
    return {row.memory_id for row in rows} | {row.new_id for row in rows if row.new_id is not None}


def _folded_of(unit: UndoUnit, *promoted: UndoRow) -> UndoRow | None:
    """The fold of the row that was also promoted, if it is one of these."""
    if unit.folded is not None and unit.folded.memory_id in {row.memory_id for row in promoted}:
        return unit.folded
    return None
