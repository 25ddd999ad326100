"""memfold's own table: how it is made, read beside live agents, and refused where it is not what it should be."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from memfold.errors import BadRecord, StoreError, Transient
from memfold.frames import SNAPSHOT
from memfold.memory import Memory
from memfold_flows.stores import open_store, sqlite
from memfold_flows.stores.base import Update
from memfold_flows.stores.sqlite_rows import COLUMNS

FULL = Memory(
    memory_id="ann",
    scope="team",
    kind="fact",
    title="Approvals",
    content="Deploys need two approvals.",
    tags=("ops", "ci"),
    tier="long_term",
    session_id="mon",
    sessions=("mon", "tue"),
    trust="system",
    pinned=True,
    protected=True,
    importance=0.1,
    confidence=0.9,
    use_count=7,
    created_at=datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
    updated_at=datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    event_time=datetime(1, 1, 1, tzinfo=UTC),
    valid_from=datetime(2026, 1, 1, tzinfo=UTC),
    valid_to=datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    last_used_at=datetime(2026, 2, 1, tzinfo=UTC),
    expires_at=datetime(2027, 1, 1, tzinfo=UTC),
    links=("bob",),
    metadata='{"by": "ann"}',
)


def mem(memory_id, content="Deploys need two approvals.", scope="team", **more):
    return Memory(memory_id=memory_id, content=content, scope=scope, **more)


def test_every_field_comes_back(fill_sqlite, memories_of):
    """Times to the microsecond, from the year 1 to 9999; the snapshot's digest is the memory's."""
    store = fill_sqlite(FULL).store

    assert memories_of(store) == {"ann": FULL}
    assert [batch.schema for batch in store.snapshot()] == [SNAPSHOT]
    assert [row["row_digest"] for batch in store.snapshot() for row in batch.to_pylist()] == [FULL.row_digest]


def test_a_row_in_a_transaction_reads_as_in_the_snapshot(fill_sqlite, memories_of):
    """Else everything would look drifted."""
    store = fill_sqlite(FULL, mem("bob")).store

    with store.transaction() as transaction:
        rows = transaction.read(["ann", "bob", "nobody"])

    assert {memory_id: row.memory for memory_id, row in rows.items()} == memories_of(store)


def test_a_memory_that_says_only_who_and_what_is_enough(fill_sqlite, memories_of):
    """Agents may leave out every column that has a default."""
    filled = fill_sqlite()
    filled.execute("insert into memories (memory_id, content) values ('ann', 'Hello.')")

    assert memories_of(filled.store) == {"ann": Memory(memory_id="ann", scope="", content="Hello.")}


def test_a_snapshot_comes_by_id_page_by_page(fill_sqlite, monkeypatch):
    """Every row once, in the order of the ids, whatever the size of a page."""
    filled = fill_sqlite(*(mem(f"m{number:02}", scope=f"s{number % 3}") for number in reversed(range(20))))
    monkeypatch.setattr(sqlite, "_PAGE_ROWS", 3)

    read = [row["memory_id"] for batch in filled.store.snapshot() for row in batch.to_pylist()]
    of_one = [row["memory_id"] for batch in filled.store.snapshot(["s1"]) for row in batch.to_pylist()]
    of_two = [row["memory_id"] for batch in filled.store.snapshot(["s2", "s1"]) for row in batch.to_pylist()]

    assert read == [f"m{number:02}" for number in range(20)]
    assert of_one == [f"m{number:02}" for number in range(20) if number % 3 == 1]
    assert of_two == [f"m{number:02}" for number in range(20) if number % 3 > 0]


def test_a_snapshot_in_wal_mode_is_one_moment(fill_sqlite, monkeypatch):
    """What agents write while it is read is not in it, and they do not wait."""
    filled = fill_sqlite(*(mem(f"m{number}") for number in range(6)))
    monkeypatch.setattr(sqlite, "_PAGE_ROWS", 2)

    batches = filled.store.snapshot()
    first = next(batches)
    filled.execute("delete from memories")
    rest = [row["memory_id"] for batch in batches for row in batch.to_pylist()]

    assert [*first["memory_id"].to_pylist(), *rest] == [f"m{number}" for number in range(6)]


def test_agents_write_between_the_pages_in_any_other_journal_mode(fill_sqlite, monkeypatch):
    """No lock is held while a page is worked on."""
    filled = fill_sqlite(*(mem(f"m{number}") for number in range(6)))
    filled.execute("pragma journal_mode = delete")
    monkeypatch.setattr(sqlite, "_PAGE_ROWS", 2)

    batches = filled.store.snapshot()
    next(batches)
    filled.execute("delete from memories where memory_id = 'm4'")
    rest = [row["memory_id"] for batch in batches for row in batch.to_pylist()]

    assert rest == ["m2", "m3", "m5"]


def test_reading_leaves_no_file_behind(fill_sqlite):
    """The -wal and -shm files that SQLite needs are gone when nobody else has the store open."""
    filled = fill_sqlite(mem("ann"))
    before = filled.path.read_bytes()

    list(filled.store.snapshot())
    with filled.store.ledger() as ledger:
        ledger.runs()

    assert [file.name for file in filled.path.parent.iterdir()] == ["memories.db"]
    assert filled.path.read_bytes() == before


def test_the_log_of_an_agent_that_crashed_is_read_and_left_to_the_agents(fill_sqlite, tmp_path, memories_of):
    """A plan writes nothing to a store, and so does not empty its log into it either."""
    filled = fill_sqlite(mem("ann"))
    crashed = tmp_path / "crashed.db"
    with closing(sqlite3.connect(filled.path)) as agent, agent:
        agent.execute("insert into memories (memory_id, content) values ('bob', 'Written to the log.')")
        agent.commit()
        for suffix in ("", "-wal"):
            shutil.copy(f"{filled.path}{suffix}", f"{crashed}{suffix}")
    before = [Path(f"{crashed}{suffix}").read_bytes() for suffix in ("", "-wal")]

    assert memories_of(open_store(f"sqlite:{crashed}")).keys() == {"ann", "bob"}
    assert [Path(f"{crashed}{suffix}").read_bytes() for suffix in ("", "-wal")] == before


def test_agents_cannot_write_between_the_reading_and_the_writing_of_a_transaction(fill_sqlite):
    """What was compared is what is written over."""
    filled = fill_sqlite(mem("ann"))
    with filled.store.transaction():
        pass  # the tables of the ledger are there from now on

    with (
        filled.store.transaction(),
        closing(sqlite3.connect(filled.path, timeout=0.05)) as agent,
        pytest.raises(sqlite3.OperationalError, match="locked"),
    ):
        agent.execute("update memories set content = 'mine'")


def test_init_makes_a_table_once(tmp_path):
    """A second init finds it and changes nothing; the file is its owner's alone."""
    path = tmp_path / "new folder" / "memories.db"

    assert sqlite.init(path) is True
    before = path.read_bytes()
    assert sqlite.init(path) is False

    assert path.read_bytes() == before
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(open_store(f"sqlite:{path}").snapshot()) == []


