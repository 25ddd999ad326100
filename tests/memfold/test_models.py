"""The plan, decided in SQL: what stays, what merges, what moves on and what goes, and in which order that is asked."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from importlib import resources

import duckdb
import pyarrow.parquet as pq
import pytest

from memfold import frames, models
from memfold.errors import MemfoldError

AS_OF = datetime(2026, 6, 1, tzinfo=UTC)


def day(number: int) -> datetime:
    """A day of May 2026."""
    return datetime(2026, 5, number, tzinfo=UTC)


class TestClusters:
    def test_members_merge_into_the_survivor_and_all_others_are_kept(self, decide, memory):
        """Each memory has exactly one action, also those that nothing was found for."""
        decided = decide(
            [memory("ann"), memory("ann again"), memory("ann in other words"), memory("zoe")],
            clusters={"ann": {"ann again": "copy", "ann in other words": ("same", 0.9)}},
        )

        assert decided.actions == {
            "ann": "keep kept",
            "ann again": "merge copy > ann",
            "ann in other words": "merge same > ann",
            "zoe": "keep kept",
        }

    def test_an_exact_copy_is_not_lost_and_a_rewording_is(self, decide, memory):
        """The loss counts texts that are gone; the strict figure counts rows."""
        decided = decide(
            [memory("ann"), memory("ann again"), memory("ann in other words"), memory("zoe")],
            clusters={"ann": {"ann again": "copy", "ann in other words": ("same", 0.9)}},
        )

        tally = decided.tally()

        assert (tally["entries_before"], tally["entries_after"], tally["merged"]) == (4, 2, 2)
        assert (tally["lost"], tally["lost_strict"], tally["retained_originals"]) == (1, 2, 3)
        assert (tally["loss_fraction"], tally["loss_fraction_strict"]) == (0.25, 0.5)

    def test_a_survivor_takes_counts_and_dates_from_its_members(self, decide, memory):
        """Use adds up, the best score counts, the first writing and the last use stay known."""
        decided = decide(
            [
                memory("ann", use_count=3, importance=0.4, created_at=day(9), last_used_at=day(10), session_id="mon"),
                memory(
                    "bob", use_count=2, importance=None, created_at=day(2), sessions=("mon", "tue"), expires_at=day(30)
                ),
                memory("cat", use_count=None, importance=0.7, created_at=None, last_used_at=day(12), session_id="wed"),
            ],
            clusters={"ann": {"bob": "copy", "cat": "copy"}},
            as_of=day(20),
        )

        ann = decided.rows("survivors")["ann"]

        assert (ann["members"], ann["use_count"], ann["importance"], ann["confidence"]) == (3, 5, 0.7, None)
        assert (ann["created_at"], ann["last_used_at"], ann["sessions"]) == (day(2), day(12), 3)
        assert ann["expires_at"] is None

    def test_twins_that_are_held_apart_stay_and_the_reason_names_the_other(self, decide, memory):
        """Of two twins the one that would have gone is reported, so that held counts what was not folded."""
        decided = decide(
            [memory("ann"), memory("bob"), memory("a longer cat"), memory("cat")],
            pairs=[
                {"left": "ann", "right": "bob", "verdict": "same", "held": "another session"},
                {
                    "left": "a longer cat",
                    "right": "cat",
                    "verdict": "contains",
                    "winner": "left",
                    "held": "would lose: 7",
                },
                {"left": "ann", "right": "cat", "verdict": "distinct", "held": "unlike"},
            ],
        )

        assert decided.actions["bob"] == decided.actions["cat"] == "keep held"
        assert decided.actions["ann"] == decided.actions["a longer cat"] == "keep kept"
        assert decided.detail("bob") == "twin ann stays apart: another session"
        assert decided.detail("cat") == "twin a longer cat stays apart: would lose: 7"
        assert decided.tally()["held"] == 2

    def test_a_twin_that_merges_elsewhere_is_not_reported_as_held(self, decide, memory):
        """What was folded after all needs no excuse."""
        decided = decide(
            [memory("ann"), memory("bob"), memory("eve")],
            clusters={"eve": {"bob": "copy"}},
            pairs=[{"left": "ann", "right": "bob", "verdict": "same", "held": "another session"}],
        )

        assert decided.actions["bob"] == "merge copy > eve"
        assert decided.tally()["held"] == 0


class TestExpiredAndBlank:
    def test_a_memory_expires_at_its_very_microsecond(self, decide, memory):
        """At or before as_of it goes; a microsecond later it stays."""
        microsecond = timedelta(microseconds=1)
        decided = decide(
            [
                memory("due", expires_at=AS_OF),
                memory("overdue", expires_at=AS_OF - microsecond),
                memory("not yet", expires_at=AS_OF + microsecond),
                memory("never", expires_at=None),
            ]
        )

        assert decided.actions == {
            "due": "prune expired",
            "overdue": "prune expired",
            "not yet": "keep kept",
            "never": "keep kept",
        }
        assert (decided.tally()["expired"], decided.tally()["lost"], decided.tally()["lost_strict"]) == (2, 0, 2)

    def test_a_blank_memory_goes_unless_its_title_says_something(self, decide, memory):
        """White space in the title is nothing, a word is something; a blank memory counts as lost."""
        decided = decide(
            [
                memory("blank", " "),
                memory("blank title", "", title="\u00a0\u200b "),
                memory("titled", "", title="Ann's birthday"),
            ]
        )

        assert decided.actions == {"blank": "prune blank", "blank title": "prune blank", "titled": "keep kept"}
        assert decided.tally()["lost"] == 2

    def test_pinned_and_protected_memories_stay_and_the_detail_says_why(self, decide, memory):
        """Expired, blank or stale: a pinned row is never removed."""
        decided = decide(
            [
                memory("pin", expires_at=day(2), pinned=True),
                memory("guard", "", protected=True),
                memory("old", created_at=datetime(2020, 1, 1, tzinfo=UTC), pinned=True),
            ],
            stale_min_age_days=30,
        )

        assert set(decided.actions.values()) == {"keep kept"}
        assert decided.detail("pin") == "expired, but pinned"
        assert decided.detail("guard") == "blank, but protected"


class TestStale:
    def test_nothing_is_stale_unless_a_threshold_is_set(self, decide, memory):
        """Age alone is no reason to forget."""
        decided = decide([memory("old", created_at=datetime(1999, 1, 1, tzinfo=UTC), use_count=0, importance=0.0)])

        assert decided.actions == {"old": "keep kept"}

    def test_every_threshold_that_is_set_must_be_known_and_hold(self, decide, memory):
        """Unknown is not low: a null date, count or score never makes a memory stale."""
        old = {"created_at": day(1), "use_count": 0, "importance": 0.05}
        decided = decide(
            [
                memory("stale", **old),
                memory("used", **{**old, "use_count": 1}),
                memory("use unknown", **{**old, "use_count": None}),
                memory("important", **{**old, "importance": 0.9}),
                memory("importance unknown", **{**old, "importance": None}),
                memory("young", **{**old, "created_at": day(31)}),
                memory("age unknown", **{**old, "created_at": None}),
            ],
            stale_min_age_days=30,
            stale_max_use_count=0,
            stale_max_importance=0.15,
        )

        assert [memory_id for memory_id, action in decided.actions.items() if action == "prune stale"] == ["stale"]

    def test_idle_counts_from_the_last_use_and_not_from_an_edit(self, decide, memory):
        """A store that does not know when a memory was used knows nothing about its idleness."""
        decided = decide(
            [
                memory("idle", last_used_at=day(2)),
                memory("edited", last_used_at=None, updated_at=day(2)),
                memory("used", last_used_at=day(2) + timedelta(microseconds=1)),
            ],
            stale_min_idle_days=30,
        )

        assert decided.actions == {"idle": "prune stale", "edited": "keep kept", "used": "keep kept"}

    def test_only_the_kinds_that_are_named_go_stale(self, decide, memory):
        """A policy for episodes leaves facts alone, and memories without a kind."""
        decided = decide(
            [memory("hello", kind="episodic"), memory("blood type", kind="semantic"), memory("no kind")],
            stale_min_age_days=7,
            stale_kinds=("episodic",),
        )

        assert decided.actions == {"hello": "prune stale", "blood type": "keep kept", "no kind": "keep kept"}

    def test_staleness_is_judged_on_folded_values(self, decide, memory):
        """A memory that was used under one of its copies is not unused."""
        decided = decide(
            [memory("ann", use_count=0), memory("bob", use_count=4)],
            clusters={"ann": {"bob": "copy"}},
            stale_max_use_count=0,
        )

        assert decided.actions == {"ann": "keep kept", "bob": "merge copy > ann"}

    def test_a_stale_survivor_takes_its_whole_cluster_along(self, decide, memory):
        """Its copies are gone with it, so they are lost, and a second pass finds nothing."""
        decided = decide(
            [memory("ann", use_count=0), memory("bob", use_count=0), memory("cat", use_count=1)],
            clusters={"ann": {"bob": "copy"}},
            stale_max_use_count=0,
        )

        assert decided.actions == {"ann": "prune stale", "bob": "prune stale", "cat": "keep kept"}
        assert decided.detail("bob") == "stale with ann"
        assert decided.tally()["lost"] == 2


PROMOTES = {"promote_min_sessions": 2, "promote_min_use_count": 3, "promote_min_age_days": 7}


class TestPromotions:
    def test_a_memory_that_meets_every_minimum_moves_on(self, decide, memory):
        """Distinct sessions, use and age, all known; only memories of the first tier."""
        good = {"tier": "short_term", "sessions": ("mon", "tue"), "use_count": 3, "created_at": day(20)}
        decided = decide(
            [
                memory("good", **good),
                memory("one session", **{**good, "sessions": ("mon", "mon"), "session_id": "mon"}),
                memory("seldom used", **{**good, "use_count": 2}),
                memory("use unknown", **{**good, "use_count": None}),
                memory("young", **{**good, "created_at": day(30)}),
                memory("there already", **{**good, "tier": "long_term"}),
                memory("no tier", **{**good, "tier": None}),
            ],
            **PROMOTES,
        )

        assert [each for each, action in decided.actions.items() if action == "promote promoted"] == ["good"]
        assert (decided.tally()["promoted"], decided.tally()["lost"], decided.tally()["entries_after"]) == (1, 0, 7)

    def test_promotion_is_judged_on_folded_values(self, decide, memory):
        """Two copies of two sessions are one memory of two sessions."""
        short = {"tier": "short_term", "use_count": 2}
        decided = decide(
            [memory("ann", session_id="mon", **short), memory("bob", session_id="tue", **short)],
            clusters={"ann": {"bob": "copy"}},
            **PROMOTES,
        )

        assert decided.actions == {"ann": "promote promoted", "bob": "merge copy > ann"}

    def test_a_stale_memory_is_not_promoted(self, decide, memory):
        """Nor merged into its text in the next tier, from where the next pass would prune it."""
        decided = decide(
            [
                memory("ann", "Gate 4", tier="short_term", use_count=9),
                memory("long", "Gate 4", tier="long_term", created_at=day(30)),
            ],
            promote_min_use_count=3,
            stale_min_age_days=7,
        )

        assert decided.actions == {"ann": "prune stale", "long": "keep kept"}

    def test_pinned_memories_do_not_change_their_tier(self, decide, memory):
        """To move is to leave a place, and a pinned memory stays."""
        decided = decide([memory("ann", tier="short_term", use_count=9, pinned=True)], promote_min_use_count=3)

        assert decided.actions == {"ann": "keep kept"}
        assert decided.detail("ann") == "qualifies for long_term, but is pinned"

    def test_a_text_that_stands_in_the_next_tier_is_merged_into_it(self, decide, memory):
        """With its members, and into the survivor of the twin; nothing is lost by it."""
        short = {"tier": "short_term", "use_count": 3}
        decided = decide(
            [
                memory("s1", "The gate code is 4711", **short),
                memory("s2", "the gate code is 4711", **short),
                memory("s3", "Gate code: 4711", **short),
                memory("l1", "The GATE code is 4711", tier="long_term", pinned=True),
                memory("l2", "the gate  code is 4711", tier="long_term"),
            ],
            clusters={"s1": {"s2": "copy", "s3": ("same", 0.8)}, "l1": {"l2": "copy"}},
            promote_min_use_count=3,
        )

        assert decided.actions == {
            "l1": "keep kept",
            "l2": "merge copy > l1",
            "s1": "merge copy > l1",
            "s2": "merge copy > l1",
            "s3": "merge same > l1",
        }
        assert decided.tally()["lost"] == 1

    def test_a_text_whose_twin_was_reworded_away_is_lost_there_too(self, decide, memory):
        """The twin folds into a survivor that puts it in other words: a copy of the twin is no copy of the survivor."""
        decided = decide(
            [
                memory("s1", "gate code 4711", tier="short_term", use_count=3),
                memory("s2", "Gate Code 4711", tier="short_term", use_count=3),
                memory("l1", "the gate code is 4711", tier="long_term"),
                memory("l2", "gate code 4711", tier="long_term"),
            ],
            clusters={"s1": {"s2": "copy"}, "l1": {"l2": ("same", 0.75)}},
            promote_min_use_count=3,
        )

        assert decided.actions["s1"] == decided.actions["s2"] == decided.actions["l2"] == "merge same > l1"
        assert decided.tally()["lost"] == 3

    @pytest.mark.parametrize(
        "difference",
        [{"scope": "other"}, {"kind": "rule"}, {"trust": "untrusted"}, {"valid_to": day(9)}, {"content": "Gate 5"}],
    )
    def test_only_the_same_memory_in_the_next_tier_is_a_twin(self, decide, memory, difference):
        """Another scope, kind, trust, validity or text: the memory is promoted beside it."""
        decided = decide(
            [
                memory("short", "Gate 4", tier="short_term", use_count=3),
                memory("long", tier="long_term", **{"content": "Gate 4", **difference}),
            ],
            promote_min_use_count=3,
        )

        assert decided.actions["short"] == "promote promoted"

    def test_a_text_that_says_today_has_a_twin_on_its_own_day_only(self, decide, memory):
        """The same words of two days are two facts."""
        short = {"tier": "short_term", "use_count": 3}
        decided = decide(
            [
                memory("monday", "The office is closed today", event_time=day(4) + timedelta(hours=9), **short),
                memory("tuesday", "the office is closed today", event_time=day(5), **short),
                memory("long", "The office is closed today", event_time=day(4), tier="long_term"),
            ],
            promote_min_use_count=3,
        )

        assert decided.actions["monday"] == "merge copy > long"
        assert decided.actions["tuesday"] == "promote promoted"

    def test_sessions_wall_off_twins_where_the_store_recalls_by_session(self, decide, memory):
        """Merged into another session's row the memory could not be recalled by its own."""
        rows = [
            memory("short", "Gate 4", tier="short_term", use_count=3, session_id="mon"),
            memory("long", "Gate 4", tier="long_term", session_id="tue"),
        ]

        walled = decide(rows, promote_min_use_count=3, session_recall="equality")
        across = decide(rows, promote_min_use_count=3, session_recall="equality", across_sessions=True)

        assert walled.actions["short"] == "promote promoted"
        assert across.actions["short"] == "merge copy > long"

    def test_twins_with_two_titles_stay_apart(self, decide, memory):
        """The title would be lost in the merge, and two of one text in one tier would not be better."""
        decided = decide(
            [
                memory("short", "Gate 4", title="Code", tier="short_term", use_count=3),
                memory("long", "Gate 4", title="Number of gates", tier="long_term"),
            ],
            promote_min_use_count=3,
        )

        assert decided.actions["short"] == "keep held"
        assert decided.detail("short") == "already stands in long_term as long, but their titles differ"

    def test_a_twin_that_goes_is_no_reason_not_to_promote(self, decide, memory):
        """The stale twin leaves, the memory that is in use takes its place."""
        decided = decide(
            [
                memory("short", "Gate 4", tier="short_term", use_count=3),
                memory("long", "Gate 4", tier="long_term", use_count=0),
            ],
            promote_min_use_count=3,
            stale_max_use_count=0,
        )

        assert decided.actions == {"short": "promote promoted", "long": "prune stale"}

    def test_a_merge_must_not_make_the_twin_stale(self, decide, memory):
        """Unused and young meets old and of unknown use: together they would be pruned by the next pass."""
        decided = decide(
            [
                memory("short", "Gate 4", tier="short_term", sessions=("mon", "tue"), use_count=0, created_at=day(28)),
                memory("long", "Gate 4", tier="long_term", use_count=None, created_at=day(1)),
            ],
            promote_min_sessions=2,
            stale_min_age_days=20,
            stale_max_use_count=0,
        )

        assert decided.actions == {"short": "keep held", "long": "keep kept"}
        assert decided.detail("short") == "already stands in long_term as long, but would make it stale"


