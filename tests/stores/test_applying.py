"""Apply: what drifted stays, the rest folds as it stands now, and the loss is measured again before each commit."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import timedelta

import pyarrow as pa
import pytest

from memfold.errors import BadUsage, PlanDamaged, StoreError, Transient
from memfold.frames import REWRITE
from memfold.memory import Memory


def mem(memory_id, content="Deploys need two approvals.", scope="team", **more):
    return Memory(memory_id=memory_id, content=content, scope=scope, **more)


TWO_TEAMS = [("ann", "team"), ("bob", "team"), ("dan", "ops"), ("eve", "ops")]


def notes(count, scope="team"):
    """Memories that no plan names."""
    return [mem(f"note-{scope}-{number}", f"Note {number}.", scope) for number in range(count)]


def test_a_survivor_takes_the_counts_tags_and_metadata_of_its_members(fill_sqlite, a_pass, memories_of):
    """The fold of the plan reaches the store; the text stays the survivor's."""
    ann = mem("ann", use_count=2, tags=("ops",), metadata='{"by": "ann"}')
    bob = mem("bob", "deploys need two approvals", use_count=3, tags=("ci",), metadata='{"seen": 1}')
    filled = fill_sqlite(ann, bob)

    a_pass(filled.store).plan(merge={"bob": "ann"}).apply()

    assert memories_of(filled.store) == {
        "ann": replace(ann, use_count=5, tags=("ops", "ci"), metadata='{"by": "ann", "seen": 1}')
    }


def test_counters_fold_as_they_stand_now(fill_sqlite, a_pass, memories_of):
    """A recall between plan and apply is no drift, and is not lost."""
    filled = fill_sqlite(mem("ann", use_count=2), mem("bob", use_count=3))
    night = a_pass(filled.store).plan(merge={"bob": "ann"})
    filled.execute("update memories set use_count = use_count + 10")

    report = night.apply()

    assert report.drifted == []
    assert memories_of(filled.store)["ann"].use_count == 25


def test_only_changed_fields_of_a_survivor_are_written(fill_sqlite, a_pass):
    """JSON that people wrote in their own spelling is left alone where nothing is added to it."""
    filled = fill_sqlite(mem("ann", use_count=1), mem("bob", use_count=1))
    filled.execute("""update memories set tags = '[ "ops" ,"ci"]', metadata = '{ "a":1 }'""")
    night = a_pass(filled.store).plan(merge={"bob": "ann"})

    night.apply()

    assert filled.execute("select tags, metadata, use_count from memories") == [('[ "ops" ,"ci"]', '{ "a":1 }', 2)]


def test_columns_of_their_own_are_left_alone_and_come_back(fill_sqlite, a_pass):
    """A table may have columns that memfold does not know, bytes in them included."""
    filled = fill_sqlite(mem("ann"), mem("bob"))
    filled.execute('alter table memories add column "their own" blob')
    filled.execute('update memories set "their own" = ?', b"\x00\xff")
    before = filled.everything()
    night = a_pass(filled.store).plan(merge={"bob": "ann"})

    night.apply()
    night.undo()

    assert filled.everything() == before


def test_metadata_that_differs_is_reported(fill_sqlite, a_pass):
    """The survivor keeps its own value; the report names the key, never the value."""
    filled = fill_sqlite(mem("ann", metadata='{"owner": "ann"}'), mem("bob", metadata='{"owner": "bob"}'))

    report = a_pass(filled.store).plan(merge={"bob": "ann"}).apply()

    assert [(each.memory_id, each.why) for each in report.metadata_conflicts] == [("ann", "keeps its own owner")]


