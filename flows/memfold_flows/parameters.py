"""The parameters of the flows: what Prefect's run form shows, each with its meaning and its bounds."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from memfold_flows.settings import WhenToAsk

#: The highest loss limit that an operator may set when approving a plan.
HIGHEST_APPROVED_LIMIT = 0.5


class Thresholds(BaseModel):
    """Thresholds of a pass; one that is left out is taken from the worker's environment or memfold.yaml."""

    model_config = ConfigDict(extra="forbid")

    max_loss_fraction: float | None = Field(
        default=None, ge=0, le=1, description="Share of a scope's memories that a pass may lose (0.25)."
    )
    on_excess: Literal["reject", "fit"] | None = Field(
        default=None,
        description="Over that limit: reject writes nothing of the scope, fit stops at the limit (reject).",
    )
    strict_entries: bool | None = Field(
        default=None, description="Count exact copies and expired memories as lost too (no)."
    )
    max_lost_rows: int | None = Field(
        default=None, ge=0, description="Most memories that a scope may lose, whatever their share (no bound)."
    )
    max_rolling_loss_fraction: float | None = Field(
        default=None, ge=0, le=1, description="Share that a scope may lose over 30 days, all passes together (0.5)."
    )
    max_expired_fraction: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Share of a scope that may have expired before it looks like a mistake (0.5).",
    )
    supersede: Literal["report", "archive"] | None = Field(
        default=None, description="What becomes of a memory that a newer one replaces: report or archive it (report)."
    )
    across_sessions: bool | None = Field(
        default=None, description="Fold twins of two sessions where the store recalls by session (no)."
    )
    stale_min_age_days: float | None = Field(
        default=None, ge=0, description="Prune memories at least this old, if the other stale thresholds hold too."
    )
    stale_min_idle_days: float | None = Field(
        default=None, ge=0, description="Prune memories not used for this long, if the others hold too."
    )
    stale_max_use_count: int | None = Field(
        default=None, ge=0, description="Prune memories used at most this often, if the others hold too."
    )
    stale_max_importance: float | None = Field(
        default=None, description="Prune memories of at most this importance, if the others hold too."
    )
    stale_kinds: list[str] | None = Field(default=None, description="Only memories of these kinds can be stale.")
    promote_min_sessions: int | None = Field(
        default=None, ge=1, description="Promote memories seen in at least this many sessions."
    )
    promote_min_use_count: int | None = Field(
        default=None, ge=1, description="Promote memories used at least this often."
    )
    promote_min_age_days: float | None = Field(default=None, ge=0, description="Promote memories at least this old.")
    promote_min_evidence: int | None = Field(
        default=None, ge=1, description="Promote memories that this many replay batches tell again."
    )
    max_memories: int | None = Field(
        default=None, ge=1, description="Most memories of a scope; above it those with the lowest score go (no bound)."
    )
    newborn_grace_days: float | None = Field(default=None, ge=0, description="None of them younger than this goes (3).")
    preset: Literal["evo"] | None = Field(
        default=None,
        description="Settings of a system where none is set here: evo keeps at most 200 memories a scope, and fits.",
    )

    def given(self) -> dict[str, Any]:
        """The thresholds that were given, as ``settings.load`` takes them."""
        return self.model_dump(exclude_none=True)


class Approval(BaseModel):
    """Whether a person looks at a plan before it is written; what is left out is taken from memfold.yaml."""

    model_config = ConfigDict(extra="forbid")

    when: WhenToAsk | None = Field(
        default=None,
        description="never: the gate alone decides. on_warning: ask when a scope is refused or loses more than half of "
        "what it may. always: ask before anything is written. (never)",
    )
    wait_hours: float | None = Field(
        default=None, gt=0, le=168, description="Hours to wait for an answer; without one, nothing is written (12)."
    )

    def given(self) -> dict[str, Any]:
        """What was given, as ``settings.load`` takes it."""
        return {f"approval_{name}": value for name, value in self.model_dump(exclude_none=True).items()}


class Timing(BaseModel):
    """When a scope is due; what is left out is taken from the worker's environment or memfold.yaml."""

    model_config = ConfigDict(extra="forbid")

    consolidate_interval_hours: float | None = Field(
        default=None, gt=0, le=8760, description="Hours between two passes over a scope (24)."
    )
    converged_min_interval_hours: float | None = Field(
        default=None, gt=0, le=8760, description="Hours between passes once a pass finds nothing left to do (72)."
    )
    backlog_threshold: int | None = Field(
        default=None, ge=1, description="Memories written since the last pass that make a scope due before its time."
    )
    all_scopes: bool = Field(default=False, description="Take every scope, due or not.")

    def given(self) -> dict[str, Any]:
        """What was given, as ``settings.load`` takes it."""
        return self.model_dump(exclude_none=True, exclude={"all_scopes"})


class Runner(BaseModel):
    """Where the shards of a backfill are worked on; the result is the same everywhere."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["threads", "dask", "ray"] = Field(
        default="threads", description="threads of this process, or a Dask or Ray cluster."
    )
    workers: int = Field(default=2, ge=1, le=256, description="Shards worked on at a time, without an address.")
    address: str | None = Field(
        default=None, description="A cluster that runs already, such as tcp://scheduler:8786; it needs the same files."
    )
