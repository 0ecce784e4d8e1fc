"""Search: from a model that scores the next token to whole sequences. Greedy, sampling and beam, over any state.

A model is one function, `step(tokens, state) -> (logits, state)`: tokens (rows,), logits (rows, vocabulary). The first
call gets the start token for every row; the state holds everything else, such as caches and the encoded source. Tokens
and the index of `reorder` come on the CPU: a model on another device moves them there.

All searches are one loop. At every step each live hypothesis proposes tokens (beam: its `size` best; greedy: its best;
sampling: one drawn), and of all the proposals of a row the `size` best stay. Those that chose the end are finished and
leave the batch, their places are free at the next step; the rest live on. So, with no special case, a beam of size 1 is
greedy search and a beam as large as the number of sequences is exhaustive search.

    score      = Σ log p(token | the tokens before it), the end token included
    normalised = score / length^α, where the length counts the end token

Log-probabilities only lower a score, so the most that a live hypothesis can still reach is its present score divided by
the largest length penalty of its row, (maximum + 1)^α. Once that is below the worst of `n_best` finished ones it leaves
the batch too. The result is that of a search to the maximum length: whatever it displaced had a lower score and could
not have won either. The tighter the maximum, the sooner this bound bites.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, Self, TypeVar

import numpy
import torch
from torch import Tensor

from regard.errors import UserError

NEVER = -1  # in place of an end token: no token has this id
LINES = 16  # of the table as which the probabilities of a large vocabulary are looked through
GROUP = 256  # neighbours whose largest probability is found first
LOWEST = torch.finfo(torch.float32).min  # the log-probability of a forced end that the model holds to be impossible


class SearchState(Protocol):
    """The protocol of a model's state."""

    def reorder(self, index: Tensor) -> Self:
        """Return the rows `index` of the batch: reordered, repeated, or left out."""


S = TypeVar("S", bound=SearchState)
Step = Callable[[Tensor, S], tuple[Tensor, S]]
# (log-probabilities (live, vocabulary), row of each (live,), length so far) -> distinct tokens (live, some)
Propose = Callable[[Tensor, Tensor, int], Tensor]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The fewest and the most tokens before the end token; the most may differ by row."""

    minimum: int = 0
    maximum: int | Sequence[int]

    def maxima(self, rows: int) -> list[int]:
        """Check the limits and return the maximum of every row."""
        maxima = [self.maximum] * rows if isinstance(self.maximum, int) else list(self.maximum)
        if len(maxima) != rows:
            raise UserError(f"There are {len(maxima)} maximum lengths for {rows} rows, expected one for each row.")
        if self.minimum < 0:
            raise UserError(f"The minimum length is {self.minimum}, expected 0 or more.")
        for row, maximum in enumerate(maxima):
            if maximum < self.minimum:
                raise UserError(f"The maximum length of row {row} is {maximum}, below the minimum of {self.minimum}.")
        return maxima


@dataclass(frozen=True)
class Hypothesis:
    """A result of a search. Scores are the model's own: neither temperature nor suppressed tokens change them."""

    tokens: list[int]  # without start and end
    score: float  # sum of log-probabilities, the end token's included
    normalised: float  # score / length^α; α = 1 for greedy and sampling
    finished: bool  # False: the end was forced at the maximum length, the model preferred (or drew) another token


