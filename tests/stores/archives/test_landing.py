"""Where an archive is written, and that the file and its ledger land together or not at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import UTC, datetime

import pytest

from memfold.errors import BadUsage, StoreError, Transient
from memfold_flows.stores import open_store
from memfold_flows.stores.archive_landing import Landing
from memfold_flows.stores.base import RunRef

NINE = datetime(2026, 3, 1, 9, tzinfo=UTC)
RUN = RunRef("20260601-020000", "/runs/20260601-020000", "d1")


def test_without_out_or_in_place_nothing_is_written(notes):
    """Rewriting somebody's export takes a choice; the message names both ways."""
    notes.holds({"id": "a", "text": "tea"})

    with pytest.raises(BadUsage, match=r"--out FILE .* --in-place"), notes.open().transaction():
        pytest.fail("a transaction began")
    assert notes.neighbours == ["notes.jsonl"]


def test_reading_writes_nothing(notes):
    """Neither a snapshot nor a look at the ledger makes the .memfold folder."""
    notes.holds({"id": "a", "text": "tea"})
    store = notes.open(in_place=True)
    notes.read(store)
    with store.ledger() as ledger:
        assert ledger is None

    assert notes.neighbours == ["notes.jsonl"]


def test_out_writes_a_new_private_file_and_leaves_the_archive_alone(notes, another):
    """The ledger goes beside the new file, and a later undo works there."""
    notes.holds({"id": "a", "text": "tea"}, {"id": "b", "text": "tea"})
    before = notes.path.read_bytes()
    target = another("folded.jsonl")
    store = notes.open(out=target.path)
    with store.transaction() as transaction:
        raws = {key: row.raw for key, row in transaction.read(["b"]).items()}
        transaction.delete(["b"])
        transaction.ledger.begin(RUN, NINE)

    assert notes.path.read_bytes() == before
    assert target.lines == notes.lines[:1]
    assert target.path.stat().st_mode & 0o777 == 0o600
    assert notes.neighbours == [".memfold", "folded.jsonl", "notes.jsonl"]
    assert store.written_url == f"jsonl://{target.path}"
    with open_store(store.written_url, in_place=True).transaction() as transaction:
        run = transaction.ledger.run(RUN.run_id)
        assert run is not None
        assert run.directory == RUN.directory
        transaction.restore(raws)
    assert target.path.read_bytes() == before


def test_out_never_overwrites(notes, tmp_path):
    """Neither a file, nor a link, nor the archive itself."""
    notes.holds({"id": "a", "text": "tea"})
    (tmp_path / "other.jsonl").write_bytes(b"precious")
    (tmp_path / "dangling.jsonl").symlink_to(tmp_path / "nowhere")

    for name in ("other.jsonl", "dangling.jsonl"):
        with pytest.raises(BadUsage, match=f"{name} exists; it was not overwritten"):
            notes.remove("a", out=tmp_path / name)
    with pytest.raises(BadUsage, match="is the archive itself"):
        notes.open(out=notes.path)
    with pytest.raises(BadUsage, match="exclude each other"):
        notes.open(out=tmp_path / "new.jsonl", in_place=True)
    with pytest.raises(BadUsage, match="there is no folder"):
        notes.open(out=tmp_path / "missing" / "new.jsonl")
    assert (tmp_path / "other.jsonl").read_bytes() == b"precious"
    assert not (tmp_path / "nowhere").exists()


def test_a_run_that_was_written_to_a_file_is_known_there(notes, another, a_pass):
    """Applied once more with the same --out it changes nothing; another run is refused before it writes."""
    notes.holds({"id": "a", "text": "tea"}, {"id": "b", "text": "Tea"})
    target = another("folded.jsonl")
    a_pass(notes.open(out=target.path)).plan(merge={"b": "a"}).apply()
    written = target.path.read_bytes()

    night = a_pass(notes.open(out=target.path)).plan(merge={"b": "a"})
    assert night.apply().already_applied_at == night.now
    with pytest.raises(BadUsage, match=r"folded\.jsonl exists; it was not overwritten"):
        a_pass(notes.open(out=target.path), run_id="night-2").plan(merge={"b": "a"}).apply()
    assert target.path.read_bytes() == written


