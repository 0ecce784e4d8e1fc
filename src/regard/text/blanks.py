"""Texts with blanks: `The ___ sat on the [MASK]` as tokens of which some are to be found."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from regard.errors import UserError
from regard.text.labels import FIRST
from regard.text.tokenizer import SPACE, STANDING, SUB_WORDS, UNKNOWN, Tokenizer

BLANK = re.compile(r"_{3,}|\[MASK\]")
SHOWN = "___"


@dataclass(frozen=True)
class Blanked:
    """A text in tokens, some of which are to be found."""

    given: str  # as it was written
    text: str
    ids: list[int]
    pieces: list[str]  # the tokens as one would show them
    groups: list[int]  # the number of the word that each belongs to
    blanks: list[int]  # places of the tokens to be found, in order
    sizes: list[int]  # how many of them each blank of the text has

    def begins(self, place: int) -> bool:
        """Return True if this token is the first of its word."""
        return place == 0 or self.groups[place - 1] != self.groups[place]

    def filled(self, found: Sequence[str]) -> str:
        """The text with what was found in place of its blanks."""
        parts, sizes = iter(found), iter(self.sizes)
        return BLANK.sub(lambda _: "".join(next(parts) for _ in range(next(sizes))), self.text)


def parse(text: str, vocabulary: Tokenizer, mask: int) -> Blanked:
    """The tokens of a text, `mask` for each that is to be found.

    A blank is one token, and blanks that touch are one word of several. At the level of characters each _ is one.
    """
    given, text = text, " ".join(text.replace(STANDING, " ").split())
    each = vocabulary.level == "characters"
    sizes = [len(blank) if each and blank[0] == "_" else 1 for blank in BLANK.findall(text)]
    left = iter(sizes)
    tokens = list(_tokens(BLANK.sub(lambda _: STANDING * next(left), text), vocabulary))
    ids = [id if piece != SHOWN else mask for id, piece, _ in tokens]
    groups = [group for _, _, group in tokens]
    blanks = [place for place, (_, piece, _) in enumerate(tokens) if piece == SHOWN]
    found = Blanked(given, text, ids, [], groups, blanks, sizes)
    for place, (_, piece, _) in enumerate(tokens):
        space = SPACE if vocabulary.level in SUB_WORDS and piece == SHOWN and found.begins(place) else ""
        found.pieces.append("_" if each and piece == SHOWN else space + piece)
    return found


def _tokens(text: str, vocabulary: Tokenizer) -> Iterator[tuple[int, str, int]]:
    """Id, piece and word of each token; the piece is SHOWN for what stands for a blank."""
    rows = list(zip(vocabulary.encode(text), vocabulary.pieces(text), vocabulary.groups(text), strict=True))
    for number, (id, piece, group) in enumerate(rows):
        if STANDING not in piece:
            if piece != SPACE or STANDING not in "".join(
                following for _, following, _ in rows[number + 1 : number + 2]
            ):
                yield id, piece, group
            continue  # a space before a blank is part of what will stand there
        if vocabulary.level not in (*SUB_WORDS, "characters") and piece != STANDING:
            raise UserError(
                f"The blank in {piece.replace(STANDING, SHOWN)!r} is a part of a word, but this model knows only whole "
                "words: put spaces around it."
            )
        for character in piece.removeprefix(SPACE):  # unknown characters beside it may have become one token with it
            yield (UNKNOWN, SHOWN if character == STANDING else character, group)


class Candidates:
    """Tokens that may stand in a blank: none that is special; sub-words that begin a word, or go on with it."""

    def __init__(self, vocabulary: Tokenizer) -> None:
        pieces = vocabulary.pieces_of(range(FIRST, vocabulary.size))
        self.texts = [""] * FIRST + [_written(piece, vocabulary.level) for piece in pieces]
        usable = torch.tensor([bool(text) for text in self.texts])
        self.first = self.later = usable
        if vocabulary.level in SUB_WORDS:
            begins = torch.tensor([False] * FIRST + [piece.startswith(SPACE) for piece in pieces])
            self.first, self.later = (part if part.any() else usable for part in (usable & begins, usable & ~begins))

    def at(self, row: Blanked, place: int) -> torch.Tensor:
        """Return True for each token that may stand at this place."""
        return self.first if row.begins(place) else self.later


def _written(piece: str, level: str) -> str:
    """A piece as it stands in a text."""
    if level == "characters":
        return " " if piece == "␣" else piece
    return piece.removeprefix(SPACE) if level in SUB_WORDS else piece
