"""Live memories without files: what is removed by their own listing and deletes, and what is refused."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from memfold.contract import ConsolidationResult
from memfold.errors import BadRecord, BadUsage, StoreError
from memfold_flows.consolidator import AsyncConsolidator, Consolidator
from memfold_flows.runs import RunDirectory

NIGHT = datetime(2100, 1, 1, 3, 0, tzinfo=UTC)
PAGER = "The pager moves on Tuesday."
PORT = "The billing service listens on port 8443."
ANN = {"user_id": "ann", "session_id": "s1"}


class Shelf:
    """A memory of somebody's own: both tiers count from 1, deletes take the tier."""

    def __init__(self, *entries: dict[str, Any]) -> None:
        self.entries = list(entries)
        self.deleted: list[tuple[str, str]] = []

    def get_all_memories(self, **kwargs: Any) -> list[dict[str, Any]]:
        return list(self.entries)

    def delete_memory(self, memory_id: str, memory_type: str | None = None) -> bool:
        self.deleted.append((memory_type or "", memory_id))
        self.entries = [each for each in self.entries if (each["type"], each["id"]) != (memory_type, memory_id)]
        return True


class CarelessShelf(Shelf):
    """Removes the row of the other tier too, and says that all is well."""

    def delete_memory(self, memory_id: str, memory_type: str | None = None) -> bool:
        super().delete_memory(memory_id, memory_type)
        self.entries = [each for each in self.entries if each["id"] != memory_id]
        return True


class SealedShelf(Shelf):
    """Removes nothing, and says that all is well."""

    def delete_memory(self, memory_id: str, memory_type: str | None = None) -> bool:
        self.deleted.append((memory_type or "", memory_id))
        return True


class UntypedShelf(Shelf):
    """Takes an id only; which tier is meant is anybody's guess."""

    def delete_memory(self, memory_id: str) -> bool:  # type: ignore[override]
        raise AssertionError("an untyped delete was called")


class AwaitedShelf(Shelf):
    """Lists to callers that await, and notes on which loop."""

    loops: tuple[asyncio.AbstractEventLoop, ...] = ()

    async def aget_all_memories(self) -> list[dict[str, Any]]:
        self.loops += (asyncio.get_running_loop(),)
        return list(self.entries)

    def get_all_memories(self, **kwargs: Any) -> list[dict[str, Any]]:
        raise AssertionError("it was listed without being awaited")


def entry(tier: str, entry_id: str, text: object, **metadata: Any) -> dict[str, Any]:
    return {"id": entry_id, "type": tier, "text": text, "metadata": {**ANN, **metadata}}


def copies() -> list[dict[str, Any]]:
    """Two copies in long term, and short-term rows of the same ids that are other memories."""
    return [
        entry("short_term", "1", PORT),
        entry("short_term", "2", "The search index is rebuilt at 02:30."),
        entry("long_term", "1", PAGER),
        entry("long_term", "2", PAGER),
    ]


def consolidate(memory: object, **thresholds: Any) -> ConsolidationResult:
    return Consolidator(clock=lambda: NIGHT, **thresholds).consolidate(memory)


def test_a_copy_is_deleted_from_its_own_tier_only():
    """Both tiers count from 1, so the id alone would name two memories."""
    shelf = Shelf(*copies())

    result = consolidate(shelf)

    assert (result.entries_before, result.entries_after, result.merged, result.rejected) == (4, 3, 1, False)
    assert shelf.deleted == [("long_term", "2")]
    assert shelf.entries == copies()[:3]


def test_what_was_removed_stays_in_the_run_directory():
    """A live memory takes no row back, so the copy there is what a person can restore from."""
    result = consolidate(Shelf(*copies()))

    rows = RunDirectory.open(Path(result.context["run_dir"])).undo_rows({0}).to_pylist()
    assert [(row["memory_id"], row["into_id"]) for row in rows] == [("long_term:2", "long_term:1")]
    assert PAGER.encode() in rows[0]["raw"]


