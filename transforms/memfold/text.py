"""What a text says, as integers: its normal form, its canonical tokens in order and the classes of those tokens."""

from __future__ import annotations

import gc
import hashlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import regex

from memfold.canonical import canonical, pictures, scanned, word_classes
from memfold.lexicon import BIT, Language
from memfold.tokens import Token, plain

INVISIBLE = regex.compile(r"[\p{Cf}\p{Cc}\p{White_Space}\p{Default_Ignorable_Code_Point}\u2800]*")

# What kind of token carries which class of fact, whatever its word is.
KIND_CLASS = {
    "number": BIT["number"],
    "quantity": BIT["number"] | BIT["unit"],
    "fraction": BIT["number"],
    "date": BIT["date"],
    "time": BIT["time"],
    "question": BIT["question"],
    "struck": BIT["negation"],
    "emoji": BIT["negation"],
    **dict.fromkeys(
        [
            "url",
            "email",
            "path",
            "flag",
            "version",
            "phone",
            "id",
            "code",
            "pattern",
            "handle",
            "blood",
            "numeric_date",
            "raw",
        ],
        BIT["identifier"],
    ),
}

# What is true of a whole text, as bits of ``Corpus.traits``.
HAS_TABLE, SAYS_A_DAY, UNSPACED, FREE_TIME = 1, 2, 4, 8
# From here on, two bits of each emoji: two texts that both show something that the other does not are not the same.
FIRST_PICTURE_BIT, PICTURE_BITS = 8, 54


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The distinct tokens of a corpus: ``words`` in order of first use, their class bits and a stable hash of each."""

    words: list[str]
    classes: npt.NDArray[np.uint32]
    hashes: npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Corpus:
    """Texts as integers, one row per text in the order given; each array of offsets has one more entry than texts.

    ``tokens`` are the canonical tokens in order, ``kinds`` the class bits that each has in its text's language and
    ``marks`` what stands in front of each; ``keys`` are the sorted distinct tokens of a text, for finding candidates.
    """

    token_offsets: npt.NDArray[np.int64]
    tokens: npt.NDArray[np.int32]
    kinds: npt.NDArray[np.uint32]
    marks: npt.NDArray[np.uint16]
    key_offsets: npt.NDArray[np.int64]
    keys: npt.NDArray[np.int32]
    traits: npt.NDArray[np.int64]
    vocabulary: Vocabulary


#: Reads texts as ``read_with_keys`` does, and says how far it is.
ReadTexts = Callable[..., "tuple[Corpus, list[str]]"]
#: Takes a stage, how much of it is done, and how much there is, if that is known.
Report = Callable[[str, int, int | None], None]
TEXTS_PER_REPORT = 1000


def ignore(stage: str, done: int, total: int | None) -> None:
    """Nobody wants to know how far the reading is."""


def is_blank(text: str) -> bool:
    """Whether nothing is left of a text once white space and invisible characters are gone."""
    return INVISIBLE.fullmatch(text) is not None


def text_key(text: str) -> str:
    """128-bit key, equal exactly for texts that differ in nothing but case, spacing, punctuation or Unicode form.

    Signs, decimal points, question marks, emoji and the case of flags, paths, URLs and code are not punctuation.
    """
    tokens = scanned(text)
    words = [token.word for token in tokens]
    if not _KEY_KINDS.isdisjoint([token.kind for token in tokens]):
        words = [part for token in tokens for part in _key_words(token)]
    if not words:
        words = ["", plain(text).strip()]
    return hashlib.blake2b("\0".join(words).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def read_corpus(texts: Sequence[str]) -> Corpus:
    """The texts as integers; the same texts give the same corpus."""
    reader = _Reader()
    with _without_garbage_collection():
        for text in texts:
            reader.read(text)
    return reader.corpus()


def read_with_keys(texts: Sequence[str], *, report: Report = ignore) -> tuple[Corpus, list[str]]:
    """The corpus of these texts and the key of each, for little more than the corpus alone."""
    reader = _Reader()
    keys = []
    with _without_garbage_collection():
        for number, text in enumerate(texts):
            if number % TEXTS_PER_REPORT == 0:
                report("reading texts", number, len(texts))
            reader.read(text)
            keys.append(text_key(text))
    return reader.corpus(), keys


def joined(parts: Sequence[Corpus]) -> Corpus:
    """Several corpora as one, in their order: the very corpus that all their texts give together."""
    ids: dict[str, int] = {}
    places = [np.array([ids.setdefault(word, len(ids)) for word in part.vocabulary.words], np.int32) for part in parts]
    classes, hashes = np.zeros(len(ids), np.uint32), np.zeros(len(ids), np.uint64)
    for place, part in zip(places, parts, strict=True):
        classes[place] |= part.vocabulary.classes
        hashes[place] = part.vocabulary.hashes
    tokens = np.concatenate([place[part.tokens] for place, part in zip(places, parts, strict=True)])
    lengths = np.concatenate([np.diff(part.token_offsets) for part in parts])
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    key_offsets, keys = _distinct_per_text(offsets, tokens)
    return Corpus(
        token_offsets=offsets,
        tokens=tokens,
        kinds=np.concatenate([part.kinds for part in parts]),
        marks=np.concatenate([part.marks for part in parts]),
        key_offsets=key_offsets,
        keys=keys,
        traits=np.concatenate([part.traits for part in parts]),
        vocabulary=Vocabulary(words=list(ids), classes=classes, hashes=hashes),
    )


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Reading makes millions of small tuples and no circle among them; looking for one takes a third of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def stable_hash(word: str) -> int:
    """64-bit hash of a word that is the same in every process and on every machine."""
    return int.from_bytes(hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


class _Reader:
    """Reads text after text. A reading is a token with its class bits in one language; each is made once."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}
        self.classes: list[int] = []
        self.known: dict[tuple[str, bool], _Readings] = {}
        # Machine integers: a million texts have tens of millions of tokens.
        self.word_of_reading, self.kind_of_reading, self.marks_of_reading = array("i"), array("I"), array("H")
        self.readings = array("i")
        self.offsets = array("q", [0])
        self.traits = array("q")
        self.seen: dict[str, int] = {}

    def read(self, text: str) -> None:
        known = self.seen.setdefault(text, len(self.traits))
        if known < len(self.traits):
            self.readings += self.readings[self.offsets[known] : self.offsets[known + 1]]
            self.traits.append(self.traits[known])
        else:
            tokens, lang, is_sure = canonical(text)
            readings = self.known.get((lang.code, is_sure)) or self._readings(lang, is_sure=is_sure)
            self.readings.extend(map(readings.__getitem__, tokens))
            self.traits.append(_traits(text, lang, is_sure=is_sure))
        self.offsets.append(len(self.readings))

    def _readings(self, lang: Language, *, is_sure: bool) -> _Readings:
        found = self.known[lang.code, is_sure] = _Readings(self, lang, is_sure=is_sure)
        return found

    def add(self, token: Token, kind: int) -> int:
        """The number of a new reading."""
        word = self.ids.setdefault(token.word, len(self.ids))
        if word == len(self.classes):
            self.classes.append(kind)
        else:
            self.classes[word] |= kind
        self.word_of_reading.append(word)
        self.kind_of_reading.append(kind)
        self.marks_of_reading.append(token.marks)
        return len(self.word_of_reading) - 1

    def corpus(self) -> Corpus:
        words = list(self.ids)
        readings = np.frombuffer(self.readings, np.int32)
        offsets = np.array(self.offsets, np.int64)
        tokens = np.array(self.word_of_reading, np.int32)[readings]
        kinds = np.array(self.kind_of_reading, np.uint32)[readings]
        key_offsets, keys = _distinct_per_text(offsets, tokens)
        return Corpus(
            token_offsets=offsets,
            tokens=tokens,
            kinds=kinds,
            marks=np.array(self.marks_of_reading, np.uint16)[readings],
            key_offsets=key_offsets,
            keys=keys,
            traits=np.array(self.traits, np.int64) | _says_a_day(offsets, kinds),
            vocabulary=Vocabulary(
                words=words,
                classes=np.array(self.classes, np.uint32),
                hashes=np.array([stable_hash(word) for word in words], np.uint64),
            ),
        )


