"""What goes wrong in public reports, as small inputs with the right outcome: each runs through the whole pass.

``tests/data/gold/cases.jsonl`` holds one case a line: its memories, its settings, and what must come out.
The world is closed: two memories that no group of ``merge`` or ``may_merge`` holds together must both stay.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from tests.model_server import Asked, serving

from memfold.errors import BadRecord
from memfold.policy import Policy
from memfold_flows import pipeline
from memfold_flows.proposer.asking import ModelFailed
from memfold_flows.proposer.options import Embeddings, ProposerOptions
from memfold_flows.receipts import Receipt, State
from memfold_flows.runs import RunDirectory
from memfold_flows.stores import open_store

CASES = [json.loads(line) for line in (Path(__file__).parent / "data/gold/cases.jsonl").read_text().splitlines()]

#: Cases that a part decides which is not built yet, and the part.
WAITS_FOR = {}

#: Field names of a case -> those of an archive.
FIELDS = {"access_count": "use_count", "recall_count": "use_count", "type": "kind"}


@dataclass(frozen=True)
class Outcome:
    """A case after one pass over it."""

    receipt: Receipt
    run: RunDirectory
    records: dict[str, dict[str, Any]]
    went_into: dict[str, str]
    pruned: set[str]
    promoted: set[str]

    def ends_in(self, memory_id: str) -> str:
        """The memory that stays for this one."""
        return self.went_into.get(memory_id, memory_id)


def _named(ids: set[str]) -> list[Any]:
    return [_parameter(case) for case in CASES if case["id"] in ids]


def _parameter(case: dict[str, Any]) -> Any:
    waits = WAITS_FOR.get(case["id"])
    marks = [pytest.mark.xfail(reason=f"waits for {waits}", run=False)] if waits else []
    return pytest.param(case, id=f"{case['id']} {case['kind']}", marks=marks)


def _concerning(key: str) -> set[str]:
    return {case["id"] for case in CASES if case["expect"].get(key) is not None}


def test_every_case_is_here() -> None:
    """All 63 cases are read, and each that waits says for what."""
    assert len(CASES) == 63
    assert set(WAITS_FOR) <= {case["id"] for case in CASES}


#: Cases in which a model answers; its answer is in the case.
MODEL = {case["id"] for case in CASES if case["setup"].get("llm")}
SPECIAL = {"fault-09", "fault-10", "fault-11", "fault-13", "fault-17", *MODEL}
CONTENT = {case["id"] for case in CASES} - SPECIAL


@pytest.mark.parametrize("case", _named(CONTENT))
def test_what_says_the_same_folds_and_nothing_else_does(case: dict[str, Any], tmp_path: Path) -> None:
    """Each group of ``merge`` ends in one memory; any two that no group joins both stay; only ``prune`` leaves."""
    outcome = _consolidate(case, tmp_path)
    expect = case["expect"]

    for group in expect["merge"]:
        assert len({outcome.ends_in(memory_id) for memory_id in group}) == 1, group
    allowed = [set(group) for group in [*expect["merge"], *expect.get("may_merge", [])]]
    for one, other in combinations(sorted(outcome.records.keys() | outcome.went_into.keys()), 2):
        if not any({one, other} <= group for group in allowed):
            assert outcome.ends_in(one) != outcome.ends_in(other), (one, other)
    assert outcome.pruned == set(expect["prune"])
    assert outcome.receipt.state != State.REJECTED


@pytest.mark.parametrize("case", _named(_concerning("survivor") - set(WAITS_FOR)))
def test_the_survivor_keeps_what_its_copies_knew(case: dict[str, Any], tmp_path: Path) -> None:
    """The memory that stays has the earliest time, every tag and key, the highest importance, and its own text."""
    outcome = _consolidate(case, tmp_path)
    survivors = [outcome.records[outcome.ends_in(group[0])] for group in case["expect"]["merge"]]

    for name, wanted in case["expect"]["survivor"].items():
        match name:
            case "contains":
                assert all(word in survivors[0]["text"] for word in wanted)
            case "access_count_between":
                assert wanted[0] <= survivors[0]["use_count"] <= wanted[1]
            case "created_at":
                assert _instant(survivors[0]["created_at"]) == _instant(wanted)
            case "scope_of":
                assert {memory_id: outcome.records[memory_id]["scope"] for memory_id in wanted} == wanted
            case _:
                assert survivors[0][name] == wanted


@pytest.mark.parametrize("case", _named(_concerning("flag")))
def test_a_contradiction_is_shown_to_a_reviewer(case: dict[str, Any], tmp_path: Path) -> None:
    """The pairs of ``flag`` are reported as a conflict or a supersession; where ``flag`` is empty, none is."""
    outcome = _consolidate(case, tmp_path)
    reported = {
        frozenset((row["left_id"], row["right_id"]))
        for row in outcome.run.read("pairs").to_pylist()
        if row["verdict"] in ("conflict", "supersedes")
    }

    wanted = {frozenset(pair) for pair in case["expect"]["flag"]}
    assert wanted <= reported if wanted else not reported


@pytest.mark.parametrize("case", _named(_concerning("supersede_ok")))
def test_only_the_newer_may_replace_and_nothing_replaces_at_equal_times(case: dict[str, Any], tmp_path: Path) -> None:
    """With ``supersede: archive`` at most the older side of an allowed pair leaves, and its successor stays."""
    outcome = _consolidate(case, tmp_path, supersede="archive")
    replaced = {
        (row["superseded_by"], row["memory_id"])
        for row in outcome.run.read("plan").to_pylist()
        if row["reason"] == "superseded"
    }

    assert replaced <= {tuple(pair) for pair in case["expect"]["supersede_ok"]}
    assert all(successor in outcome.records for successor, _ in replaced)


@pytest.mark.parametrize("case", _named(_concerning("promote")))
def test_what_was_used_in_many_sessions_is_promoted_and_junk_is_not(case: dict[str, Any], tmp_path: Path) -> None:
    """Only the memories of ``promote`` move to the long term."""
    outcome = _consolidate(case, tmp_path)

    assert outcome.promoted == set(case["expect"]["promote"])
    assert not outcome.promoted & set(case["expect"]["not_promote"])


@pytest.mark.parametrize("case", _named(_concerning("redirect")))
def test_an_old_id_leads_to_the_memory_that_stays(case: dict[str, Any], tmp_path: Path) -> None:
    """A link to a folded memory still finds its text."""
    outcome = _consolidate(case, tmp_path)

    with open_store(outcome.receipt.store).ledger() as ledger:
        assert ledger is not None
        assert {old: ledger.resolve(old) for old in case["expect"]["redirect"]} == case["expect"]["redirect"]


@pytest.mark.parametrize("case", _named({"index-01"}))
def test_the_owner_of_an_index_learns_what_left_and_what_changed(case: dict[str, Any], tmp_path: Path) -> None:
    """The feed of a run lists exactly the ids that are gone and those that changed."""
    outcome = _consolidate(case, tmp_path)
    feed = [json.loads(line) for line in (outcome.run.path / "changes.jsonl").read_text().splitlines()]

    assert {change["id"] for change in feed if change["change"] == "removed"} == {"b"}
    assert {change["id"] for change in feed if change["change"] == "updated"} == {"a"}


@pytest.mark.parametrize("case", _named({"fault-10"}))
def test_what_agents_write_during_a_pass_survives_it(case: dict[str, Any], tmp_path: Path) -> None:
    """A row added or edited after the snapshot stays as its writer left it, and holds back its cluster."""

    def write(archive: Path) -> None:
        records = _read(archive)
        for step in case["setup"]["concurrent"]:
            if "insert" in step:
                records[step["insert"]["id"]] = step["insert"]
            else:
                records[step["update"]["id"]].update(step["update"])
        _write(archive, list(records.values()))

    outcome = _consolidate(case, tmp_path, between=write)

    assert outcome.receipt.state == State.PARTLY_APPLIED
    assert set(case["expect"]["must_exist"]) <= outcome.records.keys()
    assert {name: outcome.records[name]["text"] for name in case["expect"]["final_text"]} == case["expect"][
        "final_text"
    ]


@pytest.mark.parametrize("case", _named({"fault-09"}))
def test_passes_that_are_small_each_are_stopped_before_they_are_much_together(
    case: dict[str, Any], tmp_path: Path
) -> None:
    """Memories that a person has removed night by night add up: the night that makes it too much is refused."""
    archive = _archive(case, tmp_path)
    now = _instant(case["setup"]["now"])
    policy = replace(_policy(case, now), max_rolling_loss_fraction=Policy(as_of=now).max_rolling_loss_fraction)
    states = []
    for night, ids in enumerate(case["setup"]["prune_per_run"]):
        store = open_store(f"jsonl:{archive}", in_place=True)
        first, run = (RunDirectory.create(tmp_path / name, name) for name in (f"plan-{night}", f"edit-{night}"))
        pipeline.plan(store, first, policy, clock=lambda: now)
        pipeline.edit(store, first, run, dict.fromkeys(ids.split(","), "prune"), clock=lambda: now)
        states.append(pipeline.apply(store, run, clock=lambda: now + timedelta(minutes=1)).state)

    assert len(states) == case["setup"]["repeat_runs"]
    assert states[0] == State.CONSOLIDATED
    assert states[-1] == State.REJECTED
    assert len(_read(archive)) >= len(case["memories"]) / 2


@pytest.mark.parametrize("case", _named({"fault-13"}))
def test_a_damaged_line_stops_the_pass_and_is_named(case: dict[str, Any], tmp_path: Path) -> None:
    """Nothing is read around the damage: the error has the line's number and the file keeps its bytes."""
    archive = _archive(case, tmp_path)
    with archive.open("a") as file:
        file.write(case["setup"]["input_jsonl_extra_line"] + "\n")
    before = archive.read_bytes()

    with pytest.raises(BadRecord, match="line 5"):
        _run(case, archive, tmp_path / "run")

    assert archive.read_bytes() == before


