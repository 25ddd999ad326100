"""How long runs keep texts: undo and snapshot data that is old enough goes, but never that of a run in the middle.

What was decided and counted stays: the plan, the receipts and the ledger of the store.
"""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from memfold.errors import MemfoldError, PlanDamaged
from memfold_flows import history
from memfold_flows.runs import OF_A_WHOLE_PLAN, PLANNED_BY, RunDirectory, known_runs
from memfold_flows.stores import processes
from memfold_flows.stores.base import MemoryStore
from memfold_flows.stores.sessions import LEASE

logger = logging.getLogger(__name__)

OpenStore = Callable[[str], MemoryStore]

#: What only a plan that was sealed once has beside it.
_RUN_ID = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{6}")


@dataclass(frozen=True, slots=True)
class Old:
    """A run whose texts have been kept long enough. ``has_manifest`` is false for a plan that was cut short."""

    run_id: str
    run_dir: Path
    store: str | None
    last_used_at: datetime
    texts_bytes: int
    has_manifest: bool = True

    def as_json(self) -> dict[str, Any]:
        """For ``--json``."""
        return {**asdict(self), "run_dir": str(self.run_dir), "last_used_at": self.last_used_at.isoformat()}


@dataclass(frozen=True, slots=True)
class Kept:
    """A run whose texts are old and stay, and why."""

    run_id: str
    why: str


def find(
    folder: Path, *, before: datetime, now: datetime, open_store: OpenStore, store: str | None = None
) -> tuple[list[Old], list[Kept]]:
    """The runs of a folder, or those of one store, that nothing happened to since ``before`` and that keep texts.

    Of all stores, also the plans whose process ended before they were whole, however new.
    """
    old: list[Old] = []
    kept: list[Kept] = []
    for run in known_runs(folder):
        try:
            found = _texts_of(run)
        except PlanDamaged as error:
            kept.append(Kept(run.run_id, str(error)))
            continue
        if found.last_used_at >= before or not found.texts_bytes or store not in (None, found.store):
            continue
        if why := _why_kept(run, open_store):
            kept.append(Kept(run.run_id, why))
        else:
            old.append(found)
    if store is None:
        half_made = _half_made(folder)
        old += [each for each in half_made if each.last_used_at < before or _has_ended(each, now)]
    return old, kept


def remove(runs: Iterable[Old], *, now: datetime) -> None:
    """Remove the undo and snapshot data of these runs; of a plan that was cut short, all that is there."""
    for old in runs:
        if old.has_manifest:
            RunDirectory(old.run_dir, old.run_id).remove_texts(now)
        else:
            shutil.rmtree(old.run_dir)
        logger.info("removed %d bytes of old texts from run %s", old.texts_bytes, old.run_id)


def cut_short(folder: Path, now: datetime) -> list[Old]:
    """The plans in a folder whose process ended before they were whole: nothing will ever be written from them."""
    return [each for each in _half_made(folder) if _has_ended(each, now)]


def is_half_made(path: Path) -> bool:
    """Whether a directory is that of a plan that was never whole."""
    is_run = _RUN_ID.fullmatch(path.name) and path.is_dir() and not path.is_symlink()
    return bool(is_run) and not any((path / name).exists() for name in OF_A_WHOLE_PLAN)


def _texts_of(run: RunDirectory) -> Old:
    manifest = run.manifest
    receipts = [run.read_json(name) for name in ("receipt.json", "undo.json")]
    ended = [datetime.fromisoformat(receipt["ended_at"]) for receipt in receipts if receipt]
    rows = sum(file.rows for file in manifest.files if file.path.startswith("snapshot/"))
    parts = [*run.undo_files, *(run.path.glob("snapshot/*.parquet") if rows else run.path.glob("snapshot/part-*"))]
    size = sum(path.stat().st_size for path in parts)
    return Old(run.run_id, run.path, _written_to(run), max([manifest.created, *ended]), size)


def _written_to(run: RunDirectory) -> str:
    receipt = run.read_json("receipt.json") or {}
    return receipt.get("written_to") or run.manifest.store


def _why_kept(run: RunDirectory, open_store: OpenStore) -> str | None:
    """Why the undo data of a run has to stay; only its store knows whether it is in the middle."""
    if not run.undo_files or run.manifest.undo_removed_at is not None:
        return None
    url = _written_to(run)
    try:
        with closing(open_store(url)) as store:
            past = history.run_of(store, run.run_id)
    except (MemfoldError, OSError) as error:
        return f"its store cannot be asked whether it is in the middle ({error})"
    if past is not None and past.is_in_the_middle:
        return f"it is in the middle of its {'undo' if past.state is history.RunState.IN_UNDO else 'apply'}"
    return None


def _half_made(folder: Path) -> list[Old]:
    """Plans that are not sealed: at work, or interrupted."""
    found = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        if not is_half_made(path):
            continue
        files = [each for each in path.rglob("*") if each.is_file()]
        touched = max(each.stat().st_mtime for each in [path, *files])
        size = sum(each.stat().st_size for each in files)
        found.append(Old(path.name, path, None, datetime.fromtimestamp(touched, UTC), size, has_manifest=False))
    return found


def _has_ended(plan: Old, now: datetime) -> bool:
    """Whether nobody is at work on a plan: its process has ended, or named itself nowhere and wrote nothing lately."""
    try:
        planner = (plan.run_dir / PLANNED_BY).read_text(encoding="ascii", errors="replace")
    except FileNotFoundError:
        return plan.last_used_at < now - LEASE
    return processes.has_ended(planner)
