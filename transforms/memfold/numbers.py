"""Written numbers in canonical digits: "1,450", "twenty-four", "250k", "两"."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

import regex

from memfold.lexicon import Language
from memfold.tokens import BOUNDARY, Token

NUMERIC = "number"


def number_at(tokens: list[Token], at: int, lang: Language) -> tuple[str, int] | None:
    """The number that starts here, as canonical digits, and how many tokens it takes."""
    if at >= len(tokens):
        return None
    token = tokens[at]
    if token.kind == NUMERIC:
        return _multiplied(tokens, at + 1, lang, digits(token.word, lang), 1)
    if token.kind == "word" and token.word.startswith("#"):
        return token.word[1:], 1
    if token.kind == "character":
        return _cjk_number(tokens, at, lang)
    if token.kind == "hyphenated":
        value = _compound(token.word.split("-"), lang)
        return None if value is None else (value, 1)
    value = lang.numbers.get(token.word)
    if value is None:
        return None
    length = 1
    following = tokens[at + 1] if at + 1 < len(tokens) else None
    if following is not None and following.kind == "word" and not following.marks & BOUNDARY:
        compound = _compound([token.word, following.word], lang)
        if compound is not None:
            value, length = compound, 2
    return _multiplied(tokens, at + length, lang, value, length)


def _compound(words: list[str], lang: Language) -> str | None:
    """ "twenty-four" is 24: tens and then ones."""
    values = [lang.numbers.get(word) for word in words]
    if len(values) != 2 or None in values:
        return None
    tens, ones = (int(value) if value is not None and value.isdigit() else 0 for value in values)
    return str(tens + ones) if tens in range(20, 100, 10) and 0 < ones < 10 else None


def _multiplied(tokens: list[Token], at: int, lang: Language, value: str, length: int) -> tuple[str, int]:
    multipliers = lang.words("multipliers")
    while at < len(tokens) and not tokens[at].marks & BOUNDARY:
        factor = multipliers.get(tokens[at].word) or (1000 if tokens[at].word == "k" else None)
        amount = decimal_of(value)
        if factor is None or amount is None:
            break
        value = written(amount * factor)
        length += 1
        at += 1
    return value, length


def _cjk_number(tokens: list[Token], at: int, lang: Language) -> tuple[str, int] | None:
    total = section = digit = 0
    length = 0
    while at + length < len(tokens) and tokens[at + length].word in lang.numbers:
        if length and tokens[at + length].marks & BOUNDARY:
            break
        value = int(lang.numbers[tokens[at + length].word])
        if value < 10:
            digit = digit * 10 + value if length and int(lang.numbers[tokens[at + length - 1].word]) < 10 else value
        elif value == 10000:
            total, section, digit = (total + section + digit) * 10000, 0, 0
        else:
            section += (digit or 1) * value
            digit = 0
        length += 1
    values = [int(lang.numbers[token.word]) for token in tokens[at : at + length]]
    return (str(total + section + digit), length) if length and not _is_colloquial(values) else None


def _is_colloquial(values: list[int]) -> bool:
    """A run that is not read digit by digit, and stays as it is.

    "Three four" are three or four, "one three five" Monday, Wednesday and Friday, and "three hundred five" without a
    nought is 350.
    """
    if len(values) in (2, 3) and all(0 < value < 10 for value in values):
        return True
    return len(values) > 1 and 0 < values[-1] < 10 and values[-2] >= 100


def digits(word: str, lang: Language) -> str:
    """A written number without its grouping; a form that two languages read in two ways stays as it is."""
    sign = word[0] if word[0] in "+-±" else ""
    bare = word[len(sign) :].replace("\u00a0", "").replace("'", "")
    if lang.code in COMMA_DECIMALS:
        if _DOT_GROUPED.fullmatch(bare):
            bare = bare.replace(".", "").replace(",", ".")
        elif _COMMA_DECIMAL.fullmatch(bare):
            bare = bare.replace(",", ".")
    elif _COMMA_GROUPED.fullmatch(bare):
        bare = bare.replace(",", "")
    if bare.startswith("."):
        bare = f"0{bare}"
    return sign + bare


_DOT_GROUPED = regex.compile(r"\d{1,3}(\.\d{3}){2,}(,\d+)?")
_COMMA_DECIMAL = regex.compile(r"\d+,\d{1,2}|\d+,\d{4,}")
_COMMA_GROUPED = regex.compile(r"\d{1,3}(,\d{3})+(\.\d+)?")
COMMA_DECIMALS = frozenset({"de", "fr", "es", "ru"})


def decimal_of(text: str) -> Decimal | None:
    if len(text) > MOST_DIGITS:
        return None
    top, slash, bottom = text.partition("/")
    if slash and top.isdigit() and bottom in ("2", "4", "5", "8", "10"):
        return Decimal(top) / Decimal(bottom)
    try:
        return Decimal(text)
    except InvalidOperation:
        return None


# Beyond these, decimal arithmetic rounds; such a number stays as it is written.
MOST_DIGITS = 24


def written(amount: Decimal) -> str:
    return f"{amount.normalize():f}"
