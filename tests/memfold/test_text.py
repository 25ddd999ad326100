"""The normal form, blank texts and the integers that a text becomes."""

from __future__ import annotations

import subprocess
import sys
import unicodedata

import numpy as np
import pytest

from memfold.text import is_blank, read_corpus, text_key


def words(text: str) -> list[str]:
    corpus = read_corpus([text])
    return [corpus.vocabulary.words[token] for token in corpus.tokens]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("User drinks oat milk.", "user drinks  oat milk"),
        ("Favourite café: Zoë's", unicodedata.normalize("NFD", "favourite Café - ZOË'S")),
        ("ＡＰＩキーは毎月更新する", "APIキーは毎月更新する。"),
        ("用户对花生过敏,不能吃花生酱", "用户对花生过敏，不能吃花生酱。"),
        ("المستخدم يعيش في دبي", "المستخدم يعيش في دبي."),
        ("**Never** run `make deploy`", "never run make deploy"),
        ("- Merge\n- Wait", "Merge. Wait."),
        ("Left-handed", "left handed"),
        ("zero\u200bwidth", "zerowidth"),
    ],
)
def test_case_spacing_punctuation_and_unicode_form_give_one_key(one: str, other: str):
    """Two spellings of one text fold as exact copies."""
    assert text_key(one) == text_key(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("offset is -0.5", "offset is +0.5"),
        ("fee is 1.5 percent", "fee is 15 percent"),
        ("The user smokes", "The user smokes?"),
        ("用户对海鲜过敏", "用户对海鲜过敏？"),
        ("curl -o file", "curl -O file"),
        ("see https://v.example/a1b2", "see https://v.example/a1B2"),
        ("read /etc/App", "read /etc/app"),
        ("use C", "use C++"),
        ("load ≤ 5", "load ≥ 5"),
        ("costs ₩500", "costs ₪500"),
        ("20 Mb", "20 MB"),
        ("👍", "🔥"),
        ("...", "???"),
        ("~~tea~~", "tea"),
        ("x != 1", "x = 1"),
        ("no", "non"),
    ],
)
def test_a_fact_gives_another_key(one: str, other: str):
    """Signs, points, question marks, symbols and the case of flags, paths and URLs are no punctuation."""
    assert text_key(one) != text_key(other)


@pytest.mark.parametrize("text", ["", "  ", "\n\t", "\u200b\u2060", "\ufeff", "\u3164", "\u00a0\u3000"])
def test_white_space_and_invisible_characters_are_blank(text: str):
    """Nothing to read is blank."""
    assert is_blank(text)


@pytest.mark.parametrize("text", [".", "0", "👍", "あ", "ไ", "न", "?"])
def test_anything_visible_is_not_blank(text: str):
    """No script and no sign counts as nothing."""
    assert not is_blank(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Rent is $1,450 a month", ["rent", "1450 USD", "month"]),
        ("Health check interval is 1.5 minutes", ["health", "check", "interval", "90 s"]),
        ("Takes ten milligrams at 9 pm", ["user", "take", "10 mg", "at", "21:00"]),
        ("Contract ends on September 30, 2026", ["contract", "ends", "2026-09-30"]),
        ("Der Vertrag endet am 31. Dezember 2026", ["der", "vertrag", "endet", "an", "dem", "2026-12-31"]),
        ("Rendez-vous le 04/07/2025 à 14 h 30", ["rendez", "vous", "le", "2025-07-04", "à", "14:30"]),
        ("会議は2025年8月7日の午後3時から", ["会", "議", "は", "2025-08-07", "の", "15:00", "から"]),
        ("У пользователя три кота", ["у", "пользователя", "3", "кота"]),
        ("The lease runs for twenty-four months", ["lease", "run", "for", "24 month"]),
        ("Call the vet on +44 20 7946 0018", ["call", "vet", "on", "+442079460018"]),
        ("Use db-prod-02, not DB-PROD-03", ["use", "db-prod-02", "not", "db-prod-03"]),
        ("The script is owned by the web team", ["web", "team", "own", "script"]),
        ("Budget is 03/04/2025 or 25/12/2025", ["budget", "03/04/2025", "or", "2025-12-25"]),
    ],
)
def test_canonical_tokens(text: str, expected: list[str]):
    """Numbers, dates, times, units and word order have one form; a date that could be two dates keeps its own."""
    assert words(text) == expected


@pytest.mark.parametrize(
    "text", ["Анна живёт", "דנה אוהבת קפה", "会議は木曜日", "ผู้ใช้กินเนื้อ", "사용자는 고기를 먹는다", "ਉਹ ਘਰ ਹੈ"]
)
def test_no_script_reads_as_empty(text: str):
    """A text in any script has tokens to be judged by."""
    assert len(words(text)) >= 2


def test_the_rows_of_a_corpus_are_the_texts_in_their_order():
    """Offsets cut one row per text; keys are each text's own words, sorted and once."""
    corpus = read_corpus(["tea and tea", "", "tea?"])

    assert corpus.token_offsets.tolist() == [0, 3, 4, 6]
    assert [corpus.vocabulary.words[token] for token in corpus.tokens[:3]] == ["tea", "and", "tea"]
    assert corpus.keys[: corpus.key_offsets[1]].tolist() == sorted(set(corpus.tokens[:3].tolist()))
    assert corpus.vocabulary.classes.dtype == np.uint32
    assert corpus.vocabulary.hashes.dtype == np.uint64


def test_the_hash_of_a_word_is_the_same_in_every_process():
    """Signatures built from it can be compared between runs and machines."""
    code = "from memfold.text import stable_hash; print(stable_hash('pnpm'))"
    seeds = [
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        )
        for seed in ("1", "2")
    ]

    assert {run.stdout for run in seeds} == {"9601104206292050667\n"}
