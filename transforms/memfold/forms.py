"""Numbers, quantities, dates and times in one form each: "ten milligrams" and "10 mg", "3 pm" and "15:00"."""

from __future__ import annotations

from functools import cache

import regex

from memfold.lexicon import Language, language
from memfold.numbers import NUMERIC, digits, number_at
from memfold.quantities import CURRENCIES, SYMBOLS, Form, fraction_at, money_at, ordinal_at, quantity_at
from memfold.tokens import BOUNDARY, CAPITAL, COMMA, Token

DATE, TIME = "date", "time"


def fold_forms(tokens: list[Token], lang: Language) -> list[Token]:
    """The tokens with every number, quantity, date and time replaced by one token in canonical form."""
    starts = lang.form_starts
    folded: list[Token] = []
    done = 0
    for at, token in enumerate(tokens):
        if at < done or (token.kind == "word" and token.word not in starts and token.word[0] not in "#午上下"):
            continue
        found = _form_at(tokens, at, lang)
        if found is not None:
            folded += tokens[done:at]
            folded.append(found[0])
            done = at + found[1]
    return folded + tokens[done:] if done else tokens


def _form_at(tokens: list[Token], at: int, lang: Language) -> Form:
    token = tokens[at]
    if token.kind == NUMERIC and _stands_alone(tokens, at, lang):
        return Token(digits(token.word, lang), NUMERIC, token.marks), 1
    if token.kind == "date":
        return _iso_date(token)
    if token.kind == "numeric_date":
        return _numeric_date(token, lang)
    if token.kind == "time":
        return _clock_time(tokens, at, lang)
    if token.kind == "fraction":
        return fraction_at(tokens, at, lang)
    if token.kind == "symbol" and token.word in CURRENCIES:
        return money_at(tokens, at, lang)
    if token.word in lang.months and at + 1 < len(tokens) and _is_month(token, lang):
        return _month_first(tokens, at, lang)
    clock = lang.words("clock").get(token.word)
    if isinstance(clock, str):
        return Token(clock, TIME, token.marks), 1
    if token.word in HALF_DAYS and number_at(tokens, at + 1, lang) is not None:
        return _half_day_first(tokens, at, lang)
    found = number_at(tokens, at, lang)
    return None if found is None else _from_number(tokens, at, lang, *found)


def _stands_alone(tokens: list[Token], at: int, lang: Language) -> bool:
    """Whether a number is no part of a date, an hour or an amount: what follows is a word that makes none of them."""
    if at + 1 == len(tokens):
        return True
    following = tokens[at + 1]
    return following.kind == "word" and following.word[0] != "@" and following.word not in _after_numbers(lang.code)


@cache
def _after_numbers(code: str) -> frozenset[str]:
    """Every word that may make one thing with the number in front of it."""
    lang = language(code)
    ordinals = ("st", "nd", "rd", "th", "er")
    halves = ("am", "a.m.", "a.m", "pm", "p.m.", "p.m", "o'clock")
    hours = ("uhr", "h", "heures", "heure", *"時点點")
    return frozenset(DATE_LINKS).union(
        ordinals, halves, hours, "年月日号k", lang.months, lang.units, lang.words("multipliers"), SYMBOLS, CURRENCIES
    )


def _from_number(tokens: list[Token], at: int, lang: Language, value: str, length: int) -> Form:
    return (
        _day_first(tokens, at, lang)
        or _cjk_date(tokens, at, lang)
        or _hour(tokens, at, lang)
        or quantity_at(tokens, at, lang)
        or ordinal_at(tokens, at, lang)
        or (Token(value, NUMERIC, tokens[at].marks), length)
    )


# ---------------------------------------------------------------------------------------------------- dates and times


def _iso_date(token: Token) -> Form:
    day, _, clock = token.word.partition("t")
    clock = regex.sub(r":00(?=z|$)", "", clock) if clock.count(":") > 1 else clock
    return Token(f"{day} {clock}".strip(), DATE, token.marks), 1


