"""``memfold demo``: a whole pass over a copy of the sample store, each step with the command that does the same."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

from memfold.errors import BadUsage
from memfold_flows import console, pipeline, terminal, views
from memfold_flows.settings import Settings, load
from memfold_flows.stores import open_store

FOLDER = Path("demo")
_MARK = ".memfold-demo"
_SHOWN = 4

#: Switched on beyond the defaults, so that every kind of action is seen.
_THRESHOLDS: dict[str, Any] = {
    "promote_min_sessions": 3,
    "stale_min_idle_days": 180.0,
    "stale_max_use_count": 0,
    "stale_max_importance": 0.1,
}


def run(*, as_json: bool) -> None:
    """Copy the sample, plan, apply, and say how to look at it and how to take it back."""
    archive = _fresh_copy()
    store = open_store(f"jsonl:{archive}", in_place=True)
    now = terminal.now()
    chosen = Settings({**load({}).thresholds, **_THRESHOLDS}, keep_snapshots=True)
    directory = terminal.new_run(now)
    report = pipeline.plan(store, directory, chosen.policy(as_of=now, traits=store.traits), clock=terminal.now)
    if not as_json:
        flags = " ".join(f"--{name.replace('_', '-')} {value:g}" for name, value in _THRESHOLDS.items())
        console.say(f"$ memfold plan jsonl:{archive} {flags}")
        console.show_plan(report, views.look(directory, most=_SHOWN), is_archive=True)
        console.say(f"\n$ memfold apply {directory.run_id} --in-place --yes")
    receipt = pipeline.apply(store, directory, clock=terminal.now, keep_snapshots=chosen.keep_snapshots)
    store.close()
    if as_json:
        terminal.print_json({"plan": report.as_json(), "receipt": receipt.as_json()})
        return
    console.show_receipt(receipt)
    console.say(
        f"\nThat was the sample store, copied to {archive}. Look at the run with\n"
        f"  memfold show {directory.run_id}\n"
        f"  memfold export {directory.run_id}\n"
        f"and take all of it back with\n"
        f"  memfold undo {directory.run_id}"
    )


def _fresh_copy() -> Path:
    """The sample in ``./demo``, as it was before any pass."""
    if FOLDER.exists() and not (FOLDER / _MARK).exists():
        raise BadUsage(f"{FOLDER.absolute()} is there and not from an earlier demo; nothing was written. Go elsewhere.")
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / _MARK).touch()
    archive = FOLDER / "memories.jsonl"
    if earlier := list((FOLDER / ".memfold").glob(f"{archive.name}*")):
        for old in earlier:
            old.unlink()
        terminal.warn(f"{archive} of an earlier demo was made anew; the runs over it can be shown, and not undone")
    archive.write_bytes(resources.files("memfold_flows").joinpath("sample.jsonl").read_bytes())
    return archive
