"""The manifest of a run directory: which store and when, and the sha256 of every relation."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from memfold.errors import PlanDamaged
from memfold_flows.files import write_bytes

FORMAT = "memfold-run/1"
FILE = "manifest.json"


@dataclass(frozen=True, slots=True)
class RelationFile:
    """One file of a relation: its place in the run directory, its sha256 and its number of rows."""

    path: str
    sha256: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a run directory is: of which store, as of when, made with what, and the hash of each relation."""

    run_id: str
    store: str
    as_of: datetime
    created: datetime
    memfold: str
    scopes: tuple[str, ...] | None
    minhash: dict[str, int | str]
    counts: dict[str, int]
    #: Rows that the store cannot read and never touches: why, and how many.
    left_alone: dict[str, int] = field(default_factory=dict)
    files: tuple[RelationFile, ...] = ()
    snapshot_trimmed: bool = False
    #: When the texts that this run kept were removed, because they had been kept long enough; with them goes the undo.
    undo_removed_at: datetime | None = None
    #: When a memory was taken out of it because a person wanted it forgotten; from then on it cannot be applied.
    forgotten_at: datetime | None = None


def read(path: Path) -> Manifest:
    """The manifest of a run directory.

    Raises:
        PlanDamaged: there is none that can be read, it is of another kind, or a link lies in the folder.
    """
    _require_no_links(path)
    try:
        fields = json.loads((path / FILE).read_bytes())
    except FileNotFoundError as error:
        raise PlanDamaged(f"{path} has no manifest.json: it is no run directory, or the plan was cut short") from error
    except (OSError, ValueError) as error:
        raise PlanDamaged(f"{path}/{FILE} cannot be read ({first_line(error)}); nothing was written") from error
    try:
        if fields.pop("format") != FORMAT:
            raise PlanDamaged(f"{path} is not of the kind {FORMAT}; nothing was written")
        files = tuple(RelationFile(name, **file) for name, file in fields.pop("files").items())
        scopes, removed_at = fields.pop("scopes"), fields.pop("undo_removed_at", None)
        forgotten_at = fields.pop("forgotten_at", None)
        return Manifest(
            as_of=datetime.fromisoformat(fields.pop("as_of")),
            created=datetime.fromisoformat(fields.pop("created")),
            scopes=None if scopes is None else tuple(scopes),
            undo_removed_at=None if removed_at is None else datetime.fromisoformat(removed_at),
            forgotten_at=None if forgotten_at is None else datetime.fromisoformat(forgotten_at),
            files=files,
            **fields,
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise PlanDamaged(f"{path}/{FILE} is incomplete ({first_line(error)}); nothing was written") from error


def write(folder: Path, manifest: Manifest) -> None:
    """Write it, durably and whole."""
    fields = asdict(manifest)
    files = fields.pop("files")
    removed_at = manifest.undo_removed_at and manifest.undo_removed_at.isoformat()
    forgotten_at = manifest.forgotten_at and manifest.forgotten_at.isoformat()
    as_text = {
        "as_of": manifest.as_of.isoformat(),
        "created": manifest.created.isoformat(),
        "undo_removed_at": removed_at,
        "forgotten_at": forgotten_at,
    }
    content = {"format": FORMAT, **fields, **as_text, "files": {file.pop("path"): file for file in files}}
    write_bytes(folder / FILE, as_json(content))


def describe(folder: Path, path: Path) -> RelationFile:
    """A relation that lies in the folder, as the manifest names it."""
    rows = pq.ParquetFile(path).metadata.num_rows
    return RelationFile(path.relative_to(folder).as_posix(), sha256(path), rows)


def sha256(path: Path) -> str:
    """The hash of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def as_json(value: dict[str, Any]) -> bytes:
    """A manifest or a receipt as its file holds it."""
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode("utf-8", "surrogatepass")


def _require_no_links(path: Path) -> None:
    """A link in a run directory would let what is written, or removed, be somewhere else."""
    for folder in (path, path / "snapshot", path / "undo"):
        for each in os.scandir(folder) if folder.is_dir() else ():
            if each.is_symlink():
                raise PlanDamaged(f"{each.path} is a link, which no run directory has; nothing was read or written")


def first_line(error: BaseException) -> str:
    """What an error says, without what a library adds below it."""
    return (str(error).splitlines() or [type(error).__name__])[0]
