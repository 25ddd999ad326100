"""Agents in four processes write while passes run back to back: what the store confirmed to them is never lost."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from memfold.policy import Policy
from memfold_flows import leases, pipeline
from memfold_flows.runs import RunDirectory
from memfold_flows.stores import open_store

from .places import Place, PostgresqlPlace, SqlitePlace, remember_copies

WRITER = Path(__file__).with_name("writer.py")
WRITERS = ("ana", "ben", "cho", "dov")
OPEN_GATE = {"max_loss_fraction": 1.0, "max_rolling_loss_fraction": 1.0}


@dataclass
class Passes:
    """Passes over one store, one after the other, and what each of them removed."""

    place: Place
    folder: Path
    runs: list[RunDirectory] = field(default_factory=list)
    most_removed: int = 0
    longest_hold_seconds: float = 0.0

    def make_one(self) -> None:
        """Plan and apply under the lease, as ``memfold run --yes`` does."""
        run_id = f"night-{len(self.runs):03d}"
        run = RunDirectory.create(self.folder / run_id, run_id)
        store = open_store(self.place.url)
        policy = Policy(as_of=_now(), session_recall=store.traits.session_recall, **OPEN_GATE)
        with leases.held(store, lambda: open_store(self.place.url), run_id, clock=_now) as fence:
            pipeline.plan(store, run, policy, clock=_now)
            receipt = pipeline.apply(store, run, clock=_now, fence=fence)
        store.close()
        self.runs.append(run)
        self.most_removed = max(self.most_removed, receipt.totals.merged + receipt.totals.pruned)
        self.longest_hold_seconds = max(self.longest_hold_seconds, receipt.longest_hold_seconds)

    def removed(self) -> dict[str, str]:
        """Every memory that a pass removed, with the text that it had in that moment."""
        texts: dict[str, str] = {}
        for run in self.runs:
            rows = run.undo_rows([int(path.stem) for path in run.undo_files])
            gone = rows.filter(pa.compute.equal(rows["change"], "removed"))
            for memory_id, raw in zip(gone["memory_id"].to_pylist(), gone["raw"].to_pylist(), strict=True):
                assert memory_id not in texts, f"{memory_id} was removed twice"
                texts[memory_id] = self.place.unpack(raw)["content"]
        return texts


@pytest.fixture(params=["postgresql", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty store of each database."""
    if request.param == "sqlite":
        return SqlitePlace(tmp_path)
    return PostgresqlPlace(request.getfixturevalue("empty_database")())


def test_four_agents_lose_nothing_to_passes_back_to_back(place: Place, tmp_path: Path) -> None:
    """Ten seconds, a pass that removes 2,000 rows."""
    passes = _live(place, tmp_path, seconds=10, copies=2_000)

    assert len(passes.runs) >= 2
    assert passes.most_removed >= 2_000


@pytest.mark.long
@pytest.mark.timeout(600)
def test_four_agents_lose_nothing_to_passes_that_remove_100_000_rows(place: Place, tmp_path: Path) -> None:
    """A minute, over a store that is large enough for that."""
    passes = _live(place, tmp_path, seconds=60, copies=100_000)

    assert passes.most_removed >= 100_000


def _live(place: Place, folder: Path, *, seconds: float, copies: int) -> Passes:
    """Let the writers and the passes run for so long, then hold what is there against what the writers were told."""
    remember_copies(place, copies * 21 // 20, of="the archive")
    passes = Passes(place, folder)
    with _writers(place, folder, seconds) as processes:
        while any(process.poll() is None for process in processes):
            passes.make_one()
            remember_copies(place, max(100, copies // 20), of=f"pass {len(passes.runs)}")
        said = [process.communicate()[1] for process in processes]
        assert [process.returncode for process in processes] == [0] * len(WRITERS), said
    _check(place, folder, passes)
    print(f"{len(passes.runs)} passes, {passes.most_removed:,} rows at most, held {passes.longest_hold_seconds:.2f} s")
    return passes


def _check(place: Place, folder: Path, passes: Passes) -> None:
    removed, there = passes.removed(), place.contents()
    wrong, confirmed, longest = [], 0, 0.0
    for name in WRITERS:
        log = [json.loads(line) for line in (folder / f"{name}.log").read_text().splitlines()]
        confirmed += len(log)
        longest = max(longest, *(waited for waited, *_ in log))
        last = {memory_id: (what, content) for _, what, memory_id, content in log}
        wrong += [
            (memory_id, what, content)
            for memory_id, (what, content) in last.items()
            if not _is_kept(memory_id, what, content, there, removed)
        ]
    assert wrong == []
    assert longest < 5.0
    assert sum(memory_id.startswith(WRITERS) for memory_id in removed) > 100, "no memory of theirs was ever merged"
    assert confirmed > 1_000, "the writers hardly wrote"
    print(f"{confirmed:,} writes confirmed, the longest after {longest:.2f} s, {len(removed):,} memories merged")


def _is_kept(memory_id: str, what: str, content: str, there: dict[str, str], removed: dict[str, str]) -> bool:
    """Whether a memory is as its writer left it, or was merged by a plan that had seen just that."""
    if what == "delete":
        return memory_id not in there and memory_id not in removed
    if memory_id in there:
        return there[memory_id] == content and memory_id not in removed
    return removed.get(memory_id) == content


@contextmanager
def _writers(place: Place, folder: Path, seconds: float) -> Iterator[list[subprocess.Popen[str]]]:
    processes = []
    try:
        for name in WRITERS:
            command: list[Any] = [
                sys.executable,
                WRITER,
                place.address,
                folder / f"{name}.log",
                name,
                "team",
                seconds,
                0.004,
            ]
            arguments = [str(each) for each in command]
            processes.append(subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True))
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _now() -> datetime:
    return datetime.fromtimestamp(time.time(), UTC)
