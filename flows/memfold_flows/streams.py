"""Standard output as a program writes to it whose reader may leave at any time."""

from __future__ import annotations

import io
from typing import Any, TextIO


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


class _Unread(io.FileIO):
    """Standard output whose reader may leave: what nobody reads changes neither a pass nor its exit code."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            return len(data)
