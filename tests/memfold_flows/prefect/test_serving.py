"""The flows from the command line: quiet, without a worker, and with memfold's exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import program

from memfold_flows import serving

from .conftest import TEXTS, Household, Site

pytestmark = [pytest.mark.prefect, pytest.mark.timeout(600)]

SAMPLE = Path(__file__).parents[3] / "data/sample/memories.jsonl"


Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def memfold(tmp_path: Path) -> Command:
    """Run the memfold command in a process and a folder of its own, as a script would."""

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "memfold_flows.cli", *arguments],
            cwd=tmp_path,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    return run


def test_a_backfill_says_what_came_of_it(prefect_server: str, memfold: Command, tmp_path: Path) -> None:
    """One of the four scopes of the sample is refused, which is exit code 4; --quiet leaves out how far it is."""
    ended = memfold(
        "backfill", f"jsonl:{SAMPLE}", "--out", "out", "--shards", "3", "--quiet", PREFECT_API_URL=prefect_server
    )

    assert ended.returncode == 4
    assert ended.stderr == ""
    said = " ".join(ended.stdout.split())
    assert "347 memories, " in said
    assert "1 of 4 scopes were refused and stay as they were" in said
    assert f"archive: {tmp_path}/out/archive.jsonl" in said


def test_a_wrong_archive_is_said_before_prefect_is_started(
    memfold: Command,
) -> None:
    """In one line, with exit code 2."""
    ended = memfold("backfill", "jsonl:nowhere.jsonl", "--out", "out")

    assert ended.returncode == 2
    assert ended.stderr.startswith("memfold: there is no *.jsonl file at ")
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--max-loss-fraction", "7"], "max_loss_fraction: Input should be less than or equal to 1, got 7.0"),
        (["--dask", "local", "--ray", "local"], "--dask and --ray exclude each other"),
    ],
)
def test_wrong_flags_are_said_in_one_line(memfold: Command, flags: list[str], said: str) -> None:
    """With exit code 2, and nothing is written."""
    ended = memfold("backfill", f"jsonl:{SAMPLE}", "--out", "out", *flags)

    assert (ended.returncode, ended.stderr) == (2, f"memfold: {said}; nothing was written\n")


def test_serving_needs_a_server(memfold: Command, household: Household) -> None:
    """It says how to start one, and starts nothing."""
    ended = memfold("serve", household.url)

    assert ended.returncode == 2
    assert "memfold: there is no Prefect server to keep the schedule; nothing was started." in ended.stderr


@pytest.mark.parametrize(
    ("flag", "file", "hour"),
    [
        (None, "memory: {consolidation: {cron: 'cron:30 1 * * *'}}", "30 1 * * *"),
        ("15 2 * * *", "memory: {consolidation: {cron: 30 1 * * *}}", "15 2 * * *"),
        (None, "{}", "0 3 * * *"),
    ],
)
def test_the_hour_is_the_flags_or_that_of_the_file_or_three(
    household, tmp_path, monkeypatch, *, flag, file, hour
) -> None:
    """``memory.consolidation.cron`` in ``memfold.yaml``, as PraisonAI's scheduler takes it too."""
    import prefect
    from prefect.settings import PREFECT_API_URL, temporary_settings

    served: list[Any] = []
    monkeypatch.setattr(prefect, "serve", lambda *deployments: served.extend(deployments))
    monkeypatch.chdir(tmp_path)
    Path("memfold.yaml").write_text(file)

    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}):
        serving.serve(household.url, cron=flag, timezone="UTC")

    nightly = next(each for each in served if each.name == "nightly")
    assert [(each.schedule.cron, each.schedule.timezone) for each in nightly.schedules] == [(hour, "UTC")]


def test_served_flows_run_without_a_worker(site: Site, household: Household, tmp_path: Path) -> None:
    """memfold serve keeps deployments for one store; each run is made in a process of its own."""
    household.live("home", *TEXTS, TEXTS[0].upper())
    command = [sys.executable, "-m", "memfold_flows.cli", "serve", household.url, "--cron", "30 2 * * *"]
    environment = {"PREFECT_API_URL": site.api, "PREFECT_RUNNER_POLL_FREQUENCY": "1"}
    with program(command, log=tmp_path / "serve.log", cwd=tmp_path, environment=environment):
        site.wait_for_schedule("sweep/nightly", cron="30 2 * * *")
        state = site.run("sweep/nightly")
    site.prefect("--no-prompt", "deploy", "--name", "nightly")

    assert state.name == "Consolidated"
    assert household.counts() == {"home": 6}
