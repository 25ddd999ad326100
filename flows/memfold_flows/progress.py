"""How far a long step is: a bar in a terminal, a line now and then elsewhere, nothing for what takes a moment."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    import pyarrow as pa

SILENT_SECONDS = 2.0
SECONDS_BETWEEN_LINES = 5.0

#: Takes a stage, how much of it is done, and how much there is, if that is known.
Report = Callable[[str, int, int | None], None]


def ignore(stage: str, done: int, total: int | None) -> None:
    """Progress that nobody wants to see."""


_shown: ContextVar[Report] = ContextVar("progress", default=ignore)


@contextmanager
def shown(*, quiet: bool = False, unit: str = "memories") -> Iterator[None]:
    """Show what is reported inside of this block, unless it is to be quiet."""
    with Progress(unit=unit) as progress:
        before = _shown.set(ignore if quiet else progress)
        try:
            yield
        finally:
            _shown.reset(before)


def report(stage: str, done: int, total: int | None = None) -> None:
    """Say how far a step is, to whoever wants to see it."""
    _shown.get()(stage, done, total)


def counted(stage: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same batches, each reported as it comes."""
    done = 0
    for batch in batches:
        yield batch
        done += batch.num_rows
        report(stage, done)


class Progress:
    """Shows what it is told: a stage, how much of it is done, and how much there is."""

    def __init__(
        self, *, unit: str = "rows", stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._unit = unit
        self._stream = stream if stream is not None else sys.stderr
        self._clock = clock
        self._began = self._stage_began = clock()
        self._last_line = self._began
        self._stage = ""
        self._bar: Any = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, stage: str, done: int, total: int | None) -> None:
        now = self._clock()
        if stage != self._stage:
            self._stage, self._stage_began = stage, now
        if now - self._began < SILENT_SECONDS:
            return
        if self._stream.isatty():
            self._show_bar(stage, done, total)
        elif now - self._last_line >= SECONDS_BETWEEN_LINES:
            self._last_line = now
            print(self._line(stage, done, total, now - self._stage_began), file=self._stream, flush=True)

    def _line(self, stage: str, done: int, total: int | None, seconds: float) -> str:
        text = f"{stage}: {_amount(done, total)} {self._unit}"
        if done and seconds > 0:
            text += f", {done / seconds:,.0f} a second"
            text += f", {seconds * (total - done) / done:.0f} s left" if total is not None else ""
        return text

    def _show_bar(self, stage: str, done: int, total: int | None) -> None:
        from rich import progress
        from rich.console import Console

        if self._bar is None:
            self._bar = progress.Progress(
                progress.TextColumn("{task.description}"),
                progress.BarColumn(),
                progress.TextColumn("{task.fields[amount]} " + self._unit),
                progress.TextColumn("{task.fields[rate]}"),
                progress.TimeRemainingColumn(),
                console=Console(file=self._stream),
                transient=True,
            )
            self._bar.start()
            self._bar.add_task(stage, amount="", rate="")
        seconds = self._clock() - self._stage_began
        rate = f"{done / seconds:,.0f} a second" if done and seconds > 0 else ""
        task = self._bar.task_ids[0]
        if self._bar.tasks[0].description != stage:
            self._bar.reset(task)
        self._bar.update(task, description=stage, completed=done, total=total, amount=_amount(done, total), rate=rate)


def _amount(done: int, total: int | None) -> str:
    return f"{done:,}" if total is None else f"{done:,} of {total:,}"
