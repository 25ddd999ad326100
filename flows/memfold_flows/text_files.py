"""Text files that a person hands to a command: read whole, and what cannot be read is named with its place."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from memfold.errors import BadUsage, MemfoldError


def read(path: Path, *, not_done: str, error: type[MemfoldError]) -> str:
    """The text of a file, its line ends as they are.

    Raises:
        BadUsage: there is no such file, or it may not be read; the message ends with what was ``not_done``.
        error: it is not UTF-8.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise BadUsage(f"there is no file {path}; {not_done}") from None
    except OSError as failed:
        raise BadUsage(f"{path} cannot be read ({failed.strerror}); {not_done}") from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as failed:
        is_utf_16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        found = "is UTF-16" if is_utf_16 else f"is not UTF-8 at byte {failed.start}"
        raise error(f"{path} {found}; {not_done}. Save it as UTF-8") from None


def records(path: Path, *, not_done: str, error: type[MemfoldError]) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """The objects of a JSON Lines file, each with the number of its line and the name of that place; no blank lines.

    Raises:
        BadUsage: as ``read`` says.
        error: it is not UTF-8, or a line is not a JSON object.
    """
    # Not splitlines: a text may hold what Unicode calls a line end.
    for number, line in enumerate(read(path, not_done=not_done, error=error).split("\n"), start=1):
        if line.strip():
            place = f"{path}, line {number}"
            yield number, place, _record(line, place, not_done, error)


def _record(line: str, place: str, not_done: str, error: type[MemfoldError]) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError as failed:
        raise error(f"{place} is not JSON ({failed}); {not_done}") from None
    if not isinstance(record, dict):
        raise error(f"{place} is not a JSON object; {not_done}")
    return record
