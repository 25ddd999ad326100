"""The ledger: what it remembers, and that it is nowhere until something is written."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest

from memfold.convergence import Refusal, ScopeState
from memfold.errors import StoreError, Transient
from memfold_flows.stores import bookkeeping
from memfold_flows.stores.base import Landed, Rejection, RunRecord, RunRef
from memfold_flows.stores.bookkeeping import Bookkeeping
from memfold_flows.stores.ledger_tables import PostgresqlTables, SqliteTables, ledger_name
from memfold_flows.stores.processes import has_ended, this_process

NOW = datetime(2026, 11, 30, 3, 0, tzinfo=UTC)
SOON = NOW + timedelta(minutes=2)
NIGHT = RunRef("night-1", "/var/runs/night-1", "digest")


@pytest.fixture
def sqlite_ledger():
    """An empty ledger in memory."""
    book = Bookkeeping(SqliteTables(sqlite3.connect(":memory:", isolation_level=None)))
    book.prepare()
    return book


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger(request):
    """An empty ledger in each database; the one on a server is gone with its transaction."""
    if request.param == "sqlite":
        yield request.getfixturevalue("sqlite_ledger")
        return
    with psycopg.connect(request.getfixturevalue("postgresql_server").url()) as connection:
        connection.execute('create schema "Agent 100%"')
        connection.execute('set local search_path to "Agent 100%"')
        book = Bookkeeping(PostgresqlTables(connection, schema="Agent 100%", table="memories"))
        book.prepare()
        yield book
        connection.rollback()


def test_a_store_without_tables_reads_as_one_without_history():
    """Reading asks for nothing to be made."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    book = Bookkeeping(SqliteTables(connection))

    assert (book.run("night-1"), book.runs(), book.landed("night-1", "apply")) == (None, [], [])
    assert (book.resolve("ann"), book.losses(NOW), book.rejected().num_rows) == ("ann", {}, 0)
    assert book.decided(["ann"]) == set()
    assert connection.execute("select name from sqlite_schema").fetchall() == []


def test_each_table_has_a_ledger_of_its_own():
    """Ids and scopes of two tables are not the same ones; names that look alike in lower case are told apart."""
    names = [ledger_name(table) for table in ("memories", "Notes", "notes", "100%", "x" * 60)]

    assert names[0] == "memfold_"
    assert names[1:3] == ["memfold_notes_8a7525_", "memfold_notes_ab5aa9_"]
    assert len(set(names)) == 5
    assert max(map(len, names)) < 45


def test_runs_are_known_from_their_beginning(ledger):
    """A run that began again is the same run; the newest comes first."""
    ledger.begin(NIGHT, NOW)
    ledger.begin(NIGHT, SOON)
    ledger.begin(RunRef("night-2"), SOON)
    ledger.finish("night-1", "apply", SOON)

    assert [run.run_id for run in ledger.runs()] == ["night-2", "night-1"]
    assert ledger.run("night-1") == RunRecord("night-1", "/var/runs/night-1", "digest", NOW, SOON, None)
    ledger.finish("night-1", "undo", SOON)
    assert ledger.run("night-1").undone_at == SOON


def test_what_landed_is_kept_per_step(ledger):
    """An apply and its undo do not count for one another."""
    part = Landed(batch=0, scope="team", first_unit=3, last_unit=7, report='{"merged": 2}')
    ledger.land("night-1", "apply", [part], NOW)

    assert ledger.landed("night-1", "apply") == [part]
    assert ledger.landed("night-1", "undo") == []


def test_an_id_leads_to_what_it_became_through_every_pass(ledger):
    """ann went into bob, bob into cat; a ring, which only a restored backup can make, ends somewhere."""
    ledger.redirect("night-1", {"ann": "bob"})
    ledger.redirect("night-2", {"bob": "cat"})
    assert (ledger.resolve("ann"), ledger.resolve("dan")) == ("cat", "dan")

    ledger.redirect("night-3", {"cat": "ann"})
    assert ledger.resolve("ann") in {"ann", "bob", "cat"}

    ledger.drop_redirects(["bob"])
    assert ledger.resolve("ann") == "bob"


def test_losses_are_counted_in_a_window_without_the_run_that_asks(ledger):
    """A pass that resumes counts its own losses itself."""
    ledger.lose("night-1", "team", 3, NOW)
    ledger.lose("night-2", "team", 2, SOON)
    ledger.lose("night-2", "team", 2, SOON)
    ledger.lose("night-2", "ops", 1, SOON)

    assert ledger.losses(NOW - timedelta(days=1)) == {"ops": 1, "team": 7}
    assert ledger.losses(NOW) == {"ops": 1, "team": 4}
    assert ledger.losses(NOW - timedelta(days=1), but="night-2") == {"team": 3}


