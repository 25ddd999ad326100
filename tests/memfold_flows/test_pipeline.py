"""The whole pass over a real store: plan, gate, apply, drift, resume, undo."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from memfold.errors import ApplyInterrupted, BadUsage, PlanDamaged
from memfold.policy import Policy
from memfold_flows import pipeline
from memfold_flows.receipts import ExitCode, State
from memfold_flows.runs import RunDirectory
from memfold_flows.stores import open_store

from .conftest import AS_OF, DAY, Kitchen, Nights, clock, plan_rows

WORDS = [f"{first}{second}" for first in ("oak", "elm", "ash", "fir", "bay") for second in ("wood", "leaf", "root")]


STALE = {"stale_min_age_days": 100}


@pytest.fixture
def forty_percent_stale(kitchen: Kitchen) -> Kitchen:
    """A scope of ten memories of which four are older than a hundred days, and one scope with none."""
    for number in range(10):
        kitchen.remember(f"note-{number}", f"{WORDS[number]} grows by the gate", age=(200 if number < 4 else 5) * DAY)
    kitchen.remember("hose", "The hose leaks at the tap", scope="garden")
    return kitchen


def test_a_pass_folds_copies_and_a_second_one_finds_nothing(tea: Kitchen, nights: Nights) -> None:
    """Of three copies one stays; a copy is no loss; what is folded stays folded."""
    run, report = nights.plan(tea.store)
    receipt = nights.apply(tea.store, run)

    assert (report.verdict, report.totals.merged, report.totals.lost) == ("accepted", 2, 0)
    assert (receipt.state, receipt.exit_code) == (State.CONSOLIDATED, ExitCode.DONE)
    assert len(tea.ids & {"tea-1", "tea-2", "tea-3"}) == 1
    assert len(tea.ids) == 6
    _, second = nights.plan(tea.store)
    assert second.verdict == "nothing to do"


def test_every_memory_has_one_action_and_what_it_goes_into_stays(tea: Kitchen, nights: Nights) -> None:
    """The plan is total, and no merge points at a memory that leaves."""
    rows = plan_rows(nights.plan(tea.store)[0])

    assert set(rows) == tea.ids
    targets = {row["into_id"] for row in rows.values() if row["action"] == "merge"}
    assert {rows[target]["action"] for target in targets} == {"keep"}


def test_a_plan_writes_nothing_to_the_store(tea: Kitchen, nights: Nights) -> None:
    """Not even bookkeeping: the tables are the same as before, and so is the file."""
    before, tables = tea.path.read_bytes(), tea.tables

    nights.plan(tea.store)

    assert tea.tables == tables
    assert tea.path.read_bytes() == before


def test_a_pass_with_nothing_to_do_changes_no_memory(kitchen: Kitchen, nights: Nights) -> None:
    """The receipt says so; of memfold's own, only the state of the scope is kept, so that its next pass may wait."""
    kitchen.remember("oven", "The oven door sticks when it is hot")
    before = kitchen.rows
    run, _ = nights.plan(kitchen.store)

    receipt = nights.apply(kitchen.store, run)

    assert (receipt.state, receipt.exit_code) == (State.NOTHING_TO_DO, ExitCode.DONE)
    assert kitchen.rows == before
    with kitchen.store.ledger() as ledger:
        assert ledger is not None
        assert (ledger.runs(), ledger.state("kitchen").converged) == ([], True)


def test_an_empty_store_is_a_pass_with_nothing_to_do(kitchen: Kitchen, nights: Nights) -> None:
    """Nothing divides by zero."""
    run, report = nights.plan(kitchen.store)

    assert (report.verdict, report.totals.loss_fraction) == ("nothing to do", 0.0)
    assert nights.apply(kitchen.store, run).state == State.NOTHING_TO_DO


