"""Memories that are near in meaning, by vectors that somebody else made: worth a question, and nothing more."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memfold.policy import Policy
from memfold.questions import Known, open_rows, said, walls_of

#: Vectors are compared in slabs of this many rows, so that a large scope needs no matrix of all pairs.
_SLAB = 1024


def worth_placing(known: Known, policy: Policy) -> list[tuple[str, tuple[Any, ...], str]]:
    """The id, walls and text of each memory that stands for itself and has another behind the same walls."""
    rows = open_rows(known, policy)
    size: defaultdict[tuple[Any, ...], int] = defaultdict(int)
    for row in rows:
        size[walls_of(row, policy)] += 1
    return [(row["memory_id"], wall, said(row)) for row in rows if size[wall := walls_of(row, policy)] > 1]


def nearest(
    ids: Sequence[str],
    walls: Sequence[tuple[Any, ...]],
    vectors: NDArray[np.float64],
    *,
    min_cosine: float,
    neighbours: int,
) -> tuple[tuple[str, str], ...]:
    """The pairs of ids within one wall of at least this cosine, the nearest few of each memory, in order."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    groups: defaultdict[tuple[Any, ...], list[int]] = defaultdict(list)
    for at, wall in enumerate(walls):
        groups[wall].append(at)
    pairs: set[tuple[str, str]] = set()
    for members in groups.values():
        group = np.array(members)
        for start in range(0, len(group), _SLAB):
            slab = group[start : start + _SLAB]
            cosine = unit[slab] @ unit[group].T
            cosine[np.arange(len(slab)), start + np.arange(len(slab))] = -1.0
            near = np.argsort(-cosine, axis=1, kind="stable")[:, :neighbours]
            for row, places in zip(range(len(slab)), near.tolist(), strict=True):
                for place in places:
                    if cosine[row, place] >= min_cosine:
                        one, other = ids[slab[row]], ids[group[place]]
                        pairs.add((min(one, other), max(one, other)))
    return tuple(sorted(pairs))
