"""Amounts with their unit in one spelling: "ten milligrams" and "10 mg", "$1,450" and "1450 dollars"."""

from __future__ import annotations

from decimal import Decimal

import regex

from memfold.lexicon import Language
from memfold.numbers import COMMA_DECIMALS, NUMERIC, decimal_of, number_at, written
from memfold.tokens import BOUNDARY, Token

QUANTITY = "quantity"

# A token in canonical form and how many tokens it stands for; None where nothing of the kind starts.
Form = tuple[Token, int] | None


def quantity_at(tokens: list[Token], at: int, lang: Language) -> Form:
    found = number_at(tokens, at, lang)
    if found is None:
        return None
    value, length = found
    if at + length >= len(tokens):
        return None
    after = tokens[at + length]
    if after.marks & BOUNDARY:
        return None
    unit, unit_length = _unit(tokens, at + length, lang)
    if unit is None:
        return _spaced_thousands(tokens, at, lang)
    if unit in MONEY and lang.code in COMMA_DECIMALS and _DOT_THOUSANDS.fullmatch(value):
        value = value.replace(".", "")
    return Token(quantity(value, unit), QUANTITY, tokens[at].marks), length + unit_length


def quantity(value: str, unit: str) -> str:
    """An amount with its unit in one spelling: 1.5 min and 90 s are both "90 s"."""
    amount = decimal_of(value)
    if amount is None:
        return f"{value} {unit}"
    sign = "+" if value.startswith("+") else ""
    for ladder in LADDERS:
        if unit in ladder:
            base = amount * ladder[unit]
            for larger, factor in sorted(ladder.items(), key=lambda step: -step[1]):
                if base % factor == 0:
                    return f"{sign}{written(base / factor)} {larger}"
    return f"{sign}{written(amount)} {unit}"


def _unit(tokens: list[Token], at: int, lang: Language) -> tuple[str | None, int]:
    if at >= len(tokens) or tokens[at].marks & BOUNDARY:
        return None, 0
    word = tokens[at].word
    if word.startswith("@"):
        return word[1:], 1
    if tokens[at].kind in ("character", "kana"):
        for length in (4, 3, 2, 1):
            run = "".join(token.word for token in tokens[at : at + length])
            if run in lang.units and len(tokens[at : at + length]) == length:
                return lang.units[run], length
    if word == "°" and at + 1 < len(tokens) and tokens[at + 1].word in ("c", "f"):
        return f"°{tokens[at + 1].word.upper()}", 2
    unit = SYMBOLS.get(word) or CURRENCIES.get(word) or lang.units.get(word)
    if unit is None:
        return None, 0
    following = tokens[at + 1].word if at + 1 < len(tokens) else ""
    if unit == "°" and following in ("celsius", "fahrenheit"):
        return ("°C" if following == "celsius" else "°F"), 2
    if unit in ("USD",) and word in ("dollar", "dollars") and at and tokens[at - 1].word in DOLLARS:
        return None, 0
    return unit, 1


def _spaced_thousands(tokens: list[Token], at: int, lang: Language) -> Form:
    """ "2 000 EUR": a space groups the digits only where a unit follows."""
    first, second = tokens[at], tokens[at + 1]
    if not (first.kind == second.kind == NUMERIC and _UP_TO_THREE.fullmatch(first.word)):
        return None
    if not _THREE.fullmatch(second.word) or second.marks:
        return None
    unit, length = _unit(tokens, at + 2, lang)
    if unit is None:
        return None
    return Token(quantity(first.word + second.word, unit), QUANTITY, first.marks), 2 + length


def money_at(tokens: list[Token], at: int, lang: Language) -> Form:
    found = number_at(tokens, at + 1, lang)
    if found is None or tokens[at + 1].kind != NUMERIC:
        return None
    return Token(quantity(found[0], CURRENCIES[tokens[at].word]), QUANTITY, tokens[at].marks), 1 + found[1]


