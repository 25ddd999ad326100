"""Agents, passes, edits, undos, erasures and crashes in any order: what one pass promises holds for all together."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from memfold.errors import BadUsage, PlanDamaged
from memfold.policy import Policy
from memfold_flows import erasure, noting, pipeline
from memfold_flows.runs import RunDirectory
from memfold_flows.stores import open_store, sqlite
from memfold_flows.stores.undo_units import EVERYTHING, Selection

from .conftest import Kitchen

#: Few texts, so that copies, rewordings and containment happen all the time.
TEXTS = st.sampled_from(
    ["Ann likes tea", "ann likes  tea.", "Ann likes tea and cake", "Note: Ann likes tea", "Bob bakes bread", "..."]
)
SCOPES = st.sampled_from(["kitchen", "kitchen", "garden"])
WINDOW = timedelta(days=30)


class Crash(BaseException):
    """The process ends here, as far as memfold can tell."""


@dataclass
class Taken:
    """A memory that a pass removed: what it said, where it went, and in which run."""

    text: str
    into_id: str | None
    run_id: str


class Memories(RuleBasedStateMachine):
    """A small store, and what must be true of it whatever happened."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="memfold-fuzz-"))
        path = self.folder / "memories.db"
        sqlite.init(path)
        self.store = open_store(f"sqlite:{path}")
        self.kitchen = Kitchen(path, self.store)
        self.now = datetime(2026, 6, 1, tzinfo=UTC)
        self.number = 0
        #: What agents wrote last, of each memory that is there; what passes took; what was erased.
        self.texts: dict[str, str] = {}
        self.taken: dict[str, Taken] = {}
        #: By memory, the scope that a pass lost it from and when; an undo gives the loss back, an erasure does not.
        self.lost: dict[str, tuple[str, datetime]] = {}
        self.forgotten: set[str] = set()
        self.planned: RunDirectory | None = None
        self.interrupted: RunDirectory | None = None
        self.applied: list[RunDirectory] = []
        #: Pairs that an undo took apart, with what both said then.
        self.rejected: dict[tuple[str, str], tuple[str, str]] = {}

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.folder)

    def clock(self) -> datetime:
        """A clock that the rules set."""
        return self.now

    # Agents

    @rule(text=TEXTS, scope=SCOPES, copies=st.integers(1, 4))
    def remember(self, text: str, scope: str, copies: int) -> None:
        for _ in range(copies):
            memory_id = self._next("m")
            self.kitchen.remember(memory_id, text, scope=scope)
            self.texts[memory_id] = text

    @precondition(lambda self: self.texts)
    @rule(data=st.data(), text=TEXTS)
    def reword(self, data: st.DataObject, text: str) -> None:
        memory_id = data.draw(st.sampled_from(sorted(self.texts)))
        self.kitchen.rewrite(memory_id, text)
        self.texts[memory_id] = text

    @precondition(lambda self: self.texts)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        memory_id = data.draw(st.sampled_from(sorted(self.texts)))
        self.kitchen.forget(memory_id)
        del self.texts[memory_id]

    @rule(days=st.sampled_from([1, 20, 40]))
    def time_passes(self, days: int) -> None:
        self.now += timedelta(days=days)

    # memfold

    @precondition(lambda self: self.texts and self.interrupted is None)
    @rule(on_excess=st.sampled_from(["reject", "fit"]), cap=st.sampled_from([None, None, 3]))
    def plan(self, on_excess: str, cap: int | None) -> None:
        self.now += timedelta(hours=1)
        policy = Policy(as_of=self.now, session_recall="null_is_all", on_excess=on_excess, max_memories=cap)
        run = self._new_run()
        pipeline.plan(self.store, run, policy, clock=self.clock)
        self._require_no_rejected_pair(run)
        self.planned = run

    @precondition(lambda self: self.planned is not None)
    @rule(data=st.data(), decision=st.sampled_from(["reject", "pin", "prune"]))
    def edit(self, data: st.DataObject, decision: str) -> None:
        assert self.planned is not None
        ids = self.planned.read("plan")["memory_id"].to_pylist()
        if not ids:  # an erasure took the last of them out of it
            return
        decisions = {data.draw(st.sampled_from(ids)): decision}
        run = self._new_run()
        try:
            pipeline.edit(self.store, self.planned, run, decisions, clock=self.clock)
        except BadUsage:  # a plan has no place for every decision
            return
        except PlanDamaged:
            assert self.forgotten, "only an erasure may take the ground from under a plan"
            return
        self.planned = run

    @precondition(lambda self: self.planned is not None or self.interrupted is not None)
    @rule(crash=st.sampled_from([None, None, None, "before the commit", "after the commit"]))
    def apply(self, crash: str | None) -> None:
        self.now += timedelta(hours=1)
        run = self.interrupted or self.planned
        assert run is not None
        before = dict(self.texts)
        entries = Counter(str(row[1]) for row in self.kitchen.rows.values())
        try:
            with _crashing(crash):
                pipeline.apply(self.store, run, clock=self.clock, keep_snapshots=True)
        except Crash:
            self.interrupted = run
        except (BadUsage, PlanDamaged):
            assert self.forgotten or run in self.applied, "nothing else makes a plan unusable"
            self.planned = self.interrupted = None
            return
        else:
            self.planned = self.interrupted = None
            if run.wrote:
                self.applied.append(run)
        self._require_as_planned(run, before)
        self._require_limits(run, entries)

    @precondition(lambda self: self.applied)
    @rule(data=st.data(), only_one=st.booleans())
    def undo(self, data: st.DataObject, only_one: bool) -> None:
        self.now += timedelta(hours=1)
        run = data.draw(st.sampled_from(self.applied))
        mine = sorted(memory_id for memory_id, taken in self.taken.items() if taken.run_id == run.run_id)
        selection = Selection(memory_id=data.draw(st.sampled_from(mine))) if only_one and mine else EVERYTHING
        coming = [selection.memory_id] if selection.memory_id else mine
        report = pipeline.undo(self.store, run, clock=self.clock, selection=selection).report
        assert [drift for drift in report.not_restored if drift.memory_id not in self.forgotten] == []
        for memory_id in coming:
            taken = self.taken.pop(memory_id or "")
            self.lost.pop(memory_id or "", None)
            self.texts[memory_id or ""] = taken.text
            if taken.into_id in self.texts:
                self.rejected[memory_id or "", taken.into_id] = (taken.text, self.texts[taken.into_id])

    @precondition(lambda self: self.texts or self.taken)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        self.now += timedelta(hours=1)
        memory_id = data.draw(st.sampled_from(sorted(self.texts.keys() | self.taken.keys())))
        meant = erasure.look_up(self.store, [memory_id], with_survivor=False)
        erasure.forget(
            self.store,
            meant,
            runs_folder=self.folder,
            clock=self.clock,
            monotonic=time.monotonic,
            new_key=bytes(32),
        )
        self.forgotten.add(memory_id)
        self.texts.pop(memory_id, None)
        self.taken.pop(memory_id, None)

    # What always holds

    @invariant()
    def each_memory_is_there_or_was_taken_by_a_pass_that_said_so(self) -> None:
        rows = self.kitchen.rows
        assert rows.keys() == self.texts.keys()
        assert {memory_id: self._text(row) for memory_id, row in rows.items()} == self.texts

    @invariant()
    def an_old_id_leads_to_where_the_memory_went_and_a_standing_one_to_itself(self) -> None:
        with self.store.ledger() as ledger:
            assert {each: ledger.resolve(each) for each in self.texts} == {each: each for each in self.texts}
            for memory_id, taken in self.taken.items():
                if taken.into_id is not None and taken.into_id not in self.forgotten:
                    assert ledger.resolve(memory_id) == self._end_of(memory_id)

    @invariant()
    def the_store_knows_what_each_scope_lost_in_a_month(self) -> None:
        with self.store.ledger() as ledger:
            assert ledger.losses(self.now - WINDOW) == self._lost_in_a_month()

    # Helpers

    def _next(self, what: str) -> str:
        self.number += 1
        return f"{what}-{self.number:03d}"

    def _new_run(self) -> RunDirectory:
        run_id = self._next("night")
        return RunDirectory.create(self.folder / run_id, run_id)

    def _text(self, row: tuple[Any, ...]) -> str:
        return str(row[4])

    def _end_of(self, memory_id: str) -> str:
        seen = memory_id
        while (taken := self.taken.get(seen)) is not None and taken.into_id is not None:
            seen = taken.into_id
        return seen

    def _require_as_planned(self, run: RunDirectory, before: dict[str, str]) -> None:
        """Take note of what a pass took: only what its plan said, as the plan had seen it, into what stands."""
        there = self.kitchen.rows.keys()
        plan = {row["memory_id"]: row for row in run.read("plan").to_pylist()}
        seen = {row["memory_id"]: row["content"] for row in run.read("snapshot", ["memory_id", "content"]).to_pylist()}
        for memory_id in before.keys() - there:
            action, into_id = plan[memory_id]["action"], plan[memory_id]["into_id"]
            assert action in ("merge", "prune")
            assert before[memory_id] == seen[memory_id]
            assert into_id is None or (into_id in there and before[into_id] == seen[into_id])
            self.taken[memory_id] = Taken(self.texts.pop(memory_id), into_id, run.run_id)
            if into_id is None or _letters(before[memory_id]) != _letters(before[into_id]):
                self.lost[memory_id] = (plan[memory_id]["scope"], self.now)

    def _require_no_rejected_pair(self, run: RunDirectory) -> None:
        for row in run.read("plan", ["memory_id", "action", "into_id"]).to_pylist():
            said = self.rejected.get((row["memory_id"], row["into_id"]))
            if row["action"] == "merge" and said is not None:
                now = (self.texts[row["memory_id"]], self.texts[row["into_id"]])
                assert now != said, f"{row['memory_id']} into {row['into_id']} was taken back by a person"

    def _require_limits(self, run: RunDirectory, entries: Mapping[str, int]) -> None:
        """A pass lost no more than a quarter of a scope, and with the month before it no more than half."""
        mine = {memory_id for memory_id, taken in self.taken.items() if taken.run_id == run.run_id}
        now = Counter(self.lost[memory_id][0] for memory_id in mine & self.lost.keys())
        for scope, lost in now.items():
            of_month = self._lost_in_a_month()[scope]
            assert lost <= 0.25 * entries[scope]
            assert of_month <= 0.5 * (entries[scope] + of_month - lost)

    def _lost_in_a_month(self) -> Counter[str]:
        return Counter(scope for scope, at in self.lost.values() if at >= self.now - WINDOW)


def _letters(text: str) -> str:
    """What two exact copies have in common; a text without letters is only like itself."""
    return "".join(sign for sign in text.casefold() if sign.isalnum()) or text


@contextmanager
def _crashing(where: str | None) -> Iterator[None]:
    """End the process, as it were, at this point."""

    def crash(*_: Any) -> None:
        raise Crash

    with pytest.MonkeyPatch.context() as patched:
        if where == "before the commit":
            patched.setattr(RunDirectory, "write_undo", crash)
        elif where == "after the commit":
            patched.setattr(noting, "note", crash)
        yield


def _fuzz(examples: int, steps: int) -> None:
    quiet = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
    chosen = settings(
        max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=quiet, print_blob=True
    )
    run_state_machine_as_test(Memories, settings=chosen)


@pytest.mark.timeout(900)
def test_a_hundred_drawn_histories_lose_nothing() -> None:
    """Each of up to eight steps."""
    _fuzz(100, steps=8)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_two_thousand_drawn_histories_lose_nothing() -> None:
    """Each of up to thirty steps."""
    _fuzz(2000, steps=30)
