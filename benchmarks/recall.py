"""Blocking recall: of the pairs that the verdict would merge, how many does the candidate stage propose?

    python benchmarks/recall.py [--rows 100000] [--scopes 4000 400 1] [--sample 5000]

The oracle looks at every pair of texts in a scope that shares half of its smaller set of canonical words, with a sparse
matrix product that knows nothing of the candidate stage. Of scopes too large for that, it looks at every pair of which
one text is in a random sample.
"""

from __future__ import annotations

import argparse
import time
from datetime import UTC, datetime

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from workload import rows

from memfold import candidates, text, verdicts
from memfold.policy import Policy
from memfold.token_sets import token_sets

I64 = NDArray[np.int64]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rows", type=int, default=100_000)
    options.add_argument("--scopes", type=int, nargs="+", default=[4000, 400, 1])
    options.add_argument("--sample", type=int, default=5000)
    chosen = options.parse_args()
    print(
        f"{'scopes':>7} {'texts':>7} {'mergeable':>9} {'proposed':>8} {'recall':>7} {'candidates':>10} {'seconds':>7}"
    )
    for scopes in chosen.scopes:
        measure(chosen.rows, scopes=scopes, sample=chosen.sample)


def measure(count: int, *, scopes: int, sample: int) -> None:
    """One line of the table: the recall for so many rows in so many scopes."""
    distinct = sorted({(row.scope, row.text) for row in rows(count, scopes=scopes)})
    corpus = text.read_corpus([words for _, words in distinct])
    scope = np.unique([name for name, _ in distinct], return_inverse=True)[1]
    sets, set_of = token_sets(corpus, np.arange(len(distinct)))

    started = time.process_time()
    proposals = candidates.propose(
        sets,
        np.arange(len(distinct)),
        set_of=set_of,
        text_code=np.arange(len(distinct)),
        group_of=scope.astype(np.int64),
        policy=Policy(as_of=datetime(2026, 6, 1, tzinfo=UTC)),
    )
    seconds = time.process_time() - started

    mergeable = mergeable_pairs(corpus, scope, sample=sample)
    proposed = np.isin(
        packed(mergeable, len(distinct)), packed(np.stack((proposals.left, proposals.right)), len(distinct))
    )
    print(
        f"{scopes:7} {len(distinct):7} {mergeable.shape[1]:9} {proposed.sum():8} {proposed.mean():7.4f} "
        f"{len(proposals.left):10} {seconds:7.1f}"
    )


def mergeable_pairs(corpus: text.Corpus, scope: I64, *, sample: int) -> I64:
    """The pairs (2, k) within a scope whose verdict is same or contains, among those that share half of a set."""
    found = []
    rng = np.random.default_rng(1)
    for members in np.split(np.argsort(scope, kind="stable"), np.cumsum(np.bincount(scope))[:-1]):
        asking = members if len(members) <= sample else np.sort(rng.choice(members, sample, replace=False))
        found.append(pairs_that_share_half(corpus, members, asking))
    pairs = np.unique(np.sort(np.concatenate(found, axis=1), axis=0), axis=1)
    judged = verdicts.judge(
        corpus,
        pairs[0].astype(np.int32),
        pairs[1].astype(np.int32),
        newer=np.zeros(pairs.shape[1], np.int8),
        same_day=np.ones(pairs.shape[1], bool),
    )
    return pairs[:, judged.verdict <= verdicts.CONTAINS]


def pairs_that_share_half(corpus: text.Corpus, members: I64, asking: I64) -> I64:
    """Pairs (asking text, member) that share two words at least and half of the smaller set."""
    every, some = (word_matrix(corpus, texts) for texts in (members, asking))
    size = np.diff(corpus.key_offsets)
    found = []
    for start in range(0, len(asking), 200):
        common = (some[start : start + 200] @ every.T).tocoo()
        one, other = asking[start + common.row], members[common.col]
        close = (2 * common.data >= np.minimum(size[one], size[other])) & (common.data >= 2) & (one != other)
        found.append(np.stack((one[close], other[close])))
    return np.concatenate(found, axis=1)


def word_matrix(corpus: text.Corpus, texts: I64) -> scipy.sparse.csr_matrix:
    """One row per text, a one for each of its canonical words."""
    words = [corpus.keys[corpus.key_offsets[row] : corpus.key_offsets[row + 1]] for row in texts]
    bounds = np.concatenate(([0], np.cumsum([len(row) for row in words])))
    ones = np.ones(bounds[-1], np.int32)
    return scipy.sparse.csr_matrix((ones, np.concatenate(words), bounds), (len(texts), len(corpus.vocabulary.words)))


def packed(pairs: I64, count: int) -> I64:
    return pairs[0] * count + pairs[1]


if __name__ == "__main__":
    main()
