"""What all tests share: a home of their own for each test, the clock they read, and services that may be missing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

REQUIRE_ALL = bool(os.environ.get("MEMFOLD_REQUIRE_ALL"))

#: Marker of a test -> the package that it cannot do without.
_PACKAGES = {"prefect": "prefect", "praisonai": "praisonaiagents", "notebook": "nbclient"}


#: How long one drawn example takes says nothing on a busy machine.
settings.register_profile("memfold", deadline=None)
settings.load_profile("memfold")


def pytest_addoption(parser: pytest.Parser) -> None:
    """``make fault-matrix`` writes the table of faults as it finds it."""
    parser.addoption("--write-fault-matrix", action="store_true", help="write the fault matrix of docs/guarantees.md")


def pytest_configure() -> None:
    """No test sends usage data, and none reads the settings of whoever runs it."""
    os.environ["DO_NOT_TRACK"] = "1"
    os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] = "false"
    for name in [name for name in os.environ if name.startswith("MEMFOLD_") and name != "MEMFOLD_REQUIRE_ALL"]:
        del os.environ[name]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip by name what needs a package that is not installed."""
    for item in items:
        for marker, package in _PACKAGES.items():
            if item.get_closest_marker(marker) and find_spec(package) is None:
                item.add_marker(pytest.mark.skip(reason=f"{package} is not installed"))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    """With MEMFOLD_REQUIRE_ALL a test that is skipped has failed."""
    outcome = yield
    _fail_if_skipped(outcome.get_result())  # type: ignore[attr-defined]


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report() -> Iterator[None]:
    """The same for a module that skips itself as a whole."""
    outcome = yield
    _fail_if_skipped(outcome.get_result())  # type: ignore[attr-defined]


def _fail_if_skipped(report: pytest.TestReport | pytest.CollectReport) -> None:
    if REQUIRE_ALL and report.outcome == "skipped" and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"MEMFOLD_REQUIRE_ALL is set, but this was skipped: {report.longrepr}"


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder that only this test has; the runs of memfold lie in it."""
    folder = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("MEMFOLD_HOME", str(folder / "memfold"))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    return folder


@pytest.fixture(autouse=True)
def _prefect_where_marked(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("prefect"):
        request.getfixturevalue("prefect_server")


@pytest.fixture(scope="session")
def prefect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Prefect server on loopback for the whole session, with a home and results of its own; gives its API's URL."""
    folder = tmp_path_factory.mktemp("prefect")
    os.environ["PREFECT_HOME"] = str(folder)
    from prefect.settings import (
        PREFECT_API_URL,
        PREFECT_LOCAL_STORAGE_PATH,
        temporary_settings,
    )

    port = _free_port()
    url = f"http://127.0.0.1:{port}/api"
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    with (
        program(command, log=folder / "server.log", cwd=folder) as server,
        temporary_settings(
            {
                PREFECT_API_URL: url,
                PREFECT_LOCAL_STORAGE_PATH: folder / "results",
            }
        ),
    ):
        _wait_until_healthy(url, server, folder / "server.log")
        yield url
        _send_what_waits()


