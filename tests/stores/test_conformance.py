"""What every store promises, whatever it is: one spec over all of them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta

import psycopg
import pyarrow.parquet as pq
import pytest

from memfold.errors import BadRecord, BadUsage, MemfoldError
from memfold.memory import Memory, canonical_json
from memfold_flows.stores import open_store

HOSTILE_TEXTS = [
    "plain",
    "  spaces around \t and\r\nline ends  ",
    "'; drop table memories; --",
    "quotes \" ' ` and \\ backslashes",
    "nul \x00 and bell \x07 and escape \x1b[31m",
    "Ångström",
    "A\u030angstro\u0308m",
    "\u202eright to left\u202c \u200b zero width",
    "日本語の記憶 🧠 👩‍👩‍👧",
    "\U0010ffff\ufffe",
    "0",
    "null",
    "x" * 200_000,
]
HOSTILE_IDS = [
    "A",
    "a",
    "é",
    "e\u0301",
    "a/b/../c",
    "it's",
    'say "hi"',
    " ",
    "\u200b",
    "a\tb\nc",
    "1",
    "01",
    "null",
    "%00",
    "?",
]
HOSTILE_METADATA = [
    '{"big": 123456789012345678901234567890, "small": 1e-300, "float": 1.0}',
    '{"deep": ' + "[" * 200 + "]" * 200 + "}",
    '{"": "", "ключ": "\\u0000", "a b": [null, true, {"c": []}]}',
]


def mem(memory_id, content="Deploys need two approvals.", scope="team", **more):
    return Memory(memory_id=memory_id, content=content, scope=scope, **more)


#: Two copies and a stale note of one team, two copies of another, and a note that no plan names.
ANN, BOB, CAT = mem("ann"), mem("bob", "deploys need two approvals!"), mem("cat", "The old wiki is gone.")
DAN, EVE = mem("dan", "Standup is at ten.", "other"), mem("eve", "standup is at ten", "other")
FAY = mem("fay", "Nobody asked about this.", "third", metadata='{"kept": 1.0}')
ALL = (ANN, BOB, CAT, DAN, EVE, FAY)


@pytest.fixture
def filled(fill_any):
    """A store of each kind with the six memories."""
    return fill_any(*ALL)


@pytest.fixture
def night(filled, a_pass):
    """A pass that merges bob into ann and eve into dan and prunes cat."""
    return _night(filled, a_pass, filled.open())


@pytest.fixture
def trio(fill_any):
    """A store of each kind with three copies and two other notes of one team."""
    return fill_any(ANN, BOB, mem("bea", "Deploys need two approvals"), CAT, FAY)


def test_every_text_comes_back_as_it_was_written(fill_any, memories_of):
    """Case, white space, control characters and Unicode form are the writer's."""
    texts = [text for text in HOSTILE_TEXTS if fill_any.holds(text)]
    filled = fill_any(*(mem(f"m{number}", text) for number, text in enumerate(texts)))

    read = memories_of(filled.open())

    assert [read[filled.ids[f"m{number}"]].content for number in range(len(texts))] == texts


def test_metadata_comes_back_with_the_same_value(fill_any, memories_of):
    """Great numbers and deep values are not rounded, and nothing is left out."""
    texts = [text for text in HOSTILE_METADATA if fill_any.holds(text)]
    filled = fill_any(*(mem(f"m{n}", scope="", metadata=text) for n, text in enumerate(texts)))

    read = memories_of(filled.open())

    kept = [read[filled.ids[f"m{number}"]].metadata for number in range(len(texts))]
    assert [_part(*both) for both in zip(kept, texts, strict=True)] == [canonical_json(text) for text in texts]


def test_a_number_that_json_does_not_know_comes_back_or_is_named(fill_any, memories_of):
    """Python writes NaN into JSON; a store reads it as it is, says where it stands, or never takes it in."""
    try:
        filled = fill_any(mem("ann", scope="", metadata='{"score": NaN}'))
        read = memories_of(filled.open())[filled.ids["ann"]].metadata
    except (BadRecord, psycopg.DataError) as error:
        read = str(error)

    assert "NaN" in read