def test_out_loses_the_race_against_a_file_that_appears_meanwhile(notes, tmp_path):
    """A file that somebody makes while memfold works is not overwritten."""
    notes.holds({"id": "a", "text": "tea"})
    target = tmp_path / "folded.jsonl"

    def remove_late():
        with notes.open(out=target).transaction() as transaction:
            transaction.read(["a"])
            transaction.delete(["a"])
            target.write_bytes(b"precious")

    with pytest.raises(StoreError, match="exists by now"):
        remove_late()
    assert target.read_bytes() == b"precious"
    assert os.listdir(tmp_path / ".memfold") == ["folded.jsonl.lock"]


def test_a_new_archive_takes_over_the_ledger_of_the_old_one(notes, tmp_path):
    """What was lost lately, and what a person took back, is not forgotten by writing to another file."""
    notes.holds({"id": "a", "text": "tea"}, {"id": "b", "text": "tea"})
    with notes.open(in_place=True).transaction() as transaction:
        transaction.ledger.lose(RUN.run_id, "", 3, NINE)
    notes.remove("b", out=tmp_path / "folded.jsonl")

    with open_store(f"jsonl:{tmp_path / 'folded.jsonl'}").ledger() as ledger:
        assert ledger is not None
        assert ledger.losses(NINE.replace(day=1, hour=1)) == {"": 3}


def test_in_place_keeps_the_mode_and_follows_a_link(notes, another, tmp_path):
    """The link stays a link; the file behind it is rewritten, and its ledger lies beside that file."""
    (tmp_path / "elsewhere").mkdir()
    real = another("elsewhere/real.jsonl")
    real.holds({"id": "a", "text": "tea"}, {"id": "b", "text": "tea"})
    real.path.chmod(0o640)
    notes.path.symlink_to(real.path)
    notes.remove("b")

    assert notes.path.is_symlink()
    assert list(real.snapshot()) == ["a"]
    assert real.path.stat().st_mode & 0o777 == 0o640
    assert real.neighbours == [".memfold", "real.jsonl"]


@pytest.mark.parametrize("change", ["append", "replace", "touch"])
def test_a_file_that_changes_while_it_is_rewritten_is_left_alone(notes, change):
    """A line that an agent appends meanwhile must not vanish; nothing is written, and nothing is booked."""
    notes.holds({"id": "a", "text": "tea"}, {"id": "b", "text": "tea"})

    def rewrite_meanwhile():
        with notes.open(in_place=True).transaction() as transaction:
            transaction.read(["b"])
            transaction.delete(["b"])
            transaction.ledger.begin(RUN, NINE)
            if change == "append":
                with notes.path.open("ab") as file:
                    file.write(b'{"id":"c","text":"late"}\n')
            elif change == "replace":
                copy = notes.path.with_suffix(".copy")
                copy.write_bytes(notes.path.read_bytes())
                copy.replace(notes.path)
            else:
                os.utime(notes.path, ns=(1, 1))

    with pytest.raises(StoreError, match="changed while it was being rewritten; nothing was written"):
        rewrite_meanwhile()
    assert list(notes.snapshot()) == ["a", "b", "c"][: 3 if change == "append" else 2]
    with notes.open().ledger() as ledger:
        assert ledger is None
    assert os.listdir(notes.path.parent / ".memfold") == ["notes.jsonl.lock"]


def test_two_writers_do_not_meet(notes):
    """The second one is told to come back; readers are never kept waiting."""
    notes.holds({"id": "a", "text": "tea"})
    with notes.open(in_place=True).transaction() as transaction:
        transaction.read(["a"])
        with pytest.raises(Transient, match="another memfold is writing"), notes.open(in_place=True).transaction():
            pytest.fail("a second transaction began")
        assert list(notes.snapshot()) == ["a"]


