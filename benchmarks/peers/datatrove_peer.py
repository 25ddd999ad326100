"""datatrove's local executor on single words: signatures, buckets, clusters, with two workers.

Its spaCy tokenizer, which takes most of its time, is swapped for splitting at blanks; case and punctuation are gone
before, by its own text normaliser.
"""

from __future__ import annotations

import struct
import sys
import tempfile
from pathlib import Path

import common
import pyarrow as pa
import pyarrow.parquet as pq
from datatrove.executor.local import LocalPipelineExecutor
from datatrove.pipeline.dedup.minhash import (
    MinhashConfig,
    MinhashDedupBuckets,
    MinhashDedupCluster,
    MinhashDedupSignature,
)
from datatrove.pipeline.readers import ParquetReader

WORKERS = 2


class SplitAtBlanks:
    word_tokenize = staticmethod(str.split)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        counts = split(folder / "in")
        config = MinhashConfig(n_grams=1)
        signature = MinhashDedupSignature(output_folder=str(folder / "signatures"), config=config)
        signature.word_tokenizer = SplitAtBlanks()
        reader = ParquetReader(str(folder / "in"), text_key="text", id_key="id", batch_size=10_000)
        run(folder, [reader, signature], tasks=len(counts))
        buckets = MinhashDedupBuckets(
            input_folder=str(folder / "signatures"),
            output_folder=str(folder / "buckets"),
            config=config,
            lines_to_buffer=10_000,
        )
        run(folder, [buckets], tasks=config.num_buckets)
        clusters = MinhashDedupCluster(
            input_folder=str(folder / "buckets"),
            output_folder=str(folder / "clusters"),
            config=config,
            save_cluster_id=True,
            lines_to_buffer=10_000,
        )
        run(folder, [clusters], tasks=1)
        first_of = read_clusters(folder / "clusters", counts)
    common.write(pq.read_table(sys.argv[1], columns=["id"])["id"].to_pylist(), first_of)


def split(folder: Path) -> list[int]:
    """Its unit of work is the file, so the archive is cut into one for each worker."""
    folder.mkdir()
    table = pq.read_table(sys.argv[1], columns=["id", "text"])
    table = table.set_column(0, "id", table["id"].cast(pa.string()))
    size = -(-len(table) // WORKERS)
    parts = [table.slice(start, size) for start in range(0, len(table), size)]
    for number, part in enumerate(parts):
        pq.write_table(part, folder / f"{number:05}.parquet")
    return [len(part) for part in parts]


def run(folder: Path, pipeline: list[object], *, tasks: int) -> None:
    logs = folder / f"logs of {type(pipeline[-1]).__name__}"
    LocalPipelineExecutor(pipeline=pipeline, tasks=tasks, workers=min(tasks, WORKERS), logging_dir=str(logs)).run()


def read_clusters(folder: Path, counts: list[int]) -> list[int]:
    """The first row of each row's cluster; rows that datatrove does not name are alone."""
    first_of, first_of_cluster, start = list(range(sum(counts))), {}, 0
    for number, count in enumerate(counts):
        path = folder / f"{number:06}.clusters"
        if path.exists():
            for row, cluster in struct.iter_unpack("<2I", path.read_bytes()):
                first_of[start + row] = first_of_cluster.setdefault(cluster, start + row)
        start += count
    return first_of


if __name__ == "__main__":
    main()
