"""Where data enters: what no memory may hold is refused before anything is planned."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from memfold.errors import BadRecord
from memfold.memory import Memory
from memfold_flows.intake import read_snapshot
from memfold_flows.stores.batches import memories_batch


def memory(memory_id: str, **values: Any) -> Memory:
    return Memory(memory_id=memory_id, scope="kitchen", content="tea is green", **values)


def batches(*memories: Memory) -> list[pa.RecordBatch]:
    """As a store hands them over: in its own order, a few at a time."""
    return [memories_batch([each]) for each in memories]


def test_the_snapshot_is_in_the_order_of_the_ids() -> None:
    """By code point, whatever the order of the store; a null importance or count is no fault."""
    snapshot = read_snapshot(batches(memory("b"), memory("é"), memory("B"), memory("a"), memory("🍵"), memory("～")))

    assert snapshot["memory_id"].to_pylist() == ["B", "a", "b", "é", "～", "🍵"]


def test_a_store_without_memories_is_an_empty_snapshot() -> None:
    """With all its columns."""
    snapshot = read_snapshot([])

    assert (snapshot.num_rows, snapshot.num_columns) == (0, 25)


@pytest.mark.parametrize(
    ("memories", "says"),
    [
        ((memory("a"), memory("b"), memory("a")), "two memories have the id 'a'"),
        ((memory(""),), "memory '': memory_id must not be empty"),
        ((memory("a", use_count=-3),), "memory 'a': use_count must not be negative, got -3"),
        ((memory("a", importance=float("nan")),), "memory 'a': importance must be finite, got NaN"),
        ((memory("a", confidence=float("inf")),), "memory 'a': confidence must be finite, got inf"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_no_memory_may_hold_is_named_with_its_memory(memories: tuple[Memory, ...], says: str) -> None:
    """The field, the rule and the value; nothing was planned."""
    with pytest.raises(BadRecord) as refused:
        read_snapshot(batches(*memories))

    assert says in str(refused.value)
    assert str(refused.value).endswith("nothing was planned")


def test_only_the_first_faults_are_named_and_the_others_counted() -> None:
    """Ten thousand faults are one message."""
    with pytest.raises(BadRecord) as refused:
        read_snapshot(batches(*(memory(f"m-{number}", use_count=-1) for number in range(9))))

    assert str(refused.value).count("use_count must not be negative") == 5
    assert "and 4 more" in str(refused.value)
