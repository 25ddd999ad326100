"""What memfold writes into a PraisonAI memory, and what it never touches."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace

import pytest

from memfold.errors import StoreError, Transient
from memfold_flows.stores import open_store, praisonai_files
from memfold_flows.stores.base import Update

TIERS = ("short_term", "long_term")


def test_one_file_can_hold_both_tiers(one_file):
    """PraisonAI's db_path puts both tables into one file; ids still name their tier."""
    store = open_store(f"praisonai:{one_file}")

    with store.transaction() as transaction:
        transaction.delete(["short_term:1"])

    assert [name for batch in store.snapshot() for name in batch["memory_id"].to_pylist()] == ["long_term:1"]
    assert store.url == f"praisonai://{one_file}"


def test_one_file_in_wal_mode_moves_rows_between_its_tiers(one_file):
    """A transaction over one file is atomic in any journal mode."""
    with closing(sqlite3.connect(one_file)) as connection:
        connection.execute("pragma journal_mode = wal")
    store = open_store(f"praisonai:{one_file}")

    with store.transaction() as transaction:
        new_ids = transaction.promote(transaction.read(["short_term:1"]), "long_term")

    assert store.traits.promotes is True
    assert new_ids == {"short_term:1": "long_term:2"}


def test_a_delete_takes_the_row_of_its_own_tier_only(sample):
    """Short term 14 and long term 14 are two memories; PraisonAI's untyped delete would take both."""
    before = sample.rows()

    with sample.open().transaction() as transaction:
        transaction.delete(["short_term:14"])

    assert sample.rows()["long_term"] == before["long_term"]
    assert sample.rows()["short_term"] == [row for row in before["short_term"] if row[0] != 14]


def test_a_delete_of_a_row_that_is_gone_undoes_the_whole_transaction(sample):
    """A count that is not what was meant says that the plan does not fit the store."""
    before = sample.rows()

    with (
        pytest.raises(StoreError, match="1 rows would have changed instead of 2; nothing was written"),
        sample.open().transaction() as transaction,
    ):
        transaction.delete(["long_term:14", "long_term:99"])

    assert sample.rows() == before


def test_an_update_writes_the_metadata_and_leaves_text_and_time(sample):
    """The survivor keeps its wording, its id and its place in time."""
    before = sample.rows()
    metadata = '{"user_id": "team-a", "tags": ["pager"], "score": NaN}'

    with sample.open().transaction() as transaction:
        memory = transaction.read(["short_term:14"])["short_term:14"].memory
        transaction.update([Update(memory, replace(memory, metadata=metadata))])

    expected = [(*row[:2], metadata, row[3]) if row[0] == 14 else row for row in before["short_term"]]
    assert sample.rows() == {"short_term": expected, "long_term": before["long_term"]}


@pytest.mark.parametrize("metadata", ['{"user_id": ', "[1]"])
def test_metadata_that_praisonai_could_not_read_is_never_written(sample, metadata):
    """One unreadable row makes PraisonAI fail on the whole store."""
    before = sample.rows()

    with sample.open().transaction() as transaction:
        memory = transaction.read(["short_term:14"])["short_term:14"].memory
        with pytest.raises(StoreError, match="short_term:14 was not written: the metadata is not"):
            transaction.update([Update(memory, replace(memory, metadata=metadata))])

    assert sample.rows() == before


def test_a_removed_row_comes_back_in_every_column(empty):
    """Also in columns that somebody added, with values that JSON does not know, and with the id counter untouched."""
    with closing(sqlite3.connect(empty.folder / "short_term.db")) as connection, connection:
        connection.execute("alter table short_term_memory add column embedding blob")
        connection.executemany(
            "insert into short_term_memory values (?, ?, ?, ?, ?)",
            [
                (7, "The 'lift' \u0000 is out.", "", 1796070987.5, b"\x00\xff"),
                (9, "The lift works.", None, None, "a text"),
            ],
        )
    before, counters = empty.rows(), empty.counters()
    store = empty.open()

    with store.transaction() as transaction:
        raws = {name: row.raw for name, row in transaction.read(["short_term:7", "short_term:9"]).items()}
        transaction.delete(raws)
    assert empty.rows()["short_term"] == []
    with store.transaction() as transaction:
        assert transaction.restore(raws) == set()

    assert empty.rows() == before
    assert empty.counters() == counters


def test_a_row_that_exists_again_is_not_overwritten_by_a_restore(sample):
    """What stands there now is the agent's; the caller learns which ids were left out."""
    before = sample.rows()

    with sample.open().transaction() as transaction:
        raws = {name: row.raw for name, row in transaction.read(["short_term:14", "long_term:14"]).items()}
        transaction.delete(["short_term:14"])
        assert transaction.restore(raws) == {"long_term:14"}

    assert sample.rows() == before


