"""Pairs of texts judged one by one, and how right the verdicts are where people said what they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from memfold.text import read_corpus
from memfold.verdicts import CONTAINS, NAMES, SAME, SUPERSEDES, explain, judge

DUPLICATE = "duplicate"
KEPT = ("", "a", "b")


@dataclass(frozen=True, slots=True)
class Pair:
    """Two texts and when each was written; ``label`` and ``kind`` say what a person thinks of them, if one did."""

    pair_id: str
    a: str
    b: str
    a_created_at: datetime | None = None
    b_created_at: datetime | None = None
    label: str | None = None
    kind: str | None = None
    keep: str | None = None


@dataclass(frozen=True, slots=True)
class JudgedPair:
    """A pair with its verdict. ``keep``: the side that survives a merge or supersedes the other ("a", "b" or "")."""

    pair: Pair
    verdict: str
    reason: str
    keep: str

    @property
    def merges(self) -> bool:
        """Whether one of the two would be folded into the other."""
        return self.verdict in (NAMES[SAME], NAMES[CONTAINS])

    @property
    def is_wrong(self) -> bool:
        """Whether a merge goes against the label, or keeps the side that says less."""
        if not self.merges or self.pair.label is None:
            return False
        kept_less = self.verdict == NAMES[CONTAINS] and self.pair.keep not in (None, "", self.keep)
        return self.pair.label != DUPLICATE or kept_less


@dataclass(frozen=True, slots=True)
class Score:
    """The verdicts on one kind of pair: how many there are, how many merge, how many of those are wrong."""

    label: str
    kind: str
    pairs: int
    merged: int
    wrong: int


def judge_pairs(pairs: Sequence[Pair]) -> list[JudgedPair]:
    """A verdict for each pair, in the order given."""
    if not pairs:
        return []
    corpus = read_corpus([text for pair in pairs for text in (pair.a, pair.b)])
    left = np.arange(0, 2 * len(pairs), 2, dtype=np.int32)
    verdicts = judge(
        corpus,
        left,
        left + 1,
        newer=np.array([_newer(pair) for pair in pairs], np.int8),
        same_day=np.array([_is_same_day(pair) for pair in pairs], np.bool_),
    )
    judged = []
    for place, pair in enumerate(pairs):
        verdict = int(verdicts.verdict[place])
        side = int(verdicts.winner[place]) if verdict in (CONTAINS, SUPERSEDES) else int(verdict == SAME)
        judged.append(JudgedPair(pair, NAMES[verdict], explain(corpus, verdicts, place).reason, KEPT[side]))
    return judged


def scores(judged: Iterable[JudgedPair]) -> list[Score]:
    """One score per label and kind, in alphabetical order; pairs without a label are left out."""
    groups: dict[tuple[str, str], list[JudgedPair]] = {}
    for pair in judged:
        if pair.pair.label is not None:
            groups.setdefault((pair.pair.label, pair.pair.kind or ""), []).append(pair)
    return [
        Score(label, kind, len(group), sum(pair.merges for pair in group), sum(pair.is_wrong for pair in group))
        for (label, kind), group in sorted(groups.items())
    ]


def table(judged: Sequence[JudgedPair]) -> str:
    """The scores by kind as aligned text, with precision and recall below; "" where no pair has a label."""
    rows = scores(judged)
    if not rows:
        return ""
    cells = [("label", "kind", "pairs", "merged", "wrong")]
    cells += [(row.label, row.kind, str(row.pairs), str(row.merged), str(row.wrong)) for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(5)]
    lines = [
        "  ".join(
            cell.ljust(width) if column < 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]
    return "\n".join([*lines, "", *_summary(rows)])


def _summary(rows: list[Score]) -> list[str]:
    merged, wrong = sum(row.merged for row in rows), sum(row.wrong for row in rows)
    duplicates = sum(row.pairs for row in rows if row.label == DUPLICATE)
    found = sum(row.merged - row.wrong for row in rows if row.label == DUPLICATE)
    lines = [f"precision {_share(merged - wrong, merged)}", f"recall {_share(found, duplicates)}"]
    for label in sorted({row.label for row in rows} - {DUPLICATE}):
        group = [row for row in rows if row.label == label]
        lines.append(f"{label} merged: {sum(row.merged for row in group)} of {sum(row.pairs for row in group)}")
    return lines


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.3f} ({part} of {whole})" if whole else "unknown (0 pairs)"


def _newer(pair: Pair) -> int:
    if pair.a_created_at is None or pair.b_created_at is None or pair.a_created_at == pair.b_created_at:
        return 0
    return 1 if pair.a_created_at > pair.b_created_at else 2


def _is_same_day(pair: Pair) -> bool:
    if pair.a_created_at is None or pair.b_created_at is None:
        return False
    return pair.a_created_at.astimezone(UTC).date() == pair.b_created_at.astimezone(UTC).date()
