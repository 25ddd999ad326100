"""Settings: flags > environment (``MEMFOLD_*``) > ``memfold.yaml`` of the working folder > defaults."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    YamlConfigSettingsSource,
)

from memfold import convergence, policy
from memfold.convergence import Schedule
from memfold.errors import BadUsage
from memfold.policy import Policy
from memfold_flows import sections
from memfold_flows.origins import PREFIX, Origins
from memfold_flows.proposer.options import KEY_VARIABLE, Embeddings, ProposerOptions
from memfold_flows.setting_errors import explain
from memfold_flows.stores import urls
from memfold_flows.stores.base import StoreTraits

logger = logging.getLogger(__name__)

FILE = sections.FILE

#: Settings by the name of a system: they stand where nothing else is set. evo caps its scopes; a scope far above the
#: cap comes down pass by pass, as it would otherwise be refused for ever.
PRESETS: dict[str | None, dict[str, Any]] = {
    "evo": {"max_memories": 200, "newborn_grace_days": 3.0, "on_excess": "fit"}
}

#: What the clock and the store decide, not a person.
_NOT_SETTINGS = {"as_of", "session_recall", "updated_with_text"}
#: Variables of this prefix that are read elsewhere.
_OTHER_VARIABLES = {"MEMFOLD_HOME", "MEMFOLD_REQUIRE_ALL", KEY_VARIABLE}


#: A plan over a million memories needs a tenth of it.
DUCKDB_MEMORY_LIMIT = "2GB"


#: never: the gate alone decides; on_warning: where a scope is refused or loses much; always.
WhenToAsk = Literal["never", "on_warning", "always"]


@dataclass(frozen=True, slots=True)
class Approval:
    """When a flow asks a person before it writes, and how long it waits for the answer."""

    when: WhenToAsk = "never"
    wait_hours: float = 12


@dataclass(frozen=True, slots=True)
class Settings:
    """What a person may set for a pass: the thresholds of ``Policy``, and whether runs keep the whole snapshot.

    Undo and snapshot data that nobody used for ``keep_undo_days`` days may be removed.

    ``enabled`` and ``cron`` are those of ``memory.consolidation`` in the file: whether the flow and ``memfold run`` do
    anything at all, and when ``memfold serve`` runs a pass.
    """

    thresholds: Mapping[str, Any]
    #: The store of the commands that are given none.
    store: str | None = None
    preset: str | None = None
    keep_snapshots: bool = False
    keep_undo_days: int = 90
    #: What DuckDB may take at most, and where it puts what does not fit; None: in the folder of the run.
    duckdb_memory_limit: str = DUCKDB_MEMORY_LIMIT
    duckdb_temp_folder: Path | None = None
    enabled: bool = True
    cron: str | None = None
    schedule: Schedule = field(default_factory=Schedule)
    approval: Approval = field(default_factory=Approval)
    #: Tables of people's own, by the name that a store's URL says: the column of each field.
    tables: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    #: The model that may propose; None where there is none.
    proposer: ProposerOptions | None = None
    origins: Origins = field(default_factory=Origins, compare=False)

    def policy(self, *, as_of: datetime, traits: StoreTraits) -> Policy:
        """The thresholds in force for a pass over a store of this kind, without those that it has no use for.

        Raises:
            BadUsage: a value is out of its range.
        """
        without = self.without_effect(traits)
        if without:
            logger.warning("%s left out: %s", ", ".join(without), _no_promotion(traits))
        try:
            return Policy(
                as_of=as_of,
                session_recall=traits.session_recall,
                updated_with_text=traits.updated_with_text,
                **{**self.thresholds, **dict.fromkeys(without)},
            )
        except ValueError as error:
            raise BadUsage(f"{self.origins.before(str(error))}; nothing was planned") from error

    def without_effect(self, traits: StoreTraits) -> tuple[str, ...]:
        """The thresholds that are set although a store of this kind moves no memory from tier to tier."""
        return () if traits.promotes else tuple(name for name in _PROMOTES if self.thresholds.get(name) is not None)

    def why_without_effect(self, traits: StoreTraits) -> str | None:
        """Those thresholds and the reason, for a person; None where all have their effect."""
        without = self.without_effect(traits)
        return f"{', '.join(without)} left out: {_no_promotion(traits)}" if without else None


def load(flags: Mapping[str, Any]) -> Settings:
    """The settings of this call; a flag that is None was not given.

    Raises:
        BadUsage: an unknown name (the nearest known one is suggested), or a value of the wrong kind.
    """
    _refuse_unknown_variables(os.environ)
    given = {name: value for name, value in flags.items() if value is not None}
    try:
        origins = Origins.read(given)
        sources = _SettingsSources(**given)
        values = sources.model_dump()
    except ValidationError as error:
        raise BadUsage(explain(error, origins, _KNOWN)) from None
    except yaml.YAMLError as error:
        raise BadUsage(f"{FILE} is not YAML ({' '.join(str(error).split())}); nothing was done") from None
    except (SettingsError, TypeError, ValueError) as error:
        raise BadUsage(f"{FILE} must hold one name: value a line ({error}); nothing was done") from None
    _refuse_unknown_fields(values["tables"], origins)
    chosen_preset = values.pop("preset")
    preset = PRESETS.get(chosen_preset, {})
    values |= {name: value for name, value in preset.items() if name not in sources.model_fields_set}
    consolidation = values.pop("memory")["consolidation"]
    schedule = {name: values.pop(name) for name in _SCHEDULE}
    try:
        when = Schedule(**schedule)
    except ValueError as error:
        raise BadUsage(f"{origins.before(str(error))}; nothing was done") from None
    proposer = sources.proposer  # type: ignore[attr-defined]
    values.pop("proposer")
    return Settings(
        schedule=when,
        approval=Approval(values.pop("approval_when"), values.pop("approval_wait_hours")),
        proposer=proposer,
        store=values.pop("store"),
        preset=chosen_preset,
        keep_snapshots=values.pop("keep_snapshots"),
        keep_undo_days=values.pop("keep_undo_days"),
        duckdb_memory_limit=values.pop("duckdb_memory_limit"),
        duckdb_temp_folder=values.pop("duckdb_temp_folder"),
        enabled=consolidation["enabled"],
        cron=consolidation["cron"],
        tables=values.pop("tables"),
        thresholds=values,
        origins=origins,
    )


def store_of(given: str | None) -> str:
    """The store that a command is given, or the one that is set.

    Raises:
        BadUsage: neither names one.
    """
    url = given or load({}).store
    if url is None:
        raise BadUsage(f"no store is given, and {FILE} sets none; nothing was done. Name one as scheme:path")
    return url


def sources_schema() -> dict[str, Any]:
    """The settings by their plain names, as a JSON schema."""
    return _SettingsSources.model_json_schema()


def duckdb_config(run: Path) -> dict[str, Any]:
    """How DuckDB is to be opened for the run in this folder."""
    chosen = load({})
    return {
        "memory_limit": chosen.duckdb_memory_limit,
        "temp_directory": str(chosen.duckdb_temp_folder or run / ".duckdb"),
    }


class _Sources(BaseSettings):
    model_config = SettingsConfigDict(env_prefix=PREFIX, env_ignore_empty=True, extra="forbid", yaml_file=FILE)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, _File(settings_cls)


class _File(YamlConfigSettingsSource):
    """``memfold.yaml``: settings in sections or not, the loss limit also under ``memory.consolidation``."""

    def __call__(self) -> dict[str, Any]:
        file = Path(FILE)
        places = sections.places(file.read_text(encoding="utf-8")) if file.is_file() else {}
        values = sections.flattened(super().__call__(), places)
        if isinstance(store := values.get("store"), str) and urls.without_password(store) != store:
            raise BadUsage(
                f"{FILE}:{places['store']}: store holds a password; nothing was done. Set PGPASSWORD instead"
            )
        memory = values.get("memory")
        consolidation = memory.get("consolidation") if isinstance(memory, dict) else None
        if not isinstance(consolidation, dict) or consolidation.get("max_loss_fraction") is None:
            return values
        if "max_loss_fraction" in values:
            raise BadUsage(
                f"{FILE} sets max_loss_fraction twice, also under memory.consolidation; nothing was done. Keep one."
            )
        return {**values, "max_loss_fraction": consolidation["max_loss_fraction"]}


_CRON = re.compile(r"(?:cron:)?\s*(\S+(?:\s+\S+){4})\s*")
_AMOUNT = re.compile(r"[1-9]\d*(\.\d+)? ?[KMGT]i?B")


def _written_as(pattern: re.Pattern[str]) -> Any:
    """Say in the schema how a text is written; the validator of the setting says it in words."""
    return Field(json_schema_extra={"pattern": f"^{pattern.pattern}$"})


def _cron(value: object) -> object:
    """Five fields, in the bare form or as PraisonAI's scheduler takes it, with ``cron:`` in front."""
    if not isinstance(value, str):
        return value
    match = _CRON.fullmatch(value)
    if match is None:
        raise ValueError("should be five fields as in cron, such as 0 3 * * *")
    return " ".join(match[1].split())


