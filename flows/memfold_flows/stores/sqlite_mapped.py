"""A table of people's own in a SQLite file, with a column for each field that the URL names (``mapping.py``).

SQLite's columns hold what is put into them, so values are read as people's exports write them: a time is ISO 8601 or
an epoch in seconds or milliseconds and is written back in the form that the table has, tags and the like are JSON
arrays, metadata is JSON text. Columns without a field are left alone, and come back with an undo.
"""

from __future__ import annotations

import logging
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from memfold.errors import BadRecord, BadUsage, StoreError
from memfold_flows.stores import urls
from memfold_flows.stores.base import StoredRow, StoreTraits, Update
from memfold_flows.stores.batches import memories_batch
from memfold_flows.stores.bookkeeping import Bookkeeping
from memfold_flows.stores.connections import (
    connect_for_a_pass,
    connect_reading,
    move_log,
    require_database,
    sqlite_errors,
)
from memfold_flows.stores.ledger_tables import SqliteTables
from memfold_flows.stores.mapping import TableMapping, scope_values, traits_of
from memfold_flows.stores.sqlite_cells import Cells, changed_cells, memory_of, why_no_memory
from memfold_flows.stores.sqlite_rows import pack, unpack

_log = logging.getLogger(__name__)

_PAGE_ROWS = 10_000
_IDS_PER_QUERY = 400
_ROWS_PER_TRANSACTION = 5_000


class MappedSqliteStore:
    """The memories of one table.

    Raises:
        StoreError: no such file, table or column, or an id that nothing makes unique.
    """

    def __init__(self, path: Path, wanted: TableMapping) -> None:
        self.path = path
        self.url = urls.with_options(urls.format_url("sqlite", path), wanted.options(wanted.table))
        self._mapping = wanted
        self._writer: sqlite3.Connection | None = None
        #: Why rows of the last snapshot are left alone, and how many.
        self.left_alone: Counter[str] = Counter()
        with self._reading("opening the store") as connection:
            columns = _require_table(connection, path, wanted)
        self.traits: StoreTraits = traits_of(wanted, columns, rows_per_transaction=_ROWS_PER_TRANSACTION)

    def snapshot(self, scopes: Collection[str] | None = None) -> Iterator[pa.RecordBatch]:
        with self._reading("the snapshot") as connection:
            if connection.execute("pragma main.journal_mode").fetchone() == ("wal",):
                connection.execute("begin")
            left_alone: Counter[str] = Counter()
            for page in _pages(connection, self._mapping):
                left_alone.update(why for cells in page if (why := why_no_memory(self._mapping, cells)))
                memories = [memory_of(self._mapping, each) for each in page if not why_no_memory(self._mapping, each)]
                yield memories_batch(each for each in memories if scopes is None or each.scope in scopes)
        self.left_alone = left_alone
        for why, count in left_alone.items():
            _log.info("left %d rows of %s alone: %s", count, self.url, why)

    @contextmanager
    def ledger(self) -> Iterator[Bookkeeping]:
        with self._reading("reading the ledger") as connection:
            yield Bookkeeping(SqliteTables(connection, table=self._mapping.table))

    @contextmanager
    def transaction(self) -> Iterator[MappedSqliteTransaction]:
        require_database(self.path)
        with sqlite_errors(self.path, "this transaction"):
            connection = self._writer = self._writer or _connect_writing(self.path)
            move_log(connection)
            connection.execute("begin immediate")
            try:
                kept = _require_table(connection, self.path, self._mapping)
                _require_lone(connection, self.path, self._mapping.table)
                ledger = Bookkeeping(SqliteTables(connection, table=self._mapping.table))
                ledger.prepare()
                yield MappedSqliteTransaction(connection, self._mapping, kept, ledger)
                connection.execute("commit")
            finally:
                if connection.in_transaction:
                    connection.execute("rollback")

    def close(self) -> None:
        if self._writer is not None:
            move_log(self._writer)
            self._writer.close()
            self._writer = None

    @contextmanager
    def _reading(self, doing: str) -> Iterator[sqlite3.Connection]:
        require_database(self.path)
        with sqlite_errors(self.path, doing), closing(connect_reading(self.path)) as connection:
            connection.text_factory = _text
            yield connection


