"""The example for evo: its hook starts a pass where a scope is due, and is quiet otherwise."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.stores.conftest import evo_database, insert_into_evo

EXAMPLE = Path(__file__).parents[1] / "examples/evo"


def test_the_hook_consolidates_a_scope_that_is_due(tmp_path: Path) -> None:
    """It returns at once and prints nothing; the copy is folded a moment later, and the next call finds nothing due."""
    path = tmp_path / "evo.db"
    evo_database(path, version=6)
    for number, content in enumerate(("Use pnpm.", "use pnpm", "Deploys need two approvals", "The port is 8080")):
        insert_into_evo(path, f"m{number}", content, source={"runtime": "evo"})

    said = _hook(path)

    assert (said.returncode, said.stdout, said.stderr) == (0, "", "")
    deadline = time.monotonic() + 60
    while _check(path) != 5:
        assert time.monotonic() < deadline, "the pass in the background did not end"
        time.sleep(0.2)
    assert _hook(path).returncode == 0


def test_the_hooks_name_the_script() -> None:
    """Both events call it."""
    hooks = json.loads((EXAMPLE / "hooks.json").read_text(encoding="utf-8"))["hooks"]

    assert set(hooks) == {"SessionStart", "UserPromptSubmit"}
    commands = [each["command"] for event in hooks.values() for entry in event for each in entry["hooks"]]
    assert all(command.endswith("/consolidate_if_due.sh") for command in commands)


def _hook(path: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "EVO_STORE": str(path), "EVO_SCOPE": "user:ana"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    return subprocess.run(
        [EXAMPLE / "consolidate_if_due.sh"],
        env=environment,
        cwd=path.parent,
        capture_output=True,
        text=True,
        check=False,
    )


def _check(path: Path) -> int:
    arguments = ["check", f"evo:{path}", "--scope", "user:ana"]
    return subprocess.run([sys.executable, "-m", "memfold_flows.cli", *arguments], check=False).returncode