def test_a_scope_that_shrank_is_refused_and_the_others_are_applied(fill_sqlite, a_pass):
    """One of four is the limit; with one memory deleted since the plan it would be one of three."""
    filled = fill_sqlite(
        mem("ann"), mem("bob"), *notes(2), mem("dan", scope="ops"), mem("eve", scope="ops"), *notes(2, "ops")
    )
    night = a_pass(filled.store, limits={"max_loss_fraction": 0.25})
    night.plan(merge={"bob": "ann", "eve": "dan"}, lost=["bob", "eve"])
    filled.forget("note-team-0")

    report = night.apply()

    assert report.scopes_refused == {
        "team": "as the rows stand now, 1 of 3 memories would be lost (0.333333), the limit is 0.25; "
        "at that limit a scope of fewer than 4 memories never loses one"
    }
    assert report.scopes_applied == ["ops"]
    assert {"bob", "eve"} & filled.contents().keys() == {"bob"}


def test_strict_entries_count_every_row_that_goes(fill_sqlite, a_pass):
    """Copies are not lost, but for those who want the plain numbers they are."""
    filled = fill_sqlite(mem("ann"), mem("bob"))
    night = a_pass(filled.store, limits={"max_loss_fraction": 0.25, "strict_entries": True})

    report = night.plan(merge={"bob": "ann"}).apply()

    assert report.scopes_refused == {
        "team": "as the rows stand now, 1 of 2 memories would be lost (0.5), the limit is 0.25; "
        "at that limit a scope of fewer than 4 memories never loses one"
    }


def test_a_scope_of_many_transactions_is_measured_as_a_whole(fill_sqlite, a_pass):
    """What the earlier transactions took counts as entries and as lost: two of eight, not one of seven."""
    filled = fill_sqlite(mem("ann"), mem("bob"), mem("cat"), mem("dan"), *notes(4))
    filled.store.traits = replace(filled.store.traits, rows_per_transaction=2)
    night = a_pass(filled.store, limits={"max_loss_fraction": 0.25})

    report = night.plan(merge={"bob": "ann", "dan": "cat"}, lost=["bob", "dan"]).apply()

    assert (report.transactions, report.merged, report.scopes_refused) == (2, 2, {})


def test_a_scope_that_shrinks_between_two_transactions_is_refused_from_there(fill_sqlite, a_pass):
    """What the first one took counts in the second: two of seven."""
    filled = fill_sqlite(mem("ann"), mem("bob"), mem("cat"), mem("dan"), *notes(4))
    filled.store.traits = replace(filled.store.traits, rows_per_transaction=2)
    night = a_pass(filled.store, limits={"max_loss_fraction": 0.25})
    night.plan(merge={"bob": "ann", "dan": "cat"}, lost=["bob", "dan"])
    calls = []

    def an_agent_deletes_a_note_after_the_first_commit():
        calls.append("tick")
        if len(calls) == 2:
            filled.forget("note-team-0")
        return 0.0

    report = night.apply(monotonic=an_agent_deletes_a_note_after_the_first_commit)

    assert (report.merged, report.scopes_refused) == (
        1,
        {"team": "as the rows stand now, 2 of 7 memories would be lost (0.285714), the limit is 0.25"},
    )
    assert {"bob", "dan"} & filled.contents().keys() == {"dan"}


def test_a_scope_is_refused_before_its_first_transaction(fill_sqlite, a_pass):
    """All that is planned for a scope counts at once, not the share of the first transaction."""
    filled = fill_sqlite(mem("ann"), mem("bob"), mem("cat"), mem("dan"), *notes(3))
    filled.store.traits = replace(filled.store.traits, rows_per_transaction=2)
    before = filled.everything()
    night = a_pass(filled.store, limits={"max_loss_fraction": 0.25})

    report = night.plan(merge={"bob": "ann", "dan": "cat"}, lost=["bob", "dan"]).apply()

    assert report.scopes_refused == {
        "team": "as the rows stand now, 2 of 7 memories would be lost (0.285714), the limit is 0.25"
    }
    assert filled.everything() == before


