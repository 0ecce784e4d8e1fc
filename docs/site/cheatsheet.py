"""The cheat sheet of attention mechanisms. Every cell is found by trying the layer, so it cannot say what is not so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

import regard
from docs.site.tables import WRITTEN, table
from regard.attention import Cache, Edges, Mask, MultiHead, causal, padding
from regard.attention.scores import Additive
from regard.attention.windows import WindowAttention, windows
from regard.costs.shadow import shapes_of, without_weights
from regard.costs.trace import trace
from regard.models.mechanism import Mechanism
from regard.models.parts import AttentionParts

WIDTH, LENGTH = 16, 16  # of what is tried
WIDE, LONG = 512, 4096  # of what is counted
OWN = Mask(lambda q, k: (q + k) % 3 != 0, "every third pair hidden")  # a rule that nobody has foreseen


@dataclass(frozen=True)
class Row:
    """A mechanism: its layer for n positions, its rule, and how its state begins."""

    name: str
    page: str
    layer: Callable[[int, int, bool], Any]  # positions, width, whether it only looks back
    mask: Callable[[int, bool], Any]
    start: Callable[[], Any] = Cache
    sizes: str = ""


def heads(width: int) -> int:
    return 2 if width < WIDE else 8


def kind(name: str, page: str, sizes: str = "", **small: Any) -> Row:
    """Return the row of a `model.attention`: tried with small sizes, counted with those of the settings."""

    def layer(n: int, width: int, back: bool) -> Any:
        made = Mechanism(name, **({} if width == WIDE else small))
        return made.layers(1, width, heads(width), AttentionParts(), length=n, back=back)[0]

    def mask(n: int, back: bool) -> Mask:
        return Mechanism(name, **({} if n == LONG else small)).mask(back=back)

    return Row(f"`{name}`", page, layer, mask, Mechanism(name, **small).start(), sizes)


def additive(_: int, width: int, __: bool) -> MultiHead:
    each = width // heads(width)
    return MultiHead(width, heads(width), score=Additive(each, each, each))


def plain(_: int, back: bool) -> Mask:
    return causal if back else padding


def swin(_: int, width: int, __: bool) -> MultiHead:
    return MultiHead(width, heads(width), attention=WindowAttention(heads(width), 2 if width < WIDE else 8))


def grid(n: int, back: bool) -> Mask:
    laid = windows(64, 64, 8) if n == LONG else windows(n // 4, 4, 2)
    return laid & causal if back else laid


def ring(n: int, back: bool) -> Edges:
    """Return a graph in which each node looks at itself, at the three before it, and at the next one if it may."""
    pairs = [(i, j) for i in range(n) for j in range(i - 3, i + 1 + (not back)) if 0 <= j < n]
    receiver, sender = torch.tensor(pairs).unbind(1)
    return Edges(torch.zeros_like(receiver), receiver, sender)


ROWS = (
    kind("full", "../attention.md"),
    kind("local", "../efficient.md", "reach 128", reach=4),
    kind("linear", "../efficient.md#linear-attention-and-performer"),
    kind("performer", "../efficient.md#linear-attention-and-performer", "128 features", features=8),
    kind("linformer", "../efficient.md", "256 columns", columns=8),
    kind("bigbird", "../efficient.md", "8 blocks of 64", block=2, random=1),
    Row("additive score", "../attention.md#scores", additive, plain),
    Row("Swin's windows", "../images.md", swin, grid, sizes="windows of 8 × 8"),
    Row("edges of a graph", "../graphs.md", lambda _, w, __: MultiHead(w, heads(w)), ring, sizes="5 edges a node"),
)


# ---- trying -------------------------------------------------------------------------------------------------------


@torch.no_grad()
def seen(row: Row, mask: Any, *, back: bool) -> Tensor:
    """Return (n, n): True where the answer at i changes when the vector at j does."""
    layer = row.layer(LENGTH, WIDTH, back).eval()
    x = torch.randn(1, LENGTH, WIDTH, generator=torch.Generator().manual_seed(0))
    before, found = layer(x, None, None, mask)[0], torch.zeros(LENGTH, LENGTH, dtype=torch.bool)
    for j in range(LENGTH):
        changed = x.clone()
        changed[:, j] += 1
        found[:, j] = (layer(changed, None, None, mask)[0] - before).abs().amax((0, 2)) > 1e-6
    return found


def looks_back(row: Row) -> str:
    """Try whether it can look back only."""
    found = seen(row, row.mask(LENGTH, True), back=True)
    return "yes" if not found.triu(1).any() and found.tril(-1).any() else "no"


def obeys(row: Row) -> str:
    """Try whether it obeys a rule of one's own, and what that costs."""
    hidden = ~OWN(torch.arange(LENGTH)[:, None], torch.arange(LENGTH)) & ~torch.eye(LENGTH, dtype=torch.bool)
    if (seen(row, OWN & row.mask(LENGTH, False), back=False) & hidden).any():
        return "no"
    return "yes" if growth(row, OWN) == growth(row) else f"yes, at {growth(row, OWN)}"


