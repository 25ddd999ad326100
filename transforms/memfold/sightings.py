"""Replay as evidence: which memories were told again in batches that no pass has consumed yet.

The entries of a batch are matched like memories, but they are none: nothing is folded into them, and nothing of them is
kept or removed. What counts for a memory is in how many batches it was told, the one that it was born in left out.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from memfold import candidates, frames, verdicts
from memfold.links import verdict_of
from memfold.policy import Policy
from memfold.rows import COLUMNS, Nodes, Rows, fold_copies, read_rows
from memfold.token_sets import token_sets

I64 = NDArray[np.int64]

#: An agent that distils a batch stores its memories in the same go. Of the batches that tell a memory the nearest to
#: its creation is its birth, unless that is further away than this.
BIRTH_WITHIN = timedelta(days=1)

# In the joint table an id says which side it is of.
_MEMORY, _ENTRY = "memory:", "entry:"


def find(snapshot: pa.Table, evidence: pa.Table, policy: Policy) -> pa.Table:
    """One row per memory and batch in which something is told that is same as it (``frames.SIGHTINGS``).

    The walls of evidence are scope and kind: a batch knows no tier, no trust and no session.
    """
    if evidence.num_rows == 0:
        return frames.SIGHTINGS.empty_table()
    of_scope = pc.is_in(snapshot["scope"], value_set=evidence["scope"].combine_chunks().unique())
    memories = snapshot.filter(of_scope)
    rows = read_rows(_joint(memories, evidence), frames.REJECTED.empty_table(), policy)
    pairs = _same(rows, fold_copies(rows, policy), policy)
    batch_of = dict(zip(evidence["memory_id"].to_pylist(), evidence["batch"].to_pylist(), strict=True))
    told_at = dict(zip(evidence["batch"].to_pylist(), evidence["created_at"].to_pylist(), strict=True))
    born_at = dict(zip(memories["memory_id"].to_pylist(), memories["created_at"].to_pylist(), strict=True))
    batches: dict[str, set[int]] = {}
    for memory_id, entry_id in pairs:
        batches.setdefault(memory_id, set()).add(batch_of[entry_id])
    found = [
        {"memory_id": memory_id, "batch": batch, "is_birth": batch == _birth(batches[memory_id], told_at, born)}
        for memory_id in sorted(batches)
        for born in [born_at[memory_id]]
        for batch in sorted(batches[memory_id])
    ]
    return pa.Table.from_pylist(found, schema=frames.SIGHTINGS)


def _joint(memories: pa.Table, evidence: pa.Table) -> pa.Table:
    """Memories and entries in one table of what matching looks at, with no walls but scope and kind."""
    unwalled = {name: pa.nulls(memories.num_rows, pa.string()) for name in ("trust", "tier", "session_id")}
    ours = memories.select(COLUMNS)
    for name, column in {**unwalled, "memory_id": _marked(_MEMORY, memories)}.items():
        ours = ours.set_column(ours.schema.get_field_index(name), name, column)
    count = evidence.num_rows
    values = {
        **{field.name: pa.nulls(count, field.type) for field in ours.schema},
        **{name: evidence[name] for name in ("scope", "kind", "title", "content", "created_at")},
        **{name: pa.array([False] * count) for name in ("pinned", "protected")},
        "memory_id": _marked(_ENTRY, evidence),
        "row_digest": pa.array([""] * count),
    }
    theirs = pa.table([values[name] for name in ours.schema.names], names=ours.schema.names)
    schema = pa.schema([pa.field(field.name, field.type) for field in ours.schema])
    return pa.concat_tables([ours.cast(schema), theirs.cast(schema)])


def _same(rows: Rows, nodes: Nodes, policy: Policy) -> list[tuple[str, str]]:
    """Pairs (memory id, entry id) of which one says the same as the other."""
    is_entry = pc.starts_with(rows.memory_id, _ENTRY).to_pylist()
    count = len(nodes.leader)
    members: list[tuple[list[int], list[int]]] = [([], []) for _ in range(count)]
    for row, node in enumerate(nodes.of_row.tolist()):
        if node >= 0:
            members[node][is_entry[row]].append(row)
    left, right = _same_nodes(rows, nodes, policy)
    linked = {(node, node) for node in range(count)}
    linked |= {pair for one, other in zip(left, right, strict=True) for pair in ((one, other), (other, one))}
    ids = rows.memory_id.to_pylist()
    return [
        (ids[memory].removeprefix(_MEMORY), ids[entry].removeprefix(_ENTRY))
        for one, other in sorted(linked)
        for memory in members[one][0]
        for entry in members[other][1]
    ]


def _same_nodes(rows: Rows, nodes: Nodes, policy: Policy) -> tuple[list[int], list[int]]:
    sets, set_of = token_sets(rows.corpus, rows.text[nodes.leader])
    proposed = candidates.propose(
        sets,
        np.arange(len(nodes.leader)),
        set_of=set_of,
        text_code=nodes.text_code,
        group_of=rows.wall[nodes.leader],
        policy=policy,
    )
    pairs: I64 = np.stack((proposed.left, proposed.right))
    same = verdict_of(rows, nodes, pairs).verdict == verdicts.SAME
    return pairs[0, same].tolist(), pairs[1, same].tolist()


def _birth(batches: set[int], told_at: dict[int, datetime], born: datetime | None) -> int | None:
    """The batch that a memory was born in; of a memory of unknown age, the first that tells it."""
    if born is None:
        return min(batches, key=lambda batch: (told_at[batch], batch))
    distance = {batch: abs(told_at[batch] - born) for batch in batches}
    nearest = min(batches, key=lambda batch: (distance[batch], batch))
    return nearest if distance[nearest] <= BIRTH_WITHIN else None


def _marked(mark: str, table: pa.Table) -> pa.ChunkedArray:
    return pc.binary_join_element_wise(mark, table["memory_id"], "")
