"""The pages in docs/: their commands run, the reference is that of the code, the site builds without a broken link."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES_WITH_COMMANDS = ("editing.md", "tutorial.md", "tuning.md", "undo.md")


@pytest.mark.parametrize("page", PAGES_WITH_COMMANDS)
def test_the_commands_of_a_page_run_in_order(page: str, tmp_path: Path) -> None:
    """Each sh block of the page ends as it says: with 0, or with the code in its comment."""
    shutil.copytree(ROOT / "data", tmp_path / "data")
    blocks = re.findall(r"^```sh\n(.*?)^```$", (ROOT / "docs" / page).read_text("utf-8"), re.MULTILINE | re.DOTALL)
    home = {"MEMFOLD_HOME": str(tmp_path / "home"), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    for commands in blocks:
        script = "\n".join(_checked(line) for line in commands.splitlines())
        ended = subprocess.run(
            ["bash", "-c", f"set -e\n{script}"],
            cwd=tmp_path,
            env=os.environ | home,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, f"{commands}\n{ended.stdout}\n{ended.stderr}"

    assert len(blocks) >= 2 or page == "tuning.md"


@pytest.mark.parametrize("page", ["commands.md", "relations.md", "settings.md", "memfold.schema.json"])
def test_the_reference_is_that_of_the_code(page: str) -> None:
    """A command, option or column that changed is written down: run docs/reference/generate.py again."""
    generated = runpy.run_path(str(ROOT / "docs/reference/generate.py"))["pages"]()

    assert (ROOT / "docs/reference" / page).read_text("utf-8") == generated[page]


def test_the_site_builds_and_has_every_page(tmp_path: Path) -> None:
    """mkdocs finds no broken link or anchor, and every page of docs/ is in the navigation."""
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert built.returncode == 0, built.stderr
    assert "not included in the" not in built.stderr
    assert "Taking it back" in (tmp_path / "site/undo/index.html").read_text("utf-8")


def _checked(line: str) -> str:
    """A command that is to end with another code than 0, followed by a test of that code."""
    promised = re.search(r"^(.*)# exits (\d)", line)
    return line if promised is None else f"code=0; {promised[1]} || code=$?; test $code -eq {promised[2]}"
