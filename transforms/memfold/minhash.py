"""datasketch's MinHash (scheme affine32) in compiled code: the same signatures and band keys, many times faster."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from memfold.signatures import Banding

I64 = NDArray[np.int64]
U32 = NDArray[np.uint32]
U64 = NDArray[np.uint64]

SCHEME = "affine32"
NO_SEEDS = np.empty(0, np.uint64)
COLUMNS_AT_ONCE = 32
#: Sets that one call of the compiled loop takes, so that threads share the work evenly.
SETS_PER_CALL = 50_000


def permutations(banding: Banding) -> tuple[U32, U32]:
    """The multipliers (odd) and addends that datasketch draws for this seed."""
    draw = np.random.RandomState(banding.seed)
    multipliers = draw.randint(0, 1 << 31, banding.permutations, dtype=np.uint32) * np.uint32(2) + np.uint32(1)
    return multipliers, draw.randint(0, 1 << 32, banding.permutations, dtype=np.uint32)


def band_keys(starts: I64, sizes: U32, words: U32, banding: Banding) -> U64:
    """The band keys of word sets, shape (sets, bands); set i is ``words[starts[i]:starts[i] + sizes[i]]``."""
    keys = np.empty((banding.bands, len(starts)), np.uint64)
    fill_band_keys(keys, starts, sizes, words, banding, bands=range(banding.bands))
    return keys.T


def fill_band_keys(
    keys: U64,
    starts: I64,
    sizes: U32,
    words: U32,
    banding: Banding,
    *,
    bands: range,
    seeds: U64 = NO_SEEDS,
    pool: ThreadPoolExecutor | None = None,
) -> None:
    """The keys of some of the bands into ``keys``, shape (bands, sets).

    ``seeds``, one per set, are mixed into the keys, so that sets with other seeds never meet.
    """
    from memfold import kernels

    multipliers, addends = (_columns(drawn, bands, banding.rows) for drawn in permutations(banding))

    def fill(start: int) -> None:
        stop = min(start + SETS_PER_CALL, len(starts))
        kernels.band_keys(
            starts, sizes, words, multipliers, addends, seeds, bands.start, banding.rows, start, stop, keys
        )

    parts = range(0, len(starts), SETS_PER_CALL)
    for _ in pool.map(fill, parts) if pool else map(fill, parts):
        pass


def _columns(drawn: U32, bands: range, rows: int) -> U32:
    """The columns of these bands, padded: a compiled loop over a round number of columns is several times faster."""
    columns = drawn[bands.start * rows : bands.stop * rows]
    return np.pad(columns, (0, -len(columns) % COLUMNS_AT_ONCE))
