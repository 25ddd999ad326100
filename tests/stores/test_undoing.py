"""Undo: what a pass did is taken back as far as nobody wrote since, and remembered as taken back."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from memfold.errors import BadUsage, PlanDamaged
from memfold.memory import Memory


def mem(memory_id, content="Deploys need two approvals.", scope="team", **more):
    return Memory(memory_id=memory_id, content=content, scope=scope, **more)


@pytest.fixture
def two_copies(fill_sqlite):
    """Two copies with counts and tags of their own."""
    return fill_sqlite(mem("ann", use_count=2, tags=("ops",)), mem("bob", use_count=3, tags=("ci",)))


def test_a_counter_gives_back_what_the_fold_added(two_copies, a_pass, memories_of):
    """Four recalls since the pass stay counted."""
    night = a_pass(two_copies.store).plan(merge={"bob": "ann"})
    night.apply()
    two_copies.execute("update memories set use_count = use_count + 4")

    report = night.undo()

    left = memories_of(two_copies.store)
    assert (left["ann"].use_count, left["bob"].use_count) == (6, 3)
    assert (report.reverted, report.kept_fields) == (1, [])


def test_a_field_that_was_written_since_stays_and_is_reported(two_copies, a_pass, memories_of):
    """An agent's tags are not taken back; the counter beside them is."""
    night = a_pass(two_copies.store).plan(merge={"bob": "ann"})
    night.apply()
    two_copies.execute("""update memories set tags = '["mine"]'""")

    report = night.undo()

    assert memories_of(two_copies.store)["ann"] == mem("ann", use_count=2, tags=("mine",))
    assert [(each.memory_id, each.why) for each in report.kept_fields] == [("ann", "keeps tags, written since")]


def test_an_id_that_was_written_again_is_not_overwritten(two_copies, a_pass, memories_of):
    """The removed row cannot come back where another one stands; the report names it."""
    night = a_pass(two_copies.store).plan(merge={"bob": "ann"})
    night.apply()
    two_copies.insert(mem("bob", "A new thought."))

    report = night.undo()

    assert [(each.memory_id, each.why) for each in report.not_restored] == [
        ("bob", "is there again: it was written since")
    ]
    assert memories_of(two_copies.store)["bob"].content == "A new thought."


def test_members_come_back_although_their_survivor_was_merged_since(fill_sqlite, a_pass):
    """A later pass took the survivor; the member returns, and its redirect is gone."""
    filled = fill_sqlite(mem("ann", use_count=1), mem("bob", use_count=1), mem("cat", use_count=1))
    first = a_pass(filled.store, "night-1").plan(merge={"bob": "ann"})
    first.apply()
    second = a_pass(filled.store, "night-2").plan(merge={"ann": "cat"})
    second.apply()
    with filled.store.ledger() as ledger:
        assert ledger.resolve("bob") == "cat"

    report = first.undo()

    assert filled.contents().keys() == {"bob", "cat"}
    assert [each.memory_id for each in report.kept_fields] == ["ann"]
    with filled.store.ledger() as ledger:
        assert (ledger.resolve("bob"), ledger.resolve("ann")) == ("bob", "cat")


def test_passes_taken_back_from_the_last_to_the_first_leave_the_store_as_it_was(fill_sqlite, a_pass):
    """Each undo finds what its own pass left."""
    filled = fill_sqlite(
        mem("ann", use_count=1, tags=("a",)), mem("bob", use_count=2), mem("cat", use_count=4, metadata='{"c": 1}')
    )
    before = filled.everything()
    first = a_pass(filled.store, "night-1").plan(merge={"bob": "ann"})
    first.apply()
    second = a_pass(filled.store, "night-2").plan(merge={"ann": "cat"})
    second.apply()

    second.undo()
    first.undo()

    assert filled.everything() == before


def test_a_promotion_is_taken_back(fill_sqlite, a_pass, memories_of):
    """The tier goes back; what was counted since stays."""
    ann = mem("ann", tier="short_term", use_count=1)
    filled = fill_sqlite(ann)
    night = a_pass(filled.store).plan(promote=["ann"])
    night.apply()
    filled.execute("update memories set use_count = 9")

    report = night.undo()

    assert report.demoted == 1
    assert memories_of(filled.store) == {"ann": replace(ann, use_count=9)}


