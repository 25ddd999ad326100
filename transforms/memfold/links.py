"""Judged pairs: the verdict on two memories, and which of them may take the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from memfold import verdicts
from memfold.policy import Policy
from memfold.rows import UNKNOWN, Nodes, Rows, days

I64 = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Links:
    """One entry per judged pair of nodes, left < right.

    ``left_takes``: the left one may stay for both. ``held``: why a mergeable pair may not merge in any direction.
    """

    left: I64
    right: I64
    jaccard: NDArray[np.float64]
    verdict: NDArray[np.int8]
    winner: NDArray[np.int8]
    added: NDArray[np.int32]
    is_copy: Mask
    is_proposed: Mask
    left_takes: Mask
    right_takes: Mask
    held: NDArray[np.object_]

    def __len__(self) -> int:
        return len(self.left)

    @property
    def is_open(self) -> Mask:
        """Pairs that may merge in at least one direction."""
        return self.left_takes | self.right_takes

    def where(self, chosen: Mask | I64) -> Links:
        """The chosen entries, in the order chosen."""
        return Links(*(getattr(self, field.name)[chosen] for field in fields(self)))


@dataclass(frozen=True, slots=True)
class Proposed:
    """What a model said of pairs of nodes that no check objects to, left < right, in the order of the pairs.

    It stands in place of a verdict that memfold was not sure of, and of no other.
    """

    pairs: I64  # (2, k)
    verdict: NDArray[np.int8]
    winner: NDArray[np.int8]

    def over(self, found: verdicts.Verdicts, pairs: I64, count: int) -> tuple[NDArray[np.int8], NDArray[np.int8]]:
        """The verdicts and winners on these pairs, with what was proposed for them in its place."""
        verdict, winner = found.verdict.copy(), found.winner.copy()
        if self.pairs.shape[1]:
            packed, asked = (each[0] * count + each[1] for each in (self.pairs, pairs))
            place = np.minimum(np.searchsorted(packed, asked), len(packed) - 1)
            is_unsure = (verdict == verdicts.DISTINCT) | (verdict == verdicts.CONFLICT)
            at = np.flatnonzero((packed[place] == asked) & is_unsure)
            verdict[at], winner[at] = self.verdict[place[at]], self.winner[place[at]]
        return verdict, winner


NOTHING_PROPOSED = Proposed(np.empty((2, 0), np.int64), np.empty(0, np.int8), np.empty(0, np.int8))


def joined(parts: Sequence[Links]) -> Links:
    """Several batches of links as one."""
    return Links(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(Links)))


def judge(
    rows: Rows,
    nodes: Nodes,
    policy: Policy,
    pairs: I64,
    *,
    jaccard: NDArray[np.float64],
    is_proposed: Mask,
    proposed: Proposed = NOTHING_PROPOSED,
) -> Links:
    """A verdict on each pair of nodes (2, k), and what keeps it from merging."""
    left, right = pairs
    found = verdict_of(rows, nodes, pairs)
    said, stays = proposed.over(found, pairs, len(nodes.leader))
    is_copy = nodes.copy_code[left] == nodes.copy_code[right]
    verdict = np.where(is_copy, verdicts.SAME, said).astype(np.int8)
    winner = np.where(is_copy, 0, stays).astype(np.int8)
    mergeable = (verdict == verdicts.SAME) | (verdict == verdicts.CONTAINS)
    held = _behind_walls(rows, nodes, policy, pairs[:, mergeable])
    held = dict(zip(np.flatnonzero(mergeable)[list(held)].tolist(), held.values(), strict=True))
    may_merge = mergeable.copy()
    may_merge[list(held)] = False
    takes = np.stack(
        [
            may_merge & ((verdict == verdicts.SAME) | (winner == side)) & ~rows.stays[nodes.leader[loser]]
            for side, loser in ((1, right), (2, left))
        ]
    )
    lost = _losses(rows, nodes, pairs, takes & ~is_copy)
    for side, at in lost:
        takes[side, at] = False
    for at in np.flatnonzero(may_merge & ~takes.any(axis=0)).tolist():
        reasons = [f"would lose: {', '.join(lost[side, at])}" for side in (0, 1) if (side, at) in lost]
        held[at] = min(reasons, key=len) if reasons else _why_both_stay(rows, nodes.leader[pairs[:, at]])
    return Links(
        left=left,
        right=right,
        jaccard=np.where(is_copy, 1.0, jaccard),
        verdict=verdict,
        winner=winner,
        added=np.where(is_copy, 0, found.added).astype(np.int32),
        is_copy=is_copy,
        is_proposed=is_proposed,
        left_takes=takes[0],
        right_takes=takes[1],
        held=np.array([held.get(at) for at in range(len(left))], object),
    )


def verdict_of(rows: Rows, nodes: Nodes, pairs: I64) -> verdicts.Verdicts:
    """The bare verdicts on pairs of nodes."""
    left, right = pairs
    said_left, said_right = nodes.latest[left], nodes.latest[right]
    known = (said_left != UNKNOWN) & (said_right != UNKNOWN)
    newer = np.where(known & (said_left > said_right), 1, np.where(known & (said_right > said_left), 2, 0))
    day_left, day_right = (days(rows.said_at[nodes.leader[side]]) for side in (left, right))
    return verdicts.judge(
        rows.corpus,
        rows.text[nodes.leader[left]].astype(np.int32),
        rows.text[nodes.leader[right]].astype(np.int32),
        newer=newer.astype(np.int8),
        same_day=(day_left == day_right) & (day_left != UNKNOWN),
    )


def _behind_walls(rows: Rows, nodes: Nodes, policy: Policy, pairs: I64) -> dict[int, str]:
    """Why mergeable pairs are held whichever side would stay, by position."""
    left, right = nodes.leader[pairs]
    held = dict.fromkeys(_titled_apart(rows, left, right), "their titles differ")
    held |= dict.fromkeys(np.flatnonzero(rows.validity[left] != rows.validity[right]).tolist(), "valid at other times")
    if policy.walls_off_sessions:
        apart = np.flatnonzero(rows.session[left] != rows.session[right])
        one, other = (rows.session_id.take(pa.array(side[apart])).to_pylist() for side in (left, right))
        for at, *sessions in zip(apart.tolist(), one, other, strict=True):
            held[at] = f"another session: {' / '.join(map(_named, sessions))}"
    count = len(rows.text)
    taken_back = np.isin(left * count + right, rows.rejected[0] * count + rows.rejected[1])
    held.update(dict.fromkeys(np.flatnonzero(taken_back).tolist(), "kept apart by a person"))
    return held


def _titled_apart(rows: Rows, left: I64, right: I64) -> list[int]:
    """Pairs with a title each that says another thing: what is said of staging is not said of production."""
    one, other = rows.title[left], rows.title[right]
    asked = np.flatnonzero((one >= 0) & (other >= 0) & (one != other))
    unknown = np.zeros(len(asked), np.int8)
    found = verdicts.judge(
        rows.corpus,
        one[asked].astype(np.int32),
        other[asked].astype(np.int32),
        newer=unknown,
        same_day=unknown.astype(np.bool_),
    )
    says_same = (found.verdict == verdicts.SAME) | (found.verdict == verdicts.CONTAINS)
    return [int(at) for at in asked[~says_same]]


def _losses(rows: Rows, nodes: Nodes, pairs: I64, takes: NDArray[np.bool_]) -> dict[tuple[int, int], tuple[str, ...]]:
    """The facts that would be lost, by (side that stays, position), for each direction that would lose any."""
    asked: dict[tuple[int, int, int, int], tuple[str, ...]] = {}
    leaders = nodes.leader[pairs]
    texts, titles = rows.text[leaders].tolist(), rows.title[leaders].tolist()
    lost = {}
    for side, at in np.argwhere(takes).tolist():
        kept, gone = (texts[side][at], titles[side][at]), (texts[1 - side][at], titles[1 - side][at])
        if (*gone, *kept) not in asked:
            asked[*gone, *kept] = verdicts.would_lose(rows.corpus, _given(gone), _given(kept))
        if facts := asked[*gone, *kept]:
            lost[side, at] = facts
    return lost


def _given(texts: tuple[int, int]) -> list[int]:
    return [text for text in texts if text >= 0]


def _why_both_stay(rows: Rows, pair: I64) -> str:
    reasons = {"pinned" if rows.pinned[row] else "protected" for row in pair if rows.stays[row]}
    return f"{' and '.join(sorted(reasons))}: both stay"


def _named(session: str | None) -> str:
    return "none" if session is None else session