class _Readings(dict[Token, int]):
    """The number of each token's reading in texts of one language."""

    def __init__(self, reader: _Reader, lang: Language, *, is_sure: bool) -> None:
        super().__init__()
        self._reader = reader
        self._lang = lang
        self._is_sure = is_sure

    def __missing__(self, token: Token) -> int:
        kind = word_classes(token, self._lang, is_sure=self._is_sure) | KIND_CLASS.get(token.kind, 0)
        found = self[token] = self._reader.add(token, kind)
        return found


def _traits(text: str, lang: Language, *, is_sure: bool) -> int:
    traits = HAS_TABLE if is_sure else 0
    if lang.code in ("zh", "ja"):
        traits |= UNSPACED
    if lang.table.get("free_time"):
        traits |= FREE_TIME
    return traits if text.isascii() else traits | _picture_bits(text)


def _says_a_day(offsets: npt.NDArray[np.int64], kinds: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
    """The trait of each text with a word such as today."""
    days = np.flatnonzero(kinds & np.uint32(BIT["relative_day"]))
    found = np.zeros(len(offsets) - 1, np.int64)
    found[np.searchsorted(offsets, days, side="right") - 1] = SAYS_A_DAY
    return found


def _distinct_per_text(
    offsets: npt.NDArray[np.int64], tokens: npt.NDArray[np.int32]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """The distinct tokens of each text in ascending order, and where those of each text begin."""
    counts, parts = [np.zeros(1, np.int64)], [np.empty(0, np.int32)]
    for first in range(0, len(offsets) - 1, TEXTS_SORTED_AT_ONCE):
        bounds = offsets[first : first + TEXTS_SORTED_AT_ONCE + 1]
        text = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
        packed = np.sort(text << 32 | tokens[bounds[0] : bounds[-1]])
        packed = packed[np.append(True, packed[1:] != packed[:-1])] if len(packed) else packed
        counts.append(np.bincount(packed >> 32, minlength=len(bounds) - 1))
        parts.append((packed & 0xFFFFFFFF).astype(np.int32))
    return np.cumsum(np.concatenate(counts)), np.concatenate(parts)


TEXTS_SORTED_AT_ONCE = 65_536


def _picture_bits(text: str) -> int:
    if PICTURE.search(text) is None:
        return 0
    bits = 0
    for word in pictures(scanned(text)):
        first, second = divmod(stable_hash(word) % (PICTURE_BITS * (PICTURE_BITS - 1)), PICTURE_BITS - 1)
        bits |= 1 << first | 1 << (second + (second >= first))
    return bits << FIRST_PICTURE_BIT


PICTURE = regex.compile(r"[\p{Extended_Pictographic}\p{So}]")


_KEY_KINDS = frozenset({"emoticon", "hyphenated"})


def _key_words(token: Token) -> list[str]:
    if token.kind == "emoticon":
        return []
    return token.word.split("-") if token.kind == "hyphenated" else [token.word]
