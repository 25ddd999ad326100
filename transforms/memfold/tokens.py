"""A text cut into tokens that keep facts whole: a number with its sign, a path, a flag or a URL is one token."""

from __future__ import annotations

import unicodedata
from typing import NamedTuple

import regex

# What stands between a token and the one before it, as bits.
COMMA, DASH, COLON, BRACKET, STOP, BREAK, CAPITAL, POSSESSIVE, ARTICLE, CODE, EQUALS, DEFINITE = (
    1 << bit for bit in range(12)
)
SOFT = COMMA | DASH | COLON | BRACKET
HARD = STOP | BREAK
BOUNDARY = SOFT | HARD


class Token(NamedTuple):
    """One token: its normal spelling, its kind (a group name of the scanner) and the marks in front of it."""

    word: str
    kind: str
    marks: int


#: Kinds of token that say nothing beside words.
DECORATION = frozenset({"emoji", "emoticon"})


def plain(text: str) -> str:
    """The text in NFC, full-width letters and typographic quotes in their common form, invisible characters gone."""
    if text.isascii():
        return text
    text = RANGE_DASH.sub("-", unicodedata.normalize("NFC", text))
    text = ONE_AS_MANY.sub(lambda found: unicodedata.normalize("NFKC", found[0]), text)
    if GREEK_WORD.search(text):
        text = GREEK_QUESTION.sub("?", text)
    text = INVISIBLE.sub("", text.translate(COMMON_FORM))
    text = DIGIT.sub(lambda found: str(unicodedata.digit(found[0], f"u{ord(found[0]):x}")), text)
    return text


def scan(text: str) -> list[Token]:
    """The tokens of a text that ``plain`` returned, in order, question marks and emoji included."""
    tokens: list[Token] = []
    text = strip_list_numbers(text)
    shouted = _shouted_lines(text)
    end = marks = 0
    for found in SCANNER.finditer(text):
        kind = found.lastgroup or ""
        start = found.start()
        if start > end:
            marks |= _gap(text[end:start])
            if marks & STOP and tokens and tokens[-1].word in ABBREVIATED and "\n" not in text[end:start]:
                marks &= ~STOP
        # A plain word takes the space behind it along, which spares the scanner a start at every space.
        end = found.end(kind)
        word = found[kind]
        if kind == "layout":
            marks |= BREAK
            continue
        if kind in CASED and _is_value(tokens, text, start, end):
            tokens.append(Token(word, "word" if kind == "word_with_marks" else kind, marks | CODE))
        elif kind == "hyphenated":
            tokens.append(Token(word if CAMEL.search(word) else word.casefold(), kind, marks))
        elif kind in ("word", "word_with_marks"):
            folded = CASE_IN_UNIT.get(word) or _folded(word)
            if word != folded and word != word.lower() and not any(first <= start < last for first, last in shouted):
                starts = marks & (HARD | COLON) != 0 or all(token.kind in DECORATION for token in tokens)
                marks |= _capital(word, text[start - 1 : start], text[end : end + 1], starts=starts)
                if marks & CODE or word in ACRONYMS:
                    folded = word
            tokens.append(Token(folded, "word", marks))
        else:
            facts = _facts(word, kind, marks)
            tokens += facts
            if kind in ("url", "path"):
                end -= len(word) - len(_trim(word.rstrip(">")))
        marks = 0
    return tokens


def _is_value(tokens: list[Token], text: str, start: int, end: int) -> bool:
    """Whether a word is a side of KEY=value or a password: there its case is a fact."""
    if text[end : end + 1] == "=" != text[end + 1 : end + 2] or text[start - 1 : start] == "=":
        return True
    if text[start - 2 : start] in ("='", '="'):
        return True
    if not tokens:
        return False
    named = tokens[-1].word in SECRETS and ":" in text[max(0, start - 3) : start]
    return named or (len(tokens) > 1 and tokens[-1].word in _IS and tokens[-2].word in SECRETS)


