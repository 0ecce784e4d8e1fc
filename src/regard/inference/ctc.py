"""CTC prefix scores: the probability that a transcript begins with given tokens (Graves 2008, 7.5.3; Watanabe et al.
2017, algorithm 2).

Of a prefix g, r^n_t and r^b_t are the probabilities that the first t vectors say exactly g, ending in its last token or
in a blank. For one more token c,

    ψ(g c) = Σ_t φ_(t−1) · p_t(c),      φ_t = r^b_t + [c ≠ last of g] · r^n_t
    p(g and nothing more) = r^n_T + r^b_T

so that Σ_c ψ(g c) + p(g and nothing more) = ψ(g): divided by ψ(g) these are the probabilities of the next token or the
end. All in logarithms.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

NOTHING = -torch.inf


@dataclass(frozen=True)
class PrefixState:
    """The prefix of each hypothesis: its last token (−1: none), log ψ, and log r over t = 0 … T."""

    logs: Tensor  # (rows, T, vocabulary)
    last: Tensor  # (rows,)
    total: Tensor  # (rows,)
    token: Tensor  # (rows, T + 1), log r^n
    blank: Tensor  # (rows, T + 1), log r^b
    begun: bool = False  # True: the first call has read the start

    def reorder(self, index: Tensor) -> PrefixState:
        index = index.to(self.logs.device)
        parts = (self.logs, self.last, self.total, self.token, self.blank)
        logs, last, total, token, blank = (part[index] for part in parts)
        return PrefixState(logs, last, total, token, blank, self.begun)


class PrefixScores:
    """The scorer. `blank` is the token that stands for none, `end` the one that ends an answer."""

    def __init__(self, blank: int, end: int) -> None:
        self.blank, self.end = blank, end

    def start(self, logs: Tensor, lengths: Tensor) -> PrefixState:
        """Return the state of empty prefixes for log-probabilities (rows, T, vocabulary) of so many real vectors."""
        rows, most, _ = logs.shape
        beyond = torch.arange(most, device=logs.device) >= lengths[:, None]
        logs = logs.double().masked_fill(beyond.unsqueeze(-1), NOTHING)  # beyond its end a row says blanks
        logs[..., self.blank] = logs[..., self.blank].masked_fill(beyond, 0.0)
        blank = torch.cat((logs.new_zeros(rows, 1), logs[..., self.blank].cumsum(1)), 1)
        none = torch.full((rows,), -1, device=logs.device)
        return PrefixState(logs, none, logs.new_zeros(rows), torch.full_like(blank, NOTHING), blank)

    def step(self, tokens: Tensor, state: PrefixState) -> tuple[Tensor, PrefixState]:
        """Return log p of each next token (rows, vocabulary) after `tokens`; those of the first call are START."""
        state = self.grown(tokens.to(state.logs.device), state) if state.begun else replace(state, begun=True)
        return self.following(state), state

    def following(self, state: PrefixState) -> Tensor:
        """Return log p of each token that may come next."""
        both = torch.logaddexp(state.token, state.blank)
        scores = torch.logsumexp(both[:, :-1, None] + state.logs, 1)
        repeated = state.last.clamp(min=0)[:, None]
        own = state.logs.gather(2, repeated.unsqueeze(1).expand(-1, state.logs.shape[1], -1)).squeeze(-1)
        again = torch.logsumexp(state.blank[:, :-1] + own, 1, keepdim=True)  # a token twice has a blank between
        known = (state.last >= 0)[:, None]
        scores = scores.scatter(1, repeated, torch.where(known, again, scores.gather(1, repeated)))
        scores[:, self.blank] = NOTHING
        scores[:, self.end] = both[:, -1]
        return (scores - state.total[:, None]).nan_to_num(nan=NOTHING, neginf=NOTHING)

    def grown(self, tokens: Tensor, state: PrefixState) -> PrefixState:
        """Return the state of prefixes with one more token each."""
        new = self.following(state).gather(1, tokens[:, None]).squeeze(1) + state.total
        logs = state.logs.gather(2, tokens[:, None, None].expand(-1, state.logs.shape[1], -1)).squeeze(-1)
        before = torch.where((tokens == state.last)[:, None], state.blank, torch.logaddexp(state.token, state.blank))
        blanks, ends, gaps = state.logs[..., self.blank], [], []
        end = gap = torch.full_like(new, NOTHING)
        for t in range(logs.shape[1]):
            ends.append(end)
            gaps.append(gap)
            gap = torch.logaddexp(gap, end) + blanks[:, t]
            end = torch.logaddexp(end, before[:, t]) + logs[:, t]
        token, blank = torch.stack([*ends, end], 1), torch.stack([*gaps, gap], 1)
        return PrefixState(state.logs, tokens, new, token, blank, True)
