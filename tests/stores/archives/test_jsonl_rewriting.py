"""JSONL archives, rewriting: which bytes change, and that they all come back."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from memfold_flows.stores.base import Update
from memfold_flows.stores.jsonl import read_line, set_values

NINE = datetime(2026, 3, 1, 9, tzinfo=UTC)

UNTIDY = (
    b'\xef\xbb\xbf{"id":"a", "text":"Ana likes tea" ,"n":1.50,"created_at":"2026-03-01 09:00:00+02:00"}\r\n'
    b"\n"
    b'{ "id": 2, "content": "caf\\u00e9\xe2\x80\xa8", "big": 123456789012345678901234567890, "half": "\\ud800" }\n'
    b'\t{"memory":"last line, no end","id":"c","z":1E3,"a":-0.0}'
)


def test_removing_and_restoring_gives_back_every_byte(notes):
    """Byte order mark, line ends, blank lines, spellings, a missing last line end: all as they were."""
    for ids in (["a"], ["2"], ["c"], ["a", "c"], ["2", "c"], ["a", "2", "c"]):
        notes.path.write_bytes(UNTIDY)
        raws = notes.remove(*ids)
        assert notes.path.read_bytes() != UNTIDY
        assert notes.restore(raws) == set()
        assert notes.path.read_bytes() == UNTIDY


def test_untouched_lines_keep_their_bytes(notes):
    """Key order, number spelling, escapes and spaces of the neighbours stay."""
    notes.path.write_bytes(UNTIDY)
    notes.remove("2")

    assert notes.path.read_bytes() == b"".join(UNTIDY.splitlines(keepends=True)[:2]) + UNTIDY.split(b"\n")[3]


def test_a_changed_line_keeps_the_spelling_of_everything_else(notes):
    """Only the folded values change, each under the name and in the form that the line already has."""
    notes.holds(
        b'{"id":"a", "access_count" : 3, "text":"caf\\u00e9", "n":1.50, "metadata":{ "x":1.0 }, '
        b'"created_at":"2026-03-01 11:00:00+02:00", "tags":["b"]}'
    )
    notes.fold("a", use_count=5, created_at=NINE.replace(day=2), metadata='{"x":1.0,"n":1.5,"y":[true]}')

    assert notes.lines == [
        b'{"id":"a", "access_count" : 5, "text":"caf\\u00e9", "n":1.50, "metadata":{ "x":1.0,"y":[true] }, '
        b'"created_at":"2026-03-02 11:00:00+02:00", "tags":["b"]}\n'
    ]


def test_a_field_that_is_new_to_a_line_is_put_at_its_end(notes):
    """In the spacing of the line, and in the time form of its other times."""
    notes.holds(
        b'{"id":"a","text":"x","created_at":1772355600}', b'{ "id": "b", "text": "x" }', b'{"id":"c","text":""}'
    )
    notes.fold("a", last_used_at=NINE, tags=("rota",))
    notes.fold("b", last_used_at=NINE, metadata='{"lang":"en"}')
    notes.fold("c", use_count=0)

    assert notes.lines == [
        b'{"id":"a","text":"x","created_at":1772355600,"tags":["rota"],"last_used_at":1772355600}\n',
        b'{ "id": "b", "text": "x", "last_used_at": "2026-03-01T09:00:00Z", "metadata": {"lang": "en"} }\n',
        b'{"id":"c","text":"","use_count":0}\n',
    ]


def test_keys_that_come_from_another_memory_go_under_metadata(notes):
    """At the top of the record they could pass for a scope or an id."""
    notes.holds(b'{"id":"a","text":"x","scope":"ana","lang":"en"}')
    notes.fold("a", metadata='{"lang":"en","user_id":"bo"}')

    assert notes.lines == [b'{"id":"a","text":"x","scope":"ana","lang":"en","metadata":{"user_id":"bo"}}\n']
    assert notes.snapshot()["a"]["scope"] == "ana"


def test_a_merge_compares_moments_and_not_texts(notes, a_pass):
    """The later-looking text of two times may be the earlier moment; the survivor takes it in its own form."""
    notes.holds(
        b'{"id":"a","text":"Passport expires in 2031","created_at":"2026-03-10T19:30:00-07:00"}',
        b'{"id":"b","text":"Passport expires in 2031","created_at":"2026-03-11T01:00:00Z"}',
    )
    a_pass(notes.open(in_place=True)).plan(merge={"b": "a"}).apply()

    assert notes.lines == [b'{"id":"a","text":"Passport expires in 2031","created_at":"2026-03-10T18:00:00-07:00"}\n']


def test_a_merge_folds_counters_and_metadata_and_an_undo_takes_all_of_it_back(notes, a_pass):
    """The sum of the uses, the higher importance, every key of both; then byte for byte as before."""
    notes.holds(
        b'{"id":"a","text":"Ana plays tennis","metadata":{"category": "hobby", "priority": "high"},'
        b'"importance":0.40,"access_count":3,"tags":["sport"]}',
        b'{"id":"b","text":"Ana plays tennis","metadata":{"source": "chat", "category": "hobby"},'
        b'"importance":0.9,"access_count":2,"tags":["ana"],"lang":"en"}',
    )
    before = notes.path.read_bytes()
    night = a_pass(notes.open(in_place=True)).plan(merge={"b": "a"})
    report = night.apply()

    assert (report.metadata_conflicts, report.fields_left_out) == ([], [])
    assert notes.lines == [
        b'{"id":"a","text":"Ana plays tennis","metadata":{"category": "hobby", "priority": "high", '
        b'"lang": "en", "source": "chat"},"importance":0.9,"access_count":5,"tags":["sport","ana"]}\n'
    ]
    assert night.undo().kept_fields == []
    assert notes.path.read_bytes() == before


def test_a_fold_that_is_taken_back_gives_back_every_byte(notes):
    """Fields that the fold added go, and old spellings return."""
    notes.path.write_bytes(UNTIDY)
    before, after, raw = notes.fold("a", use_count=2, created_at=NINE, metadata='{"n":1.5,"source":"chat"}')
    assert notes.path.read_bytes() != UNTIDY
    with notes.open(in_place=True).transaction() as transaction:
        transaction.update([Update(after, before, raw)])

    assert notes.path.read_bytes() == UNTIDY


def test_a_fold_that_is_taken_back_keeps_what_others_wrote_since(notes):
    """The old bytes return only where the rest of the line still says the same."""
    notes.holds(b'{"id":"a","text":"x","use_count":1,"lang":"en"}')
    before, _, raw = notes.fold("a", use_count=2)
    notes.path.write_bytes(notes.path.read_bytes().replace(b'"en"', b'"de"'))
    with notes.open(in_place=True).transaction() as transaction:
        now = transaction.read(["a"])["a"].memory
        transaction.update([Update(now, replace(now, use_count=before.use_count), raw)])

    assert notes.lines == [b'{"id":"a","text":"x","use_count":1,"lang":"de"}\n']


def test_a_restored_line_without_an_end_gets_one_where_another_line_follows(notes):
    """A line appended since must not be glued to it."""
    notes.path.write_bytes(b'{"id":"a","text":"x"}\n{"id":"b","text":"y"}')
    raws = notes.remove("b")
    with notes.path.open("ab") as file:
        file.write(b'{"id":"c","text":"z"}\n')
    notes.restore(raws)

    assert list(notes.snapshot()) == ["a", "b", "c"]


def test_an_id_that_exists_again_is_left_out_of_a_restore(notes):
    """Somebody wrote a new memory under the old id; it is not overwritten."""
    notes.holds({"id": "a", "text": "tea"}, {"id": "b", "text": "coffee"})
    raws = notes.remove("a", "b")
    notes.holds({"id": "a", "text": "water"})

    assert notes.restore(raws) == {"a"}
    assert {key: row["content"] for key, row in notes.snapshot().items()} == {"a": "water", "b": "coffee"}


def test_an_archive_that_lost_its_last_memory_can_be_undone(notes):
    """The empty file is memfold's own work, so it opens."""
    notes.holds({"id": "a", "text": "tea"})
    before = notes.path.read_bytes()
    raws = notes.remove("a")
    assert notes.path.read_bytes() == b""
    notes.restore(raws)

    assert notes.path.read_bytes() == before


