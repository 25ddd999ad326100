"""Where the two SQLite files of a PraisonAI ``Memory`` are, and whether they are what they should be.

PraisonAI's own API creates what it does not find, so a wrong path would read as an empty memory. Nothing here creates
anything, and a file is looked at without the right to write before anybody may open it for writing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from memfold.errors import BadUsage, StoreError
from memfold_flows.stores.connections import connect_reading, connect_writing, require_database, sqlite_errors
from memfold_flows.stores.praisonai_rows import LONG_TERM, SHORT_TERM, TIERS, read_text
from memfold_flows.stores.urls import local_path

OPTIONS = {
    "user": "the user whose pair of files is meant, where the folder holds several",
    "short_db": "the short-term file, absolute or seen from the folder; goes with long_db",
    "long_db": "the long-term file, absolute or seen from the folder; goes with short_db",
    "db_path": "the one file that holds both tiers, absolute or seen from the folder",
}

#: How long memfold waits for an agent to let go of a file.
BUSY_SECONDS = 2.0
_COLUMNS = {"id", "content", "metadata", "timestamp"}


class TierNotUsed(StoreError):
    """A tier has no file or no table; PraisonAI makes both when an agent first uses it."""


@dataclass(frozen=True, slots=True)
class MemoryFiles:
    """The files of the two tiers; one and the same where PraisonAI was given a ``db_path``."""

    short_term: Path
    long_term: Path

    @property
    def is_one_file(self) -> bool:
        return self.short_term.samefile(self.long_term)

    def of(self, tier: str) -> Path:
        return self.short_term if tier == SHORT_TERM else self.long_term


def find(path: str, options: Mapping[str, str]) -> MemoryFiles:
    """The files that a ``praisonai:`` URL names, checked.

    Raises:
        BadUsage: the options contradict each other, or the folder holds several pairs and none was chosen.
        StoreError: a file is missing, is not SQLite, or does not hold the table of its tier.
    """
    folder = local_path(path)
    files = _named(folder, options) or _in_folder(folder, options.get("user"))
    for tier in TIERS:
        _check(files.of(tier), tier)
    return files


def open_reading(file: Path) -> sqlite3.Connection:
    """A connection that cannot write."""
    connection = connect_reading(file)
    connection.text_factory = read_text
    return connection


def open_writing(files: MemoryFiles) -> tuple[sqlite3.Connection, dict[str, str]]:
    """A connection over both tiers, and the name by which each tier's database goes on it; long term is the main one.

    Each wait for a lock is short, as agents wait 10 s for ours.
    """
    connection = connect_writing(files.long_term, busy_seconds=BUSY_SECONDS)
    connection.text_factory = read_text
    # A spill of the page cache would lock out readers long before the commit.
    connection.execute("pragma cache_spill = off")
    schemas = dict.fromkeys(TIERS, "main")
    if not files.is_one_file:
        connection.execute("attach database ? as short_term", (f"{files.short_term.as_uri()}?mode=rw",))
        schemas[SHORT_TERM] = "short_term"
    return connection, schemas


def _named(folder: Path, options: Mapping[str, str]) -> MemoryFiles | None:
    named = {name: folder / options[name] for name in ("short_db", "long_db", "db_path") if options.get(name)}
    if not named:
        return MemoryFiles(folder, folder) if folder.is_file() else None
    if "user" in options or set(named) not in ({"short_db", "long_db"}, {"db_path"}):
        given = ", ".join(sorted(name for name in OPTIONS if name in options))
        raise BadUsage(f"a praisonai: store takes short_db and long_db, or db_path, or user; got {given}")
    if "db_path" in named:
        return MemoryFiles(named["db_path"], named["db_path"])
    return MemoryFiles(named["short_db"], named["long_db"])


def _in_folder(folder: Path, user: str | None) -> MemoryFiles:
    if not folder.is_dir():
        raise StoreError(f"there is no folder {folder}; nothing was created. Name the folder of PraisonAI's memory")
    suffixes = _suffixes(folder)
    if user is not None:
        suffix = _suffix_of(user)
        if suffix not in suffixes:
            raise StoreError(f"{folder} holds no memory of user {user!r}; {_held(suffixes)}")
    elif len(suffixes) == 1:
        (suffix,) = suffixes
    elif suffixes:
        users = ", ".join(f"{SHORT_TERM}{suffix}.db" for suffix in suffixes)
        raise BadUsage(
            f"{folder} holds {len(suffixes)} memories ({users}); choose one with ?user=NAME, "
            f"or with ?short_db=FILE&long_db=FILE"
        )
    else:
        raise StoreError(f"{folder} holds no short_term*.db and no long_term*.db{_hint(folder)}; nothing was created")
    return MemoryFiles(folder / f"{SHORT_TERM}{suffix}.db", folder / f"{LONG_TERM}{suffix}.db")


def _suffixes(folder: Path) -> list[str]:
    """What stands between the tier and ``.db`` in the names of the files, for each pair or half of one."""
    names = (file.name for tier in TIERS for file in folder.glob(f"{tier}*.db"))
    return sorted({name.removeprefix(SHORT_TERM).removeprefix(LONG_TERM).removesuffix(".db") for name in names})


def _suffix_of(user: str) -> str:
    """PraisonAI's own rule: anything but letters, digits, ``-_.`` becomes ``_``."""
    safe = "".join(character if character.isalnum() or character in "-_." else "_" for character in user.strip())
    return f"_{safe}" if safe else ""


def _held(suffixes: list[str]) -> str:
    if not suffixes:
        return "it holds no memory at all"
    return "it holds " + ", ".join(f"{SHORT_TERM}{suffix}.db" for suffix in suffixes)


def _hint(folder: Path) -> str:
    if (folder / ".praisonai").is_dir():
        return f"; {folder / '.praisonai'} is there, name that folder"
    if (folder / "long_term.json").is_file() or (folder / "short_term.json").is_file():
        return ", but a FileMemory (JSON files), which is another kind of store"
    if any(folder.glob("chroma_db*")):
        return ", but a Chroma memory, which only a Consolidator in its agent's own process takes"
    return ""


def _check(file: Path, tier: str) -> None:
    if not file.exists():
        raise TierNotUsed(
            f"there is no file {file}; nothing was read or created. "
            f"Check the path; PraisonAI makes this file when an agent first uses its {tier} memory. One that "
            "never did makes both with get_all_memories(), or with a Consolidator in its own process."
        )
    require_database(file)
    with sqlite_errors(file, "opening the store"), closing(open_reading(file)) as connection:
        columns = {row[1] for row in connection.execute(f"pragma table_info({tier}_memory)")}
    if not columns >= _COLUMNS:
        missing = f"columns {', '.join(sorted(_COLUMNS - columns))} in" if columns else "table"
        raise (StoreError if columns else TierNotUsed)(
            f"{file} has no {missing} {tier}_memory, so it is no {tier} memory of PraisonAI; nothing was created"
        )
