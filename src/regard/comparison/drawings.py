"""The pictures of a comparison: learning curves with their spread, quality against speed, length and amount of data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from regard import pictures
from regard.comparison.table import Series
from regard.pictures.points import Point, scatter
from regard.pictures.style import SMALL_SIZE

POINTS = 600  # places along a learning curve: a few would be marked, as if they had been measured
Facts = dict[str, Any]


def draw(facts: Facts, series: Sequence[Series], folder: Path) -> Iterator[tuple[str, str]]:
    """Draw all pictures that make sense; yield the name and the description of each."""
    if facts["metric"] is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    label = facts["metric"]["label"]
    shown = [each for each in series if not _row(facts, each.name)["excluded"]]
    for along, name, what in (("step", "steps.png", "steps"), ("minutes", "time.png", "minutes of training")):
        drawn = _curves(shown, facts["metric"]["name"], along)
        if drawn is not None:
            x, lines, bands = drawn
            title = f"{label} against {what}, with the range over seeds"
            pictures.save(_beside(pictures.curves(x, lines, what, label, bands=bands, title=title)), folder / name)
            yield name, title
    fast = [
        Point(row["name"], row["costs"]["answers_per_second"], row["quality"], row["sd"] or 0.0, hollow=row["simple"])
        for row in facts["rows"]
        if row["quality"] is not None and not row["excluded"] and row["costs"].get("answers_per_second")
    ]
    if len(fast) > 1:
        title = f"{label} against speed"
        pictures.save(scatter(fast, "answers a second", label, title=title), folder / "speed.png")
        yield "speed.png", title
    for key, what in (("lengths", "length"), ("sizes", "examples to train on")):
        rows = [row for row in facts["rows"] if row[key] and not row["excluded"]]
        if not rows:
            continue
        x = np.array([float(value) for value in rows[0][key]])
        lines = {row["name"]: _values(row[key]) for row in rows}
        title = f"{label} against {what}"
        figure = _beside(pictures.curves(x, lines, what, label, title=title))
        figure.axes[0].set_xscale("log", base=2 if key == "lengths" else 10)
        figure.axes[0].set_xticks(x, [f"{value:,.0f}" for value in x])
        figure.axes[0].minorticks_off()
        pictures.save(figure, folder / f"{key}.png")
        yield f"{key}.png", title


def _beside(figure: Figure) -> Figure:
    """Return the figure with its legend beside it: among many lines there is no room."""
    figure.axes[0].legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=SMALL_SIZE, frameon=False)
    return figure


def _row(facts: Facts, name: str) -> Facts:
    found: Facts = next(row for row in facts["rows"] if row["name"] == name)
    return found


def _values(found: dict[str, Any]) -> NDArray[np.float64]:
    plain = (value["quality"] if isinstance(value, dict) else value for value in found.values())
    return np.array([np.nan if value is None else value for value in plain], dtype=np.float64)


Lines = dict[str, NDArray[np.float64]]


def _curves(
    series: Sequence[Series], metric: str, along: str
) -> tuple[NDArray[np.float64], Lines, dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]] | None:
    """Return the mean score of each variant along steps or minutes, and its range over the seeds; between two
    validations it is a straight line."""

    def points(one: dict[str, Any]) -> list[tuple[float, float]]:
        return [(entry[along], entry[metric]) for entry in one["history"] if metric in entry]

    curves = {each.name: [points(one) for one in each.measures] for each in series}
    curves = {name: some for name, some in curves.items() if all(len(one) > 1 for one in some)}
    if not curves:
        return None
    last = max(one[-1][0] for some in curves.values() for one in some)
    x = np.linspace(0, last, POINTS)
    lines: Lines = {}
    bands = {}
    for name, some in curves.items():
        found = np.array(
            [
                np.interp(x, [at for at, _ in one], [score for _, score in one], left=np.nan, right=np.nan)
                for one in some
            ]
        )
        lines[name] = found.mean(0)
        bands[name] = (found.min(0), found.max(0))
    return x, lines, bands
