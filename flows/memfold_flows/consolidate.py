"""The pass as a Prefect flow: each step a task. Runs in process; a server is an option, not a condition."""

from __future__ import annotations

import os
import secrets
from datetime import UTC, datetime
from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.states import Completed

from memfold_flows import pipeline, settings
from memfold_flows.runs import RunDirectory, new_run_id, runs_folder
from memfold_flows.stores import open_store
from memfold_flows.tasks import as_task


@flow(name="consolidate", persist_result=False)
def consolidate(
    store: str,
    scopes: list[str] | None = None,
    as_of: datetime | None = None,
    thresholds: dict[str, Any] | None = None,
    store_options: dict[str, Any] | None = None,
) -> State[Any]:
    """Plan, gate and apply one pass over a store.

    The final state is named Consolidated, NothingToDo, Rejected or PartlyApplied, all of type Completed: a refusal is
    a result. A pass that fails is a failed run.

    Args:
        store: The store, as scheme:path.
        scopes: Only these scopes; all of them where this is left out.
        as_of: Plan as of this moment; now where this is left out.
        thresholds: Thresholds by name, as in memfold.yaml; they win over the worker's environment and file.
        store_options: How to open the store, such as in_place or out for an archive.
    """
    chosen = settings.load(thresholds or {})
    if not chosen.enabled:
        return Completed(name="NothingToDo", message=f"memory.consolidation.enabled is false in {settings.FILE}")
    began_at = _now()
    run_id = new_run_id(began_at, secrets.token_bytes(3))
    opened = open_store(store, **(store_options or {}))
    try:
        policy = chosen.policy(as_of=as_of or began_at, traits=opened.traits)
        run = RunDirectory.create(runs_folder(os.environ.get("MEMFOLD_HOME")) / run_id, run_id)
        receipt = pipeline.consolidate(
            opened, run, policy, clock=_now, scopes=scopes, keep_snapshots=chosen.keep_snapshots, step=as_task
        )
    finally:
        opened.close()
    totals = receipt.totals
    message = f"{totals.merged} merged, {totals.pruned} pruned, {totals.promoted} promoted of {totals.entries_before}"
    return Completed(name=receipt.state.value, message=message, data=receipt.as_json())


def _now() -> datetime:
    return datetime.now(UTC)
