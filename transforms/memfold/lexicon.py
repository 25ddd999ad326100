"""The language tables, read once: which words negate, limit, count or fill in each language we know."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

from memfold.memo import Memo
from memfold.tokens import CAPITAL, Token, plain, scan

LANGUAGES = ("en", "de", "fr", "es", "ru", "ar", "hi", "zh", "ja")

# What a canonical token is, as bits. A token may be several things: "without" negates and is a preposition.
CLASSES = (
    "number",
    "date",
    "time",
    "identifier",
    "negation",
    "limit",
    "condition",
    "hedge",
    "modal",
    "quantifier",
    "direction",
    "polarity",
    "change",
    "retract",
    "relative_day",
    "question",
    "preposition",
    "conjunction",
    "coordinator",
    "adjunct",
    "order",
    "function",
    "time_word",
    "verb",
    "unit",
    "disjunction",
    "wish",
    "subject",
)
BIT: dict[str, int] = {name: 1 << position for position, name in enumerate(CLASSES)}

KEEPS_APART = (
    BIT["negation"]
    | BIT["limit"]
    | BIT["condition"]
    | BIT["hedge"]
    | BIT["modal"]
    | BIT["change"]
    | BIT["retract"]
    | BIT["relative_day"]
    | BIT["order"]
)

Words = tuple[str, ...]
Report = tuple[Words, Words, Words, bool]


@dataclass(frozen=True, slots=True)
class Phrase:
    """A run of words and what stands in its place: nothing for a filler, one token for a phrase with a class.

    One that must be ``set_off`` counts only between commas, full stops or the ends of the text.
    """

    words: Words
    becomes: Words
    set_off: bool = False


@dataclass(frozen=True, slots=True)
class Language:
    """One language's table, ready for look-up."""

    code: str
    table: dict[str, Any]
    marks: frozenset[str] = frozenset()
    articles: frozenset[str] = frozenset()
    copulas: frozenset[str] = frozenset()
    contractions: dict[str, Words] = field(default_factory=dict)
    elisions: dict[str, str] = field(default_factory=dict)
    phrases: dict[str, tuple[Phrase, ...]] = field(default_factory=dict)
    openings: dict[str, tuple[Words, ...]] = field(default_factory=dict)
    bare_openings: frozenset[Words] = frozenset()
    reports: dict[str, tuple[Report, ...]] = field(default_factory=dict)
    numbers: dict[str, str] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    months: dict[str, int] = field(default_factory=dict)
    form_starts: frozenset[str] = frozenset()
    agreement: dict[str, str] = field(default_factory=dict)
    participles: dict[str, str] = field(default_factory=dict)
    simple: dict[str, str] = field(default_factory=dict)

    def words(self, section: str) -> Any:
        """A section of the table as it stands in the file; an empty one where the table has none."""
        return self.table.get(section, {})


@cache
def language(code: str) -> Language:
    """The table of a language; the empty one for a code that has no table."""
    if code not in LANGUAGES:
        return Language(code, {})
    table = _read(code)
    fillers = table.get("fillers", {})
    opening_texts = [text for group in ("opening", "anywhere", "set_off") for text in fillers.get(group, [])]
    openings = sorted({_cut(text, code) for text in opening_texts}, key=lambda words: (-len(words), words))
    return Language(
        code,
        table,
        marks=frozenset(table.get("marks", [])),
        articles=frozenset(table.get("articles", [])),
        copulas=frozenset(table.get("copulas", [])),
        contractions={key: tuple(value.split()) for key, value in table.get("contractions", {}).items()},
        elisions=table.get("elisions", {}),
        phrases=_by_first(_phrases(table)),
        openings={first: tuple(w for w in openings if w[0] == first) for first in {w[0] for w in openings}},
        bare_openings=frozenset(_cut(text, code) for text in fillers.get("bare_opening", [])),
        reports=_reports_by_first(table.get("reports", {}), code),
        numbers=table.get("numbers", {}),
        units={**table.get("units", {})},
        months=table.get("months", {}),
        form_starts=frozenset({*table.get("numbers", {}), *table.get("months", {}), *table.get("clock", {})}),
        agreement=dict(_agreement(table.get("verbs", {}))),
        participles=dict(_participles(table.get("verbs", {}))),
        simple=_simple(table.get("simplified", {})),
    )


