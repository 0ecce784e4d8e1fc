"""Positions: tables, rotations and biases. Positions are integers, (n,) or (batch, n); −1 is padding.

Three kinds, by where they act:
- tables, `table(positions) -> (..., n, width)`: Sinusoidal, LearnedTable, RecurrentTable, Floater. `Added` and
  `Concatenated` bring a table into an input; `AddedToHeads` brings it into queries, keys and values inside a layer.
- rotations, `rotate(x, positions) -> x`, applied to queries and keys before the score: Rotary, AddedToHeads. They see
  one tensor at a time so that keys are turned once, when they are stored.
- biases, `bias(q, k, q_pos, k_pos) -> (..., m, n)`, added to the scores after scaling: Alibi, T5, Shaw,
  RelativeTransformerXL, Decay. They may look at q and k.
"""

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.compiler import is_exporting

from regard.layers.roles import TABLE, Role

Table = Callable[[Tensor], Tensor]
Rotate = Callable[[Tensor, Tensor], Tensor]
BiasFunction = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


# ---- tables -------------------------------------------------------------------------------------------------------


def sinusoidal(positions: Tensor, width: int) -> Tensor:
    """p_t[2i] = sin(t / 10000^(2i/d)), p_t[2i+1] = cos(t / 10000^(2i/d)) (Vaswani et al. 2017, 3.5).

    Frequencies begin with i = 0, as in the paper; slides that write ω_l with l from 1 begin one step later.
    ⟨p_t, p_t'⟩ depends on |t − t'| alone, and p_(t+τ) = M_τ p_t with M_τ made of 2×2 rotations by τ / 10000^(2i/d).
    """
    if width % 2:
        raise ValueError(
            f"sinusoidal positions come in pairs of sine and cosine: the width must be even, found {width}"
        )
    angles = positions.unsqueeze(-1) * frequencies(width, 10000.0, positions.device)
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(-2).to(torch.get_default_dtype())


def frequencies(width: int, base: float, device: torch.device | None = None) -> Tensor:
    """1 / base^(2i/d) for i = 0 … d/2 − 1, in float64: angles of far positions lose digits in float32."""
    return base ** (-torch.arange(0, width, 2, dtype=torch.float64, device=device) / width)


class Sinusoidal(nn.Module):
    """The sinusoidal table as a module without parameters."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, positions: Tensor) -> Tensor:
        return sinusoidal(positions, self.width)


class LearnedTable(nn.Module):
    """A learned vector for each of `length` positions; positions beyond the last are refused."""

    roles: ClassVar[dict[str, Role]] = {"table": TABLE}

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(length, width))
        nn.init.normal_(self.table, std=0.02)

    def forward(self, positions: Tensor) -> Tensor:
        length = len(self.table)
        if not is_exporting() and positions.numel() and int(positions.max()) >= length:
            raise ValueError(
                f"the learned position table holds positions 0 to {length - 1}, found position {int(positions.max())}: "
                "shorten the input, make the table longer, or use a kind without a limit (sinusoidal, rotary, alibi)"
            )
        return self.table[positions.clamp(min=0)]


class RecurrentTable(nn.Module):
    """p_t = GRU(p_(t−1)): an RNN walks along the positions; no maximum length, learned from data."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.empty(width))
        nn.init.normal_(self.first, std=0.02)
        self.walk = nn.GRU(width, width, batch_first=True)

    def forward(self, positions: Tensor) -> Tensor:
        steps = positions.shape[-1] if is_exporting() else 1 + (int(positions.max()) if positions.numel() else 0)
        start = self.first.expand(1, 1, -1)
        # The input is the same at every step: what differs from position to position is the state alone.
        table: Tensor = self.walk(start.expand(1, max(steps, 1), -1), start.contiguous())[0][0]
        return table[positions.clamp(min=0)]


class Floater(nn.Module):
    """p(t) solves the learned ODE dp/dt = h(t, p): inductive, data-driven and small at once (Liu et al. 2020, eq. 5).

    From position to position by `steps` classical Runge–Kutta steps; one position is `span` of the ODE's time.
    """

    def __init__(self, width: int, hidden: int | None = None, *, span: float = 0.1, steps: int = 1) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.empty(width))
        nn.init.normal_(self.first, std=0.02)
        hidden = hidden or width
        self.slope = nn.Sequential(nn.Linear(width + 1, hidden), nn.Tanh(), nn.Linear(hidden, width))
        self.span, self.steps = span, steps

    def derivative(self, time: float, p: Tensor) -> Tensor:
        slope: Tensor = self.slope(torch.cat((p, p.new_full((1,), time))))
        return slope

    def forward(self, positions: Tensor) -> Tensor:
        table: list[Tensor] = [self.first]
        step = self.span / self.steps
        last = int(positions.max()) if positions.numel() else 0
        for position in range(last):
            p = table[-1]
            for part in range(self.steps):
                time = position * self.span + part * step
                k1 = self.derivative(time, p)
                k2 = self.derivative(time + step / 2, p + step / 2 * k1)
                k3 = self.derivative(time + step / 2, p + step / 2 * k2)
                k4 = self.derivative(time + step, p + step * k3)
                p = p + step / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            table.append(p)
        return torch.stack(table)[positions.clamp(min=0)]