def test_slow_erosion_is_refused(fill_sqlite, a_pass):
    """Each pass keeps its own limit, but over thirty days no more than half of a scope may go."""
    filled = fill_sqlite(mem("ann"), mem("bob"), mem("cat"), mem("dan"))
    limits = {"max_loss_fraction": 0.5, "max_rolling_loss_fraction": 0.4}
    a_pass(filled.store, "night-1", limits=limits).plan(prune={"ann": "stale"}, lost=["ann"]).apply()

    report = a_pass(filled.store, "night-2", limits=limits).plan(prune={"bob": "stale"}, lost=["bob"]).apply()

    assert report.scopes_refused == {
        "team": "as the rows stand now, 2 of 4 memories would be lost over 30 days (0.5), the limit is 0.4",
    }


def test_expired_memories_have_a_limit_of_their_own(fill_sqlite, a_pass):
    """A wrong clock or unit makes everything expire at once."""
    filled = fill_sqlite(mem("ann"), mem("bob"), mem("cat"))
    night = a_pass(filled.store).plan(prune={"ann": "expired", "bob": "expired"})

    report = night.apply()

    assert report.scopes_refused == {
        "team": "as the rows stand now, 2 of 3 memories are expired (0.666667), the limit is 0.5"
    }


def test_a_pinned_memory_is_not_removed_whatever_the_plan_says(fill_sqlite, a_pass):
    """A plan edited by hand does not get past the pin."""
    filled = fill_sqlite(mem("ann", pinned=True), mem("bob"))

    report = a_pass(filled.store).plan(prune={"ann": "blank"}).apply()

    assert [each.why for each in report.drifted] == ["is pinned or protected"]
    assert "ann" in filled.contents()


def test_a_stale_memory_that_was_used_since_stays(fill_sqlite, a_pass):
    """The digest leaves out what a recall changes; a prune for disuse looks at it."""
    filled = fill_sqlite(mem("ann", use_count=0), mem("bob", use_count=0))
    limits = {"max_loss_fraction": 1.0, "max_rolling_loss_fraction": 1.0, "stale_max_use_count": 0}
    night = a_pass(filled.store, limits=limits).plan(prune={"ann": "stale", "bob": "stale"})
    filled.execute("update memories set use_count = 1 where memory_id = 'ann'")

    report = night.apply()

    assert [(each.memory_id, each.why) for each in report.drifted] == [("ann", "was used since the snapshot")]
    assert filled.contents().keys() == {"ann"}


def test_a_superseded_memory_stays_when_its_successor_is_gone(fill_sqlite, a_pass):
    """Else neither the old nor the new would be left."""
    filled = fill_sqlite(mem("ann", "The limit is 5."), mem("bob", "The limit is 7."))
    night = a_pass(filled.store).plan(prune={"ann": "superseded"}, superseded_by={"ann": "bob"})
    filled.forget("bob")

    report = night.apply()

    assert [each.why for each in report.drifted] == ["is superseded by 'bob', which is gone"]
    assert "ann" in filled.contents()


def test_a_memory_moves_to_the_other_tier(fill_sqlite, a_pass, memories_of):
    """Where ids do not change, a promotion changes the tier and nothing else."""
    ann = mem("ann", tier="short_term", use_count=4)
    filled = fill_sqlite(ann)

    report = a_pass(filled.store).plan(promote=["ann"]).apply()

    assert (report.promoted, report.new_ids) == (1, {})
    assert memories_of(filled.store) == {"ann": replace(ann, tier="long_term")}


def test_members_are_led_to_the_new_id_of_a_promoted_survivor(fill_praisonai, a_pass):
    """PraisonAI gives a promoted memory another id; both its old id and its members lead there."""
    filled = fill_praisonai(mem("ann"), mem("bob"))
    ann, bob = filled.ids["ann"], filled.ids["bob"]
    store = filled.open()

    report = a_pass(store).plan(merge={bob: ann}, promote=[ann]).apply()

    assert report.new_ids == {ann: "long_term:1"}
    assert filled.contents().keys() == {"long_term:1"}
    with store.ledger() as ledger:
        assert (ledger.resolve(ann), ledger.resolve(bob)) == ("long_term:1", "long_term:1")


