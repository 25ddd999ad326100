"""Prefect's server, a worker and memfold's deployments on this machine, and one night over the sample store.

``make serve-demo`` runs it until Ctrl-C; with ``--once`` it ends after the night. What it makes is in ./demo-prefect.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = Path("demo-prefect").absolute()
PORT = 4200
UI = f"http://127.0.0.1:{PORT}"

_ENVIRONMENT = {
    **os.environ,
    "DO_NOT_TRACK": "1",
    "MEMFOLD_HOME": str(FOLDER / "memfold"),
    "PREFECT_API_URL": f"{UI}/api",
    "PREFECT_HOME": str(FOLDER / "prefect"),
    "PREFECT_LOGGING_LEVEL": "WARNING",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_WORKER_QUERY_SECONDS": "2",
}
_NIGHT = {
    "store": "jsonl:memories.jsonl",
    "store_options": '{"in_place": true}',
    "timing": '{"all_scopes": true}',
}


def main() -> None:
    """Set everything up, make one night, and stay until interrupted."""
    _require_free_port()
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    shutil.copy(ROOT / "prefect.yaml", FOLDER)
    shutil.copy(ROOT / "data/sample/memories.jsonl", FOLDER)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print("starting a Prefect server; the first time it makes its database", flush=True)
    with suppress(KeyboardInterrupt), _running("server", "start", "--host", "127.0.0.1", "--port", str(PORT)):
        _wait_for_server()
        _prefect("work-pool", "create", "memfold", "--type", "process")
        _prefect("--no-prompt", "deploy", "--all")
        with _running("worker", "start", "--pool", "memfold"):
            print("one night over the sample store", flush=True)
            _prefect("deployment", "run", "sweep/nightly", *_parameters(_NIGHT), "--watch")
            print(f"done; its artifacts are at {UI}/artifacts, the runs at {UI}/runs", flush=True)
            if "--once" not in sys.argv[1:]:
                print("Ctrl-C ends the server and the worker", flush=True)
                signal.pause()


@contextmanager
def _running(*arguments: str) -> Iterator[None]:
    """A part of Prefect in the background; ended for certain when the block is left."""
    log = (FOLDER / f"{arguments[0]}.log").open("wb")
    process = subprocess.Popen(
        [sys.executable, "-m", "prefect", *arguments],
        cwd=FOLDER,
        env=_ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    try:
        yield
    finally:
        # A worker that is asked only once may go on waiting for its runs.
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
        log.close()


def _prefect(*arguments: str) -> None:
    command = [sys.executable, "-m", "prefect", *arguments]
    ended = subprocess.run(command, cwd=FOLDER, env=_ENVIRONMENT, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        sys.exit(f"prefect {' '.join(arguments)} failed:\n{ended.stdout}{ended.stderr}")


def _parameters(values: Mapping[str, str]) -> list[str]:
    return [part for name, value in values.items() for part in ("--param", f"{name}={value}")]


def _require_free_port() -> None:
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", PORT)) == 0:
            sys.exit(f"something listens on port {PORT} already; nothing was started. End it first.")


def _wait_for_server() -> None:
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        with suppress(OSError), urllib.request.urlopen(f"{UI}/api/health", timeout=5):
            return
        time.sleep(0.5)
    sys.exit(f"the server did not come up; see {FOLDER}/server.log")


if __name__ == "__main__":
    main()
