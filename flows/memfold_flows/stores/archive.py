"""Archives: stores that are one file, read as a stream and rewritten whole.

What JSONL and Parquet share lives here: which file may be written, the index of ids, and a transaction that collects
its changes and rewrites the file once, at its end. A row is a place (its number in the file) and a body (its bytes).
"""

from __future__ import annotations

import logging
import os
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
import pyarrow as pa

from memfold.errors import BadRecord, BadUsage, StoreError
from memfold.memory import Memory, canonical_json
from memfold_flows.stores import bookkeeping
from memfold_flows.stores.archive_fields import SCOPE_FIELDS, FieldReader
from memfold_flows.stores.archive_landing import Fingerprint, Landing, file_errors, fingerprint
from memfold_flows.stores.base import Ledger, StoredRow, StoreTraits, Update
from memfold_flows.stores.batches import memories_batch
from memfold_flows.stores.urls import format_url, local_path

logger = logging.getLogger(__name__)

ROWS_PER_BATCH = 8192

OPTIONS = {
    "scope": "the fields that make the scope, with commas between them, instead of the usual ones",
    "out": "write a new archive to this file",
    "in_place": "true: rewrite the archive itself",
}


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


class ArchiveStore:
    """A store that is one file. What it writes goes to ``out``, or to the file itself if ``in_place``.

    ``open_source`` opens a file of the format, or raises a StoreError that says what the file is instead.
    """

    def __init__(
        self,
        scheme: str,
        path: str,
        options: Mapping[str, Any],
        *,
        open_source: Callable[[Path, FieldReader], Source],
        traits: StoreTraits,
        kept_options: Mapping[str, str] | None = None,
    ) -> None:
        self.traits = traits
        self._scheme = scheme
        self._path = _followed(local_path(path))
        self._scope_fields = _scope_fields(options.get("scope"))
        self._kept_options = dict(kept_options or {}) | ({"scope": options["scope"]} if self._scope_fields else {})
        self._in_place = as_flag("in_place", options.get("in_place", False))
        self._out = _out_file(options.get("out"), self._path, in_place=self._in_place)
        self._open_source = open_source
        self._reading()

    @property
    def url(self) -> str:
        """The URL of the archive that is read."""
        return format_url(self._scheme, self._path, self._kept_options)

    @property
    def written_url(self) -> str:
        """The URL of the archive that transactions write, where a run can be undone later."""
        return format_url(self._scheme, self._out or self._path, self._kept_options)

    def snapshot(self, scopes: Collection[str] | None = None) -> Iterator[pa.RecordBatch]:
        wanted = None if scopes is None else set(scopes)
        memories: list[Memory] = []
        with file_errors(self._path):
            for memory in self._reading().memories():
                if wanted is None or memory.scope in wanted:
                    memories.append(memory)
                if len(memories) == ROWS_PER_BATCH:
                    yield memories_batch(memories)
                    memories = []
        if memories:
            yield memories_batch(memories)

    def ledger(self) -> AbstractContextManager[Ledger | None]:
        return bookkeeping.reading(self._readable_ledger())

    @contextmanager
    def transaction(self) -> Iterator[ArchiveTransaction]:
        """A write transaction; the archive is read again at its first use and rewritten at the end of the block.

        Raises:
            BadUsage: nobody said where to write, or a file stands there.
        """
        if not self._in_place and self._out is None:
            raise BadUsage(
                f"{self._path.name} is an archive, and nobody said where to write; nothing was written. "
                "Give --out FILE for a new archive, or --in-place to rewrite this one."
            )
        landing = Landing(self._out or self._path)
        with landing.locked():
            with file_errors(landing.archive):
                landing.begin(self._readable_ledger())
            with bookkeeping.writing(landing.next_ledger) as ledger:
                transaction = ArchiveTransaction(ledger, self._read_to_write)
                yield transaction
                edits = transaction.edits()
                if edits:
                    self._write_new(landing, transaction.reading.source, edits)
            with file_errors(landing.archive):
                if edits:
                    self._land(landing, transaction.as_read)
                else:
                    landing.land_ledger()

    def close(self) -> None:
        """Nothing is kept open between calls."""

    def _reading(self) -> Reading:
        return Reading(self._path, self._open_source, self._scope_fields)

    def _readable_ledger(self) -> Path:
        own = Landing(self._path).readable_ledger()
        if self._out is None:
            return own
        # A new archive goes on where the old one stands: with its losses and with what a person took back.
        beside_out = Landing(self._out).readable_ledger()
        return beside_out if beside_out.exists() else own

    def _read_to_write(self) -> tuple[Reading, Fingerprint]:
        if self._out is not None and os.path.lexists(self._out):
            raise BadUsage(f"{self._out} exists; it was not overwritten. Choose another file for --out.")
        with file_errors(self._path):
            as_read = fingerprint(self._path)
            reading = self._reading()
            for _ in reading.memories():
                pass
        return reading, as_read

    def _write_new(self, landing: Landing, source: Source, edits: Edits) -> None:
        with file_errors(landing.archive):
            like = self._path.stat() if self._in_place else None
            with landing.writing_new(like) as file:
                source.rewrite(file, edits)

    def _land(self, landing: Landing, as_read: Fingerprint) -> None:
        landing.land(read_from=self._path, as_read=as_read, in_place=self._in_place)
        logger.info("%s was written", landing.archive)
        # What was written is the store from now on: a further transaction goes on in it.
        self._path, self._out, self._in_place = landing.archive, None, True


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
        if not self.scopes and not was_emptied(self._path):
            raise StoreError(f"{self._path} holds no memory; nothing was planned or written. Check the path.")
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

    def restore(self, raws: Mapping[str, bytes]) -> set[str]:
        self._load(raws)
        taken = {memory_id for memory_id in raws if self._rows[memory_id] is not None}
        for memory_id, raw in raws.items():
            if memory_id not in taken:
                place, body = unpack(raw)
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


