"""What holds for any store: the plan is total, order is no evidence, one pass finds all, refused means unchanged."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memfold.policy import Policy
from memfold.text import read_corpus
from memfold.verdicts import CONTAINS, SAME, judge
from memfold_flows import pipeline
from memfold_flows.receipts import PlanReport, State
from memfold_flows.runs import RunDirectory
from memfold_flows.stores import open_store

AS_OF = datetime(2026, 6, 1, tzinfo=UTC)
OPEN_GATE = {"max_loss_fraction": 1.0, "max_rolling_loss_fraction": 1.0, "max_expired_fraction": 1.0}

#: Few words and values, so that copies, rewordings, containment, chains and ties happen in nearly every example.
SENTENCES = st.sampled_from(
    [
        "Ann likes tea",
        "ann likes tea.",
        "Ann likes tea and cake",
        "Ann likes green tea",
        "Ann does not like tea",
        "Note: Ann likes tea",
        "Bob pays 20 EUR",
        "Bob pays 20 euros",
        "Bob pays 30 EUR",
        "Bob pays 20 EUR today",
        "Is the cellar locked?",
        "The cellar is locked",
        "...",
        " ",
    ]
)
MEMORIES = st.lists(
    st.fixed_dictionaries(
        {
            "text": SENTENCES,
            "scope": st.sampled_from(["kitchen", "kitchen", "garden"]),
            "created_at": st.sampled_from([None, "2026-05-01T08:00:00Z", "2026-05-02T08:00:00Z"]),
        },
        optional={
            "title": st.sampled_from(["Tea", "tea", "Bill 7"]),
            "kind": st.sampled_from(["fact", "rule"]),
            "tier": st.sampled_from(["short_term", "long_term"]),
            "session_id": st.sampled_from(["monday", "tuesday"]),
            "pinned": st.booleans(),
            "importance": st.sampled_from([0.1, 0.9]),
            "use_count": st.integers(0, 3),
            "expires_at": st.sampled_from(["2026-05-30T00:00:00Z", "2027-01-01T00:00:00Z"]),
            "valid_to": st.sampled_from(["2026-12-31T00:00:00Z"]),
        },
    ),
    max_size=14,
)
POLICIES = st.fixed_dictionaries(
    {},
    optional={
        "stale_max_importance": st.just(0.5),
        "promote_min_use_count": st.just(2),
        "on_excess": st.sampled_from(["reject", "fit"]),
        "supersede": st.sampled_from(["report", "archive"]),
    },
)

examples = settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


class Archive:
    """A JSONL archive in a folder that is gone with the example, and the passes over it."""

    def __init__(self, folder: str, memories: list[dict[str, Any]]) -> None:
        self._folder = Path(folder)
        self._passes = 0
        self.path = self._folder / "memories.jsonl"
        self.write(list(enumerate(memories)))

    def write(self, numbered: list[tuple[int, dict[str, Any]]]) -> None:
        lines = [json.dumps({"id": f"m-{number:02d}", **memory}) + "\n" for number, memory in numbered]
        self.path.write_text("".join(lines), encoding="utf-8")

    def plan(self, **thresholds: Any) -> tuple[RunDirectory, PlanReport]:
        self._passes += 1
        run = RunDirectory.create(self._folder / f"run-{self._passes}", f"run-{self._passes}")
        store = open_store(f"jsonl:{self.path}")
        return run, pipeline.plan(store, run, Policy(as_of=AS_OF, **thresholds), clock=_clock)

    def apply(self, run: RunDirectory) -> State:
        store = open_store(f"jsonl:{self.path}", in_place=True)
        return pipeline.apply(store, run, clock=_clock, keep_snapshots=True).state


def for_any_archive(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test on drawn memories, at least one of them, and drawn thresholds."""
    return examples(given(memories=MEMORIES.filter(bool), thresholds=POLICIES)(test))


@for_any_archive
def test_the_plan_is_total_and_what_a_memory_goes_into_stays(
    memories: list[dict[str, Any]], thresholds: dict[str, Any]
) -> None:
    """Each memory has exactly one action; a merge points at a memory that is kept or moves up."""
    with tempfile.TemporaryDirectory() as folder:
        rows = Archive(folder, memories).plan(**thresholds)[0].read("plan").to_pylist()

    assert [row["memory_id"] for row in rows] == [f"m-{number:02d}" for number in range(len(memories))]
    action = {row["memory_id"]: row["action"] for row in rows}
    targets = {row["into_id"] for row in rows if row["action"] == "merge"}
    assert {action[target] for target in targets} <= {"keep", "promote"}


