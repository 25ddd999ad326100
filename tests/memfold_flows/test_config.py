"""``memfold.yaml`` in sections, ``memfold config``, and the schema for editors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from memfold.errors import BadUsage
from memfold_flows import configuration, sections, settings

FILE = """store: jsonl:memories.jsonl
gate:
  max_loss_fraction: 0.3
  on_excess: fit
prune:
  stale_kinds: [note]
retention:
  maxMemories: 50
  keep_undo_days: 30
duckdb:
  memory_limit: 1GB
memory:
  consolidation: {enabled: false, cron: 0 4 * * *}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder of its own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_setting_in_its_section_is_in_force(folder: Path) -> None:
    """Sections group what belongs together; the names in them are those of flags and variables."""
    (folder / "memfold.yaml").write_text(FILE)

    chosen = settings.load({})

    assert (chosen.thresholds["max_loss_fraction"], chosen.thresholds["on_excess"]) == (0.3, "fit")
    assert (chosen.thresholds["stale_kinds"], chosen.thresholds["max_memories"]) == (("note",), 50)
    assert (chosen.keep_undo_days, chosen.duckdb_memory_limit, chosen.store) == (30, "1GB", "jsonl:memories.jsonl")


def test_config_says_where_each_value_comes_from(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flag, a variable, a line of the file, a preset or the default."""
    (folder / "memfold.yaml").write_text(FILE)
    monkeypatch.setenv("MEMFOLD_KEEP_UNDO_DAYS", "7")

    found = {each.name: (each.value, each.origin) for each in configuration.in_force({"on_excess": "reject"})}

    assert found["store"] == ("jsonl:memories.jsonl", "memfold.yaml:1")
    assert found["gate.max_loss_fraction"] == (0.3, "memfold.yaml:3")
    assert found["gate.on_excess"] == ("reject", "--on-excess")
    assert found["prune.max_memories"] == (50, "memfold.yaml:8")
    assert found["retention.keep_undo_days"] == (7, "MEMFOLD_KEEP_UNDO_DAYS")
    assert found["memory.consolidation.cron"] == ("0 4 * * *", "memfold.yaml:13")
    assert found["gate.rolling_days"] == (30, "default")


def test_config_names_a_preset_only_where_nothing_else_is_set(folder: Path) -> None:
    """evo's cap stands until somebody sets one."""
    (folder / "memfold.yaml").write_text("preset: evo\ngate: {on_excess: reject}\n")

    found = {each.name: (each.value, each.origin) for each in configuration.in_force({})}

    assert found["prune.max_memories"] == (200, "preset")
    assert found["gate.on_excess"] == ("reject", "memfold.yaml:2")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "gate: {max_loss: 0.1}",
            r"memfold.yaml:1: unknown setting 'gate\.max_loss'; did you mean gate\.max_lo",
        ),
        ("gates: {max_loss_fraction: 0.1}", "memfold.yaml:1: unknown setting 'gates'; did you mean gate"),
        ("gate: {keep_undo_days: 1}", "unknown setting 'gate.keep_undo_days'.*retention.keep_undo_days"),
        ("gate: 0.1", "memfold.yaml:1: gate must hold names and values, got 0.1"),
        ("max_loss_fraction: 0.1\ngate: {max_loss_fraction: 0.2}", "yaml:2 sets max_loss_fraction twice"),
        ("gate:\n  max_loss_fraction: 2", "^memfold.yaml:2: max_loss_fraction must be a number in"),
        ("gate:\n\n  max_loss_fraction: lots", "^memfold.yaml:3: max_loss_fraction should be a valid number"),
        ("schedule:\n  replay_threshold: 0", "^memfold.yaml:2: replay_threshold must be a whole number"),
        ("store: postgresql://ann:secret@db/memories", "holds a password; nothing was done"),
        ("\nproposer:\n  model: m", "^memfold.yaml:2: proposer.url Field required"),
        (
            "proposer:\n  url: http://x/v1\n  model: m\n  max_calls: secret",
            "^memfold.yaml:4: proposer.max_calls should",
        ),
        ("proposer: {url: 'http://x/v1', model: m, api_key: secret}", "proposer.api_key.*Set MEMFOLD_PROPOSER_KEY"),
        ("proposer: {url: 'http://x/v1', model: m, max_call: 3}", "did you mean proposer.max_calls"),
        ("proposer: {url: 'http://x/v1', model: m, embeddings: {modell: 3}}", "did you mean proposer.embeddings.model"),
        (
            "proposer: {url: 'http://x/v1', model: m, embeddings: {min_cosine: 0.9}}",
            "^memfold.yaml:1: proposer.embeddings should have a model or a metadata_key, one of them",
        ),
        (
            "proposer: {url: 'http://x/v1', model: m, embeddings: {metadata_key: v, url: 'http://y/v1'}}",
            "^memfold.yaml:1: proposer.embeddings should have no url",
        ),
        ("memory: {consolidation: {crom: 0 3 * * *}}", "did you mean memory.consolidation.cron"),
        ("tables: {notes: {idd: x, content: y}}", "memfold.yaml:1: tables.notes.idd.*did you mean tables.notes.id"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(folder: Path, text: str, says: str) -> None:
    """With the nearest name that there is; a password is not repeated."""
    (folder / "memfold.yaml").write_text(text)

    with pytest.raises(BadUsage, match=says) as refused:
        configuration.in_force({})
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("MEMFOLD_MAX_LOSS_FRACTION", "lots", "MEMFOLD_MAX_LOSS_FRACTION: max_loss_fraction should be a valid number"),
        ("MEMFOLD_MAX_LOSS_FRACTION", "2", "MEMFOLD_MAX_LOSS_FRACTION: max_loss_fraction must be a number in"),
        ("memfold_bands", "0", "memfold_bands: bands must be a whole number of at least 1"),
        ("MEMFOLD_PROPOSER", "{secret", "MEMFOLD_PROPOSER: proposer should be a valid dictionary"),
        ("MEMFOLD_PROPOSER_API_KEY", "secret", "did you mean MEMFOLD_PROPOSER_KEY"),
    ],
)
def test_a_variable_that_cannot_be_is_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str, says: str) -> None:
    """As it is spelled in the environment, so that it can be found there."""
    monkeypatch.setenv(name, value)

    with pytest.raises(BadUsage, match=says) as refused:
        configuration.in_force({})
    assert "secret" not in str(refused.value)


