"""A backfill as a flow: killed and started again, on threads and on a Dask cluster, with one result."""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.prefect, pytest.mark.timeout(900)]

AS_OF = datetime(2026, 6, 1, tzinfo=UTC)
SHARDS = 16
WORDS = ("kettle", "ladder", "lantern", "hammer", "bucket", "mirror", "pillow", "carpet", "basket", "candle")

_BACKFILL = """
import sys
from datetime import datetime
from memfold_flows.backfill import backfill
backfill(sys.argv[1], sys.argv[2], shard_count=16, as_of=datetime.fromisoformat(sys.argv[3]))
"""


@pytest.fixture(scope="module")
def years(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40,000 memories of 1,000 scopes; one in ten is a copy of another one of its scope."""
    return write_archive(tmp_path_factory.mktemp("years") / "years.jsonl", scopes=1_000, per_scope=40)


@pytest.fixture(scope="module")
def uninterrupted(prefect_server: str, years: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a backfill on threads that nothing came between."""
    folder = tmp_path_factory.mktemp("backfill") / "out"
    state = run_backfill(years, folder)
    assert state.name == "Consolidated"
    return folder


def test_a_killed_backfill_goes_on_where_it_stopped(
    prefect_server: str, years: Path, uninterrupted: Path, tmp_path: Path
) -> None:
    """Shards that are done are kept, and every relation and the archive are the same bytes as without the kill."""
    done = kill_half_way(prefect_server, years, tmp_path / "out", after=5)

    state = run_backfill(years, tmp_path / "out")

    assert state.name == "Consolidated"
    assert done_at(tmp_path / "out").items() >= done.items()
    assert json.loads((tmp_path / "out/report.json").read_bytes())["shards_done_before"] == len(done)
    assert digests(tmp_path / "out") == digests(uninterrupted)


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_two_million_memories_survive_a_kill_and_a_change_of_cluster(prefect_server: str, tmp_path: Path) -> None:
    """Killed on threads half way, ended on a Dask cluster: the same bytes as in one go on threads."""
    years = write_archive(tmp_path / "years.jsonl", scopes=50_000, per_scope=40)
    assert run_backfill(years, tmp_path / "whole").name == "Consolidated"
    done = kill_half_way(prefect_server, years, tmp_path / "out", after=8)

    state = run_backfill(years, tmp_path / "out", runner={"kind": "dask", "workers": 2})

    assert state.name == "Consolidated"
    assert done_at(tmp_path / "out").items() >= done.items()
    assert digests(tmp_path / "out") == digests(tmp_path / "whole")


def test_a_dask_cluster_gives_the_same_bytes(years: Path, uninterrupted: Path, tmp_path: Path) -> None:
    """Two workers of a local cluster, each a process of its own."""
    state = run_backfill(years, tmp_path / "out", runner={"kind": "dask", "workers": 2})

    assert state.name == "Consolidated"
    assert digests(tmp_path / "out") == digests(uninterrupted)


def test_a_shard_that_fails_does_not_lose_the_others(prefect_server: str, tmp_path: Path) -> None:
    """The run fails and says which shard and why; corrected, the same backfill ends with the others kept."""
    archive = write_archive(tmp_path / "years.jsonl", scopes=20, per_scope=4)
    twice = json.loads(archive.read_text().splitlines()[0])
    archive.write_text(archive.read_text() + json.dumps(twice) + "\n")

    state = run_backfill(archive, tmp_path / "out", shard_count=4)

    assert state.type.value == "FAILED"
    assert state.message.startswith("1 of 4 shards failed (")
    assert f"the same id {twice['id']!r}" in state.message
    report = json.loads((tmp_path / "out/report.json").read_bytes())
    assert [bool(shard["error"]) for shard in report["shards"]].count(False) == 3
    assert not (tmp_path / "out/archive.jsonl").exists()
    archive.write_text(archive.read_text().replace(json.dumps(twice) + "\n", "", 1))
    assert run_backfill(archive, tmp_path / "out", shard_count=4).name == "NothingToDo"
    assert json.loads((tmp_path / "out/report.json").read_bytes())["shards_done_before"] == 3


def run_backfill(archive: Path, folder: Path, *, shard_count: int = SHARDS, **parameters: Any) -> Any:
    """Run the flow in this process; returns its final state."""
    from memfold_flows.backfill import backfill

    return backfill(
        f"jsonl:{archive}", str(folder), shard_count=shard_count, as_of=AS_OF, return_state=True, **parameters
    )


def write_archive(path: Path, *, scopes: int, per_scope: int) -> Path:
    """Memories that have little in common, the last tenth of each scope copies of the first."""
    chance = random.Random(6)
    with path.open("w") as file:
        for scope in range(scopes):
            texts = [
                f"{chance.choice(WORDS)} {chance.randrange(10**6)} {chance.choice(WORDS)}" for _ in range(per_scope)
            ]
            texts[-per_scope // 10 :] = [text.upper() for text in texts[: per_scope // 10]]
            for number, text in enumerate(texts):
                row = {
                    "id": f"{scope}-{number}",
                    "user_id": f"u{scope}",
                    "text": text,
                    "created_at": 1_700_000_000 + number,
                }
                file.write(json.dumps(row) + "\n")
    return path


def digests(folder: Path) -> Mapping[str, str]:
    """The hash of the archive and of every relation of every shard."""
    files = [*folder.glob("archive.*"), *folder.glob("shards/*/run/**/*.parquet"), *folder.glob("shards/*/output.*")]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def kill_half_way(api: str, archive: Path, folder: Path, *, after: int) -> Mapping[str, int]:
    """Begin a backfill in another process and kill it; returns the shards that were done, and since when."""
    killed = subprocess.Popen(
        [sys.executable, "-c", _BACKFILL, f"jsonl:{archive}", str(folder), AS_OF.isoformat()],
        env={**os.environ, "PREFECT_API_URL": api},
    )
    while len(done_at(folder)) < after:
        assert killed.poll() is None, "the backfill ended before it could be killed"
        time.sleep(0.02)
    killed.kill()
    killed.wait()
    done = done_at(folder)
    assert len(done) < SHARDS
    return done


def done_at(folder: Path) -> dict[str, int]:
    """The shards that are done, and since when."""
    return {path.parent.name: path.stat().st_mtime_ns for path in folder.glob("shards/*/done.json")}
