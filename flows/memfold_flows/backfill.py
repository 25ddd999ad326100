"""Years of archives into one consolidated archive: a task per shard, on threads, Dask or Ray, with the same result."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from prefect import flow
from prefect.artifacts import create_markdown_artifact, create_progress_artifact, update_progress_artifact
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed
from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner

from memfold.errors import BadUsage
from memfold_flows import passes, progress, settings, shards, summaries
from memfold_flows.parameters import Runner, Thresholds
from memfold_flows.partition import Shard, find_archive
from memfold_flows.shards import Job, ShardOutcome
from memfold_flows.tasks import shard_task


@flow(name="backfill", persist_result=False)
def backfill(
    archive: str,
    out: str,
    *,
    shard_count: int = 16,
    as_of: datetime | None = None,
    thresholds: Thresholds = Thresholds(),  # noqa: B008  (frozen by use: a flow's form needs the value)
    runner: Runner = Runner(),  # noqa: B008
) -> State[Any]:
    """Consolidate an archive of any size, shard by shard, into a new one; the archive itself is only read.

    Started again with the same parameters, it goes on where it stopped: shards that are done are kept. A shard that
    fails does not stop the others.

    Args:
        archive: jsonl: or parquet:, a file or a folder of such files.
        out: The folder for the new archive, the report and each shard's run directory.
        shard_count: How many parts to work in (1 to 512); a part should fit into memory a few times over.
        as_of: Plan as of this moment; the first start's moment where this is left out.
        thresholds: What a pass may lose, prune and promote.
        runner: Where the shards are worked on.
    """
    folder = Path(out).expanduser().absolute()
    job = Job(
        archive=find_archive(archive),
        folder=folder,
        shards=_bounded(shard_count),
        as_of=as_of or shards.as_of_before(folder) or passes.now(),
        thresholds=dict(settings.load(thresholds.given()).thresholds),
    )
    where = task_runner(runner)
    with shards.alone(job):
        return _made(job, where)


@flow(name="backfill-shards", persist_result=False, validate_parameters=False)
def work(job: Job, found: Sequence[Shard]) -> list[ShardOutcome]:
    """Every shard a task; a scope larger than a shard alone, once the others are done."""
    bar: Any = create_progress_artifact(progress=0.0, key="backfill-progress", description="Shards that are done")
    outcomes: list[ShardOutcome] = []
    progress.report("consolidating", 0, len(found))
    usual = [(shard, shard_task.submit(job, shard)) for shard in found if not shard.is_large]
    for shard, future in usual:
        outcomes.append(_outcome(shard, future))
        _tell(bar, len(outcomes), len(found))
    for shard in (shard for shard in found if shard.is_large):
        outcomes.append(_outcome(shard, shard_task.submit(job, shard)))
        _tell(bar, len(outcomes), len(found))
    return sorted(outcomes, key=lambda outcome: outcome.name)


def _made(job: Job, where: TaskRunner[Any]) -> State[Any]:
    found = shards.begin(job)
    outcomes = work.with_options(task_runner=where)(job, found)
    report = shards.report(job, outcomes)
    create_markdown_artifact(key="backfill", markdown=summaries.backfill(report), description="The backfill")
    failed = [outcome for outcome in outcomes if outcome.error is not None]
    if failed:
        return Failed(
            message=f"{len(failed)} of {len(outcomes)} shards failed ({failed[0].name}: {failed[0].error}); "
            "the archive was not written. Start the same backfill again: the shards that are done are kept."
        )
    shards.assemble(job, found)
    message = f"{report['merged']} merged, {report['pruned']} pruned of {report['rows']} in {len(outcomes)} shards"
    return Completed(name=str(report["state"]), message=message, data=report)


def _tell(bar: Any, done: int, shards: int) -> None:
    update_progress_artifact(bar, progress=100 * done / shards)
    progress.report("consolidating", done, shards)


def task_runner(runner: Runner) -> TaskRunner[Any]:
    """Threads of this process, a Dask cluster or a Ray cluster; without an address, one is started here.

    Raises:
        BadUsage: what is needed for such a cluster is not installed.
    """
    if runner.kind == "threads":
        return ThreadPoolTaskRunner(max_workers=runner.workers)
    try:
        return _dask(runner) if runner.kind == "dask" else _ray(runner)
    except ModuleNotFoundError as error:
        raise BadUsage(
            f"{error.name} is not installed; nothing was written. Install it: pip install 'memfold[{runner.kind}]'"
        ) from None


def _dask(runner: Runner) -> TaskRunner[Any]:
    from prefect_dask.task_runners import DaskTaskRunner

    logging.getLogger("distributed").setLevel(logging.ERROR)  # it tells of each worker that comes and goes
    local = {"n_workers": runner.workers, "threads_per_worker": 1, "dashboard_address": None}
    cluster: TaskRunner[Any] = DaskTaskRunner(address=runner.address, cluster_kwargs=None if runner.address else local)
    return cluster


def _ray(runner: Runner) -> TaskRunner[Any]:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # before it is imported: it would send them from the start
    from prefect_ray.task_runners import RayTaskRunner

    logging.getLogger("ray").setLevel(logging.ERROR)
    quiet = {"logging_level": logging.ERROR, "log_to_driver": False}
    local = {"num_cpus": runner.workers, "include_dashboard": False}
    cluster: TaskRunner[Any] = RayTaskRunner(
        address=runner.address, init_kwargs=quiet if runner.address else {**local, **quiet}
    )
    return cluster


def _outcome(shard: Shard, future: Any) -> ShardOutcome:
    future.wait()
    result = future.result(raise_on_failure=False)
    if isinstance(result, ShardOutcome):
        return result
    return ShardOutcome(name=shard.name, rows=shard.rows, error=str(result))


def _bounded(shard_count: int) -> int:
    if not 1 <= shard_count <= 512:
        raise ValueError(f"shard_count must be from 1 to 512, got {shard_count}; nothing was written")
    return shard_count
