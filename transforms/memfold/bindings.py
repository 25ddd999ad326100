"""What belongs together in a text: which words share a clause, what a word stands before, and in which order all stand.

Two texts of the same words still differ where a value went to another clause, or "old" to another noun.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import combinations

import regex

from memfold import spelling
from memfold.lexicon import BIT
from memfold.wording import VALUE, WEEKDAYS, Matched, Objection, Reading, matched, read, stem

#: Words across which nothing may move: what they turn is what stands on one side of them.
FIXED = sum(BIT[name] for name in ("negation", "limit", "condition", "direction", "polarity", "order", "disjunction"))

#: Up to here a changed order leaves nothing to check it by.
FEWEST_WORDS_TO_MOVE = 4


def of_one_text(text: str, sources: Sequence[str]) -> Objection | None:
    """What stands together otherwise in a text than in the memories that it was written from."""
    for source in sources:
        if objection := small_names(source, text) or moved(read(source), read(text)):
            return objection
    return _regrouped(sources, [text]) or _rebound(sources, [text]) or _of_another(sources, [text], _facts_or_first)


def of_two_texts(one: str, other: str) -> Objection | None:
    """What stands together in one of two texts and not in the other."""
    return (
        small_names(one, other)
        or moved(read(one), read(other))
        or _regrouped([one], [other])
        or _rebound([one], [other])
        or _of_another([one], [other], _facts)
    )


def small_names(one: str, other: str) -> Objection | None:
    """Where one text writes a word as a name that the other has as a word of every day: Mark is no mark."""
    for named, plain in ((one, other), (other, one)):
        for name in sorted(read(named).names - read(plain).names):
            is_word = name not in WEEKDAYS and name.isalpha() and spelling.is_common(name, "en")
            if is_word and regex.search(rf"\b{name}\b", plain):
                return Objection("facts", f"{name} is a name in one of them only")
        first = read(named).words[:1]
        # At the start of a sentence any word has a capital, so that only these are doubtful.
        if {*first} & NAMES_TOO and named.lstrip()[:1].isupper() and regex.search(rf"\b{first[0]}\b", plain):
            return Objection("facts", f"{first[0]} may be a name in one of them only")
    return None


#: Words of every day that people are called by.
NAMES_TOO = frozenset(
    ("amber", "april", "art", "august", "autumn", "basil", "bill", "bob", "buck", "carter", "chase", "chip",
     "christian", "chuck", "cliff", "cooper", "crystal", "daisy", "dawn", "dean", "dot", "drew", "eve", "faith",
     "frank", "gene", "ginger", "grace", "grant", "guy", "harmony", "hazel", "heather", "herb", "holly", "hope",
     "hunter", "iris", "ivy", "jack", "jade", "jean", "joy", "june", "lance", "lane", "mark", "mason", "max",
     "may", "melody", "miles", "nick", "norm", "olive", "pat", "patience", "pearl", "penny", "pierce", "ray",
     "reed", "rich", "rob", "robin", "rod", "rose", "ruby", "rusty", "sandy", "sky", "skip", "stew", "sue",
     "summer", "tony", "violet", "wade", "ward", "will")
)  # fmt: skip


# -------------------------------------------------------------------------------------------------------- the order


def moved(left: Reading, right: Reading, both: Matched | None = None) -> Objection | None:
    """Where words that both have stand in another order: whether that may change who does what to whom."""
    both = both or matched(left, right)
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


# ------------------------------------------------------------------------------------------------------ the clauses


@lru_cache(maxsize=10_000)
def _clauses(text: str) -> tuple[tuple[tuple[str, int], ...], ...]:
    """The words of weight of each clause, each in the form in which it is compared and with its class bits."""
    found = []
    for part in CLAUSE_END.split(text):
        clause = read(part)
        words = [
            (word if clause.is_fact(at) else stem(word), clause.kinds[at])
            for at, word in enumerate(clause.words)
            if not clause.is_light(at)
        ]
        if words:
            found.append(tuple(words))
    return tuple(found)


CLAUSE_END = regex.compile(
    r"[,;:.!?](?=\s|$)|[。！？，；：、]|\n+|\s[-–—]\s"
    r"|(?i:\b(?:and|but|or|while|whereas|und|aber|oder|während|et|mais|ou|tandis que|y|pero|o|mientras|и|а|но|или)\b)"
)


def _regrouped(before: Iterable[str], after: Iterable[str]) -> Objection | None:
    """Where two clauses exchanged words: each of them has parted into the same two.

    "Show code, explanations are optional" and "show explanations, code is optional".
    """
    place = [_only_clause(before), _only_clause(after)]
    shared = {word: (place[0][word], place[1][word]) for word in place[0].keys() & place[1].keys()}
    went: defaultdict[int, set[int]] = defaultdict(set)
    for old, new in shared.values():
        went[old].add(new)
    for one, other in combinations(sorted(went), 2):
        if len(both := went[one] & went[other]) > 1:
            words = sorted(word for word, (old, new) in shared.items() if old in (one, other) and new in both)
            return Objection("order", f"clauses exchanged words: {' '.join(words)}")
    return None


def _only_clause(texts: Iterable[str]) -> dict[str, int]:
    """The number of the clause of each word that stands in one only, counted through all texts."""
    found: dict[str, int] = {}
    twice = set()
    for number, clause in enumerate(clause for text in texts for clause in _clauses(text)):
        for word, _ in clause:
            if found.setdefault(word, number) != number:
                twice.add(word)
    return {word: number for word, number in found.items() if word not in twice}


# ------------------------------------------------------------------------------------------------- words side by side


def _rebound(before: Sequence[str], after: Sequence[str]) -> Objection | None:
    """Where a word stands directly before another than it did, and both have both: an old server is no old wiki."""
    followers = _followers(before), _followers(after)
    for word in sorted(followers[0].keys() & followers[1].keys()):
        old, new = followers[0][word], followers[1][word]
        known = _words(before) & _words(after)
        if not old & new and old & known and new & known:
            return Objection("order", f"{word} stands before {min(new & known)}, no longer before {min(old)}")
    return None


def _followers(texts: Iterable[str]) -> Mapping[str, set[str]]:
    """For each word of weight those that stand directly behind it in its clause."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for clause in (clause for text in texts for clause in _adjacent(text)):
        for word, behind in clause:
            found[word].add(behind)
    return found


