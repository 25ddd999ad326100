r"""The compiled reader of words, held to ``re.findall(r"\w+", text.lower())``."""

from __future__ import annotations

import random
import re
import sys
import unicodedata

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memfold.word_sets import WordSets, read_words

WORD = re.compile(r"\w+")
#: Letters whose lower case, width or class is a trap: dotted I, sigmas, ligatures, digits of other scripts, marks.
HOSTILE = "İıΣσςßẞﬁǅ٣²½Ⅳⓐ_\u0301\u0307\u200d\u00ad\u2028\x00\x85\U0001d400\U0001f600\U000e0100\ufffd中ªºµ"


def words_of(sets: WordSets) -> list[list[int]]:
    ends = np.cumsum(sets.sizes, dtype=np.int64)
    return [sets.words[end - size : end].tolist() for end, size in zip(ends, sets.sizes, strict=True)]


def hashes_of_words(words: list[str]) -> dict[str, int]:
    """The hash of each word, read as a text of that one word."""
    found = words_of(read_words(pa.array(words, pa.string())))
    assert [len(row) for row in found] == [1] * len(words)
    return {word: row[0] for word, row in zip(words, found, strict=True)}


def expected(texts: list[str]) -> list[list[int]]:
    """What Python itself finds. Each word is hashed alone, a word that changes once more in lower case excepted."""
    words = [set(WORD.findall(text.lower())) for text in texts]
    plain = sorted({word for row in words for word in row})
    hashes = hashes_of_words(plain)
    return [sorted({hashes[word] for word in row}) for row in words]


def test_words_are_lower_cased_and_counted_once() -> None:
    """Case, order, punctuation and repetition make no difference to a set."""
    sets = read_words(pa.array(["Ann likes tea.", "TEA: likes ann! Ann?", "Ann likes coffee"]))

    assert sets.sizes.tolist() == [3, 3, 3]
    assert words_of(sets)[0] == words_of(sets)[1] != words_of(sets)[2]
    assert sets.set_hash[0] == sets.set_hash[1] != sets.set_hash[2]
    assert sets.bits[0].tolist() == sets.bits[1].tolist()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ΟΔΟΣ ΣΟΦΙΑΣ", "οδος σοφιας"),
        ("İstanbul", "i stanbul"),
        ("STRASSE ẞ", "ß strasse"),
        ("naïve_Name٣", "NAÏVE_NAME٣"),
        ("a\u0301b", "a b"),
    ],
    ids=["final sigma", "dotted I ends the word", "sharp s", "digits of other scripts", "a mark ends the word"],
)
def test_letters_are_what_python_says_they_are(one: str, other: str) -> None:
    """The two texts have the same words, as they have for Python's re."""
    sets = read_words(pa.array([one, other]))

    assert set(WORD.findall(one.lower())) == set(WORD.findall(other.lower()))
    assert words_of(sets)[0] == words_of(sets)[1]


def test_every_letter_is_read_as_python_reads_it() -> None:
    """Each code point there is, between two letters: one word or two, and the same word as its lower case."""
    points = [chr(point) for point in range(sys.maxunicode + 1) if not 0xD800 <= point < 0xE000]
    found = read_words(pa.array([f"a{letter}b" for letter in points]))
    lowered = read_words(pa.array([f"a{letter}b".lower() for letter in points]))

    assert found.sizes.tolist() == [len(set(WORD.findall(f"a{letter}b".lower()))) for letter in points]
    assert found.set_hash.tolist() == lowered.set_hash.tolist()


@settings(max_examples=300, deadline=None)
@given(st.lists(st.text(st.one_of(st.characters(), st.sampled_from(HOSTILE), st.sampled_from("aB ")), max_size=40)))
def test_words_are_those_of_pythons_re(texts: list[str]) -> None:
    """Whatever the texts are, the sets are those of re.findall over the lower-cased text."""
    texts = [text.encode("utf-8", "ignore").decode() for text in texts]

    assert words_of(read_words(pa.array(texts, pa.string()))) == expected(texts)


def test_long_texts_of_every_script_are_read() -> None:
    """Sets too large for insertion sort, drawn from all letters."""
    draw = random.Random(5)
    letters = [chr(p) for p in range(0x30000) if unicodedata.category(chr(p))[0] in "LNPZ"]
    texts = ["".join(draw.choices([*letters, " "], k=2000)) for _ in range(50)]
    texts += [" ".join(draw.choices(texts[0].split(), k=400)) for _ in range(20)]

    assert words_of(read_words(pa.array(texts))) == expected(texts)


def test_no_two_of_many_words_share_a_hash() -> None:
    """32 bits tell the words of a text apart; of 20,000 words none or next to none collide."""
    hashes = hashes_of_words([f"word{number:05}" for number in range(20_000)])

    assert len(set(hashes.values())) >= 19_999


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
)
def test_the_arrow_type_makes_no_difference(kind: pa.DataType) -> None:
    """Sliced, null and dictionary-encoded texts give the sets of the plain ones."""
    texts = ["skipped", "Ann likes tea", None, "", "tea"]
    sets = read_words(pa.array(texts).cast(kind).slice(1))

    assert sets.sizes.tolist() == [3, 0, 0, 1]
    assert words_of(sets)[0] == words_of(read_words(pa.array(["Ann likes tea"])))[0]


def test_a_scope_is_part_of_the_set_hash() -> None:
    """Equal words in two scopes are two sets; no scope is a scope, too."""
    sets = read_words(pa.array(["tea"] * 4), pa.array(["ann", "bob", "ann", None]))

    assert sets.set_hash[0] == sets.set_hash[2]
    assert len(set(sets.set_hash.tolist())) == 3


def test_no_rows_are_no_sets() -> None:
    """An empty batch has no sets."""
    assert len(read_words(pa.array([], pa.string()))) == 0
