"""Every threshold of a pass in one frozen, validated value; it is also the ``policy`` relation that the SQL reads."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, Literal, get_args

import pyarrow as pa

from memfold.frames import TIME, WORDS

OnExcess = Literal["reject", "fit"]
Supersede = Literal["report", "archive"]
SessionRecall = Literal["none", "equality", "null_is_all"]

#: How datasketch permutes hashes; the compiled engine knows the first.
MinHashScheme = Literal["affine32", "affine64", "legacy"]
MINHASH_SCHEMES: tuple[MinHashScheme, ...] = get_args(MinHashScheme)


_FRACTIONS = ("max_loss_fraction", "max_rolling_loss_fraction", "max_expired_fraction")
_SHARES = ("min_overlap", "min_jaccard")
_COUNTS = ("rolling_days", "exact_join_rows", "bands", "rows_per_band", "leaders_per_bucket")
_COUNTS_OR_NONE = ("max_lost_rows", "stale_max_use_count")
_MINIMUMS = ("promote_min_sessions", "promote_min_use_count", "promote_min_evidence")
_DAYS = ("stale_min_age_days", "stale_min_idle_days", "promote_min_age_days", "newborn_grace_days")
_MOST_DAYS = 1_000_000

#: The range of each number, in the words of JSON Schema.
RANGES: dict[str, dict[str, int]] = {
    **{name: {"minimum": 0, "maximum": 1} for name in _FRACTIONS},
    **{name: {"exclusiveMinimum": 0, "maximum": 1} for name in _SHARES},
    **{name: {"minimum": 0} for name in _COUNTS_OR_NONE},
    **{name: {"minimum": 1} for name in (*_COUNTS, *_MINIMUMS, "max_memories")},
    **{name: {"minimum": 0, "maximum": _MOST_DAYS} for name in _DAYS},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The thresholds of one pass. ``None`` in a threshold means that this check or action is off.

    A stale row is one for which every ``stale_*`` value that is set is known and holds; a row is promoted when every
    ``promote_*`` minimum that is set is known and holds. Above ``max_memories`` of a scope those with the lowest score
    go, but none that is younger than ``newborn_grace_days``.

    Raises:
        ValueError: a value is out of its range; the message names the field, the value and the range.
    """

    as_of: datetime

    max_loss_fraction: float = 0.25
    on_excess: OnExcess = "reject"
    strict_entries: bool = False
    max_rolling_loss_fraction: float = 0.5
    rolling_days: int = 30
    max_lost_rows: int | None = None
    max_expired_fraction: float = 0.5

    supersede: Supersede = "report"
    across_sessions: bool = False
    session_recall: SessionRecall = "none"
    updated_with_text: bool = False

    stale_min_age_days: float | None = None
    stale_min_idle_days: float | None = None
    stale_max_use_count: int | None = None
    stale_max_importance: float | None = None
    stale_kinds: tuple[str, ...] = ()

    promote_min_sessions: int | None = None
    promote_min_use_count: int | None = None
    promote_min_age_days: float | None = None
    promote_min_evidence: int | None = None
    promote_from: str = "short_term"
    promote_to: str = "long_term"

    max_memories: int | None = None
    newborn_grace_days: float | None = 3.0

    min_overlap: float = 0.8
    min_jaccard: float = 0.5
    exact_join_rows: int = 2000
    bands: int = 40
    rows_per_band: int = 4
    leaders_per_bucket: int = 32
    minhash_seed: int = 1
    minhash_scheme: MinHashScheme = "affine32"

    def __post_init__(self) -> None:
        if not isinstance(self.as_of, datetime) or self.as_of.tzinfo is None:
            raise ValueError(f"as_of must be a date and time with a time zone, got {self.as_of!r}")
        object.__setattr__(self, "as_of", self.as_of.astimezone(UTC))
        for name in _FRACTIONS:
            _require_fraction(name, getattr(self, name))
        for name in _SHARES:
            _require_fraction(name, getattr(self, name), above_zero=True)
        _require_choice("on_excess", self.on_excess, ("reject", "fit"))
        _require_choice("supersede", self.supersede, ("report", "archive"))
        _require_choice("session_recall", self.session_recall, ("none", "equality", "null_is_all"))
        _require_choice("minhash_scheme", self.minhash_scheme, MINHASH_SCHEMES)
        for name in _COUNTS_OR_NONE:
            _require_count(name, getattr(self, name), at_least=0)
        for name in _MINIMUMS:
            _require_minimum(name, getattr(self, name))
        if self.max_memories is not None:
            _require_count("max_memories", self.max_memories, at_least=1)
        for name in _COUNTS:
            _require_count(name, getattr(self, name), at_least=1)
        for name in _DAYS:
            _require_days(name, getattr(self, name))
        if self.stale_max_importance is not None and not _is_real(self.stale_max_importance):
            raise ValueError(f"stale_max_importance must be a finite number, got {self.stale_max_importance!r}")
        if self.promote_from == self.promote_to:
            raise ValueError(f"promote_from and promote_to must be two tiers, got {self.promote_from!r} for both")

    @property
    def prunes_stale(self) -> bool:
        """Whether any stale threshold is set."""
        return any(
            value is not None
            for value in (
                self.stale_min_age_days,
                self.stale_min_idle_days,
                self.stale_max_use_count,
                self.stale_max_importance,
            )
        )

    @property
    def promotes(self) -> bool:
        """Whether any promotion threshold is set."""
        return any(
            value is not None
            for value in (
                self.promote_min_sessions,
                self.promote_min_use_count,
                self.promote_min_age_days,
                self.promote_min_evidence,
            )
        )

    @property
    def walls_off_sessions(self) -> bool:
        """Whether memories of two sessions must stay apart: the store recalls by session and nobody overrode it."""
        return self.session_recall == "equality" and not self.across_sessions

    @classmethod
    def from_table(cls, table: pa.Table) -> Policy:
        """The policy that this ``policy`` relation holds; the inverse of ``as_table``.

        Raises:
            ValueError: it has not exactly one row with one value per field, or a value is out of its range.
        """
        if table.num_rows != 1 or table.schema.names != [field.name for field in fields(cls)]:
            raise ValueError(f"the policy relation must have one row and this version's fields, got {table.shape}")
        row: dict[str, Any] = table.to_pylist()[0]
        return cls(**{**row, "stale_kinds": tuple(row["stale_kinds"])})

    def as_table(self) -> pa.Table:
        """The ``policy`` relation: exactly one row, one column per field of this class, in this order."""
        return pa.table({field.name: pa.array([_cell(self, field.name)], _TYPES[field.name]) for field in fields(self)})


