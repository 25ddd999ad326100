"""What memfold reads in a PraisonAI memory, and how it sees it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from memfold_flows.stores import praisonai


def test_every_memory_is_read_with_an_id_that_names_its_tier(sample):
    """Both tiers count from 1, so row 14 of short term and row 14 of long term need two names."""
    memories = sample.snapshot()

    assert len(memories) == 63
    assert memories["short_term:14"]["content"].startswith("Reminder: rotate the staging signing key")
    assert memories["long_term:14"]["content"] == "Log retention is 14 days for debug logs."
    assert memories["short_term:14"]["tier"] == "short_term"
    assert memories["short_term:14"]["scope"] == "team-a"
    assert memories["short_term:14"]["session_id"] == "session-2"
    assert memories["short_term:14"]["importance"] == 0.6
    assert memories["short_term:14"]["created_at"] == datetime(2026, 11, 30, 20, 46, 22, tzinfo=UTC)
    assert memories["short_term:14"]["metadata"] == (
        '{"category": "todo", "user_id": "team-a", "session_id": "session-2", "quality": 0.6}'
    )


@pytest.mark.parametrize(
    ("metadata", "scope"),
    [
        ({"user_id": "ann"}, "ann"),
        ({}, ""),
        ({"user_id": None}, ""),
        ({"user_id": ""}, "user_id="),
        ({"user_id": "5"}, "5"),
        ({"user_id": 5}, "user_id=5"),
        ({"user_id": "user_id=5"}, "user_id=user_id%3D5"),
        ({"agent_id": "a-1", "scope": "else"}, ""),
    ],
)
def test_the_scope_is_the_user_id_that_recall_compares_with(empty, metadata, scope):
    """PraisonAI compares user ids with ==: none, an empty one, 5 and "5" are four users."""
    empty.insert("long_term", "The build runs on Linux.", metadata)

    assert empty.snapshot()["long_term:1"]["scope"] == scope


@pytest.mark.parametrize(
    ("trust", "read"),
    [
        (None, "trusted"),
        ("trusted", "trusted"),
        ("system", "system"),
        ("untrusted", "untrusted"),
        ("Trusted", "untrusted"),
        (["trusted"], "untrusted"),
        (1, "untrusted"),
    ],
)
def test_trust_is_ranked_as_recall_ranks_it(empty, trust, read):
    """Absent is trusted; a value that PraisonAI does not know is untrusted."""
    empty.insert("long_term", "The build runs on Linux.", {"trust": trust})

    assert empty.snapshot()["long_term:1"]["trust"] == read


@pytest.mark.parametrize(
    ("metadata", "importance"),
    [
        ('{"quality": 0.8}', 0.8),
        ('{"quality": 1}', 1.0),
        ('{"quality": 7.5}', None),
        ('{"quality": 0.5, "timestamp": "2026-11-30T21:00:00.000001"}', None),
        ('{"quality": NaN}', None),
        ('{"quality": -0.1}', None),
        ('{"quality": true}', None),
        ('{"quality": "high"}', None),
        ("{}", None),
        ("", None),
        (None, None),
    ],
)
def test_importance_is_the_quality_on_the_scale_of_one_only(empty, metadata, importance):
    """PraisonAI's async writers score from 0 to 10 and add a timestamp; the two scales are not compared."""
    empty.insert("long_term", "The build runs on Linux.", metadata)

    assert empty.snapshot()["long_term:1"]["importance"] == importance
    assert empty.snapshot()["long_term:1"]["metadata"] == metadata


@pytest.mark.parametrize(
    ("timestamp", "created_at"),
    [
        ("2026-11-30 20:46:22", datetime(2026, 11, 30, 20, 46, 22, tzinfo=UTC)),
        ("2026-11-30T20:46:22+02:00", datetime(2026, 11, 30, 18, 46, 22, tzinfo=UTC)),
        (None, None),
        (1796070987.1, None),
        ("last Tuesday", None),
        ("2026-13-45 20:46:22", None),
        ("0001-01-01 00:00:00+23:00", None),
    ],
)
def test_a_timestamp_that_is_no_utc_text_is_unknown(empty, timestamp, created_at):
    """Whatever another program wrote there, the row is read; unknown is not old."""
    empty.insert("long_term", "The build runs on Linux.", {}, timestamp)

    assert empty.snapshot()["long_term:1"]["created_at"] == created_at


def test_rows_that_praisonai_cannot_read_are_left_alone_and_counted(empty, caplog):
    """One bad row breaks PraisonAI's whole listing; here it is protected, without text, and the others are read."""
    empty.insert("long_term", "The build runs on Linux.", {"user_id": "ann"})
    empty.insert("long_term", b"The build runs on Linux.", {"user_id": "ann"})
    empty.insert("long_term", "The build runs on Linux.", '{"user_id": "ann"')
    empty.insert("long_term", "The build runs on Linux.", '["ann"]')
    empty.insert("long_term", "The build runs on Linux.", {"user_id": ["ann"]})
    empty.execute("long_term", "insert into long_term_memory (content) values (cast(x'ff' as text))")
    store = empty.open()

    memories = {row["memory_id"]: row for row in pa.Table.from_batches(store.snapshot()).to_pylist()}

    assert memories["long_term:1"]["protected"] is False
    for number in range(2, 7):
        memory = memories[f"long_term:{number}"]
        assert (memory["protected"], memory["content"], memory["scope"]) == (True, "", "rows=unreadable")
    assert store.left_alone == {
        "the content is not text": 2,
        "the metadata is not JSON": 1,
        "the metadata is not a JSON object": 1,
        "the user_id in the metadata is neither text nor a whole number": 1,
    }
    assert "Linux" not in caplog.text
    assert [record.args[0] for record in caplog.records] == [2, 1, 1, 1]