@torch.no_grad()
def steps(row: Row) -> str:
    """Try whether one position after the other gives the same answers, and whether the state grows."""
    layer = row.layer(LENGTH, WIDTH, True).eval()
    x, mask = torch.randn(1, LENGTH, WIDTH), row.mask(LENGTH, True)
    state, answers, sizes = row.start(), [], []
    for t in range(LENGTH):
        answer, state = layer(x[:, t : t + 1], None, torch.tensor([t]), mask, state)
        answers.append(answer)
        sizes.append(elements(state))
    if not torch.cat(answers, 1).allclose(layer(x, None, None, mask)[0], atol=1e-5):
        return "no"
    return "yes, its state grows" if sizes[-1] > sizes[LENGTH // 2] else "yes, constant state"


def elements(state: Any) -> int:
    """Return how many numbers a state holds."""
    if isinstance(state, Tensor):
        return state.numel()
    if isinstance(state, tuple):
        return sum(map(elements, state))
    return sum(elements(getattr(state, f.name)) for f in fields(state)) if hasattr(state, "__dataclass_fields__") else 0


@torch.no_grad()
def shown(row: Row) -> str:
    """Try whether `regard.watch` shows a weight for each position."""
    layer = row.layer(LENGTH, WIDTH, False).eval()
    with regard.watch(layer) as recording:
        layer(torch.randn(1, LENGTH, WIDTH), None, None, row.mask(LENGTH, False))
    if layer.attention.projected:
        return "of mixtures"
    return "yes" if recording["attention"].weights.shape[-1] == LENGTH else "no"


def operations(row: Row, n: int, width: int, also: Mask | None = None) -> int:
    """Count the operations of scores and mixing, without computing them."""
    layer, mask = without_weights(row.layer(n, width, False)), row.mask(n, False)
    x, rule = shapes_of(torch.zeros(1, n, width)), also & mask if also else mask
    with torch.no_grad():
        return trace(layer, lambda: layer(x, None, None, rule)).looking


def growth(row: Row, also: Mask | None = None) -> str:
    """Return n or n²: what the operations of four times as many positions show."""
    ratio = operations(row, 512, WIDTH, also) / operations(row, 128, WIDTH, also)
    return "n²" if ratio > 12 else "n" if ratio < 5 else f"× {ratio:.1f}"


PROBES: dict[str, Callable[[Row], str]] = {
    "causal": looks_back,
    "any mask": obeys,
    "step by step": steps,
    "weights shown": shown,
    "cost grows with": growth,
}


def tried(probe: Callable[[Row], str], row: Row) -> tuple[str, str]:
    """Return what a trial found, and the sentence with which the layer refused it."""
    try:
        return probe(row), ""
    except ValueError as refusal:
        return "no", str(refusal)


def cheatsheet() -> str:
    """Return the page: a row for each mechanism, and why some refuse."""
    found = {row: {name: tried(probe, row) for name, probe in PROBES.items()} for row in ROWS}
    head = ("mechanism", *PROBES, "GFLOP", "sizes")
    lines = []
    for row in ROWS:
        counted = f"{operations(row, LONG, WIDE) / 1e9:.2f}"
        lines.append([f"[{row.name}]({row.page})", *(cell for cell, _ in found[row].values()), counted, row.sizes])
    reasons = dict.fromkeys(f"- {row.name}: {why}." for row in ROWS for _, why in found[row].values() if why)
    return PAGE.format(
        written=WRITTEN, table=table(head, lines), long=f"{LONG:,}", wide=WIDE, reasons="\n".join(reasons)
    )


PAGE = """# Cheat sheet

{written}
Which attention can do what. Each cell was found by trying the layer: a vector is changed, and the answers that change
with it are those that looked at it.

{table}
- *causal*: it can look back only. *any mask*: a rule of your own is obeyed. *step by step*: one position at a time
  gives the same answers as all at once, from a state that grows with what was read, or does not.
- *weights shown*: `regard.watch` and `regard show` have a weight for each position; a column of `linformer` is a
  mixture of all positions.
- *GFLOP*: operations of scores and mixing for {long} tokens of width {wide} in 8 heads, with the sizes beside it.
- Names in `code` are values of `model.attention`. Location-aware attention is no self-attention: it looks at a
  recording, step by step, and its state holds its last weights ([recordings](../audio.md)).

## Why some refuse

{reasons}
"""
