"""The nightly flow: every scope of a store that is due, in one pass. Each scope is judged on its own."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State

from memfold.convergence import Schedule
from memfold_flows import due, passes
from memfold_flows.parameters import Approval, Thresholds, Timing
from memfold_flows.passes import Request
from memfold_flows.stores.base import MemoryStore

logger = logging.getLogger(__name__)


@flow(name="sweep", persist_result=False)
def sweep(
    store: str,
    *,
    approval: Approval = Approval(),  # noqa: B008  (frozen by use: a flow's form needs the value)
    timing: Timing = Timing(),  # noqa: B008
    thresholds: Thresholds = Thresholds(),  # noqa: B008
    store_options: dict[str, Any] | None = None,
) -> State[Any]:
    """Consolidate every scope of a store that is due, and leave the others alone.

    All due scopes cost one pass, however many they are; a scope that the gate refuses stops none of the others.

    Args:
        store: The store, as scheme:path.
        approval: Whether a person looks at the plan first.
        timing: When a scope is due.
        thresholds: What a pass may lose, prune and promote.
        store_options: How to open the store, such as in_place for an archive.
    """
    request = Request(store, store_options or {}, thresholds, timing, approval)
    return passes.make(request, _every_scope if timing.all_scopes else _due_scopes)


def _every_scope(_store: MemoryStore, _schedule: Schedule, _now: datetime) -> None:
    return None


def _due_scopes(store: MemoryStore, schedule: Schedule, now: datetime) -> Sequence[str] | None:
    found = due.look_over(store, schedule, now=now)
    scopes = [scope for scope, each in found.items() if each.should_consolidate]
    logger.info("%d of %d scopes are due", len(scopes), len(found))
    # None reads the store as a whole, which a long list of names would only slow down.
    return None if scopes and len(scopes) == len(found) else scopes
