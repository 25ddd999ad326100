"""The rows of one archive: read in one passage, indexed by id, and changed in one transaction.

A row is a place (its number in the file, from 0) and a body (its bytes).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Protocol

import numpy as np

from memfold.errors import BadRecord, StoreError
from memfold.memory import Memory, canonical_json
from memfold_flows.stores.archive_fields import SCOPE_FIELDS, FieldReader
from memfold_flows.stores.archive_landing import Fingerprint, was_written
from memfold_flows.stores.base import Ledger, StoredRow, Update


@dataclass(frozen=True, slots=True)
class Edits:
    """What a rewrite changes, by place. Inserted rows come back where they stood: at the place they have here."""

    removed: frozenset[int]
    changed: Mapping[int, bytes]
    inserted: Sequence[tuple[int, bytes]]

    def __bool__(self) -> bool:
        return bool(self.removed or self.changed or self.inserted)


class Source(Protocol):
    """One archive file, open for reading."""

    def memories(self) -> Iterator[tuple[int, Memory]]:
        """Every memory with its place, in the order of the file.

        Raises:
            BadRecord: a row cannot be read; the message names its place.
        """
        ...

    def fetch(self, places: Sequence[int]) -> Iterator[tuple[int, bytes, Memory]]:
        """The rows at these places, which are in order; only after ``memories`` went through the file."""
        ...

    def memory(self, body: bytes) -> Memory:
        """The memory that a body holds."""
        ...

    def changed(self, body: bytes, before: Memory, after: Memory) -> bytes:
        """The body with the fields that differ between the two memories set to those of ``after``, nothing else."""
        ...

    def rewrite(self, file: BinaryIO, edits: Edits) -> None:
        """Write the archive with these edits; what is not edited keeps its bytes as far as the format allows."""
        ...

    def name_place(self, place: int) -> str:
        """The place in words, as an error names it: ``line 17``."""
        ...

    def without_memories(self) -> str:
        """What is wrong with a file in which ``memories`` found none, and what to do."""
        ...


class Reading:
    """One passage through an archive, which leaves an index of its ids and the number of memories per scope."""

    def __init__(
        self,
        path: Path,
        open_source: Callable[[Path, FieldReader], Source],
        scope_fields: tuple[str, ...] | None,
    ) -> None:
        self._path = path
        self._fields = FieldReader(scope_fields or SCOPE_FIELDS)
        self._must_have_scope = scope_fields
        self.source = open_source(path, self._fields)
        self.scopes: Counter[str] = Counter()
        self._index = IdIndex()

    def memories(self) -> Iterator[Memory]:
        """Every memory, in the order of the file.

        Raises:
            BadRecord: a row cannot be read, or two rows have one id.
            StoreError: there is no memory in the file, or none has a field that was named as its scope.
        """
        for place, memory in self.source.memories():
            self._index.add(memory.memory_id, place)
            self.scopes[memory.scope] += 1
            yield memory
        self._require_single_ids()
        if not self.scopes and not was_written(self._path):
            raise StoreError(f"{self._path} {self.source.without_memories()}")
        if self._must_have_scope and self.scopes and not self._fields.saw_a_scope:
            named = ", ".join(self._must_have_scope)
            raise StoreError(f"no record of {self._path} has {named}, named by ?scope=; nothing was planned or written")

    def rows(self, ids: Collection[str]) -> Iterator[tuple[int, bytes, Memory]]:
        """The rows of these ids, after ``memories`` has been used up."""
        wanted = set(ids)
        places = sorted({place for memory_id in wanted for place in self._index.places(memory_id)})
        return (row for row in self.source.fetch(places) if row[2].memory_id in wanted)

    def _require_single_ids(self) -> None:
        for places in self._index.shared():
            first: dict[str, int] = {}
            for place, _, memory in self.source.fetch(places):
                other = first.setdefault(memory.memory_id, place)
                if other != place:
                    raise BadRecord(
                        f"{self._path.name}: {self.source.name_place(other)} and {self.source.name_place(place)} have "
                        f"the same id {memory.memory_id!r}; nothing was planned or written. Give one another id."
                    )


class IdIndex:
    """Where each id stands, in 16 bytes a row; an id may have companions that only share its hash."""

    def __init__(self) -> None:
        self._hashes = array("q")
        self._places = array("q")
        self._sorted: tuple[np.ndarray, np.ndarray] | None = None

    def add(self, memory_id: str, place: int) -> None:
        # Python's own hash: it never leaves this process.
        self._hashes.append(hash(memory_id))
        self._places.append(place)

    def places(self, memory_id: str) -> list[int]:
        """The places where this id may stand, in order."""
        hashes, places = self._in_order()
        first, last = (np.searchsorted(hashes, hash(memory_id), side) for side in ("left", "right"))
        return [int(place) for place in places[first:last]]

    def shared(self) -> Iterator[list[int]]:
        """The places of each hash that came more than once, in order."""
        hashes, places = self._in_order()
        for hashed in np.unique(hashes[1:][hashes[1:] == hashes[:-1]]):
            first, last = (np.searchsorted(hashes, hashed, side) for side in ("left", "right"))
            yield [int(place) for place in places[first:last]]

    def _in_order(self) -> tuple[np.ndarray, np.ndarray]:
        if self._sorted is None:
            hashes = np.array(self._hashes, dtype=np.int64)
            order = np.argsort(hashes, kind="stable")
            self._sorted = hashes[order], np.array(self._places, dtype=np.int64)[order]
        return self._sorted


@dataclass(slots=True)
class _Row:
    place: int
    body: bytes
    memory: Memory
    is_inserted: bool = False


class ArchiveTransaction:
    """The changes to one archive, collected until it is rewritten."""

    def __init__(self, ledger: Ledger, begin_reading: Callable[[], tuple[Reading, Fingerprint]]) -> None:
        self.ledger = ledger
        self._begin_reading = begin_reading
        self._begun: tuple[Reading, Fingerprint] | None = None
        self._rows: dict[str, _Row | None] = {}
        self._removed: set[int] = set()
        self._changed: dict[int, bytes] = {}
        self._places_away: list[int] = []

    @property
    def reading(self) -> Reading:
        """The passage through the archive; a transaction that only keeps the books never makes it."""
        return self._start()[0]

    @property
    def as_read(self) -> Fingerprint:
        """The state of the archive when the passage began."""
        return self._start()[1]

    def read(self, ids: Collection[str]) -> dict[str, StoredRow]:
        self._load(ids)
        found = ((memory_id, self._rows[memory_id]) for memory_id in ids)
        return {memory_id: StoredRow(row.memory, pack(row.place, row.body)) for memory_id, row in found if row}

    def count(self, scope: str) -> int:
        return self.reading.scopes[scope]

    def delete(self, ids: Collection[str]) -> None:
        for memory_id in ids:
            row = self._row(memory_id)
            self._rows[memory_id] = None
            self.reading.scopes[row.memory.scope] -= 1
            if not row.is_inserted:
                self._changed.pop(row.place, None)
                self._removed.add(row.place)

    def update(self, updates: Sequence[Update]) -> None:
        for update in updates:
            row = self._row(update.after.memory_id)
            body = self.reading.source.changed(row.body, update.before, update.after)
            self._set(row, self._as_before(body, update.raw))

    def promote(self, rows: Mapping[str, StoredRow], tier: str) -> dict[str, str]:
        self.update([Update(row.memory, replace(row.memory, tier=tier)) for row in rows.values()])
        return {memory_id: memory_id for memory_id in rows}

    def stay_away(self, raws: Mapping[str, bytes]) -> None:
        self._places_away = sorted(unpack(raw)[0] for raw in raws.values())

    def restore(self, raws: Mapping[str, bytes]) -> set[str]:
        self._load(raws)
        taken = {memory_id for memory_id in raws if self._rows[memory_id] is not None}
        for memory_id, raw in raws.items():
            if memory_id not in taken:
                place, body = unpack(raw)
                place -= bisect_left(self._places_away, place)
                memory = self.reading.source.memory(body)
                self._rows[memory_id] = _Row(place, body, memory, is_inserted=True)
                self.reading.scopes[memory.scope] += 1
        return taken

    def edits(self) -> Edits:
        """What the archive's rewrite has to change."""
        inserted = [(row.place, row.body) for row in self._rows.values() if row is not None and row.is_inserted]
        return Edits(frozenset(self._removed), dict(self._changed), sorted(inserted))

    def _start(self) -> tuple[Reading, Fingerprint]:
        if self._begun is None:
            self._begun = self._begin_reading()
        return self._begun

    def _load(self, ids: Collection[str]) -> None:
        unknown = [memory_id for memory_id in ids if memory_id not in self._rows]
        if unknown:
            self._rows.update(dict.fromkeys(unknown))
            for place, body, memory in self.reading.rows(unknown):
                self._rows[memory.memory_id] = _Row(place, body, memory)

    def _row(self, memory_id: str) -> _Row:
        self._load([memory_id])
        row = self._rows[memory_id]
        if row is None:
            raise StoreError(f"memory {memory_id!r} is not in the archive; this transaction was not written")
        return row

    def _set(self, row: _Row, body: bytes) -> None:
        row.body, row.memory = body, self.reading.source.memory(body)
        if not row.is_inserted:
            self._changed[row.place] = body

    def _as_before(self, body: bytes, raw: bytes | None) -> bytes:
        """The bytes from before a change that is taken back, if they say the same as the body does now."""
        if raw is None:
            return body
        earlier = unpack(raw)[1]
        memory = self.reading.source.memory
        return earlier if _meaning(memory(earlier)) == _meaning(memory(body)) else body


def pack(place: int, body: bytes) -> bytes:
    """A row as an undo keeps it: its place, and its bytes."""
    return b"%d:%b" % (place, body)


def unpack(raw: bytes) -> tuple[int, bytes]:
    """The inverse of ``pack``."""
    place, _, body = raw.partition(b":")
    return int(place), body


def _meaning(memory: Memory) -> Memory:
    return replace(memory, metadata=canonical_json(memory.metadata))
