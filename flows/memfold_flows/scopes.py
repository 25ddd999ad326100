"""A scope as people read and type it. The name by which stores and plans know it has odd signs percent-encoded."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Collection, Sequence
from urllib.parse import quote, unquote

from memfold_flows.stores.base import MemoryStore

#: Nothing in such a name can be spelled in two ways, so that the store need not be asked what it means.
_PLAIN = re.compile(r"[\w.~:/-]*", re.ASCII)
_ENCODED = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
#: What holds the parts of a scope together stays encoded: decoded, one user could read like a user of a project.
_JOINS_FIELDS, _JOINS_KEY = frozenset("%&="), frozenset("%/:")


def readable(scope: str) -> str:
    """A scope in words: ``user_id=josé müller`` for ``user_id=jos%C3%A9%20m%C3%BCller``; what cannot be read stays."""
    joins = _JOINS_FIELDS if "=" in scope else _JOINS_KEY
    return _ENCODED.sub(lambda escapes: _decoded(escapes[0], joins), scope)


def meant(store: MemoryStore, asked: Sequence[str]) -> list[str]:
    """The names of the scopes of a store that a person means, in either spelling; an unknown one stays as it is."""
    if all(_has_one_spelling(scope) for scope in asked):
        return list(asked)
    there = scopes_of(store)
    return [among(scope, there) for scope in asked]


def among(asked: str, there: Collection[str]) -> str:
    """The one of these scopes that is asked for: by its name, else by what it reads as, if that is one only."""
    if asked in there:
        return asked
    spelled = _one_form(asked)
    found = [scope for scope in there if spelled in (_one_form(readable(scope)), _one_form(unquote(scope)))]
    return found[0] if len(found) == 1 else asked


def scopes_of(store: MemoryStore) -> list[str]:
    """Every scope of a store, in order."""
    found: set[str] = set()
    for batch in store.snapshot():
        found.update(batch.column("scope").unique().to_pylist())
    return sorted(found)


def hint(asked: str, there: Collection[str]) -> str:
    """What somebody may have meant who asked for a scope that is not there, as the end of a message."""
    if not there:
        return "it holds no memories"
    if set(there) == {""}:
        return "its memories have no scope; leave --scope out"
    by_name = {readable(scope): scope for scope in sorted(there) if scope}
    spelled = readable(asked)
    ends = [name for name in by_name if name.rpartition("=")[2] == spelled] if spelled else []
    near = ends or difflib.get_close_matches(spelled, by_name, n=1, cutoff=0.4)
    if near:
        return f"did you mean {near[0]!r}?"
    names = list(by_name)
    return f"scopes there: {', '.join(map(repr, names[:5]))}{', ...' if len(names) > 5 else ''}"


def _decoded(escapes: str, joins: frozenset[str]) -> str:
    try:
        signs = unquote(escapes, errors="strict")
    except UnicodeDecodeError:
        return escapes
    return "".join(quote(sign, safe="") if sign in joins or not sign.isprintable() else sign for sign in signs)


def _has_one_spelling(scope: str) -> bool:
    values = [part.partition("=")[2] if "=" in part else part for part in scope.split("&")]
    return all(_PLAIN.fullmatch(value) and ("=" not in scope or quote(value, safe="") == value) for value in values)


def _one_form(scope: str) -> str:
    """The same letters typed on another keyboard are the same name."""
    return unicodedata.normalize("NFC", scope)
