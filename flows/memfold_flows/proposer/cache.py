"""Answers of before, so that no question is paid twice: known by the digest of the question, without its texts."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memfold.questions import SCHEMA_VERSION, as_json
from memfold_flows.files import PRIVATE_FOLDER, write_bytes


@dataclass(frozen=True, slots=True)
class Cache:
    """One file per answer, which only its owner may read."""

    folder: Path

    def get(self, digest: str) -> Any:
        """The answer to the question of this digest; None where there is none that can be read."""
        try:
            return json.loads((self.folder / f"{digest}.json").read_bytes())["answer"]
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def put(self, digest: str, answer: Any) -> None:
        """Keep an answer that was checked."""
        self.folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        write_bytes(self.folder / f"{digest}.json", as_json({"answer": answer}).encode())


def clear(home: Path) -> None:
    """Remove every answer: one that was written from a memory may hold its words."""
    for file in folder_of(home).glob("*.json"):
        file.unlink(missing_ok=True)


def folder_of(home: Path) -> Path:
    """Where answers lie, beside the runs."""
    return home / "answers"


def digest_of(model: str, kind: str, asked: Any) -> str:
    """What a question is known by: the model, what it is asked, and the form of the answer."""
    return hashlib.sha256(as_json([SCHEMA_VERSION, model, kind, asked]).encode("utf-8", "surrogatepass")).hexdigest()
