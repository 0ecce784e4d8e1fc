"""The error of approximations of softmax attention: Performer against features, Linformer against columns.

    python benchmarks/approximation.py --plot docs/pictures/approximation.png

Four heads of 16 over 512 random positions. Performer: the relative error |A' − A| / |A| of its weights, median over 20
draws of the features, for scores of a standard deviation of 0.25 and of 1. Linformer (scores of deviation 1) has
no such weights: the relative error of its answer, with projections as they are drawn before a training, and after 200
steps of Adam that fit them to these inputs.
"""

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.measure import report

from regard.attention import attend, fast
from regard.attention.kernels import FavorFeatures, Kernel
from regard.attention.normalisers import divide
from regard.attention.shortened import LengthProjection
from regard.pictures.style import origin

LENGTH, WIDTH, DRAWS = 512, 16, 20


def error(y: Tensor, exact: Tensor) -> float:
    return float((y - exact).detach().norm() / exact.norm())


def performer(q: Tensor, k: Tensor, v: Tensor, deviation: float) -> list[dict[str, Any]]:
    exact, rows = attend(q, k, v)[1], []
    for count in (16, 32, 64, 128, 256, 512, 1024):
        row: dict[str, Any] = {"what": f"performer, {deviation:g}", "size": count}
        for orthogonal in (True, False):
            found = []
            for draw in range(DRAWS):
                torch.manual_seed(draw)
                kernel = Kernel(FavorFeatures(WIDTH, count, orthogonal=orthogonal))
                found.append(error(attend(q, k, v, score=kernel, normalise=divide)[1], exact))
            row["orthogonal" if orthogonal else "independent"] = statistics.median(found)
        rows.append(row)
    return rows


def linformer(q: Tensor, k: Tensor, v: Tensor) -> list[dict[str, Any]]:
    exact, rows, line = attend(q, k, v)[0], [], torch.arange(LENGTH)
    for columns in (16, 32, 64, 128, 256):
        torch.manual_seed(0)
        e, f = (LengthProjection(LENGTH, columns) for _ in range(2))
        first = error(fast(q, e(k, line), f(v, line)), exact)
        optimiser = torch.optim.Adam([*e.parameters(), *f.parameters()], 3e-3)
        for _ in range(200):
            optimiser.zero_grad()
            (fast(q, e(k, line), f(v, line)) - exact).square().mean().backward()
            optimiser.step()
        with torch.no_grad():
            fitted = error(fast(q, e(k, line), f(v, line)), exact)
        rows.append({"what": "linformer", "size": columns, "drawn": first, "fitted": fitted})
    return rows


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    sides = figure.subplots(1, 2)
    names = (
        ("Performer's weights", ("performer, 0.25", "performer, 1"), ("orthogonal", "independent"), "features"),
        ("Linformer's answer", ("linformer",), ("drawn", "fitted"), "columns"),
    )
    for axes, (title, kinds, lines, label) in zip(sides, names, strict=True):
        for kind, name in ((kind, name) for kind in kinds for name in lines):
            points = [(row["size"], row[name]) for row in rows if row["what"] == kind]
            more = f", scores of deviation {kind.split()[-1]}" if len(kinds) > 1 else ""
            axes.loglog(*zip(*points, strict=True), marker="o", label=name + more)
        axes.set(title=title, xlabel=label, ylabel="relative error")
        axes.grid(alpha=0.3, which="both")
        axes.legend(fontsize=8, loc="center left" if len(kinds) > 1 else "best")
        sizes = sorted({row["size"] for row in rows if row["what"] in kinds})
        axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.minorticks_off()
    figure.savefig(path, dpi=110, metadata=origin())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plot", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 4, LENGTH, WIDTH) for _ in range(3))
    with torch.no_grad():
        rows = [row for size in (0.25, 1.0) for row in performer(q * size**0.5, k * size**0.5, v, size)]
    rows += linformer(q, k, v)
    report("approximation", rows)
    if given.plot:
        plot(rows, given.plot)


if __name__ == "__main__":
    main()
