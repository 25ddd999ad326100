"""What each command does: open the store, call the pipeline, show what happened. Thin, and free of Prefect."""

from __future__ import annotations

import functools
import logging
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from memfold.convergence import Schedule
from memfold.errors import BadUsage
from memfold_flows import leases, pipeline, progress, settings, showing, steps, stores, terminal
from memfold_flows import scopes as scope_names
from memfold_flows.receipts import ExitCode, PlanReport
from memfold_flows.runs import RunDirectory, known_runs, new_run_id
from memfold_flows.stores import urls
from memfold_flows.stores.base import MemoryStore
from memfold_flows.stores.undo_units import Selection
from memfold_flows.streams import count, in_short
from memfold_flows.terminal import ask, is_archive, locate, moment, opening, print_json, runs_home, say, warn

_SHOWN_AFTER_PLAN = 6
_LONGEST_NAME = 120

# The command line says what a person should know; without a handler of its own, logging would say it a second time.
logging.getLogger("memfold_flows").addHandler(logging.NullHandler())


def plan(
    url: str,
    *,
    scopes: list[str] | None,
    as_of: str | None,
    run_dir: Path | None,
    skip_bad: bool,
    as_json: bool,
    flags: Mapping[str, Any],
    explains_model: bool = False,
    quiet: bool = False,
) -> None:
    """Plan a pass and show it, or show what it would send to a model."""
    if explains_model:
        from memfold_flows.proposer.explaining import explain_model

        explain_model(url, scopes=scopes, as_of=as_of, flags=flags)
        return
    with _planned(
        url, scopes=scopes, as_of=as_of, run_dir=run_dir, skip_bad=skip_bad, flags=flags, quiet=quiet
    ) as planned:
        if as_json:
            from memfold_flows import details

            print_json(details.plan_as_json(planned.run, planned.report))
        else:
            showing.show_plan(planned.run, planned.report, most=_SHOWN_AFTER_PLAN)


def apply(
    reference: str,
    *,
    store: str | None,
    out: Path | None,
    in_place: bool,
    yes: bool,
    as_json: bool,
    quiet: bool = False,
) -> None:
    """Write exactly the plan of a run."""
    run = locate(reference, store=store, must_be_sure=yes)
    with opening(run.manifest.store, _target(run.manifest.store, out=out, in_place=in_place)) as opened:
        steps.require_applicable(opened, run, now=terminal.now())
        _warn_of_unfinished(opened, but=run.run_id)
        report = steps.read_report(run, store=run.manifest.store)
        if report.writable and not yes:
            if not as_json:
                showing.show_plan(run, report, most=_SHOWN_AFTER_PLAN)
            ask("Write this plan?", declined=f"declined; nothing was written. The plan stays: {run.run_id}")
        _apply(opened, run, as_json=as_json, quiet=quiet)


def run(
    url: str,
    *,
    scopes: list[str] | None,
    as_of: str | None,
    run_dir: Path | None,
    out: Path | None,
    in_place: bool,
    skip_bad: bool,
    if_due: bool,
    yes: bool,
    as_json: bool,
    flags: Mapping[str, Any],
    quiet: bool = False,
) -> None:
    """Plan, gate and apply in one go."""
    target = _target(url, out=out, in_place=in_place)
    chosen = settings.load(flags)
    if not chosen.enabled:
        _nothing_to_do(url, f"memory.consolidation.enabled is false in {settings.FILE}", as_json=as_json)
        return
    if if_due:
        scopes = _due_scopes(url, scopes, chosen.schedule)
        if not scopes:
            _nothing_to_do(url, "no scope is due", as_json=as_json)
            return
    # A person may take hours to answer, so that only a pass without a question keeps others away while it is planned.
    with _planned(
        url,
        scopes=scopes,
        as_of=as_of,
        run_dir=run_dir,
        skip_bad=skip_bad,
        flags=flags,
        target=target,
        holds_lease=yes,
        quiet=quiet,
    ) as planned:
        if not as_json:
            showing.show_plan(planned.run, planned.report, most=_SHOWN_AFTER_PLAN)
        if planned.report.writable and not yes:
            ask("Write this plan?", declined=f"declined; nothing was written. The plan stays: {planned.run.run_id}")
        _apply(planned.store, planned.run, as_json=as_json, fence=planned.fence, quiet=quiet)


