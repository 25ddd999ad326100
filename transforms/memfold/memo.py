"""Answers that are remembered: a dictionary is several times faster than a cache that keeps track of use."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")

#: Answers that one memo holds, some 200 bytes each; then it forgets them all.
ANSWERS_KEPT = 1 << 19


class Memo(dict[Key, Value]):
    """The answer to each key, asked for once."""

    def __init__(self, answer: Callable[[Key], Value]) -> None:
        super().__init__()
        self._answer = answer

    def __missing__(self, key: Key) -> Value:
        if len(self) >= ANSWERS_KEPT:
            self.clear()
        found = self[key] = self._answer(key)
        return found
