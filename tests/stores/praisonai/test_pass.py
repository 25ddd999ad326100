"""A whole pass over a memory that the real PraisonAI wrote and reads back."""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from memfold_flows.receipts import State
from memfold_flows.runs import RunDirectory

pytestmark = pytest.mark.praisonai

GROUND_TRUTH = Path(__file__).parents[2] / "data/praisonai/ground_truth.json"
REMINDER = "Reminder: rotate the staging signing key before the end of the week."
SESSION_2 = {"category": "todo", "user_id": "team-a", "session_id": "session-2"}


@pytest.fixture
def night(sample, night_over) -> Any:
    """The passes of one night over the sample."""
    return night_over(f"praisonai:{sample.folder}")


@pytest.fixture
def remembering(sample, tmp_path, monkeypatch) -> Iterator[Callable[[], Any]]:
    """Opens the sample with PraisonAI's own ``Memory``; its constructor makes a folder where one works."""
    monkeypatch.setenv("PRAISONAI_TELEMETRY_DISABLED", "true")
    workplace = tmp_path / "workplace"
    workplace.mkdir()
    monkeypatch.chdir(workplace)
    from praisonaiagents.memory import Memory

    config = {"provider": "sqlite"} | {
        name: str(sample.folder / file) for name, file in (("short_db", "short_term.db"), ("long_db", "long_term.db"))
    }
    opened: list[Any] = []

    def open_memory() -> Any:
        opened.append(Memory(config))
        return opened[-1]

    yield open_memory
    for memory in opened:
        memory.close_connections()


def test_a_copy_in_another_session_is_held_back_and_nothing_changes(sample, night):
    """PraisonAI recalls by equality of session ids, so folding short-term 14 and 15 would hide one of them."""
    before = sample.rows()

    run = night.plan()
    receipt = night.apply(run)

    assert actions(run, but="kept") == {"short_term:15": ("keep", "held")}
    assert receipt.state is State.NOTHING_TO_DO
    assert sample.rows() == before


def test_a_copy_in_the_same_session_folds_and_comes_back(sample, night, remembering):
    """Exactly the copy goes; PraisonAI finds all the others, and an undo restores the copy under its own id."""
    memory = remembering()
    copy_id = memory.store_short_term(REMINDER, metadata=dict(SESSION_2), evaluator_quality=0.6)
    before = sample.rows()

    run = night.plan()
    receipt = night.apply(run)

    assert copy_id == "25"
    assert receipt.state is State.CONSOLIDATED
    assert sample.rows() == {
        "short_term": [row for row in before["short_term"] if row[0] != 25],
        "long_term": before["long_term"],
    }
    assert listed(remembering()) == {f"{tier}:{row[0]}" for tier in before for row in before[tier]} - {"short_term:25"}
    assert found_in_sessions(remembering()) == {"14": "session-2", "15": "session-3"}

    assert night.undo(run).report.restored == 1
    assert sample.rows() == before
    assert found_in_sessions(remembering()) == {"14": "session-2", "15": "session-3", "25": "session-2"}


def test_metadata_of_the_copy_is_added_and_the_text_and_time_of_the_survivor_stay(sample, night, remembering):
    """What the survivor says wins; what it does not say is taken over, and reverted by an undo."""
    remembering().store_short_term(
        REMINDER, metadata={**SESSION_2, "category": "note", "due": "Friday", "quality": 0.5}
    )
    before = sample.rows()

    run = night.plan()
    receipt = night.apply(run)

    survivor = before["short_term"][13]
    assert sample.rows()["short_term"][13] == (
        14,
        survivor[1],
        '{"category": "todo", "user_id": "team-a", "session_id": "session-2", "quality": 0.6, "due": "Friday"}',
        survivor[3],
    )
    assert [(each.memory_id, each.why) for each in receipt.metadata_conflicts] == [
        ("short_term:14", "keeps its own category, quality")
    ]
    night.undo(run)
    assert sample.rows() == before


