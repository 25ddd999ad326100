"""Typos are put right alike, however the word that was meant is looked for."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfold import spelling

LETTERS = "aeiouybcdfmnprstxäßéñё'-"


@pytest.fixture
def no_word_was_asked_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each language starts to count afresh."""
    monkeypatch.setattr(spelling, "_asked", spelling.Counter())


def every_slip(word: str, code: str) -> set[str]:
    """The known words among all slips, without an index."""
    slips = spelling.slips(word, code, range(1, len(word) + 1))
    return {other for other in slips if other in spelling._frequencies(code) or other in spelling._added(code)}


def slipped(word: str, draw: random.Random) -> str:
    """The word with a letter dropped or added, or its end turned round."""
    at = draw.randrange(1, len(word) + 1)
    return draw.choice(
        [word[:at] + word[at + 1 :], word[:at] + draw.choice(LETTERS) + word[at:], word[:at] + word[at:][::-1]]
    )


@pytest.mark.parametrize("code", spelling.DICTIONARIES)
def test_the_index_finds_what_trying_every_slip_finds(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For words a slip or two away from a known one, whatever their length."""
    monkeypatch.setattr(spelling, "WORDS_WITHOUT_INDEX", -1)
    draw = random.Random(3)
    chosen = draw.sample(sorted(spelling._frequencies(code)), 60)
    words = [slipped(slipped(word, draw), draw) if draw.random() < 0.3 else slipped(word, draw) for word in chosen]

    found = [spelling._near(word, code) for word in words]

    assert found == [every_slip(word, code) for word in words]
    assert sum(map(bool, found)) > 20


@given(word=st.one_of(st.text(LETTERS, max_size=12), st.text(max_size=9)), code=st.sampled_from(["en", "ru"]))
def test_the_index_finds_the_same_for_words_that_are_none(word: str, code: str) -> None:
    """Whatever Unicode holds, and short words, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spelling, "WORDS_WITHOUT_INDEX", -1)

        assert spelling._near(word, code) == every_slip(word, code)


@pytest.mark.usefixtures("no_word_was_asked_yet")
def test_a_small_store_makes_no_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """The index takes half a second, which is more than trying every slip of a few hundred words."""
    monkeypatch.setattr(spelling, "_beginnings", pytest.fail)

    assert spelling.corrected("custmer", "en") == "customer"
    assert spelling.corrected("qwertzuiop", "en") == "qwertzuiop"
