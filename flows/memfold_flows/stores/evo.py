"""evo's memory store: one SQLite file in WAL mode, of schema version 2 or 6, read and written while evo has it open.

Only memories that evo distilled itself are ever removed; what was imported from a workspace or written by hand is
protected. Of evo's tables a pass writes ``memories``, one ``memory.consolidated`` event a scope, and in version 6
``consolidation_state`` and the ``consumed`` mark of ``replay_buffer``; skills are never touched. memfold's own
bookkeeping stands beside them, in tables prefixed ``memfold_``.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from memfold.convergence import ScopeState
from memfold.errors import BadRecord, BadUsage, StoreError
from memfold.memory import EPOCH
from memfold_flows.stores import urls
from memfold_flows.stores.base import ReplayBatch, StoredRow, StoreTraits, Update
from memfold_flows.stores.bookkeeping import Bookkeeping, waiting_batches
from memfold_flows.stores.connections import connect_reading, connect_writing, require_database, sqlite_errors
from memfold_flows.stores.evo_rows import (
    COLUMNS,
    PLACES,
    batch_of,
    changed_cells,
    encode,
    item_of,
    memory_of,
    milliseconds,
    require_entries,
    require_valid,
    scope_of,
)
from memfold_flows.stores.ledger_tables import SqliteTables
from memfold_flows.stores.sqlite_rows import pack, unpack

OPTIONS: dict[str, str] = {}

#: Version 2 has neither a replay buffer nor a consolidation state; both are then kept in tables of our own.
SCHEMA_VERSIONS = (2, 6)

TRAITS = StoreTraits(places=PLACES, digests_titles=True, no_promotion="evo has no tiers", rows_per_transaction=10_000)

_PAGE_ROWS = 20_000
_IDS_PER_QUERY = 900
_MILLISECOND = timedelta(milliseconds=1)


def open_store(path: str, options: Mapping[str, Any]) -> EvoStore:
    """Open the store in this file; see ``EvoStore``."""
    return EvoStore(urls.local_path(path))


def _utc_now() -> datetime:
    return datetime.now(UTC)


class EvoStore:
    """The memories of one evo file; a scope is a ``scope_key``. ``clock`` dates the events.

    Raises:
        StoreError: no such file, a file of another kind, or an evo of another schema version.
    """

    traits = TRAITS

    def __init__(self, path: Path, *, clock: Callable[[], datetime] = _utc_now) -> None:
        self.path = path
        self.url = urls.format_url("evo", path)
        self._clock = clock
        self._writer: sqlite3.Connection | None = None
        with self._reading("opening the store"):
            pass

    def snapshot(self, scopes: Collection[str] | None = None) -> Iterator[pa.RecordBatch]:
        wanted = None if scopes is None else set(scopes)
        with self._reading("the snapshot") as connection:
            connection.execute("begin")  # in WAL mode a reader keeps nobody waiting
            for page in _pages(connection):
                rows = [row for row in page if wanted is None or row[1] in wanted]
                if rows:
                    yield batch_of(rows)

    @contextmanager
    def ledger(self) -> Iterator[EvoLedger]:
        with self._reading("reading the ledger") as connection:
            yield EvoLedger(connection)

    @contextmanager
    def transaction(self) -> Iterator[EvoTransaction]:
        require_database(self.path)
        with sqlite_errors(self.path, "this transaction"):
            connection = self._writer = self._writer or connect_writing(self.path)
            connection.execute("begin immediate")
            try:
                _require_schema(connection, self.path)
                ledger = EvoLedger(connection)
                ledger.prepare()
                transaction = EvoTransaction(connection, ledger)
                yield transaction
                transaction.tell(self._clock())
                connection.execute("commit")
            finally:
                if connection.in_transaction:
                    connection.execute("rollback")

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    @contextmanager
    def _reading(self, doing: str) -> Iterator[sqlite3.Connection]:
        require_database(self.path)
        with sqlite_errors(self.path, doing), closing(connect_reading(self.path)) as connection:
            _require_schema(connection, self.path)
            yield connection


class EvoTransaction:
    """One write transaction over ``memories``, the events and the ledger beside them."""

    def __init__(self, connection: sqlite3.Connection, ledger: EvoLedger) -> None:
        self.ledger = ledger
        self._connection = connection
        self._columns = [row[1] for row in connection.execute("pragma main.table_info('memories')")]
        #: Scopes that lost memories: the scope as evo spells it out, and how many memories it held before.
        self._shrunk: dict[str, tuple[Any, int]] = {}

    def read(self, ids: Collection[str]) -> dict[str, StoredRow]:
        return {memory_id: StoredRow(memory_of(cells), pack(cells)) for memory_id, cells in self._cells(ids).items()}

    def count(self, scope: str) -> int:
        counted = self._connection.execute("select count(*) from main.memories where scope_key = ?", (scope,))
        return int(counted.fetchone()[0])

    def delete(self, ids: Collection[str]) -> None:
        for cells in self._cells(ids).values():
            scope = cells["scope_key"]
            if scope not in self._shrunk:
                self._shrunk[scope] = (item_of(cells)["scope"], self.count(scope))
        self._write_each("delete from main.memories where id = ?", [(memory_id,) for memory_id in sorted(ids)])

    def update(self, updates: Sequence[Update]) -> None:
        stored = self._cells([update.after.memory_id for update in updates])
        for update in updates:
            memory_id = update.after.memory_id
            if cells := changed_cells(update, stored[memory_id]):
                assignments = ", ".join(f"{name} = ?" for name in cells)
                self._write_each(f"update main.memories set {assignments} where id = ?", [(*cells.values(), memory_id)])

    def promote(self, rows: Mapping[str, StoredRow], tier: str) -> dict[str, str]:
        raise StoreError(f"memories of evo have no tier to move to {tier!r} from; this transaction changed nothing")

    def restore(self, raws: Mapping[str, bytes]) -> set[str]:
        taken = set(self._cells(raws))
        for memory_id in sorted(set(raws) - taken):
            cells = unpack(raws[memory_id])
            if missing := set(cells) - set(self._columns):
                raise StoreError(
                    f"memory {memory_id!r} cannot be restored: evo's table has lost its column {min(missing)!r}; "
                    "this transaction changed nothing"
                )
            require_valid(cells)
            names, marks = ", ".join(map(_quoted, cells)), ", ".join("?" * len(cells))
            self._write_each(f"insert into main.memories ({names}) values ({marks})", [tuple(cells.values())])
        return taken

    def tell(self, at: datetime) -> None:
        """Append an event for each scope that was consolidated in this transaction: an undo removes nothing."""
        for scope, (spelled_out, before) in sorted(self._shrunk.items()):
            query = f"select {', '.join(COLUMNS)} from main.memories where scope_key = ? {_LIST_ORDER}"
            rows = [dict(zip(COLUMNS, row, strict=True)) for row in self._connection.execute(query, (scope,))]
            items = [item_of(cells) for cells in rows]
            event = {
                "type": "memory.consolidated",
                "scope": spelled_out,
                "result": {"before": before, "after": len(items), "items": items},
            }
            self._connection.execute(
                "insert into main.memory_events (type, scope_json, payload_json, created_at) values (?, ?, ?, ?)",
                (event["type"], encode(spelled_out), encode(event), milliseconds(at)),
            )

    def forget_events(self, ids: Collection[str]) -> int:
        named = 0
        for memory_id in sorted(ids):
            query = "select rowid, type, payload_json from main.memory_events where instr(payload_json, ?) > 0"
            for rowid, kind, payload in self._connection.execute(query, (encode(memory_id),)).fetchall():
                without = _without(payload, memory_id) if kind == "memory.consolidated" else None
                if without is None:
                    named += 1
                else:
                    self._write_each(
                        "update main.memory_events set payload_json = ? where rowid = ?", [(without, rowid)]
                    )
        return named

    def _cells(self, ids: Collection[str]) -> dict[str, dict[str, Any]]:
        """The rows of these ids, all their columns."""
        names = ", ".join(map(_quoted, self._columns))
        wanted = sorted(ids)
        found: dict[str, dict[str, Any]] = {}
        for start in range(0, len(wanted), _IDS_PER_QUERY):
            some = wanted[start : start + _IDS_PER_QUERY]
            query = f"select {names} from main.memories where id in ({', '.join('?' * len(some))})"
            for row in self._connection.execute(query, some):
                cells = dict(zip(self._columns, row, strict=True))
                found[cells["id"]] = cells
        return found

    def _write_each(self, statement: str, rows: list[tuple[Any, ...]]) -> None:
        if rows and (written := self._connection.executemany(statement, rows).rowcount) != len(rows):
            raise StoreError(
                f"{written} rows were written where {len(rows)} were meant ({statement.partition(' ')[0]}); "
                "this transaction changed nothing"
            )


class EvoLedger(Bookkeeping):
    """memfold's ledger, with the state and the replay buffer in evo's own tables where it has them."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(SqliteTables(connection))
        self._connection = connection
        self._is_evos = _schema_version(connection) == 6

    def state(self, scope: str) -> ScopeState:
        own = super().state(scope)
        if not self._is_evos:
            return own
        row = self._connection.execute(
            "select last_consolidate_at, last_digest, converged, convergence_multiplier "
            "from main.consolidation_state where scope_key = ?",
            (scope,),
        ).fetchone()
        if row is None:
            return ScopeState(refusal=own.refusal)
        last_consolidate_at, last_digest, converged, multiplier = row
        return ScopeState(
            last_consolidate_at=EPOCH + last_consolidate_at * _MILLISECOND if last_consolidate_at else None,
            last_digest=last_digest or None,
            converged=bool(converged),
            multiplier=multiplier,
            refusal=_still_last(own, last_consolidate_at),
        )

    def note_state(self, run_id: str, scope: str, state: ScopeState) -> None:
        super().note_state(run_id, scope, state)
        if self._is_evos and state.last_consolidate_at is not None:
            self._connection.execute(
                "insert into main.consolidation_state "
                "(scope_key, last_consolidate_at, last_digest, converged, convergence_multiplier) "
                "values (?, ?, ?, ?, ?) on conflict (scope_key) do update set "
                "last_consolidate_at = excluded.last_consolidate_at, last_digest = excluded.last_digest, "
                "converged = excluded.converged, convergence_multiplier = excluded.convergence_multiplier",
                (
                    *(scope, milliseconds(state.last_consolidate_at), state.last_digest),
                    *(int(state.converged), state.multiplier),
                ),
            )

    def replay(self, scopes: Collection[str] | None = None) -> list[ReplayBatch]:
        if not self._is_evos:
            return super().replay(scopes)
        rows = self._connection.execute(waiting_batches("main.replay_buffer", batch="id", scope="scope_key"))
        return [
            ReplayBatch(batch, scope, batch_json, EPOCH + created_at * _MILLISECOND)
            for batch, scope, batch_json, created_at in rows
            if scopes is None or scope in scopes
        ]

    def count_replay(self, scope: str) -> int:
        if not self._is_evos:
            return super().count_replay(scope)
        query = "select count(*) from main.replay_buffer where scope_key = ? and consumed = 0"
        return int(self._connection.execute(query, (scope,)).fetchone()[0])

    def append_replay(self, scope: str, batch_json: str, at: datetime) -> None:
        try:
            scope_json = encode(scope_of(scope))
        except ValueError as error:
            raise BadUsage(f"{error}; nothing was appended") from None
        require_entries(batch_json)
        if not self._is_evos:
            super().append_replay(scope, batch_json, at)
            return
        self._connection.execute(
            "insert into main.replay_buffer (scope_key, scope_json, batch_json, created_at) values (?, ?, ?, ?)",
            (scope, scope_json, batch_json, milliseconds(at)),
        )

    def forget_replay(self, is_told: Callable[[Mapping[str, Any]], bool]) -> int:
        if not self._is_evos:
            return super().forget_replay(is_told)
        return self._forget_replay_in("main.replay_buffer", "id", is_told)

    def consume_replay(self, batches: Collection[int]) -> None:
        if not self._is_evos:
            super().consume_replay(batches)
            return
        self._connection.executemany(
            "update main.replay_buffer set consumed = 1 where id = ?", [(batch,) for batch in sorted(batches)]
        )


