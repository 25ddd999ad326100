"""The lease over a whole pass: taken before planning, renewed while it lasts, checked in each transaction of the apply.

It keeps one memfold from another; agents never wait for it. Beside a store of files it is a lock of the file system,
which the system takes back from a process that ends, however it ends.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from memfold.errors import StoreError, Transient
from memfold_flows.files import make_own_folder
from memfold_flows.stores.base import MemoryStore
from memfold_flows.stores.sessions import LEASE

logger = logging.getLogger(__name__)

Clock = Callable[[], datetime]

_RENEWALS_PER_LEASE = 6
_SECONDS_BETWEEN_TRIES = 2.0
_AT_WORK = "another memfold is at work on the store beside {}; nothing was written. Try again later."


@contextmanager
def held(
    store: MemoryStore,
    open_again: Callable[[], MemoryStore],
    holder: str,
    *,
    clock: Clock,
    wait_seconds: float = 0.0,
    seconds_between_renewals: float = LEASE.total_seconds() / _RENEWALS_PER_LEASE,
) -> Iterator[int | None]:
    """Hold the lease of a store for the length of the block; gives its fencing number, None where that is not needed.

    ``open_again`` opens the same store a second time, for the thread that renews the lease.

    Raises:
        Transient: another memfold held the lease all the time that was waited.
    """
    if store.traits.rows_per_transaction is None:
        path: Path | None = getattr(store, "pass_lock", None)
        with (
            nullcontext()
            if path is None
            else file_locked(path, busy=_AT_WORK.format(path.parent), wait_seconds=wait_seconds)
        ):
            yield None
        return
    fence = _taken(lambda: _take(store, holder, clock), wait_seconds)
    renewal = _Renewal(open_again, holder, fence, clock)
    ended = threading.Event()
    thread = threading.Thread(
        target=renewal.run, args=(ended, seconds_between_renewals), name="memfold-lease", daemon=True
    )
    thread.start()
    try:
        yield fence
    finally:
        ended.set()
        thread.join()
        _give_back(store, holder, fence)


def _taken(take: Callable[[], int], wait_seconds: float) -> int:
    """What ``take`` gives, once nobody else has it."""
    give_up_at = time.monotonic() + wait_seconds
    while True:
        try:
            return take()
        except Transient as error:
            if time.monotonic() >= give_up_at:
                raise
            logger.info("waiting for the lease: %s", error)
            time.sleep(_SECONDS_BETWEEN_TRIES)


def _take(store: MemoryStore, holder: str, clock: Clock) -> int:
    with store.transaction() as transaction:
        now = clock()
        return transaction.ledger.take_lease(holder, now, now + LEASE)


def _give_back(store: MemoryStore, holder: str, fence: int) -> None:
    """Free the store at once. Where that fails the lease runs out, and what the pass came to stays what it is."""
    try:
        with store.transaction() as transaction:
            transaction.ledger.release_lease(holder, fence)
    except StoreError as error:
        logger.warning("the lease was not given back and runs out: %s", error)


@contextmanager
def file_locked(path: Path, *, busy: str, wait_seconds: float = 0.0) -> Iterator[None]:
    """Hold a file's lock for the length of the block; it is free again once this process ends, however it ends.

    Raises:
        Transient: another process held it all the time that was waited; ``busy`` is what it says.
    """
    try:
        make_own_folder(path.parent)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise StoreError(f"{path} cannot be made ({error.strerror}); nothing was planned or written") from error
    try:
        _taken(lambda: _lock(descriptor, busy), wait_seconds)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, busy: str) -> int:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Transient(busy) from None
    return descriptor


@dataclass(frozen=True, slots=True)
class _Renewal:
    open_again: Callable[[], MemoryStore]
    holder: str
    fence: int
    clock: Clock

    def run(self, ended: threading.Event, seconds_between: float) -> None:
        while not ended.wait(seconds_between) and self._renew():
            pass

    def _renew(self) -> bool:
        """Prolong the lease; False once it is lost for good."""
        try:
            with closing(self.open_again()) as store, store.transaction() as transaction:
                transaction.ledger.renew_lease(self.holder, self.fence, self.clock() + LEASE)
        except Transient as error:
            logger.info("the lease was not renewed this time: %s", error)
        except StoreError as error:
            # The apply looks for itself and will write nothing; here it is only noticed early.
            logger.warning("the lease is lost: %s", error)
            return False
        return True
