"""`memfold edit`: an earlier plan with a person's decisions, as a run of its own."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from memfold.errors import BadUsage
from memfold_flows import edits, pipeline, terminal
from memfold_flows.edits import Decision
from memfold_flows.runs import RunDirectory

_SHOWN = 6


def edit(
    reference: str,
    *,
    store: str | None,
    reject: Sequence[str],
    pin: Sequence[str],
    prune: Sequence[str],
    source: Path | None,
    as_json: bool,
) -> None:
    """Decide a plan again with what a person decided about it, and show the new one."""
    first = terminal.locate(reference, store=store)
    decisions = _decisions(first, {"reject": reject, "pin": pin, "prune": prune}, source)
    run = RunDirectory.create(_next_folder(first), _next_folder(first).name)
    try:
        with terminal.opening(first.manifest.store, {}) as opened:
            report = pipeline.edit(opened, first, run, decisions, clock=terminal.now)
    except BaseException:
        shutil.rmtree(run.path, ignore_errors=True)
        raise
    if as_json:
        from memfold_flows import details

        terminal.print_json(details.plan_as_json(run, report))
        return
    from memfold_flows import showing

    counts = ", ".join(f"{name} {len(ids)}" for name, ids in _by_decision(decisions).items())
    terminal.say(f"edited from {first.run_id}: {counts}; that plan stays as it is\n")
    showing.show_plan(run, report, most=_SHOWN)


def _decisions(first: RunDirectory, named: dict[Decision, Sequence[str]], source: Path | None) -> dict[str, Decision]:
    decisions = {} if source is None else edits.read_file(source, first)
    for decision, ids in named.items():
        for memory_id in ids:
            if decisions.setdefault(memory_id, decision) != decision:
                raise BadUsage(
                    f"memory {memory_id!r} got two decisions, {decisions[memory_id]} and {decision}; "
                    "nothing was planned"
                )
    if not decisions:
        raise BadUsage(
            "nothing was decided: name memories with --reject, --pin or --prune, or a changed export with --from"
        )
    return decisions


def _by_decision(decisions: dict[str, Decision]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for memory_id, decision in decisions.items():
        found.setdefault(decision, []).append(memory_id)
    return found


def _next_folder(first: RunDirectory) -> Path:
    """Beside the first plan, under its name with the number of the edit."""
    name = re.sub(r"-edit\d+$", "", first.path.name)
    number = 1
    while (folder := first.path.parent / f"{name}-edit{number}").exists():
        number += 1
    return folder