@lru_cache(maxsize=10_000)
def _adjacent(text: str) -> tuple[tuple[tuple[str, str], ...], ...]:
    return tuple(_pairs_of(read(part)) for part in CLAUSE_END.split(text))


def _pairs_of(clause: Reading) -> tuple[tuple[str, str], ...]:
    # A verb stands before the first word of any list, and a day or a time behind anything.
    free = BIT["date"] | BIT["time"]
    places = [
        (at, at + 1)
        for at in range(len(clause.words) - 1)
        if not clause.kinds[at] & BIT["verb"]
        if not any(clause.is_light(each) or clause.kinds[each] & free for each in (at, at + 1))
    ]
    return tuple((stem(clause.words[at]), stem(clause.words[behind])) for at, behind in places)


def _words(texts: Iterable[str]) -> set[str]:
    return {stem(word) for text in texts for word in read(text).words}


# ------------------------------------------------------------------------------------------ values and their words


def _of_another(
    before: Iterable[str], after: Iterable[str], facts_of: Callable[[str], frozenset[str]]
) -> Objection | None:
    """Where a word stands with values or names of which it knew none before: what is Ann's is not Bob's."""
    known: defaultdict[str, set[str]] = defaultdict(set)
    for part in (part for text in before for part in BREAK.split(text)):
        for word in _weights(part):
            known[word] |= facts_of(part) - {word}
    for part in (part for text in after for part in CLAUSE_END.split(text)):
        for word in sorted(_weights(part)):
            others = facts_of(part) - {word}
            if others and known[word] and not others & known[word]:
                return Objection("order", f"{word} stood with {min(known[word])}, now with {min(others)}")
    return None


BREAK = regex.compile(r"[,;:.!?](?=\s|$)|[。！？，；：、]|\n+|\s[-–—]\s")


def _facts(part: str) -> frozenset[str]:
    """The values and names of a part of a text, but for days and times, which move freely."""
    clause = read(part)
    return frozenset(clause.words[at] for at in _places(clause) if clause.is_fact(at))


def _facts_or_first(part: str) -> frozenset[str]:
    """The same with the word that opens a sentence, which may be a name: no capital tells."""
    clause = read(part)
    is_opened = _places(clause)[:1] == [0] and part.lstrip()[:1].isupper()
    return _facts(part) | frozenset(clause.words[:1] if is_opened else ())


def _weights(part: str) -> frozenset[str]:
    clause = read(part)
    firsts = _facts_or_first(part)
    return frozenset(word if (word := clause.words[at]) in firsts else stem(word) for at in _places(clause))


def _places(clause: Reading) -> list[int]:
    free = BIT["date"] | BIT["time"]
    return [at for at in range(len(clause.words)) if not clause.is_light(at) and not clause.kinds[at] & free]