class TestEvidence:
    def test_batches_that_tell_it_again_promote_a_memory(self, decide, memory):
        """The batch that it was born in tells nothing new."""
        decided = decide(
            [memory("twice", tier="short_term"), memory("once", tier="short_term"), memory("long", tier="long_term")],
            sightings={
                "twice": {1: "birth", 2: "again", 3: "again"},
                "once": {1: "birth", 2: "again"},
                "long": {2: "again", 3: "again"},
            },
            promote_min_evidence=2,
        )

        assert decided.actions == {"twice": "promote promoted", "once": "keep kept", "long": "keep kept"}
        assert {name: row["evidence"] for name, row in decided.rows("survivors").items()} == {
            "twice": 2,
            "once": 1,
            "long": 2,
        }

    def test_evidence_counts_beside_the_other_minimums(self, decide, memory):
        """Every minimum that is set must hold."""
        decided = decide(
            [memory("seen", tier="short_term", use_count=5), memory("unused", tier="short_term", use_count=0)],
            sightings={"seen": {1: "again"}, "unused": {1: "again"}},
            promote_min_evidence=1,
            promote_min_use_count=1,
        )

        assert decided.actions == {"seen": "promote promoted", "unused": "keep kept"}


class TestCapacity:
    def test_the_lowest_scores_go_until_the_scope_is_at_its_cap(self, decide, memory):
        """Use counts ten, a day since the last change one up to thirty, a constraint twenty, full confidence ten."""
        old = {"created_at": datetime(2026, 1, 1, tzinfo=UTC), "updated_at": datetime(2026, 3, 1, tzinfo=UTC)}
        decided = decide(
            [
                memory("used", use_count=3, kind="fact", **old),
                memory("rule", use_count=0, kind="constraint", **old),
                memory("sure", use_count=0, kind="preference", confidence=1.0, **old),
                memory("fact", use_count=0, kind="fact", **old),
                memory("recent", use_count=0, kind="skill", created_at=day(1), updated_at=day(22)),
                memory("step", use_count=0, kind="procedure", **old),
            ],
            max_memories=4,
            max_loss_fraction=0.5,
        )

        assert decided.actions == {
            "used": "keep kept",
            "rule": "keep kept",
            "sure": "keep kept",
            "recent": "keep kept",
            "fact": "prune capacity",
            "step": "prune capacity",
        }
        assert decided.detail("step") == "one of 6 memories, the cap is 4; its score is 5.0"
        assert decided.tally()["lost"] == 2

    def test_nothing_goes_unless_a_cap_is_set_or_below_it(self, decide, memory):
        """Off by default; at the cap is not over it."""
        memories = [memory(name, use_count=0) for name in ("ann", "bob")]

        assert set(decide(memories).actions.values()) == {"keep kept"}
        assert set(decide(memories, max_memories=2).actions.values()) == {"keep kept"}

    def test_newborns_and_fixed_memories_stay_whatever_their_score(self, decide, memory):
        """They count against the cap all the same; an unknown use or age is not a low one."""
        decided = decide(
            [
                memory("newborn", use_count=0, created_at=AS_OF - timedelta(days=2)),
                memory("by hand", use_count=0, protected=True),
                memory("pinned", use_count=0, pinned=True),
                memory("of unknown use", use_count=None),
                memory("of unknown age", use_count=0, created_at=None),
                memory("own", use_count=9),
            ],
            max_memories=1,
            max_loss_fraction=1.0,
        )

        assert {name for name, action in decided.actions.items() if action != "keep kept"} == {"own"}

    def test_members_go_with_their_survivor_and_count_for_it(self, decide, memory):
        """What a survivor took in makes its score, and leaves with it."""
        decided = decide(
            [
                memory("ann", use_count=1),
                memory("bob", use_count=1),
                memory("cat", use_count=3),
                memory("dan", use_count=4),
            ],
            clusters={"ann": {"bob": "copy"}},
            max_memories=2,
            max_loss_fraction=1.0,
        )

        assert decided.actions == {
            "ann": "prune capacity",
            "bob": "prune capacity",
            "cat": "keep kept",
            "dan": "keep kept",
        }
        assert decided.detail("bob") == "capacity with ann"

    def test_what_goes_for_another_reason_makes_room(self, decide, memory):
        """Only what would still stand is counted."""
        decided = decide(
            [
                memory("expired", use_count=9, expires_at=day(1)),
                memory("copy", use_count=0),
                memory("ann", use_count=0),
                memory("bob", use_count=1),
            ],
            clusters={"bob": {"copy": "copy"}},
            max_memories=2,
        )

        assert decided.actions["ann"] == "keep kept"

    def test_a_memory_may_supersede_another_and_go_for_its_own_score(self, decide, memory):
        """The older one leaves with it, as it has no successor that stays."""
        decided = decide(
            [memory("old", use_count=5), memory("new", use_count=0), memory("zoe", use_count=1)],
            pairs=[supersedes("old", "new")],
            supersede="archive",
            max_memories=1,
            max_loss_fraction=1.0,
            max_rolling_loss_fraction=1.0,
        )

        assert decided.actions == {"old": "prune capacity", "new": "prune capacity", "zoe": "keep kept"}
        assert decided.detail("old") == "capacity with new"
        assert decided.judged().total.rejected is False

    def test_what_moves_on_is_counted_and_may_go(self, decide, memory):
        """A memory of the next tier stands for what moves into it; one that would move on may have the lowest score."""
        decided = decide(
            [
                memory("mover", "Gate 4", tier="short_term", use_count=3),
                memory("twin", "Gate 4", tier="long_term", use_count=0),
                memory("ann", tier="short_term", use_count=2),
                memory("bob", tier="long_term", use_count=1),
            ],
            promote_min_use_count=2,
            max_memories=1,
            max_loss_fraction=1.0,
            max_rolling_loss_fraction=1.0,
        )

        assert decided.actions == {
            "mover": "merge copy > twin",
            "twin": "keep kept",
            "ann": "prune capacity",
            "bob": "prune capacity",
        }
        assert decided.judged().total.rejected is False

    def test_a_memory_that_holds_a_promotion_back_is_not_evicted(self, decide, memory):
        """Were it gone, the next pass would move what this one left where it was."""
        decided = decide(
            [
                memory("mover", "Gate 4", tier="short_term", use_count=5),
                memory("twin", "Gate 4", tier="long_term", use_count=0, title="Doors"),
                memory("ann", tier="long_term", use_count=1),
            ],
            promote_min_use_count=5,
            max_memories=2,
            max_loss_fraction=1.0,
        )

        assert decided.actions == {"mover": "keep held", "twin": "keep kept", "ann": "prune capacity"}

    def test_over_the_limit_the_lowest_scores_go_first_and_the_rest_waits(self, decide, memory):
        """A scope far over its cap comes down pass by pass."""
        decided = decide([memory(f"m{uses}", use_count=uses) for uses in range(8)], max_memories=2, on_excess="fit")

        assert {name for name, action in decided.actions.items() if action == "prune capacity"} == {"m0", "m1"}
        assert {name for name, action in decided.actions.items() if action == "keep waits"} == {"m2", "m3", "m4", "m5"}

    def test_a_memory_that_a_person_brought_back_is_not_evicted_again(self, decide, memory):
        """The next lowest goes in its place."""
        ann = memory("ann", use_count=0)
        decided = decide(
            [ann, memory("bob", use_count=1), memory("cat", use_count=2)],
            rejected=[(ann, None)],
            max_memories=2,
            max_loss_fraction=1.0,
        )

        assert decided.actions == {"ann": "keep kept", "bob": "prune capacity", "cat": "keep kept"}


