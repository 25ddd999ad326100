"""What must hold for every text: verdicts are mirrored, decoration is nothing, a changed fact is never the same."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import numpy as np
import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from memfold import verdicts as verdicts_module
from memfold.text import read_corpus, text_key
from memfold.verdicts import CONTAINS, SAME, Verdicts, judge

GOLD = Path(__file__).parents[1] / "data" / "gold"
TEXTS = [
    json.loads(line)[side]["text"]
    for name in ("pairs_dev.jsonl", "pairs_extra_multilingual.jsonl")
    for line in (GOLD / name).read_text("utf-8").splitlines()
    for side in ("a", "b")
]
SHORT = [text for text in TEXTS if len(text) < 200]

NAMES = ["Ana", "Noor", "Okafor", "Lindqvist", "Tarek", "Bonn", "Lisbon", "Kyoto", "Orchid", "Kestrel"]
PATHS = [
    "src/api/session.ts",
    "src/web/session.ts",
    "/etc/app.conf",
    "/etc/App.conf",
    "~/notes/tax.md",
    "docs/readme.md",
]
TEMPLATES = [
    "The backup of {name} is kept for {number} days under {path}",
    "Ask {name} before the {number} nodes read {path}",
    "Der Server von {name} liest {path} und hält {number} Kopien",
    "Le serveur de {name} lit {path} et garde {number} copies",
    "El servidor de {name} lee {path} y guarda {number} copias",
    "Сервер для {name} читает {path} и хранит {number} копий",
    "{name} 的服务器读取 {path} 并保留 {number} 份",
    "{name} のサーバーは {path} を読み {number} 件を保存する",
]

names, paths = st.sampled_from(NAMES), st.sampled_from(PATHS)
numbers = st.integers(2, 9999).map(str)


def judge_all(pairs: list[tuple[str, str]], *, newer: int = 0, same_day: bool = True) -> Verdicts:
    corpus = read_corpus([text for pair in pairs for text in pair])
    left = np.arange(0, 2 * len(pairs), 2, dtype=np.int32)
    return judge(
        corpus,
        left,
        left + 1,
        newer=np.full(len(pairs), newer, np.int8),
        same_day=np.full(len(pairs), same_day, np.bool_),
    )


def merges(a: str, b: str) -> bool:
    return int(judge_all([(a, b)]).verdict[0]) in (SAME, CONTAINS)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(TEXTS), st.sampled_from(TEXTS)), min_size=1, max_size=20), st.integers(0, 2))
def test_a_verdict_is_mirrored(pairs: list[tuple[str, str]], newer: int):
    """Judged from the other side, the verdict is the same one with the winner's side exchanged."""
    mirror = np.array([0, 2, 1], np.int8)
    there = judge_all(pairs, newer=newer)
    back = judge_all([(b, a) for a, b in pairs], newer=int(mirror[newer]))

    assert back.verdict.tolist() == there.verdict.tolist()
    assert back.winner.tolist() == mirror[there.winner].tolist()
    assert back.added.tolist() == there.added.tolist()


@settings(deadline=None)
@given(st.sampled_from(TEXTS), st.sampled_from(TEXTS), st.lists(st.sampled_from(TEXTS), max_size=5))
def test_a_verdict_does_not_depend_on_the_other_texts(a: str, b: str, others: list[str]):
    """A pair is judged alike alone and in a store full of memories."""
    alone = judge_all([(a, b)]).verdict[0]
    among = judge_all([(other, a) for other in others] + [(a, b)]).verdict[-1]

    assert alone == among


DECORATIONS = {
    "Unicode form": lambda text: unicodedata.normalize("NFD", text),
    "white space": lambda text: f"  {text.replace(' ', '  ')}\n",
    "bold": lambda text: f"**{text}**",
    "bullet": lambda text: f"- {text}",
    "quote": lambda text: f"> {text}",
    "quotation marks": lambda text: f"“{text}”",
    "brackets": lambda text: f"({text})",
    "emoji": lambda text: f"🎉 {text} 🥾",
    "exclamation": lambda text: f"{text}!",
    "invisible characters": lambda text: text.replace(" ", " \u200b"),
}


@pytest.mark.parametrize("name", DECORATIONS)
def test_decoration_is_nothing(name: str):
    """Every text of the gold set is the same as itself in Markdown, in quotes, with emoji, in another Unicode form."""
    pairs = [(text, DECORATIONS[name](text)) for text in SHORT if not regex.search("^>|[\n`]", text)]
    found = judge_all(pairs)

    assert [pair for pair, verdict in zip(pairs, found.verdict, strict=True) if verdict != SAME] == []


PREFIXES = [
    "Note: ",
    "FYI: ",
    "By the way, ",
    "Reminder: ",
    "So, basically, ",
    "Please note that ",
    "Hinweis: ",
    "Nota: ",
    "注意：",
    "メモ：",
]


@settings(deadline=None)
@given(st.sampled_from(TEMPLATES), names, numbers, paths, st.sampled_from(PREFIXES))
def test_a_prefix_of_the_texts_language_is_nothing(template: str, name: str, number: str, path: str, prefix: str):
    """ "Note:" in front of an English text, "Hinweis:" of a German one; a foreign prefix may keep them apart."""
    text = template.format(name=name, number=number, path=path)
    languages = {"The": "en", "Ask": "en", "Der": "de", "El ": "es"}
    own = {"en": PREFIXES[:6], "de": ["Hinweis: "], "es": ["Nota: "]}
    language = languages.get(template[:3])
    if language is not None and prefix in own[language]:
        assert judge_all([(text, prefix + text)]).verdict[0] == SAME


