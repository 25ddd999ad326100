"""A plan follows from the memories alone, not from their order, their batches, or how many cores there are."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from memfold.memory import Memory
from memfold.policy import Policy
from memfold_flows import pipeline, reading, settings
from memfold_flows.runs import RunDirectory
from memfold_flows.stores.base import StoreTraits
from memfold_flows.stores.batches import memories_batch

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
NOTES = [
    "Anna prefers oat milk in her coffee",
    "The deploy runs at 15:00 on Fridays",
    "Der Nutzer isst kein Fleisch",
    "用户喜欢咖啡",
    "Remember: the budget is 1,450 EUR",
    "the staging server is at https://staging.example.org",
]
DRESSED = ["{}", "{}.", "Note: {}", "**{}**", "{} today", "{} and tea", "not {}"]


class AnyStore:
    """A store that hands out these memories in batches of any size."""

    url = "any:"
    traits = StoreTraits(places=frozenset())

    def __init__(self, memories: list[Memory], rows_per_batch: int) -> None:
        self.memories, self.rows_per_batch = memories, rows_per_batch

    def snapshot(self, scopes: object = None) -> Iterator[pa.RecordBatch]:
        for start in range(0, len(self.memories), self.rows_per_batch):
            yield memories_batch(self.memories[start : start + self.rows_per_batch])

    @contextmanager
    def ledger(self) -> Iterator[None]:
        yield None


@pytest.fixture
def memories() -> list[Memory]:
    """Four hundred notes in three scopes: copies, rewordings, numbers that differ, some alike in importance."""
    draw = random.Random(11)
    return [
        Memory(
            memory_id=f"m{number:03}",
            scope=draw.choice("xyz"),
            content=draw.choice(DRESSED).format(f"{draw.choice(NOTES)} {draw.choice(['', '', '3', '4'])}".strip()),
            importance=draw.choice([None, 0.5]),
            created_at=NOON - timedelta(hours=draw.randrange(9)),
        )
        for number in range(400)
    ]


def planned(memories: list[Memory], folder: Path, *, rows_per_batch: int = 1000) -> dict[str, bytes]:
    """Every relation of the plan over these memories, as bytes."""
    run = RunDirectory.create(folder, "run")
    pipeline.plan(AnyStore(memories, rows_per_batch), run, Policy(as_of=NOON), clock=lambda: NOON)
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.parquet")}


@pytest.mark.parametrize("rows_per_batch", [1, 7, 399])
def test_neither_order_nor_batches_change_a_plan(memories: list[Memory], tmp_path: Path, rows_per_batch: int) -> None:
    """Down to the last byte of every relation."""
    shuffled = random.Random(rows_per_batch).sample(memories, len(memories))

    plan = planned(memories, tmp_path / "one")

    assert b"merge" in plan["plan.parquet"]
    assert planned(shuffled, tmp_path / "other", rows_per_batch=rows_per_batch) == plan


def test_the_number_of_cores_does_not_change_a_plan(
    memories: list[Memory], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts are read by two processes in blocks of any size, SQL runs on one thread or many."""
    plan = planned(memories, tmp_path / "one")
    monkeypatch.setattr(reading, "SEVERAL_FROM_TEXTS", 10)
    monkeypatch.setattr(reading, "TEXTS_AT_ONCE", 23)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1})
    config = settings.duckdb_config
    monkeypatch.setattr(settings, "duckdb_config", lambda run: {**config(run), "threads": 1})

    assert planned(memories, tmp_path / "other") == plan