class TestSuperseded:
    def test_nothing_is_superseded_unless_asked_for(self, decide, memory):
        """By default a supersession is reported and both stay."""
        decided = decide([memory("ann"), memory("bob")], pairs=[supersedes("ann", "bob")])

        assert decided.actions == {"ann": "keep kept", "bob": "keep kept"}

    def test_the_older_side_goes_and_names_the_newer(self, decide, memory):
        """Only where the winner is known and nothing holds the pair."""
        decided = decide(
            [memory("a1"), memory("a2"), memory("b1"), memory("b2"), memory("c1"), memory("c2")],
            pairs=[
                supersedes("a1", "a2"),
                {**supersedes("b1", "b2"), "winner": None},
                {**supersedes("c1", "c2"), "held": "kept apart by a person"},
            ],
            supersede="archive",
        )

        assert decided.actions["a1"] == "prune superseded > a2"
        assert set(decided.actions.values()) - {decided.actions["a1"]} == {"keep kept"}

    def test_a_chain_ends_at_the_memory_that_stays(self, decide, memory):
        """Nine, then ten, then eleven o'clock: both older ones name the last."""
        decided = decide(
            [memory("nine"), memory("ten"), memory("eleven")],
            pairs=[supersedes("nine", "ten"), supersedes("ten", "eleven")],
            supersede="archive",
        )

        assert decided.actions == {
            "nine": "prune superseded > eleven",
            "ten": "prune superseded > eleven",
            "eleven": "keep kept",
        }

    def test_a_circle_removes_nothing(self, decide, memory):
        """Whoever wins over all is superseded by none: with no last word, every word stays."""
        decided = decide(
            [memory("a"), memory("b"), memory("c")],
            pairs=[supersedes("a", "b"), supersedes("b", "c"), supersedes("c", "a")],
            supersede="archive",
        )

        assert set(decided.actions.values()) == {"keep kept"}

    def test_pinned_memories_and_those_that_leave_take_no_part(self, decide, memory):
        """A pinned older side stays; a newer side that is stale supersedes nothing."""
        decided = decide(
            [memory("pin", pinned=True), memory("new"), memory("old", use_count=5), memory("stale", use_count=0)],
            pairs=[supersedes("pin", "new"), supersedes("old", "stale")],
            supersede="archive",
            stale_max_use_count=0,
        )

        assert decided.actions == {
            "pin": "keep kept",
            "new": "keep kept",
            "old": "keep kept",
            "stale": "prune stale",
        }

    def test_a_superseded_survivor_takes_its_whole_cluster_along(self, decide, memory):
        """Its copies say the same outdated thing."""
        decided = decide(
            [memory("nine"), memory("nine again"), memory("ten")],
            clusters={"nine": {"nine again": "copy"}},
            pairs=[supersedes("nine", "ten")],
            supersede="archive",
        )

        assert decided.actions["nine again"] == decided.actions["nine"] == "prune superseded > ten"

    def test_a_superseded_memory_is_not_promoted(self, decide, memory):
        """What goes does not move on, and what was to go into it goes too."""
        short = {"tier": "short_term", "use_count": 3}
        decided = decide(
            [
                memory("nine", "at nine", **short),
                memory("ten", "at ten", tier="short_term"),
                memory("gate", "gate four", **short),
                memory("l gate", "gate four", tier="long_term"),
                memory("l gate five", "gate five", tier="long_term"),
            ],
            pairs=[supersedes("nine", "ten"), supersedes("l gate", "l gate five")],
            supersede="archive",
            promote_min_use_count=3,
        )

        assert decided.actions["nine"] == "prune superseded > ten"
        assert decided.actions["gate"] == decided.actions["l gate"] == "prune superseded > l gate five"


