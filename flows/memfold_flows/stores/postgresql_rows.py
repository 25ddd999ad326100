"""Rows of a PostgreSQL table: from its cells to memories and back."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from memfold.errors import BadRecord
from memfold.memory import Memory, from_microseconds
from memfold_flows.stores.base import StoredRow, Update
from memfold_flows.stores.batches import snapshot_batch
from memfold_flows.stores.mapping import scope_of
from memfold_flows.stores.postgresql_tables import (
    COUNT,
    FLAG,
    JSON_WORDS,
    METADATA,
    NUMBER,
    TEXT,
    TIME,
    WORDS,
    Column,
    Table,
)

#: The type that each kind of cell is read as.
_READ_AS = {
    **dict.fromkeys((TEXT, JSON_WORDS, METADATA), "text"),
    WORDS: "text[]",
    FLAG: "bool",
    NUMBER: "float8",
    COUNT: "int8",
    TIME: "int8",
}


class RowReader:
    """How the rows of one table are read: the expressions to select, and memories from what they give."""

    def __init__(self, table: Table) -> None:
        self._fields = [field for field in table.fields if field != "scope"]
        self._scope_names = [column.name for column in table.scope]
        self._kinds = table.kinds
        self._kept = [column.name for column in table.kept]
        self._readers = [
            (place, _ONE_BY_ONE[table.kinds[field]])
            for place, field in enumerate(self._fields)
            if table.kinds[field] in _ONE_BY_ONE
        ]
        self.expressions = ", ".join(
            [
                *(_expression(table.kinds[field], table.fields[field]) for field in self._fields),
                *(f"t.{column.quoted}::text" for column in table.scope),
            ]
        )
        self.types = [*(_READ_AS[table.kinds[field]] for field in self._fields), *("text" for _ in table.scope)]

    def batch(self, rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
        """A snapshot batch from rows of ``expressions``.

        Raises:
            BadRecord: a cell cannot be read; the message names the memory and the field.
        """
        cells: list[Sequence[Any]] = list(zip(*rows, strict=True))
        columns: dict[str, Sequence[Any]] = dict(zip(self._fields, cells, strict=False))
        for field in self._fields:
            if self._kinds[field] in _CHECKED:
                check = _CHECKED[self._kinds[field]]
                columns[field] = [
                    _checked(check, value, field, memory_id)
                    for memory_id, value in zip(columns["memory_id"], columns[field], strict=True)
                ]
        scopes = zip(*cells[len(self._fields) :], strict=True) if self._scope_names else [()] * len(rows)
        columns["scope"] = [scope_of(self._scope_names, values) for values in scopes]
        return snapshot_batch(columns)

    def stored(self, row: Sequence[Any]) -> StoredRow:
        """The memory in one row of ``expressions`` with the kept columns, as texts, behind them."""
        cells = list(row[: len(self._fields)])
        for place, read in self._readers:
            cells[place] = _checked(read, cells[place], self._fields[place], row[0])
        scope = scope_of(self._scope_names, row[len(self._fields) : len(self.types)])
        memory = Memory(scope=scope, **dict(zip(self._fields, cells, strict=True)))
        raw = dict(zip(self._kept, row[len(self.types) :], strict=True))
        return StoredRow(memory, _encode(raw).encode())


def changed_cells(update: Update, table: Table) -> dict[str, str | None]:
    """The columns that an update writes, and what it writes there as the server reads it."""
    cells: dict[str, str | None] = {}
    earlier = {} if update.raw is None else unpack(update.raw)
    for field, kind in table.kinds.items():
        value = getattr(update.after, field)
        if value == getattr(update.before, field):
            continue
        column = table.fields[field]
        spelling = earlier.get(column.name)
        # Back to the spelling of before: a number may have had more zeros, a JSON value other spaces.
        if column.name in earlier and _means(kind, spelling, value):
            cells[column.name] = spelling
        else:
            cells[column.name] = _cell(kind, value, column)
    return cells


def unpack(raw: bytes) -> dict[str, str | None]:
    """The cells of a row as an undo keeps it: every column as the server writes it, also those that have no field."""
    cells: dict[str, str | None] = json.loads(raw)
    return cells


_encode = json.JSONEncoder(ensure_ascii=False).encode


def _expression(kind: str, column: Column) -> str:
    name = f"t.{column.quoted}"
    if kind == TIME:
        moment = f"({name}::timestamp)" if column.base == "date" else name
        # Infinity is how PostgreSQL says that a moment is not known, or never comes.
        return f"case when isfinite({name}) then (extract(epoch from {moment}) * 1000000)::bigint end"
    if kind == WORDS:
        return f"coalesce({name}::text[], '{{}}')"
    if kind == FLAG:
        return f"coalesce({name}, false)"
    return f"{name}::{_READ_AS[kind]}"


def _checked(read: Callable[[Any], Any], value: Any, field: str, memory_id: Any) -> Any:
    try:
        return read(value)
    except ValueError as error:
        raise BadRecord(
            f"memory {memory_id!r}: {field} is not {error}; nothing was written. Correct that record."
        ) from None


def _words(value: Any) -> tuple[str, ...]:
    if not all(isinstance(word, str) for word in value):
        raise ValueError("a list of texts without gaps")
    return tuple(value)


def _json_words(value: str | None) -> tuple[str, ...]:
    words = None
    if value is not None:
        words = json.loads(value)
    if words is None:
        return ()
    if not isinstance(words, list):
        raise ValueError("a JSON array of texts")
    return _words(words)


_CHECKED: dict[str, Callable[[Any], Any]] = {WORDS: _words, JSON_WORDS: _json_words}


def _moment(value: int | None) -> datetime | None:
    try:
        return from_microseconds(value)
    except OverflowError:
        raise ValueError("a time between the years 1 and 9999") from None


_ONE_BY_ONE: dict[str, Callable[[Any], Any]] = {**_CHECKED, TIME: _moment}


def _cell(kind: str, value: Any, column: Column) -> str | None:
    if kind == WORDS:
        return "{" + ",".join(map(_array_item, value)) + "}"
    if kind == JSON_WORDS:
        return json.dumps(value, ensure_ascii=False)
    if value is None:
        # Where a column must have a value, never is infinity, as it was read.
        return "infinity" if kind == TIME and not column.nullable else None
    if kind == TIME:
        return _spelled(value, column)
    return str(value)


def _spelled(moment: datetime, column: Column) -> str:
    if column.base == "timestamp with time zone":
        return moment.astimezone(UTC).isoformat(" ")
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(" ")


_SPECIAL = re.compile(r'(["\\])')


def _array_item(word: str) -> str:
    return '"' + _SPECIAL.sub(r"\\\1", word) + '"'


def _means(kind: str, spelling: str | None, value: Any) -> bool:
    """Whether a cell reads as this value; an array has one spelling only, so it is not looked into."""
    if spelling is None or value is None:
        return value is None and (spelling is None or (kind == TIME and spelling.endswith("infinity")))
    try:
        return kind in _MEANINGS and bool(_MEANINGS[kind](spelling) == value)
    except ValueError:
        return False


def _read_time(spelling: str) -> datetime:
    moment = datetime.fromisoformat(spelling)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


_MEANINGS: Mapping[str, Callable[[str], Any]] = {
    **dict.fromkeys((TEXT, METADATA), str),
    JSON_WORDS: _json_words,
    NUMBER: float,
    COUNT: int,
    TIME: _read_time,
}
