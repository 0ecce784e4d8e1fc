"""The chain against the enumeration of all rows of tags."""

import math
from itertools import pairwise, product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import cross_entropy

from regard.layers.crf import CRF, Rules, Step, span_rules

BIO = ("O", "B-x", "I-x", "B-y", "I-y")
LENGTHS = (4, 1, 3)


def chain(tags: int, seed: int, rules: Rules | None = None) -> CRF:
    """A chain with random scores of transitions."""
    torch.manual_seed(seed)
    crf = CRF(tags, rules)
    for parameter in crf.parameters():
        torch.nn.init.normal_(parameter)
    return crf


def sentences(tags: int, seed: int, lengths: tuple[int, ...] = LENGTHS) -> tuple[Tensor, Tensor]:
    torch.manual_seed(100 + seed)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)
    return 2 * torch.randn(len(lengths), max(lengths), tags), mask


def decoded(crf: CRF, emissions: Tensor, mask: Tensor) -> list[list[int]]:
    """The most probable tags, without those of padding."""
    found = crf.best(emissions, mask)
    assert not found.masked_fill(mask, 0).any()
    return [row[:length] for row, length in zip(found.tolist(), mask.sum(1).tolist(), strict=True)]


def allowed(crf: CRF, row: tuple[int, ...]) -> bool:
    if crf.may_start is None:
        return True
    steps = all(bool(crf.may_follow[i, j]) for i, j in pairwise(row))
    return bool(crf.may_start[row[0]]) and bool(crf.may_end[row[-1]]) and steps


def score(crf: CRF, emissions: Tensor, row: tuple[int, ...]) -> Tensor:
    """Of one row of tags for one sentence (n, tags), term by term."""
    total = crf.start[row[0]] + crf.end[row[-1]]
    for t, tag in enumerate(row):
        total = total + emissions[t, tag]
        if t:
            total = total + crf.follow[row[t - 1], tag]
    return total


def all_rows(crf: CRF, emissions: Tensor, *, ruled: bool = True) -> dict[tuple[int, ...], Tensor]:
    """log p of every row of tags that is allowed."""
    rows = [row for row in product(range(emissions.shape[1]), repeat=len(emissions)) if not ruled or allowed(crf, row)]
    scores = torch.stack([score(crf, emissions, row) for row in rows])
    return dict(zip(rows, scores - scores.logsumexp(0), strict=True))


CHAINS = [(3, None), (1, None), (5, span_rules(BIO)), (4, span_rules(("O", "B-x", "E-x", "S-x")))]
IDS = ["free", "one tag", "BIO", "BIOES"]


def gradients(crf: CRF, loss: Tensor, emissions: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss, [emissions, *crf.parameters()], allow_unused=True, materialize_grads=True))


@pytest.mark.parametrize(("tags", "rules"), CHAINS, ids=IDS)
@pytest.mark.parametrize("seed", range(3))
def test_loss_and_gradients_are_those_of_the_enumeration(tags: int, rules: Rules | None, seed: int) -> None:
    crf = chain(tags, seed, rules)
    emissions, mask = sentences(tags, seed)
    emissions.requires_grad_()
    gold, expected = torch.full(mask.shape, -100), torch.zeros(())
    for i, length in enumerate(mask.sum(1).tolist()):
        every = all_rows(crf, emissions[i, :length])
        row = sorted(every)[(7 * seed + 3 * i) % len(every)]
        gold[i, :length] = torch.tensor(row)
        expected = expected - every[row]
    loss = crf.loss(emissions, gold, mask)
    torch.testing.assert_close(loss, expected)
    for found, wanted in zip(gradients(crf, loss, emissions), gradients(crf, expected, emissions), strict=True):
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-4)
        assert found.isfinite().all()


@pytest.mark.parametrize(("tags", "rules"), CHAINS, ids=IDS)
@pytest.mark.parametrize("seed", range(3))
def test_best_row_and_probabilities_are_those_of_the_enumeration(tags: int, rules: Rules | None, seed: int) -> None:
    crf = chain(tags, seed, rules)
    emissions, mask = sentences(tags, seed)
    shares = crf.probabilities(emissions, mask)
    for i, (row, length) in enumerate(zip(decoded(crf, emissions, mask), LENGTHS, strict=True)):
        every = all_rows(crf, emissions[i, :length])
        assert tuple(row) == max(every, key=lambda each: float(every[each].detach()))
        marginal = torch.zeros(mask.shape[1], tags)
        for other, log_p in every.items():
            for t, tag in enumerate(other):
                marginal[t, tag] += log_p.detach().exp()
        torch.testing.assert_close(shares[i], marginal, atol=1e-5, rtol=1e-4)