# The order in which evo lists the memories of a scope.
_LIST_ORDER = "order by usage_count desc, updated_at desc, id"

_TABLES = {
    2: {"memories": COLUMNS, "memory_events": ("type", "scope_json", "payload_json", "created_at")},
    6: {
        "replay_buffer": ("id", "scope_key", "scope_json", "batch_json", "created_at", "consumed"),
        "consolidation_state": (
            *("scope_key", "last_consolidate_at", "last_digest", "converged", "convergence_multiplier"),
        ),
    },
}


def _require_schema(connection: sqlite3.Connection, path: Path) -> None:
    version = _schema_version(connection)
    if version is None:
        raise StoreError(f"{path} is no store of evo's: it has no schema_meta; nothing was read or written")
    if version not in SCHEMA_VERSIONS:
        known = " and ".join(map(str, SCHEMA_VERSIONS))
        raise StoreError(
            f"{path} is of evo's schema version {version}, memfold knows {known}; nothing was read or written. "
            "Use a memfold that knows this version."
        )
    for since, tables in _TABLES.items():
        for table, needed in tables.items() if version >= since else ():
            columns = {row[1] for row in connection.execute(f"pragma main.table_info('{table}')")}
            if missing := [name for name in needed if name not in columns]:
                raise StoreError(
                    f"table {table} of {path} lacks {', '.join(missing)}, which evo's schema version {version} has; "
                    "nothing was read or written"
                )


