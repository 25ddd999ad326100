"""`memfold show` and `memfold export`: a run as text, as JSON, as a page, as a table."""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from memfold_flows import steps
from memfold_flows.legible import id_in_short
from memfold_flows.receipts import PlanReport, State
from memfold_flows.runs import RunDirectory
from memfold_flows.stores.undo_units import Selection
from memfold_flows.streams import count
from memfold_flows.terminal import is_archive, json_text, locate, print_json, say

_SHOWN_ON_REQUEST = 25


def show(reference: str, *, store: str | None, as_json: bool) -> None:
    """Show a run: its plan, and what was written of it."""
    run = locate(reference, store=store)
    run.verify()
    receipt, undone = run.read_json("receipt.json"), run.read_json("undo.json")
    report = steps.read_report(run, store=run.manifest.store)
    if as_json:
        from memfold_flows import details

        print_json({"plan": details.plan_as_json(run, report), "receipt": receipt, "undo": undone})
        return
    history = [_what_was_written(receipt)] if receipt else []
    history += [_what_was_undone(each) for each in _undos(undone)]
    show_plan(
        run,
        report,
        most=_SHOWN_ON_REQUEST,
        history=history,
        can_undo=run.wrote and not _is_undone(undone),
        is_shown=True,
    )


def write_page(reference: str, *, store: str | None, html: Path, as_json: bool) -> None:
    """Write a run as one page that a browser shows without a network."""
    from memfold_flows.report import page

    run = locate(reference, store=store)
    page.write(run, html)
    if as_json:
        print_json({"run_id": run.run_id, "html": str(html.absolute())})
    else:
        say(f"wrote run {run.run_id} to {html}; it holds the texts of memories")


def export(reference: str, *, store: str | None, as_csv: bool) -> None:
    """Print the plan as JSONL, one line per memory, or as CSV with the texts and a column to decide in."""
    run = locate(reference, store=store)
    run.verify()
    names = {"memory_id": "id", "scope": "scope", "action": "action", "into_id": "into", "reason": "reason"}
    rows = run.read("plan", list(names)).select(list(names)).rename_columns(list(names.values()))
    if as_csv:
        _export_csv(run, rows)
        return
    for batch in rows.to_batches(max_chunksize=10_000):
        sys.stdout.writelines(json_text(row) + "\n" for row in batch.to_pylist())


def show_plan(
    run: RunDirectory,
    report: PlanReport,
    *,
    most: int,
    history: Sequence[str] = (),
    can_undo: bool = False,
    is_shown: bool = False,
) -> None:
    """Show a plan to a person, with at most so many entries of each kind."""
    from memfold_flows import console, views

    console.show_plan(
        report,
        views.look(run, most=most),
        is_archive=is_archive(report.store),
        history=history,
        can_undo=can_undo,
        is_shown=is_shown,
    )


def _export_csv(run: RunDirectory, rows: pa.Table) -> None:
    texts = run.read("snapshot", ["memory_id", "content"])
    text_of = dict(zip(texts["memory_id"].to_pylist(), texts["content"].to_pylist(), strict=True))
    table = csv.DictWriter(sys.stdout, [*rows.column_names, "text", "into_text", "decision"], lineterminator="\n")
    table.writeheader()
    for batch in rows.to_batches(max_chunksize=10_000):
        for row in batch.to_pylist():
            table.writerow(row | {"text": text_of.get(row["id"]), "into_text": text_of.get(row["into"])})


def _undos(undone: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    return [] if undone is None else [*undone.get("earlier", []), undone]


def _is_undone(undone: Mapping[str, Any] | None) -> bool:
    return undone is not None and undone["is_whole"]


def _what_was_undone(undone: Mapping[str, Any]) -> str:
    of = Selection(undone["scope"], undone["memory_id"])
    part = "" if of.is_all else f", only {id_in_short(str(of))}"
    left = len(undone["not_restored"])
    short = f", {count(left, 'memory', 'memories')} could not come back" if left else ""
    return f"taken back at {_minute(undone['ended_at'])}{part}: {undone['restored']} restored{short}"


def _what_was_written(receipt: Mapping[str, Any]) -> str:
    when = _minute(receipt["ended_at"])
    if receipt["state"] in (State.NOTHING_TO_DO, State.REJECTED):
        why = "the gate refused it" if receipt["state"] == State.REJECTED else "there was nothing to do"
        return f"applied at {when}: no memory was changed, {why}"
    counts = f"{receipt['merged']} merged, {receipt['pruned']} pruned, {receipt['promoted']} promoted"
    drifted = len(receipt["drifted"])
    left = f"; {count(drifted, 'memory', 'memories')} had changed and stayed" if drifted else ""
    refused = sum(not scope["accepted"] for scope in receipt["scopes"])
    stayed = f"; {count(refused, 'scope was', 'scopes were')} refused" if refused else ""
    return f"applied at {when}: {counts}{left}{stayed}"


def _minute(moment: str) -> str:
    return f"{datetime.fromisoformat(moment):%Y-%m-%d %H:%M} UTC"
