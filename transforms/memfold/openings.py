"""What stands in front of a text and says nothing: "Note:", "By the way," and "The user said that"."""

from __future__ import annotations

from memfold.lexicon import Language
from memfold.tokens import BOUNDARY, CAPITAL, COLON, COMMA, Token


def without_openings(tokens: list[Token], lang: Language) -> list[Token]:
    """Without "Note:", "By the way," and "The user said that", however many of them stand in a row."""
    while True:
        shorter = _without_opening(tokens, lang)
        if shorter is None:
            shorter = _without_report(tokens, lang)
        if shorter is None:
            return tokens
        tokens = shorter


def _without_opening(tokens: list[Token], lang: Language) -> list[Token] | None:
    if not tokens:
        return None
    for words in lang.openings.get(tokens[0].word, ()):
        length = len(words)
        if len(tokens) <= length or tuple(token.word for token in tokens[:length]) != words:
            continue
        bounded = tokens[length].marks & BOUNDARY or words[-1] in _CLAUSE_WORDS or len(words) > 3
        if bounded or words in lang.bare_openings:
            return _from(tokens, length)
    return None


_CLAUSE_WORDS = frozenset({"that", "dass", "que", "что", "أن", "कि"})


def _without_report(tokens: list[Token], lang: Language) -> list[Token] | None:
    """What "the user said that he" says is said of the user."""
    if not tokens or tokens[0].word not in lang.reports:
        return None
    words = tuple(token.word for token in tokens[:8])
    for opening, pronouns, subject, that_needed in lang.reports[tokens[0].word]:
        length = len(opening)
        if words[:length] != opening or len(tokens) <= length:
            continue
        rest = _from(tokens, length)
        glued = lang.words("reports").get("glued")
        if rest[0].word in pronouns:
            rest = [Token(word, "word", 0) for word in subject] + rest[1:]
            return _verb_second(rest, len(subject), lang) if that_needed else rest
        names_itself = that_needed and rest[0].word in lang.words("reports").get("bare_verbs", ())
        if names_itself or (lang.words("reports").get("verb_first") and that_needed):
            return [Token(word, "word", 0) for word in subject] + rest
        for case, full in lang.words("reports").get("cases", []):
            parts = tuple(case.split())
            if tuple(token.word for token in rest[: len(parts)]) == parts:
                return [Token(word, "word", 0) for word in full.split()] + rest[len(parts) :]
        if (
            that_needed
            or (opening[-1] in lang.words("reports").get("bare", ()) and rest[0].word in _NOUN_PHRASE_STARTS)
            or (glued and rest[0].marks & BOUNDARY)
        ):
            return rest
        if tokens[length].marks & (COLON | COMMA):
            return rest
    return None


_NOUN_PHRASE_STARTS = frozenset({"the", "their", "his", "her", "my", "a", "an", "these", "this"})


def _verb_second(tokens: list[Token], subject: int, lang: Language) -> list[Token]:
    """German: the verb that "dass" puts last stands second once "dass" is gone."""
    if not lang.words("reports").get("verb_last_after") or len(tokens) <= subject + 1:
        return tokens
    if any(token.marks & BOUNDARY for token in tokens[subject:]):
        return tokens
    return [*tokens[:subject], tokens[-1], *tokens[subject:-1]]


def _from(tokens: list[Token], start: int) -> list[Token]:
    rest = tokens[start:]
    return [Token(rest[0].word, rest[0].kind, rest[0].marks & ~(BOUNDARY | CAPITAL)), *rest[1:]] if rest else rest
