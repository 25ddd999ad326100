"""Compiled MinHash, held to datasketch."""

from __future__ import annotations

import numpy as np
import pytest

from memfold import minhash, signatures
from memfold.signatures import Banding


def word_sets(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Sets of 0 to 60 hashes, as offsets and hashes."""
    draw = np.random.default_rng(seed)
    sizes = draw.integers(0, 60, count)
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    return offsets, draw.integers(0, 1 << 32, int(offsets[-1]), dtype=np.uint32)


@pytest.mark.parametrize("seed", [1, 42])
def test_permutations_are_datasketchs_own(seed: int) -> None:
    """For a seed the multipliers and addends are those that datasketch draws."""
    from datasketch import MinHash

    banding = Banding(bands=16, rows=8, seed=seed, scheme="affine32")
    expected = MinHash(num_perm=128, seed=seed, scheme="affine32").permutations

    assert [column.tolist() for column in minhash.permutations(banding)] == [row.tolist() for row in expected]


@pytest.mark.parametrize(("bands", "rows"), [(40, 4), (18, 5), (3, 7), (1, 1)])
def test_both_engines_give_the_same_band_keys(bands: int, rows: int) -> None:
    """Signatures by datasketch, cut into bands, are what the compiled loop gives; for an empty set, too."""
    offsets, words = word_sets(3, 500)
    banding = Banding(bands=bands, rows=rows, seed=1, scheme="affine32")
    expected = signatures.cut_into_bands(signatures.signatures(offsets, words, banding), banding)

    found = minhash.band_keys(offsets[:-1], np.diff(offsets).astype(np.uint32), words, banding)

    assert np.array_equal(found, expected)


def test_the_engine_follows_from_the_number_of_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Either side of the limit the band keys are the same, so that a growing scope keeps its candidates."""
    offsets, words = word_sets(4, 300)
    banding = Banding(bands=40, rows=4, seed=1, scheme="affine32")
    by_datasketch = signatures.band_keys(offsets, words, banding)
    called: list[int] = []
    compiled = minhash.band_keys
    monkeypatch.setattr(signatures, "COMPILED_FROM_SETS", 300)
    monkeypatch.setattr(minhash, "band_keys", lambda *given: (called.append(len(given[0])), compiled(*given))[1])

    assert np.array_equal(signatures.band_keys(offsets, words, banding), by_datasketch)
    assert called == [300]
