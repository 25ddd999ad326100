"""The steps of a pass. Each reads relations of the run directory, calls one part of memfold, and writes relations."""

from __future__ import annotations

import glob
import logging
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from memfold import convergence, frames, gate, models
from memfold.errors import ApplyInterrupted, BadUsage, MemfoldError, PlanDamaged
from memfold.policy import Policy
from memfold_flows import changes as feed
from memfold_flows import intake, progress, replay, settings, summaries
from memfold_flows import scopes as scope_names
from memfold_flows.files import PRIVATE_FILE, PRIVATE_FOLDER, write_bytes
from memfold_flows.manifests import Manifest, RelationFile
from memfold_flows.proposer.options import ProposerOptions
from memfold_flows.proposer.report import ModelReport
from memfold_flows.receipts import (
    LossLimit,
    PlanReport,
    Receipt,
    State,
    UndoReceipt,
    changed_rows,
    read_tally,
    settled,
    state_of,
)
from memfold_flows.runs import RunDirectory
from memfold_flows.stores.base import ApplyReport, Drift, Landed, MemoryStore, RunRef, Step
from memfold_flows.stores.outcomes import interrupted
from memfold_flows.stores.undo_units import EVERYTHING, Selection
from memfold_flows.streams import count

logger = logging.getLogger(__name__)

Clock = Callable[[], datetime]

#: The plans that this process judged itself, by the hashes of their files: there is no need to judge them twice.
_sealed_here: set[tuple[RelationFile, ...]] = set()

_HELD_BACK_NAMED = 100
_SCOPES_NAMED_TO_A_STORE = 1000


def take_snapshot(store: MemoryStore, run: RunDirectory, policy: Policy, scopes: Collection[str] | None) -> Path:
    """Read every memory in scope into the run directory, beside the policy and what the store knows of earlier runs.

    Raises:
        BadUsage: a scope that no memory has.
        BadRecord: the store holds a memory that cannot be read.
    """
    snapshot = intake.read_snapshot(progress.counted("reading", _batches(store, scopes)))
    if scopes is not None:
        _require_scopes(store, asked=scopes, found=set(snapshot["scope"].unique().to_pylist()))
    with store.ledger() as ledger:
        lost = ledger.losses(policy.as_of - timedelta(days=policy.rolling_days)) if ledger else {}
        rejected = ledger.rejected() if ledger else frames.REJECTED.empty_table()
        batches = ledger.replay(set(snapshot["scope"].unique().to_pylist())) if ledger else []
    losses = [{"scope": scope, "lost": rows} for scope, rows in sorted(lost.items())]
    run.write("policy", policy.as_table())
    run.write("losses", pa.Table.from_pylist(losses, schema=frames.LOSSES))
    run.write("rejected", rejected.sort_by([(name, "ascending") for name in frames.REJECTED.names]))
    run.write("edits", frames.EDITS.empty_table())
    run.write("replay", replay.batches_read(batches))
    run.write("evidence", replay.evidence_of(batches))
    logger.info("read %d memories and %d replay batches", snapshot.num_rows, len(batches))
    return run.write_snapshot(snapshot)


def match(run: RunDirectory) -> Path:
    """Judge the pairs that are worth it, and gather the clusters."""
    from memfold import clusters, sightings
    from memfold_flows.reading import read_texts

    snapshot, policy = run.read("snapshot"), policy_of(run)
    proposals = run.read("proposals") if run.file("proposals").exists() else None
    rejected = run.read("rejected")
    matches = clusters.match_rows(
        snapshot, rejected, policy, proposals=proposals, read_texts=read_texts, report=progress.report
    )
    run.write("sightings", sightings.find(snapshot, run.read("evidence"), policy))
    run.write("texts", matches.texts)
    run.write("pairs", matches.pairs)
    found, texts = matches.clusters, frames.REWRITES.empty_table()
    if proposals is not None:
        from memfold import proposals as proposing

        found = proposing.with_rewritten(matches.clusters, proposals, snapshot=snapshot, rejected=rejected)
        texts = proposing.texts(proposals, found)
    run.write("rewrites", texts)
    logger.info("judged %d pairs; %d memories have a match", matches.pairs.num_rows, found.num_rows)
    return run.write("clusters", found)


