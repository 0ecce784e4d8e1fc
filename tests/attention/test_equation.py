"""The reference itself: worked numbers, symmetries, the lectures' memories as combinations of parts, and its refusals."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.attention import attend, causal, masks
from regard.attention.equation import rule_of
from regard.attention.normalisers import exponential, mean, none, relu, sigmoid, softmax
from regard.attention.positions import Decay
from regard.attention.scores import Additive, Content, dot, uniform


def test_worked_example_to_three_decimals() -> None:
    v = torch.tensor([[2.0, 3, 1], [2, -1, 0], [0, 5, 1]])
    k = torch.tensor([[2.0, 1, -1], [0, 3, -1], [1, 1, 3]])
    q = torch.tensor([[2.0, -1, 0], [-2, 1, 4]])
    assert dot(q, k).tolist() == [[3, -3, 1], [-7, -1, 11]]
    answer, weights = attend(q, k, v, score=dot)
    printed = torch.tensor([[0.879, 0.002, 0.119], [0.0, 0.0, 1.0]])
    assert weights.mul(1000).round().div(1000).allclose(printed)
    # The printed answer 1.762, 3.23, .998 is what the printed weights give; the exact second number is 3.2292.
    assert (printed @ v).allclose(torch.tensor([[1.762, 3.23, 0.998], [0, 5, 1]]))
    assert answer.allclose(printed @ v, atol=1e-3)


def test_party_of_five() -> None:
    """Five guests' weights .70 .04 .03 .20 .03 from scores: only differences of scores matter."""
    weights = torch.tensor([0.70, 0.04, 0.03, 0.20, 0.03])
    guests = torch.eye(5)
    answer, seen = attend(weights.log().view(1, 5) + 7.0, guests, guests, score=dot)
    assert seen.allclose(weights.view(1, 5), atol=1e-6)
    assert answer.allclose(weights.view(1, 5), atol=1e-6)


def test_masked_softmax_of_two_two() -> None:
    mask = torch.tensor([True, True, False])
    assert softmax(torch.tensor([2.0, 2.0, 9.0]), mask).tolist() == [0.5, 0.5, 0.0]


@pytest.mark.parametrize("normalise", [softmax, sigmoid, relu, exponential, none, mean])
def test_an_empty_row_gives_zeros_and_finite_gradients(normalise: object) -> None:
    scores = torch.randn(3, 4, requires_grad=True)
    mask = torch.ones(3, 4, dtype=torch.bool)
    mask[1] = False
    weights = normalise(scores, mask)  # type: ignore[operator]
    assert weights[1].eq(0).all()
    if weights.requires_grad:
        weights.pow(2).sum().backward()
        assert scores.grad is not None
        assert scores.grad.isfinite().all()
        assert scores.grad[1].eq(0).all()


@settings(max_examples=30, deadline=None)
@given(n=st.integers(1, 9), seed=st.integers(0, 2**31))
def test_equivariance_without_positions(n: int, seed: int) -> None:
    """F(PX) = P F(X), and F(PX, PAPᵀ) = P F(X, A); summed over elements it is invariant."""
    torch.manual_seed(seed)
    x, order = torch.randn(n, 6, dtype=torch.float64), torch.randperm(n)
    adjacency = torch.rand(n, n) < 0.5
    plain, _ = attend(x, x, x)
    moved, _ = attend(x[order], x[order], x[order])
    assert moved.allclose(plain[order])
    assert moved.sum(0).allclose(plain.sum(0))
    on_graph, _ = attend(x, x, x, mask=masks.ordering(adjacency))
    moved_graph, _ = attend(x[order], x[order], x[order], mask=masks.ordering(adjacency[order][:, order]))
    assert moved_graph.allclose(on_graph[order])


class TestCompositeMemory:
    """A1: h = Σ θᵀx_i, then with forgetting, then with a gate, then normalised; each a choice of parts."""

    def setup_method(self) -> None:
        torch.manual_seed(1)
        self.x = torch.randn(7, 5, dtype=torch.float64)
        self.theta = torch.randn(5, 3, dtype=torch.float64)
        self.v = self.x @ self.theta

    def test_plain_sum(self) -> None:
        h, _ = attend(None, self.x, self.v, score=uniform, normalise=exponential)
        assert h[0].allclose(sum(self.v))

    def test_forgetting(self) -> None:
        last = torch.tensor([6])
        h, _ = attend(None, self.x, self.v, score=uniform, bias=Decay(0.8), normalise=exponential, q_pos=last)
        assert h[0].allclose(sum(0.8 ** (6 - i) * self.v[i] for i in range(7)))

    @pytest.mark.parametrize("normalise", [sigmoid, softmax])
    def test_learned_gate_and_its_normalised_form(self, normalise: object) -> None:
        gate = Content(5, 1).double()
        h, weights = attend(None, self.x, self.v, score=gate, normalise=normalise)  # type: ignore[arg-type]
        s = self.x @ gate.theta.weight[0] + gate.theta.bias
        expected = 1 / (1 + (-s).exp()) if normalise is sigmoid else s.exp() / s.exp().sum()
        assert weights[0].allclose(expected)
        assert h[0].allclose(expected @ self.v)

    @pytest.mark.parametrize("normalise", [sigmoid, softmax])
    def test_the_unnormalised_gate_opens_everywhere_and_softmax_cannot(self, normalise: object) -> None:
        """Why weights are normalised: a gate rewarded for what is remembered attends to everything (all λ → 1).

        Each item has a direction of its own, so ⟨h, v_i⟩ is what the memory h still holds of item i.
        """
        items, gate = torch.eye(len(self.x), dtype=torch.float64), Content(5, 1).double()
        optimiser = torch.optim.SGD(gate.parameters(), lr=5.0)
        history = []
        for _ in range(300):
            h, _ = attend(None, self.x, items, score=gate, normalise=normalise)  # type: ignore[arg-type]
            history.append((h @ items.mT)[0])
            optimiser.zero_grad()
            (-history[-1].sum()).backward()
            optimiser.step()
        first, last = history[0], history[-1]
        if normalise is sigmoid:
            assert first.max() < 0.9, "at first it is half open"
            assert last.min() > 0.9
        else:
            assert last.allclose(first), "what one item gains the others lose: there is nothing to be won by opening"
            assert last.sum().item() == pytest.approx(1)


