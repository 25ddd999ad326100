"""What a person should see of a run: the clusters, removals, held rows and near misses that matter most, as values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from memfold.evidence import found_of
from memfold_flows.runs import RunDirectory

Item = TypeVar("Item", covariant=True)  # noqa: PLC0105  (a section only hands items out)


@dataclass(frozen=True, slots=True)
class Shown:
    """One memory as it is shown. ``text`` is None where the run no longer keeps it."""

    memory_id: str
    scope: str
    text: str | None
    reason: str = ""
    detail: str = ""
    kind: str | None = None
    title: str | None = None


@dataclass(frozen=True, slots=True)
class ShownCluster:
    """A survivor and the first of the memories that fold into it; ``folded`` counts them all.

    ``new_text`` is the text that it is to have, where that is not its own.
    """

    survivor: Shown
    members: tuple[Shown, ...]
    folded: int
    new_text: str | None = None


@dataclass(frozen=True, slots=True)
class ShownPair:
    """Two memories that look alike and stay apart; ``newer`` is left, right or None.

    ``is_held``: they would merge, but for ``why``.
    """

    left: Shown
    right: Shown
    verdict: str
    why: str
    newer: str | None
    is_held: bool = False


@dataclass(frozen=True, slots=True)
class Section(Generic[Item]):
    """The first items of a kind, and how many of it the run keeps.

    ``left_out``: how many more there were, of which the run keeps only those nearest to a memory.
    """

    items: tuple[Item, ...]
    total: int
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class RunView:
    """What is worth looking at in a run, each part most important first."""

    clusters: Section[ShownCluster]
    pruned: Section[Shown]
    promoted: Section[Shown]
    held: Section[Shown]
    held_pairs: Section[ShownPair]
    conflicts: Section[ShownPair]
    near_misses: Section[ShownPair]
    waits: Section[Shown]
    #: What a person decided in this plan; the reason is pinned, rejected (what the plan had for it) or removed.
    decided: Section[Shown]


_MEMBERS_SHOWN = 4
_PLAN_COLUMNS = ("memory_id", "scope", "action", "into_id", "reason", "detail", "new_content")

# Rewordings before copies: what differs is what a person wants to check. Then the largest.
_CLUSTERS = """
select plan.into_id, count(*) as folded, any_value(stays.new_content) as new_text, count(*) over () as total
from plan
left join plan as stays on stays.memory_id = plan.into_id
where plan.action = 'merge'
group by plan.into_id
order by max(plan.reason <> 'copy') desc, folded desc, plan.into_id
limit $most
"""
_MEMBERS = """
select plan.into_id, plan.memory_id, plan.reason, plan.detail
from plan where plan.action = 'merge' and plan.into_id in (select unnest($survivors))
qualify row_number() over (partition by plan.into_id order by plan.reason = 'copy', plan.memory_id) <= $most
order by plan.into_id, plan.reason = 'copy', plan.memory_id
"""
_ROWS = """
select plan.memory_id, plan.reason, plan.detail, count(*) over () as total
from plan where {condition}
order by plan.reason in ('expired', 'blank'), plan.reason, plan.scope, plan.memory_id
limit $most
"""
_PAIRS = """
select pairs.left_id, pairs.right_id, pairs.verdict, coalesce(pairs.held, pairs.reason) as why, pairs.winner,
    pairs.held is not null as is_held, count(*) over () as total
from pairs
semi join plan as stays_left on stays_left.memory_id = pairs.left_id and stays_left.into_id is null
    and stays_left.action <> 'prune'
semi join plan as stays_right on stays_right.memory_id = pairs.right_id and stays_right.into_id is null
    and stays_right.action <> 'prune'
where {condition}
order by pairs.verdict = 'conflict', pairs.jaccard desc, pairs.left_id, pairs.right_id
limit $most
"""


_DECIDED = """
select plan.memory_id, plan.detail, count(*) over () as total,
    case when edits.decision = 'prune' then 'removed'
        when taken_back.memory_id is null then 'pinned'
        else 'rejected'
    end as reason