def _simple(pairs: dict[str, str]) -> dict[str, str]:
    """The simple character for each traditional one."""
    return (
        dict(zip("".join(pairs["traditional"].split()), "".join(pairs["simple"].split()), strict=True)) if pairs else {}
    )


@cache
def classes(code: str) -> dict[str, int]:
    """The class bits of every word and phrase that a language's table names."""
    table = _read(code)
    found: dict[str, int] = {}
    for name, texts in table.get("classes", {}).items():
        for text in texts:
            word = joined(_cut(text, code if code in LANGUAGES else ""))
            found[word] = found.get(word, 0) | BIT[name]
    for key in ("months", "weekdays"):
        for text in table.get(key, {}):
            if text in ALSO_VERBS:
                continue
            for word in (joined(_cut(text)), f"{text}s" if (code, key) == ("en", "weekdays") else ""):
                found[word] = found.get(word, 0) | BIT["date"]
    for word in table.get("articles", []):
        found[word] = found.get(word, 0) | BIT["function"]
    for verb in table.get("verbs", {}).get("agreement", []):
        found[verb] = found.get(verb, 0) | BIT["verb"]
    return found


ALSO_VERBS = frozenset({"may", "march"})


@cache
def foreign_classes() -> dict[str, int]:
    """What a word that the text's own language does not know may be: the class bits of all tables together."""
    found: dict[str, int] = {}
    for code in (*LANGUAGES, "other"):
        for word, bits in classes(code).items():
            found[word] = found.get(word, 0) | bits
    return {word: bits & KEEPS_APART for word, bits in found.items() if bits & KEEPS_APART}


def detect(tokens: list[Token]) -> tuple[str, bool]:
    """The language of a text by its script and its commonest words, and whether that is sure.

    A text of a few plain words that tell nothing is read as English, but not taken for sure.
    """
    tokens = list({token.word: token for token in tokens}.values())
    spoken = [word for word, kind, marks in tokens if kind in _SPOKEN and not marks & CAPITAL]
    hits = dict.fromkeys((*LANGUAGES, ""), 0)
    for codes in filter(None, map(_hints.__getitem__, spoken)):
        for code in codes:
            hits[code] += 1
    words = len(spoken)
    if not "".join([token.word for token in tokens]).isascii():
        for token in tokens:
            if token.kind in ("character", "kana"):
                words += 1
                hits[_unspaced_language(token)] += 1
        for code in _ruled_out(tokens):
            hits[code] = 0
    if hits["ja"]:
        return ("ja", True) if 4 * (hits["ja"] + hits["zh"]) >= words else ("", False)
    best = max(LANGUAGES, key=hits.__getitem__)
    if 6 * hits[best] >= words and (hits[best] > 1 or best not in LATIN or hits[best] == words):
        return best, True
    if _is_plain_english(tokens, 3 / 5 if hits["en"] else 3 / 4):
        return "en", True
    if hits[best] and 6 * hits[best] >= words:
        return best, True
    return ("en", False) if words <= FEW_WORDS and all(token.word.isascii() for token in tokens) else ("", False)


def _hinted(word: str) -> tuple[str, ...]:
    """The languages that a word speaks for; one may stand there twice."""
    codes = [_script(word), *_marked().get(word, ())]
    if "'" in word:
        codes += ["fr"] if word.partition("'")[0] in _ELIDED else []
        codes += ["en"] if word.endswith(("'s", "n't")) else []
    return tuple(filter(None, codes))


_hints = Memo(_hinted)
FEW_WORDS = 4
_SPOKEN = frozenset({"word", "hyphenated"})
LATIN = frozenset({"en", "de", "fr", "es"})


def _is_plain_english(tokens: list[Token], share: float) -> bool:
    """Whether that share of the words is common English."""
    words = [token.word for token in tokens if token.kind == "word" and not token.marks & CAPITAL]
    known = sum([_common[word] for word in words])
    return known > 1 and known >= share * len(words)