def test_a_promotion_to_another_id_is_taken_back(fill_praisonai, a_pass):
    """The row returns to its old tier and id with the metadata that it had before it took in a member."""
    filled = fill_praisonai(mem("ann", metadata='{"a": 1}'), mem("bob", metadata='{"b": 2}'))
    before = filled.contents()
    store = filled.open()
    night = a_pass(store).plan(merge={filled.ids["bob"]: filled.ids["ann"]}, promote=[filled.ids["ann"]])
    night.apply()

    report = night.undo()

    assert (report.restored, report.demoted, report.not_restored) == (1, 1, [])
    assert filled.contents() == before
    with store.ledger() as ledger:
        assert ledger.resolve(filled.ids["ann"]) == filled.ids["ann"]


def test_a_promoted_memory_that_was_reworded_since_stays_where_it_is(fill_praisonai, a_pass):
    """An edit since the pass is worth more than its undo."""
    filled = fill_praisonai(mem("ann"))
    night = a_pass(filled.open()).plan(promote=[filled.ids["ann"]])
    night.apply()
    filled.reword("long_term:1", "Deploys need three approvals.")

    report = night.undo()

    assert [each.why for each in report.not_restored] == ["was promoted to 'long_term:1', which was changed since"]
    assert filled.contents().keys() == {"long_term:1"}


def test_a_promoted_memory_that_was_merged_since_comes_back_as_it_was(fill_praisonai, a_pass):
    """The old row is restored beside the one that took it in."""
    filled = fill_praisonai(mem("ann"), mem("cat", tier="long_term"))
    ann, cat = filled.ids["ann"], filled.ids["cat"]
    store = filled.open()
    first = a_pass(store, "night-1").plan(promote=[ann])
    first.apply()
    a_pass(store, "night-2").plan(merge={"long_term:2": cat}).apply()

    first.undo()

    assert filled.contents().keys() == {ann, cat}


def test_all_pairs_of_a_small_cluster_are_remembered_as_taken_back(fill_sqlite, a_pass):
    """Else the next pass would merge the members with one another."""
    filled = fill_sqlite(mem("ann"), mem("bob"), mem("bea"))
    night = a_pass(filled.store).plan(merge={"bob": "ann", "bea": "ann"})
    night.apply()

    night.undo()

    with filled.store.ledger() as ledger:
        pairs = [(row["memory_id"], row["into_id"]) for row in ledger.rejected().to_pylist()]
    assert pairs == [("bea", "ann"), ("bea", "bob"), ("bob", "ann")]


def test_a_rejection_holds_while_memfold_itself_changes_the_survivor(fill_sqlite, a_pass, memories_of):
    """A later fold changes the digest, not the text; the decision is carried over to the new one."""
    filled = fill_sqlite(mem("ann"), mem("bob"), mem("cat", tags=("ops",)))
    first = a_pass(filled.store, "night-1").plan(merge={"bob": "ann"})
    first.apply()
    first.undo()

    a_pass(filled.store, "night-2").plan(merge={"cat": "ann"}).apply()

    digests = {memory_id: memory.row_digest for memory_id, memory in memories_of(filled.store).items()}
    with filled.store.ledger() as ledger:
        decisions = ledger.rejected().to_pylist()
    assert {
        "memory_id": "bob",
        "into_id": "ann",
        "row_digest": digests["bob"],
        "into_digest": digests["ann"],
    } in decisions


def test_a_prune_that_was_taken_back_is_remembered(fill_sqlite, a_pass, memories_of):
    """It names the memory alone."""
    filled = fill_sqlite(mem("ann"))
    night = a_pass(filled.store).plan(prune={"ann": "stale"})
    night.apply()

    night.undo()

    digest = memories_of(filled.store)["ann"].row_digest
    with filled.store.ledger() as ledger:
        assert ledger.rejected().to_pylist() == [
            {"memory_id": "ann", "into_id": None, "row_digest": digest, "into_digest": None}
        ]


def test_only_what_was_restored_is_given_back_to_the_loss_window(fill_sqlite, a_pass):
    """A row that could not come back stays counted as lost."""
    filled = fill_sqlite(mem("ann"), mem("bob"))
    night = a_pass(filled.store).plan(prune={"ann": "stale", "bob": "stale"}, lost=["ann", "bob"])
    night.apply()
    filled.insert(mem("ann", "A new thought."))

    night.undo()

    with filled.store.ledger() as ledger:
        assert ledger.losses(night.now - timedelta(days=1)) == {"team": 1}


