"""Where a fault can strike, in the order of a pass: each moment is a function of memfold that is called or returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Event = Literal["call", "return"]


@dataclass(frozen=True)
class Moment:
    """A moment of a pass or an undo, as the table calls it, and the function that marks it."""

    says: str
    command: Literal["run", "apply", "undo"]
    function: str
    event: Event = "return"

    @property
    def at(self) -> dict[str, Any]:
        """As the victim is told it."""
        return {"function": self.function, "event": self.event}


_STEPS, _STORES = "memfold_flows.steps:", "memfold_flows.stores."

PLANNING = (
    Moment("lease taken", "run", _STEPS + "take_snapshot", "call"),
    Moment("snapshot read", "run", _STEPS + "take_snapshot"),
    Moment("pairs judged", "run", _STEPS + "match"),
    Moment("plan made", "run", _STEPS + "model"),
    Moment("plan sealed", "run", _STEPS + "judge"),
)
REWRITTEN = Moment("rewrite made", "apply", _STEPS + "rewrite")
ROWS_WRITTEN = Moment("rows written, uncommitted", "apply", _STORES + "applying:_Writer._write_rows")
UNDO_DURABLE = Moment("undo data on the disk", "apply", "memfold_flows.runs:RunDirectory.write_undo")
LEDGER_WRITTEN = Moment("ledger written, uncommitted", "apply", _STORES + "bookkeeping:Bookkeeping.land")
COMMITTED = Moment("committed", "apply", _STORES + "outcomes:apply_report", "call")
NOTED = Moment("state noted", "apply", "memfold_flows.noting:note")
RECEIPT = Moment("receipt written", "apply", "memfold_flows.runs:RunDirectory.write_json")
ENDED = Moment("pass ended", "apply", _STEPS + "write_receipt")
APPLYING = (REWRITTEN, ROWS_WRITTEN, UNDO_DURABLE, LEDGER_WRITTEN, COMMITTED, NOTED, RECEIPT, ENDED)

#: Only where a store is made of files: everything new lies beside it, or is half in its place.
LANDINGS = {
    "jsonl": "archive_landing:Landing.",
    "parquet": "archive_landing:Landing.",
    "praisonai-file": "praisonai_landing:FilesLanding.",
}
UNDONE_UNCOMMITTED = Moment("rows restored, uncommitted", "undo", _STORES + "undoing:_Taker._restore_rows")
UNDONE = Moment("undo committed", "undo", _STORES + "outcomes:undo_report", "call")
UNDOING = (UNDONE_UNCOMMITTED, UNDONE)


def landing(scheme: str) -> tuple[Moment, ...]:
    """The moments in which new versions of the files of a store take the places of the old ones."""
    if scheme not in LANDINGS:
        return ()
    landing = _STORES + LANDINGS[scheme]
    return (
        Moment("new files prepared", "apply", landing + "land", "call"),
        Moment("files renamed, ledger not", "apply", landing + "land_ledger", "call"),
    )
