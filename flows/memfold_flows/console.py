"""What the terminal shows: like a good diff, the verdict first, then what matters most, then what to type next.

Memory text is shown here and nowhere else, made legible first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from memfold_flows import legible, next_steps
from memfold_flows.legible import LONGEST_TEXT, id_in_short, scope_name, shortened, visible
from memfold_flows.proposer.report import ModelReport
from memfold_flows.receipts import PlanReport, Receipt, ScopeTally, State, Totals, UndoReceipt, total
from memfold_flows.stores.base import Drift
from memfold_flows.streams import LONGEST_LINE, count, in_short
from memfold_flows.views import RunView, Section, Shown, ShownCluster, ShownPair

_SCOPES_SHOWN = 30
_IDS_NAMED = 6
#: From this width on, an id has a column in which a UUID fits, and scopes have one for the strict loss.
_WIDE = 80
_LONGEST_ID = 40
_DRIFTS_SHOWN = 20


def show_plan(
    report: PlanReport,
    view: RunView,
    *,
    is_archive: bool,
    history: Sequence[str] = (),
    can_undo: bool = False,
    is_shown: bool = False,
) -> None:
    """The plan of a run: verdict, scopes, what folds, what leaves, what stays apart and why.

    ``history`` says what was done with it since, one line each; ``is_shown``: this is what ``memfold show`` shows.
    """
    console = _console()
    _print_heading(console, report)
    for line in history:
        console.print(Text(line, "bold"))
    _print_verdict(console, report)
    _print_scopes(console, report.scopes)
    _print_edits(console, report.edits)
    _print_left_alone(console, report.left_alone)
    _print_model(console, report.proposer)
    _print_clusters(console, view.clusters)
    _print_rows(console, "leave", view.pruned)
    _print_rows(console, "move up", view.promoted)
    _print_rows(console, "held back", view.held)
    _print_pairs(console, "twins held apart", view.held_pairs)
    _print_pairs(console, "conflicts: both stay, look at them", view.conflicts)
    _print_pairs(console, "near misses: alike, left alone", view.near_misses)
    _print_rows(console, "wait for the next pass", view.waits)
    ways = next_steps.after_plan(report, is_archive=is_archive, is_new=not history, can_undo=can_undo)
    _print_next(console, [*ways, *next_steps.to_read_on(report.run_id, is_shown=is_shown)])


def show_receipt(receipt: Receipt) -> None:
    """What an apply wrote, what it refused, what drifted, and how to take it back."""
    console = _console()
    console.print(_headline(receipt))
    for scope in receipt.refused:
        _print_refusal(console, scope)
    _print_model(console, receipt.proposer)
    written = [scope for scope in receipt.scopes if scope.accepted and scope.changes]
    if written:
        _print_scopes(console, written)
    _print_drifts(console, "changed since the plan and left alone", receipt.drifted)
    _print_drifts(console, "metadata that differed; the survivor's value stays", receipt.metadata_conflicts)
    if receipt.fields_left_out:
        console.print(f"this store has no place for: {', '.join(receipt.fields_left_out)}")
    if receipt.transactions:
        console.print(
            f"{count(receipt.transactions, 'transaction', 'transactions')}, "
            f"the write lock was held {receipt.longest_hold_seconds:.2f} s at most"
        )
    _print_next(console, next_steps.after_apply(receipt))


def show_undo(receipt: UndoReceipt) -> None:
    """What an undo gave back, and what it could not."""
    console = _console()
    report = receipt.report
    of = f"run {receipt.run_id}" if receipt.of.is_all else f"{id_in_short(str(receipt.of))} of run {receipt.run_id}"
    if report.already_undone_at is not None:
        console.print(Text(f"{of} was undone at {report.already_undone_at:%Y-%m-%d %H:%M} UTC already"))
    else:
        style = "bold yellow" if report.not_restored else "bold green"
        did = [
            f"{count(report.restored, 'memory', 'memories')} restored",
            *([f"{count(report.reverted, 'survivor', 'survivors')} set back"] if report.reverted else []),
            *([f"{report.demoted} moved back down"] if report.demoted else []),
        ]
        console.print(
            Text("PARTLY UNDONE" if report.not_restored else "UNDONE", style), Text(f"{of}: {', '.join(did)}")
        )
    _print_drifts(console, "not restored", report.not_restored)
    _print_drifts(console, "fields that stay", report.kept_fields)
    if not report.is_whole:
        _print_next(console, [(f"memfold undo {receipt.run_id}", "take back the rest of this run")])


def say(text: str) -> None:
    """Lines on standard output."""
    for line in text.split("\n"):
        _console().print(Text(visible(in_short(line, LONGEST_LINE))), soft_wrap=True)


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    whole: Sequence[str] = (),
    may_go: Sequence[str] = (),
) -> None:
    """A plain table of texts. The columns of ``whole`` are never cut or broken; where there is no room for the others,
    those of ``may_go`` are left out, the first ones first.
    """
    console = _console()
    cells = [[Text(visible(in_short(cell, LONGEST_TEXT))) for cell in row] for row in rows]
    widths = [max(len(name), *(row[at].cell_len for row in cells), 0) for at, name in enumerate(columns)]
    kept = list(range(len(columns)))
    for name in may_go:
        if sum(widths[at] + 1 for at in kept) > console.width:
            kept.remove(columns.index(name))
    shown = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    for at in kept:
        is_whole = columns[at] in whole
        shown.add_column(columns[at], overflow="fold", no_wrap=is_whole, min_width=widths[at] if is_whole else None)
    for row in cells:
        shown.add_row(*(row[at] for at in kept))
    least = sum(widths[at] + 1 for at in kept if columns[at] in whole)
    console.print(shown, width=max(console.width, least))
    if len(kept) < len(columns):
        left_out = ", ".join(columns[at] for at in range(len(columns)) if at not in kept)
        console.print(Text(f"(not shown here: {left_out}; a wider terminal or --json has them)", "dim"))


def _console() -> Console:
    return Console(highlight=False, emoji=False)


def _print_heading(console: Console, report: PlanReport) -> None:
    line = f"plan {report.run_id}  {visible(report.store)}  as of {report.as_of:%Y-%m-%d %H:%M} UTC"
    console.print(Text(line, "dim"), soft_wrap=True)


def _print_verdict(console: Console, report: PlanReport) -> None:
    styles = {
        "accepted": "bold green",
        "nothing to do": "bold",
        "partly accepted": "bold yellow",
        "refused": "bold red",
    }
    line = Text(report.verdict.upper(), styles[report.verdict])
    memories = count(report.totals.entries_before, "memory", "memories")
    if report.verdict == "partly accepted":
        parts = f"{len(report.refused)} of {count(len(report.scopes), 'scope', 'scopes')} refused"
        line.append(f"  {memories}, {parts}", "not bold")
        accepted = [scope for scope in report.scopes if scope.accepted]
        line.append(f"\n  to be written: {_in_counts(total(accepted))}", "not bold")
        line.append(f"\n  refused, so it stays as it is: {_in_counts(total(report.refused))}", "not bold")
    else:
        line.append(f"  {memories}: {_in_counts(report.totals)}", "not bold")
        line.append("; nothing of it will be written" if report.refused else "", "not bold")
    console.print(line)
    for scope in report.refused:
        _print_refusal(console, scope)


def _in_counts(totals: Totals) -> str:
    counts = [
        f"{totals.merged} to merge",
        f"{totals.pruned} to leave",
        *([f"{totals.promoted} to move up"] if totals.promoted else []),
        *([f"{totals.held} held"] if totals.held else []),
        *([f"{totals.waits} to wait"] if totals.waits else []),
    ]
    return ", ".join(counts)


def _print_refusal(console: Console, scope: ScopeTally) -> None:
    console.print(Text(f"refused: {scope_name(scope.scope)}", "red"), soft_wrap=True)
    figures = (
        f"loss {_percent(scope.loss_fraction)} ({scope.lost} of {scope.entries_before}); "
        f"with copies and expired ones {_percent(scope.loss_fraction_strict)} ({scope.lost_strict})"
    )
    for line in (*scope.refused, figures):
        console.print(Padding(Text(visible(in_short(line, LONGEST_TEXT))), (0, 0, 0, 2), expand=False))


def _print_scopes(console: Console, scopes: Sequence[ScopeTally]) -> None:
    optional = {"leave": "pruned", "up": "promoted", "held": "held", "wait": "waits"}
    columns = {"before": "entries_before", "after": "entries_after", "merge": "merged"}
    columns |= {title: name for title, name in optional.items() if any(getattr(scope, name) for scope in scopes)}
    shown = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    shown.add_column("scope", overflow="fold", min_width=16, max_width=40)
    losses = {"loss": "loss_fraction"} | ({"strict": "loss_fraction_strict"} if console.width >= _WIDE else {})
    for title in (*columns, *losses):
        shown.add_column(title, justify="right", no_wrap=True)
    shown.add_column("gate", no_wrap=True)
    in_order = sorted(scopes, key=lambda scope: (scope.accepted, -scope.changes, -scope.held, scope.scope))
    for scope in in_order[:_SCOPES_SHOWN]:
        shown.add_row(
            Text(scope_name(scope.scope)),
            *(str(getattr(scope, name)) for name in columns.values()),
            *(_percent(getattr(scope, name)) for name in losses.values()),
            Text("ok", "green") if scope.accepted else Text("refused", "red"),
        )
    console.print()
    console.print(shown)
    if len(scopes) > _SCOPES_SHOWN:
        console.print(Text(f"and {len(scopes) - _SCOPES_SHOWN} more of {len(scopes)} scopes (all with --json)", "dim"))


def _print_left_alone(console: Console, left_alone: Mapping[str, int]) -> None:
    for why, rows in sorted(left_alone.items()):
        console.print(Text(f"left alone: {count(rows, 'row', 'rows')}: {visible(why)}", "yellow"), soft_wrap=True)


def _print_model(console: Console, report: ModelReport | None) -> None:
    if report is not None:
        console.print(Text(visible(f"model: {report.in_words()}")), soft_wrap=True)


def _print_clusters(console: Console, clusters: Section[ShownCluster]) -> None:
    _print_title(console, "fold into one", clusters)
    for cluster in clusters.items:
        survivor = cluster.survivor
        lines = [_line("=", "bold", survivor, _text(survivor))]
        for member in cluster.members:
            is_copy = member.reason == "copy"  # its differences say nothing
            text = _text(member) if is_copy else _marked(console, member.text, survivor.text, "red")
            lines.append(_line("-", "red", member, text, legible.why(member)))
        if cluster.new_text is not None:
            lines.append(_line("+", "green", survivor, Text(shortened(cluster.new_text)), "its text from now on"))
        _print_lines(console, lines)
        if cluster.folded > len(cluster.members):
            console.print(Text(f"  and {cluster.folded - len(cluster.members)} more like it", "dim"))


def _print_rows(console: Console, title: str, rows: Section[Shown]) -> None:
    _print_title(console, title, rows)
    if rows.items:
        _print_lines(console, [_line("·", "", row, _text(row), legible.why(row)) for row in rows.items])


def _print_pairs(console: Console, title: str, pairs: Section[ShownPair]) -> None:
    _print_title(console, title, pairs)
    for pair in pairs.items:
        left = _marked(console, pair.left.text, pair.right.text, "yellow")
        right = _marked(console, pair.right.text, pair.left.text, "yellow")
        why = legible.why_apart(pair)
        lines = [_line("~", "yellow", pair.left, left), _line("~", "yellow", pair.right, right, why)]
        _print_lines(console, lines)


def _print_drifts(console: Console, title: str, drifts: Sequence[Drift]) -> None:
    if not drifts:
        return
    console.print(Text(f"\n{title} ({len(drifts)})", "bold"))
    for drift in drifts[:_DRIFTS_SHOWN]:
        why = visible(in_short(drift.why, LONGEST_TEXT))
        console.print(Text(f"  {id_in_short(drift.memory_id)}: {why}"), soft_wrap=True)
    if len(drifts) > _DRIFTS_SHOWN:
        console.print(Text(f"  and {len(drifts) - _DRIFTS_SHOWN} more (all with --json)", "dim"))


def _print_title(console: Console, title: str, section: Section[object]) -> None:
    if section.total:
        shown = len(section.items)
        of = f"{section.total}" if shown == section.total else f"{shown} of {section.total}"
        if section.left_out:
            found = section.total + section.left_out
            kept = f"{shown} of {found}" if shown == section.total else f"{of} that the run keeps, of {found}"
            of = f"{kept} found"
        console.print(Text(f"\n{title} ({of})", "bold"))


def _print_next(console: Console, commands: Sequence[tuple[str, str]]) -> None:
    console.print()
    for command, what in commands:
        console.print(Text.assemble((command, "cyan"), (f"   {what}", "dim")), soft_wrap=True)


def _print_edits(console: Console, edits: Mapping[str, str]) -> None:
    for decision, says in (("keep", "are to stay"), ("prune", "are to go")):
        ids = [memory_id for memory_id, said in edits.items() if said == decision]
        if ids:
            named = ", ".join(map(id_in_short, ids[:_IDS_NAMED]))
            more = f" and {len(ids) - _IDS_NAMED} more" if len(ids) > _IDS_NAMED else ""
            console.print(Text(f"changed by a person: {named}{more} {says}"))


def _headline(receipt: Receipt) -> Text:
    styles = {
        State.CONSOLIDATED: "bold green",
        State.NOTHING_TO_DO: "bold",
        State.REJECTED: "bold red",
        State.PARTLY_APPLIED: "bold yellow",
    }
    words = {
        State.CONSOLIDATED: "CONSOLIDATED",
        State.NOTHING_TO_DO: "NOTHING TO DO",
        State.REJECTED: "REJECTED",
        State.PARTLY_APPLIED: "PARTLY APPLIED",
    }
    line = Text(words[receipt.state], styles[receipt.state])
    totals = receipt.totals
    did = (
        "no memory was changed"
        if receipt.state in (State.NOTHING_TO_DO, State.REJECTED)
        else f"{totals.merged} merged, {totals.pruned} pruned, {totals.promoted} promoted, {totals.lost} lost "
        f"({_percent(totals.loss_fraction)}; strict {_percent(totals.loss_fraction_strict)})"
    )
    line.append(f"  run {receipt.run_id}: {did}", "not bold")
    if receipt.already_applied_at is not None:
        line.append(
            f"; applied at {receipt.already_applied_at:%Y-%m-%d %H:%M} UTC already, no memory was changed now",
            "not bold",
        )
    if receipt.written_to is not None:
        line.append(f"; written to {visible(receipt.written_to)}", "not bold")
    return line


@dataclass(frozen=True, slots=True)
class _Line:
    """One memory: a mark, its id, its text, and why."""

    mark: Text
    memory_id: Text
    text: Text
    why: Text


def _line(mark: str, style: str, memory: Shown, text: Text, why: str = "") -> _Line:
    said = f"({visible(in_short(why, LONGEST_TEXT))})" if why else ""
    return _Line(Text(mark, style), Text(id_in_short(memory.memory_id), "dim"), text, Text(said, "dim"))


def _print_lines(console: Console, lines: Sequence[_Line]) -> None:
    """Memories below each other; a reason that does not fit behind its text stands below it."""
    most = _LONGEST_ID if console.width >= _WIDE else _LONGEST_ID // 2
    ids = min(max((line.memory_id.cell_len for line in lines), default=0), most)
    room = console.width - ids - len("=  ")
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold", max_width=ids)
    grid.add_column(overflow="fold")
    for line in lines:
        fits = line.text.cell_len + len("  ") + line.why.cell_len <= room
        between = "" if not (line.text and line.why) else "  " if fits else "\n"
        grid.add_row(line.mark, line.memory_id, Text.assemble(line.text, between, line.why))
    console.print(grid)


def _text(memory: Shown) -> Text:
    if memory.text is None:
        return Text("(text no longer kept)", "dim")
    return Text(shortened(memory.text))


def _marked(console: Console, text: str | None, other: str | None, style: str) -> Text:
    """The text, with the words that the other lacks in colour, or in brackets where there is no colour."""
    if text is None or other is None:
        return Text("(text no longer kept)", "dim")
    has_colour = console.color_system is not None and not console.no_color
    marked = Text()
    for run in legible.compared(text, other):
        if not run.differs:
            marked.append(run.text)
        elif has_colour:
            marked.append(run.text, f"bold {style}")
        else:
            marked.append(f"[-{run.text.rstrip()}-]{' ' if run.text.endswith(' ') else ''}")
    return marked


def _percent(fraction: float) -> str:
    return f"{fraction:.1%}"
