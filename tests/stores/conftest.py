"""Stores filled for a test, and a pass over them without the planning: the plan is what the test says."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memfold.frames import REWRITE, TALLY, UNDO
from memfold.memory import Memory
from memfold.policy import Policy
from memfold_flows.stores import applying, open_store, postgresql, sqlite, urls
from memfold_flows.stores.base import ApplyReport, MemoryStore, RunRef, UndoReport
from memfold_flows.stores.sqlite_rows import cells_of
from memfold_flows.stores.undo_units import Selection

NOW = datetime(2026, 11, 30, 3, 0, tzinfo=UTC)


class Filled(Protocol):
    """A store that a test filled, and ways past memfold to what it holds."""

    url: str
    #: The id that the store gave to each memory.
    ids: dict[str, str]

    def open(self) -> MemoryStore:
        """The store as memfold opens it for writing."""
        ...

    def contents(self) -> dict[str, Any]:
        """Every memory as it is kept, by id: all columns, or its bytes; nothing of memfold's own bookkeeping."""
        ...

    def everything(self) -> Any:
        """All that an undo has to bring back: the bytes of a file, the rows of all tables but memfold's own."""
        ...

    def reword(self, memory_id: str, content: str) -> None:
        """An agent gives a memory another text."""
        ...

    def forget(self, memory_id: str) -> None:
        """An agent deletes a memory."""
        ...


