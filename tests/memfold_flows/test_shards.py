"""Shards of a backfill: how an archive is cut, worked on, and put together again. No Prefect in it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memfold.errors import BadRecord, BadUsage, Transient
from memfold_flows import erasure, shards
from memfold_flows.partition import cut, find_archive, input_file
from memfold_flows.shards import Job, ShardOutcome
from memfold_flows.stores import open_store

AS_OF = datetime(2026, 6, 1, tzinfo=UTC)
THINGS = ("kettle", "ladder", "lantern", "hammer", "bucket", "mirror", "pillow", "carpet")


def memories(scope: str, count: int) -> list[dict[str, Any]]:
    """So many memories of a scope, and a copy of the first."""
    rows = [
        {
            "id": f"{scope}-{number}",
            "scope": scope,
            "text": f"The {THINGS[number % 8]} of room {number} belongs to {scope}",
        }
        for number in range(count)
    ]
    return [*rows, {"id": f"{scope}-copy", "scope": scope, "text": rows[0]["text"].upper()}]


@pytest.fixture
def many(archive: Callable[..., Path]) -> Path:
    """Forty scopes of five memories and a copy, and one that is far larger."""
    rows = [row for number in range(40) for row in memories(f"home-{number}", 5)]
    return archive([*rows, *memories("castle", 300)], "many.jsonl")


@pytest.fixture
def job(many: Path, tmp_path: Path) -> Job:
    """A backfill of the forty-one scopes in four shards."""
    return Job(archive=find_archive(f"jsonl:{many}"), folder=tmp_path / "out", shards=4, as_of=AS_OF, thresholds={})


def test_a_scope_is_never_cut_in_two(job: Job) -> None:
    """Every memory is in one shard, those of a scope are together, and a scope larger than a shard is alone."""
    found = cut(job.archive, job.shards_folder, shards=4)

    scopes = {shard.name: {row["scope"] for row in _rows(job, shard.name)} for shard in found}
    assert [shard.rows for shard in found if shard.is_large] == [301]
    assert [scopes[shard.name] for shard in found if shard.is_large] == [{"castle"}]
    assert sorted(scope for each in scopes.values() for scope in each) == sorted(
        ["castle", *(f"home-{number}" for number in range(40))]
    )
    assert sum(shard.rows for shard in found) == 541


def test_shards_are_parquet_that_anyone_can_read(job: Job) -> None:
    """A shard of a JSONL archive holds the lines as they were, with the scope of each."""
    import duckdb

    found = cut(job.archive, job.shards_folder, shards=4)

    with duckdb.connect() as connection:
        rows = connection.execute(f"select scope, line from '{job.shards_folder}/*/input.parquet'").fetchall()
    assert sorted(line for _, line in rows) == sorted(job.archive.files[0].read_bytes().splitlines(keepends=True))
    assert {(scope, json.loads(line)["scope"]) for scope, line in rows} == {(scope, scope) for scope, _ in rows}
    assert len(rows) == sum(shard.rows for shard in found)


def test_a_shard_has_the_same_bytes_whatever_stands_between_its_rows(
    archive: Callable[..., Path], tmp_path: Path
) -> None:
    """So a corrected archive keeps the shards in which nothing was corrected; here 3,000 rows of another scope come."""
    attic, cellar = memories("attic", 1_500), memories("cellar", 1_500)
    alone = find_archive(f"jsonl:{archive(attic, 'alone.jsonl')}")
    mixed = [row for pair in zip(cellar, attic, strict=True) for row in pair] + memories("hall", 1_500)
    together = find_archive(f"jsonl:{archive(mixed, 'together.jsonl')}")

    cut(alone, tmp_path / "one", shards=1)
    cut(together, tmp_path / "three", shards=512)

    shard = {path.read_bytes() for path in (tmp_path / "three").glob("*/input.parquet")}
    assert len(shard) == 3
    assert (tmp_path / "one/0000/input.parquet").read_bytes() in shard


def test_lines_keep_their_bytes(archive: Callable[..., Path], tmp_path: Path) -> None:
    """What memfold does not change comes through as it was, vectors and odd spelling too; a cut-off end is closed."""
    source = archive([])
    lines = [
        b'{"id":"a",  "text": "Ann drinks green tea", "vector": [0.1, 0.2], "extra": 1e3}\r\n',
        b"\n",
        b'{"id": "b", "text": "Bob"}',
    ]
    source.write_bytes(b"".join(lines))
    job = Job(archive=find_archive(f"jsonl:{source}"), folder=tmp_path / "out", shards=1, as_of=AS_OF, thresholds={})

    _work(job)

    assert job.result.read_bytes() == lines[0] + lines[2] + b"\n"


def test_the_archive_holds_every_scope_consolidated(job: Job) -> None:
    """Forty-one copies fold; nothing else goes."""
    outcomes = _work(job)

    kept = [json.loads(line)["id"] for line in job.result.read_text().splitlines()]
    assert len(kept) == len(set(kept)) == 500
    assert not any(memory_id.endswith("-copy") for memory_id in kept)
    report = json.loads((job.folder / "report.json").read_bytes())
    assert (report["state"], report["rows"], report["merged"], report["rows_after"]) == ("Consolidated", 541, 41, 500)
    assert {outcome.state for outcome in outcomes} == {"Consolidated"}
    page = (job.folder / "report.md").read_text()
    assert page.startswith("# Consolidated\n\n541 memories, 500 after it; archive: ")
    assert page.count("| Consolidated |") == len(outcomes)


def test_a_parquet_folder_gives_what_its_jsonl_gives(job: Job, tmp_path: Path) -> None:
    """The same memories as two Parquet files in a folder end as the same ones, in Parquet and with their columns."""
    _work(job)
    rows = [json.loads(line) | {"note": "kept"} for line in job.archive.files[0].read_text().splitlines()]
    folder = tmp_path / "years"
    folder.mkdir()
    pq.write_table(pa.Table.from_pylist(rows[:200]), folder / "2024.parquet")
    pq.write_table(pa.Table.from_pylist(rows[200:]), folder / "2025.parquet")
    other = replace(job, archive=find_archive(f"parquet:{folder}"), folder=tmp_path / "out-parquet")

    _work(other)

    result = pq.read_table(other.result)
    assert result["id"].to_pylist() == [json.loads(line)["id"] for line in job.result.read_text().splitlines()]
    assert result.column_names == ["id", "scope", "text", "note"]


def test_a_shard_that_is_done_is_not_done_again(job: Job) -> None:
    """By content: it is taken up again when its output or the thresholds are others."""
    found = shards.begin(job)
    first = shards.consolidate_shard(job, found[0])
    output = job.shards_folder / found[0].name / "output.jsonl"
    output_before = output.read_bytes()

    assert shards.consolidate_shard(job, found[0]) == replace(first, was_done=True)
    output.write_bytes(output_before[:-1])
    assert not shards.consolidate_shard(job, found[0]).was_done
    assert output.read_bytes() == output_before
    assert not shards.consolidate_shard(replace(job, thresholds={"max_loss_fraction": 0.1}), found[0]).was_done


def test_a_backfill_is_not_mixed_with_another(job: Job, archive: Callable[..., Path]) -> None:
    """A folder that holds one of another archive is refused, and stays as it is."""
    shards.begin(job)
    other = replace(job, archive=find_archive(f"jsonl:{archive(memories('flat', 3), 'other.jsonl')}"))

    with pytest.raises(BadUsage, match="holds a backfill of another archive"):
        shards.begin(other)

    assert shards.begin(job) == shards.begin(job)


def test_two_backfills_are_never_at_work_in_one_folder(job: Job, tmp_path: Path) -> None:
    """The second start is told so and changes nothing; a folder of something else gets no lock either."""
    with shards.alone(job):
        shards.begin(job)
        with (
            pytest.raises(Transient, match="another backfill is at work in "),
            shards.alone(job),
        ):
            pass
    with shards.alone(job):
        assert len(_work(job)) == 5
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/letter.txt").write_text("hello")

    with (
        pytest.raises(BadUsage, match="exists and is not empty"),
        shards.alone(replace(job, folder=tmp_path / "notes")),
    ):
        pass

    assert [path.name for path in (tmp_path / "notes").iterdir()] == ["letter.txt"]


def test_a_disk_that_is_too_small_is_seen_first(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written before that is known."""
    monkeypatch.setattr(shards.shutil, "disk_usage", lambda _path: type("Usage", (), {"free": 1000}))

    with pytest.raises(BadUsage, match=r"this backfill needs about 0.0 GB .* nothing was written"):
        shards.begin(job)

    assert list(job.folder.iterdir()) == []