def _is_common(word: str) -> bool:
    from memfold.spelling import is_common

    return is_common(word, "en")


_common = Memo(_is_common)


def joined(words: Words) -> str:
    """A phrase as one canonical token; Chinese and Japanese characters stand without spaces."""
    if all(len(word) == 1 and ord(word) > 0x2E7F for word in words):
        return "".join(words)
    return " ".join(words)


def _script(word: str) -> str:
    """Cyrillic is taken for Russian and Arabic script for Arabic, unless a letter of another language says no."""
    if "\u0400" <= word[0] <= "\u04ff":
        return "ru"
    return "ar" if "\u0600" <= word[0] <= "\u06ff" else ""


def _unspaced_language(token: Token) -> str:
    """Kana are Japanese and Han characters Chinese; Thai, Lao, Burmese and Khmer have no table."""
    character = token.word[0]
    if token.kind == "kana" or "\u3041" <= character <= "\u309f":
        return "ja"
    return "" if "\u0e00" <= character <= "\u109f" or "\u1780" <= character <= "\u17ff" else "zh"


def _ruled_out(tokens: list[Token]) -> set[str]:
    """The languages that a text is not in, though it has their script: it holds a letter or a word of a neighbour."""
    found = set()
    for token in tokens:
        if token.word.isascii():
            continue
        if _OTHER_CYRILLIC.intersection(token.word):
            found.add("ru")
        elif _OTHER_ARABIC.intersection(token.word):
            found.add("ar")
        found.update(_neighbours().get(token.word, ()))
    return found


@cache
def _neighbours() -> dict[str, tuple[str, ...]]:
    """Words of languages without a table, and the language that they may be taken for."""
    return {word: (code,) for code in LANGUAGES for word in _read(code).get("neighbours", [])}


_OTHER_CYRILLIC = frozenset("ўіїєґўђћјљњџѓќѕқңғүұһөәӣӯҷҳӑӗҫңӧӱ")
_OTHER_ARABIC = frozenset("پچژگکیٹڈےںھەێۆڕڵټډړږښڼېۍڙڳڻۇۈېۋ")
_ELIDED = frozenset({"l", "d", "qu", "n", "s", "j", "c", "jusqu", "lorsqu", "puisqu"})


# "Jan", "sat" and the like are words and names, too.
LONGEST_SHORT_DATE = 4


@cache
def _marked() -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for code in LANGUAGES:
        table = _read(code)
        dates = [
            word for key in ("months", "weekdays") for word in table.get(key, {}) if len(word) > LONGEST_SHORT_DATE
        ]
        for word in (*table.get("marks", []), *dates):
            found[word] = (*found.get(word, ()), code)
    return found


@cache
def _read(code: str) -> dict[str, Any]:
    file = resources.files("memfold") / "tables" / f"{code}.toml"
    table: dict[str, Any] = tomllib.loads(file.read_text("utf-8"))
    return table


@cache
def _cut(text: str, code: str = "") -> Words:
    """A phrase of a table in the tokens that a text of that language gives: contractions and hyphens taken apart."""
    table = _read(code) if code else {}
    elisions, contractions = table.get("elisions", {}), table.get("contractions", {})
    words: list[str] = []
    for token in scan(plain(text)):
        head, _, tail = token.word.partition("'")
        if token.kind == "hyphenated":
            words += token.word.split("-")
        elif token.word in contractions and len(text.split()) > 1:
            words += contractions[token.word].split()
        elif tail and head in elisions:
            words += [elisions[head], tail]
        else:
            words.append(token.word)
    return tuple(words)


