"""Near-duplicate hints: pairs of memories whose contents share most of their words, as evo would name them.

A hint is not a verdict: two memories that differ in one number share most of their words too.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

MIN_JACCARD = 0.6
SHORTEST_WORD = 3

# What JavaScript takes for white space.
_WHITE_SPACE = re.compile("[\\t-\\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff]+")


@dataclass(frozen=True, slots=True)
class Hint:
    """Two memories, in the order in which they were given, and the share of their words that both have."""

    left_id: str
    left_title: str
    right_id: str
    right_title: str
    jaccard: float


def near_duplicates(memories: Sequence[tuple[str, str, str]]) -> list[Hint]:
    """The pairs of (id, title, content) with a Jaccard of at least 0.6 over their words of more than two letters."""
    sets = [words(content) for _, _, content in memories]
    return [
        Hint(memories[left][0], memories[left][1], memories[right][0], memories[right][1], jaccard)
        for left, right in sorted(_candidates(sets))
        if (jaccard := len(sets[left] & sets[right]) / len(sets[left] | sets[right])) >= MIN_JACCARD
    ]


def words(content: str) -> frozenset[str]:
    """The words that a hint compares: lower-cased, cut at white space, of at least three UTF-16 units."""
    return frozenset(
        word
        for word in _WHITE_SPACE.split(content.lower())
        if len(word.encode("utf-16-le", "surrogatepass")) >= 2 * SHORTEST_WORD
    )


def _candidates(sets: Sequence[frozenset[str]]) -> set[tuple[int, int]]:
    """Pairs that share one of their rarest words; two sets that share most of their words always do."""
    frequency = Counter(word for each in sets for word in each)
    seen: defaultdict[str, list[int]] = defaultdict(list)
    pairs: set[tuple[int, int]] = set()
    for place, each in enumerate(sets):
        rarest_first = sorted(each, key=lambda word: (frequency[word], word))
        prefix = rarest_first[: len(each) - math.ceil(MIN_JACCARD * len(each)) + 1] if each else []
        for word in prefix:
            pairs.update((other, place) for other in seen[word])
            seen[word].append(place)
    return pairs