def test_a_command_cannot_reach_into_the_process_of_an_agent(command_line):
    """The run can be looked at; an undo says where the copies are."""
    run_id = consolidate(Shelf(*copies())).context["run_id"]

    assert command_line("show", run_id).code == 0
    undone = command_line("undo", run_id, "--yes")

    assert undone.code == 2
    assert "live:Shelf was a memory inside an agent's process, which no command can open" in undone.stderr
    assert "What was removed from it stays in undo/ of the run directory." in undone.stderr


def test_a_delete_that_takes_a_second_row_ends_the_pass_at_the_first():
    """The first delete goes alone and is looked up in the listing, whatever it returned."""
    shelf = CarelessShelf(*copies(), entry("long_term", "3", PAGER))

    with pytest.raises(StoreError, match="'short_term:2' is no longer listed after 1 deletes that did not name it"):
        consolidate(shelf)

    assert shelf.deleted == [("long_term", "2")]
    assert {(each["type"], each["id"]) for each in shelf.entries} == {
        ("short_term", "1"),
        ("long_term", "1"),
        ("long_term", "3"),
    }


def test_a_delete_that_does_nothing_is_noticed():
    """Its return value is not evidence: some backends report any id as deleted."""
    shelf = SealedShelf(*copies())

    with pytest.raises(StoreError, match="1 of 1 deletes had no effect on the SealedShelf memory"):
        consolidate(shelf)

    assert shelf.entries == copies()


class BrokenShelf(Shelf):
    """Its backend is away for one of the two calls."""

    def __init__(self, *entries: dict[str, Any], broken: str) -> None:
        super().__init__(*entries)
        self.broken = broken

    def get_all_memories(self, **kwargs: Any) -> list[dict[str, Any]]:
        if self.broken == "list":
            raise ConnectionError("the pager moves on Tuesday")
        return super().get_all_memories()

    def delete_memory(self, memory_id: str, memory_type: str | None = None) -> bool:
        raise TimeoutError("the pager moves on Tuesday")


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ("list", r"^the BrokenShelf memory failed to list its memories \(ConnectionError\); nothing more was removed$"),
        (
            "delete",
            r"^the BrokenShelf memory failed to delete 'long_term:2' \(TimeoutError\); no further delete was made\.",
        ),
    ],
)
def test_an_object_that_fails_ends_the_pass_with_what_was_not_done(broken, says):
    """The words of its own error may hold a memory, so only its kind is told."""
    shelf = BrokenShelf(*copies(), broken=broken)

    with pytest.raises(StoreError, match=says):
        consolidate(shelf)

    assert shelf.entries == copies()


def test_an_object_without_a_typed_delete_is_refused_unread():
    """It might remove an unrelated row of the other tier."""
    with pytest.raises(BadUsage, match=r"kind 'UntypedShelf' safely, and did not read it: it has no delete that takes"):
        consolidate(UntypedShelf(*copies()))


def test_memories_without_a_tier_stay():
    """No typed delete could name them."""
    shelf = Shelf(*({"id": each, "text": PAGER, "type": None, "metadata": dict(ANN)} for each in ("1", "2")))

    result = consolidate(shelf)

    assert (result.entries_after, result.merged, shelf.deleted) == (2, 0, [])


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        ({"results": []}, "lists no list but dict"),
        ([5], "entry 0 of the Listing memory has no id"),
        ([{"text": PAGER, "type": "long_term"}], "entry 0 of the Listing memory has no id"),
        ([entry("long_term", "1", PAGER)] * 2, "lists 'long_term:1' twice, so a delete could mean either"),
    ],
)
def test_a_listing_of_another_shape_is_an_error(entries, says):
    """A listing that is misread could look empty, or name the wrong row."""

    class Listing(Shelf):
        def get_all_memories(self, **kwargs: Any) -> Any:
            return entries

    with pytest.raises(BadRecord, match=says):
        consolidate(Listing())


