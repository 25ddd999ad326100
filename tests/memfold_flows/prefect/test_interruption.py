"""A worker that is killed while a pass writes: the next run ends what was begun."""

from __future__ import annotations

import time

import pytest

from .conftest import Household, Site

pytestmark = [pytest.mark.prefect, pytest.mark.timeout(600)]

SCOPES = 1_500
ANIMALS = ("otter", "heron", "badger", "newt", "swift", "marten", "viper", "stoat", "crane", "lynx")


def test_the_next_run_ends_what_a_killed_worker_began(site: Site, household: Household) -> None:
    """Nothing is written twice and nothing is lost: each scope keeps one memory of each text."""
    for number in range(SCOPES):
        texts = [f"The {animal} sleeps under bridge {number}" for animal in ANIMALS]
        household.live(f"s{number:05}", *texts, *(text.upper() for text in texts))
    site.trigger("consolidate/on-demand", store=household.url)
    _wait_for_the_first_commit(household)

    site.kill_worker()

    [(began, applied)] = household.ledger("select count(*), count(applied_at) from memfold_runs")
    assert (began, applied) == (1, 0)
    half_way = sum(household.counts().values())
    assert SCOPES * 10 < half_way < SCOPES * 20
    household.ledger("update memfold_lease set until = 0")  # two minutes later
    site.start_worker()

    state = site.run("consolidate/on-demand", store=household.url)

    assert state.name == "NothingToDo"
    assert set(household.counts().values()) == {10}
    assert household.ledger("select count(*), count(applied_at) from memfold_runs") == [(1, 1)]
    assert household.ledger("select count(*), count(distinct old_id) from memfold_redirects") == [
        (SCOPES * 10, SCOPES * 10)
    ]


def _wait_for_the_first_commit(household: Household) -> None:
    deadline = time.monotonic() + 240
    while "memfold_applied" not in {row[0] for row in household.ledger("select name from sqlite_schema")} or not (
        household.ledger("select 1 from memfold_applied limit 1")
    ):
        assert time.monotonic() < deadline, "nothing was committed"
        time.sleep(0.01)
