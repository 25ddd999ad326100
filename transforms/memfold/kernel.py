"""The verdict over integer arrays, in the part of Python that numba compiles.

``verdicts`` loads this file twice: as it is, for few pairs, and with ``jit`` set to numba's compiler, for many.
Rows of ``tokens``, ``marks`` and ``kinds`` (the class bits of each token in its place) are [start, end) slices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from memfold.lexicon import BIT
from memfold.tokens import ARTICLE, BOUNDARY, BRACKET, CAPITAL, COLON, COMMA, DEFINITE, EQUALS, HARD, POSSESSIVE


def _as_it_is(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


jit = globals().get("jit", _as_it_is)

SAME, CONTAINS, CONFLICT, SUPERSEDES, DISTINCT = range(5)
HAS_TABLE, SAYS_A_DAY, UNSPACED, FREE_TIME = 1, 2, 4, 8
FIRST_PICTURE_BIT = 8

NUMBER, DATE, TIME = BIT["number"], BIT["date"], BIT["time"]
VALUE = NUMBER | DATE | TIME | BIT["identifier"]
NEGATION, QUANTIFIER, MODAL, CHANGE = BIT["negation"], BIT["quantifier"], BIT["modal"], BIT["change"]
POLARITY, LIMIT, CONDITION, QUESTION = BIT["polarity"], BIT["limit"], BIT["condition"], BIT["question"]
TURNS = NEGATION | LIMIT | CONDITION | BIT["hedge"] | QUESTION | CHANGE | BIT["retract"] | MODAL
NARROWED = NEGATION | LIMIT | QUANTIFIER | MODAL
COORDINATOR, DISJUNCTION, ORDER = BIT["coordinator"], BIT["disjunction"], BIT["order"]
JOINS = BIT["preposition"] | BIT["conjunction"] | COORDINATOR
TIMEY = DATE | TIME | BIT["time_word"]
FUNCTION = JOINS | BIT["adjunct"] | BIT["function"]
STARTS_ADJUNCT = BIT["adjunct"] | DATE | TIME
BIT_ADJUNCT, BIT_IDENTIFIER, SUBJECT = BIT["adjunct"], BIT["identifier"], BIT["subject"]
BIT_FUNCTION = BIT["function"]
VERB = BIT["verb"]
LIKING = POLARITY | VERB
LIST_HEAD = VERB | BIT["preposition"]
FIXED_IN_LIST = (
    NUMBER | TIME | NEGATION | LIMIT | CONDITION | QUESTION | ORDER | MODAL | BIT["direction"] | BIT["preposition"]
)
NOUN_PHRASE = ARTICLE | COLON | COMMA
LONGEST_SLOT, LONGEST_LIST, LONGEST_NEWS = 4, 40, 12
# Comparing words without their order takes quadratic time; texts of more words are compared in order only.
LONGEST_MOVED = 400


@jit
def judge_rows(offsets, tokens, marks, kinds, traits, left, right, newer, same_day, verdict, winner, added):  # type: ignore[no-untyped-def]
    """Fills ``verdict``, ``winner`` and ``added``, one entry per pair."""
    for pair in range(len(left)):
        a, b = left[pair], right[pair]
        found, side, extra = judge_pair(
            tokens,
            marks,
            kinds,
            offsets[a],
            offsets[a + 1],
            offsets[b],
            offsets[b + 1],
            traits[a],
            traits[b],
            newer[pair],
            same_day[pair],
        )
        verdict[pair] = found
        winner[pair] = side
        added[pair] = extra


@jit
def judge_pair(tokens, marks, kinds, a0, a1, b0, b1, a_traits, b_traits, newer, same_day):  # type: ignore[no-untyped-def]
    """The verdict on one pair, the side that wins (0 none, 1 left, 2 right) and how many words that side adds."""
    n, m = a1 - a0, b1 - b0
    shorter = min(n, m)
    prefix = 0
    while prefix < shorter and tokens[a0 + prefix] == tokens[b0 + prefix]:
        prefix += 1
    suffix = 0
    while suffix < shorter - prefix and tokens[a1 - 1 - suffix] == tokens[b1 - 1 - suffix]:
        suffix += 1
    both_known = a_traits & b_traits & HAS_TABLE != 0
    wrong_day = (a_traits | b_traits) & SAYS_A_DAY != 0 and not same_day
    a_shows, b_shows = a_traits >> FIRST_PICTURE_BIT, b_traits >> FIRST_PICTURE_BIT
    if a_shows & ~b_shows and b_shows & ~a_shows:
        return DISTINCT, 0, 0
    if prefix == n == m and _is_name_of_a_thing(marks, kinds, a0, b0, n):
        return DISTINCT, 0, 0
    if n == m and (
        (prefix == n and not _is_comma_moved(marks, a0, b0, n))
        or _is_reordered(tokens, marks, kinds, a0, a1, b0, b1, prefix, suffix, both_known)
        or (a_traits & b_traits & FREE_TIME and _is_time_moved(tokens, marks, kinds, a0, a1, b0, b1, a_traits))
    ):
        return (DISTINCT if wrong_day else SAME), 0, 0
    if prefix == shorter and both_known and shorter > 1:
        if n > m and _adds_only(tokens, marks, kinds, a0, a1, m, a_traits):
            return (DISTINCT, 0, 0) if b_traits & SAYS_A_DAY != 0 and not same_day else (CONTAINS, 1, n - m)
        if m > n and _adds_only(tokens, marks, kinds, b0, b1, n, b_traits):
            return (DISTINCT, 0, 0) if a_traits & SAYS_A_DAY != 0 and not same_day else (CONTAINS, 2, m - n)
    if newer == 1 and _supersedes(tokens, marks, kinds, a0, a1, b0, b1, b_traits):
        return SUPERSEDES, 1, 0
    if newer == 2 and _supersedes(tokens, marks, kinds, b0, b1, a0, a1, a_traits):
        return SUPERSEDES, 2, 0
    if _conflicts(tokens, marks, kinds, a0, a1, b0, b1, prefix, suffix):
        return CONFLICT, newer, 0
    return DISTINCT, 0, 0


@jit
def _is_name_of_a_thing(marks, kinds, a, b, length):  # type: ignore[no-untyped-def]
    """Whether a word is "an apple" on one side and "Apple" on the other."""
    for i in range(length):
        x, y = marks[a + i], marks[b + i]
        differ = (x ^ y) & ARTICLE != 0 and (x ^ y) & CAPITAL != 0 and not kinds[a + i] & DATE
        if differ and not (x | y) & (DEFINITE | EQUALS) and (x & ARTICLE != 0) != (x & CAPITAL != 0):
            return True
    return False


@jit
def _is_comma_moved(marks, a0, b0, n):  # type: ignore[no-untyped-def]
    """Whether each side breaks the sentence where the other does not ("execute not, pardon", "execute, not pardon")."""
    a_alone = b_alone = False
    for i in range(1, n):
        a, b = marks[a0 + i] & BOUNDARY, marks[b0 + i] & BOUNDARY
        a_alone = a_alone or (a == COMMA and b == 0)
        b_alone = b_alone or (b == COMMA and a == 0)
    return a_alone and b_alone


@jit
def _is_reordered(tokens, marks, kinds, a0, a1, b0, b1, prefix, suffix, both_known):  # type: ignore[no-untyped-def]
    """Whether the same words stand in another order that carries no fact: an adjunct moved, or the items of a list."""
    width = a1 - a0 - prefix - suffix
    if width < 2 or width > LONGEST_MOVED or not _same_words(tokens, a0 + prefix, b0 + prefix, width):
        return False
    if _is_rotated(tokens, marks, kinds, a0, a1, b0, b1, prefix, width):
        return True
    if not both_known and not marks[a0] & marks[b0] & BRACKET:
        return False
    if width >= LONGEST_LIST:
        return False
    if _is_list_shuffled(tokens, marks, kinds, a0, a1, b0, b1, prefix, width):
        return True
    # "le thé et le café" and "le café et le thé" begin with the same article.
    starts_before = prefix > 1 and kinds[a0 + prefix - 1] & BIT_FUNCTION != 0
    return starts_before and _is_list_shuffled(tokens, marks, kinds, a0, a1, b0, b1, prefix - 1, width + 1)


@jit
def _same_words(tokens, a, b, width):  # type: ignore[no-untyped-def]
    for i in range(width):
        word = tokens[a + i]
        here = there = 0
        for j in range(width):
            if tokens[a + j] == word:
                here += 1
            if tokens[b + j] == word:
                there += 1
        if here != there:
            return False
    return True


@jit
def _is_rotated(tokens, marks, kinds, a0, a1, b0, b1, prefix, width):  # type: ignore[no-untyped-def]
    """Whether a clause's first part, an adjunct ("on Fridays", "if CI is red"), stands last on the other side."""
    a, b = a0 + prefix, b0 + prefix
    if prefix > 0 and not (marks[a] & HARD and marks[b] & HARD):
        return False
    if a + width < a1 and not (marks[a + width] & HARD and marks[b + width] & HARD):
        return False
    for cut in range(1, width):
        if _is_rotation(tokens, a, b, width, cut) and (
            _may_move(tokens, marks, kinds, a, cut, width)
            or _may_move(tokens, marks, kinds, b, width - cut, width)
            or (width == a1 - a0 and _are_equated(marks, kinds, a, b, cut, width))
        ):
            return True
    return False