def test_entries_that_praisonai_itself_cannot_read_stay():
    """No text, or metadata that is no JSON object: left alone, and counted."""
    shelf = Shelf(
        entry("long_term", "1", None),
        entry("long_term", "2", PAGER, at=datetime(2026, 1, 1)),
        {**entry("long_term", "3", PAGER), "metadata": ["ann"]},
    )

    result = consolidate(shelf)

    assert (result.entries_after, shelf.deleted) == (3, [])
    assert result.context["left_alone"] == {"no text, or metadata that is no JSON object": 3}


def test_users_sessions_and_trust_are_walls_here_too():
    """PraisonAI recalls by them, whatever the backend."""
    shelf = Shelf(
        entry("long_term", "1", PAGER),
        entry("long_term", "2", PAGER, user_id="bob"),
        entry("long_term", "3", PAGER, session_id="s2"),
        entry("long_term", "4", PAGER, trust="untrusted"),
    )

    result = consolidate(shelf)

    assert (result.merged, result.context["held"], shelf.deleted) == (0, 1, [])


def test_the_survivor_is_not_changed_and_the_result_says_what_was_left_out():
    """There is no update: metadata of the copy has no place to go."""
    shelf = Shelf(entry("long_term", "1", PAGER), entry("long_term", "2", PAGER, due="Friday"))

    result = consolidate(shelf)

    assert len(shelf.entries) == 1
    assert result.context["fields_left_out"] == ["metadata"]


def test_the_limit_over_thirty_days_holds_between_the_passes_over_one_object():
    """The ledger lives as long as the object."""
    shelf = Shelf(*(entry("long_term", str(number), f"Gate {number} opens.") for number in range(1, 9)))
    stale = {"stale_min_age_days": 1, "max_rolling_loss_fraction": 0.3}
    shelf.entries = [{**each, "created_at": 1_700_000_000.0} if int(each["id"]) < 3 else each for each in shelf.entries]
    assert consolidate(shelf, **stale).pruned == 2
    shelf.entries[0]["created_at"] = 1_700_000_000.0

    result = consolidate(shelf, **stale)

    assert (result.rejected, len(shelf.entries)) == (True, 6)
    assert "30 days" in result.reason


def test_passes_of_several_threads_take_turns():
    """What one of them removed is gone for the others; none fails, and nothing else leaves."""
    shelf = Shelf(*copies())
    begin = Barrier(3)

    def merged_by(_: int) -> int:
        begin.wait()
        return consolidate(shelf).merged

    with ThreadPoolExecutor(3) as threads:
        merged = list(threads.map(merged_by, range(3)))

    assert sorted(merged) == [0, 0, 1]
    assert shelf.entries == copies()[:3]


def test_the_async_listing_is_awaited_on_the_callers_loop():
    """Its connection belongs to that loop."""
    shelf = AwaitedShelf(*copies())

    async def consolidate_here() -> tuple[ConsolidationResult, asyncio.AbstractEventLoop]:
        result = await AsyncConsolidator(clock=lambda: NIGHT).aconsolidate(shelf)
        return result, asyncio.get_running_loop()

    result, loop = asyncio.run(consolidate_here())

    assert (result.merged, shelf.deleted) == (1, [("long_term", "2")])
    assert set(shelf.loops) == {loop}


def test_an_object_that_only_awaits_is_sent_to_the_async_consolidator():
    """There is no loop here to await on."""

    class OnlyAwaited:
        async def aget_all_memories(self) -> list[dict[str, Any]]:
            raise AssertionError("it was read")

    with pytest.raises(BadUsage, match="use AsyncConsolidator"):
        consolidate(OnlyAwaited())


def test_async_deletes_are_awaited_too():
    """PraisonAI's protocol for them is ``adelete_memory(memory_id, memory_type)``."""

    class Awaiting:
        def __init__(self) -> None:
            self.entries = copies()

        async def aget_all_memories(self) -> list[dict[str, Any]]:
            return list(self.entries)

        async def adelete_memory(self, memory_id: str, memory_type: str | None = None) -> bool:
            self.entries = [each for each in self.entries if (each["type"], each["id"]) != (memory_type, memory_id)]
            return True

    memory = Awaiting()

    result = asyncio.run(AsyncConsolidator(clock=lambda: NIGHT).aconsolidate(memory))

    assert result.merged == 1
    assert memory.entries == copies()[:3]


