"""The ``praisonai-file:`` store: what it reads in a ``FileMemory``, and how two files land as one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memfold.errors import BadRecord, BadUsage, StoreError, Transient
from memfold_flows.consolidator import Consolidator
from memfold_flows.stores import praisonai_landing
from memfold_flows.stores.base import Update
from memfold_flows.stores.praisonai_file import PraisonAIFileStore, open_store

SAMPLE = Path(__file__).parents[2] / "data/praisonai/file/team-a"
TIERS = ("short_term", "long_term")
ROTATION = {"id": "a1", "content": "The pager moves on Tuesday.", "metadata": {}, "created_at": 1796071542.5}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the 63 memories that ``FileMemory`` wrote."""
    return Path(shutil.copytree(SAMPLE, tmp_path / "memory" / "team-a"))


@pytest.fixture
def written(tmp_path: Path):
    """Write a ``FileMemory`` of these items."""

    def write(**tiers: Any) -> Path:
        folder = tmp_path / "written"
        folder.mkdir()
        for tier, items in tiers.items():
            (folder / f"{tier}.json").write_text(items if isinstance(items, str) else json.dumps(items))
        return folder

    return write


def test_every_item_is_read_with_an_id_that_names_its_tier(folder):
    """After an auto-promote an id stands in both tiers, so it needs two names."""
    memories = snapshot(folder)

    assert len(memories) == 63
    memory = memories["short_term:bbb8a0d5bd50ce26"]
    assert memory["content"] == "Started triage of the checkout latency alert; p95 is at 840 ms."
    assert (memory["scope"], memory["session_id"], memory["importance"]) == ("team-a", "session-1", 0.5)
    assert memory["use_count"] is None
    assert memory["created_at"].isoformat(timespec="seconds") == "2026-11-30T20:45:42+00:00"
    assert sum(each["protected"] for each in memories.values()) == 4


def test_a_tier_that_no_agent_has_written_yet_is_empty(written):
    """FileMemory makes each file when it first writes that tier."""
    assert list(snapshot(written(long_term=[ROTATION]))) == ["long_term:a1"]


@pytest.mark.parametrize(
    ("items", "error", "says"),
    [
        ("[{", StoreError, "is not JSON; PraisonAI would read it as empty and overwrite it"),
        ("", StoreError, "is not JSON"),
        ("{}", StoreError, "is not a list of items"),
        ([ROTATION, 5], BadRecord, "item 1 is not an object"),
        ([{**ROTATION, "tags": []}], BadRecord, "item 0 has the key 'tags', with which FileMemory does not start"),
        ([{**ROTATION, "id": None}], BadRecord, "item 0 has no id"),
        ([{"id": "a1"}], BadRecord, "item 0 has no text as its content"),
        ([ROTATION, ROTATION], BadRecord, "item 1 has the id 'a1', as another item of this tier has"),
    ],
)
def test_a_damaged_file_is_an_error_and_stays_as_it_is(written, items, error, says):
    """To FileMemory a damaged file is an empty memory, which it then overwrites."""
    place = written(long_term=items)
    before = files(place)

    with pytest.raises(error, match=says):
        PraisonAIFileStore(place)

    assert files(place) == before


def test_a_wrong_folder_is_an_error_and_nothing_is_created(tmp_path):
    """A FileMemory that is opened on a wrong path looks empty."""
    with pytest.raises(StoreError, match="there is no folder"):
        open_store(str(tmp_path / "nowhere"), {})
    with pytest.raises(StoreError, match=r"holds no short_term\.json and no long_term\.json; nothing was created"):
        open_store(str(tmp_path), {})

    assert list(tmp_path.iterdir()) == []


def test_the_folder_above_asks_for_the_user_where_there_are_several(folder):
    """PraisonAI keeps one folder per user below ``.praisonai/memory``."""
    assert open_store(str(folder.parent), {}).url == f"praisonai-file://{folder}"
    shutil.copytree(folder, folder.parent / "team-b")

    with pytest.raises(BadUsage, match=r"2 users \(team-a, team-b\); choose one with \?user=NAME"):
        open_store(str(folder.parent), {})
    assert open_store(str(folder.parent), {"user": "team-b"}).url == f"praisonai-file://{folder.parent}/team-b"


