r"""Texts -> sets of word hashes, straight from Arrow's buffers: the words of ``re.findall(r"\w+", text.lower())``."""

from __future__ import annotations

import hashlib
import re
import sys
from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
U32 = NDArray[np.uint32]
U64 = NDArray[np.uint64]

CAPITAL_SIGMA = "Σ"


@dataclass(slots=True)
class WordSets:
    """The distinct words of each text as sorted 32-bit hashes, row after row; a null text has none.

    ``set_hash`` stands for the whole set and its scope, ``bits`` (rows, 2) has one of 128 bits set per word.
    ``scope`` is empty where rows have no scope.
    """

    words: U32
    sizes: U32
    set_hash: U64
    bits: U64
    scope: U64

    def __len__(self) -> int:
        return len(self.sizes)


def read_words(texts: pa.Array, scopes: pa.Array | None = None) -> WordSets:
    """The word sets of these texts. ``scopes``: one value per text; the sets of two scopes are never the same."""
    from memfold import kernels

    data, offsets = _buffers(texts)
    rows = len(texts)
    scope = _scope_hashes(scopes) if scopes is not None else np.zeros(rows, np.uint64)
    # A word takes a byte and a blank at least.
    words = np.empty((int(offsets[-1] - offsets[0]) + rows) // 2 + rows + 1, np.uint32)
    sizes, set_hash, bits = np.empty(rows, np.uint32), np.empty(rows, np.uint64), np.empty((rows, 2), np.uint64)
    used, met_sigma = kernels.read_words(data, offsets, _lower_case(), scope, words, sizes, set_hash, bits)
    if met_sigma:
        return read_words(_lower_sigma(texts), scopes)
    return WordSets(words[:used].copy(), sizes, set_hash, bits, scope if scopes is not None else scope[:0])


def _buffers(texts: pa.Array) -> tuple[NDArray[np.uint8], I64]:
    """The bytes of all texts, and where each begins and ends; a null is made empty."""
    if texts.type not in (pa.string(), pa.large_string()):
        texts = texts.cast(pa.large_string())
    if texts.null_count:
        texts = texts.fill_null("")
    width = np.int32 if texts.type == pa.string() else np.int64
    _, offsets, data = texts.buffers()
    if not len(texts):
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    ends = np.frombuffer(offsets, width)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    return np.frombuffer(data if data is not None else b"", np.uint8), ends


def _lower_sigma(texts: pa.Array) -> pa.Array:
    """The texts with a capital sigma in lower case: there it depends on the letters around it."""
    lowered = [text.lower() if text is not None and CAPITAL_SIGMA in text else text for text in texts.to_pylist()]
    return pa.array(lowered, pa.large_string())


def _scope_hashes(scopes: pa.Array) -> U64:
    """A hash of each row's scope; null is a scope of its own."""
    encoded = scopes.dictionary_encode(null_encoding="encode")
    hashes = [
        int.from_bytes(hashlib.blake2b(repr(value).encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")
        for value in encoded.dictionary.to_pylist()
    ]
    return np.asarray(np.array(hashes, np.uint64)[encoded.indices.to_numpy(zero_copy_only=False)])


@cache
def _lower_case() -> I32:
    r"""For each code point its lower case where that is part of a word (``\w``), else 0.

    Built from what this Python says. Only two letters do not lower-case to one letter by themselves, the dotted
    capital I and the capital sigma; both are met before this table is asked.
    """
    points = np.arange(sys.maxunicode + 1, dtype=np.uint32)
    points[0xD800:0xE000] = 0  # surrogates are no letters, and do not encode
    points[0x130] = ord("i")
    points[ord(CAPITAL_SIGMA)] = ord("σ")
    lowered = points.tobytes().decode("utf-32-le").lower()
    table = np.zeros(len(points), np.int32)
    letters = np.frombuffer(lowered.encode("utf-32-le"), np.int32)
    for word in re.finditer(r"\w+", lowered):
        table[word.start() : word.end()] = letters[word.start() : word.end()]
    return table
