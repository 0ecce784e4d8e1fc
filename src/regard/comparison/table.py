"""From the measures of all cells to rows: means, spreads, verdicts, and how far each row misses what is held equal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean, median, stdev
from typing import Any

import numpy as np

from regard.comparison.verdicts import BETTER, OPEN, Quality, Verdict, judged
from regard.runs.model import SAME

Measures = dict[str, Any]
COSTS = (
    "parameters", "flops", "step_flops", "step_seconds", "tokens_per_second", "peak_memory", "answers_per_second",
    "seconds_per_answer", "minutes", "steps",
)  # fmt: skip  # columns that are medians over the seeds


@dataclass
class Row:
    """One variant, or a baseline, over all seeds."""

    name: str
    simple: bool
    each: list[float]  # quality with each seed
    quality: float | None
    sd: float | None
    verdict: Verdict | None
    costs: dict[str, float | None] = field(default_factory=dict)
    speeds: list[float] = field(default_factory=list)  # answers a second with each seed
    misses: dict[str, float] = field(default_factory=dict)  # share by which it is above the baseline
    lengths: dict[str, float | None] = field(default_factory=dict)
    sizes: dict[str, dict[str, float | None]] = field(default_factory=dict)
    wishes: dict[str, Any] | None = None  # that its positions fulfil
    excluded: str | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Series:
    """The measures of one variant, seed by seed; of all its amounts of data where there are several."""

    name: str
    simple: bool
    measures: Sequence[Measures]
    by_size: dict[int, Sequence[Measures]]


def rows_of(series: Sequence[Series]) -> list[Row]:
    """Return a row for each variant, the baseline first, and one for what looks at no source."""
    rows = [_row(each, series[0]) for each in series]
    guess = _guess(series[0])
    if guess is not None:
        rows.append(guess)
    for row in rows:
        for name in ("parameters", "step_flops", "flops", "steps", "minutes"):
            own, other = row.costs.get(name), rows[0].costs.get(name)
            if own is not None and other:
                row.misses[name] = own / other - 1
    return rows


def _row(own: Series, baseline: Series) -> Row:
    found = [each["quality"] for each in own.measures]
    known = [value for value in found if value is not None]
    verdict, excluded = None, failed(own.measures)
    comparable = excluded is None and failed(baseline.measures) is None  # who fails is not trained with all seeds
    if own is not baseline and comparable and len(known) == len(found) and known:
        verdict = judged(_qualities(own.measures), _qualities(baseline.measures), higher_is_better=higher(baseline))
    row = Row(own.name, own.simple, known, _mean(known), _spread(known), verdict, _costs(own.measures))
    row.speeds = [each["answers_per_second"] for each in own.measures]
    row.lengths = {length: _mean_of(own.measures, length) for length in own.measures[0]["lengths"]}
    for size, measures in own.by_size.items():
        values = [each["quality"] for each in measures if each["quality"] is not None]
        row.sizes[str(size)] = {"quality": _mean(values), "sd": _spread(values)}
    row.excluded = excluded
    return row


def failed(measures: Sequence[Measures]) -> str | None:
    """Return the check that a variant fails: what sees the future or the padding is not compared."""
    for each in measures:
        for name, difference in each["checks"]:
            if not difference < SAME:
                return f"{name}: violated by {difference:.1e}"
    return None


def higher(series: Series) -> bool:
    scores = series.measures[0]["scores"]
    return bool(scores[0]["higher_is_better"]) if scores else True


def _guess(baseline: Series) -> Row | None:
    """Return the row of the baseline that looks at no source."""
    simple = [each["simple"] for each in baseline.measures]
    if not simple or any(each is None for each in simple):
        return None
    values = [each["quality"] for each in simple]
    verdict = judged(_qualities(simple), _qualities(baseline.measures), higher_is_better=higher(baseline))
    return Row(simple[0]["name"], True, values, _mean(values), _spread(values), verdict)


def _qualities(measures: Sequence[Measures]) -> list[Quality]:
    return [Quality(each["quality"], np.asarray(each["draws"], dtype=np.float64)) for each in measures]


def _costs(measures: Sequence[Measures]) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for name in COSTS:
        values = [each[name] for each in measures if each.get(name) is not None]
        found[name] = median(values) if values else None
    return found


def _mean_of(measures: Sequence[Measures], length: str) -> float | None:
    values = [each["lengths"].get(length) for each in measures]
    return None if any(value is None for value in values) else fmean(values)


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def _spread(values: Sequence[float]) -> float | None:
    return stdev(values) if len(values) > 1 else None


def conclusion(rows: Sequence[Row], label: str) -> str:
    """Return the result in one sentence: what is better or worse than the baseline, by how much and at what cost."""
    base = rows[0]
    found = [(row, row.verdict) for row in rows if row.verdict is not None and row.excluded is None]
    if not found or base.excluded:
        why = "it failed a check" if base.excluded else "there is no metric, or no other variant is left"
        return f"Nothing can be compared with {base.name}: {why}."
    variants = [(row, verdict) for row, verdict in found if not row.simple]
    told = [
        f"{row.name} is {abs(verdict.difference):.3g} {verdict.word}{_faster(row, base)}"
        for row, verdict in sorted(variants, key=lambda one: one[1].word != BETTER)
        if verdict.word != OPEN
    ]
    alike = [row.name for row, verdict in variants if verdict.word == OPEN]
    parts = [f"In {label}, compared with {base.name}: {', '.join(told)}"] if told else []
    if alike:
        parts.append(f"{_listed(alike)} cannot be told apart from {base.name} in {label}")
    beaten = [row.name for row, verdict in found if row.simple and verdict.word == BETTER]
    parts += [f"the simple baseline {name} beats {base.name}" for name in beaten]
    return "; ".join(parts) + "."


def concluded(facts: dict[str, Any]) -> str:
    """Return the conclusion of a comparison that was kept as JSON, in today's words."""
    rows = [Row(**row | {"verdict": row["verdict"] and Verdict(**row["verdict"])}) for row in facts["rows"]]
    return conclusion(rows, facts["metric"]["label"] if facts["metric"] else "quality")


def _listed(names: Sequence[str]) -> str:
    """Return names with commas and an `and` before the last."""
    return " and ".join([*([", ".join(names[:-1])] if names[:-1] else []), names[-1]])


def _faster(row: Row, base: Row) -> str:
    """Say so if it is faster or slower with every seed: a moment of other work on the machine is no property of it."""
    own, other = row.speeds, base.speeds
    if not own or not other or (min(own) <= max(other) and min(other) <= max(own)):
        return ""
    ratio = median(own) / median(other)
    if 0.8 < ratio < 1.25:
        return ""
    return f" and answers {ratio:.1f}× as fast" if ratio > 1 else f" and answers {1 / ratio:.1f}× as slowly"
