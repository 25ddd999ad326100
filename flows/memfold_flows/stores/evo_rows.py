"""The rows of evo's ``memories``: from its cells to memories and back, held to evo's own rules.

evo checks each row that it reads, and one that breaks a rule breaks the whole list; so a row is read as evo reads it,
and nothing is written that evo would refuse.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from memfold.errors import BadRecord, BadUsage, StoreError
from memfold.memory import Memory, from_microseconds, microseconds
from memfold_flows.stores.base import Update
from memfold_flows.stores.batches import memories_batch
from memfold_flows.stores.sqlite_rows import unpack

COLUMNS = (
    "id",
    "scope_key",
    "scope_json",
    "kind",
    "title",
    "content",
    "tags_json",
    "confidence",
    "usage_count",
    "created_at",
    "updated_at",
    "source_json",
)
KINDS = ("fact", "preference", "constraint", "procedure", "skill")
SCOPE_TYPES = ("global", "user", "project", "session", "conversation")

#: Who wrote a memory that evo distilled itself; all others were imported or written by hand.
OWN_RUNTIMES = ("evo", "evo-memory")

#: Folded fields that evo has a place for. A recall and a rewrite both set ``updated_at``, so the row was last used no
#: later than then, and that is all there is to ``last_used_at``.
PLACES = frozenset({"tags", "confidence", "use_count", "created_at", "updated_at", "last_used_at"})

# JavaScript counts exactly up to here.
_LARGEST_INTEGER = 2**53 - 1
_MICROSECONDS = 1000

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def batch_of(page: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    """A snapshot batch from rows of ``COLUMNS``."""
    return memories_batch(memory_of(dict(zip(COLUMNS, row, strict=True))) for row in page)


def memory_of(cells: Mapping[str, Any]) -> Memory:
    """The memory in a row, whose columns may be more than evo's.

    Raises:
        BadRecord: evo would not read this row.
    """
    if problem := problem_of(cells):
        raise BadRecord(
            f"memory {cells['id']!r}: {problem}, so evo itself cannot read it; nothing was planned or written. "
            "Correct that record."
        )
    source = _json(cells["source_json"]) if cells["source_json"] else {}
    is_own = source.get("runtime") in OWN_RUNTIMES and "path" not in source
    updated_at = from_microseconds(cells["updated_at"] * _MICROSECONDS)
    return Memory(
        memory_id=cells["id"],
        scope=cells["scope_key"],
        kind=cells["kind"],
        title=cells["title"],
        content=cells["content"],
        tags=tuple(_json(cells["tags_json"])),
        session_id=source.get("sessionId"),
        protected=not is_own,
        confidence=None if cells["confidence"] is None else float(cells["confidence"]),
        use_count=cells["usage_count"],
        created_at=from_microseconds(cells["created_at"] * _MICROSECONDS),
        updated_at=updated_at,
        last_used_at=updated_at,
        metadata=cells["source_json"],
    )


def problem_of(cells: Mapping[str, Any]) -> str | None:
    """Why evo would refuse a row; None where it would not. No text of the memory is in it."""
    for name, (rule, holds) in _RULES.items():
        try:
            if not holds(cells[name]):
                return f"{name} is not {rule}"
        except (TypeError, ValueError, RecursionError):
            return f"{name} is not {rule}"
    return None


def changed_cells(update: Update, row: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that an update writes, and what it writes there; ``row`` is the row as it stands.

    Raises:
        StoreError: evo would refuse the row.
    """
    changed: dict[str, Any] = {}
    for field, (column, cell) in _FIELDS.items():
        if getattr(update.before, field) != getattr(update.after, field):
            changed[column] = cell(getattr(update.after, field))
    if update.raw is not None:
        # Back to the spelling of before, where it says the same.
        earlier = unpack(update.raw)
        if "tags_json" in changed and tuple(_json(earlier["tags_json"])) == update.after.tags:
            changed["tags_json"] = earlier["tags_json"]
    require_valid({**row, **changed})
    return changed


def require_valid(cells: Mapping[str, Any]) -> None:
    """Refuse to write a row that evo would refuse to read.

    Raises:
        StoreError: the message names the memory and the column.
    """
    if problem := problem_of(cells):
        raise StoreError(f"memory {cells['id']!r} was not written: {problem}; this transaction changed nothing")


