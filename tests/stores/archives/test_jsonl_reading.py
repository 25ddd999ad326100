"""JSONL archives, reading: what the fields are called, what makes the scope, what is refused."""

from __future__ import annotations

import gzip
import json
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import pytest

from memfold.errors import BadRecord, BadUsage, StoreError
from memfold_flows.stores import open_store
from memfold_flows.stores.archive_fields import NAMES, SCOPE_FIELDS

NINE = datetime(2026, 3, 1, 9, tzinfo=UTC)

# What the fields are called


@pytest.mark.parametrize("name", ["text", "content", "memory"])
def test_the_text_may_be_called_text_content_or_memory(notes, name):
    """Exports name the text in three ways."""
    notes.holds({"id": "a", name: "Ana likes tea"})

    assert notes.snapshot()["a"]["content"] == "Ana likes tea"


@pytest.mark.parametrize("name", ["use_count", "usage_count", "access_count", "recall_count"])
def test_the_use_count_has_four_names(notes, name):
    """Exports count recalls under four names; a fold writes back under the archive's own."""
    notes.holds({"id": "a", "text": "Ana likes tea", name: 3}, {"id": "b", "text": "Bo likes tea"})
    notes.fold("a", use_count=5)
    notes.fold("b", use_count=1)

    assert [json.loads(line).get(name) for line in notes.lines] == [5, 1]


def test_every_named_field_is_read(notes):
    """A record with all fields becomes the memory that it describes."""
    notes.holds(
        {
            "id": "a",
            "text": "Ana is on call in March",
            "title": "Rota",
            "type": "fact",
            "scope": "team",
            "tier": "short_term",
            "trust": "user",
            "pinned": True,
            "protected": 0,
            "tags": ["rota", "team"],
            "links": ["b"],
            "session_id": 17,
            "sessions": ["17", "18"],
            "importance": 0.7,
            "confidence": 1,
            "usage_count": 4.0,
            "created_at": "2026-03-01T09:00:00Z",
            "event_time": "2026-03-01",
            "expires_at": 1772355600,
            "last_used_at": 1772355600000,
            "metadata": {"source": "chat"},
        }
    )
    row = notes.snapshot()["a"]
    digest = row.pop("row_digest")

    assert len(digest) == 32
    assert row == {
        "memory_id": "a",
        "scope": "team",
        "kind": "fact",
        "title": "Rota",
        "content": "Ana is on call in March",
        "tags": ["rota", "team"],
        "tier": "short_term",
        "session_id": "17",
        "sessions": ["17", "18"],
        "trust": "user",
        "pinned": True,
        "protected": False,
        "importance": 0.7,
        "confidence": 1.0,
        "use_count": 4,
        "created_at": NINE,
        "updated_at": None,
        "event_time": datetime(2026, 3, 1, tzinfo=UTC),
        "valid_from": None,
        "valid_to": None,
        "last_used_at": NINE,
        "expires_at": NINE,
        "links": ["b"],
        "metadata": '{"source":"chat"}',
    }


def test_two_names_of_one_field_may_agree(notes):
    """Some exports write the text twice; that is one text, and null is no second one."""
    notes.holds({"id": "a", "text": "Ana likes tea", "content": "Ana likes tea", "memory": None})

    assert notes.snapshot()["a"]["content"] == "Ana likes tea"


def test_fields_without_a_name_of_their_own_count_as_metadata(notes):
    """What memfold has no name for takes part in the digest and in folds, after the record's own metadata."""
    notes.holds({"id": "a", "text": "Ana likes tea", "lang": "en", "source": "import", "metadata": {"source": "chat"}})

    assert json.loads(notes.snapshot()["a"]["metadata"]) == {"lang": "en", "source": "chat"}


def test_an_embedding_is_not_metadata(notes):
    """A vector follows from the text: it stays in the line, and is neither compared nor copied into a survivor."""
    notes.holds({"id": "a", "text": "Ana likes tea", "embedding": [0.25] * 384})

    assert notes.snapshot()["a"]["metadata"] is None


def test_metadata_may_be_json_text_and_stays_text(notes):
    """Dumps of SQL tables carry metadata as a string."""
    notes.holds({"id": "a", "text": "Ana likes tea", "metadata": '{"source": "chat"}'})
    notes.fold("a", metadata='{"source": "chat", "lang": "en"}')

    assert json.loads(notes.lines[0])["metadata"] == '{"source":"chat","lang":"en"}'


