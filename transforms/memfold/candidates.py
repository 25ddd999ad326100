"""Candidate pairs: which memories are worth a verdict. Candidates propose; only the verdict decides.

A group is what pairs never leave (the walls). Texts with equal token sets are one row here. Groups of up to
``exact_join_rows`` rows are joined exactly; larger ones by MinHash bands, and by their rarest words for a short text
inside a longer one. Either way a candidate shares ``min_overlap`` of its smaller set, or has ``min_jaccard``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from memfold.policy import Policy
from memfold.signatures import Banding, band_keys, mix
from memfold.text import Corpus

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]
F64 = NDArray[np.float64]
Mask = NDArray[np.bool_]

#: Comparisons that are expanded at once: about 100 MB of work arrays.
CHUNK = 2_000_000
#: Rows of small groups that are joined at once.
ROWS_PER_JOIN = 20_000
#: A row asks for a verdict on its nearest candidates only (most of its smaller set shared, then Jaccard), so that
#: thousands of log lines that differ in one number cost a few verdicts each. A row is still judged when asked for.
NEAREST = 16
#: Memories with equal token sets: each meets the first few of them, never all others.
TWINS = 8
#: 256 bits per token set; a pair that the bits rule out (two in three) needs no exact count.
BITMAP_WORDS = 4
#: Products like 0.8 * 5 must not round up past the whole number that they mean.
EPSILON = 1e-9


@dataclass(frozen=True, slots=True)
class Proposals:
    """Candidate pairs (left < right, each once), and the groups in which not every close pair is among them."""

    left: I64
    right: I64
    jaccard: F64
    shortened: I64


@dataclass(slots=True)
class TokenSets:
    """The distinct sets of canonical tokens in a corpus, in CSR form, tokens ascending within a set."""

    offsets: I64
    tokens: I64
    word_hashes: U64
    set_hash: U64 = field(init=False)
    bits: U64 = field(init=False)
    _packed: I64 = field(init=False)
    _keys: dict[int, U64] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        hashes = self.word_hashes[self.tokens]
        self.set_hash = _per_set(np.add, mix(hashes), self.offsets)
        bit = hashes >> np.uint64(56)
        self.bits = np.zeros((len(self.offsets) - 1, BITMAP_WORDS), np.uint64)
        for word in range(BITMAP_WORDS):
            mask = np.where(bit >> np.uint64(6) == word, np.uint64(1) << (bit & np.uint64(63)), np.uint64(0))
            self.bits[:, word] = _per_set(np.bitwise_or, mask, self.offsets)
        self._packed = (np.repeat(np.arange(len(self.sizes)), self.sizes) << 32) | self.tokens

    @property
    def sizes(self) -> I64:
        return np.diff(self.offsets)

    def entries(self, sets: I64) -> tuple[I64, I64]:
        """The tokens of these sets, one after the other, and the position in ``sets`` that each belongs to."""
        sizes = self.offsets[sets + 1] - self.offsets[sets]
        owner = np.repeat(np.arange(len(sets)), sizes)
        return self.tokens[np.repeat(self.offsets[sets], sizes) + _ranges(sizes)], owner

    def common(self, left: I64, right: I64) -> I64:
        """How many tokens the two sets of each pair share."""
        found = np.zeros(len(left), np.int64)
        small = np.where(self.sizes[left] <= self.sizes[right], left, right)
        large = left + right - small
        for start, stop in _chunks(self.sizes[small]):
            tokens, owner = self.entries(small[start:stop])
            wanted = (large[start:stop][owner] << 32) | tokens
            at = np.minimum(np.searchsorted(self._packed, wanted), len(self._packed) - 1)
            found[start:stop] = np.bincount(owner[self._packed[at] == wanted], minlength=stop - start)
        return found

    def jaccard(self, left: I64, right: I64) -> F64:
        """Word Jaccard of each pair of sets; two empty sets are alike only if they are one set."""
        common = self.common(left, right)
        union = self.sizes[left] + self.sizes[right] - common
        alike: F64 = np.where(union > 0, common / np.maximum(union, 1), left == right)
        return alike

    def band_keys(self, sets: I64, banding: Banding) -> U64:
        """MinHash band keys of these sets, each computed once; shape (sets, bands)."""
        wanted = sets.tolist()
        new = np.array([row for row in wanted if row not in self._keys], np.int64)
        if len(new):
            tokens, _ = self.entries(new)
            offsets = np.concatenate(([0], np.cumsum(self.sizes[new])))
            words = (self.word_hashes[tokens] & np.uint64(0xFFFFFFFF)).astype(np.uint32)
            self._keys.update(zip(new.tolist(), band_keys(offsets, words, banding), strict=True))
        return np.stack([self._keys[row] for row in wanted])


def token_sets(corpus: Corpus, texts: I64) -> tuple[TokenSets, I64]:
    """The distinct token sets of these corpus rows, and the set of each row."""
    seen: dict[bytes, int] = {}
    bounds = corpus.key_offsets
    set_of = [seen.setdefault(corpus.keys[bounds[row] : bounds[row + 1]].tobytes(), len(seen)) for row in texts]
    rows = [np.frombuffer(row, corpus.keys.dtype) for row in seen]
    offsets = np.concatenate(([0], np.cumsum([len(row) for row in rows]))).astype(np.int64)
    tokens = np.concatenate([*rows, np.empty(0, corpus.keys.dtype)]).astype(np.int64)
    return TokenSets(offsets, tokens, corpus.vocabulary.hashes.astype(np.uint64)), np.array(set_of, np.int64)


def propose(sets: TokenSets, set_of: I64, group_of: I64, nodes: I64, policy: Policy) -> Proposals:
    """The candidate pairs among these nodes, none across groups.

    ``nodes`` are ascending row numbers; ``set_of`` and ``group_of`` are looked up by them. What is proposed within a
    group follows from the group's own nodes only.
    """
    nodes = nodes[sets.sizes[set_of[nodes]] > 0]
    table = _collapse(sets, set_of, group_of, nodes)
    twins = np.stack(_meet_first(table.start_of, TWINS))
    rows, shortened = _pairs_of_rows(sets, table, policy)
    pairs = np.sort(table.nodes[np.concatenate((twins, _spread(table, *rows)), axis=1)], axis=0)
    left, right = pairs[:, np.lexsort((pairs[1], pairs[0]))]
    return Proposals(
        left=left,
        right=right,
        jaccard=sets.jaccard(set_of[left], set_of[right]),
        shortened=np.union1d(shortened, table.group[table.counts > TWINS]),
    )


def is_close(common: I64, left_size: I64, right_size: I64, policy: Policy) -> Mask:
    """Whether a pair that shares this many tokens is a candidate."""
    smaller = np.minimum(left_size, right_size)
    jaccard_needs = policy.min_jaccard / (1 + policy.min_jaccard) * (left_size + right_size)
    return np.asarray((common >= policy.min_overlap * smaller - EPSILON) | (common >= jaccard_needs - EPSILON))


def meet_leaders(keys: U64, leaders: int) -> tuple[I64, I64, bool]:
    """Pairs (leader, row) of rows with equal keys, and whether a bucket held more rows than leaders.

    The one place that turns band keys into pairs, whichever engine made them. Rows come ordered by (set hash,
    memory_id); each meets the first ``leaders`` rows of its bucket, never all others.
    """
    order = np.argsort(keys, kind="stable")
    starts = _starts(keys[order])
    first, later = _meet_first(starts, leaders)
    longest = np.bincount(starts).max(initial=0)
    return order[first], order[later], bool(longest > leaders)


@dataclass(frozen=True, slots=True)
class _Rows:
    """One row per (group, token set), ordered by group and set hash, and the nodes of each."""

    nodes: I64  # ordered by row; start_of gives the first position of a node's row
    start_of: I64
    starts: I64
    counts: I64
    sets: I64
    group: I64

    def of(self, rows: I64) -> _Rows:
        return _Rows(self.nodes, self.start_of, self.starts[rows], self.counts[rows], self.sets[rows], self.group[rows])


def _collapse(sets: TokenSets, set_of: I64, group_of: I64, nodes: I64) -> _Rows:
    of_node, group = set_of[nodes], group_of[nodes]
    order = np.lexsort((nodes, of_node, sets.set_hash[of_node], group))
    nodes, of_node, group = nodes[order], of_node[order], group[order]
    start_of = _starts(of_node, group)
    starts, counts = np.unique(start_of, return_counts=True)
    return _Rows(nodes, start_of, starts, counts, of_node[starts], group[starts])


def _pairs_of_rows(sets: TokenSets, table: _Rows, policy: Policy) -> tuple[I64, I64]:
    """Close pairs of rows, and the groups in which there may be more of them."""
    found, shortened = [np.empty((2, 0), np.int64)], [np.empty(0, np.int64)]
    for rows in _batches(table.group, policy.exact_join_rows):
        part = table.of(rows)
        if len(rows) > policy.exact_join_rows and part.group[0] == part.group[-1]:
            pairs, is_cut = _pairs_of_large_group(sets, part, policy)
        else:
            pairs, is_cut = _join(sets, part, policy, budget=None)
        nearest = _nearest(sets, part, pairs)
        found.append(rows[pairs[:, nearest]])
        shortened += [part.group[:1]] if is_cut else [part.group[pairs[0, ~nearest]]]
    return np.concatenate(found, axis=1), np.unique(np.concatenate(shortened))


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


def _pairs_of_large_group(sets: TokenSets, table: _Rows, policy: Policy) -> tuple[I64, bool]:
    banding = Banding(
        bands=policy.bands, rows=policy.rows_per_band, seed=policy.minhash_seed, scheme=policy.minhash_scheme
    )
    inside, is_cut = _join(sets, table, policy, budget=policy.leaders_per_bucket)
    count = len(table.sets)
    close = [np.minimum(*inside) * count + np.maximum(*inside)]
    for keys in sets.band_keys(table.sets, banding).T:
        left, right, bucket_is_cut = meet_leaders(keys, policy.leaders_per_bucket)
        may_be = _bits_allow(sets, table.sets[left], table.sets[right], policy)
        close.append(left[may_be] * count + right[may_be])
        is_cut |= bucket_is_cut
    pairs = np.stack(np.divmod(np.unique(np.concatenate(close)), count))
    return pairs[:, _verified(sets, table.sets[pairs[0]], table.sets[pairs[1]], policy)], is_cut


def _nearest(sets: TokenSets, table: _Rows, pairs: I64) -> Mask:
    """Which pairs are among the nearest of one of their two rows."""
    left, right = table.sets[pairs]
    common = sets.common(left, right)
    smaller = np.minimum(sets.sizes[left], sets.sizes[right])
    union = sets.sizes[left] + sets.sizes[right] - common
    nearest_first = np.lexsort((pairs[1], pairs[0], -common / union, -common / smaller))
    keeps = np.zeros(pairs.shape[1], bool)
    for side in pairs:
        order = nearest_first[np.argsort(side[nearest_first], kind="stable")]
        keeps[order] |= np.arange(len(order)) - _starts(side[order]) < NEAREST
    return keeps


def _join(sets: TokenSets, table: _Rows, policy: Policy, *, budget: int | None) -> tuple[I64, bool]:
    """Pairs of rows by their rarest tokens: exact without a budget.

    A pair that shares enough of its smaller set shares one of that set's rarest tokens, so each row meets only the
    larger rows that hold one of those. With a budget only the overlap is looked for, and a token costs at most
    ``budget`` comparisons per row that holds it: each row then meets those nearest to it in size.
    """
    size = sets.sizes[table.sets]
    needed = np.ceil(policy.min_overlap * size - EPSILON)
    if budget is None:
        needed = np.minimum(needed, np.ceil(2 * policy.min_jaccard / (1 + policy.min_jaccard) * size - EPSILON))
    posting, row, is_rare = _postings(sets, table, (size - needed + 1).astype(np.int64))
    stop = np.repeat(*_stops(posting))
    begin = np.arange(len(row)) + 1
    reach = stop - begin
    if budget is not None:
        owners = np.bincount(posting[is_rare], minlength=len(posting))[posting]
        members = np.bincount(posting)[posting]
        reach = np.minimum(reach, budget * (owners + members) // np.maximum(owners, 1))
    asking = np.flatnonzero(is_rare & (stop > begin))
    is_cut = bool((reach < stop - begin)[asking].any())
    found = [np.empty(0, np.int64)]
    for start, end in _chunks(reach[asking]):
        who = asking[start:end]
        left = np.repeat(row[who], reach[who])
        right = row[np.repeat(begin[who], reach[who]) + _ranges(reach[who])]
        may_be = _bits_allow(sets, table.sets[left], table.sets[right], policy)
        found.append(np.unique(left[may_be] * len(size) + right[may_be]))
    pairs = np.stack(np.divmod(np.unique(np.concatenate(found)), max(len(size), 1)))
    return pairs[:, _verified(sets, table.sets[pairs[0]], table.sets[pairs[1]], policy)], is_cut


def _postings(sets: TokenSets, table: _Rows, rare_tokens: I64) -> tuple[I64, I64, Mask]:
    """Every (token of a group, row) entry, ordered by token and then by the row's size.

    Returns the number of the entry's token, its row, and whether the token is among the row's rarest.
    """
    tokens, row = sets.entries(table.sets)
    group = np.unique(table.group, return_inverse=True)[1]
    vocabulary = max(len(sets.word_hashes), 1)
    distinct, posting, frequency = np.unique(
        group[row] * vocabulary + tokens, return_inverse=True, return_counts=True
    )
    rarity = np.empty(len(distinct), np.int64)
    rarity[np.lexsort((sets.word_hashes[distinct % vocabulary], frequency))] = np.arange(len(distinct))
    by_rarity = np.argsort(row * max(len(distinct), 1) + rarity[posting])
    is_rare = np.empty(len(row), bool)
    is_rare[by_rarity] = _ranges(np.bincount(row, minlength=len(table.sets))) < rare_tokens[row]
    by_size = np.empty(len(table.sets), np.int64)
    by_size[np.argsort(sets.sizes[table.sets], kind="stable")] = np.arange(len(table.sets))
    order = np.argsort(posting * max(len(table.sets), 1) + by_size[row])
    return posting[order], row[order], is_rare[order]


def _bits_allow(sets: TokenSets, left: I64, right: I64, policy: Policy) -> Mask:
    """False where the bitmaps prove that a pair is not close; sound, so nothing close is lost."""
    missing = _missing_bits(sets.bits, left, right)
    most = np.minimum(sets.sizes[left] - missing, sets.sizes[right] - _missing_bits(sets.bits, right, left))
    return is_close(most, sets.sizes[left], sets.sizes[right], policy)


def _missing_bits(bits: U64, left: I64, right: I64) -> I64:
    counts: I64 = np.bitwise_count(bits[left] & ~bits[right]).sum(axis=1, dtype=np.int64)
    return counts


def _verified(sets: TokenSets, left: I64, right: I64, policy: Policy) -> Mask:
    return is_close(sets.common(left, right), sets.sizes[left], sets.sizes[right], policy)


def _spread(table: _Rows, left: I64, right: I64) -> I64:
    """Positions of node pairs for pairs of rows: the first nodes of each row meet."""
    many_left, many_right = np.minimum(table.counts[left], TWINS), np.minimum(table.counts[right], TWINS)
    repeats = many_left * many_right
    nth = _ranges(repeats)
    width = np.repeat(many_right, repeats)
    first, second = np.repeat(table.starts[left], repeats), np.repeat(table.starts[right], repeats)
    return np.stack((first + nth // width, second + nth % width))


def _meet_first(start_of: I64, leaders: int) -> tuple[I64, I64]:
    """Position pairs (leader, later): each position meets the first ``leaders`` positions of its own run."""
    meets = np.minimum(np.arange(len(start_of)) - start_of, leaders)
    return np.repeat(start_of, meets) + _ranges(meets), np.repeat(np.arange(len(start_of)), meets)


def _starts(*columns: NDArray[np.generic]) -> I64:
    """For each position of sorted columns, where its run of equal values begins."""
    count = len(columns[0])
    is_new = np.ones(count, bool)
    is_new[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return np.maximum.accumulate(np.where(is_new, np.arange(count), 0)) if count else np.empty(0, np.int64)


def _stops(posting: I64) -> tuple[I64, I64]:
    counts = np.bincount(posting) if len(posting) else np.empty(0, np.int64)
    return np.cumsum(counts), counts


def _ranges(counts: I64) -> I64:
    """0, 1, ... up to each count, one after the other."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - counts, counts)


def _chunks(costs: I64) -> Iterator[tuple[int, int]]:
    """Consecutive ranges whose costs add up to about ``CHUNK``."""
    total = np.cumsum(costs)
    start = 0
    while start < len(costs):
        done = total[start - 1] if start else 0
        stop = max(int(np.searchsorted(total, done + CHUNK, side="right")), start + 1)
        yield start, stop
        start = stop


def _per_set(combine: np.ufunc, values: U64, offsets: I64) -> U64:
    """The values of each set combined; an empty set gives 0."""
    found = np.zeros(len(offsets) - 1, np.uint64)
    filled = np.flatnonzero(np.diff(offsets))
    if len(filled):
        found[filled] = combine.reduceat(values, offsets[filled])
    return found
