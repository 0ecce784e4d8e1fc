"""A fully connected network over each vector and its neighbours: the baseline before self-attention.

    y_i = W₂ ReLU(W₁ [x_(i−r); …; x_i; …; x_(i+r)] + b₁) + b₂

Beyond the ends of a row are zeros. What is further away than r vectors cannot be seen.
"""

from __future__ import annotations

from torch import Tensor, nn

from regard.attention import Context
from regard.layers.dropout import Dropout


class Neighbours(nn.Module):
    """The network over a window of 2r + 1 vectors. W₁ is kept as a convolution, which shares no work less."""

    def __init__(self, width: int, hidden: int, radius: int, dropout: float) -> None:
        super().__init__()
        self.radius = radius
        self.inner = nn.Conv1d(width, hidden, 2 * radius + 1, padding=radius)
        self.outer, self.dropout = nn.Linear(hidden, width), Dropout(dropout)

    @property
    def reach(self) -> tuple[float, float]:
        """The vectors that a feature looks back and ahead."""
        return self.radius, self.radius

    def forward(self, context: Context) -> Context:
        where = context.where()
        x = context.values * (where >= 0).unsqueeze(-1)
        y: Tensor = self.inner(x.mT).mT.relu()
        return context._replace(values=self.outer(self.dropout(y)), positions=where)