def require_archive(path: Path, *, expected: str) -> bytes:
    """Refuse a path that is no file with something in it; returns its first bytes.

    Raises:
        StoreError: nothing there, a folder, an empty file, or a file of a known other kind.
    """
    if not path.exists():
        raise StoreError(f"there is no file {path}; nothing was read or created. Check the path.")
    if not path.is_file():
        what = "a folder" if path.is_dir() else "not a regular file"
        raise StoreError(f"{path} is {what}, not {expected}; nothing was read or created. Check the path.")
    with file_errors(path), path.open("rb") as file:
        start = file.read(4096)
    if not start and not was_emptied(path):
        raise StoreError(f"{path} is an empty file, not {expected}; nothing was read or created. Check the path.")
    for magic, kind, advice in _OTHER_KINDS:
        if start.startswith(magic) and kind not in expected:
            raise StoreError(f"{path} is {kind}, not {expected}; nothing was read or created. {advice}")
    return start


def was_emptied(path: Path) -> bool:
    """Whether memfold has written this archive: then it may be empty, and an undo may fill it again."""
    return Landing(path).readable_ledger().exists()


def as_flag(name: str, value: Any) -> bool:
    """An option that is on or off, given as a value or as text in a URL.

    Raises:
        BadUsage: it is neither.
    """
    if isinstance(value, bool):
        return value
    if str(value).lower() in ("true", "false"):
        return str(value).lower() == "true"
    raise BadUsage(f"option {name} must be true or false, got {value!r}")


_OTHER_KINDS = (
    (b"SQLite format 3\0", "a SQLite file", "Open it as sqlite:PATH."),
    (b"PAR1", "a Parquet file", "Open it as parquet:PATH."),
    (b"\x1f\x8b", "compressed with gzip", "Unpack it first: gunzip -k FILE."),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd", "Unpack it first: zstd -d FILE."),
    (b"PK\x03\x04", "a zip file", "Unpack it first."),
)


def _followed(path: Path) -> Path:
    try:
        followed = path.resolve()
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror or error}; nothing was read or created") from error
    if path.is_symlink():
        logger.info("%s is a link to %s, which is the archive", path, followed)
    return followed


def _out_file(out: Any, archive: Path, *, in_place: bool) -> Path | None:
    if not out:
        return None
    if in_place:
        raise BadUsage("--out and --in-place exclude each other; nothing was written. Give one of them.")
    path = local_path(str(out))
    if path.resolve() == archive:
        raise BadUsage(f"{path} is the archive itself; nothing was written. To rewrite it, give --in-place.")
    if not path.parent.is_dir():
        raise BadUsage(f"there is no folder {path.parent} for the new archive; nothing was written. Make it first.")
    return path.parent.resolve() / path.name


def _scope_fields(option: Any) -> tuple[str, ...] | None:
    if option is None:
        return None
    names = tuple(name.strip() for name in str(option).split(","))
    if not all(names) or len(set(names)) != len(names):
        raise BadUsage(f"?scope= must name fields with commas between them, each once, got {option!r}")
    return names


def _meaning(memory: Memory) -> Memory:
    return replace(memory, metadata=canonical_json(memory.metadata))
