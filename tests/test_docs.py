"""The documents keep up with the code: commands, modules, relations and links."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest
import typer.main

from memfold import frames
from memfold_flows.cli import app
from memfold_flows.stores import KINDS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DESIGN = (ROOT / "docs/design.md").read_text(encoding="utf-8")
DOCUMENTS = sorted(
    path for folder in (".", "docs", "data", "data/sample", "benchmarks") for path in (ROOT / folder).glob("*.md")
)


def test_every_command_is_in_the_readme() -> None:
    """A command that the README does not list does not exist for its readers, and the other way round."""
    listed = set(re.findall(r"^\| `memfold ([\w-]+)", README, re.MULTILINE))

    assert listed == set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


def test_every_kind_of_store_is_in_the_readme() -> None:
    """A store that memfold opens has a line in the README's table, under the URL that `memfold stores` shows."""
    listed = re.findall(r"^\| `([a-z-]+:[^`]*)`", README, re.MULTILINE)

    assert listed == [kind.example for kind in KINDS.values()]


def test_every_module_is_on_the_map() -> None:
    """docs/design.md names each module and each SQL file, so that a newcomer finds every part."""
    modules = {
        path.name
        for root in ("transforms/memfold", "flows/memfold_flows")
        for path in (ROOT / root).rglob("*")
        if path.suffix in {".py", ".sql"} and path.name != "__init__.py"
    }

    assert {name for name in modules if f"`{name}`" not in DESIGN} == set()


def test_every_relation_is_on_the_map() -> None:
    """Each frame that crosses a step stands in the table of docs/design.md."""
    relations = {name.lower() for name, value in vars(frames).items() if isinstance(value, pa.Schema)}

    assert {name for name in relations if f"| `{name}` |" not in DESIGN} == set()


def test_every_guarantee_names_a_test_that_is_there() -> None:
    """docs/guarantees.md promises nothing that no test holds; a test that was renamed is renamed there too."""
    guarantees = (ROOT / "docs/guarantees.md").read_text(encoding="utf-8")
    named = re.findall(r"\[`(test_\w+)`\]\(\.\./(tests/[^)]+)\)", guarantees)
    promises = [line for line in guarantees.splitlines() if line.startswith("- ")]

    missing = [name for name, path in named if f"\ndef {name}(" not in (ROOT / path).read_text(encoding="utf-8")]
    assert missing == []
    assert [promise for promise in promises if "`test_" not in promise] == []
    assert len(promises) >= 20


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(document: Path) -> None:
    """A link to a file of the project names a file that is there."""
    links = re.findall(r"\]\((?!https?://)([^)#]+)", document.read_text(encoding="utf-8"))

    assert [link for link in links if not (document.parent / link).exists()] == []
