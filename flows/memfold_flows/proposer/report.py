"""What the model's part of a pass came to: who was told what, what it cost, and what became of the answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from memfold_flows.streams import count

if TYPE_CHECKING:
    from memfold.proposals import Proposal


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReport:
    """The model's part of one pass. ``vetoed`` counts refused proposals by the check that refused them.

    ``failed`` are questions without a usable answer, ``not_asked`` those for which the budget did not reach.
    """

    sent_to: str
    model: str
    questions: int = 0
    calls: int = 0
    tokens: int = 0
    seconds: float = 0.0
    cached: int = 0
    failed: int = 0
    not_asked: int = 0
    accepted: int = 0
    left_apart: int = 0
    vetoed: dict[str, int] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> ModelReport:
        """The inverse of ``as_json``."""
        known = {each.name: values[each.name] for each in fields(cls)}
        return cls(**known | {"remarks": tuple(known["remarks"])})

    def as_json(self) -> dict[str, Any]:
        """For the receipt and ``--json``."""
        return asdict(self) | {"remarks": list(self.remarks)}

    def in_words(self) -> str:
        """One sentence for the terminal and for pages."""
        said = (
            f"{self.model} at {self.sent_to}: {count(self.questions, 'question', 'questions')}, "
            f"{count(self.calls, 'call', 'calls')}, {count(self.tokens, 'token', 'tokens')}, "
            f"{self.seconds:.1f} s, {self.cached} answered from before; {self.accepted} accepted, "
            f"{self.left_apart} left apart, {sum(self.vetoed.values())} vetoed"
        )
        if self.vetoed:
            said += f" ({', '.join(f'{check} {times}' for check, times in sorted(self.vetoed.items()))})"
        if self.failed:
            said += f"; {self.failed} without a usable answer, so their memories were left as they are"
        if self.not_asked:
            said += f"; {self.not_asked} not asked"
        return said + "".join(f"; {remark}" for remark in self.remarks)


def counted(proposals: Iterable[Proposal]) -> dict[str, Any]:
    """How many proposals were accepted, left their memories apart, or were refused by which check."""
    each = list(proposals)
    answered = [one for one in each if one.refused_by not in ("no answer", "not asked")]
    return {
        "accepted": sum(one.accepted for one in answered),
        "left_apart": sum(not one.accepted and one.refused_by is None for one in answered),
        "vetoed": dict(sorted(Counter(one.refused_by for one in answered if one.refused_by is not None).items())),
        "failed": sum(one.refused_by == "no answer" for one in each),
        "not_asked": sum(one.refused_by == "not asked" for one in each),
    }