@jit
def _is_rotation(tokens, a, b, width, cut):  # type: ignore[no-untyped-def]
    for i in range(width):
        if tokens[a + (i + cut) % width] != tokens[b + i]:
            return False
    return True


@jit
def _may_move(tokens, marks, kinds, start, cut, width):  # type: ignore[no-untyped-def]
    """Whether the first ``cut`` words are an adjunct, and nothing at its edges changes its reach ("only", "not")."""
    first = kinds[start]
    dated = cut == 2 and kinds[start + 1] & DATE != 0
    if not (first & STARTS_ADJUNCT or dated):
        return False
    if (kinds[start + cut - 1] | kinds[start + cut]) & (LIMIT | COORDINATOR) and cut > 1:
        return False
    moved = 0
    for i in range(start, start + cut):
        moved |= kinds[i] & (DATE | TIME)
    if _is_negated_by_order(kinds, start, cut, width):
        return False
    for i in range(start, start + width):
        if kinds[i] & (ORDER | QUESTION):
            return False
        # "Monday Ann, Tuesday Bob": what is left has a day, or the same preposition, of its own.
        if i >= start + cut and (kinds[i] & moved or tokens[i] == tokens[start]):
            return False
    return True


@jit
def _is_negated_by_order(kinds, start, cut, width):  # type: ignore[no-untyped-def]
    """Whether "every day not" may become "not every day": the first part counts, and what is left is negated."""
    counts = negated = False
    for i in range(start, start + cut):
        counts = counts or kinds[i] & QUANTIFIER != 0
    for i in range(start + cut, start + width):
        negated = negated or kinds[i] & NEGATION != 0
    return counts and negated


