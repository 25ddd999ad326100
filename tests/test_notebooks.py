"""The notebooks: executed on a real run, and kept without outputs."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import nbformat
import pytest

from memfold.policy import Policy
from memfold_flows import pipeline
from memfold_flows.runs import RunDirectory
from memfold_flows.stores import open_store

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
AS_OF = datetime(2025, 12, 1, tzinfo=UTC)


@pytest.fixture
def run_of_the_sample(tmp_path: Path) -> Path:
    """A run directory with a plan over the sample store, as the newest run of a home folder."""
    store = open_store(f"jsonl:{ROOT / 'data/sample/memories.jsonl'}")
    run = RunDirectory.create(tmp_path / "runs" / "sample-run", "sample-run")
    pipeline.plan(store, run, Policy(as_of=AS_OF), clock=lambda: AS_OF)
    store.close()
    return run.path


@pytest.mark.notebook
@pytest.mark.parametrize("reference", ["latest", "a path"])
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_the_first_cell_to_the_last(
    path: Path, reference: str, run_of_the_sample: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a run named by its path or as the latest; it shows that run, and leaves the directory as it was."""
    from nbclient import NotebookClient

    monkeypatch.setenv("MEMFOLD_HOME", str(run_of_the_sample.parents[1]))
    monkeypatch.setenv("RUN", reference if reference == "latest" else str(run_of_the_sample))
    before = _files(run_of_the_sample)
    notebook = nbformat.read(path, as_version=4)

    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()

    shown = "".join(output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", []))
    assert str(run_of_the_sample) in shown
    assert _files(run_of_the_sample) == before


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_outputs(path: Path) -> None:
    """Outputs hold memories and make every look at a notebook a change."""
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]

    assert [cell.outputs for cell in cells] == [[]] * len(cells)
    assert [cell.execution_count for cell in cells] == [None] * len(cells)


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