def _folded(word: str) -> str:
    """A word without its capitals; ß is ss, but for the words that are another word with ss."""
    small = word.lower()
    return small if small in SHARP_S else word.casefold().replace("ё", "е")


def _shouted_lines(text: str) -> list[tuple[int, int]]:
    """Where lines stand whose capitals say nothing: all in capitals, or a headline with one on every word."""
    found = []
    start = 0
    for line in text.split("\n"):
        if line.isupper() or (line.istitle() and line.count(" ") >= LONGEST_NAME):
            found.append((start, start + len(line)))
        start += len(line) + 1
    return found


def strip_list_numbers(text: str) -> str:
    """The text without the numbers of a list that counts 1, 2, 3 ...; any other number at a line's start stays."""
    if LIST_START.search(text) is None:
        return text
    expected = 1

    def drop(found: regex.Match[str]) -> str:
        nonlocal expected
        if int(found[2]) != expected:
            return str(found[0])
        expected += 1
        return f"{found[1]}- "

    stripped: str = LIST_NUMBER.sub(drop, text)
    return stripped if expected > 2 else text


def _capital(word: str, before: str, after: str, *, starts: bool) -> int:
    """Whether a word with capitals is a name in the middle of a sentence, or code."""
    is_camel = CAMEL.search(word) is not None
    if is_camel and (before == "`" or after in ("`", "(")):
        return CODE
    is_acronym = len(word) > 1 and word.isupper()
    return 0 if starts and not is_camel and not is_acronym else CAPITAL


def _facts(word: str, kind: str, marks: int) -> list[Token]:
    if kind in ("url", "path"):
        word = _trim(word.strip("<>") if kind == "url" else word)
        if kind == "url":
            scheme, _, rest = word.partition("://")
            host, slash, tail = rest.partition("/")
            word = f"{scheme.casefold()}://{host.casefold()}{slash}{tail}".rstrip("/")
    elif kind == "pattern":
        word = word.rstrip(".,;:!")
    elif kind == "id":
        word = _without_emphasis(word)
        if not CASE_IN_ID.search(word):
            word = word.casefold()
    elif kind == "version":
        word = word.casefold()
        word = word[1:] if word.count(".") > 1 and word[0] == "v" else word
    elif kind in ("email", "handle", "number", "kana", "date", "abbreviation", "symbol"):
        word = word.casefold()
    elif kind == "phone":
        word = "+" + "".join(character for character in word if character.isdigit())
    elif kind == "question":
        word = "?"
    elif kind == "struck":
        word = "~~"
    return [Token(word, kind, marks)]


def _without_emphasis(word: str) -> str:
    """A word without the underscores of Markdown; ``__init__`` and ``_private`` keep theirs."""
    found = EMPHASIS.fullmatch(word)
    return found[1] or found[2] or found[3] if found else word


def _trim(word: str) -> str:
    bare = word
    while bare and bare[-1] in ".,;:!?)]}'\"*_" and not bare.endswith("/..."):
        if bare[-1] == ")" and bare.count("(") >= bare.count(")"):
            break
        bare = bare[:-1]
    return bare if len(bare) > 1 and any(c.isalnum() for c in bare) else word


_GAPS: dict[str, int] = {" ": 0, "": 0, ", ": COMMA, ". ": STOP, ": ": COLON, "; ": STOP, "-": 0}


def _gap(between: str) -> int:
    marks = _GAPS.get(between)
    if marks is None:
        marks = 0
        for character in between:
            marks |= _GAP_MARKS.get(character, 0)
        if between.strip(" \u00a0") in ("-", "—"):
            marks |= DASH if between != "-" else 0
        if len(between) < 8 and len(_GAPS) < 4096:
            _GAPS[between] = marks
    return marks


_GAP_MARKS = {
    **dict.fromkeys(",،、・", COMMA),
    **dict.fromkeys(".;!。！;؛।…", STOP),
    **dict.fromkeys("\n\r\u2028\u2029", BREAK),
    **dict.fromkeys("—", DASH),
    **dict.fromkeys(":：", COLON),
    "{": BRACKET | COLON,
    **dict.fromkeys("()[]}<>（）【】「」『』|", BRACKET),
}

