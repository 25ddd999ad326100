"""The schema of every frame that crosses a step, each with its grain. Times are UTC microseconds, null when unknown."""

from __future__ import annotations

import pyarrow as pa

TIME = pa.timestamp("us", tz="UTC")
WORDS = pa.list_(pa.string())

#: One row per memory in scope. ``metadata`` is the store's own fields as JSON, verbatim.
SNAPSHOT = pa.schema(
    [
        pa.field("memory_id", pa.string(), nullable=False),
        pa.field("scope", pa.string(), nullable=False),
        pa.field("kind", pa.string()),
        pa.field("title", pa.string()),
        pa.field("content", pa.string(), nullable=False),
        pa.field("tags", WORDS, nullable=False),
        pa.field("tier", pa.string()),
        pa.field("session_id", pa.string()),
        pa.field("sessions", WORDS, nullable=False),
        pa.field("trust", pa.string()),
        pa.field("pinned", pa.bool_(), nullable=False),
        pa.field("protected", pa.bool_(), nullable=False),
        pa.field("importance", pa.float64()),
        pa.field("confidence", pa.float64()),
        pa.field("use_count", pa.int64()),
        pa.field("created_at", TIME),
        pa.field("updated_at", TIME),
        pa.field("event_time", TIME),
        pa.field("valid_from", TIME),
        pa.field("valid_to", TIME),
        pa.field("last_used_at", TIME),
        pa.field("expires_at", TIME),
        pa.field("links", WORDS, nullable=False),
        pa.field("metadata", pa.string()),
        pa.field("row_digest", pa.string(), nullable=False),
    ]
)

#: One row per memory in scope: what the text says of itself.
#: ``text_key`` is equal exactly for texts that differ in nothing but case, spacing, punctuation or Unicode form.
#: ``says_day``: the text says today, tomorrow, now or the like, so what it means depends on its own day.
TEXTS = pa.schema(
    [
        pa.field("memory_id", pa.string(), nullable=False),
        pa.field("text_key", pa.string(), nullable=False),
        pa.field("is_blank", pa.bool_(), nullable=False),
        pa.field("says_day", pa.bool_(), nullable=False),
    ]
)

#: One row per judged pair, left_id < right_id. ``winner`` (left, right or null) is the longer side of a containment,
#: the newer side of a supersession or conflict. ``held`` says why a mergeable pair stays apart, null when it may merge.
PAIRS = pa.schema(
    [
        pa.field("left_id", pa.string(), nullable=False),
        pa.field("right_id", pa.string(), nullable=False),
        pa.field("scope", pa.string(), nullable=False),
        pa.field("jaccard", pa.float64(), nullable=False),
        pa.field("verdict", pa.string(), nullable=False),
        pa.field("winner", pa.string()),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("only_left", WORDS, nullable=False),
        pa.field("only_right", WORDS, nullable=False),
        pa.field("held", pa.string()),
    ]
)

