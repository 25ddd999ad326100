"""How PraisonAI's ``Memory`` keeps a memory in a row, and what a row means to its recall.

PraisonAI recalls by equality of ``metadata.user_id`` and ``metadata.session_id`` and by the rank of
``metadata.trust``; those three are the walls here. Everything else in the metadata belongs to the caller.

Agent turns, entities and session summaries are not ordinary facts, so they are protected. Their exact copies within a
tier, user, trust and session may still fold: the oldest of each group is protected, the others are not, and as their
``kind`` carries the digest of the text, the wall between kinds lets a copy meet nothing but its own group.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, cast
from urllib.parse import quote

from memfold.memory import Memory

SHORT_TERM = "short_term"
LONG_TERM = "long_term"
TIERS = (SHORT_TERM, LONG_TERM)

#: The scope and kind of rows that PraisonAI cannot read itself; no user id can give this scope.
UNREADABLE_SCOPE = "rows=unreadable"
UNREADABLE = "unreadable"

#: What the exact copies of a turn, entity or summary have in common: tier, scope, trust, session, kind.
Group = tuple[str | None, ...]

_TYPED_ID = re.compile(rf"({'|'.join(TIERS)}):(0|-?[1-9][0-9]*)")
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d.*")


class BrokenText(bytes):
    """A TEXT value of SQLite that is not UTF-8."""


@dataclass(frozen=True, slots=True)
class Row:
    """The four columns that PraisonAI knows, as they are stored; the id of a row, or of an item in a file."""

    id: int | str
    content: object
    metadata: object
    timestamp: object


def read_text(value: bytes) -> str | BrokenText:
    """The ``text_factory`` of every connection: one text that is not UTF-8 must not fail the whole read."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return BrokenText(value)


def typed_id(tier: str, row_id: int | str) -> str:
    """``short_term:14``: both tiers count from 1, so a bare row id names two memories."""
    return f"{tier}:{row_id}"


def split_id(memory_id: str) -> tuple[str, int] | None:
    """The tier and the row id of a typed id; None for an id that no row here can have."""
    match = _TYPED_ID.fullmatch(memory_id)
    if match is None or not -(2**63) <= int(match[2]) < 2**63:
        return None
    return match[1], int(match[2])


def read_memory(tier: str, row: Row) -> Memory:
    """The memory in a row; a row that PraisonAI itself cannot read is protected, without text, in a scope of its own.

    A turn, an entity or a summary comes back protected, also where it is a copy; see ``group_of``.
    """
    if why_unreadable(row) is not None:
        return Memory(
            memory_id=typed_id(tier, row.id),
            scope=UNREADABLE_SCOPE,
            content="",
            kind=UNREADABLE,
            tier=tier,
            protected=True,
            metadata=row.metadata if type(row.metadata) is str else None,
        )
    content, metadata = cast(str, row.content), cast("str | None", row.metadata)
    known = _read_metadata(metadata)
    shape = _shape(content, known)
    return Memory(
        memory_id=typed_id(tier, row.id),
        scope=known.scope,
        content=content,
        kind=None if shape is None else f"{shape}:{_text_digest(content)}",
        tier=tier,
        session_id=known.session_id,
        sessions=() if known.session_id is None else (known.session_id,),
        trust=known.trust,
        protected=shape is not None,
        importance=known.importance,
        created_at=_moment(row.timestamp),
        metadata=metadata,
    )


def read_scope(row: Row) -> str:
    """The scope of ``read_memory``, without reading the rest."""
    return (
        UNREADABLE_SCOPE if why_unreadable(row) is not None else _read_metadata(cast("str | None", row.metadata)).scope
    )


def group_of(memory: Memory) -> Group | None:
    """The group of a turn, entity or summary as ``read_memory`` gives it; None for other rows."""
    if not memory.protected or memory.kind == UNREADABLE:
        return None
    return (memory.tier, memory.scope, memory.trust, memory.session_id, memory.kind)


def as_copy(memory: Memory, firsts: dict[Group, str]) -> Memory:
    """The memory as it is, or unprotected where an older row of its group is in ``firsts``; rows come oldest first."""
    group = group_of(memory)
    if group is None or firsts.setdefault(group, memory.memory_id) == memory.memory_id:
        return memory
    return replace(memory, protected=False)


