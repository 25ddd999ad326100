"""The snapshot as matching reads it: integers per memory, and memories that are exact copies of each other as one."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from memfold import text
from memfold.memory import microseconds
from memfold.policy import Policy
from memfold.text import Corpus, ReadTexts, Report, ignore

I64 = NDArray[np.int64]
Mask = NDArray[np.bool_]

#: Stands for a time or a count that is not known; it sorts behind every known one.
UNKNOWN = np.iinfo(np.int64).min
MICROSECONDS_PER_DAY = timedelta(days=1) // timedelta(microseconds=1)

#: What matching looks at; anything else of a memory may be of any size.
COLUMNS = [
    *("memory_id", "scope", "trust", "tier", "kind", "session_id", "title", "content", "pinned", "protected"),
    *("importance", "use_count", "created_at", "updated_at", "event_time", "valid_from", "valid_to", "expires_at"),
    "row_digest",
]


@dataclass(frozen=True, slots=True)
class Rows:
    """One entry per memory, ordered by memory_id. Codes are equal where the values are, null being a value too."""

    memory_id: pa.StringArray
    scope: pa.StringArray
    corpus: Corpus
    text: I64  # corpus row of the judged text
    title: I64  # corpus row of the title, -1 where there is none
    text_key: list[str]  # per corpus row
    is_blank: Mask  # per corpus row
    says_day: Mask  # per corpus row: what it means depends on its own day
    wall: I64  # code of (scope, trust, tier, kind)
    session: I64
    session_id: pa.StringArray
    validity: I64  # code of (valid_from, valid_to)
    said_at: I64
    pinned: Mask
    protected: Mask
    takes_part: Mask  # neither expired nor blank
    survivor_order: I64  # place of each row among all, the best first; what contains it is not looked at
    copy_order: I64  # the same for exact copies, of which the older comes first
    rejected: I64  # pairs (2, k) of rows whose merge a person took back

    @property
    def stays(self) -> Mask:
        """Rows that are never removed."""
        return self.pinned | self.protected


@dataclass(frozen=True, slots=True)
class Nodes:
    """Memories that are exact copies of each other in everything that a match looks at, as one; ordered by leader.

    The leader comes first in the copy order: of copies alike in importance and use the oldest stays, as a store whose
    rows keep their own time would otherwise forget when it was first told. Rows that stay whatever matches them are
    nodes of their own.
    """

    leader: I64  # row
    text_code: I64  # equal where the text keys are
    latest: I64  # when the text was last said, UNKNOWN if that is unknown for any of the rows
    copy_code: I64  # equal for nodes whose rows fold as exact copies
    of_row: I64  # node of each row, -1 for a row that takes no part


def read_rows(
    snapshot: pa.Table,
    rejected: pa.Table,
    policy: Policy,
    *,
    read_texts: ReadTexts = text.read_with_keys,
    report: Report = ignore,
) -> Rows:
    """A snapshot in the order of its ids, whatever order it came in."""
    snapshot = snapshot.select(COLUMNS).take(pc.sort_indices(snapshot.column("memory_id"))).combine_chunks()
    strings, content, title = _strings(snapshot)
    is_blank = np.array([text.is_blank(string) for string in strings], bool)
    corpus, text_keys = read_texts(strings, report=report)
    judged = np.where(is_blank[content], np.where(title >= 0, title, content), content)
    expires_at = _integers(snapshot, "expires_at")
    is_expired = (expires_at != UNKNOWN) & (expires_at <= np.int64(microseconds(policy.as_of) or 0))
    said_at = _said_at(snapshot, policy)
    pinned, protected = _flags(snapshot, "pinned"), _flags(snapshot, "protected")
    return Rows(
        memory_id=_column(snapshot, "memory_id"),
        scope=_column(snapshot, "scope"),
        corpus=corpus,
        text=judged,
        title=np.where((title >= 0) & ~is_blank[title], title, -1),
        text_key=text_keys,
        is_blank=is_blank,
        says_day=(corpus.traits & text.SAYS_A_DAY) > 0,
        wall=_combined(*(_codes(snapshot, name) for name in ("scope", "trust", "tier", "kind"))),
        session=_codes(snapshot, "session_id"),
        session_id=_column(snapshot, "session_id"),
        validity=_combined(_integers(snapshot, "valid_from"), _integers(snapshot, "valid_to")),
        said_at=said_at,
        pinned=pinned,
        protected=protected,
        takes_part=~is_expired & ~is_blank[judged],
        survivor_order=_survivor_order(snapshot, said_at, pinned | protected),
        copy_order=_survivor_order(snapshot, np.where(said_at == UNKNOWN, UNKNOWN, ~said_at), pinned | protected),
        rejected=_rejected(snapshot, rejected),
    )


def fold_copies(rows: Rows, policy: Policy) -> Nodes:
    """Rows with one text, title and validity behind the same walls, as one node each.

    A text that says today or now is a copy only of what was said on the same, known UTC day.
    """
    part = np.flatnonzero(rows.takes_part)
    key_code = _distinct(rows.text_key)
    key = key_code[rows.text[part]]
    title = np.where(rows.title[part] >= 0, key_code[rows.title[part]], -1)
    copy_code = _combined(rows.wall[part], key, title, rows.validity[part], _day_codes(rows, part))
    is_own = rows.stays[part] | np.isin(part, rows.rejected)
    own = np.where(is_own, part, -1)
    session = rows.session[part] if policy.walls_off_sessions else np.zeros(len(part), np.int64)
    node = _combined(copy_code, _reading_codes(rows.corpus)[rows.text[part]], session, own)
    order = np.lexsort((rows.survivor_order[part], node))
    starts = np.flatnonzero(np.diff(node[order], prepend=-1))
    leader = part[np.lexsort((rows.copy_order[part], node))][starts]
    earliest = np.minimum.reduceat(rows.said_at[part][order], starts) if len(starts) else starts
    latest = np.maximum.reduceat(rows.said_at[part][order], starts) if len(starts) else starts
    by_leader = np.argsort(leader)
    of_row = np.full(len(rows.text), -1, np.int64)
    of_row[part] = np.argsort(by_leader)[node]
    return Nodes(
        leader=leader[by_leader],
        text_code=key[order][starts][by_leader],
        latest=np.where(earliest == UNKNOWN, UNKNOWN, latest)[by_leader],
        copy_code=copy_code[order][starts][by_leader],
        of_row=of_row,
    )


def days(said_at: I64) -> I64:
    """The UTC day of each moment, as a number; UNKNOWN stays."""
    return np.where(said_at == UNKNOWN, UNKNOWN, said_at // MICROSECONDS_PER_DAY)


def _strings(snapshot: pa.Table) -> tuple[list[str], I64, I64]:
    """Every distinct content and title, and the place of each row's own; -1 for a null title."""
    both = pa.concat_arrays([_column(snapshot, "content"), _column(snapshot, "title")]).dictionary_encode()
    places = both.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    content, title = places[: len(snapshot)], places[len(snapshot) :]
    return both.dictionary.to_pylist(), content, title


