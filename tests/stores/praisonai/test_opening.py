"""Which files a ``praisonai:`` URL names, and what is refused before anything is opened for writing."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from memfold.errors import BadUsage, StoreError
from memfold_flows.stores import open_store


def write_both(folder: Path, content: bytes) -> None:
    (folder / "short_term.db").write_bytes(content)
    (folder / "long_term.db").write_bytes(content)


def make_one_half(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "long_term.db")) as connection:
        connection.execute("create table long_term_memory (id integer primary key, content, metadata, timestamp)")


def make_other_databases(folder: Path) -> None:
    for name in ("short_term.db", "long_term.db"):
        with closing(sqlite3.connect(folder / name)) as connection:
            connection.execute("create table short_mem (id text primary key, content text)")


@pytest.mark.parametrize(
    ("fill", "says"),
    [
        (lambda folder: folder.rmdir(), "there is no folder"),
        (lambda folder: None, r"holds no short_term\*\.db and no long_term\*\.db; nothing was created"),
        (make_other_databases, "short_term.db has no table short_term_memory"),
        (lambda folder: write_both(folder, b""), "short_term.db is an empty file"),
        (lambda folder: write_both(folder, b"a shopping list"), "short_term.db is not a SQLite file"),
        (
            make_one_half,
            r"there is no file .*short_term.db; .* One that never did makes both with get_all_memories\(\)",
        ),
        (lambda folder: (folder / "long_term.json").write_text("[]"), "but a FileMemory"),
        (lambda folder: (folder / "chroma_db").mkdir(), "but a Chroma memory, which only a Consolidator in its agent"),
    ],
    ids=["missing", "empty folder", "other database", "empty file", "text file", "one half", "a FileMemory", "Chroma"],
)
def test_a_wrong_place_is_an_error_and_nothing_is_created(tmp_path, fill, says):
    """PraisonAI's own API would create an empty memory there, which then looks as if all were lost."""
    place = tmp_path / "place"
    place.mkdir()
    fill(place)
    before = {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")}

    with pytest.raises(StoreError, match=says):
        open_store(f"praisonai:{place}")

    assert {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")} == before


def test_the_folder_above_the_memory_is_named_in_the_error(tmp_path):
    """PraisonAI keeps its files in .praisonai of the working directory; people name the project."""
    (tmp_path / ".praisonai").mkdir()

    with pytest.raises(StoreError, match=r"\.praisonai is there, name that folder"):
        open_store(f"praisonai:{tmp_path}")


def test_a_folder_with_several_memories_asks_which_one(sample):
    """A pair of files per user is PraisonAI's own layout; memfold does not guess."""
    sample.add_pair("_team_b")

    with pytest.raises(
        BadUsage, match=r"2 memories \(short_term\.db, short_term_team_b\.db\); choose one with \?user="
    ):
        sample.open()

    assert sample.snapshot("?user=team:b") == {}
    assert len(sample.snapshot("?short_db=short_term.db&long_db=long_term.db")) == 63


@pytest.mark.parametrize("options", ["?short_db=short_term.db", "?user=a&db_path=x.db", "?db_path=x.db&long_db=y.db"])
def test_options_that_contradict_each_other_are_refused(sample, options):
    """Two ways of naming the files at once would leave one of them unused."""
    with pytest.raises(BadUsage, match="takes short_db and long_db, or db_path, or user"):
        sample.open(options)


def test_the_url_of_a_store_opens_it_again_when_the_folder_has_filled_up(sample):
    """A run keeps the URL; another user's memory in the same folder must not make it ambiguous."""
    url = sample.open().url
    sample.add_pair("_bob")

    assert sum(batch.num_rows for batch in open_store(url).snapshot()) == 63