def test_ids_are_opaque(notes):
    """Case, Unicode form, slashes, quotes and digits of an id are kept exactly."""
    ids = ["Ana/1", "ana/1", "é", "e\u0301", 'q"\\', "007", 7, 2**70, " a "]
    notes.holds(*({"id": memory_id, "text": "x"} for memory_id in ids))

    assert list(notes.snapshot()) == [str(memory_id) for memory_id in ids]


# What makes the scope


@pytest.mark.parametrize(
    ("fields", "scope"),
    [
        ({}, ""),
        ({"scope": "team/a"}, "team/a"),
        ({"scope": "user=ana"}, "scope=user%3Dana"),
        ({"scope": None, "user_id": None}, ""),
        ({"user_id": "ana"}, "user_id=ana"),
        ({"user_id": 7}, "user_id=7"),
        (
            {"namespace": "n", "project": "a&b", "agent_id": "x", "user_id": "ana", "scope": "s"},
            "scope=s&user_id=ana&agent_id=x&project=a%26b&namespace=n",
        ),
    ],
)
def test_all_present_scope_fields_form_the_scope_together(notes, fields, scope):
    """One text under two users, agents or projects is two memories."""
    notes.holds({"id": "a", "text": "Prefers bullet points", **fields})

    assert notes.snapshot()["a"]["scope"] == scope


def test_metadata_and_sessions_never_form_the_scope(notes):
    """Free metadata must not overwrite an identity."""
    notes.holds(
        {"id": "a", "scope": "user:ana", "text": "x", "metadata": {"scope": "user:bo", "user_id": "bo"}},
        {"id": "b", "scope": "user:bo", "text": "x", "session_id": "s1"},
    )

    assert {key: row["scope"] for key, row in notes.snapshot().items()} == {"a": "user:ana", "b": "user:bo"}


def test_the_scope_option_names_the_fields_that_form_the_scope(notes):
    """?scope=team,user_id leaves the agent out and takes a field of the archive's own in."""
    notes.holds({"id": "a", "text": "x", "user_id": "ana", "agent_id": "planner", "team": "blue"})
    store = open_store(f"jsonl:{notes.path}?scope=team,user_id")

    assert notes.read(store)["a"]["scope"] == "team=blue&user_id=ana"
    assert store.url == f"jsonl://{notes.path}?scope=team,user_id"
    assert notes.read(open_store(store.url))["a"]["scope"] == "team=blue&user_id=ana"


def test_a_scope_field_that_no_record_has_is_an_error(notes):
    """A typing mistake must not put everybody's memories into one scope."""
    notes.holds({"id": "a", "text": "x", "user_id": "ana"})

    with pytest.raises(StoreError, match=r"no record of .*notes\.jsonl has userid, named by \?scope="):
        notes.snapshot(scope="userid")


@pytest.mark.parametrize("value", ["", "a,,b", "a,a"])
def test_a_scope_option_that_is_no_list_of_fields_is_bad_usage(notes, value):
    """Said before anything is read."""
    notes.holds({"id": "a", "text": "x"})

    with pytest.raises(BadUsage, match="must name fields"):
        notes.open(scope=value)


def test_only_the_scopes_asked_for_are_given(notes):
    """A snapshot of some scopes leaves the others out."""
    notes.holds({"id": "a", "text": "x", "scope": "ana"}, {"id": "b", "text": "x", "scope": "bo"})

    assert [row for batch in notes.open().snapshot(["bo"]) for row in batch["memory_id"].to_pylist()] == ["b"]


# What is refused

