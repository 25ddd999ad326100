"""memfold: the night shift for AI-agent memory. Light to import: neither Prefect, numba nor DuckDB."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memfold.contract import (
    AsyncMemoryConsolidationProtocol,
    ConsolidationResult,
    MemoryConsolidationProtocol,
)
from memfold.errors import (
    ApplyInterrupted,
    BadRecord,
    BadUsage,
    MemfoldError,
    PlanDamaged,
    StoreError,
    Transient,
)

if TYPE_CHECKING:
    from memfold.memory import Memory
    from memfold.policy import Policy

__all__ = [
    "ApplyInterrupted",
    "AsyncMemoryConsolidationProtocol",
    "BadRecord",
    "BadUsage",
    "ConsolidationResult",
    "MemfoldError",
    "Memory",
    "MemoryConsolidationProtocol",
    "PlanDamaged",
    "Policy",
    "StoreError",
    "Transient",
]

#: Public names whose modules need a library; they are imported when they are first asked for.
_LATER = {"Memory": "memfold.memory", "Policy": "memfold.policy"}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'memfold' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LATER[name]), name)
