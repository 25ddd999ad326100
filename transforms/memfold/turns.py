"""What turns a sentence, changes its time, or says how often, and stands in one of two texts only."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from memfold.lexicon import BIT
from memfold.wording import LIGHT_WORDS, WEEKDAYS, Matched, Objection, Reading, Sides, shown

#: What turns a sentence when it stands on one side only, and how that is called; a word has its first class.
TURNS = {
    "question": "question",
    "negation": "negation",
    "condition": "condition",
    "limit": "limit",
    "hedge": "hedge",
    "modal": "modal",
    "quantifier": "quantity",
    "polarity": "polarity",
    "change": "change",
    "relative_day": "day",
    "order": "order",
    "disjunction": "choice",
    "wish": "wish",
    "direction": "direction",
}
TURNING = sum(BIT[name] for name in TURNS)


def of_words(sides: Sides) -> Objection | None:
    """Why words that stand on one side only turn what is said, whatever else the texts have in common."""
    return _turning(sides) or _how_often(sides)


def other_tense(left: Reading, right: Reading, both: Matched) -> Objection | None:
    """Where one says what was, and the other what is."""
    past = [[word for word in side.words if word in PAST] for side in (left, right)]
    pairs = [(left.words[at], right.words[there]) for at, there in both.pairs]
    changed = [pair for pair in pairs if pair[0] != pair[1] and sum(word.endswith("ed") for word in pair) == 1]
    if changed:
        return Objection("tense", f"{changed[0][0]} / {changed[0][1]}")
    if bool(past[0]) != bool(past[1]):
        return Objection("tense", f"tense differs: {shown(past)}")
    yet = [sorted(_yet_to_come(side)) for side in (left, right)]
    return Objection("tense", f"tense differs: {shown(yet)}") if yet[0] != yet[1] else None


def _yet_to_come(reading: Reading) -> set[str]:
    """What says that something is still to be done, or being done just now."""
    words = reading.words
    return ({"to be"} if ("to", "be") in pairwise(words) else set()) | ({"being"} & set(words))


PAST = frozenset(("was", "were", "had", "did"))


def other_joint(left: Reading, right: Reading, both: Matched) -> Objection | None:
    """Where the same value stands behind two prepositions, or one noun in two cases: in 3 days is not for 3 days."""
    for at, there in both.pairs:
        if not (at and there and left.is_fact(at)) or left.kinds[at] & (BIT["date"] | BIT["time"]):
            continue
        words = left.words[at - 1], right.words[there - 1]
        is_joint = left.kinds[at - 1] & right.kinds[there - 1] & BIT["preposition"]
        if words[0] != words[1] and (is_joint or {*words} <= CASES):
            return Objection("direction", f"other words before {left.words[at]}: {words[0]} / {words[1]}")
    return None


#: German articles, which tell who does what to whom.
CASES = frozenset(("der", "die", "den", "dem", "des", "ein", "eine", "einen", "einem", "einer", "eines"))


def one_or_each(left: Reading, right: Reading) -> Objection | None:
    """Where "Friday" against "Fridays" is all the difference, it is one."""
    days = [[word for word in side.words if word in WEEKDAYS] for side in (left, right)]
    return None if days[0] == days[1] else Objection("facts", f"facts differ: {shown(days)}")


def _turning(sides: Sides) -> Objection | None:
    for name, label in TURNS.items():
        words = [
            [side.words[at] for at in alone if side.kinds[at] & BIT[name] and side.words[at] not in LIGHT_WORDS]
            for side, alone in sides
        ]
        if name == "negation":
            refused = [[side.words[at] for at in alone if side.words[at] in REFUSES] for side, alone in sides]
            if len(words[0]) + len(refused[0]) == len(words[1]) + len(refused[1]) <= 1:
                continue
        if name == "modal" and (_must_both(sides) or _is_an_order(sides, words)):
            continue
        if name == "direction" and _leads_the_same_way(*words) and _before_a_time(sides):
            continue
        if any(words):
            return Objection(label, f"{label} on one side or another: {shown(words)}")
    return None


def _must_both(sides: Sides) -> bool:
    """Whether one says "must" and the other "required to": "reviews required" are those that somebody required."""
    must = [[at for at in alone if side.kinds[at] & BIT["modal"]] for side, alone in sides]
    return all(
        len(places) == 1
        and side.words[at := places[0]] in MUST
        and (side.words[at] == "must" or at + 1 == len(side.words) or side.joins(at + 1))
        for (side, _), places in zip(sides, must, strict=True)
    )


MUST = frozenset(("must", "required", "mandatory", "obligatory"))


def _is_an_order(sides: Sides, words: Sequence[list[str]]) -> bool:
    return sorted(map(len, words)) == [0, 1] and any(_tells_you(*side) for side in sides)


def _tells_you(side: Reading, alone: list[int]) -> bool:
    """Whether the one word that stands here alone is the "should" of "you should", which an order says without it."""
    return any(at and side.words[at - 1 : at + 1] == ("you", "should") for at in alone)


#: What says no without a word of negation.
REFUSES = frozenset(("frozen", "blocked", "banned", "forbidden", "prohibited", "suspended", "halted", "disallowed"))


def _leads_the_same_way(one: list[str], other: list[str]) -> bool:
    return {*one, *other} <= {"after", "from", "since"} or sorted((one, other), key=len) in (
        [[], ["to"]],
        [[], ["to", "to"]],
    )


def _before_a_time(sides: Sides) -> bool:
    """Whether "after" and "from" stand before a time of day, and "to" behind "required": else they are two words."""
    return all(
        side.words[at - 1] in MUST
        if side.words[at] == "to" and at
        else at + 1 < len(side.words) and bool(side.kinds[at + 1] & BIT["time"])
        for side, alone in sides
        for at in alone
        if side.kinds[at] & BIT["direction"]
    )


def _how_often(sides: Sides) -> Objection | None:
    words = [[side.words[at] for at in alone if side.says_how_often(at)] for side, alone in sides]
    return Objection("facts", f"how often is on one side or another: {shown(words)}") if any(words) else None
