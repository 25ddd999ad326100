"""The units of a rewrite: what lands together, checked against itself, and grouped into transactions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

import pyarrow as pa

from memfold.errors import PlanDamaged
from memfold.frames import REWRITE

REMOVED_ROLES = ("member", "prune")
ROLES = ("survivor", "promote", *REMOVED_ROLES)


class PlannedRow(NamedTuple):
    """One row of ``frames.REWRITE``."""

    unit_id: int
    scope: str
    memory_id: str
    role: str
    into_id: str | None
    superseded_by: str | None
    reason: str
    promote_to: str | None
    is_lost: bool
    row_digest: str
    new_content: str | None = None


@dataclass(slots=True)
class Unit:
    """Rows that land together: a survivor with its members, or rows that are pruned or promoted alone."""

    unit_id: int
    scope: str
    rows: list[PlannedRow] = field(default_factory=list)

    @property
    def survivor(self) -> PlannedRow | None:
        """The row that stays and takes the folded fields."""
        return next((row for row in self.rows if row.role == "survivor"), None)

    @property
    def new_content(self) -> str | None:
        """The text that the survivor is to have; None where it keeps its own."""
        survivor = self.survivor
        return None if survivor is None else survivor.new_content

    @property
    def removed(self) -> list[PlannedRow]:
        """The rows that go."""
        return [row for row in self.rows if row.role in REMOVED_ROLES]

    @property
    def size(self) -> int:
        """How many rows it touches."""
        return len(self.rows)


class Sized(Protocol):
    """A part of a run that lands as a whole, known to the ledger by its scope and unit id."""

    unit_id: int
    scope: str

    @property
    def size(self) -> int:
        """How many rows it touches."""
        ...


AnySized = TypeVar("AnySized", bound=Sized)


def read_units(rewrite: pa.Table, tally: pa.Table) -> list[Unit]:
    """The units of a rewrite, by scope and unit id.

    Raises:
        PlanDamaged: the rewrite contradicts itself or the tally; nothing may be written from it.
    """
    accepted = {row["scope"] for row in tally.select(["scope", "accepted"]).to_pylist() if row["accepted"]}
    units: dict[int, Unit] = {}
    seen: set[str] = set()
    for values in zip(*(column.to_pylist() for column in rewrite.select(REWRITE.names).columns), strict=True):
        row = PlannedRow(*values)
        unit = units.setdefault(row.unit_id, Unit(row.unit_id, row.scope))
        if row.memory_id in seen:
            raise _damaged(row, "stands in it twice")
        if row.scope not in accepted:
            raise _damaged(row, f"belongs to scope {row.scope!r}, which the gate did not accept")
        if row.scope != unit.scope:
            raise _damaged(row, f"crosses from scope {unit.scope!r} to {row.scope!r}")
        seen.add(row.memory_id)
        unit.rows.append(row)
    for unit in units.values():
        _require_whole(unit)
    return sorted(units.values(), key=lambda unit: (unit.scope, unit.unit_id))


def next_transaction(parts: Sequence[AnySized], rows_at_most: int | None) -> Sequence[AnySized]:
    """The first of these parts, which come scope by scope, that one transaction of a bounded number of rows takes.

    A scope is not split unless it is too large for one transaction; a part never is.
    """
    if rows_at_most is None or not parts:
        return parts
    end = rows = 0
    while end < len(parts):
        next_scope, size = end, 0
        while next_scope < len(parts) and parts[next_scope].scope == parts[end].scope and rows + size <= rows_at_most:
            size += parts[next_scope].size
            next_scope += 1
        if rows + size > rows_at_most:
            break
        end, rows = next_scope, rows + size
    return parts[:end] if end else _first_of_scope(parts, rows_at_most)


def _first_of_scope(parts: Sequence[AnySized], rows_at_most: int) -> Sequence[AnySized]:
    end, rows = 1, parts[0].size
    while end < len(parts) and parts[end].scope == parts[0].scope and rows + parts[end].size <= rows_at_most:
        rows += parts[end].size
        end += 1
    return parts[:end]


def _require_whole(unit: Unit) -> None:
    survivors = [row.memory_id for row in unit.rows if row.role == "survivor"]
    for row in unit.rows:
        if row.role not in ROLES:
            raise _damaged(row, f"has the unknown role {row.role!r}")
        if row.role == "member" and [row.into_id] != survivors:
            raise _damaged(
                row, f"is to go into {row.into_id!r}, which is not the one that stays of unit {unit.unit_id}"
            )
        if row.role == "promote" and not row.promote_to:
            raise _damaged(row, "is to be promoted to no tier")
        if row.role in REMOVED_ROLES and row.promote_to:
            raise _damaged(row, "is to be both removed and promoted")


def _damaged(row: PlannedRow, what: str) -> PlanDamaged:
    return PlanDamaged(f"the rewrite is damaged: memory {row.memory_id!r} {what}; nothing was written. Plan again.")