def undo(
    reference: str, *, store: str | None, scope: str | None, memory_id: str | None, yes: bool, as_json: bool
) -> None:
    """Take back what a run wrote, or what it did to one scope or memory."""
    if scope is not None and memory_id is not None:
        raise BadUsage("--scope and --id exclude each other; nothing was restored")
    run = locate(reference, store=store, must_be_sure=yes)
    if scope is not None:
        scope = scope_names.among(scope, run.read("tally", ["scope"])["scope"].to_pylist())
    selection = Selection(scope=scope, memory_id=memory_id)
    receipt = run.read_json("receipt.json")
    if receipt:
        run.require_undo_data()
    url = (receipt or {}).get("written_to") or run.manifest.store
    with opening(url, {"in_place": True} if is_archive(url) else {}) as opened:
        _require_written(opened, run)
        if not yes:
            part = in_short(str(selection), _LONGEST_NAME)
            what = f"run {run.run_id}" if selection.is_all else f"{part} of run {run.run_id}"
            ask(f"Take back {what} on {url}?", declined="declined; nothing was written")
        _warn_of_unfinished(opened, but=run.run_id)
        undone = pipeline.undo(opened, run, clock=terminal.now, selection=selection)
    if as_json:
        print_json(undone.as_json())
    else:
        from memfold_flows import console

        console.show_undo(undone)
    raise typer.Exit(undone.exit_code)


@dataclass(frozen=True, slots=True)
class _Planned:
    store: MemoryStore
    run: RunDirectory
    report: PlanReport
    #: The number of the lease that the plan was made under, where there is one.
    fence: int | None


@contextmanager
def _planned(
    url: str,
    *,
    scopes: list[str] | None,
    as_of: str | None,
    run_dir: Path | None,
    skip_bad: bool,
    flags: Mapping[str, Any],
    target: Mapping[str, Any] | None = None,
    holds_lease: bool = False,
    quiet: bool = False,
) -> Iterator[_Planned]:
    """A fresh plan; a run directory in which planning failed is taken away again."""
    chosen = settings.load(flags)
    began_at = terminal.now()
    run_id = new_run_id(began_at, secrets.token_bytes(3))
    folder = runs_home() / run_id if run_dir is None else run_dir
    options = {**(target or {}), **_skip_bad_options(url, folder, skip_bad=skip_bad)}
    with opening(url, options) as opened:
        policy = chosen.policy(as_of=began_at if as_of is None else moment(as_of), traits=opened.traits)
        if why := chosen.why_without_effect(opened.traits):
            warn(why)
        scopes = scopes and scope_names.meant(opened, scopes)
        _warn_of_unfinished(opened)
        again = functools.partial(stores.open_store, url, **(target or {}))
        lease = leases.held(opened, again, run_id, clock=terminal.now) if holds_lease else nullcontext()
        # A model may take minutes to answer: then the lease is taken once the plan is there.
        first, later = (lease, nullcontext()) if chosen.proposer is None else (nullcontext(), lease)
        with first as fence:
            run = RunDirectory.create(folder, run_id)
            try:
                with progress.shown(quiet=quiet):
                    report = pipeline.plan(
                        opened, run, policy, clock=terminal.now, scopes=scopes, proposer=chosen.proposer
                    )
            except BaseException:
                shutil.rmtree(run.path, ignore_errors=True)
                raise
            if skipped := getattr(opened, "skipped", 0):
                unread = count(skipped, "line cannot be read and stays", "lines cannot be read and stay")
                warn(f"{unread} in place, with a copy in {run.path / _SET_ASIDE}")
            with later as later_fence:
                yield _Planned(opened, run, report, fence if chosen.proposer is None else later_fence)


