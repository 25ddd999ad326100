"""Clusters of an archive held to the exact join: every pair of texts at or above the threshold, none missed.

    python benchmarks/exact_join.py IN.parquet CLUSTERS.parquet [--threshold 0.7]

Prints a JSON line: pair recall and precision, B-cubed recall and precision (with and without the largest cluster), and
how many clusters hold texts that the exact join does not connect. The join reads words with Python's ``re`` and shares
no code with memfold; above about 200,000 texts it takes long.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from pathlib import Path

import numba
import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

I64 = NDArray[np.int64]
WORD = re.compile(r"\w+")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("texts", type=Path)
    arguments.add_argument("clusters", type=Path, nargs="+")
    arguments.add_argument("--threshold", type=float, default=0.7)
    given = arguments.parse_args()
    table = pq.read_table(given.texts, columns=["id", "text"])
    exact = exact_components(table["text"].to_pylist(), given.threshold)
    for path in given.clusters:
        found = pq.read_table(path)
        label = dict(zip(found["id"].to_pylist(), found["cluster"].to_pylist(), strict=True))
        print(json.dumps({"clusters": str(path), **quality(exact, [label[key] for key in table["id"].to_pylist()])}))


def exact_components(texts: list[str], threshold: float) -> I64:
    """The component of each text; only pairs that are joined already are not compared."""
    words = [sorted(set(WORD.findall(text.lower()))) for text in texts]
    frequency = Counter(word for row in words for word in row)
    rarity = {word: number for number, (word, _) in enumerate(sorted(frequency.items(), key=lambda item: item[::-1]))}
    rows = [sorted(rarity[word] for word in row) for row in words]
    offsets = np.concatenate(([0], np.cumsum([len(row) for row in rows]))).astype(np.int64)
    tokens = np.fromiter((token for row in rows for token in row), np.int64, int(offsets[-1]))
    by_size = np.argsort(np.diff(offsets), kind="stable")
    parent = np.arange(len(texts))
    _join(offsets, tokens, by_size, len(rarity), threshold, parent)
    return parent


def quality(exact: I64, labels: list[object]) -> dict[str, float]:
    """How well the clusters agree with the exact components."""
    truth = np.unique(exact, return_inverse=True)[1]
    found = np.unique(np.array(labels), return_inverse=True)[1]
    largest = np.bincount(truth).argmax()
    both = np.unique(truth * (found.max() + 1) + found, return_inverse=True)[1]
    in_both, in_truth, in_found = np.bincount(both)[both], np.bincount(truth)[truth], np.bincount(found)[found]
    others = truth != largest
    pairs = (in_both - 1).sum()
    return {
        "pair_recall": round(pairs / max((in_truth - 1).sum(), 1), 5),
        "pair_precision": round(pairs / max((in_found - 1).sum(), 1), 5),
        "bcubed_recall": round((in_both / in_truth).mean(), 5),
        "bcubed_recall_without_largest": round((in_both / in_truth)[others].mean(), 5),
        "bcubed_precision": round((in_both / in_found).mean(), 5),
        "mixed_clusters": int((np.bincount(found) > 0).sum() - len(np.unique(found[in_both == in_found]))),
    }


@numba.njit(cache=True)
def _root(parent, member):  # type: ignore[no-untyped-def]
    while parent[member] != member:
        parent[member] = parent[parent[member]]
        member = parent[member]
    return member


@numba.njit(cache=True)
def _join(offsets, tokens, by_size, words, threshold, parent):  # type: ignore[no-untyped-def]  # noqa: PLR0917 - numba takes no keywords
    """Join by prefixes: a pair at the threshold shares one of the rarest words of both of its sets."""
    head = np.full(words, -1, np.int64)
    previous = np.empty(len(tokens), np.int64)
    owner = np.empty(len(tokens), np.int64)
    for row in by_size:
        start, stop = offsets[row], offsets[row + 1]
        size = stop - start
        prefix = size - int(np.ceil(threshold * size - 1e-9)) + 1
        for place in range(start, min(start + prefix, stop)):
            entry = head[tokens[place]]
            while entry >= 0:
                other = owner[entry]
                other_size = offsets[other + 1] - offsets[other]
                if other_size < threshold * size - 1e-9:
                    break  # smaller sets came first, so all further ones are too small
                if _root(parent, row) != _root(parent, other):
                    left, right, shared = start, offsets[other], 0
                    while left < stop and right < offsets[other + 1]:
                        if tokens[left] == tokens[right]:
                            shared += 1
                            left += 1
                            right += 1
                        elif tokens[left] < tokens[right]:
                            left += 1
                        else:
                            right += 1
                    if shared >= threshold * (size + other_size - shared) - 1e-9:
                        parent[max(_root(parent, row), _root(parent, other))] = min(
                            _root(parent, row), _root(parent, other)
                        )
                entry = previous[entry]
            previous[place], owner[place], head[tokens[place]] = head[tokens[place]], row, place
    for member in range(len(parent)):
        parent[member] = _root(parent, member)


if __name__ == "__main__":
    main()
