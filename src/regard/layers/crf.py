"""A linear chain over the tags of a sentence (Lafferty et al. 2001; over neural scores: Lample et al. 2016).

    log p(y | x) = start[y_1] + Σ_t s_t[y_t] + Σ_t follow[y_t−1, y_t] + end[y_n] − log Z

with s_t the scores (emissions) of word t, and Z the same summed over all rows of tags, by the forward algorithm.
Tags that mark spans follow rules (I-x only after B-x or I-x): what they forbid has probability 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from regard.layers.roles import CHOICE, Role
from regard.text.spans import SpanTag, are_span_tags, parse_span_tag


class Rules(NamedTuple):
    """The rules: the first tag, tag j after tag i, the last tag."""

    start: Tensor  # (tags,) boolean
    follow: Tensor  # (tags, tags)
    end: Tensor  # (tags,)


def span_rules(tags: Sequence[str]) -> Rules:
    """The rules of BIO, or of BIOES if any tag ends a span or is one by itself; tags of no scheme are free."""
    read = [parse_span_tag(tag) for tag in tags]
    closing = any(tag.prefix in "ES" for tag in read)  # then spans have to be closed
    start = [tag.prefix not in "IE" for tag in read]
    follow = [[_may_follow(before, after, closing) for after in read] for before in read]
    end = [not (closing and tag.prefix in "BI") for tag in read]
    if not (are_span_tags(tags) and any(start) and any(end)):
        start, end, follow = [True] * len(read), [True] * len(read), [[True] * len(read)] * len(read)
    return Rules(torch.tensor(start), torch.tensor(follow).view(len(read), len(read)), torch.tensor(end))


def _may_follow(before: SpanTag, after: SpanTag, closing: bool) -> bool:
    goes_on = after.prefix in "IE"
    is_open = before.prefix in "BI"
    if goes_on:
        return is_open and before.type == after.type
    return not (closing and is_open)


class CRF(nn.Module):
    """Scores of the transitions between tags. All begin at 0: then every word chooses for itself, as with a softmax.

    Emissions are (batch, n, tags); the mask (batch, n) is true where words are, and these come before the padding. A
    row without words has probability 1. Rows of tags that break the rules can be learned from (data has errors, and
    not all of it is written by the same scheme): they are scored as if there were no rules.
    """

    roles: ClassVar[dict[str, Role]] = {"start": CHOICE, "follow": CHOICE, "end": CHOICE}

    may_start: Tensor
    may_follow: Tensor
    may_end: Tensor

    def __init__(self, tags: int, rules: Rules | None = None) -> None:
        super().__init__()
        self.start = nn.Parameter(torch.zeros(tags))
        self.follow = nn.Parameter(torch.zeros(tags, tags))
        self.end = nn.Parameter(torch.zeros(tags))
        # Not saved: they come from the names of the tags.
        for name in Rules._fields:
            self.register_buffer(f"may_{name}", getattr(rules, name) if rules else None, persistent=False)
        self.ruled = rules is not None and not all(bool(part.all()) for part in rules if not part.is_meta)

    @classmethod
    def of(cls, tags: Sequence[str]) -> CRF:
        """A chain for tags of these names, with the rules that they follow."""
        return cls(len(tags), span_rules(tags))

    def loss(self, emissions: Tensor, tags: Tensor, mask: Tensor, smoothing: float = 0.0) -> Tensor:
        """Σ −log p(tags | emissions) over the batch. Smoothing is for single tags; a row of tags has none."""
        del smoothing
        if not mask.any():
            return 0.0 * emissions.sum()
        emissions, tags = emissions.float(), tags.masked_fill(~mask, 0)
        tables = self._tables(self._broken(tags, mask))
        log_p = self._path(emissions, tags, mask) - self._partition(emissions, mask, tables)
        return -torch.where(mask.any(1), log_p, 0.0).sum()

    @torch.no_grad()
    def best(self, emissions: Tensor, mask: Tensor) -> Tensor:
        """The most probable row of tags of each sentence, (batch, n), 0 where padding is: Viterbi's algorithm."""
        if not mask.any():
            return torch.zeros_like(mask, dtype=torch.long)
        start, follow, end = self._tables()
        emissions = emissions.float()
        back = follow.mT.contiguous()
        scores = start + emissions[:, 0]
        stay = torch.arange(scores.shape[1], device=scores.device)
        pointers = []  # [t][b, j]: the best tag of word t if word t + 1 has tag j
        for t in range(1, emissions.shape[1]):
            values, pointer = (scores.unsqueeze(1) + back).max(2)
            real = mask[:, t, None]
            scores = torch.where(real, values + emissions[:, t], scores)
            pointers.append(torch.where(real, pointer, stay))
        path = [(scores + end).argmax(1, keepdim=True)]
        for pointer in reversed(pointers):
            path.append(pointer.gather(1, path[-1]))
        return torch.cat(path[::-1], dim=1).masked_fill(~mask, 0)

    @torch.no_grad()
    def probabilities(self, emissions: Tensor, mask: Tensor) -> Tensor:
        """p(y_t = j | x), (batch, n, tags), 0 where padding is: forward and backward algorithm."""
        if not mask.any():
            return torch.zeros_like(emissions)
        tables = self._tables()
        _, follow, end = tables
        emissions = emissions.float()
        forward = self._forward(emissions, mask, tables)
        after = end.expand_as(forward[0])  # log of what may come after word t, by its tag
        found = [forward[-1] + after]
        for t in range(emissions.shape[1] - 1, 0, -1):
            coming = (follow + (emissions[:, t] + after).unsqueeze(1)).logsumexp(2)
            after = torch.where(mask[:, t, None], coming, after)
            found.append(forward[t - 1] + after)
        # Where the rules leave no row at all, nothing is probable.
        return torch.stack(found[::-1], dim=1).softmax(-1).nan_to_num(0.0) * mask.unsqueeze(-1)

    def _tables(self, broken: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Start, follow and end with −∞ for what is forbidden, each (1 or batch, …); `broken` rows have no rules."""
        parts = []
        for name in Rules._fields:
            part = getattr(self, name).unsqueeze(0)
            if self.ruled:
                free = part
                part = part.masked_fill(~getattr(self, f"may_{name}"), -math.inf)
                if broken is not None and broken.any():
                    part = torch.where(broken.view(-1, *[1] * (part.dim() - 1)), free, part)
            parts.append(part)
        return parts[0], parts[1], parts[2]

    def _broken(self, tags: Tensor, mask: Tensor) -> Tensor | None:
        """Return which rows of tags break the rules, (batch,); None where there are no rules."""
        if not self.ruled:
            return None
        first, last = tags[:, 0], _last(tags, mask)
        followed = self.may_follow[tags[:, :-1], tags[:, 1:]] | ~mask[:, 1:]
        return ~(self.may_start[first] & self.may_end[last] & followed.all(1))

    def _path(self, emissions: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
        """The score of one row of tags for each sentence, (batch,)."""
        words = emissions.gather(2, tags.unsqueeze(2)).squeeze(2)
        steps = self.follow[tags[:, :-1], tags[:, 1:]]
        inside = torch.where(mask, words, 0.0).sum(1) + torch.where(mask[:, 1:], steps, 0.0).sum(1)
        return inside + self.start[tags[:, 0]] + self.end[_last(tags, mask)]

    def _partition(self, emissions: Tensor, mask: Tensor, tables: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        """log Z, (batch,)."""
        return _log_sum(self._forward(emissions, mask, tables)[-1] + tables[2], 1)

    def _forward(self, emissions: Tensor, mask: Tensor, tables: tuple[Tensor, Tensor, Tensor]) -> list[Tensor]:
        """α_t[b, j]: log of the sum over all beginnings that end with tag j at word t; padding repeats the last."""
        start, follow, _ = tables
        step = Step(follow)
        found = [start + emissions[:, 0]]
        for t in range(1, emissions.shape[1]):
            coming = step(found[-1]) + emissions[:, t]
            found.append(torch.where(mask[:, t, None], coming, found[-1]))
        return found


class Step:
    """log Σ_i exp(α[b, i] + follow[b, i, j]): one step of the forward algorithm.

    As a product of matrices it takes few exponentials: log(exp(α − max α) · exp(follow − max follow)) + both maxima.
    In double precision nothing is lost as long as no α is more than RANGE below the largest; beyond that the sum is
    taken as it is written.
    """

    RANGE = 300.0

    def __init__(self, follow: Tensor) -> None:
        self.follow = follow  # (1 or batch, tags, tags)
        self.top = follow.detach().amax()
        self.ways = (follow - self.top).double().exp()
        self.narrow = _is_narrow(follow, self.top, self.RANGE)

    def __call__(self, before: Tensor) -> Tensor:
        top = before.detach().amax(1, keepdim=True)
        if self.narrow and _is_narrow(before, top, self.RANGE):
            return self.fast(before, top)
        return self.plain(before)

    def plain(self, before: Tensor) -> Tensor:
        return _log_sum(before.unsqueeze(2) + self.follow, 1)

    def fast(self, before: Tensor, top: Tensor) -> Tensor:
        sums = ((before - top).double().exp().unsqueeze(1) @ self.ways).squeeze(1)
        nothing = sums == 0
        logs = sums.masked_fill(nothing, 1.0).log().masked_fill(nothing, -math.inf)
        return logs.to(before.dtype) + top + self.top


def _is_narrow(x: Tensor, top: Tensor, width: float) -> bool:
    """Return True if all of x is −∞ or less than `width` below the top, and the top is a number."""
    x = x.detach()
    return x.is_meta or bool((((top - x < width) | x.isneginf()) & top.isfinite()).all())  # of shapes: as usual


def _log_sum(x: Tensor, dim: int) -> Tensor:
    """log Σ exp; where all are −∞ it is −∞ with gradient 0 (torch's own gradient there is NaN)."""
    nothing = x.isneginf().all(dim, keepdim=True)
    return x.masked_fill(nothing, 0.0).logsumexp(dim).masked_fill(nothing.squeeze(dim), -math.inf)


def _last(tags: Tensor, mask: Tensor) -> Tensor:
    """The tag of the last word of each row, (batch,)."""
    return tags.gather(1, (mask.sum(1, keepdim=True) - 1).clamp(min=0)).squeeze(1)
