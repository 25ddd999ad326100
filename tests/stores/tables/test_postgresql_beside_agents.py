"""PostgreSQL with others at work: rows that agents hold, a server that goes away, a second memfold."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import replace

import pytest

from memfold.errors import Transient
from memfold.memory import Memory
from memfold_flows.stores import open_store, postgresql_connections

ANN = Memory(memory_id="ann", content="Deploys need two approvals.", scope="team")
BOB = Memory(memory_id="bob", content="deploys need two approvals!", scope="team")
CAT = Memory(memory_id="cat", content="The old wiki is gone.", scope="team")


@pytest.fixture
def filled(fill_postgresql):
    """Two copies and another note of one team."""
    return fill_postgresql(ANN, BOB, CAT)


@pytest.fixture
def night(filled, a_pass):
    """A pass that merges bob into ann."""
    return a_pass(filled.open()).plan(merge={"bob": "ann"})


@pytest.fixture
def impatient(monkeypatch):
    """A memfold that waits for a lock no longer than a test does."""
    monkeypatch.setattr(postgresql_connections, "LOCK_SECONDS", 0.2)


def test_a_row_that_an_agent_holds_is_waited_for_and_then_said_to_be_busy(filled, night, connect, impatient):
    """Nothing is written; the same apply works once the agent is done."""
    before = filled.contents()
    agent = connect(filled.url)
    agent.execute("begin; update memories set content = 'Deploys need three.' where memory_id = 'bob'")

    with pytest.raises(Transient, match=r"stayed locked for .* s; this transaction changed nothing. Try again"):
        night.apply()
    agent.execute("rollback")

    assert filled.contents() == before
    assert night.apply().merged == 1


def test_what_an_agent_commits_while_memfold_waits_for_the_row_is_kept(filled, night, connect):
    """The digest is compared with the row as it is once the lock is there."""
    agent = connect(filled.url)
    agent.execute("begin; update memories set content = 'Deploys need three.' where memory_id = 'bob'")
    writing = threading.Timer(0.3, lambda: agent.execute("commit"))
    writing.start()

    report = night.apply()
    writing.join()

    assert [(drift.memory_id, drift.why) for drift in report.drifted] == [("bob", "was changed since the snapshot")]
    assert filled.execute("select content from memories where memory_id = 'bob'") == [("Deploys need three.",)]


def test_an_agent_writes_every_other_row_while_memfold_is_at_it(filled, night, connect):
    """Only the rows that the plan compares are locked, and only against being changed: they can be read."""
    agent = connect(filled.url)
    agent.execute("set lock_timeout = '1s'")

    def write_meanwhile(*_):
        agent.execute("update memories set content = 'The new wiki is here.' where memory_id = 'cat'")
        agent.execute("insert into memories (memory_id, content) values ('dan', 'Standup is at ten.')")
        assert agent.execute("select count(*) from memories").fetchone() == (4,)

    assert night.apply(undo=write_meanwhile).merged == 1
    assert sorted(filled.contents()) == ["ann", "cat", "dan"]


def test_an_agent_that_waits_for_a_row_gets_it_when_memfold_is_done(filled, night, connect):
    """An update of a row that was merged away finds no row, as after any delete; one of a survivor lands."""
    agent = connect(filled.url)
    counts = []

    def wait_for_rows():
        for name in ("ann", "bob"):
            done = agent.execute("update memories set title = 'Approvals' where memory_id = %s", (name,))
            counts.append(done.rowcount)

    waiting = threading.Thread(target=wait_for_rows)
    night.apply(undo=lambda *_: waiting.start())
    waiting.join(10)

    assert counts == [1, 0]
    assert filled.execute("select title from memories where memory_id = 'ann'") == [("Approvals",)]


def test_two_memfolds_take_turns(filled, night, impatient):
    """The second one waits for as long as an agent would, and says that the store is busy."""
    with filled.open().transaction(), pytest.raises(Transient, match="stayed locked"):
        night.apply()

    assert night.apply().merged == 1


def test_a_server_that_ends_the_connection_leaves_everything_as_it_was(filled, night, connect):
    """As after an administrator's command or a crash of the server process; the next apply does all of it."""
    before = filled.contents()
    others = connect(filled.url)

    def end(*_):
        others.execute("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'memfold'")

    with pytest.raises(Transient, match="the server went away; this transaction was cut off, and landed as a whole or"):
        night.apply(undo=end)

    assert filled.contents() == before
    assert night.apply().merged == 1
    assert night.undo().restored == 1
    assert filled.contents() == before