def test_fields_without_a_place_are_named(fill_praisonai, a_pass):
    """PraisonAI keeps no sessions of a memory beside its own; the report says that they were left out."""
    filled = fill_praisonai(mem("ann", metadata='{"session_id": "mon"}'), mem("bob", metadata='{"session_id": "tue"}'))

    report = a_pass(filled.open()).plan(merge={filled.ids["bob"]: filled.ids["ann"]}).apply()

    assert report.fields_left_out == ["sessions"]


DAMAGE = {
    "stands in it twice": lambda rows: [*rows, rows[0]],
    "which the gate did not accept": lambda rows: [row | {"scope": "elsewhere"} for row in rows],
    "crosses from scope": lambda rows: [rows[0], rows[1] | {"scope": "ops"}],
    "unknown role": lambda rows: [rows[0] | {"role": "delete"}, rows[1]],
    "which is not the one that stays": lambda rows: [rows[0], rows[1] | {"into_id": "someone"}],
    "both removed and promoted": lambda rows: [rows[0], rows[1] | {"promote_to": "long_term"}],
    "promoted to no tier": lambda rows: [rows[0] | {"role": "promote"}, rows[1] | {"role": "prune", "into_id": None}],
}


@pytest.mark.parametrize("what", DAMAGE)
def test_a_rewrite_that_contradicts_itself_is_refused_whole(fill_sqlite, a_pass, tally_of, what):
    """Nothing is written from a plan that somebody edited or that was cut."""
    filled = fill_sqlite(mem("ann"), mem("bob"))
    before = filled.everything()
    night = a_pass(filled.store).plan(merge={"bob": "ann"})
    night.rewrite = pa.Table.from_pylist(DAMAGE[what](night.rewrite.to_pylist()), REWRITE)
    night.tally = tally_of({"team", "ops"}, refused={"elsewhere"})

    with pytest.raises(PlanDamaged, match=what):
        night.apply()

    assert filled.everything() == before


def test_a_plan_for_a_time_to_come_is_refused(fill_sqlite, a_pass):
    """As of tomorrow more has expired than today."""
    night = a_pass(fill_sqlite(mem("ann"), mem("bob")).store).plan(merge={"bob": "ann"})

    with pytest.raises(BadUsage, match="which has not come yet"):
        night.apply(clock=lambda: night.now - timedelta(seconds=1))


def test_another_plan_under_the_same_run_id_is_refused(fill_sqlite, a_pass):
    """The ledger knows which plan it was that landed."""
    night = a_pass(fill_sqlite(mem("ann"), mem("bob")).store).plan(merge={"bob": "ann"})
    night.apply()

    with pytest.raises(PlanDamaged, match="with another plan"):
        night.apply(run=replace(night.run, digest="another"))


def test_a_run_that_was_taken_back_is_not_applied_again(fill_sqlite, a_pass):
    """A person said no; only a new plan may ask again."""
    filled = fill_sqlite(mem("ann"), mem("bob"))
    night = a_pass(filled.store).plan(merge={"bob": "ann"})
    night.apply()
    night.undo()

    with pytest.raises(BadUsage, match="was taken back"):
        night.apply()

    assert filled.contents().keys() == {"ann", "bob"}


def test_two_passes_do_not_write_at_the_same_time(fill_sqlite, a_pass):
    """The lease of a pass that was interrupted keeps another one out until it runs out."""
    filled = fill_sqlite(mem("ann"), mem("bob"), mem("cat"), mem("dan"))
    filled.store.traits = replace(filled.store.traits, rows_per_transaction=2)
    first, second = a_pass(filled.store, "night-1"), a_pass(filled.store, "night-2")
    first.plan(merge={"bob": "ann", "dan": "cat"})
    second.plan(merge={"dan": "cat"})
    with pytest.raises(OSError, match="disk full"):
        first.apply(undo=_full_at(1))

    with pytest.raises(Transient, match="run 'night-1' holds this store"):
        second.apply()

    assert second.apply(clock=lambda: second.now + timedelta(minutes=3)).merged == 1


