"""A plan that waits for a person: approved, declined, approved under another limit, or not answered at all."""

from __future__ import annotations

import contextvars
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from uuid import UUID

import pytest

from memfold_flows.runs import known_runs, runs_folder

from .conftest import TEXTS, Household

pytestmark = pytest.mark.prefect

COPY = TEXTS[0].upper() + "!"


class Run:
    """A run of the flow in the background, which pauses for an answer."""

    def __init__(self, executor: ThreadPoolExecutor, store: str, **parameters: Any) -> None:
        from memfold_flows.consolidate import consolidate

        self._ids: list[UUID] = []
        flow = consolidate.with_options(on_running=[lambda _flow, run, _state: self._ids.append(run.id)])
        self._ended: Future[Any] = executor.submit(
            contextvars.copy_context().run, flow, store, return_state=True, **parameters
        )

    def answer(self, **answer: Any) -> None:
        """Resume the run through Prefect's API, once it is paused."""
        from prefect.flow_runs import resume_flow_run

        self.wait_until_paused()
        resume_flow_run(self._ids[0], run_input=answer)

    def wait_until_paused(self) -> None:
        """Return once the run asks its question."""
        from prefect.client.orchestration import get_client

        deadline = time.monotonic() + 60
        with get_client(sync_client=True) as client:
            while not (self._ids and (state := client.read_flow_run(self._ids[0]).state) and state.is_paused()):
                assert not self._ended.done(), self._ended.result()
                assert time.monotonic() < deadline, "the run did not pause"
                time.sleep(0.2)
        time.sleep(0.5)  # the question is stored a moment after the state

    @property
    def state(self) -> Any:
        """The final state."""
        return self._ended.result(60)


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    """Where runs are made in the background."""
    with ThreadPoolExecutor() as executor:
        yield executor


def test_an_approved_plan_is_written(executor: ThreadPoolExecutor, household: Household) -> None:
    """Until then the store is as it was, and nobody is kept from it."""
    household.live("home", *TEXTS, COPY)
    run = Run(executor, household.url, approval={"when": "always"})
    run.wait_until_paused()
    assert household.counts() == {"home": 7}
    assert household.ledger("select until from memfold_lease") == [(0,)]

    run.answer(approve=True)

    assert run.state.name == "Consolidated"
    assert household.counts() == {"home": 6}


def test_the_question_says_what_an_answer_does() -> None:
    """Prefect shows the description of a field beside it, and off declines."""
    from memfold_flows.approval import Decision

    asked = Decision.with_initial_data(description="# Plan").model_json_schema()["properties"]

    assert asked["approve"]["description"] == "On: write this plan. Off: decline it; nothing is written."
    assert (asked["approve"]["default"], asked["max_loss_fraction"]["anyOf"][0]["maximum"]) == (False, 0.5)


def test_a_declined_plan_is_not_written(executor: ThreadPoolExecutor, household: Household) -> None:
    """The run ends as a refusal that says who refused; the plan can still be applied by its id."""
    household.live("home", *TEXTS, COPY)
    run = Run(executor, household.url, approval={"when": "always"})

    run.answer(approve=False)

    [planned] = known_runs(runs_folder(_home()))
    assert (run.state.name, run.state.type.value) == ("Rejected", "COMPLETED")
    assert run.state.message == f"declined; nothing was written. The plan stays: {planned.run_id}"
    assert household.counts() == {"home": 7}
    assert not planned.wrote


def test_a_plan_that_nobody_answers_is_not_written(executor: ThreadPoolExecutor, household: Household) -> None:
    """It is no failure: the run says that nobody answered."""
    household.live("home", *TEXTS, COPY)

    state = Run(executor, household.url, approval={"when": "always", "wait_hours": 0.001}).state

    assert (state.name, state.type.value) == ("Rejected", "COMPLETED")
    assert state.message.startswith("nobody answered within 0.001 h; nothing was written. The plan stays: ")
    assert household.counts() == {"home": 7}


def test_an_operator_may_raise_the_limit(executor: ThreadPoolExecutor, household: Household) -> None:
    """What the gate refused is judged again under the operator's limit; that plan is a run of its own."""
    household.live("home", *TEXTS, "The dog sleeps in the hall", "Mia waters the fern on Mondays")
    stale = {"max_loss_fraction": 0.1, "stale_min_age_days": 20, "on_excess": "reject"}
    household.ledger("update memories set created_at = created_at + 25 * 86400000000 where memory_id > 'home-1'")
    run = Run(executor, household.url, approval={"when": "on_warning"}, thresholds=stale)

    run.answer(approve=True, max_loss_fraction=0.3)

    assert run.state.name == "Consolidated"
    assert run.state.message == "0 merged, 2 pruned, 0 promoted of 8"
    assert sorted(each.run_id.partition("-limit")[1] for each in known_runs(runs_folder(_home()))) == ["", "-limit"]


def test_a_plan_without_a_warning_needs_nobody(executor: ThreadPoolExecutor, household: Household) -> None:
    """on_warning asks only where a scope is refused or loses more than half of what it may."""
    household.live("home", *TEXTS, COPY)

    assert Run(executor, household.url, approval={"when": "on_warning"}).state.name == "Consolidated"


def test_a_plan_is_applied_later_by_its_run_id(household: Household) -> None:
    """The plain way to approve: plan, look, apply. Applied again, it changes nothing."""
    from memfold_flows.consolidate import apply, plan

    household.live("home", *TEXTS, COPY)

    planned = plan(household.url, return_state=True)
    [run] = known_runs(runs_folder(_home()))
    assert (planned.name, planned.message) == ("Planned", f"accepted; run id {run.run_id}")
    assert household.counts() == {"home": 7}
    applied = [apply(run.run_id, return_state=True) for _ in range(2)]

    assert [state.name for state in applied] == ["Consolidated", "Consolidated"]
    assert household.counts() == {"home": 6}
    assert household.ledger("select count(*) from memfold_runs") == [(1,)]


def _home() -> str | None:
    import os

    return os.environ.get("MEMFOLD_HOME")
