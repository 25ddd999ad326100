"""When a scope is due, and how far off the next pass is: evo's rules, night after night."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memfold import convergence
from memfold.convergence import Refusal, Schedule, ScopeState

NOW = datetime(2026, 6, 1, 3, tzinfo=UTC)
HOUR = timedelta(hours=1)
DIGESTS = json.loads((Path(__file__).parents[1] / "data/evo/digests.json").read_text(encoding="utf-8"))


def due(state=None, *, schedule=None, now=NOW, backlog_size=0, replay_size=0, digest="abc"):
    return convergence.should_consolidate(
        state or ScopeState(),
        schedule or Schedule(),
        backlog_size=backlog_size,
        replay_size=replay_size,
        digest=digest,
        now=now,
    )


def passed(hours_ago, **more):
    """The state after a pass so many hours ago."""
    return ScopeState(last_consolidate_at=NOW - hours_ago * HOUR, last_digest="abc", **more)


@pytest.mark.parametrize("listed", DIGESTS, ids=lambda listed: listed["name"])
def test_the_digest_is_the_one_that_evo_gives(listed):
    """Lists with the digest of evo's own rule, made with Node."""
    titles, contents = ([item[name] for item in listed["items"]] for name in ("title", "content"))

    assert convergence.digest(titles, contents) == listed["digest"]


def test_titles_that_sort_alike_keep_the_order_of_the_list():
    """A sort that is not stable would give another digest from run to run."""
    one, other = convergence.digest(["a", "a"], ["1", "2"]), convergence.digest(["a", "a"], ["2", "1"])

    assert one != other


def test_the_digest_sorts_titles_as_javascript_does():
    """The same lists through localeCompare itself, where Node is at hand."""
    node = shutil.which("node") or pytest.skip("node is not installed")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    if int(version.lstrip("v").split(".")[0]) < 20:
        pytest.skip(f"node is {version.strip()}, older than 20")
    draw = random.Random(7)
    letters = ["a", "A", "b", "é", "e\u0301", "ß", "ss", "_", "-", " ", "1", "10", "2", "ñ", "数", "я", "🎉", "'"]
    lists = [["".join(draw.choices(letters, k=draw.randint(1, 4))) for _ in range(12)] for _ in range(40)]

    given = json.dumps([[{"title": title, "content": str(n)} for n, title in enumerate(titles)] for titles in lists])
    theirs = subprocess.run([node, "-e", _EVOS_RULE], input=given, capture_output=True, text=True, check=True).stdout

    assert [convergence.digest(titles, list(map(str, range(12)))) for titles in lists] == json.loads(theirs)


def test_a_fingerprint_ignores_order_and_nothing_else():
    """Rows may come in any order; one more, or one less of two equal ones, is a change."""
    assert convergence.fingerprint(["b", "a"]) == convergence.fingerprint(["a", "b"])
    assert len({convergence.fingerprint(rows) for rows in ([], ["a"], ["a", "a"], ["a", "b"])}) == 4


def test_a_scope_that_never_was_consolidated_is_due_by_schedule():
    """And nobody knows how many hours that is."""
    answer = due()

    assert (answer.should_consolidate, answer.reason, answer.hours_since_last_consolidate) == (True, "schedule", None)


@pytest.mark.parametrize(
    ("state", "hours"),
    [
        (ScopeState(), 24),
        (ScopeState(converged=True, multiplier=1.0), 72),
        (ScopeState(converged=True, multiplier=3.0), 72),
        (ScopeState(converged=True, multiplier=9.0), 216),
        (ScopeState(converged=False, multiplier=9.0), 24),
    ],
)
def test_the_interval_grows_once_passes_find_nothing(state, hours):
    """24 hours; when converged 24 times the multiplier, and at least 72."""
    assert Schedule().interval_hours(state) == hours
    last = ScopeState(last_consolidate_at=NOW - hours * HOUR, converged=state.converged, multiplier=state.multiplier)
    assert due(last).reason == "schedule"
    assert due(last, now=NOW - timedelta(seconds=1)).reason == "none"


def test_replay_comes_before_backlog_and_backlog_before_the_schedule():
    """The first that holds is the reason."""
    schedule = Schedule(backlog_threshold=50)

    assert due(schedule=schedule, replay_size=10, backlog_size=50).reason == "replay"
    assert due(schedule=schedule, replay_size=9, backlog_size=50).reason == "backlog"
    assert due(schedule=schedule, replay_size=9, backlog_size=49).reason == "schedule"
    assert due(passed(1), schedule=schedule, replay_size=9, backlog_size=49).reason == "none"


