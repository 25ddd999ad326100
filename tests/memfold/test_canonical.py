"""The passes that look only at the words they may change give what passes over every word give."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from memfold import canonical
from memfold.lexicon import LANGUAGES, Language, language
from memfold.tokens import BOUNDARY, CAPITAL, COMMA, STOP, Token, plain, scan

GOLD = Path(__file__).parents[1] / "data" / "gold" / "cases.jsonl"


def replaced_word_by_word(tokens: list[Token], lang: Language) -> list[Token]:
    """Phrases and fillers, looked for at every word in turn."""
    found: list[Token] = []
    owed = at = 0
    while at < len(tokens):
        token = tokens[at]
        match = canonical._phrase_at(tokens, at, lang) if token.word in lang.phrases else None
        if match is None:
            found.append(token._replace(marks=token.marks | owed))
            owed = 0
            at += 1
            continue
        marks = token.marks | owed
        owed = 0 if match.becomes else marks & ~CAPITAL
        kind = "word" if len(match.words) > 1 or token.kind in ("character", "hyphenated") else token.kind
        found += [Token(word, kind, marks if place == 0 else 0) for place, word in enumerate(match.becomes)]
        at += len(match.words)
    return found


def plain_word_by_word(tokens: list[Token], lang: Language) -> list[Token]:
    """Articles, copulas and the -s of verbs, looked for at every word in turn."""
    tokens = [token._replace(word="about", kind="word") if token.word in ("~", "≈") else token for token in tokens]
    if not lang.table.get("drops_articles"):
        return tokens
    found: list[Token] = []
    owed = 0
    for place, token in enumerate(tokens):
        marks = token.marks | owed
        owed = 0
        before = found[-1].word if found else ""
        is_word = token.kind == "word"
        gone = canonical._left_out(tokens, place, marks, before, lang) if is_word else None
        if gone is not None:
            owed = marks & ~CAPITAL | gone
            continue
        word = token.word
        if is_word and word in lang.agreement:
            if place == 0:
                found.append(Token("user", "word", marks))
                marks = 0
            word = lang.agreement[word]
        found.append(Token(word, token.kind, marks))
    return found


def words_of(code: str) -> Iterator[str]:
    """Words that some pass of a language looks for: those that begin or go on with a phrase, and the light ones."""
    lang = language(code)
    for phrases in list(lang.phrases.values())[::7]:
        yield from phrases[0].words
    yield from sorted(lang.articles | lang.copulas)
    yield from list(lang.agreement)[:10]


WORDS = {code: sorted({*words_of(code), "that", "on", "at", "says", "~", "friday"}) for code in LANGUAGES}


@st.composite
def token_lists(draw: st.DrawFn) -> tuple[list[Token], Language]:
    """Words of one language with any marks in front, and some that are no words."""
    code = draw(st.sampled_from(LANGUAGES))
    token = st.builds(
        Token,
        st.sampled_from(WORDS[code]) | st.text(min_size=1, max_size=4),
        st.sampled_from(["word", "word", "word", "number", "character", "url", "hyphenated"]),
        st.sampled_from([0, 0, 0, CAPITAL, COMMA, STOP, BOUNDARY | CAPITAL]),
    )
    return draw(st.lists(token, max_size=14)), language(code)


@given(token_lists())
def test_phrases_are_found_where_one_may_begin(given_tokens: tuple[list[Token], Language]) -> None:
    """A filler in front of a filler, a phrase inside a phrase, one at the end: as if each word were tried."""
    assert canonical._replaced(*given_tokens) == replaced_word_by_word(*given_tokens)


@given(token_lists())
def test_light_words_leave_their_marks_to_the_next_word(given_tokens: tuple[list[Token], Language]) -> None:
    """Several in a row, and in front of words that stay as they are: as if each word were tried."""
    assert canonical._plain_words(*given_tokens) == plain_word_by_word(*given_tokens)


def test_real_texts_give_the_same_in_both_ways() -> None:
    """The memories of the gold set, in nine languages."""
    texts = [
        memory["text"]
        for line in GOLD.read_text("utf-8").splitlines()
        for memory in json.loads(line)["memories"]
        if isinstance(memory.get("text"), str)
    ]
    changed = 0
    for text in texts:
        tokens = scan(plain(text))
        for lang in map(language, LANGUAGES):
            replaced, plainer = replaced_word_by_word(tokens, lang), plain_word_by_word(tokens, lang)
            changed += (replaced != tokens) + (plainer != tokens)
            assert canonical._replaced(tokens, lang) == replaced, text
            assert canonical._plain_words(tokens, lang) == plainer, text
    assert changed > 100
