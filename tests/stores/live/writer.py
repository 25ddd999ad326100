"""An agent in a process of its own: it writes, rewords and deletes memories of its own, and notes what was confirmed.

Each line of its log is ``[seconds, what, memory_id, content]``, written after the store has said that it is done.
Nothing of memfold is imported: this is anybody's program beside a SQLite file or a PostgreSQL server.
"""

from __future__ import annotations

import json
import random
import sqlite3
import sys
import time
from typing import Any, TextIO

#: Few texts, so that memories are copies of one another all the time.
WORDS = ("approvals", "the printer", "the staging host", "lunch", "the wiki", "rye bread", "the pager", "green tea")
WAIT_SECONDS = 5.0


class Sqlite:
    """A file; an agent asks again for a moment before it gives up, as SQLite itself does for it."""

    now = "?"

    def __init__(self, address: str) -> None:
        self._connection = sqlite3.connect(address, timeout=WAIT_SECONDS, isolation_level=None)

    def done(self, statement: str, values: tuple[Any, ...]) -> int:
        """Run one statement; how many rows the store says it changed."""
        return self._connection.execute(statement, values).rowcount


class Postgresql:
    """A server; an agent gives up where a row stays locked for as long."""

    now = "to_timestamp(%s / 1000000.0)"

    def __init__(self, address: str) -> None:
        import psycopg

        options = f"-c lock_timeout={WAIT_SECONDS:.0f}s"
        self._connection = psycopg.connect(address, autocommit=True, options=options)

    def done(self, statement: str, values: tuple[Any, ...]) -> int:
        """Run one statement; how many rows the store says it changed."""
        return self._connection.execute(statement.replace("?", "%s").encode(), values).rowcount


def write(store: Sqlite | Postgresql, log: TextIO, *, name: str, scope: str, seconds: float, pause: float) -> None:
    """Write at random until the time is over."""
    dice = random.Random(name)
    own: list[str] = []
    began = time.monotonic()
    number = 0
    while time.monotonic() - began < seconds:
        number += 1
        content = f"Ana asked {name} about {dice.choice(WORDS)}" if dice.random() < 0.7 else f"{name} noted {number}"
        before = time.monotonic()
        what, memory_id, count = _one(store, dice, own, new_id=f"{name}-{number}", scope=scope, content=content)
        waited = time.monotonic() - before
        if count:
            log.write(json.dumps([waited, what, memory_id, content]) + "\n")
        elif memory_id in own:
            own.remove(memory_id)  # it went into another memory
        time.sleep(dice.uniform(0, pause))


def _one(
    store: Sqlite | Postgresql, dice: random.Random, own: list[str], *, new_id: str, scope: str, content: str
) -> tuple[str, str, int]:
    """One statement; what it was, the memory that it was about, and how many rows the store says it changed."""
    luck = dice.random()
    if luck < 0.6 or not own:
        own.append(new_id)
        statement = f"insert into memories (memory_id, scope, content, created_at) values (?, ?, ?, {store.now})"
        return "insert", new_id, store.done(statement, (new_id, scope, content, time.time_ns() // 1000))
    memory_id = dice.choice(own)
    if luck < 0.85:
        statement = "update memories set content = ? where memory_id = ?"
        return "update", memory_id, store.done(statement, (content, memory_id))
    own.remove(memory_id)
    return "delete", memory_id, store.done("delete from memories where memory_id = ?", (memory_id,))


if __name__ == "__main__":
    address, log_file, name, scope, seconds, pause = sys.argv[1:]
    with open(log_file, "w", encoding="utf-8", buffering=1) as log:
        agent = Postgresql(address) if address.startswith("postgresql:") else Sqlite(address)
        write(agent, log, name=name, scope=scope, seconds=float(seconds), pause=float(pause))
