"""The lease over a whole pass: one memfold at a time, without ever keeping an agent waiting."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memfold.errors import StoreError, Transient
from memfold_flows import leases
from memfold_flows.stores import open_store

from .conftest import Ended, Kitchen, Nights

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


def noon() -> datetime:
    return NOON


def test_two_passes_never_overlap(tea: Kitchen) -> None:
    """While one run holds the store, another is told who holds it; afterwards it is free at once."""
    with (
        _held(tea, "night-1"),
        pytest.raises(Transient, match=r"run 'night-1' holds this store; .* until 12:02:00 UTC at most"),
    ):
        _enter(tea, "night-2")

    with _held(tea, "night-2") as fence:
        assert fence == 2


def test_an_agent_writes_while_a_pass_is_planned(tea: Kitchen) -> None:
    """The lease is a row of the ledger, not a lock."""
    with _held(tea, "night-1"):
        tea.remember("dog", "The dog sleeps in the hall")

    assert "dog" in tea.ids


def test_a_long_plan_keeps_its_lease(tea: Kitchen) -> None:
    """It is renewed from a thread, so planning may take longer than a lease lasts."""
    times = iter([NOON + timedelta(minutes=minute) for minute in range(600)])

    with _held(tea, "night-1", clock=lambda: next(times), seconds_between_renewals=0.01):
        before = _lease_until(tea.path)
        assert _soon(lambda: _lease_until(tea.path) > before)


def test_an_apply_whose_lease_was_taken_over_writes_nothing(tea: Kitchen, nights: Nights) -> None:
    """The number is looked for inside the transaction that would write."""
    run, _ = nights.plan(tea.store)
    before = tea.rows
    with _held(tea, run.run_id) as fence:
        with sqlite3.connect(tea.path) as other:
            other.execute("update memfold_lease set holder = 'someone-else', fence = fence + 1")

        with pytest.raises(StoreError, match="another memfold took over this store"):
            nights.apply(tea.store, run, fence=fence)

    assert tea.rows == before


def test_the_lease_of_a_plan_is_the_lease_of_its_apply(tea: Kitchen, nights: Nights) -> None:
    """An apply under the lease that its plan was made under writes, and gives the lease back."""
    run, _ = nights.plan(tea.store)

    with _held(tea, run.run_id) as fence:
        receipt = nights.apply(tea.store, run, fence=fence)

    assert receipt.totals.merged == 2
    assert _lease_until(tea.path) == 0


def test_a_run_from_cron_does_not_overlap_with_another(tea: Kitchen, command: Callable[..., Ended]) -> None:
    """`memfold run --yes` holds the lease from before its plan, as the flows do, and gives it back."""
    with _held(tea, "night-1", clock=lambda: datetime.now(UTC)):
        before = tea.rows
        ended = command("run", f"sqlite:{tea.path}", "--yes")

    assert ended.code == 1
    assert "run 'night-1' holds this store; nothing was written" in ended.err
    assert tea.rows == before
    assert command("run", f"sqlite:{tea.path}", "--yes").code == 0
    assert _lease_until(tea.path) == 0


def test_two_passes_over_an_archive_never_overlap(archive: Callable[..., Path]) -> None:
    """A store of files is locked in the file system over the whole pass; afterwards it is free at once."""
    path = archive([{"id": "1", "text": "Ann drinks green tea"}])
    store = open_store(f"jsonl:{path}", in_place=True)
    other = open_store(f"jsonl:{path}", in_place=True)

    with (
        leases.held(store, lambda: store, "night-1", clock=noon) as fence,
        pytest.raises(Transient, match="another memfold is at work on the store beside"),
        leases.held(other, lambda: other, "night-2", clock=noon),
    ):
        pass

    assert fence is None
    with leases.held(other, lambda: other, "night-2", clock=noon):
        pass


def test_an_apply_works_under_the_lock_of_its_pass(archive: Callable[..., Path], nights: Nights) -> None:
    """The lock of a pass is another than the one that is held while the archive is rewritten."""
    path = archive([{"id": str(n), "text": "Ann drinks green tea"} for n in range(2)])
    store = open_store(f"jsonl:{path}", in_place=True)

    with leases.held(store, lambda: store, "night-1", clock=noon):
        run, _ = nights.plan(store)
        receipt = nights.apply(store, run)

    assert receipt.totals.merged == 1


def test_an_archive_that_is_only_read_is_not_locked(archive: Callable[..., Path]) -> None:
    """Nothing appears beside it."""
    path = archive([{"id": "1", "text": "Ann drinks green tea"}])
    store = open_store(f"jsonl:{path}")

    with leases.held(store, lambda: store, "night-1", clock=noon) as fence:
        assert fence is None

    assert [each.name for each in path.parent.iterdir()] == [path.name]


def _held(
    kitchen: Kitchen, holder: str, *, clock: Callable[[], datetime] = noon, **options: float
) -> AbstractContextManager[int | None]:
    return leases.held(kitchen.store, lambda: open_store(f"sqlite:{kitchen.path}"), holder, clock=clock, **options)


def _enter(kitchen: Kitchen, holder: str) -> None:
    with _held(kitchen, holder):
        pass


def _lease_until(path: Path) -> int:
    with sqlite3.connect(path) as connection:
        return int(connection.execute("select until from memfold_lease").fetchone()[0])


def _soon(is_so: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 10
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
