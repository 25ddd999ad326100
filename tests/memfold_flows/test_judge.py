"""A file of pairs in, a CSV of verdicts out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memfold.errors import BadRecord, BadUsage
from memfold_flows.judge import judge_file

OLD = {"text": "Log retention is 14 days", "created_at": "2026-03-01T09:00:00Z"}
NEW = {"text": "Log retention is now 30 days", "created_at": "2026-04-01T09:00:00Z"}


def write(path: Path, *records: object) -> Path:
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), "utf-8")
    return path


def test_the_verdicts_are_written_as_csv(tmp_path: Path):
    """One row per pair: whether it merges, the verdict, why, and which side stays."""
    pairs = write(
        tmp_path / "pairs.jsonl",
        {"pair_id": "p1", "a": {"text": "User has 2 cats"}, "b": {"text": "User has two cats"}},
        {"pair_id": "p2", "a": OLD, "b": NEW},
        {"pair_id": "p3", "a": {"text": "用户有2只猫"}, "b": {"text": "用户有3只猫"}},
    )

    judge_file(pairs, out=tmp_path / "verdicts.csv")

    assert (tmp_path / "verdicts.csv").read_text("utf-8").splitlines() == [
        "pair_id,merge,verdict,reason,keep",
        "p1,1,same,only forms of words or fillers differ,a",
        "p2,0,supersedes,the newer says that it changed: now,b",
        "p3,0,conflict,numbers differ: 2 / 3,",
    ]


def test_pairs_without_ids_are_named_by_their_line(tmp_path: Path):
    """A pair needs two texts and nothing else; empty lines are passed over."""
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text('\n{"a": "tea", "b": "Tea!"}\n', "utf-8")

    (judged,) = judge_file(pairs)

    assert (judged.pair.pair_id, judged.merges) == ("2", True)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "line 1 is not JSON"),
        ("[]", "line 1 is not a JSON object"),
        ('{"a": {"text": "tea"}}', 'line 1 has no text in "b"'),
        ('{"a": {"text": 3}, "b": {"text": "tea"}}', 'line 1 has no text in "a"'),
        ('{"a": {"text": "tea", "created_at": "soon"}, "b": "tea"}', "created_at 'soon'"),
        ('{"a": "tea", "b": "Tea", "label": "dup"}', "label 'dup'"),
        ('{"a": "tea", "b": "Tea", "label": ["duplicate"]}', "label ['duplicate']"),
        ('{"a": "tea", "b": "Tea", "keep": "c"}', "keep 'c'"),
        (
            '{"pair_id": "p", "a": "tea", "b": "Tea"}\n{"pair_id": "p", "a": "tea", "b": "ale"}',
            "pair_id 'p' a second time",
        ),
    ],
)
def test_a_line_that_is_no_pair_is_named(tmp_path: Path, line: str, complaint: str):
    """The message says which line, what is wrong, and that nothing was judged; no CSV is left behind."""
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text(line + "\n", "utf-8")

    with pytest.raises(BadRecord, match="nothing was judged") as raised:
        judge_file(pairs, out=tmp_path / "verdicts.csv")

    assert complaint in str(raised.value)
    assert not (tmp_path / "verdicts.csv").exists()


def test_a_file_that_is_not_there_is_bad_usage(tmp_path: Path):
    """A wrong path is an error, never an empty result."""
    with pytest.raises(BadUsage, match=r"there is no file .*missing\.jsonl; nothing was judged"):
        judge_file(tmp_path / "missing.jsonl")


def test_the_pairs_are_never_overwritten(tmp_path: Path):
    """An --out that is the file of the pairs, or that cannot be written, is bad usage and changes nothing."""
    pairs = write(tmp_path / "pairs.jsonl", {"pair_id": "p1", "a": "tea", "b": "Tea"})
    before = pairs.read_bytes()

    for out in (pairs, tmp_path / "no such folder" / "verdicts.csv"):
        with pytest.raises(BadUsage, match=r"nothing was judged|no verdict was written"):
            judge_file(pairs, out=out)

    assert pairs.read_bytes() == before


def test_a_byte_order_mark_is_no_part_of_the_first_pair(tmp_path: Path):
    """Files saved on Windows begin with one."""
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text('{"a": "tea", "b": "Tea!"}\r\n', "utf-8-sig")

    assert [pair.merges for pair in judge_file(pairs)] == [True]
