"""The transactions of one run leave agents a turn in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from memfold_flows.stores.sessions import Session

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


def test_an_agent_that_waits_gets_a_turn_between_two_transactions(fill_sqlite: Callable[..., Any]) -> None:
    """SQLite polls for a lock every tenth of a second, so the pause is longer; after the last one nobody waits."""
    pauses: list[float] = []

    filled = fill_sqlite()

    for seconds in (0.05, 0.25, 3.0):
        _two_transactions(filled, seconds_each=seconds, pause=pauses.append)

    assert pauses == [0.12, 0.25, 0.5]


def test_a_transaction_that_nobody_noticed_needs_no_pause(fill_sqlite: Callable[..., Any]) -> None:
    """Small passes stay as fast as they were."""
    pauses: list[float] = []

    _two_transactions(fill_sqlite(), seconds_each=0.01, pause=pauses.append)

    assert pauses == []


def _two_transactions(filled: Any, *, seconds_each: float, pause: Callable[[float], None]) -> None:
    def ticks() -> Iterator[float]:
        now = 0.0
        while True:
            yield now
            now += seconds_each

    times = ticks()
    session = Session(filled.store, "night-1", clock=lambda: NOON, monotonic=lambda: next(times), pause=pause)
    for is_last in (False, True):
        with session.transaction(is_last=is_last):
            pass
