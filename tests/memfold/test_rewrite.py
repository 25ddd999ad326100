"""From an accepted plan to the exact changes, and what a survivor takes from its members."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memfold import frames
from memfold.memory import Memory
from memfold.rewrite import fold


def day(number: int) -> datetime:
    return datetime(2026, 5, number, tzinfo=UTC)


class TestUnits:
    def test_a_survivor_and_its_members_are_one_unit(self, decide, memory):
        """They land together; what is kept for itself is not in the rewrite."""
        decided = decide(
            [memory("ann"), memory("bob"), memory("cat"), memory("dan")],
            clusters={"cat": {"ann": "copy", "bob": ("same", 0.9)}},
        )

        assert spelled(decided.rewritten()) == [
            "0 ann member copy > cat",
            "0 bob member same > cat",
            "0 cat survivor kept",
        ]

    def test_a_memory_that_goes_or_moves_alone_is_a_unit_of_its_own(self, decide, memory):
        """One that drifted holds back no other."""
        decided = decide(
            [
                memory("blank", ""),
                memory("due", expires_at=day(1)),
                memory("known", tier="short_term", use_count=3),
                memory("kept"),
            ],
            promote_min_use_count=3,
        )

        assert spelled(decided.rewritten()) == [
            "0 blank prune blank",
            "1 due prune expired",
            "2 known promote promoted -> long_term",
        ]

    def test_a_promoted_survivor_takes_its_members_along(self, decide, memory):
        """It is a survivor first: it takes the folded fields, and moves with them."""
        decided = decide(
            [memory("ann", tier="short_term", use_count=3), memory("bob", tier="short_term")],
            clusters={"ann": {"bob": "copy"}},
            promote_min_use_count=3,
        )

        assert spelled(decided.rewritten()) == [
            "0 ann survivor promoted -> long_term",
            "0 bob member copy > ann",
        ]

    def test_a_stale_cluster_is_one_unit(self, decide, memory):
        """So is a superseded one, and each row names what took its place."""
        decided = decide(
            [memory("a", use_count=0), memory("b", use_count=0), memory("nine"), memory("nine too"), memory("ten")],
            clusters={"b": {"a": "copy"}, "nine": {"nine too": "copy"}},
            pairs=[{"left": "nine", "right": "ten", "verdict": "supersedes", "winner": "right"}],
            supersede="archive",
            stale_max_use_count=0,
            max_loss_fraction=1.0,
            max_rolling_loss_fraction=1.0,
        )

        assert spelled(decided.rewritten()) == [
            "0 a prune stale",
            "0 b prune stale",
            "1 nine prune superseded by ten",
            "1 nine too prune superseded by ten",
        ]

    def test_units_are_numbered_through_all_accepted_scopes(self, decide, memory):
        """By scope and by the memory that leads them; a refused scope has none."""
        decided = decide(
            [
                *(memory(name, "Gate 4", scope=scope) for scope in ("b", "a") for name in (f"{scope}1", f"{scope}2")),
                *(memory(f"c{number}", use_count=0, scope="c") for number in range(3)),
            ],
            clusters={"a1": {"a2": "copy"}, "b2": {"b1": "copy"}},
            stale_max_use_count=0,
        )

        assert spelled(decided.rewritten()) == [
            "0 a1 survivor kept",
            "0 a2 member copy > a1",
            "1 b1 member copy > b2",
            "1 b2 survivor kept",
        ]

    def test_the_rewrite_has_its_declared_schema_and_the_digests_of_the_snapshot(self, decide, memory):
        """An apply compares each row with the row that was planned for."""
        ann, bob = memory("ann"), memory("bob")
        rewrite = decide([ann, bob], clusters={"ann": {"bob": "copy"}}).rewritten()

        assert rewrite.schema == frames.REWRITE
        assert rewrite["row_digest"].to_pylist() == [ann.row_digest, bob.row_digest]
        assert decide([ann, bob]).rewritten().schema == frames.REWRITE

    @pytest.mark.parametrize(("strict", "is_lost"), [(False, False), (True, True)])
    def test_a_row_counts_for_the_loss_window_as_the_policy_counts(self, decide, memory, strict, is_lost):
        """A folded copy is lost only where rows are what counts."""
        decided = decide(
            [memory("ann"), memory("bob")],
            clusters={"ann": {"bob": "copy"}},
            strict_entries=strict,
            max_loss_fraction=0.5,
        )

        assert decided.rewritten()["is_lost"].to_pylist() == [False, is_lost]


class TestFold:
    def test_the_text_of_the_survivor_stays_to_the_letter(self, memory):
        """Folding takes from the members everything but their words."""
        ann = memory("ann", "  Gate\t4 ", title="Code", kind="fact", event_time=day(1), valid_to=day(9))
        bob = memory("bob", "gate 4", title="code", event_time=day(3))

        folded = fold(ann, [bob], session_recall="none").memory

        assert (folded.content, folded.title, folded.kind) == ("  Gate\t4 ", "Code", "fact")
        assert (folded.event_time, folded.valid_to) == (day(1), day(9))

    def test_counts_add_up_and_the_best_scores_and_outer_dates_stay(self, memory):
        """What is unknown neither counts nor hides what is known."""
        ann = memory("ann", use_count=3, importance=0.4, created_at=day(5), updated_at=day(5), last_used_at=None)
        bob = memory("bob", use_count=None, importance=None, created_at=day(2), updated_at=None, last_used_at=day(8))
        cat = memory("cat", use_count=4, importance=0.9, created_at=None, updated_at=day(7), confidence=0.2)

        folded = fold(ann, [bob, cat], session_recall="none").memory

        assert (folded.use_count, folded.importance, folded.confidence) == (7, 0.9, 0.2)
        assert (folded.created_at, folded.updated_at, folded.last_used_at) == (day(2), day(7), day(8))

    def test_a_memory_expires_with_the_last_of_its_members_or_never(self, memory):
        """One member that never expires keeps the memory for good."""
        ann, bob = memory("ann", expires_at=day(9)), memory("bob", expires_at=day(20))

        assert fold(ann, [bob], session_recall="none").memory.expires_at == day(20)
        assert fold(ann, [bob, memory("cat")], session_recall="none").memory.expires_at is None

    def test_tags_sessions_and_links_are_unions(self, memory):
        """In the order in which they first come; a link among the folded rows would point at itself."""
        ann = memory("ann", tags=("door", "code"), session_id="mon", links=("zoe", "bob"))
        bob = memory("bob", tags=("code", "gate"), sessions=("sun",), session_id="tue", links=("ann", "yve"))

        folded = fold(ann, [bob], session_recall="none").memory

        assert folded.tags == ("door", "code", "gate")
        assert folded.sessions == ("mon", "sun", "tue")
        assert folded.links == ("zoe", "yve")
        assert folded.session_id == "mon"

    def test_across_sessions_the_session_becomes_null_where_that_means_every_session(self, memory):
        """Elsewhere the survivor's own session stays, and within one session it always does."""
        ann, bob = memory("ann", session_id="mon"), memory("bob", session_id="tue")

        assert fold(ann, [bob], session_recall="null_is_all").memory.session_id is None
        assert fold(ann, [bob], session_recall="equality").memory.session_id == "mon"
        assert fold(ann, [replace(bob, session_id="mon")], session_recall="null_is_all").memory.session_id == "mon"

    def test_without_members_nothing_changes(self, memory):
        """A survivor whose members all drifted is left as it is."""
        ann = memory("ann", session_id="mon", metadata='{"a": 1}')

        assert fold(ann, [], session_recall="null_is_all").memory is ann

    def test_the_order_of_the_members_makes_no_difference(self, memory):
        """Members are taken by their ids."""
        ann = memory("ann")
        others = [
            memory("bob", tags=("b",), metadata='{"k": 1}'),
            memory("cat", tags=("c",), metadata='{"k": 2}'),
        ]

        assert fold(ann, others, session_recall="none") == fold(ann, others[::-1], session_recall="none")


