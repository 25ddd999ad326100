"""``memfold cluster``: texts in Parquet, clusters out."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memfold.errors import BadRecord, BadUsage
from memfold_flows.cluster import Clustering, cluster_file

TEXTS = [
    "Ann likes green tea in the morning",
    "Bob moved to another city last year",
    "ann likes green tea in the evening!",
    "ANN LIKES GREEN TEA IN THE MORNING",
    "???",
]


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return written(tmp_path / "in.parquet", [40, 30, 20, 10, 50], TEXTS)


def written(path: Path, ids: list[object], texts: list[str | None], **columns: list[object]) -> Path:
    pq.write_table(pa.table({"id": ids, "text": pa.array(texts, pa.string()), **columns}), path, row_group_size=2)
    return path


def clusters(path: Path) -> dict[object, object]:
    table = pq.read_table(path)
    return dict(zip(table["id"].to_pylist(), table["cluster"].to_pylist(), strict=True))


def test_a_cluster_is_called_by_its_smallest_id(archive: Path, tmp_path: Path) -> None:
    """Rows stay in their order; a text that is like no other is a cluster of its own."""
    found = cluster_file(archive, tmp_path / "out.parquet", threshold=0.7)

    assert clusters(tmp_path / "out.parquet") == {40: 10, 30: 30, 20: 10, 10: 10, 50: 50}
    assert found == Clustering(
        rows=5, clusters=1, rows_in_clusters=3, largest=3, pairs_compared=1, pairs_compared_by_word=1
    )


def test_ids_may_be_strings(tmp_path: Path) -> None:
    """The cluster column has the type of the ids."""
    archive = written(tmp_path / "in.parquet", ["m4", "m3", "m2", "m1", "m5"], list(TEXTS))
    cluster_file(archive, tmp_path / "out.parquet", threshold=0.7)

    assert clusters(tmp_path / "out.parquet") == {"m4": "m1", "m3": "m3", "m2": "m1", "m1": "m1", "m5": "m5"}


def test_a_scope_column_keeps_rows_apart(tmp_path: Path) -> None:
    """With a scope column only rows with the same value there are linked."""
    archive = written(tmp_path / "in.parquet", [1, 2, 3], ["tea", "Tea", "TEA"], owner=["ann", "bob", "ann"])
    cluster_file(archive, tmp_path / "out.parquet", threshold=0.7, scope="owner")

    assert clusters(tmp_path / "out.parquet") == {1: 1, 2: 2, 3: 1}


def test_an_empty_archive_has_no_clusters(tmp_path: Path) -> None:
    """No rows in, no rows out."""
    archive = tmp_path / "in.parquet"
    pq.write_table(pa.table({"id": pa.array([], pa.int64()), "text": pa.array([], pa.string())}), archive)

    assert cluster_file(archive, tmp_path / "out.parquet", threshold=0.7).rows == 0
    assert clusters(tmp_path / "out.parquet") == {}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threshold": 0.0}, "--threshold must be above 0 and at most 1, got 0.0"),
        ({"threshold": 0.7, "scope": "owner"}, r"has no column 'owner' \(its columns: id, text\)"),
    ],
)
def test_a_bad_option_is_named(archive: Path, tmp_path: Path, options: dict[str, object], message: str) -> None:
    """What is wrong with an option is said, and nothing is written."""
    with pytest.raises(BadUsage, match=message):
        cluster_file(archive, tmp_path / "out.parquet", **options)  # type: ignore[arg-type]
    assert not (tmp_path / "out.parquet").exists()


def test_a_file_is_never_written_over_itself(archive: Path) -> None:
    """The texts stay."""
    with pytest.raises(BadUsage, match="is the file that is read"):
        cluster_file(archive, archive, threshold=0.7)
    assert pq.read_table(archive)["text"].to_pylist() == TEXTS


@pytest.mark.parametrize(
    ("ids", "message"), [([1, None, 3], "has no id in row 2"), ([1, 2, 1], "has the id 1 more than once")]
)
def test_ids_must_name_one_row_each(tmp_path: Path, ids: list[object], message: str) -> None:
    """A missing id or one that stands twice is an error that names it."""
    archive = written(tmp_path / "in.parquet", ids, ["a", "b", "c"])

    with pytest.raises(BadRecord, match=message):
        cluster_file(archive, tmp_path / "out.parquet", threshold=0.7)


def test_a_file_that_is_no_parquet_is_named(tmp_path: Path) -> None:
    """Another kind of file is an error, not a traceback."""
    (tmp_path / "in.parquet").write_text("id,text\n")

    with pytest.raises(BadUsage, match="is not a Parquet file"):
        cluster_file(tmp_path / "in.parquet", tmp_path / "out.parquet", threshold=0.7)
