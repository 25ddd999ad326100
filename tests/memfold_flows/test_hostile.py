"""Hostile input through the command line: it is data, it is refused by name, or it is nobody's business; never code."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memfold_flows.runs import RunDirectory, known_runs

from .conftest import Ended, Kitchen

Command = Callable[..., Ended]
Archive = Callable[..., Path]

HOSTILE_NAMES = [
    "'; drop table memories; --",
    '"; drop table memories; --',
    "../../../etc/passwd",
    "/etc/passwd",
    "%00",
    "a\nb\tc",
    "\x1b[2J\x07",
    "{scope}",
    "$(reboot)",
    "user_id=ann&agent_id=bob",
    "\u202eevil",
    "-",
    " ",
]


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_a_scope_and_an_id_are_data_whatever_they_say(command: Command, kitchen: Kitchen, name: str) -> None:
    """A pass over that scope alone merges its copy, resolve finds it, and an undo of the scope brings it back."""
    kitchen.remember(name, "Ann drinks green tea", scope=name, importance=0.9)
    kitchen.remember(name + "2", "ann drinks  green tea.", scope=name)
    kitchen.remember("bread", "Bob bakes rye bread", scope="kitchen")
    before = kitchen.rows
    url = f"sqlite:{kitchen.path}"

    ended = command("run", url, "--yes", f"--scope={name}", "--json")

    assert ended.code == 0, ended.err
    assert kitchen.ids == {name, "bread"}
    found = json.loads(command("resolve", url, "--json", "--", name + "2").out)["ids"]
    assert [each["now"] for each in found] == [name]
    assert command("undo", "latest", "--yes", f"--scope={name}").code == 0
    assert kitchen.rows == before
    assert not any(len(line) > 0 and "\x1b" in line for line in command("show", "latest").out.splitlines())


@pytest.mark.parametrize("bad", ["\x00", "\udcff"])
def test_a_name_that_no_database_can_hold_is_unknown_not_a_traceback(command: Command, tea: Kitchen, bad: str) -> None:
    """A NUL or a stray byte of the terminal, as a scope or an id: told in one line, and nothing happens."""
    before = tea.rows
    url = f"sqlite:{tea.path}"

    for arguments in (("resolve", url, f"tea{bad}"), ("plan", url, "--scope", f"kitchen{bad}")):
        ended = command(*arguments)
        assert ended.code in (1, 2), ended
        assert "Traceback" not in ended.err
    assert tea.rows == before


def test_half_a_character_in_an_archive_comes_through_a_pass_and_its_undo(command: Command, archive: Archive) -> None:
    """JSON may hold a lone surrogate: in a text, an id, a scope or metadata it stays as it was written."""
    half = "\ud83d"
    path = archive(
        [
            {"id": f"a{half}", "text": f"Ann likes tea {half}", "scope": half, "metadata": {"mood": half}},
            {"id": "b", "text": f"ann likes tea  {half}", "scope": half},
            {"id": "c", "text": "The lift is out", "scope": half},
            {"id": "d", "text": "Ann likes tea", "scope": half},
        ]
    )
    before = path.read_bytes()

    ended = command("run", f"jsonl:{path}", "--in-place", "--yes")

    assert "Traceback" not in ended.err
    if ended.code == 0:
        assert [json.loads(line)["id"] for line in path.read_bytes().splitlines()] == [f"a{half}", "c", "d"]
        assert command("undo", "latest", "--yes").code == 0
    else:
        assert "line 1" in ended.err
    assert path.read_bytes() == before


def test_an_id_of_a_megabyte_and_a_text_of_four_are_memories_like_others(command: Command, archive: Archive) -> None:
    """They are merged and come back; a message that names the id is still a message."""
    _take_whole_and_give_back(command, archive, text="x" * 4_000_000)


def test_an_id_of_any_length_is_shown_in_short(command: Command, kitchen: Kitchen) -> None:
    """Wherever a person reads it: ``--json`` has it whole."""
    own, other = "x" * 20_000, "y" * 20_000
    kitchen.remember(own, "Ann drinks green tea", importance=0.9, scope="z" * 20_000)
    kitchen.remember(other, "ann drinks  green tea.", scope="z" * 20_000)
    kitchen.remember("three", "Ann drinks three teas", scope="z" * 20_000)
    url = f"sqlite:{kitchen.path}"

    said = [command("plan", url), command("status", url)]
    planned = json.loads(command("show", "latest", "--json").out)["plan"]["run_id"]
    kitchen.rewrite(own, "Ann drinks coffee")
    said.append(command("apply", planned, "--yes"))
    kitchen.rewrite(own, "Ann drinks green tea")
    said.append(command("run", url, "--yes"))
    kitchen.remember(other, "Ann drinks wine")
    said += [command("undo", "latest", "--id", other, "--yes"), command("show", "latest"), command("history", url)]
    said += [command("resolve", url, own, "q" * 20_000), command("undo", "latest", "--id", "q" * 20_000, "--yes")]
    said += [command("edit", "latest", "--reject", "q" * 20_000), command("forget", url, own, "--yes")]

    assert [ended.code for ended in said] == [0, 0, 4, 0, 4, 0, 0, 1, 2, 2, 0]
    assert [len(ended.out + ended.err) for ended in said if len(ended.out + ended.err) > 6_000] == []
    assert all("Traceback" not in ended.err for ended in said)
    assert json.loads(command("forget", url, other, "--yes", "--json").out)["removed"] == [other]


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_text_of_forty_megabytes_is_a_memory_like_others(command: Command, archive: Archive) -> None:
    """Ten million words: it takes its time, and ends."""
    _take_whole_and_give_back(command, archive, text="tea " * 10_000_000)


def _take_whole_and_give_back(command: Command, archive: Archive, *, text: str) -> None:
    path = archive(
        [
            {"id": "x" * 1_000_000, "text": "Ann likes tea", "importance": 0.1},
            {"id": "b", "text": "ann likes  tea.", "importance": 0.9},
            {"id": "c", "text": text},
            {"id": "d", "text": "The lift is out"},
        ]
    )
    before = path.read_bytes()

    ended = command("run", f"jsonl:{path}", "--in-place", "--yes")

    assert ended.code == 0
    assert [json.loads(line)["id"] for line in path.read_bytes().splitlines()] == ["b", "c", "d"]
    assert command("undo", "latest", "--yes").code == 0
    assert path.read_bytes() == before


@pytest.mark.parametrize("where", ["the line", "metadata"])
def test_json_that_is_too_deep_is_named_by_its_line(command: Command, archive: Archive, where: str) -> None:
    """A hundred thousand brackets end in a message, not in a crash."""
    path = archive([{"id": "a", "text": "Ann likes tea"}])
    deep = "[" * 100_000 + "]" * 100_000
    line = deep if where == "the line" else f'{{"id": "b", "text": "tea", "metadata": {deep}}}'
    with path.open("a") as file:
        file.write(line + "\n")
    before = path.read_bytes()

    ended = command("run", f"jsonl:{path}", "--in-place", "--yes")

    assert ended.code == 1
    assert "line 2" in ended.err
    assert "Traceback" not in ended.err
    assert path.read_bytes() == before


def test_deep_metadata_of_a_database_is_named_by_its_id(command: Command, tea: Kitchen) -> None:
    """In a database too."""
    tea.remember("deep", "A deep thought", metadata="[" * 100_000 + "]" * 100_000)
    before = tea.rows

    ended = command("run", f"sqlite:{tea.path}", "--yes")

    assert "Traceback" not in ended.err
    if ended.code == 0:
        assert tea.rows["deep"] == before["deep"]
    else:
        assert "'deep'" in ended.err
        assert tea.rows == before


@pytest.mark.parametrize("moment", [-(2**63), -1, 253402300800000000, 2**63 - 1])
def test_times_before_1970_and_after_9999_never_make_a_memory_old(command: Command, tea: Kitchen, moment: int) -> None:
    """A time that no calendar has is unknown, or the memory is named; it is never a reason to remove it."""
    tea.remember("odd", "The clock of the oven is wrong")
    tea._execute("update memories set created_at = ?, last_used_at = ? where memory_id = 'odd'", moment, moment)
    before = tea.rows

    ended = command("run", f"sqlite:{tea.path}", "--yes", "--stale-max-importance", "0.9")

    assert "Traceback" not in ended.err
    assert tea.rows["odd"] == before["odd"]
    if ended.code == 1:
        assert "'odd'" in ended.err
        assert tea.rows == before


@pytest.mark.parametrize(
    "url",
    [
        "mysql://root:hunter2@db/memories",
        "mysql://root:hunter2@db/memories?a",
        "mysql://root:hunter2@db/memories?a=1&a=2",
        "sqlite://root:hunter2@db/memories",
        "sqlite://root:hunter2@db/memories?mode",
        "postgresql://root:hunter2@127.0.0.1:1/memories",
        "postgresql://root:hunter2@127.0.0.1:1/memories?colour=red",
        "postgresql://root:hunter2@127.0.0.1:1/memories?a&b",
        "postgresql://127.0.0.1:1/memories?password=hunter2",
        "postgres://root:hunter2@127.0.0.1:1/memories",
    ],
)
def test_a_password_in_a_url_is_never_shown_or_kept(
    command: Command, home: Path, caplog: pytest.LogCaptureFixture, url: str
) -> None:
    """Whatever is wrong with the URL: no message, log or file says the password."""
    caplog.set_level(logging.DEBUG)

    for name in ("plan", "run", "check", "history", "hints"):
        ended = command(name, url)
        assert ended.code in (1, 2)
        assert "hunter2" not in ended.out + ended.err, name
    assert "hunter2" not in caplog.text
    assert not any("hunter2" in path.read_text(errors="replace") for path in home.rglob("*") if path.is_file())


def test_a_column_with_any_name_comes_back(command: Command, tea: Kitchen) -> None:
    """Names are quoted, not trusted."""
    tea._execute('alter table memories add column "a""b; drop table memories; --" text')
    tea._execute('update memories set "a""b; drop table memories; --" = memory_id')
    before = tea.rows

    assert command("run", f"sqlite:{tea.path}", "--yes").code == 0
    assert len(tea.rows) == 6
    assert command("undo", "latest", "--yes").code == 0
    assert tea.rows == before


def test_every_file_is_for_its_owner_alone(command: Command, archive: Archive, home: Path) -> None:
    """Whatever the umask says: run directories, receipts, undo data and ledgers are 0600 in folders that are 0700."""
    path = archive([{"id": str(n), "text": "Ann likes tea"} for n in range(4)])
    mask = os.umask(0)
    try:
        assert command("run", f"jsonl:{path}", "--in-place", "--yes").code == 0
        assert command("undo", "latest", "--yes").code == 0
    finally:
        os.umask(mask)

    made = [*(home / "memfold").rglob("*"), *(path.parent / ".memfold").rglob("*"), path.parent / ".memfold"]
    modes = {each.name: each.stat().st_mode & 0o777 for each in made}
    assert {name: oct(mode) for name, mode in modes.items() if mode & 0o077} == {}
    assert len(modes) > 20


@pytest.mark.parametrize("where", ["plan.parquet", "snapshot", "undo", "receipt.json"])
def test_a_link_in_a_run_directory_is_refused(command: Command, tea: Kitchen, tmp_path: Path, where: str) -> None:
    """What lies elsewhere is neither read as a plan, nor written over, nor removed as old undo data."""
    receipt = json.loads(command("run", f"sqlite:{tea.path}", "--yes", "--json").out)
    inside, elsewhere = Path(receipt["run_dir"]) / where, tmp_path / "elsewhere"
    inside.rename(elsewhere)
    inside.symlink_to(elsewhere)
    before = tea.rows

    for arguments in (("show", "latest"), ("apply", receipt["run_id"], "--yes"), ("undo", receipt["run_id"], "--yes")):
        ended = command(*arguments)
        assert ended.code in (1, 2)
        assert "is a link" in ended.err or "there is no run" in ended.err
    command("prune-runs", "--yes")

    assert tea.rows == before
    assert elsewhere.exists()


def test_a_manifest_cannot_reach_out_of_its_run_directory(command: Command, tea: Kitchen, tmp_path: Path) -> None:
    """A path with .. names no file of the run."""
    run_id = json.loads(command("plan", f"sqlite:{tea.path}", "--json").out)["run_id"]
    manifest = _run_dir(run_id) / "manifest.json"
    fields = json.loads(manifest.read_text())
    fields["files"]["../../../secret.parquet"] = fields["files"].pop("plan.parquet")
    manifest.write_text(json.dumps(fields))
    before = tea.rows

    ended = command("apply", run_id, "--yes")

    assert ended.code == 1
    assert "../../../secret.parquet is missing; nothing was written" in ended.err
    assert tea.rows == before


@pytest.mark.parametrize("name", ["../runs", "..", "/etc", "latest/../x", "."])
def test_a_run_is_not_named_by_a_path_that_is_none(command: Command, tea: Kitchen, name: str) -> None:
    """An id is looked up, a path must be a run directory; neither reads anything else."""
    command("plan", f"sqlite:{tea.path}")

    ended = command("show", name)

    assert ended.code in (1, 2)
    assert "Traceback" not in ended.err


def test_a_plan_that_blows_up_is_never_unpacked(command: Command, tea: Kitchen) -> None:
    """A few kilobytes that say twenty million rows are noticed by their hash, before they are read."""
    run_id = json.loads(command("plan", f"sqlite:{tea.path}", "--json").out)["run_id"]
    plan = _run_dir(run_id) / "plan.parquet"
    schema = pq.read_schema(plan).remove_metadata()
    loose = pa.schema([field.with_nullable(True) for field in schema])
    with pq.ParquetWriter(plan, loose, compression="zstd") as writer:
        rows = pa.Table.from_arrays([pa.nulls(1_000_000, field.type) for field in schema], schema=loose)
        for _ in range(20):
            writer.write_table(rows)
    assert plan.stat().st_size < 1_000_000

    for arguments in (("show", run_id), ("export", run_id), ("apply", run_id, "--yes")):
        ended = command(*arguments)
        assert ended.code == 1
        assert "plan.parquet was changed or cut short" in ended.err


def test_logs_and_pages_never_tell_what_memories_say(
    command: Command, tea: Kitchen, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither a text nor a value of metadata is in a log, in the plan's or the receipt's page, or in a receipt."""
    tea.remember("w1", "The password of Walter is swordfish", metadata='{"pin": "sesame-77"}', scope="walter")
    tea.remember("w2", "the password of walter is swordfish", metadata='{"pin": "sesame-78"}', scope="walter")
    tea.remember("w3", "The password of Walter is not swordfish", scope="walter")
    caplog.set_level(logging.DEBUG)

    receipt = json.loads(command("run", f"sqlite:{tea.path}", "--yes", "--json", "--max-loss-fraction", "1").out)
    command("undo", receipt["run_id"], "--yes")

    run_dir = Path(receipt["run_dir"])
    told = {path.name: path.read_text() for path in run_dir.iterdir() if path.suffix in (".md", ".json", ".jsonl")}
    assert {"plan.md", "receipt.md", "receipt.json", "undo.json", "changes.jsonl"} <= told.keys()
    for word in ("swordfish", "sesame", "green tea"):
        assert word not in caplog.text
        assert [name for name, text in told.items() if word in text] == []


