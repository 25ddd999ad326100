"""How new versions of the two JSON files of a ``FileMemory`` land, together with the ledger.

Two renames are not one. So the new files and the new ledger are made durable first, in ``.memfold/`` beside the
memory, then a journal that names them, then the renames. Whoever opens the memory next and finds the journal, be it
only to plan, finishes the work if a rename has happened, and drops it if none has. A file that an agent has written in
between keeps the agent's version.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from memfold.errors import StoreError, Transient
from memfold_flows.files import make_own_folder, sync, write_bytes

MISSING = "missing"


def file_digest(path: Path) -> str:
    """The digest of the bytes of a file; a word of its own for a file that is not there."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError:
        return MISSING


class FilesLanding:
    """The journal and the files beside one ``FileMemory``."""

    def __init__(self, folder: Path) -> None:
        self._memory = folder
        self.folder = folder / ".memfold"
        self.ledger = self.folder / "praisonai-file.db"
        self.next_ledger = self.folder / "praisonai-file.next.db"
        self.pass_lock = self.folder / "pass"
        self._journal = self.folder / "landing.json"

    def readable_ledger(self) -> Path:
        """The ledger that belongs to the files as they stand, also after a crash; changes nothing."""
        return self.next_ledger if self._has_begun() and self.next_ledger.exists() else self.ledger

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other memfolds away; settle what a crash left behind, before and after.

        Raises:
            Transient: another memfold is writing this memory.
        """
        with self._errors():
            make_own_folder(self.folder)
            descriptor = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Transient(
                    f"another memfold is writing {self._memory}; nothing was written. Try again in a moment."
                ) from None
            with self._errors():
                self._settle()
            try:
                yield
            finally:
                with self._errors():
                    self._settle()
        finally:
            os.close(descriptor)

    def recover(self) -> bool:
        """Finish or drop what a crash left behind; False where there is nothing, or another memfold is at it."""
        if not self._journal.exists():
            return False
        try:
            with self.locked():
                return True
        except Transient:
            return False

    def begin(self) -> None:
        """Start the next ledger as a copy of the ledger, where there is one."""
        with self._errors():
            if self.ledger.exists():
                shutil.copyfile(self.ledger, self.next_ledger)
                self.next_ledger.chmod(0o600)

    def land(self, contents: Mapping[str, bytes], as_read: Mapping[str, str]) -> None:
        """Make these the contents of the files, by name, and the next ledger the ledger.

        Raises:
            StoreError: a file has changed since it was read; nothing was written.
        """
        for name, content in contents.items():
            write_bytes(self._new(name), content)
        landing = {
            name: {"old": as_read[name], "new": hashlib.sha256(content).hexdigest()}
            for name, content in contents.items()
        }
        write_bytes(self._journal, json.dumps(landing).encode())
        # From here to the last rename, a write by an agent would be lost: it takes no lock that others could hold.
        for name, digest in as_read.items():
            if file_digest(self._memory / name) != digest:
                raise StoreError(
                    f"{self._memory / name} was written while it was being consolidated; nothing was written. "
                    "Let its agents finish, then run the pass again."
                )
        with self._errors():
            for name in contents:
                os.replace(self._new(name), self._memory / name)
            sync(self._memory)
            self.land_ledger()

    def land_ledger(self) -> None:
        """Make the next ledger the ledger and end the landing."""
        sync(self.next_ledger)
        os.replace(self.next_ledger, self.ledger)
        sync(self.folder)
        self._drop_journal()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn the system's errors into memfold's."""
        try:
            yield
        except OSError as error:
            raise StoreError(
                f"{error.filename or self.folder}: {error.strerror or error}; the memory stands wholly as it "
                "was, or as it was to become, and the next command finds out which"
            ) from error

    def _settle(self) -> None:
        """Finish a landing of which a rename has happened; drop one of which none has."""
        landing = self._read_journal()
        if self._has_begun() and self.next_ledger.exists():
            for name, digests in landing.items():
                if self._new(name).exists() and file_digest(self._memory / name) == digests["old"]:
                    os.replace(self._new(name), self._memory / name)
            sync(self._memory)
            self.land_ledger()
        self._drop_journal()
        for left_over in (*self.folder.glob("*.new"), *self.folder.glob("praisonai-file.next.db*")):
            left_over.unlink()

    def _drop_journal(self) -> None:
        # One that a power cut brought back would vouch for the unfinished ledger of a later landing.
        if self._journal.exists():
            self._journal.unlink()
            sync(self.folder)

    def _has_begun(self) -> bool:
        return any(
            file_digest(self._memory / name) == digests["new"] or not self._new(name).exists()
            for name, digests in self._read_journal().items()
        )

    def _read_journal(self) -> dict[str, dict[str, str]]:
        try:
            journal: dict[str, dict[str, str]] = json.loads(self._journal.read_bytes())
        except FileNotFoundError:
            return {}
        return journal

    def _new(self, name: str) -> Path:
        return self.folder / f"{name}.new"
