"""What the terminal shows: like a good diff, the verdict first, then what matters most, then what to type next.

Memory text is shown here and nowhere else; its control characters are made visible, so that no text can act on the
terminal.
"""

from __future__ import annotations

import difflib
import math
import re
import shlex
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from memfold_flows.proposer.report import ModelReport
from memfold_flows.receipts import LossLimit, PlanReport, Receipt, ScopeTally, State, UndoReceipt
from memfold_flows.scopes import readable
from memfold_flows.stores.base import Drift
from memfold_flows.streams import LONGEST_LINE, count, in_short
from memfold_flows.views import RunView, Section, Shown, ShownCluster, ShownPair

_LONGEST_TEXT = 400
_LONGEST_NAME = 120
_SCOPES_SHOWN = 30
_DRIFTS_SHOWN = 20
# A word with the space behind it; scripts without spaces go sign by sign.
_WORDS = re.compile(r"([\u2e80-\u9fff\uf900-\ufaff]|[^\s\u2e80-\u9fff\uf900-\ufaff]+)(\s*)")


def show_plan(
    report: PlanReport, view: RunView, *, is_archive: bool, history: Sequence[str] = (), can_undo: bool = False
) -> None:
    """The plan of a run: verdict, scopes, what folds, what leaves, what stays apart and why.

    ``history`` says what was done with it since, one line each.
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
    _print_next(console, _after_plan(report, is_archive=is_archive, is_new=not history, can_undo=can_undo))


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
    _print_next(console, _after_apply(receipt))


def show_undo(receipt: UndoReceipt) -> None:
    """What an undo gave back, and what it could not."""
    console = _console()
    report = receipt.report
    of = (
        f"run {receipt.run_id}"
        if receipt.of.is_all
        else f"{_visible(in_short(str(receipt.of), _LONGEST_NAME))} of run {receipt.run_id}"
    )
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
        _console().print(Text(_visible(in_short(line, LONGEST_LINE))), soft_wrap=True)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A plain table of texts."""
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        shown.add_column(column, overflow="fold")
    for row in rows:
        shown.add_row(*(Text(_visible(in_short(cell, _LONGEST_TEXT))) for cell in row))
    _console().print(shown)


def scope_name(scope: str) -> str:
    """A scope as a person reads it."""
    return _visible(in_short(readable(scope), _LONGEST_NAME)) if scope else "(no scope)"


def id_in_short(memory_id: str) -> str:
    """An id as a person reads it; ``--json`` has it whole."""
    return _visible(in_short(memory_id, _LONGEST_NAME))


def _console() -> Console:
    return Console(highlight=False, emoji=False)


def _print_heading(console: Console, report: PlanReport) -> None:
    line = f"plan {report.run_id}  {_visible(report.store)}  as of {report.as_of:%Y-%m-%d %H:%M} UTC"
    console.print(Text(line, "dim"), soft_wrap=True)


def _print_verdict(console: Console, report: PlanReport) -> None:
    totals = report.totals
    styles = {
        "accepted": "bold green",
        "nothing to do": "bold",
        "partly accepted": "bold yellow",
        "refused": "bold red",
    }
    line = Text(report.verdict.upper(), styles[report.verdict])
    counts = [
        f"{totals.merged} to merge",
        f"{totals.pruned} to leave",
        *([f"{totals.promoted} to move up"] if totals.promoted else []),
        *([f"{totals.held} held"] if totals.held else []),
        *([f"{totals.waits} to wait"] if totals.waits else []),
    ]
    line.append(f"  {count(totals.entries_before, 'memory', 'memories')}: {', '.join(counts)}", "not bold")
    console.print(line)
    for scope in report.refused:
        _print_refusal(console, scope)


def _print_refusal(console: Console, scope: ScopeTally) -> None:
    console.print(Text(f"refused: {scope_name(scope.scope)}", "red"), soft_wrap=True)
    figures = (
        f"loss {_percent(scope.loss_fraction)} ({scope.lost} of {scope.entries_before}); "
        f"with copies and expired ones {_percent(scope.loss_fraction_strict)} ({scope.lost_strict})"
    )
    for line in (*scope.refused, figures):
        console.print(Padding(Text(_visible(in_short(line, _LONGEST_TEXT))), (0, 0, 0, 2), expand=False))


