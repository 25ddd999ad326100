"""When a scope is due for a pass, and how far off the next one is once passes find nothing left to do.

The rules are evo's, for every store: 24 hours between passes, three times as long after each pass that changed
nothing, up to nine times, and at least 72 hours then.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import pyarrow as pa

Reason = Literal["replay", "backlog", "schedule", "none"]

MULTIPLIER_STEP = 3.0
LARGEST_MULTIPLIER = 9.0

_HOUR = timedelta(hours=1)

_HOURS = ("consolidate_interval_hours", "converged_min_interval_hours")
_COUNTS = ("replay_threshold", "backlog_threshold")
_MOST_HOURS = 1_000_000

#: The range of each number of a schedule, in the words of JSON Schema.
RANGES: dict[str, dict[str, int]] = {
    **{name: {"exclusiveMinimum": 0, "maximum": _MOST_HOURS} for name in _HOURS},
    **{name: {"minimum": 1} for name in _COUNTS},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """How often a scope is consolidated, and what makes it due before its time.

    Raises:
        ValueError: a value is out of its range; the message names the field, the value and the range.
    """

    consolidate_interval_hours: float = 24.0
    converged_min_interval_hours: float = 72.0
    #: Unconsumed replay batches that make a scope due.
    replay_threshold: int = 10
    #: Memories written since the last pass that make a scope due; None: any number may wait for the schedule.
    backlog_threshold: int | None = None

    def __post_init__(self) -> None:
        for name in _HOURS:
            hours = getattr(self, name)
            if isinstance(hours, bool) or not isinstance(hours, int | float) or not 0 < hours <= _MOST_HOURS:
                raise ValueError(f"{name} must be a number of hours in (0, {_MOST_HOURS}], got {hours!r}")
        for name in _COUNTS:
            count = getattr(self, name)
            if name == "backlog_threshold" and count is None:
                continue
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, got {count!r}")

    def interval_hours(self, state: ScopeState) -> float:
        """Hours from the last pass over a scope to the next."""
        if not state.converged:
            return self.consolidate_interval_hours
        return max(self.consolidate_interval_hours * state.multiplier, self.converged_min_interval_hours)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A pass that the gate stopped: when, why, and a digest of what the scope held then."""

    at: datetime
    why: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeState:
    """What the passes over a scope left behind. ``refusal`` is set where the last of them was refused."""

    last_consolidate_at: datetime | None = None
    last_digest: str | None = None
    converged: bool = False
    multiplier: float = 1.0
    refusal: Refusal | None = None

    def hours_since_last_consolidate(self, now: datetime) -> float | None:
        """Hours since a pass over this scope landed or had nothing to do; None if none ever did."""
        return None if self.last_consolidate_at is None else (now - self.last_consolidate_at) / _HOUR

    def after_pass(
        self, *, digest_before: str, digest_after: str, now: datetime, is_left_over: bool = False
    ) -> ScopeState:
        """The state after a pass that landed or had nothing to do.

        ``is_left_over``: something that was planned is still to be done, so the scope has not converged.
        """
        converged = not is_left_over and digest_after in (digest_before, self.last_digest)
        return ScopeState(
            last_consolidate_at=now,
            last_digest=digest_after,
            converged=converged,
            multiplier=min(self.multiplier * MULTIPLIER_STEP, LARGEST_MULTIPLIER) if converged else 1.0,
        )

    def after_refusal(self, refusal: Refusal) -> ScopeState:
        """The state after a refused pass: it is remembered, and neither converged nor a change."""
        return replace(self, refusal=refusal)


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """Whether a scope should be consolidated now, and why. ``hours_since_last_consolidate`` is None: never was."""

    should_consolidate: bool
    reason: Reason
    backlog_size: int
    replay_size: int
    hours_since_last_consolidate: float | None
    #: Why the last pass was refused; None where it was not.
    refusal: str | None = None


def should_consolidate(
    state: ScopeState,
    schedule: Schedule,
    *,
    backlog_size: int,
    replay_size: int,
    digest: str,
    now: datetime,
) -> Due:
    """Decide whether a scope is due: for its replay batches, its backlog or its schedule, asked in this order.

    After a refusal it waits until what it holds has changed (``digest``, of the kind that the refusal keeps) or the
    base interval has passed: the same plan would only be refused again.
    """
    reason = _reason(state, schedule, backlog_size=backlog_size, replay_size=replay_size, now=now)
    if state.refusal is not None:
        waited = (now - state.refusal.at) / _HOUR >= schedule.consolidate_interval_hours
        is_due = waited or digest != state.refusal.digest
        reason = "none" if not is_due else "schedule" if reason == "none" else reason
    return Due(
        should_consolidate=reason != "none",
        reason=reason,
        backlog_size=backlog_size,
        replay_size=replay_size,
        hours_since_last_consolidate=state.hours_since_last_consolidate(now),
        refusal=state.refusal.why if state.refusal else None,
    )


def fingerprint(row_digests: Iterable[str]) -> str:
    """A digest of the memories of a scope from their row digests, whatever their order; 16 hex digits.

    A row digest leaves out what a recall or a counter changes, and so does this.
    """
    return _hex(sorted(row_digests))


def digest(titles: Sequence[str], contents: Sequence[str]) -> str:
    """evo's digest of the memories of a scope: 16 hex digits over the lines ``title:content``, sorted by title.

    Titles sort as JavaScript's ``localeCompare`` sorts them; equal ones keep the order in which they are given.
    """
    import pyarrow as pa

    lines = {"title": pa.array(titles, pa.string()), "content": pa.array(contents, pa.string())}
    scopes = pa.array([""] * len(titles), pa.string())
    return _digests(pa.table({"scope": scopes, **lines})).get("", _hex([]))


def digests(snapshot: pa.Table) -> dict[str, str]:
    """evo's digest of each scope of a snapshot; of equal titles the one that evo lists first comes first."""
    listed = snapshot.sort_by([("use_count", "descending"), ("updated_at", "descending"), ("memory_id", "ascending")])
    return _digests(listed.select(["scope", "title", "content"]))


def _digests(memories: pa.Table) -> dict[str, str]:
    import duckdb
    import pyarrow as pa

    places = pa.array(range(memories.num_rows), pa.int64())
    lines: dict[str, list[str]] = {}
    with duckdb.connect() as con:
        con.register("memories", memories.append_column("place", places))
        for scope, line in con.execute(
            "select scope, title || ':' || content from memories order by icu_sort_key(title, 'en'), place"
        ).fetchall():
            lines.setdefault(scope, []).append(line)
    return {scope: _hex(of_scope) for scope, of_scope in lines.items()}


def _hex(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode("utf-8")).hexdigest()[:16]


def _reason(state: ScopeState, schedule: Schedule, *, backlog_size: int, replay_size: int, now: datetime) -> Reason:
    hours = state.hours_since_last_consolidate(now)
    if replay_size >= schedule.replay_threshold:
        return "replay"
    if backlog_size >= (schedule.backlog_threshold or math.inf):
        return "backlog"
    return "schedule" if hours is None or hours >= schedule.interval_hours(state) else "none"