@jit
def _are_equated(marks, kinds, a, b, cut, width):  # type: ignore[no-untyped-def]
    """Whether "X is the Y" stands against "the Y is X": the same side of the verb is "the ..." in both."""
    x, y = marks[a + cut], marks[b + width - cut]
    if width < 2:
        return False
    if not x & EQUALS or not y & EQUALS or kinds[a + cut] & NEGATION or kinds[b + width - cut] & NEGATION:
        return False
    for i in range(1, width):
        if (i != cut and marks[a + i] & (EQUALS | BOUNDARY)) or kinds[a + i] & (COORDINATOR | QUESTION | LIMIT):
            return False
    return (x & DEFINITE != 0 and _is_definite(marks, b)) or (y & DEFINITE != 0 and _is_definite(marks, a))


@jit
def _is_definite(marks, start):  # type: ignore[no-untyped-def]
    return marks[start] & (DEFINITE | ARTICLE) != 0 or marks[start + 1] & POSSESSIVE != 0


@jit
def _is_time_moved(tokens, marks, kinds, a0, a1, b0, b1, traits):  # type: ignore[no-untyped-def]
    """Whether the day or hour that opens one text stands further back in the other, where languages put it freely."""
    return _is_time_taken_back(tokens, marks, kinds, a0, a1, b0, traits) or _is_time_taken_back(
        tokens, marks, kinds, b0, b1, a0, traits
    )


