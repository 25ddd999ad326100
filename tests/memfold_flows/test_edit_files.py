"""What a person hears of a file of decisions that cannot be read."""

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