def require_entries(batch_json: str) -> None:
    """Refuse a replay batch of which evo could not make memories.

    Raises:
        BadUsage: an entry breaks one of evo's rules for a title, a content or a kind.
    """
    for number, entry in enumerate(json.loads(batch_json)["memories"]):
        for name in ("title", "content", "kind"):
            wanted, holds = _RULES[name]
            if not holds(entry.get(name)):
                says = f"has no {name}" if name not in entry else f"has the {name} {entry[name]!r}"
                raise BadUsage(f"entry {number} of the batch {says}; evo wants {wanted}; nothing was appended")


def item_of(cells: Mapping[str, Any]) -> dict[str, Any]:
    """A row as evo hands it to whoever reads its events."""
    item = {
        "id": cells["id"],
        "scope": _json(cells["scope_json"]),
        "kind": cells["kind"],
        "title": cells["title"],
        "content": cells["content"],
        "tags": _json(cells["tags_json"]),
        "usageCount": cells["usage_count"],
        "createdAt": cells["created_at"],
        "updatedAt": cells["updated_at"],
    }
    if cells["confidence"] is not None:
        item["confidence"] = cells["confidence"]
    if cells["source_json"]:
        item["source"] = _json(cells["source_json"])
    return item


def scope_of(scope_key: str) -> dict[str, Any]:
    """The scope that this key names, as evo spells it out.

    Raises:
        ValueError: it is no key of a scope.
    """
    scope: dict[str, Any] | None = None
    for part in scope_key.split("/"):
        kind, _, quoted = part.partition(":")
        scope = {
            "type": kind,
            **({"id": unquote(quoted, errors="strict")} if quoted else {}),
            **({"parent": scope} if scope else {}),
        }
        if not _is_scope(scope):
            raise ValueError(f"{scope_key!r} is no scope of evo's, such as global, user:ann or user:ann/project:site")
    return scope or {}


def encode(value: Any) -> str:
    """JSON as evo writes it: no spaces."""
    return _encode(value)


def milliseconds(moment: Any) -> int:
    """evo's unit of time."""
    return (microseconds(moment) or 0) // _MICROSECONDS


def _json(text: Any) -> Any:
    return json.loads(text, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> Any:
    raise ValueError(name)  # NaN and Infinity, which JavaScript does not read


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST_INTEGER


def _is_time(value: Any) -> bool:
    try:
        return _is_count(value) and from_microseconds(value * _MICROSECONDS) is not None
    except OverflowError:
        return False


def _is_confidence(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and 0 <= value <= 1)


def _are_tags(text: Any) -> bool:
    tags = _json(text)
    return isinstance(tags, list) and all(map(_is_text, tags))


def _is_source(text: Any) -> bool:
    if text is None or text == "":
        return True
    source = _json(text)
    return (
        isinstance(source, dict)
        and _is_text(source.get("runtime"))
        and all(_is_text(source[name]) for name in ("sessionId", "path") if name in source)
        and ("turn" not in source or _is_count(source["turn"]))
    )


def _is_scope(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and value.get("type") in SCOPE_TYPES
        and ("id" not in value or _is_text(value["id"]))
        and (value["type"] == "global" or "id" in value)
        and ("parent" not in value or _is_scope(value["parent"]))
    )


_RULES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "id": ("a text of at least one character", _is_text),
    "scope_key": ("a text of at least one character", _is_text),
    "scope_json": ("a scope in JSON", lambda text: _is_scope(_json(text))),
    "kind": (f"one of {', '.join(KINDS)}", KINDS.__contains__),
    "title": ("a text of at least one character", _is_text),
    "content": ("a text of at least one character", _is_text),
    "tags_json": ("a JSON array of texts", _are_tags),
    "confidence": ("a number from 0 to 1", _is_confidence),
    "usage_count": ("a whole number of at least 0", _is_count),
    "created_at": ("a time in whole milliseconds since 1970", _is_time),
    "updated_at": ("a time in whole milliseconds since 1970", _is_time),
    "source_json": ("JSON with a runtime (NaN is no JSON)", _is_source),
}

_FIELDS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "tags": ("tags_json", lambda tags: _encode(list(tags))),
    "confidence": ("confidence", lambda confidence: confidence),
    "use_count": ("usage_count", lambda count: min(count, _LARGEST_INTEGER)),
    "created_at": ("created_at", milliseconds),
    "updated_at": ("updated_at", milliseconds),
}
