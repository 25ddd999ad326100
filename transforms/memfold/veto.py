"""What a model may not have: merges and texts that lose a fact, invent one, or turn one round.

Everything here is asked of texts alone and answered without a model. An objection stands whatever the model says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from memfold import bindings, turns
from memfold.lexicon import BIT
from memfold.text import is_blank
from memfold.turns import PAST, TURNING
from memfold.wording import (
    LIGHT_WORDS,
    Matched,
    Objection,
    Reading,
    Sides,
    alone,
    matched,
    read,
    sentences,
    shown,
    stem,
)

#: A sentence that starts so speaks of the one before it, which it may take back.
POINTS_BACK = frozenset(
    ("this", "that", "these", "those", "it", "which", "but", "except", "however", "unless", "wrong")
)

#: From this share of words in the same order on, two texts are one sentence with another value in it.
LIKE_ONE_SENTENCE = 0.6
#: Texts that share less than this of the shorter one's words have nothing in common that could be checked.
LEAST_IN_COMMON = 0.6


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
    objection = (
        _differing(left, right, both)
        or bindings.of_two_texts(one, other)
        or turns.other_joint(left, right, both)
        or _unanswered(left, right, both)
    )
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
    sides = alone(left, right, both)
    kinds = [{kind for at in places for kind in _kinds_of_fact(side, at)} for side, places in sides]
    if kinds[0] & kinds[1]:
        return Objection("facts", "each has a value of its own where the other has another")
    if turned := turns.of_words([(side, [at for at in places if not side.is_fact(at)]) for side, places in sides]):
        return turned
    return _too_little(left, right, both) or bindings.of_two_texts(one, other)


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
    return bindings.of_one_text(text, sources)


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
    """What stands on one side only and carries a fact or turns the sentence."""
    sides = alone(left, right, both)
    names = left.names | right.names
    facts = [[side.words[at] for at in places if side.is_fact(at) or side.words[at] in names] for side, places in sides]
    if any(facts):
        return Objection("facts", f"facts differ: {shown(facts)}")
    return turns.of_words(sides) or turns.other_tense(left, right, both)


def _unanswered(left: Reading, right: Reading, both: Matched) -> Objection | None:
    """Words of weight on one side only: the one value in which they differ, or more than they have in common."""
    sides = alone(left, right, both)
    heavy = [
        [
            side.words[at]
            for at in places
            if not side.is_light(at) and not side.kinds[at] & (BIT["negation"] | BIT["modal"])
        ]
        for side, places in sides
    ]
    if not any(heavy):
        return turns.one_or_each(left, right) if not any(places for _, places in sides) else None
    if both.in_order >= LIKE_ONE_SENTENCE * max(len(left.words), len(right.words)):
        return Objection("value", f"one sentence with other words in it: {shown(heavy)}")
    if not all(heavy):
        added = [word for word in heavy[0] or heavy[1] if word not in HELPS]
        # What is added may narrow the other, or speak of somebody else: a fake provider, a dog of his mother's.
        return Objection("value", f"one says more, which may narrow the other: {' '.join(added)}") if added else None
    common = sum(not left.is_light(at) for at in both.left)
    if common < LEAST_IN_COMMON * (common + min(map(len, heavy))):
        return Objection("common", f"too little in common: {common} words")
    return _in_one_place(sides, both)


#: Helping verbs, which say nothing beside another verb.
HELPS = frozenset(("get", "gets", "got", "being", "been"))


def _in_one_place(sides: Sides, both: Matched) -> Objection | None:
    """Where each has a word of its own beside the same word: the red wire is not the blue wire."""
    partner = dict(both.pairs)
    near = [
        {
            (place if index else partner.get(place), step): side.words[at]
            for at in places
            if not side.is_light(at)
            for step in (-1, 1)
            if (place := _next_of_weight(side, at, step)) is not None and place not in places
        }
        for index, (side, places) in enumerate(sides)
    ]
    for slot in sorted(near[0].keys() & near[1].keys(), key=str):
        return Objection("value", f"other words in one place: {near[0][slot]} / {near[1][slot]}")
    return None


def _next_of_weight(reading: Reading, at: int, step: int) -> int | None:
    places = range(at + step, len(reading.words) if step > 0 else -1, step)
    return next((place for place in places if not reading.is_light(place)), None)


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
