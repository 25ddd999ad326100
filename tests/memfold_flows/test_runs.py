"""The run directory: private, sealed, and found by id, path or latest."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memfold.errors import BadUsage, PlanDamaged
from memfold.frames import LOSSES, UNDO
from memfold.memory import Memory
from memfold_flows.manifests import Manifest
from memfold_flows.runs import RunDirectory, find_run, known_runs, new_run_id, runs_folder, unreadable_runs
from memfold_flows.stores.batches import memories_batch

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
KITCHEN = "sqlite:///kitchen.db"
GARDEN = "sqlite:///garden.db"

MakeRun = Callable[..., RunDirectory]


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """A sealed run with a snapshot of three memories and one other relation."""

    def make(run_id: str = "monday", *, store: str = KITCHEN, created: datetime = NOON) -> RunDirectory:
        run = RunDirectory.create(tmp_path / "runs" / run_id, run_id)
        run.write_snapshot(_memories("ann", "bob", "cat"))
        run.write("losses", pa.Table.from_pylist([{"scope": "kitchen", "lost": 2}], schema=LOSSES))
        run.seal(
            Manifest(
                run_id=run_id,
                store=store,
                as_of=created,
                created=created,
                memfold="0.1.0",
                scopes=None,
                minhash={"scheme": "affine32", "seed": 1},
                counts={"memories": 3},
            )
        )
        return run

    return make


def test_a_run_is_named_by_when_it_began_and_six_random_digits() -> None:
    """The name sorts by time, and two runs of one second do not meet."""
    began_at = datetime(2026, 11, 30, 23, 6, 40, tzinfo=UTC).astimezone()

    assert new_run_id(began_at, bytes.fromhex("3f9a1c")) == "20261130T230640Z-3f9a1c"


def test_runs_live_under_memfold_home_else_in_the_state_folder_of_the_user(tmp_path: Path, home: Path) -> None:
    """The folder does not depend on where the call came from."""
    assert runs_folder(str(tmp_path)) == tmp_path / "runs"
    assert runs_folder(None).is_relative_to(home)
    assert runs_folder(None).parts[-2:] == ("memfold", "runs")


def test_only_the_owner_may_read_a_run(make_run: MakeRun) -> None:
    """A run holds people's memories: files are 0600, folders 0700, the folder of all runs too."""
    run = make_run()
    run.write_undo(0, UNDO.empty_table())
    run.write_json("receipt.json", {})

    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (run.path, run.path.parent, *run.path.rglob("*"))}

    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o600}


def test_a_folder_with_something_in_it_is_no_place_for_a_new_run(tmp_path: Path) -> None:
    """What is there stays there."""
    (tmp_path / "diary.txt").write_text("dear diary")

    with pytest.raises(BadUsage, match="exists and is not an empty folder"):
        RunDirectory.create(tmp_path, "monday")

    assert [path.name for path in tmp_path.iterdir()] == ["diary.txt"]


def test_the_chunks_of_a_table_leave_no_trace_in_its_file(make_run: MakeRun) -> None:
    """The same rows give the same bytes, however they were read; pages would end where the chunks do."""
    run = make_run()
    whole = pa.table({"text": [f"note {number * 7919 % 60_013} of many" * 5 for number in range(60_000)]})
    in_pieces = pa.concat_tables([whole.slice(start, 1_999) for start in range(0, 60_000, 1_999)])

    first = run.write("whole", whole).read_bytes()

    assert in_pieces["text"].num_chunks > 1
    assert run.write("in_pieces", in_pieces).read_bytes() == first


def test_a_sealed_run_is_verified_as_long_as_nothing_changes(make_run: MakeRun) -> None:
    """The manifest comes back as it was sealed, with the rows of each relation."""
    run = make_run()

    manifest = run.verify()

    assert (manifest.run_id, manifest.store, manifest.as_of) == ("monday", KITCHEN, NOON)
    assert {file.path: file.rows for file in manifest.files} == {"losses.parquet": 1, "snapshot/part-00000.parquet": 3}


def _cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def _write_other_rows(path: Path) -> None:
    pq.write_table(pa.Table.from_pylist([{"scope": "kitchen", "lost": 0}], schema=LOSSES), path)


@pytest.mark.parametrize("damage", [_cut_short, _flip_a_byte, _write_other_rows, Path.unlink])
def test_a_changed_relation_is_damage(make_run: MakeRun, damage: Callable[[Path], None]) -> None:
    """A relation that is cut short, altered, replaced or gone is named, and nothing is written."""
    run = make_run()
    damage(run.file("losses"))

    with pytest.raises(PlanDamaged, match=r"losses\.parquet .*nothing was written"):
        run.verify()


