"""``memfold config``: each setting with its value and where it comes from; the settings as a schema for editors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from memfold_flows import settings, terminal
from memfold_flows.flags import THRESHOLDS
from memfold_flows.sections import EVO_NAMES, FILE, SECTIONS, dotted
from memfold_flows.stores import urls
from memfold_flows.stores.base import StoreTraits

#: What each setting does, as the flags say it where there is one.
MEANINGS: dict[str, str] = {name: text for name, (_, text) in THRESHOLDS.items()} | {
    "store": "The store of the commands that are given none.",
    "tables": "Tables of your own: the column of each field, by the name of the table.",
    "proposer": "The model that may propose, and what it may cost; its key is read from the environment only.",
    "rolling_days": "The days over which losses are added up.",
    "min_overlap": "Share of the smaller text's words in common that makes a pair worth judging. min_jaccard is enough "
    "as well; in groups of up to exact_join_rows memories, so are two words that are half of the smaller text.",
    "min_jaccard": "Share of all words of two texts in common that makes them worth judging, and from which a pair "
    "left alone is shown as a near miss. min_overlap is enough for judging as well.",
    "exact_join_rows": "Scopes of more memories than this find their pairs by MinHash.",
    "bands": "MinHash: how many bands.",
    "rows_per_band": "MinHash: hashes in each band.",
    "leaders_per_bucket": "MinHash: how many memories of a bucket each other one is compared with.",
    "minhash_seed": "MinHash: the seed of the permutations.",
    "minhash_scheme": "MinHash: how hashes are permuted, by datasketch's names.",
    "promote_from": "The tier that memories are promoted from.",
    "promote_to": "The tier that they are promoted to.",
    "consolidate_interval_hours": "Hours from a pass over a scope to the next.",
    "converged_min_interval_hours": "The same at least, once passes change nothing.",
    "replay_threshold": "Replay batches that make a scope due before its time.",
    "backlog_threshold": "Memories written since the last pass that make a scope due before its time.",
    "approval_when": "When a flow asks a person before it writes: never, on_warning or always.",
    "approval_wait_hours": "Hours that it waits for the answer; without one, nothing is written.",
    "keep_snapshots": "Keep the whole snapshot in each run, not only what undo needs.",
    "keep_undo_days": "Days after which the undo and snapshot data of a run that nobody used may go.",
    "duckdb_memory_limit": "Memory that DuckDB may take at most.",
    "duckdb_temp_folder": "Where DuckDB puts what does not fit; left out: the folder of the run.",
    "enabled": "Whether memfold run and the flow do anything at all.",
    "cron": "When memfold serve runs a pass, as five fields.",
}

#: Settings that stand elsewhere in the file than their name says.
_PLACES = {"enabled": "memory.consolidation.enabled", "cron": "memory.consolidation.cron"}


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting as it is in force. ``origin``: flag, MEMFOLD_NAME, memfold.yaml:LINE, preset or default."""

    name: str
    value: Any
    origin: str


def show(flags: Mapping[str, Any], *, as_json: bool) -> None:
    """Print each setting with its value and where it comes from."""
    found = in_force(flags)
    if as_json:
        terminal.print_json({"settings": [asdict(each) for each in found]})
        return
    from memfold_flows import console

    console.table(("setting", "value", "from"), [(each.name, _in_words(each.value), each.origin) for each in found])


def show_schema() -> None:
    """Print the JSON schema of ``memfold.yaml``."""
    terminal.print_json(schema())


def in_force(flags: Mapping[str, Any]) -> list[Setting]:
    """Every setting of this call, in the order of the sections.

    Raises:
        BadUsage: a setting is unknown, of the wrong kind, or out of its range.
    """
    chosen = settings.load(flags)
    chosen.policy(as_of=datetime.now(UTC), traits=StoreTraits(places=frozenset(), promotes=True))
    values = _values(chosen)
    preset = settings.PRESETS.get(flags.get("preset") or chosen.preset, {})
    return [
        Setting(_place(name), values[name], chosen.origins.of(_PLACES.get(name, name), preset))
        for name in _order(values)
    ]


def schema() -> dict[str, Any]:
    """The JSON schema of ``memfold.yaml``, for editors: the same names and kinds that ``settings`` accepts."""
    made = settings.sources_schema()
    own: dict[str, Any] = made["properties"]
    for name, described in own.items():
        described.pop("title", None)
        if name in MEANINGS:
            described["description"] = MEANINGS[name]
    own["tables"]["additionalProperties"] = _COLUMNS
    inner = {
        section: {
            "type": "object",
            "additionalProperties": False,
            "properties": {dotted(name).removeprefix(f"{section}."): own[name] for name in names},
        }
        for section, names in SECTIONS.items()
    }
    for place, name in EVO_NAMES.items():
        inner["retention"]["properties"][place.removeprefix("retention.")] = own[name]  # type: ignore[index]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"memfold: {FILE}",
        "type": "object",
        "additionalProperties": False,
        "properties": {**inner, **own, **{place: own[name] for place, name in EVO_NAMES.items()}},
        "$defs": made.get("$defs", {}),
    }


#: The columns of one table; a scope may be made of several, or of none.
_COLUMNS = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        name: {"type": ["string", "array", "null"], "items": {"type": "string"}}
        if name == "scope"
        else {"type": "string"}
        for name in settings.fields_of_tables()
    },
}


def _values(chosen: settings.Settings) -> dict[str, Any]:
    """The settings by their plain names, none with a password."""
    own = {
        name: getattr(chosen, name)
        for name in ("store", "preset", "enabled", "cron", *SECTIONS["retention"], *SECTIONS["duckdb"])
    }
    own |= {"tables": chosen.tables or None, "proposer": chosen.proposer and chosen.proposer.model_dump(mode="json")}
    own["store"] = own["store"] and urls.without_password(own["store"])
    own["duckdb_temp_folder"] = own["duckdb_temp_folder"] and str(own["duckdb_temp_folder"])
    own |= {f"approval_{name}": value for name, value in asdict(chosen.approval).items()}
    return {**own, **asdict(chosen.schedule), **chosen.thresholds}


def _order(values: Mapping[str, Any]) -> list[str]:
    in_sections = [name for names in SECTIONS.values() for name in names]
    first = [name for name in ("store", "preset", "enabled", "cron") if name in values]
    return [*first, *in_sections, *(name for name in values if name not in {*first, *in_sections})]


def _place(name: str) -> str:
    return _PLACES.get(name, dotted(name))


def _in_words(value: Any) -> str:
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return str(value)
