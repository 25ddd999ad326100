"""The shards of a backfill: each consolidated on its own, in a folder of its own, and known to be done by its content.

Free of Prefect, and importable wherever a task runs: in a thread, or on a Dask or Ray worker with the same files.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from memfold.errors import BadUsage, StoreError
from memfold_flows import leases, pipeline, progress, summaries
from memfold_flows.files import replacing, write_bytes
from memfold_flows.partition import Archive, Shard, cut, input_file, unpack
from memfold_flows.receipts import State
from memfold_flows.runs import RunDirectory
from memfold_flows.settings import Settings
from memfold_flows.stores import open_store

#: Bytes of disk for each byte of the archive: the shards, their snapshots and relations, what an undo would need, the
#: consolidated shards and the archive; measured on archives of short texts, where the relations weigh most.
_DISK_PER_BYTE = 6
_LOCK = "backfill.lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A backfill: what is read, where it goes, and by which thresholds. The same job goes on where it stopped."""

    archive: Archive
    folder: Path
    shards: int
    as_of: datetime
    thresholds: Mapping[str, Any]

    @property
    def shards_folder(self) -> Path:
        return self.folder / "shards"

    @property
    def result(self) -> Path:
        """The consolidated archive."""
        return self.folder / f"archive.{self.archive.scheme}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardOutcome:
    """How one shard ended. ``error`` says why it failed; ``was_done`` that an earlier start had done it."""

    name: str
    rows: int
    state: str = ""
    merged: int = 0
    pruned: int = 0
    promoted: int = 0
    lost: int = 0
    scopes: int = 0
    scopes_refused: int = 0
    seconds: float = 0.0
    was_done: bool = False
    error: str | None = None


@contextmanager
def alone(job: Job) -> Iterator[None]:
    """Keep a second start in the same folder out while this one is at work.

    Raises:
        BadUsage: the folder holds something else; nothing was written.
        Transient: a backfill is at work there.
    """
    _make_folder(job)
    busy = f"another backfill is at work in {job.folder}; nothing was written. Let it finish, or stop it first."
    with leases.file_locked(job.folder / _LOCK, busy=busy):
        yield


def begin(job: Job) -> list[Shard]:
    """The shards of a job: cut now, or found as an earlier start left them.

    Raises:
        BadUsage: the folder holds something else or another job, or the disk is too small; nothing was written.
    """
    job_now = {
        "format": "memfold-backfill/1",
        "archive": str(job.archive.place),
        "scope_fields": list(job.archive.scope_fields),
        "shards": job.shards,
        "as_of": job.as_of.isoformat(),
    }
    known = _read(job.folder / "backfill.json")
    if known is None:
        _require_free(job)
    elif {name: known.get(name) for name in job_now} != job_now:
        raise BadUsage(
            f"{job.folder} holds a backfill of another archive, of other shards or as of another time; "
            "nothing was written. Choose another folder, or delete that one."
        )
    job.archive.require_nothing_forgotten()
    fingerprint = job.archive.fingerprint()
    if known is not None and known["fingerprint"] == fingerprint:
        return [Shard(**shard) for shard in known["cut"]]
    # Also where the archive was corrected since: the shards that are the same as before are found to be done.
    shards = cut(job.archive, job.shards_folder, shards=job.shards)
    begun = {**job_now, "fingerprint": fingerprint, "cut": [asdict(shard) for shard in shards]}
    write_bytes(job.folder / "backfill.json", _json(begun))
    return shards


def as_of_before(folder: Path) -> datetime | None:
    """The moment that an unfinished backfill in this folder goes by; None where there is none."""
    known = _read(folder / "backfill.json")
    return None if known is None else datetime.fromisoformat(known["as_of"])


def consolidate_shard(job: Job, shard: Shard) -> ShardOutcome:
    """Consolidate one shard into ``output``, unless that is done already."""
    folder = job.shards_folder / shard.name
    source = input_file(job.shards_folder, shard.name)
    output = folder / f"output.{job.archive.scheme}"
    key = _key(job, source)
    done = _read(folder / "done.json")
    if done is not None and done["key"] == key and output.exists() and done["output"] == _sha256(output):
        return ShardOutcome(**{**done["outcome"], "was_done": True})
    for left_over in (folder / "run", folder / ".memfold"):
        shutil.rmtree(left_over, ignore_errors=True)
    output.unlink(missing_ok=True)
    if job.archive.scheme == "jsonl":
        lines = folder / "lines.jsonl"
        unpack(source, lines)
        outcome = _consolidate(job, shard, lines, output)
        lines.unlink()
    else:
        outcome = _consolidate(job, shard, source, output)
    write_bytes(folder / "done.json", _json({"key": key, "output": _sha256(output), "outcome": asdict(outcome)}))
    return outcome


