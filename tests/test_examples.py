"""The programs in ``examples/`` run as they stand."""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from memfold_flows import settings

EXAMPLES = Path(__file__).parents[1] / "examples/praisonai"
FROZEN = "Deploys are frozen on Fridays after 14:00 UTC."


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in; PraisonAI keeps its memory where one works."""
    monkeypatch.setenv("PRAISONAI_TELEMETRY_DISABLED", "true")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.praisonai
def test_the_quick_start_finds_its_memory_again(workplace):
    """On the second day the agent has the memory of the first, so its three facts are known already."""
    assert quick_start(workplace).splitlines()[0] == "4 -> 3, 1 merged, loss 0%"
    second = quick_start(workplace).splitlines()

    assert second[0] == "7 -> 3, 4 merged, loss 0%"
    undo = second[2].removeprefix("take it back: memfold ").split()
    assert memfold(workplace, *undo, "--yes").returncode == 0
    assert "NOTHING TO DO  7 memories" in memfold(workplace, "plan", "praisonai:.praisonai").stdout


@pytest.mark.praisonai
def test_the_nightly_pass_runs_once_a_night_and_says_what_it_did(workplace, caplog, monkeypatch):
    """The job is due when three o'clock has passed since it was made; the next tick finds nothing due."""
    from praisonaiagents.memory import Memory
    from praisonaiagents.scheduler import ConfigYamlScheduleStore

    memory = Memory({"provider": "sqlite", "user_id": "ann"})
    for _ in range(2):
        memory.store_long_term(FROZEN, metadata={"user_id": "ann"})
    store = ConfigYamlScheduleStore(str(workplace / "config.yaml"))
    loop = example("nightly").nightly_pass(memory, store)
    (job,) = store.list()
    assert job.schedule.cron_expr == "0 3 * * *"
    loop.fire_due()
    assert len(memory.get_all_memories()) == 2

    job.created_at = time.time() - 2 * 24 * 3600
    store.update(job)
    # PraisonAI takes other handlers off the root logger when it is first imported.
    monkeypatch.setattr(logging.getLogger("nightly"), "handlers", [caplog.handler])
    monkeypatch.setattr(logging.getLogger("nightly"), "propagate", False)
    with caplog.at_level(logging.INFO, "nightly"):
        loop.fire_due()
        loop.fire_due()

    assert [each["text"] for each in memory.get_all_memories()] == [FROZEN]
    assert [record.getMessage() for record in caplog.records] == ["1 memories, 1 merged"]
    assert caplog.records[0].merged == 1
    memory.close_connections()


@pytest.mark.praisonai
def test_the_job_is_added_once(workplace):
    """A restart of the agent's process must not make a second job."""
    from praisonaiagents.scheduler import ConfigYamlScheduleStore

    store = ConfigYamlScheduleStore(str(workplace / "config.yaml"))
    for _ in range(2):
        example("nightly").nightly_pass(object(), store)

    assert [job.name for job in store.list()] == ["memory-consolidation"]


def test_the_settings_file_is_read(workplace):
    """Its three settings are the ones of PraisonAI's surface."""
    shutil.copy(EXAMPLES / "memfold.yaml", workplace)

    chosen = settings.load({})

    assert (chosen.enabled, chosen.cron, chosen.thresholds["max_loss_fraction"]) == (True, "0 3 * * *", 0.25)


def quick_start(folder: Path) -> str:
    ended = subprocess.run(
        [sys.executable, EXAMPLES / "quick_start.py"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def memfold(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "memfold_flows.cli", *arguments]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, env={**os.environ, "COLUMNS": "200"}
    )


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
