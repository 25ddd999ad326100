"""The loops over words, sets and band keys that numba compiles; import this module only for many rows.

``word_sets``, ``minhash`` and ``near_duplicates`` call them; what a function promises is said and tested there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from memfold.compiled import jit

Array = Any  # numba's functions see one concrete array type each, given in the signature

# Arrow's buffers are not to be written to.
BYTES = "Array(uint8, 1, 'C', readonly=True)"

EMPTY = np.uint64(0xCBF29CE484222325)  # the state of a word without letters
STEP = np.uint64(0x9E3779B97F4A7C55)
DOTTED_I, SMALL_I = np.int32(0x130), np.uint64(0x69)
CAPITAL_SIGMA = np.int32(0x3A3)
#: Sets up to this size are sorted by insertion, which is faster for them.
SMALL_SET = 48


@jit("uint64(uint64)")
def mix(value: Any) -> Any:
    """The finaliser of splitmix64, as in ``signatures.mix``."""
    value = value + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@jit("uint32(uint64)")
def word_hash(state: Any) -> Any:
    """The 32 bits that stand for a word."""
    state = (state ^ (state >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return np.uint32(state >> np.uint64(32))


@jit(f"UniTuple(int64, 2)({BYTES}, int64, int64)")
def code_point(data: Array, place: Any, stop: Any) -> Any:
    """The code point that starts at this byte (not an ASCII one), and where the next begins."""
    first = np.int64(data[place])
    length = 2 if first < 0xE0 else 3 if first < 0xF0 else 4
    if first < 0xC0 or place + length > stop:
        return -1, place + 1
    point = first & (0xFF >> (length + 1))
    for following in range(place + 1, place + length):
        point = (point << 6) | (np.int64(data[following]) & 0x3F)
    return point, place + length


@jit("int64(uint32[::1], int64, int64)")
def sort_once(words: Array, start: Any, stop: Any) -> Any:
    """Sort this part of the words and drop repeats; returns where it ends then."""
    if stop - start <= SMALL_SET:
        for place in range(start + 1, stop):
            word = words[place]
            left = place - 1
            while left >= start and words[left] > word:
                words[left + 1] = words[left]
                left -= 1
            words[left + 1] = word
    else:
        words[start:stop].sort()
    end = start
    for place in range(start, stop):
        if end == start or words[end - 1] != words[place]:
            words[end] = words[place]
            end += 1
    return end


READ_WORDS = (
    f"Tuple((int64, boolean))({BYTES}, int64[::1], int32[::1], uint64[::1], uint32[::1], uint32[::1], uint64[::1],"
    " uint64[:, ::1])"
)


@jit(READ_WORDS)
def read_words(  # one loop over the bytes: each call out of it costs as much as a word
    data: Array, offsets: Array, lower: Array, scope: Array, words: Array, sizes: Array, set_hash: Array, bits: Array
) -> Any:
    """Fill in each row's sorted distinct word hashes, their number, the set's hash and its 128-bit map.

    Returns how many hashes were written, and whether a capital sigma was met: its lower case depends on the letters
    around it, so the caller lower-cases such rows first.
    """
    total = np.int64(0)
    for row in range(len(sizes)):
        start = total
        place, stop = offsets[row], offsets[row + 1]
        state = EMPTY
        while place < stop:
            byte = data[place]
            if byte < 128:
                letter = lower[byte]
                place += 1
            else:
                point, place = code_point(data, place, stop)
                letter = lower[point] if 0 <= point < len(lower) else np.int32(0)
                if point == CAPITAL_SIGMA:
                    return total, True
                if point == DOTTED_I:  # its lower case is an i and a dot above it, which ends the word
                    words[total] = word_hash((state ^ SMALL_I) * STEP)
                    total += 1
                    state = EMPTY
                    continue
            if letter:
                state = (state ^ np.uint64(letter)) * STEP
            elif state != EMPTY:
                words[total] = word_hash(state)
                total += 1
                state = EMPTY
        if state != EMPTY:
            words[total] = word_hash(state)
            total += 1
        total = sort_once(words, start, total)
        hashed, low, high = scope[row], np.uint64(0), np.uint64(0)
        for at in range(start, total):
            word = np.uint64(words[at])
            hashed += mix(word)
            bit = np.uint64(1) << (word & np.uint64(63))
            if word & np.uint64(64):
                high |= bit
            else:
                low |= bit
        sizes[row] = total - start
        set_hash[row] = mix(hashed)
        bits[row, 0], bits[row, 1] = low, high
    return total, False


NUMBER_SETS = (
    "int64(int64[::1], uint64[::1], uint64[::1], int64[::1], uint32[::1], uint32[::1], uint64[:, ::1], int32[::1],"
    " int32[::1], uint64[:, ::1])"
)


@jit(NUMBER_SETS)
def number_sets(
    order: Array,
    set_hash: Array,
    scope: Array,
    starts: Array,
    sizes: Array,
    words: Array,
    bits: Array,
    set_of: Array,
    row_of: Array,
    sets: Array,
) -> Any:
    """Number the distinct (scope, word set) pairs in the order of their hashes; returns how many there are.

    ``sets`` gets what two sets are compared by, side by side: bits, bits, start and size. Rows without words share
    nothing: each is a set of its own.
    """
    count = run = 0
    last = np.uint64(0)
    for place in range(len(order)):
        row = order[place]
        here = set_hash[row]
        if here != last:
            run, last = count, here
        found = -1
        for number in range(run, count if sizes[row] else run):
            other = row_of[number]
            if sizes[other] == sizes[row] and scope[other % len(scope)] == scope[row % len(scope)]:
                first, second = starts[row], starts[other]
                shared = 0
                while shared < sizes[row] and words[first + shared] == words[second + shared]:
                    shared += 1
                if shared == sizes[row]:
                    found = number
                    break
        if found < 0:
            found = count
            row_of[count] = row
            sets[count, 0], sets[count, 1] = bits[row, 0], bits[row, 1]
            sets[count, 2], sets[count, 3] = np.uint64(starts[row]), np.uint64(sizes[row])
            count += 1
        set_of[row] = found
    return count


@jit("uint32(uint32)")
def premix(word: Any) -> Any:
    """The finaliser of MurmurHash3, with which datasketch spreads a hash before it permutes it."""
    word = np.uint32(word ^ (word >> np.uint32(16)))
    word = np.uint32(word * np.uint32(0x85EBCA6B))
    word = np.uint32(word ^ (word >> np.uint32(13)))
    word = np.uint32(word * np.uint32(0xC2B2AE35))
    return np.uint32(word ^ (word >> np.uint32(16)))


BAND_KEYS = (
    "void(int64[::1], uint32[::1], uint32[::1], uint32[::1], uint32[::1], uint64[::1], int64, int64, int64, int64,"
    " uint64[:, ::1])"
)


@jit(BAND_KEYS)
def band_keys(
    starts: Array,
    sizes: Array,
    words: Array,
    multipliers: Array,
    addends: Array,
    seeds: Array,
    first_band: Any,
    rows_per_band: Any,
    start: Any,
    stop: Any,
    keys: Array,
) -> None:
    """Band keys of the sets ``start`` to ``stop`` into ``keys`` (bands, sets): datasketch's signature, folded."""
    width = len(multipliers)
    signature = np.empty(width, np.uint32)
    for row in range(start, stop):
        signature[:] = np.uint32(0xFFFFFFFF)
        at, end = starts[row], starts[row] + np.int64(sizes[row])
        while at + 4 <= end:  # four words to one pass over the signature, which has to be loaded and stored
            one, two = premix(words[at]), premix(words[at + 1])
            three, four = premix(words[at + 2]), premix(words[at + 3])
            for column in range(width):
                multiplier, addend = multipliers[column], addends[column]
                first = np.uint32(np.uint32(multiplier * one) + addend)
                second = np.uint32(np.uint32(multiplier * two) + addend)
                third = np.uint32(np.uint32(multiplier * three) + addend)
                fourth = np.uint32(np.uint32(multiplier * four) + addend)
                signature[column] = min(signature[column], first, second, third, fourth)
            at += 4
        while at < end:
            word = premix(words[at])
            for column in range(width):
                value = np.uint32(np.uint32(multipliers[column] * word) + addends[column])
                signature[column] = min(signature[column], value)
            at += 1
        for band in range(len(keys)):
            key = np.uint64(first_band + band + 1)
            for column in range(band * rows_per_band, (band + 1) * rows_per_band, 2):
                pair = np.uint64(signature[column])
                if column + 1 < (band + 1) * rows_per_band:
                    pair |= np.uint64(signature[column + 1]) << np.uint64(32)
                key = mix(key ^ pair)
            keys[band, row] = mix(key ^ seeds[row]) if len(seeds) else key