def test_a_promotion_sets_the_tier_and_keeps_the_id(notes):
    """In an archive a tier is a field like any other."""
    notes.holds(b'{"id":"a","tier":"short_term","text":"x"}')
    with notes.open(in_place=True).transaction() as transaction:
        assert transaction.promote(transaction.read(["a"]), "long_term") == {"a": "a"}

    assert notes.lines == [b'{"id":"a","tier":"long_term","text":"x"}\n']


def test_counts_and_reads_follow_the_changes_of_their_transaction(notes):
    """What was removed is not counted and not read; what was restored is."""
    notes.holds(*({"id": key, "text": key, "scope": "ana"} for key in "abc"))
    with notes.open(in_place=True).transaction() as transaction:
        rows = transaction.read(["a", "b", "missing"])
        assert sorted(rows) == ["a", "b"]
        assert transaction.count("ana") == 3
        transaction.delete(["a", "b"])
        assert (transaction.count("ana"), transaction.count("bo")) == (1, 0)
        assert transaction.read(["a"]) == {}
        transaction.restore({"a": rows["a"].raw})
        assert transaction.count("ana") == 2
        assert transaction.read(["a"]) == {"a": rows["a"]}

    assert list(notes.snapshot()) == ["a", "c"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
own_fields = st.dictionaries(st.text().map(lambda name: f"own {name}"), json_values, max_size=5)


@given(st.lists(st.tuples(own_fields, st.booleans(), st.booleans()), min_size=1, max_size=6))
def test_any_record_comes_back_byte_for_byte(fresh_file, records):
    """Whatever fields of their own the records have: removed, folded and taken back, the file is the same."""
    file = fresh_file()
    file.holds(*(as_line({"id": str(n), **own, "text": "tea"}, ascii) for n, (own, _, ascii) in enumerate(records)))
    original = file.path.read_bytes()
    gone = [str(n) for n, (_, goes, _) in enumerate(records) if goes]
    stay = [str(n) for n, (_, goes, _) in enumerate(records) if not goes]
    with file.open(in_place=True).transaction() as transaction:
        before = transaction.read([*gone, *stay])
        transaction.update([Update(before[key].memory, folded(before[key].memory)) for key in stay])
        transaction.delete(gone)
    assert [json.loads(line)["use_count"] for line in file.lines] == [9 for _ in stay]
    with file.open(in_place=True).transaction() as transaction:
        now = transaction.read(stay)
        transaction.update([Update(now[key].memory, before[key].memory, before[key].raw) for key in stay])
        transaction.restore({key: before[key].raw for key in gone})

    assert file.path.read_bytes() == original


def as_line(record, ascii):
    return json.dumps(record, ensure_ascii=ascii).encode("utf-8", "backslashreplace")


def folded(memory):
    return replace(memory, use_count=9, metadata=json.dumps(json.loads(memory.metadata or "{}") | {"new": "key"}))


@given(st.dictionaries(st.text(), json_values, max_size=6), st.dictionaries(st.text(), json_values, max_size=3))
def test_setting_values_in_a_json_text_is_setting_them_in_the_object(old, new):
    """The splice on the text and a plain update of the object agree."""
    for text in (json.dumps(old), json.dumps(old, separators=(",", ":")), json.dumps(old, indent=1)):
        spliced = set_values(text, new).encode("utf-8", "backslashreplace")

        assert read_line(spliced.replace(b"\n", b" ")) == read_line(json.dumps(old | new).encode())
