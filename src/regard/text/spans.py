"""Tags that mark spans: B-person I-person O and its relatives.

A span tag is O, outside of any span, or a prefix and a type with a hyphen or underscore between them. The prefixes are
those of IOB, BIOES, BILOU and BMEWO; the last two are BIOES with other letters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

OUTSIDE = "O"
PATTERN = re.compile(r"([BIESLUMW])(?:[-_](.*))?", re.DOTALL)
BIOES = {"L": "E", "U": "S", "W": "S", "M": "I"}  # the prefix of BIOES for that of BILOU and BMEWO


class SpanTag(NamedTuple):
    """The parts of a tag: its prefix in BIOES (O for what is in no span), and the type of its span."""

    prefix: str
    type: str


def parse_span_tag(tag: str) -> SpanTag:
    """Return the parts of a tag: B-creative-work is B and creative-work; what marks no span is O."""
    match = PATTERN.fullmatch(tag)
    return SpanTag(BIOES.get(match[1], match[1]), match[2] or "") if match else SpanTag(OUTSIDE, "")


def is_span_tag(tag: str) -> bool:
    """Return True for O, and for a prefix with a type."""
    return tag == OUTSIDE or parse_span_tag(tag).type != ""


def are_span_tags(tags: Iterable[str]) -> bool:
    """Return True if all tags are span tags, and at least one of them is not O."""
    distinct = set(tags)
    return bool(distinct - {OUTSIDE}) and all(map(is_span_tag, distinct))