def fraction_at(tokens: list[Token], at: int, lang: Language) -> Form:
    unit, length = _unit(tokens, at + 1, lang)
    word = tokens[at].word
    if unit is not None:
        top, bottom = (Decimal(part) for part in word.split("/"))
        if bottom and (top / bottom * 10000) % 1 == 0:
            return Token(quantity(written(top / bottom), unit), QUANTITY, tokens[at].marks), 1 + length
    article = at + 1 < len(tokens) and tokens[at + 1].word in lang.articles
    return Token(word, NUMERIC, tokens[at].marks), 2 if article else 1


def ordinal_at(tokens: list[Token], at: int, lang: Language) -> Form:
    if at + 1 < len(tokens) and tokens[at].kind == NUMERIC and tokens[at + 1].word in ("st", "nd", "rd", "th"):
        return Token(f"{tokens[at].word}th", NUMERIC, tokens[at].marks), 2
    return None


# A unit is written as the largest of its ladder in which the amount is whole. Months have no days, so no ladder.
LADDERS: tuple[dict[str, Decimal], ...] = tuple(
    {unit: Decimal(factor) for unit, factor in ladder.items()}
    for ladder in (
        {"ms": "1", "s": "1000", "min": "60000", "h": "3600000"},
        {"ug": "1", "mg": "1000", "g": "1000000", "kg": "1000000000", "t": "1000000000000"},
        {"mm": "1", "cm": "10", "m": "1000", "km": "1000000"},
        {"ml": "1", "cl": "10", "l": "1000"},
    )
)

CURRENCIES = {
    "$": "USD",
    "us$": "USD",
    "€": "EUR",
    "£": "GBP",
    "¥": "JPY",
    "₹": "INR",
    "₽": "RUB",
    "c$": "CAD",
    "a$": "AUD",
    "nz$": "NZD",
    "hk$": "HKD",
    "s$": "SGD",
    "r$": "BRL",
    "usd": "USD",
    "eur": "EUR",
    "gbp": "GBP",
    "jpy": "JPY",
    "inr": "INR",
    "chf": "CHF",
    "cad": "CAD",
    "aud": "AUD",
    "cny": "CNY",
    "rub": "RUB",
    "sek": "SEK",
    "nok": "NOK",
    "dkk": "DKK",
    "pln": "PLN",
    "brl": "BRL",
    "mxn": "MXN",
}
MONEY = frozenset(CURRENCIES.values())
DOLLARS = frozenset({"canadian", "australian", "singapore", "zealand"})
SYMBOLS = {
    "%": "%",
    "‰": "‰",
    "°c": "°C",
    "°f": "°F",
    "°": "°",
    "mg": "mg",
    "g": "g",
    "kg": "kg",
    "t": "t",
    "lb": "lb",
    "lbs": "lb",
    "oz": "oz",
    "ml": "ml",
    "cl": "cl",
    "l": "l",
    "mm": "mm",
    "cm": "cm",
    "m": "m",
    "km": "km",
    "mi": "mile",
    "ft": "ft",
    "s": "s",
    "ms": "ms",
    "us": "us",
    "ns": "ns",
    "min": "min",
    "h": "h",
    "d": "day",
    "kb": "KB",
    "mb": "MB",
    "gb": "GB",
    "tb": "TB",
    "pb": "PB",
    "kib": "KiB",
    "mib": "MiB",
    "gib": "GiB",
    "tib": "TiB",
    "hz": "Hz",
    "khz": "kHz",
    "mhz": "MHz",
    "ghz": "GHz",
    "w": "W",
    "kw": "kW",
    "kwh": "kWh",
    "v": "V",
    "mv": "mV",
    "ma": "mA",
    "mah": "mAh",
    "px": "px",
    "pt": "pt",
    "megawatt": "MW",
    "tbit": "Tbit",
    "mbit": "Mbit",
    "gbit": "Gbit",
    "kbit": "kbit",
    "kcal": "kcal",
    "km/h": "km/h",
    "mph": "mph",
    "rpm": "rpm",
    "fps": "fps",
    "dpi": "dpi",
    "ppm": "ppm",
}

_DOT_THOUSANDS = regex.compile(r"\d{1,3}\.\d{3}")
_UP_TO_THREE = regex.compile(r"\d{1,3}")
_THREE = regex.compile(r"\d{3}")