def test_a_store_of_nothing_but_dead_memories_can_be_planned(kitchen: Kitchen, nights: Nights) -> None:
    """No memory takes part in matching, and the gate sees more expired ones than there should be."""
    kitchen.remember("blank", "  ")
    kitchen.remember("milk", "The milk is good until Friday", expires_at=1)

    _, report = nights.plan(kitchen.store)

    assert (report.verdict, report.totals.pruned, report.totals.expired) == ("refused", 2, 1)


def test_undo_brings_every_memory_back_as_it_was(tea: Kitchen, nights: Nights) -> None:
    """Each column of each row, the folded ones of the survivor too; the same fold is not proposed again."""
    before = tea.rows
    run, _ = nights.plan(tea.store)
    nights.apply(tea.store, run)

    receipt = pipeline.undo(tea.store, run, clock=clock)

    assert (receipt.report.restored, receipt.exit_code) == (2, ExitCode.DONE)
    assert tea.rows == before
    _, again = nights.plan(tea.store)
    assert again.totals.merged == 0


def test_what_a_person_keeps_apart_stays_apart_when_a_third_copy_comes(tea: Kitchen, nights: Nights) -> None:
    """The third takes one of the two; the next pass does not take the other one after it."""
    run, _ = nights.plan(tea.store)
    nights.apply(tea.store, run)
    pipeline.undo(tea.store, run, clock=clock)
    tea.remember("tea-4", "Ann drinks green tea", use_count=99)

    for _ in range(3):
        run, _ = nights.plan(tea.store)
        nights.apply(tea.store, run)

    assert {memory_id for memory_id in tea.ids if memory_id.startswith("tea")} == {"tea-2", "tea-3", "tea-4"}


def test_a_second_undo_changes_nothing(tea: Kitchen, nights: Nights) -> None:
    """It says when the first one was."""
    run, _ = nights.plan(tea.store)
    nights.apply(tea.store, run)
    pipeline.undo(tea.store, run, clock=clock)
    restored = tea.rows

    second = pipeline.undo(tea.store, run, clock=clock)

    assert second.report.already_undone_at == clock()
    assert tea.rows == restored


def test_a_run_that_wrote_nothing_cannot_be_undone(tea: Kitchen, nights: Nights) -> None:
    """A plan alone has nothing to take back."""
    run, _ = nights.plan(tea.store)

    with pytest.raises(BadUsage, match="wrote nothing"):
        pipeline.undo(tea.store, run, clock=clock)


def test_applying_twice_changes_nothing(tea: Kitchen, nights: Nights) -> None:
    """The second receipt says when it was done, and the first one stays in the run."""
    run, _ = nights.plan(tea.store)
    first = nights.apply(tea.store, run)
    applied, kept = tea.rows, run.read_json("receipt.json")

    second = nights.apply(tea.store, run)

    assert tea.rows == applied
    assert second.already_applied_at == clock()
    assert (second.state, second.totals) == (first.state, first.totals)
    assert run.read_json("receipt.json") == kept


def test_an_apply_that_was_cut_off_before_its_receipt_gets_one(tea: Kitchen, nights: Nights) -> None:
    """The store says that it was applied; the same call writes what is missing from the run, and nothing else."""
    run, _ = nights.plan(tea.store)
    nights.apply(tea.store, run)
    applied = tea.rows
    (run.path / "receipt.json").unlink()

    nights.apply(tea.store, run)

    assert run.read_json("receipt.json")["merged"] == 2  # type: ignore[index]
    assert tea.rows == applied


def test_after_an_apply_the_run_keeps_only_what_was_touched(tea: Kitchen, nights: Nights) -> None:
    """The three copies, not the five others."""
    run, _ = nights.plan(tea.store)
    nights.apply(tea.store, run)

    assert run.read("snapshot")["memory_id"].to_pylist() == ["tea-1", "tea-2", "tea-3"]
    run.verify()


def test_a_refused_run_keeps_its_texts(forty_percent_stale: Kitchen, nights: Nights) -> None:
    """It is there to be looked at."""
    run, _ = nights.plan(forty_percent_stale.store, **STALE)
    nights.apply(forty_percent_stale.store, run)

    assert run.read("snapshot").num_rows == 11


