"""What memfold's connections must not do to a database that agents use at the same time."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from memfold_flows.stores import open_store, sqlite
from memfold_flows.stores.base import MemoryStore

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)

_AGENT = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('select count(*) from memories'); c.close()"


def test_an_agent_that_closes_its_connection_takes_nothing_from_an_open_store(tmp_path: Path) -> None:
    """What is committed after that is there: looking at a store lets go of none of the locks on its file."""
    path = tmp_path / "kitchen.db"
    sqlite.init(path)
    store = open_store(f"sqlite:{path}")
    _redirect(store, "tea-1", "tea-2")
    with store.ledger() as ledger:
        assert ledger is not None
    subprocess.run([sys.executable, "-c", _AGENT, str(path)], check=True)

    _redirect(store, "tea-2", "tea-3")

    with closing(sqlite3.connect(path)) as connection:
        redirects = connection.execute("select old_id, new_id from memfold_redirects order by old_id").fetchall()
    assert redirects == [("tea-1", "tea-2"), ("tea-2", "tea-3")]
    store.close()


def test_making_a_store_that_is_there_lets_go_of_no_lock(tmp_path: Path) -> None:
    """init on an open store changes nothing, not even who holds what."""
    path = tmp_path / "kitchen.db"
    sqlite.init(path)
    store = open_store(f"sqlite:{path}")
    _redirect(store, "tea-1", "tea-2")
    assert sqlite.init(path) is False
    subprocess.run([sys.executable, "-c", _AGENT, str(path)], check=True)

    _redirect(store, "tea-2", "tea-3")

    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("select count(*) from memfold_redirects").fetchone() == (2,)
    store.close()


def _redirect(store: MemoryStore, old: str, new: str) -> None:
    with store.transaction() as transaction:
        fence = transaction.ledger.take_lease("night-1", NOON, NOON + timedelta(minutes=2))
        transaction.ledger.redirect("night-1", {old: new})
        transaction.ledger.release_lease("night-1", fence)
