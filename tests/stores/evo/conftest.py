"""evo's files of each schema version, filled as evo fills them, and passes over them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.stores.conftest import evo_database, insert_into_evo

from memfold_flows import pipeline
from memfold_flows.receipts import Receipt
from memfold_flows.runs import RunDirectory
from memfold_flows.service import Service
from memfold_flows.settings import Settings
from memfold_flows.stores.evo import EvoStore

NOW = datetime(2026, 6, 1, 3, tzinfo=UTC)
ANA = "user:ana"


@dataclass
class Evo:
    """A file of evo's, and what evo and its users do to it."""

    path: Path
    version: int
    now: datetime = NOW
    passes: int = 0

    def __post_init__(self) -> None:
        evo_database(self.path, version=self.version)
        self.store = self.open()

    def open(self) -> EvoStore:
        return EvoStore(self.path, clock=lambda: self.now)

    def distil(self, memory_id: str, content: str, **more: Any) -> None:
        """evo writes a memory of its own, 30 days old unless told otherwise."""
        source = {"runtime": "evo", "sessionId": "s1", "turn": 3}
        self.write(memory_id, content, **{"source": source, **more})

    def write(self, memory_id: str, content: str, *, age_days: float = 30, **more: Any) -> None:
        """Anyone writes a memory; without a source it is one that a person added."""
        at = int((self.now - timedelta(days=age_days)).timestamp() * 1000)
        insert_into_evo(self.path, memory_id, content, **{"created_at": at, "updated_at": at, **more})

    def reflect(self, *contents: str, scope: str = ANA) -> None:
        """evo appends a batch that it distilled to its replay buffer, two hours ago."""
        batch = {"memories": [{"title": "A note", "content": content, "kind": "fact"} for content in contents]}
        at = int((self.now - timedelta(hours=2)).timestamp() * 1000)
        self.execute(
            "insert into replay_buffer (scope_key, scope_json, batch_json, created_at) values (?, ?, ?, ?)",
            *(scope, json.dumps({"type": "user", "id": "ana"}), json.dumps(batch), at),
        )

    def consolidate(self, **thresholds: Any) -> Receipt:
        """A whole pass at this moment."""
        self.passes += 1
        run = RunDirectory.create(self.path.parent / f"night-{self.passes}", f"night-{self.passes}")
        policy = Settings(thresholds).policy(as_of=self.now, traits=self.store.traits)
        self.last_run = run
        return pipeline.consolidate(self.store, run, policy, clock=lambda: self.now)

    def service(self, **given: Any) -> Service:
        return Service(self.store, clock=lambda: self.now, **given)

    def rows(self, table: str = "memories") -> dict[Any, dict[str, Any]]:
        """Every row of a table by its first column."""
        with closing(sqlite3.connect(self.path)) as connection:
            connection.row_factory = sqlite3.Row
            return {row[0]: dict(row) for row in connection.execute(f"select * from {table} order by 1")}

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(row["payload_json"]) for row in self.rows("memory_events").values()]

    def execute(self, statement: str, *values: Any) -> None:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            connection.execute(statement, values)


@pytest.fixture
def make_evo(tmp_path: Path) -> Iterator[Callable[..., Evo]]:
    """A file of evo's of any schema version."""
    made: list[Evo] = []

    def make(version: int = 6) -> Evo:
        made.append(Evo(tmp_path / "evo.db", version))
        return made[-1]

    yield make
    for each in made:
        each.store.close()


@pytest.fixture(params=[2, 6])
def evo(request: pytest.FixtureRequest, make_evo: Callable[..., Evo]) -> Evo:
    """An empty file of each schema version."""
    return make_evo(request.param)


@pytest.fixture
def ports(evo: Evo) -> Evo:
    """Six memories of Ana's; two of them say the same."""
    evo.distil("port", "Staging listens on port 8080", usage_count=2, tags_json='["ops"]', age_days=30)
    evo.distil("port again", "staging listens on port 8080.", usage_count=1, tags_json='["net"]', age_days=20)
    for number, content in enumerate(
        ("Ann drinks green tea", "Bob bakes rye bread", "The cellar key is blue", "No cats")
    ):
        evo.distil(f"note-{number}", content)
    return evo
