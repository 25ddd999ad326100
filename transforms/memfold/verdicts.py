"""Whether two texts say the same, judged by the words that differ and never by how many they share."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType

import numpy as np
import numpy.typing as npt

from memfold import kernel
from memfold.kernel import CONFLICT, CONTAINS, DISTINCT, SAME, SUPERSEDES
from memfold.lexicon import BIT
from memfold.text import Corpus
from memfold.tokens import CAPITAL

NAMES = ("same", "contains", "conflict", "supersedes", "distinct")

# From this many pairs on (some four seconds of plain Python), the compiled kernel pays for its loading. It compiles
# once, into numba's cache, and loads in about a second from then on.
COMPILED_FROM_PAIRS = 500_000

__all__ = [
    "CONFLICT",
    "CONTAINS",
    "DISTINCT",
    "NAMES",
    "SAME",
    "SUPERSEDES",
    "Explanation",
    "Verdicts",
    "explain",
    "judge",
    "would_lose",
]


@dataclass(frozen=True, slots=True)
class Verdicts:
    """One entry per judged pair.

    ``winner`` (0 none, 1 left, 2 right) is the longer side of a containment, the newer of a conflict or supersession;
    ``added`` is how many words the longer side adds.
    """

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
    if len(left) >= COMPILED_FROM_PAIRS:
        return _judge_compiled(corpus, left, right, newer, same_day)
    return _judge_plain(corpus, left, right, newer, same_day)


def explain(corpus: Corpus, verdicts: Verdicts, index: int) -> Explanation:
    """The verdict of one pair in words, such as "numbers differ: 14 / 16" or "negated on one side: not"."""
    a, b = int(verdicts.left[index]), int(verdicts.right[index])
    left, right = _row(corpus, a), _row(corpus, b)
    only_left = _only(left, right)
    only_right = _only(right, left)
    words = corpus.vocabulary.words
    return Explanation(
        _reason(corpus, int(verdicts.verdict[index]), (a, b), (only_left, only_right)),
        tuple(words[token] for token in only_left),
        tuple(words[token] for token in only_right),
    )


def would_lose(corpus: Corpus, removed: Sequence[int], kept: Sequence[int]) -> tuple[str, ...]:
    """The facts of the removed texts that stand in none of the kept ones, in canonical form.

    A fact is a URL or other identifier, a number, a date or time, a negation or a name; () when nothing would be lost.
    """
    words = corpus.vocabulary.words
    stays = {token for row in kept for token in _row(corpus, row)}
    lost: dict[int, None] = {}
    for row in removed:
        start, end = int(corpus.token_offsets[row]), int(corpus.token_offsets[row + 1])
        for place in range(start, end):
            token = int(corpus.tokens[place])
            is_fact = corpus.kinds[place] & FACT or corpus.marks[place] & CAPITAL
            if is_fact and token not in stays:
                lost[token] = None
    said = {words[token] for token in stays} if lost else set()
    # "Fridays" is kept where "Friday" stays.
    days = {token for token in lost if corpus.vocabulary.classes[token] & BIT["date"]}
    return tuple(words[token] for token in lost if token not in days or words[token].removesuffix("s") not in said)


FACT = BIT["number"] | BIT["date"] | BIT["time"] | BIT["identifier"] | BIT["negation"]


# ------------------------------------------------------------------------------------------------------- one kernel


def _judge_plain(
    corpus: Corpus,
    left: npt.NDArray[np.int32],
    right: npt.NDArray[np.int32],
    newer: npt.NDArray[np.int8],
    same_day: npt.NDArray[np.bool_],
) -> Verdicts:
    size = len(left)
    verdict, winner, added = [0] * size, [0] * size, [0] * size
    rows, places = np.unique(np.concatenate([left, right]), return_inverse=True)
    starts, ends = corpus.token_offsets[rows], corpus.token_offsets[rows + 1]
    used = _ranges(starts, ends)
    kernel.judge_rows(
        np.concatenate([[0], np.cumsum(ends - starts)]).tolist(),
        corpus.tokens[used].tolist(),
        corpus.marks[used].tolist(),
        corpus.kinds[used].tolist(),
        corpus.traits[rows].tolist(),
        places[:size].tolist(),
        places[size:].tolist(),
        np.asarray(newer).tolist(),
        np.asarray(same_day).tolist(),
        verdict,
        winner,
        added,
    )
    return Verdicts(left, right, np.array(verdict, np.int8), np.array(winner, np.int8), np.array(added, np.int32))


def _ranges(starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The places of all half-open ranges, one after the other."""
    lengths = ends - starts
    firsts = np.repeat(starts - np.concatenate([[0], np.cumsum(lengths)[:-1]]), lengths) if len(starts) else starts
    return np.asarray(firsts + np.arange(int(lengths.sum())), np.int64)


