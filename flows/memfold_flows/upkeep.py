"""The commands about runs that were: where an id went, which runs a store had, and which old texts may go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from datetime import timedelta

import typer

from memfold.errors import MemfoldError
from memfold_flows import console, history, legible, redirects, retention, settings, stores, terminal
from memfold_flows.receipts import ExitCode
from memfold_flows.stores import urls
from memfold_flows.stores.base import MemoryStore
from memfold_flows.streams import count


def resolve(url: str, ids: Sequence[str], *, as_json: bool) -> None:
    """Say which memory each id leads to; an id that nobody knows ends in exit code 1."""
    with _opened(url) as store:
        found = redirects.resolve(store, ids)
    shown = urls.without_password(url)
    if as_json:
        terminal.print_json({"store": shown, "ids": [asdict(each) for each in found]})
    else:
        for each in found:
            console.say(_where(each, shown))
    if not all(each.is_known for each in found):
        raise typer.Exit(ExitCode.FAILED)


def show_history(url: str, *, as_json: bool) -> None:
    """List the runs that wrote to a store, newest first."""
    with _opened(url) as store:
        runs = history.runs_of(store)
    shown = urls.without_password(url)
    if as_json:
        terminal.print_json({"store": shown, "runs": [run.as_json() for run in runs]})
        return
    if not runs:
        console.say(f"no run has written to {shown} yet")
        return
    console.table(_COLUMNS, [_cells(run) for run in runs], whole=("run", "state"), may_go=_MAY_GO)
    for run in runs:
        if run.is_in_the_middle:
            console.say("\n" + history.what_to_do(run, store=shown, runs_folder=terminal.runs_home()))


def prune_runs(*, url: str | None, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Remove the undo and snapshot data of runs that are older than ``keep_undo_days``."""
    days = settings.load({}).keep_undo_days
    if url is not None:
        with _opened(url) as store:
            url = store.url
    now = terminal.now()
    old, kept = retention.find(
        terminal.runs_home(), before=now - timedelta(days=days), now=now, open_store=stores.open_store, store=url
    )
    if old and not dry_run:
        if not yes:
            runs = count(len(old), "run", "runs")
            question = f"Remove the undo and snapshot data of {runs}? They cannot be undone after that."
            terminal.ask(question, declined="declined; nothing was removed")
        retention.remove(old, now=now)
    if as_json:
        removed = [each.as_json() for each in old]
        terminal.print_json(
            {"keep_undo_days": days, "dry_run": dry_run, "removed": removed, "kept": [asdict(each) for each in kept]}
        )
        return
    _show_pruned(old, kept, days=days, dry_run=dry_run)


def prune_after(store: MemoryStore) -> None:
    """After a pass: remove what older runs of the same store have kept long enough. Never in the way of the pass."""
    now = terminal.now()
    try:
        before = now - timedelta(days=settings.load({}).keep_undo_days)
        old, _ = retention.find(
            terminal.runs_home(), before=before, now=now, open_store=stores.open_store, store=store.url
        )
        retention.remove(old, now=now)
    except (MemfoldError, OSError) as error:
        terminal.warn(f"the old undo data of {store.url} stays for now: {error}")


def _show_pruned(old: Sequence[retention.Old], kept: Sequence[retention.Kept], *, days: int, dry_run: bool) -> None:
    verb = "would remove" if dry_run else "removed"
    for each in old:
        what = f"the undo and snapshot data of run {each.run_id} on {each.store}"
        what = what if each.has_manifest else f"run {each.run_id}, a plan that was cut short"
        console.say(
            f"{verb} {what}: last used {each.last_used_at:%Y-%m-%d}, {count(each.texts_bytes, 'byte', 'bytes')}"
        )
    for kept_run in kept:
        console.say(f"kept {kept_run.run_id}: {kept_run.why}")
    if not old:
        console.say(f"no run has kept texts for more than {count(days, 'day', 'days')} that may go")


def _where(resolved: redirects.Resolved, url: str) -> str:
    asked, now = legible.id_in_short(resolved.id), legible.id_in_short(resolved.now or "")
    if not resolved.is_known:
        return f"{asked}: unknown; {url} has no memory of this id and no redirect from it"
    if resolved.now == resolved.id:
        return f"{asked}: stands under this id"
    return f"{asked} -> {now}{'' if resolved.stands else ' (which is gone since)'}"


_COLUMNS = ("run", "began (UTC)", "state", "merged", "pruned", "promoted", "lost", "restored", "files")


#: The first to go on a narrow terminal; the run and its state stay.
_MAY_GO = ("files", "promoted", "lost", "began (UTC)", "restored", "pruned", "merged")


def _cells(run: history.PastRun) -> tuple[str, ...]:
    counts = (run.merged, run.pruned, run.promoted, run.lost, run.restored)
    there = "there" if run.has_directory else "gone"
    return run.run_id, f"{run.began_at:%Y-%m-%d %H:%M}", _STATES[run.state], *map(str, counts), there


_STATES = {
    history.RunState.APPLIED: "applied",
    history.RunState.IN_APPLY: "in the middle of apply",
    history.RunState.IN_UNDO: "in the middle of undo",
    history.RunState.PARTLY_UNDONE: "partly undone",
    history.RunState.UNDONE: "undone",
}


@contextmanager
def _opened(url: str) -> Iterator[MemoryStore]:
    with closing(stores.open_store(url)) as store:
        yield store