def test_losses_that_were_given_back_are_none(ledger):
    """No more can be given back than was lost."""
    ledger.lose("night-1", "team", 3, NOW)
    ledger.give_back("night-1", "team", 1)
    assert ledger.losses(NOW - timedelta(days=1)) == {"team": 2}

    ledger.give_back("night-1", "team", 9)
    assert ledger.losses(NOW - timedelta(days=1)) == {}


def test_a_decision_is_remembered_once(ledger):
    """Two undos of the same merge are one rejection."""
    merge, prune = Rejection("ann", "bob", "d1", "d2"), Rejection("ann", None, "d1", None)
    ledger.reject([merge, prune])
    ledger.reject([merge])

    assert [tuple(row.values()) for row in ledger.rejected().to_pylist()] == [prune, merge]
    assert ledger.decided(["ann", "bob", "cat"]) == {"ann", "bob"}


def test_a_decision_is_carried_over_to_new_ids_and_digests_on_both_sides(ledger):
    """The old one stays: an undo brings the old rows back."""
    ledger.reject([Rejection("ann", "bob", "d1", "d2")])

    ledger.carry_rejections({("ann", "d1"): ("ann", "d3"), ("bob", "d2"): ("bob-2", "d4")})

    assert {tuple(row.values()) for row in ledger.rejected().to_pylist()} == {
        ("ann", "bob", "d1", "d2"),
        ("ann", "bob", "d3", "d2"),
        ("ann", "bob-2", "d1", "d4"),
        ("ann", "bob-2", "d3", "d4"),
    }


def test_a_lease_keeps_others_out_until_it_runs_out(ledger):
    """Each holder gets a number that no one had before."""
    assert ledger.take_lease("night-1", NOW, SOON) == 1
    with pytest.raises(Transient, match=r"run 'night-1' holds this store; .* until 03:02:00 UTC at most"):
        ledger.take_lease("night-2", NOW, SOON)

    assert ledger.take_lease("night-2", SOON, SOON + timedelta(minutes=2)) == 2


def test_the_same_holder_may_go_on_at_once_and_its_old_self_may_not(ledger):
    """A run that crashed is taken up by another process; if it only slept, it finds out."""
    old = ledger.take_lease("night-1", NOW, SOON)
    new = ledger.take_lease("night-1", NOW, SOON)

    ledger.renew_lease("night-1", new, SOON)
    with pytest.raises(StoreError, match="another memfold took over this store"):
        ledger.renew_lease("night-1", old, SOON)


def test_the_lease_of_a_process_that_was_killed_is_free_at_once(ledger):
    """Nobody waits two minutes for the dead; their old number writes nothing any more."""
    old = _taken_by_a_killed_process(ledger)

    new = ledger.take_lease("night-1 (undo)", NOW, SOON)

    assert new == old + 1
    with pytest.raises(StoreError, match="another memfold took over this store"):
        ledger.renew_lease("night-1", old, SOON)


@pytest.mark.parametrize(
    "mark",
    ["another-boot {ns} {pid} {start}", "{boot} pid:[1] {pid} {start}", "{boot} {ns} {own_pid} {own_start}", "", None],
)
def test_a_lease_is_kept_while_nobody_knows_that_its_process_ended(ledger, mark):
    """Of another machine, of another container, still alive, or never told: it runs out as ever."""
    _taken_by_a_killed_process(ledger)
    names = ("boot", "ns", "pid", "start")
    dead = dict(zip(names, ledger._tables.read("select process from memfold_lease")[0][0].split(), strict=True))
    own = dict(zip(("own_boot", "own_ns", "own_pid", "own_start"), this_process().split(), strict=True))
    mark = mark and mark.format(**dead, **own)
    ledger._tables.write("update memfold_lease set process = ?", (mark,))

    with pytest.raises(Transient, match="run 'night-1' holds this store"):
        ledger.take_lease("night-2", NOW, SOON)


def test_a_number_that_was_given_to_another_process_is_not_taken_for_the_old_one():
    """Process numbers come round again; the start tells the two apart."""
    *where, started = this_process().split()

    assert not has_ended(" ".join([*where, started]))
    assert has_ended(" ".join([*where, str(int(started) - 1)]))


def test_a_lease_that_was_given_back_is_free_and_its_number_is_not_used_again(ledger):
    """The number keeps growing over the life of the store."""
    ledger.release_lease("night-1", ledger.take_lease("night-1", NOW, SOON))

    assert ledger.take_lease("night-2", NOW, SOON) == 2


