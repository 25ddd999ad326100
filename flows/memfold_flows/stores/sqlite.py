"""memfold's own table, ``memories``, in a SQLite file: the embedded default, made by ``memfold init``.

| column | type | what it holds |
|---|---|---|
| memory_id | text, primary key | an opaque id; case, Unicode form, slashes and quotes are kept |
| scope | text, '' by default | whose memory it is; memories of two scopes never meet |
| kind, title | text or null | what sort of memory it is; a heading |
| content | text | the memory itself |
| tags, sessions, links | text, '[]' by default | JSON arrays of strings |
| tier | text or null | ``short_term``, ``long_term`` or a name of your own |
| session_id | text or null | the session that recalls it; null: every session |
| trust | text or null | who vouches for it; memories of two trusts never meet |
| pinned, protected | 0 or 1, 0 by default | 1: never removed |
| importance, confidence | real or null | null means unknown, which is not low |
| use_count | integer or null | how often it was recalled |
| created_at, updated_at, event_time, valid_from, valid_to, last_used_at, expires_at | integer or null | whole microseconds since 1970, UTC |
| metadata | text or null | your own fields as JSON, kept verbatim |

Times are integers because they are then exact, ordered and free of time zones; ``datetime(created_at / 1000000,
'unixepoch')`` shows one. Columns that you add are left alone and come back with an undo. memfold's own bookkeeping
stands beside it, in tables prefixed ``memfold_``.
"""  # noqa: E501  (rows of a table)

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from memfold.errors import BadRecord, BadUsage, StoreError
from memfold_flows.stores import mapping, urls
from memfold_flows.stores.base import MemoryStore, StoredRow, StoreTraits, Update
from memfold_flows.stores.bookkeeping import Bookkeeping
from memfold_flows.stores.connections import (
    connect_creating,
    connect_for_a_pass,
    connect_reading,
    move_log,
    require_database,
    sqlite_errors,
)
from memfold_flows.stores.ledger_tables import OWN_TABLE, SqliteTables
from memfold_flows.stores.sqlite_rows import COLUMNS, batch_of, changed_cells, memory_of, pack, unpack

OPTIONS: dict[str, str] = mapping.OPTIONS

TRAITS = StoreTraits(
    places=frozenset(
        {
            "content",
            "tags",
            "session_id",
            "sessions",
            "importance",
            "confidence",
            "use_count",
            "created_at",
            "updated_at",
            "last_used_at",
            "expires_at",
            "links",
            "metadata",
        }
    ),
    session_recall="null_is_all",
    promotes=True,
    rows_per_transaction=10_000,
)

# Without a rowid the table itself stands in the order of its ids, which is the order of every snapshot.
_TABLE = """
create table memories (
    memory_id text primary key check (memory_id <> ''),
    scope text not null default '',
    kind text,
    title text,
    content text not null,
    tags text not null default '[]',
    tier text,
    session_id text,
    sessions text not null default '[]',
    trust text,
    pinned integer not null default 0 check (pinned in (0, 1)),
    protected integer not null default 0 check (protected in (0, 1)),
    importance real,
    confidence real,
    use_count integer,
    created_at integer,
    updated_at integer,
    event_time integer,
    valid_from integer,
    valid_to integer,
    last_used_at integer,
    expires_at integer,
    links text not null default '[]',
    metadata text
) strict, without rowid
"""
_SCOPE_INDEX = "create index memories_by_scope on memories (scope, memory_id)"

_PAGE_ROWS = 20_000
# SQLite's own bound on parameters is 32,766 (3.32 and later).
_MAX_SCOPES = 30_000
_IDS_PER_QUERY = 1_000


def open_store(path: str, options: Mapping[str, Any]) -> MemoryStore:
    """Open the store in this file: memfold's own table, or the one whose columns the options name."""
    wanted = mapping.read_mapping(options)
    if not wanted.is_own:
        from memfold_flows.stores.sqlite_mapped import MappedSqliteStore

        return MappedSqliteStore(urls.local_path(path), wanted)
    if wanted.table != OWN_TABLE:
        raise BadUsage(
            f"table {wanted.table!r} is not memfold's own ({OWN_TABLE}), and no column of it is named; nothing "
            "was read. Name those of its id, content and scope: ?table=NAME&id=COLUMN&content=COLUMN&scope=COLUMN"
        )
    return SqliteStore(urls.local_path(path))


