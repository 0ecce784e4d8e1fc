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
    shown = [each for each in series if not _row(facts, each.name)["excluded"]]
    several = any(len(each.measures) > 1 for each in shown)
    name, over = facts["metric"]["label"], ", range over seeds" * several
    for drawn, file, title in (
        *_learning(facts, shown, f"{name} against {{}}{over}"),
        *_speed(facts, f"{name} against speed{', ± standard deviation' * several}"),
        *_by(facts, shown, f"{name} against {{}}{over}"),
    ):
        pictures.save(drawn, folder / file)
        yield file, title


Drawn = Iterator[tuple[Figure, str, str]]  # with the name of its file, and its title


def _learning(facts: Facts, shown: Sequence[Series], title: str) -> Drawn:
    """Draw learning curves along steps and along time."""
    for along, file, what in (("step", "steps.png", "steps"), ("minutes", "time.png", "minutes of training")):
        found = _curves(shown, facts["metric"]["name"], along)
        if found is None:
            return
        x, lines, bands = found
        if along == "minutes" and x[-1] < 1:
            x, what = 60 * x, "seconds of training"
        said = title.format(what)
        yield _beside(pictures.curves(x, lines, what, _label(facts), bands=bands, title=said)), file, said


def _speed(facts: Facts, title: str) -> Drawn:
    """Draw quality against speed."""
    fast = [
        Point(row["name"], row["costs"]["answers_per_second"], row["quality"], row["sd"] or 0.0, hollow=row["simple"])
        for row in facts["rows"]
        if row["quality"] is not None and not row["excluded"] and row["costs"].get("answers_per_second")
    ]
    if len(fast) > 1:
        yield scatter(fast, "answers a second", _label(facts), title=title), "speed.png", title


def _by(facts: Facts, shown: Sequence[Series], title: str) -> Drawn:
    """Draw quality against the length of the items, and against the amount of data."""
    for key, what in (("lengths", "length"), ("sizes", "examples to train on")):
        x = np.array(facts[key], dtype=np.float64)
        if not len(x) or not shown:
            continue
        lines, bands = _spread({each.name: _values(each, key) for each in shown})
        said = title.format(what)
        figure = _beside(pictures.curves(x, lines, what, _label(facts), bands=bands, title=said))
        figure.axes[0].set_xscale("log", base=2 if key == "lengths" else 10)
        figure.axes[0].set_xticks(x, [f"{value:,.0f}" for value in x])
        figure.axes[0].minorticks_off()
        yield figure, f"{key}.png", said


def _label(facts: Facts) -> str:
    metric = facts["metric"]
    return f"{metric['label']} ({metric['unit']})" if metric["unit"] else str(metric["label"])


def _beside(figure: Figure) -> Figure:
    """Return the figure with its legend beside it: among many lines there is no room."""
    figure.axes[0].legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=SMALL_SIZE, frameon=False)
    return figure


def _row(facts: Facts, name: str) -> Facts:
    found: Facts = next(row for row in facts["rows"] if row["name"] == name)
    return found


Lines = dict[str, NDArray[np.float64]]
Bands = dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]


def _values(series: Series, key: str) -> NDArray[np.float64]:
    """Return the quality with each seed, (seeds, lengths or amounts of data)."""
    if key == "lengths":
        return np.array([[*each["lengths"].values()] for each in series.measures], dtype=np.float64)
    return np.array([[each["quality"] for each in some] for some in series.by_size.values()], dtype=np.float64).T


def _spread(found: Lines) -> tuple[Lines, Bands]:
    """Return the mean over the seeds, which come first, and their range."""
    lines = {name: values.mean(0) for name, values in found.items()}
    return lines, {name: (values.min(0), values.max(0)) for name, values in found.items()}


def _curves(series: Sequence[Series], metric: str, along: str) -> tuple[NDArray[np.float64], Lines, Bands] | None:
    """Return the mean score of each variant along steps or minutes, and its range over the seeds.

    Seeds are joined at equal shares of their training, for they take different times; between two validations a curve
    is a straight line.
    """
    curves = {each.name: [_curve(one["history"], metric, along) for one in each.measures] for each in series}
    curves = {name: some for name, some in curves.items() if all(len(one) > 1 for one in some)}
    if not curves:
        return None
    ways: Lines = {}
    found: Lines = {}
    for name, some in curves.items():
        shares = np.linspace(max(one[0, 0] for one in some), min(one[-1, 0] for one in some), POINTS)
        ways[name], found[name] = (
            np.array([np.interp(shares, one[:, 0], one[:, column]) for one in some]) for column in (1, 2)
        )
    x = np.linspace(0, max(way.mean(0)[-1] for way in ways.values()), POINTS)

    def laid(name: str, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.interp(x, ways[name].mean(0), values, left=np.nan, right=np.nan)

    lines, bands = _spread(found)
    return (
        x,
        {name: laid(name, values) for name, values in lines.items()},
        {name: (laid(name, low), laid(name, high)) for name, (low, high) in bands.items()},
    )


def _curve(history: Sequence[Facts], metric: str, along: str) -> NDArray[np.float64]:
    """Return the share of the training, steps or minutes, and the score of each validation."""
    points = [(entry["step"], entry[along], entry[metric]) for entry in history if metric in entry]
    found = np.array(points, dtype=np.float64).reshape(-1, 3)
    found[:, 0] /= max((entry["step"] for entry in history), default=1)
    return found