def test_ids_are_told_apart_to_the_letter(fill_any, a_pass, memories_of):
    """Ids that look the same name two memories; removing one leaves the other."""
    filled = fill_any(*(mem(memory_id, f"text of {memory_id!r}") for memory_id in HOSTILE_IDS))
    removed = HOSTILE_IDS[::2]
    store = filled.open()

    a_pass(store).plan(prune={filled.ids[memory_id]: "blank" for memory_id in removed}).apply()

    left = {memory.content for memory in memories_of(store).values()}
    assert left == {f"text of {memory_id!r}" for memory_id in HOSTILE_IDS[1::2]}


def test_a_snapshot_of_some_scopes_holds_only_these(filled):
    """Scopes are whole: nothing of another scope is read along."""
    batches = list(filled.open().snapshot(["other", "nobody's"]))

    assert sorted(row["memory_id"] for batch in batches for row in batch.to_pylist()) == sorted(
        [filled.ids["dan"], filled.ids["eve"]]
    )


def test_reading_changes_nothing_and_creates_nothing(filled, tmp_path):
    """A snapshot and a look into the ledger leave every file as it was."""
    before = _files(tmp_path)

    store = filled.open()
    list(store.snapshot())
    with store.ledger() as ledger:
        assert ledger is None or ledger.runs() == []
    store.close()

    assert _files(tmp_path) == before


def test_a_pass_removes_what_was_planned_and_nothing_else(filled, night):
    """Members and pruned rows go; every row that the plan does not name stays as it is, in all columns."""
    before = filled.contents()

    report = night.apply()

    ids = filled.ids
    assert (report.merged, report.pruned, report.drifted) == (2, 1, [])
    assert report.scopes_applied == ["other", "team"]
    assert filled.contents().keys() == {ids["ann"], ids["dan"], ids["fay"]}
    assert filled.contents()[ids["fay"]] == before[ids["fay"]]


def test_the_survivor_keeps_its_text(filled, night, memories_of):
    """A merge never writes a text."""
    night.apply()

    assert memories_of(night.store)[filled.ids["ann"]].content == "Deploys need two approvals."


def test_applying_twice_changes_nothing_and_says_when_it_was_applied(filled, night):
    """The ledger remembers the run, whoever asks."""
    first = night.apply()
    after = filled.everything()

    second = night.apply()

    assert second.already_applied_at == night.now
    assert (second.merged, second.pruned) == (first.merged, first.pruned)
    assert filled.everything() == after


def test_a_member_that_changed_stays_and_the_others_fold(fill_any, a_pass, memories_of):
    """What an agent wrote since the snapshot is not removed."""
    filled = fill_any(
        ANN, BOB, mem("bea", "Deploys need two approvals"), *(mem(f"x{n}", f"Note {n}.") for n in range(8))
    )
    ids = filled.ids
    night = a_pass(filled.open()).plan(merge={ids["bob"]: ids["ann"], ids["bea"]: ids["ann"]})
    filled.reword(ids["bob"], "Deploys need three approvals.")

    report = night.apply()

    assert [(drift.memory_id, drift.why) for drift in report.drifted] == [
        (ids["bob"], "was changed since the snapshot")
    ]
    assert report.merged == 1
    left = memories_of(night.store)
    assert ids["bea"] not in left
    assert left[ids["bob"]].content == "Deploys need three approvals."


@pytest.mark.parametrize("what", ["reworded", "gone"])
def test_a_survivor_that_changed_or_went_holds_back_its_whole_cluster(filled, night, what):
    """No memory goes into one that no longer says what it said."""
    ids = filled.ids
    if what == "gone":
        filled.forget(ids["ann"])
    else:
        filled.reword(ids["ann"], "Deploys need no approval.")

    report = night.apply()

    assert {drift.memory_id for drift in report.drifted} == {ids["ann"], ids["bob"]}
    assert ids["bob"] in filled.contents()
    assert {ids["eve"], ids["cat"]}.isdisjoint(filled.contents())