class MappedSqliteTransaction:
    """One write transaction over the table and the ledger beside it."""

    def __init__(
        self, connection: sqlite3.Connection, wanted: TableMapping, kept: Sequence[str], ledger: Bookkeeping
    ) -> None:
        self.ledger = ledger
        self._connection = connection
        self._mapping = wanted
        self._table = quoted(wanted.table)
        self._id = wanted.columns["memory_id"]
        self._kept = kept
        #: Each row that was read, as it stood when it was read last.
        self._cells: dict[str, Cells] = {}

    def read(self, ids: Collection[str]) -> dict[str, StoredRow]:
        rows: dict[str, StoredRow] = {}
        names = ", ".join(map(quoted, self._kept))
        wanted = sorted(ids)
        for start in range(0, len(wanted), _IDS_PER_QUERY):
            some = [cell for memory_id in wanted[start : start + _IDS_PER_QUERY] for cell in _as_cells(memory_id)]
            marks = ", ".join("?" * len(some))
            query = f"select {names} from main.{self._table} where {quoted(self._id)} in ({marks})"
            for row in self._connection.execute(query, some):
                cells = dict(zip(self._kept, row, strict=True))
                if why_no_memory(self._mapping, cells):
                    continue
                memory = memory_of(self._mapping, cells)
                # A column may compare otherwise than by letter.
                if memory.memory_id in ids:
                    rows[memory.memory_id] = StoredRow(memory, _packed(memory.memory_id, cells))
                    self._cells[memory.memory_id] = cells
        return rows

    def count(self, scope: str) -> int:
        condition, values = _in_scope(self._mapping, scope)
        content = quoted(self._mapping.columns["content"])
        counted = self._connection.execute(
            f"select count(*) from main.{self._table} where {condition} and {content} is not null", values
        )
        return int(counted.fetchone()[0])

    def delete(self, ids: Collection[str]) -> None:
        keys = [(self._cells[memory_id][self._id],) for memory_id in sorted(ids)]
        self._write_each(f"delete from main.{self._table} where {quoted(self._id)} = ?", keys)

    def update(self, updates: Sequence[Update]) -> None:
        for update in updates:
            cells = self._cells[update.after.memory_id]
            if changed := changed_cells(self._mapping, update, cells):
                self._write(cells[self._id], changed)

    def promote(self, rows: Mapping[str, StoredRow], tier: str) -> dict[str, str]:
        for memory_id in sorted(rows):
            self._write(self._cells[memory_id][self._id], {self._mapping.columns["tier"]: tier})
        return {memory_id: memory_id for memory_id in rows}

    def restore(self, raws: Mapping[str, bytes]) -> set[str]:
        taken = set(self.read(raws))
        for memory_id in sorted(set(raws) - taken):
            values = unpack(raws[memory_id])
            if missing := set(values) - set(self._kept):
                raise StoreError(
                    f"memory {memory_id!r} cannot be restored: the table has lost its column {min(missing)!r}; "
                    "this transaction changed nothing. Add the column and undo again."
                )
            names, marks = ", ".join(map(quoted, values)), ", ".join("?" * len(values))
            self._write_each(f"insert into main.{self._table} ({names}) values ({marks})", [tuple(values.values())])
        return taken

    def _write(self, key: Any, cells: Cells) -> None:
        assignments = ", ".join(f"{quoted(name)} = ?" for name in cells)
        statement = f"update main.{self._table} set {assignments} where {quoted(self._id)} = ?"
        self._write_each(statement, [(*cells.values(), key)])

    def _write_each(self, statement: str, rows: list[tuple[Any, ...]]) -> None:
        if rows and (written := self._connection.executemany(statement, rows).rowcount) != len(rows):
            raise StoreError(
                f"{written} rows were written where {len(rows)} were meant ({statement.partition(' ')[0]}); "
                "this transaction changed nothing"
            )


def quoted(name: str) -> str:
    """A name in double quotes, which nothing in it can end."""
    return '"' + name.replace('"', '""') + '"'


def _packed(memory_id: str, cells: Cells) -> bytes:
    try:
        return pack(cells)
    except UnicodeEncodeError:
        raise BadRecord(
            f"memory {memory_id!r}: a column holds text that is not UTF-8, which an undo could not bring back; "
            "nothing was written. Correct that record."
        ) from None


def _connect_writing(path: Path) -> sqlite3.Connection:
    connection = connect_for_a_pass(path)
    connection.text_factory = _text
    connection.execute("pragma foreign_keys = on")
    return connection


def _text(cell: bytes) -> str:
    # What is not UTF-8 becomes half a surrogate pair, which is refused by the name of its row and column.
    return cell.decode("utf-8", "surrogateescape")


