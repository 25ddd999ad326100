"""Who stays and who merges, given what may merge: against an oracle written another way, on random graphs."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from memfold.grouping import Grouping

NODES = 8
#: Two nodes that say the same, or of which the first holds the second; the first always has the lower number, so that
#: no circle of containments can arise.
EDGES = st.dictionaries(
    st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES - 1)).filter(lambda pair: pair[0] < pair[1]),
    st.sampled_from(["same", "contains"]),
    max_size=16,
)
ORDERS = st.permutations(range(NODES))

thorough = settings(max_examples=400, deadline=None)


@thorough
@given(EDGES, ORDERS)
def test_grouping_agrees_with_the_oracle(edges, order):
    """On any graph the survivors and their members are those of the rule, applied the slow way."""
    assert grouped(edges, order) == oracle(edges, order)


@thorough
@given(EDGES, ORDERS)
def test_every_member_is_a_verified_match_of_its_survivor(edges, order):
    """No chaining: a friend of a friend is not a match."""
    for node, survivor in enumerate(grouped(edges, order)):
        assert node == survivor or may_take(edges, survivor, node)


@thorough
@given(EDGES, ORDERS)
def test_no_two_nodes_that_stay_may_merge(edges, order):
    """What is left over has nothing more to fold."""
    survivor_of = grouped(edges, order)
    stays = [node for node in range(NODES) if survivor_of[node] == node]

    assert not [(one, other) for one in stays for other in stays if one != other and may_take(edges, one, other)]


@thorough
@given(EDGES, ORDERS, st.integers(0, 16))
def test_pairs_that_come_later_give_the_same_groups(edges, order, cut):
    """Grouping again after a few more verdicts is the same as grouping once with all of them."""
    grouping = Grouping(order, {})
    for at, (pair, kind) in enumerate(edges.items()):
        if at == cut:
            grouping.regroup()
        grouping.link(*pair, left_takes=True, right_takes=kind == "same")
    grouping.regroup()

    assert grouping.survivor_of == grouped(edges, order)


def test_a_chain_with_a_missing_link_stays_two_clusters():
    """Ann matches bob and bob matches cat, but ann does not match cat: cat stays."""
    ann, bob, cat = range(3)
    assert grouped({(ann, bob): "same", (bob, cat): "same"}, order=[0, 1, 2], count=3) == [ann, ann, cat]


def test_a_survivor_is_asked_about_the_neighbours_of_what_it_takes():
    """The verdict is asked even where no candidate was proposed, once for each such pair."""
    ann, bob, cat = range(3)
    grouping = Grouping([0, 1, 2], {})
    grouping.link(ann, bob, left_takes=True, right_takes=True)
    grouping.link(bob, cat, left_takes=True, right_takes=True)

    assert grouping.regroup() == [(ann, cat)]
    grouping.link(ann, cat, left_takes=True, right_takes=True)
    assert grouping.regroup() == []
    assert grouping.survivor_of == [ann, ann, ann]


def test_the_fuller_text_goes_before_the_more_important_one():
    """What is contained in another comes last, however often it is used."""
    short, full = range(2)
    assert grouped({(full, short): "contains"}, order=[0, 1], count=2) == [full, full]


def test_a_contained_text_has_its_turn_once_its_container_is_gone():
    """The middle one is taken by another that does not match the short one, so the short one stays too."""
    short, middle, other = range(3)
    edges = {(middle, short): "contains", (other, middle): "same"}

    assert grouped(edges, order=[0, 2, 1], count=3) == [short, other, other]


def test_a_circle_of_containments_still_ends():
    """Verdicts should never say so, but if they do, each node ends up somewhere."""
    circle = {(0, 1): "contains", (1, 2): "contains", (2, 0): "contains"}
    assert grouped(circle, order=[0, 1, 2], count=3) == [0, 0, 2]


def grouped(edges, order, count=NODES) -> list[int]:
    grouping = Grouping(order, {})
    for (one, other), kind in edges.items():
        grouping.link(one, other, left_takes=True, right_takes=kind == "same")
    grouping.regroup()
    assert len(grouping.survivor_of) == count
    return grouping.survivor_of


def may_take(edges, taker, taken) -> bool:
    return (taker, taken) in edges or edges.get((taken, taker)) == "same"


def oracle(edges, order) -> list[int]:
    """The rule as it is told: round by round over everything that is left, looking at every pair."""
    survivor_of: dict[int, int] = {}
    while len(survivor_of) < NODES:
        left = [node for node in range(NODES) if node not in survivor_of]
        contained = {
            inner
            for inner in left
            for outer in left
            if may_take(edges, outer, inner) and not may_take(edges, inner, outer)
        }
        for node in sorted(set(left) - contained, key=lambda each: order[each]):
            if node not in survivor_of:
                survivor_of[node] = node
                for other in left:
                    if other not in survivor_of and may_take(edges, node, other):
                        survivor_of[other] = node
    return [survivor_of[node] for node in range(NODES)]