@pytest.mark.parametrize("change", ["unknown id", "target that goes", "scope crossed", "all pruned"])
def test_a_plan_that_was_edited_by_hand_is_refused(command: Command, tea: Kitchen, change: str) -> None:
    """Even where its hash was made to fit: each row is checked again, and the gate is asked again."""
    tea.remember("other", "Ann drinks green tea", scope="garden")
    run_id = json.loads(command("plan", f"sqlite:{tea.path}", "--json").out)["run_id"]
    _edit_by_hand(_run_dir(run_id), change)
    before = tea.rows

    ended = command("apply", run_id, "--yes")

    assert ended.code in (1, 3), (ended.code, ended.out, ended.err)
    assert "Traceback" not in ended.err
    assert tea.rows == before


def _edit_by_hand(run_dir: Path, change: str) -> None:
    """Change the plan, and sign the run again as if memfold had made it so."""
    run = RunDirectory.open(run_dir)
    rows = run.read("plan").to_pylist()
    merged = next(row for row in rows if row["action"] == "merge")
    kept = next(row for row in rows if row["memory_id"] == "bread")
    if change == "unknown id":
        merged["into_id"] = "nobody"
    elif change == "target that goes":
        kept |= {"action": "merge", "into_id": merged["memory_id"], "reason": "copy"}
    elif change == "scope crossed":
        merged["into_id"] = "other"
    else:
        for row in rows:
            row |= {"action": "prune", "into_id": None, "reason": "stale"}
    run.write("plan", pa.Table.from_pylist(rows, pq.read_schema(run_dir / "plan.parquet")))
    run.seal(run.manifest)


def _run_dir(run_id: str) -> Path:
    folder = Path(os.environ["MEMFOLD_HOME"]) / "runs"
    return next(run.path for run in known_runs(folder) if run.run_id == run_id)
