"""Convolution along a sequence: an encoder for labels, and an encoder and a decoder in the style of ConvS2S (Gehring et
al. 2017).

    block      x ← √½ (x + u ⊙ σ(w)),   [u; w] = W [x_(t−k/2); …; x_(t+k/2)] + b      3.2; gates of Dauphin et al. 2017
    decoder    the window ends at t, and  h ← √½ (h + √m Σ_j a_tj √½ (z_j + e_j))      3.3
               with  a_t = softmax_j(√½ (W h_t + b + g_t) · z_j)

z are the encoder's outputs, e its inputs, g the decoder's inputs, m the number of source elements; √½ and √m keep the
variance (3.4). A window sees k elements, n layers see n (k − 1) + 1 of them: depth replaces recurrence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import glu, pad

from regard.attention import Attention, Context, Fixed, padding, scores
from regard.layers.dropout import Dropout

HALF = math.sqrt(0.5)


class GatedConvolution(nn.Module):
    """√½ (x + u ⊙ σ(w)) from the window around each element; a causal one ends at the element."""

    def __init__(self, width: int, kernel: int, dropout: float, *, causal: bool) -> None:
        super().__init__()
        if kernel < 1 or (kernel % 2 == 0 and not causal):
            raise ValueError(f"a window around an element has an odd number of elements: found model.kernel={kernel}")
        self.kernel, self.causal, self.dropout = kernel, causal, Dropout(dropout)
        self.windows = nn.Conv1d(width, 2 * width, kernel)
        nn.init.normal_(self.windows.weight, std=math.sqrt(4 * (1 - dropout) / (kernel * width)))
        assert self.windows.bias is not None
        nn.init.zeros_(self.windows.bias)

    def forward(self, x: Tensor, before: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return (batch, n, width), and the last k − 1 elements read; `before` stand before x, zeros unless given."""
        inside = self.dropout(x)
        if not self.causal:
            seen = pad(inside, (0, 0, self.kernel // 2, self.kernel // 2))
        elif before is None:
            seen = pad(inside, (0, 0, self.kernel - 1, 0))
        else:
            seen = torch.cat((before, inside), 1)
        y = glu(self.windows(seen.mT).mT, -1)
        return HALF * (x + y), seen[:, seen.shape[1] - self.kernel + 1 :]


class ConvolutionEncoder(nn.Module):
    """Layers of windows over all positions; what stands at padding is 0. For a decoder with `halves`, the values are
    [z; √½ (z + e)]: what is compared, and what is read."""

    def __init__(self, width: int, layers: int, kernel: int, dropout: float, *, halves: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList([GatedConvolution(width, kernel, dropout, causal=False) for _ in range(layers)])
        self.halves = halves

    def forward(self, context: Context) -> Context:
        positions = context.where()
        real = (positions >= 0).unsqueeze(-1).to(context.values.dtype)
        x = e = context.values * real
        for layer in self.layers:
            x = layer(x)[0] * real
        return context._replace(values=torch.cat((x, HALF * (x + e)), -1) if self.halves else x, positions=positions)


@dataclass(frozen=True)
class ConvolutionState:
    """The last k − 1 inputs of each layer, and the memory."""

    last: tuple[Tensor, ...]  # (batch, k − 1, width)
    memory: Fixed

    def reorder(self, index: Tensor) -> ConvolutionState:
        return ConvolutionState(tuple(x[index] for x in self.last), self.memory.reorder(index))


class ConvolutionGlimpse(nn.Module):
    """√½ (h + √m Σ_j a_tj v_j),  a_t = softmax_j(√½ (W h_t + b + g_t) · k_j)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = nn.Linear(width, width)
        self.attention = Attention(score=scores.dot)

    def forward(self, h: Tensor, g: Tensor, positions: Tensor, memory: Fixed) -> Tensor:
        q = HALF * (self.query(h) + g)
        real = (memory.positions >= 0).expand(len(h), -1).sum(-1).clamp(min=1)
        c, _ = memory.look(self.attention, q.unsqueeze(1), _nothing, padding.at(positions), positions)
        return HALF * (h + c.squeeze(1) * real.to(h.dtype).sqrt()[:, None, None])


class ConvolutionDecoderLayer(nn.Module):
    """A window that ends at each position, then a glimpse of the memory."""

    def __init__(self, width: int, kernel: int, dropout: float) -> None:
        super().__init__()
        self.own, self.cross = GatedConvolution(width, kernel, dropout, causal=True), ConvolutionGlimpse(width)

    def forward(
        self, h: Tensor, g: Tensor, positions: Tensor, memory: Fixed, before: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        h, last = self.own(h, before)
        return self.cross(h, g, positions, memory), last


def _nothing() -> tuple[Tensor, Tensor]:
    raise ValueError("a memory is fixed: expected a state that was begun with a context, found one that grows")


class ConvolutionDecoder(nn.Module):
    """Layers of windows that end at each position, with a glimpse of the memory in every one of them.

    With `halves` the memory is [keys; values] along its width, else it is both.
    """

    def __init__(self, width: int, layers: int, kernel: int, dropout: float, *, halves: bool = True) -> None:
        super().__init__()
        self.layers = nn.ModuleList([ConvolutionDecoderLayer(width, kernel, dropout) for _ in range(layers)])
        self.halves, self.dropout = halves, Dropout(dropout)

    def forward(
        self,
        x: Context,
        memory: Context | None,
        state: ConvolutionState | None = None,
        *,
        keep: bool = False,  # noqa: ARG002
    ) -> tuple[Tensor, ConvolutionState]:
        """Return the features of a known target, or of what follows a state, which remembers the memory."""
        if state is None and memory is None:
            raise ValueError("a decoder needs a memory: pass the encoder's context, or a state that has seen it")
        seen = state.memory if state is not None else self._taken(memory)
        before: Sequence[Tensor | None] = state.last if state is not None else [None] * len(self.layers)
        h, positions, last = x.values, x.where(), []
        for layer, own in zip(self.layers, before, strict=True):
            h, kept = layer(h, x.values, positions, seen, own)
            last.append(kept)
        return self.dropout(h), ConvolutionState(tuple(last), seen)

    def _taken(self, memory: Context | None) -> Fixed:
        assert memory is not None
        k, v = memory.values.chunk(2, -1) if self.halves else (memory.values, memory.values)
        return Fixed(k.unsqueeze(1), v.unsqueeze(1), memory.where())


def shifts(length: int, kernel: int, like: Tensor) -> Tensor:
    """Return A_0 … A_(k−1), (k, T − k + 1, T): A_j joins window t to its element t + j.

    A convolution without padding is a graph convolution over windows, Y = Σ_j A_j X W_j: each window is a node whose
    neighbours are its k elements, and the weight depends on a neighbour's place in the window. There are T − k + 1
    windows (a slide prints T − k − 1).
    """
    count = length - kernel + 1
    if count < 1:
        raise ValueError(f"a window of {kernel} elements does not fit into {length}")
    return torch.stack([torch.eye(count, length, dtype=like.dtype).roll(j, -1) for j in range(kernel)]).to(like.device)
