"""Recurrence over segments (Dai et al. 2019, 3.2): a segment looks at itself and at the hidden states of those before.

    h̃ⁿ⁻¹ = [SG(mⁿ⁻¹) ∘ hⁿ⁻¹]          q = W_q hⁿ⁻¹,   k, v = W_k h̃ⁿ⁻¹, W_v h̃ⁿ⁻¹          hⁿ = layer(q, k, v)

mⁿ⁻¹ are the last `memory` inputs of layer n from earlier segments. No gradient flows into them (SG), but W_k and W_v
project them anew and learn from them. Every hidden state is made once, in its own segment; a text cut into segments
therefore has the hidden states of one pass over all of it whose mask, in every layer, is what the segments allowed:

    s(q) − memory ≤ k ≤ q,  s(q) the first position of q's segment          under `causal`
    q − memory ≤ k ≤ q,  however the text is cut                            under `window(memory, 0)`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.attention import Context, Mask, causal
from regard.attention.masks import join_positions
from regard.backbones.transformer import EncoderLayer


@dataclass(frozen=True)
class SegmentMemory:
    """The inputs of every layer at the last positions, without a past of their own; padding takes up room too."""

    hidden: tuple[Tensor, ...]  # (batch, ≤ memory, width) for each layer
    positions: Tensor

    def reorder(self, index: Tensor) -> SegmentMemory:
        positions = self.positions[index] if self.positions.dim() == 2 else self.positions
        return SegmentMemory(tuple(hidden[index] for hidden in self.hidden), positions)


class Segments(nn.Module):
    """Layers with a memory of earlier segments. Their positions must be relative: only distances mean the same in every
    segment. Positions go on from segment to segment."""

    def __init__(
        self, layers: Sequence[EncoderLayer], norm: nn.Module | None, memory: int, *, mask: Mask = causal
    ) -> None:
        super().__init__()
        if memory < 0:
            raise ValueError(f"a memory keeps 0 or more positions, found {memory}")
        if mask.ahead > 0:
            raise ValueError(f"the mask '{mask.name}' lets a position look ahead, where no segment has been yet")
        self.layers, self.norm, self.memory, self.mask = nn.ModuleList(layers), norm, memory, mask

    def forward(self, context: Context) -> Context:
        return self._through(context, None, 0)[0]

    def steps(self, context: Context, state: SegmentMemory | None = None) -> tuple[Context, SegmentMemory]:
        """Return the features of one segment after those of the state, and the state for the next; None begins one."""
        return self._through(context, state, self.memory)

    def _through(self, context: Context, state: SegmentMemory | None, kept: int) -> tuple[Context, SegmentMemory]:
        x, positions = context.values, context.where()
        where = positions if state is None else join_positions(state.positions, positions)
        mask = context.rule(self.mask).at(positions)
        first = max(0, where.shape[-1] - kept)
        hidden = []
        for number, layer in enumerate(self.layers):
            seen = x if state is None else torch.cat((state.hidden[number], x), 1)
            hidden.append(seen[:, first:].detach())
            x, _ = layer(x, None if state is None else Context(seen, where), positions, mask)
        features = context._replace(values=x if self.norm is None else self.norm(x), positions=positions)
        return features, SegmentMemory(tuple(hidden), where[..., first:])
