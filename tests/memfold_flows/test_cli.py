"""The command line: what each command says, which exit code it ends with, and what it leaves alone."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from .conftest import DAY, Ended, Kitchen

Command = Callable[..., Ended]
WriteArchive = Callable[..., Path]

COPIES = [
    {"id": "tea-1", "text": "Ann drinks green tea", "scope": "kitchen"},
    {"id": "tea-2", "text": "ann drinks green tea.", "scope": "kitchen"},
    {"id": "bread", "text": "Bob bakes rye bread on Fridays", "scope": "kitchen"},
    {"id": "hose", "text": "The hose leaks at the tap", "scope": "garden"},
]


@pytest.fixture
def notes(archive: WriteArchive) -> Path:
    """An archive of four memories, two of them copies."""
    return archive(COPIES, "notes.jsonl")


def test_the_main_job_from_plan_to_undo(command: Command, notes: Path) -> None:
    """Plan, show, export, apply, a plan that finds nothing, and everything back."""
    before = notes.read_bytes()

    planned = command("plan", f"jsonl:{notes}")
    shown = command("show", "latest")
    exported = command("export", "latest")
    applied = command("apply", "latest", "--in-place", "--yes")
    after = notes.read_bytes()
    again = command("plan", f"jsonl:{notes}")
    undone = command("undo", _run_id(applied), "--yes")

    assert [ended.code for ended in (planned, shown, exported, applied, again, undone)] == [0] * 6
    assert "ACCEPTED  4 memories: 1 to merge" in planned.out
    assert "fold into one (1)" in shown.out
    assert [json.loads(line) for line in exported.out.splitlines()] == _EXPORTED
    assert "CONSOLIDATED" in applied.out
    assert "1 merged, 0 pruned, 0 promoted, 0 lost" in applied.out
    assert len(after.splitlines()) == 3
    assert "NOTHING TO DO" in again.out
    assert "UNDONE" in undone.out
    assert notes.read_bytes() == before


_EXPORTED = [
    {"id": "bread", "scope": "kitchen", "action": "keep", "into": None, "reason": "kept"},
    {"id": "hose", "scope": "garden", "action": "keep", "into": None, "reason": "kept"},
    {"id": "tea-1", "scope": "kitchen", "action": "keep", "into": None, "reason": "kept"},
    {"id": "tea-2", "scope": "kitchen", "action": "merge", "into": "tea-1", "reason": "copy"},
]


def test_a_plan_writes_nothing_beside_the_store(command: Command, notes: Path, home: Path) -> None:
    """The run lies in the runs folder of memfold, private to its owner."""
    command("plan", f"jsonl:{notes}")

    assert [path.name for path in notes.parent.iterdir()] == ["notes.jsonl"]
    [run] = (home / "memfold/runs").iterdir()
    assert (run.stat().st_mode & 0o777, (run / "plan.parquet").stat().st_mode & 0o777) == (0o700, 0o600)


def test_the_text_of_a_memory_cannot_act_on_the_terminal(command: Command, archive: WriteArchive) -> None:
    """Escape sequences and direction marks are spelled out; brackets are no markup."""
    hostile = "\x1b[2J[bold]tea[/bold]\u202e"
    archive([{"id": "a", "text": hostile}, {"id": "b", "text": hostile.upper()}], "hostile.jsonl")

    out = command("plan", "jsonl:hostile.jsonl").out

    assert "\\u001b[2J[bold]tea[/bold]\\u202e" in out
    assert "\x1b" not in out


def test_the_differing_words_of_a_near_miss_are_marked(command: Command, archive: WriteArchive) -> None:
    """What looked alike is shown with the words that keep it apart."""
    archive(
        [
            {"id": "a", "text": "The backup job of the shop retries 3 times"},
            {"id": "b", "text": "The backup job of the shop retries 5 times"},
        ],
        "retries.jsonl",
    )

    out = command("plan", "jsonl:retries.jsonl").out

    assert "The backup job of the shop retries [-3-] times" in out
    assert "The backup job of the shop retries [-5-] times" in out


# What is refused


@pytest.fixture
def stale(kitchen: Kitchen) -> Kitchen:
    """A scope of ten memories of which four are old."""
    sentences = ("a lamp flickers", "rice boils over", "Eva sings alto", "mice dig holes", "rain fills barrels")
    for number, sentence in enumerate(
        (*sentences, "the lid is lost", "salt is out", "Jo mows", "bees hum", "ice melts")
    ):
        kitchen.remember(f"note-{number}", sentence, age=(3000 if number < 4 else 300) * DAY)
    return kitchen


def test_a_refused_run_names_the_scope_both_figures_and_two_ways_on(command: Command, stale: Kitchen) -> None:
    """Exit 3, and the store is unchanged."""
    before = stale.rows

    ended = command("run", f"sqlite:{stale.path}", "--yes", "--stale-min-age-days", 1500)

    assert ended.code == 3
    assert "REJECTED" in ended.out
    assert "refused: kitchen" in ended.out
    assert "4 of 10 memories would be lost (0.4), the limit is 0.25" in ended.out
    assert "loss 40.0% (4 of 10); with copies and expired ones 40.0% (4)" in ended.out
    assert "memfold plan ... --on-excess fit" in ended.out
    assert "memfold plan ... --max-loss-fraction 0.4" in ended.out
    assert stale.rows == before


def test_fit_removes_up_to_the_limit_and_says_what_waits(command: Command, stale: Kitchen) -> None:
    """Two of ten leave, two wait."""
    arguments = ("run", f"sqlite:{stale.path}", "--yes", "--stale-min-age-days", 1500, "--on-excess", "fit")

    ended = command(*arguments)

    assert ended.code == 0
    assert "0 merged, 2 pruned" in ended.out
    assert len(stale.ids) == 8
    assert "wait for the next pass (2)" in command("show", "latest").out


def test_a_plan_exits_0_whatever_the_gate_says(command: Command, stale: Kitchen) -> None:
    """Its verdict is in the text and in the JSON."""
    arguments = ("plan", f"sqlite:{stale.path}", "--stale-min-age-days", 1500)

    text, as_json = command(*arguments), command(*arguments, "--json")

    assert (text.code, as_json.code) == (0, 0)
    assert "REFUSED  10 memories: 0 to merge, 4 to leave; nothing of it will be written" in text.out
    planned = json.loads(as_json.out)
    assert (planned["verdict"], planned["loss_fraction"]) == ("refused", 0.4)
    assert planned["scopes"][0]["refused"] == ["4 of 10 memories would be lost (0.4), the limit is 0.25"]


@pytest.mark.parametrize("changed", ["member", "survivor"])
def test_drift_makes_an_apply_partial(command: Command, tea: Kitchen, changed: str) -> None:
    """Exit 4; the row is named, and nobody's change is overwritten."""
    command("plan", f"sqlite:{tea.path}")
    into = {row["into"] for row in map(json.loads, command("export", "latest").out.splitlines()) if row["into"]}
    copies = {"tea-1", "tea-2", "tea-3"}
    row = min(into) if changed == "survivor" else min(copies - into)
    tea.rewrite(row, "Ann drinks black coffee")

    ended = command("apply", "latest", "--yes", "--json")

    receipt = json.loads(ended.out)
    assert (ended.code, receipt["exit_code"], receipt["state"]) == (4, 4, "PartlyApplied")
    assert row in {drift["memory_id"] for drift in receipt["drifted"]}
    assert receipt["merged"] == (0 if changed == "survivor" else 1)
    assert tea.rows[row][4] == "Ann drinks black coffee"