@contextmanager
def program(
    command: Sequence[str], *, log: Path, cwd: Path, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A program in the background, with everything it started; ended for certain when the block is left."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        end_program(process)


def end_program(process: subprocess.Popen[bytes]) -> None:
    """Ask a program and its children to end; after ten seconds make them."""
    for number, seconds in ((signal.SIGTERM, 10), (signal.SIGKILL, 30)):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
    process.wait(1)


def _send_what_waits() -> None:
    """Logs and events that are still on their way; without a server they would keep the tests waiting at the end."""
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    with suppress(RuntimeError):  # no log was ever sent
        APILogWorker.instance().drain()
    EventsWorker.drain_all()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_healthy(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    import httpx

    deadline = time.monotonic() + 180
    while time.monotonic() < deadline and server.poll() is None:
        with suppress(httpx.HTTPError):
            if httpx.get(f"{url}/health", timeout=5).status_code == 200:
                return
        time.sleep(0.2)
    raise RuntimeError(f"the Prefect server did not come up at {url}:\n{log.read_text(errors='replace')[-3000:]}")


@dataclass(frozen=True, slots=True)
class PostgresqlServer:
    """A running server; ``url`` names a database of it as memfold opens it."""

    folder: Path
    port: int
    #: Databases that a test is done with: to make one takes longer than to empty one.
    free: list[str] = field(default_factory=list)

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://memfold@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """Make an empty database; returns its URL."""
        import psycopg

        with psycopg.connect(self.url(), autocommit=True) as connection:
            made = connection.execute("select count(*) from pg_database").fetchone()
            name = f"memories_{made and made[0]}"
            connection.execute(f'create database "{name}"')
        return self.url(name)

    def empty_database(self) -> str:
        """The URL of an empty database, one that another test is done with if there is any."""
        import psycopg

        if not self.free:
            return self.new_database()
        url = self.free.pop()
        with psycopg.connect(url) as connection:
            connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity "
                "where datname = current_database() and pid <> pg_backend_pid()"
            )
            connection.execute(f'alter database "{url.rpartition("/")[2]}" reset all')
            schemas = connection.execute("select nspname from pg_namespace where nspname !~ '^(pg_|information_)'")
            for (schema,) in schemas.fetchall():
                connection.execute(f'drop schema "{schema}" cascade')
            connection.execute("create schema public; grant usage on schema public to public")
        return url


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[PostgresqlServer]:
    """A real PostgreSQL on loopback for the whole session, durable as people run it; skips where none is installed."""
    binaries = _postgresql_binaries()
    if binaries is None or find_spec("psycopg") is None:
        pytest.skip("needs PostgreSQL's server (Debian: apt install postgresql) and psycopg")
    # Not a folder of pytest's: those are for its own user only, and PostgreSQL refuses to run as root.
    folder = Path(tempfile.mkdtemp(prefix="memfold-postgresql-"))
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres")
    data, port = folder / "data", _free_port()
    _as_postgres(binaries / "initdb", f"--pgdata={data}", "--username=memfold", "--auth=trust", "--encoding=UTF8", "-N")
    # One user must say a password; all others are who they say they are.
    access = data / "pg_hba.conf"
    access.write_text(f"host all guarded 127.0.0.1/32 scram-sha-256\n{access.read_text()}")
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder}"
    pg_ctl = (binaries / "pg_ctl", f"--pgdata={data}", "--wait", f"--log={folder / 'log'}")
    _as_postgres(*pg_ctl, f"--options={options}", "start")
    try:
        yield PostgresqlServer(folder, port)
    finally:
        _as_postgres(*pg_ctl, "--mode=immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def empty_database(postgresql_server: PostgresqlServer) -> Iterator[Callable[[], str]]:
    """Makes an empty database for this test, and returns its URL."""
    lent: list[str] = []

    def lend() -> str:
        lent.append(postgresql_server.empty_database())
        return lent[-1]

    yield lend
    postgresql_server.free.extend(lent)


def _postgresql_binaries() -> Path | None:
    """Where ``initdb`` and ``pg_ctl`` are: on the PATH, or where Debian puts them, the newest first."""
    on_path = [Path(found).parent for found in (shutil.which("initdb"),) if found]
    folders = [*on_path, *sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)]
    return next((folder for folder in folders if (folder / "initdb").exists()), None)


def _as_postgres(*command: object) -> None:
    words = [*(["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []), *map(str, command)]
    # Not into a pipe: a server that inherited it would keep whoever reads it waiting.
    subprocess.run(words, check=True, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=90)


@pytest.fixture
def archive(tmp_path: Path) -> Callable[..., Path]:
    """Write memories, one JSON object a line, into a JSONL archive."""

    def write(memories: Sequence[Mapping[str, Any]], name: str = "memories.jsonl") -> Path:
        path = tmp_path / name
        path.write_text("".join(json.dumps(memory) + "\n" for memory in memories), encoding="utf-8")
        return path

    return write
