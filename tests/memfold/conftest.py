"""Small stores for the specs of the plan: a handful of memories, what the matching found in them, and a policy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from memfold import frames, gate, models, rewrite
from memfold.memory import Memory
from memfold.policy import Policy

AS_OF = datetime(2026, 6, 1, tzinfo=UTC)

#: survivor id -> member id -> how it matches: "copy", ("same", jaccard) or ("contains", added words)
Clusters = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Decided:
    """The relations of one plan, with short ways to read them."""

    inputs: dict[str, pa.Table]
    relations: dict[str, pa.Table]
    policy: Policy

    def rows(self, relation: str) -> dict[str, dict[str, Any]]:
        """The rows of a relation by their grain."""
        table = self.relations[relation]
        return {row[table.schema.names[0]]: row for row in table.to_pylist()}

    @property
    def actions(self) -> dict[str, str]:
        """Action and reason per memory, and where it goes: "keep kept", "merge copy > ann"."""
        spelled = {}
        for memory_id, row in self.rows("plan").items():
            target = row["into_id"] or row["superseded_by"]
            spelled[memory_id] = f"{row['action']} {row['reason']}" + (f" > {target}" if target else "")
        return spelled

    def detail(self, memory_id: str) -> str:
        return self.rows("plan")[memory_id]["detail"]

    def tally(self, scope: str = "team") -> dict[str, Any]:
        return self.rows("tally")[scope]

    def judged(self, **options: Any) -> gate.Verdict:
        plan, tally = self.relations["plan"], self.relations["tally"]
        given = {"snapshot": self.inputs["snapshot"], "policy": self.policy, "now": AS_OF, **options}
        return gate.judge(given.pop("plan", plan), given.pop("tally", tally), **given)

    def rewritten(self, verdict: gate.Verdict | None = None) -> pa.Table:
        tally = (verdict or self.judged()).tally
        return rewrite.build(
            self.relations["plan"], tally, self.inputs["clusters"], self.inputs["snapshot"], self.policy
        )


@pytest.fixture(scope="session")
def memory() -> Callable[..., Memory]:
    """Make a memory of the scope ``team`` that was written in May 2026, unless told otherwise."""
    return make_memory


@pytest.fixture(scope="session")
def decide() -> Callable[..., Decided]:
    """Make the plan for some memories, with what the matching found in them."""
    return make_plan


@pytest.fixture(scope="session")
def after_apply() -> Callable[..., list[Memory]]:
    """What is in the store once a plan was written: a store in a few lines."""
    return fold_all


def make_memory(memory_id: str, content: str | None = None, **values: Any) -> Memory:
    given = {"scope": "team", "content": memory_id if content is None else content, "created_at": may(1), **values}
    return Memory(memory_id=memory_id, **given)


def make_plan(
    memories: Sequence[Memory],
    *,
    clusters: Clusters | None = None,
    pairs: Iterable[Mapping[str, Any]] = (),
    rejected: Iterable[tuple[Memory, Memory | None]] = (),
    losses: Mapping[str, int] | None = None,
    edits: Mapping[str, str] | None = None,
    sightings: Mapping[str, Mapping[int, str]] | None = None,
    **policy: Any,
) -> Decided:
    import duckdb

    chosen = Policy(**{"as_of": AS_OF, **policy})
    inputs = {
        "snapshot": snapshot_of(memories),
        "texts": pa.Table.from_pylist([_text(each) for each in memories], schema=frames.TEXTS),
        "pairs": pa.Table.from_pylist([_pair(**pair) for pair in pairs], schema=frames.PAIRS),
        "clusters": _clusters(clusters or {}),
        "sightings": _sightings(sightings or {}),
        "policy": chosen.as_table(),
        "losses": pa.Table.from_pylist(
            [{"scope": scope, "lost": lost} for scope, lost in (losses or {}).items()], schema=frames.LOSSES
        ),
        "rejected": pa.Table.from_pylist([_rejected(*each) for each in rejected], schema=frames.REJECTED),
        "rewrites": frames.REWRITES.empty_table(),
        "edits": pa.Table.from_pylist(
            [{"memory_id": memory_id, "decision": decision} for memory_id, decision in (edits or {}).items()],
            schema=frames.EDITS,
        ),
    }
    with duckdb.connect(config={"threads": 1}) as con:
        models.build(con, inputs)
        relations = {name: models.read(con, name) for name in models.RELATIONS}
    return Decided(inputs, relations, chosen)


def snapshot_of(memories: Sequence[Memory]) -> pa.Table:
    rows = [
        {**{field.name: getattr(each, field.name) for field in fields(Memory)}, "row_digest": each.row_digest}
        for each in memories
    ]
    return pa.Table.from_pylist(rows, schema=frames.SNAPSHOT)


def may(day: int, hour: int = 0) -> datetime:
    return datetime(2026, 5, day, hour, tzinfo=UTC)


def _text(each: Memory) -> dict[str, Any]:
    words = each.content.casefold().split()
    return {
        "memory_id": each.memory_id,
        "text_key": " ".join(words),
        "is_blank": not words,
        "says_day": "today" in words,
    }


def _pair(left: str, right: str, verdict: str, **values: Any) -> dict[str, Any]:
    row = {"left_id": left, "right_id": right, "scope": "team", "jaccard": 1.0, "verdict": verdict, "winner": None}
    return {**row, "reason": "", "only_left": [], "only_right": [], "held": None, **values}


def _clusters(clusters: Clusters) -> pa.Table:
    rows = []
    for number, survivor_id in enumerate(sorted(clusters)):
        row = {"cluster_id": number, "survivor_id": survivor_id, "jaccard": 1.0, "added_words": 0, "detail": ""}
        rows.append({**row, "memory_id": survivor_id, "match": "survivor"})
        for member_id, how in sorted(clusters[survivor_id].items()):
            match, figure = (how, 1) if isinstance(how, str) else how
            figures = {"jaccard": float(figure)} if match == "same" else {}
            added = {"added_words": figure} if match == "contains" else {}
            rows.append({**row, **figures, **added, "memory_id": member_id, "match": match})
    return pa.Table.from_pylist(rows, schema=frames.CLUSTERS)


def _sightings(sightings: Mapping[str, Mapping[int, str]]) -> pa.Table:
    """memory id -> batch -> "birth" or "again"."""
    rows = [
        {"memory_id": memory_id, "batch": batch, "is_birth": what == "birth"}
        for memory_id, batches in sorted(sightings.items())
        for batch, what in sorted(batches.items())
    ]
    return pa.Table.from_pylist(rows, schema=frames.SIGHTINGS)


def _rejected(memory: Memory, into: Memory | None) -> dict[str, Any]:
    return {
        "memory_id": memory.memory_id,
        "row_digest": memory.row_digest,
        "into_id": into.memory_id if into else None,
        "into_digest": into.row_digest if into else None,
    }


def fold_all(memories: Sequence[Memory], decided: Decided) -> list[Memory]:
    by_id = {each.memory_id: each for each in memories}
    plan = decided.rows("plan")
    stays = []
    for memory_id, row in plan.items():
        if row["action"] not in ("keep", "promote"):
            continue
        members = [by_id[other] for other, each in plan.items() if each["into_id"] == memory_id]
        folded = rewrite.fold(by_id[memory_id], members, session_recall=decided.policy.session_recall).memory
        stays.append(replace(folded, tier=decided.policy.promote_to) if row["action"] == "promote" else folded)
    return stays
