"""Ordinary texts cut into tokens without scanning them: each word between two spaces is scanned once and looked up."""

from __future__ import annotations

import regex

from memfold.memo import Memo
from memfold.tokens import ABBREVIATED, BOUNDARY, CAPITAL, CASE_IN_UNIT, COLON, HARD, SECRETS, STOP, Token, plain, scan

# One word, number, date or hour, maybe in brackets or quotes. Nothing here reaches over a space, looks further back
# than one character, or depends on the mark that it ends with. "5 h 30" and "15:00:" would; so would Greek, where a
# semicolon asks.
_ORDINARY = regex.compile(
    r"""(?!h\b)(?P<core>[("']?
    (?: [\p{L}--\p{Greek}][[\p{L}\p{M}]--\p{Greek}]* (?:['-][\p{L}--\p{Greek}][[\p{L}\p{M}]--\p{Greek}]*)*
    | \d{1,9} | \d+[.,]\d+ | \d{4}-\d\d-\d\d | \d{1,2}:\d\d(?!:) )
    ["']?)(?P<ending>[,.;:!)]?)""",
    regex.VERBOSE | regex.VERSION1,
)


def scan_pieces(text: str) -> list[Token] | None:
    """The tokens of an ordinary text, as ``scan(plain(text))`` gives them; None for a text that has to be scanned."""
    if text.isupper() or text.istitle():  # here capitals say nothing
        return None
    tokens = []
    pieces = _AT_START
    for piece in text.split(" "):
        found = pieces[piece]
        if found is None:
            return None
        token, pieces = found
        tokens.append(token)
    return tokens


class _Pieces(Memo[str, "tuple[Token, _Pieces] | None"]):
    """The token of each piece that has one of the same marks in front of it, and the pieces that may follow it."""

    def __init__(self, ending: str, *, starts: bool = False) -> None:
        super().__init__(self._read)
        self._ending = ending
        self._starts = starts

    def _read(self, piece: str) -> tuple[Token, _Pieces] | None:
        match = _ORDINARY.fullmatch(piece)
        words = match and _words[match["core"]]
        if not match or not words:
            return None
        inside, leading = words
        marks = leading if self._starts else leading | _MARKS_OF[self._ending]
        starts = self._starts or marks & (HARD | COLON)
        capital = (leading if starts else inside.marks) & CAPITAL
        token = Token(inside.word, inside.kind, marks & BOUNDARY | capital)
        ending = match["ending"]
        if token.word in ABBREVIATED and _MARKS_OF[ending] & STOP:
            ending = ""
        return token, _BEHIND[ending]


def _word(core: str) -> tuple[Token, int] | None:
    """A word as a token inside a sentence, and its marks at the start of a text; None if it is not ordinary."""
    if core.isascii():
        if core.isdigit():
            return Token(core, "number", 0), 0
        if _LETTERS.fullmatch(core) and core not in CASE_IN_UNIT and (small := core.lower()) not in SECRETS:
            return Token(small, "word", 0 if small == core else CAPITAL), 0
    if plain(core) != core:
        return None
    tokens = scan(f"{core} xx {core} xx")
    if len(tokens) != 4 or tokens[0].word in SECRETS:  # a password's case counts
        return None
    return tokens[2], tokens[0].marks


_words = Memo(_word)
# What the scanner makes of these needs no scanner: a capital in front is a name inside a sentence, and nothing else.
_LETTERS = regex.compile("[A-Za-z][a-z]+")


def _marks_of(ending: str) -> int:
    return scan(f"xx{ending} xx")[1].marks


_MARKS_OF = {ending: _marks_of(ending) for ending in ("", *",.;:!)")}
_BEHIND = {ending: _Pieces(ending) for ending in _MARKS_OF}
_AT_START = _Pieces("", starts=True)