def test_probabilities_are_the_gradient_of_the_partition() -> None:
    """∂ log Z / ∂ s_t[j] = p(y_t = j | x)."""
    crf = chain(5, 1, span_rules(BIO))
    emissions, mask = sentences(5, 1, (9, 2, 6))
    emissions.requires_grad_()
    log_z = crf._partition(emissions, mask, crf._tables()).sum()
    (slope,) = torch.autograd.grad(log_z, emissions)
    torch.testing.assert_close(crf.probabilities(emissions, mask), slope, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("rules", [None, span_rules(BIO)], ids=["free", "BIO"])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("spread", [0.1, 3, 100])
def test_a_fast_step_is_a_plain_step(rules: Rules | None, rows: int, spread: float) -> None:
    """Values and gradients, also for tags that cannot be reached."""
    torch.manual_seed(0)
    follow = spread * torch.randn(rows, 5, 5)
    before = spread * torch.randn(3, 5)
    if rules is not None:
        follow, before = follow.masked_fill(~rules.follow, -math.inf), before.masked_fill(~rules.start, -math.inf)
        before[1, 1:] = -math.inf  # after O alone, I-x and I-y cannot come
    follow.requires_grad_()
    before.requires_grad_()
    weight, step = torch.randn(3, 5), Step(follow)
    found = []
    for value in (step.plain(before), step.fast(before, before.detach().amax(1, keepdim=True))):
        finite = value.masked_fill(value.isneginf(), 0.0)
        found.append((value, *torch.autograd.grad((weight * finite).sum(), [before, follow], retain_graph=True)))
    for plain, fast in zip(*found, strict=True):
        torch.testing.assert_close(plain, fast, atol=1e-4 * spread, rtol=1e-4)
    assert step.narrow == (spread < 50)


def test_a_step_takes_the_plain_form_where_the_fast_one_would_lose_something(monkeypatch: pytest.MonkeyPatch) -> None:
    step = Step(torch.zeros(1, 2, 2))
    monkeypatch.setattr(Step, "fast", lambda *_: pytest.fail("fast"))
    for before in ([[0.0, -301.0]], [[0.0, 0.0], [-math.inf, -math.inf]]):
        assert step(torch.tensor(before))[0].tolist() == pytest.approx([math.log(1 + math.exp(before[0][1]))] * 2)


def test_without_transitions_it_is_a_softmax() -> None:
    crf = CRF(4)
    emissions, mask = sentences(4, 2)
    gold = emissions.argmin(-1)
    torch.testing.assert_close(
        crf.loss(emissions, gold, mask), cross_entropy(emissions[mask], gold[mask], reduction="sum")
    )
    torch.testing.assert_close(crf.probabilities(emissions, mask)[mask], emissions.softmax(-1)[mask])
    assert decoded(crf, emissions, mask) == [row[m].tolist() for row, m in zip(emissions.argmax(-1), mask, strict=True)]


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 6), min_size=1, max_size=5),
    seed=st.integers(0, 1000),
    more=st.integers(0, 4),
    ruled=st.booleans(),
)
def test_padding_and_order_change_nothing(lengths: list[int], seed: int, more: int, ruled: bool) -> None:
    crf = chain(5, seed, span_rules(BIO) if ruled else None)
    emissions, mask = sentences(5, seed, tuple(lengths))
    gold = torch.randint(5, mask.shape)  # some of these rows break the rules
    wider = torch.cat([emissions.masked_fill(~mask.unsqueeze(2), 1e4), torch.randn(len(lengths), more, 5)], 1)
    wide_mask = torch.cat([mask, torch.zeros(len(lengths), more, dtype=torch.bool)], 1)
    wide_gold = torch.cat([gold.masked_fill(~mask, 4), torch.full((len(lengths), more), -100)], 1)
    order = torch.randperm(len(lengths))
    alone = [(emissions[i : i + 1, :n], gold[i : i + 1, :n], mask[i : i + 1, :n]) for i, n in enumerate(lengths)]
    loss = crf.loss(emissions, gold, mask)
    torch.testing.assert_close(crf.loss(wider, wide_gold, wide_mask), loss)
    torch.testing.assert_close(crf.loss(emissions[order], gold[order], mask[order]), loss)
    torch.testing.assert_close(torch.stack([crf.loss(*one) for one in alone]).sum(), loss)
    rows = decoded(crf, emissions, mask)
    assert decoded(crf, wider, wide_mask) == rows
    assert decoded(crf, emissions[order], mask[order]) == [rows[i] for i in order.tolist()]
    assert [decoded(crf, one[0], one[2])[0] for one in alone] == rows
    assert [len(row) for row in rows] == lengths
    shares = crf.probabilities(emissions, mask)
    torch.testing.assert_close(crf.probabilities(wider, wide_mask)[:, : mask.shape[1]], shares)
    assert all(allowed(crf, tuple(row)) for row in rows if row)


