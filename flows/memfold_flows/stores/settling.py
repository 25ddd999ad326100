"""Settling: what of a unit can be applied to the rows as they stand now, and whether the loss still is in bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from memfold import gate
from memfold.memory import Memory
from memfold.policy import Policy
from memfold.rewrite import fold
from memfold_flows.stores.base import StoredRow, StoreTraits
from memfold_flows.stores.folded_fields import changed_fields, keep_to_places
from memfold_flows.stores.outcomes import Remark
from memfold_flows.stores.units import REMOVED_ROLES, PlannedRow, Unit


@dataclass(slots=True)
class Settled:
    """A unit as it can be applied now: rows that drifted are left out of it, with the reason."""

    unit: Unit
    rows: Mapping[str, StoredRow]
    removed: list[PlannedRow] = field(default_factory=list)
    promoted: list[PlannedRow] = field(default_factory=list)
    drifted: list[Remark] = field(default_factory=list)
    #: The survivor with the fields of the members that do fold; None where nothing of it changes.
    folded: Memory | None = None
    metadata_conflicts: tuple[str, ...] = ()
    fields_left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Losses:
    """What a run takes from one scope: ``entries`` is what the scope held before it took anything.

    ``lost`` is the figure in force: the strict one where the policy asks for it.
    """

    entries: int
    lost: int
    expired: int
    lost_recently: int


def settle(unit: Unit, rows: Mapping[str, StoredRow], traits: StoreTraits, policy: Policy) -> Settled:
    """Leave out what drifted: a survivor that drifted holds back its whole cluster, a member only itself."""
    settled = Settled(unit, rows)
    survivor = unit.survivor
    drifts = {row.memory_id: _drift(row, rows, policy) for row in unit.rows}
    survivor_drift = drifts[survivor.memory_id] if survivor else None
    for row in unit.rows:
        why = drifts[row.memory_id]
        if row.role == "member" and survivor_drift:
            why = f"was to go into {row.into_id!r}, which {survivor_drift}"
        if why:
            settled.drifted.append((row.memory_id, why))
        elif row.role in REMOVED_ROLES:
            settled.removed.append(row)
        elif row.promote_to and traits.promotes:
            settled.promoted.append(row)
        elif row.promote_to:
            settled.drifted.append((row.memory_id, "cannot move to another tier in this store"))
    if unit.new_content is not None and settled.drifted:
        # The text speaks for all of them as they were, so it lands for all or for none.
        why = "was to share one text with others, of which one has changed"
        settled.drifted += [(row.memory_id, why) for row in settled.removed]
        settled.removed = []
    if survivor and (members := [rows[row.memory_id].memory for row in settled.removed]):
        _fold(settled, rows[survivor.memory_id].memory, members, traits, policy)
    return settled


def rewritten(settled: Settled) -> int:
    """How many texts are lost because the survivor gets another one: 1 or 0."""
    return int(settled.unit.new_content is not None and settled.folded is not None)


def counts_as_lost(row: PlannedRow, policy: Policy) -> bool:
    """Whether a removed row counts for the loss limit; strict entries count every one."""
    return row.is_lost or policy.strict_entries


def why_refused(losses: Losses, policy: Policy) -> str | None:
    """The limits that the losses of a scope are above, as the gate says it; None where all are kept."""
    counts = gate.Counts(
        entries_before=max(losses.entries, losses.lost, losses.expired),
        expired=losses.expired,
        lost=losses.lost,
        lost_strict=losses.lost,
        lost_recently=losses.lost_recently,
    )
    failed = [check.says for check in gate.limits(counts, policy) if not check.passed]
    return f"as the rows stand now, {'; '.join(failed)}" if failed else None


def _drift(row: PlannedRow, rows: Mapping[str, StoredRow], policy: Policy) -> str | None:
    stored = rows.get(row.memory_id)
    if stored is None:
        return "is gone"
    memory = stored.memory
    if memory.row_digest != row.row_digest or memory.scope != row.scope:
        return "was changed since the snapshot"
    if row.role in REMOVED_ROLES and (memory.pinned or memory.protected):
        return "is pinned or protected"
    if row.superseded_by is not None and row.role == "prune" and row.superseded_by not in rows:
        return f"is superseded by {row.superseded_by!r}, which is gone"
    if row.reason in ("stale", "capacity") and _used_since(memory, policy, row.reason):
        return "was used since the snapshot"
    return None


def _used_since(memory: Memory, policy: Policy, reason: str) -> bool:
    # The digest leaves out what a recall changes; a memory that was to go because nobody recalls it needs that look.
    if memory.last_used_at is not None and memory.last_used_at > policy.as_of:
        return True
    limit = policy.stale_max_use_count if reason == "stale" else None
    return limit is not None and memory.use_count is not None and memory.use_count > limit


def _fold(settled: Settled, survivor: Memory, members: list[Memory], traits: StoreTraits, policy: Policy) -> None:
    new_content = settled.unit.new_content
    folded = fold(survivor, members, session_recall=policy.session_recall, new_content=new_content)
    after = keep_to_places(survivor, folded.memory, traits.places)
    settled.metadata_conflicts = folded.metadata_conflicts
    if after is not folded.memory:
        settled.fields_left_out = tuple(changed_fields(after, folded.memory))
    if after != survivor:
        settled.folded = after
