"""Tables of people's own in a database of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from memfold_flows.stores import open_store


class Database:
    """A new PostgreSQL database, and ways past memfold to what it holds."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.connection = self.connect()

    def connect(self, **settings: Any) -> psycopg.Connection[Any]:
        """Another connection, as an agent has it."""
        return psycopg.connect(self.url, autocommit=True, options="-c TimeZone=UTC", **settings)

    def execute(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        cursor = self.connection.execute(statement.encode(), values or None)
        return cursor.fetchall() if cursor.description else []

    def store(self, **options: str) -> Any:
        """The store in this database under these options of a URL."""
        return open_store(self.store_url(**options))

    def store_url(self, **options: str) -> str:
        return f"{self.url}?{'&'.join(f'{name}={quote(value)}' for name, value in options.items())}"


@pytest.fixture
def database(empty_database: Callable[[], str]) -> Iterator[Database]:
    """An empty database."""
    made = Database(empty_database())
    yield made
    made.connection.close()


@pytest.fixture
def connect() -> Iterator[Callable[[str], psycopg.Connection[Any]]]:
    """Open connections as an agent has them; they end with the test."""
    with ExitStack() as stack:
        yield lambda url: stack.enter_context(closing(psycopg.connect(url, autocommit=True)))


@pytest.fixture
def notes(database: Database) -> Callable[..., Any]:
    """Make a table of notes with columns of the test's own, and open it by the options of a URL."""

    def make(columns: str = "", **options: str) -> Any:
        database.execute(f"create table notes (id text primary key, body text, who text{columns and ', ' + columns})")
        return database.store(**{"table": "notes", "id": "id", "content": "body", "scope": "who", **options})

    return make