def test_an_exception_rolls_back_the_file_and_the_ledger(notes):
    """All of a transaction lands, or none."""
    notes.holds({"id": "a", "text": "tea"}, {"id": "b", "text": "tea"})
    before = notes.path.read_bytes()

    def fail():
        with notes.open(in_place=True).transaction() as transaction:
            transaction.read(["b"])
            transaction.delete(["b"])
            transaction.ledger.begin(RUN, NINE)
            raise RuntimeError("the undo file could not be written")

    with pytest.raises(RuntimeError, match="undo file"):
        fail()
    assert notes.path.read_bytes() == before
    with notes.open().ledger() as ledger:
        assert ledger is None


def test_a_transaction_that_only_keeps_the_books_leaves_the_archive_untouched(notes):
    """Same file, same time, same number: nothing was rewritten."""
    notes.holds({"id": "a", "text": "tea"})
    before = notes.path.stat()
    with notes.open(in_place=True).transaction() as transaction:
        transaction.ledger.begin(RUN, NINE)

    assert notes.path.stat() == before
    with notes.open().ledger() as ledger:
        assert ledger is not None
        assert [run.run_id for run in ledger.runs()] == [RUN.run_id]


KILLED = """
import os, signal, sys
from datetime import UTC, datetime
from memfold_flows.stores import archive_landing, open_store
from memfold_flows.stores.base import RunRef

path, way, step = sys.argv[1:]
moment, call, count = step.split()
original, calls = getattr(os, call), []

def die(*arguments, **options):
    calls.append(arguments)
    last = len(calls) == int(count)
    if not last or moment == "after":
        original(*arguments, **options)
    if last:
        os.kill(os.getpid(), signal.SIGKILL)

options = {"in_place": True} if way == "in place" else {"out": way}
with open_store(f"jsonl:{path}", **options).transaction() as transaction:
    transaction.read(["b"])
    transaction.delete(["b"])
    transaction.ledger.begin(RunRef("r1"), datetime(2026, 6, 1, tzinfo=UTC))
    setattr(os, call, die)
"""


@pytest.mark.parametrize(
    ("way", "step", "has_landed"),
    [
        ("in place", "before fsync 1", False),
        ("in place", "after fsync 2", False),
        ("in place", "before replace 1", False),
        ("in place", "after replace 1", True),
        ("in place", "before replace 2", True),
        ("in place", "after replace 2", True),
        ("out", "before link 1", False),
        ("out", "after link 1", True),
        ("out", "before replace 1", True),
        ("out", "after replace 1", True),
    ],
)
def test_a_kill_at_any_step_leaves_file_and_ledger_of_one_mind(notes, another, way, step, has_landed):
    """Either both know of the run, or neither does; the next writer settles it and goes on."""
    notes.holds({"id": "a", "text": "tea"}, {"id": "b", "text": "tea"})
    target = notes if way == "in place" else another("folded.jsonl")
    options = {"in_place": True} if way == "in place" else {"out": target.path}
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, notes.path, options.get("out", way), step],
        check=False,
        capture_output=True,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr

    def what_is_there():
        with notes.open(**options).ledger() as ledger:
            is_booked = ledger is not None and ledger.run("r1") is not None
        return is_booked, list(target.snapshot()) if target.path.exists() else None

    unchanged = ["a", "b"] if way == "in place" else None
    assert what_is_there() == (has_landed, ["a"] if has_landed else unchanged)
    with notes.open(**options).transaction():
        pass
    assert what_is_there() == (has_landed, ["a"] if has_landed else unchanged)
    assert sorted(os.listdir(target.path.parent / ".memfold")) == [f"{target.path.name}.db", f"{target.path.name}.lock"]


def test_a_left_over_of_a_crash_is_dropped_once_the_archive_was_edited(notes):
    """The intent names a version that never landed; the archive's own ledger stands."""
    notes.holds({"id": "a", "text": "tea"})
    landing = Landing(notes.path)
    landing.folder.mkdir()
    (landing.folder / "notes.jsonl.intent").write_text("0" * 64)
    landing.next_ledger.write_bytes(b"half a database")
    landing.new.write_bytes(b"half an archive")
    notes.remove("a", in_place=True)

    assert sorted(os.listdir(landing.folder)) == ["notes.jsonl.db", "notes.jsonl.lock"]
