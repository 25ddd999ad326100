"""Times in archives: every form that exports use, read to the microsecond and written back in the form they had."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfold_flows.stores.archive_times import read_time, spell_time

NINE = datetime(2026, 3, 1, 9, tzinfo=UTC)


@pytest.mark.parametrize(
    "value",
    [
        "2026-03-01T09:00:00Z",
        "2026-03-01T09:00Z",
        "2026-03-01t09:00:00z",
        "2026-03-01 09:00:00",
        "2026-03-01T09:00:00.000000",
        "2026-03-01T02:00:00-07:00",
        "2026-03-01T14:30:00+0530",
        1772355600,
        1772355600.0,
        1772355600000,
        1772355600000.0,
        datetime(2026, 3, 1, 9),
        datetime(2026, 3, 1, 10, tzinfo=timezone(timedelta(hours=1))),
    ],
)
def test_one_moment_in_many_forms(value):
    """An offset is an offset, none is UTC, and the size of a number tells seconds from milliseconds."""
    assert read_time(value, "created_at") == NINE


@pytest.mark.parametrize(
    ("value", "moment"),
    [
        ("2026-03-01", datetime(2026, 3, 1, tzinfo=UTC)),
        (date(2026, 3, 1), datetime(2026, 3, 1, tzinfo=UTC)),
        ("1969-07-20T20:17:40Z", datetime(1969, 7, 20, 20, 17, 40, tzinfo=UTC)),
        ("2026-06-01T18:00:00.123456789Z", datetime(2026, 6, 1, 18, 0, 0, 123456, tzinfo=UTC)),
        (0, datetime(1970, 1, 1, tzinfo=UTC)),
        (1772355600.123456, NINE.replace(microsecond=123456)),
        (1772355600123, NINE.replace(microsecond=123000)),
        (99_999_999_999, datetime(5138, 11, 16, 9, 46, 39, tzinfo=UTC)),
        (100_000_000_000, datetime(1973, 3, 3, 9, 46, 40, tzinfo=UTC)),
        (None, None),
        (float("nan"), None),
    ],
)
def test_moments_are_read_to_the_microsecond(value, moment):
    """An expiry at 18:00 must not become one at midnight."""
    assert read_time(value, "expires_at") == moment


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("yesterday", "must be a date, or a date and time in ISO 8601, got 'yesterday'"),
        ("1772355600", "must be a date, or a date and time in ISO 8601"),
        ("03/01/2026", "must be a date, or a date and time in ISO 8601"),
        ("", "must be a date, or a date and time in ISO 8601, got ''"),
        ("2026-02-30", "must be a moment of the years 1 to 9999 in UTC, got '2026-02-30'"),
        ("2026-03-01T25:00:00Z", "must be a moment"),
        ("0001-01-01T00:00:00+02:00", "must be a moment of the years 1 to 9999 in UTC"),
        (-1, "must be ISO 8601 before 1970, not a number, got -1"),
        (1772355600000000, "must be epoch seconds or milliseconds, got 1772355600000000"),
        (10**400, "must be epoch seconds or milliseconds"),
        (float("inf"), "must be epoch seconds or milliseconds, got inf"),
        (True, "must be a time, got true or false"),
        (["2026"], "must be a time, got a list"),
    ],
)
def test_what_is_no_time_is_refused(value, problem):
    """A time that is read wrong would expire or age the wrong memories."""
    with pytest.raises(ValueError, match="expires_at") as error:
        read_time(value, "expires_at")
    assert str(error.value).startswith(f"expires_at {problem}")


@pytest.mark.parametrize(
    ("like", "written"),
    [
        ("2025-01-01T00:00:00Z", "2026-03-01T09:00:00Z"),
        ("2025-01-01t00:00:00z", "2026-03-01t09:00:00z"),
        ("2025-01-01 00:00:00", "2026-03-01 09:00:00"),
        ("2025-01-01T00:00:00.000Z", "2026-03-01T09:00:00.000Z"),
        ("2025-01-01T00:00:00+05:30", "2026-03-01T14:30:00+05:30"),
        ("2025-01-01", "2026-03-01T09:00:00Z"),
        (1735689600, 1772355600),
        (1735689600.5, 1772355600.0),
        (1735689600000, 1772355600000),
        (None, "2026-03-01T09:00:00Z"),
    ],
)
def test_a_time_is_written_in_the_form_that_the_record_uses(like, written):
    """ISO stays ISO with its offset, epoch stays epoch; a form that is too coarse gives way to ISO."""
    found = spell_time(NINE, like)

    assert (found, type(found)) == (written, type(written))


def test_a_date_stays_a_date_where_it_says_enough():
    """Midnight needs no time of day."""
    assert spell_time(datetime(2026, 3, 1, tzinfo=UTC), "2025-01-01") == "2026-03-01"


FORMS = [
    "2025-01-01T00:00:00Z",
    "2025-01-01 00:00:00.123",
    "2025-01-01T00:00:00-07:00",
    "2025-01-01",
    1735689600,
    1735689600.5,
    1735689600000,
    1735689600000.5,
    None,
]


@given(st.datetimes(timezones=st.just(UTC)), st.sampled_from(FORMS))
def test_what_is_written_reads_as_the_moment(moment, like):
    """Whatever form the record uses, and whatever moment: nothing is rounded away."""
    assert read_time(spell_time(moment, like), "created_at") == moment
