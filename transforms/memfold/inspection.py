"""What the gate looks at row by row: the plan against the snapshot, by other means than the SQL that made the plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from memfold.policy import Policy

if TYPE_CHECKING:
    import polars as pl

    from memfold.text import ReadTexts

#: What an inspection reads of the snapshot.
SNAPSHOT_COLUMNS = (
    "memory_id",
    "scope",
    "kind",
    "trust",
    "tier",
    "session_id",
    "pinned",
    "protected",
    "expires_at",
    "title",
    "content",
)

_WALLS = ("scope", "kind", "trust", "tier", "session_id")

#: The figures that ``counts`` counts.
COUNTED = ("entries_before", "entries_after", "merged", "promoted", "pruned", "expired", "lost", "lost_strict")


@dataclass(frozen=True, slots=True)
class Check:
    """One question that the gate asked of a scope, and the answer in words."""

    name: str
    passed: bool
    says: str


def checks(
    plan: pa.Table,
    snapshot: pa.Table,
    policy: Policy,
    *,
    rejected: pa.Table | None = None,
    read_texts: ReadTexts | None = None,
) -> dict[str, tuple[Check, ...]]:
    """Per scope that the plan or the snapshot names: rows, targets, walls, pinned, accounts, decisions, information.

    A value that is missing where a check needs it fails that check.
    """
    import polars as pl

    frame = _joined(plan, snapshot)
    rules = _rules(policy)
    found = frame.group_by("scope").agg(
        pl.len().alias("rows"),
        *(rule.fails.fill_null(True).sum().alias(f"{rule.name} failures") for rule in rules),
        *(pl.col("memory_id").filter(rule.fails.fill_null(True)).min().alias(f"{rule.name} first") for rule in rules),
    )
    forgetful = _merges_that_forget(plan, snapshot, read_texts)
    for scope, lies in _texts_that_lie(plan, snapshot).items():
        forgetful.setdefault(scope, []).extend(lies)
    together = {} if rejected is None else _kept_apart_and_together(plan, snapshot, rejected)
    answers: dict[str, tuple[Check, ...]] = {}
    for row in found.iter_rows(named=True):
        answers[row["scope"]] = (
            *(_answer(rule, row["rows"], row[f"{rule.name} failures"], row[f"{rule.name} first"]) for rule in rules),
            _decisions(together.get(row["scope"], [])),
            _information(forgetful.get(row["scope"], [])),
        )
    return answers


def counts(plan: pa.Table) -> dict[str, dict[str, int]]:
    """What the plan comes to per scope, counted afresh under the names of ``COUNTED``."""
    import polars as pl

    action, reason = pl.col("action"), pl.col("reason")
    counted = (
        pl.DataFrame(plan.select(["scope", "action", "reason", "is_lost", "is_lost_strict"]))
        .group_by("scope")
        .agg(
            pl.len().alias("entries_before"),
            (~action.is_in(["merge", "prune"])).sum().alias("entries_after"),
            (action == "merge").sum().alias("merged"),
            (action == "promote").sum().alias("promoted"),
            (action == "prune").sum().alias("pruned"),
            ((action == "prune") & (reason == "expired")).sum().alias("expired"),
            pl.col("is_lost").sum().alias("lost"),
            pl.col("is_lost_strict").sum().alias("lost_strict"),
        )
    )
    return {row["scope"]: {name: row[name] for name in COUNTED} for row in counted.iter_rows(named=True)}


class _Rule(NamedTuple):
    name: str
    fails: pl.Expr
    holds: str
    broken: str


def _joined(plan: pa.Table, snapshot: pa.Table) -> pl.DataFrame:
    """Every row of either side, with the row that it goes into and the row that supersedes it."""
    import polars as pl

    planned = pl.DataFrame(plan).rename({"scope": "plan_scope"}).with_columns(is_planned=True)
    # ids and walls only: texts stay out of the joins
    stored = pl.DataFrame(snapshot.select(SNAPSHOT_COLUMNS[:-2])).with_columns(is_known=True)
    both = planned.join(stored, on="memory_id", how="full", coalesce=True)
    stays = both.select(
        "memory_id", *_WALLS, stays=pl.col("action").is_in(["keep", "promote"]) & pl.col("is_known")
    ).unique("memory_id", keep="any")
    into = stays.rename({name: f"into_{name}" for name in stays.columns})
    over = stays.rename({name: f"over_{name}" for name in stays.columns})
    return (
        both.join(into, left_on="into_id", right_on="into_memory_id", how="left")
        .join(over, left_on="superseded_by", right_on="over_memory_id", how="left")
        .with_columns(stored_scope=pl.col("scope"), scope=pl.coalesce("scope", "plan_scope"))
    )


def _rules(policy: Policy) -> tuple[_Rule, ...]:
    import polars as pl

    col = pl.col
    is_merged, is_pruned = col("action") == "merge", col("action") == "prune"
    is_removed = is_merged | is_pruned
    return (
        _Rule(
            "rows",
            col("is_known").is_null()
            | col("is_planned").is_null()
            | col("memory_id").is_duplicated()
            | (col("plan_scope") != col("stored_scope"))
            | ~col("action").is_in(["keep", "merge", "promote", "prune"]),
            "each of {rows} memories has exactly one action",
            "{failures} of {rows} memories have not exactly one action, or are not in the snapshot (first: {first!r})",
        ),
        _Rule(
            "targets",
            (is_merged != col("into_id").is_not_null())
            | (is_merged & ~col("into_stays").fill_null(False))
            | ((col("reason") == "superseded") != col("superseded_by").is_not_null())
            | (col("superseded_by").is_not_null() & ~(is_pruned & col("over_stays").fill_null(False))),
            "every memory that others go into stays",
            "{failures} of {rows} memories would go into one that does not stay (first: {first!r})",
        ),
        _Rule(
            "walls",
            (is_merged & ~_same_walls_as_target(policy)) | (col("superseded_by").is_not_null() & ~_same_walls("over")),
            "no merge crosses a scope, trust, tier, kind or session wall",
            "{failures} of {rows} memories would cross a scope, trust, tier, kind or session wall (first: {first!r})",
        ),
        _Rule(
            "pinned",
            (is_removed | col("new_content").is_not_null()) & (col("pinned") | col("protected")),
            "no pinned or protected memory goes",
            "{failures} pinned or protected of {rows} memories would go (first: {first!r})",
        ),
        _Rule(
            "accounts",
            ~_is_accounted_for(is_removed, policy),
            "every memory that goes is counted as what it is",
            "{failures} of {rows} memories are counted as what they are not (first: {first!r})",
        ),
    )


def _same_walls_as_target(policy: Policy) -> pl.Expr:
    """Whether a row may go into its target; where rows are promoted, it may stand in the next tier."""
    import polars as pl

    walls = _same_walls("into")
    if policy.promotes:
        moves_on = (pl.col("tier") == policy.promote_from) & (pl.col("into_tier") == policy.promote_to)
        walls = walls | (_same_walls("into", but="tier") & moves_on.fill_null(False))
    return walls & _same("session_id", "into") if policy.walls_off_sessions else walls


def _same_walls(side: str, *, but: str = "") -> pl.Expr:
    import polars as pl

    return pl.all_horizontal(_same(name, side) for name in ("scope", "kind", "trust", "tier") if name != but)


def _same(name: str, side: str) -> pl.Expr:
    import polars as pl

    return pl.col(name).eq_missing(pl.col(f"{side}_{name}"))


def _is_accounted_for(is_removed: pl.Expr, policy: Policy) -> pl.Expr:
    import polars as pl

    lost, lost_strict, reason = pl.col("is_lost"), pl.col("is_lost_strict"), pl.col("reason")
    is_due = (pl.col("expires_at") <= pl.lit(policy.as_of)).fill_null(False)
    is_free = (reason == "copy") & (pl.col("action") == "merge") | (reason == "expired") & is_due
    is_rewritten = pl.col("new_content").is_not_null() & (reason == "rewritten") & (pl.col("action") == "keep")
    return (
        pl.when(is_removed)
        .then(lost_strict & (lost | is_free))
        .when(is_rewritten)
        .then(lost & lost_strict)
        .otherwise(~lost & ~lost_strict & pl.col("new_content").is_null())
    )


def _answer(rule: _Rule, rows: int, failures: int, first: str | None) -> Check:
    words = rule.broken if failures else rule.holds
    return Check(rule.name, failures == 0, words.format(rows=rows, failures=failures, first=first))


def _decisions(together: list[tuple[str, str]]) -> Check:
    if not together:
        return Check("decisions", True, "no memories become one that a person keeps apart")
    one, other = together[0]
    return Check(
        "decisions",
        False,
        f"{len(together)} pair(s) of memories that a person keeps apart would become one (first: {one!r}, {other!r})",
    )


def _kept_apart_and_together(
    plan: pa.Table, snapshot: pa.Table, rejected: pa.Table
) -> dict[str, list[tuple[str, str]]]:
    """Per scope: the pairs that a person keeps apart and that would end in one memory, in the order of their ids."""
    kept_apart = rejected.filter(pc.is_valid(rejected["into_id"])).sort_by([("memory_id", "ascending")]).to_pylist()
    wanted = pa.array(sorted({each[name] for each in kept_apart for name in ("memory_id", "into_id")}), pa.string())
    now, planned = (
        {row["memory_id"]: row for row in table.filter(pc.is_in(table["memory_id"], value_set=wanted)).to_pylist()}
        for table in (
            snapshot.select(["memory_id", "row_digest"]),
            plan.select(["memory_id", "scope", "into_id"]),
        )
    )
    together: dict[str, list[tuple[str, str]]] = {}
    for each in kept_apart:
        one, other = pair = each["memory_id"], each["into_id"]
        if one == other or not set(pair) <= now.keys() & planned.keys():
            continue
        is_in_force = (now[one]["row_digest"], now[other]["row_digest"]) == (each["row_digest"], each["into_digest"])
        ends = {planned[memory_id]["into_id"] or memory_id for memory_id in pair}
        if is_in_force and len(ends) == 1:
            together.setdefault(planned[one]["scope"], []).append(pair)
    return together


def _information(forgetful: list[tuple[str, str, tuple[str, ...]]]) -> Check:
    if not forgetful:
        return Check("information", True, "no fact of a merged memory is missing from the one it goes into")
    memory_id, into_id, facts = forgetful[0]
    return Check(
        "information",
        False,
        f"{len(forgetful)} merge(s) would lose a fact (first: {memory_id!r} into {into_id!r}: {', '.join(facts)})",
    )


def _merges_that_forget(
    plan: pa.Table, snapshot: pa.Table, read_texts: ReadTexts | None
) -> dict[str, list[tuple[str, str, tuple[str, ...]]]]:
    """Per scope: the merges whose removed text holds facts that the text it goes into does not, by memory id."""
    import polars as pl

    is_merge = pc.equal(plan["action"], "merge")
    merged = pl.DataFrame(plan.select(["scope", "memory_id", "into_id"]).filter(is_merge))
    rewritten = pl.DataFrame(
        plan.select(["scope", "memory_id", "new_content"]).filter(pc.is_valid(plan["new_content"]))
    )
    # a memory that gets another text goes into that one itself
    planned = pl.concat([merged, rewritten.select("scope", "memory_id", into_id="memory_id")])
    named = pa.chunked_array([planned["memory_id"].to_arrow(), planned["into_id"].to_arrow()]).unique()
    is_named = pc.is_in(snapshot["memory_id"], value_set=named.cast(snapshot["memory_id"].type))
    stored = pl.DataFrame(snapshot.select(["memory_id", "title", "content"]).filter(is_named))
    texts = stored.select("memory_id", pl.col("title").fill_null(""), "content")
    merges = (
        planned.join(texts, on="memory_id")
        .join(texts, left_on="into_id", right_on="memory_id", suffix="_kept")
        .join(rewritten.select(into_id="memory_id", new_content="new_content"), on="into_id", how="left")
        .with_columns(content_kept=pl.coalesce("new_content", "content_kept"))
        # a text that goes into the very same text loses nothing
        .filter((pl.col("title") != pl.col("title_kept")) | (pl.col("content") != pl.col("content_kept")))
        .sort("memory_id")
    )
    if merges.is_empty():
        return {}
    return _forgetful(merges, read_texts)


def _texts_that_lie(plan: pa.Table, snapshot: pa.Table) -> dict[str, list[tuple[str, str, tuple[str, ...]]]]:
    """Per scope: the memories whose new text lacks or invents something, against all that goes into it."""
    rewritten = plan.filter(pc.is_valid(plan["new_content"])).to_pylist()
    if not rewritten:
        return {}
    from memfold import veto

    contents = dict(zip(snapshot["memory_id"].to_pylist(), snapshot["content"].to_pylist(), strict=True))
    found: dict[str, list[tuple[str, str, tuple[str, ...]]]] = {}
    for row in rewritten:
        members = plan.filter(pc.equal(plan["into_id"], row["memory_id"]))["memory_id"].to_pylist()
        sources = [contents.get(source, "") for source in (row["memory_id"], *members)]
        if objection := veto.of_text(row["new_content"], sources):
            found.setdefault(row["scope"], []).append((row["memory_id"], row["memory_id"], (objection.says,)))
    return found


def _forgetful(merges: pl.DataFrame, read_texts: ReadTexts | None) -> dict[str, list[tuple[str, str, tuple[str, ...]]]]:
    from memfold.text import is_blank, read_with_keys
    from memfold.verdicts import would_lose

    columns = ("title", "content", "title_kept", "content_kept")
    texts = sorted({text for name in columns for text in merges[name].unique() if not is_blank(text)})
    places = {text: place for place, text in enumerate(texts)}
    corpus, _ = (read_texts or read_with_keys)(texts)
    forgetful: dict[str, list[tuple[str, str, tuple[str, ...]]]] = {}
    for scope, memory_id, into_id, *row in merges.select("scope", "memory_id", "into_id", *columns).iter_rows():
        removed, kept = ([places[text] for text in part if text in places] for part in (row[:2], row[2:]))
        if facts := would_lose(corpus, removed, kept):
            forgetful.setdefault(scope, []).append((memory_id, into_id, facts))
    return forgetful
