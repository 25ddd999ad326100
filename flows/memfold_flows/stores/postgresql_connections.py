"""PostgreSQL connections: made from a URL without ever showing its password, errors in memfold's own words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from memfold.errors import BadUsage, StoreError, Transient

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[tuple[Any, ...]]

#: Agents that wait for a row usually wait 5 to 10 s; memfold is as patient, and then says so.
LOCK_SECONDS = 5.0
#: No statement of a write transaction takes this long unless something is wrong.
STATEMENT_SECONDS = 120.0
# Between two statements lies the comparison of all rows of a cluster, which may be a large one.
_IDLE_SECONDS = 600.0
_OLDEST_VERSION = 140_000
_CONNECT_SECONDS = 10

#: Options of a URL that say how to connect, as libpq understands them.
OPTIONS: dict[str, str] = {
    "host": "the folder of the server's socket, for a URL without a host",
    "sslmode": "as libpq's: disable, prefer, require, verify-ca or verify-full",
    "sslrootcert": "as libpq's: the file of the certificates to trust",
    "sslcert": "as libpq's: the file of the client's certificate",
    "sslkey": "as libpq's: the file of the client's key",
}

#: Passwords of the URLs that this process opened, by what remains of the URL without it: a run names its store without.
_passwords: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class Server:
    """Where a database is and as whom to connect; what is not named comes from libpq's own environment variables."""

    host: str = ""
    port: str = ""
    user: str = ""
    database: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    password: str = field(default="", repr=False)

    @property
    def url(self) -> str:
        """The URL up to its options, without the password."""
        user = f"{quote(self.user, safe='')}@" if self.user else ""
        host = f"[{self.host}]" if ":" in self.host else quote(self.host, safe=",")
        port = f":{self.port}" if self.port else ""
        return f"postgresql://{user}{host}{port}/{quote(self.database, safe='')}"

    def connect(self) -> Connection:
        """A connection on which every transaction is begun by hand.

        Raises:
            BadUsage: psycopg is not installed.
            Transient: no server answers, or it takes no more connections.
            StoreError: the server refuses this user, password or database.
        """
        psycopg = _psycopg()
        parameters = {"host": self.host, "port": self.port, "user": self.user, "dbname": self.database}
        given = {name: value for name, value in {**parameters, **self.options}.items() if value}
        if password := self.password or _passwords.get(self.url, ""):
            given["password"] = password
        try:
            connection: Connection = psycopg.connect(
                **given,
                autocommit=True,
                prepare_threshold=None,
                connect_timeout=_CONNECT_SECONDS,
                client_encoding="utf8",
                application_name="memfold",
                # A server that vanished is noticed within a minute.
                keepalives_idle=15,
                keepalives_interval=10,
                keepalives_count=3,
            )
        except psycopg.Error as error:
            raise _no_connection(self.url, str(error), self.password) from None
        if connection.info.server_version < _OLDEST_VERSION:
            version = connection.info.server_version // 10_000
            connection.close()
            raise StoreError(f"{self.url} is PostgreSQL {version}; nothing was read. memfold needs 14 or newer.")
        if self.password:
            _passwords[self.url] = _passwords[resolved(self, connection).url] = self.password
        return connection


def parse_server(authority: str, options: Mapping[str, Any]) -> Server:
    """The server that stands in a URL between ``postgresql:`` and its options.

    Raises:
        BadUsage: it is not written as ``//user@host:port/database``.
    """
    place, _, database = authority.removeprefix("//").partition("/")
    login, _, address = place.rpartition("@")
    user, _, password = login.partition(":")
    match = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]]*)(?::(\d*))?", address)
    if match is None or "/" in database or not authority.startswith("//"):
        raise BadUsage(
            "the store's URL must be postgresql://user@host:port/database, with special characters in a name or "
            "password as %XX; nothing was read"
        )
    chosen = {name: str(options[name]) for name in OPTIONS if name in options}
    host = chosen.pop("host", "") or unquote(match[1].strip("[]"))
    return Server(host, match[2] or "", unquote(user), unquote(database), chosen, unquote(password))


def resolved(server: Server, connection: Connection) -> Server:
    """The server with everything that the environment filled in, so that its URL leads there from anywhere."""
    info = connection.info
    return Server(info.host, str(info.port), info.user, info.dbname, server.options, server.password)


