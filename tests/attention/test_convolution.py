"""A self-attention layer with relative positions equals a convolution (1911.03584), in values and gradients."""

import pytest
import torch
from torch import nn

from regard.attention.convolution import AttendedConvolution, as_attention


@pytest.mark.parametrize(("side", "shape"), [(1, (5, 4)), (3, (5, 7)), (5, (6, 6)), (3, (2, 2))])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_equals_the_convolution(side: int, shape: tuple[int, int], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    convolution = nn.Conv2d(3, 4, side, padding=side // 2, dtype=dtype)
    attention = as_attention(convolution)
    x, other = (torch.randn(2, 3, *shape, dtype=dtype, requires_grad=True) for _ in range(2))
    other.data.copy_(x.data)
    theirs, ours = convolution(x), attention(other)
    near = 1e-5 if dtype == torch.float32 else 1e-13
    assert ours.allclose(theirs, atol=near)
    upstream = torch.randn_like(theirs)
    theirs.backward(upstream)
    ours.backward(upstream)
    assert x.grad is not None
    assert other.grad is not None
    assert other.grad.allclose(x.grad, atol=near)
    own = attention.values.grad.permute(2, 1, 0).unflatten(-1, (side, side))  # type: ignore[union-attr]
    assert own.allclose(convolution.weight.grad, atol=10 * near)  # type: ignore[arg-type]
    assert attention.bias.grad.allclose(convolution.bias.grad, atol=10 * near)  # type: ignore[union-attr, arg-type]


def test_each_head_looks_at_one_place() -> None:
    torch.manual_seed(0)
    attention = as_attention(nn.Conv2d(2, 2, 3, padding=1))
    _, weights = attention.look(torch.randn(1, 2, 4, 5))
    assert weights.shape == (1, 9, 20, 42)  # 6 × 7 places with the zeros around
    assert weights.max(-1).values.allclose(torch.ones(1, 9, 20))
    first = weights[0, :, 0].argmax(-1)  # the heads of the upper left corner, which lies at row 1, column 1 of 7
    assert first.tolist() == [0, 1, 2, 7, 8, 9, 14, 15, 16]


def test_heads_that_are_not_sharp_blur() -> None:
    torch.manual_seed(0)
    convolution = nn.Conv2d(3, 4, 3, padding=1)
    soft = AttendedConvolution(convolution.weight, convolution.bias, sharpness=1.0)
    x = torch.randn(1, 3, 6, 6)
    assert (soft(x) - convolution(x)).abs().max() > 0.05


@pytest.mark.parametrize("given", [{"stride": 2}, {"padding": 0}, {"groups": 2}, {"padding_mode": "circular"}])
def test_other_convolutions_are_refused(given: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="expected a convolution of stride 1"):
        as_attention(nn.Conv2d(2, 2, 3, **{"padding": 1, **given}))  # type: ignore[arg-type]
