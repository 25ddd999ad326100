"""A kitchen's memories in a SQLite store, passes over them at a fixed time, and the command line in process."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from memfold.policy import Policy
from memfold_flows import cli, pipeline
from memfold_flows.receipts import PlanReport, Receipt
from memfold_flows.runs import RunDirectory
from memfold_flows.stores import open_store, sqlite
from memfold_flows.stores.base import MemoryStore

AS_OF = datetime(2026, 6, 1, tzinfo=UTC)
MICROSECONDS = 1_000_000
DAY = timedelta(days=1)


@dataclass
class Kitchen:
    """memfold's own table in a file, and what an agent does to it behind memfold's back."""

    path: Path
    store: MemoryStore

    def remember(self, memory_id: str, content: str, **columns: Any) -> None:
        """Write a memory, 30 days old unless told otherwise."""
        created_at = int((AS_OF - columns.pop("age", 30 * DAY)).timestamp()) * MICROSECONDS
        row = {"memory_id": memory_id, "content": content, "scope": "kitchen", "created_at": created_at, **columns}
        names, marks = ", ".join(row), ", ".join("?" * len(row))
        self._execute(f"insert into memories ({names}) values ({marks})", *row.values())

    def rewrite(self, memory_id: str, content: str) -> None:
        """Give a memory another text."""
        self._execute("update memories set content = ? where memory_id = ?", content, memory_id)

    def forget(self, memory_id: str) -> None:
        """Delete a memory."""
        self._execute("delete from memories where memory_id = ?", memory_id)

    @property
    def rows(self) -> dict[str, tuple[Any, ...]]:
        """Every memory, all columns, by id."""
        return {row[0]: row for row in self._execute("select * from memories order by memory_id")}

    @property
    def ids(self) -> set[str]:
        return set(self.rows)

    @property
    def tables(self) -> set[str]:
        return {row[0] for row in self._execute("select name from sqlite_schema where type = 'table'")}

    def _execute(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            return connection.execute(statement, values).fetchall()


@pytest.fixture
def kitchen(tmp_path: Path) -> Iterator[Kitchen]:
    """An empty store."""
    path = tmp_path / "kitchen.db"
    sqlite.init(path)
    store = open_store(f"sqlite:{path}")
    yield Kitchen(path, store)
    store.close()


@pytest.fixture
def tea(kitchen: Kitchen) -> Kitchen:
    """Eight memories: three are copies of one text, the others have nothing in common."""
    kitchen.remember("tea-1", "Ann drinks green tea", age=9 * DAY)
    kitchen.remember("tea-2", "ann drinks  green tea.", age=8 * DAY)
    kitchen.remember("tea-3", "Ann drinks green tea", age=7 * DAY)
    kitchen.remember("oven", "The oven door sticks when it is hot")
    kitchen.remember("bread", "Bob bakes rye bread on Fridays")
    kitchen.remember("key", "The cellar key hangs behind the clock")
    kitchen.remember("cat", "Do not feed the cat at the table")
    kitchen.remember("bin", "Glass goes into the blue bin")
    return kitchen


class Nights:
    """Passes over a store, one run directory each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0

    def plan(
        self, store: MemoryStore, *, as_of: datetime = AS_OF, scopes: list[str] | None = None, **thresholds: Any
    ) -> tuple[RunDirectory, PlanReport]:
        """Plan a pass at a fixed time; thresholds are those of the policy."""
        self._number += 1
        run_id = f"night-{self._number}"
        run = RunDirectory.create(self._folder / run_id, run_id)
        traits = store.traits
        policy = Policy(as_of=as_of, session_recall=traits.session_recall, **thresholds)
        return run, pipeline.plan(store, run, policy, clock=clock, scopes=scopes)

    def apply(self, store: MemoryStore, run: RunDirectory, **options: Any) -> Receipt:
        """Apply a run an hour after it was planned."""
        return pipeline.apply(store, run, clock=clock, **options)


def clock() -> datetime:
    """One hour after the moment that plans are made as of."""
    return AS_OF + timedelta(hours=1)


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    """Passes over a store, at a fixed time."""
    return Nights(tmp_path / "runs")


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code and what it said."""

    code: int
    out: str
    err: str


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Ended]:
    """Run the memfold command in this process, in a folder of its own and without a terminal."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def run(*arguments: object) -> Ended:
        capsys.readouterr()
        with pytest.raises(SystemExit) as exit_:
            cli.main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return Ended(int(exit_.value.code or 0), said.out, said.err)

    return run


def plan_rows(run: RunDirectory) -> Mapping[str, dict[str, Any]]:
    """The plan of a run by memory id."""
    return {row["memory_id"]: row for row in run.read("plan").to_pylist()}
