"""What the README says works as it says: its commands and its Python run in a temporary folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as the README's reader has it: the sample data, and nothing of ours."""
    folder = tmp_path_factory.mktemp("readme")
    shutil.copytree(ROOT / "data", folder / "data")
    return folder


def test_each_command_of_the_readme_ends_as_it_says(folder: Path) -> None:
    """A command exits 0, or with the code that its comment names; the demo has run before."""
    _run("memfold demo", folder)  # what `make demo`, the line above them, has done by then

    ended = {command: _run(command, folder).returncode for command in _commands("memfold", "cp")}

    assert ended == {command: _promised_exit_code(command) for command in ended}
    assert len(ended) >= 6


def test_what_the_readme_undoes_is_back(folder: Path) -> None:
    """After the README's apply and undo, the archive holds the sample again, byte for byte."""
    assert (folder / "memories.jsonl").read_bytes() == (ROOT / "data/sample/memories.jsonl").read_bytes()


def test_the_python_of_the_readme_runs(folder: Path) -> None:
    """The Python example plans the sample and leaves a run directory."""
    program = "\n".join(_blocks("python"))

    ended = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False)

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("partly accepted ")
    assert (folder / "first-run" / "plan.parquet").is_file()


def test_each_make_target_of_the_readme_exists() -> None:
    """`make demo` and `make test` install packages, so here it is only asked whether make knows them."""
    for command in _commands("make"):
        target = command.split()[1]
        ended = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=False)

        assert ended.returncode == 0, ended.stderr


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def _commands(*programs: str) -> list[str]:
    lines = [line.strip() for block in _blocks("sh") for line in block.splitlines()]
    return [line for line in lines if line.split()[:1] and line.split()[0] in programs]


def _promised_exit_code(command: str) -> int:
    promised = re.search(r"# exits (\d)", command)
    return int(promised[1]) if promised else 0


def _run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MEMFOLD_")}
    environment |= {
        "MEMFOLD_HOME": str(folder / "home"),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}",
    }
    return subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
