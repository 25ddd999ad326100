"""Tombstones: that a memory was forgotten, told by keyed hashes alone, so that nothing brings it back."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Tombstones:
    """The memories that a store was told to forget. Without the key, which stays in its ledger, nobody can tell which.

    ``stones``: the hash of an id -> when it was forgotten, for the hash of each text that it had then.
    """

    key: bytes = b""
    stones: Mapping[str, Mapping[str, datetime]] = field(default_factory=dict)

    def forgot_since(self, memory_id: str, moment: datetime) -> bool:
        """Whether this memory was forgotten after that moment; an id may have been given away again since."""
        return bool(self.stones) and any(
            at >= moment for at in self.stones.get(hash_of(self.key, "id", memory_id), {}).values()
        )

    def forgot_text(self, memory_id: str, content: str) -> bool:
        """Whether this very memory, with this text, was forgotten."""
        return bool(self.stones) and hash_of(self.key, "text", content) in self.stones.get(
            hash_of(self.key, "id", memory_id), {}
        )


def hash_of(key: bytes, what: str, value: str) -> str:
    """A keyed hash: equal for equal values, and of no use to one who would guess them without the key."""
    return hmac.new(key, f"{what}\0{value}".encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()