class TestTakenBack:
    def test_what_a_person_took_back_is_not_done_again(self, decide, memory):
        """Neither pruned nor promoted, until the memory changes; expired is their own word."""
        blank, stale = memory("blank", ""), memory("stale", use_count=0)
        short, due = memory("short", tier="short_term", use_count=3), memory("due", expires_at=day(2))
        decided = decide(
            [blank, stale, short, due, memory("nine"), memory("ten")],
            pairs=[supersedes("nine", "ten")],
            rejected=[(each, None) for each in (blank, stale, short, due, memory("nine"))],
            stale_max_use_count=0,
            promote_min_use_count=3,
            supersede="archive",
        )

        assert decided.actions == {
            "blank": "keep held",
            "stale": "keep held",
            "short": "keep held",
            "due": "prune expired",
            "nine": "keep held",
            "ten": "keep kept",
        }
        assert decided.detail("stale") == "stale, but a person wants to keep it"
        assert decided.detail("short") == "qualifies for long_term, but a person wants it to stay in its tier"

    def test_it_holds_only_as_long_as_the_memory_is_unchanged(self, decide, memory):
        """A new text is a new case."""
        decided = decide(
            [memory("ann", "Gate 5", use_count=0)],
            rejected=[(memory("ann", "Gate 4", use_count=0), None)],
            stale_max_use_count=0,
        )

        assert decided.actions == {"ann": "prune stale"}

    def test_a_stale_cluster_stays_as_a_whole_where_one_member_was_taken_back(self, decide, memory):
        """Folded into a stale survivor it would be pruned by the next pass after all."""
        taken_back = memory("bob", use_count=0)
        decided = decide(
            [memory("ann", use_count=0), taken_back, memory("cat", use_count=0)],
            clusters={"ann": {"bob": "copy", "cat": "copy"}},
            rejected=[(taken_back, None)],
            stale_max_use_count=0,
        )

        assert decided.actions == {"ann": "keep held", "bob": "keep held", "cat": "keep held"}

    def test_what_a_person_keeps_apart_does_not_meet_in_the_next_tier(self, decide, memory):
        """Each of two may go there alone, but not both into one memory; nor beside a copy that stands there."""
        ann = memory("ann", "Gate 4", tier="short_term", use_count=3)
        bob = memory("bob", "Gate 4", tier="short_term", use_count=3)
        cat = memory("cat", "Gate 4", tier="short_term", use_count=3)
        dan = memory("dan", "gate 4", tier="long_term")
        decided = decide(
            [ann, bob, cat, memory("long", "Gate 4", tier="long_term"), dan],
            clusters={"long": {"dan": "copy"}},
            rejected=[(ann, bob), (cat, dan)],
            promote_min_use_count=3,
        )

        assert decided.actions == {
            "ann": "keep held",
            "bob": "keep held",
            "cat": "keep held",
            "dan": "merge copy > long",
            "long": "keep kept",
        }
        assert decided.detail("cat") == (
            "already stands in long_term as long, but a person keeps it apart from a copy that goes there"
        )

    def test_a_merge_into_the_next_tier_that_was_taken_back_stays_so(self, decide, memory):
        """And the text is not put there a second time either."""
        short = memory("short", "Gate 4", tier="short_term", use_count=3)
        long = memory("long", "Gate 4", tier="long_term")
        decided = decide([short, long], rejected=[(short, long)], promote_min_use_count=3)

        assert decided.actions["short"] == "keep held"
        assert decided.detail("short") == "already stands in long_term as long, but a person keeps them apart"


