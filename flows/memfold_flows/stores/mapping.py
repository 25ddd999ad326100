"""Tables of people's own: which of their columns holds which field of a memory, as a store URL says it.

``?table=notes&id=note_id&content=body&scope=user_id&created_at=written`` names a column for each field that memfold
is to know; every other column is left alone. Names are taken to the letter. A scope is one column to the letter, or
several (``scope=user_id,agent_id``), which make ``user_id=ann&agent_id=7`` with quoted values; ``scope=`` says that all
rows of the table belong together.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from memfold.errors import BadUsage
from memfold.frames import SNAPSHOT
from memfold.policy import SessionRecall
from memfold_flows.stores.base import StoreTraits
from memfold_flows.stores.ledger_tables import OWN_TABLE

#: Every field of a memory that a column can hold.
FIELDS = tuple(name for name in SNAPSHOT.names if name != "row_digest")

#: Fields that a fold changes.
FOLDED = frozenset(
    {
        *("tags", "session_id", "sessions", "importance", "confidence", "use_count", "created_at", "updated_at"),
        *("last_used_at", "expires_at", "links", "metadata"),
    }
)

OPTIONS: dict[str, str] = {
    "table": "the table of memories, also as schema.table (default: memories, as `memfold init` makes it)",
    "id": "a table of your own: the column of the id, which must be unique",
    "content": "a table of your own: the column of the text",
    "scope": "a table of your own: the column, or columns with commas between, that keep memories apart; empty: none",
    **{
        name: f"a table of your own: the column of {name}"
        for name in FIELDS
        if name not in ("memory_id", "content", "scope")
    },
}


@dataclass(frozen=True, slots=True)
class TableMapping:
    """A table as a URL names it, and the column of each field; ``is_own``: it is as ``memfold init`` makes it."""

    table: str
    columns: Mapping[str, str]
    scope: tuple[str, ...]
    is_own: bool

    def options(self, table: str) -> dict[str, str]:
        """The options of a URL that names the table so and maps it like this."""
        if self.is_own:
            return {"table": table}
        named = {("id" if field == "memory_id" else field): column for field, column in self.columns.items()}
        return {"table": table, "scope": ",".join(self.scope), **named}


def read_mapping(options: Mapping[str, Any]) -> TableMapping:
    """What the options of a URL say of a table, or ``tables`` in ``memfold.yaml`` where they only name it.

    Raises:
        BadUsage: a table of people's own without its id, content or scope, or one column for two fields.
    """
    table = str(options.get("table", OWN_TABLE))
    given = {("memory_id" if name == "id" else name): str(options[name]) for name in OPTIONS if name in options}
    if given.keys() == {"table"}:
        given |= _declared(table)
    given.pop("table", None)
    if not given:
        return TableMapping(table, {name: name for name in FIELDS}, ("scope",), is_own=True)
    for field, name in (("memory_id", "id"), ("content", "content")):
        if field not in given:
            raise BadUsage(
                f"table {table}: columns are named, but not that of the {name}; nothing was read. "
                f"Add {name}=COLUMN to the store's URL."
            )
    if "scope" not in given:
        raise BadUsage(
            f"table {table}: nothing says which memories belong together; nothing was read. Add scope=COLUMN "
            "(several: scope=user_id,agent_id) to the store's URL, or scope= where all rows are one scope."
        )
    scope = tuple(name for name in given.pop("scope").split(",") if name)
    _require_one_field_each(table, given)
    return TableMapping(table, given, scope, is_own=False)


def traits_of(mapping: TableMapping, written: Collection[str], *, rows_per_transaction: int) -> StoreTraits:
    """What is true of a table, of whose columns these can be written."""
    places = frozenset(field for field, column in mapping.columns.items() if field in FOLDED and column in written)
    has_tier = mapping.columns.get("tier") in written
    # What a null session means in a table of people's own is not known: there only twins of one session are merged.
    in_sessions: SessionRecall = "equality" if "session_id" in mapping.columns else "none"
    return StoreTraits(
        places=places,
        session_recall="null_is_all" if mapping.is_own else in_sessions,
        promotes=has_tier,
        no_promotion="" if has_tier else "no column of the table is named as its tier",
        rows_per_transaction=rows_per_transaction,
    )


def scope_of(names: Sequence[str], values: Sequence[str | None]) -> str:
    """The scope of a row: its one scope column to the letter, or the columns that are not null as ``name=value``."""
    if len(names) == 1:
        return values[0] or ""
    present = zip(names, values, strict=True)
    return "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in present if value is not None)


def scope_values(names: Sequence[str], scope: str) -> tuple[str | None, ...] | None:
    """The inverse of ``scope_of``; None for a scope that no row can have. One column: '' stands for null too."""
    if len(names) == 1:
        return (scope,)
    parts = dict(part.partition("=")[::2] for part in scope.split("&")) if scope else {}
    held = {unquote(name): unquote(value) for name, value in parts.items()}
    values = tuple(held.get(name) for name in names)
    return values if scope_of(names, values) == scope else None


def _declared(table: str) -> dict[str, str]:
    from memfold_flows import settings

    columns = settings.load({}).tables.get(table, {})
    return {("memory_id" if name == "id" else name): column for name, column in columns.items()}


def _require_one_field_each(table: str, columns: Mapping[str, str]) -> None:
    fields: dict[str, str] = {}
    for field, column in columns.items():
        if not column:
            raise BadUsage(f"table {table}: {field} names no column; nothing was read. Leave it out, or name one.")
        if column in fields:
            raise BadUsage(
                f"table {table}: column {column!r} is named for {fields[column]} and for {field}; nothing was read"
            )
        fields[column] = field
