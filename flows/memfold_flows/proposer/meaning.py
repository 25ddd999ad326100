"""Vectors from an OpenAI-compatible embeddings endpoint, and the memories that are near each other by them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from memfold import neighbours as pure
from memfold.policy import Policy
from memfold.questions import Known
from memfold_flows.proposer.access import Access
from memfold_flows.proposer.budget import CHARACTERS_PER_TOKEN
from memfold_flows.proposer.cache import digest_of
from memfold_flows.proposer.endpoint import NoAnswer
from memfold_flows.proposer.options import Embeddings

TEXTS_PER_CALL = 64


def neighbours(known: Known, policy: Policy, wanted: Embeddings, access: Access) -> tuple[tuple[str, str], ...]:
    """Pairs of memories that are near in meaning and stand behind the same walls.

    Raises:
        NoAnswer: the endpoint gave no vectors, or the budget did not reach.
    """
    placed = pure.worth_placing(known, policy)
    if not placed:
        return ()
    texts = [access.redact(text) for _, _, text in placed]
    vectors = _vectors(sorted(set(texts)), wanted, access)
    if len({len(vector) for vector in vectors.values()}) != 1:
        raise NoAnswer("the vectors differ in length")
    return pure.nearest(
        [memory_id for memory_id, _, _ in placed],
        [wall for _, wall, _ in placed],
        np.array([vectors[text] for text in texts], np.float64),
        min_cosine=wanted.min_cosine,
        neighbours=wanted.neighbours,
    )


def _vectors(texts: Sequence[str], wanted: Embeddings, access: Access) -> dict[str, list[float]]:
    digests = {text: digest_of(wanted.model, "embedding", text) for text in texts}
    found = {text: vector for text in texts if _is_vector(vector := access.cache.get(digests[text]))}
    missing = [text for text in texts if text not in found]
    url = f"{wanted.url or access.options.url}/embeddings"
    for start in range(0, len(missing), TEXTS_PER_CALL):
        part = missing[start : start + TEXTS_PER_CALL]
        size = sum(map(len, part))
        if why := access.budget.why_not(size):
            raise NoAnswer(why)
        access.budget.tokens += size // CHARACTERS_PER_TOKEN
        answer = access.post(url, {"model": wanted.model, "input": part})
        for text, vector in zip(part, _read(answer, len(part)), strict=True):
            access.cache.put(digests[text], vector)
            found[text] = vector
    return found


def _read(answer: dict[str, Any], size: int) -> list[list[float]]:
    data = answer.get("data")
    rows = data if isinstance(data, list) and all(isinstance(row, dict) for row in data) else []
    vectors = [row.get("embedding") for row in sorted(rows, key=_index)]
    if len(vectors) != size or not all(_is_vector(vector) for vector in vectors):
        raise NoAnswer("it did not answer with one vector for each text")
    return vectors


def _index(row: dict[str, Any]) -> int:
    index = row.get("index")
    return index if isinstance(index, int) else 0


def _is_vector(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(each, int | float) and not isinstance(each, bool) and math.isfinite(each) for each in value)
    )
