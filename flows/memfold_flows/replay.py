"""Replay batches: what an agent distilled in one go, as ``{"memories": [{"title", "content", "kind"}, ...]}``.

A pass reads them as evidence. A batch that cannot be read holds none, and is consumed with the others: it stays where
it is, and would else make its scope due for ever.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from memfold import frames
from memfold.errors import BadUsage
from memfold_flows.stores.base import ReplayBatch


def to_json(batch: object) -> str:
    """A batch, a list of entries ``{title, content, kind}``, as stores keep it.

    Raises:
        BadUsage: the batch is no list of entries, or an entry has no content or a value that is no text.
    """
    if not isinstance(batch, Sequence) or isinstance(batch, str | bytes):
        inner = ' (the list under "memories" is)' if isinstance(batch, Mapping) and "memories" in batch else ""
        raise BadUsage(f"a batch is a list of entries, not {type(batch).__name__}{inner}; nothing was appended")
    entries = [_entry(given, number) for number, given in enumerate(batch)]
    return json.dumps({"memories": entries}, ensure_ascii=False, separators=(",", ":"))


def _entry(given: object, number: int) -> dict[str, str]:
    if not isinstance(given, Mapping):
        kind = type(given).__name__
        raise BadUsage(f"entry {number} of the batch is {kind}, not {{title, content, kind}}; nothing was appended")
    entry = {name: given.get(name) for name in ("title", "content", "kind")}
    if not isinstance(entry["content"], str) or not entry["content"]:
        raise BadUsage(f"entry {number} of the batch has no content; nothing was appended")
    for name, value in entry.items():
        if not isinstance(value, str | None):
            raise BadUsage(f"entry {number} of the batch: {name} is no text; nothing was appended")
        if value is not None and _text(value) is None:
            raise BadUsage(f"entry {number} of the batch: {name} is no valid Unicode; nothing was appended")
    return {name: value for name, value in entry.items() if value is not None}


def batches_read(batches: Sequence[ReplayBatch]) -> pa.Table:
    """The ``replay`` relation: the batches that a pass read."""
    rows = [
        {
            "batch": batch.batch,
            "scope": batch.scope,
            "created_at": batch.created_at,
            "entries": sum(1 for _ in _entries(batch)),
        }
        for batch in sorted(batches, key=lambda batch: batch.batch)
    ]
    return pa.Table.from_pylist(rows, schema=frames.REPLAY)


def evidence_of(batches: Sequence[ReplayBatch]) -> pa.Table:
    """The ``evidence`` relation: what is told in these batches."""
    rows = [row for batch in batches for row in _entries(batch)]
    return pa.Table.from_pylist(sorted(rows, key=lambda row: row["memory_id"]), schema=frames.EVIDENCE)


def _entries(batch: ReplayBatch) -> Iterator[dict[str, Any]]:
    try:
        entries = json.loads(batch.batch_json)["memories"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return
    for number, entry in enumerate(entries if isinstance(entries, list) else ()):
        if not isinstance(entry, dict):
            continue
        texts = {name: _text(entry.get(name)) for name in ("kind", "title", "content")}
        if texts["content"] is not None:
            yield {
                "memory_id": f"replay:{batch.batch}:{number}",
                "batch": batch.batch,
                "scope": batch.scope,
                **texts,
                "created_at": batch.created_at,
            }


def _text(value: Any) -> str | None:
    """A text that Arrow can hold: half a surrogate pair is none."""
    if not isinstance(value, str):
        return None
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return None
    return value
