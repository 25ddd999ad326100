"""``memfold cluster``: near-duplicate texts of a Parquet file, read and written row group by row group."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from memfold.errors import BadRecord, BadUsage
from memfold_flows.files import replacing
from memfold_flows.progress import Report, ignore

if TYPE_CHECKING:
    from memfold.word_sets import WordSets

I64 = NDArray[np.int64]

#: Rows that a thread reads at a time, whatever the row groups of the file are.
ROWS_PER_BATCH = 65_536


@dataclass(frozen=True, slots=True)
class Clustering:
    """What ``memfold cluster`` found."""

    rows: int
    clusters: int
    rows_in_clusters: int
    largest: int
    pairs_compared: int
    pairs_compared_by_word: int


def cluster_file(
    source: Path,
    target: Path,
    *,
    threshold: float,
    scope: str | None = None,
    threads: int | None = None,
    report: Report = ignore,
) -> Clustering:
    """Write the cluster of each id: the smallest id among the texts that are linked to it.

    A link is a pair of texts that share at least ``threshold`` of their distinct words (Jaccard). With ``scope``,
    rows with different values in that column are never linked.

    Raises:
        BadUsage: there is no such file or column, or the threshold is out of range; nothing was written.
        BadRecord: an id is missing or stands twice; nothing was written.
    """
    _require_usable(source, target, threshold=threshold, scope=scope)
    from memfold import near_duplicates

    threads = threads or len(os.sched_getaffinity(0))
    ids, rank = _ranked_ids(source)
    parts = read_word_sets(source, scope, threads=threads, report=report)
    found = near_duplicates.find_components(parts, threshold=threshold, threads=threads, report=report)
    root = found.root_of_row
    first = np.full(int(root.max(initial=-1)) + 1, len(root), np.int64)
    np.minimum.at(first, root, rank)
    row_of_rank = np.empty(len(rank), np.int64)
    row_of_rank[rank] = np.arange(len(rank))
    _write(source, target, ids.take(pa.array(row_of_rank[first[root]])))
    sizes = np.bincount(root)
    return Clustering(
        rows=len(root),
        clusters=int((sizes > 1).sum()),
        rows_in_clusters=int(sizes[sizes > 1].sum()),
        largest=int(sizes.max(initial=0)),
        pairs_compared=found.compared,
        pairs_compared_by_word=found.compared_by_word,
    )


def _require_usable(source: Path, target: Path, *, threshold: float, scope: str | None) -> None:
    if not 0 < threshold <= 1:
        raise BadUsage(f"--threshold must be above 0 and at most 1, got {threshold}; nothing was written")
    if not source.is_file():
        raise BadUsage(f"there is no file {source}; nothing was written")
    if target.exists() and target.samefile(source):
        raise BadUsage(f"{target} is the file that is read; nothing was written. Name another file for the clusters")
    try:
        schema = pq.read_schema(source)
    except pa.ArrowInvalid as error:
        raise BadUsage(f"{source} is not a Parquet file ({error}); nothing was written") from None
    wanted = ["id", "text", *([scope] if scope is not None else [])]
    if missing := [name for name in wanted if name not in schema.names]:
        there = ", ".join(schema.names)
        raise BadUsage(f"{source} has no column {missing[0]!r} (its columns: {there}); nothing was written")
    kind = schema.field("text").type
    if not _is_text(kind.value_type if pa.types.is_dictionary(kind) else kind):
        raise BadUsage(f"the column text of {source} holds {kind}, not texts; nothing was written")


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _ranked_ids(source: Path) -> tuple[pa.Array, I64]:
    """All ids, and the place of each among them in ascending order.

    The cluster of a row follows from the ids alone, not from the order of the rows.
    """
    column = pq.read_table(source, columns=["id"], use_threads=False).column("id")
    ids = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    ids = ids.combine_chunks() if isinstance(ids, pa.ChunkedArray) else ids
    if ids.null_count:
        row = pc.index(pc.is_null(ids), True).as_py()
        raise BadRecord(f"{source} has no id in row {row + 1}; nothing was written")
    order = pc.array_sort_indices(ids)
    in_order = ids.take(order)
    same = pc.equal(in_order[1:], in_order[:-1])
    if len(same) and pc.any(same).as_py():
        twice = in_order[pc.index(same, True).as_py()]
        raise BadRecord(f"{source} has the id {twice.as_py()!r} more than once; nothing was written")
    rank = np.empty(len(ids), np.int64)
    rank[order.to_numpy()] = np.arange(len(ids))
    return ids, rank


def read_word_sets(source: Path, scope: str | None, *, threads: int, report: Report) -> list[WordSets]:
    """The word sets of all rows in their order; one thread per row group, and no more texts than they hold."""
    from memfold import word_sets

    with pq.ParquetFile(source) as file:
        groups, rows = range(file.num_row_groups), file.metadata.num_rows
    columns = ["text", *([scope] if scope is not None else [])]

    def read_group(group: int) -> list[WordSets]:
        return [
            word_sets.read_words(batch.column("text"), batch.column(scope) if scope is not None else None)
            for batch in _batches(source, group, columns)
        ]

    parts: list[WordSets] = []
    done = 0
    with ThreadPoolExecutor(threads) as pool:
        for found in pool.map(read_group, groups):
            parts += found
            done += sum(len(part) for part in found)
            report("reading", done, rows)
    return parts


def _batches(source: Path, group: int, columns: list[str]) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(source, pre_buffer=False) as file:
        yield from file.iter_batches(ROWS_PER_BATCH, row_groups=[group], columns=columns, use_threads=False)


def _write(source: Path, target: Path, cluster: pa.Array) -> None:
    with pq.ParquetFile(source) as file, replacing(target) as temporary:
        schema = pa.schema([file.schema_arrow.field("id"), pa.field("cluster", cluster.type)])
        start = 0
        with pq.ParquetWriter(temporary, schema, use_dictionary=False) as writer:  # ids are nearly all distinct
            for batch in file.iter_batches(ROWS_PER_BATCH, columns=["id"], use_threads=False):
                part = pa.record_batch([batch.column(0), cluster[start : start + len(batch)]], schema=schema)
                writer.write_batch(part)
                start += len(batch)
