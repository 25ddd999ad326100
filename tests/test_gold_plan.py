"""The labelled pairs through the whole plan, not only through the judge: each pair is a scope of its own."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from memfold.policy import Policy
from memfold_flows import pipeline
from memfold_flows.runs import RunDirectory
from memfold_flows.stores import open_store

GOLD = Path(__file__).parent / "data/gold"
AS_OF = datetime(2026, 11, 30, tzinfo=UTC)


def _pairs(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (GOLD / name).read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module", params=["pairs_dev.jsonl", "pairs_extra_multilingual.jsonl"])
def labelled(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    """One file of labelled pairs."""
    return _pairs(request.param)


def test_no_pair_that_must_stay_apart_folds_in_a_plan(labelled: list[dict[str, Any]], tmp_path: Path) -> None:
    """Distinct, conflict and supersedes pairs keep both memories."""
    folded = _folded(labelled, tmp_path)

    assert [pair["pair_id"] for pair in labelled if pair["label"] != "duplicate" and pair["pair_id"] in folded] == []


def test_a_plan_folds_most_duplicates_into_the_side_that_says_more(tmp_path: Path) -> None:
    """At least 140 of the 200 duplicates of the development set fold, a containment into its longer side."""
    pairs = _pairs("pairs_dev.jsonl")
    folded = _folded(pairs, tmp_path)
    duplicates = [pair for pair in pairs if pair["label"] == "duplicate"]

    assert sum(pair["pair_id"] in folded for pair in duplicates) >= 140
    longer = {pair["pair_id"]: pair["keep"] for pair in duplicates if pair.get("keep") and pair["pair_id"] in folded}
    assert {pair_id: folded[pair_id] for pair_id in longer} == longer


def _folded(pairs: list[dict[str, Any]], folder: Path) -> dict[str, str]:
    """Pair id -> the side (a or b) that stays, for each pair that a plan folds."""
    archive = folder / "pairs.jsonl"
    with archive.open("w", encoding="utf-8") as file:
        for pair in pairs:
            for side in "ab":
                memory = {"id": f"{pair['pair_id']}/{side}", "scope": pair["pair_id"], **pair[side]}
                file.write(json.dumps(memory, ensure_ascii=False) + "\n")
    run = RunDirectory.create(folder / "run", "gold")
    pipeline.plan(open_store(f"jsonl:{archive}"), run, Policy(as_of=AS_OF), clock=lambda: AS_OF)
    merges = [row for row in run.read("plan").to_pylist() if row["action"] == "merge"]
    return {row["scope"]: row["into_id"].rpartition("/")[2] for row in merges}
