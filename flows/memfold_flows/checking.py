"""``memfold check`` and ``memfold hints``: quick looks at one scope, from an agent's hook as well.

Nothing here plans a pass, so neither DuckDB nor Prefect is imported.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from memfold import hints
from memfold.convergence import Due, Schedule, ScopeState, fingerprint, should_consolidate
from memfold.hints import Hint
from memfold_flows.stores import open_store
from memfold_flows.stores.base import MemoryStore


def check(url: str, scope: str, *, as_json: bool) -> Due:
    """Print whether a scope is due for a pass, and why."""
    from memfold_flows import settings

    schedule = settings.load({}).schedule
    store = open_store(url)
    try:
        due = look(store, scope, schedule, now=datetime.now(UTC))
    finally:
        store.close()
    print(_json({"due": due.should_consolidate, **asdict(due)}) if as_json else _in_words(due))
    return due


def show_hints(url: str, scope: str, *, as_json: bool) -> None:
    """Print the pairs of memories whose texts share most of their words."""
    store = open_store(url)
    try:
        found = hints_of(store, scope)
    finally:
        store.close()
    if as_json:
        print(_json({"hints": [asdict(hint) for hint in found]}))
        return
    for hint in found:
        print(f'{hint.jaccard:.2f}  "{hint.left_title}" and "{hint.right_title}"')
    if not found:
        print("no two memories of this scope share most of their words")


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


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value)
