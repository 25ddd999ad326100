"""What a text says, as integers: its normal form, its tokens in order and the classes of those tokens."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import regex

INVISIBLE = regex.compile(r"[\p{Cf}\p{Cc}\p{White_Space}\u115f\u1160\u3164\uffa0\u2800]+")
FACT = regex.compile(r"\S*[\p{N}/\\_@+$€£%<>=&|#~^*?؟？.:-]\S*")


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The distinct tokens of a corpus: ``words`` in order of first use, their class bits and a stable hash of each."""

    words: list[str]
    classes: npt.NDArray[np.uint32]
    hashes: npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Corpus:
    """Texts as integers, one row per text in the order given; rows of offsets have one more entry than there are texts."""

    token_offsets: npt.NDArray[np.int64]
    tokens: npt.NDArray[np.int32]
    key_offsets: npt.NDArray[np.int64]
    keys: npt.NDArray[np.int32]
    vocabulary: Vocabulary


def is_blank(text: str) -> bool:
    """Whether nothing is left of a text once white space and invisible characters are gone."""
    return INVISIBLE.fullmatch(text) is not None or text == ""


def text_key(text: str) -> str:
    """128-bit key, equal exactly for texts that differ in nothing but case, spacing, punctuation or Unicode form."""
    return hashlib.blake2b(" ".join(_tokens(text)).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def read_corpus(texts: Sequence[str]) -> Corpus:
    """The texts as integers; the same texts give the same corpus."""
    ids: dict[str, int] = {}
    tokens: list[int] = []
    keys: list[int] = []
    token_offsets, key_offsets = [0], [0]
    for text in texts:
        row = [ids.setdefault(token, len(ids)) for token in _tokens(text)]
        tokens += row
        keys += sorted(set(row))
        token_offsets.append(len(tokens))
        key_offsets.append(len(keys))
    words = list(ids)
    return Corpus(
        token_offsets=np.array(token_offsets, np.int64),
        tokens=np.array(tokens, np.int32),
        key_offsets=np.array(key_offsets, np.int64),
        keys=np.array(keys, np.int32),
        vocabulary=Vocabulary(
            words=words,
            classes=np.array([1 if FACT.fullmatch(word) else 0 for word in words], np.uint32),
            hashes=np.array([_stable_hash(word) for word in words], np.uint64),
        ),
    )


def _stable_hash(word: str) -> int:
    return int.from_bytes(hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def _tokens(text: str) -> list[str]:
    plain = unicodedata.normalize("NFC", text)
    found = []
    for word in plain.split():
        bare = word.strip("\"'“”‘’«»()[]{}!,;。、，.") or word
        found += [bare] if FACT.fullmatch(bare) else regex.findall(r"[\p{L}\p{M}\p{N}_]+", bare.casefold()) or [bare]
    return found