@dataclass(frozen=True)
class _Rules:
    """The tokens that may be produced, and when."""

    start: int
    end: int  # NEVER, where nothing but the maximum length ends a sequence
    never: list[int]
    minimum: int
    maxima: Tensor  # (rows,)
    scored: bool = True  # False: nobody reads scores, so logits may stand for log-probabilities
    summed: bool = False  # True: the model gives weighted sums of log-probabilities, which stay as they are

    @classmethod
    def of(
        cls,
        rows: int,
        limits: Limits,
        start: int,
        end: int | None,
        pad: int | None,
        *,
        scored: bool = True,
        summed: bool = False,
    ) -> _Rules:
        # Some models start with the token that ends, or pad with it: the end must stay possible.
        never = sorted({start, start if pad is None else pad} - {end})
        maxima = torch.tensor(limits.maxima(rows), dtype=torch.long)
        return cls(start, NEVER if end is None else end, never, limits.minimum, maxima, scored, summed)

    def log_probabilities(self, logits: Tensor, row: Tensor, length: int) -> Tensor:
        """Return the log-probabilities of (live, vocabulary) logits, or the logits; −∞ for forbidden tokens."""
        largest = max(self.start, self.end, *self.never)
        if logits.dim() != 2 or len(logits) != len(row) or logits.shape[1] <= largest:
            expected = f"({len(row)}, more than the special token {largest})"
            raise UserError(f"The model gave logits of shape {tuple(logits.shape)}, expected {expected}.")
        broken = ~logits.amax(-1).isfinite().cpu()  # one NaN makes the whole row NaN
        if broken.any():
            where = f"for row {int(row[broken][0])} after {length} tokens"
            raise UserError(f"The model's logits are NaN or infinite {where}: use an undamaged, earlier checkpoint.")
        plain = self.summed or not self.scored
        log_p = logits.float().clone() if plain else logits.float().log_softmax(-1)
        early = length < self.minimum and self.end != NEVER
        log_p[:, [*self.never, self.end] if early else self.never] = -math.inf
        return log_p


@torch.no_grad()
def greedy(
    step: Step[S],
    state: S,
    rows: int,
    *,
    start: int,
    end: int,
    limits: Limits,
    pad: int | None = None,
    scored: bool = True,
    summed: bool = False,
) -> list[Hypothesis]:
    """Take the most probable token at every step, the lowest id among equals. Scores are NaN unless `scored`.

    `summed`: the model gives sums of log-probabilities (see scorers.py), not logits."""
    rules = _Rules.of(rows, limits, start, end, pad, scored=scored, summed=summed)
    return [one for (one,) in _search(step, state, rules, lambda log_p, *_: _first(log_p), 1, 1, 1.0)]


@torch.no_grad()
def sample(
    step: Step[S],
    state: S,
    rows: int,
    *,
    start: int,
    end: int | None,
    limits: Limits,
    seeds: Sequence[int],
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    pad: int | None = None,
) -> list[Hypothesis]:
    """Draw tokens from softmax(log p / temperature), of the `top_k` best, and of these the fewest that reach `top_p`.

    The random numbers of a row come from its seed alone: not from the rows beside it, their order or the limits.
    Without an `end`, only the maximum length ends a row, and its score is that of its tokens.
    """
    rules = _Rules.of(rows, limits, start, end, pad)
    if not (temperature > 0 and math.isfinite(temperature)):
        raise UserError(f"The temperature is {temperature}, expected a number above 0; near 0 is greedy search.")
    if top_k is not None and top_k < 1:
        raise UserError(f"top_k is {top_k}, expected 1 or more, or nothing for all tokens.")
    if top_p is not None and not 0 < top_p <= 1:
        raise UserError(f"top_p is {top_p}, expected a number above 0 and at most 1.")
    if len(seeds) != rows or min(seeds, default=0) < 0:
        raise UserError(f"The seeds are {list(seeds)}, expected one of 0 or more for each of the {rows} rows.")
    longest = int(rules.maxima.max()) if rows else 0
    uniform = torch.tensor(numpy.array([numpy.random.default_rng(seed).random(longest + 1) for seed in seeds]))

    def draw(log_p: Tensor, row: Tensor, length: int) -> Tensor:
        return _draw(log_p.cpu().double(), uniform[row, length], temperature, top_k, top_p).to(log_p.device)

    return [one for (one,) in _search(step, state, rules, draw, 1, 1, 1.0)]


@torch.no_grad()
def beam(
    step: Step[S],
    state: S,
    rows: int,
    *,
    start: int,
    end: int,
    limits: Limits,
    size: int,
    n_best: int = 1,
    length_penalty: float = 1.0,
    pad: int | None = None,
    summed: bool = False,
) -> list[list[Hypothesis]]:
    """Return the `n_best` sequences of each row by score / length^length_penalty, best first; fewer if there are fewer.

    `length_penalty` is α: 0 takes the sums as they are, 1 the mean per token, more favours longer sequences. Among
    equals the one with the lower token id at the first difference comes first. `summed`: the model gives sums of
    log-probabilities (see scorers.py), not logits.
    """
    rules = _Rules.of(rows, limits, start, end, pad, summed=summed)
    if size < 1:
        raise UserError(f"The beam size is {size}, expected 1 or more.")
    if not 1 <= n_best <= size:
        raise UserError(f"n_best is {n_best}, expected between 1 and the beam size {size}.")
    if not 0 <= length_penalty <= 10:  # more would leave the range of numbers
        raise UserError(f"The length penalty is {length_penalty}, expected a number from 0 to 10.")
    return _search(step, state, rules, lambda log_p, *_: _top(log_p, size), size, n_best, length_penalty)