def test_an_undo_that_stopped_between_two_transactions_goes_on(fill_sqlite, a_pass, monkeypatch):
    """The first scope is not restored again; the report counts both."""
    filled = fill_sqlite(mem("ann"), mem("bob", scope="ops"))
    before = filled.everything()
    filled.store.traits = replace(filled.store.traits, rows_per_transaction=1)
    night = a_pass(filled.store).plan(prune={"ann": "stale", "bob": "stale"})
    night.apply()
    real = filled.store.transaction
    left = iter([real])

    def one_transaction_only():
        try:
            return next(left)()
        except StopIteration:
            raise OSError("unplugged") from None

    monkeypatch.setattr(filled.store, "transaction", one_transaction_only)
    with pytest.raises(OSError, match="unplugged"):
        night.undo()
    monkeypatch.undo()
    assert filled.contents().keys() == {"bob"}

    report = night.undo()

    assert (report.restored, report.not_restored) == (2, [])
    assert filled.everything() == before


def test_only_what_was_committed_is_taken_back(fill_sqlite, a_pass):
    """The undo data of a transaction that failed names rows that never went."""
    filled = fill_sqlite(mem("ann"), mem("bob", scope="ops"))
    filled.store.traits = replace(filled.store.traits, rows_per_transaction=1)
    night = a_pass(filled.store).plan(prune={"ann": "stale", "bob": "stale"})

    def unplugged_after_the_second(number, rows):
        night.undo_parts[number] = rows
        if number == 1:
            raise OSError("unplugged")

    with pytest.raises(OSError, match="unplugged"):
        night.apply(undo=unplugged_after_the_second)
    assert filled.contents().keys() == {"ann"}

    report = night.undo()

    assert (report.restored, report.not_restored) == (1, [])
    assert filled.contents().keys() == {"ann", "bob"}


def test_a_run_in_which_everything_drifted_is_taken_back_too(two_copies, a_pass):
    """Nothing changes, but the run cannot be applied any more."""
    night = a_pass(two_copies.store).plan(merge={"bob": "ann"})
    two_copies.reword("ann", "Deploys need three approvals.")
    night.apply()

    report = night.undo()

    assert (report.restored, report.already_undone_at) == (0, None)
    with pytest.raises(BadUsage, match="was taken back"):
        night.apply()


def test_a_member_that_comes_back_alone_takes_its_uses_with_it(fill_sqlite, a_pass, memories_of):
    """No recall is counted twice; the tags that the survivor took in stay until the others come back too."""
    filled = fill_sqlite(
        mem("ann", use_count=2, tags=("ops",)), mem("bob", use_count=3, tags=("ci",)), mem("bea", use_count=4)
    )
    night = a_pass(filled.store).plan(merge={"bob": "ann", "bea": "ann"})
    night.apply()
    filled.execute("update memories set use_count = use_count + 10")

    report = night.undo(memory_id="bob")
    one_back = memories_of(filled.store)
    night.undo()
    all_back = memories_of(filled.store)

    assert (one_back["ann"].use_count, one_back["ann"].tags, one_back["bob"].use_count) == (16, ("ops", "ci"), 3)
    assert [(each.memory_id, each.why) for each in report.kept_fields] == [
        ("ann", "keeps tags until all of its cluster is taken back")
    ]
    assert {name: memory.use_count for name, memory in all_back.items()} == {"ann": 12, "bob": 3, "bea": 4}
    assert all_back["ann"].tags == ("ops",)


def test_a_survivor_that_is_named_comes_back_with_all_of_its_cluster(fill_sqlite, a_pass):
    """Its fold cannot be taken back while its members are in it."""
    filled = fill_sqlite(mem("ann", use_count=2), mem("bob", use_count=3), mem("bea"), mem("cat"))
    before = filled.contents()
    night = a_pass(filled.store).plan(merge={"bob": "ann", "bea": "ann"}, prune={"cat": "stale"})
    night.apply()

    report = night.undo(memory_id="ann")

    assert (report.restored, report.reverted, report.is_whole) == (2, 1, False)
    assert filled.contents() == {name: row for name, row in before.items() if name != "cat"}


def test_a_promotion_that_is_named_is_taken_back_alone(fill_praisonai, a_pass):
    """Under its old id or the one that it has now; other promotions stay."""
    filled = fill_praisonai(mem("ann"), mem("bob", "Standup is at ten."))
    ann, bob = filled.ids["ann"], filled.ids["bob"]
    night = a_pass(filled.open()).plan(promote=[ann, bob])
    new_ids = night.apply().new_ids

    report = night.undo(memory_id=new_ids[ann])

    assert (report.demoted, report.is_whole) == (1, False)
    assert filled.contents().keys() == {ann, new_ids[bob]}


