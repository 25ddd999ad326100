"""`memfold judge` and `memfold cluster`: texts from a file, without a store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from memfold_flows import progress
from memfold_flows.terminal import print_json, say

if TYPE_CHECKING:
    from memfold.judging import JudgedPair


def judge(pairs: Path, *, out: Path | None, as_json: bool) -> None:
    """Judge the pairs of a file; where they are labelled, say how right the verdicts are."""
    from memfold import judging
    from memfold_flows import judge as pair_files

    judged = pair_files.judge_file(pairs, out=out)
    if as_json:
        columns = [dict(zip(pair_files.COLUMNS, pair_files.row(pair), strict=True)) for pair in judged]
        print_json({"pairs": columns, "scores": [asdict(score) for score in judging.scores(judged)]})
        return
    if out is None and judged:
        _print_verdicts(judged)
    merged = sum(pair.merges for pair in judged)
    say(f"{len(judged)} pairs judged, {merged} would merge" + (f"; verdicts in {out}" if out else ""))
    if table := judging.table(judged):
        print(f"\n{table}")
    elif out is None:
        say("no pair has a label, so there is nothing to compare with; --out FILE.csv keeps the verdicts")


def _print_verdicts(judged: Sequence[JudgedPair]) -> None:
    """One line per pair: what would become of it and why; where it has a label, whether that is right."""
    from memfold_flows import console

    is_labelled = any(pair.pair.label for pair in judged)
    columns = ("pair", "verdict", *(["label"] if is_labelled else []), "would", "why")
    console.table(columns, [_verdict(pair, is_labelled=is_labelled) for pair in judged], whole=("verdict", "would"))
    say("")


def _verdict(pair: JudgedPair, *, is_labelled: bool) -> tuple[str, ...]:
    would = f"merge, {pair.keep} stays" if pair.merges else "stay apart"
    label = [(pair.pair.label or "") + (" (wrong)" if pair.is_wrong else "")] if is_labelled else []
    return pair.pair.pair_id, pair.verdict, *label, would, pair.reason


def cluster(source: Path, target: Path, *, threshold: float, scope: str | None, quiet: bool, as_json: bool) -> None:
    """Group the near-duplicate texts of a Parquet file."""
    from memfold_flows.cluster import cluster_file

    with progress.shown(quiet=quiet, unit="rows"):
        found = cluster_file(source, target, threshold=threshold, scope=scope, report=progress.report)
    if as_json:
        print_json(asdict(found))
    else:
        say(
            f"{found.rows_in_clusters:,} of {found.rows:,} texts are in {found.clusters:,} clusters, the largest of "
            f"{found.largest:,}; wrote {target}"
        )