def test_init_adds_nothing_to_the_file_of_an_application(tmp_path):
    """Its owner may not know of memfold; a table of theirs can be named instead."""
    path = tmp_path / "app.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("create table users (name text)")
        connection.execute("insert into users values ('ann')")

    with pytest.raises(StoreError, match=r"it has the table 'users'; nothing was made.*\?table=NAME"):
        sqlite.init(path)

    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("select name from sqlite_schema").fetchall() == [("users",)]
        assert connection.execute("select name from users").fetchall() == [("ann",)]


def test_init_refuses_a_file_of_another_kind(tmp_path):
    """Nothing is written over."""
    path = tmp_path / "letter.txt"
    path.write_text("Dear Ann,")

    with pytest.raises(StoreError, match="is not a SQLite file"):
        sqlite.init(path)

    assert path.read_text() == "Dear Ann,"


@pytest.mark.parametrize(
    ("table", "what"),
    [
        ("create table notes (id)", "has no table memories"),
        ("create table memories (memory_id text primary key, content text)", "lacks the columns scope, kind, title"),
        (f"create table memories ({', '.join(COLUMNS)})", "memory_id is not the primary key"),
        (f"create view memories as select {', '.join(f'1 as {name}' for name in COLUMNS)}", "is not the primary key"),
    ],
)
def test_a_database_that_is_not_memfolds_is_refused(tmp_path, table, what):
    """The message says what is missing, and nothing is added."""
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(table)
    before = path.read_bytes()

    with pytest.raises(StoreError, match=what):
        open_store(f"sqlite:{path}")

    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["other.db"]


@pytest.mark.parametrize(
    ("column", "value", "what"),
    [
        ("tags", "ops", "tags is not a JSON array of strings"),
        ("links", "[1]", "links is not a JSON array of strings"),
        ("created_at", 10**18, "created_at is not a time between the years 1 and 9999"),
    ],
)
def test_a_row_that_cannot_be_read_is_named(fill_sqlite, column, value, what):
    """The message names the memory and the column, and never quotes the text."""
    filled = fill_sqlite(mem("bob"), mem("ann"))
    filled.execute(f"update memories set {column} = ? where memory_id = 'ann'", value)

    with pytest.raises(BadRecord, match=f"memory 'ann': {what}"):
        list(filled.store.snapshot())