def why_unreadable(row: Row) -> str | None:
    """Why PraisonAI cannot see this row or fails on it; None for a sound row."""
    if not isinstance(row.content, str):
        return "the content is not text"
    if row.metadata is not None and not isinstance(row.metadata, str):
        return "the metadata is not text"
    return _read_metadata(row.metadata).why_unreadable


def encode(tier: str, columns: Mapping[str, object]) -> bytes:
    """A row with all its columns, also those that PraisonAI does not know, so that it can be inserted again."""
    packed = {name: _pack(value) for name, value in columns.items()}
    return json.dumps({"tier": tier, "columns": packed}, ensure_ascii=True).encode("ascii")


def decode(raw: bytes) -> tuple[str, dict[str, object]]:
    """The tier and the columns of an encoded row."""
    row = json.loads(raw)
    return row["tier"], {name: _unpack(value) for name, value in row["columns"].items()}


@dataclass(frozen=True, slots=True)
class _Metadata:
    """What PraisonAI's recall knows of a memory by its metadata."""

    why_unreadable: str | None = None
    scope: str = ""
    session_id: str | None = None
    trust: str = "trusted"
    importance: float | None = None
    category: object = None
    type: object = None


# Many memories of one agent carry the same few metadata objects.
@lru_cache(maxsize=4096)
def _read_metadata(text: str | None) -> _Metadata:
    try:
        metadata = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return _Metadata(why_unreadable="the metadata is not JSON")
    if not isinstance(metadata, dict):
        return _Metadata(why_unreadable="the metadata is not a JSON object")
    for name in ("user_id", "session_id"):
        if not _is_identity(metadata.get(name)):
            return _Metadata(why_unreadable=f"the {name} in the metadata is neither text nor a whole number")
    return _Metadata(
        scope=_identity("user_id", metadata.get("user_id")) or "",
        session_id=_identity("session_id", metadata.get("session_id")),
        trust=_trust(metadata.get("trust")),
        importance=_importance(metadata),
        category=metadata.get("category"),
        type=metadata.get("type"),
    )


def _is_identity(value: object) -> bool:
    if isinstance(value, str):
        return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)
    return value is None or isinstance(value, int)


def _identity(name: str, value: str | int | None) -> str | None:
    """A user or session id as text. PraisonAI compares with ``==``: 5 and "5" are two users, so they get two texts."""
    if value is None:
        return None
    if isinstance(value, str) and value and "=" not in value:
        return value
    return f"{name}={quote(value, safe='') if isinstance(value, str) else int(value)}"


def _trust(value: object) -> str:
    """PraisonAI's rank: absent is trusted, a text that it does not know is untrusted."""
    if value is None:
        return "trusted"
    return value if isinstance(value, str) and value in ("trusted", "system") else "untrusted"


def _importance(metadata: Mapping[str, Any]) -> float | None:
    """The quality where it is on the scale of 0 to 1.

    PraisonAI's async writers use 0 to 10 and add a ``timestamp`` to the metadata; the two are not compared.
    """
    quality = metadata.get("quality")
    if isinstance(quality, bool) or not isinstance(quality, int | float) or "timestamp" in metadata:
        return None
    return float(quality) if 0 <= quality <= 1 else None


def _moment(timestamp: object) -> datetime | None:
    if not isinstance(timestamp, str) or not _TIMESTAMP.fullmatch(timestamp):
        return None
    try:
        moment = datetime.fromisoformat(timestamp)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _shape(content: str, metadata: _Metadata) -> str | None:
    if content.startswith("User: ") and "\nAssistant: " in content:
        return "turn"
    if metadata.category == "entity" or (content.startswith("Entity ") and " | relationships: " in content):
        return "entity"
    if metadata.type == "compression_summary" or content.startswith("[Session Summary]"):
        return "summary"
    return None


def _text_digest(content: str) -> str:
    return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()


def _pack(value: object) -> object:
    if isinstance(value, BrokenText):
        return {"text": base64.b64encode(value).decode()}
    if isinstance(value, bytes):
        return {"blob": base64.b64encode(value).decode()}
    return value


def _unpack(value: object) -> object:
    if not isinstance(value, dict):
        return value
    if "text" in value:
        return BrokenText(base64.b64decode(value["text"]))
    return base64.b64decode(value["blob"])
