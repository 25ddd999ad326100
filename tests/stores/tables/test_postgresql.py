"""PostgreSQL: what of a table memfold reads and writes, and what it refuses."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID, uuid4

import pytest

from memfold.errors import BadRecord, BadUsage, StoreError
from memfold.frames import SNAPSHOT
from memfold.memory import Memory
from memfold_flows.stores import open_store, postgresql, urls

FULL = Memory(
    memory_id="ann",
    scope="team",
    kind="fact",
    title="Approvals",
    content="Deploys need two approvals.",
    tags=("ops", 'a "b", {c} \\d', "", "null"),
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
ANN, BOB = UUID("0a000000-0000-4000-8000-00000000000a"), UUID("0b000000-0000-4000-8000-00000000000b")


def mem(memory_id, content="Deploys need two approvals.", scope="team", **more):
    return Memory(memory_id=memory_id, content=content, scope=scope, **more)


def test_every_field_comes_back(fill_postgresql, memories_of):
    """Times to the microsecond, from the year 1 to 9999; the snapshot's digest is the memory's."""
    store = fill_postgresql(FULL).open()

    assert memories_of(store) == {"ann": FULL}
    assert [batch.schema for batch in store.snapshot()] == [SNAPSHOT]
    assert [row["row_digest"] for batch in store.snapshot() for row in batch.to_pylist()] == [FULL.row_digest]


def test_a_row_in_a_transaction_reads_as_in_the_snapshot(fill_postgresql, memories_of):
    """Else everything would look drifted."""
    store = fill_postgresql(FULL, mem("bob")).open()

    with store.transaction() as transaction:
        rows = transaction.read(["ann", "bob", "nobody", "a\0b"])

    assert {memory_id: row.memory for memory_id, row in rows.items()} == memories_of(store)


def test_a_memory_that_says_only_who_and_what_is_enough(fill_postgresql, memories_of):
    """Agents may leave out every column that has a default."""
    filled = fill_postgresql()
    filled.execute("insert into memories (memory_id, content) values ('ann', 'Hello.')")

    assert memories_of(filled.open()) == {"ann": Memory(memory_id="ann", scope="", content="Hello.")}


def test_a_snapshot_comes_by_id_page_by_page(fill_postgresql, monkeypatch):
    """Every row once, in the order of the ids' letters, whatever the size of a page and the server's language."""
    monkeypatch.setattr(postgresql, "_ROWS_PER_BATCH", 2)
    store = fill_postgresql(*(mem(name) for name in ("b", "a", "B", "é", "A"))).open()

    pages = [batch["memory_id"].to_pylist() for batch in store.snapshot()]

    assert pages == [["A", "B"], ["a", "b"], ["é"]]


def test_a_snapshot_is_one_moment(fill_postgresql, monkeypatch):
    """What agents write while it is read is not in it; they are not kept waiting."""
    monkeypatch.setattr(postgresql, "_ROWS_PER_BATCH", 1)
    filled = fill_postgresql(mem("ann"), mem("bob"))
    batches = filled.open().snapshot()
    first = next(batches)

    filled.execute("delete from memories where memory_id = 'bob'")
    filled.execute("insert into memories (memory_id, content) values ('cat', 'Hello.')")

    assert [batch["memory_id"].to_pylist() for batch in (first, *batches)] == [["ann"], ["bob"]]


def test_a_table_of_ones_own_is_read_in_its_own_types(database, memories_of):
    """uuid, enum, numeric, timestamp without zone (UTC), date, jsonb; infinity is not known or never."""
    database.execute("create type \"mood 100%\" as enum ('calm', 'loud')")
    database.execute("create domain short as varchar(80) check (value <> '')")
    database.execute(
        'create table notes (note uuid primary key, body short, who bigint, mood "mood 100%", labels jsonb, '
        "weight numeric(4,2), uses smallint, written timestamp, day date, gone timestamptz, seen timestamptz, "
        "extra jsonb)"
    )
    database.execute(
        "insert into notes values (%s, 'Hello.', 7, 'loud', '[\"a\", \"b\"]', 0.50, 3, '2026-01-02 03:04:05.678901', "
        "'2026-01-02', 'infinity', '2026-01-02 03:04:05+05:30', '{\"b\": 1.50, \"a\": null}')",
        ANN,
    )
    store = database.store(
        table="notes",
        id="note",
        content="body",
        scope="who",
        kind="mood",
        tags="labels",
        importance="weight",
        use_count="uses",
        created_at="written",
        event_time="day",
        expires_at="gone",
        last_used_at="seen",
        metadata="extra",
    )

    assert memories_of(store) == {
        str(ANN): Memory(
            memory_id=str(ANN),
            scope="7",
            content="Hello.",
            kind="loud",
            tags=("a", "b"),
            importance=0.5,
            use_count=3,
            created_at=datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
            event_time=datetime(2026, 1, 2, tzinfo=UTC),
            last_used_at=datetime(2026, 1, 1, 21, 34, 5, tzinfo=UTC),
            metadata='{"a": null, "b": 1.50}',
        )
    }


def test_a_fold_is_written_in_the_types_of_the_table_and_taken_back_exactly(database, a_pass):
    """Columns without a field, filled-up text, zeros after the point and computed columns come back as they were."""
    database.execute(
        "create table notes (note uuid primary key, body text, who text, labels varchar(9)[], weight numeric, "
        "uses int, written timestamp, gone timestamptz not null, extra jsonb, code char(6), size bytea, "
        "spans int4range, serial int generated always as identity, words int generated always as (length(body)) stored)"
    )
    for note, body, labels, weight, uses, written in (
        (ANN, "Deploys need two approvals.", ["x"], "0.50", 2, "2026-01-02 03:04:05"),
        (BOB, "deploys need two approvals", ["y", 'a "b"'], "0.75", 3, "2026-01-01 00:00:00"),
    ):
        database.execute(
            "insert into notes values (%s, %s, 'team', %s, %s, %s, %s, 'infinity', "
            "'{\"by\": \"me\", \"n\": 1.0}', 'ab', '\\xdeadbeef', '[1,5)')",
            *(note, body, labels, weight, uses, written),
        )
    before = database.execute("select t::text from notes t order by 1")
    store = database.store(
        table="notes",
        id="note",
        content="body",
        scope="who",
        tags="labels",
        importance="weight",
        use_count="uses",
        created_at="written",
        expires_at="gone",
        metadata="extra",
    )
    night = a_pass(store).plan(merge={str(BOB): str(ANN)})

    report = night.apply()

    assert (report.merged, report.fields_left_out) == (1, [])
    assert database.execute(
        "select note, body, labels, weight, uses, written, gone::text, code, serial from notes"
    ) == [
        (
            *(ANN, "Deploys need two approvals.", ["x", "y", 'a "b"'], Decimal("0.75"), 5),
            *(datetime(2026, 1, 1), "infinity", "ab    ", 1),
        )
    ]
    assert night.undo().restored == 1
    assert database.execute("select t::text from notes t order by 1") == before


def test_folded_fields_without_a_column_are_left_out_and_named(notes, database, a_pass):
    """The survivor stays as it is, and the receipt says what it did not take in."""
    store = notes("uses int", use_count="uses")
    database.execute("insert into notes values ('ann', 'Hello there.', 'me', 1), ('bob', 'hello there', 'me', 2)")
    night = a_pass(store).plan(merge={"bob": "ann"})

    night.apply()

    assert database.execute("select * from notes") == [("ann", "Hello there.", "me", 3)]
    assert store.traits.places == {"use_count"}
    assert (store.traits.promotes, store.traits.no_promotion) == (False, "no column of the table is named as its tier")


def test_several_scope_columns_make_one_scope(database, memories_of):
    """Each value by the name of its column; a null takes no part."""
    database.execute("create table notes (id int primary key, body text, who uuid, team int, spot text)")
    database.execute(
        "insert into notes values (1, 'a', %s, 7, 'x&y'), (2, 'b', null, 7, null), (3, 'c', null, null, null)", ANN
    )
    store = database.store(table="notes", id="id", content="body", scope="who,team,spot")
    scopes = {"1": f"who={ANN}&team=7&spot=x%26y", "2": "team=7", "3": ""}

    assert {memory_id: memory.scope for memory_id, memory in memories_of(store).items()} == scopes
    for memory_id, scope in scopes.items():
        assert [batch["memory_id"].to_pylist() for batch in store.snapshot([scope])] == [[memory_id]]
    with store.transaction() as transaction:
        assert [transaction.count(scope) for scope in scopes.values()] == [1, 1, 1]
        assert [transaction.count(scope) for scope in ("team=x", "who=ann&team=7", "team=99999999999", "7")] == [0] * 4


def test_a_table_without_a_scope_is_one_scope(notes, database, memories_of):
    """Only where the URL says so."""
    store = notes(scope="")
    database.execute("insert into notes values ('ann', 'a', 'me'), ('bob', 'b', 'you')")

    assert {memory.scope for memory in memories_of(store).values()} == {""}
    with store.transaction() as transaction:
        assert transaction.count("") == 2


def test_a_null_scope_is_the_empty_one(notes, database):
    """Its rows are counted and read with those whose scope has no letters."""
    store = notes()
    database.execute("insert into notes values ('ann', 'a', null), ('bob', 'b', ''), ('cat', 'c', 'me')")

    assert [batch["memory_id"].to_pylist() for batch in store.snapshot([""])] == [["ann", "bob"]]
    with store.transaction() as transaction:
        assert (transaction.count(""), transaction.count("me")) == (2, 1)


def test_rows_without_a_text_are_left_alone_and_counted(notes, database, memories_of):
    """They are no memories; nothing of them is read, compared or removed."""
    store = notes()
    database.execute("insert into notes values ('ann', 'a', 'me'), ('bob', null, 'me')")

    assert list(memories_of(store)) == ["ann"]
    assert store.left_alone == {"has no id or no text": 1}
    with store.transaction() as transaction:
        assert (transaction.count("me"), transaction.read(["bob"])) == (1, {})


def test_ids_that_a_column_cannot_hold_are_not_there(database):
    """A plan that was edited by hand asks for nothing that the server would choke on."""
    for kind in ("uuid", "int", "smallint"):
        database.execute(f"create table {kind}s (id {kind} primary key, body text)")
        with database.store(table=f"{kind}s", id="id", content="body", scope="").transaction() as transaction:
            assert transaction.read(["ann", "", "01", "1e3", "-0", " 7", "9" * 20, str(ANN).upper()]) == {}


def test_only_the_named_table_of_a_schema_is_looked_at(database, memories_of):
    """A schema is named before the table, a name with dots or quotes in double quotes."""
    database.execute('create schema "a.b"; create table "a.b"."c""d" (id int primary key, body text)')
    database.execute('insert into "a.b"."c""d" values (1, \'Hello.\')')

    store = database.store(table='"a.b"."c""d"', id="id", content="body", scope="")

    assert list(memories_of(store)) == ["1"]
    assert urls.parse(store.url).options["table"] == '"a.b"."c""d"'
    assert list(memories_of(open_store(store.url))) == ["1"]


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"table": "note"}, "has no table note; nothing was read or created"),
        ({"table": "nowhere.notes"}, "has no table nowhere.notes"),
        ({"table": "Notes"}, "has no table Notes; nothing was read or created. Check its name, which is taken to the"),
        (
            {"content": "text"},
            "table public.notes of {url} has no column 'text'; nothing was read or written. It has: ",
        ),
        ({"scope": "who,team"}, "has no column 'team'"),
        (
            {"tags": "who"},
            "column 'who' is of type text, so it cannot be the tags of memories, which is text[]",
        ),
        ({"created_at": "age"}, "column 'age' is of type integer, so it cannot be the created_at"),
        ({"scope": "spot"}, "column 'spot' is of type point, so it cannot be the scope"),
        ({"id": "age"}, "nothing makes 'age' unique, so it is no id"),
        ({"id": "code"}, "column 'code' is of type bpchar, so it cannot be the id"),
        ({"table": "v"}, "v of {url} is a view; nothing was read. Name the table that holds the rows"),
    ],
)
def test_a_wrong_table_or_column_is_named_and_never_an_empty_store(database, options, what):
    """The guard would let everything pass."""
    database.execute(
        "create table notes (id text primary key, body text, who text, age int, spot point, code char(3) unique);"
        "create view v as select * from notes"
    )

    with pytest.raises(StoreError) as error:
        database.store(**{"table": "notes", "id": "id", "content": "body", "scope": "who", **options})

    assert what.replace("{url}", database.url) in str(error.value)


@pytest.mark.parametrize("table", ["", "a.b.c", "x" * 64, "memfold_runs", '"a"b'])
def test_a_name_that_cannot_be_a_table_of_memories_is_bad_usage(database, table):
    """Nothing of it comes near the server."""
    with pytest.raises(BadUsage):
        database.store(table=table, id="id", content="body", scope="")


def test_half_an_index_makes_no_id(database):
    """Unique among some of the rows, or together with another column, is not unique."""
    database.execute("create table notes (id text, body text, who text, primary key (id, who))")
    database.execute("create unique index on notes (id) where who = 'me'")

    with pytest.raises(StoreError, match="nothing makes 'id' unique"):
        database.store(table="notes", id="id", content="body", scope="who")


@pytest.mark.parametrize(
    ("column", "cell", "what"),
    [
        ("seen timestamptz", "'10000-01-01'", "last_used_at is not a time between the years 1 and 9999"),
        ("seen timestamptz", "'0044-03-15 BC'", "last_used_at is not a time between the years 1 and 9999"),
        ("labels text[]", "'{a,null}'", "tags is not a list of texts without gaps"),
        ("labels text[]", "'{{a},{b}}'", "tags is not a list of texts without gaps"),
        ("labels jsonb", "'{\"a\": 1}'", "tags is not a JSON array of texts"),
    ],
)
def test_a_cell_that_no_memory_can_have_is_named_and_nothing_is_planned(notes, database, column, cell, what):
    """In the snapshot and in a transaction, by the memory and the field; never its value."""
    name = column.partition(" ")[0]
    store = notes(column, **{"last_used_at" if name == "seen" else "tags": name})
    database.execute(f"insert into notes values ('ann', 'Hello.', 'me', {cell})")

    with pytest.raises(BadRecord, match=f"memory 'ann': {what[:12]}"):
        list(store.snapshot())
    with pytest.raises(BadRecord, match=f"memory 'ann': {what}"), store.transaction() as transaction:
        transaction.read(["ann"])


@pytest.mark.parametrize("on_delete", ["cascade", "set null"])
def test_a_row_that_would_take_rows_of_other_tables_with_it_is_not_deleted(notes, database, on_delete):
    """An undo could not bring those back."""
    store = notes()
    database.execute(f"create table vectors (note text references notes on delete {on_delete}, v real[])")

    what = r"would change rows of vectors too \(foreign key vectors_note_fkey\)"
    with pytest.raises(StoreError, match=what), store.transaction():
        pass

    assert database.execute("select to_regclass('public.memfold_notes_ab5aa9_runs')") == [(None,)]


def test_a_row_that_another_table_needs_stays_and_the_message_quotes_no_memory(notes, database, a_pass):
    """The server refuses; the whole transaction is as if it had not been."""
    store = notes()
    database.execute("insert into notes values ('ann', 'Hello there.', 'me'), ('bob', 'hello there', 'me')")
    database.execute("create table vectors (note text references notes); insert into vectors values ('bob')")

    with pytest.raises(StoreError, match="constraint vectors_note_fkey") as error:
        a_pass(store).plan(merge={"bob": "ann"}).apply()

    assert "hello" not in str(error.value).lower()
    assert database.execute("select count(*) from notes") == [(2,)]


def test_an_undo_that_breaks_a_rule_of_the_table_names_it_and_the_rest_comes_back_by_scope(notes, database, a_pass):
    """An agent told the same again under another id, and no two rows of the table may say the same."""
    store = notes("unique (body)")
    for row in (
        ("ann", "Hello there.", "me"),
        ("bob", "hello there", "me"),
        ("cat", "Bye.", "you"),
        ("dan", "bye", "you"),
    ):
        database.execute("insert into notes values (%s, %s, %s)", *row)
    night = a_pass(store).plan(merge={"bob": "ann", "dan": "cat"})
    night.apply()
    database.execute("insert into notes values ('eve', 'hello there', 'me')")

    with pytest.raises(StoreError, match=r"refused a row \(UniqueViolation: constraint notes_body_key, table notes\)"):
        night.undo()
    assert database.execute("select id from notes order by 1") == [("ann",), ("cat",), ("eve",)]

    assert night.undo(scope="you").restored == 1
    assert database.execute("select id from notes order by 1") == [("ann",), ("cat",), ("dan",), ("eve",)]


def test_init_makes_a_store_once(database):
    """And says the second time that it is there."""
    parts = urls.parse(database.url)

    assert postgresql.init(parts.path, parts.options) == (f"{database.url}?table=public.memories", True)
    assert postgresql.init(parts.path, parts.options) == (f"{database.url}?table=public.memories", False)
    assert list(database.store(table="memories").snapshot()) == []


def test_init_refuses_a_table_of_another_make(database):
    """Nothing of it is changed."""
    database.execute("create table memories (id text primary key, body text)")

    with pytest.raises(StoreError, match="has no column 'memory_id'"):
        postgresql.init(urls.parse(database.url).path, {})

    assert database.execute("select count(*) from pg_class where relname like 'memfold%'") == [(0,)]


def test_a_user_who_may_create_nothing_gets_by_with_what_init_made(notes, database, a_pass):
    """The message says what is missing; the owner makes the ledger once, and grants it."""
    url = notes().url
    database.execute("insert into notes values ('ann', 'Hello there.', 'me'), ('bob', 'hello there', 'me')")
    user = f"night_{uuid4().hex}"
    database.execute(f"create role {user} login; grant select, insert, update, delete on notes to {user}")
    store = open_store(url.replace("//memfold@", f"//{user}@"))
    night = a_pass(store).plan(merge={"bob": "ann"})
    with pytest.raises(StoreError, match="let the schema's owner run `memfold init` with this store's URL"):
        night.apply()

    postgresql.init(urls.parse(url).path, urls.parse(url).options)
    database.execute(f"grant select, insert, update, delete on all tables in schema public to {user}")

    assert night.apply().merged == 1
    assert night.undo().restored == 1
