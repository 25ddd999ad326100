"""What an operator reads of a pass."""

from __future__ import annotations

from dataclasses import replace

from memfold_flows import summaries, views
from memfold_flows.stores.base import Drift

from .conftest import DAY, Kitchen, Nights


def test_a_plan_says_what_it_would_lose(tea: Kitchen, nights: Nights) -> None:
    """The figures of the plan, and where it lies."""
    _, report = nights.plan(tea.store)

    said = summaries.plan(report)

    assert "| 8 -> 6 | 0 (0.0%) | 25% of a scope | 2 | 0 | 0 | 0 | 2 (25.0%) |" in said
    assert f"Run directory: `{report.run_dir}`" in said
    assert summaries.warnings(report) == []


def test_a_run_directory_holds_its_plan_and_receipt_as_pages(tea: Kitchen, nights: Nights) -> None:
    """The same text as Prefect shows, for whoever looks into the folder without it."""
    run, report = nights.plan(tea.store)
    planned = (run.path / "plan.md").read_text(encoding="utf-8")

    receipt = nights.apply(tea.store, run)

    assert planned == summaries.plan(report)
    assert (run.path / "receipt.md").read_text(encoding="utf-8") == summaries.outcome(receipt)


def test_what_a_person_should_look_at_is_named(tea: Kitchen, nights: Nights) -> None:
    """A scope that is refused, and one that loses more than half of what it may."""
    tea.remember("attic-1", "A box of old maps", scope="attic", age=40 * DAY)
    tea.remember("attic-2", "The rocking chair needs a new seat", scope="attic", age=5 * DAY)
    tea.remember("hall-1", "The umbrella stand leaks", scope="hall", age=40 * DAY)
    for number, text in enumerate(
        ("Coats hang by size", "Post lies on the bench", "No shoes past the mat", "Mind the step")
    ):
        tea.remember(f"hall-{number + 2}", text, scope="hall", age=5 * DAY)
    _, report = nights.plan(tea.store, stale_min_age_days=35)

    assert summaries.warnings(report) == [
        "attic: refused, 1 of 2 memories would be lost (0.5), the limit is 0.25; "
        "at that limit a scope of fewer than 4 memories never loses one",
        "hall: would lose 20.0%, more than half of what it may",
    ]


def test_a_final_state_says_what_was_left_alone(tea: Kitchen, nights: Nights) -> None:
    """A pass that wrote less than it planned says so in the one line that a list of runs shows."""
    run, _ = nights.plan(tea.store)
    first = nights.apply(tea.store, run)
    later, _ = nights.plan(tea.store)
    assert summaries.in_one_line(first) == "2 merged, 0 pruned, 0 promoted of 8"
    drifted = replace(nights.apply(tea.store, later), drifted=(Drift("tea-1", "", "its text changed"),))

    assert summaries.in_one_line(drifted) == (
        "0 merged, 0 pruned, 0 promoted of 6; 1 memory had changed since the plan and was left alone"
    )


def test_merges_stand_side_by_side(tea: Kitchen, nights: Nights) -> None:
    """The memory that stays, the one that goes and why, as a table."""
    run, _ = nights.plan(tea.store)

    said = summaries.look(views.look(run, most=10))

    assert "| stays | folds into it | why |" in said
    assert "| `tea-1` Ann drinks green tea | `tea-2` ann drinks green tea. | copy: " in said


def test_a_memory_cannot_change_how_the_page_looks(kitchen: Kitchen, nights: Nights) -> None:
    """Signs of Markdown and HTML in a text are shown as they are."""
    kitchen.remember("a", "Ann's <b>favourite</b> | tea is `sencha` *always* [here](x)")
    kitchen.remember("b", "ann's <b>favourite</b> | tea is `sencha` *always* [here](x)")
    run, _ = nights.plan(kitchen.store)

    said = summaries.look(views.look(run, most=10))

    assert r"Ann's \<b\>favourite\</b\> \| tea is \`sencha\` \*always\* \[here\](x)" in said
