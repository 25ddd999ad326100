"""What people's exports call things: a record of an archive read as a memory, and a memory's changes put back.

A record is a mapping of names to plain values, whatever file it came from. Errors are ``ValueError`` with what is
wrong; the caller adds the place.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any
from urllib.parse import quote

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
    shown,
)

SCOPE_FIELDS = ("scope", "user_id", "agent_id", "project", "namespace")

#: The names of each field, the first being the one to use where the archive has none yet.
NAMES: dict[str, tuple[str, ...]] = {
    "memory_id": ("id", "memory_id"),
    "content": ("text", "content", "memory"),
    "title": ("title",),
    "kind": ("kind", "type"),
    "tags": ("tags",),
    "tier": ("tier",),
    "session_id": ("session_id",),
    "sessions": ("sessions",),
    "trust": ("trust",),
    "pinned": ("pinned",),
    "protected": ("protected",),
    "importance": ("importance",),
    "confidence": ("confidence",),
    "use_count": ("use_count", "usage_count", "access_count", "recall_count"),
    "created_at": ("created_at",),
    "updated_at": ("updated_at",),
    "event_time": ("event_time",),
    "valid_from": ("valid_from",),
    "valid_to": ("valid_to",),
    "last_used_at": ("last_used_at",),
    "expires_at": ("expires_at",),
    "links": ("links",),
}
TIMES = ("created_at", "updated_at", "event_time", "valid_from", "valid_to", "last_used_at", "expires_at")

_MOST_LAYOUTS = 4096
_FIELDS_NAMED = 12
_SHORTEST_VECTOR = 16


class FieldReader:
    """Reads records as memories; remembers which names this archive uses.

    ``scope_fields`` are the fields that make the scope; a field that is not among them is kept like any other.
    """

    def __init__(self, scope_fields: Sequence[str] = SCOPE_FIELDS) -> None:
        self.scope_fields = tuple(scope_fields)
        self.names_seen: dict[str, str] = {}
        self.saw_a_scope = False
        self._layouts: dict[tuple[str, ...], _Layout] = {}

    def memory(self, record: Mapping[str, Any]) -> Memory:
        """The memory that a record holds.

        Raises:
            ValueError: the id or the text is missing, a value has the wrong type, two names of one field disagree.
        """
        layout = self._layout(record)
        values: dict[str, Any] = {}
        for field, read, names in layout.fields:
            value = read(record[names[0]], names[0]) if len(names) == 1 else _agreed(record, names, read)
            if value is not None:
                values[field] = value
        for field in ("memory_id", "content"):
            if field not in values:
                seen = ", ".join(sorted(map(str, record))[:_FIELDS_NAMED]) or "none"
                raise ValueError(f"has no {' or '.join(NAMES[field])}; its fields are: {seen}")
        return Memory(scope=scope_of(record, layout.scope), metadata=_metadata_text(record, layout.others), **values)

    def changes(self, record: Mapping[str, Any], before: Memory, after: Memory) -> dict[str, Any]:
        """The fields of a record to set, by its own names and in its own forms, so that it reads as ``after``."""
        changed: dict[str, Any] = {}
        for field in NAMES:
            value = getattr(after, field)
            if value == getattr(before, field) or field == "memory_id":
                continue
            for name in self._names_to_write(record, field):
                if value is not None or name in record:
                    changed[name] = self._spelled(record, field, name, value)
        if before.metadata != after.metadata:
            changed.update(self._metadata_changes(record, before, after))
        return changed

    def _layout(self, record: Mapping[str, Any]) -> _Layout:
        names = tuple(record)
        layout = self._layouts.get(names)
        if layout is None:
            if len(self._layouts) >= _MOST_LAYOUTS:
                self._layouts.clear()
            layout = self._layouts[names] = _lay_out(names, self.scope_fields)
            self.saw_a_scope = self.saw_a_scope or bool(layout.scope)
            for field, _, found in layout.fields:
                self.names_seen.setdefault(field, found[0])
        return layout

    def _names_to_write(self, record: Mapping[str, Any], field: str) -> list[str]:
        held = [name for name in NAMES[field] if name in record]
        filled = [name for name in held if record[name] is not None]
        return filled or held[:1] or [self.names_seen.get(field, NAMES[field][0])]

    def _spelled(self, record: Mapping[str, Any], field: str, name: str, value: Any) -> Any:
        if field in TIMES:
            others = (record.get(self.names_seen.get(time, time)) for time in TIMES)
            like = next((example for example in (record.get(name), *others) if example is not None), None)
            return None if value is None else spell_time(value, like)
        return list(value) if isinstance(value, tuple) else value

    def _metadata_changes(self, record: Mapping[str, Any], before: Memory, after: Memory) -> dict[str, Any]:
        if after.metadata is None:
            return {"metadata": None}
        # Keys that come from elsewhere are always put under "metadata": at the top they could pass for a scope.
        old, new = metadata_object(before.metadata) or {}, metadata_object(after.metadata) or {}
        held = record.get("metadata")
        keys = {key: value for key, value in (metadata_object(held) or {}).items() if key in new or key not in old}
        keys |= {k: v for k, v in new.items() if k not in old or not same(old[k], v)}
        return {"metadata": to_json(keys) if isinstance(held, str) else keys}


def scope_of(record: Mapping[str, Any], names: Sequence[str]) -> str:
    """The scope of a record as one string: ``scope`` alone as it is, else ``name=value`` of all that are present.

    Raises:
        ValueError: a scope field is neither text nor a whole number.
    """
    present = [(name, str(value)) for name in names if (value := read_identifier(record[name], name)) is not None]
    if not present:
        return ""
    if len(present) == 1 and present[0][0] == "scope" and "=" not in present[0][1]:
        return present[0][1]
    return "&".join(f"{name}={quote(value, safe='')}" for name, value in present)


def metadata_object(value: Any) -> dict[str, Any] | None:
    """The keys of a metadata field: an object, JSON text that holds one, or the pairs of a map.

    Raises:
        ValueError: it is something else.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value) if value else None
        except (ValueError, RecursionError):
            raise ValueError("metadata must be an object, got text that is not one in JSON") from None
    if isinstance(value, list) and value and all(isinstance(pair, tuple) for pair in value):
        value = dict(value)
    if value is not None and not isinstance(value, dict):
        raise ValueError(f"metadata must be an object, got {shown(value)}")
    return value