class _Consolidation(BaseModel):
    model_config = ConfigDict(extra="forbid")

    enabled: bool = True
    cron: Annotated[str | None, BeforeValidator(_cron), _written_as(_CRON)] = None
    max_loss_fraction: Annotated[float | None, Field(json_schema_extra={**policy.RANGES["max_loss_fraction"]})] = None


class _Memory(BaseModel):
    model_config = ConfigDict(extra="forbid")

    consolidation: _Consolidation = _Consolidation()


def _words(value: object) -> object:
    """An environment variable holds several words with commas between them."""
    return tuple(word.strip() for word in value.split(",") if word.strip()) if isinstance(value, str) else value


def _memory(value: object) -> object:
    if not isinstance(value, str) or _AMOUNT.fullmatch(value) is None:
        raise ValueError("should be an amount with its unit, such as 2GB or 512MB")
    return value


def _folder(value: object) -> object:
    if value is not None and not (isinstance(value, str) and Path(value).expanduser().is_dir()):
        raise ValueError("should be a folder that exists")
    return value if value is None else Path(value).expanduser()


def _columns(value: object) -> object:
    """Several columns may stand in a list, or with commas between them; none is the empty text."""
    return "" if value is None else ",".join(map(str, value)) if isinstance(value, list) else value


def _fields() -> dict[str, Any]:
    """One setting per field of ``Policy`` and of ``Schedule``, with its type and default: they cannot drift apart."""
    hints = get_type_hints(Policy)
    settings: dict[str, Any] = {
        "keep_snapshots": (bool, False),
        "keep_undo_days": (Annotated[int, Field(ge=0, le=36_500)], 90),
        "duckdb_memory_limit": (Annotated[str, BeforeValidator(_memory), _written_as(_AMOUNT)], DUCKDB_MEMORY_LIMIT),
        "duckdb_temp_folder": (Annotated[Path | None, BeforeValidator(_folder)], None),
        "approval_when": (WhenToAsk, Approval().when),
        "approval_wait_hours": (Annotated[float, Field(gt=0, le=168)], Approval().wait_hours),
        "preset": (Literal["evo"] | None, None),
        "store": (str | None, None),
        "proposer": (ProposerOptions | None, None),
    }
    for when in fields(Schedule):
        settings[when.name] = (get_type_hints(Schedule)[when.name], when.default)
    for threshold in fields(Policy):
        if threshold.name not in _NOT_SETTINGS:
            hint = hints[threshold.name]
            if hint == tuple[str, ...]:
                hint = Annotated[hint, NoDecode, BeforeValidator(_words)]
            settings[threshold.name] = (hint, threshold.default)
    for name, bounds in (policy.RANGES | convergence.RANGES).items():
        hint, default = settings[name]
        settings[name] = (Annotated[hint, Field(json_schema_extra={**bounds})], default)
    return settings