def test_text_that_is_not_utf_8_is_named_and_not_quoted(fill_sqlite):
    """SQLite's own message would print the memory."""
    filled = fill_sqlite(mem("ann"), mem("bob"))
    filled.execute("update memories set content = cast(x'736563726574ff' as text) where memory_id = 'bob'")

    with pytest.raises(BadRecord, match="memory b'bob': content is not UTF-8") as error:
        list(filled.store.snapshot())

    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("memory_id", "what"), [(7, "memory 7: memory_id is of type int"), (b"x", "memory_id holds bytes, not text")]
)
def test_an_id_that_is_not_text_is_named(tmp_path, memory_id, what):
    """A table that another program made is not read past what stands where an id should be."""
    path = tmp_path / "memories.db"
    columns = ", ".join(f"{name} default {default}" for name, default in _LOOSE.items())
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"create table memories (memory_id primary key, {columns})")
        connection.execute("insert into memories (memory_id) values (?)", (memory_id,))

    with pytest.raises(BadRecord, match=what):
        list(open_store(f"sqlite:{path}").snapshot())


def test_a_transaction_on_a_locked_store_is_transient(fill_sqlite, monkeypatch):
    """A busy agent is waited for, and then named as what it is: try again."""
    filled = fill_sqlite(mem("ann"))
    monkeypatch.setattr(
        sqlite, "connect_for_a_pass", lambda path: sqlite3.connect(path, timeout=0.05, isolation_level=None)
    )
    with closing(sqlite3.connect(filled.path, isolation_level=None)) as agent:
        agent.execute("begin immediate")

        with pytest.raises(Transient, match="stayed locked"), filled.store.transaction():
            pass


def test_the_log_is_moved_between_two_transactions_and_does_not_grow(fill_sqlite):
    """Moving it is no part of a commit, which would keep the lock for it; an agent may have the file open."""
    filled = fill_sqlite(*(mem(f"m{number:03}", content="x" * 20_000) for number in range(200)))
    log = filled.path.with_name(f"{filled.path.name}-wal")
    sizes, left = [], []
    with closing(sqlite3.connect(filled.path)) as agent:
        for importance in (0.1, 0.2, 0.3, 0.4):
            with filled.store.transaction() as writing:
                rows = writing.read([f"m{number:03}" for number in range(200)])
                before = [row.memory for row in rows.values()]
                writing.update([Update(memory, replace(memory, importance=importance)) for memory in before])
            sizes.append(log.stat().st_size)
        filled.store.close()
        left.append(agent.execute("select distinct importance from memories").fetchall())

    assert max(sizes) < 1.5 * sizes[0]
    assert left == [[(0.4,)]]


def test_a_row_that_is_not_there_cannot_be_written(fill_sqlite):
    """The transaction counts what it wrote, and takes all of it back."""
    filled = fill_sqlite(mem("ann"))

    with (
        pytest.raises(StoreError, match="1 rows were written where 2 were meant"),
        filled.store.transaction() as writing,
    ):
        writing.delete(["ann", "nobody"])

    assert filled.contents().keys() == {"ann"}


def test_an_update_goes_back_to_the_spelling_of_before(fill_sqlite):
    """With the row of before at hand, JSON returns as a person spaced it."""
    filled = fill_sqlite(mem("ann"))
    filled.execute("""update memories set tags = '[ "ops" ]'""")
    with filled.store.transaction() as transaction:
        stored = transaction.read(["ann"])["ann"]
        transaction.update([Update(stored.memory, mem("ann", tags=("ops", "ci")))])

    with filled.store.transaction() as transaction:
        transaction.update([Update(mem("ann", tags=("ops", "ci")), stored.memory, stored.raw)])

    assert filled.execute("select tags from memories") == [('[ "ops" ]',)]


def test_a_row_does_not_come_back_into_a_table_that_lost_its_column(fill_sqlite, a_pass):
    """Nothing of it may be dropped silently."""
    filled = fill_sqlite(mem("ann"))
    filled.execute("alter table memories add column mood text default 'calm'")
    night = a_pass(filled.store).plan(prune={"ann": "stale"})
    night.apply()
    filled.execute("alter table memories drop column mood")

    with pytest.raises(StoreError, match="the table has lost its column 'mood'"):
        night.undo()


_LOOSE = dict.fromkeys(COLUMNS[1:], "null") | {
    "scope": "''",
    "content": "''",
    "tags": "'[]'",
    "sessions": "'[]'",
    "links": "'[]'",
    "pinned": "0",
    "protected": "0",
}
