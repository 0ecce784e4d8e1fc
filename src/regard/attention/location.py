"""Location-aware attention: a score that knows where the last step looked (Chorowski et al. 2015, section 2.1).

    f_t = F * a_(t−1)                                            features of the last weights, by a convolution
    e_ti = w · tanh(W q_t + V h_i + U f_ti + b)                  the additive score with one more term
    a_t = softmax(e_t),   c_t = Σ_i a_ti h_i

The new term does not depend on the query: it moves the projected keys, V h_i + b + U f_ti, and the rest is additive
attention as it is. The last weights are the layer's state; before the first step they are even.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.attention.equation import AnyMask, attend, default_positions, rule_of
from regard.attention.layer import Context, Watchable
from regard.attention.scores import query

FILTERS, KERNEL = 10, 31


class _Compared(nn.Module):
    """s_ji = w · tanh(q_j + k_i) of projected queries and keys."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.output = nn.Linear(hidden, 1, bias=False)

    def forward(self, q: Tensor | None, k: Tensor) -> Tensor:
        scores: Tensor = self.output((query(q).unsqueeze(-2) + k.unsqueeze(-3)).tanh()).squeeze(-1)
        return scores


class WeightedAttention(Watchable):
    """The equation, with its weights behind the answer: the next step needs them."""

    def __init__(self, score: nn.Module) -> None:
        super().__init__()
        self.score = score

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: AnyMask, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        """Return [answer; weights], (batch, heads, m, d_v + n)."""
        return torch.cat(attend(q, k, v, score=self.score, mask=mask, q_pos=q_pos, k_pos=k_pos), -1)

    def weights(
        self, q: Tensor, k: Tensor, mask: AnyMask, q_pos: Tensor, k_pos: Tensor, heads: Sequence[int] | None = None
    ) -> Tensor:
        chosen = slice(None) if heads is None else list(heads)
        with torch.no_grad():
            return attend(q, k, k, score=self.score, mask=mask, q_pos=q_pos, k_pos=k_pos)[1][:, chosen]


@dataclass(frozen=True)
class LocationState:
    """Projected keys, values and their positions, and where the last step looked."""

    k: Tensor  # (batch, 1, n, hidden)
    v: Tensor  # (batch, 1, n, width)
    positions: Tensor  # (n,) or (batch, n)
    last: Tensor  # (batch, 1, n)

    def reorder(self, index: Tensor) -> LocationState:
        where = self.positions if self.positions.dim() == 1 else self.positions[index]
        return LocationState(self.k[index], self.v[index], where, self.last[index])


class LocationAware(nn.Module):
    """One head that looks at a context step by step, with `filters` convolutions of `kernel` last weights."""

    def __init__(
        self, width: int, context_width: int, hidden: int, filters: int = FILTERS, kernel: int = KERNEL
    ) -> None:
        super().__init__()
        if kernel % 2 == 0:
            raise ValueError(
                f"a convolution over the last weights has a middle: expected an odd kernel, found {kernel}"
            )
        self.q_proj = nn.Linear(width, hidden, bias=False)
        self.k_proj = nn.Linear(context_width, hidden)
        self.convolution = nn.Conv1d(1, filters, kernel, padding=kernel // 2, bias=False)
        self.location_proj = nn.Linear(filters, hidden, bias=False)
        self.attention = WeightedAttention(_Compared(hidden))

    def forward(
        self,
        x: Tensor,
        context: Context | None,
        positions: Tensor | None,
        mask: AnyMask,
        state: LocationState | None = None,
    ) -> tuple[Tensor, LocationState]:
        """Look from x (batch, m, width), one step after the other; a state remembers the context."""
        if state is None:
            assert context is not None
            state = self.start(context)
        positions, rule = default_positions(positions, x.shape[1], x), rule_of(mask)
        answers = []
        for t in range(x.shape[1]):
            allowed = rule[..., t : t + 1, :] if isinstance(rule, Tensor) and rule.shape[-2] > 1 else rule
            answer, state = self._step(x[:, t : t + 1], positions[..., t : t + 1], allowed, state)
            answers.append(answer)
        return torch.cat(answers, 1), state

    def start(self, context: Context) -> LocationState:
        """Return the state before the first step: all real vectors have been looked at evenly."""
        real = (context.where() >= 0).expand(context.values.shape[:2]).to(context.values.dtype)
        last = real / real.sum(-1, keepdim=True).clamp(min=1)
        values = context.values.unsqueeze(1)
        return LocationState(self.k_proj(values), values, context.where(), last.unsqueeze(1))

    def _step(self, x: Tensor, at: Tensor, mask: AnyMask, state: LocationState) -> tuple[Tensor, LocationState]:
        moved = state.k + self.location_proj(self.convolution(state.last).mT).unsqueeze(1)
        both = self.attention(self.q_proj(x).unsqueeze(1), moved, state.v, mask, at, state.positions)
        answer, weights = both.split((state.v.shape[-1], state.k.shape[-2]), -1)
        return answer.squeeze(1), LocationState(state.k, state.v, state.positions, weights.squeeze(1))

    def branch_weights(self) -> list[Tensor]:
        return []
