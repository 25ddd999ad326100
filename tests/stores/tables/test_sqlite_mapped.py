"""A table of people's own in SQLite: what of it memfold reads and writes, and what it refuses."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from urllib.parse import quote

import pytest

from memfold.errors import BadRecord, BadUsage, StoreError, Transient
from memfold.memory import Memory
from memfold_flows.stores import open_store, sqlite_mapped, urls

NOTES = {"table": "notes", "id": "id", "content": "body", "scope": "who"}


class File:
    """A SQLite file of somebody's own, and ways past memfold to what it holds."""

    def __init__(self, path):
        self.path = path

    def execute(self, statement, *values):
        with closing(sqlite3.connect(self.path)) as connection, connection:
            return connection.execute(statement, values).fetchall()

    def store(self, **options):
        given = {**NOTES, **options}
        return open_store(f"sqlite:{self.path}?{'&'.join(f'{name}={quote(value)}' for name, value in given.items())}")


@pytest.fixture
def file(tmp_path):
    """A file that holds nothing yet."""
    return File(tmp_path / "agent.db")


def test_a_table_of_ones_own_is_read_as_people_write_values(file, memories_of):
    """Times as ISO 8601 or an epoch in seconds or milliseconds, JSON arrays, 0 and 1; null is not known."""
    file.execute(
        "create table notes (id integer primary key, body text, who integer, labels text, pinned integer, weight real, "
        "uses integer, written text, seen integer, gone integer, extra text)"
    )
    file.execute(
        "insert into notes values (1, 'Hello.', 7, '[\"a\", \"b\"]', 1, 0.5, 3, '2026-01-02 03:04:05', 1767323045, "
        "1767323045500, '{\"b\": 1.50}'), (2, 'Bye.', null, null, null, null, null, null, null, null, null)"
    )
    store = file.store(
        tags="labels",
        pinned="pinned",
        importance="weight",
        use_count="uses",
        created_at="written",
        last_used_at="seen",
        expires_at="gone",
        metadata="extra",
    )

    assert memories_of(store) == {
        "1": Memory(
            memory_id="1",
            scope="7",
            content="Hello.",
            tags=("a", "b"),
            pinned=True,
            importance=0.5,
            use_count=3,
            created_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
            last_used_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
            expires_at=datetime(2026, 1, 2, 3, 4, 5, 500_000, tzinfo=UTC),
            metadata='{"b": 1.50}',
        ),
        "2": Memory(memory_id="2", scope="", content="Bye."),
    }
    with store.transaction() as transaction:
        assert {name: row.memory for name, row in transaction.read(["1", "2", "01", "x"]).items()} == memories_of(store)
        assert [transaction.count(scope) for scope in ("7", "", "07", "x")] == [1, 1, 0, 0]


def test_a_fold_is_written_in_the_forms_of_the_table_and_taken_back_exactly(file, a_pass):
    """And columns without a field come back as they were, bytes and computed ones included."""
    file.execute(
        "create table notes (id text primary key, body text, who text, labels text, uses integer, written text, "
        "seen integer, gone integer, picture blob, words integer generated always as (length(body)))"
    )
    columns = "id, body, who, labels, uses, written, seen, gone, picture"
    for row in (
        ("ann", "Hello there.", "me", '[ "x" ]', 1, "2026-01-02T00:00:00Z", 1767323045, 1767323045000, b"\0\xff"),
        ("bob", "hello there", "me", '["y"]', 2, "2026-01-01T00:00:00Z", 1767323046, 1767323046000, b"\1"),
    ):
        file.execute(f"insert into notes ({columns}) values (?, ?, ?, ?, ?, ?, ?, ?, ?)", *row)
    before = file.execute("select * from notes")
    store = file.store(tags="labels", use_count="uses", created_at="written", last_used_at="seen", expires_at="gone")
    night = a_pass(store).plan(merge={"bob": "ann"})

    assert night.apply().merged == 1

    kept = ("ann", "Hello there.", "me", '["x", "y"]', 3, "2026-01-01T00:00:00Z", 1767323046, 1767323046000, b"\0\xff")
    assert file.execute(f"select {columns} from notes") == [kept]
    night.undo()
    assert sorted(file.execute("select * from notes")) == before