def _require_table(connection: sqlite3.Connection, path: Path, wanted: TableMapping) -> list[str]:
    """The columns of the table that can be written; checks that it is what the mapping says."""
    table = wanted.table
    if "\0" in table or table.lower().startswith("memfold_"):
        raise BadUsage(f"{table!r} cannot be a table of memories; nothing was read")
    kinds = connection.execute("select type from main.sqlite_schema where name = ?", (table,)).fetchall()
    if kinds != [("table",)]:
        what = f"a {kinds[0][0]}, not a table" if kinds else "not there"
        raise StoreError(
            f"table {table!r} of {path} is {what}; nothing was read or created. Its name is taken to the letter."
        )
    # hidden: 0 for a plain column, 2 and 3 for one that is computed
    columns = {row[1]: row for row in connection.execute(f"pragma main.table_xinfo({quoted(table)})")}
    for column in (*wanted.columns.values(), *wanted.scope):
        if column not in columns:
            raise StoreError(
                f"table {table!r} of {path} has no column {column!r}; nothing was read or written. "
                f"It has: {', '.join(columns)}."
            )
    key = wanted.columns["memory_id"]
    if not (_is_primary_key(columns, key) or _is_unique(connection, table, key)):
        raise StoreError(
            f"nothing makes {key!r} unique in table {table!r} of {path}, so it is no id; nothing was read or written. "
            "Make it the primary key, or unique."
        )
    return [name for name, row in columns.items() if row[6] == 0]


def _is_primary_key(columns: Mapping[str, tuple[Any, ...]], key: str) -> bool:
    return [name for name, row in columns.items() if row[5] > 0] == [key]


def _is_unique(connection: sqlite3.Connection, table: str, key: str) -> bool:
    # Of an index: its place, name, whether it is unique, what made it, whether it covers only some rows.
    for _, name, is_unique, _, is_partial in connection.execute(f"pragma main.index_list({quoted(table)})").fetchall():
        held = [row[2] for row in connection.execute(f"pragma main.index_info({quoted(name)})")]
        if is_unique and not is_partial and held == [key]:
            return True
    return False


def _require_lone(connection: sqlite3.Connection, path: Path, table: str) -> None:
    """Refuse a table whose rows take rows of other tables with them: an undo could not bring those back."""
    others = [row[0] for row in connection.execute("select name from main.sqlite_schema where type = 'table'")]
    for other in others:
        for key in connection.execute(f"pragma main.foreign_key_list({quoted(other)})"):
            target, on_delete = key[2], key[6]
            if target.lower() == table.lower() and on_delete in ("CASCADE", "SET NULL", "SET DEFAULT"):
                raise StoreError(
                    f"{path}: to delete a row of {table} would change rows of {other} too (on delete "
                    f"{on_delete.lower()}), which an undo could not bring back; nothing was written"
                )


def _pages(connection: sqlite3.Connection, wanted: TableMapping) -> Iterator[list[Cells]]:
    names = list(dict.fromkeys((*wanted.columns.values(), *wanted.scope)))
    key = quoted(wanted.columns["memory_id"])
    columns = ", ".join(map(quoted, names))
    bound: tuple[Any, ...] = ()
    while True:
        # A null id comes first, and has nothing to be after.
        after = f"where {key} > ?" if bound else ""
        query = f"select {columns} from main.{quoted(wanted.table)} {after} order by {key} limit {_PAGE_ROWS}"
        page = connection.execute(query, bound).fetchall()
        if page:
            yield [dict(zip(names, row, strict=True)) for row in page]
        if len(page) < _PAGE_ROWS:
            return
        bound = (page[-1][names.index(wanted.columns["memory_id"])],)


def _as_cells(value: str) -> list[Any]:
    """What a cell that reads as this text may hold: the text, or the whole number."""
    try:
        number = int(value)
    except ValueError:
        return [value]
    return [value, number] if str(number) == value and abs(number) < 2**63 else [value]


def _in_scope(wanted: TableMapping, scope: str) -> tuple[str, list[Any]]:
    held = scope_values(wanted.scope, scope)
    if held is None:
        return "false", []
    conditions: list[str] = []
    values: list[Any] = []
    for name, value in zip(map(quoted, wanted.scope), held, strict=True):
        if value is None:
            conditions.append(f"{name} is null")
            continue
        cells = _as_cells(value)
        # The first half can use an index, the second one compares to the letter.
        conditions.append(f"({name} in ({', '.join('?' * len(cells))}) and cast({name} as text) = ? collate binary)")
        values += [*cells, value]
    if len(wanted.scope) == 1 and scope == "":
        return f"({conditions[0]} or {quoted(wanted.scope[0])} is null)", values
    return " and ".join(conditions) or "true", values