@pytest.mark.parametrize(
    ("content", "metadata", "shape"),
    [
        ("User: Which region?\nAssistant: eu-north.", {}, "turn"),
        ("User: \nAssistant: ", {}, "turn"),
        ("Entity Ann(person): leads billing | relationships: none", {}, "entity"),
        ("Ann leads billing.", {"category": "entity"}, "entity"),
        ("[Session Summary] Ann asked about billing.", {}, "summary"),
        ("Ann asked about billing.", {"type": "compression_summary"}, "summary"),
        ("User: Ann asked about billing.", {"category": "note"}, None),
    ],
)
def test_turns_entities_and_summaries_are_protected(empty, content, metadata, shape):
    """They are a transcript or a record of something, not facts that may be folded for their wording."""
    empty.insert("long_term", content, metadata)

    memory = empty.snapshot()["long_term:1"]

    assert memory["protected"] is (shape is not None)
    assert (memory["kind"] or "").partition(":")[0] == (shape or "")


def test_only_the_oldest_of_exact_copies_of_a_turn_is_protected(empty):
    """Copies of one turn within tier, user, trust and session may fold into the oldest; nothing else may."""
    turn, other = "User: Which region?\nAssistant: eu-north.", "User: Which region?\nAssistant: eu-north!"
    ann = {"user_id": "ann", "session_id": "s1"}
    empty.insert("short_term", turn, {**ann, "agent_id": "a-1"})
    empty.insert("short_term", turn, {**ann, "agent_id": "a-2"})
    empty.insert("short_term", other, ann)
    empty.insert("short_term", turn, {**ann, "session_id": "s2"})
    empty.insert("short_term", turn, {**ann, "user_id": "bob"})
    empty.insert("short_term", turn, {**ann, "trust": "untrusted"})
    empty.insert("long_term", turn, ann)

    memories = empty.snapshot()

    assert [name for name, memory in memories.items() if not memory["protected"]] == ["short_term:2"]
    assert memories["short_term:1"]["kind"] == memories["short_term:2"]["kind"] != memories["short_term:3"]["kind"]


def test_a_copy_of_a_turn_is_known_as_one_when_it_is_read_alone(empty):
    """What a transaction sees of a row must not depend on which others it was asked for."""
    for _ in range(2):
        empty.insert("short_term", "User: Which region?\nAssistant: eu-north.", {"session_id": "s1"})

    with empty.open().transaction() as transaction:
        memory = transaction.read(["short_term:2"])["short_term:2"].memory

    assert memory.protected is False
    assert memory.row_digest == empty.snapshot()["short_term:2"]["row_digest"]


def test_a_transaction_reads_what_the_snapshot_read(empty):
    """Otherwise every row would look drifted."""
    for number in (1, 2, 3):
        empty.insert("short_term", "User: Which region?\nAssistant: eu-north.", {"session_id": f"s{number // 3}"})
        empty.insert("long_term", "The build runs on Linux.", '{"quality":NaN,  "b":1, "a":2}')
    empty.insert("long_term", b"\x00", None)
    expected = {name: memory["row_digest"] for name, memory in empty.snapshot().items()}

    with empty.open().transaction() as transaction:
        read = transaction.read({*expected, "short_term:99", "short_term:01", "3", ""})

    assert {name: row.memory.row_digest for name, row in read.items()} == expected


def test_more_rows_than_one_read_takes_all_come_once(sample, monkeypatch):
    """Each page is a read of its own; a page boundary neither drops nor repeats a row."""
    monkeypatch.setattr(praisonai, "_ROWS_PER_READ", 7)

    ids = [name for batch in sample.open().snapshot() for name in batch["memory_id"].to_pylist()]

    assert len(ids) == len(set(ids)) == 63


def test_an_agent_writes_while_a_snapshot_is_read(sample, monkeypatch):
    """No lock is kept between two pages, so an agent that cannot wait at all still gets its turn."""
    monkeypatch.setattr(praisonai, "_ROWS_PER_READ", 7)
    batches = sample.open().snapshot()
    next(batches)

    with closing(sqlite3.connect(sample.folder / "short_term.db", timeout=0)) as agent, agent:
        agent.execute("insert into short_term_memory (content, metadata) values ('The pager is quiet.', '{}')")

    assert "short_term:25" in [name for batch in batches for name in batch["memory_id"].to_pylist()]


def test_a_snapshot_of_some_scopes_leaves_out_the_others(sample):
    """A scope is the user whose memories they are."""
    sample.insert("long_term", "Bob reads the graphs on Monday.", {"user_id": "bob"})

    assert list(sample.snapshot(scopes=["bob"])) == ["long_term:40"]
