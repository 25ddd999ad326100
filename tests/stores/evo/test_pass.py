"""Passes over evo's files: what they write, what they leave alone, and that evo can read all of it."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
from contextlib import closing
from dataclasses import replace
from datetime import timedelta

import pytest

from memfold import convergence
from memfold.errors import ApplyInterrupted, BadUsage, StoreError, Transient
from memfold_flows import pipeline
from memfold_flows.receipts import State
from memfold_flows.runs import RunDirectory
from memfold_flows.settings import Settings
from memfold_flows.stores.base import Update

from .conftest import ANA, NOW


def evos_digest(evo, scope=ANA):
    rows = [row for row in evo.rows().values() if row["scope_key"] == scope]
    listed = sorted(rows, key=lambda row: (-row["usage_count"], -row["updated_at"], row["id"]))
    return convergence.digest([row["title"] for row in listed], [row["content"] for row in listed])


def test_the_survivor_keeps_its_id_text_and_source_and_takes_the_rest(ports):
    """What evo's own consolidation forgets: uses are added, tags joined, the oldest creation kept."""
    before = ports.rows()

    receipt = ports.consolidate()

    assert (receipt.state, receipt.totals.merged) == (State.CONSOLIDATED, 1)
    after = ports.rows()
    assert after.keys() == before.keys() - {"port again"}
    assert after["port"] == before["port"] | {
        "usage_count": 3,
        "tags_json": '["ops","net"]',
        "updated_at": before["port again"]["updated_at"],
    }
    assert {name: row for name, row in after.items() if name != "port"} == {
        name: row for name, row in before.items() if name in after and name != "port"
    }


def test_one_event_says_what_was_consolidated(ports):
    """As evo writes it: the scope, how many there were and are, and the memories that stay."""
    ports.consolidate()

    [event] = ports.events
    assert (event["type"], event["scope"]) == ("memory.consolidated", {"type": "user", "id": "ana"})
    result = event["result"]
    assert (result["before"], result["after"], len(result["items"])) == (6, 5, 5)
    assert result["items"][0] == {
        "id": "port",
        "scope": {"type": "user", "id": "ana"},
        "kind": "fact",
        "title": "A note",
        "content": "Staging listens on port 8080",
        "tags": ["ops", "net"],
        "usageCount": 3,
        "createdAt": ports.rows()["port"]["created_at"],
        "updatedAt": ports.rows()["port"]["updated_at"],
        "source": {"runtime": "evo", "sessionId": "s1", "turn": 3},
    }
    [row] = ports.rows("memory_events").values()
    assert (row["type"], row["created_at"]) == ("memory.consolidated", int(NOW.timestamp() * 1000))


def test_a_pass_with_nothing_to_do_and_an_undo_are_no_events(ports):
    """Nothing was consolidated by either."""
    before = ports.rows()
    ports.consolidate()
    pipeline.undo(ports.store, ports.last_run, clock=lambda: NOW)
    assert ports.rows() == before

    ports.consolidate()

    assert len(ports.events) == 1


def test_other_tables_and_skills_stay_as_they_are(make_evo):
    """Skills are never deduplicated or evicted; the schema version is evo's."""
    evo = make_evo(6)
    for name in ("deploy", "deploy-again"):
        evo.execute(
            "insert into skills (scope_key, scope_json, name, body_json, created_at, updated_at) "
            "values ('user:ana', '{}', ?, '{\"purpose\": \"Deploy\"}', 1, 1)",
            name,
        )
    for number in range(4):
        evo.distil(f"m{number}", "Use pnpm." if number < 2 else f"Note {number}")
    before = evo.rows("skills")

    evo.consolidate()

    assert evo.rows("skills") == before
    assert evo.rows("schema_meta") == {6: {"version": 6}}
    assert evo.rows("skill_lessons") == {}


def test_imported_and_hand_written_memories_stay_and_may_be_the_survivor(evo):
    """A person's words win over evo's; two of a person's both stay."""
    evo.write("by hand", "Use pnpm, not npm.")
    evo.write("imported", "use pnpm, not npm", source={"runtime": "workspace", "path": "/AGENTS.md"})
    evo.distil("distilled", "Use pnpm, not npm")

    evo.consolidate(max_loss_fraction=1.0)

    assert evo.rows().keys() == {"by hand", "imported"}
    assert evo.rows()["by hand"]["source_json"] is None


