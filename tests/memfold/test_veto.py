"""What no model may have: each pair here would be a wrong merge, or a text that loses or invents something."""

from __future__ import annotations

from pathlib import Path

import pytest

from memfold import veto


@pytest.mark.parametrize(
    ("one", "other", "check"),
    [
        ("Door code is 1234", "The door's code: 1243", "facts"),
        ("User lives in Oslo", "User lives in Bergen", "facts"),
        ("Meeting with Bob and Alice moved", "Meeting with Alice moved", "facts"),
        ("Deploy on Fridays", "Deploy on Friday", "facts"),
        ("Tickets are closed after 7 days of silence", "After 7 tickets, silence for days is closed", "facts"),
        ("User likes eggs", "User does not like eggs", "negation"),
        ("Deploys are allowed on Fridays after 14:00 UTC", "No deployments on Friday from 14:00 UTC", "negation"),
        ("The report is done. That is not true.", "The report is done.", "negation"),
        ("User is allergic to nuts. Correction: to dairy.", "User is allergic to nuts.", "change"),
        ("User must page the DBA", "User may page the DBA", "modal"),
        ("User owns a cat", "User owns a cat or a dog", "choice"),
        ("Ship to Oslo", "Ship from Oslo", "direction"),
        ("Checking account fee is waived", "Savings account fee is waived", "value"),
        ("Ana uses zsh", "Ana uses fish", "value"),
        ("The user's wife likes red wine", "The user likes red wine", "value"),
        ("Lena reports to Anna", "Anna reports to Lena", "order"),
        ("User prefers tea over coffee", "User prefers coffee over tea in the morning", "order"),
        ("Wright moved to New York from Chapel Hill", "Wright moved from New York to Chapel Hill", "order"),
        ("Anna was hired by Ben", "Anna hired Ben", "order"),
        ("The agent called the customer before lunch", "The customer called the agent before lunch", "order"),
        ("Stop the server. Run the backup. Go home.", "Run the backup. Stop the server. Go home.", "order"),
        ("Ana is vegetarian", "Ana drives a van", "common"),
        ("Lunch is great \N{THUMBS UP SIGN}", "Lunch is great \N{THUMBS DOWN SIGN}", "pictures"),
        ("The call is today", "The call is set for today", "day"),
        ("User lived in Berlin", "User lives in Berlin", "tense"),
        ("User asked for short answers", "User was asked for short answers", "tense"),
        ("User is allergic to peanuts", "User was allergic to peanuts as a child", "tense"),
        ("Charge the user after the trial", "Charge the user from the trial", "direction"),
        ("Notify customers after the incident", "Notify customers since the incident", "direction"),
        ("Standup is daily", "Standup is weekly", "facts"),
        ("The client is in March", "The client is in march", "facts"),
        ("Rose waters the plants", "A rose waters the plants", "facts"),
        ("The order has shipped", "The order is to be shipped", "direction"),
        ("The contract has been signed", "The contract is being signed", "tense"),
        ("The train leaves in 10 minutes", "The train leaves for 10 minutes", "direction"),
        ("Der Hund beißt den Mann", "Den Hund beißt der Mann", "direction"),
        ("Show code, explanations are optional", "Show explanations, code is optional", "order"),
        ("Use the main account for billing", "Use the account for main billing", "order"),
        (
            "The nightly tests run on Linux, the weekly on BSD",
            "The weekly tests run on Linux, the nightly on BSD",
            "order",
        ),
        ("The fake payment provider is used for drills", "For drills the payment provider is used", "value"),
        (
            "Every Sunday night the main staging database gets wiped",
            "The spare staging database is wiped every Sunday night",
            "value",
        ),
    ],
)
def test_a_difference_that_is_a_fact_is_never_the_same(one: str, other: str, check: str) -> None:
    """Whatever a model says: a value, a name, a turn of the sentence or who does what to whom keeps two apart."""
    objections = [veto.of_pair(*pair).objection for pair in ((one, other), (other, one))]

    assert [objection and objection.check for objection in objections] == [check, check]


TRICKY = (Path(__file__).parents[1] / "data/tricky_pairs.txt").read_text().splitlines()