# ---- bringing a table in ------------------------------------------------------------------------------------------


class Added(nn.Module):
    """x_t + p_t; before the first layer, or before every layer."""

    def __init__(self, table: nn.Module) -> None:
        super().__init__()
        self.table = table

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        p: Tensor = self.table(positions)
        return x + p.to(x.dtype)


class Concatenated(nn.Module):
    """g([x_t; p_t]) with a linear g back to the width of x."""

    def __init__(self, table: nn.Module, width: int, table_width: int) -> None:
        super().__init__()
        self.table = table
        self.join = nn.Linear(width + table_width, width)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        p = self.table(positions).to(x.dtype).expand(*x.shape[:-1], -1)
        joined: Tensor = self.join(torch.cat((x, p), -1))
        return joined


class AddedToHeads(nn.Module):
    """q_t + p_t and k_t + p_t in every head of a layer, as `rotate`; v_t + p_t too as `rotate_values`, as lectured.

    x is (batch, heads, n, width); all heads have the same p_t.
    """

    def __init__(self, table: nn.Module) -> None:
        super().__init__()
        self.table = table

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        return x + by_head(self.table(positions)).to(x.dtype)


# ---- rotation -----------------------------------------------------------------------------------------------------


class Rotary(nn.Module):
    """R_t x: the pair (x_i, x_(i+d/2)) is turned by the angle t / base^(2i/d) (Su et al. 2021, 3.4.2).

    ⟨R_t q, R_t' k⟩ depends on t − t' alone. Pairs are half a width apart, as in most published checkpoints.
    """

    def __init__(self, head_width: int, base: float = 10000.0) -> None:
        super().__init__()
        if head_width % 2:
            raise ValueError(
                f"rotary positions turn pairs of numbers: the width of a head must be even, found {head_width}"
            )
        self.head_width, self.base = head_width, base

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        if x.shape[-1] != self.head_width:
            raise ValueError(
                f"rotary positions are for heads of width {self.head_width}, found {x.shape[-1]}. "
                f"Try Rotary({x.shape[-1]})"
            )
        angles = by_head(positions.unsqueeze(-1) * frequencies(self.head_width, self.base, positions.device))
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        left, right = x.chunk(2, -1)
        return torch.cat((left * cos - right * sin, right * cos + left * sin), -1)


def by_head(table: Tensor) -> Tensor:
    """Return (n, d) as it is and (batch, n, d) as (batch, 1, n, d): the same for every head."""
    return table.unsqueeze(-3) if table.dim() == 3 else table


# ---- biases -------------------------------------------------------------------------------------------------------


def distance(q_pos: Tensor, k_pos: Tensor) -> Tensor:
    """k − q as a matrix: (m, n), or (batch, 1, m, n) where positions differ by batch."""
    d = k_pos.unsqueeze(-2) - q_pos.unsqueeze(-1)
    return d.unsqueeze(-3) if d.dim() == 3 else d


def clipped_distance(q_pos: Tensor, k_pos: Tensor, limit: int) -> Tensor:
    """clip(k − q, −limit, limit) + limit: an index from 0 to 2·limit."""
    return distance(q_pos, k_pos).clamp(-limit, limit) + limit


class Bias(nn.Module):
    """A bias that depends on nothing but its arguments, so that it can be computed block by block (blocks.py)."""

    @abstractmethod
    def forward(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor: ...


class Alibi(Bias):
    """−slope_h · |q − k| with slopes 2^(−8h/H), h = 1 … H (Press et al. 2022, section 3)."""

    slopes: Tensor

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.register_buffer("slopes", torch.tensor(alibi_slopes(heads)).view(heads, 1, 1), persistent=False)

    def forward(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:  # noqa: ARG002
        return -self.slopes.to(q.dtype) * distance(q_pos, k_pos).abs()


def alibi_slopes(heads: int) -> list[float]:
    """Return H slopes from 2^(−8/H) on; if H is no power of two, the rest are every other one of the next power."""
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * (h + 1) / power) for h in range(power)]
    return slopes + [2 ** (-8 * (2 * h + 1) / (2 * power)) for h in range(heads - power)]


