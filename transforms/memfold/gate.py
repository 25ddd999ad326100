"""The gate: per scope, whether the plan may be written. It fails closed, and each check says its figures."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from memfold import inspection
from memfold.contract import ConsolidationResult
from memfold.errors import PlanDamaged
from memfold.frames import PLAN, TALLY
from memfold.inspection import Check
from memfold.policy import Policy

if TYPE_CHECKING:
    from memfold.text import ReadTexts

__all__ = ["Check", "Counts", "ScopeVerdict", "Verdict", "judge", "limits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What a plan comes to in one scope, as far as the limits are about it."""

    entries_before: int
    expired: int
    lost: int
    lost_strict: int
    lost_recently: int

    def lost_in_force(self, policy: Policy) -> int:
        """The loss that the limits look at: the strict figure where the policy asks for it."""
        return self.lost_strict if policy.strict_entries else self.lost


@dataclass(frozen=True, slots=True)
class ScopeVerdict:
    """The gate's answer for one scope. A refused scope keeps the figures for which it was refused."""

    scope: str
    checks: tuple[Check, ...]
    result: ConsolidationResult

    @property
    def accepted(self) -> bool:
        """Whether every check passed."""
        return all(check.passed for check in self.checks)

    @property
    def refused(self) -> tuple[str, ...]:
        """The checks that failed, in words."""
        return tuple(check.says for check in self.checks if not check.passed)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The tally with ``accepted`` and ``refused`` filled in, the answer for each scope, and the sum.

    ``total`` counts what would be written: a refused scope counts as it stands, with nothing done to it.
    """

    tally: pa.Table
    scopes: tuple[ScopeVerdict, ...]
    total: ConsolidationResult


def judge(
    plan: pa.Table,
    tally: pa.Table,
    *,
    snapshot: pa.Table,
    policy: Policy,
    now: datetime,
    held_before: Collection[str] = (),
    rejected: pa.Table | None = None,
    read_texts: ReadTexts | None = None,
) -> Verdict:
    """Ask every check of every scope.

    ``held_before``: scopes that held memories after their last pass; one that reads as empty now is refused.
    ``rejected`` (``frames.REJECTED``): what people decided; no two memories that they keep apart may become one.

    Raises:
        PlanDamaged: a relation lacks a column.
    """
    _require_columns("plan", plan, PLAN.names)
    _require_columns("tally", tally, TALLY.names)
    _require_columns("snapshot", snapshot, inspection.SNAPSHOT_COLUMNS)
    rows = {row["scope"]: row for row in tally.to_pylist()}
    counted = inspection.counts(plan)
    row_checks = inspection.checks(plan, snapshot, policy, rejected=rejected, read_texts=read_texts)
    scopes = []
    for scope in sorted({*rows, *row_checks, *held_before}):
        row = rows.get(scope) or _nothing(scope)
        figures = _check_figures(row, counted.get(scope))
        checks = (
            _check_clock(policy, now),
            _check_emptiness(row, held_before=scope in held_before),
            *row_checks.get(scope, ()),
            figures,
            *(limits(_counts(row), policy) if figures.passed else ()),
        )
        scopes.append(_scope_verdict(row, checks, policy))
    return Verdict(_filled_in(rows, scopes), tuple(scopes), _total(scopes))


def limits(counts: Counts, policy: Policy) -> tuple[Check, ...]:
    """The limits that the policy sets to what one scope may lose; asked again of what remains before each commit."""
    lost = counts.lost_in_force(policy)
    return (
        _check_loss(counts.entries_before, lost, policy),
        _check_rolling_loss(counts.entries_before, lost, counts.lost_recently, policy),
        _check_lost_rows(lost, policy),
        _check_expired(counts.entries_before, counts.expired, policy),
    )


def _check_loss(entries: int, lost: int, policy: Policy) -> Check:
    limit = policy.max_loss_fraction
    result = ConsolidationResult(entries_before=entries, retained_originals=entries - lost)
    fraction = result.loss_fraction
    says = f"{lost} of {entries} memories would be lost ({_figure(fraction)}), the limit is {_figure(limit)}"
    if 0 < entries * limit < 1:
        says += f"; at that limit a scope of fewer than {math.ceil(1 / limit)} memories never loses one"
    return Check("loss", not result.exceeds_loss(limit), says)


def _check_rolling_loss(entries: int, lost: int, lost_recently: int, policy: Policy) -> Check:
    limit, days = policy.max_rolling_loss_fraction, policy.rolling_days
    ever = entries + lost_recently
    fraction = (lost + lost_recently) / ever if ever else 0.0
    # A plan that loses nothing makes the loss of the past no worse, so it may go on folding copies.
    return Check(
        "rolling loss",
        lost == 0 or fraction <= limit,
        f"{lost + lost_recently} of {ever} memories would be lost over {days} days ({_figure(fraction)}), "
        f"the limit is {_figure(limit)}",
    )


def _check_lost_rows(lost: int, policy: Policy) -> Check:
    if policy.max_lost_rows is None:
        return Check("lost rows", True, f"{lost} memories would be lost, with no limit to their number")
    passed = lost <= policy.max_lost_rows
    return Check("lost rows", passed, f"{lost} memories would be lost, the limit is {policy.max_lost_rows}")


def _check_expired(entries: int, expired: int, policy: Policy) -> Check:
    limit = policy.max_expired_fraction
    fraction = expired / entries if entries else 0.0
    return Check(
        "expired",
        fraction <= limit,
        f"{expired} of {entries} memories are expired ({_figure(fraction)}), the limit is {_figure(limit)}",
    )


def _check_clock(policy: Policy, now: datetime) -> Check:
    passed = policy.as_of <= now
    relation = "is not later than" if passed else "is later than"
    return Check("clock", passed, f"as_of {policy.as_of.isoformat()} {relation} the clock, {now.isoformat()}")


def _check_emptiness(row: Mapping[str, Any], *, held_before: bool) -> Check:
    entries = row["entries_before"]
    if entries == 0 and held_before:
        return Check("emptiness", False, "it reads as empty, but held memories after its last pass")
    return Check("emptiness", True, f"it holds {entries} memories")


def _check_figures(row: Mapping[str, Any], counted: Mapping[str, int] | None) -> Check:
    """Whether the tally holds whole numbers, none of them negative, and the very ones that the plan comes to."""
    for name in (field.name for field in TALLY if field.type == pa.int64()):
        value = row[name]
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            return Check("figures", False, f"{name} is {value!r}, not a whole number of at least 0")
    for name in inspection.COUNTED:
        from_plan = (counted or {}).get(name, 0)
        if row[name] != from_plan:
            return Check("figures", False, f"{name} is {row[name]} in the tally and {from_plan} in the plan")
    lost = {"loss_fraction": row["lost"], "loss_fraction_strict": row["lost_strict"]}
    for name, rows in lost.items():
        fraction = rows / row["entries_before"] if row["entries_before"] else 0.0
        if row[name] != fraction:
            return Check("figures", False, f"{name} is {row[name]!r} in the tally and {fraction!r} in the plan")
    return Check("figures", True, f"the tally of {row['entries_before']} memories agrees with the plan")


def _counts(row: Mapping[str, Any]) -> Counts:
    return Counts(**{field.name: row[field.name] for field in fields(Counts)})


def _scope_verdict(row: Mapping[str, Any], checks: Sequence[Check], policy: Policy) -> ScopeVerdict:
    failed = [check.says for check in checks if not check.passed]
    is_sound = all(check.passed for check in checks if check.name == "figures")
    figures = row if is_sound else _nothing(row["scope"])
    lost = _counts(figures).lost_in_force(policy)
    result = ConsolidationResult(
        entries_before=figures["entries_before"],
        entries_after=figures["entries_after"],
        merged=figures["merged"],
        promoted=figures["promoted"],
        pruned=figures["pruned"],
        rejected=bool(failed),
        reason="; ".join(failed) or None,
        retained_originals=figures["entries_before"] - lost,
        context={"scope": row["scope"]},
    )
    return ScopeVerdict(row["scope"], tuple(checks), result)


def _total(scopes: Sequence[ScopeVerdict]) -> ConsolidationResult:
    written = [each.result for each in scopes if each.accepted]
    refused = [each for each in scopes if not each.accepted]
    untouched = sum(each.result.entries_before for each in refused)
    reasons = "; ".join(f"{each.scope or '(no scope)'}: {each.result.reason}" for each in refused)
    return ConsolidationResult(
        entries_before=untouched + sum(result.entries_before for result in written),
        entries_after=untouched + sum(result.entries_after for result in written),
        merged=sum(result.merged for result in written),
        promoted=sum(result.promoted for result in written),
        pruned=sum(result.pruned for result in written),
        rejected=bool(refused),
        reason=f"{len(refused)} of {len(scopes)} scopes were refused: {reasons}" if refused else None,
        retained_originals=untouched + sum(result.retained_originals or 0 for result in written),
    )


def _filled_in(rows: Mapping[str, Mapping[str, Any]], scopes: Iterable[ScopeVerdict]) -> pa.Table:
    filled = []
    for each in scopes:
        row = rows.get(each.scope) or _nothing(each.scope)
        # Figures that are no figures cannot stand in the tally; the refusal says what they were.
        is_sound = all(check.passed for check in each.checks if check.name == "figures")
        figures = row if is_sound else _nothing(each.scope)
        filled.append({**figures, "accepted": each.accepted, "refused": list(each.refused)})
    return pa.Table.from_pylist(filled, schema=TALLY)


def _nothing(scope: str) -> dict[str, Any]:
    """A tally row of a scope in which there is nothing."""
    zeros = {field.name: 0.0 if field.type == pa.float64() else 0 for field in TALLY}
    return {**zeros, "scope": scope, "accepted": False, "refused": []}


def _require_columns(name: str, table: pa.Table, columns: Iterable[str]) -> None:
    missing = [column for column in columns if column not in table.column_names]
    if missing:
        raise PlanDamaged(f"the {name} lacks the column {missing[0]!r}; nothing was written. Plan again.")


def _figure(fraction: float) -> str:
    return f"{fraction:.6g}"
