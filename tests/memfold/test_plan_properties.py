"""What must hold of every plan, whatever the memories and the policy; drawn from few values, so that ties happen."""

from __future__ import annotations

import itertools
from collections import defaultdict
from datetime import UTC, datetime

from hypothesis import given, settings
from hypothesis import strategies as st

from memfold.contract import ConsolidationResult
from memfold.memory import Memory

quick = settings(max_examples=40, deadline=None)


def day(number: int) -> datetime:
    return datetime(2026, 5, number, tzinfo=UTC)


CONTENTS = ("gate 4", "Gate 4", "gate 4", "the gate 4", "it opens at nine", "it opens at ten", "open today", " ")

MEMORIES = st.lists(
    st.fixed_dictionaries(
        {
            "scope": st.sampled_from(["team", "team", "team", "ops"]),
            "content": st.sampled_from(CONTENTS),
            "title": st.sampled_from([None, None, None, "Doors"]),
            "tier": st.sampled_from(["short_term", "long_term"]),
            "session_id": st.sampled_from(["mon", "mon", "tue", None]),
            "pinned": st.sampled_from([False] * 7 + [True]),
            "use_count": st.sampled_from([0, 0, 3, None]),
            "importance": st.sampled_from([0.0, 0.5, None]),
            "created_at": st.sampled_from([day(1), day(20), None]),
            "last_used_at": st.sampled_from([day(2), day(30), None]),
            "expires_at": st.sampled_from([None] * 9 + [day(3)]),
        }
    ),
    min_size=3,
    max_size=16,
).map(lambda rows: [Memory(memory_id=f"m{number:02}", **row) for number, row in enumerate(rows)])

STALE = (
    {},
    {"stale_min_age_days": 20},
    {"stale_max_use_count": 0},
    {"stale_min_age_days": 20, "stale_max_use_count": 0},
    {"stale_min_idle_days": 20, "stale_max_importance": 0.0},
)
PROMOTE = ({}, {"promote_min_sessions": 1}, {"promote_min_use_count": 3}, {"promote_min_sessions": 2})
LIMITS = (
    {"max_loss_fraction": 0.25},
    {"max_loss_fraction": 0.5},
    {"max_loss_fraction": 1.0, "max_rolling_loss_fraction": 1.0, "max_lost_rows": 2},
    {"max_loss_fraction": 1.0, "max_rolling_loss_fraction": 0.5},
)

POLICIES = st.builds(
    lambda stale, promote, limits, others: {**stale, **promote, **limits, **others},
    st.sampled_from(STALE),
    st.sampled_from(PROMOTE),
    st.sampled_from(LIMITS),
    st.fixed_dictionaries(
        {
            "on_excess": st.sampled_from(["reject", "fit"]),
            "max_expired_fraction": st.just(1.0),
            "strict_entries": st.sampled_from([False, False, True]),
            "supersede": st.sampled_from(["report", "archive"]),
            "max_memories": st.sampled_from([None, None, 2, 5]),
            "session_recall": st.sampled_from(["none", "equality", "null_is_all"]),
        }
    ),
)

TAKEN_BACK = st.sets(st.integers(0, 15), max_size=2)
LOSSES = st.sampled_from([{}, {"team": 3}])


@quick
@given(memories=MEMORIES, policy=POLICIES, taken_back=TAKEN_BACK, losses=LOSSES)
def test_the_plan_is_total_and_sound(decide, memories, policy, taken_back, losses):
    """The gate, which looks at it by other means, finds no row left out, no target that goes and no wall crossed."""
    decided = decide_found(decide, memories, policy, taken_back, losses=losses)

    assert list(decided.actions) == [each.memory_id for each in memories]
    limits = {"loss", "rolling loss", "lost rows"}
    for scope in decided.judged().scopes:
        failed = {check.name: check.says for check in scope.checks if not check.passed}
        assert failed.keys() <= (limits if policy["on_excess"] == "reject" else set()), failed


