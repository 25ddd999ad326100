"""How a new version of an archive lands: together with its ledger, or not at all.

A file and a SQLite database cannot be written in one transaction, so both are prepared beside the archive first, and
one rename decides. Everything is in ``.memfold/`` beside the archive and starts with the archive's name:

``NAME.db``       the ledger
``NAME.lock``     held while memfold writes
``NAME.pass``     held by a flow over its whole pass
``NAME.new``      the next version of the archive
``NAME.next.db``  the ledger that belongs to it
``NAME.intent``   the digest of that version: once the archive has it, the next ledger is the ledger
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from memfold.errors import StoreError, Transient
from memfold_flows.files import make_own_folder, sync
from memfold_flows.stores.bookkeeping import ledger_file


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What tells one state of a file from another."""

    device: int
    inode: int
    size: int
    modified_ns: int
    digest: str


def fingerprint(path: Path) -> Fingerprint:
    """The state of a file now; the digest is read first, so that a write during the reading shows."""
    digest = file_digest(path)
    found = path.stat()
    return Fingerprint(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, digest)


def file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def was_written(path: Path) -> bool:
    """Whether memfold has written this archive: then it may hold nothing, and an undo may fill it again."""
    return Landing(path).readable_ledger().exists()


@contextmanager
def file_errors(path: Path) -> Iterator[None]:
    """Turn the system's errors into memfold's."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror or error}; the archive was not changed") from error


class Landing:
    """The files beside one archive, and the steps by which a new version of it lands."""

    def __init__(self, archive: Path) -> None:
        self.archive = archive
        self.ledger = ledger_file(archive)
        self.folder = self.ledger.parent
        self.next_ledger = self._beside(".next.db")
        self.new = self._beside(".new")
        self.pass_lock = self._beside(".pass")
        self._intent = self._beside(".intent")

    def readable_ledger(self) -> Path:
        """The ledger that belongs to the archive as it stands, also where a crash left two; changes nothing."""
        return self.next_ledger if self._has_landed() and self.next_ledger.exists() else self.ledger

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other memfolds from writing this archive; settle what a crash left behind, before and after.

        Raises:
            Transient: another memfold is writing it.
        """
        with file_errors(self.archive):
            make_own_folder(self.folder)
            descriptor = os.open(self._beside(".lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            self._take(descriptor)
            self._settle()
            try:
                yield
            finally:
                # Also a landing that failed half-way: its rename happened, or it did not.
                self._settle()
        finally:
            os.close(descriptor)

    def begin(self, ledger: Path) -> None:
        """Start the next ledger as a copy of the one given, where there is one."""
        if ledger.exists():
            shutil.copyfile(ledger, self.next_ledger)
            self.next_ledger.chmod(0o600)

    @contextmanager
    def writing_new(self, like: os.stat_result | None) -> Iterator[BinaryIO]:
        """Write the next version, durably; with the mode and, where possible, the owner of the file it replaces."""
        descriptor = os.open(self.new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb", buffering=1 << 20) as file:
            yield file
            if like is not None:
                _take_owner_and_mode(descriptor, like)
            file.flush()
            os.fsync(descriptor)

    def land_ledger(self) -> None:
        """Make the next ledger the ledger; the archive stays as it is."""
        sync(self.next_ledger)
        os.replace(self.next_ledger, self.ledger)
        sync(self.folder)

    def land(self, *, read_from: Path, as_read: Fingerprint, in_place: bool) -> None:
        """Make the new version the archive and the next ledger its ledger.

        Raises:
            StoreError: the file that was read has changed since, or a new archive exists by now.
        """
        self._write_intent(file_digest(self.new))
        if fingerprint(read_from) != as_read:
            raise StoreError(
                f"{read_from} changed while it was being rewritten; nothing was written. "
                "Let its writers finish, then plan again."
            )
        if in_place:
            os.replace(self.new, self.archive)
        else:
            self._create_archive()
        sync(self.archive.parent)
        self.land_ledger()
        self._drop_intent()

    def _create_archive(self) -> None:
        try:
            # A link, because a rename would silently replace a file that appeared a moment ago.
            os.link(self.new, self.archive)
        except FileExistsError:
            raise StoreError(
                f"{self.archive} exists by now; it was not overwritten. Choose another file for --out."
            ) from None

    def _beside(self, suffix: str) -> Path:
        return self.folder / f"{self.archive.name}{suffix}"

    def _take(self, descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Transient(
                f"another memfold is writing {self.archive}; nothing was written. Try again in a moment."
            ) from None

    def _has_landed(self) -> bool:
        try:
            return self._intent.read_text() == file_digest(self.archive)
        except FileNotFoundError:
            return False

    def _settle(self) -> None:
        """Finish a landing whose rename happened; drop one whose rename did not."""
        with file_errors(self.archive):
            if self._has_landed() and self.next_ledger.exists():
                self.land_ledger()
            if self._intent.exists():
                self._drop_intent()
            journal = self._beside(".next.db-journal")
            for left_over in (self.new, journal, self.next_ledger):
                left_over.unlink(missing_ok=True)

    def _drop_intent(self) -> None:
        # One that a power cut brought back would vouch for the unfinished ledger of a later landing.
        self._intent.unlink()
        sync(self.folder)

    def _write_intent(self, digest: str) -> None:
        descriptor = os.open(self._intent, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(digest)
            file.flush()
            os.fsync(descriptor)
        sync(self.folder)


def _take_owner_and_mode(descriptor: int, like: os.stat_result) -> None:
    # Only root gives files away; otherwise the new version belongs to whoever runs memfold.
    with suppress(PermissionError):
        os.fchown(descriptor, like.st_uid, like.st_gid)
    os.fchmod(descriptor, like.st_mode & 0o7777)
