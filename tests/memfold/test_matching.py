"""From memories to clusters: what folds, what is held and why, and what must hold whatever the memories are."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memfold import evidence, frames, verdicts
from memfold.candidates import NEAREST
from memfold.clusters import Matches, match_rows
from memfold.memory import Memory
from memfold.policy import Policy

AS_OF = datetime(2026, 6, 1, tzinfo=UTC)
MINUTE_PAST_NINE = datetime(2026, 5, 4, 9, 1, tzinfo=UTC)

quick = settings(max_examples=60, deadline=None)


@dataclass(frozen=True)
class Found:
    """The relations of one matching, with short ways to read them."""

    matches: Matches

    @property
    def folds(self) -> dict[str, str]:
        """What merges into what, and how: "copy > ann"."""
        rows = self.matches.clusters.to_pylist()
        return {
            row["memory_id"]: f"{row['match']} > {row['survivor_id']}" for row in rows if row["match"] != "survivor"
        }

    @property
    def held(self) -> dict[tuple[str, str], str]:
        """Why pairs that say the same stay apart."""
        rows = self.matches.pairs.to_pylist()
        return {(row["left_id"], row["right_id"]): row["held"] for row in rows if row["held"]}

    @property
    def verdicts(self) -> dict[tuple[str, str], str]:
        return {(row["left_id"], row["right_id"]): row["verdict"] for row in self.matches.pairs.to_pylist()}


# Copies


def test_copies_fold_into_the_one_that_is_used_most():
    """Case, spacing and the full stop carry nothing; the survivor keeps its own words."""
    found = match(
        memory("ann", "User drinks oat milk.", use_count=1),
        memory("bob", "user drinks  OAT milk", use_count=7),
        memory("cat", "User drinks oat milk", use_count=None),
    )

    assert found.folds == {"ann": "copy > bob", "cat": "copy > bob"}


def test_the_survivor_order_is_pinned_importance_use_recency_id():
    """Each value decides only where those before it are equal; what is unknown comes last."""
    old, new = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 5, 1, tzinfo=UTC)
    ranked = [
        memory("j", pinned=True, importance=0.0),
        memory("i", importance=0.9, use_count=0),
        memory("h", importance=0.1, use_count=5),
        memory("g", importance=0.1, use_count=2, created_at=new),
        memory("f", importance=0.1, use_count=2, created_at=old),
        memory("e", importance=0.1, use_count=2, created_at=None),
        memory("d", importance=0.1, use_count=None),
        memory("c", importance=None, use_count=9),
        memory("a", importance=None, use_count=None, created_at=None),
        memory("b", importance=None, use_count=None, created_at=None),
    ]

    for best, other in pairwise(ranked):
        worded = replace(other, content="The user drinks oat milk")
        assert match(best, worded).folds == {other.memory_id: f"same > {best.memory_id}"}


def test_of_exact_copies_alike_in_importance_and_use_the_oldest_stays():
    """A store whose rows keep their own time still knows when it was first told; unknown comes last."""
    found = match(
        memory("ann", created_at=None),
        memory("bob", created_at=may(9)),
        memory("cat", created_at=may(2)),
    )

    assert found.folds == {"ann": "copy > cat", "bob": "copy > cat"}


def test_recency_is_when_it_was_said():
    """The event time counts before the time of writing."""
    found = match(
        memory("ann", created_at=may(1), event_time=may(9)),
        memory("bob", "The user drinks oat milk", created_at=may(5)),
    )

    assert found.folds == {"bob": "same > ann"}


@pytest.mark.parametrize("wall", ["scope", "trust", "tier", "kind"])
def test_no_pair_crosses_a_wall(wall):
    """The same words in another scope, trust, tier or kind are another memory, and not even a pair."""
    found = match(memory("ann", **{wall: "one"}), memory("bob", **{wall: "two"}))

    assert found.folds == {}
    assert found.verdicts == {}


def test_null_and_empty_are_two_walls():
    """A memory without a kind does not fold into one of the empty kind."""
    assert match(memory("ann", kind=None), memory("bob", kind="")).folds == {}


def test_expired_and_blank_rows_match_nothing():
    """Expired means at or before the moment of the pass, to the microsecond."""
    found = match(
        memory("ann", expires_at=AS_OF),
        memory("bob", expires_at=AS_OF.replace(microsecond=1)),
        memory("cat"),
        memory("dan", " \u200b\n"),
        memory("eve", "\t"),
    )

    assert found.folds == {"cat": "copy > bob"}
    assert [row["memory_id"] for row in found.matches.texts.to_pylist() if row["is_blank"]] == ["dan", "eve"]


def test_a_row_without_content_is_judged_by_its_title():
    """The title is all that it says."""
    found = match(
        memory("ann", "", title="Oat milk, never cow's"),
        memory("bob", " ", title="oat milk, never cow's"),
    )

    assert found.folds == {"bob": "copy > ann"}


def test_texts_without_words_are_compared_as_they_stand():
    """Two emoji or two rows of dots are not alike because neither holds a word."""
    texts = ["\N{THUMBS UP SIGN}", "\N{FIRE}", "...", "???"]
    found = match(*(memory(f"{number}{twin}", text) for number, text in enumerate(texts) for twin in "ab"))

    assert found.folds == {f"{number}b": f"copy > {number}a" for number in range(4)}


def test_a_text_about_today_folds_only_within_one_known_day():
    """ "The build is red today" said on two days is two facts; at an unknown time it may be a third."""
    text = "The build is red today"
    found = match(
        memory("ann", text, created_at=may(4, hour=1)),
        memory("bob", text, created_at=may(4, hour=23)),
        memory("cat", text, created_at=may(5)),
        memory("dan", text, created_at=None),
        memory("eve", text, created_at=None),
    )

    assert found.folds == {"bob": "copy > ann"}
    assert [row["says_day"] for row in found.matches.texts.to_pylist()] == [True] * 5


def test_copies_under_titles_that_differ_are_judged_with_their_titles():
    """A title that names what the other does not hold keeps its memory."""
    found = match(
        memory("ann", "Rotate the password monthly", title="Staging, ticket 4711"),
        memory("bob", "Rotate the password monthly", title="Staging, ticket 4712"),
    )

    assert found.folds == {}
    assert found.held == {("ann", "bob"): "their titles differ"}


def test_the_side_with_the_fuller_title_stays():
    """Where one direction would lose a fact and the other none, the merge goes the other way."""
    found = match(
        memory("ann", "Rotate the password monthly", title=None, use_count=50),
        memory("bob", "Rotate the password monthly", title="Ticket 4711", use_count=1),
    )

    assert found.folds == {"ann": "same > bob"}


def test_memories_valid_at_other_times_are_held():
    """The same words about another span of time are another fact."""
    found = match(memory("ann", valid_to=may(3)), memory("bob", valid_to=may(4)), memory("cat", valid_to=may(4)))

    assert found.folds == {"cat": "copy > bob"}
    assert found.held == {("ann", "bob"): "valid at other times"}


# Sessions


def test_where_recall_is_by_session_twins_of_two_sessions_are_held():
    """Each session would lose its memory if the other kept it."""
    twins = [memory("ann", session_id="mon"), memory("bob", session_id="tue"), memory("cat", session_id="tue")]

    found = match(*twins, session_recall="equality")

    assert found.folds == {"cat": "copy > bob"}
    assert found.held == {("ann", "bob"): "another session: mon / tue"}
    assert match(*twins, session_recall="equality", across_sessions=True).folds == {
        "bob": "copy > ann",
        "cat": "copy > ann",
    }
    assert match(*twins, session_recall="null_is_all").held == {}


def test_many_sessions_do_not_hide_the_twins_within_one():
    """Thirty sessions hold the same two wordings; in each, one folds into the other."""
    memories = [
        memory(f"{session:02}{wording}", text, session_id=f"s{session}")
        for session in range(30)
        for wording, text in (("a", "The user drinks oat milk"), ("b", "User drinks oat milk"))
    ]

    found = match(*memories, session_recall="equality")

    assert len(found.folds) == 30
    assert all(into.endswith(loser[:2] + "a") for loser, into in found.folds.items())


# What stays whatever matches it


def test_a_pinned_or_protected_row_is_never_taken():
    """It takes its copies, and two of them both stay."""
    found = match(
        memory("ann", use_count=9),
        memory("bob", pinned=True, use_count=1),
        memory("cat", protected=True),
    )

    assert found.folds == {"ann": "copy > bob"}
    assert found.held == {("bob", "cat"): "pinned and protected: both stay"}


def test_where_the_fuller_text_is_not_the_pinned_one_both_stay():
    """The pinned text may not go, and the fuller one holds more."""
    found = match(
        memory("ann", "Ana hikes the coast path in July", pinned=True),
        memory("bob", "Ana hikes the coast path in July with her family"),
    )

    assert found.folds == {}
    assert found.held == {("ann", "bob"): "pinned: both stay"}


def test_the_fuller_text_takes_the_shorter_one_whatever_its_use():
    """Nothing of the shorter one is missing from the longer one."""
    found = match(
        memory("ann", "Ana hikes the coast path in July", use_count=90, importance=1.0),
        memory("bob", "Ana hikes the coast path in July with her family"),
    )

    assert found.folds == {"ann": "contains > bob"}
    assert found.matches.clusters.column("added_words").to_pylist()[0] > 0


def test_what_is_said_under_another_title_stays_apart():
    """The port of staging is not the port of production; a title in other words keeps nothing apart."""
    port = "The service listens on port 8080 by default"
    staging, production = memory("a", port, title="Staging"), memory("b", port, title="Production")
    again = memory("c", port, title="The staging")

    found = match(staging, production, again)

    assert found.folds == {"c": "same > a"}
    assert found.held["a", "b"] == "their titles differ"


def test_a_negation_in_a_title_keeps_two_apart():
    """The contents say the same, the titles the opposite."""
    do, do_not = (
        memory(title, "In the web repo, on every file", title=title) for title in ("Use tabs", "Do not use tabs")
    )

    assert match(do, do_not).folds == {}


def test_what_a_person_took_back_is_not_merged_again():
    """It is held while both rows are what they were, in either direction; others may still fold."""
    ann, bob, cat = memory("ann"), memory("bob"), memory("cat")

    found = match(ann, bob, cat, rejected=[(bob, ann)])

    assert found.held == {("ann", "bob"): "kept apart by a person"}
    assert found.folds == {"cat": "copy > ann"}


def test_two_memories_that_a_person_keeps_apart_are_never_in_one_cluster():
    """A third copy takes one of the two, and the other one stays beside it."""
    ann, bob, cat = memory("ann"), memory("bob"), memory("cat", use_count=9)

    found = match(ann, bob, cat, rejected=[(bob, ann)])

    assert found.folds == {"ann": "copy > cat"}
    assert found.held["bob", "cat"] == "a person keeps it apart from a copy that went there"


def test_a_text_that_changed_since_it_was_taken_back_is_judged_afresh():
    """The decision was about another text."""
    ann, bob = memory("ann"), memory("bob")

    found = match(ann, bob, rejected=[(replace(bob, content="User drinks soy milk"), ann)])

    assert found.folds == {"bob": "copy > ann"}


# Conflicts and near misses


def test_a_conflict_is_reported_and_merges_nothing():
    """Both stay, with the newer side named."""
    found = match(
        memory("ann", "The launch of Halcyon is on 15 October", created_at=may(1)),
        memory("bob", "The launch of Halcyon is on 16 October", created_at=may(9)),
    )

    (pair,) = found.matches.pairs.to_pylist()
    assert found.folds == {}
    assert pair["verdict"] in {"conflict", "supersedes"}
    assert pair["reason"]
    assert pair["held"] is None


# No chaining, and no leftovers


def test_a_copy_that_reads_differently_must_match_the_survivor_itself():
    """ "21 may" is a copy of "21 May", but only the latter is known to be a date; so it does not follow it further."""
    found = match(
        memory("ann", "Anniversary is May 21", use_count=9),
        memory("bob", "Anniversary is 21 May", use_count=5),
        memory("cat", "anniversary is 21 may", use_count=1),
    )

    assert found.folds == {"bob": "same > ann"}


def test_those_that_stay_are_proposed_again_where_leaders_went():
    """Ten memories have the same words. Eight fold into one, and only then the last two meet each other."""
    wordings = [
        opening + text
        for text in ("the build is red today", "build is red today")
        for opening in ("", "Note: ", "Remember: ", "User said that ")
    ]
    monday = [memory(f"a{number}", text, created_at=may(4)) for number, text in enumerate(wordings)]
    tuesday = [memory(f"b{number}", text, created_at=may(5)) for number, text in enumerate(wordings[:2])]

    found = match(*monday, *tuesday)

    assert found.folds == {**{f"a{number}": "same > a0" for number in range(1, 8)}, "b1": "same > b0"}


def test_the_verdict_is_asked_where_no_candidate_was_proposed(monkeypatch):
    """Cat shares no word with ann, but it is a neighbour of bob, whom ann takes, and the verdict is that it matches."""

    def says_same(corpus, left, right, **_):
        none = np.zeros(len(left))
        return replace(judge(corpus, left, right, **_), verdict=none.astype(np.int8), winner=none.astype(np.int8))

    judge = verdicts.judge
    monkeypatch.setattr(verdicts, "judge", says_same)
    monkeypatch.setattr(verdicts, "would_lose", lambda corpus, removed, kept: ())

    found = match(
        memory("ann", "alder birch cedar damson", use_count=9),
        memory("bob", "cedar damson elder fir", use_count=5),
        memory("cat", "elder fir ginkgo hazel", use_count=1),
    )

    assert found.folds == {"bob": "same > ann", "cat": "same > ann"}


# What must always hold

CONTENTS = [
    "User drinks oat milk",
    "The user drinks oat milk.",
    "user drinks OAT milk",
    "User drinks oat milk with tea",
    "User drinks no oat milk",
    "User drinks soy milk",
    "The build is red today",
    "...",
]
MEMORIES = st.lists(
    st.fixed_dictionaries(
        {
            "content": st.sampled_from(CONTENTS),
            "scope": st.sampled_from(["team", "team", "ops"]),
            "title": st.sampled_from([None, None, "Drinks", "Ticket 7"]),
            "session_id": st.sampled_from([None, "mon", "tue"]),
            "pinned": st.sampled_from([False, False, False, True]),
            "importance": st.sampled_from([None, 0.5]),
            "use_count": st.sampled_from([None, 1]),
            "created_at": st.sampled_from([None, datetime(2026, 5, 1, tzinfo=UTC), datetime(2026, 5, 2, tzinfo=UTC)]),
            "valid_to": st.sampled_from([None, None, datetime(2026, 8, 1, tzinfo=UTC)]),
        }
    ),
    max_size=12,
).map(lambda rows: [Memory(memory_id=f"m{number:02}", **row) for number, row in enumerate(rows)])
POLICIES = st.sampled_from(
    [
        {},
        {"session_recall": "equality"},
        {"session_recall": "equality", "across_sessions": True},
        {"exact_join_rows": 1},
        {"exact_join_rows": 1, "leaders_per_bucket": 1, "session_recall": "equality"},
    ]
)


@quick
@given(MEMORIES, POLICIES, st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(memories, policy, random):
    """The same memories give the same relations, byte for byte."""
    shuffled = random.sample(memories, len(memories))

    assert match(*shuffled, **policy) == match(*memories, **policy)


@quick
@given(MEMORIES, POLICIES)
def test_a_scope_gives_the_same_alone_and_in_a_sweep(memories, policy):
    """What other scopes hold changes nothing."""
    sweep, alone = match(*memories, **policy), match(*(each for each in memories if each.scope == "ops"), **policy)
    ours = {each.memory_id for each in memories if each.scope == "ops"}

    assert {loser: into for loser, into in sweep.folds.items() if loser in ours} == alone.folds
    assert {pair: verdict for pair, verdict in sweep.verdicts.items() if pair[0] in ours} == alone.verdicts


@quick
@given(MEMORIES, POLICIES)
def test_a_second_pass_finds_nothing(memories, policy):
    """Among the rows that stay nothing is left to fold."""
    folds = match(*memories, **policy).folds

    assert match(*(each for each in memories if each.memory_id not in folds), **policy).folds == {}


@quick
@given(MEMORIES, POLICIES)
def test_no_pair_that_stays_may_merge_unless_it_is_held(memories, policy):
    """Each same or contained pair has a side that went, or a reason."""
    found = match(*memories, **policy)

    for pair, verdict in found.verdicts.items():
        if verdict in ("same", "contains"):
            assert pair in found.held or pair[0] in found.folds or pair[1] in found.folds


@quick
@given(MEMORIES, POLICIES)
def test_members_are_matches_of_their_survivor_and_walls_stand(memories, policy):
    """Whatever folds was judged against its own survivor, on its own side of every wall, and is not pinned."""
    found = match(*memories, **policy)
    by_id = {each.memory_id: each for each in memories}

    for loser, into in found.folds.items():
        how, survivor = into.split(" > ")
        gone, stays = by_id[loser], by_id[survivor]
        assert (gone.scope, gone.valid_to) == (stays.scope, stays.valid_to)
        assert not gone.pinned
        assert survivor not in found.folds
        assert (
            gone.session_id == stays.session_id or policy.get("session_recall") is None or "across_sessions" in policy
        )
        if how != "copy":
            assert match(gone, replace(stays, pinned=True)).folds == {loser: into}


# What it costs


def test_fifty_thousand_identical_rows_cost_one_pair_each(judged_pairs):
    """A memory repeated over and over is one text and one survivor."""
    found = match_rows(many(["The deploy of the api finished"] * 50_000), none_rejected(), Policy(as_of=AS_OF))

    assert len(found.pairs) == 49_999
    assert judged_pairs() == 0


def test_many_tiny_variations_cost_a_bounded_number_of_verdicts(judged_pairs):
    """Each variation is judged against its nearest few, not against all others, and explained against fewer."""
    texts = [f"backup run {run} finished on host alder with exit code 0" for run in range(2500)]

    found = match_rows(many(texts), none_rejected(), Policy(as_of=AS_OF))

    assert judged_pairs() <= (NEAREST + 4) * len(texts)
    assert len(found.clusters) == 0
    assert len(found.pairs) <= 4 * len(texts)


def test_a_small_store_needs_no_heavy_library():
    """A thousand memories are matched without datasketch, numba or scipy."""
    script = (
        "import sys, memfold.clusters\n"
        "from datetime import datetime, UTC\n"
        "from memfold import frames\n"
        "from memfold.policy import Policy\n"
        "snapshot, rejected = frames.SNAPSHOT.empty_table(), frames.REJECTED.empty_table()\n"
        "memfold.clusters.match_rows(snapshot, rejected, Policy(as_of=datetime.now(UTC)))\n"
        "import json; print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)

    assert not {"datasketch", "numba", "scipy", "prefect", "duckdb"} & set(json.loads(done.stdout))


@pytest.fixture
def judged_pairs(monkeypatch):
    """How many pairs of two memories were judged so far."""
    judge, count = verdicts.judge, [0]

    def counting(corpus, left, right, **given):
        count[0] += len(left)
        return judge(corpus, left, right, **given)

    monkeypatch.setattr(verdicts, "judge", counting)
    return lambda: count[0]


def test_pairs_say_how_many_conflicts_and_near_misses_there_were():
    """Of many, those nearest to a memory are kept; whoever reads them can tell that there were more."""
    told = (("Eva", "plums"), ("Tom", "figs"), ("Ida", "pears"), ("Bob", "nuts"), ("Ann", "beans"), ("Jim", "leeks"))
    alike = match(*(memory(who, f"{who} keeps the crate in our cold cellar full of {what}") for who, what in told))
    ports = match(*(memory(f"port-{port}", f"The staging server listens on port {port}") for port in range(8080, 8090)))

    assert evidence.found_of(alike.matches.pairs) == {"conflict": 0, "distinct": 15}
    assert list(alike.verdicts.values()) == ["distinct"] * 5
    assert evidence.found_of(ports.matches.pairs) == {"conflict": 45, "distinct": 0}
    assert len(ports.verdicts) < 45


def match(*memories: Memory, rejected: Sequence[tuple[Memory, Memory]] = (), **policy: Any) -> Found:
    taken_back = [
        {
            "memory_id": loser.memory_id,
            "into_id": survivor.memory_id,
            "row_digest": loser.row_digest,
            "into_digest": survivor.row_digest,
        }
        for loser, survivor in rejected
    ]
    return Found(
        match_rows(
            snapshot_of(memories),
            pa.Table.from_pylist(taken_back, schema=frames.REJECTED),
            Policy(as_of=AS_OF, **policy),
        )
    )


def memory(memory_id: str, content: str = "User drinks oat milk", **values: Any) -> Memory:
    return Memory(memory_id=memory_id, content=content, **{"scope": "team", "created_at": MINUTE_PAST_NINE, **values})


def may(day: int, hour: int = 9) -> datetime:
    return datetime(2026, 5, day, hour, tzinfo=UTC)


def snapshot_of(memories: Sequence[Memory]) -> pa.Table:
    names = [field.name for field in fields(Memory)]
    rows = [{**{name: getattr(each, name) for name in names}, "row_digest": each.row_digest} for each in memories]
    return pa.Table.from_pylist(rows, schema=frames.SNAPSHOT)


def many(texts: Sequence[str]) -> pa.Table:
    one = snapshot_of([memory("x")])
    table = one.take(pa.array(np.zeros(len(texts), np.int64)))
    ids = pa.array([f"m{number:06}" for number in range(len(texts))], pa.string())
    table = table.set_column(0, frames.SNAPSHOT.field("memory_id"), ids)
    place = table.schema.get_field_index("content")
    return table.set_column(place, frames.SNAPSHOT.field("content"), pa.array(texts, pa.string()))


def none_rejected() -> pa.Table:
    return frames.REJECTED.empty_table()