def begin(connection: Connection, *, reading: bool) -> None:
    """Begin a transaction: a snapshot that nothing is written in, or one that neither waits nor works for long."""
    if reading:
        connection.execute("begin transaction isolation level repeatable read read only")
        limits = {"statement_timeout": 0.0, "idle_in_transaction_session_timeout": 0.0}
    else:
        connection.execute("begin transaction isolation level read committed read write")
        limits = {
            "lock_timeout": LOCK_SECONDS,
            "statement_timeout": STATEMENT_SECONDS,
            "idle_in_transaction_session_timeout": _IDLE_SECONDS,
        }
    texts = {"TimeZone": "UTC", "DateStyle": "ISO", "IntervalStyle": "postgres", "bytea_output": "hex"}
    given = {
        **{name: f"{round(seconds * 1000)}ms" for name, seconds in limits.items()},
        **texts,
        "extra_float_digits": "3",
    }
    # Local to the transaction: a pooler hands the connection to somebody else after it.
    query = "select " + ", ".join("set_config(%s, %s, true)" for _ in given)
    connection.execute(query, [part for setting in given.items() for part in setting])
    if not reading:
        connection.execute(_DURABLE)


# A receipt says that something has happened once it would survive a power cut; a stronger setting stays.
_DURABLE = (
    "select set_config('synchronous_commit', 'on', true) "
    "where current_setting('synchronous_commit') in ('off', 'local')"
)


@contextmanager
def postgresql_errors(url: str, doing: str) -> Iterator[None]:
    """Turn the server's errors into memfold's: Transient where the same call may work later, else StoreError.

    ``doing`` completes "...; ___ changed nothing". The server's own words are left out where they could quote a memory.
    """
    psycopg = _psycopg()
    try:
        yield
    except psycopg.Error as error:
        raise _in_our_words(url, doing, error) from None
    except UnicodeEncodeError:
        raise StoreError(
            f"{url}: a text holds half a surrogate pair, which PostgreSQL cannot hold; {doing} changed nothing"
        ) from None


_GONE = ("08", "57P")


def _in_our_words(url: str, doing: str, error: psycopg.Error) -> StoreError:
    state = error.sqlstate or ""
    busy = {
        "55P03": f"a row or the store stayed locked for {LOCK_SECONDS:g} s",
        "57014": f"a statement was cancelled, or took longer than {STATEMENT_SECONDS:g} s",
        "40P01": "memfold and another writer waited for one another, and the server chose to end this",
        "40001": "another writer came in between",
        "25P03": "the transaction was idle for too long",
        "53300": "the server takes no more connections",
    }
    if state in busy:
        return Transient(f"{url}: {busy[state]}; {doing} changed nothing. Try again in a moment.")
    if not state and "NUL" in str(error):
        return StoreError(f"{url}: a text holds a NUL character, which PostgreSQL cannot hold; {doing} changed nothing")
    if state.startswith(_GONE) or (not state and isinstance(error, _psycopg().OperationalError)):
        # Where it went during the commit, only the ledger knows whether that landed; the next call reads it there.
        return Transient(
            f"{url}: the server went away; {doing} was cut off, and landed as a whole or not at all. "
            "Run the same again, which goes on from there."
        )
    if state == "42501":
        return StoreError(f"{url}: {_primary(error)}; {doing} changed nothing. {_GRANTS}")
    if state[:2] in ("22", "23"):
        # The message itself may quote a value of the row.
        diagnosis = error.diag
        places = {
            "constraint": diagnosis.constraint_name,
            "table": diagnosis.table_name,
            "column": diagnosis.column_name,
        }
        where = ", ".join(f"{kind} {name}" for kind, name in places.items() if name)
        what = type(error).__name__
        return StoreError(f"{url}: the server refused a row ({what}{where and f': {where}'}); {doing} changed nothing")
    return StoreError(f"{url}: {_primary(error)}; {doing} changed nothing")


_GRANTS = (
    "memfold needs select, insert, update and delete on the table, and tables of its own beside it: where the user may "
    "not create any, let the schema's owner run `memfold init` with this store's URL, and grant them to the user."
)


def _primary(error: psycopg.Error) -> str:
    return error.diag.message_primary or type(error).__name__


def _no_connection(url: str, message: str, password: str) -> StoreError:
    said = " ".join((message.replace(password, "***") if password else message).split())
    for answer in ("FATAL:", "no password supplied", "SSL", "certificate"):
        if answer in said and not any(
            word in said for word in ("too many", "starting up", "shutting down", "in recovery")
        ):
            return StoreError(
                f"{url}: the server refused the connection ({said}); nothing was read or written. Runs keep no "
                "password: set PGPASSWORD, or write it into ~/.pgpass."
            )
    return Transient(f"{url}: no connection ({said}); nothing was read or written. Check that the server runs.")


def _psycopg() -> Any:
    try:
        import psycopg
    except ImportError:
        raise BadUsage(
            "a postgresql: store needs psycopg; nothing was read. Install it with: pip install 'memfold[postgres]'"
        ) from None
    return psycopg
