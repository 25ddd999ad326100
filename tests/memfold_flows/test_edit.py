"""A plan that a person changes: decided and gated again, applied exactly, remembered, taken back."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from memfold.errors import BadUsage, PlanDamaged
from memfold_flows import pipeline, steps
from memfold_flows.edits import Decision
from memfold_flows.receipts import State
from memfold_flows.runs import RunDirectory

from .conftest import Ended, Kitchen, Nights, clock, plan_rows


def edit(kitchen: Kitchen, first: RunDirectory, **decisions: Decision) -> RunDirectory:
    """The run that a person's decisions make of an earlier one."""
    run = RunDirectory.create(first.path.parent / f"{first.run_id}-edit", f"{first.run_id}-edit")
    pipeline.edit(
        kitchen.store, first, run, {name.replace("_", "-"): said for name, said in decisions.items()}, clock=clock
    )
    return run


def test_a_rejected_merge_is_applied_as_edited_and_never_proposed_again(tea: Kitchen, nights: Nights) -> None:
    """One copy stays, the other folds, undo brings that one back, and the next nights leave the rejected one alone."""
    before = tea.rows
    first, _ = nights.plan(tea.store)
    run = edit(tea, first, tea_2="reject")

    nights.apply(tea.store, run)

    assert before.keys() - tea.ids == {"tea-3"}
    assert tea.rows["tea-2"] == before["tea-2"]
    assert nights.plan(tea.store)[1].totals.merged == 0
    pipeline.undo(tea.store, run, clock=clock)
    assert tea.rows == before


def test_a_rejected_cluster_stays_apart_as_a_whole(tea: Kitchen, nights: Nights) -> None:
    """Named for the memory that stays, a rejection holds for all that would have gone into it, and among them."""
    first, _ = nights.plan(tea.store)
    run = edit(tea, first, tea_1="reject")

    receipt = nights.apply(tea.store, run)

    assert (receipt.state, receipt.totals.merged) == (State.NOTHING_TO_DO, 0)
    assert nights.plan(tea.store)[1].totals.merged == 0


def test_a_rejected_removal_is_applied_as_edited(tea: Kitchen, nights: Nights) -> None:
    """A stale memory that a person wants to keep stays, the other one goes and comes back."""
    stale = {"stale_min_idle_days": 10, "stale_kinds": ("note",)}
    tea.remember("old", "The kettle was red", kind="note", last_used_at=1)
    tea.remember("older", "The stove was blue", kind="note", last_used_at=1)
    before = tea.rows
    first, report = nights.plan(tea.store, **stale)
    assert report.totals.pruned == 2
    run = edit(tea, first, old="reject")

    nights.apply(tea.store, run)

    assert "old" in tea.ids
    assert "older" not in tea.ids
    assert plan_rows(nights.plan(tea.store, **stale)[0])["old"]["action"] == "keep"
    pipeline.undo(tea.store, run, clock=clock)
    assert tea.rows == before


def test_a_rejected_promotion_is_applied_as_edited(tea: Kitchen, nights: Nights) -> None:
    """One memory moves to the long term and back; the other one stays where a person wants it."""
    for memory_id in ("jam", "milk"):
        tea.remember(memory_id, f"The {memory_id} is in the fridge", tier="short_term", use_count=9)
    before = tea.rows
    first, report = nights.plan(tea.store, promote_min_use_count=5)
    assert report.totals.promoted == 2
    run = edit(tea, first, jam="reject")

    receipt = nights.apply(tea.store, run)

    assert receipt.totals.promoted == 1
    assert plan_rows(nights.plan(tea.store, promote_min_use_count=5)[0])["jam"]["action"] == "keep"
    pipeline.undo(tea.store, run, clock=clock)
    assert tea.rows == before


def test_what_a_person_removes_counts_as_lost_and_comes_back(tea: Kitchen, nights: Nights) -> None:
    """A memory that no rule would remove goes by hand, through the gate and with undo data."""
    before = tea.rows
    first, _ = nights.plan(tea.store)
    run = edit(tea, first, oven="prune")

    receipt = nights.apply(tea.store, run)

    assert (receipt.totals.pruned, receipt.totals.lost) == (1, 1)
    assert "oven" not in tea.ids
    pipeline.undo(tea.store, run, clock=clock)
    assert tea.rows == before


