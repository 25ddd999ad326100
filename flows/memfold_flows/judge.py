"""Pairs from a JSON Lines file judged, the verdicts written as CSV: to try memfold on one's own language and data."""

from __future__ import annotations

import csv
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from memfold import judging
from memfold.errors import BadRecord, BadUsage
from memfold_flows import text_files

COLUMNS = ("pair_id", "merge", "verdict", "reason", "keep")
LABELS = ("duplicate", "distinct", "conflict", "supersedes")


def judge_file(pairs: Path, *, out: Path | None = None) -> list[judging.JudgedPair]:
    """The verdicts on the pairs of a JSON Lines file; with ``out`` they are written there as CSV, too.

    Raises:
        BadUsage: there is no such file, or ``out`` is that file or cannot be written.
        BadRecord: a line is not a pair; it is named by its number, and nothing is written.
    """
    if out is not None and out.exists() and pairs.exists() and out.samefile(pairs):
        raise BadUsage(f"--out {out} is the file of the pairs; nothing was judged. Name another file")
    judged = judging.judge_pairs(read_pairs(pairs))
    if out is not None:
        write_verdicts(judged, out)
    return judged


def read_pairs(path: Path) -> list[judging.Pair]:
    """The pairs of a file, one JSON object a line: pair_id, a and b with text and created_at, and a label if known."""
    pairs: dict[str, judging.Pair] = {}
    for number, place, record in text_files.records(path, not_done="nothing was judged", error=BadRecord):
        pair = _pair(record, place, number)
        if pair.pair_id in pairs:
            raise BadRecord(f"{place} has the pair_id {pair.pair_id!r} a second time; nothing was judged")
        pairs[pair.pair_id] = pair
    return list(pairs.values())


def write_verdicts(judged: list[judging.JudgedPair], path: Path) -> None:
    """One CSV row per pair: pair_id, merge (0 or 1), verdict, reason, keep."""
    try:
        file = path.open("w", encoding="utf-8", newline="")
    except OSError as error:
        raise BadUsage(f"{path} cannot be written ({error.strerror}); no verdict was written") from None
    with file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(COLUMNS)
        rows.writerows(row(pair) for pair in judged)


def row(pair: judging.JudgedPair) -> tuple[str, int, str, str, str]:
    """One verdict in the order of ``COLUMNS``."""
    return pair.pair.pair_id, int(pair.merges), pair.verdict, pair.reason, pair.keep


def _pair(record: dict[str, Any], place: str, number: int) -> judging.Pair:
    return judging.Pair(
        pair_id=str(record.get("pair_id", number)),
        a=_text(record, "a", place),
        b=_text(record, "b", place),
        a_created_at=_time(record, "a", place),
        b_created_at=_time(record, "b", place),
        label=_one_of(record, "label", LABELS, place),
        kind=_optional(record, "kind"),
        keep=_one_of(record, "keep", judging.KEPT, place),
    )


def _text(record: dict[str, Any], side: str, place: str) -> str:
    memory = record.get(side)
    text = memory.get("text") if isinstance(memory, dict) else memory
    if not isinstance(text, str):
        raise BadRecord(
            f'{place} has no text in "{side}"; nothing was judged. A side is {{"text": ..., "created_at": ...}}'
        )
    return text


def _time(record: dict[str, Any], side: str, place: str) -> datetime | None:
    memory = record.get(side)
    value = memory.get("created_at") if isinstance(memory, dict) else None
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise BadRecord(
            f'{place} has created_at {value!r} in "{side}", which is no ISO 8601 time; nothing was judged'
        ) from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _one_of(record: dict[str, Any], key: str, allowed: tuple[str, ...], place: str) -> str | None:
    value = record.get(key)
    if value is None or value in allowed:
        return value
    names = ", ".join(name for name in allowed if name)
    raise BadRecord(f"{place} has {key} {value!r}; nothing was judged. It may be {names}, or left out")


def _optional(record: dict[str, Any], key: str) -> str | None:
    value = record.get(key)
    return None if value is None else str(value)
