"""Memories in a PostgreSQL database: a table that ``memfold init`` makes, or one of people's own.

memfold's own table has the columns of the SQLite one (``sqlite.py``) in PostgreSQL's types: ``text``, ``text[]`` for
tags, sessions and links, ``boolean``, ``double precision``, ``bigint``, ``timestamptz``, and ``jsonb`` for metadata.
In a table of people's own the URL says which column holds what (``mapping.py``); every other column is left alone, and
comes back with an undo. memfold's own bookkeeping stands beside it in the same schema, in tables named ``memfold_...``.

A snapshot is one read transaction that blocks no writer. A write transaction locks the rows that it compares, and no
others; of two memfolds one waits for the other.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from memfold.errors import StoreError
from memfold_flows.stores import mapping
from memfold_flows.stores.base import StoredRow, Update
from memfold_flows.stores.bookkeeping import Bookkeeping
from memfold_flows.stores.ledger_tables import PostgresqlTables
from memfold_flows.stores.mapping import TableMapping, read_mapping, traits_of
from memfold_flows.stores.postgresql_conditions import in_scope, known_ids
from memfold_flows.stores.postgresql_connections import (
    OPTIONS as CONNECTION_OPTIONS,
)
from memfold_flows.stores.postgresql_connections import (
    Server,
    begin,
    parse_server,
    postgresql_errors,
    resolved,
)
from memfold_flows.stores.postgresql_rows import RowReader, changed_cells, unpack
from memfold_flows.stores.postgresql_tables import Column, Table, quoted, read_table, require_lone, split_name
from memfold_flows.stores.urls import with_options

if TYPE_CHECKING:
    from memfold_flows.stores.postgresql_connections import Connection

_log = logging.getLogger(__name__)

OPTIONS: dict[str, str] = {**mapping.OPTIONS, **CONNECTION_OPTIONS}

_ROWS_PER_BATCH = 20_000
_ROWS_PER_TRANSACTION = 5_000

_OWN_TABLE = """
create table {table} (
    memory_id text collate "C" primary key check (memory_id <> ''),
    scope text collate "C" not null default '',
    kind text,
    title text,
    content text not null,
    tags text[] not null default '{{}}',
    tier text,
    session_id text,
    sessions text[] not null default '{{}}',
    trust text,
    pinned boolean not null default false,
    protected boolean not null default false,
    importance double precision,
    confidence double precision,
    use_count bigint,
    created_at timestamptz,
    updated_at timestamptz,
    event_time timestamptz,
    valid_from timestamptz,
    valid_to timestamptz,
    last_used_at timestamptz,
    expires_at timestamptz,
    links text[] not null default '{{}}',
    metadata jsonb
)
"""
_SCOPE_INDEX = "create index on {table} (scope, memory_id)"


def open_store(path: str, options: Mapping[str, Any]) -> PostgresqlStore:
    """Open the store on this server; see ``PostgresqlStore``."""
    return PostgresqlStore(parse_server(path, options), read_mapping(options))


def init(path: str, options: Mapping[str, Any]) -> tuple[str, bool]:
    """Make an empty table of memfold's own, and the tables of the ledger beside it or beside a table of people's own.

    Returns the URL of the store, and whether anything was made.

    Raises:
        StoreError: a table of that name is of another make.
    """
    server, wanted = parse_server(path, options), read_mapping(options)
    with postgresql_errors(server.url, "init"), closing(server.connect()) as connection:
        begin(connection, reading=False)
        is_new = wanted.is_own and _make_table(connection, wanted)
        store = PostgresqlStore(server, wanted, connection)
        ledger = Bookkeeping(store.ledger_tables(connection))
        is_new = is_new or not ledger.is_prepared
        ledger.prepare()
        connection.execute("commit")
    return store.url, is_new


class PostgresqlStore:
    """The memories of one table.

    Raises:
        StoreError: no such table, a column missing or of another type than its field, or an id that is not unique.
        Transient: the server cannot be reached.
    """

    def __init__(self, server: Server, wanted: TableMapping, connection: Connection | None = None) -> None:
        self._server = server
        self._mapping = wanted
        self._writer: Connection | None = None
        self.url = server.url
        #: Why rows of the last snapshot are left alone, and how many.
        self.left_alone: Counter[str] = Counter()
        if connection is not None:
            self._look(connection)
            return
        with self._reading("opening the store") as opened:
            self._look(opened)

    def snapshot(self, scopes: Collection[str] | None = None) -> Iterator[pa.RecordBatch]:
        with self._reading("the snapshot") as connection:
            table = read_table(connection, self._mapping, self.url)
            self.left_alone = _unreadable(connection, table)
            for why, count in self.left_alone.items():
                _log.info("left %d rows of %s alone: %s", count, self.url, why)
            reader = RowReader(table)
            for rows in _pages(connection, table, reader, None if scopes is None else sorted(scopes)):
                yield reader.batch(rows)

    @contextmanager
    def ledger(self) -> Iterator[Bookkeeping]:
        with self._reading("reading the ledger") as connection:
            yield Bookkeeping(self.ledger_tables(connection))

    @contextmanager
    def transaction(self) -> Iterator[PostgresqlTransaction]:
        with postgresql_errors(self.url, "this transaction"):
            connection = self._writer = self._open_writer()
            try:
                begin(connection, reading=False)
                tables = self.ledger_tables(connection)
                tables.lock()
                table = read_table(connection, self._mapping, self.url)
                require_lone(connection, table, self.url)
                ledger = Bookkeeping(tables)
                ledger.prepare()
                yield PostgresqlTransaction(connection, table, ledger)
                connection.execute("commit")
            except BaseException:
                # The server rolls back what a closed connection had begun, also where it no longer answers.
                self.close()
                raise

    def ledger_tables(self, connection: Connection) -> PostgresqlTables:
        """The ledger of this table, on a connection."""
        return PostgresqlTables(connection, schema=self._schema, table=self._name)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _look(self, connection: Connection) -> None:
        server = resolved(self._server, connection)
        table = read_table(connection, self._mapping, server.url)
        self._schema, self._name = table.schema, table.name
        written = [column.name for column in table.kept]
        self.traits = traits_of(self._mapping, written, rows_per_transaction=_ROWS_PER_TRANSACTION)
        host = {"host": server.host} if server.host.startswith("/") else {}
        place = Server("", server.port, server.user, server.database) if host else server
        self.url = with_options(place.url, {**self._mapping.options(table.url_name()), **server.options, **host})

    def _open_writer(self) -> Connection:
        if self._writer is not None and not self._writer.closed:
            return self._writer
        return self._server.connect()

    @contextmanager
    def _reading(self, doing: str) -> Iterator[Connection]:
        with postgresql_errors(self.url, doing), closing(self._server.connect()) as connection:
            begin(connection, reading=True)
            yield connection


class PostgresqlTransaction:
    """One write transaction over the table and the ledger beside it; it locks the rows that it reads."""

    def __init__(self, connection: Connection, table: Table, ledger: Bookkeeping) -> None:
        self.ledger = ledger
        self._connection = connection
        self._table = table
        self._reader = RowReader(table)

    def read(self, ids: Collection[str]) -> dict[str, StoredRow]:
        table = self._table
        kept = ", ".join(f"t.{column.quoted}::text" for column in table.kept)
        # Locked in the order of their ids, so that two who lock the same rows never wait for one another.
        query = (
            f"select {self._reader.expressions}, {kept} from {table.quoted} t "
            f"where t.{table.id.quoted} = any(%s::{table.id.base}[]) and {table.readable} "
            f"order by t.{table.id.quoted} for update"
        )
        found = map(self._reader.stored, self._connection.execute(query.encode(), (known_ids(table.id, ids),)))
        rows = {stored.memory.memory_id: stored for stored in found}
        return {memory_id: rows[memory_id] for memory_id in ids if memory_id in rows}

    def count(self, scope: str) -> int:
        condition, values = in_scope(self._table, scope)
        query = f"select count(*) from {self._table.quoted} t where {condition} and {self._table.readable}"
        counted = self._connection.execute(query.encode(), values).fetchall()
        return int(counted[0][0])

    def delete(self, ids: Collection[str]) -> None:
        if not ids:
            return
        key = self._table.id
        deleted = self._connection.execute(
            f"delete from {self._table.quoted} t where t.{key.quoted} = any(%s::{key.base}[])".encode(), (sorted(ids),)
        )
        _require_written(deleted.rowcount, len(ids), "delete")

    def update(self, updates: Sequence[Update]) -> None:
        by_columns: defaultdict[tuple[str, ...], list[tuple[str | None, ...]]] = defaultdict(list)
        for update in updates:
            if cells := changed_cells(update, self._table):
                by_columns[tuple(cells)].append((update.after.memory_id, *cells.values()))
        for names, rows in sorted(by_columns.items(), key=lambda item: item[0]):
            self._update(self._columns(names), rows)

    def promote(self, rows: Mapping[str, StoredRow], tier: str) -> dict[str, str]:
        if rows:
            self._update([self._table.fields["tier"]], [(memory_id, tier) for memory_id in sorted(rows)])
        return {memory_id: memory_id for memory_id in rows}

    def restore(self, raws: Mapping[str, bytes]) -> set[str]:
        taken = set(self.read(raws))
        by_columns: defaultdict[tuple[str, ...], list[tuple[str | None, ...]]] = defaultdict(list)
        known = {column.name for column in self._table.kept}
        for memory_id in sorted(set(raws) - taken):
            cells = unpack(raws[memory_id])
            if missing := set(cells) - known:
                raise StoreError(
                    f"memory {memory_id!r} cannot be restored: the table has lost its column {min(missing)!r}; "
                    "this transaction changed nothing. Add the column and undo again."
                )
            by_columns[tuple(cells)].append(tuple(cells.values()))
        for names, rows in by_columns.items():
            columns = self._columns(names)
            with self._staged(rows) as stage:
                targets = ", ".join(column.quoted for column in columns)
                values = ", ".join(f"s.c{number}::{column.type}" for number, column in enumerate(columns))
                inserted = self._connection.execute(
                    f"insert into {self._table.quoted} ({targets}) overriding system value "
                    f"select {values} from {stage} s".encode(),
                    (),
                )
                _require_written(inserted.rowcount, len(rows), "insert")
        return taken

    def _update(self, columns: Sequence[Column], rows: Sequence[tuple[str | None, ...]]) -> None:
        key = self._table.id
        with self._staged(rows) as stage:
            changes = ", ".join(
                f"{column.quoted} = s.c{number}::{column.type}" for number, column in enumerate(columns, start=1)
            )
            updated = self._connection.execute(
                f"update {self._table.quoted} t set {changes} from {stage} s "
                f"where t.{key.quoted} = s.c0::{key.base}".encode(),
                (),
            )
        _require_written(updated.rowcount, len(rows), "update")

    @contextmanager
    def _staged(self, rows: Sequence[tuple[str | None, ...]]) -> Iterator[str]:
        """A table of texts that lasts as long as the block, filled by COPY."""
        columns = ", ".join(f"c{number} text" for number in range(len(rows[0])))
        self._connection.execute(f"create temporary table memfold_stage ({columns}) on commit drop".encode())
        with self._connection.cursor().copy(b"copy pg_temp.memfold_stage from stdin") as copy:
            for row in rows:
                copy.write_row(row)
        yield "pg_temp.memfold_stage"
        self._connection.execute(b"drop table pg_temp.memfold_stage")

    def _columns(self, names: Sequence[str]) -> list[Column]:
        by_name = {column.name: column for column in self._table.columns}
        return [by_name[name] for name in names]


def _make_table(connection: Connection, wanted: TableMapping) -> bool:
    schema, name = split_name(wanted.table)
    target = f"{quoted(schema)}.{quoted(name)}" if schema else quoted(name)
    there = connection.execute("select to_regclass(%s)", (target.replace("%%", "%"),)).fetchall()
    if there != [(None,)]:
        return False
    connection.execute(_OWN_TABLE.format(table=target).encode(), ())
    connection.execute(_SCOPE_INDEX.format(table=target).encode(), ())
    return True


def _unreadable(connection: Connection, table: Table) -> Counter[str]:
    if table.readable == "true":
        return Counter()
    query = f"select count(*) from {table.quoted} t where not ({table.readable})"
    count = connection.execute(query.encode(), ()).fetchall()[0][0]
    return Counter({"has no id or no text": count}) if count else Counter()


def _pages(
    connection: Connection, table: Table, reader: RowReader, scopes: Sequence[str] | None
) -> Iterator[list[tuple[Any, ...]]]:
    conditions, values = [table.readable], []
    if scopes is not None:
        of_scopes = [in_scope(table, scope) for scope in scopes]
        conditions.append("(" + (" or ".join(condition for condition, _ in of_scopes) or "false") + ")")
        values = [value for _, some in of_scopes for value in some]
    query = (
        f"copy (select {reader.expressions} from {table.quoted} t where {' and '.join(conditions)} "
        f"order by t.{table.id.quoted}) to stdout (format binary)"
    )
    # Without values psycopg does not read the percent signs.
    statement = query if values else query.replace("%%", "%")
    with connection.cursor().copy(statement.encode(), values) as copy:
        copy.set_types(reader.types)
        page: list[tuple[Any, ...]] = []
        for row in copy.rows():
            page.append(row)
            if len(page) == _ROWS_PER_BATCH:
                yield page
                page = []
        if page:
            yield page


def _require_written(written: int, meant: int, what: str) -> None:
    if written != meant:
        raise StoreError(
            f"{written} rows were written where {meant} were meant ({what}); this transaction changed nothing"
        )
