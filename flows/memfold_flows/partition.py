"""A large archive cut into shards: every memory of a scope in one of them, each row as the source has it.

Shards are of the source's own format, not of a common one: a line stays the same bytes, and fields that memfold has no
name for (vectors among them) come through a backfill untouched.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from memfold.errors import BadUsage
from memfold_flows.files import PRIVATE_FOLDER
from memfold_flows.stores import urls
from memfold_flows.stores.archive_fields import SCOPE_FIELDS, FieldReader
from memfold_flows.stores.jsonl import JsonlSource
from memfold_flows.stores.parquet import ParquetSource

_ROWS_AT_ONCE = 8192
_ROWS_PER_GROUP = 4096
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
#: A scope of more than so many times the usual shard is one of its own.
_LARGE = 2


@dataclass(frozen=True, slots=True)
class Archive:
    """One archive file, or a folder of files of one format, which are read in the order of their names."""

    scheme: str
    place: Path
    files: tuple[Path, ...]
    scope_option: str | None = None

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(file.stat().st_size for file in self.files)

    @property
    def scope_fields(self) -> tuple[str, ...]:
        """The fields that make the scope."""
        return SCOPE_FIELDS if self.scope_option is None else tuple(map(str.strip, self.scope_option.split(",")))

    def fingerprint(self) -> str:
        """Changes when a file is added, taken away or written again."""
        digest = hashlib.sha256()
        for file in self.files:
            found = file.stat()
            digest.update(f"{file}\n{found.st_size}\n{found.st_mtime_ns}\n".encode("utf-8", "surrogatepass"))
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Shard:
    """One shard: its name, its number of memories, and whether it is one scope that is larger than a shard."""

    name: str
    rows: int
    is_large: bool = False


def find_archive(url: str) -> Archive:
    """The archive that a URL names: ``jsonl:`` or ``parquet:``, a file or a folder.

    Raises:
        BadUsage: another kind of store, nothing there, or a folder without such files.
    """
    parts = urls.parse(url)
    if parts.scheme not in ("jsonl", "parquet"):
        raise BadUsage(f"a backfill reads jsonl: and parquet: archives, not {parts.scheme}:; nothing was read")
    if unknown := sorted(parts.options.keys() - {"scope"}):
        raise BadUsage(f"a backfill has no option {unknown[0]!r} for its archive; nothing was read")
    path = urls.local_path(parts.path)
    files = tuple(sorted(path.glob(f"*.{parts.scheme}"))) if path.is_dir() else (path,)
    if not files or not path.exists():
        raise BadUsage(f"there is no *.{parts.scheme} file at {path}; nothing was read or created. Check the path.")
    return Archive(parts.scheme, path, files, parts.options.get("scope"))


def cut(archive: Archive, folder: Path, *, shards: int) -> list[Shard]:
    """Cut an archive into at most so many shards by a hash of the scope.

    A scope that is much larger than a shard gets one of its own. The same archive is always cut the same way. What an
    earlier start made of a shard stays in its folder, as long as there still is such a shard.
    """
    folder.mkdir(parents=True, mode=PRIVATE_FOLDER, exist_ok=True)
    for left_over in (path for pattern in ("input.*", "whole.*") for path in folder.glob(f"*/{pattern}")):
        left_over.unlink()
    sizes: Counter[str] = Counter()
    with _Writers(archive, folder) as writers:
        for scope, row in _rows(archive):
            writers.write(_shard_of(scope, shards), row)
            sizes[scope] += 1
    usual = max(sum(sizes.values()) // shards, 1)
    large = {scope: _hash(scope) for scope, rows in sizes.items() if rows > _LARGE * usual}
    for number in sorted({_shard_of(scope, shards) for scope in large}):
        _take_out(archive, folder, number, large)
    for path in folder.iterdir():
        if not input_file(archive, folder, path.name).exists():
            shutil.rmtree(path)
    return _found(archive, folder)


def input_file(archive: Archive, folder: Path, name: str) -> Path:
    """Where the memories of a shard lie."""
    return folder / name / f"input.{archive.scheme}"


Row: TypeAlias = bytes | pa.Table


def _rows(archive: Archive) -> Iterator[tuple[str, Row]]:
    read = _lines if archive.scheme == "jsonl" else _table_rows
    for file in archive.files:
        yield from read(file, archive.scope_fields)


def _lines(file: Path, scope_fields: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    memories = JsonlSource(file, FieldReader(scope_fields)).memories()
    with file.open("rb", buffering=1 << 20) as source:
        lines = enumerate(source)
        for place, memory in memories:
            line = next(line for at, line in lines if at == place)  # blank lines are no memories
            yield memory.scope, line.removeprefix(_BYTE_ORDER_MARK).rstrip(b"\r\n") + b"\n"


def _table_rows(file: Path, scope_fields: tuple[str, ...]) -> Iterator[tuple[str, pa.Table]]:
    memories = ParquetSource(file, FieldReader(scope_fields)).memories()
    with pq.ParquetFile(file) as source:
        for batch in source.iter_batches(_ROWS_AT_ONCE):
            rows = pa.Table.from_batches([batch])
            scopes = [memory.scope for _, memory in islice(memories, rows.num_rows)]
            for at, scope in enumerate(scopes):
                yield scope, rows.slice(at, 1)


def _take_out(archive: Archive, folder: Path, number: str, large: dict[str, str]) -> None:
    """Give each large scope of a shard a shard of its own."""
    whole = input_file(archive, folder, number)
    before = whole.rename(whole.with_name(f"whole.{archive.scheme}"))
    source = Archive(archive.scheme, before, (before,), archive.scope_option)
    with _Writers(archive, folder) as writers:
        for scope, row in _rows(source):
            writers.write(f"scope-{large[scope]}" if scope in large else number, row)
    before.unlink()


def _found(archive: Archive, folder: Path) -> list[Shard]:
    names = sorted(path.name for path in folder.iterdir())
    return [
        Shard(name, _count(input_file(archive, folder, name)), is_large=name.startswith("scope-")) for name in names
    ]


def _count(file: Path) -> int:
    if file.suffix == ".parquet":
        return int(pq.read_metadata(file).num_rows)
    with file.open("rb", buffering=1 << 20) as lines:
        return sum(1 for _ in lines)


def _hash(scope: str) -> str:
    return hashlib.blake2b(scope.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _shard_of(scope: str, shards: int) -> str:
    return f"{int(_hash(scope), 16) % shards:04d}"


@dataclass
class _Writers:
    """The files of all shards, each opened when its first row comes."""

    archive: Archive
    folder: Path
    _open: dict[str, Any] = field(default_factory=dict)
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> _Writers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def write(self, name: str, row: Row) -> None:
        writer = self._open.get(name)
        if writer is None:
            path = input_file(self.archive, self.folder, name)
            path.parent.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
            file = self._stack.enter_context(
                os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")
            )
            writer = self._open[name] = file if self.archive.scheme == "jsonl" else self._table_writer(path, file)
        writer.write(row)

    def _table_writer(self, path: Path, file: BinaryIO) -> _TableWriter:
        writer = _TableWriter(file, path)
        self._stack.callback(writer.close)
        return writer


class _TableWriter:
    """Rows of one schema into a Parquet file, row group by row group."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file = file
        self._path = path
        self._rows: list[pa.Table] = []
        self._writer: pq.ParquetWriter | None = None

    def write(self, row: pa.Table) -> None:
        self._rows.append(row)
        if len(self._rows) == _ROWS_PER_GROUP:
            self._flush()

    def close(self) -> None:
        if self._rows:
            self._flush()
        if self._writer is not None:
            self._writer.close()

    def _flush(self) -> None:
        rows = pa.concat_tables(self._rows).unify_dictionaries().combine_chunks()
        self._rows = []
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._file, rows.schema, compression="zstd", compression_level=3)
        elif self._writer.schema != rows.schema:
            raise BadUsage(
                f"the files of this archive have different columns; {self._path.parent.name} was not written. "
                "Give them the same columns, or backfill them one at a time."
            )
        self._writer.write_table(rows, row_group_size=rows.num_rows)
