"""The notebooks: executed on runs of every kind, and kept without outputs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import nbformat
import pytest

from memfold.policy import Policy
from memfold_flows import pipeline, shards
from memfold_flows.partition import find_archive
from memfold_flows.runs import RunDirectory
from memfold_flows.stores import open_store

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
OF_A_RUN = [path for path in NOTEBOOKS if path.stem != "04_backfill"]
AS_OF = datetime(2025, 12, 1, tzinfo=UTC)

NOTHING_ALIKE = [{"id": "tea", "text": "Ann drinks green tea"}, {"id": "bin", "text": "Glass goes into the blue bin"}]
HALF_OF_IT = [
    {"id": "tea-1", "text": "Ann drinks two cups of tea"},
    {"id": "tea-2", "text": "Note: Ann drinks 2 cups of tea"},
]


@pytest.fixture
def planned(tmp_path: Path) -> Callable[[Path], Path]:
    """Plan a pass over an archive; its run directory is the newest of a home folder."""

    def plan(source: Path) -> Path:
        store = open_store(f"jsonl:{source}")
        run = RunDirectory.create(tmp_path / "runs" / "sample-run", "sample-run")
        pipeline.plan(store, run, Policy(as_of=AS_OF), clock=lambda: AS_OF)
        store.close()
        return run.path

    return plan


@pytest.mark.notebook
@pytest.mark.parametrize("path", OF_A_RUN, ids=lambda path: path.stem)
@pytest.mark.parametrize("kind", ["the sample", "nothing to do", "refused"])
def test_a_notebook_runs_from_the_first_cell_to_the_last(
    path: Path,
    kind: str,
    planned: Callable[[Path], Path],
    archive: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a run named by its path or as the latest; it shows that run, and leaves the directory as it was."""
    rows = {"nothing to do": NOTHING_ALIKE, "refused": HALF_OF_IT}
    run = planned(archive(rows[kind], "few.jsonl") if kind in rows else ROOT / "data/sample/memories.jsonl")
    monkeypatch.setenv("MEMFOLD_HOME", str(run.parents[1]))
    monkeypatch.setenv("RUN", str(run) if kind == "the sample" else "latest")
    before = _files(run)

    assert str(run) in _executed(path)

    assert _files(run) == before


@pytest.mark.notebook
def test_the_notebook_of_a_backfill_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the folder that a backfill made, of which one scope was refused."""
    source = find_archive(f"jsonl:{ROOT / 'data/sample/memories.jsonl'}")
    job = shards.Job(archive=source, folder=tmp_path / "out", shards=2, as_of=AS_OF, thresholds={})
    outcomes = [shards.consolidate_shard(job, shard) for shard in shards.begin(job)]
    shards.report(job, outcomes)
    monkeypatch.setenv("BACKFILL", str(job.folder))
    before = _files(job.folder)

    assert str(job.folder) in _executed(ROOT / "notebooks/04_backfill.ipynb")

    assert _files(job.folder) == before


@pytest.mark.notebook
def test_a_folder_that_is_no_backfill_is_said_to_be_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In words, with empty tables after it, not as a traceback; so is a folder that is not there."""
    monkeypatch.setenv("BACKFILL", str(tmp_path / "nowhere"))

    said = _executed(ROOT / "notebooks/04_backfill.ipynb")

    assert f"{tmp_path / 'nowhere'} is no folder of a finished backfill" in said


@pytest.mark.notebook
def test_a_backfill_of_which_no_shard_was_done_is_shown(
    archive: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a shard has no tally, only what went wrong."""
    twice = [{"id": "tea", "text": "Ann drinks tea"}, {"id": "tea", "text": "Bo drinks coffee"}]
    job = shards.Job(
        archive=find_archive(f"jsonl:{archive(twice)}"), folder=tmp_path / "out", shards=1, as_of=AS_OF, thresholds={}
    )
    (shard,) = shards.begin(job)
    shards.report(job, [shards.ShardOutcome(name=shard.name, rows=2, error="twice")])
    monkeypatch.setenv("BACKFILL", str(job.folder))

    assert "twice" in _executed(ROOT / "notebooks/04_backfill.ipynb")


@pytest.mark.notebook
def test_only_what_was_applied_is_history(kitchen_of_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that was only looked at, and the one that an edit replaced, are no passes."""
    monkeypatch.setenv("RUN", str(kitchen_of_runs / "edited"))

    passes, _, planned = _executed(ROOT / "notebooks/03_history.ipynb").split("shape: (")[1:]

    assert passes.startswith("1, 10)")
    assert "edited" in passes
    assert planned.startswith("2, 3)")
    assert "looked-at" in planned
    assert "replaced" in planned


@pytest.fixture
def kitchen_of_runs(tmp_path: Path, archive: Callable[..., Path]) -> Path:
    """Three runs of one archive: looked at, replaced by an edit, and that edit, applied."""
    tea = [{"id": f"tea-{n}", "text": f"{'Note: ' * (n > 1)}Ann drinks two cups of tea"} for n in (1, 2)]
    other = [{"id": f"bin-{n}", "text": f"Bin {n} takes glass of colour {n}"} for n in range(1, 9)]
    store = open_store(f"jsonl:{archive([*tea, *other])}", in_place=True)
    home = tmp_path / "runs"
    for name in ("looked-at", "replaced"):
        pipeline.plan(store, RunDirectory.create(home / name, name), Policy(as_of=AS_OF), clock=lambda: AS_OF)
    edited = RunDirectory.create(home / "edited", "edited")
    pipeline.edit(store, RunDirectory.open(home / "replaced"), edited, {"bin-8": "pin"}, clock=lambda: AS_OF)
    pipeline.apply(store, edited, clock=lambda: AS_OF)
    store.close()
    return home


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_outputs(path: Path) -> None:
    """Outputs hold memories and make every look at a notebook a change."""
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]

    assert [cell.outputs for cell in cells] == [[]] * len(cells)
    assert [cell.execution_count for cell in cells] == [None] * len(cells)


def _executed(path: Path) -> str:
    """What a notebook prints and shows in plain text, run from its first cell to its last."""
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return "".join(output.get("text", "") + output.get("data", {}).get("text/plain", "") for output in outputs)


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
