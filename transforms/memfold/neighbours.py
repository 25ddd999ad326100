"""Memories that may say the same, by common words or by somebody else's vectors: worth a question, and no more."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memfold.policy import Policy
from memfold.questions import Known, open_rows, said, walls_of
from memfold.wording import weights

#: Vectors are compared in slabs of this many rows, so that a large scope needs no matrix of all pairs.
_SLAB = 1024


#: Two memories are asked about from this share of the shorter one's words of weight on, and this many, in common.
LEAST_SHARE = 0.6
LEAST_WORDS = 3
#: A word that so many memories have brings no two of them together.
COMMONEST = 100
#: More memories behind one wall are not compared by words: no budget would reach for what is found among them.
LARGEST_GROUP = 20_000


def by_words(known: Known, policy: Policy) -> tuple[tuple[tuple[str, str], ...], int]:
    """Pairs of memories behind one wall that have most of their words of weight in common, in any order.

    Also how many memories were not compared, because more than ``LARGEST_GROUP`` stand behind their wall.
    """
    groups: defaultdict[tuple[Any, ...], list[tuple[str, frozenset[str]]]] = defaultdict(list)
    placed = worth_placing(known, policy)
    size = Counter(wall for _, wall, _ in placed)
    for memory_id, wall, text in placed:
        if size[wall] <= LARGEST_GROUP:
            groups[wall].append((memory_id, weights(text)))
    pairs = sorted(pair for group in groups.values() for pair in _sharing(group))
    return tuple(pairs), len(placed) - sum(map(len, groups.values()))


def _sharing(group: Sequence[tuple[str, frozenset[str]]]) -> Iterator[tuple[str, str]]:
    holders: defaultdict[str, list[int]] = defaultdict(list)
    for at, (_, words) in enumerate(group):
        for word in words:
            holders[word].append(at)
    for at, (memory_id, words) in enumerate(group):
        rare_in_common = Counter(
            other for word in words if len(holders[word]) <= COMMONEST for other in holders[word] if other > at
        )
        for other in (other for other, count in rare_in_common.items() if count > 1):
            common = len(words & group[other][1])
            if common >= max(LEAST_WORDS, LEAST_SHARE * min(len(words), len(group[other][1]))):
                yield min(memory_id, group[other][0]), max(memory_id, group[other][0])


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
