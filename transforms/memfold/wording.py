"""Two texts word by word: which words carry something, and which answer to each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache

import regex

from memfold import spelling
from memfold.lexicon import BIT
from memfold.text import FIRST_PICTURE_BIT, HAS_TABLE, SAYS_A_DAY, UNSPACED, is_blank, read_corpus
from memfold.tokens import CAPITAL

VALUE = BIT["number"] | BIT["date"] | BIT["time"] | BIT["identifier"] | BIT["unit"]
JOINING = BIT["function"] | BIT["preposition"] | BIT["conjunction"] | BIT["coordinator"] | BIT["adjunct"]
LIGHT_WORDS = frozenset(
    ("of", "with", "on", "you", "ever", "he", "she", "they", "it", "its", "his", "her", "their", "name", "be",
     "have", "do", "are", "is", "was")
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Objection:
    """Why a proposal is refused: the check that refused it, and what it found."""

    check: str
    says: str


@dataclass(frozen=True, slots=True)
class Reading:
    """A text as its canonical words, each with its class bits and whether it is written as a name."""

    words: tuple[str, ...]
    kinds: tuple[int, ...]
    names: frozenset[str]
    traits: int

    @property
    def pictures(self) -> int:
        return self.traits >> FIRST_PICTURE_BIT

    @property
    def says_day(self) -> bool:
        return bool(self.traits & SAYS_A_DAY)

    @property
    def has_table(self) -> bool:
        """Whether the words that turn a sentence are known in this language."""
        return bool(self.traits & HAS_TABLE)

    @property
    def keeps_its_order(self) -> bool:
        """Whether the order of its words must stand: no table knows which of them turn, or case marks who does what."""
        return bool(self.traits & UNSPACED) or not self.has_table

    def is_fact(self, at: int) -> bool:
        """Whether this word is a value or a name."""
        return bool(self.kinds[at] & VALUE) or self.words[at] in self.names

    def joins(self, at: int) -> bool:
        """Whether this word only joins others."""
        joins = self.kinds[at] & JOINING and not self.says_how_often(at)
        return (bool(joins) and not self.is_fact(at)) or self.words[at] in LIGHT_WORDS

    def says_how_often(self, at: int) -> bool:
        """Whether this word is an adverb such as "weekly", which joins nothing."""
        return bool(self.kinds[at] & BIT["adjunct"]) and not self.kinds[at] & ~(BIT["adjunct"] | BIT["time_word"])

    def is_light(self, at: int) -> bool:
        """Whether nothing is said by leaving this word out: it joins others, or names whom all memories are about."""
        return self.joins(at) or (bool(self.kinds[at] & BIT["subject"]) and not self.is_fact(at))


@lru_cache(maxsize=10_000)
def read(text: str) -> Reading:
    """The canonical words of a text."""
    corpus = read_corpus([text])
    words = tuple(corpus.vocabulary.words[token] for token in corpus.tokens.tolist())
    marks = corpus.marks.tolist()
    names = frozenset(word for word, mark in zip(words, marks, strict=True) if mark & CAPITAL)
    return Reading(words, tuple(corpus.kinds.tolist()), names, int(corpus.traits[0]))


def weights(text: str) -> frozenset[str]:
    """The words of a text that say something, each in the form in which it is compared."""
    said = read(text)
    return frozenset(
        WEEKDAYS.get(word) or (word if said.is_fact(at) else stem(word))
        for at, word in enumerate(said.words)
        if not said.is_light(at)
    )


def sentences(text: str) -> list[tuple[str, ...]]:
    parts = [part for part in SENTENCE_END.split(text) if not is_blank(part)]
    return [words for part in parts if (words := read(part).words)]


SENTENCE_END = regex.compile(r"(?<=[.!?。！？])\s+|(?<=[。！？])|\n+")


@dataclass(frozen=True, slots=True)
class Matched:
    """Which words of two texts answer to each other: ``in_order`` as runs, ``pairs`` wherever they stand."""

    gaps: tuple[tuple[range, range], ...]
    pairs: tuple[tuple[int, int], ...]
    in_order: int

    @property
    def left(self) -> frozenset[int]:
        return frozenset(at for at, _ in self.pairs)

    @property
    def right(self) -> frozenset[int]:
        return frozenset(at for _, at in self.pairs)


def matched(left: Reading, right: Reading) -> Matched:
    one, other = _forms(left, right)
    blocks = SequenceMatcher(None, one, other, autojunk=False).get_matching_blocks()
    gaps, pairs = [], []
    a = b = 0
    for block in blocks:
        gaps.append((range(a, block.a), range(b, block.b)))
        a, b = block.a + block.size, block.b + block.size
        pairs += [(block.a + at, block.b + at) for at in range(block.size)]
    in_order = len(pairs)
    free = [at for gap in gaps for at in gap[1]]
    for at in (at for gap in gaps for at in gap[0]):
        if (place := next((place for place in free if other[place] == one[at]), None)) is not None:
            free.remove(place)
            pairs.append((at, place))
    return Matched(tuple(gap for gap in gaps if gap[0] or gap[1]), tuple(sorted(pairs)), in_order)


#: The two texts, each with the places of the words that nothing in the other answers to.
Sides = Sequence[tuple[Reading, list[int]]]


def alone(left: Reading, right: Reading, both: Matched) -> Sides:
    """Each side with the places of the words that nothing on the other answers to."""
    return [
        (side, [at for at in range(len(side.words)) if at not in answered])
        for side, answered in ((left, both.left), (right, both.right))
    ]


def shown(words: Sequence[Sequence[str]]) -> str:
    """What each side has, for a person."""
    one, other = (" ".join(side) for side in words)
    return f"{one} / {other}" if one and other else one or other


def _forms(left: Reading, right: Reading) -> tuple[list[str], list[str]]:
    """The words of both texts in the form in which they are compared: endings off, slips of the pen put right."""
    names = left.names | right.names
    meant = {word: word for side in (left, right) for word in side.words}
    slips = {**_slips(left, right, names), **_slips(right, left, names)}
    # A lone slip at the start of a sentence may be a name: Viktor is not Victor.
    if len(slips) > 1 or not slips.keys() & {*left.words[:1], *right.words[:1]}:
        meant |= slips
    one, two = (
        [
            WEEKDAYS.get(word) or (word if word in names or side.is_fact(at) else stem(meant[word]))
            for at, word in enumerate(side.words)
        ]
        for side in (left, right)
    )
    return one, two


def _slips(side: Reading, other: Reading, names: frozenset[str]) -> dict[str, str]:
    """Words that no one uses, each with the everyday word of the other text that it is a slip away from."""
    found: dict[str, str] = {}
    for word in sorted(set(side.words) - names):
        if word.isalpha() and len(word) >= 4 and not spelling.is_common(word, "en"):
            near = sorted(spelling.slips(word, "en", range(len(word) + 1)) & set(other.words) - names)
            if near and spelling.is_everyday(near[0], "en"):
                found[word] = near[0]
    return found


_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
WEEKDAYS = {day: day for day in _DAYS} | {f"{day}s": day for day in _DAYS}


def stem(word: str) -> str:
    """The word without its ending, for telling forms of one word from two words."""
    if not word.isascii():
        return word
    for ending in ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word.removesuffix(ending)
            break
    if len(word) > 3 and word[-1] == word[-2]:
        word = word[:-1]
    return word.removesuffix("e")


ENDINGS = ("ments", "ment", "ings", "ing", "ed", "es", "s")