def _judge_compiled(
    corpus: Corpus,
    left: npt.NDArray[np.int32],
    right: npt.NDArray[np.int32],
    newer: npt.NDArray[np.int8],
    same_day: npt.NDArray[np.bool_],
) -> Verdicts:
    size = len(left)
    verdict, winner, added = np.zeros(size, np.int8), np.zeros(size, np.int8), np.zeros(size, np.int32)
    given = (
        corpus.token_offsets,
        corpus.tokens,
        corpus.marks.astype(np.int64),
        corpus.kinds.astype(np.int64),
        corpus.traits.astype(np.int64),
        np.ascontiguousarray(left, np.int32),
        np.ascontiguousarray(right, np.int32),
        np.ascontiguousarray(newer, np.int8),
        np.ascontiguousarray(same_day, np.bool_),
        verdict,
        winner,
        added,
    )
    try:
        compiled_kernel().judge_rows(*given)
    except ImportError:  # what two processes wrote into numba's cache at once may not be readable
        _load_kernel("memfold.kernel_uncached", is_cached=False).judge_rows(*given)
    return Verdicts(left, right, verdict, winner, added)


@cache
def compiled_kernel() -> ModuleType:
    """The kernel's file loaded again, with numba's compiler as its ``jit``."""
    return _load_kernel("memfold.kernel_compiled", is_cached=True)


def _load_kernel(name: str, *, is_cached: bool) -> ModuleType:
    import numba

    from memfold import compiled  # noqa: F401 - it says so when numba has to compile

    spec = importlib.util.spec_from_file_location(name, kernel.__file__)
    if spec is None or spec.loader is None:
        raise ImportError(f"the kernel's file {kernel.__file__} cannot be loaded again; nothing was judged")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # numba finds what it cached by the module's name
    module.__dict__["jit"] = numba.njit(cache=is_cached, nogil=True)
    spec.loader.exec_module(module)
    return module


# ---------------------------------------------------------------------------------------------------------- in words


_DIFFERENCES = (
    ("question", "a question on one side"),
    ("negation", "negated on one side"),
    ("condition", "a condition on one side"),
    ("limit", "limited on one side"),
    ("hedge", "uncertain on one side"),
    ("date", "dates differ"),
    ("time", "times differ"),
    ("number", "numbers differ"),
    ("identifier", "identifiers differ"),
    ("modal", "must, may or can differs"),
    ("quantifier", "how many differs"),
    ("polarity", "opposite or other action"),
    ("direction", "direction differs"),
)


def _reason(corpus: Corpus, verdict: int, rows: tuple[int, int], only: tuple[list[int], list[int]]) -> str:
    words, classes = corpus.vocabulary.words, corpus.vocabulary.classes
    if verdict == SAME:
        is_in_order = _row(corpus, rows[0]) == _row(corpus, rows[1])
        return "only forms of words or fillers differ" if is_in_order else "the same words in another order"
    if verdict == CONTAINS:
        added = " ".join(words[token] for token in only[0] or only[1])
        return f"adds: {added}" if added else "says some of it twice"
    if verdict == SUPERSEDES:
        signs = [words[token] for token in (*only[0], *only[1]) if classes[token] & BIT["change"]]
        return f"the newer says that it changed: {', '.join(signs)}"
    days = [words[token] for token in _row(corpus, rows[0]) if classes[token] & BIT["relative_day"]]
    if verdict == DISTINCT and days and not any(only):
        return f"said on different or unknown days: {', '.join(dict.fromkeys(days))}"
    if verdict == DISTINCT and not any(only) and len({int(corpus.traits[row]) for row in rows}) > 1:
        return "emoji differ"
    return _difference(corpus, only)


def _difference(corpus: Corpus, only: tuple[list[int], list[int]]) -> str:
    words, classes = corpus.vocabulary.words, corpus.vocabulary.classes
    if not any(only):
        return "the same words in an order that carries the fact"
    for name, label in _DIFFERENCES:
        left, right = ([words[token] for token in side if classes[token] & BIT[name]] for side in only)
        if left or right:
            return f"{label}: {_sides(left, right)}"
    left, right = ([words[token] for token in side] for side in only)
    return f"words differ: {_sides(left, right)}"


def _sides(left: list[str], right: list[str]) -> str:
    if left and right:
        return f"{' '.join(left)} / {' '.join(right)}"
    return " ".join(left or right)


def _only(here: list[int], there: list[int]) -> list[int]:
    other = set(there)
    return [token for token in dict.fromkeys(here) if token not in other]


def _row(corpus: Corpus, row: int) -> list[int]:
    tokens: list[int] = corpus.tokens[corpus.token_offsets[row] : corpus.token_offsets[row + 1]].tolist()
    return tokens