def test_content_attention_has_as_many_answers_as_learned_queries() -> None:
    x = torch.randn(2, 4, 9, 5)
    answer, weights = attend(None, x, x, score=Content(5, 3))
    assert answer.shape == (2, 4, 3, 5)
    assert weights.sum(-1).allclose(torch.ones(2, 4, 3))


def test_context_attention_depends_on_values_and_a_context_that_is_data() -> None:
    """A3: keys are the values themselves; another context gives other weights through the same parameters."""
    score = Additive(4, 5, 8)
    values = torch.randn(6, 5)
    one, two = (
        attend(torch.randn(1, 4), values, values, score=score)[1],
        attend(torch.randn(1, 4), values, values, score=score)[1],
    )
    assert not one.allclose(two)


def test_values_may_have_another_width_than_keys() -> None:
    assert attend(torch.randn(2, 4), torch.randn(3, 4), torch.randn(3, 7))[0].shape == (2, 7)


def test_a_users_own_parts_are_plain_functions_and_train() -> None:
    strength = torch.tensor(0.5, requires_grad=True)
    q, k, v = (torch.randn(2, 2, 5, 4) for _ in range(3))

    def nearness(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return -torch.cdist(q, k)

    def recency(q: torch.Tensor, k: torch.Tensor, q_pos: torch.Tensor, k_pos: torch.Tensor) -> torch.Tensor:
        return -strength * (q_pos[:, None] - k_pos).abs()

    even = masks.Mask(lambda q, k: (q - k) % 2 == 0, "even")
    answer, weights = attend(q, k, v, score=nearness, bias=recency, mask=even & causal)
    answer.sum().backward()
    assert strength.grad is not None
    assert strength.grad.abs() > 0
    assert weights[..., 4, :].gt(0).tolist()[0][0] == [True, False, True, False, True]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"mask": torch.ones(3, 9, dtype=torch.bool)}, r"the mask has shape \(3, 9\), expected .* \(2, 4, 3, 5\)"),
        ({"mask": torch.zeros(3, 5)}, "a mask is boolean .* found torch.float32: numbers to be added belong in `bias`"),
        ({"q": torch.full((2, 4, 3, 8), math.nan)}, r"q holds NaN, first at index \(0, 0, 0, 0\)"),
        ({"v": torch.randn(2, 4, 6, 8)}, "every key needs its value: found 5 keys and 6 values"),
        ({"k": torch.randn(2, 3, 5, 8), "v": torch.randn(2, 3, 5, 8)}, "heads of the keys must divide"),
        ({"q_pos": torch.arange(4)}, "positions must be one per element: expected 3, found 4"),
        ({"mask": masks.Mask(lambda q, k: q - k, "gap")}, "the mask 'gap' gave torch.int64, expected torch.bool"),
        ({"q": None}, "q is None: pass q, or use the score Content or uniform"),
    ],
)  # fmt: skip
def test_refusals_in_one_sentence(change: dict[str, object], sentence: str) -> None:
    given: dict[str, object] = {
        "q": torch.randn(2, 4, 3, 8),
        "k": torch.randn(2, 4, 5, 8),
        "v": torch.randn(2, 4, 5, 8),
    }
    given |= change
    with pytest.raises(ValueError, match=sentence):
        attend(given.pop("q"), given.pop("k"), given.pop("v"), **given)  # type: ignore[arg-type]


def test_infinite_queries_are_not_mistaken_for_nan() -> None:
    q = torch.full((1, 2), 3e38)
    assert attend(q, torch.zeros(2, 2), torch.ones(2, 2))[0].isfinite().all()


def test_the_rule_of_a_mask_is_the_same_in_every_form() -> None:
    where, dense = torch.arange(4), torch.ones(4, 4, dtype=torch.bool)
    for form in (causal, causal.on(where, where), masks.QueryMask(causal, where)):
        assert rule_of(form) is causal
    assert rule_of(dense) is dense
    assert rule_of(None) is None
