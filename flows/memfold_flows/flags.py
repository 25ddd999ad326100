"""The thresholds of a pass as command line flags, shared by the commands that plan."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import typer

Command = TypeVar("Command", bound=Callable[..., Any])

#: Name of the threshold (also in memfold.yaml and as MEMFOLD_NAME), its type here, and what it does.
THRESHOLDS: dict[str, tuple[Any, str]] = {
    "max_loss_fraction": (float, "Share of a scope's memories that a pass may lose, 0 to 1 (0.25)."),
    "on_excess": (str, "Over that limit: reject (write nothing of the scope) or fit (stop at the limit)."),
    "strict_entries": (bool, "Count exact copies and expired memories as lost too."),
    "max_lost_rows": (int, "Most memories that a scope may lose, whatever their share."),
    "max_rolling_loss_fraction": (float, "Share that a scope may lose over 30 days, all passes together (0.5)."),
    "max_expired_fraction": (float, "Share of a scope that may have expired before it looks like a mistake (0.5)."),
    "supersede": (str, "What a newer memory does to the one it replaces: report or archive."),
    "across_sessions": (bool, "Fold twins of two sessions where the store recalls by session."),
    "stale_min_age_days": (float, "Prune memories at least this old, if the other stale flags hold too."),
    "stale_min_idle_days": (float, "Prune memories not used for this long, if the others hold too."),
    "stale_max_use_count": (int, "Prune memories used at most this often, if the others hold too."),
    "stale_max_importance": (float, "Prune memories of at most this importance, if the others hold too."),
    "stale_kinds": (list[str], "Only memories of this kind can be stale (may be given more than once)."),
    "promote_min_sessions": (int, "Promote memories seen in at least this many sessions."),
    "promote_min_use_count": (int, "Promote memories used at least this often."),
    "promote_min_age_days": (float, "Promote memories at least this old."),
    "promote_min_evidence": (int, "Promote memories that this many replay batches tell again."),
    "max_memories": (
        int,
        "Most memories of a scope; above it the lowest scores go, but none of unknown use or age.",
    ),
    "newborn_grace_days": (float, "None of them younger than this goes (3)."),
    "preset": (str, "Settings of a system where you set none: evo (at most 200 memories a scope, on-excess fit)."),
}
_FLAG_NAMES = {"stale_kinds": "--stale-kind"}


def with_threshold_flags(command: Command) -> Command:
    """Give a command one flag per threshold; they reach it together, as ``flags``: a dict without those not given."""
    signature = inspect.signature(command, eval_str=True)
    own = [parameter for name, parameter in signature.parameters.items() if name != "flags"]
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_annotation(name, kind, text))
        for name, (kind, text) in THRESHOLDS.items()
    ]

    @functools.wraps(command)
    def wrapper(**values: Any) -> Any:
        flags = {name: values.pop(name) for name in THRESHOLDS}
        given = {name: value for name, value in flags.items() if value not in (None, [])}
        return command(**values, flags=given)

    wrapper.__signature__ = signature.replace(parameters=own + added)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in own + added}
    return wrapper  # type: ignore[return-value]


def flag_of(name: str) -> str:
    """The flag of a threshold, as it is typed."""
    return _FLAG_NAMES.get(name, f"--{name.replace('_', '-')}")


def _annotation(name: str, kind: Any, text: str) -> Any:
    flag = flag_of(name)
    if kind is bool:
        flag = f"{flag}/--no-{flag.removeprefix('--')}"
    return Annotated[kind | None, typer.Option(flag, help=text, rich_help_panel="Thresholds", show_default=False)]
