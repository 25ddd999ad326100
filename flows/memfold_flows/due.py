"""Which scopes of a store are due for a pass: looked up for all of them together, in one read of the store."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from memfold.convergence import Due, Schedule, ScopeState, fingerprint, should_consolidate
from memfold.frames import SNAPSHOT
from memfold_flows.stores.base import MemoryStore

if TYPE_CHECKING:
    import polars as pl

_READ = ["scope", "created_at", "row_digest"]


def look_over(store: MemoryStore, schedule: Schedule, *, now: datetime) -> dict[str, Due]:
    """For each scope of a store, by name: whether it should be consolidated now, and why."""
    memories = _memories(store.snapshot())
    with store.ledger() as ledger:
        if ledger is None:
            states, replays = {}, {}
        else:
            scopes = memories["scope"].unique().to_list()
            states = {scope: ledger.state(scope) for scope in scopes}
            replays = {scope: ledger.count_replay(scope) for scope in scopes}
    due: dict[str, Due] = {}
    for (scope,), rows in memories.partition_by("scope", as_dict=True).items():
        state = states.get(scope, ScopeState())
        due[scope] = should_consolidate(
            state,
            schedule,
            backlog_size=_backlog(rows, state),
            replay_size=replays.get(scope, 0),
            digest=fingerprint(rows["row_digest"].to_list()) if state.refusal else "",
            now=now,
        )
    return dict(sorted(due.items()))


def _memories(batches: Iterable[pa.RecordBatch]) -> pl.DataFrame:
    import polars as pl

    read = pa.Table.from_batches(
        (batch.select(_READ) for batch in batches), schema=pa.schema([SNAPSHOT.field(name) for name in _READ])
    )
    return pl.DataFrame(pl.from_arrow(read))


def _backlog(memories: pl.DataFrame, state: ScopeState) -> int:
    """How many memories were written since the last pass over their scope."""
    if state.last_consolidate_at is None:
        return memories.height
    return int((memories["created_at"] > state.last_consolidate_at).sum())