def test_an_undo_without_its_data_takes_nothing_back(tea: Kitchen, nights: Nights) -> None:
    """The store stays as the apply left it, and the error names the file."""
    run, _ = nights.plan(tea.store)
    nights.apply(tea.store, run)
    applied = tea.rows
    (run.path / "undo/000000.parquet").unlink()

    with pytest.raises(PlanDamaged, match=r"undo/000000\.parquet"):
        pipeline.undo(tea.store, run, clock=clock)

    assert tea.rows == applied


def test_keep_snapshots_keeps_all_of_it(tea: Kitchen, nights: Nights) -> None:
    """For those who want to look at the whole of last month's store."""
    run, _ = nights.plan(tea.store)
    nights.apply(tea.store, run, keep_snapshots=True)

    assert run.read("snapshot").num_rows == 8


def test_a_plan_over_the_limit_is_refused_and_the_store_unchanged(forty_percent_stale: Kitchen, nights: Nights) -> None:
    """A refusal is a receipt with both figures, not an exception."""
    before = forty_percent_stale.path.read_bytes()
    run, report = nights.plan(forty_percent_stale.store, **STALE)

    receipt = nights.apply(forty_percent_stale.store, run)

    assert report.verdict == "refused"
    assert (receipt.state, receipt.exit_code) == (State.REJECTED, ExitCode.REFUSED)
    [scope] = receipt.refused
    assert (scope.scope, scope.loss_fraction, scope.loss_fraction_strict) == ("kitchen", 0.4, 0.4)
    assert scope.refused == ("4 of 10 memories would be lost (0.4), the limit is 0.25",)
    assert receipt.totals.entries_after == receipt.totals.entries_before == 11
    assert forty_percent_stale.path.read_bytes() == before


def test_fit_stops_at_the_limit_and_says_what_waits(forty_percent_stale: Kitchen, nights: Nights) -> None:
    """A quarter of ten is two and a half, so two of the four leave and two wait."""
    run, report = nights.plan(forty_percent_stale.store, on_excess="fit", **STALE)

    receipt = nights.apply(forty_percent_stale.store, run)

    assert (report.totals.pruned, report.totals.waits) == (2, 2)
    assert (receipt.state, receipt.totals.loss_fraction) == (State.CONSOLIDATED, 2 / 11)
    assert len(forty_percent_stale.ids) == 9
    assert sorted(row["reason"] for row in plan_rows(run).values()).count("waits") == 2


def test_a_refused_scope_does_not_stop_the_others(forty_percent_stale: Kitchen, nights: Nights) -> None:
    """What was accepted is written; the pass is partial."""
    forty_percent_stale.remember("hose-2", "The hose leaks at the tap", scope="garden")
    run, report = nights.plan(forty_percent_stale.store, **STALE)

    receipt = nights.apply(forty_percent_stale.store, run)

    assert report.verdict == "partly accepted"
    assert (receipt.state, receipt.exit_code) == (State.PARTLY_APPLIED, ExitCode.PARTLY)
    assert (receipt.totals.merged, receipt.totals.pruned) == (1, 0)
    assert len(forty_percent_stale.ids) == 11
    kept = run.read("snapshot")["memory_id"].to_pylist()
    assert kept == ["hose", "hose-2", "note-0", "note-1", "note-2", "note-3"]


def test_only_the_scopes_that_were_named_are_planned(forty_percent_stale: Kitchen, nights: Nights) -> None:
    """The other scope does not even stand in the tally."""
    run, report = nights.plan(forty_percent_stale.store, scopes=["garden"])

    assert [scope.scope for scope in report.scopes] == ["garden"]
    assert set(plan_rows(run)) == {"hose"}
    assert run.manifest.scopes == ("garden",)


