"""An archive in a folder of its own, and short ways to write it and to look at it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memfold.memory import Memory
from memfold_flows.stores import open_store
from memfold_flows.stores.base import MemoryStore, Update
from memfold_flows.stores.jsonl import JsonlStore


class JsonlFile:
    """One JSONL file, and short ways to write it past memfold and with it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def holds(self, *lines: Any, end: bytes = b"\n") -> None:
        """Write the file: each line from a record, or as these bytes."""
        self.path.write_bytes(b"".join((x if isinstance(x, bytes) else json.dumps(x).encode()) + end for x in lines))

    @property
    def lines(self) -> list[bytes]:
        return self.path.read_bytes().splitlines(keepends=True)

    @property
    def neighbours(self) -> list[str]:
        return sorted(path.name for path in self.path.parent.iterdir())

    def open(self, **options: Any) -> JsonlStore:
        """The file as a store."""
        store = open_store(f"jsonl:{self.path}", **options)
        assert isinstance(store, JsonlStore)
        return store

    @staticmethod
    def read(store: MemoryStore) -> dict[str, dict[str, Any]]:
        """What memfold reads from a store: a row of the snapshot by id, in the order of the store."""
        return {row["memory_id"]: row for batch in store.snapshot() for row in batch.to_pylist()}

    def snapshot(self, **options: Any) -> dict[str, dict[str, Any]]:
        """What memfold reads from the file, by id."""
        return self.read(self.open(**options))

    def remove(self, *ids: str, **options: Any) -> dict[str, bytes]:
        """Remove memories in one transaction; returns what restores them."""
        with self.open(**(options or {"in_place": True})).transaction() as transaction:
            rows = transaction.read(ids)
            transaction.delete(ids)
        return {memory_id: row.raw for memory_id, row in rows.items()}

    def restore(self, raws: dict[str, bytes]) -> set[str]:
        """Bring removed memories back; returns the ids that exist again."""
        with self.open(in_place=True).transaction() as transaction:
            return transaction.restore(raws)

    def fold(self, memory_id: str, **fields: Any) -> tuple[Memory, Memory, bytes]:
        """Change a memory in one transaction; returns it before and after, and its bytes before."""
        with self.open(in_place=True).transaction() as transaction:
            row = transaction.read([memory_id])[memory_id]
            after = replace(row.memory, **fields)
            transaction.update([Update(row.memory, after)])
            return row.memory, after, row.raw


@pytest.fixture
def notes(tmp_path: Path) -> JsonlFile:
    """A JSONL file that no one has written yet."""
    return JsonlFile(tmp_path / "notes.jsonl")


@pytest.fixture
def another(tmp_path: Path) -> Callable[[str], JsonlFile]:
    """Another JSONL file in the same folder, or in one below it, by its name."""
    return lambda name: JsonlFile(tmp_path / name)


@pytest.fixture(scope="session")
def fresh_file(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], JsonlFile]:
    """A JSONL file in a new folder at each call, for tests that draw many."""
    return lambda: JsonlFile(tmp_path_factory.mktemp("drawn") / "notes.jsonl")