def _said_at(snapshot: pa.Table, policy: Policy) -> I64:
    """When each text was said: event_time, else updated_at where it changes with the text, else created_at."""
    said_at = _integers(snapshot, "event_time")
    if policy.updated_with_text:
        said_at = np.where(said_at == UNKNOWN, _integers(snapshot, "updated_at"), said_at)
    return np.where(said_at == UNKNOWN, _integers(snapshot, "created_at"), said_at)


def _survivor_order(snapshot: pa.Table, said_at: I64, stays: Mask) -> I64:
    """Place of each row: those that stay first, then importance, use and recency, high before low before unknown."""
    importance = snapshot.column("importance").to_numpy(zero_copy_only=False)
    importance = np.where(np.isnan(importance), -np.inf, importance)
    use = _integers(snapshot, "use_count")
    # lexsort is stable, so ties keep the order of the ids; ~x turns the order round without overflow.
    order = np.lexsort((~said_at, ~use, -importance, ~stays))
    return np.argsort(order)


def _rejected(snapshot: pa.Table, rejected: pa.Table) -> I64:
    """Row pairs of the merges that a person took back, while both rows are still what they were then."""
    merges = rejected.filter(pc.is_valid(rejected.column("into_id")))
    ids, digest = snapshot.column("memory_id"), snapshot.column("row_digest")
    is_current = np.ones(len(merges), bool)
    pair = []
    for id_column, digest_column in (("memory_id", "row_digest"), ("into_id", "into_digest")):
        place = pc.index_in(merges.column(id_column), value_set=ids)
        then = merges.column(digest_column)
        is_same = pc.or_kleene(pc.equal(digest.take(place), then), pc.and_(pc.is_null(then), pc.is_valid(place)))
        is_current &= is_same.fill_null(False).to_numpy()
        pair.append(place.fill_null(-1).to_numpy().astype(np.int64))
    return np.sort(np.stack(pair)[:, is_current], axis=0)


def _day_codes(rows: Rows, part: I64) -> I64:
    """For texts that depend on their day: that day, or a code of its own where it is unknown; 0 for all others."""
    day = days(rows.said_at[part])
    known = np.where(day == UNKNOWN, -1 - np.arange(len(part)), np.unique(day, return_inverse=True)[1] + 1)
    return np.where(rows.says_day[rows.text[part]], known, 0)


def _distinct(values: Iterable[Hashable]) -> I64:
    """A code for each value, equal where the values are."""
    codes: dict[Hashable, int] = {}
    return np.array([codes.setdefault(value, len(codes)) for value in values], np.int64)


def _reading_codes(corpus: Corpus) -> I64:
    """A code per corpus row, equal where a verdict cannot tell the texts apart."""
    columns = [(part.tobytes(), part.itemsize) for part in (corpus.tokens, corpus.kinds, corpus.marks)]
    return _distinct(
        (trait, *(column[width * start : width * stop] for column, width in columns))
        for (start, stop), trait in zip(pairwise(corpus.token_offsets.tolist()), corpus.traits.tolist(), strict=True)
    )


def _combined(*columns: I64) -> I64:
    """A dense code per row, equal where all columns are."""
    code = np.unique(columns[0], return_inverse=True)[1]
    for column in columns[1:]:
        distinct, inverse = np.unique(column, return_inverse=True)
        code = np.unique(code * len(distinct) + inverse, return_inverse=True)[1]
    return code.astype(np.int64)


def _column(snapshot: pa.Table, name: str) -> pa.Array:
    column = snapshot.column(name)
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.array([], column.type)])


def _codes(snapshot: pa.Table, name: str) -> I64:
    encoded = _column(snapshot, name).dictionary_encode(null_encoding="encode")
    return np.asarray(encoded.indices.to_numpy(zero_copy_only=False), np.int64)


def _integers(snapshot: pa.Table, name: str) -> I64:
    values = _column(snapshot, name).cast(pa.int64()).fill_null(UNKNOWN)
    return np.asarray(values.to_numpy(zero_copy_only=False), np.int64)


def _flags(snapshot: pa.Table, name: str) -> Mask:
    return np.asarray(_column(snapshot, name).to_numpy(zero_copy_only=False), bool)