def init(path: Path) -> bool:
    """Make an empty ``memories`` table, and the file where it is missing; False where the table is there already.

    Raises:
        StoreError: the path holds something else, another program's tables, or a ``memories`` table of another make.
    """
    if path.exists():
        require_database(path)
    with sqlite_errors(path, "init"), closing(connect_creating(path)) as connection:
        if _table_columns(connection):
            _require_columns(connection, path)
            return False
        _require_own(connection, path)
        connection.execute("pragma journal_mode = wal")
        connection.execute("begin immediate")
        connection.execute(_TABLE)
        connection.execute(_SCOPE_INDEX)
        connection.execute("commit")
    return True


def _require_own(connection: sqlite3.Connection, path: Path) -> None:
    query = "select name from main.sqlite_schema where type = 'table' order by name"
    names = [name for (name,) in connection.execute(query)]
    if others := [name for name in names if not name.startswith(("sqlite_", "memfold_"))]:
        raise StoreError(
            f"{path} is the database of another program: it has the table {others[0]!r}; nothing was made. "
            "Give memfold a file of its own, or name the table that holds memories: sqlite:FILE?table=NAME"
        )


class SqliteStore:
    """The memories of one SQLite file.

    A snapshot of a database in WAL mode is one read transaction; in another journal mode it is a sequence of short
    reads, so that agents can write in between.

    Raises:
        StoreError: no such file, a file of another kind, no ``memories`` table, or a column missing.
    """

    traits = TRAITS

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = urls.format_url("sqlite", path)
        self._writer: sqlite3.Connection | None = None
        with self._reading("opening the store") as connection:
            _require_columns(connection, path)

    def snapshot(self, scopes: Collection[str] | None = None) -> Iterator[pa.RecordBatch]:
        with self._reading("the snapshot") as connection:
            if connection.execute("pragma main.journal_mode").fetchone() == ("wal",):
                connection.execute("begin")
            for page in _pages(connection, None if scopes is None else sorted(scopes)):
                yield batch_of(page)

    @contextmanager
    def ledger(self) -> Iterator[Bookkeeping]:
        with self._reading("reading the ledger") as connection:
            yield Bookkeeping(SqliteTables(connection))

    @contextmanager
    def transaction(self) -> Iterator[SqliteTransaction]:
        require_database(self.path)
        with sqlite_errors(self.path, "this transaction"):
            connection = self._writer = self._writer or connect_for_a_pass(self.path)
            move_log(connection)
            connection.execute("begin immediate")
            try:
                _require_columns(connection, self.path)
                ledger = Bookkeeping(SqliteTables(connection))
                ledger.prepare()
                yield SqliteTransaction(connection, ledger)
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
            yield connection


class SqliteTransaction:
    """One write transaction over ``memories`` and the ledger beside it."""

    def __init__(self, connection: sqlite3.Connection, ledger: Bookkeeping) -> None:
        self.ledger = ledger
        self._connection = connection
        self._columns = list(_table_columns(connection))

    def read(self, ids: Collection[str]) -> dict[str, StoredRow]:
        rows: dict[str, StoredRow] = {}
        names = ", ".join(map(_quoted, self._columns))
        for some in _chunks(sorted(ids), _IDS_PER_QUERY):
            marks = ", ".join("?" * len(some))
            query = f"select {names} from memories where memory_id in ({marks})"
            for row in self._connection.execute(query, some):
                values = dict(zip(self._columns, row, strict=True))
                rows[values["memory_id"]] = StoredRow(memory_of(values), pack(values))
        return rows

    def count(self, scope: str) -> int:
        counted = self._connection.execute("select count(*) from memories where scope = ?", (scope,)).fetchone()
        return int(counted[0])

    def delete(self, ids: Collection[str]) -> None:
        self._write_each("delete from memories where memory_id = ?", [(memory_id,) for memory_id in sorted(ids)])

    def update(self, updates: Sequence[Update]) -> None:
        by_fields: defaultdict[tuple[str, ...], list[tuple[Any, ...]]] = defaultdict(list)
        for update in updates:
            if cells := changed_cells(update):
                by_fields[tuple(cells)].append((*cells.values(), update.after.memory_id))
        for fields, rows in sorted(by_fields.items(), key=lambda item: item[0]):
            assignments = ", ".join(f"{name} = ?" for name in fields)
            self._write_each(f"update memories set {assignments} where memory_id = ?", rows)

    def promote(self, rows: Mapping[str, StoredRow], tier: str) -> dict[str, str]:
        self._write_each(
            "update memories set tier = ? where memory_id = ?", [(tier, memory_id) for memory_id in sorted(rows)]
        )
        return {memory_id: memory_id for memory_id in rows}

    def restore(self, raws: Mapping[str, bytes]) -> set[str]:
        taken = set(self.read(raws))
        by_columns: defaultdict[tuple[str, ...], list[tuple[Any, ...]]] = defaultdict(list)
        for memory_id in sorted(set(raws) - taken):
            values = unpack(raws[memory_id])
            if missing := set(values) - set(self._columns):
                raise StoreError(
                    f"memory {memory_id!r} cannot be restored: the table has lost its column {min(missing)!r}; "
                    "this transaction changed nothing. Add the column and undo again."
                )
            by_columns[tuple(values)].append(tuple(values.values()))
        for columns, rows in by_columns.items():
            names, marks = ", ".join(map(_quoted, columns)), ", ".join("?" * len(columns))
            self._write_each(f"insert into memories ({names}) values ({marks})", rows)
        return taken

    def _write_each(self, statement: str, rows: list[tuple[Any, ...]]) -> None:
        if rows and (written := self._connection.executemany(statement, rows).rowcount) != len(rows):
            raise StoreError(
                f"{written} rows were written where {len(rows)} were meant ({statement.partition(' ')[0]}); "
                "this transaction changed nothing"
            )