BAD_LINES = {
    b'{"id":"q","text":"half a rec': "is not JSON: Unterminated string",
    b"[1, 2]": "is not a JSON object",
    b'{"id":"q"}{"id":"r"}': "is not JSON: Extra data at column 11",
    b'{"id":"q","text":"caf\xe9"}': "is not UTF-8 at byte 22",
    b'{"text":"no id"}': "has no id",
    b'{"id":null,"text":"no id"}': "has no id",
    b'{"id":"q"}': "has no text or content or memory",
    b'{"id":"q","text":null,"title":"x"}': "has no text or content or memory",
    b'{"id":"","text":"x"}': "id must not be empty",
    b'{"id":1.5,"text":"x"}': "id must be text or a whole number, got 1.5",
    b'{"id":true,"text":"x"}': "id must be text or a whole number, got True",
    b'{"id":"q","text":17}': "text must be text, got a number",
    b'{"id":"q","text":"tea","content":"coffee"}': "text and content name the same thing and disagree",
    b'{"id":"q","text":"x","use_count":1,"access_count":2}': "use_count and access_count name the same thing",
    b'{"id":"q","text":"x","id":"r"}': "has the key 'id' twice in one object",
    b'{"id":"q","text":"x","metadata":{"a":{"b":1,"b":2}}}': "has the key 'b' twice in one object",
    b'{"id":"q","text":"x","score":NaN}': "holds NaN, which is not JSON",
    b'{"id":"q","text":"x","score":-Infinity}': "holds -Infinity, which is not JSON",
    b'{"id":"q","text":"x","score":1e999}': "holds a number that is out of range",
    b'{"id":"q","text":"x","n":1' + b"0" * 5000 + b"}": "holds a number of more than 4300 digits",
    b'{"id":"q","text":"\\ud83d alone"}': "text holds half a surrogate pair (character 0)",
    b'{"id":"\\udc00","text":"x"}': "id holds half a surrogate pair",
    b'{"id":"q","text":"x","d":' + b"[" * 100_000 + b"]" * 100_000 + b"}": "is nested too deeply",
    b'{"id":"q","text":"x","tags":"rota"}': "tags must be a list, got 'rota'",
    b'{"id":"q","text":"x","tags":["a",1]}': "tags must be a list of texts, got 1 in it",
    b'{"id":"q","text":"x","pinned":"yes"}': "pinned must be true or false, got 'yes'",
    b'{"id":"q","text":"x","importance":"high"}': "importance must be a number, got 'high'",
    b'{"id":"q","text":"x","use_count":-1}': "use_count must be a whole number from 0",
    b'{"id":"q","text":"x","use_count":1.5}': "use_count must be a whole number, got 1.5",
    b'{"id":"q","text":"x","use_count":9223372036854775808}': "use_count must be a whole number from 0",
    b'{"id":"q","text":"x","user_id":["ana"]}': "user_id must be text or a whole number, got a list",
    b'{"id":"q","text":"x","metadata":[1]}': "metadata must be an object, got a list",
    b'{"id":"q","text":"x","metadata":"tea"}': "metadata must be an object, got text that is not one in JSON",
    b'{"id":"q","text":"x","created_at":"yesterday"}': "created_at must be a date, or a date and time in ISO 8601",
}


@pytest.mark.parametrize(("line", "problem"), BAD_LINES.items(), ids=BAD_LINES.values())
def test_a_bad_line_stops_the_reading_and_is_named(notes, line, problem):
    """Treating an unreadable line as absent, and then rewriting, would make its loss permanent."""
    notes.holds({"id": "a", "text": "Backups run at 02:00 UTC"}, b"", line)
    before = notes.path.read_bytes()

    with pytest.raises(BadRecord) as error:
        notes.snapshot()
    assert str(error.value).startswith(f"notes.jsonl line 3: {problem}")
    assert "nothing was planned or written" in str(error.value)
    assert notes.path.read_bytes() == before
    assert notes.neighbours == ["notes.jsonl"]


def test_an_error_never_shows_the_text_of_a_memory(notes):
    """Logs and terminals are no place for memories."""
    notes.holds({"id": "a", "text": ["the alarm code is PLOVER"]})

    with pytest.raises(BadRecord) as error:
        notes.snapshot()
    assert "PLOVER" not in str(error.value)


def test_a_bad_line_refuses_a_write_too(notes):
    """Also where the line was damaged after the plan."""
    notes.holds({"id": "a", "text": "tea"}, b'{"id":"q","text":"half')
    before = notes.path.read_bytes()

    with pytest.raises(BadRecord, match="line 2"):
        notes.remove("a")
    assert notes.path.read_bytes() == before


def test_skip_bad_copies_bad_lines_aside_and_leaves_them_where_they_are(notes, tmp_path):
    """The other lines are read and rewritten; the bad ones keep their bytes and their place."""
    broken, missing = b'{"id":"q","text":"half', b'{"text":"no id"}'
    notes.holds({"id": "a", "text": "tea"}, broken, {"id": "b", "text": "coffee"}, missing)
    before = notes.path.read_bytes()
    aside = tmp_path / "run" / "bad_lines.jsonl"
    aside.parent.mkdir()
    store = notes.open(skip_bad=True, set_aside=str(aside))

    assert list(notes.read(store)) == ["a", "b"]
    assert store.skipped == 2
    assert aside.read_bytes() == broken + b"\n" + missing + b"\n"
    assert aside.stat().st_mode & 0o777 == 0o600
    raws = notes.remove("a", in_place=True, skip_bad="true")
    assert notes.lines == [broken + b"\n", b'{"id": "b", "text": "coffee"}\n', missing + b"\n"]
    with open_store(store.url, in_place=True).transaction() as transaction:
        transaction.restore(raws)
    assert notes.path.read_bytes() == before


