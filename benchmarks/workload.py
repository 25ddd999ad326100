"""A deterministic store of made-up memories for measuring: notes of many lengths, their copies and their rewordings.

About three rows in ten are a copy of an earlier one: exact, or with changes that carry nothing (case, punctuation,
fillers), or with words added, dropped or replaced. Half of the notes are filled-in sentences of a few hundred patterns,
so that rows which have nothing to do with each other share words, as real notes do.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from itertools import accumulate

import pyarrow as pa

from memfold import frames
from memfold.memory import Memory

START = datetime(2026, 1, 1, tzinfo=UTC)
COMMON_WORDS = """
user prefers uses wants asked likes needs moved works lives meets runs keeps reads writes calls sends plans checks
project team report meeting server database deploy build test review ticket branch release backup script token query
coffee tea train flight hotel garden dinner doctor school office phone bike car house street city summer winter morning
evening monday tuesday friday weekend budget invoice contract account customer order parcel price list note draft plan
""".split()  # noqa: SIM905 - eighty quoted words read worse
GLUE = ["the", "a", "to", "of", "and", "in", "for", "on", "with", "that", "at", "by", "from", "is", "are", "was", "has"]
OPENINGS = ["", "", "", "Note: ", "Remember: ", "User said that "]
ONSETS = ["b", "c", "d", "f", "g", "h", "k", "l", "m", "n", "p", "r", "s", "t", "v", "w", "z", "br", "cl", "dr", "st"]
SYLLABLES = [onset + vowel for onset in ONSETS for vowel in "aeiou"]


@dataclass(frozen=True, slots=True)
class Row:
    """One made-up memory; ``source`` is the number of the row that it was made from."""

    scope: str
    text: str
    source: int | None


def rows(count: int, *, scopes: int, seed: int = 7) -> Iterator[Row]:
    """Made-up memories; the same arguments give the same rows."""
    writer = Writer(random.Random(seed))
    recent: dict[int, list[tuple[int, str]]] = {}
    for number in range(count):
        scope = int(writer.random.random() ** 2 * scopes)
        earlier = recent.setdefault(scope, [])
        if earlier and writer.random.random() < 0.3:
            source, text = writer.random.choice(earlier)
            yield Row(f"agent-{scope:05}", writer.changed(text), source)
        else:
            text = writer.note()
            earlier.append((number, text))
            del earlier[:-8]
            yield Row(f"agent-{scope:05}", text, None)


def snapshot(count: int, *, scopes: int, seed: int = 7) -> pa.Table:
    """The same memories as a snapshot, one a minute."""
    memories = (
        Memory(
            memory_id=f"m{number:08}", scope=row.scope, content=row.text, created_at=START + timedelta(minutes=number)
        )
        for number, row in enumerate(rows(count, scopes=scopes, seed=seed))
    )
    names = [field.name for field in fields(Memory)]
    columns: dict[str, list[object]] = {name: [] for name in [*names, "row_digest"]}
    for memory in memories:
        for name, column in columns.items():
            column.append(getattr(memory, name))
    return pa.table({name: pa.array(column, frames.SNAPSHOT.field(name).type) for name, column in columns.items()})


class Writer:
    """Writes notes with words as unevenly common as in real text."""

    def __init__(self, source: random.Random) -> None:
        self.random = source
        rare = {"".join(source.choices(SYLLABLES, k=source.randint(2, 4))) for _ in range(20_000)}
        self.words = COMMON_WORDS + sorted(rare - set(COMMON_WORDS))
        self.weights = list(accumulate(1 / rank for rank in range(1, len(self.words) + 1)))
        self.patterns = [self._pattern() for _ in range(300)]

    def note(self) -> str:
        """A new note: a filled-in pattern, or free text of five to sixty words and now and then of hundreds."""
        if self.random.random() < 0.5:
            words = [word or self.word() for word in self.random.choice(self.patterns)]
        else:
            is_long = self.random.random() < 0.04
            length = self.random.randint(80, 300) if is_long else min(60, 5 + int(self.random.expovariate(1 / 12)))
            words = [self.word() for _ in range(length)]
        return self.random.choice(OPENINGS) + " ".join(words).capitalize() + "."

    def word(self) -> str:
        """A word: glue, a number, or one of the vocabulary."""
        kind = self.random.random()
        if kind < 0.3:
            return self.random.choice(GLUE)
        if kind < 0.34:
            return str(self.random.randint(2, 5000))
        return self.random.choices(self.words, cum_weights=self.weights)[0]

    def changed(self, text: str) -> str:
        """The note told once more: as it was, dressed otherwise, or with up to three words changed."""
        kind = self.random.random()
        if kind < 0.3:
            return text
        if kind < 0.55:
            return self.random.choice([text.upper(), text.rstrip("."), f"User said that {text}", f"**{text}**"])
        words = text.split()
        for _ in range(self.random.randint(1, 3)):
            place = self.random.randrange(len(words))
            edit = self.random.random()
            if edit < 0.5:
                words.insert(place, self.word())
            elif edit < 0.75 and len(words) > 4:
                del words[place]
            else:
                words[place] = self.word()
        return " ".join(words)

    def _pattern(self) -> list[str | None]:
        return [self.word() if self.random.random() < 0.5 else None for _ in range(self.random.randint(6, 14))]
