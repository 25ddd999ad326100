"""``praisonai:`` the SQLite files of PraisonAI's ``Memory``, read and written beside live agents.

Reads are short: agents keep their files in rollback-journal mode, where a long read would block their commits. A write
is one transaction over both files, on a connection of its own. PraisonAI's API is never used for it: it commits on its
own, has no update, and deletes from both tiers where an id is not typed.

Two files of which at least one is in WAL mode cannot be changed together atomically. Then each file is its own
transaction: the long-term file commits first, with the bookkeeping, so that a crash between the two leaves rows that
the next pass folds, never a row that is gone; and nothing moves from one tier to the other.
"""

from __future__ import annotations

import logging
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any, cast

import pyarrow as pa

from memfold.errors import StoreError
from memfold_flows.stores import praisonai_files
from memfold_flows.stores.base import StoredRow, StoreTraits, Update
from memfold_flows.stores.batches import memories_batch
from memfold_flows.stores.bookkeeping import Bookkeeping
from memfold_flows.stores.connections import sqlite_errors
from memfold_flows.stores.ledger_tables import SqliteTables
from memfold_flows.stores.praisonai_files import BUSY_SECONDS, OPTIONS, MemoryFiles, open_reading, open_writing
from memfold_flows.stores.praisonai_rows import (
    LONG_TERM,
    SHORT_TERM,
    TIERS,
    BrokenText,
    Group,
    Row,
    as_copy,
    decode,
    encode,
    group_of,
    read_memory,
    read_scope,
    split_id,
    typed_id,
    why_unreadable,
)
from memfold_flows.stores.urls import format_url

__all__ = ["OPTIONS", "PraisonAIStore", "open_store"]

#: Metadata takes the keys of the members. A row has no other place that is not the caller's own: the timestamp stays.
_TRAITS = StoreTraits(
    places=frozenset({"metadata"}),
    session_recall="equality",
    promotes=True,
    # Agents lose a turn when they wait 10 s for the lock; 5,000 rows take far less than one.
    rows_per_transaction=5_000,
)
_IN_WAL: dict[str, Any] = {
    "promotes": False,
    "no_promotion": "one of its two files is in WAL mode; with pragma journal_mode = delete on both it does",
}
_ROWS_PER_READ = 2_000
_PARAMETERS_PER_QUERY = 900

_log = logging.getLogger(__name__)


def open_store(path: str, options: Mapping[str, str]) -> PraisonAIStore:
    """Open the memory in a folder of PraisonAI, or in the files that the options name.

    Raises:
        BadUsage: the options contradict each other, or the folder holds several memories and none was chosen.
        StoreError: a file is missing or is not PraisonAI's; nothing is created.
    """
    return PraisonAIStore(praisonai_files.find(path, options))