def _phrases(table: dict[str, Any]) -> Iterator[Phrase]:
    named = {_cut(phrase) for texts in table.get("classes", {}).values() for phrase in texts}
    named |= {_cut(phrase) for phrase in table.get("weekdays", {})}
    for groups in table.get("same", {}).values():
        for first, *others in groups:
            becomes = _cut_to_phrases(first, named)
            for other in others:
                yield Phrase(_cut(other, table["language"]), becomes)
    for texts in table.get("classes", {}).values():
        for text in texts:
            words = _cut(text, table["language"])
            if len(words) > 1:
                yield Phrase(words, (joined(words),))
    for text in table.get("fillers", {}).get("anywhere", []):
        yield Phrase(_cut(text, table["language"]), ())
    for text in table.get("fillers", {}).get("set_off", []):
        yield Phrase(_cut(text, table["language"]), (), set_off=True)
    for before, filler in table.get("fillers", {}).get("after", []):
        yield Phrase((before, filler), (before,))
    verbs = table.get("verbs", {}).get("agreement", [])
    for filler in table.get("fillers", {}).get("before_verb", []):
        for verb in (*verbs, *map(third_person, verbs)):
            yield Phrase((filler, verb), (verb,))
    yield from _form_phrases(table)


def _form_phrases(table: dict[str, Any]) -> Iterator[Phrase]:
    """Weekdays, numbers and units of more than one word, as one token each."""
    for text in table.get("weekdays", {}):
        words = _cut(text, table["language"])
        if len(words) > 1:
            yield Phrase(words, (joined(words),))
    for section, marker in _MARKER.items():
        for text, value in table.get(section, {}).items():
            words = _cut(text)
            if len(words) > 1 or section == "times_words":
                yield Phrase(words, (f"{marker}{value}",))


_MARKER = {"numbers": "#", "units": "@", "times_words": "#"}


def _cut_to_phrases(text: str, named: set[Words]) -> Words:
    words = _cut(text)
    return (joined(words),) if len(words) > 1 and words in named else words


def _by_first(phrases: Iterator[Phrase]) -> dict[str, tuple[Phrase, ...]]:
    found: dict[str, list[Phrase]] = {}
    for phrase in phrases:
        if phrase.words:
            found.setdefault(phrase.words[0], []).append(phrase)
    return {first: tuple(sorted(group, key=lambda phrase: -len(phrase.words))) for first, group in found.items()}


def _reports_by_first(table: dict[str, Any], code: str) -> dict[str, tuple[Report, ...]]:
    found: dict[str, list[Report]] = {}
    for report in _reports(table, code):
        found.setdefault(report[0][0], []).append(report)
    return {first: tuple(sorted(group, key=lambda report: -len(report[0]))) for first, group in found.items()}


def _reports(table: dict[str, Any], code: str) -> Iterator[Report]:
    """Opening words, the pronouns that may follow, what the pronoun becomes, whether a clause must follow."""
    pronouns = tuple(table.get("pronouns", []))
    for subject in table.get("subjects", []):
        for verb in table.get("verbs", []):
            for that in (*table.get("that", []), ""):
                order = f"{verb} {subject} {that}" if table.get("verb_first") else f"{subject} {verb} {that}"
                yield _cut(order, code), pronouns, _cut(subject, code), bool(that)


def _agreement(verbs: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for verb in verbs.get("agreement", []):
        yield third_person(verb), verb


def third_person(verb: str) -> str:
    """The -s form of an English verb."""
    if verb == "have":
        return "has"
    if verb.endswith(("s", "x", "z", "ch", "sh", "o")):
        return f"{verb}es"
    return f"{verb[:-1]}ies" if verb.endswith("y") and verb[-2] not in "aeiou" else f"{verb}s"


def _participles(verbs: dict[str, Any]) -> Iterator[tuple[str, str]]:
    irregular = {base: participle for base, _past, participle in verbs.get("irregular", [])}
    for verb in verbs.get("passive", []):
        if verb in irregular:
            yield irregular[verb], verb
            continue
        if verb.endswith("e"):
            yield f"{verb}d", verb
        elif verb.endswith("y") and verb[-2] not in "aeiou":
            yield f"{verb[:-1]}ied", verb
        elif verb in _DOUBLED:
            yield f"{verb}{verb[-1]}ed", verb
        else:
            yield f"{verb}ed", verb


_DOUBLED = frozenset({"plan", "tag", "log", "stop", "control", "ship", "drop", "scan", "skip"})
