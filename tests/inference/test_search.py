"""Every search against a plain one: enumeration, a loop of one line, a beam that never stops early, counted draws."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Tensor, nn

from regard.attention import Cache, MultiHead, causal
from regard.errors import UserError
from regard.inference.search import Hypothesis, Limits, Step, _draw, _first, _largest, beam, greedy, sample

PAD, START, END, VOCABULARY = 0, 1, 2, 6
SPECIAL = {"start": START, "end": END, "pad": PAD}
ORDINARY = range(3, VOCABULARY)
ALPHAS = (0.0, 0.6, 1.0, 2.0)
SHORT = settings(max_examples=50, deadline=None)
seeds = st.integers(0, 10_000)


# ---- models: random logits for each prefix; a GRU; attention with a cache --------------------------------------------


@lru_cache(maxsize=100_000)
def table(key: int, prefix: tuple[int, ...], ties: bool) -> Tensor:
    """Logits of a made-up model after `prefix`: any numbers, or few different ones so that scores are often equal."""
    random = np.random.default_rng([key + 1, *(token + 1 for token in prefix)])
    logits = random.integers(0, 3, VOCABULARY) if ties else random.normal(0, 2, VOCABULARY)
    return torch.tensor(logits, dtype=torch.float32)


@dataclass(frozen=True)
class Prefixes:
    """The state of the made-up model: which model each row asks, and the tokens so far."""

    keys: tuple[int, ...]
    prefixes: tuple[tuple[int, ...], ...]
    ties: bool = False

    @classmethod
    def of(cls, keys: Sequence[int], ties: bool = False) -> Prefixes:
        return cls(tuple(keys), tuple(() for _ in keys), ties)

    def reorder(self, index: Tensor) -> Prefixes:
        chosen = index.tolist()
        return replace(self, keys=tuple(self.keys[i] for i in chosen), prefixes=tuple(self.prefixes[i] for i in chosen))


def ask(tokens: Tensor, state: Prefixes) -> tuple[Tensor, Prefixes]:
    assert len(tokens) == len(state.keys)
    prefixes = tuple((*prefix, token) for prefix, token in zip(state.prefixes, tokens.tolist(), strict=True))
    logits = [table(key, prefix, state.ties) for key, prefix in zip(state.keys, prefixes, strict=True)]
    return torch.stack(logits), replace(state, prefixes=prefixes)


def counted(seen: list[Counter[int]]) -> Step[Prefixes]:
    """The made-up model, noting how many rows of each key it was asked for at each step."""

    def step(tokens: Tensor, state: Prefixes) -> tuple[Tensor, Prefixes]:
        seen.append(Counter(state.keys))
        return ask(tokens, state)

    return step


@dataclass(frozen=True)
class Hidden:
    value: Tensor

    def reorder(self, index: Tensor) -> Hidden:
        return Hidden(self.value[index])


def recurrent(seed: int) -> Step[Hidden]:
    torch.manual_seed(seed)
    embed, cell, out = nn.Embedding(VOCABULARY, 8), nn.GRUCell(8, 8), nn.Linear(8, VOCABULARY)

    def step(tokens: Tensor, state: Hidden) -> tuple[Tensor, Hidden]:
        value = cell(embed(tokens), state.value)
        return 4 * out(value), Hidden(value)

    return step


# ---- plain searches ---------------------------------------------------------------------------------------------------


def log_p(key: int, tokens: tuple[int, ...], ties: bool) -> list[float]:
    return table(key, (START, *tokens), ties).log_softmax(-1).tolist()


def score_of(key: int, tokens: tuple[int, ...], ties: bool = False) -> float:
    return sum(log_p(key, tokens[:i], ties)[token] for i, token in enumerate((*tokens, END)))


def by_rank(found: list[tuple[tuple[int, ...], float]], alpha: float) -> list[tuple[tuple[int, ...], float]]:
    return sorted(found, key=lambda one: (-(one[1] / (len(one[0]) + 1) ** alpha), one[0]))


def enumerate_all(
    key: int, minimum: int, maximum: int, alpha: float, ties: bool
) -> list[tuple[tuple[int, ...], float]]:
    lengths = range(minimum, maximum + 1)
    every = [tokens for length in lengths for tokens in itertools.product(ORDINARY, repeat=length)]
    return by_rank([(tokens, score_of(key, tokens, ties)) for tokens in every], alpha)


def plain_greedy(key: int, minimum: int, maximum: int, ties: bool) -> tuple[tuple[int, ...], bool]:
    tokens: tuple[int, ...] = ()
    while True:
        allowed = [*ORDINARY, END] if len(tokens) >= minimum else list(ORDINARY)
        found = log_p(key, tokens, ties)
        best = min(allowed, key=lambda token: (-found[token], token))
        if best == END or len(tokens) == maximum:
            return tokens, best == END
        tokens = (*tokens, best)


def plain_beam(
    key: int, size: int, n_best: int, minimum: int, maximum: int, alpha: float, ties: bool
) -> tuple[list[tuple[tuple[int, ...], float]], list[int]]:
    """A beam that always runs to the maximum; and how many hypotheses could still win before each step."""
    live, done, hopeful = [((), 0.0)], [], []
    for length in range(maximum + 1):
        kept = by_rank(done, alpha)[:n_best]
        worst = kept[-1][1] / (len(kept[-1][0]) + 1) ** alpha if len(kept) == n_best else -math.inf
        hopeful.append(sum(total / (maximum + 1) ** alpha >= worst for _, total in live))
        every = []
        for tokens, total in live:
            allowed = [END] if length == maximum else [*ORDINARY, END] if length >= minimum else list(ORDINARY)
            found = log_p(key, tokens, ties)
            allowed.sort(key=lambda token: (-found[token], token))
            every += [((*tokens, token), total + found[token]) for token in allowed]
        every = sorted(every, key=lambda one: -one[1])[:size]
        done += [(tokens[:-1], total) for tokens, total in every if tokens[-1] == END]
        live = [one for one in every if one[0][-1] != END]
    return by_rank(done, alpha)[:n_best], [number for number in hopeful if number]


def assert_same(found: list[Hypothesis], expected: list[tuple[tuple[int, ...], float]], alpha: float) -> None:
    assert [tuple(one.tokens) for one in found] == [tokens for tokens, _ in expected]
    assert [one.score for one in found] == pytest.approx([score for _, score in expected], abs=1e-6)
    lengths = [len(one.tokens) + 1 for one in found]
    normalised = [one.score / length**alpha for one, length in zip(found, lengths, strict=True)]
    assert [one.normalised for one in found] == pytest.approx(normalised, abs=1e-9)


# ---- beam ---------------------------------------------------------------------------------------------------------------


@SHORT
@given(seeds, st.sampled_from(ALPHAS), st.integers(0, 3), st.integers(0, 3), st.integers(1, 12), st.booleans())
def test_a_huge_beam_is_exhaustive(key: int, alpha: float, minimum: int, more: int, n_best: int, ties: bool) -> None:
    maximum = min(minimum + more, 4)
    limits = Limits(minimum=minimum, maximum=maximum)
    found = beam(
        ask, Prefixes.of([key], ties), 1, **SPECIAL, limits=limits, size=400, n_best=n_best, length_penalty=alpha
    )
    assert_same(found[0], enumerate_all(key, minimum, maximum, alpha, ties)[:n_best], alpha)


@SHORT
@given(
    seeds, st.sampled_from(ALPHAS), st.integers(1, 5), st.integers(0, 3), st.integers(0, 8), st.data(), st.booleans()
)
def test_stopping_loses_nothing_and_wastes_nothing(
    key: int, alpha: float, size: int, minimum: int, more: int, data: st.DataObject, ties: bool
) -> None:
    n_best = data.draw(st.integers(1, size))
    seen: list[Counter[int]] = []
    limits = Limits(minimum=minimum, maximum=minimum + more)
    state = Prefixes.of([key], ties)
    found = beam(counted(seen), state, 1, **SPECIAL, limits=limits, size=size, n_best=n_best, length_penalty=alpha)
    expected, hopeful = plain_beam(key, size, n_best, minimum, minimum + more, alpha, ties)
    assert_same(found[0], expected, alpha)
    assert [step[key] for step in seen] == hopeful  # each step took exactly the hypotheses that could still win


def test_stopping_is_early_enough_to_matter() -> None:
    seen: list[Counter[int]] = []
    beam(counted(seen), Prefixes.of([3]), 1, **SPECIAL, limits=Limits(maximum=200), size=4, length_penalty=0.0)
    assert len(seen) < 30


def test_a_longer_sequence_may_overtake_a_finished_one() -> None:
    """First the end has probability .4, token 3 .35; after it all is certain: only without a penalty does the end win."""

    def step(tokens: Tensor, state: Prefixes) -> tuple[Tensor, Prefixes]:
        _, state = ask(tokens, state)
        rows = [[0, 0, 0.4, 0.35, 0.15, 0.1] if len(prefix) == 1 else [0, 0, float(len(prefix) > 4), float(len(prefix) <= 4), 0, 0] for prefix in state.prefixes]  # fmt: skip
        return torch.tensor(rows).log(), state

    def best(alpha: float) -> list[int]:
        found = beam(step, Prefixes.of([0]), 1, **SPECIAL, limits=Limits(maximum=9), size=2, length_penalty=alpha)
        return found[0][0].tokens

    assert best(0.0) == []
    assert best(1.0) == [3, 3, 3, 3]


@SHORT
@given(seeds, st.sampled_from(ALPHAS), st.integers(0, 3), st.integers(0, 8), st.booleans())
def test_greedy_is_a_beam_of_one_and_the_plain_loop(
    key: int, alpha: float, minimum: int, more: int, ties: bool
) -> None:
    limits = Limits(minimum=minimum, maximum=minimum + more)
    tokens, finished = plain_greedy(key, minimum, minimum + more, ties)
    (one,) = greedy(ask, Prefixes.of([key], ties), 1, **SPECIAL, limits=limits)
    assert_same([one], [(tokens, score_of(key, tokens, ties))], 1.0)
    assert one.finished == finished
    (unscored,) = greedy(ask, Prefixes.of([key], ties), 1, **SPECIAL, limits=limits, scored=False)
    assert (unscored.tokens, unscored.finished) == (one.tokens, one.finished)
    assert math.isnan(unscored.score)
    assert math.isnan(unscored.normalised)
    ((same,),) = beam(ask, Prefixes.of([key], ties), 1, **SPECIAL, limits=limits, size=1, length_penalty=alpha)
    assert (same.tokens, same.score, same.finished) == (one.tokens, one.score, one.finished)


@SHORT
@given(seeds, st.integers(1, 8), st.sampled_from(ALPHAS), st.booleans())
def test_n_best_is_sorted_and_distinct(key: int, size: int, alpha: float, ties: bool) -> None:
    (found,) = beam(
        ask,
        Prefixes.of([key], ties),
        1,
        **SPECIAL,
        limits=Limits(maximum=6),
        size=size,
        n_best=size,
        length_penalty=alpha,
    )
    assert len(found) == size
    assert len({tuple(one.tokens) for one in found}) == size
    assert found == sorted(found, key=lambda one: (-one.normalised, one.tokens))
    assert all(set(one.tokens) <= set(ORDINARY) for one in found)


def test_equal_scores_are_ordered_by_token_also_in_a_large_vocabulary() -> None:
    """All tokens are equally probable: the lowest ids must win, though topk takes any."""

    def step(tokens: Tensor, state: Hidden) -> tuple[Tensor, Hidden]:
        return torch.zeros(len(tokens), 5000), state

    (found,) = beam(step, Hidden(torch.zeros(1)), 1, **SPECIAL, limits=Limits(minimum=2, maximum=2), size=4, n_best=4)
    assert [one.tokens for one in found] == [[3, 3], [3, 4], [3, 5], [3, 6]]
    (one,) = greedy(step, Hidden(torch.zeros(1)), 1, **SPECIAL, limits=Limits(minimum=2, maximum=5))
    assert (one.tokens, one.finished) == ([3, 3], True)  # the end, where allowed, has the lowest id


def test_an_equal_score_found_later_still_takes_its_place() -> None:
    """[5] ends first, [3, 3] one step later; both have probability ½ and nothing is lost to the stopping rule."""
    after = {(START,): {3: 0.5, 5: 0.5}, (START, 5): {END: 1.0}, (START, 3): {3: 1.0}, (START, 3, 3): {END: 1.0}}

    def step(tokens: Tensor, state: Prefixes) -> tuple[Tensor, Prefixes]:
        _, state = ask(tokens, state)
        rows = [[after[prefix].get(token, 0.0) for token in range(VOCABULARY)] for prefix in state.prefixes]
        return torch.tensor(rows).log(), state

    for n_best in (1, 2):
        (found,) = beam(
            step, Prefixes.of([0]), 1, **SPECIAL, limits=Limits(maximum=3), size=2, n_best=n_best, length_penalty=0.0
        )
        assert [one.tokens for one in found] == [[3, 3], [5]][:n_best]


def test_fewer_sequences_than_asked_for() -> None:
    (found,) = beam(ask, Prefixes.of([5]), 1, **SPECIAL, limits=Limits(maximum=1), size=9, n_best=9)
    assert sorted(one.tokens for one in found) == [[], [3], [4], [5]]


# ---- batches ------------------------------------------------------------------------------------------------------------


def search_all(how: str, step: Step[Hidden] | Step[Prefixes], state: Hidden | Prefixes, keys: list[int], maxima: list[int]) -> list[list[Hypothesis]]:  # fmt: skip
    limits = Limits(minimum=1, maximum=maxima)
    if how == "greedy":
        return [[one] for one in greedy(step, state, len(keys), **SPECIAL, limits=limits)]
    if how == "sample":
        return [[one] for one in sample(step, state, len(keys), **SPECIAL, limits=limits, seeds=keys, top_p=0.9)]
    return beam(step, state, len(keys), **SPECIAL, limits=limits, size=4, n_best=3, length_penalty=0.6)


@pytest.mark.parametrize("how", ["greedy", "sample", "beam"])
@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(seeds, st.integers(1, 7)), min_size=1, max_size=6, unique=True), st.randoms(), st.booleans())
def test_alone_in_a_batch_and_in_any_order(how: str, rows: list[tuple[int, int]], random: object, ties: bool) -> None:
    def run(rows: list[tuple[int, int]]) -> list[list[Hypothesis]]:
        keys, maxima = [key for key, _ in rows], [maximum for _, maximum in rows]
        return search_all(how, ask, Prefixes.of(keys, ties), keys, maxima)

    alone = {row: run([row])[0] for row in rows}
    shuffled = list(rows)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    for order in (rows, shuffled):
        assert run(order) == [alone[row] for row in order]
    for (_, maximum), found in alone.items():
        assert all(1 <= len(one.tokens) <= maximum for one in found)


@pytest.mark.parametrize("how", ["greedy", "sample", "beam"])
def test_a_recurrent_model_alone_and_in_a_batch(how: str) -> None:
    step, keys = recurrent(0), list(range(12))
    memory, maxima = torch.randn(12, 8), [3 + key % 7 for key in keys]
    together = search_all(how, step, Hidden(memory), keys, maxima)
    assert len({tuple(found[0].tokens) for found in together}) > 3
    for key in keys:
        (alone,) = search_all(how, step, Hidden(memory[[key]]), [key], [maxima[key]])
        assert [one.tokens for one in alone] == [one.tokens for one in together[key]]
        assert [one.score for one in alone] == pytest.approx([one.score for one in together[key]], abs=1e-6)


def test_a_cached_attention_model_is_scored_like_the_full_pass() -> None:
    """Reordered caches belong to the right hypothesis: each score is that of one pass over the whole sequence."""
    torch.manual_seed(1)
    embed, layer, out = nn.Embedding(VOCABULARY, 16), MultiHead(16, 2), nn.Linear(16, VOCABULARY)

    @dataclass(frozen=True)
    class Both:
        cache: Cache
        length: int
        source: Tensor

        def reorder(self, index: Tensor) -> Both:
            return Both(self.cache.reorder(index), self.length, self.source[index])

    def step(tokens: Tensor, state: Both) -> tuple[Tensor, Both]:
        x = (embed(tokens) + state.source)[:, None]
        y, cache = layer(x, positions=torch.tensor([state.length]), mask=causal, state=state.cache)
        return 8 * out(y[:, 0]), Both(cache, state.length + 1, state.source)

    source = torch.randn(5, 16)
    found = beam(step, Both(Cache(), 0, source), 5, **SPECIAL, limits=Limits(maximum=9), size=4, n_best=4)
    for row, kept in enumerate(found):
        for one in kept:
            inputs, targets = torch.tensor([START, *one.tokens]), torch.tensor([*one.tokens, END])
            with torch.no_grad():
                y, _ = layer((embed(inputs) + source[row])[None], mask=causal)
                total = -nn.functional.cross_entropy(8 * out(y[0]), targets, reduction="sum")
            assert one.score == pytest.approx(float(total), abs=1e-4)


def test_finished_rows_leave_the_batch() -> None:
    seen: list[Counter[int]] = []
    keys, limits = list(range(20)), Limits(maximum=10)
    found = greedy(counted(seen), Prefixes.of(keys), 20, **SPECIAL, limits=limits)
    lengths = [len(one.tokens) for one in found]
    assert len(set(lengths)) > 3
    assert [step.total() for step in seen] == [sum(length >= n for length in lengths) for n in range(max(lengths) + 1)]
    seen.clear()
    beam(counted(seen), Prefixes.of(keys), 20, **SPECIAL, limits=limits, size=3)
    each = {key: plain_beam(key, 3, 1, 0, 10, 1.0, False)[1] for key in keys}
    for n, step in enumerate(seen):
        assert step == Counter({key: counts[n] for key, counts in each.items() if n < len(counts)})
    assert len(seen) == max(map(len, each.values()))


def test_the_state_is_not_copied_without_need() -> None:
    """While every row goes on in its place there is nothing to reorder."""

    class Untouchable:
        def reorder(self, index: Tensor) -> Untouchable:
            raise AssertionError("reordered without need")

    def step(tokens: Tensor, state: Untouchable) -> tuple[Tensor, Untouchable]:
        return torch.eye(VOCABULARY)[3].expand(len(tokens), -1), state

    for one in greedy(step, Untouchable(), 3, **SPECIAL, limits=Limits(maximum=4)):
        assert (one.tokens, one.finished) == ([3, 3, 3, 3], False)


# ---- sampling -----------------------------------------------------------------------------------------------------------


def plain_support(found: list[float], temperature: float, top_k: int | None, top_p: float | None) -> dict[int, float]:
    """The tokens that may be drawn and how often, in plain Python."""
    weights = {token: math.exp(found[token] / temperature) for token in (*ORDINARY, END)}
    best = sorted(weights, key=lambda token: (-weights[token], token))[:top_k]
    whole, so_far, support = sum(weights[token] for token in best), 0.0, {}
    for token in best:
        if top_p is None or so_far < top_p:
            support[token] = weights[token]
        so_far += weights[token] / whole
    return {token: weight / sum(support.values()) for token, weight in support.items()}


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"),
    [(1.0, None, None), (0.5, None, None), (3.0, None, None), (2.0, 2, None), (2.0, None, 0.7), (2.0, 3, 0.8), (1.0, 1, None), (5.0, 99, 1.0)],
)  # fmt: skip
def test_draws_follow_the_distribution(temperature: float, top_k: int | None, top_p: float | None) -> None:
    draws = 4000
    found = sample(
        ask, Prefixes.of([7] * draws), draws, **SPECIAL, limits=Limits(maximum=1), seeds=range(draws),
        temperature=temperature, top_k=top_k, top_p=top_p,
    )  # fmt: skip
    first = Counter(one.tokens[0] if one.tokens else END for one in found)
    expected = plain_support(log_p(7, (), False), temperature, top_k, top_p)
    assert set(first) == set(expected)
    assert (
        len(expected) == 1
        or chisquare([first[t] for t in expected], [draws * p for p in expected.values()]).pvalue > 0.01
    )
    for one in found[:20]:
        assert one.score == pytest.approx(score_of(7, tuple(one.tokens)), abs=1e-6)  # the model's own, at temperature 1


def test_a_nucleus_of_any_width_in_a_large_vocabulary() -> None:
    """Equal probabilities: exactly the tokens with the lowest ids, as many as reach top_p."""

    def step(tokens: Tensor, state: Hidden) -> tuple[Tensor, Hidden]:
        return torch.zeros(len(tokens), 1003), state

    limits, draws = Limits(minimum=1, maximum=1), 600
    for top_p, width in ((0.0305, 31), (0.2995, 300), (0.7995, 800), (1.0, 1000)):
        found = sample(
            step, Hidden(torch.zeros(draws)), draws, **SPECIAL, limits=limits, seeds=range(draws), top_p=top_p
        )
        tokens = [one.tokens[0] for one in found]
        assert min(tokens) >= 3
        assert 3 + 0.95 * width < max(tokens) < 3 + width


def test_the_extremes_of_a_uniform_number_choose_possible_tokens() -> None:
    found = torch.tensor([[-math.inf, -math.inf, math.log(0.3), math.log(0.7), -math.inf]], dtype=torch.double)
    for top_k, top_p in itertools.product((None, 2, 4), (None, 0.9, 1.0)):
        low, high = (
            int(_draw(found, torch.tensor([u], dtype=torch.double), 1.0, top_k, top_p)) for u in (0.0, 1 - 2**-53)
        )
        assert (low, high) == (2, 3)


def test_steps_and_rows_draw_independently() -> None:
    """The second token is drawn anew: pairs of tokens are as frequent as the product says."""
    draws = 4000

    def step(tokens: Tensor, state: Hidden) -> tuple[Tensor, Hidden]:
        return torch.zeros(len(tokens), VOCABULARY), state

    limits = Limits(minimum=2, maximum=2)
    found = sample(step, Hidden(torch.zeros(draws)), draws, **SPECIAL, limits=limits, seeds=range(draws))
    frequencies = Counter(tuple(one.tokens) for one in found)
    assert chisquare([frequencies[pair] for pair in itertools.product(ORDINARY, repeat=2)]).pvalue > 0.01


@settings(max_examples=30, deadline=None)
@given(seeds, seeds, st.integers(1, 5), st.floats(0.05, 1.0), st.floats(0.2, 4.0))
def test_drawn_tokens_are_in_the_support(key: int, seed: int, top_k: int, top_p: float, temperature: float) -> None:
    seen = sample(
        ask, Prefixes.of([key] * 8), 8, **SPECIAL, limits=Limits(maximum=4), seeds=range(seed, seed + 8),
        top_k=top_k, top_p=top_p, temperature=temperature,
    )  # fmt: skip
    for one in seen:
        path = [*one.tokens, END] if one.finished else one.tokens
        for i, token in enumerate(path):
            assert token in plain_support(log_p(key, tuple(path[:i]), False), temperature, top_k, top_p)


@SHORT
@given(seeds, seeds)
def test_a_temperature_near_zero_is_greedy(key: int, seed: int) -> None:
    limits = Limits(minimum=1, maximum=6)
    for temperature in (1e-6, 1e-300):
        found = sample(ask, Prefixes.of([key]), 1, **SPECIAL, limits=limits, seeds=[seed], temperature=temperature)
        assert found == greedy(ask, Prefixes.of([key]), 1, **SPECIAL, limits=limits)


def test_a_seed_decides_and_a_larger_maximum_changes_no_draw() -> None:
    def run(seed: int, maximum: int) -> Hypothesis:
        limits = Limits(maximum=maximum)
        return sample(ask, Prefixes.of([11]), 1, **SPECIAL, limits=limits, seeds=[seed], temperature=3.0)[0]

    assert [run(seed, 9) for seed in range(30)] == [run(seed, 9) for seed in range(30)]
    assert len({tuple(run(seed, 9).tokens) for seed in range(30)}) > 15
    for seed in range(30):
        assert run(seed, 3).tokens == run(seed, 9).tokens[:3]


# ---- limits, special tokens, faults ----------------------------------------------------------------------------------------


def test_at_the_maximum_the_end_is_forced_and_paid_for() -> None:
    def step(tokens: Tensor, state: Hidden) -> tuple[Tensor, Hidden]:
        return torch.tensor([0, 0, 0.1, 0.6, 0.3, 0]).log().expand(len(tokens), -1), state

    state = Hidden(torch.zeros(3))
    found = greedy(step, state, 3, **SPECIAL, limits=Limits(maximum=[0, 2, 3]))
    assert [one.tokens for one in found] == [[], [3, 3], [3, 3, 3]]
    assert [one.score for one in found] == pytest.approx([n * math.log(0.6) + math.log(0.1) for n in (0, 2, 3)])
    assert [one.normalised for one in found] == pytest.approx(
        [one.score / n for one, n in zip(found, (1, 3, 4), strict=True)]
    )
    assert not any(one.finished for one in found)


def test_an_end_held_impossible_still_gives_a_hypothesis_with_a_finite_score() -> None:
    def step(tokens: Tensor, state: Hidden) -> tuple[Tensor, Hidden]:
        return torch.tensor([0, 0, 0, 0.7, 0.3, 0]).log().expand(len(tokens), -1), state

    (one,) = greedy(step, Hidden(torch.zeros(1)), 1, **SPECIAL, limits=Limits(maximum=2))
    ((best, second),) = beam(step, Hidden(torch.zeros(1)), 1, **SPECIAL, limits=Limits(maximum=2), size=3, n_best=2)
    assert one.tokens == best.tokens == [3, 3]
    assert math.isfinite(best.score)
    assert math.isfinite(second.score)


@pytest.mark.parametrize("how", ["greedy", "sample", "beam"])
def test_no_rows(how: str) -> None:
    assert search_all(how, ask, Prefixes.of([]), [], []) == []


def test_a_model_may_start_or_pad_with_its_end_token() -> None:
    def step(tokens: Tensor, state: Hidden) -> tuple[Tensor, Hidden]:
        return torch.tensor([0, 0, 5.0, 1, 1, 1]).expand(len(tokens), -1), state

    for pad in (None, END, PAD):
        (one,) = greedy(step, Hidden(torch.zeros(1)), 1, start=END, end=END, pad=pad, limits=Limits(maximum=3))
        assert (one.tokens, one.finished) == ([], True)
        ((one,),) = beam(step, Hidden(torch.zeros(1)), 1, start=END, end=END, pad=pad, limits=Limits(minimum=1, maximum=3), size=2)  # fmt: skip
        assert END not in one.tokens


def test_half_precision_logits_and_no_gradient() -> None:
    logits = torch.tensor([0, 0, 1.0, 2.0, 1.0, 0.5], dtype=torch.bfloat16, requires_grad=True)
    states = []

    def step(tokens: Tensor, state: Hidden) -> tuple[Tensor, Hidden]:
        states.append(logits * 2)
        return logits.expand(len(tokens), -1), state

    (one,) = greedy(step, Hidden(torch.zeros(1)), 1, **SPECIAL, limits=Limits(maximum=1))
    assert one.score == pytest.approx(sum(logits.float().log_softmax(-1)[[3, 2]].tolist()), abs=1e-6)
    assert not states[0].requires_grad


FAULTS = {
    "size": (beam, {"size": 0}, "The beam size is 0, expected 1 or more"),
    "n_best above size": (beam, {"size": 2, "n_best": 3}, "n_best is 3, expected between 1 and the beam size 2"),
    "n_best": (beam, {"size": 2, "n_best": 0}, "n_best is 0"),
    "penalty": (beam, {"size": 2, "length_penalty": -0.5}, "length penalty is -0.5"),
    "penalty nan": (beam, {"size": 2, "length_penalty": math.nan}, "length penalty is nan"),
    "temperature": (sample, {"seeds": [1, 2], "temperature": 0.0}, "temperature is 0.0, expected a number above 0"),
    "temperature nan": (sample, {"seeds": [1, 2], "temperature": math.nan}, "temperature is nan"),
    "top_k": (sample, {"seeds": [1, 2], "top_k": 0}, "top_k is 0, expected 1 or more"),
    "top_p": (sample, {"seeds": [1, 2], "top_p": 0.0}, "top_p is 0.0"),
    "top_p above": (sample, {"seeds": [1, 2], "top_p": 1.5}, "top_p is 1.5"),
    "seeds": (sample, {"seeds": [1]}, "one of 0 or more for each of the 2 rows"),
    "seed": (sample, {"seeds": [1, -1]}, "one of 0 or more for each of the 2 rows"),
    "minimum": (greedy, {"limits": Limits(minimum=4, maximum=[4, 3])}, "row 1 is 3, below the minimum of 4"),
    "negative": (greedy, {"limits": Limits(minimum=-1, maximum=3)}, "minimum length is -1"),
    "maxima": (greedy, {"limits": Limits(maximum=[3])}, "There are 1 maximum lengths for 2 rows"),
    "special": (greedy, {"end": 6}, r"shape \(2, 6\), expected \(2, more than the special token 6\)"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_one_sentence(name: str) -> None:
    search, arguments, message = FAULTS[name]
    with pytest.raises(UserError, match=message) as caught:
        search(ask, Prefixes.of([1, 2]), 2, **{**SPECIAL, "limits": Limits(maximum=3), **arguments})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("how", ["greedy", "sample", "beam"])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("place", range(VOCABULARY))
def test_nan_logits_are_refused(how: str, bad: float, place: int) -> None:
    """The third row breaks at the second step, when the first has left: it is still called by its own number."""

    def step(tokens: Tensor, state: Prefixes) -> tuple[Tensor, Prefixes]:
        _, state = ask(tokens, state)
        logits = torch.zeros(len(tokens), VOCABULARY)
        for i, (key, prefix) in enumerate(zip(state.keys, state.prefixes, strict=True)):
            if key == 2 and len(prefix) == 2:
                logits[i, place] = bad
        return logits, state

    with pytest.raises(UserError, match=r"NaN or infinite for row 2 after 1 tokens"):
        search_all(how, step, Prefixes.of([0, 1, 2]), [0, 1, 2], [1, 5, 5])


def test_nothing_possible_is_refused() -> None:
    def step(tokens: Tensor, state: Hidden) -> tuple[Tensor, Hidden]:
        return torch.tensor([0.5, 0.5, 0, 0, 0, 0]).log().expand(len(tokens), -1), state

    for how in ("greedy", "sample", "beam"):
        with pytest.raises(UserError, match="Row 0 has no answer: the model gives probability 0 to every token"):
            search_all(how, step, Hidden(torch.zeros(1)), [0], [3])


def test_without_an_end_only_the_maximum_length_ends_a_row() -> None:
    logits = torch.tensor([0.0, 1.0, 2.0, 0.5])

    class Nothing:
        def reorder(self, index: Tensor) -> Nothing:
            return self

    def step(tokens: Tensor, state: Nothing) -> tuple[Tensor, Nothing]:
        return logits.expand(len(tokens), -1).clone(), state

    found = sample(step, Nothing(), 2, start=0, end=None, limits=Limits(maximum=[40, 7]), seeds=[1, 2])
    assert [len(one.tokens) for one in found] == [40, 7]
    assert {token for one in found for token in one.tokens} == {1, 2, 3}, "any token but the start, also the last"
    for one in found:
        assert one.score == pytest.approx(float(logits.log_softmax(-1)[one.tokens].sum()), rel=1e-5)
        assert not one.finished


@given(
    st.integers(1, 5), st.integers(1, 6), st.integers(1, 4000), st.integers(0, 2**32 - 1), st.sampled_from([3, 10**6])
)
def test_the_largest_of_long_rows_are_those_of_topk(rows: int, k: int, size: int, seed: int, distinct: int) -> None:
    values = torch.randint(distinct, (rows, size + k), generator=torch.Generator().manual_seed(seed)).double()
    values[:, ::7] = -torch.inf
    largest, index = _largest(values, k)
    assert torch.equal(largest, values.topk(k).values)
    assert torch.equal(values.gather(1, index), largest)
    assert all(len({*row}) == k for row in index.tolist())


@given(st.integers(1, 5), st.integers(1, 1200), st.integers(0, 2**32 - 1), st.sampled_from([2, 10**6]))
def test_the_first_of_the_largest_is_that_of_argmax(rows: int, size: int, seed: int, distinct: int) -> None:
    values = torch.randint(distinct, (rows, size), generator=torch.Generator().manual_seed(seed)).double()
    values[:, ::7] = -torch.inf
    assert torch.equal(_first(values), values.argmax(-1, keepdim=True))
