"""Live memories that have no files to open: PraisonAI's ``in_memory`` and Chroma, and objects of people's own.

The least powerful path. Such an object lists its memories and deletes one of them at a time; it has no update, no
transaction and no insert under an id. So copies are only removed, never changed or moved up, and the ledger lives no
longer than the object. What a delete did is looked up in the listing, as its return value is not to be relied on:
Chroma reports any id as deleted, and an untyped delete of the SQLite kind removes a second, unrelated row. The first
delete of a pass goes alone; only where exactly that row is gone do the others follow.
"""

from __future__ import annotations

import inspect
import json
import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from threading import Lock, RLock
from typing import Any
from weakref import WeakKeyDictionary

import pyarrow as pa

from memfold.errors import BadRecord, BadUsage, StoreError, Transient
from memfold.memory import Memory
from memfold_flows.stores.base import StoredRow, StoreTraits, Update
from memfold_flows.stores.batches import memories_batch
from memfold_flows.stores.bookkeeping import Bookkeeping
from memfold_flows.stores.ledger_tables import SqliteTables
from memfold_flows.stores.praisonai_rows import (
    LONG_TERM,
    SHORT_TERM,
    TIERS,
    UNREADABLE,
    Group,
    Row,
    as_copy,
    read_memory,
)

#: Runs a coroutine of the memory on the loop that the memory belongs to, and returns what came of it.
Wait = Callable[[Awaitable[Any]], Any]

_TRAITS = StoreTraits(
    places=frozenset(),
    session_recall="equality",
    no_promotion="a live memory could only store it again, with another id and time",
    rows_per_transaction=None,
)
_TIERS = {"short": SHORT_TERM, "short_term": SHORT_TERM, "long": LONG_TERM, "long_term": LONG_TERM}
#: The parameter by which ``delete_memory`` takes the tier, and what each tier is called there.
_TIER_NAMES = {
    "memory_type": {tier: tier for tier in TIERS},
    "tier": {SHORT_TERM: "short", LONG_TERM: "long"},
}
_BUSY_SECONDS = 2.0
_REMOVED_AND_STAY = "The rows that were removed have a twin that stays, and full copies in the run directory."


@dataclass(frozen=True, slots=True)
class Calls:
    """The two calls that a live memory offers: the listing, and the delete of an id in a tier."""

    kind: str
    entries: Callable[[], Any]
    delete: Callable[[str, Any], Any]


def find_calls(memory: Any, *, wait: Wait | None = None) -> Calls:
    """What this object offers; with ``wait``, its coroutines too.

    Raises:
        BadUsage: it cannot be changed safely, and why; it was not read.
    """
    kind = str(getattr(memory, "provider", None) or type(memory).__name__)
    if kind == "mem0" or hasattr(memory, "mem0_client"):
        raise _refusal(kind, "its listing has another shape than PraisonAI expects, and it reports any delete as done")
    if hasattr(memory, "memory_adapter") and memory.memory_adapter is None:
        raise _refusal(kind, "it is closed, so its listing would look empty")
    return Calls(kind, _listing(memory, kind, wait), _deleting(memory, kind, wait))


