"""A plan as a person changed it: what stays after all and what goes after all, decided and gated again."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterable, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from memfold.errors import BadUsage
from memfold.frames import EDITS, REJECTED, SNAPSHOT
from memfold_flows import steps, text_files
from memfold_flows.runs import RunDirectory

#: reject: it stays, and so does all that would have merged into it; pin: it stays whatever happens; prune: it goes.
Decision = Literal["accept", "reject", "pin", "prune"]
DECISIONS: tuple[Decision, ...] = ("accept", "reject", "pin", "prune")

#: Each pair of a rejected cluster is remembered, so that its members do not find each other the next night.
LARGEST_REJECTED_CLUSTER = 200


def carry_over(first: RunDirectory, run: RunDirectory, decisions: Mapping[str, Decision]) -> Path:
    """Give a run the snapshot of an earlier one with a person's decisions on it; matching and deciding come after.

    Raises:
        PlanDamaged: a relation of the earlier run is missing or has changed.
        BadUsage: a decision that this plan has no place for, or a plan that was written already.
    """
    if first.wrote or first.read_json("receipt.json") is not None:
        undone = first.read_json("undo.json")
        if undone is not None and undone["is_whole"]:
            raise BadUsage(
                f"run {first.run_id} was applied and taken back; nothing was planned. Plan again, edit that."
            )
        raise BadUsage(
            f"run {first.run_id} was applied already; nothing was planned. To change what it did, take it back "
            f"(memfold undo {first.run_id}), plan again and edit that plan."
        )
    steps.carry_over(first, run, steps.policy_of(first))
    plan = _Plan(first)
    plan.check(decisions)
    edits = _together(first.read("edits"), decisions)
    run.write("edits", edits)
    run.write("rejected", _with_rejected(first.read("rejected"), plan.rejections(decisions)))
    kept = {row["memory_id"] for row in edits.to_pylist() if row["decision"] == "keep"}
    return run.write_snapshot(_pinned(first.read("snapshot"), kept))


def read_file(path: Path, run: RunDirectory) -> dict[str, Decision]:
    """The decisions of an exported plan that a person changed: in its column ``decision``, or by another ``action``.

    Raises:
        BadUsage: the file cannot be read, names a memory twice, or asks for what no person may decide.
    """
    planned = {row["memory_id"]: row for row in run.read("plan", ["memory_id", "action", "into_id"]).to_pylist()}
    decisions: dict[str, Decision] = {}
    for number, row in enumerate(_rows(path), start=1):
        where = f"{path}, row {number}"
        memory_id = str(row.get("id"))
        if memory_id not in planned:
            raise BadUsage(f"{where}: no memory {memory_id!r} in run {run.run_id}; nothing was planned")
        if memory_id in decisions:
            raise BadUsage(f"{where}: memory {memory_id!r} stands here twice; nothing was planned")
        decisions[memory_id] = _decision(row, planned[memory_id], where)
    return {memory_id: decision for memory_id, decision in decisions.items() if decision != "accept"}


class _Plan:
    """The actions of a plan, as an edit has to know them."""

    def __init__(self, run: RunDirectory) -> None:
        self.run_id = run.run_id
        columns = ["memory_id", "action", "into_id", "superseded_by", "reason"]
        self.rows = {row["memory_id"]: row for row in run.read("plan", columns).to_pylist()}
        fixed = run.read("snapshot", ["memory_id", "row_digest", "pinned", "protected"])
        self.digests = dict(zip(fixed["memory_id"].to_pylist(), fixed["row_digest"].to_pylist(), strict=True))
        is_fixed = pc.or_(fixed["pinned"], fixed["protected"])
        self.fixed = set(fixed.filter(is_fixed)["memory_id"].to_pylist())
        self.members: dict[str, list[str]] = {}
        for memory_id, row in self.rows.items():
            if row["action"] == "merge":
                self.members.setdefault(row["into_id"], []).append(memory_id)
        self.successors = {row["superseded_by"] for row in self.rows.values() if row["superseded_by"]}

    def check(self, decisions: Mapping[str, Decision]) -> None:
        """Refuse a decision that the plan has no place for."""
        for memory_id, decision in sorted(decisions.items()):
            if why := self._why_not(memory_id, decision):
                raise BadUsage(f"memory {memory_id!r} {why}; nothing was planned")

    def rejections(self, decisions: Mapping[str, Decision]) -> list[dict[str, Any]]:
        """What the store has to remember of these decisions, as rows of ``frames.REJECTED``."""
        found: list[dict[str, Any]] = []
        for memory_id, decision in sorted(decisions.items()):
            row = self.rows[memory_id]
            if decision == "prune":
                continue
            if row["action"] in ("prune", "promote"):
                found.append(self._rejection(memory_id, None))
            if row["action"] == "merge":
                cluster = {row["into_id"], *self.members[row["into_id"]]} - {memory_id}
                found += [self._rejection(memory_id, other) for other in sorted(cluster)]
            if decision == "reject" and memory_id in self.members:
                pairs = combinations([memory_id, *self.members[memory_id]], 2)
                found += [self._rejection(left, into) for into, left in pairs]
        return found

    def _rejection(self, memory_id: str, into_id: str | None) -> dict[str, Any]:
        into_digest = None if into_id is None else self.digests[into_id]
        return {
            "memory_id": memory_id,
            "into_id": into_id,
            "row_digest": self.digests[memory_id],
            "into_digest": into_digest,
        }

    def _why_not(self, memory_id: str, decision: Decision) -> str | None:
        row = self.rows.get(memory_id)
        if row is None:
            return f"is not in run {self.run_id}: memfold export {self.run_id} lists those that are"
        members = self.members.get(memory_id, [])
        if decision in ("reject", "pin") and row["reason"] == "expired":
            return "expired at the time that its owner gave it; to keep it, change its expires_at in the store"
        if decision == "reject" and row["action"] == "keep" and not members:
            return "stays already, and nothing goes into it; there is nothing to reject (--pin holds it in this plan)"
        if decision == "reject" and len(members) >= LARGEST_REJECTED_CLUSTER:
            return f"has a cluster of {len(members) + 1} memories, too many to take apart; reject them one by one"
        if decision == "prune":
            return self._why_no_prune(memory_id, row, members)
        return None

    def _why_no_prune(self, memory_id: str, row: Mapping[str, Any], members: Collection[str]) -> str | None:
        if row["action"] in ("merge", "prune"):
            return f"leaves already: {row['action']}, {row['reason']}"
        if memory_id in self.fixed:
            return "is pinned or protected, so it may not go"
        if members or memory_id in self.successors:
            return "stays for others that leave, so it may not go; reject those first, and edit the plan of that"
        return None


def _together(before: pa.Table, decisions: Mapping[str, Decision]) -> pa.Table:
    """The decisions of this edit over those of earlier ones."""
    spelled = {row["memory_id"]: row["decision"] for row in before.to_pylist()}
    spelled |= {memory_id: "prune" if said == "prune" else "keep" for memory_id, said in decisions.items()}
    rows = [{"memory_id": memory_id, "decision": decision} for memory_id, decision in sorted(spelled.items())]
    return pa.Table.from_pylist(rows, schema=EDITS)


def _with_rejected(before: pa.Table, rows: list[dict[str, Any]]) -> pa.Table:
    both = pa.concat_tables([before, pa.Table.from_pylist(rows, schema=REJECTED)])
    return both.group_by(REJECTED.names).aggregate([]).sort_by([(name, "ascending") for name in REJECTED.names])


def _pinned(snapshot: pa.Table, kept: Iterable[str]) -> pa.Table:
    """The snapshot with these memories pinned; their digests stay those of the store, where nothing is pinned."""
    is_kept = pc.is_in(snapshot["memory_id"], value_set=pa.array(sorted(kept), pa.string()))
    at = SNAPSHOT.get_field_index("pinned")
    return snapshot.set_column(at, SNAPSHOT.field(at), pc.or_(snapshot["pinned"], is_kept))


_NOT_DONE = "nothing was planned"
_SAID: dict[str, Decision] = {each: each for each in DECISIONS}


def _rows(path: Path) -> list[dict[str, Any]]:
    kind = path.suffix.lower()
    if kind not in (".csv", ".jsonl"):
        raise BadUsage(
            f"--from takes a .csv or a .jsonl file, got {path}; nothing was planned. Rename it to what it is."
        )
    if kind == ".jsonl":
        return [record for _, _, record in text_files.records(path, not_done=_NOT_DONE, error=BadUsage)]
    text = text_files.read(path, not_done=_NOT_DONE, error=BadUsage)
    try:
        return _with_ids(csv.DictReader(io.StringIO(text, newline="")), path)
    except csv.Error as error:
        raise BadUsage(f"{path} cannot be read as CSV ({error}); {_NOT_DONE}") from error


def _with_ids(rows: csv.DictReader[str], path: Path) -> list[dict[str, Any]]:
    if "id" not in (rows.fieldnames or ()):
        raise BadUsage(f"{path} has no column id; save it as CSV with commas between the columns. Nothing was planned")
    return list(rows)


def _decision(row: Mapping[str, Any], planned: Mapping[str, Any], where: str) -> Decision:
    """What a row of the file decides, by its ``decision``, else by how its action differs from the plan's."""
    action, into = row.get("action") or planned["action"], row.get("into") or None
    said = (row.get("decision") or "").strip()
    if said and said not in DECISIONS:
        raise BadUsage(f"{where}: decision must be one of {', '.join(DECISIONS)}, got {said!r}; nothing was planned")
    if action == planned["action"]:
        if into not in (None, planned["into_id"]):
            raise BadUsage(f"{where}: a plan takes no merges by hand, got into {into!r}; nothing was planned")
        return _SAID.get(said, "accept")
    if said not in ("", "accept"):
        raise BadUsage(f"{where}: both action and decision were changed; say it once. Nothing was planned")
    if action == "keep":
        return "reject"
    if action == "prune" and planned["action"] == "keep":
        return "prune"
    raise BadUsage(
        f"{where}: the plan says {planned['action']}, and a person may keep or remove what it moves, not {action!r}; "
        "nothing was planned"
    )
