"""One order for what English and German say in several: passives, owners, negated verbs, questions."""

from __future__ import annotations

from memfold.lexicon import BIT, Language, classes, third_person
from memfold.tokens import BOUNDARY, COMMA, POSSESSIVE, Token


def in_plain_order(tokens: list[Token], lang: Language) -> list[Token]:
    """The tokens with passives, owners and negated verbs turned into their plainest form."""
    if lang.code == "en":
        words = {token.word for token in tokens}
        tokens = _active(tokens, lang) if "by" in words else tokens
        tokens = _possessive(tokens, lang) if "of" in words else tokens
        tokens = _negated_verb(tokens, lang) if "no" in words else tokens
    if lang.words("time_first"):
        tokens = _verb_after_subject(tokens, lang)
    return tokens


def with_question(tokens: list[Token], lang: Language) -> list[Token]:
    """A question without its mark ("Is the job running") gets it."""
    if lang.code != "en" or len(tokens) < 3:
        return tokens
    asks = tokens[0].word in _AUXILIARIES and tokens[1].word in _SUBJECTS
    if not asks or any(token.word == "?" for token in tokens):
        return tokens
    return [*tokens, Token("?", "question", 0)]


_AUXILIARIES = frozenset(
    {
        "is",
        "are",
        "was",
        "were",
        "do",
        "does",
        "did",
        "can",
        "could",
        "will",
        "would",
        "should",
        "shall",
        "may",
        "has",
        "have",
        "had",
        "am",
    }
)
_SUBJECTS = frozenset(
    {
        "the",
        "a",
        "an",
        "user",
        "i",
        "we",
        "you",
        "he",
        "she",
        "they",
        "it",
        "this",
        "that",
        "these",
        "those",
        "there",
        "my",
        "our",
        "your",
        "his",
        "her",
        "their",
        "any",
        "customer",
    }
)


def _active(tokens: list[Token], lang: Language) -> list[Token]:
    """ "The script is owned by the platform team" as "the platform team owns the script"."""
    for at in range(1, len(tokens) - 3):
        copula, participle, by = tokens[at : at + 3]
        if (
            by.word != "by"
            or copula.word not in ("is", "are", "was", "were")
            or participle.word not in lang.participles
        ):
            continue
        patient = tokens[:at]
        if any(t.marks & (BOUNDARY & ~COMMA) for t in tokens[1 : at + 3]) or any(
            t.word in _CLAUSE_BREAKS for t in patient
        ):
            return tokens
        end = at + 3
        while end < len(tokens) and not tokens[end].marks & BOUNDARY and not _starts_adjunct(tokens[end]):
            end += 1
        agent, rest = tokens[at + 3 : end], tokens[end:]
        if (
            not 0 < len(agent) <= 4
            or agent[0].word.endswith("ing")
            or agent[0].kind in ("date", "time", "number", "quantity")
        ):
            return tokens
        if agent[0].word in lang.words("weekdays") or any(t.word in _CLAUSE_BREAKS for t in agent):
            return tokens
        verb = participle.word
        if copula.word in ("is", "are"):
            verb = lang.participles[participle.word]
            is_plural = agent[-1].word.endswith("s")
            verb = verb if is_plural or verb in lang.words("verbs")["agreement"] else third_person(verb)
        first = Token(agent[0].word, agent[0].kind, agent[0].marks)
        return [first, *agent[1:], Token(verb, "word", 0), *patient, *rest]
    return tokens


_CLAUSE_BREAKS = frozenset(
    {
        "that",
        "which",
        "who",
        "and",
        "or",
        "but",
        "if",
        "when",
        "not",
        "no",
        "never",
        "because",
        "is",
        "are",
        "was",
        "were",
        "has",
        "have",
        "will",
        "must",
        "should",
        "may",
        "can",
    }
)


def _starts_adjunct(token: Token) -> bool:
    return token.word != "of" and bool(
        classes("en").get(token.word, 0) & (BIT["preposition"] | BIT["adjunct"] | BIT["conjunction"])
    )


def _possessive(tokens: list[Token], lang: Language) -> list[Token]:
    """ "The passport of the user expires" as "the user's passport expires"; only where "of" joins two plain names."""
    starts = [0, *(place + 1 for place, token in enumerate(tokens) if token.word in ("is", "are"))]
    for first in starts:
        start = first + 1 if first < len(tokens) and tokens[first].word in lang.articles else first
        owner = start + 2
        if len(tokens) <= owner or tokens[start + 1].word != "of" or not _is_plain_noun(tokens[start]):
            continue
        if tokens[owner].word in lang.articles:
            owner += 1
        end = owner + 1
        while end < len(tokens) and tokens[end].marks & POSSESSIVE:
            end += 1
        if owner >= len(tokens) or any(token.marks & BOUNDARY for token in tokens[start + 1 : end + 1]):
            continue
        if not (_is_verb(tokens[end].word, lang) if end < len(tokens) else first > 0):
            continue
        owned, before = tokens[start], tokens[:start]
        if owned.word == "name" and end < len(tokens) and tokens[end].word == "is":
            return [*before, *tokens[owner:end], *_CALLED, *tokens[end + 1 :]]
        return [*before, *tokens[owner:end], Token(owned.word, "word", POSSESSIVE), *tokens[end:]]
    return tokens


def _is_plain_noun(token: Token) -> bool:
    return token.kind == "word" and not classes("en").get(token.word, 0) & (
        BIT["quantifier"] | BIT["negation"] | BIT["limit"]
    )


def _is_verb(word: str, lang: Language) -> bool:
    return word in lang.copulas or word in lang.agreement or word in _PLAIN_VERBS


_CALLED = (Token("is", "word", 0), Token("called", "word", 0))
_PLAIN_VERBS = frozenset({"expires", "ends", "has", "was", "were", "will", "must", "needs", "lives", "works"})


def _negated_verb(tokens: list[Token], lang: Language) -> list[Token]:
    """ "Eats no gluten" as "does not eat gluten"."""
    for at in range(len(tokens) - 2):
        verb = lang.agreement.get(tokens[at].word, tokens[at].word)
        if tokens[at + 1].word != "no" or verb not in lang.words("verbs")["agreement"] or tokens[at + 2].kind != "word":
            continue
        if tokens[at + 1].marks & BOUNDARY or tokens[at + 2].marks & BOUNDARY:
            continue
        negated = [Token("do", "word", tokens[at].marks), Token("not", "word", 0), Token(verb, "word", 0)]
        return [*tokens[:at], *negated, *tokens[at + 2 :]]
    return tokens


def _verb_after_subject(tokens: list[Token], lang: Language) -> list[Token]:
    """German: "montags ist die Nutzerin ..." as "die Nutzerin ist montags ..."."""
    starts = lang.words("time_first")
    if len(tokens) < 5 or tokens[0].word not in starts or tokens[2].word not in _NOMINATIVES:
        return tokens
    if any(token.marks & BOUNDARY for token in tokens[1:4]) or tokens[3].kind != "word":
        return tokens
    time, verb, article, noun = tokens[:4]
    return [Token(article.word, "word", time.marks), noun, verb, Token(time.word, "word", 0), *tokens[4:]]


_NOMINATIVES = frozenset({"der", "die", "das", "ein", "eine"})