def test_an_id_that_both_tiers_have_names_one_row_only(sample, night, remembering):
    """Short-term 25 and long-term 25 are two memories; folding the one leaves the other."""
    remembering().store_short_term(REMINDER, metadata=dict(SESSION_2), evaluator_quality=0.6)

    night.apply(night.plan())

    assert "short_term:25" not in listed(remembering())
    assert "long_term:25" in listed(remembering())


def test_what_another_process_writes_between_plan_and_apply_survives(sample, night, remembering):
    """A copy that changed is no longer the copy that was judged; a new memory was never in the plan."""
    memory = remembering()
    memory.store_short_term(REMINDER, metadata=dict(SESSION_2), evaluator_quality=0.6)
    memory.store_short_term(REMINDER, metadata=dict(SESSION_2), evaluator_quality=0.6)
    run = night.plan()
    in_another_process(
        "import sqlite3, sys\n"
        "con = sqlite3.connect(sys.argv[1])\n"
        "con.execute(\"update short_term_memory set content = 'Rotate the signing key on Monday.' where id = 25\")\n"
        "con.execute(\"insert into short_term_memory (content, metadata) values ('The key was rotated.', '{}')\")\n"
        "con.commit()",
        sample.folder / "short_term.db",
    )

    receipt = night.apply(run)

    assert receipt.state is State.PARTLY_APPLIED
    assert [(each.memory_id, each.why) for each in receipt.drifted] == [
        ("short_term:25", "was changed since the snapshot")
    ]
    assert [(row[0], row[1]) for row in sample.rows()["short_term"] if row[0] > 24] == [
        (25, "Rotate the signing key on Monday."),
        (27, "The key was rotated."),
    ]


def test_a_survivor_that_is_gone_holds_back_its_whole_cluster(sample, night, remembering):
    """Removing the copy then would remove the last one."""
    memory = remembering()
    memory.store_short_term(REMINDER, metadata=dict(SESSION_2), evaluator_quality=0.6)
    run = night.plan()
    memory.delete_short_term("14")

    receipt = night.apply(run)

    assert receipt.state is State.PARTLY_APPLIED
    assert found_in_sessions(remembering()) == {"15": "session-3", "25": "session-2"}


def test_repeated_turns_fold_within_their_tier_and_session_only(sample, night, remembering):
    """An agent writes each turn to both tiers on purpose; those twins stay, the same turn said again goes."""
    memory = remembering()
    turn = "User: Which region do we fail over to?\nAssistant: We fail over from eu-west to eu-north."
    for session in ("session-1", "session-9"):
        for store in (memory.store_short_term, memory.store_long_term):
            store(turn, metadata={"agent_id": "another agent", "user_id": "team-a", "session_id": session})

    run = night.plan()
    night.apply(run)

    assert {name for name in listed(remembering()) if text_of(sample, name) == turn} == {
        "short_term:24",
        "long_term:39",
        "short_term:26",
        "long_term:41",
    }


def test_turns_that_differ_in_a_word_stay(sample, night, remembering):
    """A transcript is not reworded: what was said is said."""
    remembering().store_short_term(
        "User: Which region do we fail over to?\nAssistant: We fail over from eu-west to the eu-north.",
        metadata={"user_id": "team-a", "session_id": "session-1"},
    )

    assert night.apply(night.plan()).state is State.NOTHING_TO_DO


@pytest.mark.parametrize("kind", ["sqlite", "file"])
def test_no_two_facts_become_one_where_sessions_are_no_wall(kind, sample, night_over, tmp_path):
    """The sample says which memories are one fact; production and staging, Tuesday and Thursday are not.

    Of its 13 redundant memories the one exact copy is found; the others say the fact in words of their own.
    """
    facts = {f"{row['tier']}:{row[f'{kind}_id']}": row["group"] for row in json.loads(GROUND_TRUTH.read_text())}
    if kind == "file":
        shutil.copytree(GROUND_TRUTH.parent / "file/team-a", tmp_path / "team-a")
    night = night_over(f"praisonai:{sample.folder}" if kind == "sqlite" else f"praisonai-file:{tmp_path}/team-a")

    run = night.plan(across_sessions=True)

    merges = [(row["memory_id"], row["into_id"]) for row in run.read("plan").to_pylist() if row["action"] == "merge"]
    assert {(facts[gone], facts[into]) for gone, into in merges if facts[gone] != facts[into]} == set()
    assert None not in {facts[gone] for gone, _ in merges}
    assert [facts[gone] for gone, _ in merges] == ["I"]


