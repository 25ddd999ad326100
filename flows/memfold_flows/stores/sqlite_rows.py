"""The rows of memfold's own table: from SQLite's cells to memories and back."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from memfold.errors import BadRecord
from memfold.frames import SNAPSHOT, WORDS
from memfold.memory import Memory, from_microseconds, microseconds
from memfold_flows.stores.base import Update
from memfold_flows.stores.batches import TIME_COLUMNS, snapshot_batch

COLUMNS = tuple(name for name in SNAPSHOT.names if name != "row_digest")
LIST_COLUMNS = tuple(field.name for field in SNAPSHOT if field.type == WORDS)
FLAG_COLUMNS = ("pinned", "protected")


def batch_of(page: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    """A snapshot batch from rows of ``COLUMNS``."""
    columns: dict[str, Sequence[Any]] = dict(zip(COLUMNS, zip(*page, strict=True), strict=True))
    for name in (*LIST_COLUMNS, *FLAG_COLUMNS):
        try:
            columns[name] = list(map(_READERS[name], columns[name]))
        except ValueError:
            for memory_id, value in zip(columns["memory_id"], columns[name], strict=True):
                _require_readable(name, value, memory_id)
            raise
    return snapshot_batch(columns)


def memory_of(cells: Mapping[str, Any]) -> Memory:
    """The memory in a row, whose columns may be more than memfold's."""
    try:
        read = {name: reader(cells[name]) for name, reader in _READERS.items()}
    except ValueError:
        for name in _READERS:
            _require_readable(name, cells[name], cells["memory_id"])
        raise
    return Memory(**read, **{name: cells[name] for name in _PLAIN})


def cells_of(memory: Memory, names: Sequence[str] = COLUMNS) -> dict[str, Any]:
    """What SQLite holds of these fields."""
    return {name: _cell(memory, name) for name in names}


def changed_cells(update: Update) -> dict[str, Any]:
    """The columns that an update writes, and what it writes there."""
    changed = [name for name in COLUMNS if getattr(update.before, name) != getattr(update.after, name)]
    cells = cells_of(update.after, changed)
    if update.raw is not None:
        # Back to the spelling of before: people write JSON with other spaces than memfold.
        earlier_cells = unpack(update.raw)
        earlier = memory_of(earlier_cells)
        cells |= {
            name: earlier_cells[name] for name in changed if getattr(earlier, name) == getattr(update.after, name)
        }
    return cells


def pack(cells: Mapping[str, Any]) -> bytes:
    """A row as an undo keeps it: every column, added ones included."""
    return _encode(cells).encode()


def unpack(raw: bytes) -> dict[str, Any]:
    """The inverse of ``pack``."""
    return {
        name: base64.b64decode(cell["base64"]) if isinstance(cell, dict) else cell
        for name, cell in json.loads(raw).items()
    }


def _blob(cell: bytes) -> dict[str, str]:
    # Columns that people add may hold bytes; JSON has none.
    return {"base64": base64.b64encode(cell).decode()}


_encode = json.JSONEncoder(ensure_ascii=False, default=_blob).encode


def _words(text: Any) -> tuple[str, ...]:
    if text == "[]":
        return ()
    try:
        words = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        words = None
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ValueError("a JSON array of strings")
    return tuple(words)


def _flag(value: Any) -> bool:
    if value not in (0, 1):
        raise ValueError("0 or 1")
    return bool(value)


def _time(value: Any) -> Any:
    try:
        return from_microseconds(value)
    except (TypeError, OverflowError):
        raise ValueError("a time in whole microseconds between the years 1 and 9999") from None


_READERS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(LIST_COLUMNS, _words),
    **dict.fromkeys(FLAG_COLUMNS, _flag),
    **dict.fromkeys(TIME_COLUMNS, _time),
}
_PLAIN = tuple(name for name in COLUMNS if name not in _READERS)


def _require_readable(name: str, cell: Any, memory_id: Any) -> None:
    try:
        _READERS[name](cell)
    except ValueError as error:
        raise BadRecord(
            f"memory {memory_id!r}: {name} is not {error}; nothing was written. Correct that record."
        ) from None


def _cell(memory: Memory, name: str) -> Any:
    value = getattr(memory, name)
    if name in LIST_COLUMNS:
        return json.dumps(value, ensure_ascii=False)
    if name in FLAG_COLUMNS:
        return int(value)
    return microseconds(value) if name in TIME_COLUMNS else value
