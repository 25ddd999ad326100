"""The sections of ``memfold.yaml``: which setting stands where, and under which name."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import yaml

from memfold.errors import BadUsage

FILE = "memfold.yaml"

#: The settings by their section; each may also stand outside of it, on a line of its own.
SECTIONS: dict[str, tuple[str, ...]] = {
    "gate": (
        "max_loss_fraction",
        "on_excess",
        "strict_entries",
        "max_rolling_loss_fraction",
        "rolling_days",
        "max_lost_rows",
        "max_expired_fraction",
    ),
    "match": (
        "supersede",
        "across_sessions",
        "min_overlap",
        "min_jaccard",
        "exact_join_rows",
        "bands",
        "rows_per_band",
        "leaders_per_bucket",
        "minhash_seed",
        "minhash_scheme",
    ),
    "prune": (
        "stale_min_age_days",
        "stale_min_idle_days",
        "stale_max_use_count",
        "stale_max_importance",
        "stale_kinds",
        "max_memories",
        "newborn_grace_days",
    ),
    "promote": (
        "promote_min_sessions",
        "promote_min_use_count",
        "promote_min_age_days",
        "promote_min_evidence",
        "promote_from",
        "promote_to",
    ),
    "schedule": (
        "consolidate_interval_hours",
        "converged_min_interval_hours",
        "replay_threshold",
        "backlog_threshold",
    ),
    "approval": ("approval_when", "approval_wait_hours"),
    "retention": ("keep_snapshots", "keep_undo_days"),
    "duckdb": ("duckdb_memory_limit", "duckdb_temp_folder"),
}

#: evo's names for settings, taken under ``retention``, nested or dotted.
EVO_NAMES = {
    "retention.consolidateIntervalHours": "consolidate_interval_hours",
    "retention.convergedMinIntervalHours": "converged_min_interval_hours",
    "retention.maxMemories": "max_memories",
    "retention.newbornGraceDays": "newborn_grace_days",
}

_SHORT_NAMES = {
    "approval_when": "when",
    "approval_wait_hours": "wait_hours",
    "duckdb_memory_limit": "memory_limit",
    "duckdb_temp_folder": "temp_folder",
}


def dotted(name: str) -> str:
    """The name of a setting with its section, as in ``gate.max_loss_fraction``."""
    for section, names in SECTIONS.items():
        if name in names:
            return f"{section}.{_SHORT_NAMES.get(name, name)}"
    return name


#: Every name under which a setting may stand in a section, and the setting.
_IN_SECTIONS = {dotted(name): name for names in SECTIONS.values() for name in names} | EVO_NAMES


def flattened(values: Mapping[str, Any], places: Mapping[str, int]) -> dict[str, Any]:
    """The content of a file with each setting under its plain name; ``places`` has the line of each name in it.

    Raises:
        BadUsage: a section is none, has a name that does not belong there, or a setting stands in two places.
    """
    flat: dict[str, Any] = {}
    for place, name, value in _settings(values, places):
        if name in flat:
            raise BadUsage(f"{_at(place, places)} sets {name} twice, also as {place}; nothing was done. Keep one.")
        flat[name] = value
    return flat


def lines(text: str) -> dict[str, int]:
    """The line on which each setting of a file stands, by its plain name."""
    return {_IN_SECTIONS.get(place, place): line for place, line in _lines(yaml.compose(text, Loader=yaml.SafeLoader))}


def places(text: str) -> dict[str, int]:
    """The line of each name in a file, with all that it stands in; a file where one stands twice is refused.

    YAML itself would take the last.

    Raises:
        BadUsage: there is such a name.
    """
    seen: dict[str, int] = {}
    for place, line in _lines(yaml.compose(text, Loader=yaml.SafeLoader)):
        if place in seen:
            raise BadUsage(f"{place} stands twice in {FILE}, on line {seen[place]} and line {line}; nothing was done")
        seen[place] = line
    return seen


def nearest(name: str, known: Collection[str]) -> str:
    """What a person may have meant, as the end of a message."""
    return nearest_in("", name, known)


def nearest_in(section: str, name: str, known: Collection[str]) -> str:
    """The same for a name in a section; what the section is called makes no two names alike."""
    within = f"{section}." if section else ""
    found = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.5)
    return f"; did you mean {within}{found[0]}?" if found else f"; known are {', '.join(sorted(known))}"


def _at(place: str, places: Mapping[str, int]) -> str:
    return f"{FILE}:{places[place]}" if place in places else FILE


def _settings(values: Mapping[str, Any], places: Mapping[str, int]) -> Iterator[tuple[str, str, Any]]:
    """Each setting of a file: where it stands, its plain name, its value. What stands outside of sections first."""
    outside = {place: value for place, value in values.items() if place not in SECTIONS}
    inside = {f"{section}.{name}": value for section, name, value in _inside(values, places)}
    for place, value in (outside | inside).items():
        if place in inside or place.startswith("retention."):
            if place not in _IN_SECTIONS:
                section = place.split(".", 1)[0]
                known = [each for each in _IN_SECTIONS if each.startswith(f"{section}.")]
                said = nearest(place, known if difflib.get_close_matches(place, known, cutoff=0.75) else _IN_SECTIONS)
                raise BadUsage(f"{_at(place, places)}: unknown setting {place!r}{said}; nothing was done")
            yield place, _IN_SECTIONS[place], value
        else:
            yield place, place, value


def _inside(values: Mapping[str, Any], places: Mapping[str, int]) -> Iterator[tuple[str, str, Any]]:
    for section in SECTIONS:
        if section not in values:
            continue
        inner = values[section]
        if not isinstance(inner, dict):
            said = f"{section} must hold names and values, got {inner!r}"
            raise BadUsage(f"{_at(section, places)}: {said}; nothing was done")
        for name, value in inner.items():
            yield section, str(name), value


def _lines(node: yaml.Node | None, place: str = "") -> Iterator[tuple[str, int]]:
    """Each name of a file with all that it stands in, and its line."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            inner = f"{place}.{key.value}" if place else str(key.value)
            yield inner, key.start_mark.line + 1
            yield from _lines(value, inner)
