"""The two SQLite files of a PraisonAI memory, as tests fill and look at them."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from memfold_flows.stores import open_store
from memfold_flows.stores.base import MemoryStore

SAMPLE = Path(__file__).parents[3] / "data/sample/praisonai"
TIERS = ("short_term", "long_term")
TABLE = """
create table {tier}_memory (
    id integer primary key autoincrement, content text not null, metadata text,
    timestamp datetime default current_timestamp
)
"""


class Files:
    """A folder with ``short_term.db`` and ``long_term.db``, seen from outside of memfold."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add_pair(self, suffix: str = "") -> None:
        """The two files of one user, without a row, as PraisonAI makes them."""
        self.folder.mkdir(exist_ok=True)
        for tier in TIERS:
            self.add_table(f"{tier}{suffix}.db", tier)

    def add_table(self, file: str, tier: str) -> None:
        with closing(sqlite3.connect(self.folder / file)) as connection, connection:
            connection.execute(TABLE.format(tier=tier))

    def insert(self, tier: str, content: object, metadata: object, timestamp: object = "2026-11-30 20:46:22") -> None:
        text = json.dumps(metadata) if isinstance(metadata, dict) else metadata
        self.execute(
            tier, f"insert into {tier}_memory (content, metadata, timestamp) values (?, ?, ?)", content, text, timestamp
        )

    def execute(self, tier: str, statement: str, *values: object) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.folder / f"{tier}.db")) as connection, connection:
            return connection.execute(statement, values).fetchall()

    def rows(self) -> dict[str, list[tuple[Any, ...]]]:
        """Every row of both tiers in every column, by id."""
        return {tier: self.execute(tier, f"select * from {tier}_memory order by id") for tier in TIERS}

    def counters(self) -> dict[str, list[tuple[Any, ...]]]:
        """The last id that each tier ever gave."""
        return {
            tier: self.execute(tier, f"select seq from sqlite_sequence where name = '{tier}_memory'") for tier in TIERS
        }

    def open(self, options: str = "") -> MemoryStore:
        return open_store(f"praisonai:{self.folder}{options}")

    def snapshot(self, options: str = "", scopes: list[str] | None = None) -> dict[str, dict[str, Any]]:
        """What memfold reads, by memory id."""
        batches = list(self.open(options).snapshot(scopes))
        return {row["memory_id"]: row for batch in batches for row in batch.to_pylist()}


@pytest.fixture
def sample(tmp_path: Path) -> Files:
    """A copy of the 63 memories that PraisonAI's own API wrote."""
    folder = tmp_path / "memory"
    folder.mkdir()
    for tier in TIERS:
        shutil.copy(SAMPLE / f"{tier}.db", folder)
    return Files(folder)


@pytest.fixture
def empty(tmp_path: Path) -> Files:
    """A memory without a row."""
    files = Files(tmp_path / "empty")
    files.add_pair()
    return files


@pytest.fixture
def one_file(tmp_path: Path) -> Path:
    """One file with both tables, as PraisonAI's ``db_path`` makes it, with one memory in each."""
    files = Files(tmp_path)
    for tier in TIERS:
        files.add_table("memory.db", tier)
        with closing(sqlite3.connect(tmp_path / "memory.db")) as connection, connection:
            connection.execute(f"insert into {tier}_memory (content, metadata) values ('The lift is out.', '{{}}')")
    return tmp_path / "memory.db"
