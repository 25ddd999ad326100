"""What a store is: a stream of snapshot batches, and transactions with a handful of row operations.

An adapter says how *its* system reads and writes rows. What to write, in which order, what drifted and what can be
taken back is the same for every store and lives in ``applying.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

import pyarrow as pa

from memfold.memory import Memory
from memfold.policy import SessionRecall


@dataclass(frozen=True, slots=True)
class StoreTraits:
    """What is true of one kind of store, whatever it holds."""

    #: Folded fields that the store has a place for; the others are left out, and the receipt says which.
    places: frozenset[str]
    #: How a session id limits recall: not at all, by equality, or with null meaning every session.
    session_recall: SessionRecall = "none"
    #: Whether ``updated_at`` changes when, and only when, the text does.
    updated_with_text: bool = False
    #: Whether a row can move from ``short_term`` to ``long_term``.
    promotes: bool = False
    #: Rows that one transaction touches at most, so that the write lock is held about a second; None: all in one.
    rows_per_transaction: int | None = 20_000


@dataclass(frozen=True, slots=True)
class StoredRow:
    """A row as it stands in the store now: the memory, and the bytes that restore it exactly."""

    memory: Memory
    raw: bytes


@dataclass(frozen=True, slots=True)
class Update:
    """A survivor's change: write the fields of ``after`` that differ and that the store has a place for."""

    before: Memory
    after: Memory


class Ledger(Protocol):
    """The bookkeeping beside the data, in the same transaction as the rows (``bookkeeping.py``)."""


class Transaction(Protocol):
    """One write transaction over a store: all of it lands, or none."""

    @property
    def ledger(self) -> Ledger: ...

    def read(self, ids: Collection[str]) -> dict[str, StoredRow]:
        """The rows of these ids as they stand now, locked until the end; an id that is gone is absent."""
        ...

    def count(self, scope: str) -> int:
        """How many memories the scope holds now."""
        ...

    def delete(self, ids: Collection[str]) -> None:
        """Remove these rows; each was read in this transaction."""
        ...

    def update(self, updates: Sequence[Update]) -> None:
        """Write the changed fields of each survivor, nothing else of the row."""
        ...

    def promote(self, rows: Mapping[str, StoredRow], tier: str) -> dict[str, str]:
        """Move rows to another tier with all they hold; returns old id -> new id (equal where ids do not change)."""
        ...

    def restore(self, raws: Mapping[str, bytes]) -> set[str]:
        """Insert removed rows exactly as they were; returns the ids that were left out because they exist again."""
        ...


class MemoryStore(Protocol):
    """A place where agents keep memories, opened by a URL (``stores.open_store``)."""

    #: The URL that opens this store again, without credentials.
    url: str
    traits: StoreTraits

    def snapshot(self, scopes: Collection[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Every memory, or those of some scopes, as batches of ``frames.SNAPSHOT``; no limit, no lock kept on agents.

        Raises:
            BadRecord: a row cannot be read; the message names its place.
        """
        ...

    def ledger(self) -> AbstractContextManager[Ledger | None]:
        """The bookkeeping, for reading only; None when the store has none yet. Creates nothing."""
        ...

    def transaction(self) -> AbstractContextManager[Transaction]:
        """A write transaction: commits at the end of the block, rolls back on an exception."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Drift:
    """A row that an apply or an undo left alone, and why."""

    memory_id: str
    scope: str
    why: str


@dataclass(slots=True)
class ApplyReport:
    """What an apply did, summed over its transactions."""

    merged: int = 0
    pruned: int = 0
    promoted: int = 0
    lost: int = 0
    drifted: list[Drift] = field(default_factory=list)
    new_ids: dict[str, str] = field(default_factory=dict)
    metadata_conflicts: list[Drift] = field(default_factory=list)
    scopes_applied: list[str] = field(default_factory=list)
    scopes_refused: dict[str, str] = field(default_factory=dict)
    already_applied_at: datetime | None = None
    transactions: int = 0
    longest_hold_seconds: float = 0.0


@dataclass(slots=True)
class UndoReport:
    """What an undo did, summed over its transactions."""

    restored: int = 0
    reverted: int = 0
    demoted: int = 0
    not_restored: list[Drift] = field(default_factory=list)
    kept_fields: list[Drift] = field(default_factory=list)
    already_undone_at: datetime | None = None
