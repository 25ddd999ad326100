"""What came of each scope: added up over the transactions of a run, kept as JSON in the ledger."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar

from memfold_flows.stores.base import ApplyReport, Drift, Landed, UndoReport
from memfold_flows.stores.units import Sized

#: A memory and what there is to say of it.
Remark = tuple[str, str]


@dataclass(slots=True)
class Applied:
    """What one transaction of an apply did to one scope."""

    merged: int = 0
    pruned: int = 0
    promoted: int = 0
    lost: int = 0
    expired: int = 0
    drifted: list[Remark] = field(default_factory=list)
    new_ids: dict[str, str] = field(default_factory=dict)
    metadata_conflicts: list[Remark] = field(default_factory=list)
    fields_left_out: list[str] = field(default_factory=list)
    refused: str | None = None

    @property
    def removed(self) -> int:
        """How many rows went."""
        return self.merged + self.pruned


@dataclass(slots=True)
class Undone:
    """What one transaction of an undo did to one scope."""

    restored: int = 0
    reverted: int = 0
    demoted: int = 0
    not_restored: list[Remark] = field(default_factory=list)
    kept_fields: list[Remark] = field(default_factory=list)
    #: Where only some members of a unit were taken back: these, and the uses that their survivor gave back for them.
    only: list[str] = field(default_factory=list)
    returned: int = 0
    #: Memories that stood as they were to become already: there was nothing to write.
    unchanged: list[str] = field(default_factory=list)
    #: Whether this was the last transaction of what was asked for.
    ended: bool = False


Outcome = TypeVar("Outcome", Applied, Undone)


class Progress(Generic[Outcome]):
    """What the transactions of a run have done so far, in this call and in those before it."""

    def __init__(self, kind: type[Outcome], landed: Iterable[Landed]) -> None:
        self._kind: type[Outcome] = kind
        self.outcomes: defaultdict[str, list[Outcome]] = defaultdict(list)
        self._ranges: defaultdict[str, list[tuple[int, int, datetime | None]]] = defaultdict(list)
        self._taken: defaultdict[tuple[str, int], dict[str, datetime | None]] = defaultdict(dict)
        self._returned: Counter[tuple[str, int]] = Counter()
        self._short: set[tuple[str, int]] = set()
        self.next_batch = 0
        self.add(landed)

    def add(self, landed: Iterable[Landed]) -> None:
        """Take in what a committed transaction recorded."""
        for part in landed:
            outcome = _from_json(self._kind, part.report)
            self.outcomes[part.scope].append(outcome)
            if isinstance(outcome, Undone) and outcome.only:
                self._taken[part.scope, part.first_unit] |= dict.fromkeys(outcome.only, part.landed_at)
                self._returned[part.scope, part.first_unit] += outcome.returned
                if outcome.not_restored:
                    self._short.add((part.scope, part.first_unit))
            else:
                self._ranges[part.scope].append((part.first_unit, part.last_unit, part.landed_at))
            self.next_batch = max(self.next_batch, part.batch + 1)

    def covers(self, scope: str, unit_id: int) -> bool:
        """Whether a transaction dealt with this unit already, as a whole or with what was left of it."""
        return any(first <= unit_id <= last for first, last, _ in self._ranges.get(scope, ()))

    def taken(self, scope: str, unit_id: int) -> Collection[str]:
        """The members of a unit that were dealt with one by one."""
        return self._taken.get((scope, unit_id), {}).keys()

    def returned(self, scope: str, unit_id: int) -> int:
        """The uses that a survivor gave back for such members."""
        return self._returned[scope, unit_id]

    def is_short(self, scope: str, unit_id: int) -> bool:
        """Whether a member that was to come back by itself could not."""
        return (scope, unit_id) in self._short

    def taken_at(self, scope: str, unit_id: int, memory_id: str | None) -> datetime | None:
        """When a transaction dealt with this unit, or with this member of it."""
        alone = self._taken.get((scope, unit_id), {})
        if memory_id is not None and memory_id in alone:
            return alone[memory_id]
        times = [at for first, last, at in self._ranges.get(scope, ()) if first <= unit_id <= last]
        return times[-1] if times else None

    def total(self, scope: str, count: str) -> int:
        """One of the counts of a scope, over all its transactions."""
        return sum(getattr(outcome, count) for outcome in self.outcomes.get(scope, ()))

    def refused(self, scope: str) -> str | None:
        """Why an earlier transaction refused this scope, if one did."""
        return next(
            (why for outcome in self.outcomes.get(scope, ()) if (why := getattr(outcome, "refused", None))), None
        )


def landed(batch: int, outcomes: dict[str, Outcome], units: Iterable[Sized]) -> list[Landed]:
    """What the ledger records of one transaction: for each scope, its first and last unit and the outcome."""
    ids: defaultdict[str, list[int]] = defaultdict(list)
    for unit in units:
        ids[unit.scope].append(unit.unit_id)
    return [
        Landed(batch, scope, min(ids[scope]), max(ids[scope]), json.dumps(asdict(outcome), sort_keys=True))
        for scope, outcome in sorted(outcomes.items())
    ]


def interrupted(undone: Iterable[Landed]) -> list[Landed]:
    """What an undo did that was interrupted; nothing where the last undo came to its end."""
    parts = list(undone)
    ended = max((part.batch for part in parts if _from_json(Undone, part.report).ended), default=-1)
    return [part for part in parts if part.batch > ended]


def apply_report(progress: Progress[Applied]) -> ApplyReport:
    """The report of an apply, over all its transactions."""
    report = ApplyReport()
    left_out: set[str] = set()
    for scope, parts in sorted(progress.outcomes.items()):
        for part in parts:
            report.merged += part.merged
            report.pruned += part.pruned
            report.promoted += part.promoted
            report.lost += part.lost
            report.drifted += _drifts(scope, part.drifted)
            report.metadata_conflicts += _drifts(scope, part.metadata_conflicts)
            report.new_ids |= part.new_ids
            left_out |= set(part.fields_left_out)
            if part.refused:
                report.scopes_refused[scope] = part.refused
        if scope not in report.scopes_refused:
            report.scopes_applied.append(scope)
    report.fields_left_out = sorted(left_out)
    report.transactions = progress.next_batch
    return report


def undo_report(undone: Sequence[Landed], *, scope: str | None = None) -> UndoReport:
    """The report of an undo, over all these transactions of it; with a scope, of that one."""
    report = UndoReport(transactions=len({part.batch for part in undone}))
    outcomes = Progress(Undone, undone).outcomes
    wanted = outcomes if scope is None else {scope: outcomes.get(scope, [])}
    for name, parts in sorted(wanted.items()):
        for part in parts:
            report.restored += part.restored
            report.reverted += part.reverted
            report.demoted += part.demoted
            report.not_restored += _drifts(name, part.not_restored)
            report.kept_fields += _drifts(name, part.kept_fields)
    return report


def _from_json(kind: type[Outcome], text: str) -> Outcome:
    values: dict[str, Any] = json.loads(text)
    return kind(**{name: _remarks(value) for name, value in values.items()})


def _remarks(value: Any) -> Any:
    return [tuple(each) if isinstance(each, list) else each for each in value] if isinstance(value, list) else value


def _drifts(scope: str, remarks: Iterable[Remark]) -> list[Drift]:
    return [Drift(memory_id, scope, why) for memory_id, why in remarks]