def test_a_row_to_be_pruned_that_changed_stays(filled, night):
    """A prune compares its row too."""
    filled.reword(filled.ids["cat"], "The old wiki is back.")

    report = night.apply()

    assert [drift.memory_id for drift in report.drifted] == [filled.ids["cat"]]
    assert filled.ids["cat"] in filled.contents()


def test_a_transaction_that_fails_leaves_everything_as_it_was(filled, night):
    """Where the undo data cannot be made durable, nothing is written; the next apply does all of it."""
    before = filled.everything()

    with pytest.raises(OSError, match="disk full"):
        night.apply(undo=_disk_full)

    assert filled.everything() == before
    with filled.open().ledger() as ledger:
        assert ledger is None or ledger.runs() == []
    assert night.apply().merged == 2


def test_an_apply_that_stopped_between_two_transactions_goes_on(filled, a_pass):
    """The first scope is not applied again, the second one is; the report counts both."""
    store = filled.open()
    store.traits = replace(store.traits, rows_per_transaction=2)
    night = _night(filled, a_pass, store)

    with pytest.raises(OSError, match="disk full"):
        night.apply(undo=lambda number, rows: night.undo_parts.update({number: rows}) if number == 0 else _disk_full())
    half = filled.contents().keys()
    report = night.apply()

    ids = filled.ids
    assert half == {ids["ann"], ids["bob"], ids["cat"], ids["dan"], ids["fay"]}
    assert filled.contents().keys() == {ids["ann"], ids["dan"], ids["fay"]}
    assert (report.merged, report.pruned, report.drifted, report.already_applied_at) == (2, 1, [], None)


@pytest.mark.parametrize("killed_in", [0, 1, 2])
def test_a_kill_leaves_each_transaction_wholly_old_or_wholly_new(filled, a_pass, tmp_path, killed_in):
    """SIGKILL before a commit: what was committed stays, the rest is as it was, and the next apply ends it."""
    store = filled.open()
    store.traits = replace(store.traits, rows_per_transaction=2)
    night = _night(filled, a_pass, store)
    before = filled.contents()
    pq.write_table(night.rewrite, tmp_path / "rewrite.parquet")
    pq.write_table(night.tally, tmp_path / "tally.parquet")

    child = subprocess.run(
        [sys.executable, "-c", _KILLED, filled.url, str(tmp_path), str(killed_in), night.now.isoformat()],
        check=False,
        capture_output=True,
        text=True,
    )

    assert child.returncode == -signal.SIGKILL, child.stderr
    ids = filled.ids
    gone = [{ids["eve"]}, {ids["bob"]}, {ids["cat"]}]
    assert set(ids.values()) - filled.contents().keys() == set().union(*gone[:killed_in])
    for number in range(killed_in):
        night.undo_parts[number] = pq.read_table(tmp_path / f"{number}.parquet")
    assert night.apply().merged == 2
    assert filled.contents().keys() == {ids["ann"], ids["dan"], ids["fay"]}
    night.undo()
    assert filled.contents() == before


def test_undo_brings_everything_back_exactly(filled, night):
    """Removed rows, folded fields, and for an archive the order and the bytes."""
    before = filled.everything()
    night.apply()

    report = night.undo()

    assert (report.restored, report.not_restored, report.kept_fields) == (3, [], [])
    assert filled.everything() == before


def test_undoing_twice_changes_nothing_and_says_when_it_was_undone(filled, night):
    """The second undo is a report, not a change."""
    night.apply()
    first = night.undo()
    after = filled.everything()

    second = night.undo()

    assert (first.already_undone_at, second.already_undone_at) == (None, night.an_hour_later)
    assert filled.everything() == after


