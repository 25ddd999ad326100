"""Store URLs: ``scheme:path`` or ``scheme:///path``, options as a query, special characters as ``%XX``.

A database on a server has ``scheme://user@host:port/database``; a password in it is never shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote

from memfold.errors import BadUsage

#: Schemes of databases on a server, which have a host and maybe a password.
SERVERS = ("postgresql", "postgres")

_PASSWORD = re.compile(r"(?<=//)([^:@/]*):.*@", re.DOTALL)
_PASSWORD_OPTION = re.compile(r"(?<=[?&])password=[^&]*&?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """A store URL in its parts. ``path`` is as written, decoded; ``~`` is the home folder, no path the current one."""

    scheme: str
    path: str
    options: dict[str, str] = field(default_factory=dict)


#: What a file of this ending is likely to be.
_BY_SUFFIX = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".parquet": "parquet"}


def parse(url: str) -> StoreUrl:
    """Split a store URL into scheme, path and options.

    Raises:
        BadUsage: no scheme, neither path nor options, a host where there is none, an option twice or without a value.
    """
    scheme, colon, rest = url.partition(":")
    if scheme.lower() in SERVERS:
        return _parse_server(rest)
    if not colon or not scheme.replace("-", "_").isidentifier():
        scheme = next((name for end, name in _BY_SUFFIX.items() if url.lower().endswith(end)), "sqlite")
        raise BadUsage(f"store {url!r} names no scheme; write it as scheme:path, for example {scheme}:{url or 'FILE'}")
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


def without_password(url: str) -> str:
    """The URL as it may be shown, logged and kept: without the password, where it has one."""
    if url.partition(":")[0].lower() not in SERVERS:
        return url
    return _PASSWORD_OPTION.sub("", _PASSWORD.sub(r"\1@", url))


def format_url(scheme: str, path: Path, options: Mapping[str, str] | None = None) -> str:
    """The URL that opens this path from any folder: absolute, quoted, with its options in order of name."""
    return with_options(f"{scheme}://{quote(str(path.absolute()))}", options or {})


def with_options(url: str, options: Mapping[str, str]) -> str:
    """A URL with its options behind it, in order of name."""
    query = "&".join(f"{name}={quote(value, safe='/,')}" for name, value in sorted(options.items()))
    return f"{url}{'?' + query if query else ''}"


def without_flags(url: str) -> str:
    """The URL of the same store, without what says how one pass over it reads."""
    place, _, query = url.partition("?")
    options = [option for option in query.split("&") if option and option.partition("=")[0] != "skip_bad"]
    return f"{place}{'?' + '&'.join(options) if options else ''}"


def local_path(path: str) -> Path:
    """The path of a store URL on this machine, made absolute."""
    return Path(path).expanduser().absolute()


def _parse_server(rest: str) -> StoreUrl:
    place, _, query = rest.partition("?")
    address = place.removeprefix("//").partition("/")[0]
    if "@" in query or ("@" in place and "@" not in address) or "#" in rest:
        # Without the URL itself: what stands before the host may be a password.
        raise BadUsage(
            "the store's URL has a special character where none is expected; nothing was read. "
            "In a user, a password or an option write @ as %40, / as %2F, ? as %3F, # as %23 and : as %3A."
        )
    shown = without_password(f"{SERVERS[0]}:{rest}")
    options = _options(query, shown)
    if "password" in options:
        raise BadUsage(f"store {shown!r}: a password is no option; set PGPASSWORD, or write it into ~/.pgpass")
    return StoreUrl(SERVERS[0], place, options)


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