def test_only_the_file_that_changes_is_written(folder):
    """Removing an item leaves the others, their order and the other file as they are."""
    before = files(folder)
    store = PraisonAIFileStore(folder)

    with store.transaction() as transaction:
        transaction.delete(["short_term:bbb8a0d5bd50ce26"])

    assert items(folder, "short_term") == json.loads(before["short_term.json"])[1:]
    assert {name: content for name, content in files(folder).items() if name != "short_term.json"} == {
        name: content for name, content in before.items() if name != "short_term.json"
    }
    assert (folder / "short_term.json").stat().st_mode & 0o777 == 0o600


def test_removed_items_come_back_where_they_stood(folder):
    """Short term is a rolling buffer: the order of the list decides what FileMemory drops next."""
    before = files(folder)
    store = PraisonAIFileStore(folder)
    ids = [f"short_term:{item['id']}" for item in items(folder, "short_term")[1:4]]
    ids += [f"long_term:{item['id']}" for item in items(folder, "long_term")[-2:]]

    with store.transaction() as transaction:
        raws = {memory_id: row.raw for memory_id, row in transaction.read(ids).items()}
        transaction.delete(ids)
    with store.transaction() as transaction:
        assert transaction.restore(raws) == set()
        assert transaction.restore(raws) == set(ids)

    assert files(folder) == before


def test_an_update_writes_metadata_and_importance_only(written):
    """An eighth key would keep FileMemory from starting, so whatever else folds has no place."""
    place = written(long_term=[ROTATION], short_term=[])

    with PraisonAIFileStore(place).transaction() as transaction:
        memory = transaction.read(["long_term:a1"])["long_term:a1"].memory
        transaction.update([Update(memory, replace(memory, metadata='{"by": "ann"}', importance=0.75))])

    assert items(place, "long_term") == [{**ROTATION, "metadata": {"by": "ann"}, "importance": 0.75}]


def test_an_agent_that_writes_meanwhile_keeps_its_write(folder):
    """The bytes are compared once more before they are replaced; then the pass refuses."""

    def consolidate_beside_an_agent() -> None:
        with PraisonAIFileStore(folder).transaction() as transaction:
            transaction.delete(["short_term:bbb8a0d5bd50ce26"])
            (folder / "long_term.json").write_text("[]")

    with pytest.raises(StoreError, match=r"long_term\.json was written while it was being consolidated; nothing was"):
        consolidate_beside_an_agent()

    assert items(folder, "long_term") == []
    assert len(items(folder, "short_term")) == 24
    assert os.listdir(folder / ".memfold") == ["lock"]


def test_the_moment_in_which_a_write_can_be_lost_is_short(folder, monkeypatch, record_property):
    """From the last comparison of bytes to the last rename: about 0.1 ms, as nothing is written in between."""
    moments: list[tuple[str, float]] = []

    def noting(kind: str, function: Any) -> Any:
        def call(*arguments: Any) -> Any:
            moments.append((kind, time.perf_counter()))
            return function(*arguments)

        return call

    monkeypatch.setattr(praisonai_landing, "file_digest", noting("compare", praisonai_landing.file_digest))
    monkeypatch.setattr(praisonai_landing, "write_bytes", noting("write", praisonai_landing.write_bytes))
    monkeypatch.setattr(praisonai_landing.os, "replace", noting("rename", os.replace))

    with PraisonAIFileStore(folder).transaction() as transaction:
        transaction.delete([f"{tier}:{items(folder, tier)[0]['id']}" for tier in TIERS])

    journal = max(number for number, (kind, _) in enumerate(moments) if kind == "write")
    landing = moments[journal : journal + 6]  # the journal's own write ends in a rename too
    assert [kind for kind, _ in landing] == ["write", "rename", "compare", "compare", "rename", "rename"]
    record_property("milliseconds", 1000 * (landing[5][1] - landing[2][1]))


@pytest.mark.parametrize("renames", [0, 1, 2])
def test_a_landing_that_stopped_half_way_is_finished_or_dropped(folder, monkeypatch, renames):
    """Before the first rename nothing has happened; after it, whoever comes next finishes the work."""
    before = files(folder)
    delete_first_of_both(folder, die_after=renames, monkeypatch=monkeypatch)

    with PraisonAIFileStore(folder).transaction() as transaction:
        assert transaction.ledger.runs() == []

    if renames == 0:
        assert files(folder) == before
    else:
        for tier in TIERS:
            assert items(folder, tier) == json.loads(before[f"{tier}.json"])[1:]