def test_undo_of_one_scope_restores_only_that_one(filled, night):
    """The rows, redirects and losses of every other scope stay as the pass left them."""
    ids = filled.ids
    night.apply()

    report = night.undo(scope="other")

    assert (report.restored, report.not_restored, report.is_whole) == (1, [], False)
    assert filled.contents().keys() == {ids["ann"], ids["dan"], ids["eve"], ids["fay"]}
    with night.store.ledger() as ledger:
        assert (ledger.resolve(ids["eve"]), ledger.resolve(ids["bob"])) == (ids["eve"], ids["ann"])
        assert ledger.losses(night.a_day_before) == {"team": 1}
        assert [(row["memory_id"], row["into_id"]) for row in ledger.rejected().to_pylist()] == [
            (ids["eve"], ids["dan"])
        ]


def test_undo_of_one_merge_restores_only_that_memory(trio, a_pass):
    """The other member stays folded; the one that came back is remembered, and its loss is given back."""
    ids = trio.ids
    night = a_pass(trio.open()).plan(merge={ids["bob"]: ids["ann"], ids["bea"]: ids["ann"]}, lost=[ids["bea"]])
    night.apply()

    report = night.undo(memory_id=ids["bea"])

    assert (report.restored, report.not_restored, report.is_whole) == (1, [], False)
    assert trio.contents().keys() == {ids["ann"], ids["bea"], ids["cat"], ids["fay"]}
    with night.store.ledger() as ledger:
        assert (ledger.resolve(ids["bea"]), ledger.resolve(ids["bob"])) == (ids["bea"], ids["ann"])
        assert ledger.losses(night.a_day_before) == {}
        assert [(row["memory_id"], row["into_id"]) for row in ledger.rejected().to_pylist()] == [
            (ids["bea"], ids["ann"])
        ]


@pytest.mark.parametrize("first", ["a scope", "a merge", "each of them"])
def test_an_undo_of_the_whole_run_does_what_was_left(filled, night, first):
    """After the parts, the rest: everything is as it was before the pass."""
    before = filled.everything()
    night.apply()
    if first != "a merge":
        night.undo(scope="other")
    if first != "a scope":
        night.undo(memory_id=filled.ids["cat"])

    report = night.undo()

    left = {"a scope": 2, "a merge": 2, "each of them": 1}[first]
    assert (report.restored, report.not_restored, report.is_whole) == (left, [], True)
    assert filled.everything() == before


def test_parts_that_come_back_one_by_one_make_the_whole(trio, a_pass):
    """Once nothing is left, the run counts as taken back, and every row is as it was, whatever the order."""
    ids = trio.ids
    before = trio.everything()
    night = a_pass(trio.open()).plan(
        merge={ids["bob"]: ids["ann"], ids["bea"]: ids["ann"]}, prune={ids["cat"]: "stale"}
    )
    night.apply()

    wholes = [night.undo(memory_id=ids[name]).is_whole for name in ("bea", "cat", "bob")]

    assert wholes == [False, False, True]
    assert trio.everything() == before
    with pytest.raises(BadUsage, match="was taken back"):
        night.apply()


@pytest.mark.parametrize("what", ["scope", "memory_id"])
def test_undoing_a_part_twice_changes_nothing_and_says_when_it_was_undone(filled, night, what):
    """The second undo of a scope or of a memory is a report, not a change."""
    selected = {what: "other" if what == "scope" else filled.ids["bob"]}
    night.apply()
    first = night.undo(**selected)
    after = filled.everything()

    second = night.undo(**selected, at=night.now + timedelta(days=1))

    assert (first.already_undone_at, second.already_undone_at) == (None, night.an_hour_later)
    assert filled.everything() == after


@pytest.mark.parametrize("selected", [{"scope": "third"}, {"memory_id": "nobody"}])
def test_undo_of_a_part_that_the_run_never_touched_is_refused(filled, night, selected):
    """A scope or a memory that nothing was done to is named, and nothing comes back."""
    night.apply()
    after = filled.everything()

    with pytest.raises(BadUsage, match="run night-1 changed nothing of"):
        night.undo(**selected)

    assert filled.everything() == after