def _numeric_date(token: Token, lang: Language) -> Form:
    """ "04/07/2025": which is the month is known only where one of the two passes 12, or the language says so."""
    parts = regex.split(r"[./]", token.word)
    if len(parts[0]) == 4:
        return Token(_day(parts[0], int(parts[1]), int(parts[2])), DATE, token.marks), 1
    first, second, year = int(parts[0]), int(parts[1]), parts[2]
    day_first = "." in token.word or lang.code in ("de", "fr", "es", "ru", "hi", "ar") or first > 12
    if day_first and 1 <= second <= 12:
        return Token(_day(year, second, first), DATE, token.marks), 1
    if second > 12 and 1 <= first <= 12:
        return Token(_day(year, first, second), DATE, token.marks), 1
    return Token(token.word, DATE, token.marks), 1


def _day(year: str | None, month: int, day: int) -> str:
    return f"{year}-{month:02d}-{day:02d}" if year else f"{month:02d}-{day:02d}"


def _year_at(tokens: list[Token], at: int) -> str | None:
    if at < len(tokens) and tokens[at].kind == NUMERIC and _YEAR.fullmatch(tokens[at].word):
        return tokens[at].word
    return None


def _day_number(tokens: list[Token], at: int) -> tuple[int, int] | None:
    """A day of the month written "3", "3rd", "the 3rd" or "1er", and how many tokens it takes."""
    if at >= len(tokens) or tokens[at].kind != NUMERIC or not _DAY.fullmatch(tokens[at].word):
        return None
    day = int(tokens[at].word)
    if not 1 <= day <= 31:
        return None
    suffixed = at + 1 < len(tokens) and tokens[at + 1].word in ("st", "nd", "rd", "th", "er")
    return day, 2 if suffixed else 1


def _month_first(tokens: list[Token], at: int, lang: Language) -> Form:
    """ "September 30, 2026", "Sept 30th", "March 2027"."""
    month = lang.months[tokens[at].word]
    if tokens[at + 1].marks & ~COMMON_DATE_MARKS:
        return None
    year = _year_at(tokens, at + 1)
    if year is not None:
        return Token(f"{year}-{month:02d}", DATE, tokens[at].marks), 2
    found = _day_number(tokens, at + 1)
    if found is None or lang.code not in ("en",):
        return None
    day, length = found
    year = _year_at(tokens, at + 1 + length)
    return Token(_day(year, month, day), DATE, tokens[at].marks), 1 + length + (year is not None)


def _day_first(tokens: list[Token], at: int, lang: Language) -> Form:
    """ "30 September 2026", "8th of May", "5 de mayo de 2026", "31. Dezember"."""
    found = _day_number(tokens, at)
    if found is None:
        return None
    day, length = found
    place = at + length
    if place < len(tokens) and tokens[place].word in DATE_LINKS:
        place += 1
    if place >= len(tokens) or tokens[place].word not in lang.months or not _is_month(tokens[place], lang):
        return None
    if tokens[place].marks & BOUNDARY and lang.code != "de":
        return None
    month = lang.months[tokens[place].word]
    end = place + 1
    linked = end + 1 if end < len(tokens) and tokens[end].word in DATE_LINKS else end
    year = _year_at(tokens, linked)
    if year is not None:
        end = linked + 1
        if end < len(tokens) and tokens[end].word in ("года", "год", "г"):
            end += 1
    return Token(_day(year, month, day), DATE, tokens[at].marks), end - at


def _is_month(token: Token, lang: Language) -> bool:
    """ "may" and "march" are months only with a capital; "the job may 5 times ..." is no date."""
    return lang.code != "en" or token.word not in ("may", "march") or bool(token.marks & CAPITAL)


DATE_LINKS = frozenset({"of", "de", "del"})
COMMON_DATE_MARKS = COMMA | CAPITAL


def _cjk_date(tokens: list[Token], at: int, lang: Language) -> Form:
    """ "2025年8月7日", "5月8日"."""
    if not any(token.word == "月" for token in tokens[at:]):
        return None
    parts: dict[str, str] = {}
    place = at
    for mark in "年月日":
        found = number_at(tokens, place, lang)
        if found is None:
            continue
        end = place + found[1]
        if end < len(tokens) and tokens[end].word in (mark, "号" if mark == "日" else mark):
            parts[mark] = found[0]
            place = end + 1
    if "月" not in parts or not all(part.isdigit() for part in parts.values()) or len(parts) < 2:
        return None
    if "日" not in parts:
        return Token(f"{parts['年']}-{int(parts['月']):02d}", DATE, tokens[at].marks), place - at
    return Token(_day(parts.get("年"), int(parts["月"]), int(parts["日"])), DATE, tokens[at].marks), place - at


