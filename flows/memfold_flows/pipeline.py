"""The whole pass. Start reading here, then one module per step.

A step runner decides how a step is called: directly, as the command line does, or as a task of a Prefect flow.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any

from memfold.policy import Policy
from memfold_flows import edits, noting, steps
from memfold_flows.proposer.options import ProposerOptions
from memfold_flows.receipts import PlanReport, Receipt, UndoReceipt
from memfold_flows.runs import RunDirectory
from memfold_flows.stores.base import MemoryStore
from memfold_flows.stores.undo_units import EVERYTHING, Selection

Clock = Callable[[], datetime]
StepRunner = Callable[..., Any]


def direct(name: str, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Any:
    """Run a step by calling it."""
    return function(*arguments, **options)


def plan(
    store: MemoryStore,
    run: RunDirectory,
    policy: Policy,
    *,
    clock: Clock,
    scopes: Collection[str] | None = None,
    proposer: ProposerOptions | None = None,
    step: StepRunner = direct,
) -> PlanReport:
    """Decide what becomes of each memory, and whether the gate lets it happen. Writes nothing to the store.

    ``proposer``: the model that may propose; it is asked without a lease, so none should be held around this.
    """
    step("snapshot", steps.take_snapshot, store, run, policy, scopes)
    step("match", steps.match, run)
    if proposer is not None and step("propose", steps.propose, store, run, proposer):
        step("match again", steps.match, run)
    step("model", steps.model, run)
    report: PlanReport = step("gate", steps.judge, store, run, scopes, clock)
    return report


def apply(
    store: MemoryStore,
    run: RunDirectory,
    *,
    clock: Clock,
    keep_snapshots: bool = False,
    step: StepRunner = direct,
    fence: int | None = None,
) -> Receipt:
    """Write exactly the plan of this run, scope by scope, as far as the gate accepted it and nothing drifted.

    ``fence`` is the number of the lease under which the run was planned (``leases.py``), where there is one.
    """
    began_at = clock()
    steps.require_applicable(store, run, now=began_at)
    step("rewrite", steps.rewrite, run)
    report = step("apply", steps.apply, store, run, clock, fence)
    with steps.interruption_named(store, run, "apply"):
        step("note", noting.note, store, run, report, clock)
        receipt: Receipt = step(
            "receipt",
            steps.write_receipt,
            store,
            run,
            report,
            began_at=began_at,
            clock=clock,
            keep_snapshots=keep_snapshots,
        )
    return receipt


def judge_again(
    store: MemoryStore,
    first: RunDirectory,
    run: RunDirectory,
    policy: Policy,
    *,
    clock: Clock,
    step: StepRunner = direct,
) -> PlanReport:
    """The snapshot and the matches of an earlier plan, decided again under other limits, as a run of its own."""
    step("carry over", steps.carry_over, first, run, policy)
    step("model", steps.model, run)
    report: PlanReport = step("gate", steps.judge, store, run, first.manifest.scopes, clock)
    return report


def edit(
    store: MemoryStore,
    first: RunDirectory,
    run: RunDirectory,
    decisions: Mapping[str, edits.Decision],
    *,
    clock: Clock,
    step: StepRunner = direct,
) -> PlanReport:
    """The snapshot of an earlier plan, matched, decided and gated again with what a person decided about it."""
    step("carry over", edits.carry_over, first, run, decisions)
    step("match", steps.match, run)
    step("model", steps.model, run)
    report: PlanReport = step("gate", steps.judge, store, run, first.manifest.scopes, clock)
    return report


def consolidate(
    store: MemoryStore,
    run: RunDirectory,
    policy: Policy,
    *,
    clock: Clock,
    scopes: Collection[str] | None = None,
    proposer: ProposerOptions | None = None,
    keep_snapshots: bool = False,
    step: StepRunner = direct,
) -> Receipt:
    """The whole pass: plan, gate, and apply what was accepted. A refusal is a receipt, not an exception."""
    plan(store, run, policy, clock=clock, scopes=scopes, proposer=proposer, step=step)
    return apply(store, run, clock=clock, keep_snapshots=keep_snapshots, step=step)


def undo(store: MemoryStore, run: RunDirectory, *, clock: Clock, selection: Selection = EVERYTHING) -> UndoReceipt:
    """Take back what this run wrote, or a part of it, as far as nobody changed it since."""
    return steps.undo(store, run, clock, selection)