def test_an_option_that_cannot_be_is_named(folder: Path) -> None:
    """A flag wins over the file, so the file is not to blame."""
    (folder / "memfold.yaml").write_text("gate: {max_loss_fraction: 0.2}\n")

    with pytest.raises(BadUsage, match=r"^--max-loss-fraction: max_loss_fraction must be a number in"):
        configuration.in_force({"max_loss_fraction": 3.0})


def test_every_setting_has_a_section_a_meaning_and_a_place_in_the_schema() -> None:
    """A new threshold cannot be forgotten here."""
    plain = {name for names in sections.SECTIONS.values() for name in names}
    known = settings.NAMES - set(sections.SECTIONS) - {"memory"}

    assert known - plain == {"store", "preset", "tables", "proposer"}
    assert known <= set(configuration.MEANINGS)
    assert known <= set(configuration.schema()["properties"])


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        (FILE, True),
        ("max_loss_fraction: 0.2\nretention.maxMemories: 5", True),
        ("gate: {max_loss: 0.1}", False),
        ("gates: {}", False),
        ("gate: {on_excess: drop}", False),
        ("duckdb: {memory_limit: 2}", False),
        ("duckdb: {memory_limit: lots}", False),
        ("gate: {max_loss_fraction: 1.5}", False),
        ("gate: {max_lost_rows: -1}", False),
        ("gate: {max_lost_rows: }", True),
        ("match: {min_jaccard: 0}", False),
        ("match: {minhash_scheme: md5}", False),
        ("schedule: {replay_threshold: 0}", False),
        ("memory: {consolidation: {cron: 'cron:0 3 * * *', max_loss_fraction: 0.1}}", True),
        ("memory: {consolidation: {cron: nightly}}", False),
        ("memory: {consolidation: {max_loss_fraction: 2}}", False),
        ("approval: {when: always, wait_hours: 200}", False),
        ("preset: mem0", False),
        ("tables: {notes: {id: n, content: body, scope: [user_id, agent_id]}}", True),
        ("tables: {notes: {id: n, content: body, scope: }}", True),
        ("tables: {notes: {idd: n}}", False),
        ("proposer: {url: 'https://api.example.com/v1', model: m, uses: [judge]}", True),
        ("proposer: {url: 'ftp://example.com', model: m}", False),
        ("proposer: {url: 'https://api.example.com/v1', model: m, api_key: k}", False),
    ],
)
def test_an_editor_sees_what_memfold_would_refuse(folder: Path, text: str, fits: bool) -> None:
    """The schema accepts the files that the settings accept, and no others."""
    made = jsonschema.Draft202012Validator(configuration.schema())
    (folder / "memfold.yaml").write_text(text)

    assert made.is_valid(yaml.safe_load(text)) is fits
    if fits:
        assert configuration.in_force({})
    else:
        with pytest.raises(BadUsage):
            configuration.in_force({})


def test_the_schema_bounds_each_number_where_the_pass_does() -> None:
    """The bound itself is accepted, and what lies beyond is not, by both."""
    numbers = {"integer", "number"}
    for name, described in configuration.schema()["properties"].items():
        kinds = {described.get("type"), *(each.get("type") for each in described.get("anyOf", ()))}
        if kinds & numbers and name in settings.load({}).thresholds and name not in _WITHOUT_BOUNDS:
            lowest = described.get("minimum", described.get("exclusiveMinimum"))
            assert lowest in (0, 1), name
            with pytest.raises(BadUsage, match=name):
                configuration.in_force({name: lowest - 1})
            if "minimum" in described:
                assert configuration.in_force({name: described["minimum"]})
            if "maximum" in described:
                assert configuration.in_force({name: described["maximum"]})
                with pytest.raises(BadUsage, match=name):
                    configuration.in_force({name: described["maximum"] + 1})


#: Any number may be the seed, and importance has no scale of its own.
_WITHOUT_BOUNDS = ("minhash_seed", "stale_max_importance")


def test_a_command_takes_the_store_that_is_set(folder: Path, command: Callable[..., Any]) -> None:
    """Without one there or on the command line nothing is done."""
    assert "no store is given" in command("status").err

    (folder / "memories.jsonl").write_text('{"id": "a", "content": "Ann drinks tea"}\n')
    (folder / "memfold.yaml").write_text("store: jsonl:memories.jsonl\n")
    (standing,) = json.loads(command("status", "--json").out)["scopes"]
    assert (standing["should_consolidate"], standing["backlog_size"]) == (True, 1)
    assert command("plan").code == 0
