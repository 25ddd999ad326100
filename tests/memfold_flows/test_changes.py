"""The change feed: what the owner of an index beside a store has to do after a pass, and after an undo."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memfold.errors import ApplyInterrupted
from memfold_flows import pipeline
from memfold_flows.runs import RunDirectory
from memfold_flows.stores.undo_units import Selection

from .conftest import DAY, Kitchen, Nights, clock


def test_the_feed_names_the_one_that_stays_before_those_that_left(tea: Kitchen, nights: Nights) -> None:
    """A reader that goes line by line never meets a memory whose successor it does not know."""
    run, _ = nights.plan(tea.store)

    nights.apply(tea.store, run)

    [stays] = {"tea-1", "tea-2", "tea-3"} & tea.ids
    left = sorted({"tea-1", "tea-2", "tea-3"} - {stays})
    assert _feed(run) == [
        {"id": stays, "change": "updated"},
        *({"id": each, "change": "removed", "into": stays, "superseded_by": None} for each in left),
    ]


def test_what_was_pruned_went_into_nothing(kitchen: Kitchen, nights: Nights) -> None:
    """An index drops it and has nothing to put in its place."""
    for number in range(9):
        kitchen.remember(f"note-{number}", f"the {'abcdefghi'[number]} shelf holds jar {number}")
    kitchen.remember("old", "the lid is lost", expires_at=1)
    run, _ = nights.plan(kitchen.store)

    nights.apply(kitchen.store, run)

    assert _feed(run) == [{"id": "old", "change": "removed", "into": None, "superseded_by": None}]


def test_a_memory_that_was_replaced_names_its_successor(kitchen: Kitchen, nights: Nights) -> None:
    """With ``supersede: archive`` the older one leaves, and the feed says which one is true now."""
    kitchen.remember("was", "Ann's phone number is 555-0101", age=90 * DAY)
    kitchen.remember("is", "Update: Ann's phone number is now 555-0199", age=2 * DAY)
    kitchen.remember("bread", "Bob bakes rye bread on Fridays")
    run, _ = nights.plan(kitchen.store, supersede="archive", max_loss_fraction=1.0)

    nights.apply(kitchen.store, run)

    assert _feed(run) == [{"id": "was", "change": "removed", "into": None, "superseded_by": "is"}]


def test_a_pass_that_found_nothing_leaves_an_empty_feed(kitchen: Kitchen, nights: Nights) -> None:
    """There is a feed after every apply, so that a reader need not ask whether there was one."""
    kitchen.remember("bread", "Bob bakes rye bread on Fridays")
    run, _ = nights.plan(kitchen.store)

    nights.apply(kitchen.store, run)

    assert _feed(run) == []


def test_only_what_landed_is_in_the_feed(tea: Kitchen, nights: Nights) -> None:
    """A member that an agent changed since the plan stays, and the feed does not name it."""
    run, _ = nights.plan(tea.store)
    planned = {row["memory_id"] for row in run.read("plan").to_pylist() if row["action"] == "merge"}
    drifted, folded = sorted(planned)
    tea.rewrite(drifted, "Ann drinks black coffee")

    nights.apply(tea.store, run)

    assert [line["id"] for line in _feed(run) if line["change"] == "removed"] == [folded]


def test_an_apply_that_was_cut_off_before_its_receipt_writes_the_feed_when_it_goes_on(
    tea: Kitchen, nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything had landed; the feed says so, although the second apply wrote nothing."""
    run, _ = nights.plan(tea.store)
    with monkeypatch.context() as patched:
        patched.setattr("memfold_flows.steps.write_receipt", _unplugged)
        with pytest.raises(ApplyInterrupted, match="unplugged"):
            nights.apply(tea.store, run)
    assert not (run.path / "changes.jsonl").exists()

    nights.apply(tea.store, run)

    assert [line["change"] for line in _feed(run)] == ["updated", "removed", "removed"]


def test_the_feed_of_an_undo_names_what_came_back(tea: Kitchen, nights: Nights) -> None:
    """First one merge, then the rest: the feed holds what all undos of the run did together."""
    run, _ = nights.plan(tea.store)
    nights.apply(tea.store, run)
    [stays] = {"tea-1", "tea-2", "tea-3"} & tea.ids
    first, second = sorted({"tea-1", "tea-2", "tea-3"} - {stays})

    pipeline.undo(tea.store, run, clock=clock, selection=Selection(memory_id=first))
    after_one = _feed(run, "undo-changes.jsonl")
    pipeline.undo(tea.store, run, clock=clock)

    assert [line["id"] for line in after_one if line["change"] == "restored"] == [first]
    assert [(line["id"], line["change"]) for line in _feed(run, "undo-changes.jsonl")][:2] == [
        (first, "restored"),
        (second, "restored"),
    ]


def test_a_memory_that_was_written_again_is_not_in_the_feed_of_the_undo(tea: Kitchen, nights: Nights) -> None:
    """It did not come back: another one stands under its id."""
    run, _ = nights.plan(tea.store)
    nights.apply(tea.store, run)
    gone = sorted({"tea-1", "tea-2", "tea-3"} - tea.ids)
    tea.remember(gone[0], "A new thought")

    pipeline.undo(tea.store, run, clock=clock)

    restored = [line["id"] for line in _feed(run, "undo-changes.jsonl") if line["change"] == "restored"]
    assert restored == gone[1:]


def test_the_feed_is_private(tea: Kitchen, nights: Nights) -> None:
    """Ids can say much; only the owner of the run may read them."""
    run, _ = nights.plan(tea.store)

    nights.apply(tea.store, run)

    assert (run.path / "changes.jsonl").stat().st_mode & 0o777 == 0o600


def _feed(run: RunDirectory, name: str = "changes.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(run.path / name).read_text().splitlines()]


def _unplugged(*_: object, **__: object) -> None:
    raise OSError("unplugged")
