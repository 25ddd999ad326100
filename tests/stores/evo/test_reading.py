"""What memfold takes a file of evo's for, and what it refuses to."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from memfold.errors import BadRecord, StoreError
from memfold_flows.stores import open_store


def memories(evo):
    return {row["memory_id"]: row for batch in evo.store.snapshot() for row in batch.to_pylist()}


def test_a_row_of_evos_is_a_memory(evo):
    """Milliseconds are times, the scope key is the scope, the source stays as it is spelled."""
    evo.distil(
        "m1",
        "Use pnpm.",
        title="Package manager",
        kind="constraint",
        tags_json='["node","build"]',
        confidence=0.75,
        usage_count=4,
        created_at=1_780_000_000_001,
        updated_at=1_780_000_500_000,
        scope_key="user:ana/project:site",
        scope_json='{"type":"project","id":"site","parent":{"type":"user","id":"ana"}}',
    )

    memory = memories(evo)["m1"]

    assert {name: value for name, value in memory.items() if value not in (None, [], False)} == {
        "memory_id": "m1",
        "scope": "user:ana/project:site",
        "kind": "constraint",
        "title": "Package manager",
        "content": "Use pnpm.",
        "tags": ["node", "build"],
        "session_id": "s1",
        "confidence": 0.75,
        "use_count": 4,
        "created_at": datetime(2026, 5, 28, 20, 26, 40, 1000, tzinfo=UTC),
        "updated_at": datetime(2026, 5, 28, 20, 35, tzinfo=UTC),
        "last_used_at": datetime(2026, 5, 28, 20, 35, tzinfo=UTC),
        "metadata": '{"runtime": "evo", "sessionId": "s1", "turn": 3}',
        "row_digest": memory["row_digest"],
    }


@pytest.mark.parametrize(
    ("source", "is_protected"),
    [
        ({"runtime": "evo"}, False),
        ({"runtime": "evo-memory", "sessionId": "s1"}, False),
        (None, True),
        ({"runtime": "claude-code"}, True),
        ({"runtime": "workspace", "path": "/home/ana/AGENTS.md"}, True),
        ({"runtime": "evo", "path": "/home/ana/AGENTS.md"}, True),
    ],
)
def test_only_what_evo_distilled_itself_may_be_removed(evo, source, is_protected):
    """What was imported or written by hand is protected."""
    evo.write("m1", "Use pnpm.", source=source)

    assert memories(evo)["m1"]["protected"] is is_protected


@pytest.mark.parametrize("version", [1, 3, 5, 7, "six"])
def test_another_schema_version_is_refused(make_evo, version):
    """evo would not open such a file either, and nobody knows what is in it."""
    evo = make_evo(6)
    evo.execute("update schema_meta set version = ?", version)

    with pytest.raises(StoreError, match=f"schema version {version}, memfold knows 2 and 6"):
        open_store(f"evo:{evo.path}")


def test_a_database_that_is_not_evos_is_refused(tmp_path):
    """memfold's own table has no schema_meta."""
    from memfold_flows.stores import sqlite

    sqlite.init(tmp_path / "own.db")

    with pytest.raises(StoreError, match=r"own\.db is no store of evo's"):
        open_store(f"evo:{tmp_path}/own.db")


def test_a_version_without_its_tables_is_refused(make_evo):
    """A file that says 6 and has no replay buffer is no 6."""
    evo = make_evo(6)
    evo.execute("alter table replay_buffer rename to gone")

    with pytest.raises(StoreError, match=r"table replay_buffer of .* lacks"):
        open_store(f"evo:{evo.path}")


@pytest.mark.parametrize(
    ("cells", "says"),
    [
        ({"title": ""}, "title is not a text of at least one character"),
        ({"kind": "note"}, "kind is not one of fact, preference, constraint, procedure, skill"),
        ({"tags_json": '["ok", ""]'}, "tags_json is not a JSON array of texts"),
        ({"tags_json": "ops"}, "tags_json is not a JSON array of texts"),
        ({"confidence": 1.5}, "confidence is not a number from 0 to 1"),
        ({"usage_count": -1}, "usage_count is not a whole number of at least 0"),
        ({"created_at": 1.5}, "created_at is not a time in whole milliseconds"),
        ({"updated_at": 1_780_000_000_000_000}, "updated_at is not a time in whole milliseconds"),
        ({"scope_json": '{"type":"team","id":"x"}'}, "scope_json is not a scope in JSON"),
        ({"scope_json": '{"type":"user"}'}, "scope_json is not a scope in JSON"),
        ({"source_json": '{"sessionId":"s1"}'}, "source_json is not JSON with a runtime"),
        ({"source_json": '{"runtime":"evo","turn":-1}'}, "source_json is not JSON with a runtime"),
    ],
)
def test_a_row_that_evo_cannot_read_is_named(evo, cells, says):
    """Its id, its column and the rule; not its text. Nothing is planned, as evo's own list is broken too."""
    evo.write("broken", "A secret", **cells)

    with pytest.raises(BadRecord, match=f"memory 'broken': {says}") as error:
        memories(evo)

    assert "secret" not in str(error.value)


def test_text_that_is_not_utf_8_is_named_by_its_memory(evo):
    """SQLite's own message would quote it."""
    evo.write("broken", "x")
    evo.execute("update memories set title = cast(x'73656372ff' as text)")

    with pytest.raises(BadRecord, match="title is not UTF-8"):
        memories(evo)
