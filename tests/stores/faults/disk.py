"""What a disk holds after the power went: what was synced, and nothing that memfold had not waited for.

A folder is watched while a command runs in it. A file is on the disk with what it held when it was last synced; a name
is there once its folder was synced. SQLite syncs its own files, so what is in them counts as written; a name that
memfold itself gave to one of them does not.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

_OF_SQLITE = (".db", ".db-journal", ".db-wal", ".db-shm")


class Disk:
    """The folder as it would be found again, kept up to date by watching what is synced."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        #: The names that are on the disk, with their file; what each file holds there.
        self._names: dict[Path, int] = {}
        self._contents: dict[int, bytes] = {}
        #: Names that memfold gave or took since the folder was synced.
        self._renamed: set[Path] = set()
        self._held: list[BinaryIO] = []
        for path in sorted(folder.rglob("*")):
            self._remember(path)

    def watch(self) -> None:
        """Take note of every sync and every rename from now on."""
        for name, told in (("fsync", self._synced), ("replace", self._moved), ("rename", self._moved)):
            _tell_after(name, told)
        _tell_after("link", self._moved)

    def lose(self, *, keeps_names: bool) -> None:
        """Put the folder into the state that it is found in: names or contents that were not synced are gone."""
        now = {path: path.stat().st_ino for path in sorted(self._folder.rglob("*"))}
        for path, inode in now.items():
            if path.name.endswith(_OF_SQLITE):
                self._contents[inode] = path.read_bytes()
                if path not in self._renamed:
                    self._names[path] = inode
        names = now if keeps_names else self._names
        folders = {path for path in names if path.is_dir()}
        contents = {path: self._contents.get(inode, b"") for path, inode in names.items() if path not in folders}
        shutil.rmtree(self._folder)
        for path in (self._folder, *sorted(folders)):
            path.mkdir(mode=0o700)
        for path, content in contents.items():
            if path.parent.is_dir():
                path.write_bytes(content)
                path.chmod(0o600)

    def _remember(self, path: Path) -> None:
        inode = path.stat().st_ino
        self._names[path] = inode
        if path.is_file():
            self._contents[inode] = path.read_bytes()
            # As long as somebody has it open, no other file gets its number.
            self._held.append(path.open("rb"))

    def _synced(self, descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if not path.is_relative_to(self._folder):
            return
        if path.is_file():
            self._contents[path.stat().st_ino] = path.read_bytes()
            return
        self._names = {name: inode for name, inode in self._names.items() if name.parent != path or name.exists()}
        self._names |= {name: name.stat().st_ino for name in path.iterdir()}
        self._renamed = {name for name in self._renamed if name.parent != path}

    def _moved(self, source: Any, target: Any) -> None:
        self._renamed |= {Path(source), Path(target)}


def _tell_after(name: str, told: Callable[..., None]) -> None:
    real = getattr(os, name)

    def call(*given: Any, **options: Any) -> Any:
        result = real(*given, **options)
        told(*given)
        return result

    setattr(os, name, call)