_TYPES: dict[str, pa.DataType] = {
    "as_of": TIME,
    "max_loss_fraction": pa.float64(),
    "on_excess": pa.string(),
    "strict_entries": pa.bool_(),
    "max_rolling_loss_fraction": pa.float64(),
    "rolling_days": pa.int64(),
    "max_lost_rows": pa.int64(),
    "max_expired_fraction": pa.float64(),
    "supersede": pa.string(),
    "across_sessions": pa.bool_(),
    "session_recall": pa.string(),
    "updated_with_text": pa.bool_(),
    "stale_min_age_days": pa.float64(),
    "stale_min_idle_days": pa.float64(),
    "stale_max_use_count": pa.int64(),
    "stale_max_importance": pa.float64(),
    "stale_kinds": WORDS,
    "promote_min_sessions": pa.int64(),
    "promote_min_use_count": pa.int64(),
    "promote_min_age_days": pa.float64(),
    "promote_min_evidence": pa.int64(),
    "promote_from": pa.string(),
    "promote_to": pa.string(),
    "max_memories": pa.int64(),
    "newborn_grace_days": pa.float64(),
    "min_overlap": pa.float64(),
    "min_jaccard": pa.float64(),
    "exact_join_rows": pa.int64(),
    "bands": pa.int64(),
    "rows_per_band": pa.int64(),
    "leaders_per_bucket": pa.int64(),
    "minhash_seed": pa.int64(),
    "minhash_scheme": pa.string(),
}

POLICY = pa.schema(list(_TYPES.items()))


def _cell(policy: Policy, name: str) -> Any:
    value = getattr(policy, name)
    return list(value) if isinstance(value, tuple) else value


def _is_real(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _require_fraction(name: str, value: object, *, above_zero: bool = False) -> None:
    if not _is_real(value) or not 0.0 <= value <= 1.0 or (above_zero and value == 0):  # type: ignore[operator]
        raise ValueError(f"{name} must be a number in {'(' if above_zero else '['}0, 1], got {value!r}")


def _require_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


def _require_count(name: str, value: object, *, at_least: int) -> None:
    if value is None and at_least == 0:
        return
    if isinstance(value, bool) or not isinstance(value, int) or not at_least <= value < 2**63:
        raise ValueError(f"{name} must be a whole number of at least {at_least}, got {value!r}")


def _require_minimum(name: str, value: object) -> None:
    if value == 0 and not isinstance(value, bool):
        raise ValueError(f"{name} must be at least 1, got 0, which every memory has; leave it out to ask for none")
    if value is not None:
        _require_count(name, value, at_least=1)


def _require_days(name: str, value: object) -> None:
    if value is not None and not (_is_real(value) and 0 <= value <= _MOST_DAYS):  # type: ignore[operator]
        raise ValueError(f"{name} must be a number of days in [0, {_MOST_DAYS}], got {value!r}")
