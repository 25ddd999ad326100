"""The frames that cross a step: every one with a schema, and what each promises about nulls and times."""

from __future__ import annotations

from dataclasses import fields

import pyarrow as pa
import pytest

from memfold import frames, models
from memfold.memory import Memory
from memfold.policy import POLICY

SCHEMAS = {name: schema for name, schema in vars(frames).items() if isinstance(schema, pa.Schema)}


def test_every_relation_of_a_plan_has_a_schema():
    """What the SQL reads and what it makes, and what an apply reads and leaves."""
    named = {
        name.upper()
        for name in (*models.INPUTS, *models.RELATIONS, "replay", "evidence", "proposals", "rewrite", "undo")
    }

    assert named - SCHEMAS.keys() == {"POLICY"}
    assert SCHEMAS.keys() - named == set()
    assert POLICY.names[0] == "as_of"


def test_a_snapshot_row_is_a_memory_and_its_digest():
    """The same fields under the same names, so that a row becomes a value without a table of names."""
    assert set(frames.SNAPSHOT.names) == {field.name for field in fields(Memory)} | {"row_digest"}


@pytest.mark.parametrize("name", [name for name in SCHEMAS if "memory_id" in SCHEMAS[name].names])
def test_no_row_is_without_a_memory(name):
    """The grain of a relation is never null."""
    assert not SCHEMAS[name].field("memory_id").nullable


def test_every_time_is_utc_in_microseconds():
    """No zone to guess, no precision to lose."""
    times = {field.type for schema in SCHEMAS.values() for field in schema if pa.types.is_timestamp(field.type)}

    assert times == {pa.timestamp("us", tz="UTC")}


@pytest.mark.parametrize("name", ["use_count", "importance", "created_at", "last_used_at", "expires_at"])
def test_what_may_be_unknown_may_be_null(name):
    """Unknown is not zero: a store that does not keep a value says so."""
    assert frames.SNAPSHOT.field(name).nullable
    assert frames.SURVIVORS.field(name).nullable