def assemble(job: Job, shards: Sequence[Shard]) -> Path:
    """Put the consolidated shards together, in the order of their names."""
    outputs = [job.shards_folder / shard.name / f"output.{job.archive.scheme}" for shard in shards]
    with replacing(job.result) as file:
        if job.archive.scheme == "jsonl":
            for output in outputs:
                with output.open("rb") as lines:
                    shutil.copyfileobj(lines, file, 1 << 20)
        else:
            with pq.ParquetWriter(file, pq.read_schema(outputs[0]), compression="zstd", compression_level=3) as writer:
                for output in outputs:
                    with pq.ParquetFile(output) as rows:
                        for group in range(rows.num_row_groups):
                            writer.write_table(rows.read_row_group(group))
        file.flush()
        os.fsync(file.fileno())
    return job.result


def report(job: Job, outcomes: Sequence[ShardOutcome]) -> dict[str, Any]:
    """What the backfill came to: the totals and each shard; also written to ``report.json`` and ``report.md``."""
    names = ("rows", "merged", "pruned", "promoted", "lost", "scopes", "scopes_refused")
    totals = {name: sum(getattr(outcome, name) for outcome in outcomes) for name in names}
    failed = [outcome for outcome in outcomes if outcome.error is not None]
    value = {
        "state": state_of(outcomes).value if not failed else "Failed",
        "archive": str(job.result) if not failed else None,
        "as_of": job.as_of.isoformat(),
        **totals,
        "rows_after": totals["rows"] - totals["merged"] - totals["pruned"],
        "shards_failed": len(failed),
        "shards_done_before": sum(outcome.was_done for outcome in outcomes),
        "shards": [asdict(outcome) for outcome in outcomes],
    }
    write_bytes(job.folder / "report.json", _json(value))
    write_bytes(job.folder / "report.md", summaries.backfill(value).encode())
    return value


def state_of(outcomes: Sequence[ShardOutcome]) -> State:
    """How a backfill ended whose shards are all done."""
    wrote = any(outcome.merged + outcome.pruned + outcome.promoted for outcome in outcomes)
    refused = any(outcome.scopes_refused for outcome in outcomes)
    if wrote:
        return State.PARTLY_APPLIED if refused else State.CONSOLIDATED
    return State.REJECTED if refused else State.NOTHING_TO_DO


def _consolidate(job: Job, shard: Shard, source: Path, output: Path) -> ShardOutcome:
    options = {"out": str(output)} | ({"scope": job.archive.scope_option} if job.archive.scope_option else {})
    began_at = _now()
    store = open_store(f"{job.archive.scheme}:{source}", **options)
    policy = Settings(job.thresholds).policy(as_of=job.as_of, traits=store.traits)
    run = RunDirectory.create(source.parent / "run", f"shard-{shard.name}")
    with progress.shown(quiet=True):  # what is shown of a backfill is how many shards are done
        receipt = pipeline.consolidate(store, run, policy, clock=_now)
    if not output.exists():
        shutil.copyfile(source, output)  # nothing was to be changed, so nothing was written
        output.chmod(0o600)
    totals = receipt.totals
    return ShardOutcome(
        name=shard.name,
        rows=totals.entries_before,
        state=receipt.state.value,
        merged=totals.merged,
        pruned=totals.pruned,
        promoted=totals.promoted,
        lost=totals.lost,
        scopes=len(receipt.scopes),
        scopes_refused=len(receipt.refused),
        seconds=round((_now() - began_at).total_seconds(), 3),
    )


def _key(job: Job, source: Path) -> str:
    """What the outcome of a shard follows from: its content, the thresholds, the moment and the program."""
    said = json.dumps([dict(job.thresholds), job.as_of.isoformat(), version("memfold")], default=str, sort_keys=True)
    return hashlib.sha256(f"{_sha256(source)}\n{said}".encode()).hexdigest()


def _make_folder(job: Job) -> None:
    there = {path.name for path in job.folder.iterdir()} if job.folder.is_dir() else set()
    if job.folder.is_file() or (there - {_LOCK} and "shards" not in there):
        raise BadUsage(f"{job.folder} exists and is not empty; nothing was written. Choose another folder.")
    try:
        job.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise StoreError(f"{job.folder} cannot be made ({error.strerror}); nothing was written") from error


def _require_free(job: Job) -> None:
    _make_folder(job)
    needed, free = job.archive.size * _DISK_PER_BYTE, shutil.disk_usage(job.folder).free
    if needed > free:
        raise BadUsage(
            f"this backfill needs about {needed / 1e9:.1f} GB in {job.folder}, where {free / 1e9:.1f} GB are free; "
            "nothing was written. Choose a folder on a larger disk."
        )


def _now() -> datetime:
    return datetime.now(UTC)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read(path: Path) -> dict[str, Any] | None:
    try:
        value: dict[str, Any] = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return value


def _json(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()
