"""A table of people's own: what its URL must say, and how its scope columns become one scope."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfold.errors import BadUsage
from memfold_flows.stores.mapping import read_mapping, scope_of, scope_values

NOTES = {"table": "notes", "id": "note_id", "content": "body", "scope": "user_id"}


def test_a_url_names_the_column_of_each_field():
    """And is spelled again from what was read."""
    mapping = read_mapping({**NOTES, "created_at": "written"})

    assert mapping.columns == {"memory_id": "note_id", "content": "body", "created_at": "written"}
    assert mapping.scope == ("user_id",)
    assert mapping.options("public.notes") == {**NOTES, "table": "public.notes", "created_at": "written"}


def test_no_column_at_all_is_a_table_that_memfold_made():
    """Its columns are called as the fields are."""
    mapping = read_mapping({"table": "agent_memories"})

    assert (mapping.is_own, mapping.scope, mapping.columns["memory_id"]) == (True, ("scope",), "memory_id")


@pytest.mark.parametrize(
    ("missing", "what"),
    [
        ("id", "columns are named, but not that of the id; nothing was read. Add id=COLUMN"),
        ("content", "columns are named, but not that of the content"),
        ("scope", "nothing says which memories belong together; nothing was read. Add scope=COLUMN"),
    ],
)
def test_a_url_must_say_the_id_the_text_and_what_keeps_memories_apart(missing, what):
    """A forgotten scope would merge the memories of two people."""
    with pytest.raises(BadUsage) as error:
        read_mapping({name: column for name, column in NOTES.items() if name != missing})

    assert what in str(error.value)


def test_a_column_is_one_field():
    """Two fields of one column would write over one another; a scope column may be a field too."""
    with pytest.raises(BadUsage, match="column 'body' is named for content and for title"):
        read_mapping({**NOTES, "title": "body"})

    assert read_mapping({**NOTES, "kind": "user_id"}).columns["kind"] == "user_id"


def test_a_field_without_a_column_is_refused():
    """An empty value is a slip; only the scope may be none."""
    with pytest.raises(BadUsage, match="tags names no column"):
        read_mapping({**NOTES, "tags": ""})

    assert read_mapping({**NOTES, "scope": ""}).scope == ()


@pytest.mark.parametrize(
    ("names", "values", "scope"),
    [
        ((), (), ""),
        (("who",), ("ann",), "ann"),
        (("who",), (None,), ""),
        (("who", "team"), ("ann", "x&y"), "who=ann&team=x%26y"),
        (("who", "team"), (None, "ops"), "team=ops"),
        (("who", "team"), ("", None), "who="),
        (("who", "team"), (None, None), ""),
    ],
)
def test_a_scope_is_one_column_to_the_letter_or_several_by_name(names, values, scope):
    """A null takes no part; so a user and a team of the same name are two scopes."""
    assert scope_of(names, values) == scope


@given(st.lists(st.none() | st.text(alphabet="a=&% é\0", max_size=4), min_size=2, max_size=3))
def test_a_scope_of_several_columns_says_what_each_holds(values):
    """So its rows can be counted and read without looking at the others."""
    names = ("who", "the team", "n=1")[: len(values)]

    assert scope_values(names, scope_of(names, values)) == tuple(values)


@pytest.mark.parametrize("scope", ["ann", "who=ann&who=bob", "team=ops&who=ann", "who=ann&else=x", "who=%61nn"])
def test_a_scope_that_no_row_can_have_is_nobodys(scope):
    """It is not read as one that looks like it."""
    assert scope_values(("who", "team"), scope) is None


def test_columns_may_stand_in_the_settings_file(tmp_path, monkeypatch):
    """Then the URL names the table only; what it says itself wins."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "memfold.yaml").write_text(
        "tables:\n  notes: {id: note_id, content: body, scope: [user_id, agent_id], tags: labels}\n"
        "  facts: {id: n, content: text, scope: }\n"
    )

    assert read_mapping({"table": "notes"}).scope == ("user_id", "agent_id")
    assert read_mapping({"table": "notes"}).columns == {"memory_id": "note_id", "content": "body", "tags": "labels"}
    assert read_mapping({"table": "facts"}).scope == ()
    assert read_mapping(NOTES).columns == {"memory_id": "note_id", "content": "body"}
    assert read_mapping({"table": "others"}).is_own
    (tmp_path / "memfold.yaml").write_text("tables:\n  odd: {id: n, colour: red}\n")
    with pytest.raises(
        BadUsage, match=r"memfold.yaml:2: tables.odd.colour names no field of a memory; known are .*, con"
    ):
        read_mapping({"table": "odd"})
