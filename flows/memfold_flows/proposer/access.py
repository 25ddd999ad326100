"""What the model's part of one pass goes through: the endpoint, the budget, the answers of before, and the redactor."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from memfold_flows.proposer import endpoint
from memfold_flows.proposer.budget import Budget
from memfold_flows.proposer.cache import Cache, folder_of
from memfold_flows.proposer.endpoint import Endpoint
from memfold_flows.proposer.options import KEY_VARIABLE, ProposerOptions
from memfold_flows.proposer.redaction import Redactor
from memfold_flows.runs import runs_folder


@dataclass(frozen=True, slots=True)
class Access:
    """One pass's way to a model."""

    options: ProposerOptions
    endpoint: Endpoint
    budget: Budget
    cache: Cache
    redact: Redactor

    def post(self, url: str, body: dict[str, Any]) -> dict[str, Any]:
        """What an endpoint answers, with each call on the budget.

        Raises:
            NoAnswer: it gave nothing that could be read.
        """
        left = self.options.max_calls - self.budget.calls
        try:
            return self.endpoint.post(
                url, body, deadline=self.budget.deadline, tries=min(self.options.retries + 1, left)
            )
        finally:
            self.budget.calls = self.endpoint.calls


@contextmanager
def opened(options: ProposerOptions, **clocks: Any) -> Iterator[Access]:
    """A way to the model of these options, with the key of the environment."""
    key = os.environ.get(KEY_VARIABLE) or None
    with endpoint.opened(key, timeout_seconds=options.timeout_seconds, **clocks) as reached:
        home = runs_folder(os.environ.get("MEMFOLD_HOME")).parent
        budget = Budget(options, reached.monotonic)
        yield Access(options, reached, budget, Cache(folder_of(home)), Redactor(options.redact))
