"""Folded fields: what of a fold a store has a place for, as JSON in the undo rows, and how it is taken back."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import fields, replace
from typing import Any

from memfold.memory import Memory, canonical_json, from_microseconds, microseconds
from memfold_flows.stores.batches import TIME_COLUMNS

_FIELDS = tuple(field.name for field in fields(Memory) if field.name != "memory_id")


def changed_fields(before: Memory, after: Memory) -> list[str]:
    """The names of the fields that differ."""
    return [name for name in _FIELDS if getattr(before, name) != getattr(after, name)]


def keep_to_places(before: Memory, after: Memory, places: Collection[str]) -> Memory:
    """The folded memory, but for fields that the store has no place for: those stay as they were."""
    changed = changed_fields(before, after)
    written = {name: getattr(after, name) for name in changed if name in places}
    return after if len(written) == len(changed) else replace(before, **written)


def to_json(memory: Memory, names: Iterable[str]) -> str:
    """These fields as a JSON object; times are microseconds."""
    return json.dumps({name: _encoded(memory, name) for name in names})


def from_json(text: str | None) -> dict[str, Any]:
    """The inverse of ``to_json``: values as a memory holds them."""
    return {name: _decoded(name, value) for name, value in json.loads(text or "{}").items()}


def take_back(current: Memory, before: dict[str, Any], after: dict[str, Any]) -> tuple[Memory, list[str]]:
    """The memory with the folded fields as they were before, and the names of fields that changed since and stay.

    A counter gives back what the fold added, whatever was counted since.
    """
    reverted: dict[str, Any] = {}
    kept: list[str] = []
    for name, folded in after.items():
        value = getattr(current, name)
        if _same(name, value, folded):
            reverted[name] = before[name]
        elif name == "use_count" and value is not None and value >= folded - (before[name] or 0):
            reverted[name] = value - (folded - (before[name] or 0))
        elif not _same(name, value, before[name]):
            kept.append(name)
    return replace(current, **reverted), kept


def _same(name: str, one: Any, other: Any) -> bool:
    # An archive spells metadata in its own way; what counts is what it says.
    return canonical_json(one) == canonical_json(other) if name == "metadata" else bool(one == other)


def _encoded(memory: Memory, name: str) -> Any:
    value = getattr(memory, name)
    return microseconds(value) if name in TIME_COLUMNS else value


def _decoded(name: str, value: Any) -> Any:
    if name in TIME_COLUMNS:
        return from_microseconds(value)
    return tuple(value) if isinstance(value, list) else value