def test_a_promoted_row_moves_with_its_metadata_and_timestamp(sample):
    """Long term gives it a new id, as ids count per tier."""
    moved = sample.rows()["short_term"][13]

    with sample.open().transaction() as transaction:
        new_ids = transaction.promote(transaction.read(["short_term:14"]), "long_term")

    assert new_ids == {"short_term:14": "long_term:40"}
    assert sample.rows()["long_term"][-1] == (40, *moved[1:])
    assert moved not in sample.rows()["short_term"]


def test_counts_follow_the_writes_of_the_transaction(sample):
    """The gate is asked again before a commit, on what then stands."""
    with sample.open().transaction() as transaction:
        assert transaction.count("team-a") == 63
        transaction.delete(["short_term:14", "long_term:14"])
        assert transaction.count("team-a") == 61
        assert transaction.count("nobody") == 0


def test_nothing_moves_between_two_files_in_wal_mode(sample):
    """Two files cannot change together atomically in WAL mode; the plan learns it from the store's traits."""
    with closing(sqlite3.connect(sample.folder / "short_term.db")) as connection:
        connection.execute("pragma journal_mode = wal")
    before = sample.rows()
    store = sample.open()

    assert store.traits.promotes is False
    with pytest.raises(StoreError, match="WAL mode"), store.transaction() as transaction:
        transaction.promote(transaction.read(["short_term:14"]), "long_term")

    assert sample.rows() == before


def test_each_file_in_wal_mode_takes_the_changes_of_its_own_tier(sample):
    """Folding within a tier needs no change over two files."""
    for tier in TIERS:
        with closing(sqlite3.connect(sample.folder / f"{tier}.db")) as connection:
            connection.execute("pragma journal_mode = wal")

    with sample.open().transaction() as transaction:
        transaction.delete(["short_term:14", "long_term:14"])

    assert {tier: len(sample.rows()[tier]) for tier in TIERS} == {"short_term": 23, "long_term": 38}


@pytest.mark.parametrize("tier", TIERS)
def test_a_file_that_an_agent_holds_is_worth_another_try(sample, monkeypatch, tier):
    """memfold waits for a short time, changes nothing and says that it may be tried again."""
    monkeypatch.setattr(praisonai_files, "BUSY_SECONDS", 0.05)
    store = sample.open()

    with closing(sqlite3.connect(sample.folder / f"{tier}.db", isolation_level=None)) as agent:
        agent.execute("begin immediate")
        with pytest.raises(Transient, match="stayed locked"), store.transaction():
            pytest.fail("the transaction began although an agent holds a file")


def test_an_agent_reads_while_a_transaction_is_open(sample):
    """Readers wait for the commit at most, never for the work before it."""
    with sample.open().transaction() as transaction:
        transaction.delete([f"long_term:{number}" for number in range(1, 40)])
        with closing(sqlite3.connect(sample.folder / "long_term.db", timeout=0)) as agent:
            assert agent.execute("select count(*) from long_term_memory").fetchone() == (39,)


DIE_IN_COMMIT = """
import os, signal, sys, threading
from pathlib import Path
from memfold_flows.stores import open_store

folder, moment = Path(sys.argv[1]), sys.argv[2]
files = {name: (folder / name).read_bytes() for name in ("long_term.db", "short_term.db")}

def reached():
    if moment == "both journals are named":
        return any("-mj" in name for name in os.listdir(folder))
    name = {"the first file is written": "long_term.db", "the second file is written": "short_term.db"}[moment]
    return (folder / name).read_bytes() != files[name]

def watch():
    while not reached():
        pass
    os.kill(os.getpid(), signal.SIGKILL)

with open_store(f"praisonai:{folder}").transaction() as transaction:
    transaction.delete([f"{tier}:{number}" for tier in ("short_term", "long_term") for number in range(1, 24)])
    threading.Thread(target=watch, daemon=True).start()
"""


@pytest.mark.parametrize(
    "moment", ["both journals are named", "the first file is written", "the second file is written"]
)
def test_killed_in_the_middle_of_a_commit_both_files_are_old_or_both_are_new(sample, moment):
    """SQLite's journal over both files decides; the next reader of either file completes what it decided."""
    before = sample.rows()
    new = {tier: [row for row in before[tier] if row[0] > 23] for tier in TIERS}

    died = subprocess.run([sys.executable, "-c", DIE_IN_COMMIT, str(sample.folder), moment], check=False)

    assert died.returncode in (-signal.SIGKILL, 0)
    read = {name: memory["content"] for name, memory in sample.snapshot().items()}
    assert sample.rows() in (before, new)
    assert read == {f"{tier}:{row[0]}": row[1] for tier in TIERS for row in sample.rows()[tier]}
