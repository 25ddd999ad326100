"""The task half of the steps: the same functions, called as Prefect tasks with their retries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prefect import Task, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun

from memfold_flows.retries import STORE_STEPS, is_transient
from memfold_flows.shards import consolidate_shard

_RETRIES: dict[str, Any] = {"retries": 3, "retry_delay_seconds": [1, 5, 20]}


#: One shard of a backfill. Here, not in the flow's file, so that every worker of a cluster can import it.
shard_task = task(name="shard", cache_policy=NO_CACHE, persist_result=False)(consolidate_shard)


def as_task(name: str, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Any:
    """Run a step as a Prefect task: the step runner of the flow.

    A step is never answered from a cache: the store it reads may have changed since.
    """
    retries = {**_RETRIES, "retry_condition_fn": _is_transient} if name in STORE_STEPS else {}
    as_step = task(name=name, cache_policy=NO_CACHE, persist_result=False, **retries)
    return as_step(function)(*arguments, **options)


def _is_transient(_task: Task[..., Any], _run: TaskRun, state: State[Any]) -> bool:
    return is_transient(state.result(raise_on_failure=False))
