"""Which rows of a PostgreSQL table are meant: ids and scopes as conditions that an index can answer."""

from __future__ import annotations

import uuid
from collections.abc import Collection

from memfold_flows.stores.mapping import scope_values
from memfold_flows.stores.postgresql_tables import Column, Table


def known_ids(column: Column, ids: Collection[str]) -> list[str]:
    """Those of these ids that the column can hold, in order; the others are not there."""
    return sorted(memory_id for memory_id in ids if _can_hold(column, memory_id))


def in_scope(table: Table, scope: str) -> tuple[str, list[str]]:
    """The condition that a row is of this scope, with its values."""
    names = [column.name for column in table.scope]
    held = scope_values(names, scope)
    if held is None:
        return "false", []
    conditions, values = [], []
    for column, value in zip(table.scope, held, strict=True):
        if value is None:
            conditions.append(f"t.{column.quoted} is null")
        elif not _can_hold(column, value):
            conditions.append("false")
        else:
            conditions.append(f"{_comparable(column)} = %s{_cast(column)}")
            values.append(value)
    if len(names) == 1 and scope == "":
        # Its one column may be null, or say so in no letters.
        return f"({conditions[0]} or t.{table.scope[0].quoted} is null)", values
    return " and ".join(conditions) or "true", values


_INDEXED = ("text", "character varying", "uuid", "smallint", "integer", "bigint")


def _comparable(column: Column) -> str:
    return f"t.{column.quoted}" if column.base in _INDEXED else f"t.{column.quoted}::text"


def _cast(column: Column) -> str:
    return f"::{column.base}" if column.base in _INDEXED else "::text"


def _can_hold(column: Column, value: str) -> bool:
    """Whether a column can hold a value that reads as this text; what it cannot hold is not there."""
    if column.base in _WHOLE_BITS:
        try:
            number, bound = int(value), 2 ** _WHOLE_BITS[column.base]
            return str(number) == value and -bound <= number < bound
        except ValueError:
            return False
    if column.base == "uuid":
        return _is_uuid(value)
    return "\0" not in value


_WHOLE_BITS = {"smallint": 15, "integer": 31, "bigint": 63}


def _is_uuid(value: str) -> bool:
    try:
        return str(uuid.UUID(value)) == value
    except ValueError:
        return False
