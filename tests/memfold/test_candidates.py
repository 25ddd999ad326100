"""Which pairs are proposed: the exact join against brute force, the bands against datasketch, and the bounds."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import combinations

import numpy as np
import pytest
from datasketch import MinHash
from hypothesis import given, settings
from hypothesis import strategies as st

from memfold import candidates, signatures, token_sets
from memfold.candidates import NEAREST, TWINS, Proposals
from memfold.policy import Policy
from memfold.signatures import Banding
from memfold.text import stable_hash
from memfold.token_sets import TokenSets

AS_OF = datetime(2026, 6, 1, tzinfo=UTC)
SMALL = Policy(as_of=AS_OF)
#: Every group of more than three texts goes by bands and rare words.
LARGE = Policy(as_of=AS_OF, exact_join_rows=3)
BANDING = Banding(bands=40, rows=4, seed=1, scheme="affine32")

quick = settings(max_examples=150, deadline=None)
WORDS = ["oat", "milk", "tea", "rye", "bread", "fig", "plum", "leek"]
#: So few that each text meets all its twins.
TEXTS = st.lists(st.sets(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join), max_size=TWINS + 1)


@quick
@given(TEXTS, st.lists(st.sampled_from([0, 1]), min_size=14, max_size=14))
def test_the_exact_join_finds_what_comparing_all_pairs_finds(texts, groups):
    """In a small group every pair that shares two words and half of its smaller set is proposed, and no other."""
    proposals = propose(texts, groups=groups[: len(texts)])

    assert pairs(proposals) == {
        (left, right)
        for (left, one), (right, other) in combinations(enumerate(texts), 2)
        if groups[left] == groups[right] and is_close(set(one.split()), set(other.split()))
    }


@quick
@given(TEXTS)
def test_bands_and_rare_words_propose_nothing_that_is_not_close(texts):
    """What a large group proposes is what an exact join would propose too."""
    assert pairs(propose(texts, policy=LARGE)) <= pairs(propose(texts))


@quick
@given(TEXTS)
def test_no_pair_of_equal_word_sets_is_missed_in_a_large_group(texts):
    """Equal sets have equal bands, whatever the permutations."""
    equal = {
        (left, right)
        for (left, one), (right, other) in combinations(enumerate(texts), 2)
        if set(one.split()) == set(other.split())
    }

    assert equal <= pairs(propose(texts, policy=LARGE))


@pytest.mark.parametrize("policy", [SMALL, LARGE])
def test_a_short_note_inside_a_long_one_is_proposed(policy):
    """A note that a longer one holds whole has a low Jaccard, and is found all the same."""
    texts = [
        "ana hikes coast path july",
        "ana hikes coast path july with whole family including two small children it is yearly trip",
        "leo repairs bikes",
        "mia bakes rye bread",
        "noor tunes pianos",
    ]

    proposals = propose(texts, policy=policy)

    assert pairs(proposals) == {(0, 1)}
    assert proposals.jaccard.tolist() == [pytest.approx(5 / 16)]


def test_a_text_without_canonical_words_meets_only_its_own_text_key():
    """Two texts of fillers only are not alike because nothing is left of them."""
    assert pairs(propose(["", "", ""], text_code=[7, 7, 8])) == {(0, 1)}


def test_equal_text_keys_meet_even_if_their_words_were_read_differently():
    """The copies of a text are found by its key, whatever its canonical words are."""
    assert pairs(propose(["8 may", "05-08"], text_code=[1, 1])) == {(0, 1)}


@pytest.mark.parametrize("bounds", [{}, {"min_overlap": 1.0, "min_jaccard": 0.7}, {"leaders_per_bucket": 2}])
def test_compiled_code_proposes_the_same_pairs(monkeypatch, bounds):
    """Which engine looks is no decision: log lines that are all alike, notes inside others, and notes of their own."""
    rng = np.random.default_rng(7)
    texts = [f"backup run {run} finished on host {('alder', 'birch', 'cedar')[run % 3]}" for run in range(700)]
    for note in range(600):
        words = [f"word{int(number)}" for number in rng.zipf(1.3, 12) if number < 3000] + [f"note{note // 2}"]
        texts += [" ".join(words), " ".join(words[: rng.integers(1, len(words) + 1)])]
    policy = Policy(as_of=AS_OF, **bounds)
    plain = propose(texts, policy=policy)

    monkeypatch.setattr(candidates, "COMPILED_FROM_ROWS", 2)
    monkeypatch.setattr(token_sets, "COMPILED_FROM_PAIRS", 1)
    compiled = propose(texts, policy=policy)

    assert len(plain.left) > 700
    assert pairs(compiled) == pairs(plain)
    assert compiled.jaccard.tolist() == plain.jaccard.tolist()
    assert compiled.shortened.tolist() == plain.shortened.tolist() == [0]


@quick
@given(TEXTS)
def test_compiled_code_proposes_the_same_pairs_of_any_few_texts(texts):
    """Short texts of few words tie in every way there is."""
    with pytest.MonkeyPatch.context() as patched:
        plain = propose(texts, policy=LARGE)
        patched.setattr(candidates, "COMPILED_FROM_ROWS", 2)

        assert pairs(propose(texts, policy=LARGE)) == pairs(plain)


def test_a_large_group_misses_few_pairs_at_jaccard_one_half():
    """Forty bands of four rows find 92 in 100 pairs at Jaccard 0.5, and nearly all above."""
    rng = np.random.default_rng(5)
    texts = []
    for pair in range(400):
        shared = [f"shared{pair}x{word}" for word in range(8)]
        texts += [" ".join([*shared, *(f"own{rng.integers(10**9)}" for _ in range(4))]) for _ in range(2)]

    found = pairs(propose(texts, policy=LARGE))

    assert sum((2 * pair, 2 * pair + 1) in found for pair in range(400)) >= 350


@given(st.lists(st.sets(st.text(max_size=8), min_size=1, max_size=8), min_size=1, max_size=6))
@quick
def test_signatures_are_those_of_datasketch(rows):
    """Word by word through datasketch's own ``update`` gives the same signature, hostile Unicode or not."""
    offsets, hashes = hashed(rows)

    found = signatures.signatures(offsets, hashes, BANDING)

    for row, signature in zip(rows, found, strict=True):
        minhash = MinHash(num_perm=160, seed=1, scheme="affine32", hashfunc=word_hash)
        for word in row:
            minhash.update(word)
        assert signatures.as_minhash(signature, BANDING) == minhash


