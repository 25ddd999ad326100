"""The arguments and options that several commands share, each with its help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Store = Annotated[str, typer.Argument(metavar="STORE", help="The store, as scheme:path (see: memfold stores).")]
StoreOrSet = Annotated[
    str | None, typer.Argument(metavar="[STORE]", help="The store, as scheme:path; left out: `store` of memfold.yaml.")
]
Run = Annotated[str, typer.Argument(metavar="RUN", help="A run id, a run directory, or latest.")]
OfStore = Annotated[str | None, typer.Option("--store", metavar="URL", help="Only runs of this store.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; for scripts.")]
Out = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Archives: write a new archive to FILE.")]
InPlace = Annotated[bool, typer.Option("--in-place", help="Archives: rewrite the archive itself.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="JSONL: set lines that cannot be read aside into a file.")]
ExplainModel = Annotated[
    bool, typer.Option("--explain-model", help="Show what would be sent to the proposer, as JSON, without sending it.")
]
Scopes = Annotated[list[str] | None, typer.Option("--scope", metavar="S", help="Only this scope (repeatable).")]
OneScope = Annotated[str, typer.Option("--scope", metavar="S", help="The scope; left out: memories without one.")]
IfDue = Annotated[bool, typer.Option("--if-due", help="Only scopes that are due (see: memfold check).")]
AsOf = Annotated[str | None, typer.Option("--as-of", metavar="T", help="Plan as of this moment, in ISO 8601 (now).")]
RunDir = Annotated[Path | None, typer.Option("--run-dir", metavar="DIR", help="Write the run to this new folder.")]
