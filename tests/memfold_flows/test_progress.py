"""Progress of long steps."""

from __future__ import annotations

import io

import pyarrow as pa

from memfold_flows.progress import Progress, counted, report, shown


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


def test_a_step_of_unknown_size_says_how_much_is_done() -> None:
    """A store is read before anyone knows how many memories it holds."""
    clock, out = Seconds(), io.StringIO()
    with Progress(unit="memories", stream=out, clock=clock) as progress:
        progress("reading", 0, None)
        clock.now = 5.0
        progress("reading", 20_000, None)

    assert out.getvalue() == "reading: 20,000 memories, 4,000 a second\n"


def test_what_nobody_wants_to_see_is_not_shown(monkeypatch) -> None:
    """With --quiet, and outside of a command, reports go nowhere."""
    said: list[tuple[str, int, int | None]] = []
    monkeypatch.setattr(Progress, "__call__", lambda self, *what: said.append(what))

    report("reading", 1)
    with shown(quiet=True):
        report("reading", 2)
    with shown():
        report("reading", 3)
    report("reading", 4)

    assert said == [("reading", 3, None)]


def test_batches_are_counted_as_they_come(monkeypatch) -> None:
    """The rows of a snapshot are reported batch by batch, and handed on as they are."""
    said: list[tuple[str, int, int | None]] = []
    monkeypatch.setattr(Progress, "__call__", lambda self, *what: said.append(what))
    batches = [pa.record_batch({"memory_id": ["a", "b"]}), pa.record_batch({"memory_id": ["c"]})]

    with shown():
        assert list(counted("reading", batches)) == batches

    assert said == [("reading", 2, None), ("reading", 3, None)]


def test_a_terminal_shows_a_bar(monkeypatch) -> None:
    """Stage, rows, rate and time left in one line, which is gone at the end."""
    clock, out = Seconds(), Terminal()
    with Progress(unit="memories", stream=out, clock=clock) as progress:
        for clock.now in (0.0, 4.0):
            progress("reading texts", int(clock.now) * 250, 4_000)

    assert "reading texts" in out.getvalue()
    assert "1,000 of 4,000 memories" in out.getvalue()
    assert "250 a second" in out.getvalue()


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True
