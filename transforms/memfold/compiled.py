"""Functions compiled by numba, and kept compiled between runs where a folder for that can be written."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable
from typing import Any

import numba
from numba.core import event

logger = logging.getLogger(__name__)

#: What reading a cache file may end in when it is damaged, of another version, or half written by another process.
UNREADABLE = (ImportError, OSError, EOFError, RuntimeError, ValueError, KeyError, TypeError, pickle.PickleError)


def jit(signature: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile a function for this one signature, from numba's cache if possible.

    A cache that cannot be read or written costs the seconds of compiling, never the run.
    """

    def compile_now(function: Callable[..., Any]) -> Callable[..., Any]:
        try:
            return numba.njit(signature, cache=True, nogil=True)(function)
        except UNREADABLE as error:
            logger.info("compiled %s without numba's cache: %s", function.__name__, error)
            return numba.njit(signature, nogil=True)(function)

    return compile_now


class _FirstCompilation(event.Listener):
    """Says once that something is being compiled; numba tells of it only where its cache did not help."""

    is_said = False

    def on_start(self, event: Any) -> None:
        if not self.is_said:
            self.is_said = True
            logger.warning("compiling for this machine: some ten seconds, and only this once")

    def on_end(self, event: Any) -> None:
        """Nobody waits for this."""


event.register("numba:compile", _FirstCompilation())  # type: ignore[no-untyped-call]
