"""Erasing a memory: where it is taken out of, what stays, and that nothing brings it back."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from memfold_flows.runs import PLANNED_BY, RunDirectory, known_runs
from memfold_flows.service import Service

from .conftest import DAY, Ended, Kitchen

Command = Callable[..., Ended]

SECRET = "Ann's alarm code is 4711"


@pytest.fixture
def house(kitchen: Kitchen) -> Kitchen:
    """Nine memories: three say the same secret, six have nothing in common."""
    kitchen.remember("code-1", SECRET, age=9 * DAY)
    kitchen.remember("code-2", "ann's alarm code is 4711.", age=8 * DAY)
    kitchen.remember("code-3", SECRET, age=7 * DAY)
    for memory_id, content in (
        ("oven", "The oven door sticks when it is hot"),
        ("bread", "Bob bakes rye bread on Fridays"),
        ("key", "The cellar key hangs behind the clock"),
        ("cat", "Do not feed the cat at the table"),
        ("bin", "Glass goes into the blue bin"),
        ("hose", "The hose leaks at the tap"),
    ):
        kitchen.remember(memory_id, content)
    return kitchen


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where runs live."""
    monkeypatch.setenv("MEMFOLD_HOME", str(tmp_path / "state"))
    return tmp_path / "state/runs"


def test_a_memory_is_gone_from_the_store_and_from_a_plan(command: Command, house: Kitchen, home: Path) -> None:
    """No file that memfold wrote holds the text any more, and the plan cannot be applied."""
    command("plan", f"sqlite:{house.path}")
    before = holding(home, "cellar key")

    ended = command("forget", f"sqlite:{house.path}", "key", "--yes")

    assert (before, holding(home, "cellar key")) == (True, False)
    assert ended.code == 0
    assert "forgotten: key" in ended.out
    assert "yours to delete" in ended.out
    assert "key" not in house.ids
    refused = command("apply", "latest", "--yes")
    assert (refused.code, "was forgotten since; nothing was written" in refused.err) == (2, True)
    assert command("show", "latest").code == 0


def test_an_absorbed_memory_is_erased_from_the_undo_data_and_its_survivor_is_named(
    command: Command, house: Kitchen, home: Path
) -> None:
    """What took it in stands and may say the same, so that the exit code is 4."""
    command("run", f"sqlite:{house.path}", "--yes")

    ended = command("forget", f"sqlite:{house.path}", "code-2", "--yes")

    assert ended.code == 4
    assert "code-2 went into code-1, which stands and may say the same; --with-survivor erases it too" in ended.out
    assert "code-1" in house.ids
    undone = command("undo", "latest", "--yes")
    assert undone.code == 4
    assert "was forgotten since" in undone.out
    assert house.ids & {"code-1", "code-2", "code-3"} == {"code-1", "code-3"}


def test_with_its_survivor_nothing_says_it_any_more(command: Command, house: Kitchen, home: Path) -> None:
    """The survivor, and every copy that was named, are gone from store, snapshot, pairs, plan and undo."""
    command("run", f"sqlite:{house.path}", "--yes")

    ended = command("forget", f"sqlite:{house.path}", "code-2", "code-3", "--with-survivor", "--yes")

    assert ended.code == 0
    assert house.ids == {"oven", "bread", "key", "cat", "bin", "hose"}
    assert not holding(home, "4711")
    undone = command("undo", "latest", "--yes")
    assert undone.code == 4
    assert house.ids == {"oven", "bread", "key", "cat", "bin", "hose"}


def test_a_copy_of_the_undo_data_brings_nothing_back(command: Command, house: Kitchen, home: Path) -> None:
    """The store's own tombstone is asked, as a run directory may have been copied before."""
    command("run", f"sqlite:{house.path}", "--yes")
    [run] = known_runs(home)
    copy = home.parent / "copy"
    shutil.copytree(run.path, copy)
    command("forget", f"sqlite:{house.path}", "code-2", "--yes")
    shutil.rmtree(run.path)
    shutil.copytree(copy, run.path)

    command("undo", run.run_id, "--yes")

    assert house.ids & {"code-1", "code-2", "code-3"} == {"code-1", "code-3"}


def test_the_tombstone_tells_nobody_which_memory_it_was(command: Command, house: Kitchen, home: Path) -> None:
    """It holds hashes under a key of this store; neither the id nor the text stands in the file's rows."""
    command("forget", f"sqlite:{house.path}", "key", "--yes")

    with closing(sqlite3.connect(house.path)) as connection:
        [stone] = connection.execute("select id_hash, text_hash from memfold_forgotten").fetchall()
    assert all(len(each) == 64 for each in stone)


