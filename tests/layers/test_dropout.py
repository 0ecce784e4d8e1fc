"""Dropout by fast random bits: its probability, its mean, its gradient, and who governs it."""

import pytest
import torch

from regard.layers.dropout import Dropout, keep_mask


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.9])
def test_keeps_with_its_probability(p: float) -> None:
    torch.manual_seed(0)
    kept = keep_mask(torch.Size((1000, 1001)), p).double().mean().item()
    assert kept == pytest.approx(1 - p, abs=4 * (p * (1 - p) / 1_001_000) ** 0.5 + 1 / 65536)


def test_neighbours_are_independent() -> None:
    torch.manual_seed(0)
    kept = keep_mask(torch.Size((400_000,)), 0.3).double() - 0.7
    for lag in (1, 2, 3, 4, 64, 1024):
        assert abs((kept[:-lag] * kept[lag:]).mean().item()) < 5 * 0.21 / 400_000**0.5


def test_gradient_is_the_mask_and_evaluation_is_the_identity() -> None:
    torch.manual_seed(0)
    layer, x = Dropout(0.25), torch.ones(50, 60, requires_grad=True)
    y = layer(x)
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.equal(y.detach())
    assert y.detach().unique().tolist() == [0.0, pytest.approx(1 / 0.75)]
    assert layer.eval()(x) is x


def test_torch_governs_it() -> None:
    layer, x = Dropout(0.5), torch.ones(100)
    torch.manual_seed(3)
    first, state = layer(x), torch.get_rng_state()
    second = layer(x)
    assert not first.equal(second)
    torch.set_rng_state(state)
    assert layer(x).equal(second)


def test_refuses_what_is_no_probability() -> None:
    with pytest.raises(ValueError, match="a probability from 0 to below 1, found 1"):
        Dropout(1)
