"""What matching found, as relations: the texts, the judged pairs that a reader may want, and the clusters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from memfold import frames, links, verdicts
from memfold.candidates import among_nearest
from memfold.links import Links
from memfold.policy import Policy
from memfold.rows import Nodes, Rows

I64 = NDArray[np.int64]
Mask = NDArray[np.bool_]

#: A log of ten thousand lines that differ in one number holds millions of conflicts. Every mergeable, held and
#: superseding pair is kept; of the others, those nearest to one of their two memories.
CONFLICTS_PER_MEMORY = 3
NEAR_MISSES_PER_MEMORY = 1
NEAR_MISSES_PER_SCOPE = 50

#: Where the ``pairs`` relation says how many there were.
PAIRS_FOUND = b"memfold.pairs_found"

COPY_REASON = "nothing but case, spacing or punctuation differs"


@dataclass(frozen=True, slots=True)
class Explained:
    """The pairs worth reading, ordered by left and right, each with its reason and its differing words.

    ``found`` counts all conflicts and near misses, of which those nearest to a memory are kept.
    """

    links: Links
    reason: list[str]
    only_left: list[tuple[str, ...]]
    only_right: list[tuple[str, ...]]
    found: dict[str, int]


def texts(rows: Rows) -> pa.Table:
    """The ``texts`` relation: one row per memory, whether it takes part or not."""
    return pa.table(
        {
            "memory_id": rows.memory_id,
            "text_key": pa.array([rows.text_key[text] for text in rows.text.tolist()], pa.string()),
            "is_blank": pa.array(rows.is_blank[rows.text], pa.bool_()),
            "says_day": pa.array(rows.says_day[rows.text], pa.bool_()),
        },
        schema=frames.TEXTS,
    )


def explain(rows: Rows, nodes: Nodes, found: Links, policy: Policy) -> Explained:
    """Choose the pairs that a reader may want and put their verdicts into words."""
    asked = _conflicts_and_near_misses(found, policy)
    chosen = found.where(_is_worth_reading(rows, nodes, found, asked))
    chosen = chosen.where(np.lexsort((chosen.right, chosen.left)))
    judged = np.flatnonzero(~chosen.is_copy)
    bare = links.verdict_of(rows, nodes, np.stack((chosen.left, chosen.right))[:, judged])
    reason = [COPY_REASON] * len(chosen)
    only_left: list[tuple[str, ...]] = [()] * len(chosen)
    only_right: list[tuple[str, ...]] = [()] * len(chosen)
    for index, at in enumerate(judged.tolist()):
        words = verdicts.explain(rows.corpus, bare, index)
        reason[at], only_left[at], only_right[at] = words.reason, words.only_left, words.only_right
        if chosen.verdict[at] != bare.verdict[index]:
            reason[at] = f"a model says {verdicts.NAMES[chosen.verdict[at]]}; {words.reason}"
    counts = {verdicts.NAMES[verdict]: len(pairs) for verdict, pairs in asked.items()}
    return Explained(chosen, reason, only_left, only_right, counts)


def pairs(rows: Rows, nodes: Nodes, explained: Explained) -> pa.Table:
    """The ``pairs`` relation: the chosen pairs of nodes, and each exact copy with its leader.

    How many conflicts and near misses there were before some were chosen stands in the metadata of its schema.
    """
    part = np.flatnonzero(nodes.of_row >= 0)
    copies = part[nodes.leader[nodes.of_row[part]] != part]
    leaders = nodes.leader[nodes.of_row[copies]]
    chosen, extra = explained.links, len(copies)
    left = np.concatenate((nodes.leader[chosen.left], np.minimum(copies, leaders)))
    right = np.concatenate((nodes.leader[chosen.right], np.maximum(copies, leaders)))
    verdict = np.concatenate((chosen.verdict, np.full(extra, verdicts.SAME, np.int8)))
    winner = np.concatenate((chosen.winner, np.zeros(extra, np.int8)))
    table = pa.table(
        {
            "left_id": rows.memory_id.take(pa.array(left)),
            "right_id": rows.memory_id.take(pa.array(right)),
            "scope": rows.scope.take(pa.array(left)),
            "jaccard": np.concatenate((chosen.jaccard, np.ones(extra))),
            "verdict": pa.array([verdicts.NAMES[code] for code in verdict.tolist()], pa.string()),
            "winner": pa.array([(None, "left", "right")[side] for side in winner.tolist()], pa.string()),
            "reason": pa.array(explained.reason + [COPY_REASON] * extra, pa.string()),
            "only_left": pa.array(explained.only_left + [()] * extra, frames.WORDS),
            "only_right": pa.array(explained.only_right + [()] * extra, frames.WORDS),
            "held": pa.array([*chosen.held.tolist(), *[None] * extra], pa.string()),
        },
        schema=frames.PAIRS,
    )
    counts = json.dumps(explained.found, sort_keys=True).encode()
    return table.take(pa.array(np.lexsort((right, left)))).replace_schema_metadata({PAIRS_FOUND: counts})


def found_of(pairs: pa.Table) -> dict[str, int]:
    """How many conflicts and near misses (``distinct``) were found for this relation; empty where it does not say."""
    counts: dict[str, int] = json.loads((pairs.schema.metadata or {}).get(PAIRS_FOUND, b"{}"))
    return counts


def clusters(rows: Rows, nodes: Nodes, explained: Explained, survivor_of: I64) -> pa.Table:
    """The ``clusters`` relation: every memory that shares its survivor with another."""
    part = np.flatnonzero(nodes.of_row >= 0)
    node = nodes.of_row[part]
    survivor = survivor_of[node]
    shared = np.bincount(survivor, minlength=len(survivor_of))[survivor] > 1
    part, node, survivor = part[shared], node[shared], survivor[shared]
    chosen = explained.links
    count = max(len(nodes.leader), 1)
    place = np.searchsorted(
        chosen.left * count + chosen.right, np.minimum(node, survivor) * count + np.maximum(node, survivor)
    )
    leader = nodes.leader[survivor]
    match, jaccard, added, detail = [], [], [], []
    is_copy = nodes.copy_code[node] == nodes.copy_code[survivor]
    for row, stays, copies, at in zip(part.tolist(), leader.tolist(), is_copy.tolist(), place.tolist(), strict=True):
        judged = not copies
        match.append("survivor" if row == stays else verdicts.NAMES[chosen.verdict[at]] if judged else "copy")
        jaccard.append(float(chosen.jaccard[at]) if judged else 1.0)
        added.append(int(chosen.added[at]) if judged else 0)
        detail.append("" if row == stays else explained.reason[at] if judged else COPY_REASON)
    return pa.table(
        {
            "memory_id": rows.memory_id.take(pa.array(part)),
            "cluster_id": np.unique(leader, return_inverse=True)[1].astype(np.int64),
            "survivor_id": rows.memory_id.take(pa.array(leader)),
            "match": pa.array(match, pa.string()),
            "jaccard": pa.array(jaccard, pa.float64()),
            "added_words": pa.array(added, pa.int64()),
            "detail": pa.array(detail, pa.string()),
        },
        schema=frames.CLUSTERS,
    )


def _conflicts_and_near_misses(found: Links, policy: Policy) -> dict[int, I64]:
    """By verdict, the pairs that stay apart and were not looked at for the sake of a cluster only."""
    is_near = found.jaccard >= policy.min_jaccard
    return {
        verdicts.CONFLICT: np.flatnonzero((found.verdict == verdicts.CONFLICT) & found.is_proposed),
        verdicts.DISTINCT: np.flatnonzero((found.verdict == verdicts.DISTINCT) & found.is_proposed & is_near),
    }


def _is_worth_reading(rows: Rows, nodes: Nodes, found: Links, pairs: Mapping[int, I64]) -> Mask:
    keeps = np.isin(found.verdict, (verdicts.SAME, verdicts.CONTAINS, verdicts.SUPERSEDES))
    for verdict, count in ((verdicts.CONFLICT, CONFLICTS_PER_MEMORY), (verdicts.DISTINCT, NEAR_MISSES_PER_MEMORY)):
        asked = pairs[verdict]
        nearest_first = asked[np.lexsort((found.right[asked], found.left[asked], -found.jaccard[asked]))]
        near = nearest_first[among_nearest(np.stack((found.left, found.right))[:, nearest_first], count)]
        if verdict == verdicts.DISTINCT:
            scope = rows.scope.dictionary_encode().indices.to_numpy()[nodes.leader[found.left[near]]]
            near = near[_place_in_run(scope) < NEAR_MISSES_PER_SCOPE]
        keeps[near] = True
    return keeps


def _place_in_run(values: I64) -> I64:
    """0 for the first entry with its value, 1 for the second, and so on."""
    order = np.argsort(values, kind="stable")
    starts, counts = np.unique(values[order], return_index=True, return_counts=True)[1:]
    place = np.empty(len(values), np.int64)
    place[order] = np.arange(len(values)) - np.repeat(starts, counts)
    return place
