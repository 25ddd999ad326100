"""Close pairs of a group of very many rows: the very ones that ``candidates`` finds, in memory that does not grow
with how many rows meet.

Rows meet as in ``candidates``: by their rarest words, and the first leaders of each MinHash bucket. Instead of noting
who met whom, each row keeps its nearest. A pair that neither of its rows keeps among those it has met is among the
nearest of neither in the end, so forgetting it changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memfold import minhash
from memfold.signatures import Banding
from memfold.token_sets import TokenSets

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
U32 = NDArray[np.uint32]
U64 = NDArray[np.uint64]
F64 = NDArray[np.float64]

#: Bands whose keys (8 bytes a row) are in memory at once.
BANDS_AT_ONCE = 8
ROWS_COPIED_AT_ONCE = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """From when on a pair is close, and how many rows of a bucket or of a word's list a row meets."""

    overlap: float
    jaccard: float
    leaders: int
    nearest: int


def nearest_pairs(sets: TokenSets, chosen: I64, rare_tokens: I64, *, banding: Banding, bounds: Bounds) -> I64:
    """The close pairs among these sets (positions in ``chosen``) that are among the nearest of one of the two.

    ``rare_tokens``: how many of its rarest tokens each set asks for larger ones by.
    """
    rows = _Rows.of(sets, chosen)
    met = _Met.nobody(len(chosen), bounds.nearest)
    _meet_by_rare_tokens(rows, met, sets.word_hashes, rare_tokens, bounds)
    _meet_by_bands(rows, met, sets.word_hashes, banding, bounds)
    return met.pairs()


@dataclass(frozen=True, slots=True)
class _Rows:
    """The chosen sets one after the other, so that reading them reads memory in order."""

    offsets: I64
    tokens: I32
    bits: U64

    @classmethod
    def of(cls, sets: TokenSets, chosen: I64) -> _Rows:
        offsets = np.concatenate(([0], np.cumsum(sets.sizes[chosen])))
        tokens = np.empty(offsets[-1], np.int32)
        for start in range(0, len(chosen), ROWS_COPIED_AT_ONCE):
            part = chosen[start : start + ROWS_COPIED_AT_ONCE]
            tokens[offsets[start] : offsets[start + len(part)]] = sets.entries(part)[0]
        return cls(offsets, tokens, sets.bits[chosen])

    @property
    def parts(self) -> tuple[I64, I32, U64]:
        return self.offsets, self.tokens, self.bits


@dataclass(frozen=True, slots=True)
class _Met:
    """The nearest of each row among those that it has met, -1 for nobody, and what they share."""

    nearest: I32
    shares: F64
    jaccards: F64

    @classmethod
    def nobody(cls, rows: int, nearest: int) -> _Met:
        shape = (rows, nearest)
        return cls(np.full(shape, -1, np.int32), np.full(shape, -1.0), np.full(shape, -1.0))

    @property
    def parts(self) -> tuple[I32, F64, F64]:
        return self.nearest, self.shares, self.jaccards

    def pairs(self) -> I64:
        """Each pair once, the first row first, in order."""
        row, place = np.nonzero(self.nearest >= 0)
        other = self.nearest[row, place].astype(np.int64)
        packed = np.sort(np.minimum(row, other) * len(self.nearest) + np.maximum(row, other))
        is_new = np.ones(len(packed), bool)
        is_new[1:] = packed[1:] != packed[:-1]
        return np.stack(np.divmod(packed[is_new], max(len(self.nearest), 1)))


def _meet_by_rare_tokens(rows: _Rows, met: _Met, word_hashes: U64, rare_tokens: I64, bounds: Bounds) -> None:
    """A short text meets the longer ones that hold one of its rarest tokens: it may be inside one of them."""
    from memfold import pair_kernels

    frequency = np.bincount(rows.tokens, minlength=len(word_hashes))
    rarity = np.empty(len(word_hashes), np.int32)
    rarity[np.lexsort((word_hashes, frequency))] = np.arange(len(word_hashes), dtype=np.int32)
    starts = np.concatenate(([0], np.cumsum(frequency)))
    by_size = np.argsort(np.diff(rows.offsets), kind="stable")
    holders, limit = np.empty(len(rows.tokens), np.int32), np.empty(len(by_size), np.int32)
    owners = np.zeros(len(word_hashes), np.int64)
    pair_kernels.index_tokens(by_size, rows.offsets, rows.tokens, rarity, rare_tokens, starts, holders, limit, owners)
    may_be_inside = np.array([bounds.overlap, 1.0, bounds.overlap, bounds.jaccard])
    pair_kernels.meet_larger(
        by_size, rarity, starts, holders, limit, owners, bounds.leaders, *rows.parts, may_be_inside, *met.parts
    )


def _meet_by_bands(rows: _Rows, met: _Met, word_hashes: U64, banding: Banding, bounds: Bounds) -> None:
    from memfold import pair_kernels

    words = word_hashes.astype(np.uint32)[rows.tokens]
    sizes = np.diff(rows.offsets).astype(np.uint32)
    keys = np.empty((BANDS_AT_ONCE, len(sizes)), np.uint64)
    may_be_close = np.array([bounds.overlap, bounds.jaccard, bounds.overlap, bounds.jaccard])
    for start in range(0, banding.bands, BANDS_AT_ONCE):
        bands = range(start, min(start + BANDS_AT_ONCE, banding.bands))
        some = keys[: len(bands)]
        minhash.fill_band_keys(some, rows.offsets[:-1], sizes, words, banding, bands=bands)
        for key in some:
            pair_kernels.meet_leaders(
                key, np.argsort(key).astype(np.int32), bounds.leaders, *rows.parts, may_be_close, *met.parts
            )
