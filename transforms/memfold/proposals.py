"""What a model proposed, held against memfold's own checks: only what none of them objects to may be done.

An answer is treated like a plan that a stranger edited: known memories only, each at most once, nothing that is pinned,
and no text that loses or invents anything. What is refused is kept, with the check that refused it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memfold import frames, veto
from memfold.policy import Policy
from memfold.questions import Question, Row, is_same_day, label, said, taken_back
from memfold.text import is_blank, read_corpus
from memfold.verdicts import would_lose
from memfold.wording import Objection

MERGES = ("same", "contains")
_LONGEST_LABEL = 40


@dataclass(frozen=True, slots=True)
class Judged:
    """What a model said of one pair: its two labels, the verdict, and the label of the memory that must stay."""

    ids: tuple[str, ...]
    verdict: str
    stays: str | None = None


@dataclass(frozen=True, slots=True)
class Rewritten:
    """One text that a model proposes for several memories."""

    ids: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Proposal:
    """One row of ``frames.PROPOSALS``, but for the question."""

    kind: str
    scope: str
    ids: tuple[str, ...]
    verdict: str | None = None
    stays: str | None = None
    content: str | None = None
    accepted: bool = False
    refused_by: str | None = None
    detail: str = ""


def is_partial(question: Question, answers: Sequence[Judged]) -> bool:
    """Whether a pair that was asked about is missing from the answer."""
    said_of = {frozenset(answer.ids) for answer in answers}
    return any(frozenset((label(one), label(other))) not in said_of for one, other in question.pairs)


def judged(question: Question, answers: Sequence[Judged], policy: Policy) -> list[Proposal]:
    """The verdicts of a model on the pairs that it was asked about, each accepted or refused."""
    place = {label(at): at for at in range(len(question.memories))}
    asked = {frozenset((label(one), label(other))) for one, other in question.pairs}
    times = Counter(frozenset(answer.ids) for answer in answers)
    found: dict[tuple[str, ...], Proposal] = {}
    for answer in answers:
        pair = frozenset(answer.ids)
        if pair not in asked:
            proposal = _refused(
                question, answer.ids, Objection("unknown", f"names {_shown(answer.ids)}, not asked about")
            )
        else:
            rows = sorted((question.memories[place[each]] for each in pair), key=lambda row: row["memory_id"])
            stays = question.memories[place[answer.stays]]["memory_id"] if answer.stays in pair else None
            is_twice = times[pair] > 1
            proposal = _twice(question, rows) if is_twice else _judged(question, answer, rows, stays, policy)
        found[proposal.ids] = proposal
    return list(found.values())


def rewritten(question: Question, answers: Sequence[Rewritten]) -> list[Proposal]:
    """The texts that a model proposes for memories of one group, each accepted or refused."""
    place = {label(at): at for at in range(len(question.memories))}
    times = Counter(each for answer in answers for each in answer.ids)
    found: dict[tuple[str, ...], Proposal] = {}
    for answer in answers:
        objection: Objection | None = None
        if strangers := [each for each in answer.ids if each not in place]:
            objection = Objection("unknown", f"names {_shown(strangers)}, not asked about")
        elif repeated := [each for each in dict.fromkeys(answer.ids) if times[each] > 1]:
            objection = Objection("twice", f"names {_shown(repeated)} twice")
        elif len(answer.ids) < 2:
            objection = Objection("alone", "rewrites a single memory")
        if objection is not None:
            proposal = _refused(question, answer.ids, objection)
        else:
            rows = [question.memories[at] for at in sorted(place[each] for each in answer.ids)]
            proposal = _rewritten(question, rows, answer.text)
        found[proposal.ids] = proposal
    return list(found.values())


def unanswered(question: Question, why: str, *, by: str) -> Proposal:
    """A group that was left as it is, as it was not asked about or got no answer that could be used."""
    return Proposal(question.kind, question.scope, question.ids, refused_by=by, detail=why)


def as_table(proposals: Iterable[tuple[str, Proposal]]) -> pa.Table:
    """The ``proposals`` relation, by question and memories."""
    rows = [
        {
            "question": question,
            "kind": each.kind,
            "scope": each.scope,
            "ids": list(each.ids),
            "verdict": each.verdict,
            "stays": each.stays,
            "content": each.content,
            "accepted": each.accepted,
            "refused_by": each.refused_by,
            "detail": each.detail,
        }
        for question, each in proposals
    ]
    return pa.Table.from_pylist(sorted(rows, key=lambda row: (row["question"], row["ids"])), frames.PROPOSALS)


def with_rewritten(clusters: pa.Table, proposals: pa.Table, *, snapshot: pa.Table, rejected: pa.Table) -> pa.Table:
    """The ``clusters`` relation with a cluster for each accepted text.

    Its memories must be in none so far, none may be pinned or protected, and no person may have set two of them apart.
    """
    known = {*clusters["memory_id"].to_pylist(), *_fixed(snapshot)}
    apart = taken_back(rejected)
    rows: list[dict[str, Any]] = clusters.to_pylist()
    number = 1 + max((row["cluster_id"] for row in rows), default=-1)
    for each in proposals.to_pylist():
        if each["kind"] != "rewrite" or not each["accepted"] or known.intersection(each["ids"]):
            continue
        if any((min(pair), max(pair)) in apart for pair in combinations(each["ids"], 2)):
            continue
        known.update(each["ids"])
        for memory_id in each["ids"]:
            is_survivor = memory_id == each["stays"]
            rows.append(
                {
                    "memory_id": memory_id,
                    "cluster_id": number,
                    "survivor_id": each["stays"],
                    "match": "survivor" if is_survivor else "rewritten",
                    "jaccard": 1.0 if is_survivor else 0.0,
                    "added_words": 0,
                    "detail": "" if is_survivor else "a model put it into one text with others",
                }
            )
        number += 1
    return pa.Table.from_pylist(sorted(rows, key=lambda row: str(row["memory_id"])), frames.CLUSTERS)


def texts(proposals: pa.Table, clusters: pa.Table) -> pa.Table:
    """The ``rewrites`` relation: the memories that are to have another text, as far as their cluster came about."""
    survivors = {row["survivor_id"] for row in clusters.to_pylist() if row["match"] == "rewritten"}
    rows = [
        {"memory_id": row["stays"], "content": row["content"]}
        for row in proposals.to_pylist()
        if row["kind"] == "rewrite" and row["accepted"] and row["stays"] in survivors
    ]
    return pa.Table.from_pylist(sorted(rows, key=lambda row: str(row["memory_id"])), frames.REWRITES)


def _fixed(snapshot: pa.Table) -> list[str]:
    is_fixed = pc.or_(snapshot["pinned"], snapshot["protected"])
    ids: list[str] = snapshot.filter(is_fixed)["memory_id"].to_pylist()
    return ids


# ------------------------------------------------------------------------------------------------------ one answer


def _judged(question: Question, answer: Judged, rows: Sequence[Row], stays: str | None, policy: Policy) -> Proposal:
    ids = tuple(row["memory_id"] for row in rows)
    verdict, objection = answer.verdict, None
    if verdict in MERGES:
        look = veto.of_pair(said(rows[0]), said(rows[1]), same_day=is_same_day(rows[0], rows[1], policy))
        fuller = ids[look.stays - 1] if look.stays else None
        objection = look.objection
        if objection is None and verdict == "contains" and stays is None:
            objection = Objection("stays", "says that one contains the other, but not which")
        if objection is None and verdict == "contains" and fuller not in (None, stays):
            objection = Objection("stays", "would keep the memory that says less")
        stays = stays if verdict == "contains" else fuller
        verdict = "contains" if stays else "same"
    elif verdict == "supersedes":
        # Only words of the memories themselves make one of them obsolete; what a model says is shown as a conflict.
        verdict, stays = "conflict", None
    else:
        stays = None
    detail = objection.says if objection else ""
    return Proposal(
        question.kind,
        question.scope,
        ids,
        verdict=verdict,
        stays=stays,
        accepted=objection is None and verdict != "distinct",
        refused_by=objection.check if objection else None,
        detail=detail,
    )


def _rewritten(question: Question, rows: Sequence[Row], text: str) -> Proposal:
    ids = tuple(sorted(row["memory_id"] for row in rows))
    sources = [row["content"] for row in rows]
    objection = veto.of_text(text, sources) or _forgotten(text, sources)
    return Proposal(
        question.kind,
        question.scope,
        ids,
        stays=rows[0]["memory_id"],
        content=text,
        accepted=objection is None,
        refused_by=objection.check if objection else None,
        detail=objection.says if objection else "",
    )


def _forgotten(text: str, sources: Sequence[str]) -> Objection | None:
    """What the gate will ask as well: a fact of a source that the text lacks."""
    corpus = read_corpus([*sources, text])
    removed = [at for at in np.arange(len(sources)).tolist() if not is_blank(sources[at])]
    lost = would_lose(corpus, removed, [len(sources)])
    return Objection("missing", f"missing {', '.join(lost)}") if lost else None


def _twice(question: Question, rows: Sequence[Row]) -> Proposal:
    ids = tuple(row["memory_id"] for row in rows)
    return Proposal(question.kind, question.scope, ids, refused_by="twice", detail="was answered twice")


def _refused(question: Question, ids: Sequence[str], objection: Objection) -> Proposal:
    shown = tuple(each[:_LONGEST_LABEL] for each in ids)
    return Proposal(question.kind, question.scope, shown, refused_by=objection.check, detail=objection.says)


def _shown(ids: Iterable[str]) -> str:
    return ", ".join(repr(each[:_LONGEST_LABEL]) for each in ids)
