"""The labelled pairs at the wire: what the checks let through of a model, whatever it says."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.model_server import Answer, Asked, serving

from memfold.policy import Policy
from memfold_flows import pipeline
from memfold_flows.proposer.options import Embeddings, ProposerOptions
from memfold_flows.runs import RunDirectory
from memfold_flows.stores import open_store

PAIRS = [json.loads(line) for line in (Path(__file__).parent / "data/gold/pairs_dev.jsonl").read_text().splitlines()]


def test_a_model_that_calls_everything_the_same_merges_nothing_wrong(tmp_path: Path) -> None:
    """Each pair is a scope of its own, and each that is not sure is asked: no merge against a label."""
    merged = _merged(tmp_path, lambda asked: _said(asked, lambda _pair: "same"))

    assert {label: merged[label] for label in ("distinct", "conflict", "supersedes")} == {
        "distinct": 0,
        "conflict": 0,
        "supersedes": 0,
    }
    assert merged["the shorter text kept"] == 0


def test_a_model_that_knows_the_labels_finds_nearly_all_duplicates(tmp_path: Path) -> None:
    """All but the few that the checks cannot tell from another fact."""
    merged = _merged(tmp_path, lambda asked: _said(asked, lambda pair: LABELS[pair["label"]]))

    assert merged["duplicate"] >= 190
    assert sum(merged.values()) == merged["duplicate"]


LABELS = {"duplicate": "same", "distinct": "distinct", "conflict": "conflict", "supersedes": "supersedes"}


def _said(asked: Asked, verdict: Any) -> Any:
    by_texts = {frozenset((pair["a"]["text"], pair["b"]["text"])): pair for pair in PAIRS}
    return {
        "pairs": [
            {"ids": ids, "verdict": verdict(by_texts[frozenset(map(asked.text, ids))]), "stays": None}
            for ids in asked.pairs
        ]
    }


def _merged(folder: Path, answer: Answer) -> Counter[str]:
    """How many pairs became one, by label, and how often the text that says less was kept."""
    archive = folder / "memories.jsonl"
    records = [
        {"id": f"{pair['pair_id']}/{side}", "scope": pair["pair_id"], **pair[side]} for pair in PAIRS for side in "ab"
    ]
    archive.write_text("".join(json.dumps(record) + "\n" for record in records))
    run = RunDirectory.create(folder / "run", "run")
    now = datetime(2026, 6, 1, tzinfo=UTC)
    with serving(answer) as model:
        proposer = ProposerOptions(
            url=model.url, model="tester", max_calls=1000, max_tokens=10_000_000, embeddings=Embeddings(model="vectors")
        )
        policy = Policy(as_of=now, max_loss_fraction=1.0, max_rolling_loss_fraction=1.0)
        pipeline.plan(open_store(f"jsonl:{archive}"), run, policy, clock=lambda: now, proposer=proposer)
    plan = {row["memory_id"]: row for row in run.read("plan").to_pylist() if row["into_id"]}
    merged: Counter[str] = Counter()
    for pair in PAIRS:
        gone = [side for side in "ab" if f"{pair['pair_id']}/{side}" in plan]
        merged[pair["label"]] += len(gone)
        merged["the shorter text kept"] += bool(gone) and pair.get("keep") in gone
    return merged
