"""Components of near-duplicate texts, held to an exact join of all pairs."""

from __future__ import annotations

import random
import re
from itertools import combinations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memfold.near_duplicates import banding_for, find_components
from memfold.word_sets import read_words

WORD = re.compile(r"\w+")


def components(
    texts: list[str],
    *,
    threshold: float = 0.7,
    rows_per_part: int = 1000,
    threads: int = 1,
    scopes: list[str] | None = None,
) -> list[int]:
    """For each text the first text of its component."""
    parts = [
        read_words(
            pa.array(texts[start : start + rows_per_part], pa.string()),
            pa.array(scopes[start : start + rows_per_part], pa.string()) if scopes else None,
        )
        for start in range(0, len(texts), rows_per_part)
    ]
    roots = find_components(parts, threshold=threshold, threads=threads).root_of_row.tolist()
    first = {root: row for row, root in reversed(list(enumerate(roots)))}
    return [first[root] for root in roots]


def exact_components(texts: list[str], *, threshold: float = 0.7, scopes: list[str] | None = None) -> list[int]:
    """The same by comparing every pair."""
    words = [set(WORD.findall(text.lower())) for text in texts]
    root = list(range(len(texts)))
    for left, right in combinations(range(len(texts)), 2):
        both = len(words[left] | words[right])
        if (
            both
            and len(words[left] & words[right]) >= threshold * both - 1e-9
            and (not scopes or scopes[left] == scopes[right])
        ):
            low, high = sorted((root[left], root[right]))
            root = [low if at == high else at for at in root]
    return root


def archive(count: int, *, seed: int) -> list[str]:
    """Notes of a few words from a small vocabulary, half of them an earlier one with a word or two changed."""
    draw = random.Random(seed)
    vocabulary = [f"w{number}" for number in range(400)]
    texts: list[str] = []
    for _ in range(count):
        if texts and draw.random() < 0.5:
            words = draw.choice(texts).split()
            for _ in range(draw.randint(0, 2)):
                words[draw.randrange(len(words))] = draw.choice(vocabulary)
        else:
            words = draw.choices(vocabulary, k=draw.randint(3, 25))
        texts.append(" ".join(words))
    return texts


def test_links_form_components() -> None:
    """a is like b and b like c, so that all three are one cluster; d shares too little."""
    a = "ann likes green tea in the morning"
    b = "ann likes green tea in the evening"
    c = "ann likes black tea in the evening"
    d = "bob moved to another city last year"

    assert components([a, d, b, c], threshold=0.7) == [0, 1, 0, 0]


def test_a_link_reaches_the_threshold_exactly() -> None:
    """7 of 10 words is 0.7; 6 of 10 is not."""
    seven = ["a b c d e f g h i j", "a b c d e f g"]
    six = ["a b c d e f g h i j", "a b c d e f"]

    assert components(seven, threshold=0.7) == [0, 0]
    assert components(six, threshold=0.7) == [0, 1]


def test_texts_without_words_stand_alone() -> None:
    """Two texts of punctuation share no word."""
    assert components(["!!!", "???", "!!!", "tea", "Tea."]) == [0, 1, 2, 3, 3]


def test_scopes_are_never_linked() -> None:
    """The same text in two scopes is two clusters."""
    assert components(["tea"] * 4, scopes=["ann", "bob", "ann", "bob"]) == [0, 1, 0, 1]


@pytest.mark.parametrize("seed", range(4))
def test_no_cluster_joins_what_the_exact_join_keeps_apart(seed: int) -> None:
    """Each link is checked: clusters are exact ones or parts of them, and 99 of 100 texts are where they belong."""
    texts = archive(600, seed=seed)
    found, exact = components(texts), exact_components(texts)

    assert all(exact[row] == exact[first] for row, first in enumerate(found))
    assert sum(one == other for one, other in zip(found, exact, strict=True)) >= 0.99 * len(texts)


def test_nothing_above_nine_tenths_is_missed() -> None:
    """Pairs that share nearly everything meet in nearly every band."""
    texts = archive(600, seed=9)

    assert components(texts, threshold=0.9) == exact_components(texts, threshold=0.9)


@settings(max_examples=25, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 40), st.integers(1, 3))
def test_neither_order_nor_parts_nor_threads_matter(draw: random.Random, rows_per_part: int, threads: int) -> None:
    """The same texts shuffled, read in other parts and on more threads give the same clusters."""
    texts = archive(120, seed=3)
    order = draw.sample(range(len(texts)), len(texts))
    shuffled = components([texts[row] for row in order], rows_per_part=rows_per_part, threads=threads)
    clusters = {frozenset(order[row] for row, root in enumerate(shuffled) if root == first) for first in set(shuffled)}
    plain = components(texts)

    assert clusters == {frozenset(row for row, root in enumerate(plain) if root == first) for first in set(plain)}


@pytest.mark.parametrize("copies", ["equal", "varied"])
def test_a_hot_cluster_costs_no_more_than_its_size(copies: str) -> None:
    """2,000 copies or variations of one text among 1,000 others: at most two comparisons a row."""
    draw = random.Random(1)
    base = [f"hot{number}" for number in range(24)]
    hot = [
        " ".join([*base[:-1], f"extra{draw.randrange(10_000)}"] if copies == "varied" else base) for _ in range(2000)
    ]
    texts = hot + [" ".join(f"x{draw.randrange(60_000)}" for _ in range(20)) for _ in range(1000)]
    found = find_components([read_words(pa.array(texts))], threshold=0.7, threads=1)

    assert len(set(found.root_of_row[:2000].tolist())) == 1
    assert found.compared <= 2 * len(texts)


@pytest.mark.parametrize("sets", [1000, 5_000_000, 80_000_000])
def test_bands_find_most_pairs_at_the_threshold(sets: int) -> None:
    """At every size a pair exactly at the threshold shares a band 93 times in 100."""
    banding = banding_for(sets, 0.7)

    assert 1 - (1 - 0.7**banding.rows) ** banding.bands >= 0.93


@pytest.mark.parametrize("threshold", [0.0, -0.1, 1.1, float("nan")])
def test_a_threshold_out_of_range_is_refused(threshold: float) -> None:
    """The threshold is a share of the words."""
    with pytest.raises(ValueError, match=r"threshold must be in \(0, 1\]"):
        find_components([], threshold=threshold, threads=1)
