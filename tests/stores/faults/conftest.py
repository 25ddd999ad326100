"""Passes that are struck: a store of each kind, a plan over it, and commands that a fault meets in the middle."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from memfold.memory import Memory

VICTIM = Path(__file__).with_name("victim.py")
ARCHIVES = ("jsonl", "parquet")


def mem(memory_id: str, content: str, scope: str = "team", **more: Any) -> Memory:
    """A memory of a few fields that every store can hold."""
    return Memory(memory_id=memory_id, content=content, scope=scope, **more)


#: Three clusters over two scopes, with something to fold in each, and notes that no pass touches.
MEMORIES = (
    mem("ann", "Deploys need two approvals.", metadata='{"seen": "monday"}'),
    mem("bob", "deploys need two approvals!", metadata='{"told": "tuesday"}'),
    mem("cat", "The wiki moved to the new host.", metadata='{"seen": "friday"}'),
    mem("cleo", "the wiki moved to the new host", metadata='{"told": "sunday"}'),
    mem("dan", "Standup is at ten.", "other", metadata='{"seen": "may"}'),
    mem("eve", "standup is at ten", "other", metadata='{"told": "june"}'),
    mem("fay", "Nobody asked about the printer.", "third"),
    mem("gus", "Lunch is on the roof.", "other"),
    mem("hal", "The lift stops at the fourth floor."),
)


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code, negative for a signal, what it said, and how long it took."""

    code: int
    said: str
    seconds: float


class Victims:
    """The program that runs commands and lets faults happen in them."""

    def __init__(self) -> None:
        command = [sys.executable, str(VICTIM)]
        self._program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, **job: Any) -> Ended:
        """Run one command, and whatever is to happen in it."""
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        self._program.stdin.write(json.dumps(job) + "\n")
        self._program.stdin.flush()
        return Ended(**json.loads(self._program.stdout.readline()))

    def close(self) -> None:
        """End the program."""
        self._program.kill()
        self._program.communicate()


@pytest.fixture(scope="session")
def victims() -> Iterator[Victims]:
    """One such program for all tests."""
    program = Victims()
    yield program
    program.close()


class Folders:
    """A store of files, and copies of it."""

    def __init__(self, folder: Path) -> None:
        self.place = folder
        folder.mkdir(parents=True)

    def save(self, moment: str) -> None:
        """Nothing to do: the whole world is copied."""

    def back_to(self, moment: str) -> None:
        """Nothing to do: the whole world is put back."""


class Databases:
    """A database of a server, and copies of it."""

    def __init__(self, server: Any) -> None:
        self.place: str = server.new_database()
        self.server_url: str = server.url()
        self.name = self.place.rpartition("/")[2]

    def save(self, moment: str) -> None:
        """Keep the database as it is now."""
        self.execute(f'create database "{self.name} {moment}" template "{self.name}"')

    def back_to(self, moment: str) -> None:
        """Put the database back as it was kept."""
        self.execute(
            f'drop database if exists "{self.name}" with (force)',
            f'create database "{self.name}" template "{self.name} {moment}"',
        )

    def execute(self, *statements: str) -> None:
        """Statements to the server, outside of this database."""
        import psycopg

        with psycopg.connect(self.server_url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())


