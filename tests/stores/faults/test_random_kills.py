"""Kills at moments that nobody chose: before any line of memfold's own, and at any time, inside the libraries too."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from .conftest import Ended, Struck

#: Each cluster of two is a transaction of its own where the store has transactions.
SMALL = {"rows_per_transaction": 2}
KILLED = -9


def test_ten_kills_at_random_moments_lose_nothing(system: str, strike: Callable[[str], Struck]) -> None:
    """Each cluster is old or new; the same command goes on to the end, and an undo brings all of it back."""
    assert _kill_at_random(strike(system), times=10) >= 5


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_two_hundred_kills_at_random_moments_lose_nothing(system: str, strike: Callable[[str], Struck]) -> None:
    """The same, often enough to meet every step."""
    kills = landed = 0
    while landed < 200:
        landed += _kill_at_random(strike(system), times=20, first=kills)
        kills += 20


def _kill_at_random(struck: Struck, *, times: int, first: int = 0) -> int:
    """Strike this often; returns how many of the commands were killed, as one may end before its time."""
    killed = 0
    for number in range(first, first + times):
        dice = random.Random(f"{struck.scheme} {number}")
        is_undo = dice.random() < 0.3
        struck.back_to("applied" if is_undo else "planned")
        command = struck.undo if is_undo else struck.apply
        killed += _strike(command, dice).code == KILLED
        state = struck.state()
        _end(struck, state, is_undo=is_undo, number=number)
    return killed


def _strike(command: Callable[..., Ended], dice: random.Random) -> Ended:
    if dice.random() < 0.5:
        return command(kill_after_seconds=dice.uniform(0.01, 0.12), **SMALL)
    return command(kill_at_line=_LINES.draw(command, dice), **SMALL)


def _end(struck: Struck, state: str, *, is_undo: bool, number: int) -> None:
    runs = struck.history()
    if state == "part":
        assert runs[0]["state"] in ("InTheMiddleOfApply", "InTheMiddleOfUndo"), number
    if not is_undo:
        again = struck.apply(**SMALL)
        assert again.code == 0, (number, again.said)
        assert struck.state() == "new", number
        assert (struck.run_dir / "receipt.json").is_file()
    back = struck.undo(**SMALL)
    assert back.code == 0, (number, back.said)
    assert struck.filled.everything() == struck.untouched, number


class _Lines:
    """How many lines a command takes, asked once for each store and command."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {}

    def draw(self, command: Callable[..., Ended], dice: random.Random) -> int:
        """One of the lines that this command takes."""
        struck: Struck = command.__self__  # type: ignore[attr-defined]
        key = (struck.scheme, command.__name__)
        if key not in self._counts:
            counted = command(counts_lines=True, **SMALL)
            self._counts[key] = int(counted.said.split()[-2])
            struck.back_to("applied" if command.__name__ == "undo" else "planned")
        return dice.randint(1, self._counts[key])


_LINES = _Lines()