class Collection:
    """Chroma's collection as the adapter uses it: get, and a delete that knows any id."""

    def __init__(self, *rows: tuple[str, str, dict[str, Any]]) -> None:
        self.rows = {row_id: (text, metadata) for row_id, text, metadata in rows}

    def get(self, include: list[str]) -> dict[str, list[Any]]:
        texts, metadatas = zip(*self.rows.values(), strict=True)
        return {"ids": list(self.rows), "documents": list(texts), "metadatas": list(metadatas)}

    def delete(self, ids: list[str]) -> None:
        for row_id in ids:
            self.rows.pop(row_id, None)


@pytest.mark.praisonai
def test_a_chroma_memory_folds_in_its_one_collection(tmp_path, monkeypatch):
    """PraisonAI's own adapter over a collection with Chroma's interface; no SQLite file is made on the side."""
    monkeypatch.setenv("PRAISONAI_TELEMETRY_DISABLED", "true")
    monkeypatch.chdir(tmp_path)
    from praisonaiagents.memory import Memory
    from praisonaiagents.memory.adapters.factories import ChromaMemoryAdapter

    adapter = ChromaMemoryAdapter.__new__(ChromaMemoryAdapter)
    adapter.collection = Collection(("101", PAGER, dict(ANN)), ("102", PORT, dict(ANN)), ("103", PAGER, dict(ANN)))
    memory = Memory({"provider": "in_memory"})
    memory.memory_adapter, memory.provider = adapter, "chroma"
    before = sorted(tmp_path.rglob("*.db"))

    result = consolidate(memory)

    assert (result.entries_before, result.merged) == (3, 1)
    assert list(adapter.collection.rows) == ["101", "102"]
    assert sorted(tmp_path.rglob("*.db")) == before


@pytest.mark.praisonai
def test_an_in_memory_provider_folds_in_place(tmp_path, monkeypatch):
    """The object that the agent holds lists what the pass left; twins in both tiers stay."""
    monkeypatch.setenv("PRAISONAI_TELEMETRY_DISABLED", "true")
    monkeypatch.chdir(tmp_path)
    from praisonaiagents.memory import Memory

    memory = Memory({"provider": "in_memory"})
    for store in (memory.store_short_term, memory.store_long_term, memory.store_long_term):
        store(PAGER, metadata=dict(ANN))
    memory.store_long_term(PORT)

    result = consolidate(memory)

    assert (result.entries_before, result.entries_after, result.merged) == (4, 3, 1)
    assert [(each["type"], each["text"]) for each in memory.get_all_memories()] == [
        ("short", PAGER),
        ("long", PAGER),
        ("long", PORT),
    ]


@pytest.mark.praisonai
def test_a_closed_memory_is_refused(tmp_path, monkeypatch):
    """PraisonAI lists it as empty, without an error."""
    monkeypatch.setenv("PRAISONAI_TELEMETRY_DISABLED", "true")
    monkeypatch.chdir(tmp_path)
    from praisonaiagents.memory import Memory

    memory = Memory({"provider": "in_memory"})
    memory.store_long_term(PAGER)
    memory.close_connections()

    with pytest.raises(BadUsage, match="it is closed, so its listing would look empty"):
        consolidate(memory)


def test_mem0_is_refused_with_the_reason():
    """PraisonAI's adapter fails on what its client lists, and no delete of it can be told from a failed one."""

    class Mem0Memory(Shelf):
        provider = "mem0"

    memory = Mem0Memory(*copies())

    with pytest.raises(BadUsage, match=r"kind 'mem0' safely, and did not read it: .* reports any delete as done"):
        consolidate(memory)
    assert memory.deleted == []