class LiveStore:
    """A memory in this process, by its own listing and deletes."""

    traits = _TRAITS

    def __init__(self, memory: object, calls: Calls) -> None:
        self.url = f"live:{calls.kind}"
        self._calls = calls
        self._ledger = _ledger_of(memory)
        #: Why rows of the last snapshot are left alone, and how many.
        self.left_alone: Counter[str] = Counter()

    def snapshot(self, scopes: Collection[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Every memory that the object lists; one without a tier is protected, as no delete would be safe."""
        listed = _read(self._calls)
        self.left_alone = Counter(why for each in listed.values() if (why := _why_left_alone(each.memory)))
        yield memories_batch(each.memory for each in listed.values() if scopes is None or each.memory.scope in scopes)

    @contextmanager
    def ledger(self) -> Iterator[Bookkeeping]:
        """The bookkeeping of this object, which ends with it.

        Raises:
            Transient: another pass of this process is writing.
        """
        with self._ledger.alone() as connection:
            yield Bookkeeping(SqliteTables(connection))

    @contextmanager
    def transaction(self) -> Iterator[LiveTransaction]:
        """Deletes that are made at the end of the block, each looked up in the listing after.

        Raises:
            Transient: another pass of this process is writing.
            StoreError: a delete did nothing, or removed more than its row; no further one was made.
        """
        with self._ledger.alone() as connection:
            connection.execute("begin")
            try:
                ledger = Bookkeeping(SqliteTables(connection))
                ledger.prepare()
                transaction = LiveTransaction(_read(self._calls), ledger)
                yield transaction
                transaction.remove(self._calls)
                connection.execute("commit")
            finally:
                if connection.in_transaction:
                    connection.execute("rollback")

    def close(self) -> None:
        """The memory belongs to its agent."""


@dataclass(frozen=True, slots=True)
class _Listed:
    entry: Mapping[str, Any]
    memory: Memory


class LiveTransaction:
    """The listing as it stood at the beginning, and the rows that are to go."""

    def __init__(self, listed: Mapping[str, _Listed], ledger: Bookkeeping) -> None:
        self.ledger = ledger
        self._listed = listed
        self._going: set[str] = set()

    def read(self, ids: Collection[str]) -> dict[str, StoredRow]:
        """The rows of these typed ids."""
        there = self._there()
        return {name: StoredRow(there[name].memory, _encode(there[name].entry)) for name in ids if name in there}

    def count(self, scope: str) -> int:
        """How many memories the scope holds now."""
        return sum(each.memory.scope == scope for each in self._there().values())

    def delete(self, ids: Collection[str]) -> None:
        """Let these rows go at the end of the block."""
        self._going |= set(ids)

    def update(self, updates: Sequence[Update]) -> None:
        """Refused: a live memory has no update."""
        if updates:
            raise StoreError(f"a live memory cannot be changed in place; {len(updates)} rows were not changed")

    def promote(self, rows: Mapping[str, StoredRow], tier: str) -> dict[str, str]:
        """Refused: stored again, a memory would lose its time."""
        raise StoreError(f"a live memory moves nothing to {tier}; {len(rows)} rows were not moved")

    def restore(self, raws: Mapping[str, bytes]) -> set[str]:
        """Refused: a live memory stores nothing under an id of the past."""
        raise StoreError(f"a live memory cannot take rows back; {len(raws)} were not restored, their copies stay")

    def remove(self, calls: Calls) -> None:
        """Make the deletes: one alone, then the others."""
        first, rest = sorted(self._going)[:1], sorted(self._going)[1:]
        gone: set[str] = set()
        for ids in (first, rest):
            for memory_id in ids:
                listed = self._listed[memory_id]
                _delete(calls, listed)
            if ids:
                gone |= set(ids)
                self._require_gone(gone, calls)

    def _require_gone(self, gone: set[str], calls: Calls) -> None:
        now = _read(calls).keys()
        if still := sorted(gone & now):
            raise StoreError(
                f"{len(still)} of {len(gone)} deletes had no effect on the {calls.kind} memory, "
                f"such as that of {still[0]!r}; no further one was made. {_REMOVED_AND_STAY}"
            )
        if others := sorted(self._listed.keys() - gone - now):
            raise StoreError(
                f"{others[0]!r} is no longer listed after {len(gone)} deletes that did not name it; no further one was "
                f"made. {_REMOVED_AND_STAY} The snapshot there has {others[0]!r} too."
            )

    def _there(self) -> dict[str, _Listed]:
        return {name: each for name, each in self._listed.items() if name not in self._going}


def _refusal(kind: str, why: str) -> BadUsage:
    return BadUsage(
        f"memfold cannot change a memory of kind {kind!r} safely, and did not read it: {why}. It takes PraisonAI's "
        "FileMemory, its Memory on sqlite, in_memory or chroma, and objects with get_all_memories and typed deletes."
    )


def _listing(memory: Any, kind: str, wait: Wait | None) -> Callable[[], Any]:
    if wait is not None and hasattr(memory, "aget_all_memories"):
        return lambda: wait(memory.aget_all_memories())
    get_all = getattr(memory, "get_all_memories", None)
    if callable(get_all):
        return get_all  # type: ignore[no-any-return]
    if hasattr(memory, "aget_all_memories"):
        raise _refusal(kind, "it lists its memories to callers that await; use AsyncConsolidator")
    raise _refusal(kind, "it has no get_all_memories")


def _deleting(memory: Any, kind: str, wait: Wait | None) -> Callable[[str, Any], Any]:
    if kind in ("chroma", "ChromaMemoryAdapter"):
        # Both tiers are one collection, listed as long term. PraisonAI's own delete would also make SQLite files.
        collection = getattr(memory, "memory_adapter", memory).collection
        return lambda tier, entry_id: collection.delete(ids=[entry_id])
    by_tier = {tier: getattr(memory, f"delete_{tier}", None) for tier in TIERS}
    if all(callable(delete) for delete in by_tier.values()):
        return lambda tier, entry_id: by_tier[tier](entry_id)  # type: ignore[misc]
    if found := _typed_delete(getattr(memory, "delete_memory", None)):
        return found
    if wait is not None and (awaitable := _typed_delete(getattr(memory, "adelete_memory", None))):
        return lambda tier, entry_id: wait(awaitable(tier, entry_id))
    raise _refusal(
        kind,
        "it has no delete that takes a tier, and one that does not may remove a second row: an id may stand in both",
    )


def _typed_delete(delete: Any) -> Callable[[str, Any], Any] | None:
    if not callable(delete):
        return None
    try:
        parameters = inspect.signature(delete).parameters
    except (TypeError, ValueError):
        return None
    for name, tiers in _TIER_NAMES.items():
        if name in parameters:
            return lambda tier, entry_id: delete(entry_id, **{name: tiers[tier]})
    return None


def _delete(calls: Calls, listed: _Listed) -> None:
    try:
        calls.delete(listed.memory.tier or "", listed.entry["id"])
    except Exception as error:
        raise StoreError(
            f"the {calls.kind} memory failed to delete {listed.memory.memory_id!r} ({type(error).__name__}); "
            f"no further delete was made. {_REMOVED_AND_STAY}"
        ) from error


def _read(calls: Calls) -> dict[str, _Listed]:
    """What the object lists now, by typed id.

    Raises:
        BadRecord: the listing is no list of entries with an id, or an id stands twice in a tier.
        StoreError: the object failed to list them.
    """
    try:
        entries = calls.entries()
    except Exception as error:
        raise StoreError(
            f"the {calls.kind} memory failed to list its memories ({type(error).__name__}); nothing more was removed"
        ) from error
    if not isinstance(entries, list | tuple):
        raise BadRecord(f"the {calls.kind} memory lists no list but {type(entries).__name__}; nothing was planned")
    listed: dict[str, _Listed] = {}
    firsts: dict[Group, str] = {}
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict) or not isinstance(entry.get("id"), str | int) or entry["id"] == "":
            raise BadRecord(f"entry {number} of the {calls.kind} memory has no id; nothing was planned or removed")
        memory = _memory(entry, firsts)
        if memory.memory_id in listed:
            raise BadRecord(
                f"the {calls.kind} memory lists {memory.memory_id!r} twice, so a delete could mean either; "
                "nothing was planned or removed"
            )
        listed[memory.memory_id] = _Listed(entry, memory)
    return listed


def _memory(entry: Mapping[str, Any], firsts: dict[Group, str]) -> Memory:
    tier = _TIERS.get(str(entry.get("type") or entry.get("memory_type")))
    text = entry.get("text") if isinstance(entry.get("text"), str) else entry.get("content")
    row = Row(entry["id"], text, _metadata(entry.get("metadata")), entry.get("timestamp"))
    memory = as_copy(read_memory(tier or "untyped", row), firsts)
    memory = replace(memory, tier=tier, created_at=memory.created_at or _moment(entry.get("created_at")))
    return memory if tier else replace(memory, protected=True)


def _why_left_alone(memory: Memory) -> str | None:
    if memory.tier is None:
        return "no tier, so that no delete could name them"
    return "no text, or metadata that is no JSON object" if memory.kind == UNREADABLE else None


def _metadata(metadata: object) -> object:
    """As JSON text; what cannot be written as JSON comes back as it is, which makes the row one to leave alone."""
    if metadata is None:
        return None
    try:
        return json.dumps(metadata)
    except (TypeError, ValueError, RecursionError):
        return metadata


def _moment(value: object) -> datetime | None:
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value, UTC)
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    except (ValueError, OverflowError, OSError):
        return None
    if not isinstance(moment, datetime):
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _encode(entry: Mapping[str, Any]) -> bytes:
    return json.dumps(entry, default=str).encode()


class _Ledger:
    """The ledger of one object, which one pass uses at a time."""

    def __init__(self) -> None:
        self._connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._lock = RLock()

    @contextmanager
    def alone(self) -> Iterator[sqlite3.Connection]:
        # With an end to the waiting: a pass that holds it may itself wait for the loop that this thread belongs to.
        if not self._lock.acquire(timeout=_BUSY_SECONDS):
            raise Transient("another pass is writing this memory; nothing was written. Try again in a moment.")
        try:
            yield self._connection
        finally:
            self._lock.release()


_ledgers: WeakKeyDictionary[Any, _Ledger] = WeakKeyDictionary()
_ledgers_lock = Lock()


def _ledger_of(memory: object) -> _Ledger:
    """The ledger that this object was given on its first pass, so that the limit over 30 days holds between passes."""
    try:
        with _ledgers_lock:
            return _ledgers.setdefault(memory, _Ledger())
    except TypeError:  # it cannot be remembered by: each of its passes stands alone
        return _Ledger()