def test_a_backlog_makes_nothing_due_unless_it_is_asked_for():
    """evo has no such rule."""
    assert due(passed(1), backlog_size=1_000_000).reason == "none"


def test_after_a_refusal_a_scope_waits_for_a_change_or_the_base_interval():
    """Whatever the schedule says: the same plan would only be refused again."""
    refusal = Refusal(at=NOW - 2 * HOUR, why="4 of 10 memories would be lost", digest="abc")
    state = passed(100).after_refusal(refusal)

    waiting = due(state, replay_size=12)
    assert (waiting.should_consolidate, waiting.reason, waiting.refusal) == (False, "none", refusal.why)
    assert due(state, digest="def").reason == "schedule"
    assert due(state, replay_size=12, digest="def").reason == "replay"
    assert due(state, now=NOW + 22 * HOUR).reason == "schedule"
    assert due(passed(1, converged=True).after_refusal(refusal), digest="def").reason == "schedule"


def test_a_refused_pass_is_neither_a_change_nor_converged():
    """The state of the pass before stays; the next pass that is not refused clears the refusal."""
    before = passed(30, converged=True, multiplier=3.0)
    refused = before.after_refusal(Refusal(at=NOW, why="too much", digest="abc"))

    assert (refused.last_consolidate_at, refused.converged, refused.multiplier) == (
        before.last_consolidate_at,
        True,
        3.0,
    )
    assert refused.after_pass(digest_before="x", digest_after="y", now=NOW).refusal is None


def test_a_pass_that_only_undoes_what_was_added_is_converged():
    """What it leaves is what the last one left."""
    state = passed(24).after_pass(digest_before="abc and a copy", digest_after="abc", now=NOW)

    assert (state.converged, state.multiplier) == (True, 3.0)


def test_a_pass_that_left_something_to_do_has_not_converged():
    """Memories that an agent changed meanwhile are looked at again at the base interval."""
    state = passed(24).after_pass(digest_before="abc", digest_after="abc", is_left_over=True, now=NOW)

    assert (state.converged, state.multiplier) == (False, 1.0)


def test_ten_nights():
    """Activity, three quiet passes, a refusal, activity again: due hours and multipliers as evo documents them."""
    state, now, told = ScopeState(), NOW, []

    def night(what, before, after):
        nonlocal state, now
        if what == "refused":
            state = state.after_refusal(Refusal(at=now, why="too much", digest=before))
        else:
            state = state.after_pass(digest_before=before, digest_after=after, now=now)
        began = now
        while not due(state, now=now, digest=after).should_consolidate:
            now += HOUR
        told.append((what, state.multiplier, (now - began) // HOUR))

    night("activity", "a", "b")
    night("activity", "b2", "c")
    night("quiet", "c", "c")
    night("quiet", "c", "c")
    night("quiet", "c", "c")
    night("refused", "d", "d")
    night("refused", "d", "d")
    night("activity", "d", "e")
    night("quiet", "e", "e")
    night("activity", "f", "g")

    assert told == [
        ("activity", 1.0, 24),
        ("activity", 1.0, 24),
        ("quiet", 3.0, 72),
        ("quiet", 9.0, 216),
        ("quiet", 9.0, 216),
        ("refused", 9.0, 24),
        ("refused", 9.0, 24),
        ("activity", 1.0, 24),
        ("quiet", 3.0, 72),
        ("activity", 1.0, 24),
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("consolidate_interval_hours", 0),
        ("consolidate_interval_hours", float("nan")),
        ("converged_min_interval_hours", -1),
        ("replay_threshold", 0),
        ("replay_threshold", None),
        ("backlog_threshold", 1.5),
        ("backlog_threshold", True),
    ],
)
def test_a_schedule_out_of_range_is_refused(name, value):
    """The message names the field and the value."""
    with pytest.raises(ValueError, match=f"^{name} must be .*, got {value!r}$"):
        Schedule(**{name: value})


_EVOS_RULE = """
const { createHash } = require('node:crypto');
const lists = JSON.parse(require('node:fs').readFileSync(0, 'utf8'));
const lines = list => list.sort((a, b) => a.title.localeCompare(b.title)).map(m => m.title + ':' + m.content);
console.log(JSON.stringify(lists.map(list =>
  createHash('sha256').update(lines(list).join('\\n')).digest('hex').slice(0, 16))));
"""