def test_a_signature_loads_back_as_a_datasketch_object():
    """Whoever knows datasketch can go on with our signatures: estimate a Jaccard, fill an index."""
    offsets, hashes = hashed([{"oat", "milk", "tea"}, {"oat", "milk", "tea"}, {"fig", "plum", "leek"}])

    one, same, other = (signatures.as_minhash(row, BANDING) for row in signatures.signatures(offsets, hashes, BANDING))

    assert one.jaccard(same) == 1.0
    assert one.jaccard(other) < 0.1


def test_equal_bands_have_equal_keys_and_only_those():
    """A key stands for the four values of its band, at its place in the signature."""
    signature = np.arange(160, dtype=np.uint32)
    changed = signature.copy()
    changed[5] = 999

    one, other = signatures.cut_into_bands(np.stack((signature, changed)), BANDING)

    assert np.flatnonzero(one != other).tolist() == [1]
    assert len(set(one.tolist())) == 40


def test_each_row_meets_the_first_leaders_of_its_bucket():
    """Never all pairs: the third row of a bucket meets two leaders, and so does the thousandth."""
    keys = np.array([9, 5, 9, 9, 5, 9], np.uint64)

    leader, row = candidates.meet_leaders(keys, 2)

    assert sorted(zip(leader.tolist(), row.tolist(), strict=True)) == [(0, 2), (0, 3), (0, 5), (1, 4), (2, 3), (2, 5)]


def test_a_thousand_lines_that_differ_in_one_number_are_not_all_compared():
    """Each asks for a verdict on its nearest few only."""
    texts = [f"backup run {run} finished on host alder" for run in range(1000)]

    proposals = propose(texts)

    assert len(proposals.left) <= NEAREST * 1000
    assert proposals.shortened.tolist() == [0]


def test_many_memories_with_the_same_words_meet_a_few_leaders():
    """A memory repeated in a thousand sessions costs each of them a handful of pairs."""
    proposals = propose(["oat milk tea"] * 1000, text_code=[1] * 1000)

    assert len(proposals.left) == TWINS * (1000 - TWINS) + TWINS * (TWINS - 1) // 2


def test_among_many_alike_the_contained_and_the_nearest_are_kept():
    """A row with more close pairs than it may ask for keeps what holds it whole."""
    texts = [f"order {number} shipped today" for number in range(60)]
    texts.append("order 7 shipped today to bob in leeds by post before noon on friday")

    assert (7, 60) in pairs(propose(texts))


@pytest.mark.parametrize("policy", [SMALL, LARGE])
def test_a_group_proposes_the_same_alone_and_among_others(policy):
    """What the neighbours hold changes neither the engine nor the pairs."""
    own = ["oat milk tea", "oat milk tea fig", "milk tea", "rye bread", "rye bread plum", "leek"]
    others = ["oat milk tea", "rye", "rye bread fig plum", "tea milk oat leek plum"] * 3

    among = propose(others + own, groups=[0] * len(others) + [1] * len(own), policy=policy)

    shifted = {(left - len(others), right - len(others)) for left, right in pairs(among) if left >= len(others)}
    assert shifted == pairs(propose(own, policy=policy))


def propose(texts, *, groups=None, policy=SMALL, text_code=None) -> Proposals:
    sets, set_of = sets_of(texts)
    count = len(texts)
    return candidates.propose(
        sets,
        np.arange(count),
        set_of=set_of,
        text_code=np.array(range(count) if text_code is None else text_code, np.int64),
        group_of=np.array([0] * count if groups is None else groups, np.int64),
        policy=policy,
    )


def pairs(proposals: Proposals) -> set[tuple[int, int]]:
    return set(zip(proposals.left.tolist(), proposals.right.tolist(), strict=True))


def sets_of(texts) -> tuple[TokenSets, np.ndarray]:
    ids: dict[str, int] = {}
    rows = [tuple(sorted({ids.setdefault(word, len(ids)) for word in text.split()})) for text in texts]
    distinct = list(dict.fromkeys(rows))
    offsets = np.concatenate(([0], np.cumsum([len(row) for row in distinct]))).astype(np.int64)
    tokens = np.array([token for row in distinct for token in row], np.int32)
    hashes = np.array([stable_hash(word) for word in ids], np.uint64)
    return TokenSets(offsets, tokens, hashes), np.array([distinct.index(row) for row in rows], np.int64)


def is_close(one: set[str], other: set[str]) -> bool:
    common, smaller = len(one & other), min(len(one), len(other))
    return 10 * common >= 8 * smaller or 2 * common >= len(one | other) or (common >= 2 and 2 * common >= smaller)


def hashed(rows) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.concatenate(([0], np.cumsum([len(row) for row in rows]))).astype(np.int64)
    return offsets, np.array([word_hash(word) for row in rows for word in row], np.uint32)


def word_hash(word: str) -> int:
    return stable_hash(word) & 0xFFFFFFFF
