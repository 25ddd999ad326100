"""A worker on a Prefect server of its own, the deployments of prefect.yaml, and a store that an agent keeps."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from tests.conftest import program

from memfold.convergence import ScopeState
from memfold_flows.stores import open_store, sqlite

if TYPE_CHECKING:
    from prefect.client.schemas.objects import Artifact, FlowRun, State

ROOT = Path(__file__).parents[3]
NOW = datetime.now(UTC)

#: Six texts that have nothing in common, so that one copy is a seventh of a scope.
TEXTS = (
    "Ann drinks green tea",
    "The oven door sticks when it is hot",
    "Bob bakes rye bread on Fridays",
    "The cellar key hangs behind the clock",
    "Do not feed the cat at the table",
    "Glass goes into the blue bin",
)


@dataclass
class Household:
    """A store of many scopes, made by an agent."""

    path: Path

    @property
    def url(self) -> str:
        return f"sqlite:{self.path}"

    def was_seen(self, scope: str, *, hours_ago: float) -> None:
        """A pass over this scope had something to do so many hours ago."""
        then = datetime.now(UTC) - timedelta(hours=hours_ago)
        store = open_store(self.url)
        with store.transaction() as transaction:
            transaction.ledger.note_state("earlier", scope, ScopeState(last_consolidate_at=then, last_digest="earlier"))
        store.close()

    def live(self, scope: str, *texts: str, expired: bool = False) -> None:
        """Write memories of a scope, 30 days old; expired ones ended yesterday."""
        created = _microseconds(NOW - timedelta(days=30))
        ends = _microseconds(NOW - timedelta(days=1)) if expired else None
        rows = [(f"{scope}-{number}", scope, text, created, ends) for number, text in enumerate(texts)]
        statement = "insert into memories (memory_id, scope, content, created_at, expires_at) values (?, ?, ?, ?, ?)"
        with closing(sqlite3.connect(self.path)) as connection, connection:
            connection.executemany(statement, rows)

    def ids(self, scope: str) -> set[str]:
        """The ids of a scope now."""
        with closing(sqlite3.connect(self.path)) as connection:
            return {row[0] for row in connection.execute("select memory_id from memories where scope = ?", (scope,))}

    def counts(self) -> dict[str, int]:
        """The number of memories of each scope now."""
        with closing(sqlite3.connect(self.path)) as connection:
            return dict(connection.execute("select scope, count(*) from memories group by scope order by scope"))

    def ledger(self, query: str) -> list[tuple[Any, ...]]:
        """What memfold's own tables say."""
        with closing(sqlite3.connect(self.path)) as connection, connection:
            return connection.execute(query).fetchall()


@pytest.fixture
def household(tmp_path: Path) -> Household:
    """An empty store."""
    path = tmp_path / "household.db"
    sqlite.init(path)
    return Household(path)


