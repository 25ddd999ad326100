"""What reaches a person: standard output whose reader may leave at any time, and names that are cut short."""

from __future__ import annotations

import io
from typing import Any, TextIO

#: A line for a person; any path and any command fit into it.
LONGEST_LINE = 5_000


def heard_or_not(stream: TextIO) -> TextIO:
    """The same stream, for ``memfold run ... | head``; one that is no file, as in tests, stays as it is."""
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    # Under PYTHONUNBUFFERED the buffer is the file itself.
    if not isinstance(getattr(stream.buffer, "raw", stream.buffer), io.FileIO):
        return stream
    return io.TextIOWrapper(
        io.BufferedWriter(_Unread(stream.fileno(), "wb", closefd=False)),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering or stream.write_through,
    )


def in_short(text: str, most: int) -> str:
    """The text, without its middle where it has more than so many characters."""
    if len(text) <= most:
        return text
    tail = most // 4
    return f"{text[: most - tail - 3]} … {text[-tail:]}"


def count(number: int, one: str, many: str) -> str:
    """A number of things, in words that fit it."""
    return f"{number:,} {one if number == 1 else many}"


class _Unread(io.FileIO):
    """Standard output whose reader may leave: what nobody reads changes neither a pass nor its exit code."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            return len(data)
