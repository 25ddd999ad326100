"""What a text says, as integers: its normal form, its canonical tokens in order and the classes of those tokens."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Sequence
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


def is_blank(text: str) -> bool:
    """Whether nothing is left of a text once white space and invisible characters are gone."""
    return INVISIBLE.fullmatch(text) is not None


def text_key(text: str) -> str:
    """128-bit key, equal exactly for texts that differ in nothing but case, spacing, punctuation or Unicode form.

    Signs, decimal points, question marks, emoji and the case of flags, paths, URLs and code are not punctuation.
    """
    words = [part for token in scanned(text) for part in _key_words(token)]
    if not words:
        words = ["", plain(text).strip()]
    return hashlib.blake2b("\0".join(words).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def read_corpus(texts: Sequence[str]) -> Corpus:
    """The texts as integers; the same texts give the same corpus."""
    reader = _Reader()
    for text in texts:
        reader.read(text)
    return reader.corpus()


def read_with_keys(texts: Iterable[str]) -> tuple[Corpus, list[str]]:
    """The corpus of these texts and the key of each, for little more than the corpus alone."""
    reader = _Reader()
    keys = []
    for text in texts:
        reader.read(text)
        keys.append(text_key(text))
    return reader.corpus(), keys


def stable_hash(word: str) -> int:
    """64-bit hash of a word that is the same in every process and on every machine."""
    return int.from_bytes(hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


Row = tuple[list[int], list[int], list[int], list[int], int]


class _Reader:
    def __init__(self) -> None:
        self.ids: dict[str, int] = {}
        self.classes: list[int] = []
        # Machine integers: a million texts have tens of millions of tokens.
        self.tokens, self.kinds, self.marks = array("i"), array("I"), array("H")
        self.token_offsets = array("q", [0])
        self.keys = array("i")
        self.key_offsets = array("q", [0])
        self.traits = array("q")
        self.known_kinds: dict[tuple[str, str, str, bool], int] = {}
        self.seen: dict[str, int] = {}

    def read(self, text: str) -> None:
        known = self.seen.setdefault(text, len(self.traits))
        if known < len(self.traits):
            self._repeat(known)
            return
        ids, kinds, marks, keys, traits = self._row(text)
        self.tokens.extend(ids)
        self.kinds.extend(kinds)
        self.marks.extend(marks)
        self.token_offsets.append(len(self.tokens))
        self.keys.extend(keys)
        self.key_offsets.append(len(self.keys))
        self.traits.append(traits)

    def _repeat(self, row: int) -> None:
        of_tokens = slice(self.token_offsets[row], self.token_offsets[row + 1])
        self.tokens += self.tokens[of_tokens]
        self.kinds += self.kinds[of_tokens]
        self.marks += self.marks[of_tokens]
        self.token_offsets.append(len(self.tokens))
        self.keys += self.keys[self.key_offsets[row] : self.key_offsets[row + 1]]
        self.key_offsets.append(len(self.keys))
        self.traits.append(self.traits[row])

    def _row(self, text: str) -> Row:
        tokens, lang, is_sure = canonical(text)
        kinds = [self._kind(token, lang, is_sure=is_sure) for token in tokens]
        ids = [self._id(token.word, kind) for token, kind in zip(tokens, kinds, strict=True)]
        traits = HAS_TABLE if is_sure else 0
        if any(kind & BIT["relative_day"] for kind in kinds):
            traits |= SAYS_A_DAY
        if lang.code in ("zh", "ja"):
            traits |= UNSPACED
        if lang.table.get("free_time"):
            traits |= FREE_TIME
        if not text.isascii():
            traits |= _picture_bits(text)
        return ids, kinds, [token.marks for token in tokens], sorted(set(ids)), traits

    def _kind(self, token: Token, lang: Language, *, is_sure: bool) -> int:
        key = (token.word, token.kind, lang.code, is_sure)
        found = self.known_kinds.get(key)
        if found is None:
            found = self.known_kinds[key] = word_classes(token, lang, is_sure=is_sure) | KIND_CLASS.get(token.kind, 0)
        return found

    def _id(self, word: str, kind: int) -> int:
        found = self.ids.get(word)
        if found is None:
            found = self.ids[word] = len(self.ids)
            self.classes.append(kind)
        else:
            self.classes[found] |= kind
        return found

    def corpus(self) -> Corpus:
        words = list(self.ids)
        return Corpus(
            token_offsets=np.array(self.token_offsets, np.int64),
            tokens=np.array(self.tokens, np.int32),
            kinds=np.array(self.kinds, np.uint32),
            marks=np.array(self.marks, np.uint16),
            key_offsets=np.array(self.key_offsets, np.int64),
            keys=np.array(self.keys, np.int32),
            traits=np.array(self.traits, np.int64),
            vocabulary=Vocabulary(
                words=words,
                classes=np.array(self.classes, np.uint32),
                hashes=np.array([stable_hash(word) for word in words], np.uint64),
            ),
        )


def _picture_bits(text: str) -> int:
    if PICTURE.search(text) is None:
        return 0
    bits = 0
    for word in pictures(scanned(text)):
        first, second = divmod(stable_hash(word) % (PICTURE_BITS * (PICTURE_BITS - 1)), PICTURE_BITS - 1)
        bits |= 1 << first | 1 << (second + (second >= first))
    return bits << FIRST_PICTURE_BIT


PICTURE = regex.compile(r"[\p{Extended_Pictographic}\p{So}]")


def _key_words(token: Token) -> list[str]:
    if token.kind == "emoticon":
        return []
    return token.word.split("-") if token.kind == "hyphenated" else [token.word]