def test_what_came_back_in_parts_is_remembered_as_if_it_came_back_at_once(fill_sqlite, a_pass, memories_of):
    """Each pair of the cluster is rejected, with the digests that the rows have after the last part."""
    filled = fill_sqlite(mem("ann", tags=("ops",)), mem("bob", tags=("ci",)), mem("bea"))
    night = a_pass(filled.store).plan(merge={"bob": "ann", "bea": "ann"})
    night.apply()

    night.undo(memory_id="bob")
    night.undo(memory_id="bea")

    now = {name: memory.row_digest for name, memory in memories_of(filled.store).items()}
    with filled.store.ledger() as ledger:
        rejected = {tuple(row.values()) for row in ledger.rejected().to_pylist()}
    wanted = {frozenset(pair) for pair in (("ann", "bob"), ("ann", "bea"), ("bob", "bea"))}
    still_true = {
        frozenset((one, other))
        for one, other, digest, other_digest in rejected
        if (digest, other_digest) == (now[one], now[other])
    }
    assert still_true == wanted


def test_a_scope_of_many_transactions_comes_back_whole(fill_sqlite, a_pass):
    """An undo of a scope that stopped goes on from there, and says that it is done only at its end."""
    filled = fill_sqlite(mem("ann"), mem("bob"), mem("cat"), mem("dan", scope="ops"))
    filled.store.traits = replace(filled.store.traits, rows_per_transaction=2)
    night = a_pass(filled.store).plan(prune=dict.fromkeys(["ann", "bob", "cat", "dan"], "stale"))
    night.apply()

    report = night.undo(scope="team")

    assert (report.restored, report.transactions, report.is_whole) == (3, 3, False)
    assert filled.contents().keys() == {"ann", "bob", "cat"}
    assert night.undo(scope="ops").is_whole is True


def test_a_part_of_an_apply_that_did_not_end_is_never_the_whole(fill_sqlite, a_pass):
    """The run can still go on, so it does not count as taken back."""
    filled = fill_sqlite(mem("ann"), mem("bob", scope="ops"))
    filled.store.traits = replace(filled.store.traits, rows_per_transaction=1)
    night = a_pass(filled.store).plan(prune={"ann": "stale", "bob": "stale"})

    def unplugged_after_the_first(number, rows):
        if number == 1:
            raise OSError("unplugged")
        night.undo_parts[number] = rows

    with pytest.raises(OSError, match="unplugged"):
        night.apply(undo=unplugged_after_the_first)

    report = night.undo(scope="ops")

    assert report.is_whole is False
    assert night.apply().pruned == 2
    assert filled.contents().keys() == {"bob"}


def test_undo_data_that_lacks_rows_is_refused_whole(fill_sqlite, a_pass):
    """Half an undo folder must not look like an undo."""
    filled = fill_sqlite(mem("ann"), mem("bob"))
    night = a_pass(filled.store).plan(prune={"ann": "stale", "bob": "stale"})
    night.apply()
    night.undo_parts[0] = night.undo_parts[0].slice(1)

    with pytest.raises(PlanDamaged, match="holds 1 removed memories of scope 'team', the ledger of the store 2"):
        night.undo()

    assert filled.contents() == {}


def test_a_run_that_never_wrote_here_cannot_be_taken_back(fill_sqlite, a_pass):
    """The store's own ledger knows its runs."""
    with pytest.raises(BadUsage, match="night-1 never wrote to sqlite:"):
        a_pass(fill_sqlite(mem("ann")).store).undo()


def test_uses_of_a_member_that_cannot_come_back_stay_with_its_survivor(fill_sqlite, a_pass, memories_of):
    """So do the tags and links that it had; the uses of the member beside it go with that one."""
    filled = fill_sqlite(
        mem("ann", use_count=2, tags=("ops",)),
        mem("bob", use_count=3, tags=("ci",), links=("runbook",)),
        mem("bea", use_count=4),
    )
    night = a_pass(filled.store).plan(merge={"bob": "ann", "bea": "ann"})
    night.apply()
    filled.insert(mem("bob", "A new thought."))

    report = night.undo()

    left = memories_of(filled.store)
    assert left["ann"] == mem("ann", use_count=5, tags=("ops", "ci"), links=("runbook",))
    assert (left["bea"].use_count, left["bob"].content) == (4, "A new thought.")
    assert (report.restored, report.reverted, [each.memory_id for each in report.not_restored]) == (1, 1, ["bob"])
    assert [(each.memory_id, each.why) for each in report.kept_fields] == [
        ("ann", "keeps links, tags, as not all of its cluster could come back")
    ]


