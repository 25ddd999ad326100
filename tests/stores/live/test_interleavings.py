"""Agents write at any moment between a plan, its transactions and its undo: drawn interleavings over every system."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from memfold.memory import Memory

SCOPES = ("team", "other", "third")
MEMBERS = 3


Play = Callable[[int], None]


def test_what_agents_write_at_any_moment_stays(system: str, play: Play) -> None:
    """A few drawn interleavings of each system."""
    for number in range(2 if system == "postgresql" else 6):
        play(number)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_thousands_of_drawn_interleavings_lose_nothing(system: str, play: Play) -> None:
    """Five hundred of each system; fewer of PostgreSQL, where each needs a database."""
    for number in range(100, 150 if system == "postgresql" else 600):
        play(number)


#: In each scope a survivor with its members, one that is to be pruned, and one that no plan names.
MEMORIES = tuple(
    Memory(memory_id=f"{scope}-{name}", content=f"{scope} says {text}", scope=scope)
    for scope in SCOPES
    for name, text in (("stays", "tea"), *((f"m{n}", "tea") for n in range(MEMBERS)), ("stale", "x"), ("free", "y"))
)


@pytest.fixture
def play(
    request: pytest.FixtureRequest,
    system: str,
    kinds: Mapping[str, Any],
    memories_of: Callable[[Any], Mapping[str, Memory]],
    tmp_path: Path,
) -> Play:
    """Play the interleaving of this number in a new store of the system."""

    def play(number: int) -> None:
        if system == "postgresql":
            place = request.getfixturevalue("postgresql_server").new_database()
        else:
            place = tmp_path / f"store-{number}"
            place.mkdir()
        filled = kinds[system](place, MEMORIES)
        _Interleaving(random.Random(f"{system} {number}"), filled, memories_of).play(request.getfixturevalue("a_pass"))

    return play


@dataclass
class _Interleaving:
    """One plan, its apply and its undo, and agents that write in between."""

    dice: random.Random
    filled: Any
    memories_of: Callable[[Any], Mapping[str, Memory]]
    #: What agents left of each memory that they touched: its text, or None where they deleted it.
    theirs: dict[str, str | None] = field(default_factory=dict)
    #: What the pass took, with the text that it had.
    taken: dict[str, str] = field(default_factory=dict)

    def play(self, a_pass: Any) -> None:
        ids = self.filled.ids
        store = self.filled.open()
        # Where the store has transactions, each holds one scope.
        if store.traits.rows_per_transaction is not None:
            store.traits = replace(store.traits, rows_per_transaction=MEMBERS + 2)
        into = {ids[f"{s}-m{n}"]: ids[f"{s}-stays"] for s in SCOPES for n in range(MEMBERS)}
        night = a_pass(store).plan(merge=into, prune={ids[f"{scope}-stale"]: "superseded" for scope in SCOPES})
        self.original = {memory_id: memory.content for memory_id, memory in self.now().items()}
        self._agents_write()
        if self.dice.random() < 0.7:
            self._interrupted(night, stop_at=self.dice.randrange(len(SCOPES)))
            self._look(into)
            self._agents_write()
        night.apply()
        self._look(into)
        self._agents_write()
        report = night.undo()
        assert report.not_restored == []
        self._look_after_undo()
        store.close()

    def now(self) -> Mapping[str, Memory]:
        """The memories as they stand, by id."""
        return self.memories_of(self.filled.open())

    def _interrupted(self, night: Any, *, stop_at: int) -> None:
        def keep(number: int, rows: Any) -> None:
            if number == stop_at:
                raise OSError("disk full")
            night.undo_parts[number] = rows

        with suppress(OSError):
            night.apply(undo=keep)

    def _agents_write(self) -> None:
        for _ in range(self.dice.randrange(5)):
            memory_id = self.dice.choice(sorted(self.now()))
            if self.dice.random() < 0.5:
                self.theirs[memory_id] = text = f"An agent wrote {self.dice.random()}"
                self.filled.reword(memory_id, text)
            elif sum(self.theirs.get(each, "") is None for each in self.original) < 6:
                self.theirs[memory_id] = None
                self.filled.forget(memory_id)

    def _look(self, into: Mapping[str, str]) -> None:
        now = self.now()
        for memory_id, original in self.original.items():
            if memory_id in self.theirs:
                self._is_theirs(memory_id, now)
            elif memory_id in now:
                assert now[memory_id].content == original
            elif memory_id not in self.taken:
                self.taken[memory_id] = original
                survivor = into.get(memory_id)
                assert survivor is None or survivor not in self.theirs, "it went into one that an agent had written"

    def _look_after_undo(self) -> None:
        now = self.now()
        for memory_id, original in self.original.items():
            if memory_id in self.theirs:
                self._is_theirs(memory_id, now)
            else:
                assert now[memory_id].content == original

    def _is_theirs(self, memory_id: str, now: Mapping[str, Memory]) -> None:
        left = now[memory_id].content if memory_id in now else None
        assert left == self.theirs[memory_id], memory_id
