"""What a pass leaves behind beside the data: the state of each scope, refusals, replay batches marked consumed."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from memfold import convergence
from memfold.convergence import Refusal, ScopeState
from memfold.frames import SNAPSHOT
from memfold_flows.runs import RunDirectory
from memfold_flows.stores.base import ApplyReport, Ledger, MemoryStore, Rejection
from memfold_flows.stores.units import REMOVED_ROLES

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What came of one scope. ``refused`` is empty where the pass landed or had nothing to do."""

    scope: str
    refused: str
    #: What the scope held, from its row digests.
    fingerprint: str
    #: The same by the system's own rule, before the pass and after.
    digest_before: str
    digest_after: str
    #: Something that was planned drifted, and is still to be done.
    is_left_over: bool

    def state(self, before: ScopeState, now: datetime) -> ScopeState:
        """The state that this pass leaves, given the one before."""
        if self.refused:
            return before.after_refusal(Refusal(at=now, why=self.refused, digest=self.fingerprint))
        return before.after_pass(
            digest_before=self.digest_before,
            digest_after=self.digest_after,
            is_left_over=self.is_left_over,
            now=now,
        )


def note(store: MemoryStore, run: RunDirectory, report: ApplyReport, clock: Callable[[], datetime]) -> None:
    """Remember what came of each scope, and mark the replay batches of those that landed or had nothing to do.

    A scope is noted once for a run. An archive that stays as it is keeps no notes: they would stand beside a file that
    nobody asked to touch.
    """
    if run.manifest.snapshot_trimmed or not getattr(store, "keeps_notes", True):
        return
    notes = _notes(store, run, report)
    if not notes:
        return
    with store.transaction() as transaction:
        _write(transaction.ledger, run, notes, clock())


def _write(ledger: Ledger, run: RunDirectory, notes: Collection[Note], now: datetime) -> None:
    if run.read("edits").num_rows:
        ledger.reject([Rejection(**row) for row in run.read("rejected").to_pylist()])
    new = [each for each in notes if ledger.noted_by(each.scope) != run.run_id]
    for each in new:
        ledger.note_state(run.run_id, each.scope, each.state(ledger.state(each.scope), now))
    done = {each.scope for each in new if not each.refused}
    ledger.consume_replay([batch["batch"] for batch in run.read("replay").to_pylist() if batch["scope"] in done])


def _notes(store: MemoryStore, run: RunDirectory, report: ApplyReport) -> list[Note]:
    tally = run.read("tally", ["scope", "refused"])
    refused = {row["scope"]: "; ".join(row["refused"]) for row in tally.to_pylist()} | report.scopes_refused
    left_over = {drift.scope for drift in report.drifted}
    memories = _memories(run, report)
    fingerprints = _fingerprints(memories, "row_digest")
    if store.traits.digests_titles:
        before = convergence.digests(run.read("snapshot"))
        changed = set(report.scopes_applied)
        after = before | (convergence.digests(_read_again(store, changed)) if changed else {})
    else:
        before = fingerprints
        after = _fingerprints(memories.filter("stays"), "digest_after")
    nothing = convergence.fingerprint([])
    return [
        Note(
            scope=scope,
            refused=why,
            fingerprint=fingerprints.get(scope, nothing),
            digest_before=before.get(scope, nothing),
            digest_after=after.get(scope, nothing),
            is_left_over=scope in left_over,
        )
        for scope, why in sorted(refused.items())
    ]


def _memories(run: RunDirectory, report: ApplyReport) -> pl.DataFrame:
    """The memories of the snapshot: whether each still stands, and its digest with the tier that it stands in now."""
    import polars as pl

    snapshot = pl.DataFrame(run.read("snapshot", ["memory_id", "scope", "row_digest"]))
    drifted = [drift.memory_id for drift in report.drifted]
    landed = pl.DataFrame(run.read("rewrite", ["memory_id", "scope", "role", "promote_to"])).filter(
        ~pl.col("scope").is_in(sorted(report.scopes_refused)) & ~pl.col("memory_id").is_in(drifted)
    )
    return snapshot.join(landed.drop("scope"), on="memory_id", how="left").with_columns(
        stays=~pl.col("role").is_in(REMOVED_ROLES).fill_null(False),
        digest_after=pl.concat_str("row_digest", pl.col("promote_to").fill_null("")),
    )


def _fingerprints(memories: pl.DataFrame, digest: str) -> dict[str, str]:
    groups = memories.group_by("scope").agg(digest)
    return {scope: convergence.fingerprint(digests) for scope, digests in groups.iter_rows()}


def _read_again(store: MemoryStore, scopes: Collection[str]) -> pa.Table:
    return pa.Table.from_batches(store.snapshot(scopes), schema=SNAPSHOT)
