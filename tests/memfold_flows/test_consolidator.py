"""Consolidation in process: live memories of the real PraisonAI, behind its own protocols."""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.model_server import serving, verdicts

import memfold_flows.noting
import memfold_flows.steps
from memfold.contract import ConsolidationResult
from memfold.errors import BadUsage, Transient
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


def test_a_model_may_propose_in_process_too(live_memory, tmp_path, monkeypatch):
    """The proposer of ``memfold.yaml`` is asked, and the result says what its part came to."""
    monkeypatch.chdir(tmp_path)
    live_memory.store_long_term("The staging database is wiped every Sunday night", metadata=dict(ANN))
    live_memory.store_long_term("Every Sunday night the staging database gets wiped", metadata=dict(ANN))

    with serving(lambda asked: verdicts(asked, "same")) as model:
        Path("memfold.yaml").write_text(f"proposer: {{url: '{model.url}', model: tester}}\n")
        result = consolidator().consolidate(live_memory, max_loss_fraction=1.0)

    assert (result.merged, result.context["proposer"]["accepted"]) == (1, 1)
    assert len(live_memory.get_all_memories()) == 1


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


BAD_LIMITS = [
    *(None, "0.25", b"0.25", True, False, [], 0.25j, Decimal("0.25"), Fraction(1, 4)),
    *(-0.1, -5e-324, 1.5, 1.0000000000000002, 2, float("nan"), float("inf"), 10**400, -(10**400)),
    *(np.float32(0.25), np.int64(0), np.bool_(True), np.array(0.25), np.float64("nan")),
]


class Unread:
    """A memory that may not be touched."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} of the memory was looked at")


@pytest.mark.parametrize("limit", BAD_LIMITS, ids=repr)
def test_a_bad_limit_is_refused_before_the_memory_is_read(limit):
    """Anything but a real number in [0, 1]; also those on which the original overflows."""
    with pytest.raises(ValueError, match="max_loss_fraction must be"):
        consolidator().consolidate(Unread(), max_loss_fraction=limit)
    with pytest.raises(ValueError, match="max_loss_fraction must be"):
        asyncio.run(AsyncConsolidator().aconsolidate(Unread(), max_loss_fraction=limit))


@pytest.mark.parametrize("limit", [0, 1, 0.0, 1.0, np.float64(0.25)], ids=repr)
def test_a_limit_that_praisonai_takes_is_taken(live_memory, limit):
    """Whole numbers and NumPy's double are real numbers."""
    live_memory.store_long_term(TEXT, metadata=dict(ANN))
    live_memory.store_long_term(TEXT, metadata=dict(ANN))

    assert consolidator().consolidate(live_memory, max_loss_fraction=limit).merged == 1


def test_a_limit_for_all_passes_is_refused():
    """It would have no effect: the protocol gives each pass a limit of its own, 0.25 where it is left out."""
    for kind in (Consolidator, AsyncConsolidator):
        with pytest.raises(BadUsage, match=r"max_loss_fraction=0\.1 has no effect .* Give it to each pass"):
            kind(max_loss_fraction=0.1)


def test_a_memory_of_which_one_tier_was_never_used_is_consolidated(tmp_path, monkeypatch):
    """PraisonAI makes the table of a tier when it first uses it, also where both are in one file."""
    monkeypatch.chdir(tmp_path)
    from praisonaiagents.memory import Memory

    for files in ({"db_path": "one.db"}, {"short_db": "short.db", "long_db": "long.db"}):
        memory = Memory({"provider": "sqlite", **{name: str(tmp_path / file) for name, file in files.items()}})
        for text in (TEXT, TEXT, "The lift is out."):
            memory.store_long_term(text, metadata=dict(ANN))

        result = consolidator().consolidate(memory)

        assert (result.entries_before, result.merged) == (3, 1)
        assert {each["text"] for each in memory.get_all_memories()} == {TEXT, "The lift is out."}
        memory.close_connections()


def test_what_is_no_memory_is_refused():
    """An agent without memory has None there."""
    with pytest.raises(BadUsage, match=r"kind 'NoneType' safely, and did not read it: it has no get_all_memories"):
        consolidator().consolidate(None)