class TestMetadata:
    def test_missing_keys_are_added_and_the_survivors_own_text_stays(self, memory):
        """Spacing, order and spelling of what was there are the owner's."""
        ann = memory("ann", metadata='{ "z": 1.0,  "a": "\\u00e4" }')
        bob = memory("bob", metadata='{"a": "\\u00e4", "city": "東京"}')

        folded = fold(ann, [bob], session_recall="none")

        assert folded.memory.metadata == '{ "z": 1.0,  "a": "\\u00e4", "city": "東京"}'
        assert folded.metadata_conflicts == ()

    def test_a_key_on_which_both_differ_keeps_the_survivors_value_and_is_reported(self, memory):
        """So is one on which two members differ: the first by id is taken."""
        ann = memory("ann", metadata='{"priority": "high"}')
        bob = memory("bob", metadata='{"priority": "low", "source": "chat"}')
        cat = memory("cat", metadata='{"source": "mail"}')

        folded = fold(ann, [cat, bob], session_recall="none")

        assert json.loads(folded.memory.metadata) == {"priority": "high", "source": "chat"}
        assert folded.metadata_conflicts == ("priority", "source")

    @pytest.mark.parametrize("empty", [None, "", "{}", " { } "])
    def test_a_survivor_without_metadata_takes_that_of_its_members(self, memory, empty):
        """No metadata is an empty object."""
        folded = fold(
            memory("ann", metadata=empty), [memory("bob", metadata='{"k": [1, null]}')], session_recall="none"
        )

        assert json.loads(folded.memory.metadata) == {"k": [1, None]}

    @pytest.mark.parametrize("odd", ["[1, 2]", "no json", '{"cut": ', "3"])
    def test_what_is_no_json_object_stays_untouched_and_is_reported(self, memory, odd):
        """On either side; what can be folded beside it is."""
        kept = fold(memory("ann", metadata=odd), [memory("bob", metadata='{"k": 1}')], session_recall="none")
        left = fold(
            memory("ann"), [memory("bob", metadata=odd), memory("c", metadata='{"k": 1}')], session_recall="none"
        )

        assert (kept.memory.metadata, kept.metadata_conflicts) == (odd, ("metadata",))
        assert (left.memory.metadata, left.metadata_conflicts) == ('{"k": 1}', ("metadata",))

    def test_the_same_metadata_in_another_spelling_is_no_conflict(self, memory):
        """Key order and spaces say nothing."""
        ann, bob = memory("ann", metadata='{"a": 1, "b": 2}'), memory("bob", metadata='{"b":2,"a":1}')

        folded = fold(ann, [bob], session_recall="none")

        assert (folded.memory.metadata, folded.metadata_conflicts) == ('{"a": 1, "b": 2}', ())

    def test_half_a_surrogate_pair_survives_as_an_escape(self, memory):
        """It has no UTF-8, but JSON can spell it."""
        bob = memory("bob", metadata='{"emoji": "\\ud83d"}')

        folded = fold(memory("ann"), [bob], session_recall="none")

        assert folded.memory.metadata == '{"emoji": "\\ud83d"}'


