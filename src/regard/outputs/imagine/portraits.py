"""Portraits of codes: pictures of many things at once, for `regard show RUN DATA --draw NAME`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from regard import metrics, pictures
from regard.errors import UserError
from regard.inference.passes import Passes
from regard.inputs.input import Row
from regard.inspection.page import shown_weights
from regard.inspection.recording import attentions, watch
from regard.metrics.likeness import principal_components, squared_distances
from regard.outputs.imagine.comparison import spread_over, values_of
from regard.outputs.imagine.maker import restored
from regard.outputs.output import Held, halves

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from regard.outputs.imagine.duelling import Duels
    from regard.outputs.imagine.output import Imagine

PORTRAITS = {
    "latent": "codes on a plane, with things in it",
    "reconstructions": "things beside what is made of their codes",
    "noise": "z + ε decoded, for this model and those of --with",
    "neighbours": "distances of codes from their nearest neighbours, against the numbers of a code",
    "spread": "the share of the numbers of codes within ±3",
    "attribute": "a label as a direction in z: --answer FROM,TO",
}
DUEL_PORTRAITS = {"attention": "made things, and where some places of each looked"}
POINTS, THUMBNAILS, SHOWN = 3000, 60, 8
STEPS = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0)  # of noise, in deviations of codes
WALK = (-1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0)  # of the way from one label to another


def portrait(output: Imagine, name: str, named: Mapping[str, Passes], held: Held, answer: str | None) -> Figure:
    """Draw the portrait of this name; the first of the `named` models is that of the output."""
    if answer is not None and name != "attribute":
        raise UserError(f"--answer goes with --draw attribute: leave it out of --draw {name}.")
    if len(named) > 1 and name in ("latent", "reconstructions", "attribute"):
        raise UserError(f"--with: --draw {name} shows one model, found {len(named)}: leave it out.")
    passes = next(iter(named.values()))
    chosen = spread_over(range(len(held.items)), POINTS)
    rows = halves(passes.input, [held.rows[i] for i in chosen])[0]
    labels = [str(held.items[i].example.target) for i in chosen]
    if name == "latent":
        return _latent(output, passes, rows, labels)
    if name == "reconstructions":
        return _reconstructions(output, passes, rows)
    if name == "attribute":
        return _attribute(output, passes, rows, labels, answer)
    return {"noise": _noise, "neighbours": _neighbours, "spread": _spread}[name](output, named, rows)


def drawn(passes: Passes, values: NDArray[Any]) -> list[NDArray[Any]]:
    """Return values as things that a gallery draws: pictures where the input has such, else lines."""
    things = [restored(passes).thing(one) for one in values]
    views = [passes.input.view(thing) for thing in things]
    return [one if view.picture is None else view.picture for one, view in zip(values, views, strict=True)]


def _latent(output: Imagine, passes: Passes, rows: Sequence[Row], labels: Sequence[str]) -> Figure:
    codes = output.means(passes, rows).astype(np.float64)
    points, axes = codes, ("z1", "z2")
    if codes.shape[1] == 1:
        points, axes = np.concatenate((codes, np.zeros_like(codes)), 1), ("z1", "")
    elif codes.shape[1] > 2:
        mean, directions = principal_components(codes, 2)
        shares = ((codes - mean) @ directions).var(0) / codes.var(0).sum()
        points = (codes - mean) @ directions
        axes = tuple(f"principal component {i + 1} ({100 * shares[i]:.0f} %)" for i in range(2))  # type: ignore[assignment]
    numbers = pictures.apart(points, THUMBNAILS)
    shown = drawn(passes, values_of(passes, [rows[i] for i in numbers]))
    title = f"{len(points):,} codes of {codes.shape[1]} numbers"
    return pictures.latent_space(points, labels, list(zip(numbers, shown, strict=True)), title, axes)


def _reconstructions(output: Imagine, passes: Passes, rows: Sequence[Row]) -> Figure:
    some = spread_over(rows, 2 * SHOWN)
    real, made = values_of(passes, some), output.decoded(passes, output.means(passes, some))
    both = drawn(passes, real), drawn(passes, made)
    cells = [part[start : start + SHOWN] for start in range(0, len(some), SHOWN) for part in both]
    names = ["original", "made again"] * (len(cells) // 2)
    return pictures.gallery(cells, rows=names, title=f"From codes of {output.code_settings.latent} numbers")


def _noise(output: Imagine, named: Mapping[str, Passes], rows: Sequence[Row]) -> Figure:
    """Decode z + s · ε for a few things; ε has the deviation of the codes of each model."""
    some, cells, names = spread_over(rows, 3), [], []
    for name, passes in named.items():
        deviation = output.means(passes, rows).std(0)
        codes = output.means(passes, some)
        generator = np.random.default_rng(metrics.SEED)
        for number, z in enumerate(codes):
            noise = generator.normal(size=z.shape) * deviation
            made = output.decoded(passes, np.stack([z + step * noise for step in STEPS]))
            cells.append([drawn(passes, values_of(passes, [some[number]]))[0], *drawn(passes, made)])
            names.append(name if not number else "")
    columns = ["original", *(f"{step:g} ε" for step in STEPS)]
    return pictures.gallery(cells, rows=names, columns=columns, title="z + ε, ε in deviations of the codes")


def _neighbours(output: Imagine, named: Mapping[str, Passes], rows: Sequence[Row]) -> Figure:
    """Draw the distance of each code to its nearest neighbour, as a share of the mean distance of two codes."""
    found: dict[int, list[float]] = {}
    for passes in named.values():
        codes = output.means(passes, rows).astype(np.float64)
        found[codes.shape[1]] = _nearest(codes)
    sizes = sorted(found)
    generator = np.random.default_rng(metrics.SEED)
    normal = [_nearest(generator.normal(size=(len(rows), size)))[1] for size in sizes]
    middle = [found[size][1] for size in sizes]
    return pictures.curves(
        [float(size) for size in sizes],
        {"codes": middle, "standard normal": normal},
        "numbers of a code (d_z)",
        "nearest neighbour ÷ mean distance",
        bands={"codes": ([found[size][0] for size in sizes], [found[size][2] for size in sizes])},
        title=f"Nearest neighbours among {len(rows):,} codes",
    )


def _nearest(codes: NDArray[np.float64]) -> list[float]:
    """Return the 5th, 50th and 95th percentile of the distances to the nearest neighbour ÷ the mean distance."""
    distances = np.sqrt(squared_distances(codes, codes))
    mean = distances.sum() / (len(codes) * (len(codes) - 1))
    np.fill_diagonal(distances, np.inf)
    return [float(x) for x in np.percentile(distances.min(1) / mean, [5, 50, 95])]


def _spread(output: Imagine, named: Mapping[str, Passes], rows: Sequence[Row]) -> Figure:
    """Draw the share of the numbers z = μ + σ ε of all codes that lie within ±3: 99.7 % of N(0, 1)."""
    generator = torch.Generator().manual_seed(metrics.SEED)
    shares = []
    for passes in named.values():
        codes = [code for code in output.codes(passes, rows) if code is not None]
        mean = torch.stack([code[0] for code in codes])
        noise = torch.randn(mean.shape, generator=generator)
        z = mean if codes[0][1] is None else mean + torch.stack([code[1].exp() for code in codes]) * noise  # type: ignore[union-attr]
        shares.append(100 * float((z.abs() <= 3).double().mean()))
    title, label = "Numbers of codes within ±3", "share in per cent"
    return pictures.bars(shares, list(named), title, label, (99.7, "99.7 %: standard normal"))


def _attribute(
    output: Imagine, passes: Passes, rows: Sequence[Row], labels: Sequence[str], answer: str | None
) -> Figure:
    """Walk along the difference of the mean codes of two labels: z + t (z̄_to − z̄_from)."""
    known = sorted(set(labels) - {""})
    wanted = [part.strip() for part in answer.split(",")] if answer else known[:2]
    if len(wanted) != 2 or not {*wanted} <= {*known}:
        raise UserError(
            f"--draw attribute needs two labels of the data, --answer FROM,TO, found {answer or 'none'}; it has "
            f"{', '.join(known[:12]) or 'none'}."
        )
    codes, named = output.means(passes, rows), np.array(labels)
    one, other = (codes[named == label].mean(0) for label in wanted)
    some = spread_over(np.flatnonzero(named == wanted[0]).tolist(), 5)
    cells = []
    for number in some:
        made = output.decoded(passes, np.stack([codes[number] + step * (other - one) for step in WALK]))
        cells.append([drawn(passes, values_of(passes, [rows[number]]))[0], *drawn(passes, made)])
    columns = ["original", *(f"{step:+g}" for step in WALK)]
    return pictures.gallery(
        cells,
        columns=columns,
        title=f"From {wanted[0]} to {wanted[1]}: z + t · (mean of {wanted[1]} − mean of {wanted[0]})",
    )


def attention_portrait(output: Duels, passes: Passes, answer: str | None) -> Figure:
    """Draw made things, and for some places of each where the generator's attention looked from there."""
    names = [name for name in attentions(passes.network) if "generator" in name]
    if not names:
        raise UserError("--draw attention: this generator has no attention block (model.attention): train one with it.")
    cells: list[list[NDArray[Any] | None]] = []
    for number in range(4):
        with watch(passes.network, names) as seen:
            made = output.new(passes, 1, number + 1, answer)
        weights = shown_weights(seen[names[0]])[0]  # (places, places) of the only head
        thing = drawn(passes, made)[0]
        if thing.ndim != 3:
            raise UserError("--draw attention draws on pictures, and this model makes none.")
        side = round(len(weights) ** 0.5)
        cells.append([thing])
        for place in (
            (side // 4, side // 2),
            (side // 2, side // 4),
            (side // 2, side // 2),
            (3 * side // 4, side // 2),
        ):
            cells[-1].append(_marked(thing, weights[place[0] * side + place[1]].reshape(side, side), place))
    columns = ["made", "top", "left", "middle", "bottom"]
    return pictures.gallery(cells, columns=columns, title="Where the generator looked from the red place")


def _marked(thing: NDArray[np.uint8], weights: NDArray[Any], place: tuple[int, int]) -> NDArray[np.uint8]:
    """Return a picture that is bright where the weights are large, with the asking place in red."""
    tall, wide = thing.shape[:2]
    side = len(weights)
    rows, columns = np.arange(tall) * side // tall, np.arange(wide) * side // wide
    share = (weights / max(float(weights.max()), 1e-12))[rows][:, columns][..., None]
    mixed = thing * 0.35 * (1 - share) + np.array([255.0, 200.0, 40.0]) * share * 0.65 + thing * 0.35 * share
    mixed[(rows == place[0])[:, None] & (columns == place[1])[None]] = (220, 30, 30)
    return np.asarray(np.clip(mixed, 0, 255), np.uint8)
