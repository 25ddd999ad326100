"""A memory as a value: what its digest covers, and times without rounding."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfold.memory import Memory, canonical_json, from_microseconds, microseconds

ANN = Memory(
    memory_id="ann",
    scope="team",
    kind="fact",
    title="Gate",
    content="The gate code is 4711",
    tags=("door", "code"),
    tier="short_term",
    session_id="mon",
    trust="trusted",
    metadata='{"source": "chat", "turn": 3}',
)
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)

RELIED_ON = {
    "scope": "ops",
    "kind": "rule",
    "title": None,
    "content": "The gate code is 4712",
    "tags": ("code", "door"),
    "tier": "long_term",
    "session_id": None,
    "trust": "untrusted",
    "pinned": True,
    "protected": True,
    "valid_from": NOON,
    "valid_to": NOON,
    "expires_at": NOON,
    "metadata": '{"source": "chat", "turn": 4}',
}


@pytest.mark.parametrize("name", RELIED_ON)
def test_the_digest_changes_with_every_field_that_a_plan_relies_on(name):
    """A row that drifted in one of them is not the row that was planned for."""
    assert replace(ANN, **{name: RELIED_ON[name]}).row_digest != ANN.row_digest


@pytest.mark.parametrize(
    "values",
    [
        {"use_count": 9},
        {"last_used_at": NOON},
        {"updated_at": NOON},
        {"created_at": NOON},
        {"importance": 0.9},
        {"sessions": ("mon", "tue")},
        {"memory_id": "another id"},
    ],
)
def test_a_mere_recall_does_not_change_the_digest(values):
    """An agent that reads a memory while memfold plans does not hold it back."""
    assert replace(ANN, **values).row_digest == ANN.row_digest


def test_the_digest_is_the_same_on_every_machine():
    """It is stored beside the data and compared by later versions."""
    assert ANN.row_digest == "aa420e96522c8517badb6957ed1a7916"


def test_fields_cannot_run_into_each_other():
    """A title and a content that swap a word are two memories."""
    one = replace(ANN, title="gate", content="code 4711")

    assert one.row_digest != replace(ANN, title="gate code", content="4711").row_digest
    assert replace(ANN, tags=("a", "b")).row_digest != replace(ANN, tags=("a,b",)).row_digest


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ('{"b": 1, "a": [1, 2]}', '{"a":[1,2],"b":1}'),
        ('{ "a":[1,2],"b":1 }', '{"a":[1,2],"b":1}'),
        ('"\u6771\u4eac"', '"\\u6771\\u4eac"'),
        ("", None),
        (None, None),
        ("no json", "no json"),
        ("[" * 100_000, "[" * 100_000),
    ],
)
def test_metadata_is_compared_by_value(text, canonical):
    """Key order, spaces and escapes say nothing; what is no JSON is compared as it is."""
    assert canonical_json(text) == canonical


@given(st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30), timezones=st.just(UTC)))
def test_microseconds_are_exact(moment):
    """No moment between the years 1 and 9999 is rounded on its way to a store and back."""
    assert from_microseconds(microseconds(moment)) == moment


def test_microseconds_count_in_utc_from_1970():
    """Before it they are negative, and an offset is only another spelling."""
    east = timezone(timedelta(hours=2))

    assert microseconds(datetime(1970, 1, 1, 2, 0, 0, 7, tzinfo=east)) == 7
    assert microseconds(datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)) == -1
    assert microseconds(None) is None
    assert from_microseconds(None) is None
