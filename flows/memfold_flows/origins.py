"""Where each setting of a call comes from, as ``memfold config`` shows it and as an error names it."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memfold_flows import sections

PREFIX = "MEMFOLD_"
DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Origins:
    """What was given in this call: as flags, as variables (by their setting), and on which line of the file."""

    flags: frozenset[str] = frozenset()
    variables: Mapping[str, str] = field(default_factory=dict)
    lines: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, flags: Mapping[str, Any]) -> Origins:
        """The origins as they are now: these flags, this environment, the ``memfold.yaml`` of the working folder.

        Raises:
            yaml.YAMLError: the file is no YAML.
        """
        given = [name for name, value in os.environ.items() if value and name.upper().startswith(PREFIX)]
        variables = {name.upper().removeprefix(PREFIX).lower(): name for name in given}
        path = Path(sections.FILE)
        lines = sections.lines(path.read_text(encoding="utf-8")) if path.is_file() else {}
        return cls(frozenset(flags), variables, lines)

    def of(self, name: str, preset: Collection[str] = ()) -> str:
        """A flag, ``MEMFOLD_NAME``, ``memfold.yaml:LINE``, preset or default.

        A setting inside another is asked for as ``proposer.max_calls``; where it stands on no line of its own, the line
        of what it belongs to is named.
        """
        if name in self.flags:
            return _flag(name)
        if (outer := name.partition(".")[0]) in self.variables:
            return self.variables[outer]
        # The loss limit has a place of its own beside what PraisonAI knows.
        for place in (*_outwards(name), f"memory.consolidation.{name}"):
            if place in self.lines:
                return f"{sections.FILE}:{self.lines[place]}"
        return "preset" if name in preset else DEFAULT

    def before(self, message: str) -> str:
        """A message that begins with the name of a setting, with its origin in front where somebody gave it."""
        origin = self.of(message.split(maxsplit=1)[0])
        return message if origin == DEFAULT else f"{origin}: {message}"


def _outwards(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:end]) for end in range(len(parts), 0, -1)]


def _flag(name: str) -> str:
    from memfold_flows.flags import THRESHOLDS, flag_of

    return flag_of(name) if name in THRESHOLDS else f"the parameter {name}"