def _print_scopes(console: Console, scopes: Sequence[ScopeTally]) -> None:
    optional = {"leave": "pruned", "up": "promoted", "held": "held", "wait": "waits"}
    columns = {"before": "entries_before", "after": "entries_after", "merge": "merged"}
    columns |= {title: name for title, name in optional.items() if any(getattr(scope, name) for scope in scopes)}
    shown = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    shown.add_column("scope", overflow="fold", min_width=16, max_width=40)
    for title in (*columns, "loss", "strict"):
        shown.add_column(title, justify="right", no_wrap=True)
    shown.add_column("gate", no_wrap=True)
    in_order = sorted(scopes, key=lambda scope: (scope.accepted, -scope.changes, -scope.held, scope.scope))
    for scope in in_order[:_SCOPES_SHOWN]:
        shown.add_row(
            Text(scope_name(scope.scope)),
            *(str(getattr(scope, name)) for name in columns.values()),
            _percent(scope.loss_fraction),
            _percent(scope.loss_fraction_strict),
            Text("ok", "green") if scope.accepted else Text("refused", "red"),
        )
    console.print()
    console.print(shown)
    if len(scopes) > _SCOPES_SHOWN:
        console.print(Text(f"and {len(scopes) - _SCOPES_SHOWN} more of {len(scopes)} scopes (all with --json)", "dim"))


def _print_left_alone(console: Console, left_alone: Mapping[str, int]) -> None:
    for why, rows in sorted(left_alone.items()):
        console.print(Text(f"left alone: {count(rows, 'row', 'rows')}: {_visible(why)}", "yellow"), soft_wrap=True)


def _print_model(console: Console, report: ModelReport | None) -> None:
    if report is not None:
        console.print(Text(_visible(f"model: {report.in_words()}")), soft_wrap=True)


def _print_clusters(console: Console, clusters: Section[ShownCluster]) -> None:
    _print_title(console, "fold into one", clusters)
    for cluster in clusters.items:
        survivor = cluster.survivor
        lines = [_line("=", "bold", survivor, _text(survivor))]
        for member in cluster.members:
            is_copy = member.reason == "copy"  # its differences say nothing
            text = _text(member) if is_copy else _marked(console, member.text, survivor.text, "red")
            lines.append(_line("-", "red", member, text, member.reason if is_copy else _why(member)))
        if cluster.new_text is not None:
            lines.append(_line("+", "green", survivor, Text(_shortened(cluster.new_text)), "its text from now on"))
        console.print(_grid(lines))
        if cluster.folded > len(cluster.members):
            console.print(Text(f"  and {cluster.folded - len(cluster.members)} more like it", "dim"))


def _print_rows(console: Console, title: str, rows: Section[Shown]) -> None:
    _print_title(console, title, rows)
    console.print(_grid([_line("·", "", row, _text(row), _why(row)) for row in rows.items]))


def _print_pairs(console: Console, title: str, pairs: Section[ShownPair]) -> None:
    _print_title(console, title, pairs)
    for pair in pairs.items:
        newer = {"left": pair.left.memory_id, "right": pair.right.memory_id}.get(pair.newer or "")
        newer = None if newer is None else in_short(newer, _LONGEST_NAME)
        has_newer = newer is not None and pair.verdict in ("conflict", "supersedes")
        why = f"{pair.verdict}: {pair.why}" + (f"; newer: {newer}" if has_newer else "")
        console.print(
            _grid(
                [
                    _line("~", "yellow", pair.left, _marked(console, pair.left.text, pair.right.text, "yellow")),
                    _line("~", "yellow", pair.right, _marked(console, pair.right.text, pair.left.text, "yellow"), why),
                ]
            )
        )


def _print_drifts(console: Console, title: str, drifts: Sequence[Drift]) -> None:
    if not drifts:
        return
    console.print(Text(f"\n{title} ({len(drifts)})", "bold"))
    for drift in drifts[:_DRIFTS_SHOWN]:
        why = _visible(in_short(drift.why, _LONGEST_TEXT))
        console.print(Text(f"  {id_in_short(drift.memory_id)}: {why}"), soft_wrap=True)
    if len(drifts) > _DRIFTS_SHOWN:
        console.print(Text(f"  and {len(drifts) - _DRIFTS_SHOWN} more (all with --json)", "dim"))


def _print_title(console: Console, title: str, section: Section[object]) -> None:
    if section.total:
        shown = len(section.items)
        of = f"{section.total}" if shown == section.total else f"{shown} of {section.total}"
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


_IDS_NAMED = 6


