"""Stores: open_store(url) gives the adapter for one system; each adapter is one file here.

An adapter module has two public names: ``OPTIONS``, which maps each option of its URL to what it means in one line,
and ``open_store(path, options)``, which opens the store at that path or raises a StoreError.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from memfold.errors import BadUsage
from memfold_flows.stores import urls
from memfold_flows.stores.base import MemoryStore

#: Options that say where and how one pass writes or reads: ``--out``, ``--in-place`` and ``--skip-bad``.
_FLAGS = frozenset({"out", "in_place", "skip_bad", "set_aside"})


@dataclass(frozen=True, slots=True)
class StoreKind:
    """One kind of store that memfold opens: its scheme, what it is, an example, and the module that reads it."""

    scheme: str
    summary: str
    example: str
    module: str

    def options(self) -> Mapping[str, str]:
        """The options of this kind of store, each with what it means."""
        found: Mapping[str, str] = import_module(self.module).OPTIONS
        return found

    def url_options(self) -> Mapping[str, str]:
        """Those that belong in a URL; the others say what one command does, and are flags of it."""
        return {name: meaning for name, meaning in self.options().items() if name not in _FLAGS}


KINDS = {
    kind.scheme: kind
    for kind in (
        StoreKind(
            "sqlite", "memfold's own table in a SQLite file", "sqlite:memories.db", "memfold_flows.stores.sqlite"
        ),
        StoreKind(
            "postgresql",
            "memfold's own table in PostgreSQL, or one of yours",
            "postgresql://user@host:5432/db?table=memories",
            "memfold_flows.stores.postgresql",
        ),
        StoreKind("jsonl", "an archive, one JSON object per line", "jsonl:export.jsonl", "memfold_flows.stores.jsonl"),
        StoreKind("parquet", "an archive as a Parquet file", "parquet:archive.parquet", "memfold_flows.stores.parquet"),
        StoreKind(
            "praisonai",
            "PraisonAI's Memory: short_term.db and long_term.db in a folder",
            "praisonai:.praisonai",
            "memfold_flows.stores.praisonai",
        ),
        StoreKind(
            "praisonai-file",
            "PraisonAI's FileMemory: short_term.json and long_term.json in a user's folder",
            "praisonai-file:.praisonai/memory/USER",
            "memfold_flows.stores.praisonai_file",
        ),
        StoreKind("evo", "evo's memory store, schema versions 2 and 6", "evo:evo.db", "memfold_flows.stores.evo"),
    )
}


def open_store(url: str, **options: Any) -> MemoryStore:
    """Open the store that a URL names; options given here win over the URL's own.

    Raises:
        BadUsage: an unknown scheme or option; the message names the nearest known one.
        StoreError: there is no such store at the path; nothing is created.
    """
    parts = urls.parse(url)
    kind = KINDS.get(parts.scheme)
    if parts.scheme == "live":
        raise BadUsage(
            f"{url} was a memory inside an agent's process, which no command can open; nothing was read or written. "
            "What was removed from it stays in undo/ of the run directory."
        )
    if kind is None:
        raise BadUsage(f"no store is called {parts.scheme!r}{_nearest(parts.scheme, KINDS)}")
    chosen = {**parts.options, **options}
    known = kind.options()
    for name in chosen:
        if name not in known:
            raise BadUsage(f"a {kind.scheme}: store has no option {name!r}{_nearest(name, known)}")
    store: MemoryStore = import_module(kind.module).open_store(parts.path, chosen)
    return store


def _nearest(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    if close := difflib.get_close_matches(name, names, n=1):
        return f"; did you mean {close[0]!r}?"
    return f"; known: {', '.join(names)}" if names else "; it takes none"
