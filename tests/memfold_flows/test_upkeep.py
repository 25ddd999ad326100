"""Runs that were: where ids lead, what the history says, how a part is taken back, and when old texts go."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from memfold_flows import terminal
from memfold_flows.runs import RunDirectory, known_runs
from memfold_flows.stores import sqlite

from .conftest import Ended, Kitchen

Command = Callable[..., Ended]

TEA = {"tea-1", "tea-2", "tea-3"}


@pytest.fixture
def applied(command: Command, tea: Kitchen) -> dict[str, Any]:
    """The receipt of a pass that merged two of three copies."""
    ended = command("run", f"sqlite:{tea.path}", "--yes", "--json")
    assert ended.code == 0
    receipt: dict[str, Any] = json.loads(ended.out)
    return receipt


# Where ids lead


def test_resolve_says_where_each_id_leads(command: Command, tea: Kitchen, applied: dict[str, Any]) -> None:
    """An old id leads to the memory that stays; one that stands leads to itself."""
    [stays] = TEA & tea.ids
    old = min(TEA - {stays})

    ended = command("resolve", f"sqlite:{tea.path}", old, "bread")

    assert ended.code == 0
    assert ended.out.splitlines() == [f"{old} -> {stays}", "bread: stands under this id"]


def test_resolve_goes_through_later_passes(command: Command, tea: Kitchen, applied: dict[str, Any]) -> None:
    """The survivor was merged since: the id leads to the one that took it in."""
    [stays] = TEA & tea.ids
    tea.remember("tea-0", "Ann drinks green tea", importance=0.9)
    command("run", f"sqlite:{tea.path}", "--yes")

    found = json.loads(command("resolve", f"sqlite:{tea.path}", *sorted(TEA), "--json").out)["ids"]

    assert {each["now"] for each in found} == {"tea-0"}
    assert all(each["stands"] for each in found)
    assert stays not in tea.ids


def test_resolve_of_an_id_that_nobody_knows_says_so(command: Command, tea: Kitchen) -> None:
    """Exit 1, so that a script notices; the ids that are known are answered all the same."""
    ended = command("resolve", f"sqlite:{tea.path}", "nobody", "bread")

    assert ended.code == 1
    assert ended.out.splitlines()[0].startswith("nobody: unknown; sqlite:")
    assert ended.out.splitlines()[1] == "bread: stands under this id"


def test_resolve_says_when_the_end_is_gone_too(command: Command, tea: Kitchen, applied: dict[str, Any]) -> None:
    """An agent deleted the survivor: the redirect is true, but nothing stands there."""
    [stays] = TEA & tea.ids
    tea.forget(stays)

    out = command("resolve", f"sqlite:{tea.path}", min(TEA - {stays})).out

    assert f"-> {stays} (which is gone since)" in out


def test_an_id_that_was_given_away_again_is_the_new_memory(
    command: Command, tea: Kitchen, applied: dict[str, Any]
) -> None:
    """An agent wrote a memory under the old id; the redirect no longer speaks for it."""
    old = min(TEA - tea.ids)
    tea.remember(old, "A new thought")

    assert command("resolve", f"sqlite:{tea.path}", old).out == f"{old}: stands under this id\n"


# The history of a store


def test_history_lists_what_each_run_did(command: Command, tea: Kitchen, applied: dict[str, Any]) -> None:
    """First applied, then partly undone, then undone; the run directory is there or gone."""
    old = min(TEA - tea.ids)
    states = [_history(command, tea)[0]]
    command("undo", "latest", "--yes", "--id", old)
    states.append(_history(command, tea)[0])
    command("undo", "latest", "--yes")
    shutil.rmtree(applied["run_dir"])
    states.append(_history(command, tea)[0])

    seen = [(run["state"], run["merged"], run["restored"], run["has_directory"]) for run in states]
    assert seen == [("Applied", 2, 0, True), ("PartlyUndone", 2, 1, True), ("Undone", 2, 2, False)]
    assert "undone" in command("history", f"sqlite:{tea.path}").out


@pytest.mark.parametrize("columns", [40, 60, 80, 200])
def test_history_keeps_run_ids_whole_on_any_terminal(
    command: Command, tea: Kitchen, applied: dict[str, Any], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    """Where there is no room other columns go, and the table says which."""
    monkeypatch.setenv("COLUMNS", str(columns))

    said = command("history", f"sqlite:{tea.path}").out

    [row] = [line for line in said.splitlines() if applied["run_id"] in line]
    assert "applied" in row
    assert ("(not shown here: " in said) == (columns <= 80)


def test_a_store_without_runs_has_an_empty_history(command: Command, tea: Kitchen) -> None:
    """And looking into it makes no table."""
    before = tea.path.read_bytes()

    assert "no run has written to" in command("history", f"sqlite:{tea.path}").out
    assert _history(command, tea) == []
    assert tea.path.read_bytes() == before


# A part of a run


def test_undo_of_a_part_through_the_command_line(command: Command, tea: Kitchen, applied: dict[str, Any]) -> None:
    """One merge comes back, is not proposed again, and the rest of the run can still be taken back."""
    before = tea.ids
    old = min(TEA - before)

    part = command("undo", "latest", "--yes", "--id", old)
    shown = command("show", applied["run_id"]).out
    twice = command("undo", applied["run_id"], "--yes", "--id", old)
    planned = json.loads(command("plan", f"sqlite:{tea.path}", "--json").out)
    rest = json.loads(command("undo", applied["run_id"], "--yes", "--json").out)

    assert (part.code, twice.code) == (0, 0)
    assert "1 memory restored" in part.out
    assert "take back the rest of this run" in part.out
    assert f"only memory '{old}'" in shown
    assert "memfold undo" in shown
    assert "already" in twice.out
    assert planned["merged"] == 0
    assert (rest["state"], rest["restored"]) == ("Undone", 1)
    assert tea.ids >= TEA


def test_undo_of_one_scope_through_the_command_line(command: Command, tea: Kitchen, applied: dict[str, Any]) -> None:
    """The only scope of a run is all of it; one that the run never wrote to is bad usage."""
    wrong = command("undo", "latest", "--yes", "--scope", "garden")
    both = command("undo", "latest", "--yes", "--scope", "kitchen", "--id", "tea-1")
    right = json.loads(command("undo", "latest", "--yes", "--scope", "kitchen", "--json").out)

    assert (wrong.code, both.code) == (2, 2)
    assert "changed nothing of scope 'garden'; nothing was restored. It wrote to: 'kitchen'." in wrong.err
    assert (right["state"], right["restored"], right["scope"]) == ("Undone", 2, "kitchen")


# Runs in the middle


@pytest.fixture
def interrupted(command: Command, tea: Kitchen, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a run that was unplugged after the first of its two scopes."""
    for number, text in enumerate(("The hose leaks at the tap", "the hose leaks at the tap.")):
        tea.remember(f"hose-{number}", text, scope="garden")
    write = RunDirectory.write_undo

    def unplugged_after_the_first(run: RunDirectory, number: int, rows: pa.Table) -> None:
        if number == 1:
            raise OSError("unplugged")
        write(run, number, rows)

    with monkeypatch.context() as patched:
        patched.setattr(sqlite.SqliteStore, "traits", replace(tea.store.traits, rows_per_transaction=2))
        patched.setattr(RunDirectory, "write_undo", unplugged_after_the_first)
        assert command("run", f"sqlite:{tea.path}", "--yes").code == 4
    [run] = known_runs(terminal.runs_home())
    return run.path