class PraisonAIStore:
    """One ``Memory`` of PraisonAI: a short-term and a long-term table, in two SQLite files or in one."""

    def __init__(self, files: MemoryFiles) -> None:
        self._files = files
        self.url = _url(files)
        self.traits = _TRAITS if files.is_one_file or not _any_wal(files) else replace(_TRAITS, **_IN_WAL)
        #: Why rows of the last snapshot are left alone, and how many: PraisonAI cannot read them either.
        self.left_alone: Counter[str] = Counter()

    def snapshot(self, scopes: Collection[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Every memory, tier by tier and by id; a row that PraisonAI cannot read is protected and without text."""
        self.left_alone = Counter()
        for tier in TIERS:
            firsts: dict[Group, str] = {}
            for rows in _pages(self._files, tier):
                self.left_alone.update(why for row in rows if (why := why_unreadable(row)))
                memories = (as_copy(read_memory(tier, row), firsts) for row in rows)
                yield memories_batch(each for each in memories if scopes is None or each.scope in scopes)
        for why, count in sorted(self.left_alone.items()):
            _log.warning("left %d rows of %s alone: %s", count, self.url, why)

    @contextmanager
    def ledger(self) -> Iterator[Bookkeeping]:
        """The bookkeeping in the long-term file, for reading only."""
        file = self._files.long_term
        with sqlite_errors(file, "reading the ledger"), closing(open_reading(file)) as connection:
            yield Bookkeeping(SqliteTables(connection))

    @contextmanager
    def transaction(self) -> Iterator[PraisonAITransaction]:
        """One write transaction over both tiers and the bookkeeping.

        Raises:
            Transient: an agent holds a file for longer than memfold waits.
        """
        with sqlite_errors(self._files.long_term, "this transaction", busy_seconds=BUSY_SECONDS):
            connection, schemas = open_writing(self._files)
            with closing(connection):
                connection.execute("begin immediate")
                try:
                    ledger = Bookkeeping(SqliteTables(connection))
                    ledger.prepare()
                    yield PraisonAITransaction(connection, schemas, ledger)
                    connection.execute("commit")
                finally:
                    if connection.in_transaction:
                        connection.execute("rollback")

    def close(self) -> None:
        """Nothing is kept open between calls."""


class PraisonAITransaction:
    """A write transaction over both tiers, both files locked against other writers."""

    def __init__(self, connection: sqlite3.Connection, schemas: Mapping[str, str], ledger: Bookkeeping) -> None:
        self.ledger = ledger
        self._connection = connection
        self._tables = {tier: f"{schema}.{tier}_memory" for tier, schema in schemas.items()}
        self._columns = {tier: _column_names(connection, schema, tier) for tier, schema in schemas.items()}
        is_one_file = len(set(schemas.values())) == 1
        self._is_atomic = is_one_file or "wal" not in _journal_modes(connection, schemas.values())
        self._counts: Counter[str] | None = None

    def read(self, ids: Collection[str]) -> dict[str, StoredRow]:
        """The rows of these typed ids as they stand now."""
        found: dict[str, StoredRow] = {}
        for tier, row_ids in _by_tier(ids).items():
            rows = list(self._rows(tier, "id", row_ids))
            memories = [read_memory(tier, _row(columns)) for columns in rows]
            firsts = self._firsts(tier, [each.content for each in memories if group_of(each) is not None])
            for memory, columns in zip(memories, rows, strict=True):
                found[memory.memory_id] = StoredRow(as_copy(memory, firsts), encode(tier, columns))
        return found

    def count(self, scope: str) -> int:
        """How many memories of both tiers the scope holds now."""
        if self._counts is None:
            self._counts = Counter(
                read_scope(Row(*values))
                for table in self._tables.values()
                for values in self._connection.execute(f"select id, content, metadata, timestamp from {table}")
            )
        return self._counts[scope]

    def delete(self, ids: Collection[str]) -> None:
        """Remove these rows, each from its own tier."""
        for tier, row_ids in _by_tier(ids).items():
            self._write(f"delete from {self._tables[tier]} where id = ?", [(row_id,) for row_id in sorted(row_ids)])

    def update(self, updates: Sequence[Update]) -> None:
        """Write the folded metadata; text, id and timestamp stay as they are."""
        changed = [update for update in updates if update.after.metadata != update.before.metadata]
        for update in changed:
            tier, row_id = _split(update.before.memory_id)
            metadata = update.after.metadata
            if why := why_unreadable(Row(row_id, update.after.content, metadata, None)):
                raise StoreError(f"{update.before.memory_id} was not written: {why}, and PraisonAI would fail on it")
            self._write(f"update {self._tables[tier]} set metadata = ? where id = ?", [(metadata, row_id)])

    def promote(self, rows: Mapping[str, StoredRow], tier: str) -> dict[str, str]:
        """Move short-term rows to the end of long term, with their metadata and timestamp."""
        if not self._is_atomic:
            raise StoreError(
                "a file of this memory is in WAL mode, so moving a row from one file to the other could lose or double "
                "it; nothing was written. Set both to pragma journal_mode = delete, or promote nothing"
            )
        if tier != LONG_TERM or any(_split(memory_id)[0] != SHORT_TERM for memory_id in rows):
            raise StoreError(f"PraisonAI moves rows from {SHORT_TERM} to {LONG_TERM} only, not to {tier!r}")
        names = [name for name in self._columns[LONG_TERM] if name in self._columns[SHORT_TERM] and name != "id"]
        new_ids = {}
        for memory_id in sorted(rows, key=_split):
            _, columns = decode(rows[memory_id].raw)
            new_id = self._insert(LONG_TERM, {name: columns[name] for name in names})
            new_ids[memory_id] = typed_id(LONG_TERM, new_id)
        self.delete(rows.keys())
        return new_ids

    def restore(self, raws: Mapping[str, bytes]) -> set[str]:
        """Insert removed rows with the id, timestamp and metadata that they had."""
        existing = set(self.read(raws.keys()))
        for memory_id in raws.keys() - existing:
            self._insert(*decode(raws[memory_id]))
        return existing

    def _insert(self, tier: str, columns: Mapping[str, object]) -> int:
        names = ", ".join(_quoted(name) for name in columns)
        places = ", ".join("cast(? as text)" if isinstance(value, BrokenText) else "?" for value in columns.values())
        inserted = self._connection.execute(
            f"insert into {self._tables[tier]} ({names}) values ({places})", tuple(columns.values())
        )
        self._counts = None
        return cast(int, inserted.lastrowid)

    def _write(self, statement: str, parameters: Sequence[tuple[object, ...]]) -> None:
        written = self._connection.executemany(statement, parameters).rowcount
        self._counts = None
        if written != len(parameters):
            raise StoreError(f"{written} rows would have changed instead of {len(parameters)}; nothing was written")

    def _rows(self, tier: str, column: str, values: Iterable[Any]) -> Iterator[dict[str, object]]:
        """All columns of the rows in which ``column`` has one of the values, by id within each query."""
        names = self._columns[tier]
        select = f"select {', '.join(map(_quoted, names))} from {self._tables[tier]}"
        for some in _chunks(sorted(set(values))):
            places = ", ".join("?" * len(some))
            for row in self._connection.execute(f"{select} where {column} in ({places}) order by id", some):
                yield dict(zip(names, row, strict=True))

    def _firsts(self, tier: str, contents: Iterable[str]) -> dict[Group, str]:
        """The oldest row of each group of exact copies with these texts."""
        firsts: dict[Group, str] = {}
        for columns in self._rows(tier, "content", contents):
            as_copy(read_memory(tier, _row(columns)), firsts)
        return firsts


def _pages(files: MemoryFiles, tier: str) -> Iterator[list[Row]]:
    """The rows of a tier by id, each page in a read of its own, so that no agent waits for us."""
    file = files.of(tier)
    page = f"select id, content, metadata, timestamp from {tier}_memory where id > ? order by id limit ?"
    with sqlite_errors(file, "reading it"), closing(open_reading(file)) as connection:
        last = -(2**63)
        while rows := [Row(*values) for values in connection.execute(page, (last, _ROWS_PER_READ))]:
            yield rows
            last = cast(int, rows[-1].id)


def _row(columns: Mapping[str, object]) -> Row:
    return Row(cast(int, columns["id"]), columns["content"], columns["metadata"], columns["timestamp"])


def _by_tier(ids: Iterable[str]) -> dict[str, list[int]]:
    """The row ids of each tier; an id of another form names no row."""
    tiers: dict[str, list[int]] = {}
    for memory_id in ids:
        if place := split_id(memory_id):
            tiers.setdefault(place[0], []).append(place[1])
    return tiers


def _split(memory_id: str) -> tuple[str, int]:
    place = split_id(memory_id)
    if place is None:
        raise StoreError(f"{memory_id!r} is no id of a PraisonAI memory; nothing was written")
    return place


def _column_names(connection: sqlite3.Connection, schema: str, tier: str) -> list[str]:
    return [column[1] for column in connection.execute(f"pragma {schema}.table_info({tier}_memory)")]


def _journal_modes(connection: sqlite3.Connection, schemas: Iterable[str]) -> set[str]:
    return {connection.execute(f"pragma {schema}.journal_mode").fetchone()[0] for schema in schemas}


def _any_wal(files: MemoryFiles) -> bool:
    for tier in TIERS:
        file = files.of(tier)
        with sqlite_errors(file, "reading it"), closing(open_reading(file)) as connection:
            if "wal" in _journal_modes(connection, ["main"]):
                return True
    return False


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _chunks(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(values), _PARAMETERS_PER_QUERY):
        yield values[start : start + _PARAMETERS_PER_QUERY]


def _url(files: MemoryFiles) -> str:
    """With the names of both files: the folder may hold another pair tomorrow."""
    if files.is_one_file:
        return format_url("praisonai", files.long_term)
    folder = files.long_term.parent
    short_term = files.short_term.name if files.short_term.parent == folder else str(files.short_term)
    return format_url("praisonai", folder, {"short_db": short_term, "long_db": files.long_term.name})
