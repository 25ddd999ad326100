"""``memfold check`` and ``memfold hints``: quick looks at one scope, from an agent's hook as well.

Nothing here plans a pass, so neither DuckDB nor Prefect is imported.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from memfold import hints
from memfold.convergence import Due, Schedule, ScopeState, fingerprint, should_consolidate
from memfold.hints import Hint
from memfold_flows import scopes
from memfold_flows.stores import open_store
from memfold_flows.stores.base import MemoryStore

_TEXT_SHOWN = 100


def check(url: str, scope: str, *, as_json: bool) -> Due:
    """Print whether a scope is due for a pass, and why."""
    from memfold_flows import settings

    schedule = settings.load({}).schedule
    with closing(open_store(url)) as store:
        (scope,) = scopes.meant(store, [scope])
        due = look(store, scope, schedule, now=datetime.now(UTC))
        if as_json:
            print(_json({"due": due.should_consolidate, **asdict(due)}))
            return due
        may_be_unknown = not due.should_consolidate and due.backlog_size == 0
        unknown = _why_nothing(store, scope) if may_be_unknown else None
    _say(f"not due: {unknown}" if unknown else _in_words(due))
    return due


def show_hints(url: str, scope: str, *, as_json: bool) -> None:
    """Print the pairs of memories whose texts share most of their words."""
    with closing(open_store(url)) as store:
        (scope,) = scopes.meant(store, [scope])
        found = hints_of(store, scope)
        if as_json:
            print(_json({"hints": [asdict(hint) for hint in found]}))
            return
        if not found:
            _say(_why_nothing(store, scope) or "no two memories of this scope share most of their words")
            return
        texts = {row["memory_id"]: row["content"] for row in _memories(store, scope, ["memory_id", "content"])}
    for hint in found:
        _say(f"{hint.jaccard:.0%} of the words in common")
        for memory_id, title in ((hint.left_id, hint.left_title), (hint.right_id, hint.right_title)):
            text = " ".join((title or texts[memory_id]).split())
            _say(f"  {memory_id}  {text if len(text) <= _TEXT_SHOWN else text[:_TEXT_SHOWN] + ' …'}")


def look(store: MemoryStore, scope: str, schedule: Schedule, *, now: datetime) -> Due:
    """Whether a scope of an open store should be consolidated now. A scope without memories never is."""
    with store.ledger() as ledger:
        state = ledger.state(scope) if ledger else ScopeState()
        replay_size = ledger.count_replay(scope) if ledger else 0
    memories = _memories(store, scope, ["created_at", "row_digest"])
    if not memories:
        return Due(
            should_consolidate=False,
            reason="none",
            backlog_size=0,
            replay_size=replay_size,
            hours_since_last_consolidate=state.hours_since_last_consolidate(now),
        )
    since = state.last_consolidate_at
    return should_consolidate(
        state,
        schedule,
        backlog_size=sum(since is None or (row["created_at"] or since) > since for row in memories),
        replay_size=replay_size,
        digest=fingerprint(row["row_digest"] for row in memories) if state.refusal else "",
        now=now,
    )


def hints_of(store: MemoryStore, scope: str) -> list[Hint]:
    """The pairs of memories of a scope that evo would hint at."""
    rows = _memories(store, scope, ["memory_id", "title", "content"])
    return hints.near_duplicates([(row["memory_id"], row["title"] or "", row["content"]) for row in rows])


def _why_nothing(store: MemoryStore, scope: str) -> str | None:
    """Where a scope has no memories, that it has none and what may have been meant."""
    if _memories(store, scope, ["memory_id"]):
        return None
    name = f"the scope {scopes.readable(scope)!r}" if scope else "no scope"
    return f"no memory has {name}; {scopes.hint(scope, scopes.scopes_of(store))}"


def _memories(store: MemoryStore, scope: str, columns: list[str]) -> list[dict[str, Any]]:
    batches = [batch.select(columns) for batch in store.snapshot([scope])]
    return pa.Table.from_batches(batches).to_pylist() if batches else []


def _in_words(due: Due) -> str:
    hours = due.hours_since_last_consolidate
    last = "never consolidated" if hours is None else f"consolidated {hours:.1f} h ago"
    says = f"due ({due.reason})" if due.should_consolidate else "not due"
    sizes = f"{due.backlog_size} memories since, {due.replay_size} replay batches waiting"
    refused = f"; the last pass was refused: {due.refusal}" if due.refusal else ""
    return f"{says}: {last}, {sizes}{refused}"


def _say(text: str) -> None:
    from memfold_flows import console

    console.say(text)


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value)