class TestFit:
    """on_excess = fit: as much as the limit allows, the surest first; the rest waits."""

    def test_exactly_the_limit_fits(self, decide, memory):
        """A quarter of eight is two."""
        decided = decide([memory(name, use_count=0) for name in "abc"] + [memory(name) for name in "defgh"],
                         stale_max_use_count=0, on_excess="fit")  # fmt: skip

        assert decided.actions["a"] == decided.actions["b"] == "prune stale"
        assert decided.actions["c"] == "keep waits"
        assert decided.detail("c") == "stale, but waits: with it 3 of 8 memories would be lost"
        assert (decided.tally()["lost"], decided.tally()["waits"]) == (2, 1)

    def test_the_surest_go_first(self, decide, memory):
        """Copies and expired always, then blank, same by similarity, contained by added words, stale, superseded."""
        rows = [
            *(memory(name) for name in ("s", "copy", "same 0.9", "same 0.8", "plus 1", "plus 4", "nine", "ten")),
            memory("blank", ""),
            memory("due", expires_at=day(2)),
            memory("stale", importance=0.0),
        ]
        found = {
            "clusters": {
                "s": {
                    "copy": "copy",
                    "same 0.9": ("same", 0.9),
                    "same 0.8": ("same", 0.8),
                    "plus 1": ("contains", 1),
                    "plus 4": ("contains", 4),
                }
            },
            "pairs": [supersedes("nine", "ten")],
        }
        policy = {
            "on_excess": "fit",
            "supersede": "archive",
            "stale_max_importance": 0.0,
            "max_rolling_loss_fraction": 1.0,
        }

        gone = [
            {
                each
                for each, action in decide(rows, max_loss_fraction=lost / 11, **found, **policy).actions.items()
                if not action.startswith("keep")
            }
            for lost in range(7)
        ]

        assert gone[0] == {"copy", "due"}
        steps = [gone[count + 1] - gone[count] for count in range(6)]
        assert steps == [{"blank"}, {"same 0.9"}, {"same 0.8"}, {"plus 1"}, {"plus 4"}, {"stale"}]
        assert decide(rows, max_loss_fraction=1.0, **found, **policy).actions["nine"] == "prune superseded > ten"

    def test_a_stale_cluster_fits_only_as_a_whole(self, decide, memory):
        """Two of eight fit, three of a cluster do not, and what comes after it waits too."""
        decided = decide(
            [memory(name, use_count=0) for name in "abcd"] + [memory(name) for name in "efgh"],
            clusters={"a": {"b": "copy", "c": "copy"}},
            stale_max_use_count=0,
            on_excess="fit",
        )

        assert [decided.actions[name] for name in "abcd"] == ["keep waits"] * 4

    def test_the_strict_figure_is_limited_where_it_is_asked_for(self, decide, memory):
        """Then copies count, and wait like everything else."""
        decided = decide(
            [memory(name) for name in "abcdefgh"],
            clusters={"a": {"b": "copy", "c": "copy", "d": "copy"}},
            on_excess="fit",
            strict_entries=True,
        )

        assert [decided.actions[name] for name in "bcd"] == ["merge copy > a", "merge copy > a", "keep waits"]
        assert decided.tally()["retained_originals"] == 6

    @pytest.mark.parametrize(
        ("limit", "lost"),
        [({"max_lost_rows": 1}, 1), ({"max_loss_fraction": 1.0, "max_rolling_loss_fraction": 0.5}, 2)],
    )
    def test_every_limit_counts(self, decide, memory, limit, lost):
        """A number of rows; the loss of the last weeks: 4 + 2 of 8 + 4 is one half."""
        decided = decide(
            [memory(name, use_count=0) for name in "abcdefgh"],
            losses={"team": 4},
            stale_max_use_count=0,
            on_excess="fit",
            **limit,
        )

        assert decided.tally()["lost"] == lost

    def test_each_scope_has_its_own_limit(self, decide, memory):
        """A large scope does not pay for a small one."""
        decided = decide(
            [memory(f"a{number}", use_count=0, scope="a") for number in range(3)]
            + [memory(f"b{number}", use_count=0, scope="b") for number in range(4)],
            stale_max_use_count=0,
            on_excess="fit",
        )

        assert (decided.tally("a")["lost"], decided.tally("b")["lost"]) == (0, 1)

    def test_a_memory_changes_its_tier_only_with_its_whole_cluster(self, decide, memory):
        """While a member waits the survivor waits too, and what fits folds into it where it stands."""
        short = {"tier": "short_term", "use_count": 3}
        found = {"s1": {"s2": "copy", "s3": ("same", 0.8)}}
        rows = [memory("s1", "gate 4", **short), memory("s2", "Gate 4", **short), memory("s3", "gate: 4", **short)]

        alone = decide(rows, clusters=found, promote_min_use_count=3, on_excess="fit")
        twin = decide([*rows, memory("l1", "gate 4", tier="long_term", pinned=True)], clusters=found,
                      promote_min_use_count=3, on_excess="fit", max_lost_rows=0)  # fmt: skip

        assert alone.actions == {"s1": "keep waits", "s2": "merge copy > s1", "s3": "keep waits"}
        assert twin.actions == {**alone.actions, "l1": "keep kept"}
        assert alone.detail("s1") == "changes its tier only with its whole cluster, and a member waits"

    def test_reject_plans_everything(self, decide, memory):
        """The gate refuses the scope, so the plan shows what it refused."""
        decided = decide([memory(name, use_count=0) for name in "abcd"], stale_max_use_count=0, on_excess="reject")

        assert decided.tally()["lost"] == 4