def propose(store: MemoryStore, run: RunDirectory, proposer: ProposerOptions) -> bool:
    """Ask a model what matching could not decide; returns whether it has to match again."""
    from memfold_flows.proposer import asking

    return asking.propose(run, proposer, writes_texts="content" in store.traits.places)


def carry_over(first: RunDirectory, run: RunDirectory, policy: Policy) -> Path:
    """Give a run the inputs and matches of an earlier one, which must be as they were, and another policy.

    Raises:
        PlanDamaged: a relation of the earlier run is missing or has changed.
    """
    decided = {f"{name}.parquet" for name in ("policy", *models.RELATIONS)}
    for file in first.verify().files:
        if file.path not in decided:
            target = run.path / file.path
            target.parent.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
            shutil.copyfile(first.path / file.path, target)
            target.chmod(PRIVATE_FILE)
    if (said := first.read_json("proposer.json")) is not None:
        run.write_json("proposer.json", said)
    return run.write("policy", policy.as_table())


def model(run: RunDirectory) -> Path:
    """Decide on one action for each memory, in SQL over the relations so far."""
    progress.report("deciding", 0)
    inputs: dict[str, pa.Table | str] = {name: _pattern(run, name) for name in models.INPUTS}
    with duckdb.connect(config=settings.duckdb_config(run.path)) as con:
        models.build(con, inputs)
        for name in models.RELATIONS:
            run.write(name, models.read(con, name))
    return run.file("plan")


def judge(store: MemoryStore, run: RunDirectory, scopes: Collection[str] | None, clock: Clock) -> PlanReport:
    """Ask the gate, and seal the run: from now on its plan cannot change unnoticed."""
    from memfold_flows.reading import read_texts

    progress.report("checking", 0)
    policy, now = policy_of(run), clock()
    snapshot = run.read("snapshot")
    held_before = _held_before(store) if scopes is None and not snapshot.num_rows else ()
    verdict = gate.judge(
        run.read("plan"),
        run.read("tally"),
        snapshot=snapshot,
        policy=policy,
        now=now,
        held_before=held_before,
        rejected=run.read("rejected"),
        read_texts=read_texts,
    )
    run.write("tally", verdict.tally)
    report = replace(read_report(run, store=store.url), left_alone=dict(getattr(store, "left_alone", {})))
    write_bytes(run.path / "plan.md", summaries.plan(report).encode())
    _sealed_here.add(run.seal(_manifest(run, report, policy, scopes, created=now)).files)
    logger.info("the plan is %s", report.verdict)
    return report


def read_report(run: RunDirectory, *, store: str) -> PlanReport:
    """What the plan of a run comes to, from its relations."""
    policy = policy_of(run)
    return PlanReport(
        run_id=run.run_id,
        run_dir=str(run.path),
        store=store,
        as_of=policy.as_of,
        limit=LossLimit(policy.max_loss_fraction, policy.strict_entries),
        scopes=read_tally(run.read("tally")),
        held_back=_held_back(run),
        left_alone=run.manifest.left_alone if run.is_sealed else {},
        edits={row["memory_id"]: row["decision"] for row in run.read("edits").to_pylist()},
        proposer=_model_report(run),
    )


