"""A plan in full, for ``--json``: every cluster, removal, promotion, held pair, conflict and near miss, and the checks.

Ids and reasons only; the texts of memories are not among them.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from memfold import gate
from memfold.evidence import found_of
from memfold_flows import steps
from memfold_flows.receipts import PlanReport
from memfold_flows.runs import RunDirectory

_PLAN = ("memory_id", "scope", "action", "into_id", "superseded_by", "reason", "detail")
_PAIRS = ("left_id", "right_id", "scope", "verdict", "winner", "reason", "held", "jaccard")


def plan_as_json(run: RunDirectory, report: PlanReport) -> dict[str, Any]:
    """What a plan comes to, with everything that is in it."""
    rows = run.read("plan", _PLAN)
    pairs = run.read("pairs")
    found = found_of(pairs)
    apart = _staying(pairs.select(_PAIRS), rows)
    conflicts = _where(apart, "verdict", "conflict", "supersedes")
    near_misses = _where(apart, "verdict", "distinct")
    return {
        **report.as_json(),
        "clusters": _clusters(rows),
        "removals": _rows(_where(rows, "action", "prune"), "superseded_by", "reason", "detail"),
        "promotions": _rows(_where(rows, "action", "promote"), "detail"),
        "held_back": [
            {"memory_id": row["memory_id"], "scope": row["scope"], "why": row["detail"]}
            for row in _where(rows, "reason", "held").to_pylist()
        ],
        "waiting": _rows(_where(rows, "reason", "waits"), "detail"),
        "twins_apart": _pairs(apart.filter(pc.is_valid(apart["held"])), why="held"),
        "conflicts": _pairs(conflicts.filter(pc.is_null(conflicts["held"])), why="reason"),
        "conflicts_found": found.get("conflict"),
        "near_misses": _pairs(near_misses, why="reason"),
        "near_misses_found": found.get("distinct"),
        "checks": _checks(run),
    }


def _clusters(plan: pa.Table) -> list[dict[str, Any]]:
    members: dict[str, list[dict[str, Any]]] = defaultdict(list)
    scopes: dict[str, str] = {}
    for row in _where(plan, "action", "merge").to_pylist():
        members[row["into_id"]].append({name: row[name] for name in ("memory_id", "reason", "detail")})
        scopes[row["into_id"]] = row["scope"]
    return [
        {"survivor": survivor, "scope": scopes[survivor], "members": rows} for survivor, rows in sorted(members.items())
    ]


def _checks(run: RunDirectory) -> list[dict[str, Any]]:
    """What the gate asked of each scope, and its answers; of a run whose snapshot is gone, what it refused."""
    tally = run.read("tally")
    if run.manifest.snapshot_trimmed:
        refused = ((row["scope"], says) for row in tally.to_pylist() for says in row["refused"])
        return [{"scope": scope, "name": None, "passed": False, "says": says} for scope, says in refused]
    held_before = [row["scope"] for row in tally.to_pylist() if not (row["accepted"] or row["entries_before"])]
    verdict = gate.judge(
        run.read("plan"),
        tally,
        snapshot=run.read("snapshot"),
        policy=steps.policy_of(run),
        now=run.manifest.created,
        held_before=held_before,
        rejected=run.read("rejected"),
    )
    return [{"scope": scope.scope, **asdict(check)} for scope in verdict.scopes for check in scope.checks]


def _staying(pairs: pa.Table, plan: pa.Table) -> pa.Table:
    """The pairs of which both memories stay."""
    leaving = pc.or_(pc.equal(plan["action"], "prune"), pc.is_valid(plan["into_id"]))
    ids = plan.filter(pc.invert(leaving))["memory_id"].combine_chunks()
    both = pc.and_(pc.is_in(pairs["left_id"], value_set=ids), pc.is_in(pairs["right_id"], value_set=ids))
    return pairs.filter(both)


def _pairs(pairs: pa.Table, *, why: str) -> list[dict[str, Any]]:
    newer = {"left": "left_id", "right": "right_id"}
    return [
        {
            "left": row["left_id"],
            "right": row["right_id"],
            "scope": row["scope"],
            "verdict": row["verdict"],
            "why": row[why],
            "newer": row[newer[row["winner"]]] if row["winner"] and row["verdict"] != "contains" else None,
            "jaccard": row["jaccard"],
        }
        for row in pairs.to_pylist()
    ]


def _where(rows: pa.Table, column: str, *values: str) -> pa.Table:
    return rows.filter(pc.is_in(rows[column], value_set=pa.array(values, pa.string())))


def _rows(rows: pa.Table, *columns: str) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = rows.select(["memory_id", "scope", *columns]).to_pylist()
    return told
