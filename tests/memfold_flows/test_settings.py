"""Settings: who wins, and what an unknown name or a bad value says."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pytest

from memfold.errors import BadUsage
from memfold.policy import Policy
from memfold_flows import settings
from memfold_flows.parameters import Approval
from memfold_flows.stores.base import StoreTraits

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
TRAITS = StoreTraits(places=frozenset(), session_recall="equality", updated_with_text=True)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder of our own, where memfold.yaml would lie."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_without_anything_set_the_policy_is_the_default_one() -> None:
    """Every threshold of the policy is a setting with the same default; the store says how it recalls."""
    policy = settings.load({}).policy(as_of=NOON, traits=TRAITS)

    assert policy == Policy(as_of=NOON, session_recall="equality", updated_with_text=True)
    decided_elsewhere = {"as_of", "session_recall", "updated_with_text"}
    assert set(settings.load({}).thresholds) == {field.name for field in fields(Policy)} - decided_elsewhere


def test_a_flag_beats_the_environment_beats_the_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each layer fills in what the ones above it leave open."""
    (folder / "memfold.yaml").write_text("max_loss_fraction: 0.1\nrolling_days: 7\non_excess: fit\n")
    monkeypatch.setenv("MEMFOLD_MAX_LOSS_FRACTION", "0.2")
    monkeypatch.setenv("MEMFOLD_ROLLING_DAYS", "14")

    thresholds = settings.load({"max_loss_fraction": 0.3, "on_excess": None}).thresholds

    assert thresholds["max_loss_fraction"] == 0.3
    assert thresholds["rolling_days"] == 14
    assert thresholds["on_excess"] == "fit"
    assert thresholds["min_jaccard"] == 0.5


def test_when_a_person_is_asked_stands_in_the_file_and_a_flow_may_say_otherwise(folder: Path) -> None:
    """What the form leaves empty is taken from memfold.yaml."""
    (folder / "memfold.yaml").write_text("approval:\n  when: on_warning\n  wait_hours: 3\n")

    assert settings.load(Approval().given()).approval == settings.Approval("on_warning", 3)
    assert settings.load(Approval(when="always").given()).approval == settings.Approval("always", 3)


def test_a_name_that_stands_twice_in_the_file_is_an_error(folder: Path) -> None:
    """YAML would take the last one without a word."""
    (folder / "memfold.yaml").write_text("gate:\n  max_loss_fraction: 0.1\n  max_loss_fraction: 0.4\n")

    with pytest.raises(BadUsage, match=r"gate.max_loss_fraction stands twice in memfold.yaml, on line 2 and line 3"):
        settings.load({})


def test_several_words_in_the_environment_stand_between_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    """As they are lists in the file."""
    monkeypatch.setenv("MEMFOLD_STALE_KINDS", "note, event")

    assert settings.load({}).thresholds["stale_kinds"] == ("note", "event")


def test_an_unknown_setting_in_the_file_names_the_nearest(folder: Path) -> None:
    """A threshold that is misspelled must not silently keep its default."""
    (folder / "memfold.yaml").write_text("max_loss_fractoin: 0.01\n")

    with pytest.raises(
        BadUsage, match=r"memfold.yaml:1: unknown setting 'max_loss_fractoin'; did you mean max_loss_fraction\?"
    ):
        settings.load({})


def test_an_unknown_variable_names_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for the environment."""
    monkeypatch.setenv("MEMFOLD_MAX_LOST_ROW", "3")

    with pytest.raises(BadUsage, match=r"MEMFOLD_MAX_LOST_ROW; did you mean MEMFOLD_MAX_LOST_ROWS\?"):
        settings.load({})


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("memory: {consolidation: {cron: nightly}}", r"memory.consolidation.cron should be five fields.*'nightly'"),
        ("memory: {consolidation: {enabled: perhaps}}", r"memory.consolidation.enabled should be a valid boolean"),
        ("memory: {consolidation: {crom: 0 3 * * *}}", r"unknown setting 'memory.consolidation.crom'"),
        ("memory: {learn: true}", r"unknown setting 'memory.learn'"),
        ("memory: yes", r"memory should be a valid dictionary"),
        (
            "max_loss_fraction: 0.1\nmemory: {consolidation: {max_loss_fraction: 0.2}}",
            r"sets max_loss_fraction twice, also under memory.consolidation",
        ),
        ("max_lost_rows: many", "max_lost_rows should be a valid integer.*'many'"),
        ("on_excess: ignore", "on_excess should be reject or fit, got 'ignore'"),
        ("- max_loss_fraction", "must hold one name: value a line"),
        ("max_loss_fraction: [", "memfold.yaml is not YAML"),
    ],
)
def test_a_value_of_the_wrong_kind_is_named(folder: Path, content: str, says: str) -> None:
    """The message names the setting and the value, or the file where it is no list of settings."""
    (folder / "memfold.yaml").write_text(content)

    with pytest.raises(BadUsage, match=says):
        settings.load({})


def test_the_consolidation_of_a_memory_can_be_set_as_praisonai_writes_it(folder: Path) -> None:
    """``memory.consolidation``, with the cron of PraisonAI's scheduler or the bare one."""
    (folder / "memfold.yaml").write_text(
        "memory:\n  consolidation:\n    enabled: false\n    cron: 'cron:0 3 * * *'\n    max_loss_fraction: 0.1\n"
    )

    chosen = settings.load({})

    assert (chosen.enabled, chosen.cron, chosen.thresholds["max_loss_fraction"]) == (False, "0 3 * * *", 0.1)
    assert settings.load({"max_loss_fraction": 0.2}).thresholds["max_loss_fraction"] == 0.2