def test_memories_of_two_scopes_and_of_two_kinds_never_meet(evo):
    """A project of Ana's is another scope than Ana."""
    evo.distil("a", "Use pnpm.")
    evo.distil("b", "Use pnpm.", scope_key="user:bo")
    evo.distil("c", "Use pnpm.", scope_key="user:ana/project:site", scope_json='{"type":"project","id":"site"}')
    evo.distil("d", "Use pnpm.", kind="preference")

    assert evo.consolidate().state is State.NOTHING_TO_DO


def test_a_row_that_evo_would_refuse_is_never_written(ports):
    """The transaction that would write it changes nothing."""
    before = ports.rows()

    def write():
        with ports.store.transaction() as transaction:
            memory = transaction.read(["port"])["port"].memory
            transaction.delete(["note-0"])
            transaction.update([Update(memory, replace(memory, confidence=1.5))])

    with pytest.raises(StoreError, match="memory 'port' was not written: confidence is not a number from 0 to 1"):
        write()

    assert ports.rows() == before


def test_a_row_that_evo_would_refuse_is_not_restored(ports):
    """Undo data that somebody edited brings no broken row into evo's list."""
    with ports.store.transaction() as transaction:
        raw = transaction.read(["note-0"])["note-0"].raw
        transaction.delete(["note-0"])
    before = ports.rows()

    def restore():
        with ports.store.transaction() as transaction:
            transaction.restore({"note-0": raw.replace(b'"A note"', b'""')})

    with pytest.raises(StoreError, match="memory 'note-0' was not written: title is not a text"):
        restore()

    assert ports.rows() == before


def test_evo_may_have_the_file_open_and_write_meanwhile(ports):
    """A memory that evo writes while the pass is under way stays, in the same file in WAL mode."""
    with closing(sqlite3.connect(ports.path, isolation_level=None)) as theirs:
        theirs.execute("pragma journal_mode = wal")
        theirs.execute("begin")
        theirs.execute("select count(*) from memories").fetchone()
        ports.distil("new", "Written while memfold was at work")
        receipt = ports.consolidate()
        theirs.execute("commit")

    assert receipt.totals.merged == 1
    assert "new" in ports.rows()


def test_a_busy_file_changes_nothing_and_says_so(ports, monkeypatch):
    """Where evo holds the write lock for longer than memfold waits."""
    ports.store.close()
    monkeypatch.setattr(
        "memfold_flows.stores.evo.connect_writing",
        lambda path: sqlite3.connect(path, isolation_level=None, timeout=0.05),
    )
    before = ports.rows()
    with closing(sqlite3.connect(ports.path, isolation_level=None)) as theirs:
        theirs.execute("begin immediate")
        with pytest.raises(Transient, match="stayed locked"):
            ports.consolidate()
        theirs.execute("rollback")

    assert ports.rows() == before


def test_the_state_is_written_as_evo_writes_it(make_evo):
    """Milliseconds, evo's digest, the multiplier that grows with each quiet pass."""
    evo = make_evo(6)
    for number in range(5):
        evo.distil(f"m{number}", ("Use pnpm." if number < 2 else f"Note {number}"), title=f"Title {number // 2}")

    evo.consolidate()
    [first] = evo.rows("consolidation_state").values()
    evo.consolidate()
    [second] = evo.rows("consolidation_state").values()

    assert first == {
        "scope_key": ANA,
        "last_consolidate_at": int(NOW.timestamp() * 1000),
        "last_digest": evos_digest(evo),
        "converged": 0,
        "convergence_multiplier": 1.0,
    }
    assert second == first | {"converged": 1, "convergence_multiplier": 3.0}


