"""Settings: flags > environment (``MEMFOLD_*``) > ``memfold.yaml`` of the working folder > defaults."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Annotated, Any, get_type_hints

import yaml
from pydantic import BeforeValidator, ValidationError, create_model
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    YamlConfigSettingsSource,
)

from memfold.errors import BadUsage
from memfold.policy import Policy
from memfold_flows.stores.base import StoreTraits

PREFIX = "MEMFOLD_"
FILE = "memfold.yaml"

#: What the clock and the store decide, not a person.
_NOT_SETTINGS = {"as_of", "session_recall", "updated_with_text"}
#: Variables of this prefix that are read elsewhere.
_OTHER_VARIABLES = {"MEMFOLD_HOME", "MEMFOLD_REQUIRE_ALL"}


@dataclass(frozen=True, slots=True)
class Settings:
    """What a person may set for a pass: the thresholds of ``Policy``, and whether runs keep the whole snapshot."""

    thresholds: Mapping[str, Any]
    keep_snapshots: bool = False

    def policy(self, *, as_of: datetime, traits: StoreTraits) -> Policy:
        """The thresholds in force for a pass over a store of this kind.

        Raises:
            BadUsage: a value is out of its range.
        """
        try:
            return Policy(
                as_of=as_of,
                session_recall=traits.session_recall,
                updated_with_text=traits.updated_with_text,
                **self.thresholds,
            )
        except ValueError as error:
            raise BadUsage(f"{error}; nothing was planned") from error


def load(flags: Mapping[str, Any]) -> Settings:
    """The settings of this call; a flag that is None was not given.

    Raises:
        BadUsage: an unknown name (the nearest known one is suggested), or a value of the wrong kind.
    """
    _refuse_unknown_variables(os.environ)
    given = {name: value for name, value in flags.items() if value is not None}
    try:
        values = _SettingsSources(**given).model_dump()
    except ValidationError as error:
        raise BadUsage(_explain(error)) from None
    except yaml.YAMLError as error:
        raise BadUsage(f"{FILE} is not YAML ({' '.join(str(error).split())}); nothing was done") from None
    except (SettingsError, TypeError, ValueError) as error:
        raise BadUsage(f"{FILE} must hold one name: value a line ({error}); nothing was done") from None
    return Settings(keep_snapshots=values.pop("keep_snapshots"), thresholds=values)


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
        return init_settings, env_settings, YamlConfigSettingsSource(settings_cls)


def _words(value: object) -> object:
    """An environment variable holds several words with commas between them."""
    return tuple(word.strip() for word in value.split(",") if word.strip()) if isinstance(value, str) else value


def _fields() -> dict[str, Any]:
    """One setting per threshold of ``Policy``, with its type and default: they cannot drift apart."""
    hints = get_type_hints(Policy)
    settings: dict[str, Any] = {"keep_snapshots": (bool, False)}
    for field in fields(Policy):
        if field.name not in _NOT_SETTINGS:
            hint = hints[field.name]
            if hint == tuple[str, ...]:
                hint = Annotated[hint, NoDecode, BeforeValidator(_words)]
            settings[field.name] = (hint, field.default)
    return settings


_FIELDS = _fields()
_SettingsSources = create_model("_SettingsSources", __base__=_Sources, **_FIELDS)


def _refuse_unknown_variables(environment: Mapping[str, str]) -> None:
    known = {PREFIX + name.upper() for name in _FIELDS} | _OTHER_VARIABLES
    for name in sorted(environment):
        if name.upper().startswith(PREFIX) and name.upper() not in known:
            raise BadUsage(f"unknown environment variable {name}{_nearest(name.upper(), known)}; nothing was done")


def _explain(error: ValidationError) -> str:
    problems = []
    for problem in error.errors(include_url=False):
        name = str(problem["loc"][0]) if problem["loc"] else "a setting"
        if problem["type"] == "extra_forbidden":
            problems.append(f"unknown setting {name!r} in {FILE}{_nearest(name, _FIELDS)}")
        else:
            said = problem["msg"].removeprefix("Input ").replace("'", "")
            problems.append(f"{name} {said}, got {problem['input']!r}")
    return f"{'; '.join(problems)}; nothing was done"


def _nearest(name: str, known: Mapping[str, Any] | set[str]) -> str:
    found = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.5)
    return f"; did you mean {found[0]}?" if found else f"; known are {', '.join(sorted(known))}"