def test_a_memory_in_which_nothing_was_stored_is_left_without_files(live_memory, tmp_path):
    """There is nothing to fold, and nothing is created for it."""
    before = sorted(tmp_path.rglob("*"))

    result = consolidator().consolidate(live_memory)

    assert (result.entries_before, result.reason) == (0, "nothing was ever stored in this memory")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_relative_path_that_leads_nowhere_is_an_error(tmp_path, monkeypatch):
    """PraisonAI keeps what it has opened; seen from another folder the memory only looks as if it were empty."""
    for folder in ("here", "elsewhere"):
        (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    from praisonaiagents.memory import Memory

    memory = Memory({"provider": "sqlite", "short_db": "short.db", "long_db": "long.db"})
    memory.store_long_term(TEXT, metadata=dict(ANN))
    memory.store_short_term(TEXT, metadata=dict(ANN))
    assert consolidator().consolidate(memory).entries_before == 2
    monkeypatch.chdir(tmp_path / "elsewhere")

    with pytest.raises(BadUsage, match=r"short\.db and long\.db are not in .*/elsewhere; nothing was read or created"):
        consolidator().consolidate(memory)

    memory.close_connections()
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_the_context_can_be_logged(live_memory):
    """People log it as extra=result.context; a key that a log record has itself would raise or hide it."""
    live_memory.store_long_term(TEXT, metadata=dict(ANN))
    of_a_record = set(dir(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

    result = consolidator().consolidate(live_memory)

    assert set(result.context) & of_a_record == set()
    logging.getLogger("night").info("done", extra=result.context)
    json.dumps(result.context)


def test_the_context_says_what_was_counted_how_long_it_took_and_which_run_it_was(live_memory):
    """Counts are summed over scopes; both loss figures stand beside the one that the result computes."""
    for user in ("ann", "bob"):
        for text in (TEXT, TEXT, "The kitchen opens at 8.", "The kitchen opens at 9."):
            live_memory.store_long_term(text, metadata={"user_id": user, "session_id": "s1"})

    result = consolidator().consolidate(live_memory)

    context = result.context
    assert (context["entries_before"], context["entries_after"], context["merged"]) == (8, 6, 2)
    assert (context["loss_fraction"], context["loss_fraction_strict"]) == (0.0, 0.25)
    assert (context["conflict_count"], len(context["conflicts"])) == (2, 2)
    assert {"snapshot", "match", "model", "gate", "rewrite", "apply"} <= context["step_seconds"].keys()
    assert context["seconds"] == pytest.approx(sum(context["step_seconds"].values()))
    assert Path(context["run_dir"]).name == context["run_id"]
    assert TEXT not in json.dumps(context)


def test_a_scope_that_is_refused_beside_others_does_not_reject_the_pass(sqlite_memory):
    """Rejected means that the gate stopped everything; which scope it stopped, and why, stands in the context."""
    for text in (TEXT, "The search index is rebuilt at 02:30.", "Ann prefers short answers."):
        sqlite_memory.store_long_term(text, metadata={**ANN, "quality": 0.2})
    for _ in range(2):
        sqlite_memory.store_long_term(TEXT, metadata={"user_id": "bob", "session_id": "s1", "quality": 0.9})

    result = consolidator(stale_min_age_days=1, stale_max_importance=0.5).consolidate(sqlite_memory)

    assert (result.rejected, result.merged, result.entries_before, result.entries_after) == (False, 1, 5, 4)
    assert list(result.context["scopes"]) == ["ann"]
    assert result.context["scopes"]["ann"][0] in result.reason


def test_a_memory_on_sqlite_moves_up_what_the_policy_says(sqlite_memory):
    """In long term it has a new id, and the context says which."""
    sqlite_memory.store_short_term(TEXT, metadata=dict(ANN))

    result = consolidator(promote_min_age_days=1).consolidate(sqlite_memory)

    assert (result.promoted, result.loss_fraction, result.context["thresholds_left_out"]) == (1, 0.0, None)
    assert result.context["new_ids"] == {"short_term:1": "long_term:1"}
    assert [(each["type"], each["text"]) for each in sqlite_memory.get_all_memories()] == [("long_term", TEXT)]


def test_a_threshold_without_effect_is_named(file_memory):
    """A FileMemory moves its items itself, so a policy for that is left out."""
    file_memory.store_short_term(TEXT, metadata=dict(ANN))

    result = consolidator(promote_min_age_days=1).consolidate(file_memory)

    assert result.promoted == 0
    assert result.context["thresholds_left_out"] == (
        "promote_min_age_days left out: this store moves no memory from tier to tier (FileMemory does it by itself)"
    )


def test_what_another_process_writes_during_the_pass_survives(sqlite_memory):
    """The agent of another process stores a memory and changes a copy while this one plans."""
    for _ in range(3):
        sqlite_memory.store_long_term(TEXT, metadata=dict(ANN))
    sqlite_memory.store_short_term("The lift is out.", metadata=dict(ANN))
    moments = iter([NIGHT])

    def clock() -> datetime:
        if next(moments, None) is None and not written:
            written.append(_write_in_another_process(sqlite_memory.long_db))
        return NIGHT

    written: list[int] = []
    result = Consolidator(clock=clock).consolidate(sqlite_memory)

    assert written == [0]
    assert list(result.context["drifted"]) == ["long_term:2"]
    assert {each["text"] for each in sqlite_memory.get_all_memories()} == {
        TEXT,
        "The lift is out.",
        "Billing moved to port 9443.",
        "The gate opens at 7.",
    }


def _write_in_another_process(long_db: str) -> int:
    code = (
        "import sqlite3, sys; con = sqlite3.connect(sys.argv[1]);"
        "con.execute(\"update long_term_memory set content = 'Billing moved to port 9443.' where id = 2\");"
        "con.execute(\"insert into long_term_memory (content, metadata) values ('The gate opens at 7.', '{}')\");"
        "con.commit()"
    )
    return subprocess.run([sys.executable, "-c", code, long_db], check=False).returncode


@pytest.mark.parametrize("step", ["steps.take_snapshot", "steps.apply", "noting.note"])
def test_a_memory_that_agents_keep_busy_is_tried_again(live_memory, monkeypatch, step):
    """Nobody is there to start the pass again; what has landed by then is not written twice."""
    for text in (TEXT, TEXT, "The lift is out.", "The kitchen opens at 8."):
        live_memory.store_long_term(text, metadata=dict(ANN))
    refusals = iter([Transient("stayed locked"), Transient("stayed locked")])
    original = reduce(getattr, step.split("."), memfold_flows)

    def busy_twice(*arguments: Any, **options: Any) -> Any:
        if refusal := next(refusals, None):
            raise refusal
        return original(*arguments, **options)

    monkeypatch.setattr(f"memfold_flows.{step}", busy_twice)
    monkeypatch.setattr("memfold_flows.retries._PAUSES_SECONDS", (0, 0))

    result = consolidator().consolidate(live_memory)

    assert (result.merged, result.entries_after, len(live_memory.get_all_memories())) == (1, 3, 3)


def test_a_memory_that_stays_busy_is_an_error_that_says_so(sqlite_memory, monkeypatch):
    """After the third time."""
    sqlite_memory.store_long_term(TEXT, metadata=dict(ANN))
    sqlite_memory.store_short_term(TEXT, metadata=dict(ANN))
    monkeypatch.setattr("memfold_flows.retries._PAUSES_SECONDS", (0, 0))

    with closing(sqlite3.connect(sqlite_memory.long_db)) as agent:
        agent.execute("begin immediate")
        monkeypatch.setattr("memfold_flows.stores.praisonai_files.BUSY_SECONDS", 0.01)
        with pytest.raises(Transient, match=r"long_term_ann\.db stayed locked .* changed nothing"):
            consolidator().consolidate(sqlite_memory)


def test_strict_entries_make_the_result_count_copies_as_lost(live_memory):
    """The loss that PraisonAI computes from the result is the one that the gate held against the limit."""
    for text in (TEXT, TEXT, "The kitchen opens at 8.", "The lift is out."):
        live_memory.store_long_term(text, metadata=dict(ANN))

    result = consolidator(strict_entries=True).consolidate(live_memory)

    assert (result.merged, result.loss_fraction, result.exceeds_loss(0.25)) == (1, 0.25, False)


def test_importing_it_stays_light():
    """An agent's process pays for the libraries of a pass only when there is one."""
    code = (
        "import sys, memfold_flows.consolidator; print([n for n in ('prefect', 'duckdb', 'numba') if n in sys.modules])"
    )

    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout

    assert loaded == "[]\n"
