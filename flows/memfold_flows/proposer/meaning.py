"""Vectors from an OpenAI-compatible embeddings endpoint or from the store, and the memories that are near by them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
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
#: A number that large is no coordinate; its square would be none that can be added.
LARGEST = 1e100


def neighbours(
    known: Known, policy: Policy, model: str, wanted: Embeddings, access: Access
) -> tuple[tuple[str, str], ...]:
    """Pairs of memories that are near in meaning, as the endpoint sees it, and stand behind the same walls.

    Raises:
        NoAnswer: the endpoint gave no vectors, they differ in length, or the budget did not reach.
    """
    placed = pure.worth_placing(known, policy)
    texts = {memory_id: access.redact(text) for memory_id, _, text in placed}
    vectors = _asked(sorted({*texts.values()}), model, wanted.url or access.options.url, access)
    return _nearest(placed, {memory_id: vectors[text] for memory_id, text in texts.items()}, wanted)


def neighbours_by_own(known: Known, policy: Policy, wanted: Embeddings) -> tuple[tuple[str, str], ...]:
    """The same by the vectors that memories have in their metadata; one that has none is near to nobody.

    Raises:
        NoAnswer: no memory has one, or they differ in length.
    """
    placed = pure.worth_placing(known, policy)
    ids = {memory_id for memory_id, _, _ in placed}
    rows = zip(known.snapshot["memory_id"].to_pylist(), known.snapshot["metadata"].to_pylist(), strict=True)
    own = {name: vector for name, text in rows if name in ids and (vector := _own(text, wanted.metadata_key))}
    if placed and not own:
        raise NoAnswer(f"no memory has a list of numbers under {wanted.metadata_key} in its metadata")
    return _nearest([each for each in placed if each[0] in own], own, wanted)


def _nearest(
    placed: Sequence[tuple[str, tuple[Any, ...], str]], vectors: Mapping[str, list[float]], wanted: Embeddings
) -> tuple[tuple[str, str], ...]:
    if not placed:
        return ()
    if len({len(vector) for vector in vectors.values()}) != 1:
        raise NoAnswer("the vectors differ in length")
    return pure.nearest(
        [memory_id for memory_id, _, _ in placed],
        [wall for _, wall, _ in placed],
        np.array([vectors[memory_id] for memory_id, _, _ in placed], np.float64),
        min_cosine=wanted.min_cosine,
        neighbours=wanted.neighbours,
    )


def _own(metadata: str | None, key: str | None) -> list[float] | None:
    try:
        held = json.loads(metadata or "{}")
    except ValueError:
        return None
    vector = held.get(key) if isinstance(held, dict) else None
    return vector if _is_vector(vector) else None


def _asked(texts: Sequence[str], model: str, url: str, access: Access) -> dict[str, list[float]]:
    digests = {text: digest_of(model, "embedding", text) for text in texts}
    found = {text: vector for text in texts if _is_vector(vector := access.cache.get(digests[text]))}
    missing = [text for text in texts if text not in found]
    for start in range(0, len(missing), TEXTS_PER_CALL):
        part = missing[start : start + TEXTS_PER_CALL]
        size = sum(map(len, part))
        if why := access.budget.why_not(size):
            raise NoAnswer(why)
        access.budget.tokens += size // CHARACTERS_PER_TOKEN
        answer = access.post(f"{url}/embeddings", {"model": model, "input": part})
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
        and all(isinstance(each, int | float) and not isinstance(each, bool) and abs(each) < LARGEST for each in value)
    )
