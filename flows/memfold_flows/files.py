"""Files that hold people's memories: private to their owner, whole or not there at all, durable where it matters."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from memfold.errors import CannotWrite, StoreError

ROWS_PER_GROUP = 65_536

PRIVATE_FOLDER = 0o700
PRIVATE_FILE = 0o600


def make_own_folder(folder: Path) -> None:
    """Make memfold's own folder beside an archive, for its owner alone.

    Raises:
        StoreError: a link stands in its place, which would lead what is kept beside the archive somewhere else.
    """
    folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
    if folder.is_symlink():
        raise StoreError(f"{folder} is a link, not memfold's own folder; nothing was written. Remove the link.")


def write_parquet(path: Path, table: pa.Table, *, durable: bool = False) -> None:
    """Write a table, whole or not at all; the same rows in the same order give the same bytes."""
    with (
        _whole(path, durable=durable) as file,
        pq.ParquetWriter(file, table.schema, compression="zstd", compression_level=3) as writer,
    ):
        # The chunks of the table must not show, so each row group is written as one.
        for start in range(0, max(table.num_rows, 1), ROWS_PER_GROUP):
            writer.write_table(table.slice(start, ROWS_PER_GROUP).combine_chunks(), row_group_size=ROWS_PER_GROUP)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write to that takes the place of ``path`` once it is whole."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with _open_private(temporary) as file:
            yield file
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file, whole or not at all, and durably."""
    with _whole(path, durable=True) as file:
        file.write(content)


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _whole(path: Path, *, durable: bool) -> Iterator[BinaryIO]:
    """A file beside ``path`` that takes its place at the end of the block.

    Raises:
        CannotWrite: the disk is full, or the folder may not be written.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        is_new_folder = _make_folder(path.parent)
        with _open_private(temporary) as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
        temporary.replace(path)
        if durable:
            sync(path.parent)
            if is_new_folder:
                sync(path.parent.parent)
    except OSError as error:
        raise CannotWrite(
            f"{path} cannot be written ({error.strerror or error}); what was not committed before is not "
            "in the store. Make room, or open the folder, and give the same command again."
        ) from error


def _open_private(path: Path) -> BinaryIO:
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE), "wb")


def _make_folder(path: Path) -> bool:
    if path.is_dir():
        return False
    path.mkdir(mode=PRIVATE_FOLDER)
    return True
