"""Verdicts on single pairs: what is said, by which side, and what would be lost."""

from __future__ import annotations

from datetime import datetime

import numpy as np
import pytest

from memfold.judging import Pair, judge_pairs
from memfold.kernel import judge_rows
from memfold.text import read_corpus
from memfold.verdicts import NAMES, compiled_kernel, explain, judge, would_lose

MONDAY, TUESDAY = datetime.fromisoformat("2026-03-02T09:00:00Z"), datetime.fromisoformat("2026-03-03T09:00:00Z")


def verdict(a: str, b: str, *, a_at: datetime | None = None, b_at: datetime | None = None) -> tuple[str, str, str]:
    judged = judge_pairs([Pair("pair", a, b, a_at, b_at)])[0]
    return judged.verdict, judged.keep, judged.reason


@pytest.mark.parametrize(
    ("a", "b", "reason"),
    [
        ("CI needs 14 runners", "CI needs 16 runners", "numbers differ: 14 / 16"),
        ("User may eat eggs", "User may not eat eggs", "negated on one side: not"),
        ("Rent is due on 3 May", "Rent is due on 4 May", "dates differ: 05-03 / 05-04"),
        ("The job runs at 02:00", "The job runs at 03:00", "times differ: 02:00 / 03:00"),
        ("The login is in src/a.ts", "The login is in src/b.ts", "identifiers differ: src/a.ts / src/b.ts"),
        ("The user must sign", "The user may sign", "must, may or can differs: must / may"),
        ("The user smokes", "The user smokes?", "a question on one side: ?"),
        ("Ana's office is in Lisbon", "Ana's office is in Porto", "words differ: lisbon / porto"),
        ("Run lint before test", "Run test before lint", "the same words in an order that carries the fact"),
    ],
)
def test_the_reason_names_what_differs(a: str, b: str, reason: str):
    """A reader sees why two memories that look alike were left alone, as a conflict to decide on."""
    assert verdict(a, b) == ("conflict", "", reason)


def test_the_longer_text_contains_the_shorter():
    """The side that says more is kept, and the reason says what it adds."""
    assert verdict("User has a dog", "User has a dog, a beagle") == ("contains", "b", "adds: beagle")
    assert verdict("User has a dog, a beagle", "User has a dog") == ("contains", "a", "adds: beagle")


@pytest.mark.parametrize(
    "addition",
    [
        ", but not at home",
        " if it rains",
        ", maybe",
        ", except on Sundays",
        ". That is wrong.",
        " until June",
        "?",
        ", formerly",
    ],
)
def test_an_addition_that_takes_something_back_contains_nothing(addition: str):
    """What is added must not negate, limit, except, hedge, question or condition what stands before it."""
    assert verdict("User works in Bonn", f"User works in Bonn{addition}")[0] in ("conflict", "distinct")


@pytest.mark.parametrize("tail", [" on Fridays", " to the wiki", " in Berlin", " with a key"])
def test_a_general_statement_is_not_folded_into_a_narrower_one(tail: str):
    """ "Never" and "all" lose their reach by what is added, so both texts stay."""
    assert verdict("All nodes never restart", f"All nodes never restart{tail}")[0] in ("conflict", "distinct")


def test_the_newer_side_supersedes_where_it_says_so():
    """ "Now" on the newer side is a change; on the older side, or without times, it is none."""
    old, new = "Log retention is 14 days", "Log retention is now 30 days"

    assert verdict(old, new, a_at=MONDAY, b_at=TUESDAY)[:2] == ("supersedes", "b")
    assert verdict(new, old, a_at=TUESDAY, b_at=MONDAY)[:2] == ("supersedes", "a")
    assert verdict(old, new, a_at=TUESDAY, b_at=MONDAY)[0] == "conflict"
    assert verdict(old, new, a_at=MONDAY, b_at=MONDAY)[0] == "conflict"
    assert verdict(old, new)[0] == "conflict"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Der Server ist bkp-1", "Der Server ist jetzt bkp-4"),
        ("Le serveur est bkp-1", "Le serveur est maintenant bkp-4"),
        ("El servidor es bkp-1", "El servidor es ahora bkp-4"),
        ("Сервер резервных копий bkp-1", "Сервер резервных копий теперь bkp-4"),
        ("用户住在成都", "用户现在住在深圳"),
        ("監視ツールは Zabbix です", "監視ツールは Prometheus に変更されました"),
    ],
)
def test_every_language_can_say_that_something_changed(old: str, new: str):
    """Now, jetzt, maintenant, ahora, теперь, 现在, 変更."""
    assert verdict(old, new, a_at=MONDAY, b_at=TUESDAY)[:2] == ("supersedes", "b")


