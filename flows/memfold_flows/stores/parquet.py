"""Parquet archives: one row group at a time; columns, types, order of rows and compression stay as they are.

A column is read by its name as a field of a JSONL record is; a value goes back in the column's own type. What has no
column has no place in the archive.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate, pairwise
from math import isfinite, isnan
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from memfold.errors import BadRecord, StoreError
from memfold.memory import Memory
from memfold_flows.stores import archive
from memfold_flows.stores.archive import ArchiveStore, require_archive
from memfold_flows.stores.archive_fields import NAMES, TIMES, FieldReader, to_json
from memfold_flows.stores.archive_rows import Edits
from memfold_flows.stores.archive_times import read_time, spell_time
from memfold_flows.stores.base import StoreTraits

OPTIONS = archive.OPTIONS

_ROWS_AT_ONCE = 8192


def open_store(path: str, options: Mapping[str, Any]) -> ArchiveStore:
    """Open a Parquet archive."""
    store = ArchiveStore(
        "parquet",
        path,
        options,
        open_source=ParquetSource,
        traits=StoreTraits(places=frozenset(), rows_per_transaction=None),
    )
    places = _places(pq.read_schema(store.path))
    store.traits = StoreTraits(places=places, promotes="tier" in places, rows_per_transaction=None)
    return store


class ParquetSource:
    """One Parquet file. A place is the number of a row, from 0; a body is the row as a packed Arrow table."""

    def __init__(self, path: Path, fields: FieldReader) -> None:
        require_archive(path, expected="a Parquet file")
        self._path = path
        self._fields = fields
        try:
            with pq.ParquetFile(path) as file:
                self._schema = file.schema_arrow
                self._starts = _starts(file.metadata)
        except pa.ArrowException as error:
            raise StoreError(
                f"{path} is not a whole Parquet file ({error}); nothing was read. Copy it again, or check the path."
            ) from None
        names = self._schema.names
        if len(set(names)) != len(names):
            raise StoreError(f"{path} has two columns of one name; nothing was read. Rename one of them.")

    def memories(self) -> Iterator[tuple[int, Memory]]:
        place = 0
        with _whole(self._path) as file:
            for batch in file.iter_batches(_ROWS_AT_ONCE):
                for record in _records(pa.Table.from_batches([batch])):
                    yield place, self._memory(place, record)
                    place += 1

    def fetch(self, places: Sequence[int]) -> Iterator[tuple[int, bytes, Memory]]:
        waiting = deque(places)
        with _whole(self._path) as file:
            for group, (start, end) in enumerate(pairwise(self._starts)):
                here = []
                while waiting and waiting[0] < end:
                    here.append(waiting.popleft())
                if here:
                    rows = _take(file.read_row_group(group), [place - start for place in here])
                    records = _records(rows)
                    for at, (place, record) in enumerate(zip(here, records, strict=True)):
                        yield place, _pack(rows.slice(at, 1)), self._fields.memory(record)

    def memory(self, body: bytes) -> Memory:
        return self._fields.memory(_records(_unpack(body))[0])

    def changed(self, body: bytes, before: Memory, after: Memory) -> bytes:
        row = _unpack(body)
        for name, value in self._fields.changes(_records(row)[0], before, after).items():
            at = row.schema.get_field_index(name)
            if at >= 0:
                field = row.schema.field(at)
                row = row.set_column(at, field, self._column(value, field))
        return _pack(row)

    def _column(self, value: Any, field: pa.Field) -> pa.Array:
        """A folded value as the column of one row; a sum can be more than a narrow column holds."""
        try:
            return pa.array([_in_type(value, field.name, field.type)], field.type)
        except pa.ArrowException as error:
            raise StoreError(
                f"{self._path}: column {field.name!r} of type {field.type} has no room for {value!r}; "
                "nothing was written. Give the column a wider type first."
            ) from error

    def rewrite(self, file: BinaryIO, edits: Edits) -> None:
        waiting = deque(edits.inserted)
        written = 0
        with _whole(self._path) as source, pq.ParquetWriter(file, self._schema, **_as_written(source)) as writer:
            for group, (start, end) in enumerate(pairwise(self._starts)):
                rows = self._edited(source.read_row_group(group), range(start, end), edits, waiting, written)
                if rows.num_rows:
                    writer.write_table(rows, row_group_size=rows.num_rows)
                written += rows.num_rows
            if waiting:
                writer.write_table(pa.concat_tables([self._in_schema(body) for _, body in waiting]))

    def name_place(self, place: int) -> str:
        return f"row {place + 1}"

    def without_memories(self) -> str:
        return "holds no memory; nothing was planned or written. Check the path."

    def _memory(self, place: int, record: Mapping[str, Any]) -> Memory:
        try:
            return self._fields.memory(record)
        except (ValueError, RecursionError) as error:
            raise BadRecord(
                f"{self._path.name} row {place + 1}: {error}; nothing was planned or written. Correct the row."
            ) from None

    def _edited(
        self, rows: pa.Table, places: range, edits: Edits, waiting: deque[tuple[int, bytes]], written: int
    ) -> pa.Table:
        """The rows of one group with its edits, and with the inserted rows whose place it reaches."""
        others: list[pa.Table] = []
        order: list[int] = []

        def add(body: bytes) -> None:
            order.append(len(places) + len(others))
            others.append(self._in_schema(body))

        for place in places:
            if place in edits.removed:
                continue
            while waiting and waiting[0][0] <= written + len(order):
                add(waiting.popleft()[1])
            if place in edits.changed:
                add(edits.changed[place])
            else:
                order.append(place - places.start)
        if not others and len(order) == len(places):
            return rows
        return _take(pa.concat_tables([rows, *others]), order)

    def _in_schema(self, body: bytes) -> pa.Table:
        row = _unpack(body)
        if row.schema.names != self._schema.names:
            raise StoreError(
                f"{self._path} has other columns than when the row was removed; nothing was written. "
                "Undo in the archive that the run wrote."
            )
        return pa.table(
            [_cast(row.column(at), field.type) for at, field in enumerate(self._schema)], schema=self._schema
        )


@contextmanager
def _whole(path: Path) -> Iterator[pq.ParquetFile]:
    try:
        with pq.ParquetFile(path) as file:
            yield file
    except pa.ArrowNotImplementedError as error:
        raise StoreError(
            f"{path} has a column of a type that cannot be rewritten ({error}); nothing was written. "
            "Convert that column first."
        ) from error
    except pa.ArrowException as error:
        raise StoreError(
            f"{path} is not a whole Parquet file ({error}); nothing was written. Copy it again, or check the path."
        ) from error


def _starts(metadata: pq.FileMetaData) -> list[int]:
    """The place of the first row of each row group, and the number of rows."""
    return list(accumulate((metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)), initial=0))


def _as_written(source: pq.ParquetFile) -> dict[str, Any]:
    """The options by which a file was written, as its footer tells them."""
    codecs: dict[str, str] = {}
    if source.metadata.num_row_groups:
        group = source.metadata.row_group(0)
        for column in map(group.column, range(group.num_columns)):
            codecs[column.path_in_schema] = column.compression.lower().replace("uncompressed", "none")
    return {"compression": codecs} if codecs else {}


def _places(schema: pa.Schema) -> frozenset[str]:
    held = set(schema.names)
    fields = {field for field, names in NAMES.items() if held & set(names)} - {"memory_id"}
    # A struct or map has no room for every key.
    if "metadata" in held and _is_text(schema.field("metadata").type):
        fields.add("metadata")
    return frozenset(fields)


def _records(rows: pa.Table) -> list[dict[str, Any]]:
    """The rows as plain values; what a table of floats or a struct only has for want of a value is left out."""
    names = rows.column_names
    return [dict(zip(names, values, strict=True)) for values in zip(*map(_values, rows.columns), strict=True)]


def _values(column: pa.ChunkedArray) -> list[Any]:
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        column = column.cast(pa.timestamp("us", kind.tz), safe=False)
    values = column.to_pylist()
    return values if _is_simple(kind) else [_known(value) for value in values]


def _known(value: Any) -> Any:
    if isinstance(value, float) and not isfinite(value):
        return None if isnan(value) else str(value)
    if isinstance(value, dict):
        return {key: known for key, held in value.items() if (known := _known(held)) is not None}
    return [_known(held) for held in value] if isinstance(value, list) else value


def _is_simple(kind: pa.DataType) -> bool:
    return not (pa.types.is_floating(kind) or pa.types.is_nested(kind)) or pa.types.is_map(kind)


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return any(is_kind(kind) for is_kind in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))


def _in_type(value: Any, name: str, kind: pa.DataType) -> Any:
    """A value as a column of this type takes it; a time goes from the form of one column to that of another."""
    if value is None or name not in TIMES:
        return to_json(value) if isinstance(value, dict) else value
    moment = read_time(value, name)
    if moment is None or pa.types.is_timestamp(kind):
        return moment if kind.tz or moment is None else moment.replace(tzinfo=None)
    if pa.types.is_date(kind):
        return moment.date()
    if _is_text(kind):
        return value if isinstance(value, str) else spell_time(moment, None)
    return value if isinstance(value, int | float) else moment.timestamp()


def _take(rows: pa.Table, order: Sequence[int]) -> pa.Table:
    return rows.unify_dictionaries().combine_chunks().take(pa.array(order, pa.int64()))


def _pack(row: pa.Table) -> bytes:
    columns = [
        _cast(column, column.type.value_type) if pa.types.is_dictionary(column.type) else column for column in row
    ]
    plain = pa.table(columns, names=row.column_names).combine_chunks()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, plain.schema) as stream:
        stream.write_table(plain)
    return zlib.compress(sink.getvalue(), level=1)


def _unpack(body: bytes) -> pa.Table:
    return pa.ipc.open_stream(zlib.decompress(body)).read_all()


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    return column if column.type == kind else column.cast(kind)