class Site:
    """A machine with a worker, on which prefect.yaml was deployed."""

    def __init__(self, api: str, folder: Path) -> None:
        self.api = api
        self.folder = folder
        self._worker = ExitStack()
        self._process: subprocess.Popen[bytes] | None = None

    def start_worker(self) -> None:
        """Start a worker in the background."""
        command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", "memfold"]
        environment = {**_environment(self.api, self.folder), "PREFECT_WORKER_QUERY_SECONDS": "1"}
        running = program(command, log=self.folder / "worker.log", cwd=self.folder, environment=environment)
        self._process = self._worker.enter_context(running)

    def kill_worker(self) -> None:
        """Kill the worker and the runs that it started, as a power cut would."""
        assert self._process is not None
        for pid in (self._process.pid, *_descendants(self._process.pid)):
            os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        """End the worker."""
        self._worker.close()

    def prefect(self, *arguments: str, cwd: Path | None = None) -> str:
        """Run the prefect command; returns what it printed."""
        ended = subprocess.run(
            [sys.executable, "-m", "prefect", *arguments],
            cwd=cwd or self.folder,
            env=_environment(self.api, self.folder),
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    def trigger(self, deployment: str, **parameters: Any) -> FlowRun:
        """Start a run of a deployment and return at once."""
        from prefect.deployments import run_deployment

        run: FlowRun = run_deployment(deployment, parameters=parameters, timeout=0)  # type: ignore[assignment]
        return run

    def run(self, deployment: str, **parameters: Any) -> State[Any]:
        """Start a run of a deployment, wait for its end, and return its final state."""
        return self.wait(self.trigger(deployment, **parameters))

    def wait(
        self, run: FlowRun, until: Callable[[State[Any]], bool] | None = None, *, seconds: float = 120
    ) -> State[Any]:
        """The state of a run once it is final, or as asked for."""
        deadline = time.monotonic() + seconds
        while True:
            state = self.state(run.id)
            if state is not None and (until(state) if until else state.is_final()):
                return state
            assert time.monotonic() < deadline, f"{run.name} is still {state}"
            time.sleep(0.5)

    def state(self, run_id: UUID) -> State[Any] | None:
        """The state of a run now."""
        from prefect.client.orchestration import get_client

        with get_client(sync_client=True) as client:
            return client.read_flow_run(run_id).state

    def wait_for_schedule(self, deployment: str, *, cron: str) -> None:
        """Return once a deployment runs by this schedule."""
        from prefect.client.orchestration import get_client

        deadline = time.monotonic() + 60
        with get_client(sync_client=True) as client:
            while cron not in {
                getattr(each.schedule, "cron", None) for each in client.read_deployment_by_name(deployment).schedules
            }:
                assert time.monotonic() < deadline, f"{deployment} is not scheduled at {cron}"
                time.sleep(0.5)

    def artifacts(self, run: FlowRun) -> Mapping[str, Artifact]:
        """The artifacts of a run by key."""
        from prefect.client.orchestration import get_client
        from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId

        wanted = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[run.id]))
        with get_client(sync_client=True) as client:
            return {artifact.key or "": artifact for artifact in client.read_artifacts(artifact_filter=wanted)}

    def event(self, name: str, is_it: Callable[[dict[str, Any]], bool], *, seconds: float = 30) -> dict[str, Any]:
        """The payload of the one event of this name that is meant, once it has come in."""
        import httpx

        filters = {"filter": {"event": {"name": [name]}}, "limit": 50}
        deadline = time.monotonic() + seconds
        while True:
            events = httpx.post(f"{self.api}/events/filter", json=filters, timeout=30).json()["events"]
            found = [event["payload"] for event in events if is_it(event["payload"])]
            if found:
                assert len(found) == 1
                return found[0]
            assert time.monotonic() < deadline, f"no event {name}"
            time.sleep(0.5)


@pytest.fixture(scope="session")
def site(prefect_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A worker and the deployments, set up with the README's own commands."""
    folder = tmp_path_factory.mktemp("site")
    for name in ("prefect.yaml", "automations.yaml"):
        shutil.copy(ROOT / name, folder)
    sqlite.init(folder / "memories.db")
    site = Site(prefect_server, folder)
    for command in readme_commands():
        if command[0] in ("work-pool", "--no-prompt", "automation"):
            site.prefect(*command)
    site.start_worker()
    yield site
    site.close()


def readme_commands() -> list[list[str]]:
    """The arguments of each prefect command of the README's deployment section, in its order."""
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## Deployment\n")[2].partition("\n## ")[0]
    lines = [line.partition("#")[0].split() for line in section.splitlines()]
    return [words[1:] for words in lines if words[:1] == ["prefect"]]


def _descendants(pid: int) -> list[int]:
    """The processes that a process started, and those that they started."""
    children = [
        int(child) for task in Path(f"/proc/{pid}/task").glob("*/children") for child in task.read_text().split()
    ]
    return [each for child in children for each in (child, *_descendants(child))]


def _environment(api: str, folder: Path) -> dict[str, str]:
    import os

    return {
        **os.environ,
        "PREFECT_API_URL": api,
        "PREFECT_HOME": str(folder / "prefect"),
        "MEMFOLD_HOME": str(folder / "memfold"),
    }


def _microseconds(moment: datetime) -> int:
    return int(moment.timestamp()) * 1_000_000
