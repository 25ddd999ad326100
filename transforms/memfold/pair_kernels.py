"""The loops that look for close pairs in a large group, compiled by numba; import this module only for many rows.

``large_groups`` calls them, and says what they promise. The tokens of a row are sorted; ``bits`` has 256 bits of them.
Each row keeps its nearest others in ``nearest``: the most of the smaller set shared first, then the likest, then the
first. So the same ones are kept in whatever order they are met.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from memfold.compiled import jit
from memfold.kernels import bit_count

Array = Any  # numba's functions see one concrete array type each, given in the signature

#: As in ``candidates``: products like 0.8 * 5 must not round up past the whole number that they mean.
EPSILON = 1e-9
NOBODY = np.int32(-1)

ROWS = "int64[::1], int32[::1], uint64[:, ::1]"
NEAREST = "int32[:, ::1], float64[:, ::1], float64[:, ::1]"


@jit("int64(int32[::1], int64, int64, int64, int64)")
def common(tokens: Array, left: Any, left_stop: Any, right: Any, right_stop: Any) -> Any:
    """How many tokens two sorted sets share."""
    shared = 0
    while left < left_stop and right < right_stop:
        one, other = tokens[left], tokens[right]
        if one == other:
            shared += 1
            left += 1
            right += 1
        elif one < other:
            left += 1
        else:
            right += 1
    return shared


@jit("float64(int64, int64, float64, float64)")
def least_common(size: Any, other_size: Any, overlap: Any, jaccard: Any) -> Any:
    """How many tokens two sets share at least if they are close, as ``Closeness.holds`` has it."""
    return min(overlap * min(size, other_size), jaccard / (1 + jaccard) * (size + other_size)) - EPSILON


@jit(f"void(int64, int64, float64, float64, {NEAREST})")
def keep(row: Any, met: Any, share: Any, jaccard: Any, nearest: Array, shares: Array, jaccards: Array) -> None:
    """Put what a row met in its place among the nearest of that row, if it is one of them."""
    place = nearest.shape[1]
    while place > 0:
        before = place - 1
        if nearest[row, before] != NOBODY:
            if shares[row, before] != share:
                is_nearer = share > shares[row, before]
            elif jaccards[row, before] != jaccard:
                is_nearer = jaccard > jaccards[row, before]
            else:
                is_nearer = met < nearest[row, before]
            if not is_nearer:
                break
        if place < nearest.shape[1]:
            nearest[row, place] = nearest[row, before]
            shares[row, place], jaccards[row, place] = shares[row, before], jaccards[row, before]
        place = before
    if place < nearest.shape[1]:
        nearest[row, place], shares[row, place], jaccards[row, place] = met, share, jaccard


@jit(f"void(int64, int32[::1], int64, int64, {ROWS}, float64[::1], {NEAREST})")
def compare(  # a run of pairs to a call: a call costs as much as most comparisons
    row: Any,
    others: Array,
    start: Any,
    stop: Any,
    offsets: Array,
    tokens: Array,
    bits: Array,
    bounds: Array,
    nearest: Array,
    shares: Array,
    jaccards: Array,
) -> None:
    """Compare a row with some others, and keep each of the two among the nearest of the other if they are close.

    ``bounds``: overlap and Jaccard by which the bitmaps may rule a pair out, and those by which it is close.
    """
    size, last = offsets[row + 1] - offsets[row], nearest.shape[1] - 1
    for at in range(start, stop):
        met = others[at]
        other_size = offsets[met + 1] - offsets[met]
        least = least_common(size, other_size, bounds[0], bounds[1])
        most, other_most = size, other_size
        for word in range(bits.shape[1]):
            one, other = bits[row, word], bits[met, word]
            most -= bit_count(one & ~other)
            other_most -= bit_count(other & ~one)
        most, smaller = min(most, other_most), min(size, other_size)
        if most < least or (most / smaller < shares[row, last] and most / smaller < shares[met, last]):
            continue
        is_kept = False
        for place in range(last + 1):
            is_kept |= nearest[row, place] == met or nearest[met, place] == row
        if is_kept:
            continue
        shared = common(tokens, offsets[row], offsets[row + 1], offsets[met], offsets[met + 1])
        if shared >= least_common(size, other_size, bounds[2], bounds[3]):
            share, jaccard = shared / smaller, shared / (size + other_size - shared)
            keep(row, met, share, jaccard, nearest, shares, jaccards)
            keep(met, row, share, jaccard, nearest, shares, jaccards)


@jit(f"void(uint64[::1], int32[::1], int64, {ROWS}, float64[::1], {NEAREST})")
def meet_leaders(
    keys: Array,
    order: Array,
    leaders: Any,
    offsets: Array,
    tokens: Array,
    bits: Array,
    bounds: Array,
    nearest: Array,
    shares: Array,
    jaccards: Array,
) -> None:
    """Compare each row with the first ``leaders`` rows of its bucket; ``order`` sorts the keys, in any way."""
    begin = 0
    while begin < len(order):
        end = begin + 1
        while end < len(order) and keys[order[end]] == keys[order[begin]]:
            end += 1
        if end - begin > 1:
            order[begin:end].sort()
        for place in range(begin + 1, end):
            stop = min(place, begin + leaders)
            compare(order[place], order, begin, stop, offsets, tokens, bits, bounds, nearest, shares, jaccards)
        begin = end


@jit("void(int64[::1], int64[::1], int32[::1], int32[::1], int64[::1], int64[::1], int32[::1], int32[::1], int64[::1])")
def index_tokens(
    by_size: Array,
    offsets: Array,
    tokens: Array,
    rarity: Array,
    rare_tokens: Array,
    starts: Array,
    rows: Array,
    limit: Array,
    owners: Array,
) -> None:
    """List the ``rows`` that hold each token, the smallest first, from ``starts`` on.

    ``limit`` gets the rarity of the last of each row's rarest tokens, ``owners`` the rows that each token is rare in.
    """
    place = starts.copy()
    longest = 1
    for row in range(len(by_size)):
        longest = max(longest, offsets[row + 1] - offsets[row])
    of_row = np.empty(longest, np.int32)
    for row in by_size:
        first, stop = offsets[row], offsets[row + 1]
        for at in range(first, stop):
            rows[place[tokens[at]]] = row
            place[tokens[at]] += 1
            of_row[at - first] = rarity[tokens[at]]
        wanted = min(rare_tokens[row], stop - first)
        limit[row] = np.sort(of_row[: stop - first])[wanted - 1] if wanted > 0 else -1
        for at in range(first, stop):
            if rarity[tokens[at]] <= limit[row]:
                owners[tokens[at]] += 1


@jit(
    "void(int64[::1], int32[::1], int64[::1], int32[::1], int32[::1], int64[::1], int64, int64[::1], int32[::1],"
    f" uint64[:, ::1], float64[::1], {NEAREST})"
)
def meet_larger(
    by_size: Array,
    rarity: Array,
    starts: Array,
    rows: Array,
    limit: Array,
    owners: Array,
    budget: Any,
    offsets: Array,
    tokens: Array,
    bits: Array,
    bounds: Array,
    nearest: Array,
    shares: Array,
    jaccards: Array,
) -> None:
    """Compare each row with the next larger ones that hold one of its rarest tokens, as far as the budget goes."""
    next_place = starts.copy()
    for row in by_size:
        for at in range(offsets[row], offsets[row + 1]):
            token = tokens[at]
            place = next_place[token] + 1
            next_place[token] = place
            if rarity[token] <= limit[row]:
                held_by = starts[token + 1] - starts[token]
                reach = budget * (owners[token] + held_by) // max(owners[token], 1)
                stop = min(place + reach, starts[token + 1])
                compare(row, rows, place, stop, offsets, tokens, bits, bounds, nearest, shares, jaccards)


@jit("void(int64[::1], int32[::1], int64[::1], int64[::1], int64[::1])")
def count_common(offsets: Array, tokens: Array, left: Array, right: Array, found: Array) -> None:
    """How many tokens the two sets of each pair share."""
    for pair in range(len(left)):
        one, other = left[pair], right[pair]
        found[pair] = common(tokens, offsets[one], offsets[one + 1], offsets[other], offsets[other + 1])
