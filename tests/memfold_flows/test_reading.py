"""Texts read by several processes: the same result, whatever becomes of the processes."""

from __future__ import annotations

import io
import pickle
import subprocess
import sys
from dataclasses import fields

import numpy as np
import pytest

from memfold.text import Corpus, joined, read_corpus, read_with_keys
from memfold_flows import reading

TEXTS = [
    "Anna prefers oat milk in her coffee.",
    "The deploy runs at 15:00 on Fridays",
    "Der Nutzer isst kein Fleisch",
    "用户喜欢咖啡",
    "anna prefers OAT milk, in her coffee",
    "the meeting is today 🎉",
    "half a pair \ud800 of surrogates",
    *(f"ticket {number} is about the billing page" for number in range(40)),
]


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "SEVERAL_FROM_TEXTS", 10)
    monkeypatch.setattr(reading, "TEXTS_AT_ONCE", 7)


def assert_same(one: Corpus, other: Corpus) -> None:
    """Equal to the last bit, down to the type of every array."""
    assert one.vocabulary.words == other.vocabulary.words
    pairs = [(getattr(one, each.name), getattr(other, each.name)) for each in fields(Corpus)[:-1]]
    pairs += [(one.vocabulary.classes, other.vocabulary.classes), (one.vocabulary.hashes, other.vocabulary.hashes)]
    for left, right in pairs:
        assert left.dtype == right.dtype
        assert np.array_equal(left, right)


@pytest.mark.parametrize("cut", [0, 1, 5, 20, 47])
def test_corpora_joined_are_the_corpus_of_all_texts(cut: int) -> None:
    """Words are numbered by first use, so that a corpus does not show where it was cut."""
    assert_same(joined([read_corpus(TEXTS[:cut]), read_corpus(TEXTS[cut:])]), read_corpus(TEXTS))


def test_two_processes_read_what_one_reads() -> None:
    """However the texts are shared out, and in whichever order the blocks come back."""
    said: list[tuple[str, int, int | None]] = []
    found, keys = reading.read_texts(TEXTS, processes=2, report=lambda *what: said.append(what))
    whole, whole_keys = read_with_keys(TEXTS)

    assert_same(found, whole)
    assert keys == whole_keys
    assert said[-1] == ("reading texts", 47, 47)


def test_a_process_that_dies_costs_time_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it was to read is read here."""
    monkeypatch.setattr(reading, "_READER", "import sys; {path!r}; sys.exit(1)")

    found, keys = reading.read_texts(TEXTS, processes=2)

    assert_same(found, read_corpus(TEXTS))
    assert keys == read_with_keys(TEXTS)[1]


def test_where_no_process_can_be_started_this_one_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memfold may be embedded where there is no Python to start."""
    monkeypatch.setattr(sys, "executable", "/no/such/python")

    assert_same(reading.read_texts(TEXTS, processes=2)[0], read_corpus(TEXTS))


def test_few_texts_start_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small store is read at once."""
    monkeypatch.setattr(reading, "SEVERAL_FROM_TEXTS", 1000)
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("started a process"))

    assert_same(reading.read_texts(TEXTS, processes=2)[0], read_corpus(TEXTS))


def test_a_reader_answers_block_after_block() -> None:
    """Until its input ends."""
    source, target = io.BytesIO(pickle.dumps(TEXTS[:2]) + pickle.dumps(TEXTS[2:4])), io.BytesIO()

    reading.serve(source, target)

    target.seek(0)
    assert pickle.load(target)[1] == read_with_keys(TEXTS[:2])[1]
    assert pickle.load(target)[1] == read_with_keys(TEXTS[2:4])[1]