def test_folded_fields_without_a_column_are_left_out_and_named(file, a_pass):
    """A table that has no place for a field leaves it out, and the receipt says so."""
    file.execute("create table notes (id text primary key, body text, who text, written text, session text)")
    file.execute(
        "insert into notes values ('ann', 'Hello there.', 'me', '2026-01-02', 's'), ('bob', 'hello there', 'me', "
        "'2026-01-01', 's')"
    )
    store = file.store(created_at="written", session_id="session")
    night = a_pass(store).plan(merge={"bob": "ann"})

    report = night.apply()

    assert report.fields_left_out == ["sessions"]
    assert file.execute("select * from notes") == [("ann", "Hello there.", "me", "2026-01-01", "s")]
    assert store.traits.session_recall == "equality"


def test_several_scope_columns_make_one_scope(file, memories_of):
    """Each value by the name of its column; a null takes no part; texts compare to the letter."""
    file.execute("create table notes (id integer primary key, body text, who text collate nocase, team integer)")
    file.execute(
        "insert into notes values (1, 'a', 'Ann', 7), (2, 'b', 'ann', 7), (3, 'c', null, 7), (4, 'd', '', null)"
    )
    store = file.store(scope="who,team")
    scopes = {"1": "who=Ann&team=7", "2": "who=ann&team=7", "3": "team=7", "4": "who="}

    assert {memory_id: memory.scope for memory_id, memory in memories_of(store).items()} == scopes
    with store.transaction() as transaction:
        assert [transaction.count(scope) for scope in scopes.values()] == [1, 1, 1, 1]
        assert [transaction.count(scope) for scope in ("team=07", "who=ANN&team=7", "team=7&who=Ann", "")] == [0] * 4


def test_ids_compare_to_the_letter_whatever_the_column_thinks(file):
    """Where 'Ann' and 'ann' are one to the table, only the id as it is written names the row."""
    file.execute("create table notes (id text primary key collate nocase, body text, who text)")
    file.execute("insert into notes values ('Ann', 'Hello.', 'me')")

    with file.store().transaction() as transaction:
        assert list(transaction.read(["ann", "Ann", "ANN"])) == ["Ann"]


def test_rows_without_a_text_are_left_alone_and_counted(file, memories_of):
    """They are no memories; nothing of them is read, compared or removed."""
    file.execute("create table notes (id text unique, body text, who text)")
    file.execute("insert into notes values ('ann', 'a', 'me'), ('bob', null, 'me'), (null, 'c', 'me')")
    store = file.store()

    assert list(memories_of(store)) == ["ann"]
    assert store.left_alone == {"has no id or no text": 2}
    with store.transaction() as transaction:
        assert transaction.read(["bob"]) == {}


def test_a_snapshot_comes_page_by_page(file, monkeypatch):
    """Every row once, whatever the size of a page and of whatever type the ids are."""
    monkeypatch.setattr(sqlite_mapped, "_PAGE_ROWS", 2)
    file.execute("create table notes (id unique, body text, who text)")
    file.execute(
        "insert into notes values ('b', 'x', ''), (10, 'x', ''), (9, 'x', ''), ('a', 'x', ''), ('9a', 'x', '')"
    )

    pages = [batch["memory_id"].to_pylist() for batch in file.store().snapshot()]

    assert pages == [["9", "10"], ["9a", "a"], ["b"]]


def test_the_url_that_runs_keep_opens_the_same_table(file, memories_of):
    """From any folder."""
    file.execute("create table notes (id text primary key, body text, who text)")
    file.execute("insert into notes values ('ann', 'a', 'me')")
    store = file.store()

    assert urls.parse(store.url).options == NOTES
    assert memories_of(open_store(store.url)) == memories_of(store)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"table": "note"}, "table 'note' of {path} is not there; nothing was read or created"),
        ({"table": "v"}, "table 'v' of {path} is a view, not a table"),
        (
            {"content": "text"},
            "table 'notes' of {path} has no column 'text'; nothing was read or written. It has: id",
        ),
        ({"scope": "who,team"}, "has no column 'team'"),
        ({"id": "who"}, "nothing makes 'who' unique in table 'notes' of {path}, so it is no id"),
        ({"id": "half"}, "nothing makes 'half' unique"),
    ],
)
def test_a_wrong_table_or_column_is_named_and_never_an_empty_store(file, options, what):
    """The guard would let everything pass."""
    file.execute("create table notes (id text primary key, body text, who text, half text)")
    file.execute("create unique index some on notes (half) where who = 'me'")
    file.execute("create view v as select * from notes")

    with pytest.raises(StoreError) as error:
        file.store(**options)

    assert what.format(path=file.path) in str(error.value)