def test_the_next_command_names_a_run_that_was_interrupted(command: Command, tea: Kitchen, interrupted: Path) -> None:
    """What it committed stands; the message says how it goes on and how it is taken back."""
    planned = command("plan", f"sqlite:{tea.path}")
    listed = command("history", f"sqlite:{tea.path}")

    run_id = interrupted.name
    assert planned.code == 0
    assert f"run {run_id} is in the middle of its apply on {tea.store.url}" in planned.err
    assert f"memfold apply {run_id} goes on, memfold undo {run_id} takes it back" in planned.err
    assert "in the middle of apply" in listed.out


@pytest.mark.parametrize("step", ["apply", "undo"])
def test_a_run_in_the_middle_is_ended_as_the_message_says(
    command: Command, tea: Kitchen, interrupted: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """After its apply or undo, nothing is in the middle any more; and the run is not warned of itself."""
    _days_later(monkeypatch, 1)  # by then the lease of the interrupted apply has run out
    ended = command(step, interrupted.name, "--yes")
    planned = command("plan", f"sqlite:{tea.path}")

    assert (ended.code, ended.err) == (0, "")
    assert "in the middle" not in planned.err
    assert _history(command, tea)[0]["state"] == {"apply": "Applied", "undo": "Undone"}[step]


def test_the_feed_of_an_apply_that_went_on_holds_both_halves(command: Command, tea: Kitchen, interrupted: Path) -> None:
    """What the interrupted half removed is in the feed as well."""
    command("apply", interrupted.name, "--yes")

    feed = [json.loads(line) for line in (interrupted / "changes.jsonl").read_text().splitlines()]
    removed = {line["id"] for line in feed if line["change"] == "removed"}
    assert removed == ({"hose-0", "hose-1"} | TEA) - tea.ids
    assert len(removed) == 3


def test_an_undo_that_was_interrupted_is_named_too(
    command: Command, tea: Kitchen, interrupted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same undo ends it; a part that was taken back on purpose is not in the middle."""
    command("apply", interrupted.name, "--yes")
    with monkeypatch.context() as patched:
        patched.setattr(sqlite.SqliteStore, "traits", replace(tea.store.traits, rows_per_transaction=2))
        patched.setattr(sqlite.SqliteTransaction, "restore", _unplugged_after(1, sqlite.SqliteTransaction.restore))
        assert command("undo", interrupted.name, "--yes").code == 4

    found = command("plan", f"sqlite:{tea.path}").err
    state = _history(command, tea)[0]["state"]
    ended = command("undo", interrupted.name, "--yes")

    assert f"is in the middle of its undo on {tea.store.url}" in found
    assert f"memfold undo {interrupted.name} goes on." in found
    assert state == "InTheMiddleOfUndo"
    assert (ended.code, _history(command, tea)[0]["state"]) == (0, "Undone")


def test_a_run_in_the_middle_whose_directory_is_gone_is_named_as_such(
    command: Command, tea: Kitchen, interrupted: Path
) -> None:
    """Nothing can end it, and the message does not promise it."""
    shutil.rmtree(interrupted)

    assert "is gone, so it can neither go on nor be taken back" in command("plan", f"sqlite:{tea.path}").err


# Old texts


def test_old_undo_data_goes_and_the_plan_and_the_receipts_stay(
    command: Command, tea: Kitchen, applied: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After 91 days the texts are gone from the run; undo says why it cannot, show still shows the plan."""
    run = Path(applied["run_dir"])
    young = command("prune-runs", "--yes", "--json")
    _days_later(monkeypatch, 91)

    asked = command("prune-runs")
    looked = command("prune-runs", "--dry-run", "--json")
    still_there = sorted(path.name for path in (run / "undo").iterdir())
    removed = command("prune-runs", "--yes")

    assert json.loads(young.out)["removed"] == []
    assert asked.code == 2
    assert [each["run_id"] for each in json.loads(looked.out)["removed"]] == [applied["run_id"]]
    assert still_there == ["000000.parquet"]
    assert f"removed the undo and snapshot data of run {applied['run_id']}" in removed.out
    assert list((run / "undo").iterdir()) == []
    assert b"green tea" not in b"".join(path.read_bytes() for path in run.glob("snapshot/*"))
    undone = command("undo", applied["run_id"], "--yes")
    assert undone.code == 2
    assert f"the undo data of run {applied['run_id']} was removed at" in undone.err
    shown = command("show", applied["run_id"])
    assert (shown.code, "text no longer kept" in shown.out) == (0, True)
    assert command("apply", applied["run_id"], "--yes").code == 0
    assert json.loads(command("prune-runs", "--yes", "--json").out)["removed"] == []


def test_the_days_are_a_setting(
    command: Command, tea: Kitchen, applied: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 365 days, 91 are not old; a number below zero is refused."""
    _days_later(monkeypatch, 91)
    monkeypatch.setenv("MEMFOLD_KEEP_UNDO_DAYS", "365")
    long = json.loads(command("prune-runs", "--dry-run", "--json").out)
    monkeypatch.setenv("MEMFOLD_KEEP_UNDO_DAYS", "-1")
    refused = command("prune-runs", "--dry-run")

    assert (long["keep_undo_days"], long["removed"]) == (365, [])
    assert (refused.code, "keep_undo_days" in refused.err) == (2, True)


def test_the_undo_data_of_a_run_in_the_middle_stays(
    command: Command, tea: Kitchen, interrupted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is needed to end the run, however old it is."""
    _days_later(monkeypatch, 1000)

    pruned = json.loads(command("prune-runs", "--yes", "--json").out)

    assert pruned["removed"] == []
    assert pruned["kept"] == [{"run_id": interrupted.name, "why": "it is in the middle of its apply"}]
    assert command("undo", interrupted.name, "--yes").code == 0


def test_undo_data_of_a_store_that_cannot_be_asked_stays(
    command: Command, tea: Kitchen, applied: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk may only be away; nobody knows whether the run is in the middle."""
    tea.path.rename(tea.path.with_suffix(".away"))
    _days_later(monkeypatch, 91)

    pruned = json.loads(command("prune-runs", "--yes", "--json").out)

    assert pruned["removed"] == []
    assert "its store cannot be asked whether it is in the middle" in pruned["kept"][0]["why"]
    assert list((Path(applied["run_dir"]) / "undo").iterdir()) != []


def test_a_plan_that_was_cut_short_goes_as_a_whole_and_a_folder_of_yours_stays(
    command: Command, tea: Kitchen, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan without a manifest can never be applied; only what is named like a run is taken for one."""
    runs = home / "memfold/runs"
    cut_short, ours = runs / "20250101T030000Z-abcdef", runs / "notes"
    for folder in (cut_short, ours):
        folder.mkdir(parents=True)
        (folder / "texts.parquet").write_bytes(b"green tea")
    _days_later(monkeypatch, 91)

    command("prune-runs", "--yes")

    assert [path.name for path in runs.iterdir()] == ["notes"]


def test_an_old_plan_that_was_never_applied_loses_its_snapshot(
    command: Command, tea: Kitchen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot be applied after that, and says so; nothing is written."""
    planned = json.loads(command("plan", f"sqlite:{tea.path}", "--json").out)
    _days_later(monkeypatch, 91)
    command("prune-runs", "--yes")

    ended = command("apply", planned["run_id"], "--yes")

    assert ended.code == 2
    assert "the snapshot of run" in ended.err
    assert tea.ids >= TEA


def test_an_apply_removes_what_older_runs_of_its_store_have_kept_long_enough(
    command: Command, tea: Kitchen, applied: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The policy holds without anybody calling prune-runs."""
    _days_later(monkeypatch, 91)
    tea.remember("bread-2", "bob bakes rye bread on fridays")

    again = json.loads(command("run", f"sqlite:{tea.path}", "--yes", "--json").out)

    assert list((Path(applied["run_dir"]) / "undo").iterdir()) == []
    assert list((Path(again["run_dir"]) / "undo").iterdir()) != []


def _history(command: Command, tea: Kitchen) -> list[dict[str, Any]]:
    runs: list[dict[str, Any]] = json.loads(command("history", f"sqlite:{tea.path}", "--json").out)["runs"]
    return runs


def _unplugged_after(calls: int, function: Callable[..., Any]) -> Callable[..., Any]:
    left = iter(range(calls))

    def call(*arguments: Any) -> Any:
        if next(left, None) is None:
            raise OSError("unplugged")
        return function(*arguments)

    return call


def _days_later(monkeypatch: pytest.MonkeyPatch, days: int) -> None:
    later = terminal.now() + timedelta(days=days)
    monkeypatch.setattr(terminal, "now", lambda: later)


def test_a_newer_run_that_is_damaged_is_named_where_latest_is_another(command: Command, tea: Kitchen) -> None:
    """A person sees it; with --yes nothing is taken back on a guess."""
    command("run", f"sqlite:{tea.path}", "--yes")
    left = tea.ids
    [first] = known_runs(terminal.runs_home())
    second = terminal.runs_home() / "20991231T000000Z-abcdef"
    shutil.copytree(first.path, second)
    (second / "manifest.json").write_text("{")

    shown, undone = command("show", "latest"), command("undo", "latest", "--yes")

    assert f"{second.name} is newer and damaged, so latest is {first.run_id}" in shown.err
    assert f"latest could mean {second.name}, which is damaged" in undone.err
    assert (shown.code, undone.code, tea.ids) == (0, 2, left)
