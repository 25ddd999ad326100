"""The cells of a foreign SQLite table: read as people's exports write values, and written back in the same form."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from memfold.errors import BadRecord
from memfold.memory import Memory
from memfold_flows.stores.archive_times import read_time, spell_time
from memfold_flows.stores.archive_values import (
    read_count,
    read_flag,
    read_identifier,
    read_memory_id,
    read_number,
    read_text,
    read_words,
)
from memfold_flows.stores.base import Update
from memfold_flows.stores.batches import TIME_COLUMNS
from memfold_flows.stores.mapping import TableMapping, scope_of
from memfold_flows.stores.sqlite_rows import FLAG_COLUMNS, LIST_COLUMNS, unpack

#: A row by the names of its columns.
Cells = Mapping[str, Any]


def why_no_memory(wanted: TableMapping, cells: Cells) -> str | None:
    """Why a row is left alone: without an id or a text it is no memory."""
    missing = any(cells[wanted.columns[field]] is None for field in ("memory_id", "content"))
    return "has no id or no text" if missing else None


def memory_of(wanted: TableMapping, cells: Cells) -> Memory:
    """The memory in a row.

    Raises:
        BadRecord: a cell does not hold what its field is; the message names the memory and the column.
    """
    try:
        found = {field: _READERS[field](cells[column], column) for field, column in wanted.columns.items()}
        scope = scope_of(wanted.scope, [read_identifier(cells[column], column) for column in wanted.scope])
    except ValueError as error:
        memory_id = cells[wanted.columns["memory_id"]]
        raise BadRecord(f"memory {memory_id!r}: {error}; nothing was written. Correct that record.") from None
    return Memory(scope=scope, **{field: value for field, value in found.items() if value is not None})


def changed_cells(wanted: TableMapping, update: Update, now: Cells) -> dict[str, Any]:
    """The columns that an update writes, and what it writes there, in the form that the row has now."""
    earlier = {} if update.raw is None else unpack(update.raw)
    changed: dict[str, Any] = {}
    for field, column in wanted.columns.items():
        value = getattr(update.after, field)
        if value == getattr(update.before, field):
            continue
        if column in earlier and _reads_as(field, column, earlier[column], value):
            changed[column] = earlier[column]
        else:
            changed[column] = _spelled(wanted, field, value, now)
    return changed


def _spelled(wanted: TableMapping, field: str, value: Any, now: Cells) -> Any:
    if field in LIST_COLUMNS:
        return json.dumps(value, ensure_ascii=False)
    if field in FLAG_COLUMNS:
        return int(value)
    if field in TIME_COLUMNS and value is not None:
        own = now[wanted.columns[field]]
        others = (now[wanted.columns[name]] for name in TIME_COLUMNS if name in wanted.columns)
        return spell_time(value, next((cell for cell in (own, *others) if cell is not None), None))
    return value


def _reads_as(field: str, column: str, cell: Any, value: Any) -> bool:
    read = _READERS[field](cell, column)
    return bool((_EMPTY.get(field) if read is None else read) == value)


def _read_words(value: Any, name: str) -> tuple[str, ...] | None:
    try:
        return read_words(None if value is None or value == "" else json.loads(value), name)
    except (TypeError, RecursionError, json.JSONDecodeError):
        raise ValueError(f"{name} must be a JSON array of texts") from None


_READERS: dict[str, Callable[[Any, str], Any]] = {
    **dict.fromkeys(("content", "title", "metadata"), read_text),
    **dict.fromkeys(("kind", "tier", "session_id", "trust"), read_identifier),
    **dict.fromkeys(LIST_COLUMNS, _read_words),
    **dict.fromkeys(FLAG_COLUMNS, read_flag),
    **dict.fromkeys(("importance", "confidence"), read_number),
    **dict.fromkeys(TIME_COLUMNS, read_time),
    "memory_id": read_memory_id,
    "use_count": read_count,
}
_EMPTY: dict[str, Any] = {**dict.fromkeys(LIST_COLUMNS, ()), **dict.fromkeys(FLAG_COLUMNS, False)}