class FilledSqlite:
    """memfold's own table in a file."""

    def __init__(self, folder: Path, memories: Sequence[Memory]) -> None:
        self.path = folder / "memories.db"
        self.url = f"sqlite:{self.path}"
        self.ids = {memory.memory_id: memory.memory_id for memory in memories}
        sqlite.init(self.path)
        for memory in memories:
            self.insert(memory)
        self.store = self.open()

    def open(self) -> MemoryStore:
        return open_store(self.url)

    def insert(self, memory: Memory) -> None:
        cells = cells_of(memory)
        marks = ", ".join("?" * len(cells))
        self.execute(f"insert into memories ({', '.join(cells)}) values ({marks})", *cells.values())

    def execute(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            return connection.execute(statement, values).fetchall()

    def contents(self) -> dict[str, Any]:
        return {row[0]: row for row in self.execute("select * from memories order by memory_id")}

    def everything(self) -> Any:
        tables = self.execute("select name from sqlite_schema where type = 'table' and name not like 'memfold_%'")
        return {name: self.execute(f"select * from {name} order by 1") for (name,) in tables}

    def reword(self, memory_id: str, content: str) -> None:
        self.execute("update memories set content = ? where memory_id = ?", content, memory_id)

    def forget(self, memory_id: str) -> None:
        self.execute("delete from memories where memory_id = ?", memory_id)


class FilledMappedSqlite:
    """A table of people's own in a SQLite file, with names that need quotes and only a few fields."""

    def __init__(self, folder: Path, memories: Sequence[Memory]) -> None:
        self.path = folder / "notes.db"
        options = "table=Agent%20notes&id=note%20id&content=body&scope=who&created_at=written&metadata=extra"
        self.url = f"sqlite:{self.path}?{options}"
        self.ids: dict[str, str] = {}
        self.execute(
            'create table "Agent notes" ("note id" integer primary key, body text, who text, written text, '
            "extra text, rank real default 0.25)"
        )
        for number, memory in enumerate(memories, start=1):
            self.ids[memory.memory_id] = str(number)
            self.execute(
                'insert into "Agent notes" ("note id", body, who, written, extra) values (?, ?, ?, ?, ?)',
                *(number, memory.content, memory.scope or None, "2026-11-01 10:00:00", memory.metadata),
            )

    def open(self) -> MemoryStore:
        return open_store(self.url)

    def execute(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            return connection.execute(statement, values).fetchall()

    def contents(self) -> dict[str, Any]:
        return {str(row[0]): row for row in self.execute('select * from "Agent notes" order by 1')}

    def everything(self) -> Any:
        return self.contents()

    def reword(self, memory_id: str, content: str) -> None:
        self.execute('update "Agent notes" set body = ? where "note id" = ?', content, int(memory_id))

    def forget(self, memory_id: str) -> None:
        self.execute('delete from "Agent notes" where "note id" = ?', int(memory_id))


class FilledPostgresql:
    """memfold's own table in a database of its own."""

    table = "memories"

    def __init__(self, url: str, memories: Sequence[Memory]) -> None:
        self.database = url
        self.url = url
        self.ids: dict[str, str] = {}
        self._make()
        for memory in memories:
            self.ids[memory.memory_id] = self.insert(memory)

    def _make(self) -> None:
        parts = urls.parse(self.url)
        postgresql.init(parts.path, parts.options)

    def open(self) -> MemoryStore:
        return open_store(self.url)

    def insert(self, memory: Memory) -> str:
        cells = {field.name: getattr(memory, field.name) for field in fields(Memory)}
        cells |= {name: list(value) for name, value in cells.items() if isinstance(value, tuple)}
        marks = ", ".join(["%s"] * len(cells))
        self.execute(f"insert into memories ({', '.join(cells)}) values ({marks})", *cells.values())
        return memory.memory_id

    def execute(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        import psycopg

        with psycopg.connect(self.database, autocommit=True, options="-c TimeZone=UTC") as connection:
            cursor = connection.execute(statement.encode(), values)
            return cursor.fetchall() if cursor.description else []

    def contents(self) -> dict[str, Any]:
        rows = self.execute(f"select to_jsonb(t), t::text from {self.table} t")
        return {str(row[self._id]): (row, text) for row, text in rows}

    _id = "memory_id"

    def everything(self) -> Any:
        return self.contents()

    def reword(self, memory_id: str, content: str) -> None:
        self.execute("update memories set content = %s where memory_id = %s", content, memory_id)

    def forget(self, memory_id: str) -> None:
        self.execute("delete from memories where memory_id = %s", memory_id)


class FilledMappedPostgresql(FilledPostgresql):
    """A table of people's own, with names that need quotes, an id that the server gives, and two columns of scope."""

    table = '"Agent 7"."Notes, 100%%"'
    _id = "note id"

    def _make(self) -> None:
        self.execute('create schema "Agent 7"')
        self.execute(
            f'create table {self.table} ("note id" bigint generated always as identity primary key, "Body" text, '
            'who text, space uuid, extra json, written timestamp, "labels" text[], rank real default 0.25, '
            "search tsvector generated always as (to_tsvector('simple', coalesce(who, ''))) stored)"
        )
        options = "id=note%20id&content=Body&scope=who&created_at=written&metadata=extra&tags=labels&importance=rank"
        self.url = f"{self.database}?table=Agent%207.Notes,%20100%25&{options}"

    def insert(self, memory: Memory) -> str:
        made = self.execute(
            f'insert into {self.table} ("Body", who, extra, written, labels) '
            "values (%s, %s, %s, '2026-11-01 10:00:00', %s) returning \"note id\"",
            *(memory.content, memory.scope or None, memory.metadata, list(memory.tags)),
        )
        return str(made[0][0])

    def reword(self, memory_id: str, content: str) -> None:
        self.execute(f'update {self.table} set "Body" = %s where "note id" = %s', content, int(memory_id))

    def forget(self, memory_id: str) -> None:
        self.execute(f'delete from {self.table} where "note id" = %s', int(memory_id))


class FilledJsonl:
    """An archive with one JSON object per line, rewritten in place."""

    def __init__(self, folder: Path, memories: Sequence[Memory]) -> None:
        self.path = folder / "memories.jsonl"
        self.url = f"jsonl:{self.path}?in_place=true"
        self.ids = {memory.memory_id: memory.memory_id for memory in memories}
        self._write([json.dumps(record_of(memory)).encode() for memory in memories])

    def open(self) -> MemoryStore:
        return open_store(self.url)

    def contents(self) -> dict[str, Any]:
        return {json.loads(line)["id"]: line for line in self.path.read_bytes().splitlines()}

    def everything(self) -> Any:
        return self.path.read_bytes()

    def reword(self, memory_id: str, content: str) -> None:
        lines = self.contents()
        lines[memory_id] = json.dumps(json.loads(lines[memory_id]) | {"text": content}).encode()
        self._write(lines.values())

    def forget(self, memory_id: str) -> None:
        self._write(line for name, line in self.contents().items() if name != memory_id)

    def _write(self, lines: Iterable[bytes]) -> None:
        self.path.write_bytes(b"".join(line + b"\n" for line in lines))


class FilledParquet:
    """An archive as a Parquet file, rewritten in place."""

    def __init__(self, folder: Path, memories: Sequence[Memory]) -> None:
        self.path = folder / "memories.parquet"
        self.url = f"parquet:{self.path}?in_place=true"
        self.ids = {memory.memory_id: memory.memory_id for memory in memories}
        records = [record_of(memory) for memory in memories]
        for record in records:
            record["metadata"] = json.dumps(record["metadata"]) if "metadata" in record else None
        names = dict.fromkeys(name for record in records for name in record)
        self._write([{name: record.get(name) for name in names} for record in records])

    def open(self) -> MemoryStore:
        return open_store(self.url)

    def contents(self) -> dict[str, Any]:
        return {row["id"]: row for row in pq.read_table(self.path).to_pylist()}

    def everything(self) -> Any:
        return pq.read_table(self.path)

    def reword(self, memory_id: str, content: str) -> None:
        rows = self.contents()
        rows[memory_id]["text"] = content
        self._write(list(rows.values()))

    def forget(self, memory_id: str) -> None:
        self._write([row for name, row in self.contents().items() if name != memory_id])

    def _write(self, rows: list[dict[str, Any]]) -> None:
        schema = pq.read_schema(self.path) if self.path.exists() else None
        pq.write_table(pa.Table.from_pylist(rows, schema), self.path)


class FilledPraisonAI:
    """The two SQLite files of PraisonAI's Memory; a scope is a user, and the ids are the store's own."""

    def __init__(self, folder: Path, memories: Sequence[Memory]) -> None:
        self.folder = folder
        self.url = f"praisonai:{folder}"
        self.ids: dict[str, str] = {}
        for tier in ("short_term", "long_term"):
            self._execute(
                tier,
                f"create table {tier}_memory (id integer primary key autoincrement, content text not null, "
                "metadata text, timestamp datetime default current_timestamp)",
            )
        for memory in memories:
            metadata = json.loads(memory.metadata or "{}") | ({"user_id": memory.scope} if memory.scope else {})
            tier = memory.tier or "short_term"
            self._execute(
                tier,
                f"insert into {tier}_memory (content, metadata, timestamp) values (?, ?, '2026-11-01 10:00:00')",
                memory.content,
                json.dumps(metadata),
            )
            self.ids[memory.memory_id] = f"{tier}:{len(self._rows(tier))}"

    def open(self) -> MemoryStore:
        return open_store(self.url)

    def contents(self) -> dict[str, Any]:
        return {f"{tier}:{row[0]}": row for tier in ("short_term", "long_term") for row in self._rows(tier)}

    def everything(self) -> Any:
        return self.contents()

    def reword(self, memory_id: str, content: str) -> None:
        tier, row_id = memory_id.split(":")
        self._execute(tier, f"update {tier}_memory set content = ? where id = ?", content, row_id)

    def forget(self, memory_id: str) -> None:
        tier, row_id = memory_id.split(":")
        self._execute(tier, f"delete from {tier}_memory where id = ?", row_id)

    def _rows(self, tier: str) -> list[tuple[Any, ...]]:
        return self._execute(tier, f"select * from {tier}_memory order by id")

    def _execute(self, tier: str, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.folder / f"{tier}.db")) as connection, connection:
            return connection.execute(statement, values).fetchall()


class FilledPraisonAIFile:
    """The two JSON files of PraisonAI's FileMemory; a scope is a user that the items name."""

    def __init__(self, folder: Path, memories: Sequence[Memory]) -> None:
        self.folder = folder
        self.url = f"praisonai-file:{folder}"
        self.ids = {memory.memory_id: f"short_term:{memory.memory_id}" for memory in memories}
        self._write([_item_of(memory) for memory in memories])

    def open(self) -> MemoryStore:
        return open_store(self.url)

    def contents(self) -> dict[str, Any]:
        return {f"short_term:{item['id']}": item for item in json.loads(self._file.read_text())}

    def everything(self) -> Any:
        return self._file.read_bytes()

    def reword(self, memory_id: str, content: str) -> None:
        items = self.contents()
        items[memory_id]["content"] = content
        self._write(list(items.values()))

    def forget(self, memory_id: str) -> None:
        self._write([item for known_id, item in self.contents().items() if known_id != memory_id])

    @property
    def _file(self) -> Path:
        return self.folder / "short_term.json"

    def _write(self, items: list[dict[str, Any]]) -> None:
        self._file.write_text(json.dumps(items, indent=2, ensure_ascii=False))


def _item_of(memory: Memory) -> dict[str, Any]:
    metadata = json.loads(memory.metadata or "{}") | ({"user_id": memory.scope} if memory.scope else {})
    times = {"created_at": 1793527200.25, "updated_at": 1793527200.25}
    return {"id": memory.memory_id, "content": memory.content, "metadata": metadata, **times, "importance": 0.5}


class FilledEvo:
    """A file of evo's, as its version 6 makes it; a scope is a scope key, and evo distilled every memory itself."""

    def __init__(self, folder: Path, memories: Sequence[Memory]) -> None:
        self.path = folder / "evo.db"
        self.url = f"evo:{self.path}"
        self.ids = {memory.memory_id: memory.memory_id for memory in memories}
        evo_database(self.path, version=6)
        for memory in memories:
            source = {"runtime": "evo", **json.loads(memory.metadata or "{}")}
            self.insert(memory.memory_id, memory.content, scope_key=memory.scope or "global", source=source)

    def insert(self, memory_id: str, content: str, **more: Any) -> None:
        insert_into_evo(self.path, memory_id, content, **more)

    def open(self) -> MemoryStore:
        return open_store(self.url)

    def execute(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            return connection.execute(statement, values).fetchall()

    def contents(self) -> dict[str, Any]:
        return {row[0]: row for row in self.execute("select * from memories order by id")}

    def everything(self) -> Any:
        # Events are a log and the state says when the last pass was: an undo takes neither back.
        return {
            table: self.execute(f"select * from {table} order by 1")
            for table in ("schema_meta", "memories", "skills", "skill_lessons", "replay_buffer")
        }

    def reword(self, memory_id: str, content: str) -> None:
        self.execute("update memories set content = ? where id = ?", content, memory_id)

    def forget(self, memory_id: str) -> None:
        self.execute("delete from memories where id = ?", memory_id)


def evo_database(path: Path, *, version: int) -> None:
    """A file with the tables of this schema version, in WAL mode as evo opens it."""
    tables = [*_EVO_TABLES[2], *(_EVO_TABLES[6] if version >= 6 else ())]
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("pragma journal_mode = wal")
        for table in tables:
            connection.execute(f"create table {table}")
        connection.execute("insert into schema_meta (version) values (?)", (version,))


def insert_into_evo(
    path: Path, memory_id: str, content: str, *, scope_key: str = "user:ana", source: Any = None, **more: Any
) -> None:
    """Write a memory as evo writes it; ``source`` is what its ``source_json`` holds, none for one written by hand."""
    scope_type, _, scope_id = scope_key.partition(":")
    is_scope = scope_type in ("global", "user", "project", "session", "conversation")
    scope = {"type": scope_type if is_scope else "project", "id": scope_id or scope_key}
    cells = {
        "id": memory_id,
        "scope_key": scope_key,
        "scope_json": json.dumps(scope),
        "kind": "fact",
        "title": "A note",
        "content": content,
        "tags_json": "[]",
        "created_at": 1_772_355_600_000,
        "updated_at": 1_772_355_600_000,
        "source_json": None if source is None else json.dumps(source, ensure_ascii=False),
        **more,
    }
    with closing(sqlite3.connect(path)) as connection, connection:
        marks = ", ".join("?" * len(cells))
        connection.execute(f"insert into memories ({', '.join(cells)}) values ({marks})", tuple(cells.values()))


_EVO_TABLES = {
    2: (
        "schema_meta (version integer not null)",
        "memories (id text primary key, scope_key text not null, scope_json text not null, kind text not null, "
        "title text not null, content text not null, tags_json text not null, confidence real, "
        "usage_count integer not null default 0, created_at integer not null, updated_at integer not null, "
        "source_json text)",
        "memory_events (id integer primary key autoincrement, type text not null, scope_json text, "
        "payload_json text not null, created_at integer not null)",
    ),
    6: (
        "skills (scope_key text not null, scope_json text not null, name text not null, body_json text not null, "
        "usage_count integer not null default 0, created_at integer not null, updated_at integer not null, "
        "source_json text, dormant integer not null default 0, promoted integer not null default 0, "
        "primary key (scope_key, name))",
        "skill_lessons (id integer primary key autoincrement, scope_key text not null, skill_name text not null, "
        "text text not null, session_id text, turn integer, created_at integer not null, "
        "folded integer not null default 0, "
        "foreign key (scope_key, skill_name) references skills (scope_key, name) on delete cascade)",
        "replay_buffer (id integer primary key autoincrement, scope_key text not null, scope_json text not null, "
        "batch_json text not null, created_at integer not null, consumed integer not null default 0)",
        "consolidation_state (scope_key text primary key, last_consolidate_at integer not null default 0, "
        "last_digest text, converged integer not null default 0, convergence_multiplier real not null default 1.0)",
    ),
}


#: Every kind of store that the conformance spec runs over, by its scheme. A new store is added here.
STORES: dict[str, Callable[[Any, Sequence[Memory]], Filled]] = {
    "evo": FilledEvo,
    "jsonl": FilledJsonl,
    "parquet": FilledParquet,
    "praisonai": FilledPraisonAI,
    "praisonai-file": FilledPraisonAIFile,
    "sqlite": FilledSqlite,
    "sqlite-mapped": FilledMappedSqlite,
    "postgresql": FilledPostgresql,
    "postgresql-mapped": FilledMappedPostgresql,
}
#: Each system once, without the tables of people's own.
SYSTEMS = sorted(name for name in STORES if not name.endswith("-mapped"))
#: Kinds whose URL is a scheme and a path.
FILES = sorted(name for name in STORES if not name.startswith("postgresql") and not name.endswith("-mapped"))


def record_of(memory: Memory) -> dict[str, Any]:
    """The record of an archive that holds the few fields that the conformance spec writes."""
    record: dict[str, Any] = {"id": memory.memory_id, "text": memory.content, "scope": memory.scope}
    if memory.metadata is not None:
        record["metadata"] = json.loads(memory.metadata)
    return record


@dataclass
class Pass:
    """One run over a store: a plan as the test states it, its apply, and the undo data that the apply left."""

    store: MemoryStore
    run_id: str = "night-1"
    now: datetime = NOW
    rewrite: pa.Table = field(default_factory=REWRITE.empty_table)
    tally: pa.Table = field(default_factory=TALLY.empty_table)
    undo_parts: dict[int, pa.Table] = field(default_factory=dict)
    limits: dict[str, Any] = field(default_factory=lambda: {"max_loss_fraction": 1.0, "max_rolling_loss_fraction": 1.0})

    def plan(
        self,
        merge: Mapping[str, str] | None = None,
        prune: Mapping[str, str] | None = None,
        promote: Sequence[str] = (),
        lost: Sequence[str] = (),
        superseded_by: Mapping[str, str] | None = None,
    ) -> Pass:
        """Plan on the store as it is now: member -> survivor, pruned -> reason, what is promoted, what is lost."""
        merge, prune = dict(merge or {}), dict(prune or {})
        digests = {row["memory_id"]: row for batch in self.store.snapshot() for row in batch.to_pylist()}
        roles = {**dict.fromkeys(merge, "member"), **dict.fromkeys(prune, "prune"), **dict.fromkeys(promote, "promote")}
        roles |= dict.fromkeys(merge.values(), "survivor")
        leads = sorted({merge.get(memory_id, memory_id) for memory_id in roles}, key=lambda i: (digests[i]["scope"], i))
        rows = [
            {
                "unit_id": leads.index(merge.get(memory_id, memory_id)),
                "scope": digests[memory_id]["scope"],
                "memory_id": memory_id,
                "role": role,
                "into_id": merge.get(memory_id),
                "superseded_by": (superseded_by or {}).get(memory_id),
                "reason": prune.get(memory_id) or {"member": "copy", "promote": "promoted"}.get(role, "kept"),
                "promote_to": "long_term" if memory_id in promote else None,
                "is_lost": memory_id in lost,
                "row_digest": digests[memory_id]["row_digest"],
            }
            for memory_id, role in sorted(roles.items())
        ]
        self.rewrite = pa.Table.from_pylist(rows, REWRITE)
        self.tally = tally_of({row["scope"] for row in rows})
        return self

    def apply(self, **changes: Any) -> ApplyReport:
        """Apply the plan; an undo part of the same number replaces the earlier one, as a run directory does it."""
        arguments: dict[str, Any] = {
            "run": self.run,
            "policy": Policy(as_of=self.now, session_recall=self.store.traits.session_recall, **self.limits),
            "tally": self.tally,
            "undo": self.undo_parts.__setitem__,
            "clock": lambda: self.now,
        }
        return applying.apply(self.store, self.rewrite, **(arguments | changes))

    def undo(self, at: datetime | None = None, **selected: str) -> UndoReport:
        """Take the run back with the undo data that its apply left, or a scope or memory of it."""
        rows = pa.concat_tables([UNDO.empty_table(), *self.undo_parts.values()])
        return applying.undo(
            self.store,
            rows,
            run=self.run,
            clock=lambda: at or self.an_hour_later,
            selection=Selection(**selected),
        )

    @property
    def an_hour_later(self) -> datetime:
        return self.now + timedelta(hours=1)

    @property
    def a_day_before(self) -> datetime:
        return self.now - timedelta(days=1)

    @property
    def run(self) -> RunRef:
        return RunRef(self.run_id, "/var/runs/" + self.run_id, "digest of " + self.run_id)


def tally_of(accepted: set[str], refused: set[str] = frozenset()) -> pa.Table:
    """A tally in which these scopes were accepted, or refused, by the gate."""
    blank: dict[str, Any] = dict.fromkeys(TALLY.names, 0) | {"refused": []}
    rows = [blank | {"scope": scope, "accepted": scope in accepted} for scope in sorted(accepted | refused)]
    return pa.Table.from_pylist(rows, TALLY)


@pytest.fixture(params=sorted(STORES))
def fill_any(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Filled]:
    """Fill a store of each kind with memories."""
    kind = STORES[request.param]
    if request.param.startswith("postgresql"):
        return _Filling(kind, request.getfixturevalue("empty_database"), refuses="\x00")
    return _Filling(kind, lambda: _new_folder(tmp_path))


@pytest.fixture(params=FILES)
def scheme(request: pytest.FixtureRequest) -> str:
    """The scheme of each kind of store that is a file or a folder."""
    return str(request.param)


@pytest.fixture(scope="session")
def kinds() -> Mapping[str, Callable[[Any, Sequence[Memory]], Filled]]:
    """How each system is filled, by its scheme, for tests that need them all or outlive one: its own tables only."""
    return {name: STORES[name] for name in SYSTEMS}


@pytest.fixture(params=SYSTEMS)
def system(request: pytest.FixtureRequest) -> str:
    """The scheme of each system."""
    return str(request.param)


@pytest.fixture
def fill_sqlite(tmp_path: Path) -> Callable[..., FilledSqlite]:
    """Fill memfold's own table with memories."""
    return _Filling(FilledSqlite, lambda: _new_folder(tmp_path))


@pytest.fixture
def fill_postgresql(empty_database: Callable[[], str]) -> Callable[..., FilledPostgresql]:
    """Fill memfold's own table in a new database with memories."""
    return _Filling(FilledPostgresql, empty_database, refuses="\x00")


@pytest.fixture
def fill_praisonai(tmp_path: Path) -> Callable[..., FilledPraisonAI]:
    """Fill the two files of PraisonAI with memories."""
    return _Filling(FilledPraisonAI, lambda: _new_folder(tmp_path))


@pytest.fixture(name="tally_of")
def _tally_of() -> Callable[..., pa.Table]:
    return tally_of


@pytest.fixture
def a_pass() -> type[Pass]:
    return Pass


@pytest.fixture
def memories_of() -> Callable[[MemoryStore], dict[str, Memory]]:
    """What memfold reads from a store, by id."""

    def read(store: MemoryStore) -> dict[str, Memory]:
        names = [each.name for each in fields(Memory)]
        rows = [row for batch in store.snapshot() for row in batch.to_pylist()]
        return {row["memory_id"]: Memory(**{name: _value(row[name]) for name in names}) for row in rows}

    return read


@dataclass(frozen=True, slots=True)
class _Filling:
    """Fills one store of a kind with memories; ``refuses``: what no text of it can hold."""

    kind: Callable[[Any, Sequence[Memory]], Any]
    place: Callable[[], Any]
    refuses: str = ""

    def __call__(self, *memories: Memory) -> Any:
        return self.kind(self.place(), memories)

    def holds(self, text: str) -> bool:
        """Whether the system has a form for this text, in itself or as JSON."""
        return not self.refuses or not (self.refuses in text or json.dumps(self.refuses)[1:-1] in text)


def _new_folder(folder: Path) -> Path:
    place = folder / "store"
    place.mkdir()
    return place


def _value(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