def test_ten_nights_beside_evo(ports):
    """Activity, quiet, refused, activity again: converged, multiplier and the hours until the next pass is due.

    A refusal leaves evo's state as it was; the scope is due again after a day, or once something was written.
    """

    def night(**given):
        ports.service(**given).consolidate(ANA)
        began = ports.now
        for hours in (1, 23, 24, 71, 72, 215, 216):
            ports.now = began + timedelta(hours=hours)
            if ports.service().should_auto_consolidate(ANA).should_consolidate:
                break
        with ports.store.ledger() as ledger:
            state = ledger.state(ANA)
        return state.converged, state.multiplier, hours, state.refusal is not None

    told = [night() for _ in range(4)]
    told += [night(stale_min_age_days=10) for _ in range(2)]
    ports.distil("lamp", "The lamp above the sink flickers", age_days=3)
    ports.distil("lamp again", "the lamp above the sink flickers.", age_days=2)
    told += [night() for _ in range(4)]

    assert told == [
        (False, 1.0, 24, False),
        (True, 3.0, 72, False),
        (True, 9.0, 216, False),
        (True, 9.0, 216, False),
        (True, 9.0, 24, True),
        (True, 9.0, 24, True),
        (False, 1.0, 24, False),
        (True, 3.0, 72, False),
        (True, 9.0, 216, False),
        (True, 9.0, 216, False),
    ]


def test_the_state_that_evo_wrote_is_read(make_evo):
    """Its converged scope waits, and where a pass leaves its digest as it was, waits three times as long."""
    evo = make_evo(6)
    evo.distil("m1", "Use pnpm.")
    evo.execute(
        "insert into consolidation_state values (?, ?, ?, 1, 3.0)",
        *(ANA, int(NOW.timestamp() * 1000) - 71 * 3_600_000, evos_digest(evo)),
    )

    due = evo.service().should_auto_consolidate(ANA)
    evo.service().consolidate(ANA)

    assert (due.should_consolidate, due.reason, due.hours_since_last_consolidate) == (False, "none", 71.0)
    assert evo.rows("consolidation_state")[ANA]["convergence_multiplier"] == 9.0


def test_version_2_keeps_its_state_and_replay_beside_the_data(make_evo):
    """It has no tables for them, and gets none but memfold's own."""
    evo = make_evo(2)
    evo.distil("m1", "Use pnpm.")
    evo.service().append_replay(ANA, [{"title": "A note", "content": "Use pnpm.", "kind": "fact"}])

    evo.consolidate()

    tables = {name for (name,) in _query(evo.path, "select name from sqlite_schema where type = 'table'")}
    others = {name for name in tables if not name.startswith(("memfold_", "sqlite_"))}
    assert others == {"schema_meta", "memories", "memory_events"}
    with evo.store.ledger() as ledger:
        assert (ledger.state(ANA).converged, ledger.count_replay(ANA)) == (True, 0)


def test_replay_is_consumed_once_the_pass_has_landed_exactly_as_read(make_evo):
    """The oldest twenty batches of the scope; another scope's and the later ones wait."""
    evo = make_evo(6)
    evo.distil("m1", "Use pnpm.")
    for number in range(22):
        evo.reflect(f"Batch {number}")
    evo.reflect("Another's", scope="user:bo")

    evo.service().consolidate(ANA)

    consumed = [row["consumed"] for row in evo.rows("replay_buffer").values()]
    assert consumed == [1] * 20 + [0] * 3


def test_a_pass_that_was_cut_off_before_it_was_noted_is_noted_by_the_next_apply(make_evo, monkeypatch):
    """The rewrite has landed, the batches are still unconsumed; applying again writes no memory and ends it, once."""
    evo = make_evo(6)
    for number in range(4):
        evo.distil(f"m{number}", "Use pnpm." if number < 2 else f"Note {number}")
    evo.reflect("Note 3")
    with monkeypatch.context() as cut_off:
        cut_off.setattr("memfold_flows.noting._write", _disk_full)
        with pytest.raises(ApplyInterrupted, match="disk full"):
            evo.consolidate()
    half = (len(evo.rows()), evo.rows("replay_buffer")[1]["consumed"], evo.rows("consolidation_state"))

    for _ in range(2):
        pipeline.apply(evo.store, evo.last_run, clock=lambda: evo.now, keep_snapshots=True)

    assert half == (3, 0, {})
    assert (len(evo.rows()), evo.rows("replay_buffer")[1]["consumed"], len(evo.events)) == (3, 1, 1)
    assert evo.rows("consolidation_state")[ANA]["convergence_multiplier"] == 1.0


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"content": "Use pnpm.", "kind": "fact"}, "entry 1 of the batch has no title"),
        (
            {"title": "", "content": "Use pnpm.", "kind": "fact"},
            "entry 1 of the batch has the title ''; evo wants a text",
        ),
        ({"title": "A note", "content": "Use pnpm."}, "entry 1 of the batch has no kind; evo wants one of fact"),
        ({"title": "A note", "content": "Use pnpm.", "kind": "rumour"}, "entry 1 of the batch has the kind 'rumour'"),
    ],
)
def test_an_entry_that_evo_would_refuse_is_not_put_into_its_buffer(evo, entry, says):
    """evo makes memories of what it reads there; nothing of the batch is appended."""
    evo.distil("m1", "Use pnpm.")
    service = evo.service()

    with pytest.raises(BadUsage, match=f"^{says}.*; nothing was appended$"):
        service.append_replay(ANA, [{"title": "A note", "content": "Use pnpm.", "kind": "fact"}, entry])

    assert service.should_auto_consolidate(ANA).replay_size == 0


