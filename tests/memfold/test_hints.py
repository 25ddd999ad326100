"""Near-duplicate hints: words of more than two letters, at least 0.6 of them shared."""

from __future__ import annotations

import random
from itertools import combinations

from memfold import hints


def test_a_pair_that_shares_most_of_its_words_is_named_by_title():
    """Case and short words count for nothing; a number that differs is one word of many."""
    found = hints.near_duplicates(
        [
            ("m1", "Staging port", "The staging server listens on port 8080"),
            ("m2", "Port of staging", "the STAGING server listens to port 9090"),
            ("m3", "Tea", "Ann drinks green tea"),
        ]
    )

    assert [(hint.left_title, hint.right_title, round(hint.jaccard, 3)) for hint in found] == [
        ("Staging port", "Port of staging", 0.714)
    ]


def test_a_text_without_words_is_like_nothing():
    """Not even like another such text."""
    assert hints.near_duplicates([("m1", "a", "on it"), ("m2", "b", "on it"), ("m3", "c", "")]) == []


def test_exactly_six_tenths_is_a_hint():
    """Three of five words."""
    found = hints.near_duplicates([("m1", "a", "one two three four"), ("m2", "b", "one two three five")])

    assert [hint.jaccard for hint in found] == [0.6]


def test_no_pair_is_missed():
    """Against all pairs, compared one by one."""
    draw = random.Random(3)
    words = ["red", "green", "blue", "gold", "pink", "grey", "ox", "black"]
    memories = [(f"m{n}", "", " ".join(draw.choices(words, k=draw.randint(0, 6)))) for n in range(150)]

    found = {(hint.left_id, hint.right_id) for hint in hints.near_duplicates(memories)}

    expected = set()
    for (one, _, left), (other, _, right) in combinations(memories, 2):
        a, b = ({word for word in text.split() if len(word) > 2} for text in (left, right))
        if a and b and len(a & b) / len(a | b) >= 0.6:
            expected.add((one, other))
    assert found == expected
    assert len(expected) > 100
