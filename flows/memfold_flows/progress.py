"""How far a long step is: a bar in a terminal, a line now and then elsewhere, nothing for what takes a moment."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, TextIO

SILENT_SECONDS = 2.0
SECONDS_BETWEEN_LINES = 5.0

Report = Callable[[str, int, int], None]


def ignore(stage: str, done: int, total: int) -> None:
    """Progress that nobody wants to see."""


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

    def __call__(self, stage: str, done: int, total: int) -> None:
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

    def _line(self, stage: str, done: int, total: int, seconds: float) -> str:
        text = f"{stage}: {done:,} of {total:,} {self._unit}"
        if done and seconds > 0:
            text += f", {done / seconds:,.0f} a second, {seconds * (total - done) / done:.0f} s left"
        return text

    def _show_bar(self, stage: str, done: int, total: int) -> None:
        from rich import progress
        from rich.console import Console

        if self._bar is None:
            self._bar = progress.Progress(
                progress.TextColumn("{task.description}"),
                progress.BarColumn(),
                progress.TextColumn("{task.completed:,.0f} of {task.total:,.0f} " + self._unit),
                progress.TimeRemainingColumn(),
                console=Console(file=self._stream),
                transient=True,
            )
            self._bar.start()
            self._bar.add_task(stage)
        self._bar.update(self._bar.task_ids[0], description=stage, completed=done, total=total)
