"""Durability: what a pass relies on has reached the disk before anything builds on it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from memfold.errors import CannotWrite
from memfold.memory import Memory
from memfold_flows.runs import RunDirectory
from memfold_flows.stores import bookkeeping, connections, open_store

FULL = 2


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is synced, renamed and committed from here on, in order, by the name of the file or folder."""
    seen: list[str] = []

    def watch(name: str, label: Callable[..., str]) -> None:
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *given: seen.append(label(*given)) or real(*given))

    watch("fsync", lambda descriptor: f"sync {Path(os.readlink(f'/proc/self/fd/{descriptor}')).name}")
    watch("replace", lambda source, target: f"rename to {Path(target).name}")
    watch("rename", lambda source, target: f"rename to {Path(target).name}")
    return seen


def test_undo_data_is_on_the_disk_before_its_transaction_commits(fill_sqlite, a_pass, tmp_path, steps, monkeypatch):
    """The file, then its name in the folder, then the name of the folder, then the record in the ledger."""
    filled = fill_sqlite(Memory(memory_id="ann", content="Deploys need two approvals.", scope="team"))
    run = RunDirectory.create(tmp_path / "run", "night-1")
    night = a_pass(filled.store).plan(prune={"ann": "stale"})
    land = bookkeeping.Bookkeeping.land
    monkeypatch.setattr(bookkeeping.Bookkeeping, "land", lambda *given: steps.append("land") or land(*given))

    night.apply(undo=run.write_undo)

    assert steps == ["sync .000000.parquet.tmp", "rename to 000000.parquet", "sync undo", "sync run", "land"]


@pytest.mark.parametrize("journal_mode", ["delete", "wal"])
def test_a_commit_waits_for_the_disk(fill_sqlite, journal_mode):
    """SQLite's own promise, which a build with other defaults must not weaken."""
    filled = fill_sqlite()
    filled.execute(f"pragma journal_mode = {journal_mode}")

    with closing(connections.connect_writing(filled.path)) as connection:
        assert connection.execute("pragma synchronous").fetchone() == (FULL,)


def test_an_archive_is_on_the_disk_before_it_takes_the_place_of_the_old_one(archive, a_pass, steps):
    """Else a power cut could leave a name with nothing behind it."""
    path = archive([{"id": "ann", "text": "Deploys need two approvals."}, {"id": "bob", "text": "Standup is at ten."}])
    night = a_pass(open_store(f"jsonl:{path}", in_place=True)).plan(prune={"ann": "stale"})

    night.apply()

    renamed = steps.index("rename to memories.jsonl")
    assert "sync memories.jsonl.new" in steps[:renamed]
    assert f"sync {path.parent.name}" in steps[renamed:]


def test_a_plan_that_the_disk_does_not_take_is_not_written_from(tmp_path, monkeypatch):
    """One message, before anything is written to the store."""
    run = RunDirectory.create(tmp_path / "run", "night-1")
    (run.path / "snapshot").mkdir()

    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fail)

    with pytest.raises(CannotWrite, match=r"night-1 cannot be brought to the disk .*nothing was written"):
        run.make_durable()