def test_rows_that_break_praisonai_are_not_touched_by_a_pass(sample, night):
    """They stay byte for byte, and the other memories are consolidated all the same."""
    sample.insert("short_term", REMINDER, SESSION_2)
    sample.insert("short_term", REMINDER, '{"user_id": "team-a", "session_id": "session-2"')
    sample.insert("short_term", REMINDER.encode(), SESSION_2)
    before = sample.rows()

    run = night.plan()
    night.apply(run)

    assert sample.rows()["short_term"] == [row for row in before["short_term"] if row[0] != 25]
    assert actions(run, but="held")["short_term:26"] == ("keep", "kept")


def test_a_promoted_memory_comes_back_to_its_tier_by_undo(sample, night, remembering):
    """It keeps its metadata and time in long term; turns keep their place, since both tiers have them by design."""
    before = sample.rows()

    run = night.plan(promote_min_age_days=30)
    receipt = night.apply(run)

    moved = [row for row in before["short_term"] if row[1].startswith("Vault token")]
    assert [row[1:] for row in sample.rows()["long_term"] if row[1].startswith("Vault token")] == [moved[0][1:]]
    assert [row[0] for row in sample.rows()["short_term"]] == [23, 24]
    assert len(receipt.new_ids) == 22
    assert len(listed(remembering())) == 63

    night.undo(run)
    assert sample.rows() == before


def test_a_promotion_says_what_became_of_each_id(sample, night):
    """The redirects name the long-term row, also for a copy that folded into the row before it moved."""
    sample.insert("short_term", REMINDER, SESSION_2)
    run = night.plan(promote_min_age_days=30)

    receipt = night.apply(run)

    new_id = receipt.new_ids["short_term:14"]
    assert text_of(sample, new_id) == REMINDER
    assert sample.execute("long_term", "select new_id from memfold_redirects where old_id = 'short_term:14'") == [
        (new_id,)
    ]
    with night.store.ledger() as ledger:
        assert ledger.resolve("short_term:25") == new_id
    undo_rows = {row["memory_id"]: row["into_id"] for row in run.undo_rows({0}).to_pylist()}
    assert undo_rows["short_term:25"] == new_id
    assert (receipt.totals.promoted, receipt.totals.lost, receipt.totals.merged) == (22, 0, 1)


def test_a_pair_in_wal_mode_is_folded_tier_by_tier_and_nothing_is_planned_to_move(sample, night_over):
    """Two files cannot change together there, so the plan has no promotion and the pass is not partial."""
    with closing(sqlite3.connect(sample.folder / "short_term.db")) as connection:
        connection.execute("pragma journal_mode = wal")
    sample.insert("short_term", REMINDER, SESSION_2)
    night = night_over(f"praisonai:{sample.folder}")

    run = night.plan(promote_min_age_days=30)
    receipt = night.apply(run)

    assert {row["action"] for row in run.read("plan").to_pylist()} == {"keep", "merge"}
    assert (receipt.state, receipt.totals.merged, receipt.totals.promoted) == (State.CONSOLIDATED, 1, 0)
    assert receipt.drifted == ()


def test_a_plan_that_cannot_promote_says_so(sample, command_line):
    """On the command line, with what would change it."""
    with closing(sqlite3.connect(sample.folder / "short_term.db")) as connection:
        connection.execute("pragma journal_mode = wal")

    said = command_line("plan", f"praisonai:{sample.folder}", "--promote-min-age-days", "30")

    assert said.code == 0
    assert "promote_min_age_days left out: this store moves no memory from tier to tier (one of its two files" in (
        said.stderr
    )