_FIELDS = _fields()
_SettingsSources = create_model(
    "_SettingsSources",
    __base__=_Sources,
    memory=(_Memory, _Memory()),
    tables=(dict[str, dict[str, Annotated[str, BeforeValidator(_columns)]]], {}),
    **_FIELDS,
)
#: What may stand at the top of the file.
NAMES = frozenset(_SettingsSources.model_fields) | frozenset(sections.SECTIONS)
#: What may stand in each section that has names of its own.
_KNOWN = {
    "": NAMES,
    "memory": frozenset(_Memory.model_fields),
    "memory.consolidation": frozenset(_Consolidation.model_fields),
    "proposer": frozenset(ProposerOptions.model_fields),
    "proposer.embeddings": frozenset(Embeddings.model_fields),
}
_SCHEDULE = tuple(when.name for when in fields(Schedule))
_PROMOTES = tuple(name for name in _FIELDS if name.startswith("promote_min_"))


def _no_promotion(traits: StoreTraits) -> str:
    return f"this store moves no memory from tier to tier{traits.no_promotion and f' ({traits.no_promotion})'}"


def fields_of_tables() -> tuple[str, ...]:
    """The fields of a memory that a table of people's own may have a column for."""
    from memfold_flows.stores.mapping import OPTIONS

    return tuple(name for name in OPTIONS if name != "table")


def _refuse_unknown_fields(tables: Mapping[str, Mapping[str, str]], origins: Origins) -> None:
    for table, columns in tables.items():
        for name in sorted(columns.keys() - set(fields_of_tables())):
            place = f"tables.{table}.{name}"
            said = sections.nearest_in(f"tables.{table}", name, fields_of_tables())
            raise BadUsage(f"{origins.of(place)}: {place} names no field of a memory{said}; nothing was done")


def _refuse_unknown_variables(environment: Mapping[str, str]) -> None:
    known = {PREFIX + name.upper() for name in _FIELDS} | _OTHER_VARIABLES
    for name in sorted(environment):
        if name.upper().startswith(PREFIX) and name.upper() not in known:
            said = sections.nearest(name.upper(), known)
            raise BadUsage(f"unknown environment variable {name}{said}; nothing was done")
