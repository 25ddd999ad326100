"""The gate: what it asks of a plan, and that it fails closed whatever it is handed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from memfold import frames, gate
from memfold.errors import PlanDamaged
from memfold.policy import Policy

AS_OF = datetime(2026, 6, 1, tzinfo=UTC)
TEN = "abcdefghij"


class TestLoss:
    def test_a_loss_equal_to_the_limit_is_accepted(self, decide, memory):
        """Two of eight at 0.25."""
        decided = decide(stale_and_used(memory, stale=2, used=6), stale_max_use_count=0)

        assert failures(decided.judged()) == {}

    def test_a_loss_over_the_limit_is_refused_with_both_figures(self, decide, memory):
        """Four of ten at 0.25: the sentence says what would be lost and what may be."""
        verdict = decide(stale_and_used(memory, stale=4, used=6), stale_max_use_count=0).judged()

        assert failures(verdict) == {"loss": "4 of 10 memories would be lost (0.4), the limit is 0.25"}
        assert verdict.tally.to_pylist()[0]["accepted"] is False
        assert verdict.tally.to_pylist()[0]["refused"] == ["4 of 10 memories would be lost (0.4), the limit is 0.25"]

    def test_a_scope_too_small_to_lose_one_is_told_so(self, decide, memory):
        """A third of a scope is more than a quarter, however small the scope."""
        verdict = decide(stale_and_used(memory, stale=1, used=2), stale_max_use_count=0).judged()

        assert failures(verdict)["loss"] == (
            "1 of 3 memories would be lost (0.333333), the limit is 0.25; "
            "at that limit a scope of fewer than 4 memories never loses one"
        )

    def test_a_store_of_copies_can_be_cleaned(self, decide, memory):
        """Eight copies of ten rows are no loss, unless rows are what counts."""
        copies = {"a": dict.fromkeys("bcdefghi", "copy")}
        rows = [memory(name, "Retry the webhook three times") for name in "abcdefghi"] + [memory("j")]

        lenient = decide(rows, clusters=copies).judged()
        strict = decide(rows, clusters=copies, strict_entries=True).judged()

        assert failures(lenient) == {}
        assert failures(strict)["loss"] == "8 of 10 memories would be lost (0.8), the limit is 0.25"

    def test_slow_erosion_is_stopped_by_the_rolling_loss(self, decide, memory):
        """Two of eight is within the limit, but with seven lost lately it is nine of fifteen."""
        verdict = decide(stale_and_used(memory, stale=2, used=6), stale_max_use_count=0, losses={"team": 7}).judged()

        assert failures(verdict) == {
            "rolling loss": "9 of 15 memories would be lost over 30 days (0.6), the limit is 0.5"
        }

    def test_a_plan_that_loses_nothing_may_go_on_after_heavy_losses(self, decide, memory):
        """Folding copies makes what was lost no worse."""
        decided = decide([memory("a"), memory("b", "a")], clusters={"a": {"b": "copy"}}, losses={"team": 50})

        assert failures(decided.judged()) == {}

    def test_a_number_of_rows_can_be_the_limit(self, decide, memory):
        """Off unless set; equal is allowed."""
        rows = stale_and_used(memory, stale=2, used=8)

        assert failures(decide(rows, stale_max_use_count=0, max_lost_rows=2).judged()) == {}
        assert failures(decide(rows, stale_max_use_count=0, max_lost_rows=1).judged()) == {
            "lost rows": "2 memories would be lost, the limit is 1"
        }

    def test_a_clock_in_the_wrong_unit_is_noticed(self, decide, memory):
        """When most of a scope is expired at once, it is more likely that the times are wrong."""
        rows = [memory(name, expires_at=AS_OF if name in "abc" else None) for name in "abcd"]

        assert failures(decide(rows).judged()) == {"expired": "3 of 4 memories are expired (0.75), the limit is 0.5"}


class TestRows:
    """Each plan here is a sound one with a single fault in it."""

    @pytest.fixture
    def decided(self, decide, memory):
        rows = [memory(name, "Retry three times") for name in "abc"] + [memory(name) for name in "defghij"]
        return decide([*rows, memory("other", scope="ops")], clusters={"a": {"b": "copy", "c": "copy"}})

    def test_a_sound_plan_is_accepted(self, decided):
        """Nine checks and the limits, each with a name, an answer and a sentence."""
        verdict = decided.judged()

        assert failures(verdict) == {}
        assert [check.name for check in verdict.scopes[1].checks] == [
            "clock", "emptiness", "rows", "targets", "walls", "pinned", "accounts", "decisions", "information",
            "figures", "loss", "rolling loss", "lost rows", "expired",
        ]  # fmt: skip
        assert all(check.says for scope in verdict.scopes for check in scope.checks)

    def test_a_row_without_an_action_is_refused(self, decided):
        """A plan that skips a row is no plan."""
        plan = decided.relations["plan"]

        assert "rows" in failures(decided.judged(plan=plan.filter(pc.not_equal(plan["memory_id"], "d"))))

    def test_a_row_with_two_actions_is_refused(self, decided):
        """Which of the two would be written?"""
        plan = decided.relations["plan"]

        assert "rows" in failures(decided.judged(plan=pa.concat_tables([plan, plan.slice(0, 1)])))

    @pytest.mark.parametrize(
        ("check", "memory_id", "values"),
        [
            ("rows", "d", {"memory_id": "stranger"}),
            ("rows", "d", {"action": "forget"}),
            ("rows", "d", {"scope": "ops"}),
            ("targets", "b", {"into_id": "c"}),
            ("targets", "b", {"into_id": "stranger"}),
            ("targets", "b", {"into_id": None}),
            ("targets", "d", {"into_id": "a"}),
            ("targets", "d", {"action": "prune", "reason": "superseded", "is_lost": True, "is_lost_strict": True}),
            ("walls", "b", {"into_id": "other"}),
            ("accounts", "b", {"is_lost_strict": False}),
            ("accounts", "b", {"reason": "same"}),
            ("accounts", "d", {"is_lost": True}),
            ("accounts", "d", {"new_content": "Another text"}),
            ("accounts", "a", {"new_content": "Retry three times", "reason": "rewritten", "is_lost": True}),
            (
                "information",
                "a",
                {"new_content": "Retry four times", "reason": "rewritten", "is_lost": True, "is_lost_strict": True},
            ),
            (
                "information",
                "a",
                {
                    "new_content": "Ana may retry three times",
                    "reason": "rewritten",
                    "is_lost": True,
                    "is_lost_strict": True,
                },
            ),
            ("accounts", "d", {"action": "prune", "reason": "expired", "is_lost_strict": True}),
        ],
    )
    def test_a_damaged_row_is_refused(self, decided, check, memory_id, values):
        """And the scopes that it does not touch are not."""
        verdict = decided.judged(plan=changed(decided.relations["plan"], "memory_id", memory_id, values))

        refused = {scope.scope: {each.name for each in scope.checks if not each.passed} for scope in verdict.scopes}
        assert check in refused["team"]

    @pytest.mark.parametrize("column", ["pinned", "protected"])
    def test_a_pinned_or_protected_row_that_would_go_is_refused(self, decided, column):
        """Whatever made the plan, such a row is not removed."""
        snapshot = changed(decided.inputs["snapshot"], "memory_id", "b", {column: True})

        assert failures(decided.judged(snapshot=snapshot)) == {
            "pinned": "1 pinned or protected of 10 memories would go (first: 'b')"
        }

    @pytest.mark.parametrize(
        ("column", "value"), [("kind", "rule"), ("trust", "untrusted"), ("tier", "long_term"), ("session_id", "mon")]
    )
    def test_a_merge_across_a_wall_is_refused(self, decide, memory, column, value):
        """Kind, trust and tier always; the session where the store recalls by it."""
        decided = decide(
            [memory("a"), memory("b", "a", **{column: value})],
            clusters={"a": {"b": "copy"}},
            session_recall="equality",
        )

        assert "walls" in failures(decided.judged())

    def test_a_merge_into_the_next_tier_is_no_crossing_where_memories_are_promoted(self, decide, memory):
        """From the first tier into the next, never back."""
        decided = decide(
            [memory("s", "Gate 4", tier="short_term", use_count=3), memory("l", "Gate 4", tier="long_term")],
            promote_min_use_count=3,
        )

        assert decided.actions["s"] == "merge copy > l"
        assert failures(decided.judged()) == {}
        assert "walls" in failures(decided.judged(policy=Policy(as_of=AS_OF)))

    def test_a_merge_that_would_lose_a_fact_is_refused(self, decide, memory):
        """A number of the removed text or title that the survivor does not have."""
        rows = [memory("a", "The gate code was changed"), memory("b", "The gate code was changed", title="Code 4711")]
        decided = decide(rows, clusters={"a": {"b": "copy"}})

        assert failures(decided.judged()) == {"information": "1 merge(s) would lose a fact (first: 'b' into 'a': 4711)"}

    @pytest.mark.parametrize("title", [None, "", " \u200b"])
    def test_a_title_that_says_nothing_is_no_fact(self, decide, memory, title):
        """A blank title may go into one that says something."""
        rows = [
            memory("a", "The gate code was changed", title="Gate"),
            memory("b", "the gate code was changed", title=title),
        ]
        decided = decide(rows, clusters={"a": {"b": "copy"}})

        assert failures(decided.judged()) == {}

    def test_a_relation_without_a_column_is_damaged(self, decided):
        """Nothing is judged on half a plan."""
        plan = decided.relations["plan"].drop_columns(["is_lost"])

        with pytest.raises(PlanDamaged, match="the plan lacks the column 'is_lost'; nothing was written"):
            decided.judged(plan=plan)


class TestFigures:
    @pytest.mark.parametrize(
        ("column", "value"),
        [
            ("lost", float("nan")),
            ("lost", -1),
            ("lost", 0.5),
            ("lost", None),
            ("lost", True),
            ("entries_before", 11),
            ("merged", 0),
            ("lost_recently", -3),
            ("loss_fraction", float("nan")),
            ("loss_fraction", 0.01),
        ],
    )
    def test_figures_that_are_none_or_not_the_plans_are_refused(self, decide, memory, column, value):
        """NaN, negative, half and missing counts, and a tally that says other than the plan, all fail closed."""
        decided = decide([memory("a"), memory("b", "a")], clusters={"a": {"b": "copy"}})
        row = {**decided.tally(), column: value}
        columns = {name: [each] for name, each in row.items()}

        verdict = decided.judged(tally=pa.table(columns))

        assert "figures" in failures(verdict)
        assert verdict.scopes[0].result.rejected
        assert verdict.tally.schema == frames.TALLY

    def test_no_two_memories_become_one_that_a_person_keeps_apart(self, decide, memory):
        """Neither one into the other, nor both into a third; a text that changed since is another matter."""
        rows = [memory("a"), memory("b", "a"), memory("c", "a")]
        decided = decide(rows, clusters={"a": {"b": "copy", "c": "copy"}})
        rows_apart = [(row.memory_id, row.row_digest) for row in rows[1:]]
        kept_apart, outdated = (
            pa.table([[rows_apart[0][0]], [rows_apart[1][0]], [digest], [rows_apart[1][1]]], schema=frames.REJECTED)
            for digest in (rows_apart[0][1], "another")
        )

        assert failures(decided.judged(rejected=kept_apart)) == {
            "decisions": "1 pair(s) of memories that a person keeps apart would become one (first: 'b', 'c')"
        }
        assert failures(decided.judged(rejected=outdated)) == {}

    def test_a_store_that_reads_as_empty_but_should_not_is_refused(self, decide):
        """An unmounted disk is no reason to forget everything."""
        verdict = decide([]).judged(held_before={"team"})

        assert [scope.scope for scope in verdict.scopes] == ["team"]
        assert failures(verdict) == {"emptiness": "it reads as empty, but held memories after its last pass"}

    def test_a_time_that_has_not_come_is_refused(self, decide, memory):
        """What would expire by then has not expired; equal to the clock is fine."""
        decided = decide([memory("a")])

        assert failures(decided.judged(now=AS_OF)) == {}
        assert failures(decided.judged(now=AS_OF - timedelta(microseconds=1))) == {
            "clock": "as_of 2026-06-01T00:00:00+00:00 is later than the clock, 2026-05-31T23:59:59.999999+00:00"
        }


class TestResults:
    def test_each_scope_gets_a_result_and_the_sum_counts_what_would_be_written(self, decide, memory):
        """A refused scope keeps the figures for which it was refused; in the sum it stays as it is."""
        rows = stale_and_used(memory, stale=3, used=1)
        copies = [memory("x", "Gate 4", scope="ops"), memory("y", "Gate 4", scope="ops")]
        verdict = decide([*rows, *copies], clusters={"x": {"y": "copy"}}, stale_max_use_count=0).judged()

        ops, team = (scope.result for scope in verdict.scopes)

        assert (ops.rejected, ops.entries_before, ops.entries_after, ops.merged, ops.loss_fraction) == (
            False, 2, 1, 1, 0.0,
        )  # fmt: skip
        assert (team.rejected, team.pruned, team.loss_fraction) == (True, 3, 0.75)
        assert team.reason.startswith("3 of 4 memories would be lost (0.75), the limit is 0.25")
        assert (verdict.total.entries_before, verdict.total.entries_after, verdict.total.pruned) == (6, 5, 0)
        assert (verdict.total.rejected, verdict.total.loss_fraction) == (True, 0.0)
        assert verdict.total.reason.startswith("1 of 2 scopes were refused: team: 3 of 4")

    def test_the_result_agrees_with_the_figure_in_force(self, decide, memory):
        """Where rows are what counts, the result says so too."""
        rows = [memory(name, "Gate 4") for name in "ab"]
        verdict = decide(rows, clusters={"a": {"b": "copy"}}, strict_entries=True, max_loss_fraction=0.5).judged()

        assert verdict.scopes[0].result.loss_fraction == 0.5
        assert not verdict.total.rejected

    def test_the_limits_can_be_asked_again_of_what_remains(self):
        """Before each commit, when some rows have drifted and others have not."""
        remains = gate.Counts(entries_before=3, expired=0, lost=1, lost_strict=1, lost_recently=0)

        failed = [check.name for check in gate.limits(remains, Policy(as_of=AS_OF)) if not check.passed]

        assert failed == ["loss"]


def stale_and_used(memory, *, stale: int, used: int):
    return [memory(f"stale {number}", use_count=0) for number in range(stale)] + [
        memory(f"used {number}", use_count=5) for number in range(used)
    ]


def failures(verdict: gate.Verdict) -> dict[str, str]:
    """What failed, in whichever scope."""
    return {check.name: check.says for scope in verdict.scopes for check in scope.checks if not check.passed}


def changed(table: pa.Table, grain: str, key: str, values: dict) -> pa.Table:
    rows = [{**row, **values} if row[grain] == key else row for row in table.to_pylist()]
    return pa.Table.from_pylist(rows, schema=pa.schema([field.with_nullable(True) for field in table.schema]))
