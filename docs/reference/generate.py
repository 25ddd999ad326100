"""Writes the pages of the reference that follow from the code: `python docs/reference/generate.py` after a change."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import typer.main

from memfold import frames
from memfold_flows.cli import app
from memfold_flows.configuration import MEANINGS, schema
from memfold_flows.flags import THRESHOLDS, flag_of
from memfold_flows.sections import EVO_NAMES, SECTIONS, dotted

HERE = Path(__file__).parent
SQL = Path(frames.__file__).parent / "sql"
NOTE = "<!-- made by generate.py from the code: change the code, then run it again -->"


def pages() -> dict[str, str]:
    """Each generated page, by its file name."""
    return {
        "commands.md": commands_page(),
        "relations.md": relations_page(),
        "settings.md": settings_page(),
        "memfold.schema.json": json.dumps(schema(), indent=2) + "\n",
    }


def commands_page() -> str:
    """Every command with its arguments and options, as ``--help`` has them."""
    group: Any = typer.main.get_command(app)
    parts = ["# Commands", NOTE, "RUN is a run id, a run directory or `latest`; STORE is a store URL.", _EXIT_CODES]
    for name, command in group.commands.items():
        parts += [f"## memfold {name}", _prose(command.help)]
        own = [each for each in command.params if each.name not in THRESHOLDS]
        parts.append(_table(_HEAD, [_parameter(each) for each in own]))
        if len(own) < len(command.params):
            parts.append("Also the [thresholds](#thresholds).")
        if command.epilog:
            parts.append(_prose(command.epilog))
    thresholds = [each for each in group.commands["plan"].params if each.name in THRESHOLDS]
    parts += [
        "## Thresholds",
        "For the commands that plan; also in `memfold.yaml` and as `MEMFOLD_NAME` in the environment.",
    ]
    parts.append(_table(_HEAD, [_parameter(each) for each in thresholds]))
    return "\n\n".join(parts) + "\n"


_HEAD = ("argument or option", "default", "what it does")


def relations_page() -> str:
    """Every relation of a run with its columns, from the schemas and from what is said beside them."""
    source = Path(frames.__file__).read_text(encoding="utf-8")
    parts = [
        "# Relations",
        NOTE,
        "What a run directory holds, as Parquet. `duckdb -c \"from 'RUN/plan.parquet'\"` reads it without memfold.",
    ]
    for name, comment in _documented(source):
        schema: pa.Schema = getattr(frames, name)
        parts += [f"## {name.lower()}", comment]
        if (sql := SQL / f"{name.lower()}.sql").is_file():
            parts.append(f"Made by `sql/{sql.name}`.")
        rows = [(f"`{field.name}`", f"`{field.type}`", "yes" if field.nullable else "") for field in schema]
        parts.append(_table(("column", "type", "may be null"), rows))
    return "\n\n".join(parts) + "\n"


def settings_page() -> str:
    """Every setting by its section: its default, its flag or variable, what it does."""
    described: dict[str, Any] = schema()["properties"]
    parts = ["# Settings", NOTE, _ABOUT_SETTINGS]
    for section, names in SECTIONS.items():
        rows = [(f"`{dotted(name)}`", *_setting(name, described[name])) for name in names]
        parts += [f"## {section}", _table(("setting", "default", "elsewhere", "what it does"), rows)]
    parts += ["## In evo's words", "What evo's users know, with the same meaning:"]
    parts.append(_table(("name", "setting"), [(f"`{evo}`", f"`{dotted(name)}`") for evo, name in EVO_NAMES.items()]))
    return "\n\n".join(parts) + "\n"


_ABOUT_SETTINGS = """A flag wins over the environment, that over `memfold.yaml` in the working folder, that over a
preset, that over the default. `memfold config` shows each value and where it comes from. An unknown
name is an error.

```yaml
# yaml-language-server: $schema=memfold.schema.json
store: sqlite:memories.db
gate:
  max_loss_fraction: 0.2
  on_excess: fit
prune:
  stale_min_idle_days: 180
schedule:
  consolidate_interval_hours: 12
```

The schema is [memfold.schema.json](memfold.schema.json), and `memfold config --schema` prints it. A
setting may also stand outside of its section, under the name of its variable in lower case
(`max_loss_fraction: 0.2`), but not in two places.

Beside the sections there are `store` (the store of the commands that are given none), `preset`
(`evo`), `tables` (the columns of [tables of your own](../postgresql.md#a-table-of-yours)),
`proposer` (a model that may propose), and `memory.consolidation` with `enabled`, `cron` and
`max_loss_fraction`, as PraisonAI's users write it. Secrets never stand in the file:
`MEMFOLD_PROPOSER_KEY` holds the key of a model, `PGPASSWORD` a password. `MEMFOLD_HOME` is the
folder that runs live in."""


def _setting(name: str, described: dict[str, Any]) -> tuple[str, str, str]:
    default = described.get("default")
    flag = f", `{flag_of(name)}`" if name in THRESHOLDS else ""
    shown = "" if default in (None, []) else f"`{json.dumps(default)}`"
    return shown, f"`MEMFOLD_{name.upper()}`{flag}", _cell(MEANINGS[name])


_EXIT_CODES = """| exit code | meaning |
|---|---|
| 0 | done, nothing to do, or declined at the prompt |
| 1 | failed; nothing was written |
| 2 | bad usage |
| 3 | refused by the gate; no memory was changed |
| 4 | partly applied or partly undone; the receipt names what was not |
| 5 | not due (`check`) |"""


def _documented(source: str) -> Iterator[tuple[str, str]]:
    """The name of each schema, and the comment in front of it as one paragraph."""
    for comment, name in re.findall(r"((?:^#: .*\n)+)^(\w+) = pa\.schema\(", source, re.MULTILINE):
        yield name, " ".join(line.removeprefix("#: ") for line in comment.splitlines()).replace("``", "`")


_KINDS: dict[type, str] = {int: "N", float: "X"}


def _parameter(parameter: Any) -> tuple[str, str, str]:
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar or parameter.name.upper()}`", "", _cell(parameter.help)
    spelled = ", ".join([*parameter.opts, *parameter.secondary_opts])
    value = (
        "" if parameter.is_flag else f" {parameter.metavar or _KINDS.get(parameter.type_descriptor.annotation, 'TEXT')}"
    )
    default = "" if parameter.default in (None, False, ()) else f"`{parameter.default}`"
    return f"`{spelled}{value}`", default, _cell(parameter.help)


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ("---",) * len(head), *rows))


def _prose(text: str | None) -> str:
    return re.sub(r"[ \t]*\n[ \t]*", "\n", (text or "").replace("``", "`")).strip()


def _cell(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    for page, text in pages().items():
        (HERE / page).write_text(text, encoding="utf-8")