# What is bad usage, and what fails


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["plan", "sqlite:missing.db"], "missing.db"),
        (["plan", "jsonl:missing.jsonl"], "missing.jsonl"),
        (["plan", "jsonl:."], "is a folder"),
        (["plan", "jsonl:empty.jsonl"], "is an empty file"),
        (["plan", "sqlite:notes.jsonl"], "notes.jsonl"),
        (["plan", "sqlite:."], ""),
        (["plan", "mysql:notes"], "no store is called 'mysql'"),
        (["plan", "notes.jsonl"], "names no scheme"),
        (["plan", "jsonl:notes.jsonl", "--max-loss-fraction", "nan"], "max_loss_fraction must be a number in [0, 1]"),
        (["plan", "jsonl:notes.jsonl", "--max-loss-fraction", "1.5"], "got 1.5"),
        (["plan", "jsonl:notes.jsonl", "--on-excess", "ignore"], "on_excess should be reject or fit, got 'ignore'"),
        (["plan", "jsonl:notes.jsonl", "--as-of", "yesterday"], "--as-of must be a date and time in ISO 8601"),
        (["plan", "jsonl:notes.jsonl", "--as-of", "0001-01-01T00:00:00+05:00"], "got '0001-01-01T00:00:00+05:00'"),
        (["plan", "jsonl:notes.jsonl", "--scope", "kitchn"], "did you mean 'kitchen'?"),
        (["plan", "sqlite:notes.db", "--skip-bad"], "--skip-bad is for jsonl: archives only"),
        (["plan", "jsonl:notes.jsonl", "--run-dir", "."], "exists and is not an empty folder"),
        (["run", "jsonl:notes.jsonl", "--yes"], "--out FILE for a new archive, or --in-place"),
        (["run", "jsonl:notes.jsonl", "--yes", "--in-place", "--out", "x"], "exclude each other"),
        (["run", "sqlite:notes.db", "--yes", "--in-place"], "are for archives"),
        (["show", "latest"], "there is no run"),
        (["show", "monday"], "no run 'monday'"),
        (["show", "notes.jsonl"], "is a file, not a run directory"),
        (["init", "jsonl:notes.jsonl"], "init makes sqlite: and postgresql: stores, not jsonl: (an archive is"),
        (["init", "evo:evo.db"], "not evo: (the program that writes it makes it when it first runs)"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_call_that_cannot_work_says_why_and_leaves_nothing_behind(
    command: Command, notes: Path, home: Path, arguments: Sequence[str], says: str
) -> None:
    """One message on standard error, no traceback, exit 1 or 2, and no run or file is made."""
    (notes.parent / "empty.jsonl").touch()
    before = {path.name: path.read_bytes() for path in notes.parent.iterdir()}

    ended = command(*arguments)

    assert ended.code in (1, 2)
    assert ended.out == ""
    assert ended.err.startswith("memfold: ")
    assert says in ended.err
    assert "Traceback" not in ended.err
    assert {path.name: path.read_bytes() for path in notes.parent.iterdir()} == before
    assert list((home / "memfold/runs").glob("*")) == []


def test_a_bad_line_stops_the_plan_with_its_number(command: Command, notes: Path) -> None:
    """And with --skip-bad it is set aside, counted, and stays where it is."""
    notes.write_text(notes.read_text() + "{oops\n")

    stopped = command("plan", f"jsonl:{notes}")
    skipped = command("run", f"jsonl:{notes}", "--skip-bad", "--in-place", "--yes", "--json")

    assert (stopped.code, skipped.code) == (1, 0)
    assert "line 5" in stopped.err
    assert "1 line cannot be read" in skipped.err
    run = Path(json.loads(skipped.out)["run_dir"])
    assert (run / "set_aside.jsonl").read_text() == "{oops\n"
    assert notes.read_text().splitlines()[-1] == "{oops"


def test_a_damaged_run_is_not_applied(command: Command, tea: Kitchen) -> None:
    """Exit 1, nothing written."""
    command("plan", f"sqlite:{tea.path}", "--run-dir", "friday")
    plan = tea.path.parent / "friday/plan.parquet"
    plan.write_bytes(plan.read_bytes()[:-1])

    ended = command("apply", "friday", "--yes")

    assert ended.code == 1
    assert "plan.parquet was changed or cut short" in ended.err
    assert len(tea.ids) == 8


# Asking


def test_without_a_terminal_a_run_that_would_write_needs_yes(command: Command, tea: Kitchen) -> None:
    """Exit 2; the plan stays, to be looked at and applied."""
    ended = command("run", f"sqlite:{tea.path}")

    assert ended.code == 2
    assert "no terminal to ask on, and no --yes; nothing was written" in ended.err
    assert len(tea.ids) == 8
    assert command("apply", "latest", "--yes").code == 0


def test_latest_with_yes_is_refused_where_two_stores_have_runs(command: Command, tea: Kitchen, notes: Path) -> None:
    """With --store it is clear which run is meant."""
    command("plan", f"jsonl:{notes}")
    command("plan", f"sqlite:{tea.path}")

    plain = command("apply", "latest", "--yes")
    named = command("apply", "latest", "--yes", "--store", f"sqlite:{tea.path}")

    assert (plain.code, named.code) == (2, 0)
    assert "2 stores" in plain.err
    assert len(tea.ids) == 6


@pytest.mark.parametrize(("answer", "left"), [("n", 8), ("y", 6)])
def test_on_a_terminal_a_run_asks_first(tea: Kitchen, answer: str, left: int) -> None:
    """It shows the plan; no declines it with exit 0, yes writes it."""
    code, out = _on_a_terminal(["run", f"sqlite:{tea.path}"], answer)

    assert code == 0
    assert "Write this plan?" in out
    assert "fold into one" in out
    assert ("declined; nothing was written" in out) is (answer == "n")
    assert len(tea.ids) == left


# The other commands


def test_out_writes_a_new_archive_and_undo_takes_it_back_there(command: Command, notes: Path) -> None:
    """The archive that was planned stays to the byte; the new one is what an undo changes."""
    before = notes.read_bytes()

    applied = command("run", f"jsonl:{notes}", "--out", "folded.jsonl", "--yes", "--json")
    folded = notes.parent / "folded.jsonl"
    lines = len(folded.read_bytes().splitlines())
    undone = command("undo", "latest", "--yes")

    assert (applied.code, undone.code, lines) == (0, 0, 3)
    assert json.loads(applied.out)["written_to"].endswith("folded.jsonl")
    assert notes.read_bytes() == before
    assert folded.read_bytes() == before


@pytest.mark.parametrize(("first", "second"), [("--in-place", "--out=a.jsonl"), ("--out=a.jsonl", "--in-place")])
def test_a_run_is_written_to_one_archive_only(command: Command, notes: Path, first: str, second: str) -> None:
    """A second target would take the place of the undo of the first, so it needs a plan of its own."""
    before = notes.read_bytes()
    planned = command("plan", f"jsonl:{notes}")

    applied = command("apply", "latest", first, "--yes")
    refused = command("apply", "latest", second, "--yes")
    again = command("apply", "latest", first, "--yes")
    undone = command("undo", "latest", "--yes")

    assert [ended.code for ended in (planned, applied, refused, again, undone)] == [0, 0, 2, 0, 0]
    assert "Plan again for that." in refused.err
    written = notes.parent / "a.jsonl"
    assert notes.read_bytes() == before
    assert not written.exists() or written.read_bytes() == before


def test_an_apply_after_its_undo_is_refused_in_plain_words(command: Command, tea: Kitchen) -> None:
    """It says that the run was taken back, and not that anything could go on."""
    command("plan", f"sqlite:{tea.path}")
    command("apply", "latest", "--yes")
    command("undo", "latest", "--yes")

    ended = command("apply", "latest", "--yes")

    assert ended.code == 2
    assert "was taken back at" in ended.err
    assert ended.err.endswith("nothing was written. Plan again.\n")
    assert len(tea.ids) == 8


@pytest.mark.parametrize("name", ["show", "export"])
def test_a_plan_without_its_columns_is_damaged(command: Command, notes: Path, home: Path, name: str) -> None:
    """A relation that is another one by now is a damaged run, not a traceback; its numbers are not shown."""
    command("plan", f"jsonl:{notes}")
    (run,) = (home / "memfold/runs").iterdir()
    shutil.copy(run / "tally.parquet", run / "plan.parquet")

    ended = command(name, "latest")

    assert ended.code == 1
    assert "plan.parquet was changed or cut short since it was planned" in ended.err


def test_a_reader_that_leaves_changes_no_exit_code(tea: Kitchen, tmp_path: Path) -> None:
    """`memfold run ... | true` writes and exits as it would with everything read."""
    memfold = [sys.executable, "-m", "memfold_flows.cli", "run", f"sqlite:{tea.path}", "--yes"]
    reader, writer = os.pipe()
    os.close(reader)

    with os.fdopen(writer, "wb") as nobody:
        environment = {**os.environ, "MEMFOLD_HOME": str(tmp_path / "home")}
        ended = subprocess.run(memfold, stdout=nobody, stderr=subprocess.PIPE, env=environment, check=False)

    assert (ended.returncode, ended.stderr) == (0, b"")
    assert len(tea.ids) == 6


def test_init_makes_an_empty_store_once(command: Command, tmp_path: Path) -> None:
    """A second init says that it is there; a plan over it has nothing to do."""
    made, again = command("init", "sqlite:new.db", "--json"), command("init", "sqlite:new.db", "--json")

    assert [json.loads(ended.out)["created"] for ended in (made, again)] == [True, False]
    assert "NOTHING TO DO" in command("plan", "sqlite:new.db").out


def test_stores_lists_every_kind_and_the_stores_with_runs(command: Command, notes: Path) -> None:
    """With its example, and the options of its URL with what they mean; what a flag says is none of them."""
    command("plan", f"jsonl:{notes}")

    listed = json.loads(command("stores", "--json").out)

    assert {"sqlite", "jsonl", "parquet", "praisonai"} <= {kind["scheme"] for kind in listed["kinds"]}
    [known] = listed["stores"]
    assert known["store"].endswith("notes.jsonl")
    options = {kind["scheme"]: set(kind["options"]) for kind in listed["kinds"]}
    assert (options["jsonl"], options["parquet"], options["evo"]) == ({"scope"}, {"scope"}, set())
    out = command("stores").out
    assert "jsonl:export.jsonl" in out
    assert "the fields that make the scope" in out
    assert "in_place" not in out


def test_show_says_what_became_of_a_run(command: Command, tea: Kitchen) -> None:
    """First nothing, then that it was applied, then that it was undone; and what to type next."""
    command("plan", f"sqlite:{tea.path}")
    planned = command("show", "latest").out
    command("apply", "latest", "--yes")
    applied = command("show", "latest").out
    command("undo", "latest", "--yes")
    undone = command("show", "latest").out

    assert [("memfold apply" in said, "memfold undo" in said) for said in (planned, applied, undone)] == [
        (True, False),
        (False, True),
        (False, False),
    ]
    assert not any(line.endswith("   more of it") for said in (planned, applied, undone) for line in said.splitlines())
    assert "UTC: 2 merged, 0 pruned, 0 promoted\n" in applied
    assert "taken back at" in undone
    assert "UTC: 2 restored\n" in undone
    assert f"memfold plan sqlite://{tea.path}   plan again" in undone


def test_what_is_refused_and_what_will_be_written_are_told_apart(command: Command, stale: Kitchen) -> None:
    """The figures of a plan that is refused in part are never added up to one."""
    stale.remember("hose-1", "The hose leaks at the tap", scope="garden", age=9 * DAY)
    stale.remember("hose-2", "the hose leaks at the tap.", scope="garden", age=8 * DAY)
    arguments = ("plan", f"sqlite:{stale.path}", "--stale-min-age-days", 1500)

    text, planned = command(*arguments).out, json.loads(command(*arguments, "--json").out)

    assert "PARTLY ACCEPTED  12 memories, 1 of 2 scopes refused\n" in text
    assert "  to be written: 1 to merge, 0 to leave\n" in text
    assert "  refused, so it stays as it is: 0 to merge, 4 to leave\n" in text
    assert (planned["merged"], planned["pruned"], planned["entries_after"]) == (1, 4, 7)
    written = planned["to_be_written"]
    assert (written["merged"], written["pruned"], written["entries_after"]) == (1, 0, 11)


def test_undo_of_a_plan_that_was_not_applied_names_the_one_that_was(command: Command, tea: Kitchen) -> None:
    """latest is the newest run, and that one wrote nothing."""
    applied = command("run", f"sqlite:{tea.path}", "--yes", "--json")
    command("plan", f"sqlite:{tea.path}")

    ended = command("undo", "latest", "--yes")

    assert ended.code == 2
    assert json.loads(applied.out)["run_id"] in ended.err


def test_judge_says_how_right_the_verdicts_are(command: Command, tmp_path: Path) -> None:
    """The table by kind where pairs are labelled; the verdicts as CSV."""
    pairs = [
        {"pair_id": "p1", "a": {"text": "Ann likes tea"}, "b": {"text": "ann likes tea."}, "label": "duplicate"},
        {"pair_id": "p2", "a": {"text": "retry 3 times"}, "b": {"text": "retry 5 times"}, "label": "distinct"},
    ]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))

    ended = command("judge", "pairs.jsonl", "--out", "verdicts.csv")

    assert ended.code == 0
    assert "2 pairs judged, 1 would merge" in ended.out
    assert "precision 1.000 (1 of 1)" in ended.out
    rows = [line.split(",") for line in (tmp_path / "verdicts.csv").read_text().splitlines()]
    assert [row[:2] for row in rows] == [["pair_id", "merge"], ["p1", "1"], ["p2", "0"]]
    assert json.loads(command("judge", "pairs.jsonl", "--json").out)["pairs"][0]["merge"] == 1
    shown = [line.split() for line in command("judge", "pairs.jsonl").out.splitlines()]
    assert shown[0][:4] == ["pair", "verdict", "label", "would"]
    assert shown[1][:4] == ["p1", "same", "duplicate", "merge,"]
    assert shown[2][:5] == ["p2", "conflict", "distinct", "stay", "apart"]


