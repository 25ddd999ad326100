"""The tables of the ledger, and what SQLite and PostgreSQL each want to be told otherwise about them.

``Bookkeeping`` speaks the SQL that both understand, with ``?`` for a value and a prefix before each table's name; all
that differs is here. The ledger of ``memories`` is called ``memfold_runs`` and so on; that of any other table names
its table too (``memfold_notes_1a2b3c_runs``), as ids and scopes of two tables are not the same ones.
"""

from __future__ import annotations

import hashlib
import re
import sqlite3
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from memfold_flows.stores.postgresql_connections import Connection

#: The table that memfold makes for memories, whose ledger needs no name of its own.
OWN_TABLE = "memories"

#: What each version added. {new}, {index} and {on} stand before a new table, a new index, and the table that it is on.
_TABLES = {
    1: """
create table {new}meta (name {text} primary key, value {text} not null){keyed};
create table {new}runs (
    run_id {text} primary key, directory {text} not null, digest {text} not null,
    began_at {integer} not null, applied_at {integer}, undone_at {integer}
){keyed};
create table {new}applied (
    run_id {text} not null, step {text} not null check (step in ('apply', 'undo')), batch {integer} not null,
    scope {text} not null, first_unit {integer} not null, last_unit {integer} not null,
    landed_at {integer} not null, report {text} not null,
    primary key (run_id, step, batch, scope)
){keyed};
create table {new}redirects (
    old_id {text} primary key, new_id {text} not null, run_id {text} not null
){keyed};
create table {new}losses (
    run_id {text} not null, scope {text} not null, lost {integer} not null, lost_at {integer} not null,
    primary key (run_id, scope)
){keyed};
create table {new}rejected (
    memory_id {text} not null, into_id {text}, row_digest {text} not null, into_digest {text}
){strict};
create unique index {index}rejected_once on {on}rejected
    (memory_id, row_digest, coalesce(into_id, ''), coalesce(into_digest, ''));
create index {index}rejected_into on {on}rejected (into_id, into_digest);
create table {new}lease (
    one {integer} primary key check (one = 1), holder {text} not null, fence {integer} not null,
    until {integer} not null
){strict};
""",
    2: """
create table {new}state (
    scope {text} primary key, run_id {text} not null,
    last_consolidate_at {integer}, last_digest {text}, converged {integer} not null, multiplier {real} not null,
    refused_at {integer}, refused_why {text}, refused_digest {text}
){keyed};
create table {new}replay (
    batch {counter}, scope {text} not null, batch_json {text} not null,
    created_at {integer} not null, consumed {integer} not null default 0
){strict};
create index {index}replay_waiting on {on}replay (scope, consumed, created_at);
""",
    3: """
alter table {new}lease add column process {text};
""",
    4: """
create table {new}forgotten (
    id_hash {text} not null, text_hash {text} not null, forgotten_at {integer} not null,
    primary key (id_hash, text_hash)
){keyed};
""",
}
SCHEMA_VERSION = max(_TABLES)


class LedgerTables(Protocol):
    """The ledger of one table, in one database."""

    #: What stands before the name of each table, such as ``main.memfold_``.
    prefix: str

    def exist(self) -> bool:
        """Whether there is a ledger yet."""
        ...

    def create(self, version: int) -> None:
        """Make the tables that this version added."""
        ...

    def read(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        ...

    def write(self, statement: str, values: Sequence[Any] = ()) -> int:
        """Execute a statement; returns the number of rows that it wrote."""
        ...

    def write_each(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Execute a statement once per row of values."""
        ...


class SqliteTables:
    """The ledger in the main database of a SQLite connection."""

    def __init__(self, connection: sqlite3.Connection, *, table: str = OWN_TABLE) -> None:
        self._connection = connection
        self._name = ledger_name(table)
        self.prefix = f"main.{self._name}"

    def exist(self) -> bool:
        query = "select 1 from main.sqlite_schema where name = ?"
        return self._connection.execute(query, (f"{self._name}meta",)).fetchone() is not None

    def create(self, version: int) -> None:
        for statement in _statements(
            version,
            new=self.prefix,
            index=self.prefix,
            on=self._name,
            text="text",
            integer="integer",
            real="real",
            counter="integer primary key",
            strict=" strict",
            keyed=" strict, without rowid",
        ):
            self._connection.execute(statement)

    def read(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._connection.execute(query, values).fetchall()

    def write(self, statement: str, values: Sequence[Any] = ()) -> int:
        return self._connection.execute(statement, values).rowcount

    def write_each(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        self._connection.executemany(statement, rows)


class PostgresqlTables:
    """The ledger beside a table in a PostgreSQL schema."""

    def __init__(self, connection: Connection, *, schema: str, table: str) -> None:
        self._connection = connection
        self._name = ledger_name(table)
        self._schema = schema
        self.prefix = f"{_quoted(schema)}.{self._name}"

    def lock(self) -> None:
        """Keep every other memfold out of this ledger until the transaction ends; agents never wait for it."""
        self._connection.execute(
            "select pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended(%s, 0))", (self.prefix,)
        )

    def exist(self) -> bool:
        query = "select pg_catalog.to_regclass(%s) is not null"
        return bool(self._connection.execute(query, (f"{self.prefix}meta".replace("%%", "%"),)).fetchall()[0][0])

    def create(self, version: int) -> None:
        for statement in _statements(
            version,
            new=self.prefix,
            index=self._name,
            on=self.prefix,
            text='text collate "C"',
            integer="bigint",
            real="double precision",
            counter="bigint generated always as identity primary key",
            strict="",
            keyed="",
        ):
            self._connection.execute(statement.encode(), ())

    def read(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._connection.execute(_with_percents(query), values).fetchall()

    def write(self, statement: str, values: Sequence[Any] = ()) -> int:
        return self._connection.execute(_with_percents(statement), values).rowcount

    def write_each(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        if rows:
            self._connection.cursor().executemany(_with_percents(statement), rows)


def ledger_name(table: str) -> str:
    """What the names of a table's ledger begin with: lower-case letters, digits and underscores."""
    if table == OWN_TABLE:
        return "memfold_"
    letters = re.sub(r"[^a-z0-9]+", "_", table.lower()).strip("_")[:24]
    return f"memfold_{letters or 'table'}_{hashlib.sha256(table.encode()).hexdigest()[:6]}_"


def _quoted(schema: str) -> str:
    return '"' + schema.replace('"', '""').replace("%", "%%") + '"'


def _with_percents(statement: str) -> bytes:
    """The statement with its values marked as psycopg wants them."""
    return statement.replace("?", "%s").encode()


def _statements(version: int, **words: str) -> list[str]:
    return [statement for statement in _TABLES[version].format(**words).split(";\n") if statement.strip()]