_Reader = Callable[[Any, str], Any]


@dataclass(frozen=True, slots=True)
class _Layout:
    """What the names of a record mean: worked out once for all records that have the same names."""

    fields: tuple[tuple[str, _Reader, tuple[str, ...]], ...]
    scope: tuple[str, ...]
    others: tuple[str, ...]


def _lay_out(names: tuple[str, ...], scope_fields: tuple[str, ...]) -> _Layout:
    # Where a record has an id of its own, memory_id is a field like any other.
    held = set(names) - ({"memory_id"} if "id" in names else set())
    found = tuple(
        (field, _READERS[field], present)
        for field, known in NAMES.items()
        if (present := tuple(name for name in known if name in held))
    )
    meant = {name for _, _, present in found for name in present} | {"metadata"}
    return _Layout(
        fields=found,
        scope=tuple(name for name in scope_fields if name in held),
        others=tuple(name for name in names if name not in meant and name not in set(scope_fields)),
    )


def _agreed(record: Mapping[str, Any], names: tuple[str, ...], read: _Reader) -> Any:
    values = [(name, read(record[name], name)) for name in names if record[name] is not None]
    for name, value in values[1:]:
        if value != values[0][1]:
            raise ValueError(f"{values[0][0]} and {name} name the same thing and disagree")
    return values[0][1] if values else None


def _metadata_text(record: Mapping[str, Any], others: tuple[str, ...]) -> str | None:
    held = record.get("metadata")
    own = metadata_object(held)
    beside = {name: record[name] for name in others if record[name] is not None and not _is_vector(record[name])}
    if not beside:
        return None if own is None else _ascii(held) if isinstance(held, str) else to_json(own)
    return to_json(beside | own if own else beside)


def _is_vector(value: Any) -> bool:
    """Whether a value is an embedding: it follows from the text, and would outweigh everything else of the memory."""
    return isinstance(value, list) and len(value) >= _SHORTEST_VECTOR and isinstance(value[0], int | float)


def _ascii(text: str) -> str:
    return text if text.isascii() else to_json(json.loads(text))


def _plain(value: Any) -> Any:
    # Values of a typed archive that JSON has no form for; they are only ever compared and shown.
    return value.hex() if isinstance(value, bytes) else str(value)


# ASCII, so that half a surrogate pair stays what it was; Arrow could not hold it as text.
to_json = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"), default=_plain).encode


def same(one: Any, other: Any) -> bool:
    """Whether two values are one in JSON, which tells 1 from true and from 1.0; Python's == does not."""
    return to_json(one) == to_json(other)


_READERS: dict[str, _Reader] = {
    **dict.fromkeys(("content", "title", "kind", "tier", "trust"), read_text),
    **dict.fromkeys(("tags", "sessions", "links"), read_words),
    **dict.fromkeys(("pinned", "protected"), read_flag),
    **dict.fromkeys(("importance", "confidence"), read_number),
    **dict.fromkeys(TIMES, read_time),
    "memory_id": read_memory_id,
    "session_id": read_identifier,
    "use_count": read_count,
}

#: Every field of a memory that an archive can hold, whatever it is called there.
PLACES = frozenset(field.name for field in fields(Memory)) - {"memory_id", "scope"}
