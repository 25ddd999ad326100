"""``memfold serve`` and ``memfold backfill``: the flows from the command line, quiet and without telemetry.

The first keeps the deployments of prefect.yaml running in one process, for those who want no worker.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from memfold.errors import BadUsage, MemfoldError, StoreError
from memfold_flows import progress, settings, terminal
from memfold_flows.partition import find_archive
from memfold_flows.receipts import State

if TYPE_CHECKING:
    from memfold_flows.parameters import Runner, Thresholds

_QUIET = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    # The first start makes Prefect's own database, which took up to 33 s on a small machine; the default is 20.
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
}
_NIGHT = "0 3 * * *"


def serve(store: str, *, cron: str | None, timezone: str) -> None:
    """Keep ``nightly`` and the flows on demand running for one store, until interrupted.

    Raises:
        BadUsage: Prefect is not told of a server, or the schedule is none.
    """
    _be_quiet()
    from prefect import serve as serve_all
    from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy
    from prefect.schedules import Cron
    from prefect.settings import PREFECT_API_URL
    from prefect.types.entrypoint import EntrypointType

    from memfold_flows.backfill import backfill as backfill_flow
    from memfold_flows.consolidate import apply, consolidate, plan
    from memfold_flows.stores import open_store
    from memfold_flows.sweep import sweep

    if not PREFECT_API_URL.value():
        raise BadUsage(
            "there is no Prefect server to keep the schedule; nothing was started. "
            "Start one with `prefect server start` and set PREFECT_API_URL=http://127.0.0.1:4200/api"
        )
    opened = open_store(store)
    url = opened.url
    opened.close()
    try:
        nights = Cron(cron or settings.load({}).cron or _NIGHT, timezone=timezone, slug="nightly")
    except ValueError as error:
        raise BadUsage(f"no schedule can be made of this ({error}); nothing was started") from None
    one_at_a_time = ConcurrencyLimitConfig(limit=1, collision_strategy=ConcurrencyLimitStrategy.CANCEL_NEW)
    # By module, so that a run finds its flow from whichever folder this is started in.
    by_module = EntrypointType.MODULE_PATH
    deployments: list[Any] = [
        sweep.to_deployment(
            "nightly",
            schedule=nights,
            parameters={"store": url},
            concurrency_limit=one_at_a_time,
            entrypoint_type=by_module,
        ),
        *(
            each.to_deployment("on-demand", parameters={"store": url}, entrypoint_type=by_module)
            for each in (consolidate, plan)
        ),
        *(each.to_deployment("on-demand", entrypoint_type=by_module) for each in (apply, backfill_flow)),
    ]
    serve_all(*deployments)


def backfill(
    archive: str,
    *,
    out: Path,
    shards: int,
    as_of: str | None,
    workers: int,
    dask: str | None,
    ray: str | None,
    as_json: bool,
    flags: Mapping[str, Any],
    quiet: bool = False,
) -> NoReturn:
    """Consolidate a large archive into a new one, and show what came of it.

    Raises:
        MemfoldError: a shard failed, or the backfill could not begin.
    """
    # What is wrong is said at once, not after half a minute of Prefect's start.
    find_archive(archive)
    thresholds, runner = _thresholds(flags), _runner(workers=workers, dask=dask, ray=ray)
    _be_quiet()
    # What goes wrong is said below in memfold's words; Prefect would print the traceback of each.
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "CRITICAL")
    from memfold_flows.backfill import backfill as backfill_flow

    with progress.shown(quiet=quiet, unit="shards"):
        state: Any = backfill_flow(
            archive,
            str(out),
            shard_count=shards,
            as_of=None if as_of is None else terminal.moment(as_of),
            runner=runner,
            thresholds=thresholds,
            return_state=True,
        )
    if state.is_failed():
        error = state.result(raise_on_failure=False)
        raise error if isinstance(error, MemfoldError) else StoreError(state.message or "the backfill failed")
    report = state.result()
    if as_json:
        terminal.print_json(report)
    else:
        _show(report)
    raise typer.Exit(State(report["state"]).exit_code)


def _thresholds(flags: Mapping[str, Any]) -> Thresholds:
    from pydantic import ValidationError

    from memfold_flows.parameters import Thresholds

    try:
        return Thresholds(**{name: value for name, value in flags.items() if value is not None})
    except ValidationError as error:
        found = error.errors()[0]
        raise BadUsage(f"{found['loc'][0]}: {found['msg']}, got {found['input']!r}; nothing was written") from None


def _runner(*, workers: int, dask: str | None, ray: str | None) -> Runner:
    if dask is not None and ray is not None:
        raise BadUsage("--dask and --ray exclude each other; nothing was written")
    from memfold_flows.parameters import Runner

    if dask is not None:
        return Runner(kind="dask", workers=workers, address=None if dask == "local" else dask)
    if ray is not None:
        return Runner(kind="ray", workers=workers, address=None if ray == "local" else ray)
    return Runner(workers=workers)


def _show(report: Mapping[str, Any]) -> None:
    from memfold_flows import console

    done = f"{report['merged']} merged, {report['pruned']} pruned, {report['promoted']} promoted"
    console.say(f"{report['rows']} memories, {report['rows_after']} after it: {done}")
    if report["scopes_refused"]:
        console.say(f"{report['scopes_refused']} of {report['scopes']} scopes were refused and stay as they were")
    console.say(f"archive: {report['archive']}")


def _be_quiet() -> None:
    """What Prefect is to know before it is imported; the user's own settings win."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