def test_tables_of_a_newer_memfold_are_refused(ledger):
    """An old program must not guess what a new one meant."""
    ledger._tables.write("update memfold_meta set value = '99' where name = 'schema_version'")

    with pytest.raises(StoreError, match="version 99, this memfold knows"):
        Bookkeeping(ledger._tables)


def test_tables_of_the_first_version_get_what_was_added_since(sqlite_ledger):
    """A store that an earlier memfold wrote keeps what it knows, and reads as one without state until then."""
    connection = sqlite_ledger._tables._connection
    sqlite_ledger.begin(NIGHT, NOW)
    connection.executescript(
        "drop table memfold_state; drop table memfold_replay; drop table memfold_forgotten; "
        "alter table memfold_lease drop column process; "
        "update memfold_meta set value = '1'"
    )
    book = Bookkeeping(SqliteTables(connection))
    assert (book.state("team"), book.noted_by("team"), book.replay(), book.count_replay("team")) == (
        ScopeState(),
        None,
        [],
        0,
    )

    book.prepare()

    book.append_replay("team", "{}", NOW)
    assert Bookkeeping(SqliteTables(connection)).count_replay("team") == 1
    assert book.run("night-1") is not None


def test_the_state_of_a_scope_is_kept_with_its_refusal(ledger):
    """And the run that left it, so that no run is noted twice."""
    refused = ScopeState(
        last_consolidate_at=NOW,
        last_digest="abc",
        converged=True,
        multiplier=3.0,
        refusal=Refusal(at=SOON, why="4 of 10 memories would be lost", digest="def"),
    )
    ledger.note_state("night-1", "team", ScopeState(last_consolidate_at=NOW))
    ledger.note_state("night-2", "team", refused)

    assert (ledger.state("team"), ledger.noted_by("team")) == (refused, "night-2")
    assert (ledger.state("other"), ledger.noted_by("other")) == (ScopeState(), None)


def test_replay_batches_wait_in_the_order_they_came(ledger):
    """A pass reads the oldest twenty of a scope; what it consumed it does not read again, and all of it stays."""
    for number in range(23):
        ledger.append_replay("team", f"batch {number}", NOW + timedelta(minutes=number))
    ledger.append_replay("other", "theirs", NOW)

    read = ledger.replay(["team"])

    assert [batch.batch_json for batch in read] == [f"batch {number}" for number in range(20)]
    assert {batch.scope for batch in ledger.replay()} == {"team", "other"}
    ledger.consume_replay([batch.batch for batch in read])
    assert [batch.batch_json for batch in ledger.replay(["team"])] == ["batch 20", "batch 21", "batch 22"]
    assert (ledger.count_replay("team"), ledger.count_replay("other")) == (3, 1)
    assert ledger._tables.read("select count(*) from memfold_replay") == [(24,)]


def test_a_file_store_has_its_ledger_in_a_folder_beside_it(tmp_path):
    """Reading makes neither; writing makes both, for their owner alone."""
    file = bookkeeping.ledger_file(tmp_path / "notes.jsonl")
    with bookkeeping.reading(file) as ledger:
        assert ledger is None
    assert list(tmp_path.iterdir()) == []

    with bookkeeping.writing(file) as ledger:
        ledger.begin(NIGHT, NOW)

    assert file == tmp_path / ".memfold" / "notes.jsonl.db"
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    with bookkeeping.reading(file) as ledger:
        assert [run.run_id for run in ledger.runs()] == ["night-1"]


def test_an_exception_takes_back_what_the_ledger_was_told(tmp_path):
    """All of a transaction or none."""
    file = bookkeeping.ledger_file(tmp_path / "notes.jsonl")

    def begin_and_fail():
        with bookkeeping.writing(file) as ledger:
            ledger.begin(NIGHT, NOW)
            raise KeyError

    with pytest.raises(KeyError):
        begin_and_fail()

    with bookkeeping.reading(file) as ledger:
        assert ledger is None or ledger.runs() == []


def _taken_by_a_killed_process(ledger):
    """The lease of night-1, taken by a process that is gone; returns its number."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    started = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19]
    fence = ledger.take_lease("night-1", NOW, SOON)
    mark = " ".join([*this_process().split()[:2], str(process.pid), started])
    ledger._tables.write("update memfold_lease set process = ?", (mark,))
    with pytest.raises(Transient):
        ledger.take_lease("night-2", NOW, SOON)
    process.kill()
    process.wait()
    return fence