def test_undo_keeps_what_was_written_since(filled, night, memories_of):
    """The removed rows come back beside the new text of the survivor."""
    night.apply()
    filled.reword(filled.ids["ann"], "Deploys need five approvals.")

    report = night.undo()

    left = memories_of(night.store)
    assert report.restored == 3
    assert left[filled.ids["bob"]].content == "deploys need two approvals!"
    assert left[filled.ids["ann"]].content == "Deploys need five approvals."


def test_redirects_losses_and_rejections_are_kept_beside_the_data(filled, a_pass, night):
    """Where a memory went, what a scope lost, and what a person took back."""
    ids = filled.ids
    night.plan(merge={ids["bob"]: ids["ann"], ids["eve"]: ids["dan"]}, lost=[ids["eve"]]).apply()
    with night.store.ledger() as ledger:
        assert (ledger.resolve(ids["bob"]), ledger.resolve(ids["fay"])) == (ids["ann"], ids["fay"])
        assert ledger.losses(night.a_day_before) == {"other": 1}

    night.undo()

    with night.store.ledger() as ledger:
        assert ledger.resolve(ids["bob"]) == ids["bob"]
        assert ledger.losses(night.a_day_before) == {}
        rejected = {(row["memory_id"], row["into_id"]) for row in ledger.rejected().to_pylist()}
    assert rejected == {(ids["bob"], ids["ann"]), (ids["eve"], ids["dan"])}


@pytest.mark.parametrize("what", ["nothing", "a folder", "an empty file", "a picture"])
def test_a_path_that_is_no_store_is_an_error_and_nothing_is_created(scheme, tmp_path, what):
    """Never an empty store: the guard would let everything pass."""
    path = tmp_path / "here" / "it" if what == "nothing" else tmp_path / "it"
    if what == "a folder":
        path.mkdir()
    elif what != "nothing":
        path.write_bytes(b"" if what == "an empty file" else b"\x89PNG\r\n\x1a\n" + bytes(range(256)))
    before = _files(tmp_path)

    with pytest.raises(MemfoldError) as error:
        list(open_store(f"{scheme}:{path}").snapshot())

    assert path.name in str(error.value)
    assert _files(tmp_path) == before


def test_an_option_that_no_store_knows_is_refused(scheme, tmp_path):
    """A misspelt option must not be passed over."""
    with pytest.raises(BadUsage, match="no option 'colour'"):
        open_store(f"{scheme}:{tmp_path}/x?colour=red")


_KILLED = """
import os, signal, sys
from dataclasses import replace
from datetime import datetime
from pathlib import Path
import pyarrow.parquet as pq
from memfold.policy import Policy
from memfold_flows.stores import applying, open_store
from memfold_flows.stores.base import RunRef

url, folder, killed_in, now = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), datetime.fromisoformat(sys.argv[4])
store = open_store(url)
store.traits = replace(store.traits, rows_per_transaction=2)

def undo(number, rows):
    if number == killed_in:
        os.kill(os.getpid(), signal.SIGKILL)
    pq.write_table(rows, folder / f"{number}.parquet")

limits = {"max_loss_fraction": 1.0, "max_rolling_loss_fraction": 1.0, "session_recall": store.traits.session_recall}
applying.apply(
    store, pq.read_table(folder / "rewrite.parquet"), tally=pq.read_table(folder / "tally.parquet"), undo=undo,
    run=RunRef("night-1", "/var/runs/night-1", "digest of night-1"), policy=Policy(as_of=now, **limits),
    clock=lambda: now,
)
"""


def _part(metadata, text):
    """The metadata, but only the keys that the text has: a system may need keys of its own beside them."""
    names = json.loads(text)
    return canonical_json(json.dumps({name: value for name, value in json.loads(metadata).items() if name in names}))


def _night(filled, a_pass, store):
    ids = filled.ids
    return a_pass(store).plan(
        merge={ids["bob"]: ids["ann"], ids["eve"]: ids["dan"]}, prune={ids["cat"]: "stale"}, lost=[ids["cat"]]
    )


def _disk_full(*_):
    raise OSError("disk full")


def _files(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }
