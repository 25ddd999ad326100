"""Times as people's exports write them: ISO 8601, epoch seconds, epoch milliseconds; read and written back alike."""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime, time
from typing import Any

from memfold.memory import EPOCH, MICROSECOND, microseconds
from memfold_flows.stores.archive_values import shown, type_of

# Seconds reach the year 5138 at 1e11; milliseconds reach it at 1e14 and are back in March 1973 at 1e11.
_SECONDS_BELOW = 10**11
_MILLISECONDS_BELOW = 10**14

_ISO = re.compile(
    r"\d{4}-\d\d-\d\d"
    r"(?:[Tt ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?:[Zz]|[+-]\d\d(?::?\d\d)?)?)?",
    re.ASCII,
)
_ISO_WITH_Z = "2026-03-01T09:00:00Z"
_FRACTION = re.compile(r"[.,](\d+)")


def read_time(value: Any, name: str) -> datetime | None:
    """The moment that a value names; without a zone it is UTC, a date is its first moment.

    A number is epoch seconds below 1e11, epoch milliseconds from there to 1e14. Parts of a microsecond are cut off.

    Raises:
        ValueError: the value is none of these, or out of range.
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, str):
        return _read_iso(value, name)
    if isinstance(value, datetime):
        return _in_utc(value)
    if isinstance(value, date):
        return datetime.combine(value, time(), UTC)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} must be a time, got {type_of(value)}")
    return EPOCH + _epoch_microseconds(value, name) * MICROSECOND


def spell_time(moment: datetime, like: Any) -> Any:
    """The moment in the form of another time value of the same archive; ISO with Z where there is none.

    Where that form is too coarse for the moment or cannot reach it, it is ISO with Z: reading it gives the moment.
    """
    if isinstance(like, datetime | date):
        return moment
    form = _spell_iso(moment, like) if isinstance(like, str) else _spell_number(moment, like)
    return form if _reads_as(form, moment) else _spell_iso(moment, _ISO_WITH_Z)


def _read_iso(text: str, name: str) -> datetime:
    if not _ISO.fullmatch(text):
        raise ValueError(f"{name} must be a date, or a date and time in ISO 8601, got {shown(text)}")
    try:
        return _in_utc(datetime.fromisoformat(text.replace("z", "Z")))
    except (ValueError, OverflowError):
        raise ValueError(f"{name} must be a moment of the years 1 to 9999 in UTC, got {shown(text)}") from None


def _in_utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _epoch_microseconds(value: float, name: str) -> int:
    if value < 0:
        raise ValueError(f"{name} must be ISO 8601 before 1970, not a number, got {value!r}")
    if value >= _MILLISECONDS_BELOW:
        raise ValueError(f"{name} must be epoch seconds or milliseconds, got {shown(value)}")
    # Whole numbers stay exact, and round() brings a float back to the microsecond that it was written from.
    return round(value * (1_000_000 if value < _SECONDS_BELOW else 1000))


def _spell_iso(moment: datetime, like: str) -> str:
    if len(like) == len("2026-03-01"):
        return moment.astimezone(UTC).date().isoformat()
    zone = datetime.fromisoformat(like.replace("z", "Z")).tzinfo
    local = moment.astimezone(zone or UTC)
    fraction = _FRACTION.search(like)
    in_milliseconds = fraction is not None and len(fraction[1]) == 3 and local.microsecond % 1000 == 0
    text = local.isoformat(sep=like[10], timespec="milliseconds" if in_milliseconds else "auto")
    if zone is None or like[-1] in "Zz":
        text = text.removesuffix("+00:00")
    return text + like[-1] if like[-1] in "Zz" else text


def _spell_number(moment: datetime, like: Any) -> float | None:
    if isinstance(like, bool) or not isinstance(like, int | float):
        return None
    unit = 1_000_000 if like < _SECONDS_BELOW else 1000
    count = microseconds(moment) or 0
    return count // unit if isinstance(like, int) and count % unit == 0 else count / unit


def _reads_as(form: Any, moment: datetime) -> bool:
    try:
        return read_time(form, "") == moment
    except ValueError:
        return False
