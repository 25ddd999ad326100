"""The thresholds of a pass: bad values are refused by name, and the relation holds every one."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from datetime import UTC, datetime, timedelta, timezone
from math import inf, nan

import pytest

from memfold.policy import POLICY, Policy

AS_OF = datetime(2026, 6, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("max_loss_fraction", 1.01, "max_loss_fraction must be a number in [0, 1], got 1.01"),
        ("max_loss_fraction", -0.01, "max_loss_fraction must be a number in [0, 1], got -0.01"),
        ("max_loss_fraction", nan, "max_loss_fraction must be a number in [0, 1], got nan"),
        ("max_loss_fraction", True, "max_loss_fraction must be a number in [0, 1], got True"),
        ("max_loss_fraction", "0.25", "max_loss_fraction must be a number in [0, 1], got '0.25'"),
        ("max_loss_fraction", None, "max_loss_fraction must be a number in [0, 1], got None"),
        ("max_rolling_loss_fraction", inf, "max_rolling_loss_fraction must be a number in [0, 1], got inf"),
        ("max_expired_fraction", 10**400, "max_expired_fraction must be a number in [0, 1], got 1000"),
        ("min_jaccard", 0, "min_jaccard must be a number in (0, 1], got 0"),
        ("min_overlap", 0.0, "min_overlap must be a number in (0, 1], got 0.0"),
        ("on_excess", "ignore", "on_excess must be one of reject, fit, got 'ignore'"),
        ("supersede", "delete", "supersede must be one of report, archive, got 'delete'"),
        ("session_recall", "", "session_recall must be one of none, equality, null_is_all, got ''"),
        ("max_lost_rows", -1, "max_lost_rows must be a whole number of at least 0, got -1"),
        ("max_lost_rows", 2.0, "max_lost_rows must be a whole number of at least 0, got 2.0"),
        ("stale_max_use_count", True, "stale_max_use_count must be a whole number of at least 0, got True"),
        ("promote_min_sessions", 2**63, "promote_min_sessions must be a whole number of at least 1, got 922337"),
        ("promote_min_sessions", 0, "promote_min_sessions must be at least 1, got 0, which every memory has; leave it"),
        ("minhash_scheme", "md5", "minhash_scheme must be one of affine32, affine64, legacy, got 'md5'"),
        ("bands", 0, "bands must be a whole number of at least 1, got 0"),
        ("rolling_days", None, "rolling_days must be a whole number of at least 1, got None"),
        ("stale_min_age_days", -1, "stale_min_age_days must be a number of days in [0, 1000000], got -1"),
        ("stale_min_idle_days", nan, "stale_min_idle_days must be a number of days in [0, 1000000], got nan"),
        ("stale_max_importance", inf, "stale_max_importance must be a finite number, got inf"),
        ("promote_to", "short_term", "promote_from and promote_to must be two tiers, got 'short_term' for both"),
    ],
)
def test_a_bad_value_is_refused_by_name_value_and_range(name, value, message):
    """A pass with a threshold that means nothing does not begin."""
    with pytest.raises(ValueError) as refusal:  # noqa: PT011  (the whole message is compared below)
        Policy(as_of=AS_OF, **{name: value})

    assert str(refusal.value).startswith(message)


@pytest.mark.parametrize("as_of", [datetime(2026, 6, 1), None, "2026-06-01"])
def test_as_of_must_know_its_time_zone(as_of):
    """A local time would expire memories hours too early."""
    with pytest.raises(ValueError, match="as_of must be a date and time with a time zone"):
        Policy(as_of=as_of)


def test_as_of_is_kept_in_utc():
    """The same moment in another zone is the same policy."""
    east = datetime(2026, 6, 1, 2, tzinfo=timezone(timedelta(hours=2)))

    assert Policy(as_of=east) == Policy(as_of=AS_OF)
    assert Policy(as_of=east).as_of.tzinfo is UTC


def test_the_limits_of_a_range_belong_to_it():
    """0 and 1 are thresholds like any other, also as whole numbers."""
    assert Policy(as_of=AS_OF, max_loss_fraction=0, max_rolling_loss_fraction=1, max_lost_rows=0).max_loss_fraction == 0


def test_a_policy_does_not_change_once_it_is_made():
    """What the plan was made with is what stands in the run."""
    with pytest.raises(FrozenInstanceError):
        Policy(as_of=AS_OF).max_loss_fraction = 1.0  # type: ignore[misc]


def test_pruning_and_promoting_are_off_unless_a_threshold_is_set():
    """Zero is a threshold."""
    assert not Policy(as_of=AS_OF).prunes_stale
    assert not Policy(as_of=AS_OF).promotes
    assert Policy(as_of=AS_OF, stale_max_use_count=0).prunes_stale
    assert Policy(as_of=AS_OF, promote_min_age_days=0).promotes


@pytest.mark.parametrize(
    ("recall", "across", "walled"),
    [("equality", False, True), ("equality", True, False), ("none", False, False), ("null_is_all", False, False)],
)
def test_sessions_are_walls_where_the_store_recalls_by_them(recall, across, walled):
    """And only as long as nobody overrides it."""
    assert Policy(as_of=AS_OF, session_recall=recall, across_sessions=across).walls_off_sessions is walled


def test_the_relation_has_one_row_and_a_column_for_each_threshold():
    """So the SQL reads every threshold by its own name."""
    table = Policy(as_of=AS_OF).as_table()

    assert table.num_rows == 1
    assert table.schema == POLICY
    assert table.column_names == [field.name for field in fields(Policy)]


def test_a_policy_comes_back_from_its_relation_as_it_was():
    """An apply works with the thresholds that were planned with."""
    policy = Policy(as_of=AS_OF, max_lost_rows=3, stale_kinds=("episodic",), stale_min_age_days=0.5, on_excess="fit")

    assert Policy.from_table(policy.as_table()) == policy
