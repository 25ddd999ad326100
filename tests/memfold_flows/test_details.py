"""``plan --json`` and ``show --json``: everything that is in a plan, without the texts of memories."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from .conftest import DAY, Ended, Kitchen

Command = Callable[..., Ended]


def test_the_json_of_a_plan_is_complete(command: Command, tea: Kitchen) -> None:
    """Clusters with their members, removals, conflicts, near misses, what is held and why, each check of the gate."""
    _fill(tea)
    url = f"sqlite:{tea.path}"

    planned = json.loads(command("plan", url, "--stale-min-idle-days", 100, "--stale-kind", "note", "--json").out)
    shown = json.loads(command("show", "latest", "--json").out)["plan"]

    assert shown == planned
    assert planned["clusters"] == [
        {
            "survivor": "tea-1",
            "scope": "kitchen",
            "members": [_copy("tea-2"), _copy("tea-3")],
        }
    ]
    assert [(row["memory_id"], row["reason"]) for row in planned["removals"]] == [("kettle", "stale")]
    assert [(pair["left"], pair["right"], pair["newer"]) for pair in planned["conflicts"]] == [
        ("port-1", "port-2", "port-2")
    ]
    assert [(pair["left"], pair["right"]) for pair in planned["near_misses"]] == [("crate-1", "crate-2")]
    assert (planned["conflicts_found"], planned["near_misses_found"]) == (1, 1)
    assert [(pair["left"], pair["right"], pair["why"]) for pair in planned["twins_apart"]] == [
        ("attic-1", "attic-2", "pinned: both stay")
    ]
    assert [row["memory_id"] for row in planned["held_back"]] == ["attic-2"]
    assert {check["passed"] for check in planned["checks"]} == {True}
    assert {"loss", "rolling loss", "walls", "information"} <= {check["name"] for check in planned["checks"]}


def test_the_json_of_a_plan_holds_no_text(command: Command, tea: Kitchen) -> None:
    """Ids and reasons go into logs and pipelines; the texts of people's memories do not."""
    said = command("plan", f"sqlite:{tea.path}", "--json").out

    assert "green tea" not in said
    assert "tea-1" in said


def test_the_json_of_an_applied_run_is_still_there(command: Command, tea: Kitchen) -> None:
    """What folded is told by ids, which outlive the snapshot."""
    command("run", f"sqlite:{tea.path}", "--yes")

    shown = json.loads(command("show", "latest", "--json").out)

    assert [cluster["survivor"] for cluster in shown["plan"]["clusters"]] == ["tea-1"]
    assert shown["receipt"]["merged"] == 2


def _copy(memory_id: str) -> dict[str, Any]:
    detail = "nothing but case, spacing or punctuation differs"
    return {"memory_id": memory_id, "reason": "copy", "detail": detail}


def _fill(tea: Kitchen) -> None:
    tea.remember("kettle", "The kettle was red", kind="note", last_used_at=1)
    tea.remember("port-1", "The radio listens on port 8080", age=9 * DAY)
    tea.remember("port-2", "The radio listens on port 9090", age=8 * DAY)
    tea.remember("crate-1", "Eva keeps the crate in our cold cellar full of plums")
    tea.remember("crate-2", "Tom keeps the crate in our cold cellar full of figs")
    tea.remember("attic-1", "The attic is locked", pinned=1)
    tea.remember("attic-2", "the attic is locked.", pinned=1)