def test_a_scope_that_no_memory_has_is_bad_usage(forty_percent_stale: Kitchen, nights: Nights) -> None:
    """A typing error must not look like a clean store; the nearest scope is named."""
    with pytest.raises(BadUsage, match=r"has the scope 'gardne'; nothing was planned; did you mean 'garden'\?"):
        nights.plan(forty_percent_stale.store, scopes=["kitchen", "gardne"])


def test_a_member_that_changed_since_the_plan_is_left_alone(tea: Kitchen, nights: Nights) -> None:
    """It holds something new; the other member folds."""
    run, _ = nights.plan(tea.store)
    survivor = _survivor(run)
    changed, other = sorted({"tea-1", "tea-2", "tea-3"} - {survivor})
    tea.rewrite(changed, "Ann drinks black coffee")

    receipt = nights.apply(tea.store, run)

    assert (receipt.state, receipt.exit_code) == (State.PARTLY_APPLIED, ExitCode.PARTLY)
    assert [drift.memory_id for drift in receipt.drifted] == [changed]
    assert (receipt.totals.merged, receipt.totals.entries_after) == (1, 7)
    assert tea.rows[changed][4] == "Ann drinks black coffee"
    assert other not in tea.ids


@pytest.mark.parametrize("change", ["rewritten", "deleted"])
def test_a_survivor_that_changed_holds_back_its_whole_cluster(tea: Kitchen, nights: Nights, change: str) -> None:
    """What was to go into it would be lost."""
    run, _ = nights.plan(tea.store)
    survivor = _survivor(run)
    members = {"tea-1", "tea-2", "tea-3"} - {survivor}
    if change == "rewritten":
        tea.rewrite(survivor, "Ann drinks black coffee")
    else:
        tea.forget(survivor)

    receipt = nights.apply(tea.store, run)

    assert (receipt.state, receipt.exit_code) == (State.PARTLY_APPLIED, ExitCode.PARTLY)
    assert survivor in {drift.memory_id for drift in receipt.drifted}
    assert members <= tea.ids
    assert receipt.totals.merged == 0


def test_a_damaged_plan_is_not_applied(tea: Kitchen, nights: Nights) -> None:
    """One altered byte in one relation, and nothing is written."""
    run, _ = nights.plan(tea.store)
    plan = run.file("plan")
    plan.write_bytes(plan.read_bytes()[:-8] + b"damaged!")

    with pytest.raises(PlanDamaged, match=r"plan\.parquet was changed"):
        nights.apply(tea.store, run)

    assert len(tea.ids) == 8


def test_a_plan_is_applied_to_the_store_that_was_planned(tea: Kitchen, nights: Nights, tmp_path: Path) -> None:
    """A copy of the store has the same memories and is another store."""
    run, _ = nights.plan(tea.store)
    copy = tmp_path / "copy.db"
    copy.write_bytes(tea.path.read_bytes())
    other = open_store(f"sqlite:{copy}")

    with pytest.raises(BadUsage, match=r"was planned on sqlite:.*kitchen\.db, not on sqlite:.*copy\.db"):
        nights.apply(other, run)

    other.close()


def test_a_plan_of_a_time_to_come_is_refused(tea: Kitchen, nights: Nights) -> None:
    """As of next year much would have expired that has not."""
    run, report = nights.plan(tea.store, as_of=clock() + timedelta(days=365))

    receipt = nights.apply(tea.store, run)

    assert report.verdict == "refused"
    assert receipt.state == State.REJECTED
    assert "is later than the clock" in receipt.refused[0].refused[0]
    assert len(tea.ids) == 8