@jit
def _is_time_taken_back(tokens, marks, kinds, a0, a1, b0, traits):  # type: ignore[no-untyped-def]
    n = a1 - a0
    length = 0
    while length < n and kinds[a0 + length] & (TIMEY | BIT_ADJUNCT):
        length += 1
    if length == 0 or length > n - 2 or not kinds[a0 + length - 1] & TIMEY:
        return False
    if _is_negated_by_order(kinds, a0, length, n):
        return False
    for i in range(a0 + length, a1):
        if kinds[i] & (TIMEY | ORDER) or marks[i] & HARD:
            return False
    skip = 0
    while skip < n - length and tokens[b0 + skip] == tokens[a0 + length + skip]:
        skip += 1
    if skip == 0 or (traits & UNSPACED and not _is_bare_subject(kinds, b0, skip)):
        return False
    for i in range(skip):
        if kinds[b0 + i] & (TURNS | POLARITY):
            return False
    for i in range(length):
        if tokens[b0 + skip + i] != tokens[a0 + i]:
            return False
    for i in range(skip + length, n):
        if tokens[b0 + i] != tokens[a0 + i]:
            return False
    return True


@jit
def _is_bare_subject(kinds, start, length):  # type: ignore[no-untyped-def]
    """Whether these words can be no more than who does it: behind a verb, a day may be part of what is done."""
    if length == 1:
        return True
    return length == 2 and not (kinds[start] | kinds[start + 1]) & (SUBJECT | FUNCTION)


@jit
def _is_list_shuffled(tokens, marks, kinds, a0, a1, b0, b1, prefix, width):  # type: ignore[no-untyped-def]
    """Whether the items of one list ("funk, jazz and bossa nova") stand in another order."""
    a, b = a0 + prefix, b0 + prefix
    if not _is_list_place(tokens, marks, kinds, a0, a1, a, width) or not _is_list_place(
        tokens, marks, kinds, b0, b1, b, width
    ):
        return False
    items = 0
    i = 0
    used = 0
    while i < width:
        length = _item_length(tokens, marks, kinds, a + i, width - i)
        if length == 1 and kinds[a + i] & NUMBER:
            return False
        if length > 0:
            place = _find_item(tokens, marks, kinds, a + i, length, b, width, used)
            if place < 0:
                return False
            used |= 1 << place
            items += 1
        i += length if length > 0 else 1
    return items > 1


@jit
def _is_list_place(tokens, marks, kinds, start, end, a, width):  # type: ignore[no-untyped-def]
    """Whether a list may begin and end here, and no word in it or near it makes the order count."""
    # {"a": 1, "b": 2} is a set of fields; "Point (x, y)" is not.
    framed = marks[a] & COLON != 0 or (a == start and marks[a] & BRACKET != 0)
    if a == start:
        if not (marks[a] & BRACKET and marks[a] & COLON):
            return False
    elif marks[a] & BRACKET or not (marks[a] & NOUN_PHRASE or kinds[a - 1] & (LIST_HEAD | COORDINATOR)):
        return False
    after = a + width
    if after < end and not (marks[after] & BOUNDARY or kinds[after] & JOINS):
        return False
    separators = items = with_article = 0
    for i in range(a, after):
        kind = kinds[i]
        begins = i > a and (marks[i] & COMMA != 0 or kinds[i - 1] & COORDINATOR != 0)
        if kind & COORDINATOR or (begins and marks[i] & COMMA):
            separators += 1
        if not kind & COORDINATOR and kind & FIXED_IN_LIST and not (framed and kind & NUMBER):
            return False
        if begins and not kind & COORDINATOR:
            # "Ana, a nurse, and Ben, a vet" is no list of four.
            with_article += marks[i] & ARTICLE != 0
            items += 1
        if i > a and marks[i] & HARD:
            return False
    if with_article not in (0, items):
        return False
    i = a - 1
    while i >= start:
        if kinds[i] & ORDER or (kinds[i] & COORDINATOR and not marks[a] & COMMA):
            return False
        if marks[i] & HARD:
            break
        i -= 1
    i = after + 1 if after < end and kinds[after] & COORDINATOR else after
    while i < end and not marks[i] & HARD:
        if kinds[i] & (ORDER | COORDINATOR):
            return False
        i += 1
    return separators > 0


@jit
def _item_length(tokens, marks, kinds, start, room):  # type: ignore[no-untyped-def]
    if kinds[start] & COORDINATOR:
        return 0
    length = 1
    while length < room and not marks[start + length] & COMMA and not kinds[start + length] & COORDINATOR:
        length += 1
    return length


@jit
def _find_item(tokens, marks, kinds, item, length, b, width, used):  # type: ignore[no-untyped-def]
    i = 0
    while i < width:
        here = _item_length(tokens, marks, kinds, b + i, width - i)
        if here == length and not used >> i & 1:
            equal = True
            for j in range(length):
                if tokens[item + j] != tokens[b + i + j]:
                    equal = False
            if equal:
                return i
        i += here if here > 0 else 1
    return -1