def test_without_it_a_pass_is_switched_on(folder: Path) -> None:
    """Part of it may be left out as well."""
    assert (settings.load({}).enabled, settings.load({}).cron) == (True, None)
    (folder / "memfold.yaml").write_text("memory: {consolidation: {cron: 30 2 * * 1-5}}\n")
    assert (settings.load({}).enabled, settings.load({}).cron) == (True, "30 2 * * 1-5")


def test_promotion_is_left_out_where_the_store_moves_nothing() -> None:
    """Planned all the same, each move would come out as drift; the reason is for a person to read."""
    chosen = settings.load({"promote_min_age_days": 30})
    pair_in_wal = replace(TRAITS, no_promotion="a file is in WAL mode")

    assert chosen.policy(as_of=NOON, traits=replace(TRAITS, promotes=True)).promotes
    assert not chosen.policy(as_of=NOON, traits=pair_in_wal).promotes
    assert chosen.why_without_effect(pair_in_wal) == (
        "promote_min_age_days left out: this store moves no memory from tier to tier (a file is in WAL mode)"
    )
    assert chosen.why_without_effect(replace(TRAITS, promotes=True)) is None


@pytest.mark.parametrize("value", [float("nan"), -0.1, 1.5, float("inf")])
def test_a_limit_that_is_no_share_fails_closed(value: float) -> None:
    """NaN compares as false to everything, so it would let everything through."""
    with pytest.raises(BadUsage, match=r"max_loss_fraction must be a number in \[0, 1\], got .*nothing was planned"):
        settings.load({"max_loss_fraction": value}).policy(as_of=NOON, traits=TRAITS)


def test_evos_names_are_understood_nested_and_dotted() -> None:
    """What evo's users know as retention."""
    Path("memfold.yaml").write_text(
        "retention:\n  consolidateIntervalHours: 12\n  maxMemories: 50\nretention.convergedMinIntervalHours: 36\n"
    )

    chosen = settings.load({})

    assert (chosen.schedule.consolidate_interval_hours, chosen.schedule.converged_min_interval_hours) == (12.0, 36.0)
    assert chosen.thresholds["max_memories"] == 50


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("retention:\n  maxMemory: 5\n", "unknown setting 'retention.maxMemory'; did you mean retention.maxMemories"),
        ("retention: 5\n", "retention must hold names and values"),
        ("max_memories: 5\nretention.maxMemories: 6\n", "sets max_memories twice"),
        ("retention.consolidateIntervalHours: 0\n", "consolidate_interval_hours must be a number of hours"),
        ("preset: mem0\n", "preset should be evo"),
    ],
)
def test_a_setting_in_evos_words_that_cannot_be_is_refused(text: str, says: str) -> None:
    """Nothing is done, and the message names the setting."""
    Path("memfold.yaml").write_text(text)

    with pytest.raises(BadUsage, match=says):
        settings.load({})


def test_a_preset_stands_where_nothing_else_is_set() -> None:
    """evo caps its scopes and takes what fits; what a person sets wins, wherever it is set."""
    Path("memfold.yaml").write_text("preset: evo\nmax_memories: 150\n")

    thresholds = settings.load({"on_excess": "reject"}).thresholds

    assert (thresholds["max_memories"], thresholds["on_excess"], thresholds["newborn_grace_days"]) == (
        150,
        "reject",
        3.0,
    )
    Path("memfold.yaml").unlink()
    assert settings.load({}).thresholds["max_memories"] is None
    preset = settings.load({"preset": "evo"}).thresholds
    assert (preset["max_memories"], preset["on_excess"]) == (200, "fit")


def test_duckdb_gets_a_limit_and_a_folder_for_what_does_not_fit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without settings: 2 GB, and the folder of the run."""
    run = folder / "runs/1"
    assert settings.duckdb_config(run) == {"memory_limit": "2GB", "temp_directory": str(run / ".duckdb")}

    (folder / "scratch").mkdir()
    (folder / "memfold.yaml").write_text(f"duckdb_memory_limit: 512MB\nduckdb_temp_folder: {folder / 'scratch'}\n")
    assert settings.duckdb_config(run) == {"memory_limit": "512MB", "temp_directory": str(folder / "scratch")}

    monkeypatch.setenv("MEMFOLD_DUCKDB_MEMORY_LIMIT", "1.5 GiB")
    with duckdb.connect(config=settings.duckdb_config(run)) as con:
        assert con.execute("select current_setting('memory_limit')").fetchall() == [("1.5 GiB",)]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("duckdb_memory_limit: 80%", "duckdb_memory_limit should be an amount with its unit"),
        ("duckdb_memory_limit: 2", "duckdb_memory_limit should be an amount with its unit"),
        ("duckdb_temp_folder: /no/such/folder", "duckdb_temp_folder should be a folder that exists"),
    ],
)
def test_a_limit_that_duckdb_would_not_understand_is_refused(folder: Path, content: str, says: str) -> None:
    """Before anything is read, with the value."""
    (folder / "memfold.yaml").write_text(content)

    with pytest.raises(BadUsage, match=says):
        settings.load({})
