"""``Service``: what an agent's runtime asks of memfold, one scope at a time, without Prefect."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from memfold.contract import ConsolidationResult
from memfold.convergence import Due
from memfold_flows import checking, replay, settings

if TYPE_CHECKING:
    from memfold_flows.stores.base import MemoryStore


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Service:
    """The passes over one store, as its agents ask for them.

    Settings are those of ``memfold run``, by name; what is not given comes from the environment and ``memfold.yaml``.
    """

    def __init__(self, store: MemoryStore, *, clock: Callable[[], datetime] = _utc_now, **given: Any) -> None:
        self._store = store
        self._clock = clock
        self._given = given

    def should_auto_consolidate(self, scope: str) -> Due:
        """Whether a scope is due for a pass now, and why; changes nothing."""
        schedule = settings.load(self._given).schedule
        return checking.look(self._store, scope, schedule, now=self._clock())

    def consolidate(self, scope: str) -> ConsolidationResult:
        """One whole pass over a scope, due or not; every guard holds.

        Raises:
            BadUsage: the scope has no memories.
            MemfoldError: the pass failed; what was committed before stands, and an undo takes it back.
        """
        from memfold_flows import pipeline
        from memfold_flows.consolidator import result_of
        from memfold_flows.retries import patiently
        from memfold_flows.runs import RunDirectory, new_run_id, runs_folder

        now = self._clock()
        chosen = settings.load(self._given)
        policy = chosen.policy(as_of=now, traits=self._store.traits)
        run_id = new_run_id(now, secrets.token_bytes(3))
        run = RunDirectory.create(runs_folder(os.environ.get("MEMFOLD_HOME")) / run_id, run_id)
        receipt = pipeline.consolidate(
            self._store,
            run,
            policy,
            clock=self._clock,
            scopes=[scope],
            keep_snapshots=chosen.keep_snapshots,
            step=patiently,
        )
        return result_of(receipt, {})

    def append_replay(self, scope: str, batch: Sequence[Mapping[str, Any]]) -> None:
        """Append what was distilled in one go, as {title, content, kind}; stores no memory.

        A later pass reads it as evidence: what is told in several batches is worth keeping. An empty batch is none.

        Raises:
            BadUsage: the batch is no list, an entry has no content or one that the store's owner would refuse, or the
                scope is none that the store could have; nothing was appended.
        """
        batch_json = replay.to_json(batch)
        if not batch:
            return
        with self._store.transaction() as transaction:
            transaction.ledger.append_replay(scope, batch_json, self._clock())
