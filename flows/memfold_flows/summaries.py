"""What an operator reads of a pass: the plan and its outcome as Markdown and as table rows. Values in, text out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from memfold_flows.proposer.report import ModelReport
from memfold_flows.receipts import LossLimit, PlanReport, Receipt, ScopeTally, Totals
from memfold_flows.scopes import readable
from memfold_flows.streams import count, in_short
from memfold_flows.views import RunView, Shown, ShownCluster, ShownPair

_SCOPES_SHOWN = 50
_CHARACTERS_SHOWN = 240
_LONGEST_ID = 120
_ESCAPED = r"\\\g<0>"
_SIGNS = re.compile(r"[\\`*_\[\]<>|~#!&]")


def warnings(report: PlanReport) -> list[str]:
    """What a person should look at before this plan is written; nothing where there is no reason to."""
    found = [f"{_name(scope)}: refused, {'; '.join(scope.refused)}" for scope in report.refused]
    for scope in report.writable:
        loss = report.limit.loss_of(scope)
        if loss > report.limit.max_loss_fraction / 2:
            found.append(f"{_name(scope)}: would lose {loss:.1%}, more than half of what it may")
        if scope.waits:
            waits = count(scope.waits, "removal waits, as it does", "removals wait, as they do")
            found.append(f"{_name(scope)}: {waits} not fit under the limit")
    return found


def plan(report: PlanReport) -> str:
    """A plan, for someone who has to decide on it."""
    return "\n".join(
        [
            f"# Plan {report.run_id}",
            "",
            f"{report.store}, as of {report.as_of:%Y-%m-%d %H:%M} UTC: **{report.verdict}**. Nothing is written yet.",
            "",
            *_figures(report.totals, report.limit),
            *_model(report.proposer),
            "",
            *_listed("Look at this first", warnings(report)),
            *_run_directory(report.run_dir),
        ]
    )


def outcome(receipt: Receipt, *, seconds: float | None = None) -> str:
    """What a pass did."""
    took = (receipt.ended_at - receipt.began_at).total_seconds() if seconds is None else seconds
    refused = [f"{_name(scope)}: {'; '.join(scope.refused)}" for scope in receipt.refused]
    drifted = [f"{in_short(each.memory_id, _LONGEST_ID)} {each.why}" for each in receipt.drifted]
    return "\n".join(
        [
            f"# {receipt.state}",
            "",
            f"{receipt.store}, run `{receipt.run_id}`, {took:.1f} s.",
            "",
            *_figures(receipt.totals, receipt.limit),
            *_model(receipt.proposer),
            "",
            *_listed("Refused; nothing of these scopes was written", refused),
            *_listed("Changed since the snapshot, and left alone", drifted),
            *_run_directory(receipt.run_dir),
        ]
    )


def _model(report: ModelReport | None) -> list[str]:
    return [] if report is None else ["", f"Model: {_SIGNS.sub(_ESCAPED, report.in_words())}."]


def look(view: RunView) -> str:
    """The largest merges side by side, the conflicts, what was removed and what was held back."""
    merges = [line for cluster in view.clusters.items for line in _merge(cluster)]
    parts = [
        *_table(f"Largest merges ({view.clusters.total})", ("stays", "folds into it", "why"), merges),
        *_pairs(f"Conflicts: both stay ({view.conflicts.total})", view.conflicts.items),
        *_pairs(f"Held back ({view.held_pairs.total})", view.held_pairs.items),
        *_table(
            f"Removed ({view.pruned.total})", ("memory", "why"), [(_text(row), _why(row)) for row in view.pruned.items]
        ),
    ]
    return "\n".join(parts) if parts else "Nothing was merged, removed or held back."


def backfill(report: Mapping[str, Any]) -> str:
    """What a backfill came to, shard by shard."""
    lines = [
        (
            str(shard["name"]),
            str(shard["rows"]),
            str(shard["merged"]),
            str(shard["pruned"]),
            f"{shard['scopes_refused']} of {shard['scopes']}",
            "failed: " + _plain(shard["error"])
            if shard["error"]
            else "done before"
            if shard["was_done"]
            else shard["state"],
        )
        for shard in report["shards"]
    ]
    memories = count(report["rows"], "memory", "memories")
    head = f"{memories}, {report['rows_after']} after it; archive: `{report['archive'] or 'not written'}`"
    header = ("shard", "memories", "merged", "pruned", "scopes refused", "state")
    return "\n".join([f"# {report['state']}", "", head, "", *_table("Shards", header, lines)])


def scope_rows(scopes: Iterable[ScopeTally], *, most: int = _SCOPES_SHOWN) -> list[dict[str, Any]]:
    """The scopes in which something happens, refused ones first, then the largest changes."""
    worth = [scope for scope in scopes if scope.changes or not scope.accepted]
    worth.sort(key=lambda scope: (scope.accepted, -scope.changes, scope.scope))
    return [
        {
            "scope": _name(scope),
            "before": scope.entries_before,
            "after": scope.entries_after,
            "merged": scope.merged,
            "pruned": scope.pruned,
            "promoted": scope.promoted,
            "held": scope.held,
            "lost": f"{scope.loss_fraction:.1%}",
            "gate": "accepted" if scope.accepted else "refused: " + "; ".join(scope.refused),
        }
        for scope in worth[:most]
    ]


def in_one_line(receipt: Receipt) -> str:
    """What a pass came to, as the final state of a run carries it."""
    totals, refused, drifted = receipt.totals, len(receipt.refused), len(receipt.drifted)
    said = [f"{totals.merged} merged, {totals.pruned} pruned, {totals.promoted} promoted of {totals.entries_before}"]
    if refused:
        said.append(f"{refused} of {count(len(receipt.scopes), 'scope', 'scopes')} refused")
    if drifted:
        changed = count(
            drifted, "memory had changed since the plan and was", "memories had changed since the plan and were"
        )
        said.append(f"{changed} left alone")
    return "; ".join(said)


def _figures(totals: Totals, limit: LossLimit) -> list[str]:
    return [
        # The loss comes first, as the dialog in which a plan is approved shows no more than a few columns.
        "| memories | lost | limit | merged | pruned | promoted | held | lost, strictly |",
        "|---|---|---|---|---|---|---|---|",
        f"| {totals.entries_before} -> {totals.entries_after} | {totals.lost} ({totals.loss_fraction:.1%}) "
        f"| {limit.max_loss_fraction:.0%} of a scope | {totals.merged} | {totals.pruned} | {totals.promoted} "
        f"| {totals.held} | {totals.lost_strict} ({totals.loss_fraction_strict:.1%}) |",
    ]


def _merge(cluster: ShownCluster) -> list[tuple[str, str, str]]:
    lines = [(_text(cluster.survivor), _text(member), _why(member)) for member in cluster.members]
    if cluster.new_text is not None:
        lines.insert(0, (_text(cluster.survivor), f"becomes: {_plain(cluster.new_text)}", "rewritten"))
    if (more := cluster.folded - len(cluster.members)) > 0:
        lines.append((_text(cluster.survivor), f"and {more} more", ""))
    return lines


def _pairs(title: str, pairs: Sequence[ShownPair]) -> list[str]:
    return _table(
        title, ("one", "other", "why"), [(_text(pair.left), _text(pair.right), _plain(pair.why)) for pair in pairs]
    )


def _table(title: str, header: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    """A table whose cells are Markdown already."""
    if not lines:
        return []
    rows = [f"| {' | '.join(line)} |" for line in (header, *lines)]
    return [f"## {title}", "", rows[0], "|" + "---|" * len(header), *rows[1:], ""]


def _listed(title: str, items: Sequence[str]) -> list[str]:
    if not items:
        return []
    shown = [f"- {_plain(item)}" for item in items[:_SCOPES_SHOWN]]
    more = [f"- and {len(items) - _SCOPES_SHOWN} more"] if len(items) > _SCOPES_SHOWN else []
    return [f"## {title}", "", *shown, *more, ""]


def _run_directory(path: str) -> list[str]:
    return [f"Run directory: `{path}`"]


def _text(memory: Shown) -> str:
    return f"{_code(memory.memory_id)} {'(no longer kept)' if memory.text is None else _plain(memory.text)}"


def _why(memory: Shown) -> str:
    return _plain(f"{memory.reason}: {memory.detail}" if memory.detail else memory.reason)


def _plain(text: str) -> str:
    """A text as it is, on one line and not too long: nothing in it is taken for Markdown or HTML."""
    line = " ".join(text.split())
    line = line if len(line) <= _CHARACTERS_SHOWN else line[: _CHARACTERS_SHOWN - 1] + "…"
    return _SIGNS.sub(_ESCAPED, line)


def _code(memory_id: str) -> str:
    name = in_short(" ".join(memory_id.split()), _LONGEST_ID)
    return f"`{name.replace('`', chr(39)).replace('|', '/')}`"


def _name(scope: ScopeTally) -> str:
    return in_short(readable(scope.scope), _LONGEST_ID) or "(no scope)"
