"""What became of an id: through merges and promotions of every pass, to the memory that stands for it now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from memfold_flows.stores.base import MemoryStore


@dataclass(frozen=True, slots=True)
class Resolved:
    """An id and the memory that it leads to: itself, another one, or none where ``is_known`` is false.

    ``stands`` is false where that memory has been removed since, by a later prune or by an agent.
    """

    id: str
    now: str | None
    is_known: bool
    stands: bool


def resolve(store: MemoryStore, ids: Sequence[str]) -> list[Resolved]:
    """Where each id leads, in the order asked. An id that an agent has given away again is that memory."""
    with store.ledger() as ledger:
        ends = {memory_id: ledger.resolve(memory_id) if ledger else memory_id for memory_id in ids}
    standing = _standing(store, {*ends, *ends.values()})
    return [_resolved(memory_id, ends[memory_id], standing) for memory_id in ids]


def _resolved(memory_id: str, end: str, standing: set[str]) -> Resolved:
    if memory_id in standing:
        return Resolved(memory_id, memory_id, is_known=True, stands=True)
    if end == memory_id:
        return Resolved(memory_id, None, is_known=False, stands=False)
    return Resolved(memory_id, end, is_known=True, stands=end in standing)


def _standing(store: MemoryStore, ids: set[str]) -> set[str]:
    # A store has no look-up for readers: a transaction would keep agents waiting.
    wanted = pa.array(sorted(ids), pa.string())
    found: set[str] = set()
    for batch in store.snapshot():
        column = batch.column("memory_id")
        found.update(column.filter(pc.is_in(column, value_set=wanted)).to_pylist())
    return found
