"""Store URLs: ``scheme:path`` or ``scheme:///path``, options as a query, special characters as ``%XX``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote

from memfold.errors import BadUsage


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """A store URL in its parts. ``path`` is as written, decoded; ``~`` is the home folder, no path the current one."""

    scheme: str
    path: str
    options: dict[str, str] = field(default_factory=dict)


def parse(url: str) -> StoreUrl:
    """Split a store URL into scheme, path and options.

    Raises:
        BadUsage: no scheme, neither path nor options, a host where there is none, an option twice or without a value.
    """
    scheme, colon, rest = url.partition(":")
    if not colon or not scheme.replace("-", "_").isidentifier():
        raise BadUsage(f"store {url!r} names no scheme; write it as scheme:path, for example sqlite:{url or 'FILE'}")
    path, _, query = rest.partition("?")
    if path.startswith("//"):
        if not path.startswith("///"):
            # Without the URL itself: what stands before a host may be a password.
            raise BadUsage(f"a {scheme}: store has no host; write {scheme}:///absolute/path or {scheme}:relative/path")
        path = path[2:]
    path = unquote(path)
    if not path and not query:
        raise BadUsage(f"store {url!r} names no path; write it as {scheme}:path")
    return StoreUrl(scheme.lower(), path or ".", _options(query, url))


def format_url(scheme: str, path: Path, options: Mapping[str, str] | None = None) -> str:
    """The URL that opens this path from any folder: absolute, quoted, with its options in order of name."""
    query = "&".join(f"{name}={quote(value, safe='/')}" for name, value in sorted((options or {}).items()))
    return f"{scheme}://{quote(str(path.absolute()))}{'?' + query if query else ''}"


def local_path(path: str) -> Path:
    """The path of a store URL on this machine, made absolute."""
    return Path(path).expanduser().absolute()


def _options(query: str, url: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError as error:
        raise BadUsage(
            f"store {url!r} has an option without a value; write options as ?name=value&name=value"
        ) from error
    options: dict[str, str] = {}
    for name, value in pairs:
        if name in options:
            raise BadUsage(f"store {url!r} sets option {name!r} twice")
        options[name] = value
    return options
