"""Texts, names and reasons as a person reads them on a terminal.

Control characters are made visible, so that no text can act on the terminal.
"""

from __future__ import annotations

import difflib
import re
import shlex
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from memfold_flows.scopes import readable
from memfold_flows.streams import in_short
from memfold_flows.views import Shown, ShownPair

LONGEST_TEXT = 400
_LONGEST_NAME = 120
# A word with the space behind it; scripts without spaces go sign by sign.
_WORDS = re.compile(r"([\u2e80-\u9fff\uf900-\ufaff]|[^\s\u2e80-\u9fff\uf900-\ufaff]+)(\s*)")
_INVISIBLE = set("\u200b\u2060\ufeff\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")

#: The reasons of a plan in words; a detail follows where it says more.
REASONS = {
    "copy": "a copy",
    "same": "says the same",
    "contains": "the other says this and more",
    "rewritten": "goes into a new text",
    "expired": "its time is over",
    "blank": "holds no text",
    "stale": "old and unused, by your settings",
    "superseded": "a newer one takes its place",
    "capacity": "its scope holds too many",
    "by hand": "a person decided so",
}
_PAIRS_HELD = {
    "same": "they say the same",
    "contains": "one says all of the other",
    "supersedes": "the newer says that it changed",
}


@dataclass(frozen=True, slots=True)
class Run:
    """Some words of a text in a row; ``differs``: the other text lacks them."""

    text: str
    differs: bool


def why(memory: Shown) -> str:
    """Why a memory goes, moves or stays."""
    said, detail = REASONS.get(memory.reason, ""), memory.detail
    if memory.reason == "copy":
        return said
    if memory.reason == "contains":
        detail = detail.removeprefix("adds: ")
    return ": ".join(part for part in (said, detail) if part) or memory.reason


def why_apart(pair: ShownPair) -> str:
    """Why two memories that look alike both stay."""
    if pair.is_held:
        return f"{_PAIRS_HELD.get(pair.verdict, 'they are alike')}, but: {pair.why}"
    newer = {"left": pair.left.memory_id, "right": pair.right.memory_id}.get(pair.newer or "")
    has_newer = newer is not None and pair.verdict in ("conflict", "supersedes")
    return f"{pair.why}; newer: {id_in_short(newer or '')}" if has_newer else pair.why


def compared(text: str, other: str) -> Iterator[Run]:
    """The text, cut where the words that the other lacks begin and end; case and signs around a word do not count."""
    own, theirs = (_WORDS.findall(shortened(each)) for each in (text, other))
    words, other_words = ([_bare(word) for word, _ in each] for each in (own, theirs))
    if words == other_words:  # then it is the case or a sign that tells them apart
        words, other_words = ([word for word, _ in each] for each in (own, theirs))
    for tag, _, _, start, end in difflib.SequenceMatcher(None, other_words, words, autojunk=False).get_opcodes():
        if start < end:
            yield Run("".join(word + space for word, space in own[start:end]), differs=tag != "equal")


def shortened(text: str) -> str:
    """A text on one line, its end left out where it is long."""
    shown = visible(" ".join(text.split()))
    return shown if len(shown) <= LONGEST_TEXT else shown[:LONGEST_TEXT] + " …"


def visible(text: str) -> str:
    """The text with control, invisible and direction-changing characters spelled out."""
    return "".join(
        f"\\u{ord(sign):04x}" if unicodedata.category(sign) in ("Cc", "Cs") or sign in _INVISIBLE else sign
        for sign in text
    )


def scope_name(scope: str) -> str:
    """A scope as a person reads it."""
    return visible(in_short(readable(scope), _LONGEST_NAME)) if scope else "(no scope)"


def id_in_short(memory_id: str) -> str:
    """An id as a person reads it; ``--json`` has it whole."""
    return visible(in_short(memory_id, _LONGEST_NAME))


def quoted(store: str) -> str:
    """A store as it is typed after a command."""
    return shlex.quote(visible(store))


def _bare(word: str) -> str:
    return word.casefold().strip(".,;:!?\"'()[]«»„“”‚‘’…") or word
