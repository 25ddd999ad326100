"""What a model may cost in one pass; once it is spent, the model's part ends and the pass goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from memfold_flows.proposer.options import ProposerOptions

CHARACTERS_PER_TOKEN = 4


@dataclass(slots=True)
class Budget:
    """What was spent so far: calls that were sent, tokens, and seconds since the model was first asked."""

    options: ProposerOptions
    monotonic: Callable[[], float]
    calls: int = 0
    tokens: int = 0
    began: float | None = None

    @property
    def seconds(self) -> float:
        """Seconds since the first question, waiting included."""
        return 0.0 if self.began is None else self.monotonic() - self.began

    @property
    def deadline(self) -> float:
        """When the seconds are spent, on the clock of ``monotonic``."""
        start = self.monotonic() if self.began is None else self.began
        return start + self.options.max_seconds

    def why_not(self, characters: int) -> str | None:
        """What would be overspent by a question of this many characters; None where it may be asked."""
        if self.began is None:
            self.began = self.monotonic()
        if self.calls >= self.options.max_calls:
            return f"max_calls of {self.options.max_calls} is spent"
        if self.tokens + characters // CHARACTERS_PER_TOKEN > self.options.max_tokens:
            return f"max_tokens of {self.options.max_tokens} is spent"
        if self.monotonic() >= self.deadline:
            return f"max_seconds of {self.options.max_seconds:g} is spent"
        return None
