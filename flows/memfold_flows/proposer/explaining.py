"""``memfold plan --explain-model``: what a pass would send to the model, without sending it."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from memfold.errors import BadUsage
from memfold_flows import scopes as scope_names
from memfold_flows import settings, steps, terminal
from memfold_flows.proposer import asking
from memfold_flows.runs import RunDirectory


def explain_model(url: str, *, scopes: Collection[str] | None, as_of: str | None, flags: Mapping[str, Any]) -> None:
    """Print the requests of a pass as JSON; nothing is sent, and no run is kept."""
    chosen = settings.load(flags)
    options = chosen.proposer
    if options is None:
        raise BadUsage(f"no proposer is set in {settings.FILE}, so nothing would be sent; nothing was planned")
    with terminal.opening(url, {}) as store, tempfile.TemporaryDirectory() as folder:
        now = terminal.now() if as_of is None else terminal.moment(as_of)
        run = RunDirectory.create(Path(folder) / "run", "explain")
        scopes = scopes and scope_names.meant(store, sorted(scopes))
        steps.take_snapshot(store, run, chosen.policy(as_of=now, traits=store.traits), scopes)
        steps.match(run)
        requests, remarks = asking.explain(run, options, writes_texts="content" in store.traits.places)
    wanted = options.embeddings
    embedded = wanted and wanted.model and {"post": f"{wanted.url or options.url}/embeddings"}
    terminal.print_json(
        {
            "sent_to": options.url,
            "model": options.model,
            "requests": requests,
            "remarks": remarks,
            "embeddings": embedded and {**embedded, "input": "the text of each memory, secrets redacted"},
        }
    )
