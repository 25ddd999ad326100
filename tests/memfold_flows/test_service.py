"""What an agent's runtime asks of memfold, one scope at a time; on memfold's own store and for every scope state."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest

from memfold.convergence import ScopeState
from memfold.errors import BadUsage
from memfold_flows.service import Service
from memfold_flows.stores import open_store

from .conftest import AS_OF, DAY, Kitchen

HOUR = timedelta(hours=1)


class Clock:
    """The time, as a test sets it."""

    def __init__(self) -> None:
        self.now = AS_OF

    def __call__(self) -> Any:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def service(tea: Kitchen, clock: Clock) -> Service:
    """The kitchen's service: three of its eight memories are copies."""
    return Service(tea.store, clock=clock)


def told(*contents: str) -> list[dict[str, str]]:
    return [{"title": "A note", "content": content, "kind": "fact"} for content in contents]


def state_of(kitchen: Kitchen) -> ScopeState:
    with kitchen.store.ledger() as ledger:
        assert ledger is not None
        return ledger.state("kitchen")


def test_a_pass_over_one_scope_says_what_it_did(service: Service, tea: Kitchen) -> None:
    """Manual: due or not; the context names the run."""
    result = service.consolidate("kitchen")

    assert (result.entries_before, result.entries_after, result.merged, result.rejected) == (8, 6, 2, False)
    assert (result.context or {})["state"] == "Consolidated"
    assert len(tea.ids) == 6


