"""The errors of memfold: each says what is wrong, the value, what was not done and what to do next."""

from __future__ import annotations


class MemfoldError(Exception):
    """Anything memfold refuses or fails at with a message meant for a person."""


class BadUsage(MemfoldError):
    """The call cannot work as it was made: a wrong option, a missing choice. Exit code 2."""


class PlanDamaged(MemfoldError):
    """A run directory does not hold the plan that was made; nothing is written from it."""


class CannotWrite(MemfoldError):
    """A file of a run that cannot be written: the disk is full, or its folder is closed to us."""


class StoreError(MemfoldError):
    """A store that cannot be opened, read or written; retrying alone does not help."""


class BadRecord(StoreError):
    """A record of a store that cannot be read; it is named by its place (a line, an id)."""


class Transient(StoreError):
    """A store that is busy or locked: the same call may work a moment later."""


class ApplyInterrupted(MemfoldError):
    """An apply or undo that stopped half way: what was committed stands; the same call goes on from there."""
