"""``memfold show RUN --html FILE``: a run as one file that needs no network and that anybody can read.

Texts of memories reach the page as JSON in an inert block, with every sign that HTML knows escaped; the script puts
them on the page as text only. The page's own policy forbids connections, and any script or style but its own.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from memfold.errors import BadUsage
from memfold_flows import steps, views
from memfold_flows.files import write_bytes
from memfold_flows.receipts import PlanReport
from memfold_flows.runs import RunDirectory
from memfold_flows.views import RunView, Section, Shown, ShownCluster, ShownPair

#: Entries of each kind on a page; a browser searches through so many without a pause.
MOST = 20_000


def write(run: RunDirectory, path: Path, *, most: int = MOST) -> None:
    """Write a run as one HTML file that only its owner may read.

    Raises:
        PlanDamaged: the run directory is not what its manifest says.
        BadUsage: the file is not to be called .html, or there is no folder for it.
    """
    run.verify()
    if path.suffix.lower() not in (".html", ".htm"):  # an argument that slipped must not replace a store
        raise BadUsage(f"--html takes a file that ends in .html, got {str(path)!r}; nothing was written")
    if not path.absolute().parent.is_dir():
        raise BadUsage(f"there is no folder {path.absolute().parent}; nothing was written")
    write_bytes(path, page(run, most=most).encode())


def page(run: RunDirectory, *, most: int = MOST) -> str:
    """The HTML of a run, with at most so many entries of each kind."""
    report = steps.read_report(run, store=run.manifest.store)
    view = views.look(run, most=most, most_members=most)
    style, script = _part("report.css"), _part("report.js")
    return Template(_part("template.html")).substitute(
        policy=(
            f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
            "base-uri 'none'; form-action 'none'"
        ),
        style=style,
        script=script,
        data=_inert(_content(run, report, view, most=most)),
    )


def _content(run: RunDirectory, report: PlanReport, view: RunView, *, most: int) -> dict[str, Any]:
    entries = list(itertools.islice(_entries(view), most))
    memories = {memory.memory_id: memory for entry in entries for memory in entry.memories.values()}
    places = {memory_id: place for place, memory_id in enumerate(memories)}
    receipt = run.read_json("receipt.json")
    undone = run.read_json("undo.json")
    return {
        "plan": {**report.as_json(), "memfold": run.manifest.memfold},
        "applied": receipt and {name: receipt[name] for name in _OF_RECEIPT},
        "undone": undone and {"state": undone["state"], "ended_at": undone["ended_at"]},
        "drifted": receipt["drifted"] if receipt else [],
        "memories": [_memory(memory) for memory in memories.values()],
        "entries": [entry.as_json(places) for entry in entries],
        "left_out": sum(_sizes(view)) - len(entries),
    }


_OF_RECEIPT = ("state", "ended_at", "merged", "pruned", "promoted")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """One line of the page: what happens, why, and the memories by their part in it (memory, stays, other)."""

    action: str
    reason: str
    detail: str
    memories: Mapping[str, Shown]
    newer: str | None = None
    new_text: str | None = None

    def as_json(self, places: Mapping[str, int]) -> dict[str, Any]:
        """With the place of each memory among those of the page, as one may stand in many entries."""
        own = {part: places[memory.memory_id] for part, memory in self.memories.items()}
        more = {"newer": self.newer, "new_text": self.new_text}
        return {"action": self.action, "reason": self.reason, "detail": self.detail, **own, **more}


def _entries(view: RunView) -> Iterator[_Entry]:
    """What a person may look at, most important first; merges into one memory are beside each other."""
    yield from _rows("decided", view.decided)
    for cluster in view.clusters.items:
        yield from _merges(cluster)
    yield from _rows("prune", view.pruned)
    yield from _rows("promote", view.promoted)
    yield from _rows("held", view.held)
    yield from _pairs("held", view.held_pairs)
    yield from _rows("waits", view.waits)
    yield from _pairs("conflict", view.conflicts)
    yield from _pairs("near", view.near_misses)


def _sizes(view: RunView) -> Iterable[int]:
    yield sum(cluster.folded for cluster in view.clusters.items)
    sections: Sequence[Section[Any]] = (view.decided, view.conflicts, view.pruned, view.promoted, view.held)
    yield from (section.total for section in (*sections, view.held_pairs, view.waits, view.near_misses))


def _merges(cluster: ShownCluster) -> Iterator[_Entry]:
    for member in cluster.members:
        parts = {"memory": member, "stays": cluster.survivor}
        yield _Entry(
            action="merge", reason=member.reason, detail=member.detail, memories=parts, new_text=cluster.new_text
        )


def _rows(action: str, section: Section[Shown]) -> Iterator[_Entry]:
    for row in section.items:
        yield _Entry(action=action, reason=row.reason, detail=row.detail, memories={"memory": row})


def _pairs(action: str, section: Section[ShownPair]) -> Iterator[_Entry]:
    for pair in section.items:
        yield _Entry(
            action=action,
            reason=pair.verdict,
            detail=pair.why,
            memories={"memory": pair.left, "other": pair.right},
            newer=pair.newer if pair.verdict in ("conflict", "supersedes") else None,
        )


def _memory(memory: Shown) -> dict[str, Any]:
    return {name: getattr(memory, name) for name in ("memory_id", "scope", "kind", "title", "text")}


def _inert(content: Mapping[str, Any]) -> str:
    """JSON that no parser of HTML takes for markup: it is ASCII, and has neither angle brackets nor ampersands."""
    text = json.dumps(content, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _part(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