def test_twins_of_two_sessions_are_reported_and_stay(command: Command, tmp_path: Path) -> None:
    """The store of 63 memories that PraisonAI wrote: its one exact duplicate was said in two sessions."""
    store = tmp_path / "praisonai"
    shutil.copytree(Path(__file__).parents[2] / "data/sample/praisonai", store)
    before = _praisonai_rows(store)

    text, as_json = (command("run", f"praisonai:{store}", "--yes", *option) for option in ((), ("--json",)))

    assert (text.code, as_json.code) == (0, 0)
    assert "twins held apart (1)" in text.out
    receipt = json.loads(as_json.out)
    assert (receipt["state"], receipt["held"], receipt["entries_after"]) == ("NothingToDo", 1, 63)
    [held] = receipt["held_back"]
    assert (held["memory_id"], "short_term:14" in held["why"]) == ("short_term:15", True)
    assert _praisonai_rows(store) == before


def test_the_demo_shows_each_kind_of_action_and_works_twice(command: Command, tmp_path: Path) -> None:
    """Merges, removals, promotions and a refusal, on a copy of the sample; the same again the second time."""
    first, second = (json.loads(command("demo", "--json").out)["receipt"] for _ in range(2))

    assert first["state"] == "PartlyApplied"
    assert min(first[name] for name in ("merged", "pruned", "promoted", "held")) > 0
    assert [scope["scope"] for scope in first["scopes"] if not scope["accepted"]] == ["desk:orchard-support"]
    assert {name: second[name] for name in ("merged", "pruned")} == {name: first[name] for name in ("merged", "pruned")}
    text = command("demo")
    assert text.code == 0
    assert "memfold undo" in text.out
    assert "of an earlier demo was made anew" in text.err