def _clock_time(tokens: list[Token], at: int, lang: Language) -> Form:
    hour, minute, *second = (
        int(part) for part in regex.split(r"[:h]", tokens[at].word.replace(" ", "").replace("\u00a0", ""))
    )
    half, length = _half_day(tokens, at + 1)
    hour = _shift(hour, half)
    if at + 1 + length < len(tokens) and tokens[at + 1 + length].word in lang.words("clock").get("hour_words", []):
        length += 1
    seconds = f":{second[0]:02d}" if second and second[0] else ""
    return Token(f"{hour:02d}:{minute:02d}{seconds}", TIME, tokens[at].marks), 1 + length


def _hour(tokens: list[Token], at: int, lang: Language) -> Form:
    """ "3 pm", "10 Uhr", "15時", "3点半"."""
    if tokens[at].kind != NUMERIC and tokens[at].kind != "character":
        half, length = _half_day(tokens, at + 1)
        found = number_at(tokens, at, lang)
        if not half or found is None or not found[0].isdigit():
            return None
        return Token(f"{_shift(int(found[0]), half):02d}:00", TIME, tokens[at].marks), 1 + length
    found = number_at(tokens, at, lang)
    if found is None or not found[0].isdigit() or int(found[0]) > 24:
        return None
    hour, place = int(found[0]), at + found[1]
    half, length = _half_day(tokens, place)
    if half:
        return Token(f"{_shift(hour, half):02d}:00", TIME, tokens[at].marks), place - at + length
    if place >= len(tokens) or tokens[place].marks & BOUNDARY:
        return None
    word = tokens[place].word
    if word in ("時", "点", "點") and not (place + 1 < len(tokens) and tokens[place + 1].word == "間"):
        minute, taken = _cjk_minute(tokens, place + 1, lang)
        return Token(f"{hour:02d}:{minute:02d}", TIME, tokens[at].marks), place + 1 + taken - at
    if word == "uhr" or (
        word in ("h", "heures", "heure") and at and tokens[at - 1].word in ("à", "avant", "après", "dès")
    ):
        minutes = tokens[place + 1] if place + 1 < len(tokens) else None
        if minutes is not None and minutes.kind == NUMERIC and _MINUTE.fullmatch(minutes.word) and not minutes.marks:
            return Token(f"{hour:02d}:{minutes.word}", TIME, tokens[at].marks), place + 2 - at
        return Token(f"{hour:02d}:00", TIME, tokens[at].marks), place + 1 - at
    return None


def _half_day_first(tokens: list[Token], at: int, lang: Language) -> Form:
    """ "午後3時": the half of the day stands in front of the hour."""
    inner = _hour(tokens, at + 1, lang)
    if inner is None:
        return None
    hour, _, minute = inner[0].word.partition(":")
    return Token(f"{_shift(int(hour), HALF_DAYS[tokens[at].word]):02d}:{minute}", TIME, tokens[at].marks), 1 + inner[1]


def _cjk_minute(tokens: list[Token], at: int, lang: Language) -> tuple[int, int]:
    if at < len(tokens) and tokens[at].word == "半":
        return 30, 1
    found = number_at(tokens, at, lang)
    if found is None or not found[0].isdigit() or int(found[0]) > 59:
        return 0, 0
    end = at + found[1]
    if end < len(tokens) and tokens[end].word == "分":
        return int(found[0]), found[1] + 1
    return 0, 0


def _half_day(tokens: list[Token], at: int) -> tuple[str, int]:
    if at < len(tokens) and not tokens[at].marks & BOUNDARY:
        if tokens[at].word in ("am", "a.m.", "a.m"):
            return "am", 1
        if tokens[at].word in ("pm", "p.m.", "p.m"):
            return "pm", 1
        if tokens[at].word == "o'clock":
            return "clock", 1
    return "", 0


def _shift(hour: int, half: str) -> int:
    if half == "pm" and hour < 12:
        return hour + 12
    return 0 if half == "am" and hour == 12 else hour


HALF_DAYS = {"午前": "am", "午後": "pm", "上午": "am", "下午": "pm"}

_YEAR = regex.compile(r"(1[5-9]|20|21)\d\d")
_DAY = regex.compile(r"\d{1,2}")
_MINUTE = regex.compile(r"[0-5]\d")
