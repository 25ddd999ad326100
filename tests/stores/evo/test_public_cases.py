"""The public cases about scopes, times, metadata, pruning and promotion, as far as evo has what they are about."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from .conftest import Evo

CASES = {
    case["id"]: case
    for line in (Path(__file__).parents[2] / "data/gold/cases.jsonl").read_text(encoding="utf-8").splitlines()
    for case in [json.loads(line)]
}

#: evo has no place for an importance (prune-01).
APPLY = ["scope-01", "scope-03", "scope-05", "time-01", "meta-01", "prune-03", "promo-01"]


def write(evo: Evo, memory: dict, **more: Any) -> None:
    """A memory of a case as evo keeps it; a pinned one is one that a person added."""
    source = None if memory.get("pinned") else {"runtime": "evo", **memory.get("metadata", {})}
    moment = {name: _milliseconds(memory[name]) for name in ("created_at", "updated_at")}
    evo.write(
        memory["id"],
        memory["text"],
        scope_key=memory["scope"],
        source=source,
        usage_count=memory.get("access_count", memory.get("recall_count", 0)),
        tags_json=json.dumps(memory.get("tags", [])),
        **{**moment, **more},
    )


@pytest.fixture
def after(evo):
    """Fill a file with the memories of a case and make one pass over it, with the guard open."""

    def run(case_id):
        for memory in CASES[case_id]["memories"]:
            write(evo, memory)
        evo.consolidate(max_loss_fraction=1.0, max_rolling_loss_fraction=1.0, promote_min_use_count=3)
        return evo.rows()

    return run


@pytest.mark.parametrize("case_id", APPLY)
def test_exactly_the_groups_of_the_case_fold(after, case_id):
    """Of each group one stays; all else stays too."""
    expect = CASES[case_id]["expect"]
    rows = after(case_id)

    grouped = {memory_id for group in expect["merge"] for memory_id in group}
    assert [len(rows.keys() & set(group)) for group in expect["merge"]] == [1] * len(expect["merge"])
    assert {memory["id"] for memory in CASES[case_id]["memories"]} - grouped <= rows.keys()


def test_scope_03_tags_of_every_session_are_kept(after):
    """A session in a tag is no scope."""
    [row] = after("scope-03").values()

    assert sorted(json.loads(row["tags_json"])) == ["session:11", "session:12", "session:13"]


def test_scope_05_a_scope_in_the_source_moves_no_memory(after):
    """The scope key is the scope."""
    assert {memory_id: row["scope_key"] for memory_id, row in after("scope-05").items()} == {
        "a": "user:ana",
        "b": "user:bo",
    }


def test_time_01_the_earlier_instant_is_kept(after):
    """Instants are compared, not their spelling."""
    [row] = after("time-01").values()

    assert row["created_at"] == _milliseconds("2026-03-11T01:00:00Z")


def test_meta_01_uses_are_added_and_the_first_creation_stays(after):
    """The survivor's source stays its own; evo has no importance."""
    [row] = after("meta-01").values()

    assert (row["usage_count"], row["created_at"]) == (5, _milliseconds("2026-03-01T09:00:00Z"))


def test_prune_04_of_idle_memories_only_those_of_the_named_kinds_go(evo):
    """Not being read is not being false: a fact stays, however long nobody used it."""
    kinds = {"semantic": "fact", "episodic": "procedure"}
    for memory in CASES["prune-04"]["memories"]:
        write(evo, memory, kind=kinds[memory["type"]])

    evo.consolidate(
        max_loss_fraction=1.0, max_rolling_loss_fraction=1.0, stale_min_age_days=30, stale_kinds=("procedure",)
    )

    assert evo.rows().keys() == {"a"}


@pytest.mark.parametrize("case_id", ["ttl-01", "ttl-02"])
def test_nothing_of_evos_expires(evo, case_id):
    """evo has no expiry, so a word in the source is none either."""
    for memory in CASES[case_id]["memories"]:
        write(evo, {**memory, "metadata": {"expires_at": memory.get("expires_at")}})

    evo.consolidate(max_loss_fraction=1.0, max_rolling_loss_fraction=1.0)

    assert evo.rows().keys() == {memory["id"] for memory in CASES[case_id]["memories"]}


def test_promo_01_nothing_is_promoted_and_the_pass_says_so(after, evo, caplog):
    """evo's memories have no tier; a threshold for it is left out."""
    assert after("promo-01").keys() == {"a", "b", "c", "d"}

    assert "promote_min_use_count left out: this store moves no memory from tier to tier (evo has no tiers)" in (
        " ".join(caplog.messages)
    )


def test_prune_03_what_a_person_added_survives_with_its_text(after):
    """Whatever says the same is folded into it."""
    rows = after("prune-03")

    assert (rows.keys(), rows["a"]["content"]) == ({"a"}, "Blood type is O negative")


def _milliseconds(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)
