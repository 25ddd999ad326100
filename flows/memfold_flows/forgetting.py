"""``memfold forget``: what is to be erased, the question, and what came of it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence

import typer

from memfold_flows import console, erasure, legible, terminal
from memfold_flows.stores import KINDS, urls
from memfold_flows.streams import count

_YOURS = "what you made of it yourself (memfold export, reports, copies of the store or of runs) is yours to delete"


def forget(url: str, ids: Sequence[str], *, with_survivor: bool, yes: bool, as_json: bool) -> None:
    """Erase memories, after asking; ends in exit code 4 where something may still tell of them."""
    kind = KINDS.get(urls.parse(url).scheme)
    options = {"in_place": True} if kind is not None and "in_place" in kind.options() else {}
    with terminal.opening(url, options) as store:
        meant = erasure.look_up(store, list(dict.fromkeys(ids)), with_survivor=with_survivor)
        if not yes:
            named = ", ".join(map(legible.id_in_short, sorted({each for memory in meant for each in memory.ids})))
            terminal.ask(
                f"Erase {named} from {store.url} and all runs? It cannot be taken back.",
                declined="declined; nothing was erased",
            )
        forgotten = erasure.forget(
            store,
            meant,
            runs_folder=terminal.runs_home(),
            clock=terminal.now,
            monotonic=time.monotonic,
            new_key=secrets.token_bytes(32),
        )
    if as_json:
        terminal.print_json({**forgotten.as_json(), "yours": _YOURS})
    else:
        _show(forgotten)
    raise typer.Exit(forgotten.exit_code)


def _show(forgotten: erasure.Forgotten) -> None:
    ids = sorted({each for memory in forgotten.memories for each in memory.ids})
    console.say(f"forgotten: {', '.join(map(legible.id_in_short, ids))}")
    console.say(
        f"{len(forgotten.removed)} erased from {forgotten.store}, "
        f"{count(forgotten.replay_entries, 'replay entry', 'replay entries')}, "
        f"{count(len(forgotten.runs), 'run directory', 'run directories')} gone through"
    )
    for memory in forgotten.memories:
        if memory.survivor in forgotten.survivors:
            console.say(
                f"{legible.id_in_short(memory.id)} went into {legible.id_in_short(memory.survivor)}, which stands "
                "and may say the same; "
                "--with-survivor erases it too"
            )
    for left in forgotten.left:
        console.say(f"not reached: {left.place}: {left.why}")
    console.say(_YOURS)
