"""From an accepted plan to the exact changes: which rows land together, and what a survivor takes from its members."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeVar

import pyarrow as pa

from memfold.frames import REWRITE
from memfold.memory import Memory, canonical_json
from memfold.policy import Policy, SessionRecall

_LARGEST_COUNT = 2**63 - 1

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Folded:
    """A survivor with what it took from its members, and the metadata keys in which they differ and it kept its own."""

    memory: Memory
    metadata_conflicts: tuple[str, ...]


def build(plan: pa.Table, tally: pa.Table, clusters: pa.Table, snapshot: pa.Table, policy: Policy) -> pa.Table:
    """The changes of the scopes that the gate accepted, in units that land together, by unit and memory id.

    A unit is a survivor with all that goes into it, a memory that goes with its cluster, or one memory alone.
    """
    import polars as pl

    accepted = pl.DataFrame(tally.select(["scope", "accepted"])).filter("accepted").select("scope")
    planned = pl.DataFrame(plan).join(accepted, on="scope", how="semi")
    targets = planned.filter(pl.col("action") == "merge").select(memory_id="into_id").unique()
    is_target = pl.col("memory_id").is_in(targets["memory_id"].implode())
    is_pruned_as_cluster = pl.col("reason").is_in(["stale", "superseded", "capacity", "by hand"])
    homes = pl.DataFrame(clusters.select(["memory_id", "survivor_id"]))
    rows = (
        planned.filter((pl.col("action") != "keep") | is_target)
        .join(homes, on="memory_id", how="left")
        .with_columns(
            lead=pl.when(pl.col("action") == "merge")
            .then("into_id")
            .when((pl.col("action") == "prune") & is_pruned_as_cluster)
            .then(pl.coalesce("survivor_id", "memory_id"))
            .otherwise("memory_id"),
            role=pl.when(is_target)
            .then(pl.lit("survivor"))
            .otherwise(pl.col("action").replace_strict({"merge": "member", "prune": "prune", "promote": "promote"})),
            promote_to=pl.when(pl.col("action") == "promote").then(pl.lit(policy.promote_to)),
            is_lost=pl.col("is_lost_strict" if policy.strict_entries else "is_lost"),
        )
        .join(pl.DataFrame(snapshot.select(["memory_id", "row_digest"])), on="memory_id")
    )
    units = rows.select("scope", "lead").unique().sort("scope", "lead").with_row_index("unit_id")
    numbered = rows.join(units, on=["scope", "lead"]).sort("unit_id", "memory_id")
    return numbered.select(REWRITE.names).to_arrow().cast(REWRITE)


def fold(
    survivor: Memory, members: Sequence[Memory], *, session_recall: SessionRecall, new_content: str | None = None
) -> Folded:
    """The survivor with what it takes from the members that go into it; its text stays, to the letter.

    Unless there is a ``new_content`` for all of them, which then is its text.

    The order of the members makes no difference. ``session_recall`` is how the store recalls by session: where a null
    session means every session, a merge across sessions makes it null.
    """
    if not members:
        return Folded(survivor, ())
    rows = [survivor, *sorted(members, key=lambda member: member.memory_id)]
    metadata, conflicts = _fold_metadata(rows)
    is_across_sessions = len({row.session_id for row in rows}) > 1
    memory = replace(
        survivor,
        content=survivor.content if new_content is None else new_content,
        tags=_union(row.tags for row in rows),
        session_id=None if session_recall == "null_is_all" and is_across_sessions else survivor.session_id,
        sessions=_union((*row.sessions, *_known([row.session_id])) for row in rows),
        importance=_of_known(max, [row.importance for row in rows]),
        confidence=_of_known(max, [row.confidence for row in rows]),
        use_count=_of_known(_sum, [row.use_count for row in rows]),
        created_at=_of_known(min, [row.created_at for row in rows]),
        updated_at=_of_known(max, [row.updated_at for row in rows]),
        last_used_at=_of_known(max, [row.last_used_at for row in rows]),
        expires_at=_latest_expiry(rows),
        links=_fold_links(rows),
        metadata=metadata,
    )
    return Folded(memory, conflicts)


def _sum(counts: list[int]) -> int:
    return min(sum(counts), _LARGEST_COUNT)


def _known(values: Iterable[Value | None]) -> list[Value]:
    return [value for value in values if value is not None]


def _of_known(choose: Callable[[list[Value]], Value], values: Iterable[Value | None]) -> Value | None:
    known = _known(values)
    return choose(known) if known else None


def _latest_expiry(rows: Sequence[Memory]) -> datetime | None:
    """The last expiry of all; one that never expires makes the memory one that never expires."""
    known = _known([row.expires_at for row in rows])
    return max(known) if len(known) == len(rows) else None


def _union(groups: Iterable[Iterable[str]]) -> tuple[str, ...]:
    """Every value once, in the order in which it first comes."""
    return tuple(dict.fromkeys(value for group in groups for value in group))


def _fold_links(rows: Sequence[Memory]) -> tuple[str, ...]:
    """The links of all rows, but none among themselves: it would point from the survivor to the survivor."""
    inner = {row.memory_id for row in rows}
    added = _union(row.links for row in rows)
    return tuple(link for link in added if link not in inner)


def _fold_metadata(rows: Sequence[Memory]) -> tuple[str | None, tuple[str, ...]]:
    """The survivor's metadata text with the keys that it lacks, and the keys on which a member differs from it.

    Only JSON objects fold. The survivor's own text stays to the letter; new keys are put behind it.
    """
    survivor, *members = rows
    own = _json_object(survivor.metadata)
    taken: dict[str, Any] = {}
    conflicts = set()
    for member in members:
        offered = _json_object(member.metadata)
        if canonical_json(member.metadata) == canonical_json(survivor.metadata):
            continue
        if own is None or offered is None:
            conflicts.add("metadata")
            continue
        for key, value in offered.items():
            held = own if key in own else taken
            if _spelled(held.setdefault(key, value)) != _spelled(value):
                conflicts.add(key)
    return _with_keys(survivor.metadata, taken), tuple(sorted(conflicts))


def _json_object(text: str | None) -> dict[str, Any] | None:
    """The JSON object that this text spells, an empty one for no text, None for anything else."""
    if not text:
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _with_keys(text: str | None, added: dict[str, Any]) -> str | None:
    """The text of a JSON object with these keys put behind its own, which stay as they are spelled."""
    if not added:
        return text
    try:
        spelled = json.dumps(added, ensure_ascii=False)
        spelled.encode("utf-8")
    except UnicodeEncodeError:  # half a surrogate pair has no UTF-8, but JSON has an escape for it
        spelled = json.dumps(added)
    head = (text or "{}").rstrip()[:-1].rstrip()
    separator = "" if head.endswith("{") else ", "
    return f"{head}{separator}{spelled[1:]}"


def _spelled(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
