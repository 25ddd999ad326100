"""Clusters: groups in which every member is a verified match of the survivor."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from memfold import candidates, evidence, links, verdicts
from memfold.grouping import Grouping
from memfold.links import NOTHING_PROPOSED, Links, Proposed
from memfold.policy import Policy
from memfold.rows import Nodes, Rows, fold_copies, read_rows
from memfold.text import ReadTexts, Report, ignore, read_with_keys
from memfold.token_sets import token_sets

I64 = NDArray[np.int64]

#: Pairs that are judged at once: about 200 MB of work arrays.
PAIRS_AT_ONCE = 1_000_000


@dataclass(frozen=True, slots=True)
class Matches:
    """What matching found, each relation sorted by its grain (``frames.TEXTS``, ``PAIRS``, ``CLUSTERS``)."""

    texts: pa.Table
    pairs: pa.Table
    clusters: pa.Table


def match_rows(
    snapshot: pa.Table,
    rejected: pa.Table,
    policy: Policy,
    *,
    proposals: pa.Table | None = None,
    read_texts: ReadTexts = read_with_keys,
    report: Report = ignore,
) -> Matches:
    """Find, judge and group the memories of a snapshot that say the same.

    The order of the input does not matter, and what happens in one scope follows from its own memories alone.
    ``proposals`` (``frames.PROPOSALS``): what a model said of some pairs; the accepted ones are judged pairs as well.
    """
    rows = read_rows(snapshot, rejected, policy, read_texts=read_texts, report=report)
    report("comparing", 0, len(snapshot))
    nodes = fold_copies(rows, policy)
    proposed = NOTHING_PROPOSED if proposals is None else _proposed(rows, nodes, proposals)
    found, survivor_of = match(rows, nodes, policy, proposed)
    explained = evidence.explain(rows, nodes, found, policy)
    return Matches(
        texts=evidence.texts(rows),
        pairs=evidence.pairs(rows, nodes, explained),
        clusters=evidence.clusters(rows, nodes, explained, survivor_of),
    )


def match(rows: Rows, nodes: Nodes, policy: Policy, proposed: Proposed = NOTHING_PROPOSED) -> tuple[Links, I64]:
    """Judge candidates and group nodes until candidates among those that stay bring nothing new.

    Where a bucket held more rows than it has leaders, the nodes that stay are proposed again among themselves: a
    pass over what this pass leaves behind therefore finds nothing.
    """
    matcher = _Matcher(rows, nodes, policy, proposed)
    searches = [_Search(group_of) for group_of in _groupings(rows, nodes, policy)]
    while True:
        for search in searches:
            search.propose(matcher)
        survivor_of = matcher.group()
        staying = survivor_of == np.arange(len(survivor_of))
        for search in searches:
            search.reopen(staying)
        if not any(search.is_open for search in searches):
            return matcher.found(survivor_of), survivor_of


_WITH_COPIES_OF_ITS_OWN = "each would have to leave its own copies behind"
_BESIDE_A_REJECTED = "a person keeps it apart from a copy that went there"


class _Search:
    """The search for candidates within one kind of group, and which groups must be searched again."""

    def __init__(self, group_of: I64) -> None:
        self.group_of = group_of
        self.open_nodes = np.arange(len(group_of))
        self.searched = np.zeros(len(group_of), bool)
        self.is_shortened = np.zeros(group_of.max(initial=-1) + 1, bool)

    @property
    def is_open(self) -> bool:
        return len(self.open_nodes) > 0

    def propose(self, matcher: _Matcher) -> None:
        opened = np.zeros(len(self.is_shortened), bool)
        opened[self.group_of[self.open_nodes]] = True
        self.searched[opened[self.group_of]] = False
        self.searched[self.open_nodes] = True
        self.is_shortened[opened] = False
        self.is_shortened[matcher.propose(self.group_of, self.open_nodes)] = True

    def reopen(self, staying: NDArray[np.bool_]) -> None:
        """Open the groups in which other nodes stay than were searched, where that may show pairs not yet seen."""
        unseen = staying & ~self.searched
        left = self.searched & ~staying & self.is_shortened[self.group_of]
        again = np.zeros(len(self.is_shortened), bool)
        again[self.group_of[unseen | left]] = True
        self.open_nodes = np.flatnonzero(staying & again[self.group_of])


class _Matcher:
    """The pairs judged so far, and the grouping that follows from them."""

    def __init__(self, rows: Rows, nodes: Nodes, policy: Policy, proposed: Proposed) -> None:
        self.rows, self.nodes, self.policy, self.proposed = rows, nodes, policy, proposed
        self.sets, self.set_of = token_sets(rows.corpus, rows.text[nodes.leader])
        self.known = np.empty(0, np.int64)
        self.parts: list[Links] = []
        self.grouping = Grouping(_survivor_order(rows, nodes).tolist(), _kept_apart(rows, nodes))
        self._add(proposed.pairs, is_proposed=True)

    def propose(self, group_of: I64, open_nodes: I64) -> I64:
        """Judge the candidates among these nodes; returns the groups that may hold more."""
        proposals = candidates.propose(
            self.sets,
            open_nodes,
            set_of=self.set_of,
            text_code=self.nodes.text_code,
            group_of=group_of,
            policy=self.policy,
        )
        self._add(np.stack((proposals.left, proposals.right)), is_proposed=True)
        return proposals.shortened

    def group(self) -> I64:
        """The survivor of each node, once every pair that grouping asks for is judged."""
        while len(asked := self.grouping.regroup()):
            self._add(np.sort(asked, axis=1).T, is_proposed=False)
        return np.array(self.grouping.survivor_of, np.int64)

    def found(self, survivor_of: I64) -> Links:
        """All links; a pair that could merge but for what its survivor already holds is held."""
        found = links.joined(self.parts)
        stays = survivor_of == np.arange(len(survivor_of))
        left_over = found.is_open & stays[found.left] & stays[found.right]
        for at in np.flatnonzero(left_over).tolist():
            is_kept_apart = {found.left[at], found.right[at]} & self.grouping.apart.keys()
            found.held[at] = _BESIDE_A_REJECTED if is_kept_apart else _WITH_COPIES_OF_ITS_OWN
        found.left_takes[left_over] = found.right_takes[left_over] = False
        return found

    def _add(self, pairs: I64, *, is_proposed: bool) -> None:
        """Judge the pairs that are not judged yet."""
        count = max(len(self.nodes.leader), 1)
        packed = np.sort(pairs[0] * count + pairs[1])
        at = np.searchsorted(self.known, packed)
        packed = packed[np.append(self.known, -1)[at] != packed]
        self.known = np.insert(self.known, np.searchsorted(self.known, packed), packed)
        for some in np.array_split(packed, len(packed) // PAIRS_AT_ONCE + 1):
            new = np.stack(np.divmod(some, count))
            judged = links.judge(
                self.rows,
                self.nodes,
                self.policy,
                new,
                jaccard=self.sets.jaccard(*self.set_of[new]),
                is_proposed=np.full(len(some), is_proposed),
                proposed=self.proposed,
            )
            self.parts.append(judged)
            self.grouping.add(judged)


def _survivor_order(rows: Rows, nodes: Nodes) -> I64:
    """The place of each node among all. Copies that are nodes of their own stand together, the one to stay first."""
    place = rows.survivor_order[nodes.leader]
    best = np.full(nodes.copy_code.max(initial=-1) + 1, len(rows.text))
    np.minimum.at(best, nodes.copy_code, place)
    return np.argsort(np.lexsort((rows.copy_order[nodes.leader], best[nodes.copy_code])))


def _kept_apart(rows: Rows, nodes: Nodes) -> dict[int, set[int]]:
    """The nodes that a person keeps apart, each with the others."""
    apart: defaultdict[int, set[int]] = defaultdict(set)
    for left, right in nodes.of_row[rows.rejected].T.tolist():
        if left >= 0 and right >= 0:
            apart[left].add(right)
            apart[right].add(left)
    return dict(apart)


def _proposed(rows: Rows, nodes: Nodes, proposals: pa.Table) -> Proposed:
    """The accepted verdicts of a model, from memories to nodes; a pair behind different walls is none."""
    row_of = {memory_id: row for row, memory_id in enumerate(rows.memory_id.to_pylist())}
    said: dict[tuple[int, int], tuple[int, int]] = {}
    for proposal in proposals.to_pylist():
        if not proposal["accepted"] or proposal["verdict"] not in ("same", "contains", "conflict"):
            continue
        keeps = [memory_id == proposal["stays"] for memory_id in proposal["ids"]]
        one, other = (int(nodes.of_row[row_of[memory_id]]) for memory_id in proposal["ids"])
        if min(one, other) < 0 or one == other or rows.wall[nodes.leader[one]] != rows.wall[nodes.leader[other]]:
            continue
        stays = keeps if one < other else keeps[::-1]
        pair = min(one, other), max(one, other)
        said[pair] = verdicts.NAMES.index(proposal["verdict"]), 1 if stays[0] else 2 if stays[1] else 0
    pairs = sorted(said)
    return Proposed(
        np.array(pairs, np.int64).reshape(-1, 2).T,
        np.array([said[pair][0] for pair in pairs], np.int8),
        np.array([said[pair][1] for pair in pairs], np.int8),
    )


def _groupings(rows: Rows, nodes: Nodes, policy: Policy) -> list[I64]:
    """What candidates are looked for within: the walls; where sessions are walls too, first each session by itself."""
    wall = rows.wall[nodes.leader]
    if not policy.walls_off_sessions:
        return [wall]
    session = rows.session[nodes.leader]
    return [np.unique(np.stack((wall, session)), axis=1, return_inverse=True)[1].astype(np.int64), wall]
