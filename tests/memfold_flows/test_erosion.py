"""The guard against slow erosion: a month's losses are added up in the store itself, wherever the runs are."""

from __future__ import annotations

import shutil
from datetime import timedelta

import pytest

from memfold.policy import Policy
from memfold_flows import pipeline
from memfold_flows.receipts import State
from memfold_flows.runs import RunDirectory

from .conftest import AS_OF, Kitchen, Nights, clock

WORDS = (
    *("almond", "basil", "cherry", "dill", "elder", "fennel"),
    *("garlic", "hazel", "ivy", "juniper", "kale", "lemon"),
)


@pytest.fixture
def eroded(kitchen: Kitchen, nights: Nights) -> list[RunDirectory]:
    """Twelve memories of which three passes took half, each within the limit of one pass."""
    for word in WORDS:
        kitchen.remember(word, f"A note about {word}", confidence=0.5, use_count=1)
    runs = []
    for cap in (9, 7, 6):
        run, _ = nights.plan(kitchen.store, max_memories=cap)
        assert nights.apply(kitchen.store, run).state is State.CONSOLIDATED
        runs.append(run)
    assert len(kitchen.ids) == 6
    return runs


def test_small_losses_add_up_although_the_runs_are_gone(
    kitchen: Kitchen, nights: Nights, eroded: list[RunDirectory]
) -> None:
    """The fourth pass is refused, whether or not anybody kept the run directories."""
    for run in eroded:
        shutil.rmtree(run.path)
    before = kitchen.rows

    run, _ = nights.plan(kitchen.store, max_memories=5)
    receipt = nights.apply(kitchen.store, run)

    assert receipt.state is State.REJECTED
    assert "7 of 12" in receipt.refused[0].refused[0] or "30 days" in receipt.refused[0].refused[0]
    assert kitchen.rows == before


def test_what_was_taken_back_is_no_longer_lost(kitchen: Kitchen, nights: Nights, eroded: list[RunDirectory]) -> None:
    """After an undo there is room for another loss of the same size."""
    pipeline.undo(kitchen.store, eroded[-1], clock=clock)

    run, _ = nights.plan(kitchen.store, max_memories=6)

    assert nights.apply(kitchen.store, run).state is State.CONSOLIDATED
    assert len(kitchen.ids) == 6


def test_after_a_month_the_window_is_open_again(kitchen: Kitchen, eroded: list[RunDirectory]) -> None:
    """Losses that are older than the window count no more."""
    later = AS_OF + timedelta(days=31)
    run = RunDirectory.create(eroded[0].path.parent / "a-month-later", "a-month-later")
    policy = Policy(as_of=later, session_recall=kitchen.store.traits.session_recall, max_memories=5)

    receipt = pipeline.consolidate(kitchen.store, run, policy, clock=lambda: later)

    assert receipt.refused == ()
    assert len(kitchen.ids) == 5