@dataclass
class Struck:
    """One store with a plan over it, which can be put back to that moment as often as it is struck."""

    scheme: str
    fill: Callable[..., Any]
    folder: Path
    victims: Victims
    server: Any = None
    #: The store, and ways past memfold to what it holds.
    filled: Any = field(init=False)
    plan_id: str = field(init=False)
    #: The store before the pass and after it, by id, and the ids that land together.
    before: dict[str, Any] = field(init=False)
    after: dict[str, Any] = field(init=False)
    untouched: Any = field(init=False)
    units: list[set[str]] = field(init=False)

    def __post_init__(self) -> None:
        self.world = self.folder / "world"
        self.world.mkdir()
        self.at: Any = Folders(self.store_folder) if self.server is None else Databases(self.server)
        self.filled = self.fill(self.at.place, MEMORIES)
        self._save("fresh")
        self.before, self.untouched = self.filled.contents(), self.filled.everything()
        self.plan_id = json.loads(self.memfold("plan", self.url, "--json").said)["run_id"]
        self._save("planned")
        applied = self.apply()
        assert applied.code == 0, applied.said
        self.after = self.filled.contents()
        rewrite = pq.read_table(self.run_dir / "rewrite.parquet").to_pylist()
        units = sorted({row["unit_id"] for row in rewrite})
        self.units = [{row["memory_id"] for row in rewrite if row["unit_id"] == unit} for unit in units]
        self._save("applied")

    @property
    def store_folder(self) -> Path:
        return self.world / "store"

    @property
    def run_dir(self) -> Path:
        """The directory of the plan."""
        return self.world / "home" / "runs" / self.plan_id

    @property
    def url(self) -> str:
        return self.filled.url.partition("?in_place")[0]

    @property
    def target(self) -> list[str]:
        """The options that say where an archive is written."""
        return ["--in-place"] if self.scheme in ARCHIVES else []

    def memfold(self, *command: str, **fault: Any) -> Ended:
        """Run a command in a process of its own, with a fault in it where one is named."""
        environment = {"MEMFOLD_HOME": str(self.world / "home"), "COLUMNS": "200"}
        folders = {"folder": str(self.folder), "store_folder": str(self.store_folder)}
        return self.victims.run(command=list(command), environment=environment, **folders, **fault)

    def plan_and_apply(self, **fault: Any) -> Ended:
        """A whole pass."""
        return self.memfold("run", self.url, "--yes", *self.target, **fault)

    def apply(self, run_id: str | None = None, **fault: Any) -> Ended:
        """Apply the plan that was made, or another."""
        return self.memfold("apply", run_id or self.plan_id, "--yes", *self.target, **fault)

    def undo(self, run_id: str | None = None, **fault: Any) -> Ended:
        """Take back the plan that was applied, or another."""
        return self.memfold("undo", run_id or self.plan_id, "--yes", **fault)

    def history(self) -> list[Mapping[str, Any]]:
        """The runs of the store, newest first."""
        ended = self.memfold("history", self.url, "--json")
        assert ended.code == 0, ended.said
        runs: list[Mapping[str, Any]] = json.loads(ended.said)["runs"]
        return runs

    def back_to(self, moment: str) -> None:
        """Put store and runs back as they were: fresh, planned, or applied."""
        shutil.rmtree(self.world)
        shutil.copytree(self.folder / moment, self.world)
        self.at.back_to(moment)

    def state(self) -> str:
        """What the store holds: old, new, or part where whole units are old and others new.

        Anything else is a lost or a torn memory.
        """
        now = self.filled.contents()
        touched = set().union(*self.units)
        assert {i: row for i, row in now.items() if i not in touched} == {
            i: row for i, row in self.before.items() if i not in touched
        }
        is_new = [self._is_new(unit, now) for unit in self.units]
        return "new" if all(is_new) else "part" if any(is_new) else "old"

    def _is_new(self, unit: set[str], now: Mapping[str, Any]) -> bool:
        found, old, new = ({i: rows[i] for i in unit if i in rows} for rows in (now, self.before, self.after))
        assert found in (old, new), f"a unit is neither old nor new: {sorted(unit)}"
        return found == new

    def _save(self, moment: str) -> None:
        shutil.copytree(self.world, self.folder / moment)
        self.at.save(moment)


@pytest.fixture(scope="session")
def strike(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    kinds: Mapping[str, Callable[..., Any]],
    victims: Victims,
) -> Callable[[str], Struck]:
    """A store of a system with a plan over it; made once, and put back for each test."""
    known: dict[str, Struck] = {}

    def struck(scheme: str) -> Struck:
        if scheme not in known:
            server = request.getfixturevalue("postgresql_server") if scheme == "postgresql" else None
            folder = tmp_path_factory.mktemp(f"struck-{scheme}")
            known[scheme] = Struck(scheme, kinds[scheme], folder, victims, server)
        return known[scheme]

    return struck
