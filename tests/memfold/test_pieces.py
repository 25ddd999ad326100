"""Ordinary texts are looked up word by word and give the very tokens that the scanner gives."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfold.memo import Memo
from memfold.pieces import scan_pieces
from memfold.tokens import plain, scan

GOLD = Path(__file__).parents[1] / "data" / "gold"

WORDS = [
    *("the", "Anna", "NASA", "iOS", "h", "H", "a", "I", "US", "Dr", "vs", "password", "is", "token", "1", "30", "007"),
    *("2026-03-01", "15:00", "3.5", "1,450", "don't", "O'Brien", "well-known", "re-sign", "Straße", "été", "İstanbul"),
    *("नमस्ते", "ΑΘΗΝΑ", "день", "东京", "5kg", "v2", "h30", "-x", "#tag", "a/b", "=", "?", "é", "ẞ", "ǅ", "ﬁ", "٣"),
]
MARKS = ["", ",", ".", ":", ";", "!", ")", "?", "(", '"', "'", '".', "):"]


@pytest.mark.parametrize(
    "text",
    [
        "Anna moved to Lisbon on 2026-03-01.",
        "the meeting (weekly) is at 15:00, not 14:30",
        "Dr. Weber knows: NASA, ESA. Both of them!",
        "el niño llegó en 3.5 horas",
    ],
)
def test_an_ordinary_text_is_looked_up(text):
    """Words, numbers, dates and hours with the usual marks need no scanner."""
    assert scan_pieces(text) == scan(plain(text))


@pytest.mark.parametrize(
    "text",
    [
        "it starts at 5 h 30",
        "my password is Hunter2",
        "password: Rose",
        "token = Abc",
        "is it late? No",
        "SHOUTED LINE",
        "A Title With Many Capitals",
        "first\nsecond",
        "two  spaces",
        "see https://example.org now",
        "1. milk 2. bread 5 h",
        "Η Αθήνα; είναι εδώ",
        "",
    ],
)
def test_a_text_whose_words_depend_on_each_other_is_scanned(text):
    """What reaches over a space, or changes what follows, is left to the scanner."""
    assert scan_pieces(text) is None


@pytest.mark.parametrize("word", WORDS)
def test_any_two_words_with_any_marks_give_the_same_tokens(word):
    """The scanner and the look-up agree on a word in front of and behind any other, whatever stands between them."""
    for other, before, between, after in product(WORDS, ["", "(", '"'], MARKS, MARKS[:7]):
        text = f"{before}{word}{between} {other}{after} then"
        found = scan_pieces(text)
        assert found is None or found == scan(plain(text)), text


def test_every_text_of_the_gold_set_gives_the_same_tokens():
    """Real memories in nine languages."""
    texts = [
        memory["text"]
        for line in (GOLD / "cases.jsonl").read_text("utf-8").splitlines()
        for memory in json.loads(line)["memories"]
        if isinstance(memory.get("text"), str)
    ]
    looked_up = [text for text in texts if scan_pieces(text) is not None]

    assert len(looked_up) > 100
    assert [scan_pieces(text) for text in looked_up] == [scan(plain(text)) for text in looked_up]


@given(st.lists(st.one_of(st.sampled_from(WORDS), st.text(max_size=4)), max_size=8), st.data())
def test_hostile_texts_give_the_same_tokens(words, data):
    """Whatever Unicode holds: either the same tokens, or the scanner is asked."""
    text = "".join(
        word + data.draw(st.sampled_from(MARKS)) + data.draw(st.sampled_from([" ", " ", " ", "\n", "\u00a0", ""]))
        for word in words
    )
    found = scan_pieces(text)
    assert found is None or found == scan(plain(text))


@given(st.from_regex("[A-Za-z][a-z]{1,6}", fullmatch=True) | st.sampled_from(["Mb", "MW", "Dr", "Password", "secret"]))
def test_a_word_of_plain_letters_is_what_the_scanner_makes_of_it(word):
    """Inside a sentence, at its start and behind a mark, with a capital and without; no case of a unit is lost."""
    for text in (f"{word} then", f"see {word} then", f"see: {word}. {word}, {word}"):
        found = scan_pieces(text)
        assert found is None or found == scan(text)


def test_a_memo_forgets_rather_than_grow_without_end(monkeypatch):
    """A store of millions of different numbers takes no more memory than one of half a million."""
    monkeypatch.setattr("memfold.memo.ANSWERS_KEPT", 3)
    squares = Memo(lambda number: number * number)

    assert [squares[number] for number in range(10)] == [0, 1, 4, 9, 16, 25, 36, 49, 64, 81]
    assert len(squares) <= 3