def require_applicable(store: MemoryStore, run: RunDirectory, *, now: datetime) -> None:
    """Refuse to write from a run that is damaged, of another store, or of a time to come.

    Raises:
        PlanDamaged: a relation is missing or has changed, or the gate would not accept this plan.
        BadUsage: the store is not the one that was planned, or ``as_of`` is later than the clock.
    """
    manifest = run.verify()
    if manifest.store != store.url:
        raise BadUsage(f"run {run.run_id} was planned on {manifest.store}, not on {store.url}; nothing was written")
    if manifest.undo_removed_at is not None and run.read_json("receipt.json") is None:
        raise BadUsage(
            f"the snapshot of run {run.run_id} was removed, for it was old; nothing was written. Plan again."
        )
    if manifest.forgotten_at is not None:
        raise BadUsage(f"a memory of run {run.run_id} was forgotten since; nothing was written. Plan again.")
    _require_one_target(store, run)
    accepted = any(scope.accepted for scope in read_tally(run.read("tally")))
    if accepted and manifest.as_of > now:
        raise BadUsage(
            f"run {run.run_id} was planned as of {manifest.as_of:%Y-%m-%d %H:%M:%S} UTC, which is later than the "
            "clock; nothing was written. Plan again, or set the clock right."
        )
    if accepted and not manifest.snapshot_trimmed and manifest.files not in _sealed_here:
        _require_accepted_again(run, now)


def _require_accepted_again(run: RunDirectory, now: datetime) -> None:
    """A plan from elsewhere is judged once more: whoever can write a run directory can make its hashes fit too."""
    tally = run.read("tally")
    verdict = gate.judge(
        run.read("plan"),
        tally,
        snapshot=run.read("snapshot"),
        policy=policy_of(run),
        now=now,
        rejected=run.read("rejected"),
    )
    accepted = {scope.scope for scope in read_tally(tally) if scope.accepted}
    for scope in verdict.scopes:
        if scope.scope in accepted and (failed := [check for check in scope.checks if not check.passed]):
            raise PlanDamaged(
                f"run {run.run_id}: the gate does not accept scope {scope.scope!r} of this plan ({failed[0].says}); "
                "nothing was written. Plan again; memfold edit changes a plan."
            )


def _require_one_target(store: MemoryStore, run: RunDirectory) -> None:
    """A run keeps the undo of one apply, so it is written to one archive only."""
    receipt = run.read_json("receipt.json") if run.wrote else None
    if not receipt:
        return
    before = receipt.get("written_to") or run.manifest.store
    now = _written_elsewhere(store, run) or run.manifest.store
    if before != now:
        raise BadUsage(f"run {run.run_id} was written to {before}; nothing was written to {now}. Plan again for that.")


def rewrite(run: RunDirectory) -> Path:
    """Turn the accepted part of the plan into the exact changes to make."""
    from memfold import rewrite as rewriting

    if run.manifest.snapshot_trimmed:  # an apply has ended before, and left the rewrite that it made
        return run.file("rewrite")
    changes = rewriting.build(
        run.read("plan"), run.read("tally"), run.read("clusters"), run.read("snapshot"), policy_of(run)
    )
    run.add("rewrite", changes)
    return run.file("rewrite")


def apply(store: MemoryStore, run: RunDirectory, clock: Clock, fence: int | None = None) -> ApplyReport:
    """Write the changes into the store; a run without any does not touch it."""
    changes = run.read("rewrite")
    if not changes.num_rows:
        return ApplyReport()
    from memfold_flows.stores import applying

    run.make_durable()
    with interruption_named(store, run, "apply"):
        return applying.apply(
            store,
            changes,
            run=_reference(run),
            policy=policy_of(run),
            tally=run.read("tally"),
            undo=run.write_undo,
            clock=clock,
            fence=fence,
        )


