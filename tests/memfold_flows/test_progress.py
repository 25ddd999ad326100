"""Progress of long steps."""

from __future__ import annotations

import io

from memfold_flows.progress import Progress


class Seconds:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_short_step_says_nothing() -> None:
    """What is done within two seconds needs no progress."""
    clock, out = Seconds(), io.StringIO()
    with Progress(stream=out, clock=clock) as progress:
        clock.now = 1.9
        progress("reading", 5, 10)

    assert out.getvalue() == ""


def test_a_long_step_says_how_far_it_is_now_and_then() -> None:
    """Outside a terminal: a line every five seconds with the stage, the rows, the rate and the time left."""
    clock, out = Seconds(), io.StringIO()
    with Progress(stream=out, clock=clock) as progress:
        progress("reading", 0, 10_000)
        for clock.now in (5.0, 6.0, 10.0):
            progress("reading", int(clock.now) * 500, 10_000)

    assert out.getvalue().splitlines() == [
        "reading: 2,500 of 10,000 rows, 500 a second, 15 s left",
        "reading: 5,000 of 10,000 rows, 500 a second, 10 s left",
    ]
