"""``praisonai-file:`` the JSON files of PraisonAI's ``FileMemory``, one list of items per tier.

``FileMemory`` knows no lock between processes, keeps its lists in memory, and reads a damaged file as an empty one. So
a file is read strictly, its bytes are compared again right before it is replaced, and the two files land by a journal
(``praisonai_landing.py``). What cannot be closed is the moment between that comparison and the last rename, measured at
0.1 ms in the middle and 1 ms at most over 200 landings of two small files: an agent of another process that writes just
then loses its write, as it may to any other agent. Let agents rest while this store is consolidated.

Items have seven keys and no more: with an eighth ``FileMemory`` does not start. Its counter of accesses never counts,
so how often an item was used is unknown; it moves items to long term by itself, so memfold does not.
"""

from __future__ import annotations

import json
from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from memfold.errors import BadRecord, BadUsage, StoreError
from memfold.memory import Memory
from memfold_flows.stores import bookkeeping
from memfold_flows.stores.base import Ledger, StoredRow, StoreTraits, Update
from memfold_flows.stores.batches import memories_batch
from memfold_flows.stores.bookkeeping import Bookkeeping
from memfold_flows.stores.praisonai_landing import MISSING, FilesLanding, file_digest
from memfold_flows.stores.praisonai_rows import LONG_TERM, TIERS, Group, Row, as_copy, read_memory, typed_id
from memfold_flows.stores.urls import format_url, local_path

OPTIONS = {"user": "the user whose folder is meant, where the path is the folder above"}

_TRAITS = StoreTraits(
    places=frozenset({"metadata", "importance"}),
    session_recall="equality",
    no_promotion="FileMemory does it by itself",
    rows_per_transaction=None,
)
_KEYS = {"id", "content", "metadata", "created_at", "updated_at", "access_count", "importance"}

Item = dict[str, Any]


def open_store(path: str, options: Mapping[str, str]) -> PraisonAIFileStore:
    """Open the ``FileMemory`` in a folder, or that of one user in the folder above.

    Raises:
        BadUsage: the folder holds the memories of several users and none was chosen.
        StoreError: there is no ``FileMemory``, or a file of it is damaged; nothing is created.
    """
    return PraisonAIFileStore(_find(local_path(path), options.get("user")))