@pytest.mark.parametrize(
    "text",
    [
        "User flies to Rome tomorrow",
        "Der Nutzer fliegt morgen nach Rom",
        "用户明天去罗马",
        "Пользователь летит завтра",
        "Utente parte domani",
    ],
)
def test_the_same_words_on_two_days_are_two_facts(text: str):
    """Today and tomorrow mean another day on another day, and an unknown day is never taken for the same."""
    assert verdict(text, text, a_at=MONDAY, b_at=MONDAY)[0] == "same"
    assert verdict(text, text, a_at=MONDAY, b_at=TUESDAY)[0] == "distinct"
    assert verdict(text, text)[0] == "distinct"


def test_a_conflict_names_the_newer_side_only_where_times_are_known():
    """A reviewer is told which of two values is newer; equal or unknown times name none."""
    corpus = read_corpus(["Shoe size is 44", "Shoe size is 42"])
    pairs = np.array([0, 0, 0], np.int32), np.array([1, 1, 1], np.int32)
    found = judge(corpus, *pairs, newer=np.array([0, 1, 2], np.int8), same_day=np.zeros(3, bool))

    assert [NAMES[v] for v in found.verdict] == ["conflict"] * 3
    assert found.winner.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("removed", "kept", "lost"),
    [
        (
            "Deploy guide: https://wiki.example/d/88 and tag v2.4.1",
            "Deploy guide is on the wiki, tag v2.4.1",
            ("https://wiki.example/d/88",),
        ),
        ("Rent is 1,450 dollars", "Rent is $1,450", ()),
        ("Rent is 1,450 dollars", "Rent is due", ("1450 USD",)),
        ("Ask Noor about it on 3 May", "Ask about it on May 3rd", ("noor",)),
        ("Do not restart pg-01", "Restart pg-01", ("not",)),
        ("Call at 9am", "Call at 09:00", ()),
        ("Note: user likes jazz!", "User likes jazz", ()),
    ],
)
def test_what_a_merge_would_lose(removed: str, kept: str, lost: tuple[str, ...]):
    """A URL, a number, a date, a name or a "not" that stands nowhere in the kept text; another spelling is no loss."""
    assert would_lose(read_corpus([removed, kept]), [0], [1]) == lost


def test_title_and_content_are_kept_together():
    """A fact of the removed title may stand in the kept content."""
    corpus = read_corpus(["Release v2.1", "Ship it", "Ship it with tag v2.1", "Release"])

    assert would_lose(corpus, [0, 1], [2, 3]) == ()


def test_the_explanation_lists_the_words_of_one_side_only():
    """Both sides' own words, in their order, without what they share."""
    corpus = read_corpus(["User owns a red bike", "User owns a blue bike now"])
    found = judge(
        corpus,
        np.array([0], np.int32),
        np.array([1], np.int32),
        newer=np.array([0], np.int8),
        same_day=np.array([False]),
    )

    assert explain(corpus, found, 0).only_left == ("red",)
    assert explain(corpus, found, 0).only_right == ("blue", "now")


def test_nothing_to_judge_is_no_error():
    """An empty list of pairs has an empty list of verdicts."""
    none = np.array([], np.int32)

    assert (
        judge(
            read_corpus(["a", "b"]), none, none, newer=none.astype(np.int8), same_day=none.astype(bool)
        ).verdict.tolist()
        == []
    )


def test_the_compiled_kernel_is_loaded_from_the_same_file():
    """One implementation: what numba compiles is what plain Python runs."""
    compiled = compiled_kernel()

    assert compiled.__file__ == judge_rows.__code__.co_filename
    assert compiled.judge_rows.py_func.__code__.co_code == judge_rows.__code__.co_code


def test_very_long_texts_are_judged_in_order_only():
    """Two pages with a paragraph moved stay apart; judging them takes no longer than reading them."""
    page = " ".join(f"The node n{number} holds shard s{number}." for number in range(2000))
    moved = " ".join(f"The node n{number} holds shard s{number}." for number in [*range(1000, 2000), *range(1000)])

    assert verdict(page, page)[0] == "same"
    assert verdict(page, moved)[0] == "distinct"
    assert verdict(page, page.replace("n1999", "n1998"))[0] == "conflict"