def test_the_demo_leaves_a_folder_of_yours_alone(command: Command, tmp_path: Path) -> None:
    """A folder called demo that is not from an earlier demo stays as it is."""
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo/slides.txt").write_text("ours")

    ended = command("demo")

    assert ended.code == 2
    assert [path.name for path in (tmp_path / "demo").iterdir()] == ["slides.txt"]


# What is not imported


@pytest.mark.parametrize(
    "name", ["--help", "plan", "run", "show", "export", "stores", "undo", "init", "history", "resolve", "prune-runs"]
)
def test_no_command_waits_for_prefect_or_a_compiler(notes: Path, name: str) -> None:
    """On a small store no command imports Prefect, numba, scipy or datasketch."""
    arguments = {
        "plan": ["plan", f"jsonl:{notes}"],
        "run": ["run", f"jsonl:{notes}", "--in-place", "--yes"],
        "show": ["show", "latest"],
        "export": ["export", "latest"],
        "undo": ["undo", "latest", "--yes"],
        "init": ["init", f"sqlite:{notes.parent / 'new.db'}"],
        "history": ["history", f"jsonl:{notes}"],
        "resolve": ["resolve", f"jsonl:{notes}", "bread"],
        "prune-runs": ["prune-runs", "--dry-run"],
    }
    if name in ("show", "export", "undo"):
        _imported_by(arguments["run"])

    imported = _imported_by(arguments.get(name, [name]))

    assert imported & {"prefect", "numba", "scipy", "datasketch"} == set()
    assert "memfold_flows" in imported


