"""What an undo is made of: the changes of each unit, and which of them a person wants back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple

import pyarrow as pa

from memfold.errors import BadUsage, PlanDamaged
from memfold.frames import UNDO
from memfold_flows.stores.outcomes import Applied, Progress, Undone


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


@dataclass(frozen=True, slots=True)
class Selection:
    """What of a run is to be taken back: one scope, what was done to one memory, or, without either, all of it.

    A memory that was removed comes back alone; one that took others in, or was promoted, with all of its cluster.
    """

    scope: str | None = None
    memory_id: str | None = None

    @property
    def is_all(self) -> bool:
        """Whether the whole run is meant."""
        return self.scope is None and self.memory_id is None

    def __str__(self) -> str:
        if self.memory_id is not None:
            return f"memory {self.memory_id!r}"
        return "everything" if self.scope is None else f"scope {self.scope!r}"


EVERYTHING = Selection()


@dataclass(slots=True)
class UndoUnit:
    """The changes of one unit that are to be taken back."""

    unit_id: int
    scope: str
    removed: list[UndoRow] = field(default_factory=list)
    folded: UndoRow | None = None
    promoted: list[UndoRow] = field(default_factory=list)
    #: Removed rows that an earlier undo took back, and the uses that their survivor gave back for them.
    earlier: list[UndoRow] = field(default_factory=list)
    returned: int = 0
    #: Whether one of those could not come back.
    is_short: bool = False
    #: The fold of a survivor that keeps it, because only some of its members come back.
    kept_fold: UndoRow | None = None
    is_part: bool = False

    @property
    def size(self) -> int:
        """How many rows it touches."""
        return len(self.removed) + len(self.promoted) + 1

    @property
    def rows(self) -> list[UndoRow]:
        """Every change that is to be taken back."""
        return [*self.removed, *self.promoted, *([self.folded] if self.folded else [])]

    def concerns(self, memory_id: str) -> bool:
        """Whether this unit changed that memory, under its old id or the one that a promotion gave it."""
        rows = [*self.rows, *self.earlier]
        survivors = {row.into_id for row in rows if row.change == "removed"}
        return memory_id in survivors | {row.memory_id for row in rows} | {row.new_id for row in rows}


@dataclass(frozen=True, slots=True)
class Chosen:
    """What is left to take back of a selection, and whether that would be the last of the run."""

    units: list[UndoUnit]
    #: The removed rows that are not taken back this time, as the store held them.
    away: dict[str, bytes]
    is_rest: bool
    #: When the selection was taken back, where nothing of it is left.
    taken_at: datetime | None


def read_units(undo_rows: pa.Table, applied: Progress[Applied], run_id: str) -> list[UndoUnit]:
    """The units that were applied, by scope and unit id.

    Raises:
        PlanDamaged: the undo data lacks rows that the ledger says were removed.
    """
    units: dict[tuple[str, int], UndoUnit] = {}
    for values in zip(*(column.to_pylist() for column in undo_rows.select(UNDO.names).columns), strict=True):
        row = UndoRow(*values)
        unit = units.setdefault((row.scope, row.unit_id), UndoUnit(row.unit_id, row.scope))
        if row.change == "removed":
            unit.removed.append(row)
        elif row.change == "folded":
            unit.folded = row
        else:
            unit.promoted.append(row)
    landed = [units[key] for key in sorted(units) if applied.covers(*key)]
    _require_complete(landed, applied, run_id)
    return landed


def choose(units: Sequence[UndoUnit], selection: Selection, progress: Progress[Undone], run_id: str) -> Chosen:
    """What of these units a selection means, without what was taken back before.

    Raises:
        BadUsage: the run changed nothing that the selection names.
    """
    meant = [unit for unit in units if _is_meant(unit, selection)]
    if not meant and not selection.is_all:
        raise BadUsage(f"run {run_id} changed nothing of {selection}; nothing was restored. {_hint(units, selection)}")
    left = [_left(unit, progress) for unit in units if not progress.covers(unit.scope, unit.unit_id)]
    chosen = [unit for unit in left if _is_meant(unit, selection)]
    if (memory_id := selection.memory_id) is not None:
        chosen = [part for unit in chosen if (part := _narrowed(unit, memory_id)) is not None]
    is_rest = len(chosen) == len(left) and not any(unit.is_part for unit in chosen)
    coming = {row.memory_id for unit in chosen for row in unit.removed}
    away = {row.memory_id: row.raw for unit in left for row in unit.removed if row.memory_id not in coming}
    return Chosen(chosen, away, is_rest, None if chosen else _taken_at(meant, selection, progress))


def _require_complete(units: Iterable[UndoUnit], applied: Progress[Applied], run_id: str) -> None:
    removed: Counter[str] = Counter()
    for unit in units:
        removed[unit.scope] += len(unit.removed)
    for scope in applied.outcomes:
        if removed[scope] != (recorded := applied.total(scope, "removed")):
            raise PlanDamaged(
                f"the undo data of run {run_id} holds {removed[scope]} removed memories of scope {scope!r}, the ledger "
                f"of the store {recorded}; nothing was restored. Bring back the run's undo folder as it was."
            )


def _is_meant(unit: UndoUnit, selection: Selection) -> bool:
    if selection.memory_id is not None:
        return unit.concerns(selection.memory_id)
    return selection.scope is None or unit.scope == selection.scope


def _left(unit: UndoUnit, progress: Progress[Undone]) -> UndoUnit:
    """The unit without the members that an earlier undo took back one by one."""
    taken = progress.taken(unit.scope, unit.unit_id)
    return replace(
        unit,
        removed=[row for row in unit.removed if row.memory_id not in taken],
        earlier=[row for row in unit.removed if row.memory_id in taken],
        returned=progress.returned(unit.scope, unit.unit_id),
        is_short=progress.is_short(unit.scope, unit.unit_id),
    )


def _narrowed(unit: UndoUnit, memory_id: str) -> UndoUnit | None:
    """What is to be taken back of a unit for this memory; None where that was done before."""
    if any(row.memory_id == memory_id for row in unit.earlier):
        return None
    wanted = [row for row in unit.removed if row.memory_id == memory_id]
    is_whole = not wanted or (len(unit.removed) == 1 and not unit.promoted)
    if is_whole:
        return unit
    return replace(unit, removed=wanted, folded=None, promoted=[], kept_fold=unit.folded, is_part=True)


def _taken_at(units: Iterable[UndoUnit], selection: Selection, progress: Progress[Undone]) -> datetime | None:
    times = [progress.taken_at(unit.scope, unit.unit_id, selection.memory_id) for unit in units]
    return max((time for time in times if time is not None), default=None)


def _hint(units: Iterable[UndoUnit], selection: Selection) -> str:
    if selection.scope is None:
        return "Name a memory that left, or one that others went into; memfold export lists them."
    scopes = sorted({unit.scope for unit in units})
    return f"It wrote to: {', '.join(map(repr, scopes[:5]))}{', ...' if len(scopes) > 5 else ''}." if scopes else ""