from edits
join plan using (memory_id)
left join (select distinct memory_id from rejected) as taken_back using (memory_id)
order by reason desc, plan.memory_id
limit $most
"""


def look(run: RunDirectory, *, most: int, most_members: int = _MEMBERS_SHOWN) -> RunView:
    """The parts of a run that a person should see, at most ``most`` items of each kind."""
    judged = run.read("pairs")
    with duckdb.connect() as con:
        con.register("plan", run.read("plan", _PLAN_COLUMNS))
        con.register("pairs", judged)
        for name in ("edits", "rejected"):
            con.register(name, run.read(name))
        rows = {name: _fetch(con, _ROWS.format(condition=condition), most=most) for name, condition in _KINDS_OF_ROW}
        pairs = {name: _fetch(con, _PAIRS.format(condition=condition), most=most) for name, condition in _KINDS_OF_PAIR}
        rows["decided"] = _fetch(con, _DECIDED, most=most)
        clusters = _fetch(con, _CLUSTERS, most=most)
        survivors = [cluster["into_id"] for cluster in clusters]
        members = _fetch(con, _MEMBERS, survivors=survivors, most=most_members) if survivors else []
    found = [*members, *(row for part in (*rows.values(), *pairs.values()) for row in part)]
    ids = {row[name] for row in found for name in ("memory_id", "into_id", "left_id", "right_id") if row.get(name)}
    memories = _Memories(run, ids)
    shown_rows = {name: _section([memories.shown(**row) for row in part], part) for name, part in rows.items()}
    left_out = _left_out(judged)
    shown_pairs = {
        name: _section([memories.pair(**row) for row in part], part, left_out.get(name, 0))
        for name, part in pairs.items()
    }
    members_of: dict[str, list[dict[str, Any]]] = {}
    for member in members:
        members_of.setdefault(member["into_id"], []).append(member)
    shown_clusters = [memories.cluster(cluster, members_of[cluster["into_id"]]) for cluster in clusters]
    return RunView(clusters=_section(shown_clusters, clusters), **shown_rows, **shown_pairs)  # type: ignore[arg-type]


_HELD_TWINS = "select unnest([left_id, right_id]) from pairs where held is not null"
_KINDS_OF_ROW = (
    ("pruned", "plan.action = 'prune'"),
    ("promoted", "plan.action = 'promote'"),
    # Those with a twin are shown beside it.
    ("held", f"plan.reason = 'held' and plan.memory_id not in ({_HELD_TWINS})"),
    ("waits", "plan.reason = 'waits'"),
)
_KINDS_OF_PAIR = (
    ("held_pairs", "pairs.held is not null"),
    ("conflicts", "pairs.held is null and pairs.verdict in ('conflict', 'supersedes')"),
    ("near_misses", "pairs.held is null and pairs.verdict = 'distinct'"),
)


class _Memories:
    """The texts of a few memories of a run, found in one read of the snapshot."""

    def __init__(self, run: RunDirectory, ids: set[str]) -> None:
        snapshot = run.read("snapshot", ["memory_id", "scope", "kind", "title", "content"])
        wanted = pc.is_in(snapshot["memory_id"], value_set=pa.array(sorted(ids), pa.string()))
        self._rows = {row["memory_id"]: row for row in snapshot.filter(wanted).to_pylist()}

    def shown(self, memory_id: str, *, reason: str = "", detail: str = "", **_: object) -> Shown:
        row = self._rows.get(memory_id)
        if row is None:
            return Shown(memory_id, "", None, reason, detail)
        title = row["title"] or ""
        return Shown(memory_id, row["scope"], row["content"] or title, reason, detail, row["kind"], title or None)

    def pair(
        self, *, left_id: str, right_id: str, verdict: str, why: str, winner: str | None, is_held: bool, **_: object
    ) -> ShownPair:
        return ShownPair(self.shown(left_id), self.shown(right_id), verdict, why, winner, is_held)

    def cluster(self, cluster: dict[str, Any], members: Sequence[dict[str, Any]]) -> ShownCluster:
        own = tuple(self.shown(**member) for member in members)
        return ShownCluster(self.shown(cluster["into_id"]), own, cluster["folded"], cluster["new_text"])


def _section(items: Sequence[Item], rows: Sequence[dict[str, Any]], left_out: int = 0) -> Section[Item]:
    return Section(tuple(items), rows[0]["total"] if rows else 0, left_out)


def _left_out(pairs: pa.Table) -> dict[str, int]:
    """How many conflicts and near misses were found, and are not among the pairs that a run keeps."""
    found = found_of(pairs)
    kept = Counter(pairs.filter(pc.is_null(pairs["held"]))["verdict"].to_pylist())
    names = {"conflicts": "conflict", "near_misses": "distinct"}
    return {name: max(found.get(verdict, 0) - kept[verdict], 0) for name, verdict in names.items()}


def _fetch(con: duckdb.DuckDBPyConnection, query: str, **parameters: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = con.sql(query, params=parameters).to_arrow_table().to_pylist()
    return rows