def test_skip_bad_writes_no_file_where_every_line_is_good(notes, tmp_path):
    """There is nothing to look at."""
    notes.holds({"id": "a", "text": "tea"})
    store = notes.open(skip_bad=True, set_aside=str(tmp_path / "bad_lines.jsonl"))

    assert list(notes.read(store)) == ["a"]
    assert store.skipped == 0
    assert notes.neighbours == ["notes.jsonl"]


def test_an_archive_of_bad_lines_only_is_an_error(notes):
    """Skipping everything is no way to read an archive; the message says how many lines, and what of the first."""
    notes.holds(b"tea", b"coffee")

    with pytest.raises(StoreError, match=r"all 2 lines were left out \(line 1 is not JSON: .*\); nothing was planned"):
        notes.snapshot(skip_bad=True)


def test_an_archive_may_call_its_ids_memory_id(notes):
    """Reading, folding and taking back all go by it; the name stays that of the archive."""
    notes.holds({"memory_id": "a", "text": "tea"}, {"memory_id": "b", "text": "coffee"})
    before = notes.path.read_bytes()

    assert list(notes.snapshot()) == ["a", "b"]
    raws = notes.remove("a", in_place=True)
    assert notes.lines == [b'{"memory_id": "b", "text": "coffee"}\n']
    with notes.open(in_place=True).transaction() as transaction:
        transaction.restore(raws)
    assert notes.path.read_bytes() == before


@pytest.mark.parametrize("ids", [("a", "a"), (1, "1")])
def test_two_lines_with_one_id_are_an_error_that_names_both(notes, ids):
    """The number 1 and the text "1" are one id."""
    notes.holds({"id": ids[0], "text": "tea"}, {"id": "b", "text": "x"}, {"id": ids[1], "text": "coffee"})

    with pytest.raises(BadRecord, match=rf"line 1 and line 3 have the same id '{ids[0]}'"):
        notes.snapshot()


def test_a_wrong_path_is_an_error_and_creates_nothing(notes):
    """Never an empty store."""
    with pytest.raises(StoreError, match="there is no file"):
        notes.open()
    assert notes.neighbours == []


def test_a_folder_is_an_error(notes):
    """A folder of archives is opened file by file."""
    notes.path.mkdir()

    with pytest.raises(StoreError, match="is a folder, not a JSONL archive"):
        notes.open()


def sqlite_file():
    connection = sqlite3.connect(":memory:")
    connection.execute("create table memories (id text)")
    return connection.serialize()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is an empty file"),
        (sqlite_file(), "is a SQLite file.*sqlite:PATH"),
        (gzip.compress(b'{"id":"a","text":"x"}\n'), "is compressed with gzip.*gunzip"),
        (b"PAR1....PAR1", "is a Parquet file.*parquet:PATH"),
        (b'\n [{"id":"a","text":"x"}]', r"is one JSON array.*jq -c '\.\[\]'"),
        ('{"id":"a","text":"x"}\n'.encode("utf-16"), "is UTF-16.*iconv"),
    ],
    ids=["empty", "sqlite", "gzip", "parquet", "array", "utf-16"],
)
def test_a_file_of_another_kind_is_named_for_what_it_is(notes, content, problem):
    """The message says what to do with it."""
    notes.path.write_bytes(content)

    with pytest.raises(StoreError, match=problem):
        notes.open()


def test_an_archive_of_blank_lines_is_an_error(notes):
    """It reads as empty but should not."""
    notes.path.write_bytes(b"\n  \n")

    with pytest.raises(StoreError, match="holds no memory"):
        notes.snapshot()


def test_the_page_on_archives_names_every_field():
    """docs/archives.md lists each name that is read."""
    page = (Path(__file__).parents[3] / "docs/archives.md").read_text(encoding="utf-8")
    names = {name for known in NAMES.values() for name in known} | set(SCOPE_FIELDS) | {"metadata"}

    assert {name for name in names if f"`{name}`" not in page} == set()