COMMON_FORM = {
    **{code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)},
    **dict.fromkeys(map(ord, "“”„‟«»〝〞″"), '"'),
    **dict.fromkeys(map(ord, "‘’‚‛`´′ʼ"), "'"),
    ord("`"): "`",
    **dict.fromkeys(map(ord, "‐‑−"), "-"),
    **dict.fromkeys(map(ord, "‒–—―─⸺"), "—"),
    **dict.fromkeys(map(ord, "\u202f\u2009\u2007\u2008"), "\u00a0"),
    **dict.fromkeys(map(ord, "\u3000\u2002\u2003\u2004\u2005\u2006\u200a\t"), " "),
    ord("℃"): "°C",
    ord("℉"): "°F",
    ord("½"): "1/2",
    ord("¼"): "1/4",
    ord("¾"): "3/4",
    ord("ﬁ"): "fi",
    ord("ﬂ"): "fl",
    ord("、"): "、",
}
# Format characters, variation selectors, the Arabic tatweel and vowel signs, which are optional in writing.
INVISIBLE = regex.compile(r"[\p{Cf}\ufe00-\ufe0f\u0640\u064b-\u0652\u0670]+")
# Half-width kana, and units and eras that are squeezed into one character, such as \u338f for kg.
ONE_AS_MANY = regex.compile(r"[\uff61-\uff9f\u32ff-\u33ff]+")
# Greek asks with a semicolon, and NFC turns its own question mark into one.
GREEK_WORD = regex.compile(r"\p{Greek}{3}")
GREEK_QUESTION = regex.compile(r";(?=\s|$|[\"»”)])")
# "Mo–Fr" is "Mo-Fr" and "5–10" is "5-10"; a dash with spaces joins clauses.
RANGE_DASH = regex.compile(r"(?<=\p{L})–(?=\p{L})|(?<=\d)[–—](?=\d)")
DIGIT = regex.compile(r"(?![0-9])\p{Nd}")
CAMEL = regex.compile(r"\p{Ll}\p{Lu}")
CASE_IN_ID = regex.compile(r"[_.]|\p{Ll}\p{Lu}|^\p{Ll}+\d*\p{Lu}|\d\p{Lu}\d|^[a-z]\d[A-Z]")
# Words whose full stop ends no sentence.
ABBREVIATED = frozenset(
    {"dr", "dra", "mr", "mrs", "mme", "prof", "st", "sr", "sra", "jr", "vs", "ca", "nr", "approx", "ul", "г", "ул"}
)
# Units that differ in nothing but case from another one.
CASE_IN_UNIT = {
    "Mb": "mbit",
    "Gb": "gbit",
    "Tb": "tbit",
    "Kb": "kbit",
    "MW": "megawatt",
    "Mbps": "mbit/s",
    "MBps": "mb/s",
}
# A text of more words than this with capitals on all of them is a headline, not a name.
LONGEST_NAME = 4
# Short for a name, and another word in small letters.
ACRONYMS = frozenset({"IT", "WHO", "AIDS", "US"})
# Kinds of token whose case is kept where it is a value.
CASED = frozenset({"word", "word_with_marks", "hyphenated", "id"})
SECRETS = frozenset(
    {"password", "passphrase", "passwd", "pwd", "secret", "token", "key", "username", "login", "passwort", "kennwort"}
    | {"schlüssel", "contraseña", "clave", "parola", "senha", "wachtwoord", "hasło", "lösenord", "şifre", "пароль"}
)
_IS = frozenset({"is", "ist", "est", "es", "è", "é", "jest", "är", "=", "->", "to"})
# Maße and Masse, Buße and Busse are two words each.
SHARP_S = frozenset({"maß", "maße", "maßen", "maßes", "buße", "bußen", "bußgeld", "flöße"})
EMPHASIS = regex.compile(r"__?([A-Z]\w*?)__?|__(\p{L}+)|(\p{L}+)__")
LIST_START = regex.compile(r"(?m)^[ \t]*1[.)][ \t]")
LIST_NUMBER = regex.compile(r"(?m)^([ \t]*)(\d{1,3})[.)][ \t]+")

UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
LETTER = rf"[[\p{{L}}\p{{M}}]--[{UNSPACED}ー]]"
ALNUM = rf"[[\p{{L}}\p{{M}}\p{{N}}_]--[{UNSPACED}ー]]"
SUFFIX = (
    r"(?:k|m|mg|g|kg|t|lb|lbs|oz|ml|cl|l|mm|cm|km|mi|ft|in|s|ms|us|ns|sec|secs|min|mins|h|hr|hrs|d|kb|mb|gb|tb|pb|kib|mib"
    r"|gib|tib|hz|khz|mhz|ghz|w|kw|kwh|v|mv|ma|mah|am|pm|a\.m\.|p\.m\.|st|nd|rd|th|px|pt|mbit|gbit|kbit|usd|eur|gbp|x|er|e|ème|eme"
    r"|год|года|г|кг|мг|км|см|м|мл|л|ч|мин|с|сек|руб|тыс|uhr)"
)

SCANNER = regex.compile(
    rf"""
      (?P<word>[A-Za-z]{{2,}}(?=[,;.!:)]?(?:[ ]|$)))[ ]?
    | (?P<layout>^[ ]*(?:[-*+•◦▪]|>+(?!\ +\d[\d.,]*\ ?[%\w]{{0,5}}$)|\#{{1,6}})[ ]+|```[ ]*[A-Za-z]*(?=\n|$)|```|\*\*)
    | (?P<struck>~~)
    | (?P<url><?(?:[A-Za-z][A-Za-z0-9+.-]{{1,20}}://|www\.|mailto:)[^\s<>"`|、。，]+>?)
    | (?P<email>[\w.+%-]+@[\w-]+(?:\.[\w-]+)+)
    | (?P<date>\d{{4}}-\d{{2}}-\d{{2}}(?:T\d{{2}}:\d{{2}}(?::\d{{2}}(?:\.\d+)?)?(?:Z|[+-]\d{{2}}:?\d{{2}})?)?(?![\w-]))
    | (?P<numeric_date>\d{{1,2}}\.\d{{1,2}}\.\d{{4}}(?![\w/])
        |\d{{1,2}}/\d{{1,2}}/\d{{4}}(?![\w/])|\d{{4}}/\d{{1,2}}/\d{{1,2}}(?![\w/]))
    | (?P<time>\d{{1,2}}:\d{{2}}(?::\d{{2}})?(?![\w:])|\d{{1,2}}[ \u00a0]?h[ \u00a0]?\d{{2}}(?!\w))
    | (?P<phone>\+\d{{1,3}}(?:[ \u00a0().-]{{0,2}}\d){{6,14}}(?![\w]))
    | (?P<fraction>(?<![\w/.])\d{{1,3}}/\d{{1,3}}(?![\w/]))
    | (?P<path>[A-Za-z]:\\[^\s"<>|]+
        | (?<![\w.])(?:~|\.{{1,2}})?/(?:[\w@%+~*.<>-]+/?)+
        | {ALNUM}[\p{{L}}\p{{M}}\p{{N}}_.@-]*(?:/(?:[\w.@*-]+|<[\w -]+>))+/?)
    | (?P<pattern>[^\s`"'\\\[\]]*+(?:\\[dDwWsSbB](?![A-Za-z])|\[\^?[^\s\[\]]++\][+*?{{])[^\s`"']*+)
    | (?P<flag>(?<![\w)\]-])--?[A-Za-z][\w-]*(?:=[^\s`'",;)]+)?)
    | (?P<version>(?<![\w.])v?\d+(?:\.\d+){{2,}}(?:[-+][\w.-]*\w)?(?![\w])|(?<!\w)v\d+(?:\.\d+)*(?:-[\w.]*\w)?(?!\w))
    | (?P<number>(?<![\p{{L}}\p{{M}}\p{{N}}_.,--[{UNSPACED}]])(?:(?<![\w)\]])[+±-])?
        (?:\d{{1,3}}(?:,\d{{3}})+(?:\.\d+)?|\d{{1,3}}(?:['\u00a0]\d{{3}})+(?:[.,]\d+)?|\d{{1,3}}(?:\.\d{{3}}){{2,}}(?:,\d+)?|\d+[.,]\d+|\d+|\.\d+)
        (?![GD](?!\w))(?=(?:{SUFFIX})?(?!{ALNUM})(?![-.:]{ALNUM})|(?i:{SUFFIX})(?!{ALNUM})(?![-.:]{ALNUM})))
    | (?P<symbol>(?<!\w)(?:US|A|C|NZ|HK|R|S)\$(?=[ ]?\d))
    | (?P<blood>(?<!\w)(?:A|B|AB|O|0)[+-](?!\w))
    | (?P<abbreviation>(?<!\w)(?:\p{{L}}\.){{2,}}(?:\p{{L}}(?!\w))?)
    | (?P<code>(?<!\w)(?:[A-Za-z]\+\+|[A-Za-z]\#)(?!\w)
        |\$\{{?\w*[A-Za-z]\w*\}}?|<[A-Za-z][\w -]*>|(?<!\w)(?:(?<!\*)\*)?\.[A-Za-z][\w.-]*\w)
    | (?P<handle>(?<!\w)@[\w.-]*\w|(?<![\w\#&/])\#\p{{L}}[\w-]*(?<=[\p{{L}}\p{{N}}]))
    | (?P<id>(?=(?:{ALNUM}|[-.:&](?={ALNUM}))*?(?:[\p{{N}}_]|{LETTER}[.&]{LETTER}|(?<!\p{{L}}){LETTER}+:{LETTER}+(?!://|\p{{L}}))){ALNUM}+(?:[-._:&]{ALNUM}+)*)
    | (?P<hyphenated>{LETTER}+(?:-{LETTER}+)+(?:'{LETTER}+)*)
    | (?P<word_with_marks>{LETTER}+(?:'{LETTER}+)*)
    | (?P<kana>[\p{{Katakana}}][\p{{Katakana}}ー]*)
    | (?P<character>[{UNSPACED}]\p{{M}}*)
    | (?P<emoticon>(?<!\w)[:;=]-?[)(DPp/|](?!\w))
    | (?P<emoji>(?:\p{{Regional_Indicator}}{{2}}
        |[[\p{{Extended_Pictographic}}\p{{So}}]--[©®™°0-9\#*★☆]]
          (?:[\p{{Emoji_Modifier}}\ufe0f\u20e3\u200d]|\p{{Extended_Pictographic}})*))
    | (?P<question>[?？؟¿]+(?<!^¿)(?<![¿]))
    | (?P<symbol>&&|\|\||[<>=!+*/%:-]=|=>|->|→|⇒|(?<=\w)\.\.(?=\w)|(?<!\S)\.\.(?!\S)|(?<=[\s^(/"']|^)\.[*+]
        |(?<![\w!])!(?=[A-Za-z(])|(?<=[A-Za-z0-9_])[(\[](?=[^\s)\]])|(?<=\d)\+(?!\S)|(?<=\s)/(?=\s)
        |(?<=\s):(?=[A-Za-z])(?!\w+:)|(?<![\w*])\*(?=[A-Za-z_])(?!\w[^*\n]*\*)
        |(?:US|A|C|NZ|HK)?\$|[%‰°\p{{Sc}}](?:[CF](?!\w))?
        |[=<>|~≈^&✗✘☒☑]|[★☆]+|[\p{{Sm}}--[+|<>=~]]|(?<=\s)[*+](?=\s|$)|(?<=\w)[*+](?=\w))
    """,
    regex.VERBOSE | regex.VERSION1 | regex.MULTILINE,
)