def _imported_by(arguments: list[str]) -> set[str]:
    code = (
        "import sys, atexit; from memfold_flows import cli\n"
        "def report(): print('imported:', *{name.split('.')[0] for name in sys.modules}, file=sys.stderr)\n"
        "atexit.register(report); cli.main(sys.argv[1:])"
    )
    ended = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    return set(ended.stderr.rpartition("imported:")[2].split())


def _on_a_terminal(arguments: list[str], answer: str) -> tuple[int, str]:
    """Run the command with a terminal on all three streams, and type one line."""
    import pty

    terminal, side = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "memfold_flows.cli", *arguments], stdin=side, stdout=side, stderr=side, close_fds=True
    )
    os.close(side)
    os.write(terminal, f"{answer}\n".encode())
    said = b""
    while True:
        try:
            part = os.read(terminal, 4096)
        except OSError:  # Linux: the other side is closed
            break
        if not part:
            break
        said += part
    os.close(terminal)
    return process.wait(timeout=60), said.decode()


def _run_id(ended: Ended) -> str:
    return ended.out.split("run ", 1)[1].split(":", 1)[0]


def _praisonai_rows(folder: Path) -> dict[str, list[tuple[object, ...]]]:
    rows = {}
    for tier in ("short_term", "long_term"):
        with closing(sqlite3.connect(folder / f"{tier}.db")) as connection:
            rows[tier] = connection.execute(f"select * from {tier}_memory order by id").fetchall()
    return rows