def test_a_statement_that_takes_too_long_is_given_up(filled, night, monkeypatch):
    """A trigger of the table's owner that never ends must not hold the rows for ever."""
    monkeypatch.setattr(postgresql_connections, "STATEMENT_SECONDS", 0.3)
    filled.execute(
        "create function slow() returns trigger language plpgsql as 'begin perform pg_sleep(30); return old; end'"
    )
    filled.execute("create trigger slow before delete on memories for each row execute function slow()")

    with pytest.raises(Transient, match="a statement was cancelled, or took longer"):
        night.apply()

    assert sorted(filled.contents()) == ["ann", "bob", "cat"]


def test_a_commit_waits_for_the_disk_whatever_the_database_is_set_to(filled, connect):
    """And for a standby, where the database asks for more than that."""

    def says():
        with filled.open().transaction() as transaction:
            return transaction.ledger._tables.read("show synchronous_commit")

    filled.execute(f'alter database "{filled.url.rsplit("/", 1)[1]}" set synchronous_commit = off')
    assert says() == [("on",)]
    filled.execute(f'alter database "{filled.url.rsplit("/", 1)[1]}" set synchronous_commit = remote_apply')
    assert says() == [("remote_apply",)]


def test_no_server_at_the_port_is_said_so(postgresql_server):
    """It may come back, so the call may be tried again."""
    url = postgresql_server.url().replace(str(postgresql_server.port), "1")

    with pytest.raises(Transient, match=r"127.0.0.1:1/postgres: no connection .*nothing was read or written"):
        open_store(url)


def test_a_snapshot_that_is_given_up_leaves_no_connection(filled, connect):
    """Whoever stops reading in the middle keeps no transaction open on the server."""
    batches = filled.open().snapshot()
    next(batches)
    batches.close()

    query = "select count(*) from pg_stat_activity where application_name = 'memfold' and datname = current_database()"
    with closing(connect(filled.url)) as other:
        for _ in range(50):
            if other.execute(query).fetchone() == (0,):
                break
            other.execute("select pg_sleep(0.1)")
        assert other.execute(query).fetchone() == (0,)


def test_what_an_agent_process_wrote_is_there_after_a_pass_over_the_same_rows(fill_postgresql, a_pass, tmp_path):
    """A process that updates, deletes and inserts at random while 2,000 copies are merged: its log is what counts."""
    filled = fill_postgresql()
    filled.execute(
        "insert into memories (memory_id, scope, content) "
        "select n || '-' || side, 'team', 'Rule number ' || n || ' applies' || side "
        "from generate_series(1, 2000) n, unnest(array['', '.']) side"
    )
    store = filled.open()
    night = a_pass(store).plan(merge={f"{n}-.": f"{n}-" for n in range(1, 2001)})
    log, ended = tmp_path / "log", tmp_path / "ended"
    with subprocess.Popen([sys.executable, "-c", _AGENT, filled.url, str(log), str(ended)]) as agent:
        while not log.exists():
            assert agent.poll() is None
        store.traits = replace(store.traits, rows_per_transaction=200)
        report = night.apply()
        ended.touch()

    assert agent.returncode == 0
    wrote = [json.loads(line) for line in log.read_text().splitlines()]
    texts = {row["memory_id"]: row["content"] for row, _ in filled.contents().values()}
    for memory_id, content in {each["id"]: each["content"] for each in wrote}.items():
        assert texts.get(memory_id) == content
    assert len(wrote) > 50
    assert report.merged + len({drift.memory_id for drift in report.drifted if drift.memory_id.endswith(".")}) == 2000


#: An agent: it logs a write once the server has acknowledged that it changed a row.
_AGENT = """
import json, random, sys
from pathlib import Path
import psycopg

url, log, ended = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
draw = random.Random(7)
with psycopg.connect(url, autocommit=True) as agent, log.open("w") as done:
    number = 0
    while not ended.exists():
        number += 1
        name, text = f"{draw.randint(1, 2000)}-{draw.choice(['', '.'])}", f"Written by an agent, {number}."
        what = draw.choice(["update", "delete", "insert"])
        if what == "update":
            wrote = agent.execute("update memories set content = %s where memory_id = %s", (text, name)).rowcount
        elif what == "delete":
            wrote, text = agent.execute("delete from memories where memory_id = %s", (name,)).rowcount, None
        else:
            name = f"new-{number}"
            wrote = agent.execute(
                "insert into memories (memory_id, scope, content) values (%s, 'team', %s)", (name, text)
            ).rowcount
        if wrote:
            done.write(json.dumps({"id": name, "content": text}) + "\\n")
            done.flush()
"""