def test_a_survivor_keeps_the_uses_of_a_member_that_was_forgotten(two_copies, a_pass, memories_of):
    """Nobody asked to forget how often it was used."""
    night = a_pass(two_copies.store).plan(merge={"bob": "ann"})
    night.apply()
    with two_copies.store.transaction() as transaction:
        transaction.ledger.bury({"bob": {"Deploys need two approvals."}}, night.an_hour_later, new_key=bytes(32))

    report = night.undo()

    assert memories_of(two_copies.store) == {"ann": mem("ann", use_count=5, tags=("ops", "ci"))}
    assert [each.why for each in report.not_restored] == ["was forgotten since"]


@pytest.mark.parametrize("then", [{}, {"memory_id": "bea"}])
def test_a_member_that_could_not_come_back_alone_leaves_its_uses_in_a_later_undo_too(
    fill_sqlite, a_pass, memories_of, then
):
    """Whatever is taken back of the cluster afterwards, all of it or its last member."""
    filled = fill_sqlite(mem("ann", use_count=2), mem("bob", use_count=3), mem("bea", use_count=4))
    night = a_pass(filled.store).plan(merge={"bob": "ann", "bea": "ann"})
    night.apply()
    filled.insert(mem("bob", "A new thought."))
    night.undo(memory_id="bob")

    report = night.undo(**then)

    left = memories_of(filled.store)
    assert (left["ann"].use_count, left["bea"].use_count) == (5, 4)
    assert (report.restored, report.not_restored, report.is_whole) == (1, [], True)


def test_a_promoted_survivor_goes_down_with_what_it_keeps(fill_sqlite, a_pass, memories_of):
    """The tier is its own; the uses are those of a member that cannot come back."""
    filled = fill_sqlite(
        mem("ann", tier="short_term", use_count=2, tags=("ops",)),
        mem("bob", tier="short_term", use_count=3, tags=("ci",)),
        mem("bea", tier="short_term", use_count=4),
    )
    night = a_pass(filled.store).plan(merge={"bob": "ann", "bea": "ann"}, promote=["ann"])
    night.apply()
    filled.insert(mem("bob", "A new thought."))

    report = night.undo()

    ann = memories_of(filled.store)["ann"]
    assert (ann.tier, ann.use_count, ann.tags) == ("short_term", 5, ("ops", "ci"))
    assert (report.restored, report.demoted) == (1, 1)


def test_a_survivor_that_moves_back_under_its_old_id_takes_along_what_it_keeps(fill_praisonai, a_pass, memories_of):
    """Its undo data says how it was before it took in a member that cannot come back."""
    filled = fill_praisonai(mem("ann", metadata='{"a": 1}'), mem("bob", metadata='{"b": 2}'))
    ann, bob = filled.ids["ann"], filled.ids["bob"]
    store = filled.open()
    night = a_pass(store).plan(merge={bob: ann}, promote=[ann])
    night.apply()
    with store.transaction() as transaction:
        transaction.ledger.bury({bob: {"Deploys need two approvals."}}, night.an_hour_later, new_key=bytes(32))

    report = night.undo()

    left = memories_of(store)
    assert left.keys() == {ann}
    assert '"a": 1' in (left[ann].metadata or "")
    assert '"b": 2' in (left[ann].metadata or "")
    assert (report.restored, report.demoted) == (0, 1)


def test_each_undo_reports_what_it_did_itself(fill_sqlite, a_pass):
    """Neither what an earlier one of another part did, nor what it could not do."""
    filled = fill_sqlite(
        *(mem(name, use_count=2) for name in ("ann", "bob", "bea")), mem("dan", scope="ops"), mem("eve", scope="ops")
    )
    night = a_pass(filled.store).plan(merge={"bob": "ann", "bea": "ann"}, prune={"dan": "stale", "eve": "stale"})
    night.apply()
    filled.insert(mem("eve", "A new thought.", scope="ops"))

    parts = [night.undo(memory_id="bob"), night.undo(scope="ops"), night.undo(scope="team")]
    again = night.undo()

    told = [(report.restored, report.reverted, len(report.not_restored)) for report in parts]
    assert told == [(1, 1, 0), (1, 0, 1), (1, 1, 0)]
    assert [report.transactions for report in parts] == [1, 1, 1]
    assert (again.already_undone_at, again.restored, len(again.not_restored)) == (night.an_hour_later, 3, 1)
