"""A self-attention layer that is a convolution (Cordonnier, Loukas and Jaggi 2020, theorem 1).

A convolution with a kernel of K × K is K² heads, of which head h looks at one place only, Δ_h away from the query:

    score_h(q, k) = v_hᵀ r_δ,   v_h = −α (1, −2 Δ_h1, −2 Δ_h2),   r_δ = (‖δ‖², δ_1, δ_2),   δ = place of k − place of q

That is −α ‖δ − Δ_h‖² and a constant, so the weight of any other place is at most e^(−α); queries and keys do not
matter. Each head's values go through the kernel's matrix for its shift: y_q = Σ_h W_h x_(q + Δ_h) + b.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from regard.attention.equation import attend
from regard.attention.positions import Bias
from regard.attention.scores import dot

SHARP = 60.0  # α: e^(−60) is nothing beside 1, also in double precision


class Shifts(Bias):
    """−α (‖δ‖² − 2 Δ_h · δ) for places on a grid of so many columns; a place is row · columns + column."""

    shifts: Tensor

    def __init__(self, shifts: Tensor, columns: int, sharpness: float = SHARP) -> None:
        super().__init__()
        self.register_buffer("shifts", shifts, persistent=False)  # (heads, 2)
        self.columns, self.sharpness = columns, sharpness

    def forward(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:  # noqa: ARG002
        places = [torch.stack((at // self.columns, at % self.columns), -1).to(q.dtype) for at in (q_pos, k_pos)]
        apart = places[1][None, :] - places[0][:, None]  # δ, (m, n, 2)
        features = torch.cat((apart.square().sum(-1, keepdim=True), apart), -1)  # r_δ
        directions = torch.cat((torch.ones_like(self.shifts[:, :1]), -2 * self.shifts), -1).to(q.dtype)
        return -self.sharpness * torch.einsum("mnr,hr->hmn", features, directions)


class AttendedConvolution(nn.Module):
    """The convolution of these weights (out, in, K, K), K odd, as a self-attention layer with K² heads.

    Zeros lie around the picture, as around that of a convolution with padding K // 2: they are keys too.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None, *, sharpness: float = SHARP) -> None:
        super().__init__()
        side = weight.shape[-1]
        if weight.dim() != 4 or weight.shape[-2] != side or side % 2 == 0:
            raise ValueError(f"expected weights (out, in, K, K) with an odd K, found {tuple(weight.shape)}")
        self.reach, self.sharpness = side // 2, sharpness
        self.values = nn.Parameter(weight.detach().flatten(2).permute(2, 1, 0).clone())  # (heads, in, out)
        self.bias = None if bias is None else nn.Parameter(bias.detach().clone())
        steps = torch.arange(side) - self.reach
        self.shifts = torch.cartesian_prod(steps, steps).to(weight.dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Return the map (batch, out, rows, columns) of pictures (batch, in, rows, columns)."""
        y = torch.einsum("bhmi,hio->bmo", self.look(x)[0], self.values)
        y = y if self.bias is None else y + self.bias
        found: Tensor = y.mT.unflatten(-1, x.shape[-2:])
        return found

    def look(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return what each head saw at each place, (batch, heads, places, in), and its weights over all places and the
        zeros around them, (batch, heads, places, keys)."""
        rows, columns = x.shape[-2:]
        around = pad(x, (self.reach,) * 4)
        wide = columns + 2 * self.reach
        seen = around.flatten(2).mT.unsqueeze(1).expand(-1, len(self.shifts), -1, -1)
        places = torch.arange(rows)[:, None] * wide + torch.arange(columns) + self.reach * (wide + 1)
        nothing = x.new_zeros(len(x), len(self.shifts), 1, 1)  # W_Q = W_K = 0
        q, k = nothing.expand(-1, -1, rows * columns, -1), nothing.expand(-1, -1, seen.shape[-2], -1)
        bias = Shifts(self.shifts, wide, self.sharpness)
        return attend(q, k, seen, score=dot, bias=bias, q_pos=places.flatten(), k_pos=torch.arange(seen.shape[-2]))


def as_attention(convolution: nn.Conv2d) -> AttendedConvolution:
    """Return the self-attention layer that equals a convolution of torch: stride 1, padding K // 2 of zeros."""
    side = convolution.kernel_size[0]
    plain = (convolution.stride, convolution.dilation, convolution.groups) == ((1, 1), (1, 1), 1)
    if not plain or convolution.padding != (side // 2, side // 2) or convolution.padding_mode != "zeros":
        raise ValueError("expected a convolution of stride 1, dilation 1 and one group, with K // 2 zeros around")
    return AttendedConvolution(convolution.weight, convolution.bias)
