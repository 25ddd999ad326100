"""A pass as Prefect flows: ``consolidate`` as a whole, or ``plan`` and later ``apply``. Runs without a server too."""

from __future__ import annotations

import os
from datetime import datetime
from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.states import Completed

from memfold_flows import announcements, passes, pipeline, settings
from memfold_flows.announcements import StepsWithProgress
from memfold_flows.parameters import Approval, Thresholds
from memfold_flows.passes import Request
from memfold_flows.runs import find_run, runs_folder


@flow(name="consolidate", persist_result=False)
def consolidate(
    store: str,
    *,
    scopes: list[str] | None = None,
    as_of: datetime | None = None,
    approval: Approval = Approval(),  # noqa: B008  (frozen by use: a flow's form needs the value)
    thresholds: Thresholds = Thresholds(),  # noqa: B008
    store_options: dict[str, Any] | None = None,
) -> State[Any]:
    """Plan, gate and apply one pass over a store, due or not.

    The final state is named Consolidated, NothingToDo, Rejected or PartlyApplied, all of type Completed: a refusal is
    a result. A pass that fails is a failed run.

    Args:
        store: The store, as scheme:path.
        scopes: Only these scopes; all of them where this is left out.
        as_of: Plan as of this moment; now where this is left out.
        approval: Whether a person looks at the plan first.
        thresholds: What a pass may lose, prune and promote.
        store_options: How to open the store, such as in_place or out for an archive.
    """
    request = Request(store, store_options or {}, thresholds, approval=approval, as_of=as_of)
    return passes.make(request, lambda _store, _schedule, _now: scopes)


@flow(name="plan", persist_result=False)
def plan(
    store: str,
    *,
    scopes: list[str] | None = None,
    as_of: datetime | None = None,
    thresholds: Thresholds = Thresholds(),  # noqa: B008
    store_options: dict[str, Any] | None = None,
) -> State[Any]:
    """Plan a pass and write nothing to the store; the flow `apply` writes it, given the run id.

    Args:
        store: The store, as scheme:path.
        scopes: Only these scopes; all of them where this is left out.
        as_of: Plan as of this moment; now where this is left out.
        thresholds: What a pass may lose, prune and promote.
        store_options: How to open the store.
    """
    chosen = settings.load(thresholds.given())
    request = Request(store, store_options or {}, thresholds)
    with passes.opened(request) as opened:
        began_at = passes.now()
        policy = chosen.policy(as_of=as_of or began_at, traits=opened.traits)
        run = passes.new_run(began_at)
        report = pipeline.plan(
            opened,
            run,
            policy,
            clock=passes.now,
            scopes=scopes,
            proposer=chosen.proposer,
            step=StepsWithProgress(),
        )
    announcements.plan_ready(run, report)
    return Completed(name="Planned", message=f"{report.verdict}; run id {run.run_id}", data=report.as_json())


@flow(name="apply", persist_result=False)
def apply(run_id: str, store_options: dict[str, Any] | None = None) -> State[Any]:
    """Write exactly the plan of an earlier run. A second time, it says when that was and changes nothing.

    Args:
        run_id: The run id that the flow `plan` ended with.
        store_options: How to open the store, such as in_place or out for an archive.
    """
    run = find_run(run_id, runs_folder(os.environ.get("MEMFOLD_HOME")))
    request = Request(run.manifest.store, store_options or {})
    with passes.opened(request) as opened:
        return passes.apply_run(request, run, opened)
