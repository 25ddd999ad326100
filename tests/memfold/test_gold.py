"""The verdicts against labelled pairs: nothing that differs in a fact may merge, most duplicates must."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from memfold import judging
from memfold.judging import JudgedPair, Pair
from memfold.text import read_corpus
from memfold.verdicts import NAMES, judge
from memfold_flows.judge import read_pairs

GOLD = Path(__file__).parents[1] / "data" / "gold"


@pytest.fixture(scope="module")
def dev() -> list[JudgedPair]:
    return judging.judge_pairs(read_pairs(GOLD / "pairs_dev.jsonl"))


@pytest.fixture(scope="module")
def extra() -> list[JudgedPair]:
    return judging.judge_pairs(read_pairs(GOLD / "pairs_extra_multilingual.jsonl"))


def merged(judged: list[JudgedPair], label: str) -> list[str]:
    return [pair.pair.pair_id for pair in judged if pair.pair.label == label and pair.merges]


def test_no_two_facts_merge(dev: list[JudgedPair]):
    """Of 200 distinct, 50 conflicting and 50 superseded pairs, none is folded."""
    assert (merged(dev, "distinct"), merged(dev, "conflict"), merged(dev, "supersedes")) == ([], [], [])


def test_most_duplicates_merge(dev: list[JudgedPair]):
    """At least 175 of 200 duplicates are found."""
    assert len(merged(dev, "duplicate")) >= 175


def test_the_fuller_text_stays(dev: list[JudgedPair], extra: list[JudgedPair]):
    """Where one text contains the other, the longer one is kept."""
    kept = {p.pair.pair_id: (p.keep, p.pair.keep) for p in dev + extra if p.verdict == "contains"}

    assert {pair_id: keeps for pair_id, keeps in kept.items() if keeps[0] != keeps[1]} == {}
    assert len(kept) >= 15


def test_other_languages_merge_nothing_wrong(extra: list[JudgedPair]):
    """The 43 pairs in eight languages have no wrong merge, and two in three duplicates are found."""
    assert [pair.pair.pair_id for pair in extra if pair.is_wrong] == []
    assert len(merged(extra, "duplicate")) >= 14


def test_a_supersession_names_the_newer_side(dev: list[JudgedPair]):
    """Whoever is said to supersede is the side that the label names, and nearly all are seen."""
    found = [pair for pair in dev if pair.pair.label == "supersedes" and pair.verdict == "supersedes"]

    assert [pair.pair.pair_id for pair in found if pair.keep != pair.pair.keep] == []
    assert len(found) >= 45


def test_paws_word_swaps_stay_apart():
    """Of 1,137 English pairs that share their words and not their meaning, at most 10 merge."""
    rows = pq.read_table(GOLD / "paws_en.parquet").to_pylist()

    assert sum(merges_without_times([row for row in rows if row["label"] == 0])) <= 10


def test_paws_word_swaps_stay_apart_in_six_languages():
    """At most 2 % of the translated non-paraphrases merge in any language; most of those that do are equal texts."""
    rows = [row for row in pq.read_table(GOLD / "pawsx_multilingual.parquet").to_pylist() if row["label"] == 0]
    wrong = Counter(row["lang"] for row, merges in zip(rows, merges_without_times(rows), strict=True) if merges)
    shares = {lang: wrong[lang] / total for lang, total in Counter(row["lang"] for row in rows).items()}

    assert set(shares) == {"de", "es", "fr", "ja", "ko", "zh"}
    assert {lang: share for lang, share in shares.items() if share > 0.02} == {}


RULES = [json.loads(line) for line in (GOLD / "rules.jsonl").read_text("utf-8").splitlines()]


@pytest.mark.parametrize("rule", RULES, ids=[f"{rule['a']} / {rule['b']}" for rule in RULES])
def test_rule(rule: dict[str, Any]):
    """A pair written beside a rule merges, or stays apart, from whichever side it is read."""
    there, back = judging.judge_pairs([Pair("there", rule["a"], rule["b"]), Pair("back", rule["b"], rule["a"])])

    assert (there.merges, back.merges) == (rule["merge"], rule["merge"]), there.reason


def merges_without_times(rows: list[dict[str, Any]]) -> list[bool]:
    corpus = read_corpus([text for row in rows for text in (row["text_a"], row["text_b"])])
    left = np.arange(0, 2 * len(rows), 2, dtype=np.int32)
    unknown = np.zeros(len(rows), np.int8)
    verdicts = judge(corpus, left, left + 1, newer=unknown, same_day=unknown.astype(np.bool_))
    return [NAMES[verdict] in ("same", "contains") for verdict in verdicts.verdict]