@jit("void(uint64[::1], int32[::1], uint64)")
def number_keys(keys: Array, numbers: Array, mask: Any) -> None:
    """Put the number of each set into the low bits of its key, so that sorting the keys sorts the sets along."""
    for row in range(len(keys)):
        keys[row] = (keys[row] & ~mask) | np.uint64(numbers[row])


@jit("int64(uint64)")
def bit_count(value: Any) -> Any:
    """How many bits are set."""
    value = value - ((value >> np.uint64(1)) & np.uint64(0x5555555555555555))
    value = (value & np.uint64(0x3333333333333333)) + ((value >> np.uint64(2)) & np.uint64(0x3333333333333333))
    value = (value + (value >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((value * np.uint64(0x0101010101010101)) >> np.uint64(56))


@jit("boolean(uint32[::1], int64, int64, int64, int64, int64)")
def shares(words: Array, left: Any, left_size: Any, right: Any, right_size: Any, wanted: Any) -> Any:
    """Whether two sorted sets share at least ``wanted`` words; stops as soon as that is sure or out of reach."""
    left_stop, right_stop = left + left_size, right + right_size
    missing_left, missing_right = left_size - wanted, right_size - wanted
    while left < left_stop and right < right_stop:
        one, other = words[left], words[right]
        if one == other:
            left += 1
            right += 1
            wanted -= 1
            if wanted <= 0:
                return True
        elif one < other:
            left += 1
            missing_left -= 1
            if missing_left < 0:
                return False
        else:
            right += 1
            missing_right -= 1
            if missing_right < 0:
                return False
    return wanted <= 0


@jit("int32(int32[::1], int32)")
def find(parent: Array, member: Any) -> Any:
    """The root of a member's component."""
    while parent[member] != member:
        parent[member] = parent[parent[member]]
        member = parent[member]
    return member


JOIN = "void(uint64[::1], uint64, float64, int64, uint64[:, ::1], uint64[::1], uint32[::1], int32[::1], int64[::1])"


@jit(JOIN)
def join_buckets(
    keys: Array,
    mask: Any,
    threshold: Any,
    leaders: Any,
    sets: Array,
    scope: Array,
    words: Array,
    parent: Array,
    counts: Array,
) -> None:
    """Join the sets of each bucket that are as alike as the threshold says, checked word by word.

    ``keys`` are sorted, each with the number of its set in the bits of ``mask``. The first ``leaders`` sets of a bucket
    that are like none before them are met by all that follow, but by those that are joined to them already.
    ``counts``: pairs compared, pairs compared word by word, links.
    """
    share = threshold / (1.0 + threshold)
    met = np.empty(leaders, np.int32)
    begin = 0
    while begin < len(keys):
        bucket = keys[begin] | mask
        end = begin + 1
        while end < len(keys) and (keys[end] | mask) == bucket:
            end += 1
        if end - begin == 1:
            begin = end
            continue
        used = 0
        for place in range(begin, end):
            member = np.int32(keys[place] & mask)
            root = find(parent, member)
            is_met = False
            for number in range(used):
                leader = met[number]
                leader_root = find(parent, leader)
                if leader_root == root:
                    is_met = True
                    continue
                counts[0] += 1
                size, other = np.int64(sets[member, 3]), np.int64(sets[leader, 3])
                wanted = np.int64(np.ceil(share * (size + other) - 1e-9))
                if wanted > min(size, other) or wanted == 0:  # sets without words share nothing
                    continue
                apart = bit_count(sets[member, 0] ^ sets[leader, 0]) + bit_count(sets[member, 1] ^ sets[leader, 1])
                if apart > size + other - 2 * wanted:
                    continue
                if len(scope) and scope[member] != scope[leader]:
                    continue
                counts[1] += 1
                if shares(words, np.int64(sets[member, 2]), size, np.int64(sets[leader, 2]), other, wanted):
                    counts[2] += 1
                    is_met = True
                    low, high = min(root, leader_root), max(root, leader_root)
                    parent[high] = low
                    root = low
            if not is_met and used < leaders:
                met[used] = member
                used += 1
        begin = end


@jit("void(int32[::1])")
def flatten(parent: Array) -> None:
    """Let each member point at its root; a root is the smallest of its component."""
    for member in range(len(parent)):
        parent[member] = parent[parent[member]]
