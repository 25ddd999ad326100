"""Replay as evidence: in which batches a memory was told again, and which of them it was born in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from memfold import frames, sightings
from memfold.memory import Memory
from memfold.policy import Policy

from .conftest import snapshot_of

BORN = datetime(2026, 5, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def mem(memory_id, content, **more):
    given = {"scope": "team", "kind": "fact", "created_at": BORN, **more}
    return Memory(memory_id=memory_id, content=content, **given)


def told(batch, content, *, after=HOUR, scope="team", kind="fact"):
    """One entry of a batch that was appended so long after the memories were born."""
    return {
        "memory_id": f"replay:{batch}:0",
        "batch": batch,
        "scope": scope,
        "kind": kind,
        "title": None,
        "content": content,
        "created_at": BORN + after,
    }


def sighted(memories, evidence):
    """memory id -> {batch: "birth" or "again"}."""
    table = sightings.find(
        snapshot_of(memories), pa.Table.from_pylist(evidence, frames.EVIDENCE), Policy(as_of=BORN + 99 * 24 * HOUR)
    )
    found = {}
    for row in table.to_pylist():
        found.setdefault(row["memory_id"], {})[row["batch"]] = "birth" if row["is_birth"] else "again"
    return found


def test_a_batch_that_says_the_same_is_evidence_and_the_first_is_its_birth():
    """Copies and rewordings count, the nearest batch in time is the one that made the memory."""
    memories = [mem("port", "The staging server listens on port 8080."), mem("tea", "Ann drinks green tea.")]

    found = sighted(
        memories,
        [
            told(1, "The staging server listens on port 8080.", after=timedelta(seconds=2)),
            told(2, "the staging server listens on port 8080", after=5 * HOUR),
            told(3, "On port 8080 the staging server listens.", after=48 * HOUR),
            told(4, "The staging server listens on port 9090.", after=72 * HOUR),
        ],
    )

    assert found["port"].items() >= {1: "birth", 2: "again"}.items()
    assert 4 not in found["port"]
    assert "tea" not in found


def test_a_batch_long_after_its_creation_is_not_the_birth_of_a_memory():
    """Its own was consumed by an earlier pass, or it was written by hand."""
    found = sighted([mem("port", "Staging runs on port 8080")], [told(7, "Staging runs on port 8080", after=30 * HOUR)])

    assert found == {"port": {7: "again"}}


def test_of_a_memory_of_unknown_age_the_first_batch_counts_as_its_birth():
    """When unsure, one piece of evidence less."""
    found = sighted(
        [mem("port", "Staging runs on port 8080", created_at=None)],
        [told(2, "Staging runs on port 8080", after=2 * HOUR), told(1, "Staging runs on port 8080", after=HOUR)],
    )

    assert found == {"port": {1: "birth", 2: "again"}}


def test_a_batch_counts_once_however_often_it_says_it():
    """Distinct batches are counted."""
    twice = [told(1, "Staging runs on port 8080"), {**told(1, "Staging runs on port 8080"), "memory_id": "replay:1:1"}]

    assert sighted([mem("port", "Staging runs on port 8080")], twice) == {"port": {1: "birth"}}


@pytest.mark.parametrize("wall", [{"scope": "other"}, {"kind": "preference"}])
def test_evidence_of_another_scope_or_kind_is_none(wall):
    """The walls hold for evidence too."""
    assert sighted([mem("port", "Staging runs on port 8080")], [told(1, "Staging runs on port 8080", **wall)]) == {}


def test_tiers_trust_and_sessions_are_no_walls_to_evidence():
    """A batch knows none of them."""
    memory = mem("port", "Staging runs on port 8080", tier="short_term", trust="user", session_id="mon", pinned=True)

    assert sighted([memory], [told(1, "Staging runs on port 8080")]) == {"port": {1: "birth"}}


def test_a_memory_may_be_called_like_an_entry():
    """Ids of memories are opaque."""
    memory = mem("replay:1:0", "Staging runs on port 8080")

    assert sighted([memory], [told(1, "Staging runs on port 8080")]) == {"replay:1:0": {1: "birth"}}


def test_an_expired_memory_has_no_evidence():
    """It matches nothing."""
    memory = mem("port", "Staging runs on port 8080", expires_at=BORN)

    assert sighted([memory], [told(1, "Staging runs on port 8080")]) == {}
