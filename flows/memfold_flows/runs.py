"""The run directory: one pass on disk. Anyone can read it with DuckDB, and damage to it is noticed before a write.

``manifest.json`` names the store, the times and the sha256 of every relation; the relations themselves are
byte-identical from run to run over the same store at the same ``as_of``.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from memfold.errors import BadUsage, CannotWrite, PlanDamaged
from memfold.frames import EVIDENCE, SNAPSHOT, UNDO
from memfold_flows import manifests
from memfold_flows.files import PRIVATE_FOLDER, ROWS_PER_GROUP, sync, write_bytes, write_parquet
from memfold_flows.manifests import Manifest
from memfold_flows.stores import processes, urls

#: Which process makes the plan, for as long as it is not sealed.
PLANNED_BY = ".planned-by"
#: What only a plan has that was whole once.
OF_A_WHOLE_PLAN = ("manifest.json", "undo", "receipt.json", "undo.json")
#: Where a text stands that a model wrote.
_TEXTS_OF_A_MODEL = {"proposals": "content", "rewrites": "content", "plan": "new_content", "rewrite": "new_content"}
ROWS_PER_PART = 4 * ROWS_PER_GROUP

_ROWS_DIGEST = b"memfold.rows"


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """One pass on disk: the relations, the manifest that seals them, the receipt and what undo needs."""

    path: Path
    run_id: str

    @classmethod
    def create(cls, path: Path, run_id: str) -> RunDirectory:
        """An empty run directory that only its owner may read.

        Raises:
            BadUsage: the path exists and is not an empty folder, or no folder can be made there.
        """
        if path.exists() and not (path.is_dir() and not any(path.iterdir())):
            raise BadUsage(f"the run directory {path} exists and is not an empty folder; nothing was planned")
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=PRIVATE_FOLDER)
            path.mkdir(exist_ok=True, mode=PRIVATE_FOLDER)
            path.chmod(PRIVATE_FOLDER)
            if (planner := processes.this_process()) is not None:
                (path / PLANNED_BY).write_text(planner, encoding="ascii")
        except OSError as error:
            raise BadUsage(
                f"no run directory can be made at {path} ({error.strerror}); nothing was planned. "
                "Set MEMFOLD_HOME, or give another --run-dir."
            ) from error
        return cls(path.resolve(), run_id)

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """A run directory that was sealed earlier.

        Raises:
            PlanDamaged: it has no manifest that can be read, or is of another kind.
        """
        return cls(path.resolve(), manifests.read(path).run_id)

    @property
    def is_sealed(self) -> bool:
        """Whether planning came to its end."""
        return (self.path / "manifest.json").exists()

    @property
    def manifest(self) -> Manifest:
        return manifests.read(self.path)

    def file(self, name: str) -> Path:
        """Where the relation of this name lies; for the snapshot, the pattern of its parts."""
        return self.path / ("snapshot/*.parquet" if name == "snapshot" else f"{name}.parquet")

    def write(self, name: str, table: pa.Table) -> Path:
        """Write one relation, whole or not at all; the same rows in the same order give the same bytes."""
        path = self.file(name)
        write_parquet(path, table)
        return path

    def write_snapshot(self, snapshot: pa.Table) -> Path:
        """Write the snapshot in parts of a fixed number of rows; an empty store has one empty part."""
        for number, start in enumerate(range(0, max(snapshot.num_rows, 1), ROWS_PER_PART)):
            write_parquet(self.path / f"snapshot/part-{number:05d}.parquet", snapshot.slice(start, ROWS_PER_PART))
        return self.file("snapshot")

    def read(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """One relation, or some of its columns.

        Raises:
            PlanDamaged: it is missing or cannot be read.
        """
        paths = sorted((self.path / "snapshot").glob("*.parquet")) if name == "snapshot" else [self.file(name)]
        wanted = None if columns is None else list(columns)
        try:
            tables = [pq.ParquetFile(path).read(columns=wanted) for path in paths]
        except (OSError, pa.ArrowException) as error:
            raise self._damaged(f"{name} cannot be read ({manifests.first_line(error)})") from error
        if not tables:
            raise self._damaged(f"{name} is missing")
        for table in tables:
            if missing := sorted(set(wanted or ()) - set(table.column_names)):
                raise self._damaged(f"{name} has no column {missing[0]}")
        return pa.concat_tables(tables)

    def seal(self, manifest: Manifest) -> Manifest:
        """Write the manifest over all relations that lie here now; from now on a changed byte is noticed."""
        files = tuple(manifests.describe(self.path, path) for path in _relation_paths(self.path))
        sealed = replace(manifest, files=files)
        manifests.write(self.path, sealed)
        (self.path / PLANNED_BY).unlink(missing_ok=True)
        return sealed

    def add(self, name: str, table: pa.Table) -> None:
        """Add one relation to a sealed run; a relation that is there already must be the same, byte for byte.

        Raises:
            PlanDamaged: it is there and differs.
        """
        manifest = self.manifest
        known = {file.path: file.sha256 for file in manifest.files}
        path = self.write(name, table)
        file = manifests.describe(self.path, path)
        if known.get(file.path, file.sha256) != file.sha256:
            raise self._damaged(f"{file.path} does not follow from the plan")
        others = tuple(other for other in manifest.files if other.path != file.path)
        files = tuple(sorted((*others, file), key=lambda each: each.path))
        manifests.write(self.path, replace(manifest, files=files))

    def make_durable(self) -> None:
        """Wait until the plan is on the disk, as what is written from it can be: it is what tells of that.

        Raises:
            CannotWrite: the disk does not take it.
        """
        try:
            for path in (*_relation_paths(self.path), self.path / "snapshot", self.path):
                sync(path)
            for folder in self.path.parents:
                with suppress(OSError):  # of another owner, or of a system whose folders have no sync: not made by us
                    sync(folder)
        except OSError as error:
            raise CannotWrite(
                f"run {self.run_id} cannot be brought to the disk ({error.strerror}); nothing was written to the store"
            ) from error

    def verify(self) -> Manifest:
        """The manifest, once every relation is there with the hash that it names.

        Raises:
            PlanDamaged: a relation is missing, changed, cut short or was added.
        """
        manifest = self.manifest
        self.finish_removal(manifest)
        named = {file.path: file for file in manifest.files}
        present = {path.relative_to(self.path).as_posix() for path in _relation_paths(self.path)}
        for path in sorted(named.keys() - present):
            raise self._damaged(f"{path} is missing")
        for path in sorted(present - named.keys()):
            raise self._damaged(f"{path} is not part of the plan")
        for path, file in named.items():
            if manifests.sha256(self.path / path) != file.sha256:
                raise self._damaged(f"{path} was changed or cut short since it was planned")
        return manifest

    def trim_snapshot(self, touched: Iterable[str]) -> None:
        """Keep only the touched rows of the snapshot, and no text of a replay batch; done after an apply, so that old
        texts do not pile up.
        """
        manifest = self.manifest
        if manifest.snapshot_trimmed:
            return
        snapshot = self.read("snapshot")
        kept = snapshot.filter(pc.is_in(snapshot["memory_id"], value_set=pa.array(sorted(touched), pa.string())))
        self._leave(kept.cast(SNAPSHOT), replace(manifest, snapshot_trimmed=True))

    def remove_texts(self, now: datetime) -> None:
        """Remove the undo data and every row of the snapshot; from now on this run cannot be taken back or applied."""
        manifest = self.manifest
        removed_at = manifest.undo_removed_at or now
        self._leave(SNAPSHOT.empty_table(), replace(manifest, snapshot_trimmed=True, undo_removed_at=removed_at))

    def finish_removal(self, manifest: Manifest) -> None:
        """End a removal of texts that a crash cut off: the manifest says which files stay, and how.

        Several processes may do so at once. What the manifest does not name is left alone: whoever is removing texts
        right now may be about to name it.
        """
        hashes = {file.path: file.sha256 for file in manifest.files}
        changed = []
        for waits in self._waiting():
            path = waits.with_name(waits.name.removeprefix(".").removesuffix(".next"))
            with suppress(FileNotFoundError):  # somebody else was quicker
                if manifests.sha256(waits) == hashes.get(path.relative_to(self.path).as_posix()):
                    os.replace(waits, path)
                    changed.append(path)
        gone = list(self.path.glob("snapshot/part-*.parquet")) if manifest.snapshot_trimmed else []
        gone += self.undo_files if manifest.undo_removed_at is not None else []
        for path in gone:
            path.unlink(missing_ok=True)
        for folder in {path.parent for path in (*changed, *gone)}:
            sync(folder)

    def drop_unfinished(self) -> None:
        """Remove what an unfinished removal of texts prepared; for those who are alone with this run."""
        for waits in self._waiting():
            waits.unlink()

    def _waiting(self) -> list[Path]:
        return [*self.path.glob(".*.next"), *self.path.glob("snapshot/.*.next")]

    def _leave(self, snapshot: pa.Table, manifest: Manifest) -> None:
        """Leave this snapshot, and no text elsewhere; a crash leaves all of it for ``finish_removal``, or nothing."""
        self.drop_unfinished()
        changed = {"snapshot/touched.parquet": snapshot, **self._without_texts(manifest)}
        files = {file.path: file for file in manifest.files if not file.path.startswith("snapshot/")}
        for name, table in changed.items():
            waits = _next(self.path / name)
            write_parquet(waits, table, durable=True)
            files[name] = replace(manifests.describe(self.path, waits), path=name)
        left = replace(manifest, files=tuple(files.values()))
        manifests.write(self.path, left)
        self.finish_removal(left)

    def _without_texts(self, manifest: Manifest) -> dict[str, pa.Table]:
        """The relations that hold texts beside the snapshot, without them: of replayed entries the ids have to do."""
        there = {file.path: file.rows for file in manifest.files}
        changed: dict[str, pa.Table] = {}
        if there.get(self.file("evidence").name):
            ids = [{**row, "title": None, "content": ""} for row in self.read("evidence").to_pylist()]
            changed[self.file("evidence").name] = pa.Table.from_pylist(ids, schema=EVIDENCE)
        for name, column in _TEXTS_OF_A_MODEL.items():
            path = self.file(name)
            if path.name in there and column in (table := self.read(name)).column_names:
                if table[column].null_count == table.num_rows:
                    continue
                blank = pc.if_else(pc.is_valid(table[column]), "", table[column])
                at = table.schema.get_field_index(column)
                changed[path.name] = table.set_column(at, table.schema.field(at), blank)
        return changed

    def mark_forgotten(self, now: datetime) -> None:
        """Say that a memory is being taken out of this run, before that begins: it must not be applied any more."""
        manifest = self.manifest
        manifests.write(self.path, replace(manifest, forgotten_at=now))

    @property
    def undo_files(self) -> list[Path]:
        """The files of the undo data, in the order of their transactions."""
        return sorted((self.path / "undo").glob("*.parquet"))

    def require_undo_data(self) -> None:
        """Refuse to take back a run whose undo data was removed.

        Raises:
            BadUsage: it was removed, for it had been kept long enough.
        """
        if (removed_at := self.manifest.undo_removed_at) is not None:
            raise BadUsage(
                f"the undo data of run {self.run_id} was removed at {removed_at:%Y-%m-%d %H:%M} UTC; nothing was "
                "restored, and this run cannot be taken back. keep_undo_days says how long undo data is kept."
            )

    def write_undo(self, number: int, rows: pa.Table) -> None:
        """Make the undo rows of one transaction durable, before that transaction commits."""
        sealed = rows.replace_schema_metadata({_ROWS_DIGEST: _digest_of_rows(rows)})
        write_parquet(self.path / f"undo/{number:06d}.parquet", sealed, durable=True)

    def undo_rows(self, transactions: Collection[int]) -> pa.Table:
        """The undo rows of these transactions, in their order; a part of one that did not commit is left out.

        Raises:
            PlanDamaged: the part of one of them is missing, was changed, or cannot be read.
        """
        tables = [self._undo_part(self.path / f"undo/{number:06d}.parquet") for number in sorted(transactions)]
        return pa.concat_tables(tables) if tables else UNDO.empty_table()

    def _undo_part(self, path: Path) -> pa.Table:
        try:
            found = pq.ParquetFile(path).read()
            rows = found.cast(UNDO)
            # The manifest is sealed before there is undo data, so each part vouches for its own rows.
            written = (found.schema.metadata or {}).get(_ROWS_DIGEST)
            if written is not None and written != _digest_of_rows(rows):
                raise ValueError("its rows are not those that were written")
        except (OSError, ValueError, pa.ArrowException) as error:
            raise PlanDamaged(
                f"run {self.run_id}: {path.relative_to(self.path)} cannot be read ({manifests.first_line(error)}); "
                "nothing was taken back. Bring the run directory back as it was."
            ) from error
        return rows

    @property
    def wrote(self) -> bool:
        """Whether an apply of this run came as far as writing."""
        return bool(self.undo_files)

    def write_json(self, name: str, value: dict[str, Any]) -> None:
        """Write a receipt, durably: it says what happened to the store."""
        write_bytes(self.path / name, manifests.as_json(value))

    def read_json(self, name: str) -> dict[str, Any] | None:
        """A receipt, or None where there is none.

        Raises:
            PlanDamaged: it is there and cannot be read.
        """
        try:
            value = json.loads((self.path / name).read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise self._damaged(f"{name} cannot be read ({manifests.first_line(error)})") from error
        return value if isinstance(value, dict) else None

    def _damaged(self, what: str) -> PlanDamaged:
        return PlanDamaged(f"run {self.run_id}: {what}; nothing was written. Plan again.")


def new_run_id(now: datetime, token: bytes) -> str:
    """The name of a run: when it began, in UTC, and six random hex digits."""
    return f"{now.astimezone(UTC):%Y%m%dT%H%M%SZ}-{token[:3].hex()}"


def runs_folder(home: str | None) -> Path:
    """Where runs live: ``$MEMFOLD_HOME/runs``, else the user's state folder, wherever the call came from."""
    if home:
        return Path(home).expanduser().resolve() / "runs"
    import platformdirs

    return platformdirs.user_state_path("memfold") / "runs"


