"""MinHash signatures and band keys of token sets, computed by datasketch itself, or for many sets by compiled code."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from datasketch import MinHash

U32 = NDArray[np.uint32]
U64 = NDArray[np.uint64]

#: Token sets whose signatures are held at once: 20,000 x 160 values are 13 MB.
SETS_PER_CHUNK = 20_000
#: From this many sets of a group on, compiled code pays for being loaded (a second): datasketch takes 0.1 ms a set.
COMPILED_FROM_SETS = 20_000
#: The one scheme of datasketch's that the compiled code computes.
COMPILED_SCHEME = "affine32"


@dataclass(frozen=True, slots=True, kw_only=True)
class Banding:
    """Which permutations make a signature, and how it is cut into bands.

    A pair at Jaccard j shares a band with probability 1 - (1 - j ** rows) ** bands.
    """

    bands: int
    rows: int
    seed: int
    scheme: str

    @property
    def permutations(self) -> int:
        return self.bands * self.rows


def band_keys(offsets: NDArray[np.int64], hashes: U32, banding: Banding) -> U64:
    """The band keys of token sets given as word hashes; shape (sets, bands).

    Set i holds ``hashes[offsets[i]:offsets[i + 1]]``, each word once.
    """
    if len(offsets) - 1 >= COMPILED_FROM_SETS and banding.scheme == COMPILED_SCHEME:
        from memfold import minhash

        return minhash.band_keys(offsets[:-1], np.diff(offsets).astype(np.uint32), hashes, banding)
    keys = np.empty((len(offsets) - 1, banding.bands), np.uint64)
    for start in range(0, len(keys), SETS_PER_CHUNK):
        stop = min(start + SETS_PER_CHUNK, len(keys))
        keys[start:stop] = cut_into_bands(signatures(offsets[start : stop + 1], hashes, banding), banding)
    return keys


def signatures(offsets: NDArray[np.int64], hashes: U32, banding: Banding) -> U32:
    """The MinHash signatures of token sets; shape (sets, permutations)."""
    from datasketch import MinHash

    words = hashes[offsets[0] : offsets[-1]].tolist()
    bounds = (offsets - offsets[0]).tolist()
    sets = (words[start:stop] for start, stop in pairwise(bounds))
    minhashes = MinHash.generator(
        sets, num_perm=banding.permutations, seed=banding.seed, scheme=banding.scheme, hashfunc=_word_hash
    )
    found = np.empty((len(bounds) - 1, banding.permutations), np.uint32)
    for row, minhash in enumerate(minhashes):
        found[row] = minhash.hashvalues
    return found


def as_minhash(signature: U32, banding: Banding) -> MinHash:
    """A signature as a datasketch object, to compare or to index elsewhere."""
    from datasketch import MinHash

    return MinHash(seed=banding.seed, scheme=banding.scheme, hashvalues=signature, hashfunc=_word_hash)


def cut_into_bands(signature: U32, banding: Banding) -> U64:
    """One 64-bit key per band of each signature; equal bands have equal keys."""
    keys = np.empty((len(signature), banding.bands), np.uint64)
    for band in range(banding.bands):
        key = np.full(len(signature), band + 1, np.uint64)
        first, stop = band * banding.rows, (band + 1) * banding.rows
        for column in range(first, stop, 2):
            pair = signature[:, column].astype(np.uint64)
            if column + 1 < stop:
                pair |= signature[:, column + 1].astype(np.uint64) << np.uint64(32)
            key = mix(key ^ pair)
        keys[:, band] = key
    return keys


def mix(values: U64) -> U64:
    """The finaliser of splitmix64: spreads every bit of each value over all 64, one to one."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _word_hash(word: int) -> int:
    # The vocabulary has hashed the word already; datasketch permutes that value.
    return word
