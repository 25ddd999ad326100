"""The step that asks a model: questions out, checked answers into the run as the ``proposals`` relation.

No lease and no lock is held while it waits. With the answers of before, it gives the same bytes.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from memfold import clusters, neighbours, proposals, questions
from memfold.errors import MemfoldError
from memfold.policy import Policy
from memfold.proposals import Proposal
from memfold.questions import Known, Question
from memfold_flows.proposer import access, answers, meaning, prompts
from memfold_flows.proposer.access import Access
from memfold_flows.proposer.answers import Unusable
from memfold_flows.proposer.budget import CHARACTERS_PER_TOKEN
from memfold_flows.proposer.cache import digest_of
from memfold_flows.proposer.endpoint import NoAnswer, OutOfTime
from memfold_flows.proposer.options import ProposerOptions
from memfold_flows.proposer.redaction import MARK, Redactor
from memfold_flows.proposer.report import ModelReport, counted
from memfold_flows.runs import RunDirectory
from memfold_flows.streams import count

logger = logging.getLogger(__name__)


class ModelFailed(MemfoldError):
    """No question of a pass got an answer that could be used; the pass ends, and nothing was written."""


def propose(run: RunDirectory, options: ProposerOptions, *, writes_texts: bool, **clocks: Any) -> bool:
    """Ask the model what matching could not decide; returns whether anything was accepted.

    ``writes_texts``: the store has a place for a rewritten text. ``clocks`` are ``monotonic`` and ``sleep``.

    Raises:
        ModelFailed: every question that was asked went without a usable answer.
    """
    policy, known = _read(run)
    with access.opened(options, **clocks) as opened:
        asker = _Asker(opened)
        found = _ask_all(asker, known, policy, writes_texts=writes_texts)
    report = asker.report([proposal for _, proposal in found])
    logger.info("asked a model: %s", report.in_words())
    if report.failed and report.failed == report.questions:
        why = next(proposal.detail for _, proposal in found if proposal.refused_by == "no answer")
        advice = asker.refusal.to_do if asker.refusal else "Try again later"
        raise ModelFailed(
            f"none of {count(report.failed, 'question', 'questions')} to {options.model} at {options.url} got a usable "
            f"answer (first: {why}); nothing was written, and replay batches stay. {advice}, or leave proposer out "
            "of the settings."
        )
    run.write("proposals", proposals.as_table(found))
    run.write_json("proposer.json", report.as_json())
    return report.accepted > 0


def explain(
    run: RunDirectory, options: ProposerOptions, *, writes_texts: bool
) -> tuple[list[dict[str, Any]], list[str]]:
    """The requests that a pass would begin with, exactly as they would be sent, and remarks; nothing is sent.

    Neighbours by meaning are among them where the store has the vectors; others only the endpoint knows.
    """
    policy, known = _read(run)
    remarks: list[str] = []
    known = _with_neighbours(known, policy, options, remarks)
    asked = questions.to_judge(known, policy) if "judge" in options.uses else []
    if "rewrite" in options.uses and writes_texts:
        asked += questions.to_rewrite(known, policy)
    redact = Redactor(options.redact)
    requests = [
        {
            "post": f"{options.url}/chat/completions",
            "body": prompts.request(question, prompts.asked(question, redact), model=options.model),
        }
        for question in asked
    ]
    return requests, remarks


def _read(run: RunDirectory) -> tuple[Policy, Known]:
    policy = Policy.from_table(run.read("policy"))
    return policy, Known(*(run.read(name) for name in ("snapshot", "pairs", "clusters", "rejected", "evidence")))


def _with_neighbours(
    known: Known, policy: Policy, options: ProposerOptions, remarks: list[str], access: Access | None = None
) -> Known:
    """What matching found, with the memories that are near each other; what could not be compared is remarked.

    Without ``access`` no endpoint is asked for vectors.
    """
    if "judge" in options.uses:
        pairs, left_out = neighbours.by_words(known, policy)
        known = replace(known, near_by_words=pairs)
        if left_out:
            remarks.append(
                f"{left_out} memories were not compared by common words: more than {neighbours.LARGEST_GROUP} stand "
                "together. Smaller scopes are compared"
            )
    wanted = options.embeddings
    try:
        if wanted is not None and wanted.model is None:
            return replace(known, neighbours=meaning.neighbours_by_own(known, policy, wanted))
        if wanted is not None and wanted.model is not None and access is not None:
            return replace(known, neighbours=meaning.neighbours(known, policy, wanted.model, wanted, access))
    except NoAnswer as error:
        remarks.append(f"no neighbours by meaning: {error}{error.to_do and f'. {error.to_do}'}")
    return known


def _ask_all(asker: _Asker, known: Known, policy: Policy, *, writes_texts: bool) -> list[tuple[str, Proposal]]:
    options = asker.access.options
    known = _with_neighbours(known, policy, options, asker.remarks, asker.access)
    found: list[tuple[str, Proposal]] = []
    if "judge" in options.uses:
        for question in questions.to_judge(known, policy):
            found += asker.ask(question, policy)
    if "rewrite" in options.uses and not writes_texts:
        asker.remarks.append("no text was rewritten, as this store has no place for one")
    elif "rewrite" in options.uses:
        settled = _settled(known, policy, proposals.as_table(found))
        apart = [each.ids for _, each in found if each.kind == "judge" and not each.accepted and len(each.ids) == 2]
        for question in questions.to_rewrite(settled, policy, apart=apart):
            found += asker.ask(question, policy)
    return found


def _settled(known: Known, policy: Policy, judged: pa.Table) -> Known:
    """What matching finds with the verdicts that were accepted so far."""
    if not any(judged["accepted"].to_pylist()):
        return known
    matches = clusters.match_rows(known.snapshot, known.rejected, policy, proposals=judged)
    return replace(known, pairs=matches.pairs, clusters=matches.clusters)


@dataclass(slots=True)
class _Asker:
    access: Access
    cached: int = 0
    asked: int = 0
    remarks: list[str] = field(default_factory=list)
    #: Why the endpoint takes no call at all: it is not asked again.
    refusal: NoAnswer | None = None

    def ask(self, question: Question, policy: Policy) -> list[tuple[str, Proposal]]:
        """The proposals that come of one question, each with the digest of the question."""
        model = self.access.options.model
        told = prompts.asked(question, self.access.redact)
        digest = digest_of(model, question.kind, told)
        if question.kind == "rewrite" and MARK in questions.as_json(told["memories"]):
            return [(digest, proposals.unanswered(question, "it holds a secret, which no text may lose", by="secret"))]
        self.asked += 1
        if (made := self._from_before(question, digest, policy)) is not None:
            self.cached += 1
            return [(digest, each) for each in made]
        body = prompts.request(question, told, model=model)
        if why := self.access.budget.why_not(len(json.dumps(body))):
            return [(digest, proposals.unanswered(question, why, by="not asked"))]
        try:
            answer = self._call(body)
            made = _checked(question, answer, policy)
        except (NoAnswer, Unusable) as error:
            by = "not asked" if isinstance(error, OutOfTime) else "no answer"
            return [(digest, proposals.unanswered(question, str(error), by=by))]
        self.access.cache.put(digest, answer)
        return [(digest, each) for each in made]

    def _from_before(self, question: Question, digest: str, policy: Policy) -> list[Proposal] | None:
        answer = self.access.cache.get(digest)
        try:
            return _checked(question, answer, policy) if isinstance(answer, str) else None
        except Unusable:
            return None

    def report(self, made: Sequence[Proposal]) -> ModelReport:
        """What it came to so far."""
        return ModelReport(
            sent_to=self.access.options.url,
            model=self.access.options.model,
            questions=self.asked,
            calls=self.access.budget.calls,
            tokens=self.access.budget.tokens,
            seconds=round(self.access.budget.seconds, 3),
            cached=self.cached,
            remarks=tuple(self.remarks),
            **counted(made),
        )

    def _call(self, body: dict[str, Any]) -> str:
        if self.refusal is not None:
            raise self.refusal
        try:
            answer = self.access.post(f"{self.access.options.url}/chat/completions", body)
        except NoAnswer as error:
            self.refusal = error if error.to_do else None
            raise
        text = _content(answer)
        self.access.budget.tokens += _tokens(answer, len(json.dumps(body)) + len(text))
        if _choice(answer).get("finish_reason") == "length":
            raise Unusable("the answer was cut off")
        return text


def _checked(question: Question, text: str, policy: Policy) -> list[Proposal]:
    """The proposals of an answer.

    Raises:
        Unusable: it is of another form, or leaves out something that was asked.
    """
    if question.kind == "rewrite":
        return proposals.rewritten(question, answers.read_texts(text))
    verdicts = answers.read_verdicts(text)
    if proposals.is_partial(question, verdicts):
        raise Unusable("the answer leaves out pairs that were asked about")
    return proposals.judged(question, verdicts, policy)


def _choice(answer: dict[str, Any]) -> dict[str, Any]:
    choices = answer.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, dict) else {}


def _content(answer: dict[str, Any]) -> str:
    message = _choice(answer).get("message")
    content = message.get("content") if isinstance(message, dict) else None
    return content if isinstance(content, str) else ""


def _tokens(answer: dict[str, Any], characters: int) -> int:
    """What the endpoint says that it used; where it says nothing of use, a guess from the length."""
    usage = answer.get("usage")
    used = usage.get("total_tokens") if isinstance(usage, dict) else None
    if isinstance(used, int) and not isinstance(used, bool) and used >= 0:
        return used
    return characters // CHARACTERS_PER_TOKEN
