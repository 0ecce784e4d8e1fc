"""Labels of stretches of time: Praat's TextGrid, and files of `start end label`, as labels of frames."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from regard.data.sound import HOP
from regard.data.tagged import NO_BREAK
from regard.errors import UserError

SILENCE = "sil"  # of an interval without a text
UNLABELLED = "∅"  # of a frame that no interval covers: it counts neither in the loss nor in a metric
TOKEN = re.compile(r'"(?:[^"]|"")*"|<exists>|<absent>|[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?')
PHONES = re.compile(r"phon|segm|mau|kan-mau", re.IGNORECASE)  # names of a tier of phonemes
NUMBER = re.compile(r"[-+]?\d+(\.\d+)?([eE][-+]?\d+)?")


class Interval(NamedTuple):
    """A label from `start` to `end` seconds."""

    start: float
    end: float
    label: str


def decoded(content: bytes) -> str:
    """Return the text of a label file: UTF-8, or UTF-16 as Praat writes it."""
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return content.decode("utf-16", "replace")
    return content.decode("utf-8-sig", "replace")


def textgrid(text: str, where: str) -> dict[str, list[Interval]]:
    """Return the interval tiers of a TextGrid, in its long or its short form, by their names."""
    tokens = TOKEN.findall(re.sub(r"\[\d*\]", "", text))
    if tokens[:2] != ['"ooTextFile"', '"TextGrid"'] or "<exists>" not in tokens[:6]:
        raise UserError(f'{where} is not a TextGrid: expected `File type = "ooTextFile"` and tiers.')
    at = tokens.index("<exists>") + 2
    tiers: dict[str, list[Interval]] = {}
    try:
        while at < len(tokens):
            kind, name, count = tokens[at], _text(tokens[at + 1]), int(tokens[at + 4])
            at, each = at + 5, 3 if kind == '"IntervalTier"' else 2
            if kind not in ('"IntervalTier"', '"TextTier"') or not 0 <= each * count <= len(tokens) - at:
                raise ValueError(f"{kind} of {count}")
            rows = [tokens[at + each * i : at + each * (i + 1)] for i in range(count)]
            if each == 3:
                tiers[name] = [Interval(float(a), float(b), _text(label).strip()) for a, b, label in rows]
            at += each * count
    except (ValueError, IndexError) as error:
        raise UserError(f"{where} is a damaged TextGrid: it breaks off or mixes up its tiers near {error}.") from error
    if not tiers:
        raise UserError(f"{where} has no tier of intervals, expected one with the labels.")
    return tiers


def _text(token: str) -> str:
    if not token.startswith('"'):
        raise ValueError(token)
    return token[1:-1].replace('""', '"')


def chosen_tier(tiers: dict[str, list[Interval]]) -> str:
    """Return the name of the tier that is learned: one that is called phones, else the one with the most intervals."""
    return next((name for name in tiers if PHONES.search(name)), max(tiers, key=lambda name: len(tiers[name])))


def is_labels(text: str) -> bool:
    """Return True if the lines of a text are `start end label`."""
    lines = [line.split(maxsplit=2) for line in text.splitlines() if line.strip()]
    return len(lines) > 0 and all(len(p) >= 2 and all(map(NUMBER.fullmatch, p[:2])) for p in lines)


def label_lines(text: str, where: str, rate: int, duration: float) -> list[Interval]:
    """Return the intervals of lines `start end label`: seconds, or samples where the last number says so (TIMIT)."""
    found: list[Interval] = []
    for number, line in enumerate(text.splitlines(), 1):
        parts = line.split(maxsplit=2)
        if not parts:
            continue
        if len(parts) < 2 or not all(map(NUMBER.fullmatch, parts[:2])):
            raise UserError(f"{where}:{number}: expected `start end label`, found {line[:40]!r}.")
        found.append(Interval(float(parts[0]), float(parts[1]), parts[2].strip() if len(parts) > 2 else ""))
    last = max((one.end for one in found), default=0.0)
    whole = all(one.start.is_integer() and one.end.is_integer() for one in found)
    unit = rate if whole and last > 2 * duration + 1 else 10**7 if whole and last > 10 * rate * duration else 1
    return [Interval(a / unit, b / unit, label) for a, b, label in found]


def intervals_of(content: bytes, where: str, rate: int, duration: float) -> list[Interval]:
    """Return the labelled intervals of a file, in order; refuse what runs backwards or overlaps."""
    text = decoded(content)
    if "ooTextFile" in text[:200]:
        tiers = textgrid(text, where)
        found = tiers[chosen_tier(tiers)]
    else:
        found = label_lines(text, where, rate, duration)
    before = 0.0
    for one in found:
        if one.end < one.start or one.start < before - 1e-3:
            raise UserError(f"{where}: the interval {one.label!r} from {one.start:g} to {one.end:g} s runs backwards.")
        before = one.end
    if before > duration + 0.1 + 0.02 * duration:
        raise UserError(f"{where}: labels end at {before:.2f} s, but the recording has {duration:.2f} s.")
    return found


def tags_of(found: Sequence[Interval], count: int) -> str:
    """Return the label of each frame, by its middle; UNLABELLED where there is none."""
    middles = (np.arange(count) + 0.5) * HOP
    tags = np.full(count, UNLABELLED, dtype=object)
    for start, end, label in found:
        tags[(middles >= start) & (middles < end)] = NO_BREAK.join(label.split()) or SILENCE
    return " ".join(tags)
