"""One memory as a value, and its digest: what a store hands over and takes back row by row."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)

# Built once: json.dumps with options builds an encoder at each call, which costs more than the encoding.
_encode = json.JSONEncoder(ensure_ascii=True, separators=(",", ":")).encode
_encode_sorted = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"), sort_keys=True).encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """One row of the snapshot. Times are aware datetimes in UTC; ``metadata`` is JSON text, verbatim."""

    memory_id: str
    scope: str
    content: str
    kind: str | None = None
    title: str | None = None
    tags: tuple[str, ...] = ()
    tier: str | None = None
    session_id: str | None = None
    sessions: tuple[str, ...] = ()
    trust: str | None = None
    pinned: bool = False
    protected: bool = False
    importance: float | None = None
    confidence: float | None = None
    use_count: int | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    event_time: datetime | None = None
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    last_used_at: datetime | None = None
    expires_at: datetime | None = None
    links: tuple[str, ...] = ()
    metadata: str | None = None

    @property
    def row_digest(self) -> str:
        """The digest of the fields that a plan relies on; see ``row_digest``."""
        return row_digest(
            scope=self.scope,
            kind=self.kind,
            title=self.title,
            content=self.content,
            tags=self.tags,
            tier=self.tier,
            session_id=self.session_id,
            trust=self.trust,
            pinned=self.pinned,
            protected=self.protected,
            valid_from=self.valid_from,
            valid_to=self.valid_to,
            expires_at=self.expires_at,
            metadata=self.metadata,
        )


def row_digest(
    *,
    scope: str,
    kind: str | None,
    title: str | None,
    content: str,
    tags: Sequence[str],
    tier: str | None,
    session_id: str | None,
    trust: str | None,
    pinned: bool,
    protected: bool,
    valid_from: datetime | None,
    valid_to: datetime | None,
    expires_at: datetime | None,
    metadata: str | None,
) -> str:
    """128-bit digest, as 32 hex digits, of the fields that a plan relies on.

    Left out on purpose: ``use_count``, ``last_used_at``, ``updated_at`` and other values that a mere recall changes.
    """
    return digest_fields(
        scope,
        kind,
        title,
        content,
        list(tags),
        tier,
        session_id,
        trust,
        bool(pinned),
        bool(protected),
        microseconds(valid_from),
        microseconds(valid_to),
        microseconds(expires_at),
        canonical_json(metadata),
    )


def digest_fields(*fields: object) -> str:
    """The digest of the fields of ``row_digest``, in its order: times in microseconds, metadata as canonical JSON."""
    return hashlib.blake2b(_encode(fields).encode("ascii"), digest_size=16).hexdigest()


def canonical_json(text: str | None) -> str | None:
    """The same JSON value in one spelling: keys sorted, no spaces. Text that is not JSON is returned as it is."""
    if text is None or text == "":
        return None
    return _canonical(text) if len(text) > _LONGEST_REMEMBERED else _remembered_canonical(text)


def microseconds(moment: datetime | None) -> int | None:
    """Microseconds since 1970 in UTC, exact; null stays null."""
    return None if moment is None else (moment - EPOCH) // MICROSECOND


def from_microseconds(value: int | None) -> datetime | None:
    """The inverse of ``microseconds``."""
    return None if value is None else EPOCH + value * MICROSECOND


def _canonical(text: str) -> str:
    try:
        return _encode_sorted(json.loads(text))
    except (ValueError, RecursionError):
        return text


# Many memories of one agent carry the same few metadata objects; long ones are not kept.
_LONGEST_REMEMBERED = 1000
_remembered_canonical = lru_cache(maxsize=4096)(_canonical)