def test_no_tricky_pair_gets_through_whatever_a_model_says() -> None:
    """Pairs in which nearly all words are the same and the meaning is not: swapped, narrowed, or said of another."""
    pairs = [line.split(" | ") for line in TRICKY]

    assert len(pairs) == 361
    assert [pair for pair in pairs if veto.of_pair(*pair, same_day=True).objection is None] == []


@pytest.mark.parametrize(
    ("one", "other", "stays"),
    [
        (
            "Deploys are frozen on Fridays after 14:00 UTC",
            "No deployments on Friday afternoons from 14:00 UTC",
            0,
        ),
        (
            "The staging database is wiped every Sunday night",
            "Every Sunday night the staging database gets wiped",
            2,
        ),
        (
            "The user works at Halvorsen Shipping as a dispatcher",
            "User is a dispatcher working at Halvorsen Shipping",
            0,
        ),
        ("User is vegetarian", "User is vegetarian and does not eat eggs", 2),
        ("The office wifi is slow. Docs are in Notion.", "The office wifi is slow.", 1),
        ("No meetings Friday", "No Friday meetings", 0),
    ],
)
def test_another_wording_is_left_to_the_model(one: str, other: str, stays: int) -> None:
    """Where no fact differs the model decides; a text that holds the other and more is the one that stays."""
    assert veto.of_pair(one, other) == veto.Look(None, stays)
    assert veto.of_pair(other, one) == veto.Look(None, {0: 0, 1: 2, 2: 1}[stays])


def test_what_speaks_of_its_day_is_the_same_only_on_that_day() -> None:
    """Today is another day tomorrow."""
    pair = ("Today the user fasts", "Today user is fasting")

    assert veto.of_pair(*pair).objection == veto.Objection(
        "day", "one speaks of its own day, and the days differ or are unknown"
    )
    assert veto.of_pair(*pair, same_day=True).objection is None


GUIDE = (
    "Deploy guide: https://wiki.example.net/d/88 and use tag v2.4.1",
    "Deploy guide is on the wiki, use tag v2.4.1",
)


@pytest.mark.parametrize(
    ("text", "check", "names"),
    [
        ("Follow the wiki deploy guide with tag v2.4.1", "missing", "https://wiki.example.net/d/88"),
        ("Deploy guide is on the wiki: https://wiki.example.net/d/88, use tag v2.4.2", "missing", "2.4.1"),
        ("Deploy guide is not on the wiki: https://wiki.example.net/d/88, use tag v2.4.1", "invented", "not"),
        ("Deploy guide by Lena is on the wiki: https://wiki.example.net/d/88, use tag v2.4.1", "invented", "lena"),
        ("Deploy guide is on the old wiki: https://wiki.example.net/d/88, use tag v2.4.1", "invented", "old"),
        ("Guide: https://wiki.example.net/d/88", "missing", "2.4.1"),
        ("", "empty", "empty"),
        (" ".join(GUIDE * 2), "length", "characters"),
        ("v2.4.1", "length", "characters"),
    ],
)
def test_a_text_that_loses_or_invents_anything_is_refused(text: str, check: str, names: str) -> None:
    """Every URL, version and word of weight must be there, and nothing that no memory says."""
    objection = veto.of_text(text, GUIDE)

    assert objection is not None
    assert (objection.check, names in objection.says) == (check, True)


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("Standup is weekly in the large office with coffee with cake", ("daily", "coffee", "cake")),
        ("Standup is after lunch in the large office with coffee with cake", ("before lunch", "coffee", "cake")),
        ("The user lives in the old town with dogs with cats", ("lived", "dogs", "cats")),
    ],
)
def test_a_text_with_another_adverb_preposition_or_tense_is_refused(text: str, ends: tuple[str, str, str]) -> None:
    """What stands in both sources has to stand in the text as it is, down to the small words that carry the fact."""
    word, one, other = ends
    sources = {
        "daily": "Standup is daily in the large office with",
        "before lunch": "Standup is before lunch in the large office with",
        "lived": "The user lived in the old town with",
    }
    objection = veto.of_text(text, [f"{sources[word]} {one}", f"{sources[word]} {other}"])

    assert objection == veto.Objection("missing", f"missing {word.split()[0]}")