def test_rows_that_break_praisonai_are_counted_for_the_person_who_looks(sample, command_line):
    """The plan, the receipt and a later look at the run all say how many, and what is wrong with them."""
    sample.insert("short_term", REMINDER, '{"user_id": "team-a"')
    sample.insert("long_term", REMINDER.encode(), SESSION_2)
    left_alone = {"the content is not text": 1, "the metadata is not JSON": 1}

    planned = command_line("plan", f"praisonai:{sample.folder}")
    shown = command_line("show", "latest")

    for said in (planned.stdout, shown.stdout):
        assert "left alone: 1 row: the content is not text" in said
        assert "left alone: 1 row: the metadata is not JSON" in said
    assert json.loads(command_line("plan", f"praisonai:{sample.folder}", "--json").stdout)["left_alone"] == left_alone
    assert json.loads(command_line("show", "latest", "--json").stdout)["plan"]["left_alone"] == left_alone
    assert json.loads(command_line("run", f"praisonai:{sample.folder}", "--yes", "--json").stdout)["left_alone"] == (
        left_alone
    )


def test_a_run_that_writes_nothing_still_says_what_it_holds_back(sample, command_line):
    """The sample's one exact copy within a tier is recalled by two sessions."""
    ran = command_line("run", f"praisonai:{sample.folder}", "--yes")

    assert ran.code == 0
    assert "NOTHING TO DO" in ran.stdout
    assert "twins held apart" in ran.stdout
    assert "short_term:14" in ran.stdout
    assert "short_term:15" in ran.stdout
    held = json.loads(command_line("run", f"praisonai:{sample.folder}", "--yes", "--json").stdout)["held_back"]
    assert [(each["memory_id"], each["why"]) for each in held] == [
        ("short_term:15", "twin short_term:14 stays apart: another session: session-2 / session-3")
    ]


def test_a_pass_that_is_switched_off_does_nothing(sample, command_line):
    """``memory.consolidation.enabled`` in the file of the working folder."""
    sample.insert("short_term", REMINDER, SESSION_2)
    before = {path.name: path.read_bytes() for path in sample.folder.iterdir()}
    Path("memfold.yaml").write_text("memory: {consolidation: {enabled: false}}\n")

    ran = command_line("run", f"praisonai:{sample.folder}", "--yes", "--json")

    assert (ran.code, json.loads(ran.stdout)["state"]) == (0, "NothingToDo")
    assert {path.name: path.read_bytes() for path in sample.folder.iterdir()} == before


APPLY = """
import os, signal, sys, threading
from datetime import UTC, datetime
from pathlib import Path
from memfold_flows import pipeline
from memfold_flows.runs import RunDirectory
from memfold_flows.stores import open_store

folder, run, moment = Path(sys.argv[1]), RunDirectory.open(Path(sys.argv[2])), Path(sys.argv[1]) / sys.argv[3]

def content():
    return moment.read_bytes() if moment.exists() else b""

before = content()

def watch():
    while content() == before:
        pass
    os.kill(os.getpid(), signal.SIGKILL)

threading.Thread(target=watch, daemon=True).start()
pipeline.apply(open_store(f"praisonai:{folder}"), run, clock=lambda: datetime(2100, 1, 1, 3, 0, tzinfo=UTC))
"""


@pytest.mark.parametrize("moment", ["long_term.db", "short_term.db"])
def test_a_pass_that_is_killed_in_its_commit_is_wholly_undone_and_can_go_on(sample, night, remembering, moment):
    """The rows of both files and the record of them land together, so the same apply can simply be called again."""
    memory = remembering()
    for _ in range(8):
        memory.store_short_term(REMINDER, metadata=dict(SESSION_2), evaluator_quality=0.6)
        memory.store_long_term("Terraform state lives in the infra-state bucket, one key per environment.", metadata={
            "user_id": "team-a", "session_id": "session-3"
        })  # fmt: skip
    before = sample.rows()
    run = night.plan()
    new = {
        "short_term": [row for row in before["short_term"] if row[0] < 25],
        "long_term": [row for row in before["long_term"] if row[0] < 40],
    }

    in_another_process(APPLY, sample.folder, run.path, moment)
    listed(remembering())

    assert sample.rows() in (before, new)
    night.apply(run)
    assert sample.rows() == new
    night.undo(run)
    assert sample.rows() == before


