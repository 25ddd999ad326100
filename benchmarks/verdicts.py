"""How fast pairs are judged, and how right the verdicts are by kind: python benchmarks/verdicts.py [PAIRS.jsonl]."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

from memfold import judging
from memfold.text import read_corpus
from memfold.verdicts import COMPILED_FROM_PAIRS, compiled_kernel, judge
from memfold_flows.judge import read_pairs

GOLD = Path(__file__).parents[1] / "tests" / "data" / "gold" / "pairs_dev.jsonl"
PAIRS = 2_000_000
SEED = 1


def main(path: Path) -> None:
    pairs = read_pairs(path)
    print(judging.table(judging.judge_pairs(pairs)) or "no labels", end="\n\n")
    texts = [text for pair in pairs for text in (pair.a, pair.b)]
    started = time.perf_counter()
    corpus = read_corpus(texts)
    seconds = time.perf_counter() - started
    print(f"read {len(texts):,} texts, {len(corpus.tokens):,} canonical tokens: {len(texts) / seconds:,.0f} texts/s")
    for name, left, right in (("labelled pairs", *labelled(len(texts))), ("drawn pairs", *drawn(len(texts)))):
        report(name, corpus, left, right)


def report(name: str, corpus: object, left: np.ndarray, right: np.ndarray) -> None:
    """One line each for plain Python, on a part of the pairs, and for the compiled kernel."""
    compiled_kernel()
    for label, size in (("plain", COMPILED_FROM_PAIRS // 10), ("compiled", PAIRS)):
        rates = []
        for _ in range(3):
            started = time.perf_counter()
            judge(
                corpus,  # type: ignore[arg-type]
                left[:size],
                right[:size],
                newer=np.zeros(size, np.int8),
                same_day=np.ones(size, np.bool_),
            )
            rates.append(size / (time.perf_counter() - started))
        print(f"{name}, {label}: {max(rates):,.0f} pairs/s (best of 3, {size:,} pairs, one core)")


def labelled(texts: int) -> tuple[np.ndarray, np.ndarray]:
    """The labelled pairs over and over: near-duplicates, as blocking proposes them."""
    left = np.resize(np.arange(0, texts, 2, dtype=np.int32), PAIRS)
    return left, (left + 1).astype(np.int32)


def drawn(texts: int) -> tuple[np.ndarray, np.ndarray]:
    """Any two texts, which mostly share no word."""
    rng = np.random.default_rng(SEED)
    return rng.integers(0, texts, PAIRS).astype(np.int32), rng.integers(0, texts, PAIRS).astype(np.int32)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else GOLD)