_SET_ASIDE = "set_aside.jsonl"


def _skip_bad_options(url: str, folder: Path, *, skip_bad: bool) -> dict[str, Any]:
    if not skip_bad:
        return {}
    if urls.parse(url).scheme != "jsonl":
        raise BadUsage("--skip-bad is for jsonl: archives only; nothing was planned")
    return {"skip_bad": True, "set_aside": str(folder.absolute() / _SET_ASIDE)}


def _apply(
    store: MemoryStore, run: RunDirectory, *, as_json: bool, fence: int | None = None, quiet: bool = False
) -> None:
    keep_snapshots = settings.load({}).keep_snapshots
    with progress.shown(quiet=quiet):
        receipt = pipeline.apply(store, run, clock=terminal.now, keep_snapshots=keep_snapshots, fence=fence)
    from memfold_flows import upkeep

    upkeep.prune_after(store)
    if as_json:
        print_json(receipt.as_json())
    else:
        from memfold_flows import console

        console.show_receipt(receipt)
        new_archive = getattr(store, "written_url", store.url)
        if receipt.written_to is None and new_archive != store.url:
            say(f"{new_archive} was not written, as it would be the same; {store.url} is as it was")
    raise typer.Exit(receipt.exit_code)


def _due_scopes(url: str, scopes: list[str] | None, schedule: Schedule) -> list[str]:
    """Those of these scopes, or of all, that are due."""
    from memfold_flows import due

    with opening(url, {}) as store:
        found = due.look_over(store, schedule, now=terminal.now())
    scopes = [scope_names.among(scope, found) for scope in scopes or ()]
    return [scope for scope, each in found.items() if each.should_consolidate and (not scopes or scope in scopes)]


def _nothing_to_do(url: str, why: str, *, as_json: bool) -> None:
    says = f"{why}; nothing was planned or written"
    if as_json:
        print_json(
            {
                "state": "NothingToDo",
                "store": urls.without_password(url),
                "reason": says,
                "exit_code": int(ExitCode.DONE),
            }
        )
    else:
        say(says)


def _target(url: str, *, out: Path | None, in_place: bool) -> dict[str, Any]:
    """Where an archive is written: the options for its store."""
    if out is not None and in_place:
        raise BadUsage("--out and --in-place exclude each other; nothing was written")
    if not is_archive(url):
        if out is not None or in_place:
            shown = urls.without_password(url)
            raise BadUsage(
                f"--out and --in-place are for archives; {shown} is written where it stands. Leave them out."
            )
        return {}
    if out is None and not in_place:
        raise BadUsage(
            f"{url} is an archive; nothing was written. "
            "Say where to write: --out FILE for a new archive, or --in-place to rewrite this one."
        )
    return {"in_place": True} if out is None else {"out": str(out.absolute())}


def _require_written(store: MemoryStore, run: RunDirectory) -> None:
    """The store says whether a run wrote to it: a run directory may have lost what would tell."""
    from memfold_flows import history

    if not run.wrote and history.run_of(store, run.run_id) is None:
        raise BadUsage(f"run {run.run_id} wrote nothing, so there is nothing to undo{_newest_applied(run)}")


def _newest_applied(run: RunDirectory) -> str:
    """A hint for someone who meant the last run that wrote something."""
    store = run.manifest.store
    for other in reversed(known_runs(runs_home())):
        if other.manifest.store == store and other.wrote:
            return f"; the newest run that wrote to {store} is {other.run_id}"
    return ""


def _warn_of_unfinished(store: MemoryStore, *, but: str = "") -> None:
    """Say which other runs of a store began to write and did not end, and how to end them."""
    from memfold_flows import history

    for past in history.runs_of(store):
        if past.is_in_the_middle and past.run_id != but:
            warn(history.what_to_do(past, store=store.url, runs_folder=runs_home()))