def test_a_negation_stays_with_its_word() -> None:
    """No dogs and three cats is not three dogs and no cats."""
    sources = ("User has 3 cats and no dogs", "User has 3 cats, lives in Oslo")

    assert veto.of_text("User has 3 cats and no dogs, lives in Oslo", sources) is None
    assert veto.of_text("User has no cats and 3 dogs, lives in Oslo", sources) == veto.Objection(
        "missing", "missing no dogs"
    )


@pytest.mark.parametrize(
    ("text", "sources"),
    [
        (
            "Production listens on 5432 in Oslo, staging has backups in Bergen",
            ("Staging listens on 5432 in Oslo", "Production has backups in Bergen"),
        ),
        (
            "Bob owns billing and the API; Ann owns search",
            ("Ann owns billing and the API", "Ann owns billing; Bob owns search"),
        ),
        (
            "Ann owns billing and search; Bob owns the API",
            ("Ann owns billing and the API", "Ann owns billing; Bob owns search"),
        ),
        ("User has 3 dogs, 2 cats in Oslo", ("User has 3 cats in Oslo", "User has 3 cats, 2 dogs")),
        (
            "The server hosts the old wiki with a new theme",
            ("The old server hosts the wiki", "The wiki on the server has a new theme"),
        ),
        (
            "Standup is weekly at 9 in room A, review is daily",
            ("Standup is daily at 9 in room A", "Standup at 9, review is weekly"),
        ),
        (
            "Ann likes coffee and lives in Oslo, Ann's brother likes tea",
            ("Ann likes tea and lives in Oslo", "Ann's brother likes coffee, Ann lives in Oslo"),
        ),
        (
            "The user works with mark on the tested parser",
            ("The user works with Mark on the parser", "The parser with Mark is tested"),
        ),
        (
            "Kim reports to Lena and Bo about sales",
            ("Lena reports to Kim about sales", "Kim reports to Bo about sales"),
        ),
    ],
)
def test_a_text_that_joins_the_words_of_its_sources_otherwise_is_refused(text: str, sources: tuple[str, str]) -> None:
    """Each word is there, and none is where it was: a value, a name or an adjective belongs to another."""
    assert veto.of_text(text, sources) is not None


@pytest.mark.parametrize(
    ("text", "sources"),
    [
        ("Staging db runs Postgres 15 on host db7", ("Staging db runs Postgres 15", "Staging db runs on host db7")),
        (
            "CI runs on GitHub Actions with Python 3.11 on every push",
            ("CI runs on GitHub Actions with Python 3.11", "CI runs on GitHub Actions on every push"),
        ),
        (
            "Ann owns billing and the API, Bob owns search",
            ("Ann owns billing and the API", "Ann owns billing; Bob owns search"),
        ),
    ],
)
def test_a_text_that_keeps_together_what_was_together_is_accepted(text: str, sources: tuple[str, str]) -> None:
    """Two memories in one sentence, each word beside those that it stood with."""
    assert veto.of_text(text, sources) is None


def test_a_text_that_holds_all_of_its_sources_is_accepted() -> None:
    """In other order and with other joints, but word for word."""
    assert veto.of_text("Deploy guide is on the wiki: https://wiki.example.net/d/88, use tag v2.4.1", GUIDE) is None


def test_memories_with_two_values_for_one_thing_get_no_common_text() -> None:
    """A text with both could join either value to either memory."""
    objection = veto.of_union("Staging listens on 5432", "Staging listens on 5433")

    assert objection is not None
    assert objection.check == "facts"
    assert veto.of_union(*GUIDE) is None


def test_in_a_language_without_a_table_no_word_may_differ() -> None:
    """Nobody here knows which of its words says no."""
    look = veto.of_pair(
        "팀은 2월 19일 저녁에 다음 게임의 변화에 대응했습니다",
        "그 팀은 내년 2월 19일 저녁에 게임의 변화에 대응했습니다",
    )

    assert look.objection is not None
    assert look.objection.check == "language"