@jit
def _adds_only(tokens, marks, kinds, start, end, length, traits):  # type: ignore[no-untyped-def]
    """Whether the longer side, after the words of the shorter one, only adds: no "not", "except", "if" or "maybe"."""
    first = start + length
    joint = kinds[first]
    narrowed = disjoint = False
    # "Use tabs" and "... in Makefiles", "likes coffee" and "... in the morning": what is told or liked, only there.
    limited = kinds[start] & VERB != 0
    for i in range(start, first):
        limited = limited or kinds[i] & LIKING == LIKING
        narrowed = narrowed or kinds[i] & NARROWED != 0
        disjoint = disjoint or kinds[i] & NEGATION != 0
    # "The timeout is 30 s" and "... for uploads": a value that is set holds where it is said to hold.
    last = first - 1
    narrowed = narrowed or (kinds[last] & (NUMBER | TIME) != 0 and marks[last] & (EQUALS | COLON) != 0)
    if narrowed:
        if not (marks[first] & HARD or joint & COORDINATOR):
            return False
    elif traits & UNSPACED:
        if not marks[first] & BOUNDARY:
            return False
    elif limited:
        if not (marks[first] & BOUNDARY or joint & COORDINATOR):
            return False
    elif not (marks[first] & BOUNDARY or joint & (JOINS | TIMEY)):
        return False
    if joint & DISJUNCTION and not disjoint:
        return False
    if end - first == 1 and joint & JOINS:
        return False
    for i in range(first, end):
        if kinds[i] & TURNS:
            return False
    return True


@jit
def _supersedes(tokens, marks, kinds, new0, new1, old0, old1, old_traits):  # type: ignore[no-untyped-def]
    """Whether the newer side says that what the older one says has changed.

    It must hold a word of change that the older lacks, and most of what the older says beside its subject. A note many
    times as long speaks of other things, too, and supersedes nothing; nor does one on another ticket.
    """
    old, new = old1 - old0, new1 - new0
    if old < 2 or old > LONGEST_MOVED or new > 2 * old + LONGEST_NEWS:
        return False
    names_another = kinds[old0 + 1] & (NUMBER | BIT_IDENTIFIER) and not marks[old0 + 1] & EQUALS
    if names_another and not _has(tokens, new0, new1, tokens[old0 + 1]):
        return False
    changed = False
    for i in range(new0, new1):
        if kinds[i] & CHANGE and not _has(tokens, old0, old1, tokens[i]):
            changed = True
    content = shared = subjects = 0
    for i in range(old0, old1):
        if kinds[i] & FUNCTION:
            continue
        is_shared = _has(tokens, new0, new1, tokens[i])
        if kinds[i] & SUBJECT:
            subjects += is_shared
            continue
        content += 1
        shared += is_shared
    most = 3 if old_traits & UNSPACED else 2  # a name of two characters is two tokens
    return changed and shared > 0 and shared + subjects > 1 and most * shared >= content


@jit
def _has(tokens, start, end, word):  # type: ignore[no-untyped-def]
    for i in range(start, end):
        if tokens[i] == word:
            return True
    return False


@jit
def _conflicts(tokens, marks, kinds, a0, a1, b0, b1, prefix, suffix):  # type: ignore[no-untyped-def]
    """Whether one slot of an otherwise equal text holds two values, or one side turns the other round."""
    n, m = a1 - a0, b1 - b0
    a_slot, b_slot = n - prefix - suffix, m - prefix - suffix
    shared = prefix + suffix
    if n == m and 2 < n <= LONGEST_MOVED and _same_words(tokens, a0, b0, n):
        return True
    if shared < 1 or a_slot > LONGEST_SLOT or b_slot > LONGEST_SLOT:
        return False
    turned = False
    for i in range(a0 + prefix, a1 - suffix):
        turned = turned or kinds[i] & (NEGATION | POLARITY | MODAL | QUANTIFIER | QUESTION | LIMIT | CONDITION) != 0
    for i in range(b0 + prefix, b1 - suffix):
        turned = turned or kinds[i] & (NEGATION | POLARITY | MODAL | QUANTIFIER | QUESTION | LIMIT | CONDITION) != 0
    if turned:
        return True
    if a_slot == 0 or b_slot == 0:
        return False
    return prefix > 1 or suffix == 0