@settings(deadline=None)
@given(st.sampled_from(TEMPLATES), st.tuples(names, names), numbers, paths)
def test_another_name_is_never_the_same(template: str, pair: tuple[str, str], number: str, path: str):
    """Names carry the fact in every language, whatever their capitals say."""
    a, b = (template.format(name=name, number=number, path=path) for name in pair)

    assert merges(a, b) == (pair[0] == pair[1])
    assert merges(a.casefold(), b.casefold()) == (pair[0] == pair[1])


@settings(deadline=None)
@given(st.sampled_from(TEMPLATES), names, st.tuples(numbers, numbers), paths)
def test_another_number_is_never_the_same(template: str, name: str, pair: tuple[str, str], path: str):
    """One digit is enough."""
    a, b = (template.format(name=name, number=number, path=path) for number in pair)

    assert merges(a, b) == (pair[0] == pair[1])


@settings(deadline=None)
@given(st.sampled_from(TEMPLATES), names, numbers, st.tuples(paths, paths))
def test_another_path_is_never_the_same(template: str, name: str, number: str, pair: tuple[str, str]):
    """One segment, or one letter's case, is enough."""
    a, b = (template.format(name=name, number=number, path=path) for path in pair)

    assert merges(a, b) == (pair[0] == pair[1])
    assert (text_key(a) == text_key(b)) == (pair[0] == pair[1])


def test_a_changed_digit_is_never_the_same():
    """Every digit of every gold text, changed to the next one, keeps the two texts apart."""
    pairs = []
    for text in TEXTS:
        for found in regex.finditer(r"\d", text):
            digit = str((int(found[0]) + 1) % 10)
            pairs.append((text, text[: found.start()] + digit + text[found.end() :]))
    found = judge_all(pairs)

    assert len(pairs) > 1000
    assert [pair for pair, verdict in zip(pairs, found.verdict, strict=True) if verdict in (SAME, CONTAINS)] == []


NEGATIONS = [
    (" is ", " is not "),
    (" are ", " are not "),
    (" was ", " was not "),
    (" can ", " cannot "),
    (" has ", " never has "),
    (" must ", " must not "),
    (" ist ", " ist nicht "),
    (" est ", " n'est pas "),
    (" es ", " no es "),
    ("любит", "не любит"),
    ("предпочитает", "не предпочитает"),
    ("喜欢", "不喜欢"),
    ("可以", "不可以"),
    ("يعيش", "لا يعيش"),
    ("है", "नहीं है"),
]


def test_a_negation_is_never_the_same():
    """ "Not" put into any gold text keeps the two apart, in every language with a table."""
    pairs = [(text, text.replace(plain, negated, 1)) for text in TEXTS for plain, negated in NEGATIONS if plain in text]
    found = judge_all(pairs)

    assert len(pairs) > 300
    assert [pair for pair, verdict in zip(pairs, found.verdict, strict=True) if verdict in (SAME, CONTAINS)] == []


def test_a_name_in_any_gold_text_exchanged_is_never_the_same():
    """Every capitalised word in the middle of a gold text, replaced by another name, keeps the two apart."""
    pairs = []
    for text in TEXTS:
        for found in regex.finditer(r"(?<=[\p{Ll},] )\p{Lu}\p{Ll}{2,}(?![\p{L}'-])", text):
            pairs.append((text, f"{text[: found.start()]}Quillon{text[found.end() :]}"))
    found = judge_all(pairs)

    assert len(pairs) > 400
    assert [pair for pair, verdict in zip(pairs, found.verdict, strict=True) if verdict in (SAME, CONTAINS)] == []


def test_a_text_repeated_says_nothing_more():
    """A sentence said twice is the sentence."""
    pairs = [(text, f"{text}. {text}") for text in SHORT if not regex.search(r"[\n?？吗.:;。!`*#>]", text)]
    found = judge_all(pairs)

    assert len(pairs) > 300
    assert [pair for pair, verdict in zip(pairs, found.verdict, strict=True) if verdict != SAME] == []


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=60), st.text(max_size=60))
def test_any_text_can_be_judged(a: str, b: str):
    """No text breaks the reader, and equal keys are judged the same on the same day."""
    verdict = int(judge_all([(a, b)]).verdict[0])

    if text_key(a) == text_key(b):
        assert verdict == SAME


def test_the_compiled_kernel_agrees_on_every_gold_pair(monkeypatch: pytest.MonkeyPatch):
    """Compiled or not, each pair of the gold set, and as many drawn at random, has the same verdict."""
    corpus = read_corpus(TEXTS)
    rng = np.random.default_rng(7)
    left = np.concatenate([np.arange(0, len(TEXTS), 2), rng.integers(0, len(TEXTS), 2000)]).astype(np.int32)
    right = np.concatenate([np.arange(1, len(TEXTS), 2), rng.integers(0, len(TEXTS), 2000)]).astype(np.int32)
    newer = rng.integers(0, 3, len(left)).astype(np.int8)
    same_day = rng.integers(0, 2, len(left)).astype(np.bool_)
    plain = judge(corpus, left, right, newer=newer, same_day=same_day)
    monkeypatch.setattr(verdicts_module, "COMPILED_FROM_PAIRS", 1)
    compiled = judge(corpus, left, right, newer=newer, same_day=same_day)

    assert compiled.verdict.tolist() == plain.verdict.tolist()
    assert compiled.winner.tolist() == plain.winner.tolist()
    assert compiled.added.tolist() == plain.added.tolist()