def test_what_was_told_in_replay_is_forgotten_too(command: Command, house: Kitchen, home: Path) -> None:
    """The entry that says the same goes from its batch, and the others stay."""
    Service(house.store).append_replay("kitchen", [{"content": "Ann drinks tea"}, {"content": SECRET.upper()}])

    ended = command("forget", f"sqlite:{house.path}", "code-1", "--yes", "--json")

    assert json.loads(ended.out)["replay_entries"] == 1
    with closing(sqlite3.connect(house.path)) as connection:
        [(batch,)] = connection.execute("select batch_json from memfold_replay").fetchall()
    assert json.loads(batch) == {"memories": [{"content": "Ann drinks tea"}]}


def test_forgetting_twice_is_forgetting_once(command: Command, house: Kitchen, home: Path) -> None:
    """After a crash the same command is given again; where there is nothing left to do, it says that all is done."""
    command("plan", f"sqlite:{house.path}")
    first = command("forget", f"sqlite:{house.path}", "key", "--yes")
    again = command("forget", f"sqlite:{house.path}", "key", "--yes", "--json")

    assert (first.code, again.code) == (0, 0)
    assert json.loads(again.out)["removed"] == []


@pytest.mark.parametrize("step", ["bury", "mark_forgotten", "seal"])
def test_an_erasure_that_was_cut_off_is_ended_by_the_same_command(
    command: Command, house: Kitchen, home: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Whatever was done before the crash stays done, and the rest follows."""
    from memfold_flows.stores.bookkeeping import Bookkeeping

    command("run", f"sqlite:{house.path}", "--yes")
    owner = Bookkeeping if step == "bury" else RunDirectory
    with monkeypatch.context() as broken:
        broken.setattr(owner, step, crash)
        with pytest.raises(ZeroDivisionError):
            command("forget", f"sqlite:{house.path}", "code-2", "--with-survivor", "--yes")

    command("forget", f"sqlite:{house.path}", "code-2", "--with-survivor", "--yes")

    assert not house.ids & {"code-1", "code-2"}
    [run] = known_runs(home)
    assert run.verify().forgotten_at is not None
    command("undo", run.run_id, "--yes")
    assert not house.ids & {"code-1", "code-2"}


def test_an_unknown_id_is_refused(command: Command, house: Kitchen, home: Path) -> None:
    """A slip of the hand erases nothing."""
    ended = command("forget", f"sqlite:{house.path}", "oven", "ovem", "--yes")

    assert (ended.code, "'ovem'" in ended.err) == (2, True)
    assert "oven" in house.ids


def test_a_run_directory_that_is_gone_is_named(command: Command, house: Kitchen, home: Path) -> None:
    """It may lie somewhere else: what cannot be reached is listed, and the exit code is 4."""
    command("run", f"sqlite:{house.path}", "--yes")
    [run] = known_runs(home)
    shutil.move(run.path, home.parent / "elsewhere")

    ended = command("forget", f"sqlite:{house.path}", "bread", "--yes")

    assert (ended.code, f"not reached: {run.path}" in ended.out.replace("\n", "")) == (4, True)
    assert "bread" not in house.ids


def test_what_models_answered_is_dropped(command: Command, house: Kitchen, home: Path) -> None:
    """A text that one wrote may tell of the memory, and no answer says of which memories it is."""
    answers = home.parent / "answers"
    answers.mkdir(parents=True)
    (answers / "0a.json").write_text('{"answer": {"content": "The cellar key hangs behind the clock"}}')

    command("forget", f"sqlite:{house.path}", "key", "--yes")

    assert not list(answers.glob("*"))


def test_without_a_terminal_or_yes_nothing_is_erased(command: Command, house: Kitchen, home: Path) -> None:
    """It cannot be taken back, so somebody has to say so."""
    assert command("forget", f"sqlite:{house.path}", "bread").code == 2
    assert "bread" in house.ids


def test_a_memory_of_an_archive_is_erased_from_its_file(command: Command, home: Path, tmp_path: Path) -> None:
    """The archive is rewritten without its line; the others keep their bytes."""
    lines = ['{"id": "a", "text": "Ann drinks tea"}\n', '{"id": "b",  "text": "Bob bakes bread"}\n']
    (tmp_path / "notes.jsonl").write_text("".join(lines))
    command("plan", "jsonl:notes.jsonl")

    ended = command("forget", "jsonl:notes.jsonl", "a", "--yes")

    assert ended.code == 0
    assert (tmp_path / "notes.jsonl").read_text() == lines[1]
    assert not holding(home, "drinks tea")


def test_a_promoted_memory_is_erased_under_its_new_id(command: Command, home: Path, tmp_path: Path) -> None:
    """A promotion that gives a new id makes no other memory of it."""
    from memfold_flows.erasure import _meant

    meant = _meant("short:1", None, {"short:1": "long:7"}, {})

    assert (meant.ids, meant.survivor) == (("short:1", "long:7"), None)


@pytest.mark.parametrize("damage", [Path.unlink, lambda manifest: manifest.write_text('{"format": ')])
def test_a_directory_that_tells_of_no_store_is_named(
    command: Command, house: Kitchen, home: Path, damage: Callable[[Path], None]
) -> None:
    """It may be of this store and hold the text: it is listed with the command that clears it, until that was given."""
    command("run", f"sqlite:{house.path}", "--yes")
    [run] = known_runs(home)
    damage(run.path / "manifest.json")
    copy = home / "20260101T000000Z-0000aa"
    shutil.copytree(run.path, copy)

    ended = command("forget", f"sqlite:{house.path}", "code-2", "--with-survivor", "--yes", "--json")
    for path in (run.path, copy):
        shutil.rmtree(path)
    again = command("forget", f"sqlite:{house.path}", "code-2", "--with-survivor", "--yes", "--json")

    left = {each["place"]: each["why"] for each in json.loads(ended.out)["left"]}
    assert (ended.code, left.keys()) == (4, {str(run.path), str(copy)})
    assert all(why.endswith(f"delete that directory: rm -r {path}") for path, why in left.items())
    assert str(copy) not in again.out


@pytest.mark.parametrize("name", ["plan.parquet", "snapshot/part-00000.parquet", "pairs.parquet"])
def test_a_file_that_is_cut_short_is_named_and_the_other_runs_are_gone_through(
    command: Command, house: Kitchen, home: Path, name: str
) -> None:
    """The run is listed as damaged; once its file is back, the same command erases from it too."""
    command("plan", f"sqlite:{house.path}")
    command("plan", f"sqlite:{house.path}")
    first, second = known_runs(home)
    whole = (first.path / name).read_bytes()
    (first.path / name).write_bytes(whole[: len(whole) // 2])

    ended = command("forget", f"sqlite:{house.path}", "key", "--yes", "--json")
    [left] = json.loads(ended.out)["left"]
    (first.path / name).write_bytes(whole)
    again = command("forget", f"sqlite:{house.path}", "key", "--yes", "--json")

    assert (ended.code, left["place"]) == (4, str(first.path))
    assert left["why"] == f"is damaged: {name} cannot be read; delete that directory: rm -r {first.path}"
    assert not holding(second.path, "cellar key")
    assert (again.code, holding(first.path, "cellar key")) == (0, False)
    assert first.verify().forgotten_at is not None


def test_a_plan_whose_process_was_killed_is_cleared(command: Command, house: Kitchen, home: Path) -> None:
    """Nothing will ever be written from it; a plan that is at work stays and is named."""
    dead, alive = (half_made(home, f"20260101T00000{number}Z-0000aa", house) for number in (1, 2))
    (dead / PLANNED_BY).write_text(ended_process())

    ended = command("forget", f"sqlite:{house.path}", "key", "--yes", "--json")

    assert (ended.code, dead.exists(), alive.exists()) == (4, False, True)
    [left] = json.loads(ended.out)["left"]
    assert left == {
        "place": str(alive),
        "why": f"a plan that may be at work; if it is not, delete that directory: rm -r {alive}",
    }


def test_a_half_made_plan_that_names_no_process_is_cleared_after_a_while(
    command: Command, house: Kitchen, home: Path
) -> None:
    """Nobody wrote to it for longer than a lease lasts."""
    old, new = (half_made(home, f"20260101T00000{number}Z-0000aa", house) for number in (1, 2))
    for path in (old, new):
        (path / PLANNED_BY).unlink()
    for path in (old, *old.rglob("*")):
        os.utime(path, (0, 0))

    command("prune-runs", "--yes")

    assert (old.exists(), new.exists()) == (False, True)


def test_answers_that_cannot_be_removed_are_named(
    command: Command, house: Kitchen, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory has left the store by then, so the rest is still gone through."""
    command("plan", f"sqlite:{house.path}")

    def refuse(_: Path) -> None:
        raise PermissionError("not yours")

    monkeypatch.setattr("memfold_flows.proposer.cache.clear", refuse)
    ended = command("forget", f"sqlite:{house.path}", "key", "--yes")

    assert (ended.code, "the answers of models cannot be removed (not yours)" in ended.out) == (4, True)
    assert not holding(home, "cellar key")


def half_made(home: Path, run_id: str, house: Kitchen) -> Path:
    """A plan of this process that has come as far as its snapshot."""
    run = RunDirectory.create(home / run_id, run_id)
    run.write_snapshot(pa.Table.from_batches(house.store.snapshot()))
    return run.path


def ended_process() -> str:
    """The mark of a process that is over."""
    child = subprocess.run(
        [
            sys.executable,
            "-c",
            "from memfold_flows.stores.processes import this_process; print(this_process(), end='')",
        ],
        capture_output=True,
        check=True,
        text=True,
    )
    return child.stdout


def crash(*_: object, **__: object) -> None:
    raise ZeroDivisionError


def holding(folder: Path, text: str) -> bool:
    """Whether any relation below this folder holds a text in one of its cells."""
    import pyarrow.parquet as pq

    tables = [pq.read_table(path) for path in folder.rglob("*.parquet")]
    cells = (str(cell) for table in tables for column in table.columns for cell in column.to_pylist())
    return any(text in cell for cell in cells)
