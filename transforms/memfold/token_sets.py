"""The distinct sets of canonical tokens in a corpus, and how much of one is in another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from memfold.signatures import Banding, band_keys, mix
from memfold.text import Corpus

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]
F64 = NDArray[np.float64]

#: Entries that are expanded at once: about 100 MB of work arrays.
CHUNK = 2_000_000
#: From this many pairs on, compiled code pays for being loaded.
COMPILED_FROM_PAIRS = 500_000
#: 256 bits per token set; a pair that the bits rule out (two in three) needs no exact count.
BITMAP_WORDS = 4


@dataclass(slots=True)
class TokenSets:
    """The distinct sets of canonical tokens in a corpus, in CSR form, tokens ascending within a set."""

    offsets: I64
    tokens: I32
    word_hashes: U64
    set_hash: U64 = field(init=False)
    bits: U64 = field(init=False)
    _packed: I64 | None = field(init=False, default=None)
    _keys: dict[int, U64] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        hashes = self.word_hashes[self.tokens]
        self.set_hash = _per_set(np.add, mix(hashes), self.offsets)
        bit = hashes >> np.uint64(56)
        self.bits = np.zeros((len(self.offsets) - 1, BITMAP_WORDS), np.uint64)
        for word in range(BITMAP_WORDS):
            mask = np.where(bit >> np.uint64(6) == word, np.uint64(1) << (bit & np.uint64(63)), np.uint64(0))
            self.bits[:, word] = _per_set(np.bitwise_or, mask, self.offsets)

    @property
    def sizes(self) -> I64:
        return np.diff(self.offsets)

    def entries(self, sets: I64) -> tuple[I32, I64]:
        """The tokens of these sets, one after the other, and the position in ``sets`` that each belongs to."""
        sizes = self.offsets[sets + 1] - self.offsets[sets]
        owner = np.repeat(np.arange(len(sets)), sizes)
        return self.tokens[np.repeat(self.offsets[sets], sizes) + ranges(sizes)], owner

    def common(self, left: I64, right: I64) -> I64:
        """How many tokens the two sets of each pair share."""
        found = np.zeros(len(left), np.int64)
        if len(left) >= COMPILED_FROM_PAIRS:
            from memfold import pair_kernels

            pair_kernels.count_common(self.offsets, self.tokens, left, right, found)
            return found
        small = np.where(self.sizes[left] <= self.sizes[right], left, right)
        large = left + right - small
        order = np.argsort(large)  # look-ups near each other are several times faster
        for start, stop in chunks(self.sizes[small[order]]):
            part = order[start:stop]
            tokens, owner = self.entries(small[part])
            wanted = (large[part][owner] << 32) | tokens
            packed = self._set_and_token()
            at = np.minimum(np.searchsorted(packed, wanted), len(packed) - 1)
            found[part] = np.bincount(owner[packed[at] == wanted], minlength=len(part))
        return found

    def _set_and_token(self) -> I64:
        """The number of its set in front of each token, so that a token of a set can be searched for."""
        if self._packed is None:
            self._packed = (np.repeat(np.arange(len(self.sizes)), self.sizes) << 32) | self.tokens
        return self._packed

    def most_common(self, left: I64, right: I64) -> I64:
        """No fewer than the tokens that the two sets of each pair share, told from their bitmaps alone."""
        missing_right = np.bitwise_count(self.bits[left] & ~self.bits[right]).sum(axis=1, dtype=np.int64)
        missing_left = np.bitwise_count(self.bits[right] & ~self.bits[left]).sum(axis=1, dtype=np.int64)
        return np.asarray(np.minimum(self.sizes[left] - missing_right, self.sizes[right] - missing_left))

    def jaccard(self, left: I64, right: I64) -> F64:
        """Word Jaccard of each pair of sets; two empty sets are alike only if they are one set."""
        common = self.common(left, right)
        union = self.sizes[left] + self.sizes[right] - common
        alike: F64 = np.where(union > 0, common / np.maximum(union, 1), left == right)
        return alike

    def band_keys(self, sets: I64, banding: Banding) -> U64:
        """MinHash band keys of these sets, each computed once; shape (sets, bands)."""
        wanted = sets.tolist()
        new = np.array([row for row in wanted if row not in self._keys], np.int64)
        if len(new):
            tokens, _ = self.entries(new)
            offsets = np.concatenate(([0], np.cumsum(self.sizes[new])))
            words = (self.word_hashes[tokens] & np.uint64(0xFFFFFFFF)).astype(np.uint32)
            self._keys.update(zip(new.tolist(), band_keys(offsets, words, banding), strict=True))
        return np.stack([self._keys[row] for row in wanted])


def token_sets(corpus: Corpus, texts: I64) -> tuple[TokenSets, I64]:
    """The distinct token sets of these corpus rows, and the set of each row."""
    seen: dict[bytes, int] = {}
    keys, width, bounds = corpus.keys.tobytes(), corpus.keys.itemsize, corpus.key_offsets.tolist()
    set_of = []
    for text in texts.tolist():
        row = keys[width * bounds[text] : width * bounds[text + 1]]
        set_of.append(seen.setdefault(row, len(seen)))
    offsets = np.concatenate(([0], np.cumsum([len(row) // width for row in seen]))).astype(np.int64)
    tokens = np.frombuffer(b"".join(seen), corpus.keys.dtype).astype(np.int32)
    return TokenSets(offsets, tokens, corpus.vocabulary.hashes.astype(np.uint64)), np.array(set_of, np.int64)


def ranges(counts: I64) -> I64:
    """0, 1, ... up to each count, one after the other."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - counts, counts)


def chunks(costs: I64) -> Iterator[tuple[int, int]]:
    """Consecutive ranges whose costs add up to about ``CHUNK``."""
    total = np.cumsum(costs)
    start = 0
    while start < len(costs):
        done = total[start - 1] if start else 0
        stop = max(int(np.searchsorted(total, done + CHUNK, side="right")), start + 1)
        yield start, stop
        start = stop


def _per_set(combine: np.ufunc, values: U64, offsets: I64) -> U64:
    """The values of each set combined; an empty set gives 0."""
    found = np.zeros(len(offsets) - 1, np.uint64)
    filled = np.flatnonzero(np.diff(offsets))
    if len(filled):
        found[filled] = combine.reduceat(values, offsets[filled])
    return found
