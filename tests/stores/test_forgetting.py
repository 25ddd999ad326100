"""Erasing memories, in every kind of store: they leave it and every run, and nothing brings them back."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

from memfold.errors import BadUsage
from memfold.memory import Memory
from memfold.policy import Policy
from memfold_flows import erasure, pipeline
from memfold_flows.runs import RunDirectory

from .conftest import NOW

OTHERS = ("Bob bakes rye bread on Fridays", "The oven door sticks when it is hot", "Glass goes into the blue bin")


@pytest.fixture
def night(fill_any, tmp_path):
    """A store of each kind after a pass that folded two copies, with three other notes of the scope."""
    notes = [Memory(memory_id=f"note-{at}", content=text, scope="team") for at, text in enumerate(OTHERS)]
    filled = fill_any(
        Memory(memory_id="code", content="Ann's alarm code is 4711", scope="team"),
        Memory(memory_id="copy", content="ann's alarm code is 4711.", scope="team"),
        *notes,
    )
    store = filled.open()
    run = RunDirectory.create(tmp_path / "runs/night-1", "night-1")
    policy = Policy(as_of=NOW, session_recall=store.traits.session_recall)
    pipeline.consolidate(store, run, policy, clock=lambda: NOW)
    return filled, store, run


def forget(store, run, *ids, with_survivor):
    return erasure.forget(
        store,
        erasure.look_up(store, ids, with_survivor=with_survivor),
        runs_folder=run.path.parent,
        clock=lambda: NOW + timedelta(hours=1),
        monotonic=time.monotonic,
        new_key=b"k" * 32,
    )


def absorbed(filled, store):
    """The id of the copy that went."""
    standing = {row for batch in store.snapshot() for row in batch.column("memory_id").to_pylist()}
    [gone] = {filled.ids["code"], filled.ids["copy"]} - standing
    return gone


def test_a_memory_leaves_its_store_and_the_others_stay(night, memories_of):
    """Every other row is as it was."""
    filled, store, run = night
    before = filled.contents()
    note = filled.ids["note-1"]

    forgotten = forget(store, run, note, with_survivor=False)

    assert (forgotten.removed, forgotten.exit_code) == ((note,), 0)
    assert filled.contents() == {memory_id: row for memory_id, row in before.items() if memory_id != note}


def test_what_was_absorbed_is_not_brought_back_and_the_rest_is(night, memories_of):
    """With its survivor no text says it any more: not in the store, and not once the run is taken back."""
    filled, store, run = night
    gone = absorbed(filled, store)

    forgotten = forget(store, run, gone, with_survivor=True)
    undone = pipeline.undo(filled.open(), run, clock=lambda: NOW + timedelta(hours=2))

    assert forgotten.exit_code == 0
    assert undone.report.restored == 0
    assert [(each.memory_id, each.why) for each in undone.report.not_restored] == [(gone, "was forgotten since")]
    texts = {memory.content for memory in memories_of(filled.open()).values()}
    assert texts == set(OTHERS)


def test_the_survivor_of_what_was_absorbed_stays_unless_it_is_meant(night):
    """It is named, as it may say the same."""
    filled, store, run = night
    gone = absorbed(filled, store)
    [stays] = {filled.ids["code"], filled.ids["copy"]} - {gone}

    forgotten = forget(store, run, gone, with_survivor=False)

    assert (forgotten.survivors, forgotten.exit_code) == ((stays,), 4)
    assert stays in filled.contents()


def test_an_id_that_nobody_knows_is_refused(night):
    """Nothing is erased in its place."""
    filled, store, run = night
    before = filled.contents()

    with pytest.raises(BadUsage, match="'nobody'"):
        forget(store, run, "nobody", with_survivor=False)

    assert filled.contents() == before
