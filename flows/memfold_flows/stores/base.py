"""What a store is: a stream of snapshot batches, and transactions with a handful of row operations.

An adapter says how *its* system reads and writes rows. What to write, in which order, what drifted and what can be
taken back is the same for every store and lives in ``applying.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import pyarrow as pa

from memfold.convergence import ScopeState
from memfold.memory import Memory
from memfold.policy import SessionRecall
from memfold_flows.stores.tombstones import Tombstones


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
    #: Why it cannot, for a person.
    no_promotion: str = ""
    #: Whether the system keeps a digest of its own of a scope: evo's, over titles and contents.
    digests_titles: bool = False
    #: Rows that one transaction touches at most, so that the write lock is held about a second; None: all in one.
    rows_per_transaction: int | None = 20_000


@dataclass(frozen=True, slots=True)
class StoredRow:
    """A row as it stands in the store now: the memory, and the bytes that restore it exactly."""

    memory: Memory
    raw: bytes


@dataclass(frozen=True, slots=True)
class Update:
    """A survivor's change: write the fields of ``after`` that differ and that the store has a place for.

    ``raw`` is the row as it stood before (``frames.UNDO``), for a change that takes an earlier one back: a store that
    keeps spelling (an archive) returns to these bytes where the rest of the row is still the same.
    """

    before: Memory
    after: Memory
    raw: bytes | None = None


@dataclass(frozen=True, slots=True)
class RunRef:
    """A run as the ledger names it: its id, the folder it lives in, and the digest of what it would write."""

    run_id: str
    directory: str = ""
    digest: str = ""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What the ledger knows of a run. A null ``applied_at`` means that an apply began and did not end."""

    run_id: str
    directory: str
    digest: str
    began_at: datetime
    applied_at: datetime | None
    undone_at: datetime | None


@dataclass(frozen=True, slots=True)
class Landed:
    """Units of one scope that one committed transaction dealt with, first to last, and what came of them.

    ``step`` is apply or undo; ``report`` is a JSON object with the counts and drifts of that scope.
    """

    batch: int
    scope: str
    first_unit: int
    last_unit: int
    report: str
    #: When it was committed, where the ledger was asked.
    landed_at: datetime | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class ReplayBatch:
    """What an agent distilled in one go, as its store keeps it: ``batch_json`` is ``{"memories": [...]}``."""

    batch: int
    scope: str
    batch_json: str
    created_at: datetime


Step = Literal["apply", "undo"]

#: Replay batches that one pass reads of a scope, the oldest first; the others wait for the next pass.
REPLAY_BATCHES_PER_SCOPE = 20


