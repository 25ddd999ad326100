"""A table of memories in PostgreSQL as it is: its columns, their types, and how each is read and written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memfold.errors import BadUsage, StoreError
from memfold_flows.stores.mapping import TableMapping

if TYPE_CHECKING:
    from memfold_flows.stores.postgresql_connections import Connection

_LONGEST_NAME = 63

#: How the cells of a column are read and written.
TEXT, WORDS, JSON_WORDS, FLAG, NUMBER, COUNT, TIME, METADATA = (
    *("text", "words", "json words", "flag", "number", "count", "time", "metadata"),
)

_STRINGS = ("text", "character varying", "bpchar", "citext", "name")
_WHOLE = ("smallint", "integer", "bigint")
_JSON = ("json", "jsonb")
_NAMES = ("kind", "tier", "session_id", "trust")
_IDS = ("text", "character varying", "uuid", *_WHOLE)


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, its type as it is cast to, the type underneath, and whether a value may be missing."""

    name: str
    type: str
    base: str
    category: str
    nullable: bool
    generated: bool

    @property
    def quoted(self) -> str:
        return quoted(self.name)


@dataclass(frozen=True, slots=True)
class Table:
    """The table, its columns in order, and the column of each field that the mapping names."""

    schema: str
    name: str
    columns: tuple[Column, ...]
    fields: Mapping[str, Column]
    kinds: Mapping[str, str]
    scope: tuple[Column, ...]

    @property
    def quoted(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.name)}"

    @property
    def id(self) -> Column:
        return self.fields["memory_id"]

    @property
    def kept(self) -> tuple[Column, ...]:
        """The columns that an undo keeps: all but those that the server computes."""
        return tuple(column for column in self.columns if not column.generated)

    @property
    def readable(self) -> str:
        """The condition that a row is a memory at all: it has an id and a text."""
        missing = [column.quoted for column in (self.id, self.fields["content"]) if column.nullable]
        return " and ".join(f"t.{name} is not null" for name in missing) or "true"

    def url_name(self) -> str:
        """The table as an option of a URL names it."""
        return ".".join(name if _is_plain(name) else quoted(name) for name in (self.schema, self.name))


def quoted(name: str) -> str:
    """A name in double quotes, which nothing in it can end."""
    return '"' + name.replace('"', '""').replace("%", "%%") + '"'


def split_name(table: str) -> tuple[str | None, str]:
    """The schema, where one is named, and the table; a name with dots stands in double quotes.

    Raises:
        BadUsage: it is not ``table`` or ``schema.table``, or a name is too long for PostgreSQL.
    """
    names = _names(table)
    if not 1 <= len(names) <= 2 or not all(names):
        raise BadUsage(f"table must be TABLE or SCHEMA.TABLE, a name with dots in double quotes, got {table!r}")
    for name in names:
        if len(name.encode()) > _LONGEST_NAME or "\0" in name:
            raise BadUsage(f"table {table!r}: {name!r} is no name that PostgreSQL can have; nothing was read")
    if names[-1].startswith("memfold_"):
        raise BadUsage(f"table {table!r} holds memfold's own bookkeeping, not memories; nothing was read")
    return (names[0], names[1]) if len(names) == 2 else (None, names[0])


def read_table(connection: Connection, mapping: TableMapping, url: str) -> Table:
    """The table that a mapping names, checked against it.

    Raises:
        StoreError: there is no such table or column, a column is of a type that its field cannot have, or the id is
            not unique.
    """
    oid, schema, name = _find(connection, mapping, url)
    columns = _columns(connection, oid)
    by_name = {column.name: column for column in columns}
    where = f"table {schema}.{name} of {url}"
    if missing := [column for column in (*mapping.columns.values(), *mapping.scope) if column not in by_name]:
        raise StoreError(
            f"{where} has no column {missing[0]!r}; nothing was read or written. It has: {', '.join(by_name)}."
        )
    fields = {field: by_name[column] for field, column in mapping.columns.items()}
    kinds = {field: _kind(field, column, where) for field, column in fields.items() if field != "scope"}
    scope = tuple(by_name[column] for column in mapping.scope)
    for column in scope:
        if column.base not in (*_STRINGS, *_WHOLE, "uuid", "boolean", "date") and column.category != "E":
            raise _wrong_type(where, "scope", column, "text, uuid or a whole number")
    _require_unique(connection, oid, fields["memory_id"], where)
    return Table(schema, name, columns, fields, kinds, scope)


def require_lone(connection: Connection, table: Table, url: str) -> None:
    """Refuse a table whose rows take rows of other tables with them: an undo could not bring those back.

    Raises:
        StoreError: a foreign key with ``on delete cascade``, ``set null`` or ``set default`` points to the table.
    """
    rows = connection.execute(
        "select conname, conrelid::regclass::text from pg_catalog.pg_constraint "
        "where contype = 'f' and confrelid = %s::regclass and confdeltype in ('c', 'n', 'd') order by 1 limit 1",
        (table.quoted.replace("%%", "%"),),
    ).fetchall()
    for constraint, other in rows:
        raise StoreError(
            f"{url}: to delete a row of {table.name} would change rows of {other} too (foreign key {constraint}), "
            "which an undo could not bring back; nothing was written. Make that key `on delete restrict`."
        )