def test_a_batch_for_a_scope_that_evo_could_not_have_is_refused(evo):
    """It would wait for ever; an empty batch is none, so it makes no scope due."""
    evo.distil("m1", "Use pnpm.")
    service = evo.service()

    with pytest.raises(BadUsage, match=r"^'ana' is no scope of evo's, such as global, .*; nothing was appended$"):
        service.append_replay("ana", [{"title": "A note", "content": "Use pnpm.", "kind": "fact"}])
    service.append_replay(ANA, [])
    service.append_replay(ANA, [{"title": "A note", "content": "Use pnpm.", "kind": "fact"}])

    assert service.should_auto_consolidate(ANA).replay_size == 1
    with evo.store.ledger() as ledger:
        assert [batch.scope for batch in ledger.replay()] == [ANA]


def test_replay_stays_unconsumed_where_the_pass_is_refused(make_evo):
    """The evidence is for the pass that will land."""
    evo = make_evo(6)
    for number in range(10):
        evo.distil(f"m{number}", f"Note {number} of {number}", age_days=300 if number < 4 else 1)
    evo.reflect("Note 1 of 1")
    before = evo.rows()

    receipt = evo.consolidate(stale_min_age_days=100)

    assert receipt.state is State.REJECTED
    assert evo.rows() == before
    assert [row["consumed"] for row in evo.rows("replay_buffer").values()] == [0]
    assert evo.rows("consolidation_state") == {}
    due = evo.service().should_auto_consolidate(ANA)
    assert (due.should_consolidate, due.refusal) == (
        False,
        "4 of 10 memories would be lost (0.4), the limit is 0.25",
    )


def test_replay_is_evidence_in_the_run(make_evo):
    """Each entry is a row of the run with an id of its own, and none of them is kept or removed."""
    evo = make_evo(6)
    evo.distil("m1", "Use pnpm, not npm", age_days=2)
    evo.reflect("use pnpm, not npm.", "Ann drinks tea")

    evo.consolidate()

    assert evo.last_run.read("evidence")["memory_id"].to_pylist() == ["replay:1:0", "replay:1:1"]
    assert evo.last_run.read("sightings").to_pylist() == [{"memory_id": "m1", "batch": 1, "is_birth": False}]
    assert evo.last_run.read("plan")["memory_id"].to_pylist() == ["m1"]


def test_no_text_of_a_replay_batch_stays_in_the_run_after_its_apply(make_evo):
    """evo keeps the batch itself; the run keeps which entry told which memory, and stays sound."""
    evo = make_evo(6)
    evo.distil("m1", "Use pnpm, not npm", age_days=2)
    evo.reflect("use pnpm, not npm.", "The door code is 4711")

    evo.consolidate()
    pipeline.apply(evo.store, evo.last_run, clock=lambda: NOW)

    assert evo.last_run.verify().snapshot_trimmed
    assert [(row["memory_id"], row["title"], row["content"]) for row in evo.last_run.read("evidence").to_pylist()] == [
        ("replay:1:0", None, ""),
        ("replay:1:1", None, ""),
    ]
    kept = [path for path in evo.last_run.path.rglob("*") if path.is_file() and b"4711" in path.read_bytes()]
    assert kept == []


