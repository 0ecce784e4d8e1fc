"""Show, Attend and Tell against a loop over the paper's equations, one row and one place at a time."""

import pytest
import torch
from torch import Tensor

from regard.attention import Context
from regard.models.show_attend_tell import Teller, doubly_stochastic


def by_the_paper(teller: Teller, words: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs (steps, width) and Σ_t α_t (places,) of one row."""
    score, width = teller.glimpse.score, places.shape[-1]
    mean = sum(places[i] for i in range(len(places))) / len(places)
    both = torch.tanh(teller.first.proj.weight @ mean + teller.first.proj.bias)
    h, c = both[:width], both[width:]
    outputs, looked = [], torch.zeros(len(places))
    for word in words:
        e = torch.stack(
            [score.output.weight[0] @ torch.tanh(score.q_proj.weight @ h + score.k_proj.weight @ a) for a in places]
        )
        alpha = torch.exp(e) / torch.exp(e).sum()
        z = sum(alpha[i] * places[i] for i in range(len(places)))
        if teller.gate is not None:
            z = torch.sigmoid(teller.gate.weight[0] @ h + teller.gate.bias[0]) * z
        cell = teller.lstm
        gates = cell.weight_ih @ torch.cat((word, z)) + cell.bias_ih + cell.weight_hh @ h + cell.bias_hh
        i, f, g, o = gates.chunk(4)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        of_state, of_picture = teller.of_state, teller.of_picture
        outputs.append(word + of_state.weight @ h + of_state.bias + of_picture.weight @ z + of_picture.bias)
        looked = looked + alpha
    return torch.stack(outputs), looked


@pytest.mark.parametrize("gated", [True, False])
def test_teller_equals_the_equations(gated: bool) -> None:
    torch.manual_seed(3)
    teller = Teller(6, 0.0, gated=gated)
    places, words = torch.randn(2, 5, 6, requires_grad=True), torch.randn(2, 4, 6, requires_grad=True)
    where = torch.tensor([[0, 1, 2, 3], [0, 1, -1, -1]])
    memory_where = torch.tensor([[0, 1, 2, 3, 4], [0, 1, 2, -1, -1]])
    ours, state = teller(Context(words, where), Context(places, memory_where))
    penalty = doubly_stochastic(state)
    first, looked_first = by_the_paper(teller, words[0], places[0])
    second, looked_second = by_the_paper(teller, words[1, :2], places[1, :3])
    assert torch.allclose(ours[0], first, atol=1e-6)
    assert torch.allclose(ours[1, :2], second, atol=1e-6)
    expected = sum((1 - x) ** 2 for x in (*looked_first, *looked_second))
    assert torch.allclose(penalty, expected, atol=1e-6)
    inputs = (places, words, *teller.parameters())
    one = torch.autograd.grad(ours[0].sum() + 2 * ours[1, :2].sum() + penalty, inputs, allow_unused=True)
    other = torch.autograd.grad(first.sum() + 2 * second.sum() + expected, inputs, allow_unused=True)
    for mine, theirs in zip(one, other, strict=True):
        assert torch.allclose(mine, theirs, atol=1e-5)


def test_step_by_step_equals_all_at_once() -> None:
    torch.manual_seed(4)
    teller = Teller(6, 0.0).eval()
    memory, words = Context(torch.randn(2, 5, 6)), torch.randn(2, 4, 6)
    with torch.no_grad():
        whole, _ = teller(Context(words), memory)
        state, steps = None, []
        for t in range(4):
            y, state = teller(Context(words[:, t : t + 1], torch.tensor([t])), memory, state, keep=True)
            steps.append(y)
    assert torch.allclose(whole, torch.cat(steps, 1), atol=1e-6)