class PraisonAIFileStore:
    """One user's ``FileMemory``: ``short_term.json`` and ``long_term.json`` in a folder."""

    traits = _TRAITS

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._landing = FilesLanding(folder)
        self.url = format_url("praisonai-file", folder)
        self.pass_lock = self._landing.pass_lock
        self.was_recovered = self._landing.recover()
        _read_all(folder)

    def snapshot(self, scopes: Collection[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Every item of both tiers; a damaged file is an error, never an empty memory."""
        for _, memories in _memories(_read_all(self._folder)).items():
            yield memories_batch(each for each in memories if scopes is None or each.scope in scopes)

    def ledger(self) -> AbstractContextManager[Ledger | None]:
        """The bookkeeping in ``.memfold/`` of the folder, for reading only."""
        return bookkeeping.reading(self._landing.readable_ledger())

    @contextmanager
    def transaction(self) -> Iterator[PraisonAIFileTransaction]:
        """One rewrite of both files and the ledger.

        Raises:
            Transient: another memfold is at work on this memory.
            StoreError: an agent wrote a file meanwhile; nothing was written.
        """
        with self._landing.locked():
            as_read = {_name(tier): file_digest(self._folder / _name(tier)) for tier in TIERS}
            self._landing.begin()
            with bookkeeping.writing(self._landing.next_ledger) as ledger:
                transaction = PraisonAIFileTransaction(_read_all(self._folder), ledger)
                yield transaction
                contents = transaction.contents()
            if contents:
                self._landing.land(contents, as_read)
            else:
                self._landing.land_ledger()

    def close(self) -> None:
        """Nothing is kept open between calls."""


class LiveFileStore(PraisonAIFileStore):
    """The files of a ``FileMemory`` that lives in this process: its lock is held while they are rewritten.

    All its users share that lock, and ``reload`` brings what was written into the lists that it keeps in memory.
    """

    def __init__(self, folder: Path, *, lock: AbstractContextManager[Any], reload: Callable[[], None]) -> None:
        with lock:
            super().__init__(folder)
            if self.was_recovered:
                reload()
        self._lock = lock
        self._reload = reload

    @contextmanager
    def transaction(self) -> Iterator[PraisonAIFileTransaction]:
        with self._lock:
            with super().transaction() as transaction:
                yield transaction
            self._reload()


@dataclass(slots=True)
class _Place:
    """An item and where it stood when the file was read; restored items stand where they stood once."""

    position: int
    item: Item


class PraisonAIFileTransaction:
    """The items of both tiers in memory, until the files are rewritten at the end of the block."""

    def __init__(self, tiers: Mapping[str, Sequence[Item]], ledger: Bookkeeping) -> None:
        self.ledger = ledger
        self._places = {tier: _numbered(tier, items) for tier, items in tiers.items()}
        self._changed: set[str] = set()
        self._away: dict[str, list[int]] = {tier: [] for tier in TIERS}

    def read(self, ids: Collection[str]) -> dict[str, StoredRow]:
        """The items of these typed ids as they stand now."""
        wanted = set(ids)
        return {
            memory.memory_id: StoredRow(memory, _encode(tier, self._places[tier][memory.memory_id]))
            for tier, memories in _memories(self._items()).items()
            for memory in memories
            if memory.memory_id in wanted
        }

    def count(self, scope: str) -> int:
        """How many items of both tiers the scope holds now."""
        return sum(each.scope == scope for memories in _memories(self._items()).values() for each in memories)

    def delete(self, ids: Collection[str]) -> None:
        """Remove these items, each from its own tier."""
        for memory_id in ids:
            tier = _tier_of(memory_id)
            del self._places[tier][memory_id]
            self._changed.add(tier)

    def update(self, updates: Sequence[Update]) -> None:
        """Write the folded metadata and importance; all else of the item stays as it is."""
        for update in updates:
            tier = _tier_of(update.before.memory_id)
            item = self._places[tier][update.before.memory_id].item
            if update.after.metadata != update.before.metadata:
                _set(item, "metadata", None if update.after.metadata is None else json.loads(update.after.metadata))
            if update.after.importance != update.before.importance:
                _set(item, "importance", update.after.importance)
            self._changed.add(tier)

    def promote(self, rows: Mapping[str, StoredRow], tier: str) -> dict[str, str]:
        """Refused: ``FileMemory`` does it itself, and drops items where long term is full."""
        raise StoreError(f"a FileMemory moves items to {tier} by itself; {len(rows)} were not moved")

    def stay_away(self, raws: Mapping[str, bytes]) -> None:
        """These went with the items to be restored, so they are not counted in the places of those."""
        for tier, place in map(_decode, raws.values()):
            insort(self._away[tier], place.position)

    def restore(self, raws: Mapping[str, bytes]) -> set[str]:
        """Put removed items back where they stood in the list."""
        rows = {memory_id: _decode(raw) for memory_id, raw in raws.items()}
        taken = {memory_id for memory_id, (tier, _) in rows.items() if memory_id in self._places[tier]}
        for tier in TIERS:
            back = [place for memory_id, (its, place) in rows.items() if its == tier and memory_id not in taken]
            if back:
                items = self._items()[tier]
                for place in sorted(back, key=lambda place: place.position):
                    items.insert(place.position - bisect_left(self._away[tier], place.position), place.item)
                self._places[tier] = _numbered(tier, items)
                self._changed.add(tier)
        return taken

    def contents(self) -> dict[str, bytes]:
        """The new bytes of each file that changes, long term first, written as ``FileMemory`` writes them."""
        items = self._items()
        return {
            _name(tier): json.dumps(items[tier], indent=2, ensure_ascii=False).encode()
            for tier in (LONG_TERM, *TIERS)
            if tier in self._changed
        }

    def _items(self) -> dict[str, list[Item]]:
        return {
            tier: [place.item for place in sorted(places.values(), key=lambda place: place.position)]
            for tier, places in self._places.items()
        }


def _numbered(tier: str, items: Sequence[Item]) -> dict[str, _Place]:
    return {typed_id(tier, item["id"]): _Place(number, item) for number, item in enumerate(items)}


def _find(path: Path, user: str | None) -> Path:
    if user is not None:
        path = path / user
    if _is_memory(path):
        return path
    if not path.is_dir():
        raise StoreError(f"there is no folder {path}; nothing was created. Name the folder of a FileMemory")
    users = sorted(folder for folder in path.iterdir() if _is_memory(folder))
    if len(users) == 1:
        return users[0]
    if users:
        names = ", ".join(folder.name for folder in users)
        raise BadUsage(f"{path} holds the memories of {len(users)} users ({names}); choose one with ?user=NAME")
    raise StoreError(f"{path} holds no short_term.json and no long_term.json; nothing was created")


def _is_memory(folder: Path) -> bool:
    return any((folder / _name(tier)).is_file() for tier in TIERS)


def _read_all(folder: Path) -> dict[str, list[Item]]:
    """The items of both tiers; a tier that no agent has written yet has no file.

    Raises:
        StoreError: a file is missing by now, unreadable, or no list in JSON.
        BadRecord: an item is not what ``FileMemory`` writes, so no agent could start on it.
    """
    if not _is_memory(folder):
        raise StoreError(f"{folder} holds no short_term.json and no long_term.json any more; nothing was written")
    return {tier: _read(folder / _name(tier)) for tier in TIERS}


def _read(file: Path) -> list[Item]:
    if file_digest(file) == MISSING:
        return []
    try:
        items = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{file} is not JSON; PraisonAI would read it as empty and overwrite it. Repair it") from error
    except OSError as error:
        raise StoreError(f"{file} could not be read: {error.strerror}") from error
    if not isinstance(items, list):
        raise StoreError(f"{file} is not a list of items, so it is no {file.stem} memory of PraisonAI")
    seen: set[str] = set()
    for number, item in enumerate(items):
        if problem := _problem(item, seen):
            raise BadRecord(f"{file}: item {number} {problem}; nothing was planned or written. Correct that item.")
        seen.add(item["id"])
    return items


def _problem(item: object, seen: set[str]) -> str | None:
    if not isinstance(item, dict):
        return "is not an object"
    if unknown := set(item) - _KEYS:
        return f"has the key {min(unknown)!r}, with which FileMemory does not start"
    if not isinstance(item.get("id"), str) or not item["id"]:
        return "has no id"
    if not isinstance(item.get("content"), str):
        return "has no text as its content"
    return f"has the id {item['id']!r}, as another item of this tier has" if item["id"] in seen else None


def _memories(tiers: Mapping[str, Sequence[Item]]) -> dict[str, list[Memory]]:
    """The memories of each tier, the oldest of each group of repeated turns protected."""
    found: dict[str, list[Memory]] = {}
    for tier, items in tiers.items():
        firsts: dict[Group, str] = {}
        found[tier] = [as_copy(_memory(tier, item), firsts) for item in items]
    return found


def _memory(tier: str, item: Item) -> Memory:
    metadata = json.dumps(item["metadata"]) if "metadata" in item else None
    memory = read_memory(tier, Row(item["id"], item["content"], metadata, None))
    return replace(memory, importance=_importance(item), created_at=_moment(item.get("created_at")))


def _importance(item: Item) -> float | None:
    value = item.get("importance")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= 1 else None


def _moment(seconds: object) -> datetime | None:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _encode(tier: str, place: _Place) -> bytes:
    return json.dumps({"tier": tier, "position": place.position, "item": place.item}).encode()


def _decode(raw: bytes) -> tuple[str, _Place]:
    row = json.loads(raw)
    return row["tier"], _Place(row["position"], row["item"])


def _set(item: Item, key: str, value: object) -> None:
    if value is None:
        item.pop(key, None)
    else:
        item[key] = value


def _tier_of(memory_id: str) -> str:
    return memory_id.partition(":")[0]


def _name(tier: str) -> str:
    return f"{tier}.json"