def test_an_apply_that_was_interrupted_goes_on_where_it_stopped(
    tea: Kitchen, nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first transaction stands, the error says so, and the same call finishes the rest."""
    tea.remember("hose-1", "The hose leaks at the tap", scope="garden")
    tea.remember("hose-2", "The hose leaks at the tap", scope="garden")
    monkeypatch.setattr(tea.store, "traits", replace(tea.store.traits, rows_per_transaction=1))
    run, _ = nights.plan(tea.store)
    write_undo = RunDirectory.write_undo

    def full_disk(run: RunDirectory, number: int, rows: pa.Table) -> None:
        if number == 1:
            raise OSError(28, "no space left on device")
        write_undo(run, number, rows)

    monkeypatch.setattr(RunDirectory, "write_undo", full_disk)
    with pytest.raises(ApplyInterrupted, match=r"no space left.*What was committed stands; memfold apply night-1"):
        nights.apply(tea.store, run)
    monkeypatch.setattr(RunDirectory, "write_undo", write_undo)

    receipt = nights.apply(tea.store, run)

    assert (receipt.state, receipt.totals.merged) == (State.CONSOLIDATED, 3)
    pipeline.undo(tea.store, run, clock=clock)
    assert len(tea.ids) == 10


def test_the_receipt_in_the_run_says_what_the_call_returned(tea: Kitchen, nights: Nights) -> None:
    """State, exit code, counts, both loss figures and times, and each scope."""
    run, _ = nights.plan(tea.store)

    receipt = nights.apply(tea.store, run)

    written = json.loads((run.path / "receipt.json").read_text(encoding="utf-8"))
    assert written == receipt.as_json()
    assert {name: written[name] for name in ("state", "exit_code", "merged", "lost", "lost_strict")} == {
        "state": "Consolidated",
        "exit_code": 0,
        "merged": 2,
        "lost": 0,
        "lost_strict": 2,
    }
    assert (written["loss_fraction"], written["loss_fraction_strict"]) == (0.0, 0.25)
    assert [scope["scope"] for scope in written["scopes"]] == ["kitchen"]
    assert written["transactions"] == 1


def test_relations_are_the_same_bytes_whatever_the_order_of_the_store(
    archive: Callable[..., Path], nights: Nights
) -> None:
    """Two archives with the same lines in another order give the same plan, to the byte."""
    generator = random.Random(7)
    memories = [_note(generator, number) for number in range(300)]
    shuffled = generator.sample(memories, k=len(memories))

    hashes = []
    for name, lines in (("one.jsonl", memories), ("other.jsonl", shuffled)):
        run, _ = nights.plan(open_store(f"jsonl:{archive(lines, name)}"))
        hashes.append({file.path: file.sha256 for file in run.manifest.files})

    assert hashes[0] == hashes[1]
    assert len(hashes[0]) >= 12


def test_a_scope_gives_the_same_plan_alone_and_among_others(archive: Callable[..., Path], nights: Nights) -> None:
    """What one scope holds decides what becomes of it."""
    generator = random.Random(11)
    store = open_store(f"jsonl:{archive([_note(generator, number) for number in range(300)])}")

    among_others = plan_rows(nights.plan(store)[0])
    alone = plan_rows(nights.plan(store, scopes=["garden"])[0])

    assert alone == {memory_id: row for memory_id, row in among_others.items() if row["scope"] == "garden"}
    assert {row["action"] for row in alone.values()} == {"keep", "merge"}


@pytest.mark.parametrize("seed", range(5))
def test_a_second_pass_at_the_same_moment_plans_nothing(
    archive: Callable[..., Path], nights: Nights, seed: int
) -> None:
    """Texts of few words, so that chains and ties happen; after one pass nothing is left to find."""
    generator = random.Random(seed)
    path = archive([_note(generator, number) for number in range(200)])
    store = open_store(f"jsonl:{path}", in_place=True)
    open_gate = {"max_loss_fraction": 1.0, "max_rolling_loss_fraction": 1.0}
    run, first = nights.plan(store, **open_gate)
    nights.apply(store, run)

    _, second = nights.plan(store, **open_gate)

    assert first.totals.merged > 0
    assert second.verdict == "nothing to do"


def test_steps_are_run_by_name_and_hand_over_paths(tea: Kitchen, nights: Nights, tmp_path: Path) -> None:
    """A step runner sees every step in order; no table crosses from one to the next."""
    seen: list[tuple[str, bool]] = []

    def watching(name: str, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Any:
        result = function(*arguments, **options)
        values = [*arguments, *options.values(), result]
        seen.append((name, any(isinstance(value, pa.Table) for value in values)))
        return result

    run = RunDirectory.create(tmp_path / "watched", "watched")
    pipeline.consolidate(tea.store, run, Policy(as_of=AS_OF), clock=clock, step=watching)

    names = ["snapshot", "match", "model", "gate", "rewrite", "apply", "note", "receipt"]
    assert seen == [(name, False) for name in names]


def _archive_pass(path: Path, nights: Nights) -> None:
    """Plan, apply in place, plan again, undo: what an archive with copies goes through."""
    original = path.read_bytes()
    store = open_store(f"jsonl:{path}", in_place=True)
    run, report = nights.plan(store)
    rows = report.totals.entries_before
    receipt = nights.apply(store, run)

    assert receipt.state == State.CONSOLIDATED
    assert receipt.totals.merged == rows * 3 // 10
    assert len(path.read_bytes().splitlines()) == rows * 7 // 10
    assert nights.plan(store)[1].verdict == "nothing to do"
    pipeline.undo(store, run, clock=clock)
    assert path.read_bytes() == original


def test_an_archive_with_copies_goes_through_a_pass_and_back(archive: Callable[..., Path], nights: Nights) -> None:
    """3,000 memories, 30 % of them copies: each copy folds, nothing else does, and undo restores every byte."""
    _archive_pass(archive(_with_copies(3_000)), nights)


@pytest.mark.long
def test_an_archive_of_100_000_goes_through_a_pass_and_back(archive: Callable[..., Path], nights: Nights) -> None:
    """The same at the size of a large export."""
    _archive_pass(archive(_with_copies(100_000)), nights)


def _survivor(run: RunDirectory) -> str:
    [survivor] = {row["into_id"] for row in plan_rows(run).values() if row["action"] == "merge"}
    return str(survivor)


def _note(generator: random.Random, number: int) -> dict[str, Any]:
    """A memory of a few words in one of two scopes; many of them are equal or nearly so."""
    words = generator.choices(WORDS[:5], k=generator.randint(1, 3))
    return {
        "id": f"note-{number:04d}",
        "text": " ".join(words),
        "scope": generator.choice(["kitchen", "garden"]),
        "created_at": f"2026-05-{generator.randint(1, 5):02d}T08:00:00Z",
        "use_count": generator.randint(0, 2),
    }


def _with_copies(rows: int) -> list[dict[str, Any]]:
    """Memories in ten scopes, seven in ten with words of their own, three in ten copies of one of those."""
    generator = random.Random(3)
    syllables = ("ka", "lo", "mi", "ten", "ur", "sa", "vel", "dor", "in", "pra", "qui", "bo", "zan", "fe", "rus")
    vocabulary = ["".join(generator.choices(syllables, k=3)) for _ in range(2_000)]
    own = rows * 7 // 10
    texts = [" ".join(generator.choices(vocabulary, k=generator.randint(6, 14))) for _ in range(own)]
    memories = []
    for number in range(rows):
        of = number if number < own else (number - own) * 2
        text = texts[of] if number < own else texts[of].upper() + "."
        memories.append({"id": f"m-{number}", "text": text, "scope": f"shop-{of % 10}", "use_count": of % 5})
    return memories


def test_a_store_that_reads_as_empty_but_held_memories_is_refused_once(tea: Kitchen, nights: Nights) -> None:
    """An alert, not a pass; an owner who did empty the store is told once."""
    nights.apply(tea.store, nights.plan(tea.store)[0])
    for memory_id in tea.ids:
        tea.forget(memory_id)

    run, report = nights.plan(tea.store)
    receipt = nights.apply(tea.store, run)
    _, again = nights.plan(tea.store)

    assert receipt.state == State.REJECTED
    assert report.scopes[0].refused == ("it reads as empty, but held memories after its last pass",)
    assert again.verdict == "nothing to do"