def _search(
    step: Step[S], state: S, rules: _Rules, propose: Propose, size: int, n_best: int, alpha: float
) -> list[list[Hypothesis]]:
    """Run the loop of all searches. Tensors as wide as the vocabulary stay on the model's device."""
    rows = len(rules.maxima)
    row, total = torch.arange(rows), torch.zeros(rows, dtype=torch.double)  # of every live hypothesis
    written = torch.full((rows, 1), rules.start)
    kept: list[list[Hypothesis]] = [[] for _ in range(rows)]
    worst = torch.full((rows,), -math.inf, dtype=torch.double)  # of the kept ones, once there are n_best
    steepest = torch.tensor([(maximum + 1) ** alpha for maximum in rules.maxima.tolist()], dtype=torch.double)
    while len(row):
        length = written.shape[1] - 1
        logits, state = step(written[:, -1], state)
        log_p = rules.log_probabilities(logits, row, length)
        tokens, gained, willing = _offers(log_p, row, length, rules, propose)
        parent, token, total = _best(row, total[:, None] + gained, tokens, size)
        row = row[parent]
        normalised = total / (length + 1) ** alpha
        done = (token == rules.end) & (normalised >= worst[row])
        for i in done.nonzero().flatten().tolist():
            text, own = written[parent[i], 1:].tolist(), bool(willing[parent[i]])
            scores = (float(total[i]), float(normalised[i])) if rules.scored else (math.nan, math.nan)
            one = Hypothesis(text, *scores, own)
            worst[row[i]] = _keep(kept[int(row[i])], one, n_best)
        alive = ((token != rules.end) & (total / steepest[row] >= worst[row])).nonzero().flatten()
        row, total, parent = row[alive], total[alive], parent[alive]
        written = torch.cat((written[parent], token[alive, None]), 1)
        # Reordering copies the whole state: not when every hypothesis has gone on in its place, or none has.
        if len(row) and not torch.equal(parent, torch.arange(len(logits))):
            state = state.reorder(parent)
    if [] in kept:
        raise UserError(
            f"Row {kept.index([])} has no answer: the model gives probability 0 to every token that it may contain. "
            "Try a smaller minimum length, or an undamaged, earlier checkpoint."
        )
    return kept


def _keep(kept: list[Hypothesis], one: Hypothesis, n_best: int) -> float:
    """Add one hypothesis to the best and return the normalised score to beat from now on."""
    kept.append(one)
    kept.sort(key=lambda each: (-each.normalised, each.tokens))
    del kept[n_best:]
    return kept[-1].normalised if len(kept) == n_best else -math.inf


def _offers(log_p: Tensor, row: Tensor, length: int, rules: _Rules, propose: Propose) -> tuple[Tensor, Tensor, Tensor]:
    """Return proposed tokens (live, some), their log-probabilities, and True (live,) if an end is the model's choice.

    At the maximum length the end is the only proposal, at its own log-probability: scores stay comparable.
    """
    asked = propose(log_p, row, length)
    tokens, gained = asked.cpu(), log_p.gather(-1, asked).cpu().double()
    forced = rules.maxima[row] <= length
    willing = ~forced | (tokens[:, 0] == rules.end)
    if forced.any():
        tokens[forced], gained[forced] = rules.end, -math.inf
        price = 0.0 if rules.end == NEVER else log_p[:, rules.end].cpu().double()[forced].clamp(min=LOWEST)
        gained[forced, 0] = price
    return tokens, gained, willing