def test_rows_that_break_the_rules_are_scored_without_them() -> None:
    crf, free = chain(5, 3, span_rules(BIO)), chain(5, 3)
    emissions, mask = sentences(5, 3, (3, 3))
    emissions.requires_grad_()
    gold = torch.tensor([[0, 2, 0], [0, 1, 2]])  # O I-x O, and O B-x I-x
    loss = crf.loss(emissions, gold, mask)
    one, other = (crf.loss(emissions[i : i + 1], gold[i : i + 1], mask[i : i + 1]) for i in (0, 1))
    torch.testing.assert_close(loss, one + other)
    torch.testing.assert_close(one, free.loss(emissions[:1], gold[:1], mask[:1]))
    assert other < free.loss(emissions[1:], gold[1:], mask[1:]), "fewer rows share the probability"
    assert all(gradient.isfinite().all() for gradient in gradients(crf, loss, emissions))


def test_forbidden_tags_get_no_gradient_and_no_nan_even_where_nothing_is_possible() -> None:
    rules = Rules(
        torch.tensor([True, False]), torch.tensor([[False, True], [False, False]]), torch.tensor([True, True])
    )
    crf = chain(2, 0, rules)
    emissions = torch.randn(1, 4, 2, requires_grad=True)  # only [0] and [0, 1] are allowed
    mask = torch.tensor([[True, True, False, False]])
    loss = crf.loss(emissions, torch.tensor([[0, 1, 0, 0]]), mask)
    assert loss.item() == pytest.approx(0, abs=1e-6)
    assert all(gradient.isfinite().all() for gradient in gradients(crf, loss, emissions))
    everywhere = torch.ones_like(mask)
    assert crf.probabilities(emissions, everywhere).isfinite().all()
    loss = crf.loss(emissions, torch.tensor([[0, 1, 0, 0]]), everywhere)
    assert loss.isfinite()
    assert all(gradient.isfinite().all() for gradient in gradients(crf, loss, emissions))


def test_large_scores_stay_finite() -> None:
    crf = chain(5, 4, span_rules(BIO))
    emissions, mask = sentences(5, 4)
    loss = crf.loss(1e4 * emissions, crf.best(1e4 * emissions, mask), mask)
    assert loss.item() == pytest.approx(0, abs=0.1)
    assert crf.probabilities(-1e4 * emissions, mask).sum(-1)[mask].allclose(torch.ones(()))


@pytest.mark.parametrize(
    ("tags", "row", "valid"),
    [
        (BIO, "O B-x I-x I-x O", True),
        (BIO, "B-x B-x B-y I-y", True),
        (BIO, "I-x", False),
        (BIO, "O I-x", False),
        (BIO, "B-x I-y", False),
        (("O", "B-x", "I-x", "E-x", "S-x", "S-y"), "S-y B-x I-x E-x O", True),
        (("O", "B-x", "I-x", "E-x", "S-x"), "B-x I-x", False),
        (("O", "B-x", "I-x", "E-x", "S-x"), "B-x O", False),
        (("O", "B-x", "I-x", "E-x", "S-x"), "S-x E-x", False),
        (("O", "B-x", "I-x", "E-x", "B-y"), "B-x B-y E-x", False),
        (("O", "B-x", "I-x", "L-x", "U-x"), "U-x B-x L-x", True),
        (("NOUN", "I-x", "O"), "O I-x", True),
        (("I-x",), "I-x", True),
    ],
)
def test_rules_of_spans(tags: tuple[str, ...], row: str, valid: bool) -> None:
    crf = CRF.of(tags)
    numbers = tuple(tags.index(tag) for tag in row.split())
    assert allowed(crf, numbers) == valid


@pytest.mark.parametrize(
    "tags", [BIO, ("O", "B-x", "I-x", "E-x", "S-x"), ("O", "B-x", "M-x", "E-x", "W-x"), ("B-x", "I-x")], ids=str
)
def test_an_underscore_gives_the_rules_of_a_hyphen(tags: tuple[str, ...]) -> None:
    hyphen, underscore = span_rules(tags), span_rules([tag.replace("-", "_") for tag in tags])
    assert all(torch.equal(one, other) for one, other in zip(hyphen, underscore, strict=True))
    assert not bool(underscore.start.all())
    assert CRF.of([tag.replace("-", "_") for tag in tags]).ruled


def test_rules_are_not_saved_and_half_precision_is_summed_in_single() -> None:
    crf = CRF.of(BIO)
    assert set(crf.state_dict()) == {"start", "follow", "end"}
    emissions, mask = sentences(5, 6)
    assert crf.loss(emissions.bfloat16(), torch.zeros_like(mask, dtype=torch.long), mask).dtype == torch.float32
    assert math.isfinite(crf.loss(emissions, torch.zeros_like(mask, dtype=torch.long), mask).item())
