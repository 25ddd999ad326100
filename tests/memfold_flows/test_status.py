"""``memfold status``, and the help of the commands."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer.main

from memfold_flows.cli import app
from memfold_flows.command_examples import EXAMPLES

COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def test_a_scope_is_due_until_its_pass(tea: Any, command: Callable[..., Any]) -> None:
    """Before: due, as it never was. After: not, with the moment of the pass and the hours until the next."""
    url = f"sqlite:{tea.path}"
    (before,) = json.loads(command("status", url, "--json").out)["scopes"]
    command("run", url, "--yes")
    after = json.loads(command("status", url, "--json").out)

    assert (before["should_consolidate"], before["reason"], before["last_consolidate_at"]) == (True, "schedule", None)
    (scope,) = after["scopes"]
    assert (scope["should_consolidate"], scope["reason"], scope["converged"]) == (False, "none", False)
    assert 23.9 < scope["hours_until_due"] <= 24.0
    assert after["last_run"]["merged"] == 2
    assert after["waiting"] == []


def test_a_plan_that_nobody_applied_waits_for_review(tea: Any, command: Callable[..., Any]) -> None:
    """It is named with its verdict and what to type; once applied it waits no more."""
    url = f"sqlite:{tea.path}"
    command("plan", url)
    (plan,) = json.loads(command("status", url, "--json").out)["waiting"]
    said = command("status", url).out

    assert (plan["verdict"], plan["changes"]) == ("accepted", 2)
    assert f"memfold show {plan['run_id']}" in said
    command("apply", "latest", "--store", url, "--yes")
    assert json.loads(command("status", url, "--json").out)["waiting"] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_ends_with_an_example_that_parses(name: str) -> None:
    """What a person copies from the help is a call that the command takes."""
    words = shlex.split(EXAMPLES[name].partition(" > ")[0].partition(" && ")[0])

    assert COMMANDS[name].epilog == f"Example: {EXAMPLES[name]}"
    assert words[:2] == ["memfold", name]
    assert COMMANDS[name].make_context(name, words[2:]).params is not None


SAMPLE = Path(__file__).parents[2] / "data/sample/memories.jsonl"


@pytest.mark.parametrize("name", ["check", "hints"])
def test_the_scope_of_an_example_is_one_of_the_sample(name: str) -> None:
    """Typed as it stands, after the README's first line, the example finds memories."""
    words = EXAMPLES[name].split()
    scopes = {json.loads(line)["scope"] for line in SAMPLE.read_text(encoding="utf-8").splitlines()}

    assert words[2] == "jsonl:memories.jsonl"
    assert words[words.index("--scope") + 1] in scopes


def test_every_command_has_one_example() -> None:
    """And none that is gone."""
    assert list(EXAMPLES.keys() - COMMANDS.keys()) == []


def test_the_shell_completes_commands(command: Callable[..., Any]) -> None:
    """By typer's own means."""
    assert "--install-completion" in command("--help").out