@pytest.mark.parametrize("case", _named(MODEL))
def test_a_model_cannot_hurt_a_store(case: dict[str, Any], tmp_path: Path) -> None:
    """Empty, wiping and forgetful answers: the run fails, or shows what was refused and why; no byte changes."""
    archive = _archive(case, tmp_path)
    before = archive.read_bytes()
    with serving(lambda asked: _in_labels(case, asked)) as model:
        proposer = ProposerOptions(
            url=model.url, model="tester", uses=("judge", "rewrite"), embeddings=Embeddings(model="vectors")
        )
        if case["expect"]["error"]:
            with pytest.raises(ModelFailed, match="nothing was written, and replay batches stay"):
                _run(case, archive, tmp_path / "run", proposer=proposer)
        else:
            receipt, run = _run(case, archive, tmp_path / "run", proposer=proposer)
            refused = [f"merge_rejected:{row['detail'].split(',')[0]}" for row in run.read("proposals").to_pylist()]
            assert receipt.state == State.NOTHING_TO_DO
            assert case["expect"]["report"] == refused
        assert model.asked

    assert archive.read_bytes() == before


def _in_labels(case: dict[str, Any], asked: Asked) -> Any:
    """The answer of a case, which names memories by their ids, in the labels of the question."""
    answer = case["setup"]["llm"]["returns"]
    texts = {memory["id"]: memory["text"] for memory in case["memories"]}
    if not isinstance(answer, dict) or "merge" not in answer:
        return answer
    return {"merge": [{**each, "ids": [asked.label(texts[name]) for name in each["ids"]]} for each in answer["merge"]]}