def write_receipt(
    store: MemoryStore,
    run: RunDirectory,
    report: ApplyReport,
    *,
    began_at: datetime,
    clock: Clock,
    keep_snapshots: bool,
) -> Receipt:
    """Say what happened, and keep no more of the snapshot than what was touched."""
    planned = read_report(run, store=run.manifest.store)
    changes = run.read("rewrite", ["memory_id"])
    landed = _landed(store, run, "apply") if changes.num_rows else []
    scopes = settled(planned.scopes, landed) if changes.num_rows else planned.scopes
    receipt = Receipt(
        state=state_of(scopes, report),
        run_id=run.run_id,
        run_dir=planned.run_dir,
        store=planned.store,
        as_of=planned.as_of,
        limit=planned.limit,
        began_at=began_at,
        ended_at=clock(),
        already_applied_at=report.already_applied_at,
        written_to=_written_elsewhere(store, run) if report.scopes_applied else None,
        scopes=scopes,
        held_back=planned.held_back,
        left_alone=planned.left_alone,
        proposer=planned.proposer,
        drifted=tuple(report.drifted),
        metadata_conflicts=tuple(report.metadata_conflicts),
        fields_left_out=tuple(report.fields_left_out),
        new_ids=report.new_ids,
        transactions=report.transactions,
        longest_hold_seconds=report.longest_hold_seconds,
    )
    # An apply that was cut off after its last commit has no receipt yet.
    if report.already_applied_at is None or run.read_json("receipt.json") is None:
        feed.write_applied(run, landed)
        write_bytes(run.path / "receipt.md", summaries.outcome(receipt).encode())
        run.write_json("receipt.json", receipt.as_json())
        # What was refused is there to be looked at, so its texts stay.
        if not keep_snapshots and receipt.state is not State.REJECTED:
            run.trim_snapshot({*changes["memory_id"].to_pylist(), *_rows_of_refused(run, receipt)})
    logger.info("the run is %s", receipt.state)
    return receipt


def undo(store: MemoryStore, run: RunDirectory, clock: Clock, selection: Selection = EVERYTHING) -> UndoReceipt:
    """Take back what this run wrote, or a part of it, as far as nobody changed it since.

    Raises:
        BadUsage: the run wrote nothing to this store, or its undo data was removed after it had been kept long enough.
        PlanDamaged: what an undo needs is missing from the run directory.
    """
    from memfold_flows.stores import applying

    landed = _landed(store, run, "apply")
    if not landed:
        raise BadUsage(f"run {run.run_id} wrote nothing to {store.url}, so there is nothing to undo")
    run.require_undo_data()
    rows = run.undo_rows({part.batch for part in landed if changed_rows(part)})
    with interruption_named(store, run, "undo"):
        report = applying.undo(store, rows, run=_reference(run), clock=clock, selection=selection)
        receipt = UndoReceipt(run_id=run.run_id, store=store.url, ended_at=clock(), report=report, of=selection)
        earlier = run.read_json("undo.json")
        if report.already_undone_at is None or earlier is None:
            feed.write_undone(run, rows, _landed(store, run, "undo"))
            run.write_json("undo.json", receipt.as_json() | {"earlier": _earlier(earlier)})
    return receipt


@contextmanager
def interruption_named(store: MemoryStore, run: RunDirectory, step: Step) -> Iterator[None]:
    """Where something was committed before the failure, say so: the store is not as it was."""
    try:
        yield
    except (BadUsage, ApplyInterrupted):  # refused before anything was written now, or named already
        raise
    except (MemfoldError, OSError) as error:
        # Earlier undos of other parts came to their end.
        landed = interrupted(_landed(store, run, step)) if step == "undo" else _landed(store, run, step)
        if not landed:
            raise
        parts = count(len(landed), "committed part", "committed parts")
        raise ApplyInterrupted(
            f"the {step} of run {run.run_id} stopped after {parts}: {str(error).rstrip('.')}. "
            f"What was committed stands; memfold {step} {run.run_id} goes on from there."
        ) from error


def _earlier(receipt: dict[str, Any] | None) -> list[dict[str, Any]]:
    """The receipts of the undos before, oldest first."""
    if receipt is None:
        return []
    before: list[dict[str, Any]] = receipt.pop("earlier", [])
    return [*before, receipt]


def _landed(store: MemoryStore, run: RunDirectory, step: Step) -> list[Landed]:
    with store.ledger() as ledger:
        return ledger.landed(run.run_id, step) if ledger else []


def _rows_of_refused(run: RunDirectory, receipt: Receipt) -> set[str]:
    """The memories that would have left a scope that was refused, and those they would have gone into."""
    plan = run.read("plan", ["memory_id", "scope", "action", "into_id"])
    in_scope = pc.is_in(plan["scope"], value_set=pa.array([scope.scope for scope in receipt.refused], pa.string()))
    rows = plan.filter(pc.and_(in_scope, pc.not_equal(plan["action"], "keep")))
    return {*rows["memory_id"].to_pylist(), *rows["into_id"].drop_null().to_pylist()}