def test_a_file_that_an_agent_wrote_after_a_crash_is_not_overwritten(folder, monkeypatch):
    """The rename that is still due would take away what the agent has written since."""
    delete_first_of_both(folder, die_after=1, monkeypatch=monkeypatch)
    (folder / "short_term.json").write_text("[]")

    with PraisonAIFileStore(folder).transaction():
        pass

    assert items(folder, "short_term") == []
    assert len(items(folder, "long_term")) == 38


def test_two_memfolds_never_write_one_memory_at_a_time(folder):
    """The second one is told to come back; it does not wait."""
    with (
        PraisonAIFileStore(folder).transaction(),
        pytest.raises(Transient, match="another memfold is writing"),
        PraisonAIFileStore(folder).transaction(),
    ):
        pytest.fail("two transactions at a time")


@pytest.mark.praisonai
def test_a_pass_beside_praisonai_leaves_what_it_starts_on(tmp_path, night_over, monkeypatch):
    """The copy is gone for the next FileMemory, the rest is there, and an undo gives back the same bytes."""
    monkeypatch.setenv("PRAISONAI_TELEMETRY_DISABLED", "true")
    from praisonaiagents.memory import FileMemory

    writer = FileMemory(user_id="ann", base_path=str(tmp_path / "memory"))
    for text in ("The pager moves on Tuesday.", "The lift is out.", "The pager moves on Tuesday."):
        writer.add_long_term(text, {"user_id": "ann"})
    writer.add_short_term("The pager moves on Tuesday.", {"user_id": "ann"})
    before = files(writer.user_path)
    night = night_over(f"praisonai-file:{tmp_path}/memory?user=ann")

    run = night.plan()
    receipt = night.apply(run)

    assert receipt.totals.merged == 1
    reader = FileMemory(user_id="ann", base_path=str(tmp_path / "memory"))
    assert sorted((each["type"], each["content"]) for each in reader.get_all_memories()) == [
        ("long_term", "The lift is out."),
        ("long_term", "The pager moves on Tuesday."),
        ("short_term", "The pager moves on Tuesday."),
    ]
    night.undo(run)
    assert files(writer.user_path) == before


APPLY_AND_DIE = """
import os, signal, sys
from memfold_flows import cli
from memfold_flows.consolidator import Consolidator
from memfold_flows.stores import praisonai_landing

replace, renames = os.replace, int(sys.argv[2])

def replace_or_die(source, target):
    global renames
    if str(source).endswith(".json.new"):
        if renames == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        renames -= 1
    elif str(target).endswith("praisonai-file.db") and renames == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    replace(source, target)

praisonai_landing.os.replace = replace_or_die
cli.main(["apply", sys.argv[1], "--yes"])
"""


@pytest.mark.parametrize("renames", [0, 1, 2])
@pytest.mark.parametrize("command", ["plan", "apply", "run"])
def test_the_next_command_after_a_kill_finds_the_memory_as_it_was_or_as_it_was_to_be(
    folder, command_line, renames, command
):
    """A plan too: it must not look at one file of before and one of after. The run can be finished and taken back."""
    for tier in TIERS:
        add_copy(folder / f"{tier}.json")
    before = files(folder)
    url = f"praisonai-file:{folder}"
    run_id = json.loads(command_line("plan", url, "--json").stdout)["run_id"]

    killed = subprocess.run([sys.executable, "-c", APPLY_AND_DIE, run_id, str(renames)], check=False)
    said = command_line(command, {"plan": url, "run": url, "apply": run_id}[command], *YES[command])

    assert (killed.returncode, said.code) == (-signal.SIGKILL, 0)
    assert not (folder / ".memfold/landing.json").exists()
    if command == "plan":
        assert [len(items(folder, tier)) for tier in TIERS] == ([25, 40] if renames == 0 else [24, 39])
        assert command_line("apply", run_id, "--yes").code == 0
    assert [len(items(folder, tier)) for tier in TIERS] == [24, 39]
    if command != "run":
        assert command_line("undo", run_id, "--yes").code == 0
        assert files(folder) == before


YES = {"plan": (), "apply": ("--yes",), "run": ("--yes",)}