@pytest.mark.parametrize("options", ["table=notes", "table=memfold_runs&id=run_id&content=digest&scope="])
def test_a_table_that_memfold_did_not_make_needs_its_columns_named(file, options):
    """And its own bookkeeping is none."""
    file.execute("create table notes (id text primary key, body text, who text)")

    with pytest.raises(BadUsage, match="nothing was read"):
        open_store(f"sqlite:{file.path}?{options}")


@pytest.mark.parametrize(
    ("field", "cell", "what"),
    [
        ("tags", "a, b", "extra must be a JSON array of texts"),
        ("tags", '{"a": 1}', "extra must be a list, got an object"),
        ("created_at", "yesterday", "extra must be a date, or a date and time in ISO 8601, got 'yesterday'"),
        ("use_count", -1, "extra must be a whole number from 0 to 2^63 - 1, got -1"),
        ("pinned", "yes", "extra must be true or false, got 'yes'"),
        ("metadata", b"{}", "extra must be text, got bytes"),
    ],
)
def test_a_cell_that_no_memory_can_have_is_named_and_nothing_is_planned(file, field, cell, what):
    """In the snapshot and in a transaction, by the memory and its column."""
    file.execute("create table notes (id text primary key, body text, who text, extra)")
    file.execute("insert into notes values ('ann', 'Hello.', 'me', ?)", cell)
    store = file.store(**{field: "extra"})

    for read in (lambda: list(store.snapshot()), lambda: _read(store, "ann")):
        with pytest.raises(BadRecord) as error:
            read()
        assert str(error.value) == f"memory 'ann': {what}; nothing was written. Correct that record."


@pytest.mark.parametrize("place", ["body", "other"])
def test_text_that_is_not_utf8_is_named_by_its_row(file, place):
    """A memory's text must be one; another column must come back with an undo, and could not."""
    file.execute("create table notes (id text primary key, body text, who text, other text)")
    file.execute("insert into notes values ('ann', 'Hello.', 'me', 'x')")
    file.execute(f"update notes set {place} = cast(x'ff41' as text)")

    with pytest.raises(BadRecord, match="memory 'ann': "):
        _read(file.store(), "ann")


@pytest.mark.parametrize("on_delete", ["cascade", "set null"])
def test_a_row_that_would_take_rows_of_other_tables_with_it_is_not_deleted(file, on_delete):
    """An undo could not bring those back."""
    file.execute("create table notes (id text primary key, body text, who text)")
    file.execute(f"create table vectors (note text references notes (id) on delete {on_delete}, v blob)")
    store = file.store()

    with pytest.raises(StoreError, match="would change rows of vectors too"), store.transaction():
        pass


def test_a_row_that_another_table_needs_stays(file, a_pass):
    """The whole transaction is as if it had not been."""
    file.execute("create table notes (id text primary key, body text, who text)")
    file.execute("insert into notes values ('ann', 'Hello there.', 'me'), ('bob', 'hello there', 'me')")
    file.execute("create table vectors (note text references notes (id))")
    file.execute("insert into vectors values ('bob')")

    with pytest.raises(StoreError, match="FOREIGN KEY constraint failed"):
        a_pass(file.store()).plan(merge={"bob": "ann"}).apply()

    assert file.execute("select count(*) from notes") == [(2,)]


def test_a_locked_file_is_busy(file, a_pass, monkeypatch):
    """The same apply works a moment later."""
    monkeypatch.setattr(sqlite_mapped, "connect_for_a_pass", _impatient)
    file.execute("create table notes (id text primary key, body text, who text)")
    file.execute("insert into notes values ('ann', 'Hello there.', 'me'), ('bob', 'hello there', 'me')")
    night = a_pass(file.store()).plan(merge={"bob": "ann"})

    with closing(sqlite3.connect(file.path, isolation_level=None)) as agent:
        agent.execute("begin immediate")
        with pytest.raises(Transient, match="stayed locked"):
            night.apply()
        agent.execute("rollback")

    assert night.apply().merged == 1


def _read(store, memory_id):
    with store.transaction() as transaction:
        return transaction.read([memory_id])


def _impatient(path):
    return sqlite3.connect(path, isolation_level=None, timeout=0.1)