@pytest.mark.parametrize("moment", ["long_term.db-wal", "short_term.db-wal"])
def test_a_pair_in_wal_mode_that_is_killed_in_its_commit_has_each_file_old_or_new(sample, night_over, moment):
    """Each file is a transaction of its own there; what one of them lacks, the next pass folds."""
    for tier in ("short_term", "long_term"):
        with closing(sqlite3.connect(sample.folder / f"{tier}.db")) as connection:
            connection.execute("pragma journal_mode = wal")
        for _ in range(8):
            sample.insert(tier, f"The {tier} pager moves on Tuesday.", SESSION_2, "2026-11-30 21:00:00")
    before = sample.rows()
    new = {
        tier: [row for row in rows if row[0] <= {"short_term": 25, "long_term": 40}[tier]]
        for tier, rows in before.items()
    }
    night = night_over(f"praisonai:{sample.folder}")
    run = night.plan()

    in_another_process(APPLY, sample.folder, run.path, moment)

    assert all(sample.rows()[tier] in (before[tier], new[tier]) for tier in before)
    night.apply(night.plan())
    assert sample.rows() == new


def test_a_pass_over_one_file_that_is_killed_in_its_commit_is_wholly_undone_and_can_go_on(
    tmp_path, monkeypatch, night_over
):
    """PraisonAI's db_path keeps both tiers in one file; the memory that moves up is never in both or in none."""
    monkeypatch.setenv("PRAISONAI_TELEMETRY_DISABLED", "true")
    monkeypatch.chdir(tmp_path)
    from praisonaiagents.memory import Memory

    memory = Memory({"provider": "sqlite", "db_path": str(tmp_path / "memory.db")})
    notes = [f"Shelf {number} holds winter tyres." for number in range(9)]
    for text in (*notes, REMINDER, REMINDER):
        memory.store_short_term(text, metadata={"user_id": "team-a"})
    before = sorted((each["type"], each["text"]) for each in memory.get_all_memories())
    night = night_over(f"praisonai:{tmp_path}/memory.db")
    run = night.plan(promote_min_age_days=1)

    in_another_process(APPLY, tmp_path / "memory.db", run.path, tmp_path / "memory.db")

    new = [("long_term", text) for text in [REMINDER, *notes]]
    now = sorted((each["type"], each["text"]) for each in memory.get_all_memories())
    assert now in (before, new)
    night.apply(run)
    assert sorted((each["type"], each["text"]) for each in memory.get_all_memories()) == new
    night.undo(run)
    assert sorted((each["type"], each["text"]) for each in memory.get_all_memories()) == before


def actions(run: RunDirectory, *, but: str) -> dict[str, tuple[str, str]]:
    """Action and reason of each memory, but for those with one reason."""
    plan = run.read("plan").to_pylist()
    return {row["memory_id"]: (row["action"], row["reason"]) for row in plan if row["reason"] != but}


def listed(memory: Any) -> set[str]:
    """What PraisonAI lists, by typed id."""
    return {f"{each['type']}:{each['id']}" for each in memory.get_all_memories()}


def found_in_sessions(memory: Any) -> dict[str, str]:
    """The short-term reminders that PraisonAI's search finds for each session, as id -> session."""
    return {
        found["id"]: session
        for session in ("session-1", "session-2", "session-3")
        for found in memory.search_short_term(
            "rotate the staging signing key", limit=50, user_id="team-a", metadata_filter={"session_id": session}
        )
        if found["text"] == REMINDER
    }


def text_of(files: Any, memory_id: str) -> str:
    tier, _, row_id = memory_id.partition(":")
    return files.execute(tier, f"select content from {tier}_memory where id = ?", int(row_id))[0][0]


def in_another_process(code: str, *arguments: object) -> None:
    """Run it to its end, or until it kills itself."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ended.returncode in (-signal.SIGKILL, 0), ended.stderr
