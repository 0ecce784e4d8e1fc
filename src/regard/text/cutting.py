"""Texts without some of their tokens: where each token stands in a text, and the text without it."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

BLANKS = ("▁", "␣")  # signs of a blank in tokens


def places(names: Sequence[str], text: str) -> list[tuple[int, int] | None]:
    """Return where each of the tokens of a text begins and ends in it, one after the other; None for one that is not
    written there as it is called, such as an unknown one."""
    lowered = text.lower()
    where = lowered if len(lowered) == len(text) else text
    found: list[tuple[int, int] | None] = []
    at = 0
    for name in names:
        bare = name if name in BLANKS else name.strip("".join(BLANKS))
        bare = " " if bare in BLANKS else bare
        start = where.find(bare, at) if bare else -1
        if start < 0:
            start = where.find(bare.lower(), at) if bare else -1
        found.append(None if start < 0 else (start, start + len(bare)))
        at = at if start < 0 else start + len(bare)
    return found


def composed(text: str) -> str:
    """Return a text in the form in which tokens are found in it."""
    return unicodedata.normalize("NFC", text)


def without(text: str, start: int, end: int) -> str:
    """Return a text without a part of it; of two blanks that meet one stays."""
    before, after = text[:start], text[end:]
    if start < end and not text[start:end].isspace() and (not before or before[-1].isspace()):
        after = after[1:] if after[:1] == " " else after
        if not after:
            before = before.rstrip(" ")
    return before + after