@examples
@given(memories=MEMORIES.filter(bool), thresholds=POLICIES, data=st.data())
def test_the_order_of_the_store_never_matters(
    memories: list[dict[str, Any]], thresholds: dict[str, Any], data: st.DataObject
) -> None:
    """Every relation has the same bytes."""
    with tempfile.TemporaryDirectory() as folder:
        archive = Archive(folder, memories)
        first = archive.plan(**thresholds)[0].manifest.files
        archive.write(data.draw(st.permutations(list(enumerate(memories)))))
        second = archive.plan(**thresholds)[0].manifest.files

    assert first == second


@for_any_archive
def test_a_second_pass_plans_nothing(memories: list[dict[str, Any]], thresholds: dict[str, Any]) -> None:
    """At the same moment, with the gate open, one pass finds all there is."""
    with tempfile.TemporaryDirectory() as folder:
        archive = Archive(folder, memories)
        archive.apply(archive.plan(**thresholds, **OPEN_GATE)[0])
        if not archive.path.read_bytes().strip():
            return
        _, second = archive.plan(**thresholds, **OPEN_GATE)

    assert second.verdict == "nothing to do"


@for_any_archive
def test_what_was_refused_is_unchanged(memories: list[dict[str, Any]], thresholds: dict[str, Any]) -> None:
    """Where the gate accepts nothing, not a byte changes; where it accepts a part, the other scopes stay whole."""
    with tempfile.TemporaryDirectory() as folder:
        archive = Archive(folder, memories)
        before = archive.path.read_bytes()
        run, report = archive.plan(**thresholds, max_loss_fraction=0.0)
        state = archive.apply(run)
        after = archive.path.read_bytes()

    refused = {scope.scope for scope in report.refused}
    assert _lines_of(after, refused) == _lines_of(before, refused)
    if state in (State.REJECTED, State.NOTHING_TO_DO):
        assert after == before


@for_any_archive
def test_no_pair_that_could_merge_is_left_but_held_ones(
    memories: list[dict[str, Any]], thresholds: dict[str, Any]
) -> None:
    """Asked again for every pair of staying memories inside the walls, the verdict finds only what the plan held."""
    with tempfile.TemporaryDirectory() as folder:
        archive = Archive(folder, memories)
        run, _ = archive.plan(**thresholds, **OPEN_GATE)
        staying = {row["memory_id"] for row in run.read("plan").to_pylist() if row["action"] == "keep"}
        rows = [row for row in run.read("snapshot").to_pylist() if row["memory_id"] in staying]
        pairs = run.read("pairs").to_pylist()
    held = {(row["left_id"], row["right_id"]) for row in pairs if row["held"] is not None}
    alive = [row for row in rows if row["content"].strip(" .") and not _is_expired(row)]

    left_over = {pair for pair in _mergeable(alive) if pair not in held}

    assert left_over == set()


def _mergeable(rows: list[dict[str, Any]]) -> set[tuple[str, str]]:
    """The pairs inside the walls that the verdict calls same or contained."""
    walls = ("scope", "trust", "tier", "kind")
    pairs = [
        (one, other)
        for one, other in combinations(range(len(rows)), 2)
        if all(rows[one][wall] == rows[other][wall] for wall in walls)
    ]
    if not pairs:
        return set()
    left, right = (np.array(side, np.int32) for side in zip(*pairs, strict=True))
    newer = [_newer(rows[one]["created_at"], rows[other]["created_at"]) for one, other in pairs]
    same_day = [_is_same_day(rows[one]["created_at"], rows[other]["created_at"]) for one, other in pairs]
    verdicts = judge(
        read_corpus([row["content"] for row in rows]),
        left,
        right,
        newer=np.array(newer, np.int8),
        same_day=np.array(same_day, np.bool_),
    )
    return {
        (rows[one]["memory_id"], rows[other]["memory_id"])
        for (one, other), verdict in zip(pairs, verdicts.verdict.tolist(), strict=True)
        if verdict in (SAME, CONTAINS)
    }


def _newer(one: datetime | None, other: datetime | None) -> int:
    if one is None or other is None or one == other:
        return 0
    return 1 if one > other else 2


def _is_same_day(one: datetime | None, other: datetime | None) -> bool:
    return one is not None and other is not None and one.date() == other.date()


def _is_expired(row: dict[str, Any]) -> bool:
    return row["expires_at"] is not None and row["expires_at"] <= AS_OF


def _lines_of(content: bytes, scopes: set[str]) -> list[bytes]:
    return [line for line in content.splitlines() if json.loads(line)["scope"] in scopes]


def _clock() -> datetime:
    return AS_OF + timedelta(hours=1)