def _require_columns(connection: sqlite3.Connection, path: Path) -> None:
    columns = _table_columns(connection)
    if not columns:
        raise StoreError(
            f"{path} has no table memories; nothing was read or created. "
            "Check the path, or run `memfold init` to start an empty store there."
        )
    if missing := [name for name in COLUMNS if name not in columns]:
        raise StoreError(
            f"table memories of {path} lacks the columns {', '.join(missing)}; nothing was read or written"
        )
    if [name for name, is_key in columns.items() if is_key] != ["memory_id"]:
        raise StoreError(f"memory_id is not the primary key of table memories of {path}; nothing was read or written")


def _table_columns(connection: sqlite3.Connection) -> dict[str, bool]:
    """The columns of the table, and whether each is part of its primary key; none where there is no table."""
    return {row[1]: row[5] > 0 for row in connection.execute("pragma main.table_info('memories')")}


def _pages(connection: sqlite3.Connection, scopes: Sequence[str] | None) -> Iterator[list[tuple[Any, ...]]]:
    if scopes is not None and len(scopes) > _MAX_SCOPES:
        raise BadUsage(f"{len(scopes)} scopes were named; name {_MAX_SCOPES} at most, or none for all")
    # The + keeps SQLite from gathering several scopes by index and sorting them anew for each page.
    column = "scope" if scopes is not None and len(scopes) == 1 else "+scope"
    where = "" if scopes is None else f"and {column} in ({', '.join('?' * len(scopes))})"
    query = "select {columns} from memories where {bound} {where} order by memory_id limit ?"
    parts = {"columns": ", ".join(COLUMNS), "where": where}
    # The first page has no lower bound: what a foreign table holds in place of an id is to be seen, not passed over.
    bound: tuple[Any, ...] = ()
    while True:
        try:
            page = connection.execute(
                query.format(bound="memory_id > ?" if bound else "true", **parts),
                (*bound, *(scopes or ()), _PAGE_ROWS),
            ).fetchall()
        except sqlite3.OperationalError as error:
            if "decode" in str(error):
                raise _undecodable(connection) from None
            raise
        if page:
            yield page
        if len(page) < _PAGE_ROWS:
            return
        bound = (page[-1][0],)


def _undecodable(connection: sqlite3.Connection) -> BadRecord:
    # SQLite's own message would quote the memory.
    connection.text_factory = bytes
    for row in connection.execute(f"select {', '.join(COLUMNS)} from memories order by memory_id"):
        for name, value in zip(COLUMNS, row, strict=True):
            try:
                if isinstance(value, bytes):
                    value.decode()
            except UnicodeDecodeError:
                return BadRecord(f"memory {row[0]!r}: {name} is not UTF-8; nothing was planned. Correct that record.")
    return BadRecord("a memory that is not UTF-8 came and went while it was read; nothing was planned. Plan again.")


def _quoted(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


def _chunks(ids: list[str], size: int) -> Iterator[list[str]]:
    for start in range(0, len(ids), size):
        yield ids[start : start + size]