def test_a_relation_that_was_slipped_in_is_damage(make_run: MakeRun) -> None:
    """A second snapshot part would add memories that nobody planned for."""
    run = make_run()
    (run.path / "snapshot/part-00001.parquet").write_bytes((run.path / "snapshot/part-00000.parquet").read_bytes())

    with pytest.raises(PlanDamaged, match=r"snapshot/part-00001\.parquet is not part of the plan"):
        run.verify()


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"format": "dbt-run/7"}', '{"format": "memfold-run/1"}'])
def test_a_manifest_that_cannot_be_read_is_damage(make_run: MakeRun, content: str) -> None:
    """An empty, broken, foreign or incomplete manifest opens nothing."""
    run = make_run()
    (run.path / "manifest.json").write_text(content)

    with pytest.raises(PlanDamaged, match="nothing was written"):
        RunDirectory.open(run.path)


def test_a_relation_added_twice_must_be_the_same(make_run: MakeRun) -> None:
    """An apply that resumes makes its rewrite again; another one does not follow from this plan."""
    run = make_run()
    run.add("rewrite", _memories("ann"))
    run.add("rewrite", _memories("ann"))
    run.verify()

    with pytest.raises(PlanDamaged, match=r"rewrite\.parquet does not follow from the plan"):
        run.add("rewrite", _memories("bob"))


def test_after_an_apply_only_touched_memories_are_kept(make_run: MakeRun) -> None:
    """The trimmed run is sound, and trimming it again changes nothing."""
    run = make_run()

    run.trim_snapshot(["bob"])
    run.trim_snapshot([])

    assert run.read("snapshot")["memory_id"].to_pylist() == ["bob"]
    assert run.verify().snapshot_trimmed


def test_undo_rows_are_those_of_the_transactions_that_committed(make_run: MakeRun) -> None:
    """They are durable before the commit, so a crash can leave some that never happened."""
    run = make_run()
    run.write_undo(0, _undo_row("ann"))
    run.write_undo(1, _undo_row("bob"))

    assert run.undo_rows([0])["memory_id"].to_pylist() == ["ann"]
    assert run.undo_rows([0, 1])["memory_id"].to_pylist() == ["ann", "bob"]


def test_an_undo_part_that_is_gone_is_damage(make_run: MakeRun) -> None:
    """Half an undo that says nothing would be a loss that says nothing."""
    run = make_run()
    run.write_undo(0, _undo_row("ann"))

    with pytest.raises(PlanDamaged, match=r"undo/000001\.parquet cannot be read .*nothing was taken back"):
        run.undo_rows([0, 1])


def test_a_run_is_found_by_id_by_directory_and_as_the_latest(make_run: MakeRun, tmp_path: Path) -> None:
    """The latest is the one that was made last, whatever its name."""
    make_run("z-monday")
    tuesday = make_run("a-tuesday", created=NOON + timedelta(days=1))
    folder = tmp_path / "runs"

    assert find_run("a-tuesday", folder) == tuesday
    assert find_run(str(tuesday.path), folder) == tuesday
    assert find_run("latest", folder) == tuesday
    assert [run.run_id for run in known_runs(folder)] == ["z-monday", "a-tuesday"]


def test_latest_of_a_store_is_the_latest_of_that_store(make_run: MakeRun, tmp_path: Path) -> None:
    """Runs of other stores do not count."""
    make_run("monday", store=KITCHEN)
    make_run("tuesday", store=GARDEN, created=NOON + timedelta(days=1))

    assert find_run("latest", tmp_path / "runs", store=KITCHEN).run_id == "monday"


def test_latest_is_not_guessed_where_several_stores_have_runs(make_run: MakeRun, tmp_path: Path) -> None:
    """With --yes nobody looks, so the store must be named."""
    make_run("monday", store=KITCHEN)
    make_run("tuesday", store=GARDEN, created=NOON + timedelta(days=1))

    with pytest.raises(BadUsage, match=r"2 stores .*add --store URL"):
        find_run("latest", tmp_path / "runs", must_be_sure=True)

    assert find_run("latest", tmp_path / "runs").run_id == "tuesday"


def test_a_run_of_another_store_is_refused(make_run: MakeRun, tmp_path: Path) -> None:
    """A run id together with --store must agree."""
    make_run("monday", store=KITCHEN)

    with pytest.raises(BadUsage, match=f"was planned on {KITCHEN}, not on {GARDEN}"):
        find_run("monday", tmp_path / "runs", store=GARDEN)


@pytest.mark.parametrize("reference", ["sunday", "../sunday", "latest"])
def test_a_run_that_does_not_exist_is_bad_usage(tmp_path: Path, reference: str) -> None:
    """A wrong name is said so, and no folder is made for it."""
    with pytest.raises(BadUsage, match="no run"):
        find_run(reference, tmp_path / "runs")

    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_plan_is_not_the_latest(make_run: MakeRun, tmp_path: Path) -> None:
    """A folder without a manifest is passed over."""
    monday = make_run("monday")
    RunDirectory.create(tmp_path / "runs" / "tuesday", "tuesday").write_snapshot(_memories("ann"))

    assert find_run("latest", tmp_path / "runs") == monday


