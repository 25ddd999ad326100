"""The two SQLite files of a PraisonAI memory, as tests fill and look at them, and passes over them."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from memfold_flows import cli, pipeline, settings
from memfold_flows.receipts import Receipt, UndoReceipt
from memfold_flows.runs import RunDirectory
from memfold_flows.stores import open_store
from memfold_flows.stores.base import MemoryStore

#: Later than anything that a test writes through PraisonAI, which stamps the time of the machine.
NIGHT = datetime(2100, 1, 1, 3, 0, tzinfo=UTC)

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


class Night:
    """The passes of one night over one memory, each in a run directory of its own."""

    def __init__(self, url: str, home: Path) -> None:
        self.store = open_store(url)
        self._home = home
        self._numbers = count(1)

    def plan(self, **thresholds: Any) -> RunDirectory:
        name = f"night-{next(self._numbers)}"
        run = RunDirectory.create(self._home / name, name)
        policy = settings.Settings(thresholds).policy(as_of=NIGHT, traits=self.store.traits)
        pipeline.plan(self.store, run, policy, clock=lambda: NIGHT)
        return run

    def apply(self, run: RunDirectory) -> Receipt:
        return pipeline.apply(self.store, run, clock=lambda: NIGHT)

    def undo(self, run: RunDirectory) -> UndoReceipt:
        return pipeline.undo(self.store, run, clock=lambda: NIGHT)


@dataclass(frozen=True)
class Said:
    """What a command printed, and its exit code."""

    code: int
    stdout: str
    stderr: str


@pytest.fixture
def command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Any:
    """Runs ``memfold`` in a folder of its own."""
    folder = tmp_path / "shell"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def run(*arguments: str) -> Said:
        with pytest.raises(SystemExit) as ended:
            cli.main(arguments)
        printed = capfd.readouterr()
        return Said(int(ended.value.code or 0), printed.out, printed.err)

    return run


@pytest.fixture
def night_over(tmp_path: Path) -> Callable[[str], Night]:
    """Opens the store of a URL for the passes of one night."""
    return lambda url: Night(url, tmp_path)


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
