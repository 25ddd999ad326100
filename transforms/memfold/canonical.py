"""A text's canonical tokens: fillers and function words out, numbers, dates, units, spelling and verbs in one form."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, lru_cache

from memfold.forms import fold_forms
from memfold.lexicon import Language, Phrase, classes, detect, foreign_classes, language
from memfold.memo import Memo
from memfold.openings import without_openings
from memfold.pieces import scan_pieces
from memfold.spelling import DICTIONARIES, corrected, is_everyday, is_known, misspelled
from memfold.tokens import (
    ARTICLE,
    BOUNDARY,
    CAPITAL,
    DECORATION,
    DEFINITE,
    EQUALS,
    HARD,
    POSSESSIVE,
    Token,
    plain,
    scan,
)
from memfold.word_order import in_plain_order, with_question


@lru_cache(maxsize=1)
def scanned(text: str) -> tuple[Token, ...]:
    """The tokens of a text as written; those of the text asked for last are kept, as its key needs them, too."""
    return tuple(scan_pieces(text) or scan(plain(text)))


def canonical(text: str) -> tuple[list[Token], Language, bool]:
    """The canonical tokens of a text in order, the language whose table was used, and whether that is sure."""
    spoken = _without_decoration(scanned(text))
    if not any(token.kind not in ("question", "symbol", "emoji", "emoticon") for token in spoken):
        return [Token(plain(text).strip(), "raw", 0)], language(""), False
    code, is_sure = detect(spoken)
    lang = language(code)
    tokens = _without_repetition(_expanded(_simplified(spoken, lang), lang))
    tokens = without_openings(tokens, lang)
    tokens = with_question(tokens, lang)
    tokens = _put_right(tokens, lang) if is_sure else tokens
    tokens = _replaced(tokens, lang)
    tokens = fold_forms(tokens, lang)
    tokens = in_plain_order(tokens, lang)
    tokens = _plain_words(tokens, lang)
    return _without_repetition(tokens), lang, is_sure


def word_classes(token: Token, lang: Language, *, is_sure: bool) -> int:
    """The class bits of a word in its own language; those of every table where the language or the word is unknown."""
    bits = classes(lang.code).get(token.word, 0) if lang.code else 0
    if not is_sure:
        return bits | foreign_classes().get(token.word, 0)
    if bits or token.kind != "word" or token.word in lang.marks or is_everyday(token.word, lang.code):
        return bits
    return foreign_classes().get(token.word, 0)


def _without_decoration(tokens: Iterable[Token]) -> list[Token]:
    """Without emoji, but for those that say no or which way; what stood before one stands before the next word."""
    tokens = list(tokens)
    if DECORATION.isdisjoint([token.kind for token in tokens]):
        return tokens
    found: list[Token] = []
    owed = 0
    for token in tokens:
        if token.kind == "emoji" and token.word[0] in POINTING_EMOJI:
            found.append(Token(token.word, "symbol", token.marks | owed))
            owed = 0
            continue
        if token.kind in DECORATION and token.word[0] not in NEGATIVE_EMOJI:
            owed |= token.marks & BOUNDARY
            continue
        found.append(token._replace(marks=token.marks | owed) if owed and found else token)
        owed = 0
    return found


# Emoji that are a "no" or a tick in a box; all others are decoration.
NEGATIVE_EMOJI = frozenset("❌🚫⛔👎✖💔🙅🛑☑")
# Flags and arrows, which name a country or a direction.
POINTING_EMOJI = frozenset({*map(chr, range(0x1F1E6, 0x1F200)), *"➡⬅⬆⬇↗↘↙↖↔↕"})


def pictures(tokens: Iterable[Token]) -> frozenset[str]:
    """The emoji of a text that may stand for a thing or a mood ("loves 🐶"), without those that only adorn."""
    return frozenset(token.word for token in tokens if token.kind == "emoji" and token.word not in ADORNING_EMOJI)


ADORNING_EMOJI = frozenset("🎉🎊🚀✨🔥📌📍💡📝🗒👉🔔⚠ℹ✅✔📣📢🧠🗂📎")


def _simplified(tokens: list[Token], lang: Language) -> list[Token]:
    """Traditional characters as simple ones, where that is the same word in every text."""
    if not lang.simple:
        return tokens
    return [token._replace(word=lang.simple.get(token.word, token.word)) for token in tokens]


# --------------------------------------------------------------------------------- contractions, hyphens, possessives


def _expanded(tokens: list[Token], lang: Language) -> list[Token]:
    may_expand = [
        token for token in tokens if token.kind == "hyphenated" or "'" in token.word or token.word in lang.contractions
    ]
    if not may_expand:
        return tokens
    found: list[Token] = []
    owed = 0
    for token in tokens:
        word = token.word
        if not owed and token.kind == "word" and "'" not in word and word not in lang.contractions:
            found.append(token)
            continue
        if owed and word in _AFTER_A_COPULA:
            owed = EQUALS
        marks = token.marks | owed
        owed = 0
        if token.kind == "hyphenated":
            found += _split_hyphens(word, marks, lang)
        elif token.kind != "word":
            found.append(Token(word, token.kind, marks))
        elif word in lang.contractions:
            parts = lang.contractions[word]
            found += [Token(part, "word", marks if place == 0 else 0) for place, part in enumerate(parts)]
        elif "'" in word:
            parts, owed = _apostrophe(word, lang)
            found += [Token(part, "word", marks if place == 0 else 0) for place, part in enumerate(parts)]
        else:
            found.append(Token(word, "word", marks))
    return found


# "Lisbon's at six", "the user's not": here the 's is a verb.
_AFTER_A_COPULA = frozenset({"at", "a", "an", "the", "in", "not", "being", "going", "very", "always", "never", "on"})
_ENDINGS = {"n't": "not", "'re": "are", "'ve": "have", "'ll": "will", "'m": "am", "'d": "would"}


def _apostrophe(word: str, lang: Language) -> tuple[tuple[str, ...], int]:
    head, _, tail = word.partition("'")
    if head in lang.elisions and tail:
        return (lang.elisions[head], tail), 0
    if lang.code in ("en", ""):
        if word.endswith("'s"):
            return (word[:-2],), POSSESSIVE
        for ending, full in _ENDINGS.items():
            if word.endswith(ending) and word != ending:
                return (word[: -len(ending)], full), 0
    return (word,), 0


def _split_hyphens(word: str, marks: int, lang: Language) -> list[Token]:
    """ "head-less" is one word where the dictionary has "headless"; "end-to-end" is three."""
    parts = word.split("-")
    if word in lang.contractions or word in lang.numbers:
        return [Token(word, "word", marks)]
    if len(parts) == 2:
        whole = "".join(parts)
        if all(part in lang.numbers for part in parts):
            return [Token(word, "hyphenated", marks)]
        if all(part in _days(lang) for part in parts):
            return [Token(parts[0], "word", marks), Token("to", "word", 0), Token(parts[1], "word", 0)]
        if parts[0] not in _MEANINGFUL_PREFIXES and len(whole) > 5 and is_known(whole, lang.code):
            return [Token(whole, "word", marks)]
        if "-".join(parts) in ("wi-fi", "e-mail", "e-mails"):
            return [Token(whole, "word", marks)]
    return [Token(part, "word", marks if place == 0 else 0) for place, part in enumerate(parts)]


def _days(lang: Language) -> frozenset[str]:
    """The words between which a hyphen means "to"; their commonest short forms in any language, too."""
    return _SHORT_DAYS.union(lang.words("weekdays"), lang.months)


_SHORT_DAYS = frozenset(
    {"mon", "tue", "tues", "wed", "thu", "thur", "thurs", "fri", "sat", "sun", "mo", "di", "mi", "do", "fr", "sa", "so"}
    | {"lun", "mar", "mer", "jeu", "ven", "sam", "dim", "mié", "jue", "vie", "sáb", "dom", "gio", "пн", "вт", "ср"}
    | {"чт", "пт", "сб", "вс"}
)


# "re-sign" is not "resign".
_MEANINGFUL_PREFIXES = frozenset({"re", "co", "un", "pre", "de", "non", "anti", "ex", "dis", "in"})


# --------------------------------------------------------------------------------------------- fillers and phrases


def _replaced(tokens: list[Token], lang: Language) -> list[Token]:
    """Fillers dropped, phrases with a class as one token, several spellings of one thing as one."""
    phrases = lang.phrases
    starts = [place for place, token in enumerate(tokens) if token.word in phrases]
    matches = {place: match for place in starts if (match := _phrase_at(tokens, place, lang)) is not None}
    if not matches:
        return tokens
    found: list[Token] = []
    owed = at = 0
    for place, match in matches.items():
        if place < at:  # inside a phrase that began before
            continue
        if owed and place > at:
            found.append(tokens[at]._replace(marks=tokens[at].marks | owed))
            owed, at = 0, at + 1
        found += tokens[at:place]
        token = tokens[place]
        marks = token.marks | owed
        owed = 0 if match.becomes else marks & ~CAPITAL
        kind = "word" if len(match.words) > 1 or token.kind in ("character", "hyphenated") else token.kind
        found += [Token(word, kind, marks if first == 0 else 0) for first, word in enumerate(match.becomes)]
        at = place + len(match.words)
    if owed and at < len(tokens):
        found.append(tokens[at]._replace(marks=tokens[at].marks | owed))
        at += 1
    return found + tokens[at:]


def _phrase_at(tokens: list[Token], at: int, lang: Language) -> Phrase | None:
    """The longest phrase of the language that starts here."""
    second = tokens[at + 1].word if at + 1 < len(tokens) else ""
    for phrase in lang.phrases[tokens[at].word]:
        length = len(phrase.words)
        if length > 1 and phrase.words[1] != second:
            continue
        run = tokens[at : at + length]
        if tuple(other.word for other in run) != phrase.words or any(t.marks & BOUNDARY for t in run[1:]):
            continue
        if not phrase.set_off or _is_set_off(tokens, at, at + length):
            return phrase
    return None


def _is_set_off(tokens: list[Token], start: int, end: int) -> bool:
    begins = start == 0 or tokens[start].marks & BOUNDARY != 0
    return begins and (end == len(tokens) or tokens[end].marks & BOUNDARY != 0)


# ----------------------------------------------------------------------------------------- typos and abbreviated days


def _put_right(tokens: list[Token], lang: Language) -> list[Token]:
    """Typos in ordinary words put right, and the weekdays that are written short in full."""
    short = lang.words("weekday_abbreviations")
    days, right = _misspelled_days(lang.code), _corrections(lang.code)
    places = [
        place
        for place, (word, kind, marks) in enumerate(tokens)
        if kind == "word" and (word in short or (word in days if marks & CAPITAL else right[word] != word))
    ]
    if not places:
        return tokens
    found = list(tokens)
    for place in places:
        token = tokens[place]
        word = token.word
        if word in short and _is_day_context(tokens, place, short, lang):
            word = _weekday_name(short[word], lang)
        elif token.marks & CAPITAL:
            word = days.get(word, word)
        elif place == 0 or tokens[place - 1].word not in _NAMING:
            word = right[word]
        if word != token.word:
            found[place] = Token(word, "word", token.marks)
    return found


@cache
def _misspelled_days(code: str) -> dict[str, str]:
    """The slips of the names of days and months, which are put right in spite of their capital."""
    lang = language(code)
    return misspelled((*lang.months, *lang.words("weekdays")), code) if code in DICTIONARIES else {}


@cache
def _corrections(code: str) -> Memo[str, str]:
    """Each word as it is meant in one language."""
    return Memo(lambda word: corrected(word, code))


# What follows is a name, however it is spelled.
_NAMING = frozenset(
    {"called", "named", "nicknamed", "alias", "aka", "heisst", "heisse", "hieß", "genannt", "namens", "llama", "llamo"}
    | {"llamado", "llamada", "appelle", "nommé", "nommée", "appelé", "appelée", "зовут", "называется"}
)


def _is_day_context(tokens: list[Token], place: int, short: dict[str, int], lang: Language) -> bool:
    """ "Mon" is a day beside another day or after "on" or "every"; "Jan" and "Sun" elsewhere may be names."""
    near = [token for token in tokens[max(0, place - 2) : place + 3] if token is not tokens[place]]
    if any(token.word in short or token.word in lang.words("weekdays") for token in near):
        return bool(tokens[place].marks & CAPITAL) or any(token.marks & CAPITAL for token in near)
    before = tokens[place - 1].word if place else ""
    return bool(tokens[place].marks & CAPITAL) and before in ("on", "every", "each", "next", "last", "until")


def _weekday_name(number: int, lang: Language) -> str:
    return next(str(name) for name, value in lang.words("weekdays").items() if value == number)


# ------------------------------------------------------------------------------------------------------------- words


def _plain_words(tokens: list[Token], lang: Language) -> list[Token]:
    """English without articles, copulas and the -s of verbs; in other languages these carry case, number or person."""
    if not _ABOUT.isdisjoint([token.word for token in tokens]):
        tokens = [token._replace(word="about", kind="word") if token.word in _ABOUT else token for token in tokens]
    if not lang.table.get("drops_articles"):
        return tokens
    found: list[Token] = []
    light = _light_words(lang.code)
    owed = done = 0
    for place in [place for place, (word, kind, _) in enumerate(tokens) if word in light and kind == "word"]:
        if owed and place > done:  # the word behind one that was left out
            found.append(tokens[done]._replace(marks=tokens[done].marks | owed))
            owed, done = 0, done + 1
        found += tokens[done:place]
        token, done = tokens[place], place + 1
        marks = token.marks | owed
        gone = _left_out(tokens, place, marks, found[-1].word if found else "", lang)
        if gone is not None:
            owed = marks & ~CAPITAL | gone
            continue
        owed = 0
        word = token.word
        if word in lang.agreement:
            if place == 0:  # "Uses vim" leaves out who does
                found.append(Token("user", "word", marks))
                marks = 0
            word = lang.agreement[word]
        found.append(token if word == token.word and marks == token.marks else Token(word, token.kind, marks))
    if owed:
        found.append(tokens[done]._replace(marks=tokens[done].marks | owed))
        done += 1
    return found + tokens[done:]


@cache
def _light_words(code: str) -> frozenset[str]:
    """The words that may be left out, and the verbs with an -s."""
    lang = language(code)
    return lang.articles.union(lang.copulas, lang.agreement, ["on", "at", "that"])


def _left_out(tokens: list[Token], place: int, marks: int, before: str, lang: Language) -> int | None:
    """The marks that a word leaves to the next one where it says nothing itself; None where it stays."""
    word = tokens[place].word
    following = tokens[place + 1] if place + 1 < len(tokens) else None
    if following is None:
        return None
    if word in lang.articles and _is_article(tokens, place):
        return ARTICLE | (DEFINITE if word == "the" else 0)
    if word in lang.copulas and following.word not in lang.words("keep_copula_before"):
        return ARTICLE | EQUALS
    if word == "on" and _is_day(tokens, place + 1, lang):
        return ARTICLE
    if (word == "at" and marks & EQUALS and following.kind in _PLACES) or (word == "that" and before in _REPORTING):
        return 0
    return None


_ABOUT = frozenset({"~", "≈"})
_REPORTING = frozenset(
    {
        "says",
        "say",
        "said",
        "report",
        "reports",
        "mention",
        "know",
        "note",
        "state",
        "mean",
        "means",
        "believe",
        "think",
    }
)


def _is_article(tokens: list[Token], place: int) -> bool:
    """ "Plan A" and {"a": 1} hold no article: it has no capital inside a sentence, and a word right behind it."""
    if place + 1 == len(tokens) or tokens[place + 1].marks & BOUNDARY:
        return False
    return tokens[place].word != "a" or not tokens[place].marks & CAPITAL


# "The repo is at <URL>" says what "Repo: <URL>" says.
_PLACES = frozenset({"url", "path", "email", "time"})


def _is_day(tokens: list[Token], at: int, lang: Language) -> bool:
    if tokens[at].word in lang.articles and at + 1 < len(tokens):
        at += 1
    token, weekdays = tokens[at], lang.words("weekdays")
    return token.kind == "date" or token.word in weekdays or token.word.rstrip("s") in weekdays


def _without_repetition(tokens: list[Token]) -> list[Token]:
    """Without sentences that say again, word for word, what a sentence before them said."""
    starts = [word for word, _, marks in tokens[1:] if marks & HARD]
    if not starts or (tokens[0].word not in starts and len(set(starts)) == len(starts)):
        return tokens
    sentences: list[list[Token]] = []
    for token in tokens:
        if not sentences or (token.marks & HARD and sentences[-1]):
            sentences.append([])
        sentences[-1].append(token)
    seen: set[tuple[str, ...]] = set()
    previous: tuple[str, ...] = ()
    kept: list[Token] = []
    for sentence in sentences:
        words = tuple(token.word for token in sentence)
        if words == previous or (words in seen and len(words) > 1):
            continue
        seen.add(words)
        previous = words
        kept += sentence
    return kept