@quick
@given(memories=MEMORIES, policy=POLICIES, taken_back=TAKEN_BACK, data=st.data())
def test_the_order_of_the_rows_never_matters(decide, memories, policy, taken_back, data):
    """Rows come in the order of the store, and the plan does not follow it."""
    shuffled = data.draw(st.permutations(memories))

    one = decide_found(decide, memories, policy, taken_back)
    other = decide_found(decide, shuffled, policy, taken_back)

    assert one.relations == other.relations


@quick
@given(memories=MEMORIES, policy=POLICIES, losses=LOSSES)
def test_the_tally_is_arithmetic_on_the_plan(decide, memories, policy, losses):
    """Counted once more in Python, scope by scope."""
    decided = decide_found(decide, memories, policy, set(), losses=losses)
    expected = defaultdict(lambda: dict.fromkeys(("before", "after", "lost", "strict", "held", "waits"), 0))
    for row in decided.rows("plan").values():
        count = expected[row["scope"]]
        is_gone = row["action"] in ("merge", "prune")
        count["before"] += 1
        count["after"] += not is_gone
        count["lost"] += is_gone and row["reason"] not in ("copy", "expired")
        count["strict"] += is_gone
        count["held"] += row["reason"] == "held"
        count["waits"] += row["reason"] == "waits"

    assert {
        scope: {
            "before": row["entries_before"],
            "after": row["entries_after"],
            "lost": row["lost"],
            "strict": row["lost_strict"],
            "held": row["held"],
            "waits": row["waits"],
        }
        for scope, row in decided.rows("tally").items()
    } == expected
    for scope, row in decided.rows("tally").items():
        in_force = expected[scope]["strict" if policy["strict_entries"] else "lost"]
        assert row["retained_originals"] == row["entries_before"] - in_force
        assert row["lost_recently"] == losses.get(scope, 0)


@quick
@given(memories=MEMORIES, policy=POLICIES, losses=LOSSES)
def test_fit_takes_a_strict_prefix_within_every_limit(decide, memories, policy, losses):
    """Once a unit does not fit, all that come after it wait, however small."""
    decided = decide_found(decide, memories, {**policy, "on_excess": "fit"}, set(), losses=losses)

    assert set(decided.rows("waits")) == left_over(decided, losses)
    assert all(check.passed for scope in decided.judged().scopes for check in scope.checks)


@quick
@given(memories=MEMORIES, policy=POLICIES)
def test_a_refused_scope_gives_no_change(decide, memories, policy):
    """The rewrite holds rows of accepted scopes only, and each row once."""
    decided = decide_found(decide, memories, policy, set())
    verdict = decided.judged()

    rewrite = decided.rewritten(verdict).to_pylist()

    refused = {each.scope for each in verdict.scopes if not each.accepted}
    assert {row["scope"] for row in rewrite}.isdisjoint(refused)
    assert len({row["memory_id"] for row in rewrite}) == len(rewrite)
    removed = {row["memory_id"] for row in rewrite if row["role"] in ("member", "prune")}
    plan = decided.rows("plan")
    assert removed == {
        each for each, row in plan.items() if row["action"] in ("merge", "prune") and row["scope"] not in refused
    }


@settings(max_examples=80, deadline=None)
@given(memories=MEMORIES, policy=POLICIES, taken_back=TAKEN_BACK)
def test_a_second_pass_plans_nothing(decide, after_apply, memories, policy, taken_back):
    """Whatever the first pass folded, moved and removed, nothing is left for another at the same as_of.

    Rewordings and contradictions of a memory in two tiers are left out: they meet only once one of them was promoted.
    What a person decided of a memory that is merged holds for the one that stays for it, as a store's ledger carries
    it over.
    """
    tiers_at_ten = {each.tier for each in memories if each.content == "it opens at ten"}
    texts = [
        each
        for each in memories
        if each.content != "the gate 4" and not (each.content == "it opens at nine" and tiers_at_ten - {each.tier})
    ]
    unlimited = {**policy, "max_loss_fraction": 1.0, "max_rolling_loss_fraction": 1.0, "max_lost_rows": None}
    first = decide_found(decide, texts, unlimited, taken_back)
    left = after_apply(texts, first)

    heirs = {row["into_id"] for each, row in first.rows("plan").items() if int(each[1:]) in taken_back}
    carried = taken_back | {int(memory_id[1:]) for memory_id in heirs - {None}}
    second = decide_found(decide, left, unlimited, carried)

    assert {action.split()[0] for action in second.actions.values()} <= {"keep"}