def test_a_new_archive_that_would_be_the_same_is_not_written_and_that_is_said(
    command: Command, archive: WriteArchive, tmp_path: Path
) -> None:
    """Whoever goes on with the new file must know that there is none."""
    archive(COPIES[2:], "notes.jsonl")

    ended = command("run", "jsonl:notes.jsonl", "--out", "new.jsonl", "--yes")

    assert ended.code == 0
    assert "no memory was changed" in ended.out
    assert f"{tmp_path}/new.jsonl was not written, as it would be the same" in ended.out.replace("\n", "")
    assert not (tmp_path / "new.jsonl").exists()


def test_latest_of_a_store_is_found_where_bad_lines_were_left_out(command: Command, tmp_path: Path) -> None:
    """How a pass read the archive makes no other store of it."""
    lines = [json.dumps(record) for record in COPIES]
    (tmp_path / "notes.jsonl").write_text("\n".join([*lines, "{no json"]) + "\n")
    planned = json.loads(command("plan", "jsonl:notes.jsonl", "--skip-bad", "--json").out)

    shown = json.loads(command("show", "latest", "--store", "jsonl:notes.jsonl", "--json").out)

    assert shown["plan"]["run_id"] == planned["run_id"]


def test_init_leaves_another_programs_database_alone(command: Command, tmp_path: Path) -> None:
    """A slip of the hand adds no table to it."""
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection, connection:
        connection.execute("create table orders (id integer primary key)")

    ended = command("init", "sqlite:shop.db")

    assert (ended.code, "'orders'; nothing was made" in ended.err) == (1, True)
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        assert connection.execute("select name from sqlite_schema").fetchall() == [("orders",)]
