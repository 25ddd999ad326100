"""The write transactions of one run over one store: the lease, the numbers, the longest hold."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from memfold_flows.stores.base import MemoryStore, Transaction

Clock = Callable[[], datetime]

#: Longer than any transaction should take, and short enough that a crash does not keep the next pass waiting.
LEASE = timedelta(minutes=2)

#: How long the write lock is meant to be held at most; agents commonly wait 5 to 10 s for it.
HOLD_SECONDS = 1.0
#: What a transaction is planned for: the next one may meet colder pages, or a machine that is busy with something else.
_PLANNED_SECONDS = HOLD_SECONDS / 2
#: Between two transactions, as long as the lock was held before, within these bounds. SQLite asks for a lock ten times
#: a second: without the pause an agent that waits would meet the next transaction again and again.
PAUSE_SECONDS = 0.12
LONGEST_PAUSE_SECONDS = 0.5
_UNNOTICED_SECONDS = 0.02
_FEWEST_ROWS = 500
#: So many rows go into the first transaction, which shows how fast this machine is now; they double from there.
_FIRST_ROWS = 1_000


class Session:
    """A sequence of write transactions by one holder, which no other memfold comes between.

    The lease is taken in the first transaction and renewed in each, so it costs none of its own. It is given back in
    the last one; after a crash it runs out, where nobody can tell that its process ended, and the same holder may go
    on at once. Where the lock is held too long, the transactions that follow are to be smaller: ``rows_at_most`` is how
    many rows the next one should touch, and grows again where the store has become fast. ``fence`` is the number under
    which the holder has the lease already, where it was taken before planning.
    """

    def __init__(
        self,
        store: MemoryStore,
        holder: str,
        *,
        clock: Clock,
        monotonic: Callable[[], float],
        fence: int | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._store = store
        self._holder = holder
        self._clock = clock
        self._monotonic = monotonic
        self._fence = fence
        self._pause = pause
        most = store.traits.rows_per_transaction
        self.rows_at_most = None if most is None else min(most, _FIRST_ROWS)
        self.longest_hold_seconds = 0.0

    @contextmanager
    def transaction(self, *, is_last: bool) -> Iterator[tuple[Transaction, datetime]]:
        """One transaction, and the time that it goes by.

        Raises:
            Transient: another memfold is at work on this store, or agents keep it locked.
            StoreError: another memfold took over since the transaction before.
        """
        with self._store.transaction() as transaction:
            began = self._monotonic()
            now = self._clock()
            fence = self._hold(transaction, now)
            yield transaction, now
            if is_last:
                transaction.ledger.release_lease(self._holder, fence)
        self._fence = fence
        held = self._monotonic() - began
        self.longest_hold_seconds = max(self.longest_hold_seconds, held)
        self.rows_at_most = self._rows_after(held)
        if not is_last and held > _UNNOTICED_SECONDS:
            self._pause(min(max(held, PAUSE_SECONDS), LONGEST_PAUSE_SECONDS))

    def _rows_after(self, held: float) -> int | None:
        most = self._store.traits.rows_per_transaction
        if most is None or self.rows_at_most is None:
            return None
        if held > _PLANNED_SECONDS:
            fewer = max(_FEWEST_ROWS, int(self.rows_at_most * _PLANNED_SECONDS / held))
            return min(self.rows_at_most, fewer)
        return min(most, self.rows_at_most * 2) if held < _PLANNED_SECONDS / 2 else self.rows_at_most

    def _hold(self, transaction: Transaction, now: datetime) -> int:
        if self._fence is None:
            return transaction.ledger.take_lease(self._holder, now, now + LEASE)
        transaction.ledger.renew_lease(self._holder, self._fence, now + LEASE)
        return self._fence
