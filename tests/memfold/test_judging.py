"""Verdicts on labelled pairs, and how right they are by kind."""

from __future__ import annotations

from memfold.judging import Pair, judge_pairs, scores, table

PAIRS = [
    Pair("p1", "User has 2 cats", "User has two cats", label="duplicate", kind="number_words"),
    Pair("p2", "User has a dog", "User has a dog, a beagle", label="duplicate", kind="containment", keep="b"),
    Pair("p3", "User has a dog", "User has a dog, a beagle", label="duplicate", kind="containment", keep="a"),
    Pair("p4", "User has 2 cats", "User has 3 cats", label="distinct", kind="number"),
    Pair("p5", "User likes tea", "User likes tea!", label="distinct", kind="mislabelled"),
    Pair("p6", "User likes tea", "User likes milk"),
]


def test_a_merge_against_the_label_is_wrong():
    """A merged pair that is no duplicate counts, and so does one that keeps the side that says less."""
    assert [pair.pair.pair_id for pair in judge_pairs(PAIRS) if pair.is_wrong] == ["p3", "p5"]


def test_scores_by_kind():
    """One row per label and kind; a pair that nobody labelled has no row."""
    rows = [(score.label, score.kind, score.pairs, score.merged, score.wrong) for score in scores(judge_pairs(PAIRS))]

    assert rows == [
        ("distinct", "mislabelled", 1, 1, 1),
        ("distinct", "number", 1, 0, 0),
        ("duplicate", "containment", 2, 2, 1),
        ("duplicate", "number_words", 1, 1, 0),
    ]


def test_the_table_ends_with_precision_and_recall():
    """Of four merges two are right; of three duplicates two are found; one of two distinct pairs merged."""
    assert table(judge_pairs(PAIRS)).splitlines()[-3:] == [
        "precision 0.500 (2 of 4)",
        "recall 0.667 (2 of 3)",
        "distinct merged: 1 of 2",
    ]


def test_without_labels_there_is_no_table():
    """Verdicts need no labels; a table of how right they are does."""
    assert table(judge_pairs([Pair("p", "tea", "milk")])) == ""
    assert judge_pairs([]) == []