@pytest.mark.parametrize("case", _named({"fault-17"}))
def test_a_second_pass_finds_nothing_to_do(case: dict[str, Any], tmp_path: Path) -> None:
    """What one pass left is left alone by the next."""
    first = _consolidate(case, tmp_path)
    after_first = Path(tmp_path / "memories.jsonl").read_bytes()
    receipt, _ = _run(case, tmp_path / "memories.jsonl", tmp_path / "second")

    assert first.receipt.state == State.CONSOLIDATED
    assert receipt.state == State.NOTHING_TO_DO
    assert (tmp_path / "memories.jsonl").read_bytes() == after_first


@pytest.mark.parametrize("case", _named({"fault-11"}))
def test_a_pass_that_dies_in_the_middle_changes_nothing_and_the_next_ends_it(
    case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The archive is wholly old after the interruption, wholly new after the next run."""
    archive = _archive(case, tmp_path)
    before = archive.read_bytes()

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("os.replace", die)
        patched.setattr("os.rename", die)
        with pytest.raises(KeyboardInterrupt):
            _run(case, archive, tmp_path / "first")
    interrupted = archive.read_bytes()
    receipt, _ = _run(case, archive, tmp_path / "second")

    assert interrupted == before
    assert receipt.state == State.CONSOLIDATED
    assert _read(archive).keys() == {"a", "c", "d"}


def _consolidate(case: dict[str, Any], folder: Path, *, between: Any = None, **policy: Any) -> Outcome:
    archive = _archive(case, folder)
    receipt, run = _run(case, archive, folder / "run", between=between, **policy)
    plan = run.read("plan").to_pylist()
    return Outcome(
        receipt=receipt,
        run=run,
        records=_read(archive),
        went_into={row["memory_id"]: row["into_id"] for row in plan if row["action"] == "merge"},
        pruned={row["memory_id"] for row in plan if row["action"] == "prune"},
        promoted={row["memory_id"] for row in plan if row["action"] == "promote"},
    )


def _run(
    case: dict[str, Any],
    archive: Path,
    folder: Path,
    *,
    between: Any = None,
    proposer: ProposerOptions | None = None,
    **policy: Any,
) -> tuple[Receipt, RunDirectory]:
    now = _instant(case["setup"]["now"])
    store = open_store(f"jsonl:{archive}", in_place=True)
    run = RunDirectory.create(folder, folder.name)
    pipeline.plan(store, run, replace(_policy(case, now), **policy), clock=lambda: now, proposer=proposer)
    if between is not None:
        between(archive)
        store = open_store(f"jsonl:{archive}", in_place=True)
    return pipeline.apply(store, run, clock=lambda: now + timedelta(minutes=1), keep_snapshots=True), run


def _policy(case: dict[str, Any], now: datetime) -> Policy:
    setup = case["setup"]
    prune, promote = setup.get("prune", {}), setup.get("promote", {})
    return Policy(
        as_of=now,
        max_loss_fraction=setup["max_loss_fraction"],
        max_rolling_loss_fraction=1.0,
        max_expired_fraction=1.0,
        stale_max_importance=prune.get("max_importance"),
        stale_max_use_count=prune.get("max_access_count"),
        stale_min_age_days=prune.get("min_age_days"),
        stale_kinds=tuple(prune.get("types", ())),
        promote_min_use_count=promote.get("min_recall_count"),
        promote_min_sessions=promote.get("min_distinct_sessions"),
    )


def _archive(case: dict[str, Any], folder: Path) -> Path:
    archive = folder / "memories.jsonl"
    _write(archive, [_record(memory, promotes="promote" in case["setup"]) for memory in case["memories"]])
    return archive


def _record(memory: dict[str, Any], *, promotes: bool) -> dict[str, Any]:
    record = {FIELDS.get(name, name): value for name, value in memory.items() if name != "distinct_sessions"}
    if promotes:
        record["tier"] = "short_term"
        record["sessions"] = [f"s{number}" for number in range(memory.get("distinct_sessions", 0))]
    return record


def _write(archive: Path, records: list[dict[str, Any]]) -> None:
    archive.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))


def _read(archive: Path) -> dict[str, dict[str, Any]]:
    return {record["id"]: record for record in map(json.loads, archive.read_text().splitlines())}


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)
