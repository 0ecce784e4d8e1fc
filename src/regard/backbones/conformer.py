"""The Conformer's layer: half a feed-forward part, attention, convolution, another half (Gulati et al. 2020).

    x ← x + ½ FFN(x),   x ← x + attention(x),   x ← x + convolution(x),   x ← LayerNorm(x + ½ FFN(x))

Each part begins with a layer normalisation. The convolution has one in its middle too, in place of the paper's batch
normalisation: neither the other rows of a batch nor the number of processes changes an answer.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn.functional import glu, silu

from regard.attention import Context, Layer, State
from regard.attention.equation import AnyMask, default_positions
from regard.backbones.transformer import FeedForward
from regard.layers.dropout import Dropout


class ConvolutionModule(nn.Module):
    """W₂ swish(LayerNorm(depthwise(GLU(W₁ x)))) (2.2); padding counts as zeros, as what lies beyond a row does."""

    def __init__(self, width: int, kernel: int, dropout: float) -> None:
        super().__init__()
        if kernel % 2 == 0:
            raise ValueError(f"a convolution has a middle: expected an odd model.kernel, found {kernel}")
        self.inner, self.outer = nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.depthwise = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width)
        self.norm, self.dropout = nn.LayerNorm(width), Dropout(dropout)

    def forward(self, x: Tensor, real: Tensor) -> Tensor:
        x = glu(self.inner(x), -1) * real.unsqueeze(-1)
        x = self.depthwise(x.mT).mT
        y: Tensor = self.outer(self.dropout(silu(self.norm(x))))
        return y


class ConformerLayer(nn.Module):
    """Four parts, each with a path around it. `halo` is how far its convolution reaches on either side; `place` brings
    positions into what the layer reads."""

    def __init__(
        self, attention: Layer, width: int, hidden: int, kernel: int, dropout: float, place: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.halo, self.place = kernel // 2, place
        self.before, self.after = (FeedForward(width, hidden, dropout, silu) for _ in range(2))
        self.attention, self.convolution = attention, ConvolutionModule(width, kernel, dropout)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(5))
        self.dropout = Dropout(dropout)

    def forward(
        self,
        x: Tensor,
        context: Context | None = None,
        positions: Tensor | None = None,
        mask: AnyMask = None,
        state: State | None = None,
    ) -> tuple[Tensor, State | None]:
        if context is not None or state is not None:
            raise ValueError("a Conformer layer reads a whole row: it takes neither a context nor a state")
        before, around, middle, after, end = self.norms
        real = (default_positions(positions, x.shape[1], x) >= 0).expand(x.shape[:2])
        x = x if self.place is None else self.place(x, positions)
        x = x + 0.5 * self.dropout(self.before(before(x)))
        x = x + self.dropout(self.attention(around(x), None, positions, mask)[0])
        x = x + self.dropout(self.convolution(middle(x), real))
        x = x + 0.5 * self.dropout(self.after(after(x)))
        return end(x), None

    def branch_weights(self) -> list[Sequence[Tensor]]:
        """Return the matrices of each part on its path into the residual sum, in order."""
        own = [self.convolution.inner.weight, self.convolution.outer.weight]
        return [self.before.branch_weights(), self.attention.branch_weights(), own, self.after.branch_weights()]