def test_the_gate_judges_an_edited_plan_again(tea: Kitchen, nights: Nights) -> None:
    """Three of eight memories by hand are more than a quarter: nothing is written."""
    first, _ = nights.plan(tea.store)
    run = edit(tea, first, oven="prune", bread="prune", key="prune")

    receipt = nights.apply(tea.store, run)

    assert receipt.state == State.REJECTED
    assert len(tea.ids) == 8


def test_a_pinned_memory_stays_and_takes_the_others(tea: Kitchen, nights: Nights) -> None:
    """A copy that would have gone is kept; nothing of the store says that it is pinned."""
    first, _ = nights.plan(tea.store)
    pinned_before = tea.rows["oven"]

    run = edit(tea, first, oven="pin")
    nights.apply(tea.store, run)

    assert tea.rows["oven"] == pinned_before


def test_an_edit_of_an_edit_keeps_what_was_decided_before(tea: Kitchen, nights: Nights) -> None:
    """Decisions add up; the later one counts."""
    first, _ = nights.plan(tea.store)
    second = edit(tea, first, tea_2="reject")
    third = edit(tea, second, oven="prune")

    actions = {memory_id: row["action"] for memory_id, row in plan_rows(third).items()}

    assert (actions["tea-2"], actions["tea-3"], actions["oven"]) == ("keep", "merge", "prune")
    assert steps.read_report(third, store=tea.store.url).edits == {"oven": "prune", "tea-2": "keep"}


@pytest.mark.parametrize(
    ("decisions", "why"),
    [
        ({"nobody": "reject"}, "'nobody' is not in run night-1"),
        ({"oven": "reject"}, "'oven' stays already"),
        ({"tea_2": "prune"}, "'tea-2' leaves already"),
        ({"tea_1": "prune"}, "'tea-1' stays for others"),
        ({"cellar": "prune"}, "'cellar' is pinned or protected"),
        ({"milk": "pin"}, "'milk' expired at the time that its owner gave it"),
    ],
)
def test_what_a_plan_has_no_place_for_is_refused(
    tea: Kitchen, nights: Nights, decisions: dict[str, Decision], why: str
) -> None:
    """Unknown ids, targets that would go, pinned memories: named, and no run is left behind that could be applied."""
    tea.remember("cellar", "Wine is in the cellar", pinned=1)
    tea.remember("milk", "The milk is fresh", expires_at=1)
    first, _ = nights.plan(tea.store)

    with pytest.raises(BadUsage, match=why):
        edit(tea, first, **decisions)


def test_a_plan_that_was_applied_is_not_edited(tea: Kitchen, nights: Nights) -> None:
    """What was written cannot be decided any more."""
    first, _ = nights.plan(tea.store)
    nights.apply(tea.store, first)

    with pytest.raises(BadUsage, match="was applied already"):
        edit(tea, first, oven="prune")


def test_a_plan_whose_files_somebody_changed_is_neither_edited_nor_applied(tea: Kitchen, nights: Nights) -> None:
    """memfold edit is the way to change a plan; a changed file is damage."""
    first, _ = nights.plan(tea.store)
    first.write("plan", first.read("plan").slice(1))

    with pytest.raises(PlanDamaged, match="changed or cut short"):
        edit(tea, first, oven="prune")
    with pytest.raises(PlanDamaged, match="changed or cut short"):
        nights.apply(tea.store, first)


def test_limits_over_many_nights_hold_for_what_is_removed_by_hand(tea: Kitchen, nights: Nights) -> None:
    """Each night is within its limit; together they would be more than half, and the last one is refused."""
    for number in range(12):
        tea.remember(f"note-{number:02}", f"Shelf {number} holds jar {number * 7 + 3}")
    states = []
    for batch in ((0, 1, 2, 3), (4, 5, 6), (7, 8)):
        first, _ = nights.plan(tea.store, as_of=clock() - timedelta(hours=1))
        run = edit(tea, first, **{f"note_{number:02}": "prune" for number in batch})
        states.append(nights.apply(tea.store, run).state)
    first, _ = nights.plan(tea.store)
    run = edit(tea, first, note_10="prune", note_11="prune", bin="prune")
    states.append(nights.apply(tea.store, run).state)

    assert states == [State.CONSOLIDATED] * 3 + [State.REJECTED]


