"""Numbers, quantities, dates and times in one form each: "ten milligrams" and "10 mg", "3 pm" and "15:00"."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

import regex

from memfold.lexicon import Language
from memfold.tokens import BOUNDARY, CAPITAL, COMMA, Token

NUMERIC, QUANTITY, DATE, TIME = "number", "quantity", "date", "time"


def fold_forms(tokens: list[Token], lang: Language) -> list[Token]:
    """The tokens with every number, quantity, date and time replaced by one token in canonical form."""
    folded: list[Token] = []
    at = 0
    while at < len(tokens):
        token = tokens[at]
        plain_word = token.kind == "word" and token.word not in lang.form_starts and token.word[0] not in "#午上下"
        found = None if plain_word else _form_at(tokens, at, lang)
        if found is None:
            folded.append(tokens[at])
            at += 1
            continue
        form, length = found
        folded.append(form)
        at += length
    return folded


Form = tuple[Token, int] | None


def _form_at(tokens: list[Token], at: int, lang: Language) -> Form:
    token = tokens[at]
    if token.kind == "date":
        return _iso_date(token)
    if token.kind == "numeric_date":
        return _numeric_date(token, lang)
    if token.kind == "time":
        return _clock_time(tokens, at, lang)
    if token.kind == "fraction":
        return _fraction(tokens, at, lang)
    if token.kind == "symbol" and token.word in CURRENCIES:
        return _money_first(tokens, at, lang)
    if token.word in lang.months and at + 1 < len(tokens) and _is_month(token, lang):
        return _month_first(tokens, at, lang)
    clock = lang.words("clock").get(token.word)
    if isinstance(clock, str):
        return Token(clock, TIME, token.marks), 1
    if token.word in HALF_DAYS and _number(tokens, at + 1, lang) is not None:
        return _half_day_first(tokens, at, lang)
    if _number(tokens, at, lang) is not None:
        return _from_number(tokens, at, lang)
    return None


def _from_number(tokens: list[Token], at: int, lang: Language) -> Form:
    found = _number(tokens, at, lang)
    if found is None:
        return None
    return (
        _day_first(tokens, at, lang)
        or _cjk_date(tokens, at, lang)
        or _hour(tokens, at, lang)
        or _quantity(tokens, at, lang)
        or _ordinal(tokens, at, lang)
        or (Token(found[0], NUMERIC, tokens[at].marks), found[1])
    )


# ---------------------------------------------------------------------------------------------------------- numbers


def _number(tokens: list[Token], at: int, lang: Language) -> tuple[str, int] | None:
    """The number that starts here, as canonical digits, and how many tokens it takes."""
    if at >= len(tokens):
        return None
    token = tokens[at]
    if token.kind == NUMERIC:
        return _multiplied(tokens, at + 1, lang, _digits(token.word, lang), 1)
    if token.word.startswith("#"):
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
        amount = _decimal(value)
        if factor is None or amount is None:
            break
        value = _written(amount * factor)
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
    return (str(total + section + digit), length) if length else None


def _digits(word: str, lang: Language) -> str:
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
_DOT_THOUSANDS = regex.compile(r"\d{1,3}\.\d{3}")
_UP_TO_THREE = regex.compile(r"\d{1,3}")
_THREE = regex.compile(r"\d{3}")
_YEAR = regex.compile(r"(1[5-9]|20|21)\d\d")
_DAY = regex.compile(r"\d{1,2}")
_MINUTE = regex.compile(r"[0-5]\d")
COMMA_DECIMALS = frozenset({"de", "fr", "es", "ru"})


def _decimal(text: str) -> Decimal | None:
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


def _written(amount: Decimal) -> str:
    return f"{amount.normalize():f}"


# ------------------------------------------------------------------------------------------------------- quantities


def _quantity(tokens: list[Token], at: int, lang: Language) -> Form:
    found = _number(tokens, at, lang)
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
    amount = _decimal(value)
    if amount is None:
        return f"{value} {unit}"
    sign = "+" if value.startswith("+") else ""
    for ladder in LADDERS:
        if unit in ladder:
            base = amount * ladder[unit]
            for larger, factor in sorted(ladder.items(), key=lambda step: -step[1]):
                if base % factor == 0:
                    return f"{sign}{_written(base / factor)} {larger}"
    return f"{sign}{_written(amount)} {unit}"


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


def _money_first(tokens: list[Token], at: int, lang: Language) -> Form:
    found = _number(tokens, at + 1, lang)
    if found is None or tokens[at + 1].kind != NUMERIC:
        return None
    return Token(quantity(found[0], CURRENCIES[tokens[at].word]), QUANTITY, tokens[at].marks), 1 + found[1]


def _fraction(tokens: list[Token], at: int, lang: Language) -> Form:
    unit, length = _unit(tokens, at + 1, lang)
    word = tokens[at].word
    if unit is not None:
        top, bottom = (Decimal(part) for part in word.split("/"))
        if bottom and (top / bottom * 10000) % 1 == 0:
            return Token(quantity(_written(top / bottom), unit), QUANTITY, tokens[at].marks), 1 + length
    article = at + 1 < len(tokens) and tokens[at + 1].word in lang.articles
    return Token(word, NUMERIC, tokens[at].marks), 2 if article else 1


def _ordinal(tokens: list[Token], at: int, lang: Language) -> Form:
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
    "$": "USD", "us$": "USD", "€": "EUR", "£": "GBP", "¥": "JPY", "₹": "INR", "₽": "RUB", "c$": "CAD", "a$": "AUD",
    "usd": "USD", "eur": "EUR", "gbp": "GBP", "jpy": "JPY", "inr": "INR", "chf": "CHF", "cad": "CAD", "aud": "AUD",
    "cny": "CNY", "rub": "RUB", "sek": "SEK", "nok": "NOK", "dkk": "DKK", "pln": "PLN", "brl": "BRL", "mxn": "MXN",
}  # fmt: skip
MONEY = frozenset(CURRENCIES.values())
DOLLARS = frozenset({"canadian", "australian", "singapore", "zealand"})
SYMBOLS = {
    "%": "%", "‰": "‰", "°c": "°C", "°f": "°F", "°": "°", "mg": "mg", "g": "g", "kg": "kg", "t": "t", "lb": "lb",
    "lbs": "lb", "oz": "oz", "ml": "ml", "cl": "cl", "l": "l", "mm": "mm", "cm": "cm", "m": "m", "km": "km", "mi": "mile",
    "ft": "ft", "s": "s", "ms": "ms", "us": "us", "ns": "ns", "min": "min", "h": "h", "d": "day", "kb": "KB", "mb": "MB",
    "gb": "GB", "tb": "TB", "pb": "PB", "kib": "KiB", "mib": "MiB", "gib": "GiB", "tib": "TiB", "hz": "Hz",
    "khz": "kHz", "mhz": "MHz", "ghz": "GHz", "w": "W", "kw": "kW", "kwh": "kWh", "v": "V", "mv": "mV", "ma": "mA",
    "mah": "mAh", "px": "px", "pt": "pt", "megawatt": "MW", "tbit": "Tbit", "mbit": "Mbit", "gbit": "Gbit", "kbit": "kbit", "kcal": "kcal", "km/h": "km/h",
    "mph": "mph", "rpm": "rpm", "fps": "fps", "dpi": "dpi", "ppm": "ppm",
}  # fmt: skip


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
    if tokens[place].marks & BOUNDARY and not (lang.code == "de"):
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
    parts: dict[str, str] = {}
    place = at
    for mark in "年月日":
        found = _number(tokens, place, lang)
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
        found = _number(tokens, at, lang)
        if not half or found is None or not found[0].isdigit():
            return None
        return Token(f"{_shift(int(found[0]), half):02d}:00", TIME, tokens[at].marks), 1 + length
    found = _number(tokens, at, lang)
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
    found = _number(tokens, at, lang)
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
