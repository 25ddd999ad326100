"""Parquet archives: columns by their names, types that stay, rows that come back where they stood."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memfold.errors import BadRecord, BadUsage, StoreError
from memfold_flows.stores import open_store
from memfold_flows.stores.base import Update

NINE = datetime(2026, 3, 1, 9, tzinfo=UTC)
NOTES = 7


def notes_table():
    """Seven notes in columns of many types."""
    flavours = pa.array(["fact", "wish", "fact", "wish", "fact", "wish", "fact"])
    columns = {
        "id": pa.array(range(NOTES), pa.int64()),
        "content": pa.array([f"note {number}" for number in range(NOTES)], pa.large_string()),
        "kind": flavours.dictionary_encode().cast(pa.dictionary(pa.int8(), pa.string())),
        "tags": pa.array([["rota"]] * NOTES, pa.list_(pa.string())),
        "created_at": pa.array([1772355600123456789] * NOTES, pa.timestamp("ns", "Europe/Berlin")),
        "updated_at": pa.array([None] * NOTES, pa.timestamp("ms")),
        "expires_at": pa.array([None] * NOTES, pa.date32()),
        "last_used_at": pa.array([1772355600] * NOTES, pa.int64()),
        "access_count": pa.array([1.0, None, 2, 3, 4, 5, 6], pa.float64()),
        "metadata": pa.array(['{"source": "chat"}'] * NOTES, pa.string()),
        "origin": pa.array(
            [{"app": "cli", "turn": None}] * NOTES, pa.struct([("app", pa.string()), ("turn", pa.int8())])
        ),
        "labels": pa.array([[("team", "blue")]] * NOTES, pa.map_(pa.string(), pa.string())),
        "embedding": pa.array([[0.5] * 32] * NOTES, pa.list_(pa.float32(), 32)),
        "blob": pa.array([b"\xff\x00"] * NOTES, pa.binary()),
    }
    return pa.table(columns).replace_schema_metadata({"exported by": "ana"})


@pytest.fixture
def notes(tmp_path):
    """The notes in a file of three row groups, each column compressed in its own way."""
    path = tmp_path / "notes.parquet"
    pq.write_table(notes_table(), path, row_group_size=3, compression={"id": "zstd", "content": "gzip"})
    return path


def plain(table):
    """The table with the words of its dictionary column: two dictionaries of the same words are not equal to Arrow."""
    return table.set_column(2, "kind", table["kind"].cast(pa.string())).combine_chunks()


def snapshot(path, **options):
    store = open_store(f"parquet:{path}", **options)
    return {row["memory_id"]: row for batch in store.snapshot() for row in batch.to_pylist()}


def remove(path, *ids):
    with open_store(f"parquet:{path}", in_place=True).transaction() as transaction:
        rows = transaction.read(ids)
        transaction.delete(ids)
    return {memory_id: row.raw for memory_id, row in rows.items()}


def test_columns_are_read_by_their_names(notes):
    """As the fields of a JSONL record are, whatever the type of the column."""
    row = snapshot(notes)["3"]
    row.pop("row_digest")
    known = {name: value for name, value in row.items() if value not in (None, [], False, "")}

    assert known == {
        "memory_id": "3",
        "content": "note 3",
        "kind": "wish",
        "tags": ["rota"],
        "use_count": 3,
        "created_at": NINE.replace(microsecond=123456),
        "last_used_at": NINE,
        "metadata": '{"origin":{"app":"cli"},"labels":[["team","blue"]],"blob":"ff00","source":"chat"}',
    }


def test_the_scope_comes_from_columns(tmp_path):
    """A null is no part of it; ?scope= names other columns."""
    path = tmp_path / "notes.parquet"
    table = pa.table({"id": ["a", "b"], "text": ["x", "x"], "user_id": ["ana", None], "team": ["red", "blue"]})
    pq.write_table(table, path)

    assert [row["scope"] for row in snapshot(path).values()] == ["user_id=ana", ""]
    assert [row["scope"] for row in snapshot(path, scope="team").values()] == ["team=red", "team=blue"]


def test_what_has_no_column_has_no_place(notes, tmp_path):
    """A fold leaves out what the archive cannot hold; a struct cannot take in keys of other memories."""
    places = open_store(f"parquet:{notes}").traits.places
    fixed = notes_table().select(["id", "content", "origin"]).rename_columns(["id", "content", "metadata"])
    pq.write_table(fixed, tmp_path / "fixed.parquet")

    assert places == {
        "content", "kind", "tags", "created_at", "updated_at", "expires_at", "last_used_at", "use_count", "metadata",
    }  # fmt: skip
    assert open_store(f"parquet:{tmp_path / 'fixed.parquet'}").traits.places == {"content"}


def test_folded_fields_go_back_in_the_type_of_their_column(notes):
    """A timestamp column takes a timestamp, a date column a date, seconds stay seconds, JSON text stays JSON text."""
    june = datetime(2026, 6, 1, tzinfo=UTC)
    schema = pq.read_schema(notes)
    with open_store(f"parquet:{notes}", in_place=True).transaction() as transaction:
        memory = transaction.read(["4"])["4"].memory
        times = {"created_at": june, "updated_at": june, "expires_at": june, "last_used_at": june}
        after = replace(
            memory, **times, use_count=9, tags=("rota", "team"), metadata='{"source": "chat", "lang": "en"}'
        )
        transaction.update([Update(memory, after)])
    written = pq.read_table(notes)

    assert written.schema.equals(schema)
    folded = ["tags", "created_at", "updated_at", "expires_at", "last_used_at", "access_count", "metadata"]
    assert written.slice(4, 1).select(folded).to_pylist() == [
        {
            "tags": ["rota", "team"],
            "created_at": june,
            "updated_at": june.replace(tzinfo=None),
            "expires_at": june.date(),
            "last_used_at": int(june.timestamp()),
            "access_count": 9.0,
            "metadata": '{"source":"chat","lang":"en"}',
        }
    ]
    others = [0, 1, 2, 3, 5, 6]
    assert plain(written.take(others)).equals(plain(notes_table().take(others)))


def test_a_value_that_a_column_has_no_room_for_stops_the_write(tmp_path):
    """A sum of uses can be more than a narrow column holds; the message names the column and its type."""
    path = tmp_path / "narrow.parquet"
    uses = pa.array([100, 100], pa.int8())
    pq.write_table(pa.table({"id": ["a", "b"], "text": ["one note", "another"], "use_count": uses}), path)
    before = path.read_bytes()

    with open_store(f"parquet:{path}", in_place=True).transaction() as transaction:
        memory = transaction.read(["a"])["a"].memory
        with pytest.raises(StoreError, match="column 'use_count' of type int8 has no room for 200"):
            transaction.update([Update(memory, replace(memory, use_count=200))])

    assert path.read_bytes() == before


def test_a_rewrite_keeps_columns_types_order_and_compression(notes):
    """Only the removed rows are gone."""
    schema = pq.read_schema(notes)
    remove(notes, "0", "2", "6")
    written = pq.ParquetFile(notes)

    assert pq.read_schema(notes).equals(schema, check_metadata=True)
    assert written.read()["id"].to_pylist() == [1, 3, 4, 5]
    assert [written.metadata.row_group(0).column(column).compression for column in range(3)] == [
        "ZSTD",
        "GZIP",
        "UNCOMPRESSED",
    ]
    assert plain(written.read()).equals(plain(notes_table().take([1, 3, 4, 5])))


@pytest.mark.parametrize("gone", [["0"], ["6"], ["2", "3"], ["3", "4", "5"], [str(number) for number in range(NOTES)]])
def test_removed_rows_come_back_where_they_stood(notes, gone):
    """Also over the edges of row groups, and where a row group or the whole file went."""
    raws = remove(notes, *gone)
    assert pq.read_metadata(notes).num_rows == NOTES - len(gone)
    with open_store(f"parquet:{notes}", in_place=True).transaction() as transaction:
        assert transaction.restore(raws) == set()

    assert plain(pq.read_table(notes)).equals(plain(notes_table()))
    assert pq.read_schema(notes).equals(notes_table().schema)


def test_a_fold_that_is_taken_back_restores_the_row(notes):
    """Nanoseconds that memfold does not read come back too."""
    with open_store(f"parquet:{notes}", in_place=True).transaction() as transaction:
        row = transaction.read(["1"])["1"]
        after = replace(row.memory, use_count=9, created_at=NINE)
        transaction.update([Update(row.memory, after)])
    with open_store(f"parquet:{notes}", in_place=True).transaction() as transaction:
        transaction.update([Update(transaction.read(["1"])["1"].memory, row.memory, row.raw)])

    assert plain(pq.read_table(notes)).equals(plain(notes_table()))


def test_a_row_is_not_restored_into_other_columns(notes):
    """Somebody exported the archive anew, with other columns: its rows have no form for the old ones."""
    raws = remove(notes, "1")
    pq.write_table(pq.read_table(notes).drop_columns(["blob"]), notes)
    before = notes.read_bytes()

    def restore():
        with open_store(f"parquet:{notes}", in_place=True).transaction() as transaction:
            transaction.restore(raws)

    with pytest.raises(StoreError, match="has other columns than when the row was removed; nothing was written"):
        restore()
    assert notes.read_bytes() == before


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"id": ["a", None], "text": ["x", "y"]}, "notes.parquet row 2: has no id"),
        ({"id": ["a", "b"], "text": [None, "y"]}, "notes.parquet row 1: has no text or content or memory"),
        (
            {"id": ["a", "b"], "text": ["x", "y"], "use_count": [1, -1]},
            "row 2: use_count must be a whole number from 0",
        ),
        ({"id": ["a", "b"], "text": ["x", "y"], "tags": ["p", "q"]}, "row 1: tags must be a list, got 'p'"),
        ({"id": ["a", "a"], "text": ["x", "y"]}, "row 1 and row 2 have the same id 'a'"),
        (
            {"id": ["a", "b"], "text": ["x", "y"], "importance": [0.5, float("inf")]},
            "row 2: importance must be a number, got 'inf'",
        ),
    ],
)
def test_a_bad_row_stops_the_reading_and_is_named(tmp_path, columns, problem):
    """As a bad line does."""
    pq.write_table(pa.table(columns), tmp_path / "notes.parquet")

    with pytest.raises(BadRecord, match=problem):
        snapshot(tmp_path / "notes.parquet")


def test_not_a_number_is_a_missing_value(tmp_path):
    """Tables of floats say so."""
    columns = {"id": ["a"], "text": ["x"], "use_count": [float("nan")], "score": [float("nan")]}
    pq.write_table(pa.table(columns), tmp_path / "notes.parquet")
    row = snapshot(tmp_path / "notes.parquet")["a"]

    assert (row["use_count"], row["metadata"]) == (None, None)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is an empty file, not a Parquet file"),
        (b'{"id":"a","text":"x"}\n', "is not a whole Parquet file"),
        (b"SQLite format 3\0" + b"\0" * 100, "is a SQLite file"),
    ],
)
def test_a_file_of_another_kind_is_an_error(tmp_path, content, problem):
    """And creates nothing."""
    path = tmp_path / "notes.parquet"
    path.write_bytes(content)

    with pytest.raises(StoreError, match=problem):
        open_store(f"parquet:{path}")
    assert [found.name for found in tmp_path.iterdir()] == ["notes.parquet"]


def test_a_truncated_file_is_an_error(notes):
    """A copy that broke off must not read as a shorter archive."""
    notes.write_bytes(notes.read_bytes()[:-20])

    with pytest.raises(StoreError, match="is not a whole Parquet file"):
        open_store(f"parquet:{notes}")


def test_a_table_without_rows_is_an_error(tmp_path):
    """It reads as empty but should not."""
    pq.write_table(
        pa.table({"id": pa.array([], pa.string()), "text": pa.array([], pa.string())}), tmp_path / "none.parquet"
    )

    with pytest.raises(StoreError, match="holds no memory"):
        snapshot(tmp_path / "none.parquet")


def test_nobody_writes_without_saying_where(notes):
    """As with JSONL."""
    with pytest.raises(BadUsage, match="nobody said where"), open_store(f"parquet:{notes}").transaction():
        pytest.fail("a transaction began")


def test_out_writes_a_new_file(notes, tmp_path):
    """The archive stays as it is."""
    before = notes.read_bytes()
    with open_store(f"parquet:{notes}", out=tmp_path / "folded.parquet").transaction() as transaction:
        transaction.read(["0"])
        transaction.delete(["0"])

    assert notes.read_bytes() == before
    assert plain(pq.read_table(tmp_path / "folded.parquet")).equals(plain(notes_table().slice(1)))