@pytest.mark.praisonai
@pytest.mark.parametrize("renames", [0, 1, 2])
def test_what_a_kill_left_is_settled_before_an_agent_and_a_pass_meet_it_again(
    tmp_path, monkeypatch, command_line, renames
):
    """PraisonAI wrote the memory, and its next agent finds each fact once in each tier where it was, and writes on."""
    monkeypatch.setenv("PRAISONAI_TELEMETRY_DISABLED", "true")
    from praisonaiagents.memory import FileMemory

    writer = FileMemory(user_id="ann", base_path=str(tmp_path / "memory"))
    for text in ("The pager moves on Tuesday.", "The lift is out.", "Tea is at four.", "The pager moves on Tuesday."):
        writer.add_short_term(text, {"user_id": "ann"})
        writer.add_long_term(text, {"user_id": "ann"})
    url = f"praisonai-file:{tmp_path}/memory?user=ann"
    run_id = json.loads(command_line("plan", url, "--json").stdout)["run_id"]

    killed = subprocess.run([sys.executable, "-c", APPLY_AND_DIE, run_id, str(renames)], check=False)
    half = FileMemory(user_id="ann", base_path=str(tmp_path / "memory")).get_all_memories()
    said = command_line("run", url, "--yes")

    assert (killed.returncode, said.code) == (-signal.SIGKILL, 0)
    assert {each["content"] for each in half} == {"The pager moves on Tuesday.", "The lift is out.", "Tea is at four."}
    agent = FileMemory(user_id="ann", base_path=str(tmp_path / "memory"))
    agent.add_long_term("Keys hang left.", {"user_id": "ann"})
    assert sorted((each["type"], each["content"]) for each in agent.get_all_memories()) == [
        ("long_term", "Keys hang left."),
        ("long_term", "Tea is at four."),
        ("long_term", "The lift is out."),
        ("long_term", "The pager moves on Tuesday."),
        ("short_term", "Tea is at four."),
        ("short_term", "The lift is out."),
        ("short_term", "The pager moves on Tuesday."),
    ]


@pytest.mark.praisonai
def test_a_live_memory_reads_again_what_was_finished_after_a_kill(tmp_path, monkeypatch):
    """Its lists would otherwise bring the removed item back with the next write."""
    monkeypatch.setenv("PRAISONAI_TELEMETRY_DISABLED", "true")
    from praisonaiagents.memory import FileMemory

    memory = FileMemory(user_id="ann", base_path=str(tmp_path / "memory"))
    for text in ("The pager moves on Tuesday.", "The lift is out."):
        memory.add_short_term(text, {"user_id": "ann"})
        memory.add_long_term(text, {"user_id": "ann"})
    delete_first_of_both(memory.user_path, die_after=1, monkeypatch=monkeypatch)

    result = Consolidator().consolidate(memory)

    assert (result.entries_before, result.merged) == (2, 0)
    assert [each["content"] for each in memory.get_all_memories()] == ["The lift is out.", "The lift is out."]


class Died(BaseException):
    """The process ends here: nothing after it runs, also no cleaning up."""


def delete_first_of_both(folder: Path, *, die_after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the first item of each tier, but die after so many renames of the landing."""
    store = PraisonAIFileStore(folder)
    ids = [f"{tier}:{items(folder, tier)[0]['id']}" for tier in TIERS]
    replace_file, done = os.replace, []

    def replace_or_die(source: Any, target: Any) -> None:
        if str(source).endswith(".new"):
            if len(done) == die_after:
                raise Died
            done.append(source)
        elif die_after == len(done) == 2:
            raise Died
        replace_file(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(praisonai_landing.os, "replace", replace_or_die)
        patch.setattr(praisonai_landing.FilesLanding, "_settle", lambda self: None)
        with suppress(Died), store.transaction() as transaction:
            transaction.delete(ids)


def add_copy(file: Path) -> None:
    """Give one tier a second copy of its last ordinary item."""
    listed = json.loads(file.read_text())
    last = [item for item in listed if not item["content"].startswith(("User:", "Entity"))][-1]
    file.write_text(json.dumps([*listed, {**last, "id": "copy"}], indent=2, ensure_ascii=False))


def snapshot(folder: Path) -> dict[str, dict[str, Any]]:
    rows = [row for batch in PraisonAIFileStore(folder).snapshot() for row in batch.to_pylist()]
    return {row["memory_id"]: row for row in rows}


def items(folder: Path, tier: str) -> list[dict[str, Any]]:
    return json.loads((folder / f"{tier}.json").read_text())


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
