"""The ledger: memfold's own tables, prefixed memfold_, in a database.

They stand beside the data, so that what happened and the record of it land in one transaction. File stores keep them
in ``.memfold/<name>.db`` beside the archive. The SQL is what SQLite and PostgreSQL both understand; what differs
is in ``ledger_tables.py``. Times are whole microseconds since 1970, UTC.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from memfold.convergence import Refusal, ScopeState
from memfold.errors import StoreError, Transient
from memfold.frames import REJECTED
from memfold.memory import EPOCH, from_microseconds, microseconds
from memfold_flows.stores.base import (
    REPLAY_BATCHES_PER_SCOPE,
    Landed,
    Rejection,
    ReplayBatch,
    RunRecord,
    RunRef,
    Step,
)
from memfold_flows.stores.connections import connect_creating, connect_reading, require_database, sqlite_errors
from memfold_flows.stores.ledger_tables import SCHEMA_VERSION, LedgerTables, SqliteTables
from memfold_flows.stores.processes import has_ended, this_process
from memfold_flows.stores.tombstones import Tombstones, hash_of

# Below the 999 parameters that an old SQLite allows.
_IDS_PER_QUERY = 900


class Bookkeeping:
    """The ledger of one store. Without its tables it reads as empty; ``prepare`` makes them.

    Raises:
        StoreError: the tables were made by a newer memfold.
    """

    def __init__(self, tables: LedgerTables) -> None:
        self._tables = tables
        self._of = tables.prefix
        self._exists = tables.exist()
        self._version = self._read_version()
        if self._version > SCHEMA_VERSION:
            raise StoreError(
                f"the memfold_ tables have version {self._version}, this memfold knows {SCHEMA_VERSION}; "
                "nothing was written. Upgrade memfold."
            )

    @property
    def is_prepared(self) -> bool:
        """Whether all of its tables are there."""
        return self._version == SCHEMA_VERSION

    def prepare(self) -> None:
        """Make the tables where they are missing, inside the caller's transaction."""
        if self.is_prepared:
            return
        for version in range(self._version + 1, SCHEMA_VERSION + 1):
            self._tables.create(version)
        self._tables.write(
            f"insert into {self._of}meta (name, value) values ('schema_version', ?) "
            "on conflict (name) do update set value = excluded.value",
            (str(SCHEMA_VERSION),),
        )
        self._exists, self._version = True, SCHEMA_VERSION

    def run(self, run_id: str) -> RunRecord | None:
        found = self._runs("where run_id = ?", (run_id,))
        return found[0] if found else None

    def runs(self) -> list[RunRecord]:
        return self._runs("order by began_at desc, run_id desc", ())

    def begin(self, run: RunRef, at: datetime) -> None:
        self._tables.write(
            f"insert into {self._of}runs (run_id, directory, digest, began_at) values (?, ?, ?, ?) "
            "on conflict do nothing",
            (run.run_id, run.directory, run.digest, microseconds(at)),
        )

    def finish(self, run_id: str, step: Step, at: datetime) -> None:
        column = {"apply": "applied_at", "undo": "undone_at"}[step]
        self._tables.write(f"update {self._of}runs set {column} = ? where run_id = ?", (microseconds(at), run_id))

    def landed(self, run_id: str, step: Step) -> list[Landed]:
        rows = self._read(
            f"select batch, scope, first_unit, last_unit, report, landed_at from {self._of}applied "
            "where run_id = ? and step = ? order by batch, scope",
            (run_id, step),
        )
        return [
            Landed(batch, scope, first, last, report, from_microseconds(landed_at))
            for batch, scope, first, last, report, landed_at in rows
        ]

    def land(self, run_id: str, step: Step, landed: Sequence[Landed], at: datetime) -> None:
        self._tables.write_each(
            f"insert into {self._of}applied (run_id, step, batch, scope, first_unit, last_unit, landed_at, report) "
            "values (?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (run_id, step, part.batch, part.scope, part.first_unit, part.last_unit, microseconds(at), part.report)
                for part in landed
            ],
        )

    def resolve(self, memory_id: str) -> str:
        seen = {memory_id}
        current = memory_id
        while step := self._read(f"select new_id from {self._of}redirects where old_id = ?", (current,)):
            current = step[0][0]
            if current in seen:
                break
            seen.add(current)
        return current

    def redirect(self, run_id: str, into: Mapping[str, str]) -> None:
        self._tables.write_each(
            f"insert into {self._of}redirects (old_id, new_id, run_id) values (?, ?, ?) "
            "on conflict (old_id) do update set new_id = excluded.new_id, run_id = excluded.run_id",
            [(old, new, run_id) for old, new in sorted(into.items())],
        )

    def drop_redirects(self, ids: Collection[str]) -> None:
        self._tables.write_each(
            f"delete from {self._of}redirects where old_id = ?", [(memory_id,) for memory_id in sorted(ids)]
        )

    def losses(self, since: datetime, *, but: str = "") -> dict[str, int]:
        rows = self._read(
            f"select scope, cast(sum(lost) as bigint) from {self._of}losses where lost_at > ? and run_id <> ? "
            "group by scope having sum(lost) > 0 order by scope",
            (microseconds(since), but),
        )
        return dict(rows)

    def lose(self, run_id: str, scope: str, rows: int, at: datetime) -> None:
        self._tables.write(
            f"insert into {self._of}losses as known (run_id, scope, lost, lost_at) values (?, ?, ?, ?) "
            "on conflict (run_id, scope) do update set lost = known.lost + excluded.lost, lost_at = excluded.lost_at",
            (run_id, scope, rows, microseconds(at)),
        )

    def give_back(self, run_id: str, scope: str, rows: int) -> None:
        self._tables.write(
            f"update {self._of}losses set lost = case when lost > ? then lost - ? else 0 end "
            "where run_id = ? and scope = ?",
            (rows, rows, run_id, scope),
        )

    def rejected(self) -> pa.Table:
        rows = self._read(
            f"select memory_id, into_id, row_digest, into_digest from {self._of}rejected "
            "order by 1, 2 nulls first, 3, 4 nulls first",
            (),
        )
        return pa.Table.from_pylist([dict(zip(REJECTED.names, row, strict=True)) for row in rows], REJECTED)

    def decided(self, ids: Collection[str]) -> set[str]:
        if not self._read(f"select 1 from {self._of}rejected limit 1", ()):
            return set()
        found: set[str] = set()
        wanted = sorted(ids)
        for start in range(0, len(wanted), _IDS_PER_QUERY):
            some = tuple(wanted[start : start + _IDS_PER_QUERY])
            marks = ", ".join("?" * len(some))
            for column in ("memory_id", "into_id"):
                query = f"select distinct {column} from {self._of}rejected where {column} in ({marks})"
                found |= {row[0] for row in self._read(query, some)}
        return found

    def reject(self, decisions: Collection[Rejection]) -> None:
        self._tables.write_each(
            f"insert into {self._of}rejected (memory_id, into_id, row_digest, into_digest) "
            "values (?, ?, ?, ?) on conflict do nothing",
            list(decisions),
        )

    def carry_rejections(self, changed: Mapping[tuple[str, str], tuple[str, str]]) -> None:
        # The old decisions stay: an undo brings the old digests back.
        moves = [(*after, *before) for before, after in sorted(changed.items())]
        self._tables.write_each(
            f"insert into {self._of}rejected (memory_id, row_digest, into_id, into_digest) "
            f"select ?, ?, into_id, into_digest from {self._of}rejected where memory_id = ? and row_digest = ? "
            "on conflict do nothing",
            moves,
        )
        self._tables.write_each(
            f"insert into {self._of}rejected (memory_id, row_digest, into_id, into_digest) "
            f"select memory_id, row_digest, ?, ? from {self._of}rejected where into_id = ? and into_digest = ? "
            "on conflict do nothing",
            moves,
        )

    def state(self, scope: str) -> ScopeState:
        rows = self._read_added(
            "select last_consolidate_at, last_digest, converged, multiplier, refused_at, refused_why, refused_digest "
            f"from {self._of}state where scope = ?",
            (scope,),
        )
        return _state(rows[0]) if rows else ScopeState()

    def scopes_noted(self) -> list[str]:
        return [row[0] for row in self._read_added(f"select scope from {self._of}state order by scope", ())]

    def noted_by(self, scope: str) -> str | None:
        rows = self._read_added(f"select run_id from {self._of}state where scope = ?", (scope,))
        return rows[0][0] if rows else None

    def note_state(self, run_id: str, scope: str, state: ScopeState) -> None:
        refusal = state.refusal
        refused = (microseconds(refusal.at), refusal.why, refusal.digest) if refusal else (None, None, None)
        self._tables.write(
            f"insert into {self._of}state (scope, run_id, last_consolidate_at, last_digest, converged, "
            "multiplier, refused_at, refused_why, refused_digest) values (?, ?, ?, ?, ?, ?, ?, ?, ?) "
            f"on conflict (scope) do update set {_taken_over(_STATE_COLUMNS)}",
            (
                *(scope, run_id, microseconds(state.last_consolidate_at), state.last_digest, int(state.converged)),
                *(state.multiplier, *refused),
            ),
        )

    def replay(self, scopes: Collection[str] | None = None) -> list[ReplayBatch]:
        rows = self._read_added(waiting_batches(f"{self._of}replay", batch="batch", scope="scope"), ())
        return [
            ReplayBatch(batch, scope, batch_json, from_microseconds(created_at) or EPOCH)
            for batch, scope, batch_json, created_at in rows
            if scopes is None or scope in scopes
        ]

    def count_replay(self, scope: str) -> int:
        rows = self._read_added(f"select count(*) from {self._of}replay where scope = ? and consumed = 0", (scope,))
        return int(rows[0][0]) if rows else 0

    def append_replay(self, scope: str, batch_json: str, at: datetime) -> None:
        self._tables.write(
            f"insert into {self._of}replay (scope, batch_json, created_at) values (?, ?, ?)",
            (scope, batch_json, microseconds(at)),
        )

    def consume_replay(self, batches: Collection[int]) -> None:
        self._tables.write_each(
            f"update {self._of}replay set consumed = 1 where batch = ?", [(batch,) for batch in sorted(batches)]
        )

    def tombstones(self) -> Tombstones:
        rows = self._read_added(f"select id_hash, text_hash, forgotten_at from {self._of}forgotten", (), since=4)
        stones: dict[str, dict[str, datetime]] = {}
        for id_hash, text_hash, at in rows:
            stones.setdefault(id_hash, {})[text_hash] = from_microseconds(at) or EPOCH
        return Tombstones(self._key(), stones) if stones else Tombstones()

    def bury(self, texts: Mapping[str, Collection[str]], at: datetime, *, new_key: bytes) -> None:
        self._tables.write(
            f"insert into {self._of}meta (name, value) values ('forget_key', ?) on conflict do nothing",
            (new_key.hex(),),
        )
        key = self._key()
        self._tables.write_each(
            f"insert into {self._of}forgotten (id_hash, text_hash, forgotten_at) values (?, ?, ?) "
            f"on conflict (id_hash, text_hash) do update set {_taken_over(('forgotten_at',))}",
            [
                (hash_of(key, "id", memory_id), hash_of(key, "text", text), microseconds(at))
                for memory_id, of_id in sorted(texts.items())
                for text in sorted(of_id)
            ],
        )

    def forget_decisions(self, ids: Collection[str]) -> None:
        for column in ("memory_id", "into_id"):
            self._tables.write_each(
                f"delete from {self._of}rejected where {column} = ?", [(memory_id,) for memory_id in sorted(ids)]
            )

    def forget_replay(self, is_told: Callable[[Mapping[str, Any]], bool]) -> int:
        return self._forget_replay_in(f"{self._of}replay", "batch", is_told)

    def take_lease(self, holder: str, now: datetime, until: datetime) -> int:
        found = self._read(f"select holder, fence, until, process from {self._of}lease", ())
        other, fence, other_until, process = found[0] if found else (holder, 0, 0, None)
        # The lease of a process that was killed is free at once: it writes no more, and the new number would stop it.
        if other != holder and other_until > (microseconds(now) or 0) and not has_ended(process):
            raise Transient(
                f"run {other!r} holds this store; nothing was written for {holder!r}. Try again once it has ended; "
                f"one that was killed holds it until {from_microseconds(other_until):%H:%M:%S} UTC at most."
            )
        self._tables.write(
            f"insert into {self._of}lease (one, holder, fence, until, process) values (1, ?, ?, ?, ?) "
            f"on conflict (one) do update set {_taken_over(('holder', 'fence', 'until', 'process'))}",
            (holder, fence + 1, microseconds(until), this_process()),
        )
        return int(fence) + 1

    def renew_lease(self, holder: str, fence: int, until: datetime) -> None:
        renewed = self._tables.write(
            f"update {self._of}lease set until = ? where holder = ? and fence = ?",
            (microseconds(until), holder, fence),
        )
        if renewed != 1:
            raise StoreError(
                f"another memfold took over this store while {holder!r} was at work; this transaction was not written. "
                "What was committed before it stays and is recorded; apply again to go on."
            )

    def release_lease(self, holder: str, fence: int) -> None:
        # The row stays, so that no fencing number is ever given out twice.
        self._tables.write(f"update {self._of}lease set until = 0 where holder = ? and fence = ?", (holder, fence))

    def _forget_replay_in(self, table: str, batch: str, is_told: Callable[[Mapping[str, Any]], bool]) -> int:
        """``forget_replay`` in a table whose batches are numbered in a column of this name."""
        taken = 0
        for number, batch_json in self._read(f"select {batch}, batch_json from {table} order by {batch}", ()):
            try:
                batch_of = json.loads(batch_json)
                entries = list(batch_of["memories"])
            except (ValueError, TypeError, KeyError, RecursionError):
                continue  # what no pass can read tells no pass anything
            kept = [each for each in entries if not (isinstance(each, dict) and is_told(each))]
            if len(kept) == len(entries):
                continue
            taken += len(entries) - len(kept)
            spelled = json.dumps({**batch_of, "memories": kept}, ensure_ascii=False, separators=(",", ":"))
            self._tables.write(f"update {table} set batch_json = ? where {batch} = ?", (spelled, number))
        return taken

    def _key(self) -> bytes:
        rows = self._read(f"select value from {self._of}meta where name = 'forget_key'", ())
        return bytes.fromhex(rows[0][0]) if rows else b""

    def _read_version(self) -> int:
        rows = self._read(f"select value from {self._of}meta where name = 'schema_version'", ())
        return int(rows[0][0]) if rows else 0

    def _runs(self, clause: str, values: tuple[str, ...]) -> list[RunRecord]:
        rows = self._read(
            f"select run_id, directory, digest, began_at, applied_at, undone_at from {self._of}runs {clause}", values
        )
        return [RunRecord(*row[:3], *map(from_microseconds, row[3:])) for row in rows]

    def _read(self, query: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        return self._tables.read(query, values) if self._exists else []

    def _read_added(self, query: str, values: tuple[Any, ...], *, since: int = 2) -> list[tuple[Any, ...]]:
        """What the tables of a later version hold, which a ledger that was only read since may not have yet."""
        return self._read(query, values) if self._version >= since else []


def waiting_batches(table: str, *, batch: str, scope: str) -> str:
    """The query for what a pass reads of a replay buffer, whose columns are called so: batch, scope, JSON and time."""
    return (
        "select batch, scope, batch_json, created_at from ("
        f"select {batch} as batch, {scope} as scope, batch_json, created_at, "
        f"row_number() over (partition by {scope} order by created_at, {batch}) as place "
        f"from {table} where consumed = 0"
        f") as waiting where place <= {REPLAY_BATCHES_PER_SCOPE} order by scope, created_at, batch"
    )


def ledger_file(archive: Path) -> Path:
    """Where the ledger of a file store lives: ``.memfold/<name>.db`` beside the archive."""
    return archive.parent / ".memfold" / f"{archive.name}.db"


@contextmanager
def reading(ledger: Path) -> Iterator[Bookkeeping | None]:
    """The ledger in a file of its own, for reading only; None where there is none. Creates nothing."""
    if not ledger.exists() or ledger.stat().st_size == 0:
        yield None
        return
    require_database(ledger)
    with sqlite_errors(ledger, "reading the ledger"), closing(connect_reading(ledger)) as connection:
        yield Bookkeeping(SqliteTables(connection))


@contextmanager
def writing(ledger: Path) -> Iterator[Bookkeeping]:
    """A write transaction over the ledger in a file of its own, made where missing; rolls back on an exception."""
    with sqlite_errors(ledger, "this transaction"), closing(connect_creating(ledger)) as connection:
        connection.execute("begin immediate")
        try:
            bookkeeping = Bookkeeping(SqliteTables(connection))
            bookkeeping.prepare()
            yield bookkeeping
            connection.execute("commit")
        finally:
            if connection.in_transaction:
                connection.execute("rollback")


_STATE_COLUMNS = (
    *("run_id", "last_consolidate_at", "last_digest", "converged", "multiplier"),
    *("refused_at", "refused_why", "refused_digest"),
)


def _taken_over(columns: Iterable[str]) -> str:
    """The assignments that put new values in the place of a row's old ones."""
    return ", ".join(f"{name} = excluded.{name}" for name in columns)


def _state(row: tuple[Any, ...]) -> ScopeState:
    last_consolidate_at, last_digest, converged, multiplier, refused_at, why, digest = row
    refused = from_microseconds(refused_at)
    return ScopeState(
        last_consolidate_at=from_microseconds(last_consolidate_at),
        last_digest=last_digest,
        converged=bool(converged),
        multiplier=multiplier,
        refusal=None if refused is None else Refusal(at=refused, why=why, digest=digest),
    )
