"""Which process holds a lease, told so that a later one can be sure that it has ended."""

from __future__ import annotations

import os
from pathlib import Path

_ENDED = ("Z", "X", "x")


def this_process() -> str | None:
    """The mark of this process: its boot, its process namespace, its number and its start; None where unknown.

    Two machines never share a boot id, and two containers of one machine never share a namespace, so that a number is
    only ever looked up where it was given out.
    """
    where, began = _where(), _state_and_start(os.getpid())
    return None if where is None or began is None else f"{where} {os.getpid()} {began[1]}"


def has_ended(mark: str | None) -> bool:
    """Whether the process of this mark is known to have ended; False where that cannot be told from here."""
    parts = (mark or "").split(" ")
    if len(parts) != 4 or " ".join(parts[:2]) != _where() or not parts[2].isdecimal():
        return False
    found = _state_and_start(int(parts[2]))
    return found is None or found[0] in _ENDED or found[1] != parts[3]


def _where() -> str | None:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:  # a system without /proc: its leases run out
        return None


def _state_and_start(number: int) -> tuple[str, str] | None:
    """The state and the start of a process of this machine; None where there is none."""
    try:
        text = Path(f"/proc/{number}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name of the program comes second, in brackets, and may hold anything.
    fields = text.rpartition(")")[2].split()
    return fields[0], fields[19]