@pytest.mark.parametrize("removal", ["trim", "remove_texts"])
def test_a_removal_of_texts_that_is_cut_off_anywhere_leaves_a_whole_run(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch, removal: str
) -> None:
    """At each call to the system: the run is as it was, or as it was to be; the next removal leaves nothing over."""
    ends = {"trim": ["ann"], "remove_texts": []}[removal]
    for number in range(100):
        run = make_run(f"monday-{number}")
        run.write_undo(0, _undo_row("bob"))
        with monkeypatch.context() as patched, suppress(Crash):
            _crash_at(patched, number)
            run.trim_snapshot(["ann"]) if removal == "trim" else run.remove_texts(NOON)

        manifest = run.verify()

        found = run.read("snapshot")["memory_id"].to_pylist()
        assert found == (ends if manifest.snapshot_trimmed else ["ann", "bob", "cat"])
        assert len(run.undo_files) == (0 if manifest.undo_removed_at else 1)
        run.remove_texts(NOON)
        assert list(run.path.rglob(".*.next")) == []
        assert run.verify().undo_removed_at is not None
        if found == ends and number and _crash_at.calls < number:
            return
    pytest.fail("the removal never came to its end")


def test_who_looks_at_a_run_while_its_texts_are_removed_does_not_harm_it(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each call to the system another process verifies the run, and may find it in between."""
    run = make_run("monday")
    looks = []

    def watched(real: Callable[..., None]) -> Callable[..., None]:
        def call(*given: object, **options: object) -> None:
            with monkeypatch.context() as alone, suppress(PlanDamaged):
                for name, each in calls.items():
                    alone.setattr(os, name, each)
                looks.append(given)
                run.verify()
            real(*given, **options)

        return call

    calls = {name: getattr(os, name) for name in ("replace", "unlink")}
    with monkeypatch.context() as patched:
        for name, real in calls.items():
            patched.setattr(os, name, watched(real))
        run.trim_snapshot(["ann"])

    assert len(looks) > 2
    assert run.verify().snapshot_trimmed
    assert run.read("snapshot")["memory_id"].to_pylist() == ["ann"]


class Crash(BaseException):
    """The process ends here."""


class _CrashAt:
    """Ends the process, as it were, before the nth call that changes the disk."""

    calls = 0

    def __call__(self, patched: pytest.MonkeyPatch, number: int) -> None:
        self.calls = 0
        for name in ("fsync", "replace", "unlink"):
            patched.setattr(os, name, self._counted(getattr(os, name), number))

    def _counted(self, real: Callable[..., None], number: int) -> Callable[..., None]:
        def call(*given: object, **options: object) -> None:
            if self.calls >= number:
                raise Crash
            self.calls += 1
            real(*given, **options)

        return call


_crash_at = _CrashAt()


def test_a_damaged_run_that_is_newer_is_not_passed_over_where_nobody_looks(make_run: MakeRun, tmp_path: Path) -> None:
    """Someone who says latest may mean that one; an older damaged run is nobody's latest."""
    make_run("1-sunday").path.joinpath("manifest.json").write_text("{")
    monday = make_run("2-monday")
    assert find_run("latest", tmp_path / "runs", must_be_sure=True) == monday
    make_run("3-tuesday").path.joinpath("manifest.json").write_text("{")

    with pytest.raises(BadUsage, match=r"latest could mean 3-tuesday, which is damaged .* can be read is 2-monday"):
        find_run("latest", tmp_path / "runs", must_be_sure=True)

    assert find_run("latest", tmp_path / "runs") == monday
    assert [path.name for path in unreadable_runs(tmp_path / "runs")] == ["1-sunday", "3-tuesday"]


@pytest.mark.parametrize("reference", ["../..", ".", ""])
def test_a_folder_that_is_no_run_is_said_to_be_none(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: str
) -> None:
    """Whatever its name looks like; beside a run, a name may lead to it."""
    monday = make_run("monday")
    monkeypatch.chdir(monday.path / "snapshot")

    with pytest.raises(BadUsage, match=f"^'{re.escape(reference)}' is a folder, but no run directory"):
        find_run(reference, tmp_path / "runs")

    assert find_run("..", tmp_path / "runs") == monday


def _memories(*ids: str) -> pa.Table:
    memories = [Memory(memory_id=memory_id, scope="kitchen", content=f"{memory_id} likes tea") for memory_id in ids]
    return pa.Table.from_batches([memories_batch(memories)])


def _undo_row(memory_id: str) -> pa.Table:
    row = {
        "unit_id": 0,
        "scope": "kitchen",
        "memory_id": memory_id,
        "change": "removed",
        "is_lost": False,
        "row_digest": "0" * 32,
        "raw": b"{}",
    }
    return pa.Table.from_pylist([row], schema=UNDO)