GROUPS = st.lists(
    st.fixed_dictionaries(
        {
            "use_count": st.sampled_from([None, 0, 2, 2**63 - 1]),
            "importance": st.sampled_from([None, 0.0, 0.7]),
            "confidence": st.sampled_from([None, 0.5]),
            "created_at": st.sampled_from([None, day(1), day(2)]),
            "updated_at": st.sampled_from([None, day(3)]),
            "last_used_at": st.sampled_from([None, day(3), day(4)]),
            "expires_at": st.sampled_from([None, datetime(2027, 1, 1, tzinfo=UTC), datetime(2028, 1, 1, tzinfo=UTC)]),
            "session_id": st.sampled_from([None, "mon", "tue"]),
            "sessions": st.sampled_from([(), ("mon",), ("tue", "wed")]),
        }
    ),
    min_size=2,
    max_size=4,
)


@settings(max_examples=40, deadline=None)
@given(values=GROUPS)
def test_sql_and_fold_agree_on_every_folded_value(decide, values):
    """The plan is judged on what the apply will write."""
    rows = [Memory(memory_id=f"m{n}", scope="team", content="Gate 4", **each) for n, each in enumerate(values)]
    survivor, *members = rows

    from_sql = decide(rows, clusters={"m0": {each.memory_id: "copy" for each in members}}).rows("survivors")["m0"]
    folded = fold(survivor, members, session_recall="none").memory

    names = ("use_count", "importance", "confidence", "created_at", "updated_at", "last_used_at", "expires_at")
    assert {name: from_sql[name] for name in names} == {name: getattr(folded, name) for name in names}
    assert from_sql["sessions"] == len(folded.sessions)


def spelled(rewrite) -> list[str]:
    """One line per row: unit, id, role, reason, and where it goes."""
    lines = []
    for row in rewrite.to_pylist():
        line = f"{row['unit_id']} {row['memory_id']} {row['role']} {row['reason']}"
        line += f" > {row['into_id']}" if row["into_id"] else ""
        line += f" by {row['superseded_by']}" if row["superseded_by"] else ""
        lines.append(line + (f" -> {row['promote_to']}" if row["promote_to"] else ""))
    return lines
