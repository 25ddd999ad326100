"""The contract with PraisonAI: the result of a pass, and the two protocols. Standard library only.

Equal, field for field and outcome for outcome, to ``praisonaiagents.memory`` 1.7.17: also where that class fails open
(NaN, negative counts). What is stricter lives above it, in ``memfold.gate``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable


@dataclass
class ConsolidationResult:
    """What one pass did to a memory, in counts of entries.

    ``retained_originals`` counts the entries whose text is still there unchanged; when it is given, it alone decides
    the loss. Nothing is validated, as in the original.
    """

    entries_before: int = 0
    entries_after: int = 0
    merged: int = 0
    promoted: int = 0
    pruned: int = 0
    rejected: bool = False
    reason: str | None = None
    retained_originals: int | None = None
    context: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.context is None:
            self.context = {}

    @property
    def loss_fraction(self) -> float:
        """Share of the original entries that is gone, from 0.0 to 1.0; 0.0 for an empty memory."""
        if self.entries_before <= 0:
            return 0.0
        if self.retained_originals is not None:
            # The order of the arguments decides what NaN gives; it is the original's.
            retained = max(0, min(self.retained_originals, self.entries_before))
            removed = self.entries_before - retained
        else:
            removed = max(self.entries_before - self.entries_after, 0)
        return removed / self.entries_before

    def exceeds_loss(self, max_loss_fraction: float) -> bool:
        """Whether more was lost than allowed; a loss equal to the limit is allowed.

        Raises:
            ValueError: the limit is not a real number, or not finite and within [0.0, 1.0].
        """
        if isinstance(max_loss_fraction, bool) or not isinstance(max_loss_fraction, int | float):
            raise ValueError("max_loss_fraction must be a real number in [0.0, 1.0]")
        if not math.isfinite(max_loss_fraction) or not 0.0 <= max_loss_fraction <= 1.0:
            raise ValueError("max_loss_fraction must be finite and within [0.0, 1.0]")
        return self.loss_fraction > max_loss_fraction


@runtime_checkable
class MemoryConsolidationProtocol(Protocol):
    """Anything that can consolidate a memory object in place."""

    def consolidate(self, memory: Any, *, max_loss_fraction: float = 0.25) -> ConsolidationResult:
        """Fold the memory, or leave it as it is and say why."""
        ...


@runtime_checkable
class AsyncMemoryConsolidationProtocol(Protocol):
    """The same, for callers that await."""

    async def aconsolidate(self, memory: Any, *, max_loss_fraction: float = 0.25) -> ConsolidationResult:
        """Fold the memory, or leave it as it is and say why."""
        ...
