"""Single values of a record, each read as what it must be; null is null.

Errors are ``ValueError`` with the name of the field and what is wrong; the caller adds the place.
"""

from __future__ import annotations

import math
from typing import Any


def read_text(value: Any, name: str) -> str | None:
    """Text that any encoding can hold."""
    if value is None:
        return None
    if not isinstance(value, str):
        # Without the value: it may be the memory's text.
        raise ValueError(f"{name} must be text, got {type_of(value)}")
    if not value.isascii():
        _require_characters(value, name)
    return value


def read_identifier(value: Any, name: str) -> str | None:
    """Text, or a whole number in its digits."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name} must be text or a whole number, got {shown(value)}")
    return read_text(value, name)


def read_memory_id(value: Any, name: str) -> str | None:
    """An identifier that is not empty."""
    found = read_identifier(value, name)
    if found == "":
        raise ValueError(f"{name} must not be empty")
    return found


def read_words(value: Any, name: str) -> tuple[str, ...] | None:
    """A list of texts."""
    if value is None:
        return None
    if not isinstance(value, list):
        raise ValueError(f"{name} must be a list, got {shown(value)}")
    for word in value:
        if not isinstance(word, str):
            raise ValueError(f"{name} must be a list of texts, got {shown(word)} in it")
        read_text(word, name)
    return tuple(value)


def read_flag(value: Any, name: str) -> bool | None:
    """True or false, also as 1 or 0."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and value in (0, 1):
        return bool(value)
    raise ValueError(f"{name} must be true or false, got {shown(value)}")


def read_number(value: Any, name: str) -> float | None:
    """A finite number."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} must be a number, got {shown(value)}")
    try:
        number = float(value)
    except OverflowError:
        number = float("inf")
    if math.isinf(number):
        raise ValueError(f"{name} must be a finite number, got {shown(value)}")
    # Not a number is how a table of floats says that a value is missing.
    return None if math.isnan(number) else number


def read_count(value: Any, name: str) -> int | None:
    """A whole number that is not negative, also as 3.0."""
    if isinstance(value, float):
        if math.isnan(value):
            return None
        if not value.is_integer():
            raise ValueError(f"{name} must be a whole number, got {shown(value)}")
        value = int(value)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63):
        raise ValueError(f"{name} must be a whole number from 0 to 2^63 - 1, got {shown(value)}")
    return value


def shown(value: Any) -> str:
    """A value as an error shows it: short, and nothing of what is inside a list or an object."""
    words = repr(value) if isinstance(value, str | bool | float | type(None)) else type_of(value)
    if isinstance(value, int) and not isinstance(value, bool):
        words = str(value) if -(10**30) < value < 10**30 else "a number of more than 30 digits"
    return words if len(words) <= 60 else f"{words[:57]}..."


def type_of(value: Any) -> str:
    """The kind of a value in JSON's words."""
    known = {dict: "an object", list: "a list", bool: "true or false", int: "a number", float: "a number", str: "text"}
    return known.get(type(value), type(value).__name__)


def _require_characters(value: str, name: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{name} holds half a surrogate pair (character {error.start})") from None
