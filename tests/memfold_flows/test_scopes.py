"""Scopes as people type and read them, beside the percent-encoded names by which stores and plans know them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from memfold_flows import scopes

from .conftest import Ended

Command = Callable[..., Ended]

JOSE = "user_id=jos%C3%A9%20m%C3%BCller"


@pytest.mark.parametrize(
    ("scope", "reads"),
    [
        (JOSE, "user_id=josé müller"),
        ("user_id=ann%40example.com&project=a%2Fb", "user_id=ann@example.com&project=a/b"),
        ("user_id=a%26project%3Db", "user_id=a%26project%3Db"),
        ("user_id=100%25", "user_id=100%25"),
        ("user:jos%C3%A9/project:a%2Fb", "user:josé/project:a%2Fb"),
        ("user_id=%E2%80%AEx%1B", "user_id=%E2%80%AEx%1B"),
        ("user_id=%FF", "user_id=%FF"),
        ("desk:orchard-support", "desk:orchard-support"),
        ("", ""),
    ],
)
def test_a_scope_is_shown_as_people_write_it(scope: str, reads: str) -> None:
    """Letters and spaces as they are; what holds a scope together, and what nobody sees, stays encoded."""
    assert scopes.readable(scope) == reads


def test_no_two_names_read_the_same() -> None:
    """Otherwise a person would take one user's memories for another's."""
    names = [JOSE, "user_id=a%26b%3Dc", "user_id=a&b=c", "user_id=a%2526b", "user_id=a%20b", "user_id=a%2520b"]

    assert len({scopes.readable(name) for name in names}) == len(names)


@pytest.mark.parametrize("typed", [JOSE, "user_id=josé müller", "user_id=jose\u0301 mu\u0308ller"])
def test_a_scope_may_be_typed_in_either_spelling(typed: str) -> None:
    """The name itself, its letters, and the same letters from a keyboard that composes them."""
    assert scopes.among(typed, [JOSE, "user_id=ann"]) == JOSE


def test_a_name_that_is_there_is_meant_before_what_it_reads_as() -> None:
    """A table of one scope column takes any text as it is, percent signs too."""
    assert scopes.among("user_id=a b", ["user_id=a b", "user_id=a%20b"]) == "user_id=a b"
    assert scopes.among("user_id=a%20b", ["user_id=a b", "user_id=a%20b"]) == "user_id=a%20b"


def test_a_spelling_that_two_scopes_could_have_names_neither() -> None:
    """It comes back as it was typed, and is then reported as unknown."""
    assert scopes.among("user_id=é", ["user_id=%C3%A9", "user_id=e%CC%81"]) == "user_id=é"


@pytest.fixture
def jose(tmp_path: Path) -> str:
    """An archive in which José likes tea twice, and Ann once."""
    said = [("t1", "Likes tea", "josé müller"), ("t2", "likes tea.", "josé müller"), ("t3", "Likes tea", "ann")]
    lines = (json.dumps({"id": name, "text": text, "user_id": user}) for name, text, user in said)
    (tmp_path / "notes.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return "jsonl:notes.jsonl"


@pytest.mark.parametrize("typed", [JOSE, "user_id=josé müller"])
def test_every_command_with_a_scope_takes_both_spellings(command: Command, jose: str, typed: str) -> None:
    """From the plan to the undo; the JSON has the name, the text what it reads as."""
    planned = json.loads(command("plan", jose, "--scope", typed, "--json").out)
    applied = command("run", jose, "--scope", typed, "--in-place", "--yes")
    hinted = json.loads(command("hints", jose, "--scope", typed, "--json").out)
    checked = json.loads(command("check", jose, "--scope", typed, "--json").out)
    undone = json.loads(command("undo", "latest", "--scope", typed, "--yes", "--json").out)

    assert [scope["scope"] for scope in planned["scopes"]] == [JOSE]
    assert ("user_id=josé müller" in applied.out, JOSE in applied.out) == (True, False)
    assert (hinted, checked["due"]) == ({"hints": []}, False)
    assert undone["restored"] == 1


def test_a_scope_without_its_field_is_told_what_it_is_called(command: Command, jose: str) -> None:
    """Whoever types the user alone learns the whole name."""
    ended = command("plan", jose, "--scope", "josé müller")

    assert ended.code == 2
    assert "has the scope 'josé müller'; nothing was planned; did you mean 'user_id=josé müller'?" in ended.err