def is_in(taken_back, memory):
    return int(memory.memory_id[1:]) in taken_back


def decide_found(decide, memories, policy, taken_back, **options):
    """The plan for what a small matching of our own finds in the memories."""
    walls_off = policy["session_recall"] == "equality"
    alive = [each for each in memories if not each.expires_at and each.content.strip()]
    rejected = [(each, None) for each in memories if is_in(taken_back, each)]
    clusters, pairs = match(alive, walls_off)
    return decide(memories, clusters=clusters, pairs=pairs, rejected=rejected, **options, **policy)


def match(memories, walls_off):
    """Copies and rewordings meet in clusters; nine and ten o'clock supersede each other by their day."""
    groups = defaultdict(list)
    for each in sorted(memories, key=lambda each: (not each.pinned, -(each.importance or -1), each.memory_id)):
        told = each.created_at if "today" in each.content else None
        words = each.content.casefold().removeprefix("the ")
        walls = (each.scope, each.tier, each.session_id if walls_off else None)
        groups[(walls, words, each.title, told)].append(each)
    clusters = {}
    for (_, words, _, told), (survivor, *others) in groups.items():
        if "today" in words and told is None:
            continue
        how = {each.memory_id: likeness(survivor, each) for each in others if not each.pinned}
        if how:
            clusters[survivor.memory_id] = how
    pairs = [
        newer_says(left, right)
        for left, right in itertools.combinations(sorted(memories, key=lambda each: each.memory_id), 2)
        if {left.content, right.content} == {"it opens at nine", "it opens at ten"}
        and (left.scope, left.tier, left.created_at is None) == (right.scope, right.tier, right.created_at is None)
    ]
    return clusters, [pair for pair in pairs if pair["winner"]]


def likeness(survivor, member):
    return "copy" if survivor.content.casefold() == member.content.casefold() else ("same", 0.75)


def newer_says(left, right):
    winner = None
    if left.created_at and left.created_at != right.created_at:
        winner = "left" if left.created_at > right.created_at else "right"
    return {
        "left": left.memory_id,
        "right": right.memory_id,
        "scope": left.scope,
        "verdict": "supersedes",
        "winner": winner,
    }


def left_over(decided, losses):
    """Which removals wait, found by going through the queue one unit at a time."""
    policy = decided.policy
    entries = {scope: row["entries_before"] for scope, row in decided.rows("tally").items()}
    waiting, lost, is_full = set(), defaultdict(int), set()
    queue = sorted(
        decided.rows("removals").values(),
        key=lambda row: (row["scope"], row["fit_step"], row["fit_order"], row["unit_id"]),
    )
    for (scope, _), rows in itertools.groupby(queue, key=lambda row: (row["scope"], row["unit_id"])):
        unit = list(rows)
        lost[scope] += sum(row["is_lost_strict" if policy.strict_entries else "is_lost"] for row in unit)
        result = ConsolidationResult(entries_before=entries[scope], retained_originals=entries[scope] - lost[scope])
        recently = losses.get(scope, 0)
        rolling = (lost[scope] + recently) / (entries[scope] + recently)
        too_many = policy.max_lost_rows is not None and lost[scope] > policy.max_lost_rows
        over_limit = result.exceeds_loss(policy.max_loss_fraction) or rolling > policy.max_rolling_loss_fraction
        if lost[scope] and (over_limit or too_many):
            is_full.add(scope)
        if scope in is_full:
            waiting |= {row["memory_id"] for row in unit}
    return waiting
