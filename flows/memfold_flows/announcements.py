"""What a flow tells its operator through Prefect: artifacts to look at, events to alert on.

Nothing here can change how a pass ends: what was written stands, whether or not it could be told.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from prefect.artifacts import (
    create_link_artifact,
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.events import emit_event
from prefect.exceptions import PrefectException

from memfold_flows import summaries, views
from memfold_flows.receipts import PlanReport, Receipt
from memfold_flows.runs import RunDirectory
from memfold_flows.tasks import as_task

logger = logging.getLogger(__name__)

PLAN_READY = "memfold.plan.ready"
PASS_FINISHED = "memfold.pass.finished"
GATE_REJECTED = "memfold.gate.rejected"
#: Two that an alert can set against each other: there was something to do, and something was done.
MEMORIES_WAITING = "memfold.memories.waiting"
MEMORIES_FOLDED = "memfold.memories.folded"

#: The steps of a pass, and how much of it is done after each, in percent.
_PROGRESS = {"snapshot": 15.0, "match": 60.0, "model": 70.0, "gate": 80.0, "rewrite": 85.0, "apply": 95.0}
_SHOWN = 10


class StepsWithProgress:
    """The step runner of the flows: each step is a task, and a bar in the UI shows how far the pass is."""

    def __init__(self) -> None:
        self._bar: Any = None
        with _told("progress"):
            self._bar = create_progress_artifact(progress=0.0, key="pass-progress", description="This pass")

    def __call__(self, name: str, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Any:
        result = as_task(name, function, *arguments, **options)
        self._show(_PROGRESS.get(name, 100.0))
        return result

    def _show(self, percent: float) -> None:
        if self._bar is not None:
            with _told("progress"):
                update_progress_artifact(self._bar, progress=percent)


def plan_ready(run: RunDirectory, report: PlanReport) -> None:
    """A plan stands: what it would do, where it lies, and an event; another one where the gate refuses a scope."""
    with _told("the plan"):
        create_markdown_artifact(key="plan", markdown=summaries.plan(report), description="What the plan would do")
        _look(run, report)
    _emit(PLAN_READY, report.store, run_id=report.run_id, verdict=report.verdict, run_dir=report.run_dir)
    if report.writable or report.refused:
        _emit(MEMORIES_WAITING, report.store, run_id=report.run_id)
    if report.refused:
        reasons = {scope.scope or "(no scope)": list(scope.refused) for scope in report.refused[:_SHOWN]}
        _emit(GATE_REJECTED, report.store, run_id=report.run_id, scopes=len(report.refused), reasons=reasons)


def pass_finished(receipt: Receipt) -> None:
    """A pass has ended: what it did, and an event."""
    with _told("the outcome"):
        create_markdown_artifact(key="outcome", markdown=summaries.outcome(receipt), description="What the pass did")
    totals = receipt.totals
    _emit(
        PASS_FINISHED,
        receipt.store,
        run_id=receipt.run_id,
        state=str(receipt.state),
        memories=totals.entries_before,
        merged=totals.merged,
        pruned=totals.pruned,
        promoted=totals.promoted,
        scopes_refused=len(receipt.refused),
    )
    if totals.merged + totals.pruned + totals.promoted:
        _emit(MEMORIES_FOLDED, receipt.store, run_id=receipt.run_id)


def nothing_written(store: str, title: str, why: str, *, run_id: str | None = None) -> None:
    """A pass has ended before anything was written: declined, timed out, or nothing was due."""
    with _told("the outcome"):
        create_markdown_artifact(key="outcome", markdown=f"# {title}\n\n{store}: {why}\n", description="The outcome")
    _emit(PASS_FINISHED, store, run_id=run_id, state=title, memories=None, merged=0, pruned=0, promoted=0)


def _look(run: RunDirectory, report: PlanReport) -> None:
    create_markdown_artifact(
        key="plan-details", markdown=summaries.look(views.look(run, most=_SHOWN)), description="What folds, and why"
    )
    if rows := summaries.scope_rows(report.scopes):
        create_table_artifact(key="actions", table=rows, description="The actions, scope by scope")
    create_link_artifact(key="run-directory", link=Path(report.run_dir).as_uri(), link_text=report.run_id)


def _emit(event: str, store: str, **payload: Any) -> None:
    # The id is a digest, as a path has signs that a resource id may not have.
    resource = {
        "prefect.resource.id": f"memfold.store.{hashlib.sha256(store.encode()).hexdigest()[:16]}",
        "prefect.resource.name": store,
        "memfold.state": str(payload.get("state", payload.get("verdict", ""))),
    }
    with _told(f"the event {event}"):
        emit_event(event, resource=resource, payload=payload)


@contextmanager
def _told(what: str) -> Iterator[None]:
    try:
        yield
    except (httpx.HTTPError, PrefectException) as error:
        logger.warning("%s could not be shown in Prefect: %s", what, error)
