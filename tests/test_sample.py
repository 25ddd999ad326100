"""The sample store through a whole plan: what must fold folds, what must stay apart stays apart."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from memfold.policy import Policy
from memfold_flows import pipeline
from memfold_flows.receipts import PlanReport
from memfold_flows.runs import RunDirectory
from memfold_flows.stores import open_store

SAMPLE = Path(__file__).parents[1] / "data/sample"
EXPECTED = json.loads((SAMPLE / "expected.json").read_text(encoding="utf-8"))
AS_OF = datetime(2025, 12, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Planned:
    """A plan over the sample: its report, and the row of each memory."""

    report: PlanReport
    rows: Mapping[str, Mapping[str, Any]]

    def ends_in(self, memory_id: str) -> str:
        """The memory that stays for this one."""
        return str(self.rows[memory_id]["into_id"] or memory_id)

    def ids(self, **columns: str) -> list[str]:
        """The memories whose row has these values, sorted."""
        return sorted(
            memory_id
            for memory_id, row in self.rows.items()
            if all(row[name] == value for name, value in columns.items())
        )


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Planned:
    """The plan with the thresholds that nobody set."""
    return _plan(tmp_path_factory.mktemp("sample") / "run", Policy(as_of=AS_OF))


@pytest.fixture(scope="module")
def planned_with_more(tmp_path_factory: pytest.TempPathFactory) -> Planned:
    """The plan with promotion after three sessions, stale notes leaving, and replaced memories archived."""
    policy = Policy(
        as_of=AS_OF,
        promote_min_sessions=3,
        stale_min_idle_days=180,
        stale_max_use_count=0,
        stale_max_importance=0.1,
        supersede="archive",
    )
    return _plan(tmp_path_factory.mktemp("sample") / "run", policy)


@pytest.mark.parametrize("group", EXPECTED["fold"], ids=lambda group: f"{group['ids'][0]}: {group['why']}")
def test_memories_that_say_the_same_end_in_one(planned: Planned, group: dict[str, Any]) -> None:
    """Of a group that says one thing, one memory stays and the others are merged into it."""
    survivors = {planned.ends_in(memory_id) for memory_id in group["ids"]}

    assert len(survivors) == 1
    assert survivors < set(planned.ids(action="keep"))


@pytest.mark.parametrize("pair", EXPECTED["apart"], ids=lambda pair: f"{pair['ids'][0]}: {pair['why']}")
def test_memories_that_only_look_alike_stay_apart(planned: Planned, pair: dict[str, Any]) -> None:
    """A trap never folds: its two memories end in two."""
    one, other = pair["ids"]

    assert planned.ends_in(one) != planned.ends_in(other)


@pytest.mark.parametrize("reason", ["expired", "blank"])
def test_dead_memories_leave(planned: Planned, reason: str) -> None:
    """Exactly the expired and the blank memories are pruned, each for its reason."""
    assert planned.ids(action="prune", reason=reason) == EXPECTED[reason]
    assert planned.ids(action="prune") == sorted(EXPECTED["expired"] + EXPECTED["blank"])


def test_a_memory_with_no_words_but_a_title_or_a_dot_is_not_blank(planned: Planned) -> None:
    """A title alone, or three dots, is something that somebody wrote down."""
    assert set(EXPECTED["not_blank"]) <= set(planned.ids(action="keep"))


def test_pinned_and_protected_memories_are_kept(planned_with_more: Planned) -> None:
    """Whatever the policy, a pinned or protected memory has no other action than keep."""
    assert set(EXPECTED["never_removed"]) <= set(planned_with_more.ids(action="keep"))


def test_only_the_support_desk_is_refused(planned: Planned) -> None:
    """The plan would lose more than a quarter of the desk's memories, so the gate refuses that scope and no other."""
    assert [scope.scope for scope in planned.report.refused] == EXPECTED["refused"]
    assert sorted(scope.scope for scope in planned.report.writable) == EXPECTED["accepted"]


def test_short_term_memories_of_three_sessions_are_promoted(planned_with_more: Planned) -> None:
    """One whose text stands in the long-term tier already is merged into that memory instead."""
    assert planned_with_more.ids(action="promote") == EXPECTED["promoted"]
    for memory_id, into_id in EXPECTED["folds_into_the_promoted_tier"].items():
        assert planned_with_more.rows[memory_id]["action"] == "merge"
        assert planned_with_more.ends_in(memory_id) == planned_with_more.ends_in(into_id)


def test_stale_notes_leave_only_where_a_policy_asks_for_it(planned: Planned, planned_with_more: Planned) -> None:
    """Unused, unimportant and idle for half a year is stale; without the policy the same notes stay."""
    assert planned_with_more.ids(reason="stale") == EXPECTED["stale"]
    assert set(EXPECTED["stale"]) <= set(planned.ids(action="keep"))


def test_a_replaced_memory_leaves_only_where_a_policy_asks_for_it(planned: Planned, planned_with_more: Planned) -> None:
    """A later memory that says what changed replaces the earlier one; by default both stay."""
    superseded = {name: planned_with_more.rows[name]["superseded_by"] for name in EXPECTED["replaced"]}

    assert superseded == EXPECTED["replaced"]
    assert set(EXPECTED["replaced"]) <= set(planned.ids(action="keep"))


def _plan(folder: Path, policy: Policy) -> Planned:
    store = open_store(f"jsonl:{SAMPLE / 'memories.jsonl'}")
    run = RunDirectory.create(folder, "sample")
    report = pipeline.plan(store, run, policy, clock=lambda: AS_OF)
    store.close()
    return Planned(report, {row["memory_id"]: row for row in run.read("plan").to_pylist()})
