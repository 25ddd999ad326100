"""Where data enters: the batches of a store become one snapshot, checked and in an order of its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from memfold.errors import BadRecord
from memfold.frames import SNAPSHOT

if TYPE_CHECKING:
    import polars as pl

_CHECKED = ["memory_id", "scope", "content", "row_digest", "use_count", "importance", "confidence"]
_NAMED_AT_MOST = 5


def read_snapshot(batches: Iterable[pa.RecordBatch]) -> pa.Table:
    """Every memory of a store, sorted by ``memory_id`` whatever the order of the store.

    Raises:
        BadRecord: two memories have one id, or a value is one that no store may hold (a negative use_count, an
            importance that is not finite).
    """
    snapshot = pa.Table.from_batches(batches, schema=SNAPSHOT)
    check(snapshot)
    ids = snapshot["memory_id"]
    if snapshot.num_rows > 1 and not pc.all(pc.less(ids[:-1], ids[1:])).as_py():
        snapshot = snapshot.take(pc.sort_indices(ids))
    return snapshot


def check(snapshot: pa.Table) -> None:
    """Refuse a snapshot that breaks what the rest of the pass relies on.

    Raises:
        BadRecord: the message names the field, the rule and the first memories that break it.
    """
    import polars as pl
    from pandera.errors import SchemaErrors
    from pandera.polars import Check, Column, DataFrameSchema

    finite = Check(lambda data: data.lazyframe.select(pl.col(data.key).is_finite()), error="must be finite")
    schema = DataFrameSchema(
        {
            "memory_id": Column(pl.String, Check.str_length(min_value=1, error="must not be empty"), unique=True),
            "scope": Column(pl.String),
            "content": Column(pl.String),
            "row_digest": Column(pl.String),
            "use_count": Column(pl.Int64, Check.ge(0, error="must not be negative"), nullable=True),
            "importance": Column(pl.Float64, finite, nullable=True),
            "confidence": Column(pl.Float64, finite, nullable=True),
        }
    )
    frame = pl.DataFrame(pl.from_arrow(snapshot.select(_CHECKED)))
    try:
        schema.validate(frame, lazy=True)
    except SchemaErrors as found:
        cases = found.failure_cases.sort("index", "column").head(_NAMED_AT_MOST).to_dicts()
        named = list(dict.fromkeys(_in_words(frame, **case) for case in cases))
        more = len(found.failure_cases) - len(cases)
        named += [f"and {more} more"] if more > 0 else []
        raise BadRecord(
            f"the store holds values that no memory may have: {'; '.join(named)}; nothing was planned"
        ) from None


def _in_words(frame: pl.DataFrame, *, failure_case: str, column: str, check: str, index: int, **_: object) -> str:
    memory_id = frame["memory_id"][index]
    if check == "field_uniqueness":
        return f"two memories have the id {memory_id!r}"
    if check == "not_nullable":
        return f"memory {memory_id!r}: {column} is missing"
    shown = "" if column == "content" else f", got {failure_case}"
    return f"memory {memory_id!r}: {column} {check}{shown}"