def test_a_pass_whose_lease_was_taken_over_stops(fill_sqlite, a_pass):
    """A pass that slept through its lease does not write beside the one that took over."""
    filled = fill_sqlite(mem("ann"), mem("bob"), mem("cat"), mem("dan"))
    filled.store.traits = replace(filled.store.traits, rows_per_transaction=2)
    sleeper = a_pass(filled.store, "night-1").plan(merge={"bob": "ann", "dan": "cat"})
    other = a_pass(filled.store, "night-2").plan(merge={"dan": "cat"})
    calls = []

    def sleeps_after_its_first_commit():
        calls.append("tick")
        if len(calls) == 2:
            other.apply(clock=lambda: other.now + timedelta(minutes=3))
        return 0.0

    with pytest.raises(StoreError, match="another memfold took over"):
        sleeper.apply(monotonic=sleeps_after_its_first_commit)

    assert filled.contents().keys() == {"ann", "cat"}


def test_an_apply_that_failed_gives_the_same_number_to_the_part_that_replaces_its_own(fill_sqlite, a_pass):
    """What was written for a transaction that never was committed is overwritten."""
    night = a_pass(fill_sqlite(mem("ann"), mem("bob")).store).plan(merge={"bob": "ann"})
    numbers = []

    with pytest.raises(OSError, match="disk full"):
        night.apply(undo=lambda number, rows: (numbers.append(number), _full_at(0)(0, rows)))
    night.apply(undo=lambda number, rows: numbers.append(number))

    assert numbers == [0, 0]


def test_the_longest_hold_of_the_write_lock_is_measured(fill_sqlite, a_pass):
    """The receipt says how long agents had to wait at most."""
    filled = fill_sqlite(mem("ann"), mem("bob"), mem("cat"), mem("dan"))
    filled.store.traits = replace(filled.store.traits, rows_per_transaction=2)
    seconds = iter([10.0, 10.5, 20.0, 20.25])

    report = a_pass(filled.store).plan(merge={"bob": "ann", "dan": "cat"}).apply(monotonic=lambda: next(seconds))

    assert (report.transactions, report.longest_hold_seconds) == (2, 0.5)


def test_transactions_become_smaller_where_the_lock_was_held_too_long(fill_sqlite, a_pass):
    """A thousand rows took four seconds, so five hundred are next; they were fast, so then it is twice as many."""
    filled = fill_sqlite()
    rows = [(f"m{number:04}", f"s{number // 100:02}", "") for number in range(4000)]
    with closing(sqlite3.connect(filled.path)) as agent, agent:
        agent.executemany("insert into memories (memory_id, scope, content) values (?, ?, ?)", rows)
    filled.store.traits = replace(filled.store.traits, rows_per_transaction=2000)
    night = a_pass(filled.store).plan(prune={memory_id: "blank" for memory_id, _, _ in rows})
    seconds = iter([0.0, 4.0, 5.0, 5.1, 6.0, 6.1, 7.0, 7.1])

    report = night.apply(monotonic=lambda: next(seconds))

    assert [part.num_rows for part in night.undo_parts.values()] == [1000, 500, 1000, 1500]
    assert (report.pruned, report.transactions) == (4000, 4)


def test_a_plan_without_changes_writes_nothing(fill_sqlite, a_pass):
    """Not even the ledger is made."""
    filled = fill_sqlite(mem("ann"))
    before = filled.execute("select name from sqlite_schema")

    report = a_pass(filled.store).apply()

    assert (report.merged, report.transactions) == (0, 0)
    assert filled.execute("select name from sqlite_schema") == before


def _full_at(number):
    def write(at, rows):
        if at == number:
            raise OSError("disk full")

    return write
