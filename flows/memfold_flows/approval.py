"""Approval: a run that pauses with its plan until a person decides, through the UI or Prefect's API."""

from __future__ import annotations

import contextvars
import logging
import threading
from dataclasses import dataclass
from uuid import UUID

from prefect.exceptions import NotPausedError, PrefectException
from prefect.flow_runs import pause_flow_run, resume_flow_run
from prefect.input import RunInput
from prefect.runtime import flow_run
from pydantic import Field

from memfold_flows import summaries
from memfold_flows.parameters import HIGHEST_APPROVED_LIMIT
from memfold_flows.receipts import PlanReport
from memfold_flows.settings import Approval

logger = logging.getLogger(__name__)

_SECONDS_BETWEEN_LOOKS = 2
# The run answers for itself shortly before Prefect would fail it: a question without an answer is no failure.
_SPARE_SECONDS = 300


class Decision(RunInput):
    """What an operator fills in to resume a paused run."""

    approve: bool = Field(default=False, description="On: write this plan. Off: decline it; nothing is written.")
    max_loss_fraction: float | None = Field(
        default=None,
        ge=0,
        le=HIGHEST_APPROVED_LIMIT,
        description="Another loss limit for this plan, where you have looked at what the gate refuses.",
    )


@dataclass(frozen=True, slots=True)
class Answer:
    """How the question ended. ``why_not`` says why nothing is to be written; None where it was approved."""

    why_not: str | None
    max_loss_fraction: float | None = None


def is_needed(approval: Approval, report: PlanReport) -> bool:
    """Whether a person has to look at this plan before it is written."""
    if approval.when == "never" or not (report.writable or report.refused):
        return False
    return approval.when == "always" or bool(summaries.warnings(report))


def ask(approval: Approval, report: PlanReport) -> Answer:
    """Pause this flow run with the plan's summary until it is resumed, or until nobody answered for too long."""
    wait_seconds = approval.wait_hours * 3600
    nobody_answered = threading.Event()
    question = Decision.with_initial_data(description=summaries.plan(report))
    timer = threading.Timer(
        wait_seconds,
        contextvars.copy_context().run,
        args=(_decline_unanswered, UUID(str(flow_run.id)), nobody_answered),
    )
    timer.daemon = True
    timer.start()
    try:
        decision = pause_flow_run(
            wait_for_input=question,
            timeout=int(wait_seconds) + _SPARE_SECONDS,
            poll_interval=_SECONDS_BETWEEN_LOOKS,
        )
    finally:
        timer.cancel()
    if decision is not None and decision.approve:
        return Answer(None, decision.max_loss_fraction)
    return Answer(f"nobody answered within {approval.wait_hours:g} h" if nobody_answered.is_set() else "declined")


def _decline_unanswered(flow_run_id: UUID, nobody_answered: threading.Event) -> None:
    nobody_answered.set()
    try:
        resume_flow_run(flow_run_id, run_input={"approve": False})
    except NotPausedError:
        nobody_answered.clear()  # somebody answered at the last moment
    except PrefectException as error:
        logger.warning("the run could not be declined, and will fail once its pause ends: %s", error)
