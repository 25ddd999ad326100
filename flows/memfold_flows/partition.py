"""A large archive cut into Parquet shards: every memory of a scope in one of them, each row as the source has it.

A shard of a JSONL archive holds its lines to the byte, beside the scope of each; a shard of a Parquet archive has the
columns of its source. So fields that memfold has no name for (vectors among them) come through a backfill untouched.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from memfold.errors import BadRecord, BadUsage
from memfold.memory import Memory
from memfold_flows.files import PRIVATE_FOLDER, replacing
from memfold_flows.stores import open_store, urls
from memfold_flows.stores.archive_fields import SCOPE_FIELDS, FieldReader
from memfold_flows.stores.jsonl import JsonlSource
from memfold_flows.stores.parquet import ParquetSource
from memfold_flows.stores.tombstones import Tombstones

_ROWS_AT_ONCE = 8192
#: Rows of one shard that are held in memory until they are written, so that many shards of long rows stay bounded.
_ROWS_PER_GROUP = 1024
_LINES = pa.schema([pa.field("scope", pa.string(), nullable=False), pa.field("line", pa.binary(), nullable=False)])
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

    def require_nothing_forgotten(self) -> None:
        """Refuse an archive that holds a memory again which it was told to forget, as after a backup was put back.

        Raises:
            BadUsage: there is such a memory; the message names it.
        """
        options = {} if self.scope_option is None else {"scope": self.scope_option}
        for file in self.files:
            with closing(open_store(urls.format_url(self.scheme, file), **options)) as store, store.ledger() as ledger:
                forgotten = ledger.tombstones() if ledger else Tombstones()
                for batch in store.snapshot() if forgotten.stones else ():
                    for memory_id, content in zip(
                        *(batch[name].to_pylist() for name in ("memory_id", "content")), strict=True
                    ):
                        if forgotten.forgot_text(memory_id, content):
                            raise BadUsage(
                                f"{file} holds the memory {memory_id!r}, which it was told to forget; nothing was "
                                f"written. Erase it again: memfold forget {self.scheme}:{file} {memory_id}"
                            )

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
    with _Writers(folder) as writers:
        for scopes, rows in chain.from_iterable(_batches(archive, file) for file in archive.files):
            writers.write([_shard_of(scope, shards) for scope in scopes], rows)
            sizes.update(scopes)
    usual = max(sum(sizes.values()) // shards, 1)
    large = {scope: f"scope-{_hash(scope)}" for scope, rows in sizes.items() if rows > _LARGE * usual}
    for name in sorted({_shard_of(scope, shards) for scope in large}):
        _take_out(archive, folder, name, large)
    for path in folder.iterdir():
        if not input_file(folder, path.name).exists():
            shutil.rmtree(path)
    return _found(folder)


def input_file(folder: Path, name: str) -> Path:
    """Where the memories of a shard lie."""
    return folder / name / "input.parquet"


def unpack(file: Path, lines: Path) -> None:
    """Write the lines of a shard of a JSONL archive, as the archive had them."""
    with replacing(lines) as target, pq.ParquetFile(file) as source:
        for batch in source.iter_batches(_ROWS_AT_ONCE, columns=["line"]):
            target.writelines(batch.column("line").to_pylist())


#: The scope of each row, and the rows as a shard has them.
Batch = tuple[list[str], pa.Table]


def _batches(archive: Archive, file: Path) -> Iterator[Batch]:
    read = _lines if archive.scheme == "jsonl" else _table_rows
    return read(file, archive.scope_fields)


def _lines(file: Path, scope_fields: tuple[str, ...]) -> Iterator[Batch]:
    memories = _readable(JsonlSource(file, FieldReader(scope_fields)).memories())
    with file.open("rb", buffering=1 << 20) as source:
        numbered = enumerate(source)
        while some := list(islice(memories, _ROWS_PER_GROUP)):
            # Blank lines are no memories.
            lines = [next(line for at, line in numbered if at == place) for place, _ in some]
            scopes = [memory.scope for _, memory in some]
            whole = [_closed(line.removeprefix(_BYTE_ORDER_MARK)) for line in lines]
            yield scopes, pa.table({"scope": scopes, "line": whole}, schema=_LINES)


def _readable(memories: Iterator[tuple[int, Memory]]) -> Iterator[tuple[int, Memory]]:
    try:
        yield from memories
    except BadRecord as error:
        # Other commands can leave a line out. A backfill would leave it out of the new archive.
        said = str(error).replace(", or leave such lines out with --skip-bad", " and start again")
        raise BadRecord(said) from None


def _closed(line: bytes) -> bytes:
    return line if line.endswith(b"\n") else line + b"\n"


def _table_rows(file: Path, scope_fields: tuple[str, ...]) -> Iterator[Batch]:
    memories = ParquetSource(file, FieldReader(scope_fields)).memories()
    with pq.ParquetFile(file) as source:
        for batch in source.iter_batches(_ROWS_PER_GROUP):
            yield [memory.scope for _, memory in islice(memories, batch.num_rows)], pa.Table.from_batches([batch])


def _take_out(archive: Archive, folder: Path, name: str, large: dict[str, str]) -> None:
    """Give each large scope of a shard a shard of its own."""
    whole = input_file(folder, name)
    before = whole.rename(whole.with_name("whole.parquet"))
    with _Writers(folder) as writers:
        for scopes, rows in _lines_of_shard(before) if archive.scheme == "jsonl" else _batches(archive, before):
            writers.write([large.get(scope, name) for scope in scopes], rows)
    before.unlink()


def _lines_of_shard(file: Path) -> Iterator[Batch]:
    with pq.ParquetFile(file) as source:
        for batch in source.iter_batches(_ROWS_AT_ONCE):
            yield batch.column("scope").to_pylist(), pa.Table.from_batches([batch])


def _found(folder: Path) -> list[Shard]:
    rows = {path.parent.name: pq.read_metadata(path).num_rows for path in sorted(folder.glob("*/input.parquet"))}
    return [Shard(name, count, is_large=name.startswith("scope-")) for name, count in rows.items()]


def _hash(scope: str) -> str:
    return hashlib.blake2b(scope.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _shard_of(scope: str, shards: int) -> str:
    return f"{int(_hash(scope), 16) % shards:04d}"


@dataclass
class _Writers:
    """The files of all shards, each opened when its first row comes."""

    folder: Path
    _open: dict[str, _ShardWriter] = field(default_factory=dict)
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> _Writers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def write(self, names: list[str], rows: pa.Table) -> None:
        """Write each row to the shard of this name, in their order."""
        places: defaultdict[str, list[int]] = defaultdict(list)
        for place, name in enumerate(names):
            places[name].append(place)
        for name, some in places.items():
            (self._open.get(name) or self._opened(name)).write(rows.take(some))

    def _opened(self, name: str) -> _ShardWriter:
        path = input_file(self.folder, name)
        path.parent.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
        file = self._stack.enter_context(os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb"))
        writer = self._open[name] = _ShardWriter(file, path)
        self._stack.callback(writer.close)
        return writer


class _ShardWriter:
    """The rows of one shard into a Parquet file; how they come in does not show in its bytes."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file = file
        self._path = path
        self._waiting: list[pa.Table] = []
        self._rows = 0
        self._writer: pq.ParquetWriter | None = None

    def write(self, rows: pa.Table) -> None:
        self._waiting.append(rows)
        self._rows += rows.num_rows
        while self._rows >= _ROWS_PER_GROUP:
            self._flush()

    def close(self) -> None:
        if self._rows:
            self._flush()
        if self._writer is not None:
            self._writer.close()

    def _flush(self) -> None:
        if any(rows.schema != self._waiting[0].schema for rows in self._waiting):
            self._refuse()
        waiting = pa.concat_tables(self._waiting)
        group = waiting.slice(0, _ROWS_PER_GROUP).unify_dictionaries().combine_chunks()
        self._waiting = [waiting.slice(_ROWS_PER_GROUP)]
        self._rows -= group.num_rows
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._file, group.schema, compression="zstd", compression_level=3)
        elif self._writer.schema != group.schema:
            self._refuse()
        self._writer.write_table(group, row_group_size=group.num_rows)

    def _refuse(self) -> None:
        raise BadUsage(
            f"the files of this archive have different columns; {self._path.parent.name} was not written. "
            "Give them the same columns, or backfill them one at a time."
        )
