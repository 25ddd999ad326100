"""Whether two texts say the same, judged by the words that differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from memfold.text import Corpus

SAME, CONTAINS, CONFLICT, SUPERSEDES, DISTINCT = range(5)
NAMES = ("same", "contains", "conflict", "supersedes", "distinct")


@dataclass(frozen=True, slots=True)
class Verdicts:
    """One entry per judged pair. ``winner``: 0 none, 1 left, 2 right; ``added``: words that the longer side adds."""

    left: npt.NDArray[np.int32]
    right: npt.NDArray[np.int32]
    verdict: npt.NDArray[np.int8]
    winner: npt.NDArray[np.int8]
    added: npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Explanation:
    """A verdict in words: the reason, and the words that stand on one side only."""

    reason: str
    only_left: tuple[str, ...]
    only_right: tuple[str, ...]


def judge(
    corpus: Corpus,
    left: npt.NDArray[np.int32],
    right: npt.NDArray[np.int32],
    *,
    newer: npt.NDArray[np.int8],
    same_day: npt.NDArray[np.bool_],
) -> Verdicts:
    """A verdict for each pair (left[i], right[i]) of text rows.

    ``newer``: 0 unknown, 1 left, 2 right. ``same_day``: both days are known and equal; texts that say today or now
    are never the same without it.
    """
    same = np.array([_row(corpus, a) == _row(corpus, b) for a, b in zip(left, right, strict=True)], bool)
    verdict = np.where(same, SAME, DISTINCT).astype(np.int8)
    return Verdicts(left, right, verdict, np.zeros(len(left), np.int8), np.zeros(len(left), np.int32))


def explain(corpus: Corpus, verdicts: Verdicts, index: int) -> Explanation:
    """The verdict of one pair in words."""
    a, b = _row(corpus, int(verdicts.left[index])), _row(corpus, int(verdicts.right[index]))
    words = corpus.vocabulary.words
    only_left = tuple(words[i] for i in dict.fromkeys(a) if i not in b)
    only_right = tuple(words[i] for i in dict.fromkeys(b) if i not in a)
    if verdicts.verdict[index] == SAME:
        return Explanation("nothing differs that carries a fact", only_left, only_right)
    return Explanation(f"words differ: {' '.join(only_left)} / {' '.join(only_right)}", only_left, only_right)


def would_lose(corpus: Corpus, removed: Sequence[int], kept: Sequence[int]) -> tuple[str, ...]:
    """The facts of the removed texts that stand in none of the kept ones, in canonical form; () when nothing is lost."""
    stays = {token for row in kept for token in _row(corpus, row)}
    gone = dict.fromkeys(token for row in removed for token in _row(corpus, row) if token not in stays)
    return tuple(corpus.vocabulary.words[token] for token in gone if corpus.vocabulary.classes[token])


def _row(corpus: Corpus, row: int) -> list[int]:
    tokens: list[int] = corpus.tokens[corpus.token_offsets[row] : corpus.token_offsets[row + 1]].tolist()
    return tokens