class TestCommand:
    @pytest.fixture
    def planned(self, command: Callable[..., Ended], tea: Kitchen) -> str:
        """The id of a plan of the tea store, made by the command."""
        return json.loads(command("plan", f"sqlite:{tea.path}", "--json").out)["run_id"]

    def test_single_memories_are_named(self, command: Callable[..., Ended], planned: str) -> None:
        """The new run stands beside the first one, and is what latest means."""
        ended = command("edit", planned, "--reject", "tea-2", "--pin", "oven")

        assert ended.code == 0
        assert ended.out.startswith(f"edited from {planned}: reject 1, pin 1; that plan stays as it is")
        assert "changed by a person: oven, tea-2 are to stay" in command("show", f"{planned}-edit1").out
        assert json.loads(command("show", "latest", "--json").out)["plan"]["run_id"] == f"{planned}-edit1"
        assert command("edit", "latest", "--prune", "bin").out.count(f"{planned}-edit2") > 0

    def test_an_exported_plan_is_changed_and_read_back(
        self, command: Callable[..., Ended], planned: str, tmp_path: Path
    ) -> None:
        """A CSV with decisions, or JSONL with other actions, says the same."""
        rows = list(csv.DictReader(command("export", planned, "--csv").out.splitlines()))
        assert {row["id"]: row["into_text"] for row in rows}["tea-2"] == "Ann drinks green tea"
        for row in rows:
            row["decision"] = {"tea-2": "reject", "bin": "prune"}.get(row["id"], "")
        with (tmp_path / "plan.csv").open("w", newline="") as file:
            table = csv.DictWriter(file, rows[0])
            table.writeheader()
            table.writerows(rows)
        lines = [json.loads(line) for line in command("export", planned).out.splitlines()]
        for line in lines:
            line["action"] = {"tea-2": "keep", "bin": "prune"}.get(line["id"], line["action"])
        (tmp_path / "plan.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

        by_csv = json.loads(command("edit", planned, "--from", "plan.csv", "--json").out)
        by_jsonl = json.loads(command("edit", planned, "--from", "plan.jsonl", "--json").out)

        assert by_csv["scopes"] == by_jsonl["scopes"]
        assert (by_csv["merged"], by_csv["pruned"]) == (1, 1)

    @pytest.mark.parametrize(
        ("row", "why"),
        [
            ({"id": "nobody"}, "no memory 'nobody'"),
            ({"id": "tea-2", "action": "merge", "into": "oven"}, "takes no merges by hand"),
            ({"id": "oven", "action": "merge", "into": "tea-1"}, "the plan says keep"),
            ({"id": "oven", "decision": "burn"}, "decision must be one of accept, reject, pin, prune"),
            ({"id": "tea-2", "action": "keep", "decision": "pin"}, "say it once"),
        ],
    )
    def test_a_changed_plan_may_ask_for_nothing_new(
        self, command: Callable[..., Ended], planned: str, tmp_path: Path, row: dict[str, str], why: str
    ) -> None:
        """Merges of one's own and unknown ids are refused, by row."""
        (tmp_path / "plan.jsonl").write_text(json.dumps(row) + "\n")

        ended = command("edit", planned, "--from", "plan.jsonl")

        assert ended.code == 2
        assert why in ended.err
        assert "row 1" in ended.err

    def test_contradicting_or_no_decisions_are_bad_usage(self, command: Callable[..., Ended], planned: str) -> None:
        """Nothing is guessed."""
        assert command("edit", planned).code == 2
        assert (
            "got two decisions, reject and pin" in command("edit", planned, "--reject", "tea-2", "--pin", "tea-2").err
        )
