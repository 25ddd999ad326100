"""What goes wrong in public reports on agent memories: every pair of every case, judged."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from memfold.judging import JudgedPair, Pair, judge_pairs

CASES = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data" / "gold" / "cases.jsonl").read_text("utf-8").splitlines()
]

#: Cases whose twins are kept apart by something other than their words, and what that is.
KEPT_APART_BY = {
    "upd-04": "validity, in matching",
    "fault-01": "the failing model, in the pipeline",
    "fault-10": "drift, at apply",
    "fault-11": "the crash, at apply",
    "fault-13": "the damaged line, in the store",
}


def content_cases() -> list[dict[str, Any]]:
    return [case for case in CASES if case["id"] not in KEPT_APART_BY]


@pytest.mark.parametrize("case", content_cases(), ids=lambda case: case["id"])
def test_only_what_should_merge_merges(case: dict[str, Any]):
    """Within a scope, the pairs that merge are those that the case merges; those it may merge are free."""
    expect = case["expect"]
    found = {ids for ids, judged in judged_pairs(case) if judged.merges}

    assert pairs_of(expect.get("merge", [])) <= found | scopes_apart(case)
    assert found <= pairs_of(expect.get("merge", [])) | pairs_of(expect.get("may_merge", []))


@pytest.mark.parametrize("case", [case for case in CASES if case["expect"].get("flag")], ids=lambda case: case["id"])
def test_what_a_reviewer_should_see_is_flagged(case: dict[str, Any]):
    """A possible conflict is reported as one, and no direction is chosen that the case does not allow."""
    judged = dict(judged_pairs(case))
    allowed = {tuple(pair) for pair in case["expect"].get("supersede_ok", [])}

    for ids in pairs_of(case["expect"]["flag"]):
        found = judged[ids]
        assert found.verdict in ("conflict", "supersedes")
        if found.verdict == "supersedes" and "supersede_ok" in case["expect"]:
            newer = found.pair.pair_id.split("/")["ab".index(found.keep)]
            (older,) = ids - {newer}
            assert (newer, older) in allowed


@pytest.mark.parametrize("case_id", KEPT_APART_BY)
def test_twins_that_something_else_keeps_apart_say_the_same(case_id: str):
    """Their words are the same, so the part that keeps them apart is really needed."""
    (case,) = [case for case in CASES if case["id"] == case_id]

    assert any(judged.merges for _, judged in judged_pairs(case))


def judged_pairs(case: dict[str, Any]) -> Iterator[tuple[frozenset[str], JudgedPair]]:
    memories = case["memories"] if len(case["memories"]) < 40 else case["memories"][:12] + case["memories"][-1:]
    twos = [(a, b) for a, b in itertools.combinations(memories, 2) if a["scope"] == b["scope"]]
    pairs = [Pair(f"{a['id']}/{b['id']}", a["text"], b["text"], event_time(a), event_time(b)) for a, b in twos]
    for (a, b), judged in zip(twos, judge_pairs(pairs), strict=True):
        yield frozenset((a["id"], b["id"])), judged


def event_time(memory: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(memory.get("event_time") or memory["created_at"])


def pairs_of(groups: list[list[str]]) -> set[frozenset[str]]:
    return {frozenset(pair) for group in groups for pair in itertools.combinations(group, 2)}


def scopes_apart(case: dict[str, Any]) -> set[frozenset[str]]:
    scopes = {memory["id"]: memory["scope"] for memory in case["memories"]}
    return {frozenset((a, b)) for a, b in itertools.combinations(scopes, 2) if scopes[a] != scopes[b]}
