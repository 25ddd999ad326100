"""The nightly deployment on a real server with a real worker."""

from __future__ import annotations

import json
from typing import Any

import pytest

from memfold_flows import leases
from memfold_flows.passes import now
from memfold_flows.stores import open_store

from .conftest import TEXTS, Household, Site, readme_commands

pytestmark = [pytest.mark.prefect, pytest.mark.timeout(600)]

COPY = TEXTS[0].upper() + "!"


def test_the_deployment_section_of_the_readme_works_word_for_word(site: Site) -> None:
    """Its commands set a site up as they stand; the store of prefect.yaml is looked for beside it."""
    commands = readme_commands()
    household = Household(site.folder / "memories.db")
    household.live("home", *TEXTS, COPY)

    site.prefect(*commands[-1])

    assert [words[0] for words in commands] == [
        "server",
        "work-pool",
        "--no-prompt",
        "automation",
        "worker",
        "deployment",
    ]
    assert household.counts() == {"home": 6}


def test_a_night_changes_what_is_due_and_within_the_limit(site: Site, household: Household) -> None:
    """Of 50 scopes 39 fold their copy, 10 were seen an hour ago, and one is refused; the run says so."""
    for number in range(49):
        household.live(f"home-{number:02}", *TEXTS, COPY)
    for number in range(10):
        household.was_seen(f"home-{number:02}", hours_ago=1)
    household.live("attic", *TEXTS[:5], expired=True)
    household.live("attic-2", TEXTS[5])
    household.ledger("update memories set scope = 'attic' where scope = 'attic-2'")

    run = site.trigger("sweep/nightly", store=household.url)
    state = site.wait(run)

    assert (state.name, state.type.value) == ("PartlyApplied", "COMPLETED")
    assert state.message == "39 merged, 0 pruned, 0 promoted of 279; 1 of 40 scopes refused"
    assert household.counts() == {
        "attic": 6,
        **{f"home-{number:02}": 7 for number in range(10)},
        **{f"home-{number:02}": 6 for number in range(10, 49)},
    }
    artifacts = site.artifacts(run)
    assert set(artifacts) == {"plan", "plan-details", "actions", "run-directory", "outcome", "pass-progress"}
    assert "| 279 -> 240 | 0 (0.0%) | 25% of a scope | 39 | 0 | 0 | 0 | 39 (14.0%) |" in str(artifacts["outcome"].data)
    assert "attic: 5 of 6 memories" in str(artifacts["outcome"].data)
    assert "| stays | folds into it | why |" in str(artifacts["plan-details"].data)
    actions = json.loads(str(artifacts["actions"].data))
    assert (actions[0]["scope"], actions[0]["gate"][:8], len(actions)) == ("attic", "refused:", 40)
    rejected = site.event("memfold.gate.rejected", lambda event: "attic" in event["reasons"])
    finished = site.event("memfold.pass.finished", lambda event: event["run_id"] == rejected["run_id"])
    assert (finished["state"], finished["merged"], finished["scopes_refused"]) == ("PartlyApplied", 39, 1)


def test_a_night_that_begins_during_another_is_cancelled(site: Site, household: Household) -> None:
    """The first one goes on as if nothing had been; here it waits for a pass that someone makes by hand."""
    household.live("home", *TEXTS, COPY)
    store = open_store(household.url)
    with leases.held(store, lambda: open_store(household.url), "by-hand", clock=now):
        first = site.trigger("sweep/nightly", store=household.url)
        site.wait(first, until=lambda state: state.is_running())

        second = site.run("sweep/nightly", store=household.url)

    assert (second.type.value, second.message) == ("CANCELLED", "Deployment concurrency limit reached.")
    assert site.wait(first).name == "Consolidated"
    assert household.counts() == {"home": 6}
    store.close()


def test_the_example_alerts_are_raised(site: Site, household: Household) -> None:
    """The gate trips at once; that memories wait, and that no pass ends any more, shows after three nights.

    Here a night is three seconds long.
    """
    household.live("attic", *TEXTS[:5], expired=True)
    examples = (site.folder / "automations.yaml").read_text().replace("name: memfold-", "name: quick-")
    waiting, silent = (part.partition("\n\n")[0] for part in examples.split("  - name: ")[2:4])
    quick = "".join(f"  - name: {part}\n" for part in (waiting, silent)).replace("259200", "10")
    (site.folder / "quick.yaml").write_text(f"automations:\n{quick.replace('*tell', '[{type: do-nothing}]')}")
    site.prefect("automation", "create", "--from-file", "quick.yaml")

    state = site.run("consolidate/on-demand", store=household.url)

    assert state.name == "Rejected"
    assert state.message == "0 merged, 0 pruned, 0 promoted of 5; 1 of 1 scope refused"
    for cause in ("memfold.gate.rejected", "memfold.memories.waiting", "memfold.pass.finished"):
        _wait_for_alert(site, household, cause)


def _wait_for_alert(site: Site, household: Household, cause: str) -> None:
    def is_it(event: dict[str, Any]) -> bool:
        found = event["triggering_event"]
        return found["event"] == cause and found["resource"]["prefect.resource.name"].endswith(str(household.path))

    site.event("prefect.automation.triggered", is_it, seconds=60)
