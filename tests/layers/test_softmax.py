"""The chunked loss is the plain one: value and gradients."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.layers import softmax
from regard.layers.softmax import plain, token_loss


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 9), st.integers(2, 12), st.sampled_from([0.0, 0.1, 0.5]), st.integers(1, 40), st.booleans())
def test_chunked_is_plain(rows: int, size: int, smoothing: float, chunk: int, biased: bool) -> None:
    torch.manual_seed(rows)
    x, weight, bias = (
        torch.randn(shape, dtype=torch.double, requires_grad=True) for shape in ((rows, 3), (size, 3), (size,))
    )
    wanted, scale = torch.randint(size, (rows,)), torch.rand((), dtype=torch.double)
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(softmax, "CHUNK", chunk)
        for loss in (token_loss, plain):
            value = loss(x, weight, bias if biased else None, wanted, smoothing)
            found.append([value, *torch.autograd.grad(value * scale, (x, weight, bias) if biased else (x, weight))])
    for ours, theirs in zip(*found, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-10)


def test_logits_of_a_batch_never_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    inner = softmax.aligned
    monkeypatch.setattr(softmax, "aligned", lambda x, *head: sizes.append(len(x)) or inner(x, *head))
    monkeypatch.setattr(softmax, "CHUNK", 100)
    x, weight = torch.randn(23, 4, requires_grad=True), torch.randn(20, 4, requires_grad=True)
    token_loss(x, weight, torch.zeros(20, requires_grad=True), torch.randint(20, (23,)), 0.1).backward()
    assert sizes == [5, 5, 5, 5, 3]


def test_without_a_gradient_it_is_plain() -> None:
    x, weight, bias, wanted = torch.randn(5, 3), torch.randn(7, 3), torch.randn(7), torch.randint(7, (5,))
    assert torch.equal(token_loss(x, weight, bias, wanted, 0.1), plain(x, weight, bias, wanted, 0.1))


@pytest.mark.parametrize("size", [1, 16, 33])
@pytest.mark.parametrize("biased", [True, False])
def test_aligned_logits_are_those_of_a_linear_layer(size: int, biased: bool) -> None:
    x, head = torch.randn(6, 5), torch.nn.Linear(5, size, bias=biased)
    with torch.no_grad():
        found = softmax.logits_of(x, head)
        assert found.stride(0) % softmax.LINE == 0
        assert torch.allclose(found, head(x), atol=1e-6)
    assert softmax.logits_of(x, head).requires_grad


def test_huge_logits_and_a_hopeless_token_have_an_exact_loss() -> None:
    """p of the wanted token is 0 in float32; its logarithm is not lost."""
    x = torch.tensor([[200.0], [-300.0]], requires_grad=True)
    weight = torch.tensor([[1.0], [0.0], [-1.0]], requires_grad=True)
    found = token_loss(x, weight, None, torch.tensor([2, 0]), 0.0)
    assert found.item() == 400 + 600
    found.backward()
    assert torch.equal(x.grad, torch.tensor([[2.0], [-2.0]]))
