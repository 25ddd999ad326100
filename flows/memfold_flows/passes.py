"""One pass as the flows make it: under the lease, with a person's approval where asked for, told to Prefect."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from prefect.client.schemas.objects import State
from prefect.states import Completed

from memfold.convergence import Schedule
from memfold.errors import BadUsage, PlanDamaged
from memfold.policy import Policy
from memfold_flows import announcements, approval, leases, pipeline, settings, summaries
from memfold_flows.announcements import StepsWithProgress
from memfold_flows.parameters import Approval, Thresholds, Timing
from memfold_flows.receipts import PlanReport, Receipt
from memfold_flows.receipts import State as Ended
from memfold_flows.runs import RunDirectory, new_run_id, runs_folder
from memfold_flows.stores import open_store, urls
from memfold_flows.stores.base import MemoryStore
from memfold_flows.stores.sessions import LEASE

logger = logging.getLogger(__name__)

#: Long enough for the lease of a pass that was killed to run out.
_WAIT_FOR_LEASE_SECONDS = LEASE.total_seconds() + 10

#: The scopes of a pass over an open store, as of a moment: None for all, none at all where nothing is to be done.
ChooseScopes = Callable[[MemoryStore, Schedule, datetime], Sequence[str] | None]


@dataclass(frozen=True, slots=True)
class Request:
    """What a flow run was asked for."""

    store: str
    store_options: Mapping[str, Any] = field(default_factory=dict)
    thresholds: Thresholds = field(default_factory=Thresholds)
    timing: Timing = field(default_factory=Timing)
    approval: Approval = field(default_factory=Approval)
    as_of: datetime | None = None

    def __post_init__(self) -> None:
        if urls.without_password(self.store) != self.store:
            raise BadUsage(
                "the store's URL has a password, which Prefect would keep and show with each run; nothing was done. "
                "Leave it out, and set PGPASSWORD or ~/.pgpass where the flow runs."
            )

    def open(self) -> MemoryStore:
        """Open the store."""
        return open_store(self.store, **self.store_options)


def make(request: Request, choose: ChooseScopes) -> State[Any]:
    """A whole pass: end what was interrupted, plan, ask where a person should look, and write what was accepted."""
    chosen = settings.load({**request.thresholds.given(), **request.timing.given(), **request.approval.given()})
    if not chosen.enabled:
        return _nothing_to_do(request.store, f"memory.consolidation.enabled is false in {settings.FILE}")
    with opened(request) as store:
        if why := chosen.why_without_effect(store.traits):
            logger.warning(why)
        _end_interrupted_runs(request, store)
        began_at = now()
        run = new_run(began_at)
        # A model may take minutes to answer: then the lease is only taken to write, as after a person's answer.
        lease = _lease(request, store, run.run_id) if chosen.proposer is None else nullcontext()
        with lease as fence:
            scopes = choose(store, chosen.schedule, began_at)
            if scopes is not None and not scopes:
                run.path.rmdir()
                return _nothing_to_do(store.url, "no scope is due")
            policy = chosen.policy(as_of=request.as_of or began_at, traits=store.traits)
            step = StepsWithProgress()
            report = pipeline.plan(store, run, policy, clock=now, scopes=scopes, proposer=chosen.proposer, step=step)
            announcements.plan_ready(run, report)
            needs_approval = approval.is_needed(chosen.approval, report)
            if chosen.proposer is None and not needs_approval:
                return ended(write(store, run, keep_snapshots=chosen.keep_snapshots, step=step, fence=fence))
        if not needs_approval:
            with _lease(request, store, run.run_id) as fence:
                return ended(write(store, run, keep_snapshots=chosen.keep_snapshots, step=step, fence=fence))
        # Without the lease, which would keep everyone else waiting: what changes until the answer is seen as drift.
        answer = approval.ask(chosen.approval, report)
        if answer.why_not is not None:
            return not_written(report, answer.why_not)
        if answer.max_loss_fraction is not None and answer.max_loss_fraction != policy.max_loss_fraction:
            run = _under_another_limit(store, run, replace(policy, max_loss_fraction=answer.max_loss_fraction), step)
        with _lease(request, store, run.run_id) as fence:
            return ended(write(store, run, keep_snapshots=chosen.keep_snapshots, step=step, fence=fence))


def write(
    store: MemoryStore, run: RunDirectory, *, keep_snapshots: bool, step: pipeline.StepRunner, fence: int | None
) -> Receipt:
    """Write the plan of a run, and tell what came of it."""
    receipt = pipeline.apply(store, run, clock=now, keep_snapshots=keep_snapshots, step=step, fence=fence)
    announcements.pass_finished(receipt)
    return receipt


def ended(receipt: Receipt) -> State[Any]:
    """The final state of a run that went through: named by how it ended, and always completed."""
    said = summaries.in_one_line(receipt)
    if receipt.proposer is not None:
        said += f"; model: {receipt.proposer.in_words()}"
    return Completed(name=receipt.state.value, message=said, data=receipt.as_json())


def not_written(report: PlanReport, why: str) -> State[Any]:
    """The final state of a run that a person did not approve."""
    said = f"{why}; nothing was written. The plan stays: {report.run_id}"
    announcements.nothing_written(report.store, Ended.REJECTED, said, run_id=report.run_id)
    return Completed(name=Ended.REJECTED.value, message=said)


@contextmanager
def opened(request: Request) -> Iterator[MemoryStore]:
    """The store of a request, closed at the end of the block."""
    store = request.open()
    try:
        yield store
    finally:
        store.close()


def now() -> datetime:
    """The clock of the flows."""
    return datetime.now(UTC)


def new_run(began_at: datetime) -> RunDirectory:
    """An empty run directory where runs live."""
    run_id = new_run_id(began_at, secrets.token_bytes(3))
    return RunDirectory.create(runs_folder(os.environ.get("MEMFOLD_HOME")) / run_id, run_id)


def apply_run(request: Request, run: RunDirectory, store: MemoryStore) -> State[Any]:
    """Write the plan of an earlier run, once no other pass is at work on its store."""
    keep_snapshots = settings.load({}).keep_snapshots
    with _lease(request, store, f"wait-{secrets.token_hex(3)}"):
        pass
    with _lease(request, store, run.run_id) as fence:
        return ended(write(store, run, keep_snapshots=keep_snapshots, step=StepsWithProgress(), fence=fence))


def _nothing_to_do(store: str, why: str) -> State[Any]:
    said = f"{why}; nothing was planned"
    announcements.nothing_written(store, Ended.NOTHING_TO_DO, said)
    return Completed(name=Ended.NOTHING_TO_DO.value, message=said)


def _under_another_limit(
    store: MemoryStore, first: RunDirectory, policy: Policy, step: pipeline.StepRunner
) -> RunDirectory:
    """The same plan judged under another limit, as a run of its own; nothing else of it can have changed."""
    run_id = f"{first.run_id}-limit"
    run = RunDirectory.create(first.path.parent / run_id, run_id)
    report = pipeline.judge_again(store, first, run, policy, clock=now, step=step)
    announcements.plan_ready(run, report)
    return run


def _end_interrupted_runs(request: Request, store: MemoryStore) -> None:
    """Go on with runs that were cut off while they wrote, so that each pass is either whole or not there."""
    if not _interrupted(store):
        return
    with _lease(request, store, f"wait-{secrets.token_hex(3)}"):
        runs = _interrupted(store)  # once nobody else is at work, what is unfinished is abandoned
    for run_id, directory in runs:
        try:
            with _lease(request, store, run_id) as fence:
                run = RunDirectory.open(directory)
                pipeline.apply(store, run, clock=now, fence=fence, step=StepsWithProgress())
            logger.warning("run %s had been cut off; its apply is complete now", run_id)
        except (BadUsage, PlanDamaged) as error:
            logger.warning("run %s was cut off and cannot be ended: %s", run_id, error)


def _interrupted(store: MemoryStore) -> list[tuple[str, Path]]:
    with store.ledger() as ledger:
        records = ledger.runs() if ledger else []
    unfinished = [record for record in records if record.applied_at is None and record.undone_at is None]
    return [(record.run_id, Path(record.directory)) for record in reversed(unfinished) if record.directory]


def _lease(request: Request, store: MemoryStore, holder: str) -> AbstractContextManager[int | None]:
    return leases.held(store, request.open, holder, clock=now, wait_seconds=_WAIT_FOR_LEASE_SECONDS)