def _best(row: Tensor, totals: Tensor, tokens: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the `size` best proposals of every row, best first: hypothesis, token and total, (new live,) each.

    `row` (live,) is sorted. Among equal totals the better hypothesis comes first, then its better token.
    """
    _, number, counts = row.unique_consecutive(return_inverse=True, return_counts=True)
    first, each = counts.cumsum(0) - counts, tokens.shape[1]
    table = totals.new_full((len(counts), int(counts.max()), each), -math.inf)
    table[number, torch.arange(len(row)) - first[number]] = totals
    place = _order(table.flatten(1))[:, :size]
    values = table.flatten(1).gather(1, place)
    possible = values > -math.inf
    place = place[possible]
    parent = first[possible.nonzero()[:, 0]] + place // each
    return parent, tokens[parent, place % each], values[possible]


def _top(values: Tensor, k: int) -> Tensor:
    """Return the indices of the k largest in each row (or all), in order; among equals the lower index first.

    topk takes any among equals. That matters if the next value equals the last one taken: those rows are sorted.
    """
    if k >= values.shape[-1]:
        return _order(values)
    largest, index = _largest(values, k + 1)
    tied = (largest[:, k - 1] == largest[:, k]) & (largest[:, k] > -math.inf)
    index = index[:, :k].sort(-1).values
    if tied.any():
        index[tied] = _order(values[tied])[:, :k].sort(-1).values
    return index.gather(-1, _order(values.gather(-1, index)))


def _first(values: Tensor) -> Tensor:
    """Return the index (rows, 1) of the largest in each row, the lowest among equals: argmax in a fraction of its time.

    Vector instructions, which argmax does not use, find the group of neighbours that holds it.
    """
    even = values.shape[-1] // GROUP * GROUP
    table = values[:, :even].unflatten(1, (-1, GROUP))
    best = torch.cat((table.amax(-1), values[:, even:]), 1).argmax(-1)  # a group, or one of those behind the groups
    group = best.clamp(max=max(0, even // GROUP - 1))
    inside = table[torch.arange(len(values), device=values.device), group].argmax(-1) if even else best
    return torch.where(best * GROUP < even, group * GROUP + inside, best - even // GROUP + even).unsqueeze(1)


def _largest(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the same as topk, for long rows in a third of its time.

    A row is laid out as a table of few lines: the k largest are in the k columns with the largest maxima. Vector
    instructions, which topk does not use, find those. The rest that does not fill a line is always searched.
    """
    rows, columns = len(values), values.shape[-1] // LINES
    if columns < 20 * k:
        return values.topk(k)
    even = LINES * columns
    table = values[:, :even].unflatten(1, (LINES, columns))
    chosen = table.amax(1).topk(k).indices
    inside = table.gather(2, chosen[:, None].expand(rows, LINES, k)).flatten(1)
    largest, index = torch.cat((inside, values[:, even:]), 1).topk(k)
    line, column = index // k, chosen.gather(1, index % k)
    return largest, torch.where(line < LINES, line * columns + column, index - LINES * k + even)


def _order(values: Tensor) -> Tensor:
    """Return indices from the largest to the smallest in each row, equal ones in their order."""
    return values.sort(dim=-1, descending=True, stable=True).indices


def _draw(log_p: Tensor, uniform: Tensor, temperature: float, top_k: int | None, top_p: float | None) -> Tensor:
    """Draw one token for each row (rows, 1): the place of a uniform number among the cumulative probabilities."""
    if top_k is not None:
        index = _top(log_p, top_k)
        log_p = torch.full_like(log_p, -math.inf).scatter(-1, index, log_p.gather(-1, index))
    lowered = (log_p - log_p.max(-1, keepdim=True).values) / temperature
    chance = lowered.nan_to_num(nan=0.0, neginf=-math.inf).softmax(-1)  # NaN: nothing is possible, the search says so
    summed = (chance if top_p is None else _nucleus(chance, top_p)).cumsum(-1)
    # A uniform number below 1 times the last sum stays below it in rounding: no token of probability 0 can be chosen.
    return torch.searchsorted(summed, uniform[:, None] * summed[:, -1:], right=True)


def _nucleus(chance: Tensor, top_p: float) -> Tensor:
    """Return the probabilities (rows, vocabulary) with 0 outside of the fewest largest that reach `top_p`."""
    index = _top(chance, 64)  # mostly enough, and much cheaper than sorting all
    if bool((chance.gather(-1, index).cumsum(-1)[:, -1] < top_p).any()):
        index = _order(chance)
    largest = chance.gather(-1, index)
    before = torch.nn.functional.pad(largest.cumsum(-1), (1, -1))
    return torch.zeros_like(chance).scatter(-1, index, largest.masked_fill(before >= top_p, 0.0))
