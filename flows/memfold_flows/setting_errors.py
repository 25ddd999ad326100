"""What is wrong with a setting, in words: where it was given, what it should be, and the nearest known name."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from pydantic import ValidationError

from memfold_flows.origins import Origins
from memfold_flows.proposer.options import KEY_VARIABLE
from memfold_flows.sections import FILE, nearest_in

#: Sections in which settings have sections of their own.
_NESTED = ("memory", "proposer", "tables")
#: The value of a setting in here may be a secret, or hold one.
_NOT_SHOWN = ("proposer",)
_SECRET = re.compile(r"key|token|secret|password|credential", re.IGNORECASE)


def explain(error: ValidationError, origins: Origins, known: Mapping[str, Collection[str]]) -> str:
    """Every problem with its origin; ``known`` has the names that may stand in each section, '' for the top."""
    problems = [_problem(each, origins, known) for each in error.errors(include_url=False)]
    return f"{'; '.join(problems)}; nothing was done"


def _problem(problem: Any, origins: Origins, known: Mapping[str, Collection[str]]) -> str:
    place = problem["loc"] if problem["loc"] and problem["loc"][0] in _NESTED else problem["loc"][:1]
    name = ".".join(map(str, place)) or "a setting"
    if problem["type"] == "extra_forbidden":
        what = _unknown(name, known)
    else:
        said = problem["msg"].removeprefix("Input ").removeprefix("Value error, ")
        what = f"{name} {said}" if place[0] in _NOT_SHOWN else _with_value(name, said, problem["input"])
    origin = origins.of(name)
    return f"{origin if origin != 'default' else FILE}: {what}"


def _with_value(name: str, said: str, value: object) -> str:
    plain = said.replace("'", "")
    return f"{name} {plain}, got {value!r}"


def _unknown(name: str, known: Mapping[str, Collection[str]]) -> str:
    section, _, own = name.rpartition(".")
    if _SECRET.search(own):
        return f"unknown setting {name!r}: keys stand in no file. Set {KEY_VARIABLE} instead"
    return f"unknown setting {name!r}{nearest_in(section, own, known.get(section, known['']))}"
