"""The pass as a Prefect flow: in process, without a server of one's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from memfold.errors import StoreError, Transient
from memfold_flows.stores import sqlite

from .conftest import Kitchen

pytestmark = pytest.mark.prefect


@pytest.fixture
def consolidate() -> Callable[..., Any]:
    """Run the flow and return its final state."""

    def run(kitchen: Kitchen, **parameters: Any) -> Any:
        from memfold_flows.consolidate import consolidate

        return consolidate(f"sqlite:{kitchen.path}", return_state=True, **parameters)

    return run


def test_a_pass_ends_in_a_state_that_says_how(consolidate: Callable[..., Any], tea: Kitchen) -> None:
    """Consolidated, and the second time NothingToDo: no step was answered from a cache. Both are Completed."""
    first, second = consolidate(tea), consolidate(tea)

    assert [(state.name, state.type.value) for state in (first, second)] == [
        ("Consolidated", "COMPLETED"),
        ("NothingToDo", "COMPLETED"),
    ]
    assert first.message == "2 merged, 0 pruned, 0 promoted of 8"
    assert len(tea.ids) == 6


def test_a_refusal_is_a_result_and_not_a_failure(consolidate: Callable[..., Any], tea: Kitchen) -> None:
    """Alerts go by event; a refused night does not page anyone."""
    before = tea.rows

    state = consolidate(tea, thresholds={"stale_min_age_days": 10})

    assert (state.name, state.type.value) == ("Rejected", "COMPLETED")
    assert tea.rows == before


def test_a_pass_that_is_switched_off_has_nothing_to_do(
    consolidate: Callable[..., Any], tea: Kitchen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``memory.consolidation.enabled`` in the ``memfold.yaml`` of the worker's folder."""
    before = tea.rows
    (tmp_path / "worker").mkdir()
    monkeypatch.chdir(tmp_path / "worker")
    Path("memfold.yaml").write_text("memory: {consolidation: {enabled: false}}\n")

    state = consolidate(tea)

    assert (state.name, state.type.value) == ("NothingToDo", "COMPLETED")
    assert state.message.startswith("memory.consolidation.enabled is false in memfold.yaml")
    assert tea.rows == before


def test_a_busy_store_is_tried_again(
    consolidate: Callable[..., Any], tea: Kitchen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Transient is the one error that trying again can help."""
    calls = _fail_once(monkeypatch, Transient("the store is locked by another program"))

    state = consolidate(tea)

    assert state.name == "Consolidated"
    assert len(calls) == 2


def test_a_broken_store_is_not_tried_again(
    consolidate: Callable[..., Any], tea: Kitchen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any other error fails the run at once."""
    calls = _fail_once(monkeypatch, StoreError("the store is not a database"))

    state = consolidate(tea)

    assert state.type.value == "FAILED"
    assert len(calls) == 1


def _fail_once(monkeypatch: pytest.MonkeyPatch, error: Exception) -> list[str]:
    """The first snapshot of a store fails; returns the calls so far."""
    calls: list[str] = []
    original = sqlite.SqliteStore.snapshot

    def snapshot(store: sqlite.SqliteStore, scopes: Any = None) -> Iterator[pa.RecordBatch]:
        calls.append(store.url)
        if len(calls) == 1:
            raise error
        return original(store, scopes)

    monkeypatch.setattr(sqlite.SqliteStore, "snapshot", snapshot)
    return calls
