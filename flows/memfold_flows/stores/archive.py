"""Archives: stores that are one file, read as a stream and rewritten whole.

What JSONL and Parquet share: this file says which file may be read and written; ``archive_rows.py`` holds the rows
and the transaction, ``archive_fields.py`` what their fields are called, ``archive_landing.py`` how a rewrite lands.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from memfold.errors import BadUsage, StoreError
from memfold.memory import Memory
from memfold_flows.stores import bookkeeping
from memfold_flows.stores.archive_fields import FieldReader
from memfold_flows.stores.archive_landing import Fingerprint, Landing, file_errors, fingerprint, was_written
from memfold_flows.stores.archive_rows import ArchiveTransaction, Edits, Reading, Source
from memfold_flows.stores.base import Ledger, StoreTraits
from memfold_flows.stores.batches import memories_batch
from memfold_flows.stores.urls import format_url, local_path

logger = logging.getLogger(__name__)

ROWS_PER_BATCH = 8192

OPTIONS = {
    "scope": "the fields that make the scope, with commas between them, instead of the usual ones",
    "out": "write a new archive to this file",
    "in_place": "true: rewrite the archive itself",
}


class ArchiveStore:
    """A store that is one file. What it writes goes to ``out``, or to the file itself if ``in_place``.

    ``open_source`` opens a file of the format, or raises a StoreError that says what the file is instead.
    """

    def __init__(
        self,
        scheme: str,
        path: str,
        options: Mapping[str, Any],
        *,
        open_source: Callable[[Path, FieldReader], Source],
        traits: StoreTraits,
        kept_options: Mapping[str, str] | None = None,
    ) -> None:
        self.traits = traits
        self._scheme = scheme
        self._path = _followed(local_path(path))
        self._scope_fields = _scope_fields(options.get("scope"))
        self._kept_options = dict(kept_options or {}) | ({"scope": options["scope"]} if self._scope_fields else {})
        self._in_place = as_flag("in_place", options.get("in_place", False))
        self._out = _out_file(options.get("out"), self._path, in_place=self._in_place)
        self._open_source = open_source
        self._reading()

    @property
    def path(self) -> Path:
        """The archive that is read, with links followed."""
        return self._path

    @property
    def url(self) -> str:
        """The URL of the archive that is read."""
        return format_url(self._scheme, self._path, self._kept_options)

    @property
    def written_url(self) -> str:
        """The URL of the archive that transactions write, where a run can be undone later."""
        return format_url(self._scheme, self._out or self._path, self._kept_options)

    @property
    def keeps_notes(self) -> bool:
        """Whether the state of its scopes may stand beside this archive: it is the one that is written."""
        return self._in_place

    @property
    def pass_lock(self) -> Path | None:
        """The file that a whole pass locks, so that another one waits; None where nothing is to be written."""
        written = self._out or (self._path if self._in_place else None)
        return None if written is None else Landing(written).pass_lock

    def snapshot(self, scopes: Collection[str] | None = None) -> Iterator[pa.RecordBatch]:
        wanted = None if scopes is None else set(scopes)
        memories: list[Memory] = []
        with file_errors(self._path):
            for memory in self._reading().memories():
                if wanted is None or memory.scope in wanted:
                    memories.append(memory)
                if len(memories) == ROWS_PER_BATCH:
                    yield memories_batch(memories)
                    memories = []
        if memories:
            yield memories_batch(memories)

    def ledger(self) -> AbstractContextManager[Ledger | None]:
        return bookkeeping.reading(self._readable_ledger())

    @contextmanager
    def transaction(self) -> Iterator[ArchiveTransaction]:
        """A write transaction; the archive is read again at its first use and rewritten at the end of the block.

        Raises:
            BadUsage: nobody said where to write, or a file stands there.
        """
        if not self._in_place and self._out is None:
            raise BadUsage(
                f"{self._path.name} is an archive, and nobody said where to write; nothing was written. "
                "Give --out FILE for a new archive, or --in-place to rewrite this one."
            )
        landing = Landing(self._out or self._path)
        with landing.locked():
            with file_errors(landing.archive):
                landing.begin(self._readable_ledger())
            with bookkeeping.writing(landing.next_ledger) as ledger:
                transaction = ArchiveTransaction(ledger, self._read_to_write)
                yield transaction
                edits = transaction.edits()
                if edits:
                    self._write_new(landing, transaction.reading.source, edits)
            with file_errors(landing.archive):
                if edits:
                    self._land(landing, transaction.as_read)
                else:
                    landing.land_ledger()

    def close(self) -> None:
        """Nothing is kept open between calls."""

    def _reading(self) -> Reading:
        return Reading(self._path, self._open_source, self._scope_fields)

    def _readable_ledger(self) -> Path:
        own = Landing(self._path).readable_ledger()
        if self._out is None:
            return own
        # A new archive goes on where the old one stands: with its losses and with what a person took back.
        beside_out = Landing(self._out).readable_ledger()
        return beside_out if beside_out.exists() else own

    def _read_to_write(self) -> tuple[Reading, Fingerprint]:
        if self._out is not None:
            _require_free(self._out)
        with file_errors(self._path):
            as_read = fingerprint(self._path)
            reading = self._reading()
            for _ in reading.memories():
                pass
        return reading, as_read

    def _write_new(self, landing: Landing, source: Source, edits: Edits) -> None:
        with file_errors(landing.archive):
            like = self._path.stat() if self._in_place else None
            with landing.writing_new(like) as file:
                source.rewrite(file, edits)

    def _land(self, landing: Landing, as_read: Fingerprint) -> None:
        landing.land(read_from=self._path, as_read=as_read, in_place=self._in_place)
        logger.info("%s was written", landing.archive)
        # What was written is the store from now on: a further transaction goes on in it.
        self._path, self._out, self._in_place = landing.archive, None, True


def require_archive(path: Path, *, expected: str) -> bytes:
    """Refuse a path that is no file with something in it; returns its first bytes.

    Raises:
        StoreError: nothing there, a folder, an empty file, or a file of a known other kind.
    """
    if not path.exists():
        raise StoreError(f"there is no file {path}; nothing was read or created. Check the path.")
    if not path.is_file():
        what = "a folder" if path.is_dir() else "not a regular file"
        raise StoreError(f"{path} is {what}, not {expected}; nothing was read or created. Check the path.")
    with file_errors(path), path.open("rb") as file:
        start = file.read(4096)
    if not start and not was_written(path):
        raise StoreError(f"{path} is an empty file, not {expected}; nothing was read or created. Check the path.")
    for magic, kind, advice in _OTHER_KINDS:
        if start.startswith(magic) and kind not in expected:
            raise StoreError(f"{path} is {kind}, not {expected}; nothing was read or created. {advice}")
    return start


def as_flag(name: str, value: Any) -> bool:
    """An option that is on or off, given as a value or as text in a URL.

    Raises:
        BadUsage: it is neither.
    """
    if isinstance(value, bool):
        return value
    if str(value).lower() in ("true", "false"):
        return str(value).lower() == "true"
    raise BadUsage(f"option {name} must be true or false, got {value!r}")


_OTHER_KINDS = (
    (b"SQLite format 3\0", "a SQLite file", "Open it as sqlite:PATH."),
    (b"PAR1", "a Parquet file", "Open it as parquet:PATH."),
    (b"\x1f\x8b", "compressed with gzip", "Unpack it first: gunzip -k FILE."),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd", "Unpack it first: zstd -d FILE."),
    (b"PK\x03\x04", "a zip file", "Unpack it first."),
)


def _followed(path: Path) -> Path:
    try:
        followed = path.resolve()
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror or error}; nothing was read or created") from error
    if path.is_symlink():
        logger.info("%s is a link to %s, which is the archive", path, followed)
    return followed


def _out_file(out: Any, archive: Path, *, in_place: bool) -> Path | None:
    if not out:
        return None
    if in_place:
        raise BadUsage("--out and --in-place exclude each other; nothing was written. Give one of them.")
    path = local_path(str(out))
    if path.resolve() == archive:
        raise BadUsage(f"{path} is the archive itself; nothing was written. To rewrite it, give --in-place.")
    if not path.parent.is_dir():
        raise BadUsage(f"there is no folder {path.parent} for the new archive; nothing was written. Make it first.")
    path = path.parent.resolve() / path.name
    # What memfold wrote may be named again: then the ledger beside it tells that the run is applied.
    if not was_written(path):
        _require_free(path)
    return path


def _require_free(out: Path) -> None:
    if out.exists() or out.is_symlink():
        raise BadUsage(f"{out} exists; it was not overwritten. Choose another file for --out.")


def _scope_fields(option: Any) -> tuple[str, ...] | None:
    if option is None:
        return None
    names = tuple(name.strip() for name in str(option).split(","))
    if not all(names) or len(set(names)) != len(names):
        raise BadUsage(f"?scope= must name fields with commas between them, each once, got {option!r}")
    return names
