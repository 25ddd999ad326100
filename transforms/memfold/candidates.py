"""Candidate pairs: which memories are worth a verdict. Candidates propose; only the verdict decides.

A group is what pairs never leave (the walls). Texts with equal token sets are one row here. Groups of up to
``exact_join_rows`` rows are joined exactly; larger ones by MinHash bands, and by their rarest words for a short text
inside a longer one (from ``COMPILED_FROM_ROWS`` rows on in compiled code). Either way a candidate shares
``min_overlap`` of its smaller set or has ``min_jaccard``; in small groups two tokens that are half of the smaller set
are enough, whatever those two thresholds are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memfold.policy import Policy
from memfold.signatures import COMPILED_SCHEME, Banding
from memfold.token_sets import TokenSets, chunks, ranges

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]
F64 = NDArray[np.float64]
Mask = NDArray[np.bool_]

#: Rows of small groups that are joined at once.
ROWS_PER_JOIN = 20_000
#: A row asks for a verdict on its nearest candidates only (most of its smaller set shared, then Jaccard), so that
#: thousands of log lines that differ in one number cost a few verdicts each. A row is still judged when asked for.
NEAREST = 16
#: Memories with equal token sets: each meets the first few of them, never all others.
TWINS = 8
#: In a small group a pair is looked at already if half of the smaller text is in the other, so that a conflict between
#: short notes ("reports to Lena Ortiz", "reports to Omar Diaz") is seen.
LOOSE_OVERLAP_IN_SMALL_GROUPS = 0.5
#: From this many rows of a group on, compiled code finds the same pairs in less time, and in memory that is bounded.
COMPILED_FROM_ROWS = 20_000
#: Products like 0.8 * 5 must not round up past the whole number that they mean.
EPSILON = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Closeness:
    """How many tokens a pair must share to be a candidate: any of these is enough."""

    #: Share of the smaller set: one text inside another.
    overlap: float
    #: Share of both together: one text like another.
    jaccard: float
    #: Two tokens at least, and this share of the smaller set: two short notes with another name in one place.
    loose_overlap: float = 1.0

    def holds(self, common: I64, left_size: I64, right_size: I64) -> Mask:
        """Whether pairs that share this many tokens are close."""
        smaller = np.minimum(left_size, right_size)
        alike = common >= self.jaccard / (1 + self.jaccard) * (left_size + right_size) - EPSILON
        loose = (common >= 2) & (common >= self.loose_overlap * smaller - EPSILON)
        return np.asarray((common >= self.overlap * smaller - EPSILON) | alike | loose)

    def least_common(self, size: I64) -> I64:
        """How many tokens a set of this size shares at least with any close one that is no smaller."""
        alike = np.ceil(2 * self.jaccard / (1 + self.jaccard) * size - EPSILON)
        loose = np.maximum(np.ceil(self.loose_overlap * size - EPSILON), 2)
        inside = np.ceil(self.overlap * size - EPSILON)
        return np.asarray(np.minimum(np.minimum(inside, alike), loose), np.int64)


@dataclass(frozen=True, slots=True)
class Proposals:
    """Candidate pairs (left < right, each once), and the groups in which not every close pair is among them."""

    left: I64
    right: I64
    jaccard: F64
    shortened: I64


def propose(sets: TokenSets, nodes: I64, *, set_of: I64, text_code: I64, group_of: I64, policy: Policy) -> Proposals:
    """The candidate pairs among these nodes, none across groups.

    ``nodes`` are ascending row numbers; the other arrays are looked up by them. What is proposed within a group
    follows from the group's own nodes only. Equal text keys meet whatever their tokens are.
    """
    by_text = _collapse(nodes, group_of[nodes], text_code[nodes])
    filled = nodes[sets.sizes[set_of[nodes]] > 0]
    by_set = _collapse(filled, group_of[filled], sets.set_hash[set_of[filled]], set_of[filled])
    close, shortened = _pairs_of_rows(sets, _Rows(set_of[by_set.first], group_of[by_set.first]), policy)
    pairs = np.concatenate((by_text.twins(), by_set.twins(), by_set.spread(*close)), axis=1)
    left, right = _once(np.sort(pairs, axis=0), len(set_of))
    crowded = [group_of[table.first[table.counts > TWINS]] for table in (by_text, by_set)]
    return Proposals(
        left=left,
        right=right,
        jaccard=sets.jaccard(set_of[left], set_of[right]),
        shortened=np.unique(np.concatenate((shortened, *crowded))),
    )


def among_nearest(pairs: I64, count: int) -> Mask:
    """Which pairs, given nearest first, are among the first ``count`` of one of their two members."""
    ends = pairs.T.ravel()
    order = np.argsort(ends, kind="stable")
    is_near = np.empty(len(ends), bool)
    is_near[order] = np.arange(len(ends)) - _starts(ends[order]) < count
    return np.asarray(is_near.reshape(-1, 2).any(axis=1))


def meet_leaders(keys: U64, leaders: int) -> tuple[I64, I64]:
    """Pairs (leader, row) of rows with equal keys.

    The one place that turns band keys into pairs, whichever engine made them. Rows come ordered by (set hash,
    memory_id); each meets the first ``leaders`` rows of its bucket, never all others.
    """
    order = np.argsort(keys, kind="stable")
    first, later = _meet_first(_starts(keys[order]), leaders)
    return order[first], order[later]


@dataclass(frozen=True, slots=True)
class _Collapsed:
    """Nodes with equal values as one row, rows ordered by those values."""

    nodes: I64  # ordered by row, ascending within a row
    start_of: I64  # the first position of each node's row
    starts: I64
    counts: I64

    @property
    def first(self) -> I64:
        """The first node of each row."""
        first: I64 = self.nodes[self.starts]
        return first

    def twins(self) -> I64:
        """Node pairs within rows: each meets the first ``TWINS`` of its row."""
        pairs: I64 = self.nodes[np.stack(_meet_first(self.start_of, TWINS))]
        return pairs

    def spread(self, left: I64, right: I64) -> I64:
        """Node pairs for pairs of rows: the first ``TWINS`` nodes of each meet."""
        many_left, many_right = np.minimum(self.counts[left], TWINS), np.minimum(self.counts[right], TWINS)
        repeats = many_left * many_right
        nth, width = ranges(repeats), np.repeat(many_right, repeats)
        first, second = np.repeat(self.starts[left], repeats), np.repeat(self.starts[right], repeats)
        pairs: I64 = self.nodes[np.stack((first + nth // width, second + nth % width))]
        return pairs


@dataclass(frozen=True, slots=True)
class _Rows:
    """Distinct (group, token set) rows, ordered by group and set hash."""

    sets: I64
    group: I64

    def of(self, rows: I64) -> _Rows:
        return _Rows(self.sets[rows], self.group[rows])


def _collapse(nodes: I64, *values: NDArray[np.generic]) -> _Collapsed:
    order = np.lexsort((nodes, *values[::-1]))
    start_of = _starts(*(value[order] for value in values))
    starts, counts = np.unique(start_of, return_counts=True)
    return _Collapsed(nodes[order], start_of, starts, counts)


def _pairs_of_rows(sets: TokenSets, table: _Rows, policy: Policy) -> tuple[I64, I64]:
    """Close pairs of rows, and the groups in which there may be more: the large, and those where a row had too many."""
    found, shortened = [np.empty((2, 0), np.int64)], [np.empty(0, np.int64)]
    for rows in _batches(table.group, policy.exact_join_rows):
        part = table.of(rows)
        is_large = len(rows) > policy.exact_join_rows and part.group[0] == part.group[-1]
        pairs, is_shortened = _pairs_of_large(sets, part, policy) if is_large else _pairs_of_small(sets, part, policy)
        found.append(rows[pairs])
        shortened.append(part.group[is_shortened])
    return np.concatenate(found, axis=1), np.unique(np.concatenate(shortened))


def _pairs_of_small(sets: TokenSets, table: _Rows, policy: Policy) -> tuple[I64, I64]:
    closeness = Closeness(
        overlap=policy.min_overlap, jaccard=policy.min_jaccard, loose_overlap=LOOSE_OVERLAP_IN_SMALL_GROUPS
    )
    return _nearest(sets, table, _join(sets, table, closeness, budget=None), closeness)


def _pairs_of_large(sets: TokenSets, table: _Rows, policy: Policy) -> tuple[I64, I64]:
    """The pairs of rows of one group, of which there may always be more."""
    closeness = Closeness(overlap=policy.min_overlap, jaccard=policy.min_jaccard)
    banding = Banding(
        bands=policy.bands, rows=policy.rows_per_band, seed=policy.minhash_seed, scheme=policy.minhash_scheme
    )
    if len(table.sets) < COMPILED_FROM_ROWS or banding.scheme != COMPILED_SCHEME:
        pairs, _ = _nearest(sets, table, _bands_and_rare_words(sets, table, closeness, banding, policy), closeness)
        return pairs, np.zeros(1, np.int64)
    from memfold import large_groups

    inside, size = Closeness(overlap=closeness.overlap, jaccard=1.0), sets.sizes[table.sets]
    pairs = large_groups.nearest_pairs(
        sets,
        table.sets,
        size - inside.least_common(size) + 1,
        banding=banding,
        bounds=large_groups.Bounds(
            overlap=closeness.overlap, jaccard=closeness.jaccard, leaders=policy.leaders_per_bucket, nearest=NEAREST
        ),
    )
    return pairs, np.zeros(1, np.int64)


def _batches(group: I64, exact_join_rows: int) -> Iterator[I64]:
    """Each large group by itself, the small ones a few thousand rows at a time."""
    sizes = np.unique(group, return_counts=True)[1]
    start = stop = 0
    for size in sizes.tolist():
        if stop > start and (size > exact_join_rows or stop - start + size > ROWS_PER_JOIN):
            yield np.arange(start, stop)
            start = stop
        stop += size
        if size > exact_join_rows:
            yield np.arange(start, stop)
            start = stop
    if stop > start:
        yield np.arange(start, stop)


def _bands_and_rare_words(sets: TokenSets, table: _Rows, closeness: Closeness, banding: Banding, policy: Policy) -> I64:
    """Pairs of rows in a group that is too large to be joined exactly; they may be close."""
    inside = Closeness(overlap=closeness.overlap, jaccard=1.0)
    found = [_join(sets, table, inside, budget=policy.leaders_per_bucket)]
    for keys in sets.band_keys(table.sets, banding).T:
        found.append(_maybe_close(sets, table, *meet_leaders(keys, policy.leaders_per_bucket), closeness))
    return _once(np.sort(np.concatenate(found, axis=1), axis=0), len(table.sets))


def _nearest(sets: TokenSets, table: _Rows, pairs: I64, closeness: Closeness) -> tuple[I64, I64]:
    """The close pairs that are among the nearest of one of their two rows, and the rows that had more."""
    left, right = table.sets[pairs]
    common, sizes = sets.common(left, right), (sets.sizes[left], sets.sizes[right])
    close = np.flatnonzero(closeness.holds(common, *sizes))
    share = common / np.minimum(*sizes)
    jaccard = common / (sizes[0] + sizes[1] - common)
    nearest_first = close[np.lexsort((pairs[1, close], pairs[0, close], -jaccard[close], -share[close]))]
    is_kept = among_nearest(pairs[:, nearest_first], NEAREST)
    had_more = np.zeros(len(table.sets), bool)
    had_more[pairs[0, nearest_first[~is_kept]]] = True
    return pairs[:, np.sort(nearest_first[is_kept])], np.flatnonzero(had_more)


def _join(sets: TokenSets, table: _Rows, closeness: Closeness, *, budget: int | None) -> I64:
    """Pairs of rows by their rarest tokens: exact without a budget.

    A pair that shares enough of its smaller set shares one of that set's rarest tokens, so each row meets only the
    larger rows that hold one of those. With a budget a token costs at most ``budget`` comparisons per row that holds
    it: each row then meets those nearest to it in size.
    """
    size = sets.sizes[table.sets]
    posting, row, is_rare = _postings(sets, table, size - closeness.least_common(size) + 1)
    stop = np.repeat(*_stops(posting))
    begin = np.arange(len(row)) + 1
    reach = stop - begin
    if budget is not None:
        owners = np.bincount(posting[is_rare], minlength=len(posting))[posting]
        members = np.bincount(posting)[posting]
        reach = np.minimum(reach, budget * (owners + members) // np.maximum(owners, 1))
    asking = np.flatnonzero(is_rare & (stop > begin))
    found = [np.empty((2, 0), np.int64)]
    for start, end in chunks(reach[asking]):
        who = asking[start:end]
        left = np.repeat(row[who], reach[who])
        right = row[np.repeat(begin[who], reach[who]) + ranges(reach[who])]
        found.append(_once(_maybe_close(sets, table, left, right, closeness), len(size)))
    return _once(np.concatenate(found, axis=1), len(size))


def _postings(sets: TokenSets, table: _Rows, rare_tokens: I64) -> tuple[I64, I64, Mask]:
    """Every (token of a group, row) entry, ordered by token and then by the row's size.

    Returns the number of the entry's token, its row, and whether the token is among the row's rarest.
    """
    tokens, row = sets.entries(table.sets)
    group = np.unique(table.group, return_inverse=True)[1]
    vocabulary = max(len(sets.word_hashes), 1)
    distinct, posting, frequency = np.unique(group[row] * vocabulary + tokens, return_inverse=True, return_counts=True)
    rarity = np.empty(len(distinct), np.int64)
    rarity[np.lexsort((sets.word_hashes[distinct % vocabulary], frequency))] = np.arange(len(distinct))
    by_rarity = np.argsort(row * max(len(distinct), 1) + rarity[posting])
    is_rare = np.empty(len(row), bool)
    is_rare[by_rarity] = ranges(np.bincount(row, minlength=len(table.sets))) < rare_tokens[row]
    by_size = np.empty(len(table.sets), np.int64)
    by_size[np.argsort(sets.sizes[table.sets], kind="stable")] = np.arange(len(table.sets))
    order = np.argsort(posting * max(len(table.sets), 1) + by_size[row])
    return posting[order], row[order], is_rare[order]


def _maybe_close(sets: TokenSets, table: _Rows, left: I64, right: I64, closeness: Closeness) -> I64:
    """The pairs of rows that the bitmaps do not rule out; sound, so nothing close is lost."""
    one, other = table.sets[left], table.sets[right]
    may_be = closeness.holds(sets.most_common(one, other), sets.sizes[one], sets.sizes[other])
    return np.stack((left[may_be], right[may_be]))


def _once(pairs: I64, count: int) -> I64:
    """Each pair once, in order. Sorting is several times faster than ``np.unique`` here."""
    packed = np.sort(pairs[0] * max(count, 1) + pairs[1])
    is_new = np.ones(len(packed), bool)
    is_new[1:] = packed[1:] != packed[:-1]
    return np.stack(np.divmod(packed[is_new], max(count, 1)))


def _meet_first(start_of: I64, leaders: int) -> tuple[I64, I64]:
    """Position pairs (leader, later): each position meets the first ``leaders`` positions of its own run."""
    meets = np.minimum(np.arange(len(start_of)) - start_of, leaders)
    return np.repeat(start_of, meets) + ranges(meets), np.repeat(np.arange(len(start_of)), meets)


def _starts(*columns: NDArray[np.generic]) -> I64:
    """For each position of sorted columns, where its run of equal values begins."""
    count = len(columns[0])
    is_new = np.ones(count, bool)
    is_new[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return np.maximum.accumulate(np.where(is_new, np.arange(count), 0)) if count else np.empty(0, np.int64)


def _stops(posting: I64) -> tuple[I64, I64]:
    counts = np.bincount(posting) if len(posting) else np.empty(0, np.int64)
    return np.cumsum(counts), counts