def _find(connection: Connection, mapping: TableMapping, url: str) -> tuple[int, str, str]:
    schema, name = split_name(mapping.table)
    rows = connection.execute(
        "select c.oid, n.nspname, c.relname, c.relkind from pg_catalog.pg_class c "
        "join pg_catalog.pg_namespace n on n.oid = c.relnamespace "
        "where c.relname = %s and c.relkind in ('r', 'p', 'v', 'm', 'f') and "
        "case when %s::text is null then pg_catalog.pg_table_is_visible(c.oid) else n.nspname = %s end",
        (name, schema, schema),
    ).fetchall()
    if not rows:
        hint = "Check its name, which is taken to the letter"
        hint += ", or make an empty store there with `memfold init`." if mapping.is_own else "."
        raise StoreError(f"{url} has no table {mapping.table}; nothing was read or created. {hint}")
    oid, found_schema, found_name, kind = rows[0]
    if kind not in ("r", "p"):
        what = {"v": "a view", "m": "a materialized view", "f": "a foreign table"}[kind]
        raise StoreError(f"{mapping.table} of {url} is {what}; nothing was read. Name the table that holds the rows.")
    return int(oid), found_schema, found_name


def _columns(connection: Connection, oid: int) -> tuple[Column, ...]:
    # With -1 for the length, a type is named so that a cast to it neither cuts nor fills up.
    rows = connection.execute(
        "select a.attname, pg_catalog.format_type(a.atttypid, -1), "
        "pg_catalog.format_type(case t.typtype when 'd' then t.typbasetype else a.atttypid end, -1), "
        "t.typcategory::text, not a.attnotnull, a.attgenerated <> '' "
        "from pg_catalog.pg_attribute a join pg_catalog.pg_type t on t.oid = a.atttypid "
        "where a.attrelid = %s and a.attnum > 0 and not a.attisdropped order by a.attnum",
        (oid,),
    ).fetchall()
    # In a statement with values a percent sign is written twice.
    return tuple(Column(name, type_name.replace("%", "%%"), *others) for name, type_name, *others in rows)


def _require_unique(connection: Connection, oid: int, column: Column, where: str) -> None:
    found = connection.execute(
        "select 1 from pg_catalog.pg_index i join pg_catalog.pg_attribute a "
        "on a.attrelid = i.indrelid and a.attnum = i.indkey[0] "
        "where i.indrelid = %s and i.indisunique and i.indisvalid and i.indnkeyatts = 1 and i.indpred is null "
        "and a.attname = %s limit 1",
        (oid, column.name),
    ).fetchall()
    if not found:
        raise StoreError(
            f"{where}: nothing makes {column.name!r} unique, so it is no id; nothing was read or written. "
            "Make it the primary key, or unique."
        )


def _kind(field: str, column: Column, where: str) -> str:
    kind, types, in_words = _WANTED.get(field, _A_TIME)
    if column.base not in types and not (field in _NAMES and column.category == "E"):
        raise _wrong_type(where, "id" if field == "memory_id" else field, column, in_words)
    return JSON_WORDS if kind == WORDS and column.base in _JSON else kind


#: Field -> the kind of its cells, the types that its column may have, and these in words.
_WANTED: dict[str, tuple[str, tuple[str, ...], str]] = {
    "memory_id": (TEXT, _IDS, "text, uuid or a whole number"),
    **dict.fromkeys(("content", "title"), (TEXT, _STRINGS, "text")),
    **dict.fromkeys(_NAMES, (TEXT, (*_STRINGS, *_WHOLE, "uuid"), "text, an enum, uuid or a whole number")),
    **dict.fromkeys(
        ("tags", "sessions", "links"), (WORDS, ("text[]", "character varying[]", *_JSON), "text[] or jsonb")
    ),
    **dict.fromkeys(("pinned", "protected"), (FLAG, ("boolean",), "boolean")),
    **dict.fromkeys(
        ("importance", "confidence"), (NUMBER, (*_WHOLE, "real", "double precision", "numeric"), "a number")
    ),
    "use_count": (COUNT, _WHOLE, "a whole number"),
    "metadata": (METADATA, (*_JSON, "text"), "jsonb, json or text"),
}
_A_TIME = (
    TIME,
    ("timestamp with time zone", "timestamp without time zone", "date"),
    "timestamptz, timestamp (in UTC) or date",
)


def _wrong_type(where: str, what: str, column: Column, wanted: str) -> StoreError:
    return StoreError(
        f"{where}: column {column.name!r} is of type {column.type}, so it cannot be the {what} of memories, "
        f"which is {wanted}; nothing was read or written"
    )


def _is_plain(name: str) -> bool:
    return "." not in name and '"' not in name


def _names(table: str) -> list[str]:
    names, rest = [], table
    while True:
        if rest.startswith('"'):
            end = _closing_quote(rest)
            names.append(rest[1:end].replace('""', '"'))
            rest = rest[end + 1 :]
            if rest and not rest.startswith("."):
                return []
        else:
            name, dot, after = rest.partition(".")
            names.append(name)
            rest = dot + after
        if not rest:
            return names
        rest = rest[1:]


def _closing_quote(text: str) -> int:
    place = 1
    while (place := text.find('"', place)) >= 0 and text[place : place + 2] == '""':
        place += 2
    return place if place >= 0 else len(text)
