"""Consolidation in process: live memories of the real PraisonAI, behind its own protocols."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from memfold.contract import ConsolidationResult
from memfold.errors import BadUsage
from memfold_flows.consolidator import AsyncConsolidator, Consolidator

pytestmark = pytest.mark.praisonai

NIGHT = datetime(2100, 1, 1, 3, 0, tzinfo=UTC)
TEXT = "The billing service listens on port 8443."
ANN = {"user_id": "ann", "session_id": "s1"}


@pytest.fixture
def sqlite_memory(tmp_path, monkeypatch) -> Iterator[Any]:
    """A ``Memory`` on SQLite as an agent has it; its constructor makes a folder where one works."""
    monkeypatch.setenv("PRAISONAI_TELEMETRY_DISABLED", "true")
    monkeypatch.chdir(tmp_path)
    from praisonaiagents.memory import Memory

    memory = Memory({"provider": "sqlite", "user_id": "ann"})
    yield memory
    memory.close_connections()


@pytest.fixture
def file_memory(tmp_path, monkeypatch) -> Any:
    """A ``FileMemory`` as ``Agent(memory=True)`` makes it."""
    monkeypatch.setenv("PRAISONAI_TELEMETRY_DISABLED", "true")
    from praisonaiagents.memory import FileMemory

    return FileMemory(user_id="ann", base_path=str(tmp_path / "memory"))


@pytest.fixture(params=["sqlite_memory", "file_memory"])
def live_memory(request) -> Any:
    return request.getfixturevalue(request.param)


def consolidator(**thresholds: Any) -> Consolidator:
    return Consolidator(clock=lambda: NIGHT, **thresholds)


def test_both_satisfy_the_protocols_of_praisonai():
    """They are checked by PraisonAI's own classes, not by memfold's copy of them."""
    from praisonaiagents.memory import AsyncMemoryConsolidationProtocol, MemoryConsolidationProtocol

    assert isinstance(Consolidator(), MemoryConsolidationProtocol)
    assert isinstance(AsyncConsolidator(), AsyncMemoryConsolidationProtocol)


def test_a_copy_folds_and_the_agent_sees_it_at_once(live_memory):
    """No restart, no refresh: the object that the agent holds lists what the pass left."""
    live_memory.store_long_term(TEXT, metadata=dict(ANN))
    live_memory.store_long_term(TEXT, metadata=dict(ANN))
    live_memory.store_short_term("Ann asked for the port of billing.", metadata=dict(ANN))

    result = consolidator().consolidate(live_memory)

    assert (result.entries_before, result.entries_after, result.merged) == (3, 2, 1)
    assert (result.rejected, result.reason, result.retained_originals, result.loss_fraction) == (False, None, 3, 0.0)
    assert len(live_memory.get_all_memories()) == 2
    assert len(live_memory.search_long_term("billing service")) == 1


def test_what_the_agent_stores_afterwards_goes_on_from_there(live_memory):
    """A stale list in memory would bring the copy back with the next write."""
    live_memory.store_long_term(TEXT, metadata=dict(ANN))
    live_memory.store_long_term(TEXT, metadata=dict(ANN))
    consolidator().consolidate(live_memory)

    live_memory.store_long_term("The search index is rebuilt at 02:30.", metadata=dict(ANN))

    assert len(live_memory.get_all_memories()) == 2


def test_an_async_consolidator_does_the_same_while_the_loop_goes_on(live_memory):
    """The pass runs in a thread."""
    live_memory.store_long_term(TEXT, metadata=dict(ANN))
    live_memory.store_long_term(TEXT, metadata=dict(ANN))

    async def consolidate() -> tuple[ConsolidationResult, int]:
        running = asyncio.create_task(AsyncConsolidator(clock=lambda: NIGHT).aconsolidate(live_memory))
        turns = 0
        while not running.done():
            turns += 1
            await asyncio.sleep(0.001)
        return await running, turns

    result, turns = asyncio.run(consolidate())

    assert result.merged == 1
    assert turns > 1


def test_copies_of_two_users_or_sessions_stay(live_memory):
    """PraisonAI recalls by equality of both, so a fold would hide the fact from one of them."""
    live_memory.store_long_term(TEXT, metadata={"user_id": "ann", "session_id": "s1"})
    live_memory.store_long_term(TEXT, metadata={"user_id": "ann", "session_id": "s2"})
    live_memory.store_long_term(TEXT, metadata={"user_id": "bob", "session_id": "s1"})

    result = consolidator().consolidate(live_memory)

    assert (result.entries_after, result.merged, result.context["held"]) == (3, 0, 1)


def test_a_refused_pass_is_a_result_and_writes_nothing(live_memory):
    """A stale policy that would take all of a scope is above the limit."""
    for text in (TEXT, "The search index is rebuilt at 02:30.", "Ann prefers short answers."):
        live_memory.store_long_term(text, metadata={**ANN, "quality": 0.2})
    before = live_memory.get_all_memories()

    result = consolidator(stale_min_age_days=1).consolidate(live_memory)

    assert (result.rejected, result.entries_before, result.entries_after) == (True, 3, 3)
    assert list(result.context["scopes"]) == ["ann"]
    assert result.reason.startswith("ann: ")
    assert live_memory.get_all_memories() == before


@pytest.mark.parametrize("limit", [None, "0.25", True, -0.1, 1.5, float("nan"), 10**400])
def test_a_bad_limit_is_refused_before_the_memory_is_read(limit):
    """Anything but a real number in [0, 1]; also the one on which the original overflows."""
    with pytest.raises(ValueError, match="max_loss_fraction must be"):
        consolidator().consolidate(object(), max_loss_fraction=limit)


def test_a_memory_without_files_is_refused(tmp_path, monkeypatch):
    """What cannot be changed as a whole or undone is left alone."""
    monkeypatch.chdir(tmp_path)
    from praisonaiagents.memory import Memory

    with pytest.raises(BadUsage, match="cannot change a memory of kind 'in_memory' safely, and did not read it"):
        consolidator().consolidate(Memory({"provider": "in_memory"}))
    with pytest.raises(BadUsage, match="kind 'NoneType'"):
        consolidator().consolidate(None)


def test_a_memory_in_which_nothing_was_stored_is_left_without_files(live_memory, tmp_path):
    """There is nothing to fold, and nothing is created for it."""
    before = sorted(tmp_path.rglob("*"))

    result = consolidator().consolidate(live_memory)

    assert (result.entries_before, result.reason) == (0, "nothing was ever stored in this memory")
    assert sorted(tmp_path.rglob("*")) == before


def test_the_context_can_be_logged(live_memory):
    """People log it as extra=result.context; a key that a log record has itself would raise."""
    live_memory.store_long_term(TEXT, metadata=dict(ANN))

    result = consolidator().consolidate(live_memory)

    logging.getLogger("night").info("done", extra=result.context)
    assert Path(result.context["run_dir"]).name == result.context["run_id"]


def test_importing_it_stays_light():
    """An agent's process pays for the libraries of a pass only when there is one."""
    code = (
        "import sys, memfold_flows.consolidator; print([n for n in ('prefect', 'duckdb', 'numba') if n in sys.modules])"
    )

    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout

    assert loaded == "[]\n"
