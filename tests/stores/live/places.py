"""Stores that agents and passes share: each is filled and looked at past memfold, by its own driver."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

from memfold_flows.stores import postgresql, postgresql_rows, sqlite, sqlite_rows, urls

_COPIES_PER_TRANSACTION = 5_000
Row = tuple[str, str, int]


class Place(Protocol):
    """A store, as memfold names it and as an agent does."""

    #: As memfold opens it, and as an agent of its own process connects to it.
    url: str
    address: str
    unpack: Callable[[bytes], dict[str, Any]]

    def contents(self) -> dict[str, str]:
        """The text of every memory, by id."""
        ...

    def write(self, rows: list[Row]) -> None:
        """Write memories of the scope ``archive`` in one transaction: id, text, and when, in microseconds."""
        ...


class SqlitePlace:
    """memfold's own table in a file."""

    unpack = staticmethod(sqlite_rows.unpack)

    def __init__(self, folder: Path) -> None:
        self.address = str(folder / "memories.db")
        self.url = f"sqlite:{self.address}"
        sqlite.init(Path(self.address))

    def contents(self) -> dict[str, str]:
        with self._connection() as connection:
            return dict(connection.execute("select memory_id, content from memories").fetchall())

    def write(self, rows: list[Row]) -> None:
        with self._connection() as connection:
            connection.execute("begin immediate")
            connection.executemany(
                "insert into memories (memory_id, scope, content, created_at) values (?, 'archive', ?, ?)", rows
            )
            connection.execute("commit")

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.address, timeout=30, isolation_level=None)) as connection:
            yield connection


class PostgresqlPlace:
    """memfold's own table in a database."""

    unpack = staticmethod(postgresql_rows.unpack)

    def __init__(self, address: str) -> None:
        self.address = address
        parts = urls.parse(address)
        self.url, _ = postgresql.init(parts.path, parts.options)

    def contents(self) -> dict[str, str]:
        import psycopg

        with psycopg.connect(self.address) as connection:
            return dict(connection.execute("select memory_id, content from memories").fetchall())

    def write(self, rows: list[Row]) -> None:
        import psycopg

        with (
            psycopg.connect(self.address) as connection,
            connection.cursor() as cursor,
            cursor.copy("copy memories (memory_id, scope, content, created_at) from stdin") as copy,
        ):
            for memory_id, content, moment in rows:
                copy.write_row((memory_id, "archive", content, f"2026-01-01 00:00:{moment / 1_000_000:09.6f}"))


def remember_copies(place: Place, count: int, *, of: str) -> None:
    """Copies of a few texts, in a scope of their own and in small transactions, as an import would write them."""
    dice = random.Random(of)
    for start in range(0, count, _COPIES_PER_TRANSACTION):
        numbers = range(start, min(start + _COPIES_PER_TRANSACTION, count))
        place.write(
            [(f"{of}-{number}", f"Note {dice.randrange(count // 50 + 1)} of {of}", number) for number in numbers]
        )
