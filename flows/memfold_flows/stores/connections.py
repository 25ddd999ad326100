"""SQLite connections: opened without creating anything, errors in memfold's own words."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from memfold.errors import StoreError, Transient

#: Agents that wait for a lock usually wait 5 to 10 s; memfold is as patient, and then says so.
BUSY_SECONDS = 5.0

_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def require_database(path: Path) -> None:
    """Refuse a path that is not a file with something in it; whether that is SQLite's shows at the first query.

    Raises:
        StoreError: nothing there, a folder, an empty file, or one that may not be read.
    """
    # A look at its first bytes would be no help but harm: to close a file drops every lock that this process has on it,
    # those of an open connection among them, and an agent that then closes its own removes the log still being written.
    if not path.exists():
        raise StoreError(f"there is no file {path}; nothing was read or created. Check the path.")
    if not path.is_file():
        what = "a folder" if path.is_dir() else "not a regular file"
        raise StoreError(f"{path} is {what}, not a SQLite file; nothing was read or created. Check the path.")
    if not os.access(path, os.R_OK):
        raise StoreError(f"{path} cannot be read (permission denied); nothing was planned or written")
    if path.stat().st_size == 0:
        raise StoreError(f"{path} is an empty file, not a store; nothing was read or created. Check the path.")


def connect_reading(path: Path) -> sqlite3.Connection:
    """A connection that writes nothing and leaves no file behind."""
    # A read-only connection cannot remove the -wal and -shm files that it makes beside a WAL database; one that could
    # write, but only queries, removes them when it closes. Where a log with content stands already, reading only
    # keeps it as it is.
    mode = "ro" if _has_log(path) or not os.access(path, os.W_OK) else "rw"
    connection = _connect(path, mode)
    connection.execute("pragma query_only = on")
    return connection


def connect_writing(path: Path, *, busy_seconds: float = BUSY_SECONDS) -> sqlite3.Connection:
    """A connection for write transactions on a database that exists; it waits this long for each lock."""
    return _connect(path, "rw", busy_seconds)


def connect_for_a_pass(path: Path) -> sqlite3.Connection:
    """A connection for the many transactions of a pass, whose owner calls ``move_log`` between them.

    A commit of SQLite's own moves what was written from its log into the file, which for rows that lie all over a large
    file takes longer than the transaction itself.
    """
    connection = connect_writing(path)
    connection.execute("pragma wal_autocheckpoint = 0")
    return connection


def move_log(connection: sqlite3.Connection) -> None:
    """Move what was committed from the log into the file, as far as nobody reads it there; agents may write meanwhile.

    Nothing is lost where that fails: what stands in the log counts, and the next connection that can moves it.
    """
    with suppress(sqlite3.Error):
        connection.execute("pragma wal_checkpoint(passive)").fetchall()


def connect_creating(path: Path) -> sqlite3.Connection:
    """A connection to a database that is created where it is missing, readable by its owner only."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.is_symlink() or not path.exists():  # to open and close one that is there would drop the locks on it
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600))
    return _connect(path, "rw")


@contextmanager
def sqlite_errors(path: Path, doing: str, *, busy_seconds: float = BUSY_SECONDS) -> Iterator[None]:
    """Turn SQLite's errors into memfold's: Transient where the file is busy or locked, else StoreError.

    ``doing`` completes "...; the store was not changed by ___", for example "this transaction".
    """
    try:
        yield
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in _BUSY:
            raise Transient(
                f"{path} stayed locked for {busy_seconds:g} s; {doing} changed nothing. Try again in a moment."
            ) from error
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_NOTADB:
            raise StoreError(
                f"{path} is not a SQLite file; nothing was read or created. Check the path and the scheme."
            ) from error
        raise StoreError(f"{path}: {error}; {doing} changed nothing") from error


def _connect(path: Path, mode: str, busy_seconds: float = BUSY_SECONDS) -> sqlite3.Connection:
    return sqlite3.connect(
        f"file:{quote(str(path))}?mode={mode}",
        uri=True,
        isolation_level=None,
        timeout=busy_seconds,
        check_same_thread=False,
    )


def _has_log(path: Path) -> bool:
    log = path.with_name(path.name + "-wal")
    try:
        return log.stat().st_size > 0
    except OSError:
        return False
