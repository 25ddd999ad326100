"""The decisions of a pass as SQL: one file in ``sql/`` is one select, one relation, one grain.

The files take no parameters. Thresholds are the ``policy`` relation and the inputs are relations too, so any of them
runs unchanged in the DuckDB shell on the files of an earlier run; ``sql/README.md`` shows how.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from typing import TYPE_CHECKING

import pyarrow as pa

from memfold import frames
from memfold.errors import MemfoldError

if TYPE_CHECKING:
    import duckdb

#: What the SQL reads: the snapshot, what the matching found, and what is known from earlier passes.
INPUTS = ("snapshot", "texts", "pairs", "clusters", "sightings", "policy", "losses", "rejected", "rewrites", "edits")

#: What the SQL makes, in this order: each file reads inputs and relations before it.
RELATIONS = ("departed", "survivors", "promotions", "prunes", "evictions", "removals", "waits", "plan", "tally")

_SCHEMAS = {
    "departed": frames.DEPARTED,
    "survivors": frames.SURVIVORS,
    "promotions": frames.PROMOTIONS,
    "prunes": frames.PRUNES,
    "evictions": frames.EVICTIONS,
    "removals": frames.REMOVALS,
    "waits": frames.WAITS,
    "plan": frames.PLAN,
    "tally": frames.TALLY,
}


def build(con: duckdb.DuckDBPyConnection, inputs: Mapping[str, pa.Table | str]) -> None:
    """Make every relation of ``RELATIONS`` as a table on this connection.

    Each input is a table, or a pattern that names its Parquet files.

    Raises:
        MemfoldError: an input is missing, or a SQL file fails; the message names it.
    """
    # Most passes ask no model, and nobody changes their plan.
    inputs = {"rewrites": frames.REWRITES.empty_table(), "edits": frames.EDITS.empty_table(), **inputs}
    missing = [name for name in INPUTS if name not in inputs]
    if missing:
        raise MemfoldError(f"the plan needs the relations {', '.join(missing)}; nothing was planned")
    for name in INPUTS:
        _open_input(con, name, inputs[name])
    for name in RELATIONS:
        _make(con, name)


def read(con: duckdb.DuckDBPyConnection, relation: str) -> pa.Table:
    """One relation that ``build`` made, with its declared schema and sorted by its grain."""
    schema = _SCHEMAS[relation]
    columns = ", ".join(schema.names)
    grain = schema.names[0]
    return con.sql(f"select {columns} from {relation} order by {grain}").to_arrow_table().cast(schema)


def sql_of(relation: str) -> str:
    """The one select that makes this relation."""
    return resources.files("memfold").joinpath("sql", f"{relation}.sql").read_text(encoding="utf-8")


def _open_input(con: duckdb.DuckDBPyConnection, name: str, source: pa.Table | str) -> None:
    import duckdb

    try:
        if isinstance(source, str):
            con.read_parquet(source).create_view(name, replace=True)
        else:
            con.register(name, source)
    except duckdb.Error as error:
        raise MemfoldError(f"the relation {name} cannot be read ({error}); nothing was planned") from error


def _make(con: duckdb.DuckDBPyConnection, relation: str) -> None:
    import duckdb

    try:
        con.execute(f"create or replace table {relation} as\n{sql_of(relation)}")
    except duckdb.Error as error:
        raise MemfoldError(f"sql/{relation}.sql failed; nothing was planned. {error}") from error
