"""Erasing a memory of evo's: from its rows, its replay buffer, and the events that memfold wrote."""

from __future__ import annotations

import json
import time

from memfold_flows import erasure

KEY = "The cellar key is blue"


def forget(evo, *ids):
    return erasure.forget(
        evo.store,
        erasure.look_up(evo.store, ids, with_survivor=False),
        runs_folder=evo.path.parent,
        clock=lambda: evo.now,
        monotonic=time.monotonic,
        new_key=b"k" * 32,
    )


def test_memfolds_own_events_no_longer_tell_of_it(ports):
    """A consolidation lists what stays, with its text; a memory that was forgotten since is left out of it."""
    ports.consolidate()
    before = [KEY in json.dumps(event) for event in ports.events]

    forgotten = forget(ports, "note-2")

    assert before == [True]
    assert [KEY in json.dumps(event) for event in ports.events] == [False, False]
    assert len(ports.events[0]["result"]["items"]) == 4
    assert (forgotten.removed, forgotten.exit_code) == (("note-2",), 0)


def test_an_event_of_evos_own_is_named_and_stays(ports):
    """What its program wrote is not memfold's to change."""
    payload = json.dumps({"type": "memory.written", "id": "note-2"}, separators=(",", ":"))
    ports.execute(
        "insert into memory_events (type, scope_json, payload_json, created_at) values (?, '{}', ?, 0)",
        "memory.written",
        payload,
    )

    forgotten = forget(ports, "note-2")

    assert [left.why for left in forgotten.left] == ["1 event that its own program wrote may tell of it"]
    assert ports.rows("memory_events")[1]["payload_json"] == payload
    assert forgotten.exit_code == 4


def test_evos_replay_buffer_no_longer_tells_it(make_evo):
    """The entry goes from its batch, whether a pass has read it or not; the others stay."""
    evo = make_evo(6)
    evo.distil("key", KEY)
    evo.reflect(KEY.upper(), "Ann drinks green tea")

    forgotten = forget(evo, "key")

    assert forgotten.replay_entries == 1
    [row] = evo.rows("replay_buffer").values()
    assert [entry["content"] for entry in json.loads(row["batch_json"])["memories"]] == ["Ann drinks green tea"]