def _after_plan(report: PlanReport, *, is_archive: bool, is_new: bool, can_undo: bool) -> list[tuple[str, str]]:
    lines = []
    target = " --in-place" if is_archive else ""
    if report.writable and is_new:
        lines.append((f"memfold apply {report.run_id}{target}", "write exactly this plan"))
        lines.append((f"memfold edit {report.run_id} --reject ID", "change it: what stays after all"))
    elif report.edits and is_new:
        lines.append((f"memfold apply {report.run_id}{target}", "remember what was decided"))
    if can_undo:
        lines.append((f"memfold undo {report.run_id}", "take it back"))
    lines += _ways_on("plan", report.limit, report.refused)
    lines.append((f"memfold show {report.run_id}", "more of it; with --html report.html as a page to read"))
    lines.append((f"memfold export {report.run_id}", "all of it, one JSON line per memory"))
    return lines


def _after_apply(receipt: Receipt) -> list[tuple[str, str]]:
    lines = _ways_on("plan", receipt.limit, receipt.refused)
    if receipt.drifted:
        lines.append((f"memfold plan {quoted(receipt.store)}", "plan again what drifted"))
    if receipt.totals.merged + receipt.totals.pruned + receipt.totals.promoted:
        lines.append((f"memfold undo {receipt.run_id}", "take it back"))
    return lines


def _ways_on(command: str, limit: LossLimit, refused: Sequence[ScopeTally]) -> list[tuple[str, str]]:
    """The two ways past the loss limit, each on top of the scopes and flags of the first call."""
    over = limit.exceeded_by(refused)
    if not over:
        return []
    enough = min(math.ceil(max(limit.loss_of(scope) for scope in over) * 100) / 100, 1.0)
    again = f"memfold {command} ..."
    return [
        (f"{again} --on-excess fit", "the same call, up to the limit; the rest waits for the next pass"),
        (f"{again} --max-loss-fraction {enough:g}", "the same call, allowing this loss, once you have looked"),
    ]


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
        line.append(f"; written to {_visible(receipt.written_to)}", "not bold")
    return line


def _line(mark: str, style: str, memory: Shown, text: Text, why: str = "") -> tuple[Text, Text, Text]:
    if why:
        text.append(f"  [{_visible(in_short(why, _LONGEST_TEXT))}]", "dim")
    return Text(mark, style), Text(id_in_short(memory.memory_id), "dim"), text


def _grid(lines: Iterable[tuple[Text, Text, Text]]) -> Table:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold", max_width=24)
    grid.add_column(overflow="fold")
    for line in lines:
        grid.add_row(*line)
    return grid


def _why(memory: Shown) -> str:
    return ": ".join(part for part in (memory.reason, memory.detail) if part)


def _text(memory: Shown) -> Text:
    if memory.text is None:
        return Text("(text no longer kept)", "dim")
    return Text(_shortened(memory.text))


def _marked(console: Console, text: str | None, other: str | None, style: str) -> Text:
    """The text, with the words that the other lacks in colour, or in brackets where there is no colour."""
    if text is None or other is None:
        return Text("(text no longer kept)", "dim")
    own, theirs = (_WORDS.findall(_shortened(each)) for each in (text, other))
    words, other_words = ([word for word, _ in each] for each in (own, theirs))
    marked = Text()
    for tag, _, _, start, end in difflib.SequenceMatcher(None, other_words, words, autojunk=False).get_opcodes():
        run = "".join(word + space for word, space in own[start:end])
        if tag == "equal" or not run:
            marked.append(run)
        elif console.color_system:
            marked.append(run, f"bold {style}")
        else:
            marked.append(f"[-{run.rstrip()}-]{' ' if run.endswith(' ') else ''}")
    return marked


def _shortened(text: str) -> str:
    shown = _visible(" ".join(text.split()))
    return shown if len(shown) <= _LONGEST_TEXT else shown[:_LONGEST_TEXT] + " …"


def _visible(text: str) -> str:
    """The text with control, invisible and direction-changing characters spelled out."""
    return "".join(
        f"\\u{ord(sign):04x}" if unicodedata.category(sign) in ("Cc", "Cs") or sign in _INVISIBLE else sign
        for sign in text
    )


_INVISIBLE = set("\u200b\u2060\ufeff\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def _percent(fraction: float) -> str:
    return f"{fraction:.1%}"


def quoted(store: str) -> str:
    """A store as it is typed after a command."""
    return shlex.quote(_visible(store))