def known_runs(folder: Path) -> list[RunDirectory]:
    """The runs of this folder that can be read, oldest first."""
    found: list[tuple[datetime, str, RunDirectory]] = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        try:
            manifest = manifests.read(path)
        except PlanDamaged:
            continue  # a plan that was interrupted has no manifest; `show` on its folder says so
        found.append((manifest.created, manifest.run_id, RunDirectory(path.resolve(), manifest.run_id)))
    return [run for _, _, run in sorted(found, key=lambda each: each[:2])]


def unreadable_runs(folder: Path) -> list[Path]:
    """The run directories of this folder that were whole once and cannot be read any more, oldest first."""
    return [
        path
        for path in (sorted(folder.iterdir()) if folder.is_dir() else [])
        if _was_whole(path) and not _is_readable(path)
    ]


def _was_whole(path: Path) -> bool:
    return any((path / name).exists() for name in OF_A_WHOLE_PLAN)


def _is_readable(path: Path) -> bool:
    try:
        manifests.read(path)
    except PlanDamaged:
        return False
    return True


def find_run(reference: str, folder: Path, *, store: str | None = None, must_be_sure: bool = False) -> RunDirectory:
    """The run that a person means by a run id, a directory or ``latest``.

    With ``must_be_sure`` (nobody is there to look at it), plain ``latest`` is refused where several stores have runs.

    Raises:
        BadUsage: no such run, or ``latest`` could be a run of another store.
    """
    if reference == "latest":
        return _latest_run(folder, store=store, must_be_sure=must_be_sure)
    by_id = folder / reference
    if Path(reference).name == reference not in ("", "..") and by_id.is_dir():
        run = RunDirectory.open(by_id)
    elif Path(reference).is_dir():
        if not _was_whole(Path(reference)):
            raise BadUsage(
                f"{reference!r} is a folder, but no run directory: it has no manifest.json; nothing was written. "
                "Name a run id, a directory or latest; memfold history STORE lists the runs of a store."
            )
        run = RunDirectory.open(Path(reference))
    elif Path(reference).exists():
        raise BadUsage(f"{reference} is a file, not a run directory; name a run id, a directory or latest")
    else:
        raise BadUsage(f"no run {reference!r}: it is neither a directory nor a run id in {folder}")
    planned_store = run.manifest.store
    if store is not None and not _is_same(planned_store, store):
        raise BadUsage(f"run {run.run_id} was planned on {planned_store}, not on {store}; nothing was written")
    return run