def _batches(store: MemoryStore, scopes: Collection[str] | None) -> Iterator[pa.RecordBatch]:
    """The memories of these scopes. Many names are picked out here: a query with thousands of them would be slow."""
    if scopes is None or len(scopes) <= _SCOPES_NAMED_TO_A_STORE:
        return store.snapshot(scopes)
    wanted = pa.array(sorted(scopes), pa.string())
    return (batch.filter(pc.is_in(batch["scope"], value_set=wanted)) for batch in store.snapshot())


def _held_before(store: MemoryStore) -> set[str]:
    """The scopes that held memories after their last pass, but those for which a pass was refused since as empty."""
    nothing = convergence.fingerprint([])
    with store.ledger() as ledger:
        states = {scope: ledger.state(scope) for scope in ledger.scopes_noted()} if ledger else {}
    return {
        scope
        for scope, state in states.items()
        if state.last_digest not in (None, nothing) and (state.refusal is None or state.refusal.digest != nothing)
    }


def _held_back(run: RunDirectory) -> tuple[Drift, ...]:
    plan = run.read("plan", ["memory_id", "scope", "reason", "detail"])
    held = plan.filter(pc.equal(plan["reason"], "held")).slice(0, _HELD_BACK_NAMED).to_pylist()
    return tuple(Drift(row["memory_id"], row["scope"], row["detail"]) for row in held)


def _model_report(run: RunDirectory) -> ModelReport | None:
    """What the model's part of a plan came to; None where no model was asked."""
    said = run.read_json("proposer.json")
    return None if said is None else ModelReport.from_json(said)


def _written_elsewhere(store: MemoryStore, run: RunDirectory) -> str | None:
    """The archive that an apply wrote instead of the one that was planned."""
    url: str = getattr(store, "written_url", store.url)
    return None if url == run.manifest.store else url


def _require_scopes(store: MemoryStore, *, asked: Collection[str], found: Collection[str]) -> None:
    missing = sorted(set(asked) - set(found))
    if not missing:
        return
    hint = scope_names.hint(missing[0], scope_names.scopes_of(store))
    name = scope_names.readable(missing[0])
    raise BadUsage(f"no memory of {store.url} has the scope {name!r}; nothing was planned; {hint}")


def _manifest(
    run: RunDirectory, report: PlanReport, policy: Policy, scopes: Collection[str] | None, *, created: datetime
) -> Manifest:
    totals = report.totals
    return Manifest(
        run_id=run.run_id,
        store=report.store,
        as_of=policy.as_of,
        created=created,
        memfold=version("memfold"),
        scopes=None if scopes is None else tuple(sorted(set(scopes))),
        minhash={
            "scheme": policy.minhash_scheme,
            "seed": policy.minhash_seed,
            "bands": policy.bands,
            "rows_per_band": policy.rows_per_band,
        },
        counts={
            "memories": totals.entries_before,
            "merged": totals.merged,
            "promoted": totals.promoted,
            "pruned": totals.pruned,
        },
        left_alone=report.left_alone,
    )


def policy_of(run: RunDirectory) -> Policy:
    """The thresholds that a run was planned with."""
    try:
        return Policy.from_table(run.read("policy"))
    except ValueError as error:
        raise PlanDamaged(f"run {run.run_id}: {error}; nothing was written. Plan again.") from error


def _pattern(run: RunDirectory, name: str) -> str:
    """The files of a relation as DuckDB takes them; a folder may be called anything, brackets and stars too."""
    return f"{glob.escape(str(run.path))}/{run.file(name).relative_to(run.path)}"


def _reference(run: RunDirectory) -> RunRef:
    digests = {file.path: file.sha256 for file in run.manifest.files}
    return RunRef(run_id=run.run_id, directory=str(run.path), digest=digests["rewrite.parquet"])