class TestTally:
    def test_every_scope_has_a_row_and_its_recent_losses(self, decide, memory):
        """Losses of a scope that holds nothing now are nobody's."""
        decided = decide([memory("ann", scope=""), memory("bob", scope="b")], losses={"b": 3, "gone": 9})

        assert {scope: row["lost_recently"] for scope, row in decided.rows("tally").items()} == {"": 0, "b": 3}

    def test_nothing_is_accepted_before_the_gate_has_spoken(self, decide, memory):
        """A tally that was never judged opens no door."""
        tally = decide([memory("ann")]).tally()

        assert (tally["accepted"], tally["refused"]) == (False, [])


class TestFiles:
    @pytest.mark.parametrize("relation", models.RELATIONS)
    def test_each_file_is_one_select_that_says_what_it_is(self, relation):
        """The first line names the relation, its grain and what it reads."""
        text = models.sql_of(relation)
        first_line = text.splitlines()[0]

        assert first_line.startswith(f"-- {relation}: one row per ")
        assert "reads " in first_line
        assert len(duckdb.extract_statements(text)) == 1
        assert text.rstrip().splitlines()[-1].startswith("order by")

    def test_no_file_is_without_its_place_in_the_order(self):
        """A SQL file that nobody runs is a trap."""
        files = {path.name for path in resources.files("memfold").joinpath("sql").iterdir()}

        assert files == {"README.md", *(f"{relation}.sql" for relation in models.RELATIONS)}

    def test_every_file_runs_unchanged_on_the_files_of_an_earlier_run(self, decide, memory, tmp_path, monkeypatch):
        """In a plain DuckDB, with the views that the README names, each file gives what the run holds."""
        decided = decide(
            [memory("ann", use_count=0), memory("bob", use_count=2), memory("cat", use_count=2)],
            clusters={"bob": {"cat": "copy"}},
            stale_max_use_count=0,
        )
        (tmp_path / "snapshot").mkdir()
        for name, table in {**decided.inputs, **decided.relations}.items():
            path = tmp_path / ("snapshot/part-00000.parquet" if name == "snapshot" else f"{name}.parquet")
            pq.write_table(table, path)
        monkeypatch.chdir(tmp_path)

        readme = resources.files("memfold").joinpath("sql", "README.md").read_text(encoding="utf-8")
        with duckdb.connect() as shell:
            shell.execute(readme.split("```sql")[1].split("```")[0])
            again = {name: shell.sql(models.sql_of(name)).to_arrow_table() for name in models.RELATIONS}

        for name, table in again.items():
            assert table.cast(decided.relations[name].schema).equals(decided.relations[name]), name

    def test_a_missing_relation_is_named(self, decide, memory):
        """Nothing is planned from half of what is needed."""
        inputs = decide([memory("ann")]).inputs
        del inputs["pairs"], inputs["losses"]

        with duckdb.connect() as con, pytest.raises(MemfoldError, match="needs the relations pairs, losses"):
            models.build(con, inputs)

    def test_a_failing_file_is_named(self, decide, memory):
        """The error says which SQL file to look at."""
        inputs = decide([memory("ann")]).inputs
        inputs["clusters"] = inputs["clusters"].drop_columns(["survivor_id"])

        with (
            duckdb.connect() as con,
            pytest.raises(MemfoldError, match=r"sql/survivors\.sql failed; nothing was planned"),
        ):
            models.build(con, inputs)

    @pytest.mark.parametrize("relation", models.RELATIONS)
    def test_each_relation_has_a_declared_schema(self, decide, memory, relation):
        """An empty store gives empty relations of the very same shape."""
        assert decide([]).relations[relation].schema == getattr(frames, relation.upper())
        assert decide([memory("ann")]).relations[relation].schema == getattr(frames, relation.upper())


def supersedes(older: str, newer: str) -> dict[str, str]:
    """A pair of which one side is the newer word."""
    left, right = sorted([older, newer])
    return {
        "left": left,
        "right": right,
        "verdict": "supersedes",
        "winner": "left" if newer == left else "right",
    }
