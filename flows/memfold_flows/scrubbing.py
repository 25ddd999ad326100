"""A run directory without the memories that were forgotten: every relation, the snapshot, the undo data."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from memfold.errors import CannotWrite, PlanDamaged
from memfold_flows.files import write_parquet
from memfold_flows.runs import RunDirectory

#: Whether a text says what a forgotten memory said.
SaysIt = Callable[[str], bool]

#: A row that has one of these ids here tells of the memory itself.
_OWN = ("memory_id", "left_id", "right_id")
#: A row that has one of them here tells of another one, which stays, and what of it may be in words.
_OTHER = ("into_id", "survivor_id", "superseded_by")
_LINES_SET_ASIDE = "set_aside.jsonl"
#: What reading a damaged file may raise.
_UNREADABLE = (OSError, KeyError, ValueError, pa.ArrowException)


@dataclass(frozen=True, slots=True)
class Left:
    """Something that a forgotten memory may still stand in, and why it could not be reached."""

    place: str
    why: str


def texts_of(run: RunDirectory, ids: Collection[str]) -> dict[str, set[str]]:
    """The texts that these memories had in the snapshot of a run, by id."""
    found: dict[str, set[str]] = {}
    for path in sorted((run.path / "snapshot").glob("*.parquet")):
        rows = _where_id(pq.read_table(path, columns=["memory_id", "content"]), ids)
        for row in rows.to_pylist():
            found.setdefault(row["memory_id"], set()).add(row["content"])
    return found


def scrub(run: RunDirectory, ids: Collection[str], says_it: SaysIt, now: datetime) -> list[Left]:
    """Take these memories out of a run, and sign its manifest again; returns what could not be reached.

    From the first write on the run cannot be applied any more; what else it removed can still be taken back.
    """
    try:
        run.mark_forgotten(now)
        run.finish_removal(run.manifest)
        run.drop_unfinished()
        damaged = [each for path in _files(run) if (each := _scrub_file(path, ids, says_it)) is not None]
        if damaged:
            named = ", ".join(f"{each.relative_to(run.path)} cannot be read" for each in damaged)
            return [Left(str(run.path), f"is damaged: {named}; {how_to_clear(run.path)}")]
        run.seal(run.manifest)
    except PlanDamaged as error:
        return [Left(str(run.path), f"is damaged: {what_of(error)}; {how_to_clear(run.path)}")]
    except (OSError, CannotWrite) as error:
        return [Left(str(run.path), str(error))]
    left = []
    aside = run.path / _LINES_SET_ASIDE
    if aside.exists():
        left.append(Left(str(aside), "lines that could not be read lie there as they are"))
    return left


def may_tell_of(run_path: Path, ids: Collection[str], says_it: SaysIt) -> bool:
    """Whether a plan that is not sealed names one of these memories, says what one said, or cannot be read."""
    for path in sorted(run_path.rglob("*.parquet")):
        try:
            table = pq.ParquetFile(path).read()
        except _UNREADABLE:
            return True
        for column in table.columns:
            texts = column.to_pylist() if pa.types.is_string(column.type) else ()
            if any(text is not None and (text in ids or says_it(text)) for text in texts):
                return True
    return False


def how_to_clear(path: Path) -> str:
    """In words: how a run directory is erased that cannot be gone through."""
    return f"delete that directory: rm -r {shlex.quote(str(path))}"


def what_of(error: PlanDamaged) -> str:
    """What is wrong, without what it meant for the reading."""
    return str(error).partition("; nothing was")[0]


def _files(run: RunDirectory) -> list[Path]:
    return [*sorted(run.path.glob("*.parquet")), *sorted(run.path.glob("snapshot/*.parquet")), *run.undo_files]


def _scrub_file(path: Path, ids: Collection[str], says_it: SaysIt) -> Path | None:
    """Take the memories out of one file; returns it where it cannot be read."""
    is_undo = path.parent.name == "undo"
    try:
        table = pq.ParquetFile(path).read()
        scrubbed = _undo_without(table, ids) if is_undo else _without(path.stem, table, ids, says_it)
    except _UNREADABLE:
        return path
    if scrubbed is table:
        return None
    if is_undo:
        RunDirectory(path.parent.parent, "").write_undo(int(path.stem), scrubbed)
    else:
        write_parquet(path, scrubbed, durable=True)
    return None


def _without(name: str, table: pa.Table, ids: Collection[str], says_it: SaysIt) -> pa.Table:
    """The rows that tell of none of these memories; words about them in the rows of others are blanked."""
    own = [_is_one_of(table[column], ids) for column in _OWN if column in table.column_names]
    if name in ("rejected", "edits") and "into_id" in table.column_names:
        own.append(_is_one_of(table["into_id"], ids))  # the digest of what it goes into tells of its text
    if name == "evidence":
        own.append(pa.array([says_it(content) for content in table["content"].to_pylist()], pa.bool_()))
    if "ids" in table.column_names:
        own.append(pa.array([not set(ids).isdisjoint(row or ()) for row in table["ids"].to_pylist()], pa.bool_()))
    is_own = _any(own, table)
    kept = table.filter(pc.invert(is_own)) if pc.any(is_own).as_py() else table
    about = [_is_one_of(kept[column], ids) for column in _OTHER if column in kept.column_names]
    if "detail" in kept.column_names:
        about += [pc.match_substring(kept["detail"], memory_id).fill_null(False) for memory_id in sorted(ids)]
    is_about = _any(about, kept)
    if not pc.any(is_about).as_py():
        return kept
    # A text that a model put together for several memories may hold what any of them said.
    for column, blank in (("detail", ""), ("new_content", None)):
        if column in kept.column_names:
            kept = _with(kept, column, pc.if_else(is_about, pa.scalar(blank, pa.string()), kept[column]))
    return kept


def _undo_without(table: pa.Table, ids: Collection[str]) -> pa.Table:
    """The undo rows, those of these memories emptied: they are still counted, and an undo leaves them out."""
    is_own = _any([_is_one_of(table[column], ids) for column in ("memory_id", "new_id")], table)
    if not pc.any(pc.and_(is_own, pc.greater(pc.binary_length(table["raw"]), 0))).as_py():
        return table
    for column, blank in (("raw", b""), ("row_digest", ""), ("before", None), ("after", None)):
        kind = table.schema.field(column).type
        table = _with(table, column, pc.if_else(is_own, pa.scalar(blank, kind), table[column]))
    return table.replace_schema_metadata(None)


def _with(table: pa.Table, column: str, values: pa.ChunkedArray) -> pa.Table:
    at = table.schema.get_field_index(column)
    return table.set_column(at, table.schema.field(at), values)


def _where_id(table: pa.Table, ids: Collection[str]) -> pa.Table:
    return table.filter(_is_one_of(table["memory_id"], ids))


def _is_one_of(column: pa.ChunkedArray, ids: Collection[str]) -> pa.ChunkedArray:
    return pc.is_in(column, value_set=pa.array(sorted(ids), pa.string()))


def _any(found: list[pa.ChunkedArray | pa.Array], table: pa.Table) -> pa.ChunkedArray | pa.Array:
    is_any = pa.array([False] * table.num_rows, pa.bool_())
    for each in found:
        is_any = pc.or_(is_any, each.combine_chunks() if isinstance(each, pa.ChunkedArray) else each)
    return is_any
