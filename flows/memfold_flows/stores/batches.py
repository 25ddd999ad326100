"""Snapshot batches from columns or memories: typed, checked, each row with its digest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import repeat
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from memfold.errors import BadRecord
from memfold.frames import SNAPSHOT, TIME, WORDS
from memfold.memory import EPOCH, MICROSECOND, Memory, canonical_json, digest_fields, microseconds

#: Columns of the snapshot that hold times; everywhere outside Arrow they are whole microseconds since 1970, UTC.
TIME_COLUMNS = tuple(field.name for field in SNAPSHOT if field.type == TIME)
_DIGESTED = (
    "scope",
    "kind",
    "title",
    "content",
    "tags",
    "tier",
    "session_id",
    "trust",
    "pinned",
    "protected",
    "valid_from",
    "valid_to",
    "expires_at",
)
_TIMES = range(
    (datetime.min.replace(tzinfo=UTC) - EPOCH) // MICROSECOND,
    (datetime.max.replace(tzinfo=UTC) - EPOCH) // MICROSECOND + 1,
)


def snapshot_batch(columns: Mapping[str, Sequence[Any]]) -> pa.RecordBatch:
    """One batch of ``frames.SNAPSHOT`` from columns of equal length; the row digest is computed here.

    Strings are ``str``, lists of words are lists or tuples of ``str``, flags are ``bool``, times are whole
    microseconds since 1970 in UTC. A column that is left out is null, empty or false throughout.

    Raises:
        BadRecord: a value does not fit its column; the message names the memory and the column, not the value.
    """
    rows = len(columns["memory_id"])
    arrays = {field.name: _array(field, columns, rows) for field in SNAPSHOT if field.name != "row_digest"}
    arrays["row_digest"] = pa.array(_digests(columns, rows), pa.string())
    return pa.record_batch([arrays[field.name] for field in SNAPSHOT], schema=SNAPSHOT)


def memories_batch(memories: Iterable[Memory]) -> pa.RecordBatch:
    """One batch of ``frames.SNAPSHOT`` from memories, in their order."""
    rows = list(memories)
    columns: dict[str, list[Any]] = {}
    for field in SNAPSHOT:
        if field.name in TIME_COLUMNS:
            columns[field.name] = [microseconds(getattr(memory, field.name)) for memory in rows]
        elif field.name != "row_digest":
            columns[field.name] = [getattr(memory, field.name) for memory in rows]
    return snapshot_batch(columns)


def _digests(columns: Mapping[str, Sequence[Any]], rows: int) -> list[str]:
    digested = [columns[name] if name in columns else repeat(_default(name), rows) for name in _DIGESTED]
    metadata = map(canonical_json, columns["metadata"]) if "metadata" in columns else repeat(None, rows)
    return [digest_fields(*fields) for fields in zip(*digested, metadata, strict=True)]


def _array(field: pa.Field, columns: Mapping[str, Sequence[Any]], rows: int) -> pa.Array:
    if field.name not in columns:
        return pa.array(repeat(_default(field.name), rows), field.type, size=rows)
    values = columns[field.name]
    try:
        array = pa.array(values, pa.int64()).cast(TIME) if field.type == TIME else pa.array(values, field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise _bad_value(field, columns) from None
    if (array.null_count and not field.nullable) or (field.type == pa.string() and not _are_text(values)):
        raise _bad_value(field, columns)
    if field.type == TIME:
        span = pc.min_max(pc.cast(array, pa.int64())).as_py()
        if span["min"] is not None and not (span["min"] in _TIMES and span["max"] in _TIMES):
            raise _bad_value(field, columns)
    return array


def _are_text(values: Iterable[Any]) -> bool:
    # Arrow takes bytes for text where they happen to be UTF-8; the store then holds something else than it says.
    return set(map(type, values)) <= {str, type(None)}


def _default(name: str) -> Any:
    field = SNAPSHOT.field(name)
    if field.nullable:
        return None
    if field.type == WORDS:
        return []
    if pa.types.is_boolean(field.type):
        return False
    return ""


def _bad_value(field: pa.Field, columns: Mapping[str, Sequence[Any]]) -> BadRecord:
    for memory_id, value in zip(columns["memory_id"], columns[field.name], strict=True):
        if problem := _problem(field, value):
            return BadRecord(f"memory {memory_id!r}: {field.name} {problem}; nothing was planned. Correct that record.")
    return BadRecord(f"{field.name} holds values of several types; nothing was planned. Correct the store.")


def _problem(field: pa.Field, value: Any) -> str | None:
    if value is None:
        return None if field.nullable else "is missing"
    if field.type == TIME:
        return None if isinstance(value, int) and value in _TIMES else "is not a time between the years 1 and 9999"
    if isinstance(value, bytes):
        return "holds bytes, not text"
    try:
        pa.array([value], field.type)
    except UnicodeEncodeError:
        return "holds half a surrogate pair, which is not text in any Unicode encoding"
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return f"is of type {type(value).__name__}, which does not fit {field.type}"
    return None