def test_a_batch_that_cannot_be_read_is_consumed_and_stays_where_it_is(make_evo):
    """It would make its scope due for ever."""
    evo = make_evo(6)
    evo.distil("m1", "Use pnpm.")
    evo.execute(
        "insert into replay_buffer (scope_key, scope_json, batch_json, created_at) values (?, '{}', '{', 1)", ANA
    )

    evo.consolidate()

    assert [(row["batch_json"], row["consumed"]) for row in evo.rows("replay_buffer").values()] == [("{", 1)]


def test_a_scope_over_evos_cap_comes_down_pass_by_pass(make_evo):
    """The preset evicts the lowest scores up to the limit; newborns and a person's memories stay."""
    evo = make_evo(6)
    for number in range(12):
        evo.distil(f"own-{number:02}", f"Own note {number} about {number}", usage_count=number, age_days=40)
    evo.distil("newborn", "Seen this morning", age_days=0.5)
    evo.write("by hand", "Ann is allergic to nuts", age_days=400)

    first = evo.consolidate(max_memories=8, on_excess="fit")

    assert (first.state, first.totals.pruned, first.totals.waits) == (State.CONSOLIDATED, 3, 3)
    assert evo.rows().keys() >= {"newborn", "by hand", "own-03", "own-11"}
    assert {"own-00", "own-01", "own-02"}.isdisjoint(evo.rows())


def test_an_eviction_waits_where_the_memory_was_recalled_meanwhile(make_evo):
    """A recall sets updated_at."""
    evo = make_evo(6)
    for number in range(8):
        evo.distil(f"m{number}", f"Own note {number} about {number}", usage_count=number, age_days=40)
    run = RunDirectory.create(evo.path.parent / "night", "night")
    policy = Settings({"max_memories": 7}).policy(as_of=NOW, traits=evo.store.traits)
    pipeline.plan(evo.store, run, policy, clock=lambda: NOW)
    evo.execute("update memories set usage_count = usage_count + 1, updated_at = ?", int(NOW.timestamp() * 1000) + 1)

    receipt = pipeline.apply(evo.store, run, clock=lambda: NOW)

    assert [drift.why for drift in receipt.drifted] == ["was used since the snapshot"]
    assert len(evo.rows()) == 8


def test_rows_written_by_a_pass_pass_evos_rules(ports):
    """evo's rules in JavaScript, over every row and item that a pass and its undo left."""
    node = shutil.which("node") or pytest.skip("node is not installed")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    if int(version.lstrip("v").split(".")[0]) < 20:
        pytest.skip(f"node is {version.strip()}, older than 20")
    ports.consolidate()
    rows = [*ports.rows().values()]
    pipeline.undo(ports.store, ports.last_run, clock=lambda: NOW)
    rows += ports.rows().values()

    said = subprocess.run([node, "-e", _EVOS_RULES], input=json.dumps(rows), capture_output=True, text=True, check=True)

    assert json.loads(said.stdout) == []
    assert len(rows) == 11


_EVOS_RULES = """
const rows = JSON.parse(require('node:fs').readFileSync(0, 'utf8'));
const text = value => typeof value === 'string' && value.length > 0;
const count = value => Number.isSafeInteger(value) && value >= 0;
const scope = value => ['global', 'user', 'project', 'session', 'conversation'].includes(value.type)
  && (value.type === 'global' || text(value.id)) && (value.parent === undefined || scope(value.parent));
const source = value => text(value.runtime) && (value.sessionId === undefined || text(value.sessionId))
  && (value.turn === undefined || count(value.turn)) && (value.path === undefined || text(value.path));
const key = value => (value.parent ? key(value.parent) + '/' : '')
  + (value.type === 'global' ? 'global' : value.type + ':' + encodeURIComponent(value.id));
const isGood = row => text(row.id) && text(row.title) && text(row.content)
  && ['fact', 'preference', 'constraint', 'procedure', 'skill'].includes(row.kind)
  && JSON.parse(row.tags_json).every(text) && scope(JSON.parse(row.scope_json))
  && key(JSON.parse(row.scope_json)) === row.scope_key
  && (row.confidence === null || (row.confidence >= 0 && row.confidence <= 1))
  && [row.usage_count, row.created_at, row.updated_at].every(count)
  && (row.source_json === null || source(JSON.parse(row.source_json)));
console.log(JSON.stringify(rows.filter(row => !isGood(row)).map(row => row.id)));
"""


def _disk_full(*_):
    raise OSError("disk full")


def _query(path, statement):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(statement).fetchall()