class T5(Bias):
    """A learned number per head and distance bucket: near distances have their own, far ones share logarithmically
    wider buckets up to `limit` (Raffel et al. 2020, 2.1). T5 does not scale its scores: pair it with the score `dot`.
    """

    roles: ClassVar[dict[str, Role]] = {"table": TABLE}

    def __init__(self, heads: int, *, buckets: int = 32, limit: int = 128, both_ways: bool = True) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(buckets, heads))
        nn.init.normal_(self.table, std=0.02)
        self.limit, self.both_ways = limit, both_ways

    def bucket(self, distance: Tensor) -> Tensor:
        buckets = len(self.table)
        if self.both_ways:
            buckets //= 2
            offset, far = (distance > 0) * buckets, distance.abs()
        else:
            offset, far = torch.zeros_like(distance), (-distance).clamp(min=0)
        exact = buckets // 2
        ratio = (far.clamp(min=1).float() / exact).log() / math.log(self.limit / exact)
        shared = (exact + (ratio * (buckets - exact)).long()).clamp(max=buckets - 1)
        return offset + torch.where(far < exact, far, shared)

    def forward(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:  # noqa: ARG002
        values = self.table[self.bucket(distance(q_pos, k_pos))]  # (m, n, heads) or (batch, 1, m, n, heads)
        return values.movedim(-1, -3).squeeze(1) if values.dim() == 5 else values.movedim(-1, 0)


class Shaw(Bias):
    """q_j · r^K_clip(i−j) / √d: keys carry a learned vector for their clipped distance (Shaw et al. 2018, eq. 4).

    The vectors are shared by the heads. Its counterpart for values is `mixing.ShawValues`.
    """

    roles: ClassVar[dict[str, Role]] = {"table": TABLE}

    def __init__(self, distance: int, head_width: int) -> None:
        super().__init__()
        self.distance = distance
        self.table = nn.Parameter(torch.empty(2 * distance + 1, head_width))
        nn.init.xavier_uniform_(self.table)

    def forward(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        by_distance = q @ self.table.mT / math.sqrt(q.shape[-1])  # (..., m, 2K+1): each query against each distance
        index = clipped_distance(q_pos, k_pos, self.distance)
        return by_distance.gather(-1, index.expand(*q.shape[:-1], k.shape[-2]))


class RelativeTransformerXL(Bias):
    """(q_j · r_(j−i) + u · k_i + v · r_(j−i)) / √d with r = W_R · sinusoidal(j − i) (Dai et al. 2019, 3.3).

    Together with the scaled dot product this is the four-term score (a)–(d) of the paper: content against content,
    content against distance, and the two that do not depend on the query's content, by learned u and v per head.
    """

    def __init__(self, heads: int, head_width: int) -> None:
        super().__init__()
        self.heads, self.head_width = heads, head_width
        width = heads * head_width
        self.u = nn.Parameter(torch.zeros(heads, 1, head_width))
        self.v = nn.Parameter(torch.zeros(heads, 1, head_width))
        self.r_proj = nn.Linear(width, width, bias=False)

    def forward(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        back = -distance(q_pos, k_pos)  # j − i
        if is_exporting():  # one graph for all batches: every distance there can be
            low, high = -k.shape[-2], q.shape[-2]
        else:
            low, high = (int(back.min()), int(back.max())) if back.numel() else (0, 0)
        table = sinusoidal(torch.arange(low, high + 1, device=q.device), self.heads * self.head_width).to(q.dtype)
        r = self.r_proj(table).unflatten(-1, (self.heads, self.head_width)).transpose(0, 1)  # (heads, distances, d)
        by_distance = (q + self.v) @ r.mT  # (batch, heads, m, distances)
        about_distance = by_distance.gather(-1, (back - low).expand(*q.shape[:-1], k.shape[-2]))
        added: Tensor = (about_distance + self.u @ k.mT) / math.sqrt(self.head_width)
        return added


class Decay(Bias):
    """(t − i) · log γ for the past: under `normalisers.exponential` the weights are γ^(t−i), a fading memory."""

    def __init__(self, gamma: float) -> None:
        super().__init__()
        if not 0 < gamma <= 1:
            raise ValueError(f"forgetting keeps a share γ of the memory per step, 0 < γ ≤ 1, found {gamma}")
        self.gamma = gamma

    def forward(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:  # noqa: ARG002
        return -distance(q_pos, k_pos).clamp(max=0).to(k.dtype) * math.log(self.gamma)