def _schema_version(connection: sqlite3.Connection) -> int | str | None:
    if not connection.execute("select 1 from main.sqlite_schema where name = 'schema_meta'").fetchone():
        return None
    versions = {row[0] for row in connection.execute("select version from main.schema_meta")}
    return versions.pop() if len(versions) == 1 else f"{sorted(map(str, versions)) or 'none'}"


def _without(payload: str, memory_id: str) -> str | None:
    """An event of a consolidation with this memory left out of what it lists; None where it does not list it."""
    try:
        event = json.loads(payload)
        items = event["result"]["items"]
        kept = [item for item in items if item["id"] != memory_id]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    if len(kept) == len(items):
        return None
    return encode({**event, "result": {**event["result"], "items": kept}})


def _still_last(own: ScopeState, last_consolidate_at: int) -> Any:
    """The refusal, unless evo itself consolidated the scope since."""
    refusal = own.refusal
    return refusal if refusal and milliseconds(refusal.at) >= (last_consolidate_at or 0) else None


def _pages(connection: sqlite3.Connection) -> Iterator[list[tuple[Any, ...]]]:
    cursor = connection.execute(f"select {', '.join(COLUMNS)} from main.memories order by id")
    while True:
        try:
            page = cursor.fetchmany(_PAGE_ROWS)
        except sqlite3.OperationalError as error:
            if "decode" in str(error):
                raise _undecodable(connection) from None
            raise
        if not page:
            return
        yield page


def _undecodable(connection: sqlite3.Connection) -> BadRecord:
    # SQLite's own message would quote the memory.
    connection.text_factory = bytes
    for row in connection.execute(f"select {', '.join(COLUMNS)} from main.memories order by id"):
        for name, value in zip(COLUMNS, row, strict=True):
            try:
                if isinstance(value, bytes):
                    value.decode()
            except UnicodeDecodeError:
                return BadRecord(f"memory {row[0]!r}: {name} is not UTF-8; nothing was planned. Correct that record.")
    return BadRecord("a memory that is not UTF-8 came and went while it was read; nothing was planned. Plan again.")


def _quoted(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'
