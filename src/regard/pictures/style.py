"""The one look of all pictures, and the one way to write them to a file."""

import io
import os
import shlex
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import Colormap, ListedColormap
from matplotlib.figure import Figure
from matplotlib.typing import RcKeyType

from regard import __version__
from regard.errors import UserError

INK = "#1b2330"
FAINT = "#d5dae1"
ACCENT = "#2f62b5"
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")  # Okabe and Ito (2008)
DIVERGING = "RdBu_r"
PAD = 0.14  # inches around everything
TITLE_SIZE = 12.0
LABEL_SIZE = 11.0
SMALL_SIZE = 9.0
LONGEST = 1000  # letters of the command that a picture carries

STYLE: dict[RcKeyType, object] = {
    "font.family": ["DejaVu Sans"],
    "font.size": 10.0,
    "text.color": INK,
    "text.parse_math": False,  # a token may hold dollar signs
    "text.usetex": False,
    "axes.titlesize": TITLE_SIZE,
    "axes.titlepad": 10.0,
    "axes.labelsize": 10.0,
    "axes.labelcolor": INK,
    "axes.edgecolor": "#8a94a3",
    "axes.linewidth": 0.8,
    "axes.facecolor": "white",
    "axes.spines.top": True,
    "axes.spines.right": True,
    "figure.facecolor": "white",
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": SMALL_SIZE,
    "ytick.labelsize": SMALL_SIZE,
    "legend.frameon": False,
    "legend.fontsize": SMALL_SIZE,
    "grid.color": FAINT,
    "grid.linewidth": 0.7,
    "lines.linewidth": 1.8,
    "savefig.dpi": 144,
    "svg.fonttype": "path",  # shaped outlines: the reader needs none of our fonts
    "svg.hashsalt": "regard",  # the same figure gives the same file
}


def _ramp() -> ListedColormap:
    """Return white to dark blue with even steps of lightness in Oklab (Ottosson 2020), so that equal differences of
    weight look equal, in colour, in grey and to colour-blind eyes."""
    step = np.linspace(0.0, 1.0, 256)
    lightness = 0.995 - 0.715 * step
    chroma = 0.125 * np.sin(np.pi * step**0.9) ** 0.9 + 0.05 * step
    hue = np.deg2rad(250.0 + 14.0 * step)
    a, b = chroma * np.cos(hue), chroma * np.sin(hue)
    cone = np.stack(
        [
            lightness + 0.3963377774 * a + 0.2158037573 * b,
            lightness - 0.1055613458 * a - 0.0638541728 * b,
            lightness - 0.0894841775 * a - 1.2914855480 * b,
        ]
    )
    to_linear = np.array(
        [
            [4.0767416621, -3.3077115913, 0.2309699292],
            [-1.2684380046, 2.6097574011, -0.3413193965],
            [-0.0041960863, -0.7034186147, 1.7076147010],
        ]
    )
    linear = np.clip(to_linear @ cone**3, 0.0, 1.0)
    curved = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    return ListedColormap(curved.T, name="regard")


RAMP = _ramp()
COLOURS = {"regard": RAMP, "lecture": colormaps["gray"]}  # white to dark blue; black to white: white is large
_COLOURS: ContextVar[str] = ContextVar("colours", default="regard")


def ramp() -> Colormap:
    """Return the colours of weights, from the least to the largest."""
    return COLOURS[_COLOURS.get()]


@contextmanager
def coloured(name: str) -> Iterator[None]:
    """Draw weights in other colours: "regard", where dark is large, or "lecture", where white is large."""
    if name not in COLOURS:
        raise UserError(f"--colours {name}: expected one of {', '.join(COLOURS)}.")
    token = _COLOURS.set(name)
    try:
        yield
    finally:
        _COLOURS.reset(token)


def legible(ground: Iterable[float]) -> str:
    """Return the colour of letters that can be read on a background (red, green, blue, …)."""
    return "white" if sum(part * share for part, share in zip(ground, (0.3, 0.59, 0.11), strict=False)) < 0.55 else INK


@contextmanager
def quiet() -> Iterator[None]:
    """Silence matplotlib's warning for each missing glyph: `fonts.families` warns once, with the remedy."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


class Picture(Figure):
    """A figure that notebooks display, also without pyplot and its backends."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        with rc_context(STYLE), quiet():
            self.savefig(buffer, format="png")
        return buffer.getvalue()


@rc_context(STYLE)
def new_figure(width: float, height: float) -> Picture:
    """Return an empty figure in inches with its own canvas, outside pyplot: nothing global keeps it alive."""
    figure = Picture(figsize=(width, height))
    FigureCanvasAgg(figure)
    return figure


def origin() -> dict[str, str]:
    """Return what a picture carries as metadata: the version that drew it, and the command or the script's name.

    An absolute path is cut to its last name: a picture that is passed on says nothing about a home folder.
    """
    script, *arguments = sys.argv or [""]
    short = [os.path.basename(word) if os.path.isabs(word) else word for word in (script, *arguments)]
    if os.path.basename(script) in ("regard", "__main__.py"):
        command = shlex.join(["regard", *short[1:]])
    else:
        command = short[0] if short[0] not in ("", "-c") else "python"
    plain = "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in command)  # as XML must be
    return {"Software": f"Regard {__version__}", "Description": plain[:LONGEST]}


@rc_context(STYLE)
def save(figure: Figure, path: str | Path) -> Path:
    """Write a figure as PNG or SVG, by the suffix of `path`, and return the path."""
    path = Path(path)
    kind = path.suffix.lower()
    if kind not in (".png", ".svg"):
        raise UserError(f"{path}: a picture is written as .png or .svg, not as {kind or 'a file without suffix'}.")
    # drawn in memory first: a failure half-way leaves no broken file behind
    buffer = io.BytesIO()
    metadata: dict[str, str | None] = {**origin()}
    if kind == ".svg":
        metadata |= {"Creator": metadata.pop("Software"), "Date": None}
    with quiet():
        figure.savefig(buffer, format=kind[1:], metadata=metadata)
    try:
        path.write_bytes(buffer.getvalue())
    except OSError as fault:
        raise UserError(
            f"{path} cannot be written ({fault.strerror}): give a file in an existing folder you may write to."
        ) from fault
    return path
