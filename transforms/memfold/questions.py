"""What a model is asked: small groups of memories that memfold could not decide on, never across a wall.

A question is only asked where no check would refuse every answer that changes anything.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from memfold import hints, veto
from memfold.policy import Policy
from memfold.text import is_blank

Kind = Literal["judge", "rewrite"]

#: Raised when a question or its answer changes its form, so that no answer of before is taken for one of now.
SCHEMA_VERSION = 1

PAIRS_PER_QUESTION = 8
MEMORIES_PER_REWRITE = 5
#: A longer text is no short note that was worded twice, and would cost more than it could save.
LONGEST_TEXT = 2000
CONTEXT_PER_QUESTION = 5

_COLUMNS = (
    *("memory_id", "scope", "trust", "tier", "kind", "session_id", "title", "content", "pinned", "protected"),
    *("importance", "use_count", "created_at", "updated_at", "event_time", "valid_from", "valid_to", "expires_at"),
)

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Question:
    """One group that a model is asked about. ``pairs`` are places in ``memories``, empty for a rewrite.

    For a rewrite the first memory is the one that would stay. ``context`` is what an agent told of the same scope.
    """

    kind: Kind
    scope: str
    memories: tuple[Row, ...]
    pairs: tuple[tuple[int, int], ...] = ()
    context: tuple[str, ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        """The memories of the group."""
        return tuple(row["memory_id"] for row in self.memories)

    def payload(self) -> dict[str, Any]:
        """What is told to the model: texts under labels of this question, and what is only context."""
        labels = [label(place) for place in range(len(self.memories))]
        told: dict[str, Any] = {
            "memories": [
                {"id": name, "said_on": _day(row), "text": said(row)}
                for name, row in zip(labels, self.memories, strict=True)
            ]
        }
        if self.pairs:
            told["pairs"] = [[labels[one], labels[other]] for one, other in self.pairs]
        texts = [(name, "", said(row)) for name, row in zip(labels, self.memories, strict=True)]
        told["context_not_to_be_judged"] = {
            "told_lately": list(self.context),
            "share_most_words": [[hint.left_id, hint.right_id] for hint in hints.near_duplicates(texts)],
        }
        return told


def label(place: int) -> str:
    """What a memory is called within a question; its id does not leave the machine."""
    return f"m{place + 1}"


def said(row: Row) -> str:
    """The text that is judged: the content, or the title where that is blank."""
    content: str = row["content"]
    return row["title"] if is_blank(content) and row["title"] else content


def said_at(row: Row, policy: Policy) -> datetime | None:
    """When the text was said, as far as that is known."""
    updated: datetime | None = row["updated_at"] if policy.updated_with_text else None
    known: datetime | None = row["event_time"] or updated or row["created_at"]
    return known


def is_same_day(one: Row, other: Row, policy: Policy) -> bool:
    """Whether both texts were said on the same, known UTC day."""
    said_on = [moment and moment.date() for moment in (said_at(one, policy), said_at(other, policy))]
    return said_on[0] is not None and said_on[0] == said_on[1]


def walls_of(row: Row, policy: Policy) -> tuple[Any, ...]:
    """What keeps this memory from others: equal for those that it could be one with."""
    names = ("scope", "trust", "tier", "kind", "valid_from", "valid_to")
    session = row["session_id"] if policy.walls_off_sessions else None
    return (*(row[name] for name in names), session)


@dataclass(frozen=True, slots=True)
class Known:
    """What matching read and found: the relations of these names, and pairs that are near by words or by meaning."""

    snapshot: pa.Table
    pairs: pa.Table
    clusters: pa.Table
    rejected: pa.Table
    evidence: pa.Table
    neighbours: tuple[tuple[str, str], ...] = ()
    near_by_words: tuple[tuple[str, str], ...] = ()


def to_judge(known: Known, policy: Policy) -> list[Question]:
    """Pairs that were left apart for lack of certainty, and neighbours, as questions of a few pairs each."""
    found = {(row["left_id"], row["right_id"]): row["verdict"] for row in known.pairs.to_pylist()}
    decided = {pair for pair, verdict in found.items() if verdict not in UNSURE}
    by_words = {*found, *known.near_by_words}
    asked = sorted({*by_words, *map(_ordered, known.neighbours)} - decided - taken_back(known.rejected))
    rows = _rows(known.snapshot, {memory_id for pair in asked for memory_id in pair}, policy)
    by_wall: defaultdict[tuple[Any, ...], list[tuple[str, str]]] = defaultdict(list)
    for one, other in asked:
        # What is near by its words is only asked where no check would refuse it; the rest is anybody's guess.
        if (
            one in rows
            and other in rows
            and _is_open(rows[one], rows[other], policy, is_checked=(one, other) in by_words)
        ):
            by_wall[walls_of(rows[one], policy)].append((one, other))
    told = _told(known.evidence)
    return [
        _judging([rows[one] for one in dict.fromkeys(each for pair in part for each in pair)], part, told)
        for _, group in sorted(by_wall.items(), key=lambda each: tuple(map(str, each[0])))
        for part in _parts(group, PAIRS_PER_QUESTION)
    ]


def open_rows(known: Known, policy: Policy) -> list[Row]:
    """The memories that could be asked about and were not folded into another, by id."""
    stays = dict(zip(*(known.clusters[name].to_pylist() for name in ("memory_id", "survivor_id")), strict=True))
    folded = {memory_id for memory_id, survivor_id in stays.items() if memory_id != survivor_id}
    rows = _rows(known.snapshot, set(known.snapshot["memory_id"].to_pylist()) - folded, policy)
    return [rows[memory_id] for memory_id in sorted(rows)]


def taken_back(rejected: pa.Table) -> set[tuple[str, str]]:
    """Pairs whose merge a person took back: nobody is asked about them again."""
    merges = rejected.select(["memory_id", "into_id"]).to_pylist()
    return {_ordered((row["memory_id"], row["into_id"])) for row in merges if row["into_id"] is not None}


UNSURE = ("distinct", "conflict")


def to_rewrite(known: Known, policy: Policy, *, apart: Iterable[tuple[str, str]] = ()) -> list[Question]:
    """Groups of memories that each know something that the others lack, and that one text could hold.

    ``apart``: pairs of which a model said that they are not the same. Memories of a cluster, memories that stay as they
    are and memories on their way to another tier are left out.
    """
    near = [
        (row["left_id"], row["right_id"])
        for row in sorted(known.pairs.to_pylist(), key=lambda row: (-row["jaccard"], row["left_id"], row["right_id"]))
        if row["verdict"] in UNSURE or (row["held"] or "").startswith("would lose")
    ]
    asked = [_ordered(pair) for pair in dict.fromkeys([*near, *known.neighbours])]
    shut = taken_back(known.rejected) | {_ordered(pair) for pair in apart}
    clustered = set(known.clusters["memory_id"].to_pylist())
    rows = _rows(known.snapshot, {memory_id for pair in asked for memory_id in pair} - clustered, policy)
    rows = {memory_id: row for memory_id, row in rows.items() if _may_be_rewritten(row, policy)}
    groups: list[list[str]] = []
    group_of: dict[str, list[str]] = {}
    for one, other in asked:
        if one in rows and other in rows:
            _gather(one, other, groups, group_of, lambda a, b: _may_be_one_text(rows[a], rows[b], shut, policy))
    told = _told(known.evidence)
    return [
        _rewriting(sorted((rows[memory_id] for memory_id in group), key=_survivor_order), told)
        for group in sorted(sorted(group) for group in groups)
    ]


# ------------------------------------------------------------------------------------------------ what may be asked


def _is_open(one: Row, other: Row, policy: Policy, *, is_checked: bool) -> bool:
    if walls_of(one, policy) != walls_of(other, policy) or (_stays(one) and _stays(other)):
        return False
    look = veto.of_pair(said(one), said(other), same_day=is_same_day(one, other, policy)) if is_checked else veto.Look()
    return look.objection is None


def _may_be_rewritten(row: Row, policy: Policy) -> bool:
    is_moving = policy.promotes and row["tier"] == policy.promote_from
    return not (_stays(row) or is_moving or is_blank(row["content"]))


def _may_be_one_text(one: Row, other: Row, shut: set[tuple[str, str]], policy: Policy) -> bool:
    if _ordered((one["memory_id"], other["memory_id"])) in shut or walls_of(one, policy) != walls_of(other, policy):
        return False
    return one["title"] == other["title"] and veto.of_union(one["content"], other["content"]) is None


def _gather(
    one: str, other: str, groups: list[list[str]], group_of: dict[str, list[str]], fits: Callable[[str, str], bool]
) -> None:
    """Put two memories into one small group, if each fits with each of it."""
    group = group_of.get(one) or group_of.get(other)
    if group is None:
        if fits(one, other):
            groups.append([one, other])
            group_of |= dict.fromkeys((one, other), groups[-1])
        return
    for new in {one, other} - set(group):
        if new not in group_of and len(group) < MEMORIES_PER_REWRITE and all(fits(new, each) for each in group):
            group.append(new)
            group_of[new] = group


def _stays(row: Row) -> bool:
    return bool(row["pinned"] or row["protected"])


def _ordered(pair: Sequence[str]) -> tuple[str, str]:
    return min(pair), max(pair)


def _survivor_order(row: Row) -> tuple[Any, ...]:
    importance, used, created = row["importance"], row["use_count"], row["created_at"]
    return (
        -(importance if importance is not None else float("-inf")),
        -(used if used is not None else -1),
        -(created.timestamp() if created else 0.0),
        row["memory_id"],
    )


# --------------------------------------------------------------------------------------------------------- as rows


def _rows(snapshot: pa.Table, ids: set[str], policy: Policy) -> dict[str, Row]:
    """The memories of these ids that take part in matching and are short enough to be sent."""
    table = snapshot.select(list(_COLUMNS))
    chosen = table.filter(pc.is_in(table["memory_id"], value_set=pa.array(sorted(ids), pa.string())))
    return {
        row["memory_id"]: row
        for row in chosen.to_pylist()
        if not is_blank(said(row))
        and len(said(row)) <= LONGEST_TEXT
        and (row["expires_at"] is None or row["expires_at"] > policy.as_of)
    }


def _told(evidence: pa.Table) -> dict[str, list[str]]:
    """The latest entries of replay batches, by scope."""
    told: defaultdict[str, list[str]] = defaultdict(list)
    for row in sorted(evidence.to_pylist(), key=lambda row: (row["created_at"], row["memory_id"]), reverse=True):
        if len(told[row["scope"]]) < CONTEXT_PER_QUESTION and len(row["content"]) <= LONGEST_TEXT:
            told[row["scope"]].append(row["content"])
    return told


def _judging(rows: Sequence[Row], part: Sequence[tuple[str, str]], told: Mapping[str, list[str]]) -> Question:
    place = {row["memory_id"]: at for at, row in enumerate(rows)}
    pairs = tuple((place[one], place[other]) for one, other in part)
    scope = rows[0]["scope"]
    return Question("judge", scope, tuple(rows), pairs, tuple(told.get(scope, ())))


def _rewriting(rows: Sequence[Row], told: Mapping[str, list[str]]) -> Question:
    scope = rows[0]["scope"]
    return Question("rewrite", scope, tuple(rows), (), tuple(told.get(scope, ())))


def _parts(pairs: Sequence[tuple[str, str]], size: int) -> Iterator[Sequence[tuple[str, str]]]:
    for start in range(0, len(pairs), size):
        yield pairs[start : start + size]


def _day(row: Row) -> str | None:
    moment: datetime | None = row["event_time"] or row["created_at"]
    return None if moment is None else moment.date().isoformat()


def as_json(value: Any) -> str:
    """A value as JSON in one spelling, as it is sent and as its digest is made."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