def test_a_line_that_cannot_be_read_stops_a_backfill_before_it_begins(
    archive: Callable[..., Path], tmp_path: Path
) -> None:
    """It would be missing in the new archive; the file and the line are named."""
    source = archive(memories("home", 3), "years.jsonl")
    source.write_text(source.read_text() + "{broken\n")
    job = Job(archive=find_archive(f"jsonl:{source}"), folder=tmp_path / "out", shards=1, as_of=AS_OF, thresholds={})

    with pytest.raises(BadRecord, match=r"years.jsonl line 5: .*Correct the line and start again\.$"):
        shards.begin(job)


def test_what_an_archive_was_told_to_forget_goes_into_no_new_archive(job: Job, many: Path) -> None:
    """A backup that was put back in its place has the memory again; the ledger beside it knows better."""
    backup = many.read_bytes()
    with closing(open_store(f"jsonl:{many}", in_place=True)) as store:
        meant = erasure.look_up(store, ["home-3-1"], with_survivor=False)
        erasure.forget(
            store, meant, runs_folder=job.folder, clock=lambda: AS_OF, monotonic=lambda: 0.0, new_key=b"k" * 32
        )
    shards.begin(replace(job, folder=job.folder.with_name("without")))
    many.write_bytes(backup)

    with pytest.raises(BadUsage, match="'home-3-1', which it was told to forget; nothing was written"):
        shards.begin(job)


def test_a_file_in_place_of_the_folder_is_said(job: Job) -> None:
    """Not met as an error of the system half way."""
    job.folder.write_text("hello")

    with pytest.raises(BadUsage, match="exists and is not empty"), shards.alone(job):
        pass

    assert shards.as_of_before(job.folder) is None


def test_a_folder_without_archives_is_an_error(tmp_path: Path) -> None:
    """A wrong path is never an empty archive."""
    with pytest.raises(BadUsage, match=r"there is no \*.jsonl file at "):
        find_archive(f"jsonl:{tmp_path}")


def _work(job: Job) -> Sequence[ShardOutcome]:
    found = shards.begin(job)
    outcomes = [shards.consolidate_shard(job, shard) for shard in found]
    shards.report(job, outcomes)
    shards.assemble(job, found)
    return outcomes


def _rows(job: Job, name: str) -> list[dict[str, Any]]:
    table = pq.read_table(input_file(job.shards_folder, name), partitioning=None)
    return [json.loads(line) for line in table["line"].to_pylist()]
