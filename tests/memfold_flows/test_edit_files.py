"""What a person hears of a file of decisions that cannot be read."""

import json
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from memfold.errors import BadUsage
from memfold_flows import edits


def test_a_csv_with_semicolons_is_told_to_use_commas(tmp_path: Path) -> None:
    """A spreadsheet of another country writes semicolons; the ids are then not found, and the message says why."""
    path = tmp_path / "plan.csv"
    path.write_text("id;action;decision\na10;prune;reject\n", "utf-8")
    plan = pa.table({"memory_id": ["a10"], "action": ["prune"], "into_id": pa.array([None], pa.string())})
    run = SimpleNamespace(run_id="r1", read=lambda name, columns: plan)

    with pytest.raises(BadUsage, match="has no column id; save it as CSV with commas"):
        edits.read_file(path, run)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("plan.csv", None, "there is no file .*plan.csv; nothing was planned"),
        ("plan.txt", b"id,decision\n", r"takes a .csv or a .jsonl file, got .*plan.txt; nothing was planned"),
        ("plan.csv", "id,decision\n".encode("utf-16"), "plan.csv is UTF-16; nothing was planned. Save it as UTF-8"),
        ("plan.jsonl", b'{"id": "a10", "x": "\xe9"}', "plan.jsonl is not UTF-8 at byte 20; nothing was planned"),
        ("plan.jsonl", b'\n{"id": "a10"', "plan.jsonl, line 2 is not JSON .*; nothing was planned"),
        ("plan.jsonl", b'["a10"]', "plan.jsonl, line 1 is not a JSON object; nothing was planned"),
    ],
)
def test_a_file_that_cannot_be_read_is_told_why(tmp_path: Path, name: str, content: bytes | None, says: str) -> None:
    """With its name, the place where there is one, and what to do; no decision of it is taken."""
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    plan = pa.table({"memory_id": ["a10"], "action": ["prune"], "into_id": pa.array([None], pa.string())})
    run = SimpleNamespace(run_id="r1", read=lambda name, columns: plan)

    with pytest.raises(BadUsage, match=says):
        edits.read_file(path, run)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["plan.csv", "plan.jsonl"])
def test_a_text_may_hold_every_line_end_of_unicode(tmp_path: Path, name: str) -> None:
    """A memory's text stands in the exported plan as it is; the row after it is still a row of its own."""
    text = "one\u2028two\x0bthree\x85four\x1cfive"
    path = tmp_path / name
    if name == "plan.csv":
        path.write_text(f"id,action,decision,text\na10,prune,,{text}\na11,prune,reject,plain\n", "utf-8")
    else:
        rows = [{"id": "a10", "text": text}, {"id": "a11", "decision": "reject", "text": "plain"}]
        lines = [json.dumps(row, ensure_ascii=False) for row in rows]
        path.write_text("\n".join(lines), "utf-8")
    plan = pa.table(
        {"memory_id": ["a10", "a11"], "action": ["prune"] * 2, "into_id": pa.array([None] * 2, pa.string())}
    )
    run = SimpleNamespace(run_id="r1", read=lambda name, columns: plan)

    assert edits.read_file(path, run) == {"a11": "reject"}  # type: ignore[arg-type]
