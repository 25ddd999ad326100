"""What the commands share: a store that is opened and closed, a run that is found, a question, an answer."""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer

from memfold.errors import BadUsage
from memfold_flows import stores
from memfold_flows.receipts import ExitCode
from memfold_flows.runs import RunDirectory, find_run, new_run_id, runs_folder, unreadable_runs
from memfold_flows.stores import urls
from memfold_flows.stores.base import MemoryStore
from memfold_flows.streams import LONGEST_LINE, in_short


@contextmanager
def opening(url: str, options: Mapping[str, Any]) -> Iterator[MemoryStore]:
    """A store for as long as a command needs it."""
    store = stores.open_store(url, **options)
    try:
        yield store
    finally:
        store.close()


def locate(reference: str, *, store: str | None, must_be_sure: bool = False) -> RunDirectory:
    """The run that is meant: by its id, its folder or ``latest``, of one store where that is named."""
    if store is not None:
        with opening(store, {}) as opened:
            store = opened.url
    run = find_run(reference, runs_home(), store=store, must_be_sure=must_be_sure)
    for path in unreadable_runs(runs_home()) if reference == "latest" else ():
        if path.name > run.path.name:
            warn(f"{path.name} is newer and damaged, so latest is {run.run_id}; memfold show {path} says what is wrong")
    return run


def is_archive(url: str) -> bool:
    """Whether a store is a file that is written anew, so that a call has to say where."""
    kind = stores.KINDS.get(urls.parse(url).scheme)
    return kind is not None and "in_place" in kind.options()


def ask(question: str, *, declined: str) -> None:
    """Ask on a terminal; without one this is bad usage, for nobody can answer."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise BadUsage(f"there is no terminal to ask on, and no --yes; nothing was written. {question}")
    if not typer.confirm(in_short(question, LONGEST_LINE), err=True):
        say(declined)
        raise typer.Exit(ExitCode.DONE)


def moment(text: str) -> datetime:
    """A moment in ISO 8601; without an offset it is UTC."""
    try:
        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise BadUsage(
            f"--as-of must be a date and time in ISO 8601, such as 2026-01-31T08:00:00Z, got {text!r}"
        ) from None


def now() -> datetime:
    """The clock of the command line."""
    return datetime.now(UTC)


def new_run(began_at: datetime) -> RunDirectory:
    """An empty run directory where runs live."""
    run_id = new_run_id(began_at, secrets.token_bytes(3))
    return RunDirectory.create(runs_home() / run_id, run_id)


def runs_home() -> Path:
    """The folder in which run directories live."""
    return runs_folder(os.environ.get("MEMFOLD_HOME"))


def print_json(value: Mapping[str, Any]) -> None:
    """One JSON document on standard output."""
    print(json_text(value, indent=2))


def json_text(value: Mapping[str, Any], *, indent: int | None = None) -> str:
    is_unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    return json.dumps(value, ensure_ascii=not is_unicode, indent=indent)


def say(text: str) -> None:
    """One line for a person, cut to the width of the terminal."""
    from memfold_flows import console

    console.say(text)


def warn(text: str) -> None:
    """One line on standard error."""
    print(f"memfold: {in_short(text, LONGEST_LINE)}", file=sys.stderr)
