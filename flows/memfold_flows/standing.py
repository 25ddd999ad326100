"""``memfold status``: how each scope of a store stands, and the plans that wait for somebody to look at them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from memfold.convergence import Due, Schedule, ScopeState
from memfold_flows import due, history, settings, steps, terminal
from memfold_flows.runs import RunDirectory, known_runs
from memfold_flows.stores import urls
from memfold_flows.stores.base import MemoryStore


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeStanding:
    """One scope: whether a pass is due and why, what the last one left behind, and when the next is due."""

    scope: str
    due: Due
    state: ScopeState
    hours_until_due: float | None

    def as_json(self) -> dict[str, Any]:
        """For ``--json``."""
        last = self.state.last_consolidate_at
        return {
            "scope": self.scope,
            **asdict(self.due),
            "last_consolidate_at": last and last.isoformat(),
            "hours_until_due": self.hours_until_due,
            "converged": self.state.converged,
            "multiplier": self.state.multiplier,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingPlan:
    """A plan that was neither applied nor followed by another of its store."""

    run_id: str
    verdict: str
    created_at: datetime
    changes: int


def show(url: str, *, as_json: bool) -> None:
    """Print how each scope of a store stands, and what waits for a person."""
    chosen = settings.load({})
    now = terminal.now()
    with terminal.opening(url, {}) as store:
        scopes = look(store, chosen.schedule, now=now)
        past = history.runs_of(store)
        waiting = waiting_plans(store, known_runs(terminal.runs_home()))
    shown = urls.without_password(url)
    if as_json:
        plans = [asdict(plan) | {"created_at": plan.created_at.isoformat()} for plan in waiting]
        runs = [run.as_json() for run in past[:1]]
        terminal.print_json(
            {
                "store": shown,
                "scopes": [each.as_json() for each in scopes],
                "last_run": runs[0] if runs else None,
                "unfinished": [run.run_id for run in past if run.is_in_the_middle],
                "waiting": plans,
            }
        )
        return
    _print(shown, scopes, past, waiting)


def look(store: MemoryStore, schedule: Schedule, *, now: datetime) -> list[ScopeStanding]:
    """How each scope of an open store stands, those that are due first."""
    found = due.look_over(store, schedule, now=now)
    with store.ledger() as ledger:
        states = {scope: ledger.state(scope) if ledger else ScopeState() for scope in found}
    standing = [_standing(scope, each, states[scope], schedule) for scope, each in found.items()]
    return sorted(standing, key=lambda each: (not each.due.should_consolidate, each.scope))


def waiting_plans(store: MemoryStore, runs: Sequence[RunDirectory]) -> list[WaitingPlan]:
    """The newest plan of a store, where it would change something and nobody has applied it."""
    own = [run for run in runs if run.manifest.store == store.url]
    if not own or own[-1].read_json("receipt.json"):
        return []
    run = own[-1]
    report = steps.read_report(run, store=store.url)
    changes = sum(scope.changes for scope in report.scopes)
    if not changes:
        return []
    return [WaitingPlan(run_id=run.run_id, verdict=report.verdict, created_at=run.manifest.created, changes=changes)]


def _standing(scope: str, found: Due, state: ScopeState, schedule: Schedule) -> ScopeStanding:
    hours = found.hours_since_last_consolidate
    left = None if hours is None or found.should_consolidate else max(schedule.interval_hours(state) - hours, 0.0)
    return ScopeStanding(scope=scope, due=found, state=state, hours_until_due=left)


def _print(
    url: str, scopes: Sequence[ScopeStanding], past: Sequence[history.PastRun], waiting: Sequence[WaitingPlan]
) -> None:
    from memfold_flows import console, legible

    number = sum(each.due.should_consolidate for each in scopes)
    last = f"the last run that wrote is {past[0].run_id}" if past else "no run has written to it yet"
    console.say(f"{url}: {len(scopes)} scope{'' if len(scopes) == 1 else 's'}, {number} due; {last}")
    if scopes:
        console.say("")
        console.table(_COLUMNS, [_cells(each) for each in scopes[:_SHOWN]], whole=("due",), may_go=_MAY_GO)
    if len(scopes) > _SHOWN:
        console.say(f"and {len(scopes) - _SHOWN} more scopes (all with --json)")
    for each in scopes[:_SHOWN]:
        if each.due.refusal:
            console.say(f"\nrefused last time: {legible.scope_name(each.scope)}: {each.due.refusal}")
    for run in past:
        if run.is_in_the_middle:
            console.say("\n" + history.what_to_do(run, store=url, runs_folder=terminal.runs_home()))
    for plan in waiting:
        console.say(f"\nwaits for review: plan {plan.run_id} of {plan.created_at:%Y-%m-%d %H:%M} UTC ({plan.verdict})")
        console.say(f"memfold show {plan.run_id}   look at it")
    if number:
        console.say(f"\nmemfold plan {legible.quoted(url)}   see what a pass would do")


_SHOWN = 50
_COLUMNS = ("scope", "due", "last pass", "next", "converged", "new", "replay")
_MAY_GO = ("converged", "replay", "new", "last pass")
_WHY: Mapping[str, str] = {"replay": "replay waits", "backlog": "much was written", "schedule": "it is time"}


def _cells(each: ScopeStanding) -> tuple[str, ...]:
    from memfold_flows import legible

    found, last = each.due, each.state.last_consolidate_at
    due_now = f"yes: {'first pass' if last is None else _WHY[found.reason]}" if found.should_consolidate else "no"
    if found.refusal and not found.should_consolidate:
        due_now = "no: refused, unchanged since"
    following = (
        "now"
        if found.should_consolidate
        else ""
        if each.hours_until_due is None
        else f"in {each.hours_until_due:.0f} h"
    )
    return (
        legible.scope_name(each.scope),
        due_now,
        "never" if last is None else f"{last:%Y-%m-%d %H:%M}",
        following,
        f"yes (x{each.state.multiplier:g})" if each.state.converged else "no",
        str(found.backlog_size),
        str(found.replay_size),
    )
