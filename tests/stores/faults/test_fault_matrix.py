"""Each fault at each step over each kind of store: the store is wholly old or wholly new, and the run comes to its end.

``docs/guarantees.md`` shows the outcome of every cell. ``make fault-matrix`` runs them all and writes that table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from .conftest import Struck
from .rows import NOT_THERE, ROWS, Row

GUARANTEES = Path(__file__).parents[3] / "docs/guarantees.md"
Outcomes = dict[str, dict[str, str]]

BEGIN, END = "<!-- fault matrix -->\n", "<!-- end of the fault matrix -->\n"


@pytest.fixture(scope="session")
def table(request: pytest.FixtureRequest, kinds: Mapping[str, Any]) -> Any:
    """The outcomes by row and store, as the document has them; with ``--write-fault-matrix``, as found by now."""
    known = _read_table()
    if not request.config.getoption("write_fault_matrix"):
        yield known
        return
    found: Outcomes = {
        row.name: {kind: known.get(row.name, {}).get(kind, "") for kind in sorted(kinds)} for row in ROWS
    }
    yield found
    _write_table(found)


@pytest.mark.parametrize(
    "row", [pytest.param(row, id=row.name, marks=() if row.is_quick else pytest.mark.long) for row in ROWS]
)
def test_each_fault_at_each_step_leaves_a_store_as_the_table_says(
    row: Row,
    system: str,
    strike: Callable[[str], Struck],
    table: dict[str, dict[str, str]],
    pytestconfig: pytest.Config,
) -> None:
    """Old or new, never in between; then the command that the table names ends it, and an undo takes all of it back."""
    outcome = row.outcome(strike(system))

    if pytestconfig.getoption("write_fault_matrix"):
        table[row.name][system] = outcome
    assert table[row.name][system] == outcome


def test_the_table_has_a_line_for_each_row_and_a_column_for_each_store(
    kinds: Mapping[str, Any], table: Outcomes
) -> None:
    """A fault that is no longer tried is no longer promised."""
    assert list(table) == [row.name for row in ROWS]
    assert all(list(cells) == sorted(kinds) for cells in table.values())
    assert {cell for cells in table.values() for cell in cells.values()} == {"old", "new", NOT_THERE}


def _read_table() -> Outcomes:
    text = GUARANTEES.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    lines = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in text.strip().splitlines()]
    stores = lines[0][2:-1]
    return {f"{line[0]}: {line[1]}": dict(zip(stores, line[2:-1], strict=True)) for line in lines[2:]}


def _write_table(found: Mapping[str, Mapping[str, str]]) -> None:
    stores = list(found[ROWS[0].name])
    lines = [["step", "fault", *(f"`{store}`" for store in stores), "then"], ["---"] * (len(stores) + 3)]
    lines += [[row.step, row.fault, *found[row.name].values(), f"`{row.then}`"] for row in ROWS]
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    before, _, rest = GUARANTEES.read_text(encoding="utf-8").partition(BEGIN)
    GUARANTEES.write_text(before + BEGIN + "\n" + table + "\n" + END + rest.partition(END)[2], encoding="utf-8")
