"""Ordinary words with a typo, put right: only words that no dictionary knows, one slip from one that it does."""

from __future__ import annotations

import gzip
import json
import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import cache
from importlib import resources

from memfold.lexicon import language

# A slip in a shorter word too often makes another word, and a name.
MIN_LETTERS = 5
DICTIONARIES = {"en": "en", "de": "de", "fr": "fr", "es": "es", "ru": "ru"}
# Russian and German inflect the end of a word in ways their dictionaries do not list.
PROTECTED_ENDING = {"en": 1, "fr": 1, "es": 1, "de": 3, "ru": 3}
VOWELS = frozenset("aeiouyáéíóúàèìòùâêîôûäöüаеёиоуыэюя")


def corrected(word: str, code: str) -> str:
    """The known word that this one is a slip away from, or the word itself where none or several are."""
    if code not in DICTIONARIES or len(word) < MIN_LETTERS or not word.isalpha() or is_known(word, code):
        return word
    if code != "en" and is_known(word, "en"):
        return word
    found = [
        other for other in _near(word, code) if max(len(other), len(word)) > MIN_LETTERS and is_common(other, code)
    ]
    accents = [other for other in found if _bare(other) == _bare(word)]
    best = _clear_winner(accents or found, code)
    ending = PROTECTED_ENDING[code]
    same_ending = best[-ending:] == word[-ending:] or sorted(best) == sorted(word)
    return best if best and same_ending else word


def _near(word: str, code: str) -> set[str]:
    """The words of a language that are one slip away."""
    found = slips(word, code, _places(word, code))
    return (_frequencies(code).keys() & found) | (_added(code) & found)


def _places(word: str, code: str) -> Iterable[int]:
    """Where a slip may have been made: what stands before and behind it begins and ends some known word.

    Most invented words have no such place, which spares looking for hundreds of slips. Looking for the places needs an
    index, which pays only for many words.
    """
    everywhere = range(1, len(word) + 1)
    _asked[code] += 1
    if _asked[code] <= WORDS_WITHOUT_INDEX:
        return everywhere
    beginnings, endings = _beginnings(code), _endings(code)
    return [
        at
        for at in everywhere
        if word[: min(at, INDEXED_LETTERS)] in beginnings and word[at + 2 :][-INDEXED_LETTERS:] in endings
    ]


#: How many unknown words of each language were looked at.
_asked: Counter[str] = Counter()
WORDS_WITHOUT_INDEX = 5_000
INDEXED_LETTERS = 6


@cache
def _beginnings(code: str) -> frozenset[str]:
    """The first letters of every word of a language, up to six of them."""
    lengths = range(1, INDEXED_LETTERS + 1)
    return frozenset([word[:length] for word in (*_frequencies(code), *_added(code)) for length in lengths])


@cache
def _endings(code: str) -> frozenset[str]:
    """The last letters of every word of a language, up to six of them, and none."""
    lengths = range(1, INDEXED_LETTERS + 1)
    words = (*_frequencies(code), *_added(code))
    return frozenset(["", *(word[-length:] for word in words for length in lengths)])


def _clear_winner(words: list[str], code: str) -> str:
    """The only word, or the one that is far commoner than all others; "" where two words may have been meant."""
    if not words:
        return ""
    counts = sorted(((_frequencies(code).get(word, 0), word) for word in words), reverse=True)
    return counts[0][1] if len(counts) == 1 or counts[0][0] > COMMONER * counts[1][0] else ""


# "custmer" is one slip from "customer" (18,618 times in the dictionary's corpus) and from "Custer" (158 times).
COMMONER = 50


def is_known(word: str, code: str) -> bool:
    """Whether a language's dictionary, or the words that its table adds, hold the word."""
    return word in _frequencies(code) or word in _added(code) or word in _names()


def is_everyday(word: str, code: str) -> bool:
    """Whether a word is so common in a language that it is no stray word of another one."""
    return word in _added(code) or word in _names() or _frequencies(code).get(word, 0) > EVERYDAY


EVERYDAY = 1000


@cache
def _frequencies(code: str) -> dict[str, int]:
    if code not in DICTIONARIES:
        return {}
    # pyspellchecker's word lists without its class, which would copy each of them several times.
    words = resources.files("spellchecker").joinpath("resources", f"{DICTIONARIES[code]}.json.gz")
    frequencies: dict[str, int] = json.loads(gzip.decompress(words.read_bytes()))
    if code == "ru":
        return {word.replace("ё", "е"): count for word, count in frequencies.items()}
    if code == "de":  # tokens have ss for ß
        frequencies |= {word.replace("ß", "ss"): count for word, count in frequencies.items() if "ß" in word}
    return frequencies


@cache
def _added(code: str) -> frozenset[str]:
    return frozenset(language(code).words("known").get("words", []))


@cache
def _names() -> frozenset[str]:
    return frozenset(language("en").words("known").get("names", []))


def is_common(word: str, code: str) -> bool:
    """Whether a word is no rarity and no name: "Viktor" is no slip of "Victor"."""
    return word in _added(code) or (_frequencies(code).get(word, 0) > RARE and word not in _names())


# The dictionaries list words seen once or twice in subtitles, and many names, with a count of 50.
RARE = 60


def slips(word: str, code: str, places: Iterable[int]) -> set[str]:
    """Every word one slip at these places away: a letter dropped, added, swapped or mistaken."""
    alphabet, mistakable = _ALPHABETS[code], _mistakable(code)
    found: list[str] = []
    for at in places:
        if at == len(word):
            found += [word + letter for letter in alphabet]
            continue
        head, letter, tail = word[:at], word[at], word[at + 1 :]
        found.append(head + tail)
        if tail:
            found.append(head + tail[0] + letter + tail[1:])
        found += [head + added + letter + tail for added in alphabet]
        found += [head + other + tail for other in mistakable.get(letter, "")]
    return set(found)


@cache
def _mistakable(code: str) -> dict[str, str]:
    """For each letter those that are taken for it: vowels for vowels, consonants of one sound, accents."""
    letters = _ALPHABETS[code]
    return {one: "".join(other for other in letters if other != one and _sound_alike(one, other)) for one in letters}


def _sound_alike(one: str, other: str) -> bool:
    if _bare(one) == _bare(other) or (one in VOWELS and other in VOWELS):
        return True
    return any(one in group and other in group for group in _CONSONANTS)


_CONSONANTS = ("mn", "sczß", "ckq", "bp", "dt", "vwf", "gj", "сз", "тд", "бп", "вф", "шщ")


@cache
def misspelled(names: tuple[str, ...], code: str) -> dict[str, str]:
    """The slips of a few given words, each with the word that was meant; those of two words at once are left out."""
    found: dict[str, str] = {}
    for name in names:
        if len(name) > MIN_LETTERS:
            for slip in slips(name, code, range(1, len(name) + 1)):
                found[slip] = "" if slip in found else name
    return {slip: name for slip, name in found.items() if name and slip not in names and not is_known(slip, code)}


@cache
def _bare(text: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFD", text) if not unicodedata.combining(c))


_ALPHABETS = {
    "en": "abcdefghijklmnopqrstuvwxyz",
    "de": "abcdefghijklmnopqrstuvwxyzäöüß",
    "fr": "abcdefghijklmnopqrstuvwxyzàâçéèêëîïôûùü",
    "es": "abcdefghijklmnopqrstuvwxyzáéíóúñü",
    "ru": "абвгдежзийклмнопрстуфхцчшщъыьэюя",
}
