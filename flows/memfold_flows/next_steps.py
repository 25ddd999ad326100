"""What to type next: commands, each with what it is for."""

from __future__ import annotations

import math
from collections.abc import Sequence

from memfold_flows.legible import quoted
from memfold_flows.receipts import LossLimit, PlanReport, Receipt, ScopeTally


def after_plan(report: PlanReport, *, is_archive: bool, is_new: bool, can_undo: bool) -> list[tuple[str, str]]:
    """After a plan, or after what became of it: write it, change it, take it back, plan again."""
    lines = []
    target = " --in-place" if is_archive else ""
    if report.writable and is_new:
        lines.append((f"memfold apply {report.run_id}{target}", "write exactly this plan"))
        lines.append((f"memfold edit {report.run_id} --reject ID", "change it: what stays after all"))
    elif report.edits and is_new:
        lines.append((f"memfold apply {report.run_id}{target}", "remember what was decided"))
    if can_undo:
        lines.append((f"memfold undo {report.run_id}", "take it back"))
    if not is_new and not can_undo:
        lines.append((f"memfold plan {quoted(report.store)}", "plan again"))
    return lines + _ways_on("plan", report.limit, report.refused)


def to_read_on(run_id: str, *, is_shown: bool) -> list[tuple[str, str]]:
    """Where the rest of a plan is to be seen; what is shown already is no way on."""
    more = [] if is_shown else [(f"memfold show {run_id}", "more of it")]
    return [
        *more,
        (f"memfold show {run_id} --html report.html", "as a page for a browser"),
        (f"memfold export {run_id}", "all of it, one JSON line per memory"),
    ]


def after_apply(receipt: Receipt) -> list[tuple[str, str]]:
    """After an apply: the ways past the limit, plan again what drifted, take it back."""
    lines = _ways_on("plan", receipt.limit, receipt.refused)
    if receipt.drifted:
        lines.append((f"memfold plan {quoted(receipt.store)}", "plan again what drifted"))
    if receipt.totals.merged + receipt.totals.pruned + receipt.totals.promoted:
        lines.append((f"memfold undo {receipt.run_id}", "take it back"))
    return lines


def _ways_on(command: str, limit: LossLimit, refused: Sequence[ScopeTally]) -> list[tuple[str, str]]:
    """The two ways past the loss limit, each on top of the scopes and flags of the first call."""
    over = limit.exceeded_by(refused)
    if not over:
        return []
    enough = min(math.ceil(max(limit.loss_of(scope) for scope in over) * 100) / 100, 1.0)
    again = f"memfold {command} ..."
    return [
        (f"{again} --on-excess fit", "the same call, up to the limit; the rest waits for the next pass"),
        (f"{again} --max-loss-fraction {enough:g}", "the same call, allowing this loss, once you have looked"),
    ]