def test_ten_nights_in_a_kitchen(service: Service, tea: Kitchen, clock: Clock) -> None:
    """Activity, quiet, refused, activity again: each pass as soon as it is due, and the hours until the next.

    Activity is what a pass changes: a new memory and its copy. The refused ones would prune what is old.
    """
    strict = Service(tea.store, clock=clock, stale_min_age_days=30)
    told_ = []

    def night(ask: Service) -> None:
        ask.consolidate("kitchen")
        began, state = clock.now, state_of(tea)
        while not ask.should_auto_consolidate("kitchen").should_consolidate:
            clock.now += HOUR
        told_.append((state.converged, state.multiplier, (clock.now - began) // HOUR, state.refusal is not None))

    night(service)
    for copy in ("kettle-1", "kettle-2"):
        tea.remember(copy, "The kettle is descaled", age=20 * DAY)
    night(service)
    night(service)
    night(service)
    night(service)
    night(strict)
    night(strict)
    for copy in ("lamp-1", "lamp-2"):
        tea.remember(copy, "The lamp above the sink flickers", age=20 * DAY)
    night(service)
    night(service)
    night(service)

    assert told_ == [
        (False, 1.0, 24, False),
        (False, 1.0, 24, False),
        (True, 3.0, 72, False),
        (True, 9.0, 216, False),
        (True, 9.0, 216, False),
        (True, 9.0, 24, True),
        (True, 9.0, 24, True),
        (False, 1.0, 24, False),
        (True, 3.0, 72, False),
        (True, 9.0, 216, False),
    ]


def test_a_refusal_is_remembered_until_something_is_written(service: Service, tea: Kitchen, clock: Clock) -> None:
    """The next check says why; a new memory makes the scope due at once."""
    strict = Service(tea.store, clock=clock, stale_min_age_days=20)
    refused = strict.consolidate("kitchen")
    clock.now += HOUR

    waiting = strict.should_auto_consolidate("kitchen")
    tea.remember("lamp", "The lamp flickers", age=timedelta(0))
    changed = strict.should_auto_consolidate("kitchen")

    assert refused.rejected
    assert waiting.should_consolidate is False
    assert (waiting.refusal or "").startswith("5 of 8 memories would be lost (0.625), the limit is 0.25")
    assert (changed.should_consolidate, changed.reason) == (True, "schedule")


def test_a_recall_makes_no_change(service: Service, tea: Kitchen, clock: Clock) -> None:
    """A digest ignores counters and the order of rows."""
    strict = Service(tea.store, clock=clock, stale_min_age_days=20)
    strict.consolidate("kitchen")
    clock.now += HOUR
    tea._execute("update memories set use_count = 7, last_used_at = 1")

    assert not strict.should_auto_consolidate("kitchen").should_consolidate


def test_an_append_stores_no_memory_and_is_counted(service: Service, tea: Kitchen) -> None:
    """Ten batches make a scope due before its time."""
    service.consolidate("kitchen")
    before = tea.rows
    for number in range(9):
        service.append_replay("kitchen", told(f"Batch {number}"))
    nine = service.should_auto_consolidate("kitchen")
    service.append_replay("kitchen", told("Batch 9"))
    ten = service.should_auto_consolidate("kitchen")

    assert tea.rows == before
    assert (nine.reason, nine.replay_size) == ("none", 9)
    assert (ten.should_consolidate, ten.reason, ten.replay_size) == (True, "replay", 10)
    service.consolidate("kitchen")
    assert service.should_auto_consolidate("kitchen").replay_size == 0


def test_what_several_batches_tell_is_promoted(kitchen: Kitchen, clock: Clock) -> None:
    """The batch that a memory was born in is not evidence for it; batches are read once."""
    kitchen.remember("twice", "Ann is allergic to nuts", tier="short_term", kind="fact", age=timedelta(hours=2))
    kitchen.remember("born", "Bob bakes rye bread", tier="short_term", kind="fact", age=timedelta(0))
    service = Service(kitchen.store, clock=clock, promote_min_evidence=1)
    clock.now = AS_OF
    service.append_replay("kitchen", told("Bob bakes rye bread"))
    clock.now = AS_OF - timedelta(hours=2)
    service.append_replay("kitchen", told("Ann is allergic to nuts"))
    clock.now = AS_OF + HOUR
    service.append_replay("kitchen", told("ann is allergic to nuts.", "Something else"))

    result = service.consolidate("kitchen")

    tiers = {row[0]: row[6] for row in kitchen.rows.values()}
    assert (result.promoted, tiers) == (1, {"twice": "long_term", "born": "short_term"})


@pytest.mark.parametrize(
    ("batch", "says"),
    [
        ([{"title": "A note", "kind": "fact"}], "entry 0 of the batch has no content"),
        ([*told("x"), {"content": "y", "title": 7}], "entry 1 of the batch: title is no text"),
        ([{"content": "half \ud800"}], "entry 0 of the batch: content is no valid Unicode"),
        (["Ann drinks tea"], "entry 0 of the batch is str, not {title, content, kind}"),
        ([*told("x"), None], "entry 1 of the batch is NoneType, not {title, content, kind}"),
        ({"memories": told("x")}, 'a batch is a list of entries, not dict (the list under "memories" is)'),
        ({}, "a batch is a list of entries, not dict"),
        ("Ann drinks tea", "a batch is a list of entries, not str"),
        (None, "a batch is a list of entries, not NoneType"),
    ],
)
def test_a_batch_that_is_none_is_refused(service: Service, tea: Kitchen, batch: Any, says: str) -> None:
    """Nothing of it is appended."""
    with pytest.raises(BadUsage, match=re.escape(f"{says}; nothing was appended")):
        service.append_replay("kitchen", batch)

    assert service.should_auto_consolidate("kitchen").replay_size == 0


def test_a_scope_without_memories_is_never_due(service: Service) -> None:
    """There is nothing to consolidate, and a pass over it is a mistake."""
    assert service.should_auto_consolidate("cellar").reason == "none"
    with pytest.raises(BadUsage, match=r"no memory of .* has the scope 'cellar'"):
        service.consolidate("cellar")


def test_the_backlog_counts_what_was_written_since_the_last_pass(service: Service, tea: Kitchen, clock: Clock) -> None:
    """And makes a scope due only where a threshold is set."""
    service.consolidate("kitchen")
    clock.now += 2 * HOUR
    for number in range(3):
        tea.remember(f"new-{number}", f"Shelf {number} is full", age=-HOUR)
    eager = Service(tea.store, clock=clock, backlog_threshold=3)

    assert (service.should_auto_consolidate("kitchen").reason, eager.should_auto_consolidate("kitchen").reason) == (
        "none",
        "backlog",
    )
    assert eager.should_auto_consolidate("kitchen").backlog_size == 3


def test_an_archive_that_is_rewritten_in_place_has_a_state_too(archive: Any, clock: Clock) -> None:
    """It lies in the ledger beside the archive, whose bytes a pass with nothing to do leaves alone."""
    path = archive([{"id": "a", "text": "Ann drinks tea", "scope": "team"}])
    before = path.read_bytes()
    service = Service(open_store(f"jsonl:{path}", in_place=True), clock=clock)

    service.consolidate("team")

    assert path.read_bytes() == before
    due = service.should_auto_consolidate("team")
    assert (due.reason, due.hours_since_last_consolidate) == ("none", 0.0)


def test_check_says_due_and_not_due_by_its_exit_code(tea: Kitchen, command: Any) -> None:
    """0 and 5, with the same figures as the service; run --if-due then finds nothing to do."""
    url = f"sqlite:{tea.path}"

    first = command("check", url, "--scope", "kitchen", "--json")
    ran = command("run", url, "--if-due", "--yes")
    second = command("check", url, "--scope", "kitchen", "--json")
    again = command("run", url, "--if-due", "--yes", "--json")

    assert (first.code, ran.code, second.code, again.code) == (0, 0, 5, 0)
    assert json.loads(first.out) == {
        "due": True,
        "should_consolidate": True,
        "reason": "schedule",
        "backlog_size": 8,
        "replay_size": 0,
        "hours_since_last_consolidate": None,
        "refusal": None,
    }
    assert (json.loads(second.out)["due"], json.loads(second.out)["reason"]) == (False, "none")
    assert "no scope is due" in json.loads(again.out)["reason"]
    assert len(tea.ids) == 6


def test_check_imports_nothing_heavy(tea: Kitchen) -> None:
    """It runs in an agent's hook."""
    looked = (
        "import sys; from memfold_flows import checking; "
        f"checking.check('sqlite:{tea.path}', 'kitchen', as_json=True); "
        "print([name for name in ('duckdb', 'prefect', 'polars', 'numba', 'pandera', 'scipy') if name in sys.modules])"
    )

    said = subprocess.run([sys.executable, "-c", looked], capture_output=True, text=True, check=True)

    assert said.stdout.splitlines()[-1] == "[]"


def test_hints_name_pairs_by_id_and_title(kitchen: Kitchen, command: Any) -> None:
    """The share of words, and both memories; nothing is judged."""
    kitchen.remember("a", "The staging server listens on port 8080", title="Staging port")
    kitchen.remember("b", "the staging server listens on port 9090", title="Port of staging")

    ended = command("hints", f"sqlite:{kitchen.path}", "--scope", "kitchen")

    assert ended.out == "71% of the words in common\n  a  Staging port\n  b  Port of staging\n"


def test_hints_name_memories_without_a_title_by_how_they_begin(kitchen: Kitchen, command: Any) -> None:
    """An id alone says nothing to a person, and an empty title less."""
    kitchen.remember("a", "The staging server\nlistens on port 8080")
    kitchen.remember("b", "the staging server listens on port 9090")

    ended = command("hints", f"sqlite:{kitchen.path}", "--scope", "kitchen")

    assert "  a  The staging server listens on port 8080\n" in ended.out


@pytest.mark.parametrize("name", ["check", "hints"])
def test_a_look_at_a_scope_that_is_not_there_names_those_that_are(tea: Kitchen, command: Any, name: str) -> None:
    """A slip of the hand is told from a scope with nothing to do."""
    ended = command(name, f"sqlite:{tea.path}", "--scope", "kitchn")

    assert "no memory has the scope 'kitchn'; did you mean 'kitchen'?" in ended.out
