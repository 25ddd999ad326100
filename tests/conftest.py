"""What all tests share: a home of their own for each test, the clock they read, and services that may be missing."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

REQUIRE_ALL = bool(os.environ.get("MEMFOLD_REQUIRE_ALL"))

#: Marker of a test -> the package that it cannot do without.
_PACKAGES = {"prefect": "prefect", "praisonai": "praisonaiagents", "notebook": "nbclient"}


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
def prefect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A Prefect server for the whole session, with results of its own: those of an earlier session are not found."""
    folder = tmp_path_factory.mktemp("prefect")
    os.environ["PREFECT_HOME"] = str(folder)
    from prefect.settings import PREFECT_LOCAL_STORAGE_PATH, temporary_settings
    from prefect.testing.utilities import prefect_test_harness

    with (
        prefect_test_harness(server_startup_timeout=120),
        temporary_settings({PREFECT_LOCAL_STORAGE_PATH: folder / "results"}),
    ):
        yield


@pytest.fixture
def archive(tmp_path: Path) -> Callable[..., Path]:
    """Write memories, one JSON object a line, into a JSONL archive."""

    def write(memories: Sequence[Mapping[str, Any]], name: str = "memories.jsonl") -> Path:
        path = tmp_path / name
        path.write_text("".join(json.dumps(memory) + "\n" for memory in memories), encoding="utf-8")
        return path

    return write