#: One row per pair or group of memories that a model was asked about, or proposed: ``kind`` is judge or rewrite.
#: ``verdict``: same, contains, conflict, supersedes or distinct, and ``stays`` the memory that must stay; ``content``:
#: the text for all of ``ids``. ``refused_by`` names the check that keeps it from being done, null where there is none.
PROPOSALS = pa.schema(
    [
        pa.field("question", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("scope", pa.string(), nullable=False),
        pa.field("ids", WORDS, nullable=False),
        pa.field("verdict", pa.string()),
        pa.field("stays", pa.string()),
        pa.field("content", pa.string()),
        pa.field("accepted", pa.bool_(), nullable=False),
        pa.field("refused_by", pa.string()),
        pa.field("detail", pa.string(), nullable=False),
    ]
)

#: One row per memory that is to have another text: one that a model wrote for it and for all that go into it.
REWRITES = pa.schema(
    [pa.field("memory_id", pa.string(), nullable=False), pa.field("content", pa.string(), nullable=False)]
)

#: One row per replay batch that the pass read, in the order in which a later step marks them consumed.
REPLAY = pa.schema(
    [
        pa.field("batch", pa.int64(), nullable=False),
        pa.field("scope", pa.string(), nullable=False),
        pa.field("created_at", TIME, nullable=False),
        pa.field("entries", pa.int64(), nullable=False),
    ]
)

#: One row per entry of those batches, with the id ``replay:<batch>:<n>``: matched like a memory, but none.
EVIDENCE = pa.schema(
    [
        pa.field("memory_id", pa.string(), nullable=False),
        pa.field("batch", pa.int64(), nullable=False),
        pa.field("scope", pa.string(), nullable=False),
        pa.field("kind", pa.string()),
        pa.field("title", pa.string()),
        pa.field("content", pa.string(), nullable=False),
        pa.field("created_at", TIME, nullable=False),
    ]
)

#: One row per memory and replay batch that tells the same; ``is_birth``: the memory was first told in that batch.
SIGHTINGS = pa.schema(
    [
        pa.field("memory_id", pa.string(), nullable=False),
        pa.field("batch", pa.int64(), nullable=False),
        pa.field("is_birth", pa.bool_(), nullable=False),
    ]
)

#: One row per memory of a cluster, the survivor included (match = survivor). ``match``: survivor, copy, same, contains.
CLUSTERS = pa.schema(
    [
        pa.field("memory_id", pa.string(), nullable=False),
        pa.field("cluster_id", pa.int64(), nullable=False),
        pa.field("survivor_id", pa.string(), nullable=False),
        pa.field("match", pa.string(), nullable=False),
        pa.field("jaccard", pa.float64(), nullable=False),
        pa.field("added_words", pa.int64(), nullable=False),
        pa.field("detail", pa.string(), nullable=False),
    ]
)

#: One row per expired or blank memory: it matches nothing. ``action``: prune, or keep where it is pinned or protected.
DEPARTED = pa.schema(
    [
        pa.field("memory_id", pa.string(), nullable=False),
        pa.field("scope", pa.string(), nullable=False),
        pa.field("action", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("detail", pa.string(), nullable=False),
    ]
)

#: One row per memory that stands once clusters are folded, with its folded values; alone it is a cluster of one.
#: ``is_fixed``: pinned or protected. ``has_taken_back``: a person took back a removal of it or of one of its members.
SURVIVORS = pa.schema(
    [
        pa.field("memory_id", pa.string(), nullable=False),
        pa.field("scope", pa.string(), nullable=False),
        pa.field("cluster_id", pa.int64()),
        pa.field("members", pa.int64(), nullable=False),
        pa.field("use_count", pa.int64()),
        pa.field("importance", pa.float64()),
        pa.field("confidence", pa.float64()),
        pa.field("created_at", TIME),
        pa.field("updated_at", TIME),
        pa.field("last_used_at", TIME),
        pa.field("expires_at", TIME),
        pa.field("sessions", pa.int64(), nullable=False),
        pa.field("evidence", pa.int64(), nullable=False),
        pa.field("is_fixed", pa.bool_(), nullable=False),
        pa.field("is_taken_back", pa.bool_(), nullable=False),
        pa.field("has_taken_back", pa.bool_(), nullable=False),
        pa.field("is_stale", pa.bool_(), nullable=False),
        pa.field("is_promotable", pa.bool_(), nullable=False),
    ]
)

#: One row per standing memory that qualifies for the next tier. ``action``: promote, merge (its text stands there
#: already, in ``into_id``) or keep.
PROMOTIONS = pa.schema(
    [
        pa.field("memory_id", pa.string(), nullable=False),
        pa.field("scope", pa.string(), nullable=False),
        pa.field("action", pa.string(), nullable=False),
        pa.field("into_id", pa.string()),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("detail", pa.string(), nullable=False),
        pa.field("jaccard", pa.float64(), nullable=False),
        pa.field("added_words", pa.int64(), nullable=False),
    ]
)

#: One row per memory that a prune rule meets. ``unit_id``: the memory that it goes with. ``action``: prune or keep.
PRUNES = pa.schema(
    [
        pa.field("memory_id", pa.string(), nullable=False),
        pa.field("scope", pa.string(), nullable=False),
        pa.field("unit_id", pa.string(), nullable=False),
        pa.field("action", pa.string(), nullable=False),
        pa.field("superseded_by", pa.string()),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("detail", pa.string(), nullable=False),
    ]
)

#: One row per memory that goes because its scope holds more than the cap; ``fit_order``: the lowest score is 1.
EVICTIONS = pa.schema(
    [
        pa.field("memory_id", pa.string(), nullable=False),
        pa.field("scope", pa.string(), nullable=False),
        pa.field("unit_id", pa.string(), nullable=False),
        pa.field("detail", pa.string(), nullable=False),
        pa.field("fit_order", pa.float64(), nullable=False),
    ]
)

#: One row per memory that the policy would remove, before any loss limit; ``fit_step`` and ``fit_order`` say in which
#: order a limited pass takes them.
REMOVALS = pa.schema(
    [
        pa.field("memory_id", pa.string(), nullable=False),
        pa.field("scope", pa.string(), nullable=False),
        pa.field("unit_id", pa.string(), nullable=False),
        pa.field("action", pa.string(), nullable=False),
        pa.field("into_id", pa.string()),
        pa.field("superseded_by", pa.string()),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("detail", pa.string(), nullable=False),
        pa.field("is_lost", pa.bool_(), nullable=False),
        pa.field("is_lost_strict", pa.bool_(), nullable=False),
        pa.field("fit_step", pa.int64(), nullable=False),
        pa.field("fit_order", pa.float64(), nullable=False),
    ]
)

#: One row per removal that does not fit under the loss limits of its scope; empty unless ``on_excess`` is fit.
WAITS = pa.schema(
    [
        pa.field("memory_id", pa.string(), nullable=False),
        pa.field("scope", pa.string(), nullable=False),
        pa.field("detail", pa.string(), nullable=False),
    ]
)

#: One row per snapshot row, always. ``reason`` is one of: kept, held, waits, copy, same, contains, expired, blank,
#: rewritten, stale, superseded, capacity, promoted, by hand. ``is_lost`` and ``is_lost_strict`` say what the row counts
#: for in the loss figures. ``new_content``: another text for a memory that stays; its own then counts as lost.
PLAN = pa.schema(
    [
        pa.field("memory_id", pa.string(), nullable=False),
        pa.field("scope", pa.string(), nullable=False),
        pa.field("action", pa.string(), nullable=False),
        pa.field("into_id", pa.string()),
        pa.field("superseded_by", pa.string()),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("detail", pa.string(), nullable=False),
        pa.field("is_lost", pa.bool_(), nullable=False),
        pa.field("is_lost_strict", pa.bool_(), nullable=False),
        pa.field("new_content", pa.string()),
    ]
)

#: One row per scope. ``refused`` names the checks that failed, in words; empty when the gate accepts the scope.
TALLY = pa.schema(
    [
        pa.field("scope", pa.string(), nullable=False),
        pa.field("entries_before", pa.int64(), nullable=False),
        pa.field("entries_after", pa.int64(), nullable=False),
        pa.field("merged", pa.int64(), nullable=False),
        pa.field("promoted", pa.int64(), nullable=False),
        pa.field("pruned", pa.int64(), nullable=False),
        pa.field("expired", pa.int64(), nullable=False),
        pa.field("held", pa.int64(), nullable=False),
        pa.field("waits", pa.int64(), nullable=False),
        pa.field("lost", pa.int64(), nullable=False),
        pa.field("lost_strict", pa.int64(), nullable=False),
        pa.field("lost_recently", pa.int64(), nullable=False),
        pa.field("retained_originals", pa.int64(), nullable=False),
        pa.field("loss_fraction", pa.float64(), nullable=False),
        pa.field("loss_fraction_strict", pa.float64(), nullable=False),
        pa.field("accepted", pa.bool_(), nullable=False),
        pa.field("refused", WORDS, nullable=False),
    ]
)

#: One row per scope that lost anything in the rolling window: what earlier passes took, undone loss given back.
LOSSES = pa.schema([pa.field("scope", pa.string(), nullable=False), pa.field("lost", pa.int64(), nullable=False)])

#: One row per decision that a person took back: a merge (``into_id`` set) or a prune or promotion (``into_id`` null).
#: It holds while both digests are still the rows' own.
REJECTED = pa.schema(
    [
        pa.field("memory_id", pa.string(), nullable=False),
        pa.field("into_id", pa.string()),
        pa.field("row_digest", pa.string(), nullable=False),
        pa.field("into_digest", pa.string()),
    ]
)

#: One row per memory that a person decided on in this plan. ``decision``: keep (it stays as it is) or prune (it goes).
EDITS = pa.schema(
    [
        pa.field("memory_id", pa.string(), nullable=False),
        pa.field("decision", pa.string(), nullable=False),
    ]
)

#: One row per memory that an apply touches. Rows of one ``unit_id`` land together, but for drifted members.
#: ``role``: survivor (stays, takes the folded fields), member (merged), prune, promote. With a ``new_content`` for its
#: survivor a unit lands whole or not at all.
REWRITE = pa.schema(
    [
        pa.field("unit_id", pa.int64(), nullable=False),
        pa.field("scope", pa.string(), nullable=False),
        pa.field("memory_id", pa.string(), nullable=False),
        pa.field("role", pa.string(), nullable=False),
        pa.field("into_id", pa.string()),
        pa.field("superseded_by", pa.string()),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("promote_to", pa.string()),
        pa.field("is_lost", pa.bool_(), nullable=False),
        pa.field("row_digest", pa.string(), nullable=False),
        pa.field("new_content", pa.string()),
    ]
)

#: One row per change that an apply made, enough to take it back. ``change``: removed, folded, promoted.
#: ``raw`` is the row as the store held it, in the store's own encoding; ``before`` and ``after`` are JSON objects that
#: hold the folded fields only.
UNDO = pa.schema(
    [
        pa.field("unit_id", pa.int64(), nullable=False),
        pa.field("scope", pa.string(), nullable=False),
        pa.field("memory_id", pa.string(), nullable=False),
        pa.field("change", pa.string(), nullable=False),
        pa.field("into_id", pa.string()),
        pa.field("new_id", pa.string()),
        pa.field("is_lost", pa.bool_(), nullable=False),
        pa.field("row_digest", pa.string(), nullable=False),
        pa.field("into_digest", pa.string()),
        pa.field("raw", pa.binary(), nullable=False),
        pa.field("before", pa.string()),
        pa.field("after", pa.string()),
    ]
)
