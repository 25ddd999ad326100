"""Near-duplicate texts: components of links, each checked word by word against the threshold.

The stage by itself, on plain words and without verdicts, for archives of any size. Equal word sets are one; MinHash
bands propose, an exact comparison decides. The numbering of the sets follows from the sets alone, so neither the order
of the rows nor how they are read or on how many threads changes the result.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from memfold import minhash
from memfold.signatures import Banding
from memfold.word_sets import WordSets

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
U32 = NDArray[np.uint32]
U64 = NDArray[np.uint64]

Report = Callable[[str, int, int], None]

#: A set meets at most this many unlike sets in a bucket, so that no bucket costs more than its size.
LEADERS = 8
#: Bands whose keys (8 bytes a set) are in memory at once; they are computed in one pass over the words.
BANDS_AT_ONCE = 6
#: Share of the pairs exactly at the threshold that meet in a band; above it nearly all do.
RECALL = 0.93
LEAST_BANDS = 15
#: Below this threshold more bands would be needed than make sense for a candidate stage.
LEAST_THRESHOLD = 0.5


@dataclass(frozen=True, slots=True)
class Components:
    """``set_of`` each row its distinct word set, ``root_of`` each set the smallest set of its component."""

    set_of: I32
    root_of: I32
    compared: int
    compared_by_word: int
    links: int

    @property
    def root_of_row(self) -> I32:
        """Equal for rows of one component."""
        return np.asarray(self.root_of[self.set_of], np.int32)


def banding_for(sets: int, threshold: float) -> Banding:
    """Bands and rows for this many sets: few rows find more, and many rows keep the buckets of a large store small.

    15 x 5 finds 93 of 100 pairs at Jaccard 0.70 and 99 at 0.77, and a component has more links than it needs.
    """
    rows = 5 if sets <= 3_000_000 else 6 if sets <= 50_000_000 else 7
    bands = (
        int(np.ceil(np.log(1 - RECALL) / np.log(1 - max(threshold, LEAST_THRESHOLD) ** rows))) if threshold < 1 else 1
    )
    return Banding(bands=max(bands, LEAST_BANDS), rows=rows, seed=1, scheme=minhash.SCHEME)


def find_components(
    parts: list[WordSets], *, threshold: float, threads: int, report: Report = lambda stage, done, total: None
) -> Components:
    """The components of texts that share at least ``threshold`` of their words (Jaccard); ``parts`` is emptied."""
    if not 0 < threshold <= 1:
        raise ValueError(f"threshold must be in (0, 1], got {threshold!r}")
    sets = _distinct(parts)
    banding = banding_for(len(sets), threshold)
    joined = _Joined(np.arange(len(sets), dtype=np.int32))
    keys = np.empty((BANDS_AT_ONCE, len(sets)), np.uint64)
    with ThreadPoolExecutor(threads) as pool:
        for start in range(0, banding.bands, BANDS_AT_ONCE):
            bands = range(start, min(start + BANDS_AT_ONCE, banding.bands))
            minhash.fill_band_keys(
                keys[: len(bands)],
                sets.starts,
                sets.sizes,
                sets.words,
                banding,
                bands=bands,
                seeds=sets.seeds,
                pool=pool,
            )
            _join(sets, keys[: len(bands)], joined, threshold=threshold, pool=pool)
            report("comparing", bands.stop * len(sets) // banding.bands, len(sets))
    compared, by_word, links = joined.counts.tolist()
    return Components(sets.set_of, joined.parent, compared, by_word, links)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sets:
    """Distinct word sets, numbered by their hashes: their numbers follow from the sets alone.

    ``compact`` and ``scope`` are by number. ``numbers``, ``starts``, ``sizes`` and ``seeds`` are in the order in which
    the sets lie in memory, for reading all of them one after the other.
    """

    words: U32
    set_of: I32
    compact: U64
    scope: U64
    numbers: I32
    starts: I64
    sizes: U32
    seeds: U64

    def __len__(self) -> int:
        return len(self.numbers)


@dataclass(frozen=True, slots=True)
class _Joined:
    parent: I32
    counts: I64 = field(default_factory=lambda: np.zeros(3, np.int64))


def _distinct(parts: list[WordSets]) -> _Sets:
    """Equal sets as one. The parts are released one by one, as their words are the largest thing in memory."""
    from memfold import kernels

    rows = sum(len(part) for part in parts)
    words = np.empty(sum(len(part.words) for part in parts), np.uint32)
    sizes, set_hash, bits = np.empty(rows, np.uint32), np.empty(rows, np.uint64), np.empty((rows, 2), np.uint64)
    scope = np.empty(rows if parts and len(parts[0].scope) else 0, np.uint64)
    row = word = 0
    parts.reverse()
    while parts:
        part = parts.pop()
        here = slice(row, row + len(part))
        sizes[here], set_hash[here], bits[here] = part.sizes, part.set_hash, part.bits
        if len(scope):
            scope[here] = part.scope
        words[word : word + len(part.words)] = part.words
        row, word = row + len(part), word + len(part.words)
    starts = np.cumsum(sizes, dtype=np.int64) - sizes
    set_of, row_of, compact = np.empty(rows, np.int32), np.empty(rows, np.int32), np.empty((rows, 4), np.uint64)
    scope_or_one = scope if len(scope) else np.zeros(1, np.uint64)
    count = kernels.number_sets(
        np.argsort(set_hash), set_hash, scope_or_one, starts, sizes, words, bits, set_of, row_of, compact
    )
    first = np.sort(row_of[:count])
    return _Sets(
        words=words,
        set_of=set_of,
        compact=compact[:count],
        scope=scope[row_of[:count]] if len(scope) else scope,
        numbers=set_of[first],
        starts=starts[first],
        sizes=sizes[first],
        seeds=scope[first] if len(scope) else scope,
    )


def _join(sets: _Sets, keys: U64, joined: _Joined, *, threshold: float, pool: ThreadPoolExecutor) -> None:
    """Join what shares a bucket in one of these bands; the bands are sorted side by side and joined in order."""
    from memfold import kernels

    # A key gives up as many bits as the number of its set needs; sets that meet for it are compared like any others.
    mask = np.uint64((1 << max(len(sets) - 1, 1).bit_length()) - 1)

    def order(band: int) -> None:
        kernels.number_keys(keys[band], sets.numbers, mask)
        keys[band].sort()

    for band, _ in enumerate(pool.map(order, range(len(keys)))):
        kernels.join_buckets(
            keys[band], mask, threshold, LEADERS, sets.compact, sets.scope, sets.words, joined.parent, joined.counts
        )
    kernels.flatten(joined.parent)