class Ledger(Protocol):
    """The bookkeeping beside the data, in the same transaction as the rows (``bookkeeping.py``)."""

    def run(self, run_id: str) -> RunRecord | None:
        """What is known of this run, if an apply of it ever began here."""
        ...

    def runs(self) -> list[RunRecord]:
        """Every run that wrote here, newest first."""
        ...

    def begin(self, run: RunRef, at: datetime) -> None:
        """Record that an apply of this run begins; a run that is known already stays as it is."""
        ...

    def finish(self, run_id: str, step: Step, at: datetime) -> None:
        """Record that the run is applied, or undone, as a whole."""
        ...

    def landed(self, run_id: str, step: Step) -> list[Landed]:
        """What the committed transactions of this run dealt with, in the order they did."""
        ...

    def land(self, run_id: str, step: Step, landed: Sequence[Landed], at: datetime) -> None:
        """Record what this transaction dealt with."""
        ...

    def resolve(self, memory_id: str) -> str:
        """The memory that this id became, through all merges and promotions; the id itself where it became nothing."""
        ...

    def redirect(self, run_id: str, into: Mapping[str, str]) -> None:
        """Record old id -> the id it became."""
        ...

    def drop_redirects(self, ids: Collection[str]) -> None:
        """Forget what these ids became: they are memories again."""
        ...

    def losses(self, since: datetime, *, but: str = "") -> dict[str, int]:
        """Rows lost per scope after that moment, undone loss given back; the run ``but`` is left out."""
        ...

    def lose(self, run_id: str, scope: str, rows: int, at: datetime) -> None:
        """Add to what this run lost of a scope."""
        ...

    def give_back(self, run_id: str, scope: str, rows: int) -> None:
        """Take restored rows off what this run lost of a scope."""
        ...

    def rejected(self) -> pa.Table:
        """The decisions that a person took back, as ``frames.REJECTED``."""
        ...

    def decided(self, ids: Collection[str]) -> set[str]:
        """Those of these ids that a rejected decision names, on either side."""
        ...

    def reject(self, decisions: Collection[Rejection]) -> None:
        """Remember decisions that a person took back."""
        ...

    def carry_rejections(self, changed: Mapping[tuple[str, str], tuple[str, str]]) -> None:
        """Keep rejections alive over memfold's own edits: (id, digest) before -> (id, digest) after."""
        ...

    def state(self, scope: str) -> ScopeState:
        """What the passes over a scope left behind; of a scope that never had one, the state of the beginning."""
        ...

    def scopes_noted(self) -> list[str]:
        """The scopes that a pass left a state behind in."""
        ...

    def noted_by(self, scope: str) -> str | None:
        """The run that ``note_state`` named last for this scope."""
        ...

    def note_state(self, run_id: str, scope: str, state: ScopeState) -> None:
        """Remember what a run left behind in a scope."""
        ...

    def replay(self, scopes: Collection[str] | None = None) -> list[ReplayBatch]:
        """The first unconsumed replay batches of each scope, or of some, by scope and age."""
        ...

    def count_replay(self, scope: str) -> int:
        """How many unconsumed replay batches a scope has."""
        ...

    def append_replay(self, scope: str, batch_json: str, at: datetime) -> None:
        """Put a replay batch behind the others of its scope."""
        ...

    def consume_replay(self, batches: Collection[int]) -> None:
        """Mark these replay batches as read by a pass; they stay where they are."""
        ...

    def tombstones(self) -> Tombstones:
        """The memories that this store was told to forget."""
        ...

    def bury(self, texts: Mapping[str, Collection[str]], at: datetime, *, new_key: bytes) -> None:
        """Remember that these ids were forgotten, with the texts that they had; ``new_key`` if there is no key."""
        ...

    def forget_decisions(self, ids: Collection[str]) -> None:
        """Forget what people decided about these memories: the digests tell of their texts."""
        ...

    def forget_replay(self, is_told: Callable[[Mapping[str, Any]], bool]) -> int:
        """Take the entries of which this holds out of every replay batch, consumed or not; returns how many."""
        ...

    def take_lease(self, holder: str, now: datetime, until: datetime) -> int:
        """Take or take over the lease for a holder; returns its fencing number, which no one had before.

        Raises:
            Transient: another holder's lease has not run out, and its process is not known to have ended.
        """
        ...

    def renew_lease(self, holder: str, fence: int, until: datetime) -> None:
        """Prolong the lease.

        Raises:
            StoreError: the lease was taken over since.
        """
        ...

    def release_lease(self, holder: str, fence: int) -> None:
        """Give the lease back, if it is still this holder's."""
        ...


class Rejection(NamedTuple):
    """One row of ``frames.REJECTED``."""

    memory_id: str
    into_id: str | None
    row_digest: str
    into_digest: str | None


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
        """Remove these rows; each was read in this transaction, and is there."""
        ...

    def update(self, updates: Sequence[Update]) -> None:
        """Write the changed fields of each row, nothing else of it.

        Only fields of ``traits.places`` ever differ; an undo of a promotion that kept the id also writes ``tier``.
        """
        ...

    def promote(self, rows: Mapping[str, StoredRow], tier: str) -> dict[str, str]:
        """Move rows to another tier with all they hold; returns old id -> new id (equal where ids do not change).

        The rows are read again after any update of this transaction, so they hold the folded fields.
        """
        ...

    def restore(self, raws: Mapping[str, bytes]) -> set[str]:
        """Insert removed rows exactly as they were; returns the ids that were left out because they exist again."""
        ...


@runtime_checkable
class InOrder(Protocol):
    """A transaction over memories that stand in an order, which an undo brings back."""

    def stay_away(self, raws: Mapping[str, bytes]) -> None:
        """Before ``restore``: rows that were removed with those to be restored, and are not restored yet."""
        ...


@runtime_checkable
class TellsEvents(Protocol):
    """A transaction over a store that keeps a log of events, some of which memfold wrote."""

    def forget_events(self, ids: Collection[str]) -> int:
        """Take these memories out of memfold's own events; returns how many other events still name one of them."""
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
    """What an apply did, summed over the transactions of the run, those before an interruption included.

    Where ``already_applied_at`` is set, this call wrote nothing and the rest says what that earlier apply did.
    """

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
    #: Folded fields that this store has no place for.
    fields_left_out: list[str] = field(default_factory=list)
    transactions: int = 0
    longest_hold_seconds: float = 0.0


@dataclass(slots=True)
class UndoReport:
    """What one undo did, summed over its transactions, those before an interruption included.

    Where ``already_undone_at`` is set, this call wrote nothing and the rest says what that earlier undo did.
    ``is_whole`` says whether nothing of the run is left to take back.
    """

    restored: int = 0
    reverted: int = 0
    demoted: int = 0
    not_restored: list[Drift] = field(default_factory=list)
    kept_fields: list[Drift] = field(default_factory=list)
    already_undone_at: datetime | None = None
    is_whole: bool = True
    transactions: int = 0
    longest_hold_seconds: float = 0.0
