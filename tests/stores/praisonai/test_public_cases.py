"""What goes wrong in public reports, where a PraisonAI memory can hold it: users, times, metadata, quality, sessions.

PraisonAI has no tags, pins, kinds or use counts, so the cases of those do not apply here.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from memfold_flows.runs import RunDirectory

CASES = {
    case["id"]: case
    for case in map(json.loads, (Path(__file__).parents[2] / "data/gold/cases.jsonl").read_text().splitlines())
}


class Memory:
    """A case as rows of one tier of a PraisonAI memory, and what became of them."""

    def __init__(self, night_over: Any, empty: Any, tmp_path: Path) -> None:
        self._night_over = night_over
        self._files = empty
        self._folder = tmp_path / "file"
        self.run: RunDirectory

    def given(self, case: str, *, tier: str = "long_term", kind: str = "sqlite", **metadata: Any) -> Memory:
        self.ids: dict[str, str] = {}
        rows = [(each["id"], each, {**_metadata(each), **metadata}) for each in CASES[case]["memories"]]
        return self.holding(rows, tier=tier, kind=kind)

    def holding(self, rows: list[tuple[str, dict[str, Any], dict[str, Any]]], *, tier: str, kind: str) -> Memory:
        self.kind = kind
        if kind == "file":
            items = [
                {
                    "id": name,
                    "content": row["text"],
                    "metadata": metadata,
                    "created_at": _moment(row).timestamp(),
                    "updated_at": _moment(row).timestamp(),
                    "access_count": 0,
                    **({"importance": metadata.pop("quality")} if "quality" in metadata else {}),
                }
                for name, row, metadata in rows
            ]
            self._folder.mkdir()
            (self._folder / f"{tier}.json").write_text(json.dumps(items))
        else:
            for _, row, metadata in rows:
                self._files.insert(tier, row["text"], metadata, f"{_moment(row):%Y-%m-%d %H:%M:%S}")
        self.ids = {name: f"{tier}:{name if kind == 'file' else n}" for n, (name, *_) in enumerate(rows, 1)}
        return self

    def after_a_pass(self, **thresholds: Any) -> dict[str, tuple[str, str | None]]:
        """Action and goal of each memory of the case, by the names that the case gives."""
        self.night = self._night_over(
            f"praisonai-file:{self._folder}" if self.kind == "file" else f"praisonai:{self._files.folder}"
        )
        self.run = self.night.plan(max_loss_fraction=1.0, max_rolling_loss_fraction=1.0, **thresholds)
        self.receipt = self.night.apply(self.run)
        names = {memory_id: name for name, memory_id in self.ids.items()}
        plan = self.run.read("plan").to_pylist()
        return {names[row["memory_id"]]: (row["action"], names.get(row["into_id"])) for row in plan}

    def left(self) -> dict[str, dict[str, Any]]:
        """The memories that the store holds now."""
        rows = [row for batch in self.night.store.snapshot() for row in batch.to_pylist()]
        return {row["memory_id"]: row for row in rows}


@pytest.fixture
def memory(night_over, empty, tmp_path) -> Memory:
    return Memory(night_over, empty, tmp_path)


both_kinds = pytest.mark.parametrize("kind", ["sqlite", "file"])


@both_kinds
@pytest.mark.parametrize("case", ["scope-01", "scope-05"])
def test_what_two_users_know_stays_with_each_of_them(memory, kind, case):
    """The same text under two user ids is two memories, whatever else the metadata says of a scope."""
    assert memory.given(case, kind=kind).after_a_pass() == {"a": ("keep", None), "b": ("keep", None)}


@both_kinds
def test_the_earlier_instant_stays_whatever_its_text_sorts_like(memory, kind):
    """time-01: half past seven in the evening at -07:00 is later than one o'clock UTC of the next day."""
    assert memory.given("time-01", kind=kind).after_a_pass() == {"a": ("merge", "b"), "b": ("keep", None)}

    assert [row["created_at"] for row in memory.left().values()] == [datetime(2026, 3, 11, 1, tzinfo=UTC)]


@both_kinds
def test_metadata_of_the_copy_is_kept_and_the_higher_quality_stays(memory, kind):
    """meta-01: keys are united; there is no place for the time of the older copy, and the receipt says so."""
    memory.given("meta-01", kind=kind)

    assert memory.after_a_pass() == {"a": ("merge", "b"), "b": ("keep", None)}
    (row,) = memory.left().values()
    wanted = {"category": "hobby", "priority": "high", "source": "chat"}
    assert wanted.items() <= json.loads(row["metadata"]).items()
    assert row["importance"] == 0.9
    assert "created_at" in memory.receipt.fields_left_out


@both_kinds
@pytest.mark.parametrize("case", ["ttl-01", "ttl-02"])
def test_an_expiry_in_the_metadata_is_the_callers_own(memory, kind, case):
    """PraisonAI has no expiry and recalls such a memory for ever, so it is none that memfold acts on."""
    after = memory.given(case, kind=kind, expires_at="2026-05-11T00:00:00Z").after_a_pass()

    assert set(after.values()) == {("keep", None)}


@both_kinds
def test_an_unknown_quality_is_not_a_low_one(memory, kind):
    """prune-01: the memory without a quality stays; the one of 0.05 goes."""
    memory.given("prune-01", kind=kind)

    after = memory.after_a_pass(stale_max_importance=0.15, stale_min_age_days=30)

    assert after == {"a": ("keep", None), "b": ("prune", None)}


def test_a_fact_of_four_sessions_moves_up_and_junk_does_not(memory):
    """promo-01: one session says what another has said; PraisonAI has a row for each."""
    junk = [(each["id"], each, {"user_id": "ana"}) for each in CASES["promo-01"]["memories"] if each["id"] != "d"]
    fact = next(each for each in CASES["promo-01"]["memories"] if each["id"] == "d")
    told = [(f"d{session}", fact, {"user_id": "ana", "session_id": f"s{session}"}) for session in range(1, 5)]
    memory.holding(junk + told, tier="short_term", kind="sqlite")

    after = memory.after_a_pass(across_sessions=True, promote_min_sessions=3)

    assert {name for name, (action, _) in after.items() if action == "promote"} == {"d1"}
    assert {after[f"d{session}"] for session in (2, 3, 4)} == {("merge", "d1")}
    assert {after[name] for name in "abc"} == {("keep", None)}
    assert [row["content"] for row in memory.left().values() if row["tier"] == "long_term"] == [fact["text"]]
    assert (memory.receipt.totals.promoted, memory.receipt.totals.lost) == (1, 0)


def _metadata(case_row: dict[str, Any]) -> dict[str, Any]:
    """The case's own metadata under the row's user, who is never who the metadata says it is."""
    quality = case_row.get("importance")
    return {
        **case_row.get("metadata", {}),
        "user_id": case_row["scope"],
        **({} if quality is None else {"quality": quality}),
    }


def _moment(case_row: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(case_row["created_at"]).astimezone(UTC)