def _latest_run(folder: Path, *, store: str | None, must_be_sure: bool) -> RunDirectory:
    runs = known_runs(folder)
    stores = sorted({run.manifest.store for run in runs})
    if store is not None:
        runs = [run for run in runs if _is_same(run.manifest.store, store)]
    unreadable = [path for path in unreadable_runs(folder) if not runs or path.name > runs[-1].path.name]
    if not runs:
        of_store = "" if store is None else f" of {store}"
        damaged = f" that can be read; {unreadable[-1]} is damaged" if unreadable else ""
        raise BadUsage(f"there is no run{of_store} in {folder}{damaged}; make one with: memfold plan STORE")
    if unreadable and must_be_sure:
        raise BadUsage(
            f"latest could mean {unreadable[-1].name}, which is damaged and cannot be read; nothing was written. "
            f"Name the run that you mean: the newest that can be read is {runs[-1].run_id}."
        )
    if store is None and must_be_sure and len(stores) > 1:
        raise BadUsage(
            f"latest could mean a run of {len(stores)} stores ({', '.join(stores)}); "
            "nothing was written. Name the run, or add --store URL."
        )
    return runs[-1]


def _is_same(url: str, other: str) -> bool:
    return urls.without_flags(url) == urls.without_flags(other)


def _relation_paths(folder: Path) -> list[Path]:
    """Every relation of a run, in one order; undo rows are not relations of the plan."""
    return sorted([*folder.glob("*.parquet"), *folder.glob("snapshot/*.parquet")])


def _next(path: Path) -> Path:
    """Where the next version of a relation waits until the manifest names it."""
    return path.with_name(f".{path.name}.next")


def _digest_of_rows(rows: pa.Table) -> bytes:
    hashed = hashlib.sha256()
    for row in zip(*(rows[name].to_pylist() for name in UNDO.names), strict=True):
        hashed.update(repr(row).encode("utf-8", "surrogatepass"))
    return hashed.hexdigest().encode()
