"""What a model may not have: merges and texts that lose a fact, invent one, or turn one round.

Everything here is asked of texts alone and answered without a model. An objection stands whatever the model says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from memfold.lexicon import BIT
from memfold.text import is_blank
from memfold.wording import LIGHT_WORDS, VALUE, WEEKDAYS, Matched, Reading, matched, read, sentences, stem

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

#: Words across which nothing may move: what they turn is what stands on one side of them.
FIXED = sum(BIT[name] for name in ("negation", "limit", "condition", "direction", "polarity", "order", "disjunction"))

#: A sentence that starts so speaks of the one before it, which it may take back.
POINTS_BACK = frozenset(
    ("this", "that", "these", "those", "it", "which", "but", "except", "however", "unless", "wrong")
)

#: From this share of words in the same order on, two texts are one sentence with another value in it.
LIKE_ONE_SENTENCE = 0.6
#: Texts that share less than this of the shorter one's words have nothing in common that could be checked.
LEAST_IN_COMMON = 0.6
#: Up to here a changed order leaves nothing to check it by.
FEWEST_WORDS_TO_MOVE = 4


@dataclass(frozen=True, slots=True)
class Objection:
    """Why a proposal is refused: the check that refused it, and what it found."""

    check: str
    says: str


@dataclass(frozen=True, slots=True)
class Look:
    """What the checks found in two texts: an objection to their merge, or which of them must stay (0 either, 1, 2)."""

    objection: Objection | None = None
    stays: int = 0


def of_pair(one: str, other: str, *, same_day: bool = False) -> Look:
    """Why these two texts may not be one memory, whoever says that they are the same, or which of them says more.

    ``same_day``: both were said on the same, known day.
    """
    left, right = read(one), read(other)
    if unlike := _unlike(left, right):
        return Look(unlike)
    for side, whole, part, inner in ((1, one, other, right), (2, other, one, left)):
        if _holds_every_sentence(whole, part) and (same_day or not inner.says_day):
            return Look(stays=0 if _holds_every_sentence(part, whole) else side)
    if (left.says_day or right.says_day) and not same_day:
        return Look(Objection("day", "one speaks of its own day, and the days differ or are unknown"))
    for side, longer, shorter in ((1, left, right), (2, right, left)):
        if _adds_a_clause(longer, shorter):
            return Look(stays=side)
    both = matched(left, right)
    objection = _differing(left, right, both) or _other_tense(left, right, both) or _moved(left, right, both)
    return Look(objection, _says_more(left, right, both))


def _unlike(left: Reading, right: Reading) -> Objection | None:
    """What is seen before any word is compared."""
    if (left.pictures & ~right.pictures) or (right.pictures & ~left.pictures):
        return Objection("pictures", "emoji differ")
    # Where no table knows a "not", no word at all may differ.
    if not (left.has_table and right.has_table) and left.words != right.words:
        return Objection("language", UNKNOWN_LANGUAGE)
    return None


UNKNOWN_LANGUAGE = "no table knows which words of this language turn a sentence"


def of_union(one: str, other: str) -> Objection | None:
    """Why no text can say what both of these say: they differ in a value, or one turns what the other says."""
    left, right = read(one), read(other)
    if (left.pictures | right.pictures) != (left.pictures & right.pictures):
        return Objection("pictures", "emoji differ")
    if left.says_day or right.says_day:
        return Objection("day", "one speaks of its own day")
    if not (left.has_table and right.has_table):
        return Objection("language", UNKNOWN_LANGUAGE)
    both = matched(left, right)
    sides = _alone(left, right, both)
    kinds = [{kind for at in alone for kind in _kinds_of_fact(side, at)} for side, alone in sides]
    if kinds[0] & kinds[1]:
        return Objection("facts", "each has a value of its own where the other has another")
    if turned := _turning([(side, [at for at in alone if not side.is_fact(at)]) for side, alone in sides]):
        return turned
    return _too_little(left, right, both) or _moved(left, right, both)


def _too_little(left: Reading, right: Reading, both: Matched) -> Objection | None:
    common = sum(not left.is_light(at) for at in both.left)
    lengths = [sum(not side.is_light(at) for at in range(len(side.words))) for side in (left, right)]
    return Objection("common", f"too little in common: {common} words") if 2 * common < min(lengths) else None


def of_text(text: str, sources: Sequence[str]) -> Objection | None:
    """Why this text may not stand for these memories; None where it keeps what they say and adds nothing.

    Every URL, number, date, time, name, path, version, negation and other word of weight of the sources must be in it,
    in canonical form; none may be in it that no source has; it is no longer than the sources together.
    """
    if is_blank(text):
        return Objection("empty", "the text is empty")
    longest, whole = max(map(len, sources)), sum(map(len, sources))
    if len(text) > whole + len(sources):
        return Objection("length", f"{len(text)} characters, more than the {whole} of all sources together")
    if 2 * len(text) < longest:
        return Objection("length", f"{len(text)} characters, less than half of the longest source's {longest}")
    new, old = read(text), [read(source) for source in sources]
    if missing := _unheld(old, [new]):
        return Objection("missing", f"missing {', '.join(missing)}")
    if invented := _unheld([new], old):
        return Objection("invented", f"{', '.join(invented)} stands in no source")
    return _reversed(new, old)


# -------------------------------------------------------------------------------------------------- whole sentences


def _holds_every_sentence(longer: str, shorter: str) -> bool:
    """Whether one text holds all sentences of the other, in any order, and none of the others takes anything back."""
    whole, part = Counter(sentences(longer)), Counter(sentences(shorter))
    if len(whole) < 2 or part - whole:
        return False
    order = BIT["order"] | BIT["retract"] | BIT["change"]
    if not whole - part:
        return not any(_is_step(words) for words in whole)
    added = list((whole - part).elements())
    return not any(
        words[0] in POINTS_BACK or any(kind & order for kind in read(" ".join(words)).kinds) for words in added
    )


def _is_step(sentence: tuple[str, ...]) -> bool:
    """Whether a sentence tells somebody to do something, or says when in a row it comes."""
    kinds = read(" ".join(sentence)).kinds
    return bool(kinds and kinds[0] & BIT["verb"]) or any(kind & BIT["order"] for kind in kinds[:2])


def _adds_a_clause(longer: Reading, shorter: Reading) -> bool:
    """Whether one is the other, word by word, with "and" and another clause behind it.

    What is never done to one or another is never done to the one, so that behind a "never" it may also be "or".
    """
    size = len(shorter.words)
    if longer.words[:size] != shorter.words or len(longer.words) < size + 3 or longer.words[size + 1] in POINTS_BACK:
        return False
    rest = range(size + 1, len(longer.words))
    if any(longer.kinds[at] & TAKES_BACK for at in rest):
        return False
    if longer.words[size] == "or":
        return bool(shorter.kinds[0] & BIT["negation"])
    return longer.words[size] == "and" and any(longer.kinds[at] & BIT["verb"] for at in rest)


TAKES_BACK = sum(BIT[name] for name in ("limit", "condition", "question", "hedge", "retract", "change", "disjunction"))


# --------------------------------------------------------------------------------------------------- what differs


def _differing(left: Reading, right: Reading, both: Matched) -> Objection | None:
    """What stands on one side only and carries a fact, turns the sentence, or is the one value in which they differ."""
    sides = _alone(left, right, both)
    names = left.names | right.names
    facts = [[side.words[at] for at in alone if side.is_fact(at) or side.words[at] in names] for side, alone in sides]
    if any(facts):
        return Objection("facts", f"facts differ: {_sides(facts)}")
    if turned := _turning(sides):
        return turned
    heavy = [
        [
            side.words[at]
            for at in alone
            if not side.is_light(at) and not side.kinds[at] & (BIT["negation"] | BIT["modal"])
        ]
        for side, alone in sides
    ]
    if not any(heavy):
        return _one_or_each(left, right) if not any(alone for _, alone in sides) else None
    if both.in_order >= LIKE_ONE_SENTENCE * max(len(left.words), len(right.words)):
        return Objection("value", f"one sentence with other words in it: {_sides(heavy)}")
    common = sum(not left.is_light(at) for at in both.left)
    if common < LEAST_IN_COMMON * (common + min(map(len, heavy))):
        return Objection("common", f"too little in common: {common} words")
    return None


def _alone(left: Reading, right: Reading, both: Matched) -> list[tuple[Reading, list[int]]]:
    """Each side with the places of the words that nothing on the other answers to."""
    return [
        (side, [at for at in range(len(side.words)) if at not in answered])
        for side, answered in ((left, both.left), (right, both.right))
    ]


def _kinds_of_fact(reading: Reading, at: int) -> list[str]:
    if not reading.is_fact(at):
        return []
    return [name for name in ("number", "date", "time", "identifier") if reading.kinds[at] & BIT[name]] or ["name"]


def _says_more(left: Reading, right: Reading, both: Matched) -> int:
    """The side that alone has words of weight that the other lacks, 0 where neither or each has some."""
    extra = [
        any(at not in answered and not side.is_light(at) for at in range(len(side.words)))
        for side, answered in ((left, both.left), (right, both.right))
    ]
    return 0 if extra[0] == extra[1] else 1 if extra[0] else 2


def _one_or_each(left: Reading, right: Reading) -> Objection | None:
    """Where "Friday" against "Fridays" is all the difference, it is one."""
    days = [[word for word in side.words if word in WEEKDAYS] for side in (left, right)]
    return None if days[0] == days[1] else Objection("facts", f"facts differ: {_sides(days)}")


def _turning(sides: Sequence[tuple[Reading, list[int]]]) -> Objection | None:
    for name, label in TURNS.items():
        words = [
            [side.words[at] for at in alone if side.kinds[at] & BIT[name] and side.words[at] not in LIGHT_WORDS]
            for side, alone in sides
        ]
        if name == "negation":
            refused = [[side.words[at] for at in alone if side.words[at] in REFUSES] for side, alone in sides]
            if len(words[0]) + len(refused[0]) == len(words[1]) + len(refused[1]) <= 1:
                continue
        if name == "modal" and (_must_both(*words) or _is_an_order(sides, words)):
            continue
        if name == "direction" and _leads_the_same_way(*words) and _before_a_time(sides):
            continue
        if any(words):
            return Objection(label, f"{label} on one side or another: {_sides(words)}")
    return None


def _must_both(one: list[str], other: list[str]) -> bool:
    return len(one) == len(other) == 1 and {*one, *other} <= {"must", "required", "mandatory", "obligatory"}


def _is_an_order(sides: Sequence[tuple[Reading, list[int]]], words: Sequence[list[str]]) -> bool:
    return sorted(map(len, words)) == [0, 1] and any(_tells_you(*side) for side in sides)


def _tells_you(side: Reading, alone: list[int]) -> bool:
    """Whether the one word that stands here alone is the "should" of "you should", which an order says without it."""
    return any(at and side.words[at - 1 : at + 1] == ("you", "should") for at in alone)


#: What says no without a word of negation.
REFUSES = frozenset(("frozen", "blocked", "banned", "forbidden", "prohibited", "suspended", "halted", "disallowed"))


def _leads_the_same_way(one: list[str], other: list[str]) -> bool:
    return (
        {*one, *other} <= {"after", "from", "since"}
        or (not other and set(one) <= {"to"})
        or (not one and set(other) <= {"to"})
    )


def _before_a_time(sides: Sequence[tuple[Reading, list[int]]]) -> bool:
    """Whether "after" and "from" stand before a time of day: before anything else they are two words."""
    return all(
        at + 1 < len(side.words) and bool(side.kinds[at + 1] & BIT["time"])
        for side, alone in sides
        for at in alone
        if side.kinds[at] & BIT["direction"] and side.words[at] != "to"
    )


def _other_tense(left: Reading, right: Reading, both: Matched) -> Objection | None:
    """Where one says what was, and the other what is."""
    past = [[word for word in side.words if word in PAST] for side in (left, right)]
    pairs = [(left.words[at], right.words[there]) for at, there in both.pairs]
    changed = [pair for pair in pairs if pair[0] != pair[1] and sum(word.endswith("ed") for word in pair) == 1]
    if changed:
        return Objection("tense", f"{changed[0][0]} / {changed[0][1]}")
    return Objection("tense", f"tense differs: {_sides(past)}") if bool(past[0]) != bool(past[1]) else None


PAST = frozenset(("was", "were", "had", "did"))


def _moved(left: Reading, right: Reading, both: Matched) -> Objection | None:
    """Where words that both have stand in another order: whether that may change who does what to whom."""
    words = [pair for pair in both.pairs if not left.joins(pair[0]) or left.kinds[pair[0]] & FIXED]
    if _is_in_order(words) or _is_one_time_moved(left, both):
        return None
    if left.keeps_its_order or right.keeps_its_order or len(words) < FEWEST_WORDS_TO_MOVE:
        return Objection("order", "the same words in an order that may carry the fact")
    for at, there in both.pairs:
        if left.kinds[at] & FIXED and (_crossed(words, at, there) or _turns_another(left, right, at, there)):
            return Objection("order", f"words moved to the other side of {left.words[at]}")
    for (a, b), (c, d) in combinations(words, 2):
        if b > d and _are_alike(left, a, c):
            return Objection("order", f"{left.words[a]} and {left.words[c]} changed places")
    for pivot, there in both.pairs:
        went = any(a < pivot and b > there for a, b in words)
        came = any(a > pivot and b < there for a, b in words)
        if went and came:
            return Objection("order", f"what stands before and behind {left.words[pivot]} changed places")
    return None


def _is_in_order(pairs: Sequence[tuple[int, int]]) -> bool:
    places = [there for _, there in pairs]
    return places == sorted(places)


def _is_one_time_moved(left: Reading, both: Matched) -> bool:
    """Whether nothing but the only date or time of a text stands elsewhere."""
    others = [pair for pair in both.pairs if not left.kinds[pair[0]] & (BIT["date"] | BIT["time"])]
    return len(both.pairs) - len(others) == 1 and _is_in_order(others)


def _are_alike(reading: Reading, one: int, other: int) -> bool:
    """Whether two words are values of one kind, or both names: such are not to change places."""
    kinds = reading.kinds[one] & VALUE, reading.kinds[other] & VALUE
    return bool(kinds[0] & kinds[1]) or (not any(kinds) and reading.is_fact(one) and reading.is_fact(other))


def _crossed(words: Sequence[tuple[int, int]], at: int, there: int) -> bool:
    return any((a < at) != (b < there) for a, b in words if a != at)


def _turns_another(left: Reading, right: Reading, at: int, there: int) -> bool:
    """Whether a negation or limit has another word behind it."""
    behind = left.words[at + 1 : at + 2], right.words[there + 1 : there + 2]
    return bool(left.kinds[at] & (BIT["negation"] | BIT["limit"])) and behind[0] != behind[1]


def _sides(words: Sequence[Sequence[str]]) -> str:
    one, other = (" ".join(side) for side in words)
    return f"{one} / {other}" if one and other else one or other


# ------------------------------------------------------------------------------------------------ rewritten texts


def _unheld(texts: Sequence[Reading], others: Sequence[Reading]) -> list[str]:
    """The words of weight of these texts that none of the others has: facts first.

    A word that turns counts together with the word behind it: a "not" that has moved to another word is missing.
    """
    names = frozenset[str]().union(*(each.names for each in (*texts, *others)))
    held = {form for each in others for _, _, form in _said(each, names)}
    missing = [(not is_fact, word) for each in texts for is_fact, word, form in _said(each, names) if form not in held]
    return list(dict.fromkeys(word for _, word in sorted(missing, key=lambda each: each[0])))


def _said(reading: Reading, names: frozenset[str]) -> list[tuple[bool, str, str]]:
    """Each word of weight: whether it is a fact, how it is shown, and the form in which it is looked for."""
    said = []
    for at, word in enumerate(reading.words):
        if reading.is_fact(at) or word in names:
            said.append((True, word, word))
        elif reading.kinds[at] & TURNING & ~BIT["direction"] and word not in LIGHT_WORDS:
            behind = next((place for place in range(at + 1, len(reading.words)) if not reading.joins(place)), None)
            what = "" if behind is None else reading.words[behind]
            said.append(
                (bool(reading.kinds[at] & BIT["negation"]), f"{word} {what}", f"{NOT.get(word, word)} {stem(what)}")
            )
        elif word in PAST or (word not in LIGHT_WORDS and not reading.kinds[at] & MERELY_JOINING):
            said.append((False, word, word))
    return said


#: What a rewritten text may leave out or add. A preposition or an adverb is none of it: "before" is not "after".
MERELY_JOINING = BIT["function"] | BIT["conjunction"] | BIT["coordinator"] | BIT["subject"]


#: "has no dogs" is read as "does not have dogs".
NOT = {"no": "not"}


def _reversed(new: Reading, sources: Sequence[Reading]) -> Objection | None:
    """Where a source's own words stand in another order, that order must be one that carries no fact."""
    for source in sources:
        if objection := _moved(source, new, matched(source, new)):
            return objection
    return None
