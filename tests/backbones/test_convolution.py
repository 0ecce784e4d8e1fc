"""Convolutions against loops over the paper's formulas, and as graph convolution over windows."""

import math

import pytest
import torch
from torch import Tensor, nn

from regard.attention import Context
from regard.backbones.convolution import ConvolutionEncoder, GatedConvolution, shifts
from regard.models.convolution import convs2s
from tests.models.networks import Converter


@pytest.fixture(autouse=True)
def _double() -> object:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def windows(layer: GatedConvolution, xs: list[Tensor], reach: range) -> list[Tensor]:
    """√½ (x + u ⊙ σ(w)) element by element, from what stands at t + j for j in `reach`; nothing is 0."""
    weight, bias = layer.windows.weight, layer.windows.bias
    found = []
    for t, x in enumerate(xs):
        y = bias.clone()
        for place, j in enumerate(reach):
            if 0 <= t + j < len(xs):
                y = y + weight[:, :, place] @ xs[t + j]
        u, w = y.chunk(2)
        found.append(math.sqrt(0.5) * (x + u * torch.sigmoid(w)))
    return found


def by_loop(model: Converter, source: Tensor, target: Tensor) -> Tensor:
    """ConvS2S, one pair at a time."""
    half, encoder, decoder = math.sqrt(0.5), model.backbone, model.head.decoder
    embedding, logits = model.stem.embedding, []
    for one, other in zip(source, target, strict=True):
        ids, wanted = one[one != 0], other[other != 0]
        e = [embedding.table.weight[i] + embedding.place.table.table[t] for t, i in enumerate(ids)]
        z = e
        for layer in encoder.layers:
            z = windows(layer, z, range(-(layer.kernel // 2), layer.kernel // 2 + 1))
        into = model.head.target
        given = [2, *wanted[:-1].tolist()]
        g = [into.table.weight[i] + into.place.table.table[t] for t, i in enumerate(given)]
        h = g
        for layer, glimpse in ((each.own, each.cross) for each in decoder.layers):
            h, after = windows(layer, h, range(1 - layer.kernel, 1)), []
            for own, asked in zip(h, g, strict=True):
                d = half * (glimpse.query(own) + asked)
                a = torch.stack([d @ key for key in z]).softmax(0)
                c = sum(weight * half * (key + word) for weight, key, word in zip(a, z, e, strict=True))
                after.append(half * (own + math.sqrt(len(z)) * c))
            h = after
        logits.append(model.head.output(torch.stack(h)))
    return torch.cat(logits)


@pytest.mark.parametrize(("layers", "kernel"), [(1, 3), (2, 5), (2, 1)])
def test_equals_a_loop_over_the_papers_equations(layers: int, kernel: int) -> None:
    torch.manual_seed(0)
    model = Converter(convs2s(layers=layers, width=6, kernel=kernel, length=9, dropout=0.0), 12, 11).double().eval()
    source, target = torch.tensor([[5, 6, 7, 8], [9, 4, 0, 0]]), torch.tensor([[4, 5, 7, 3], [6, 3, 0, 0]])
    found, expected = model.logits(source, target)[target != 0], by_loop(model, source, target)
    assert found.allclose(expected, atol=1e-10)
    upstream, weights = torch.randn_like(found), [*model.parameters()]
    ours, theirs = (torch.autograd.grad((y * upstream).sum(), weights) for y in (found, expected))
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.allclose(other, atol=1e-10)
    with torch.no_grad():
        state, tokens = model.start(source), torch.tensor([2, 2])
        full = model.logits(source, target)
        for t in range(4):
            logits, state = model.step(tokens, state)
            real = target[:, t] != 0
            assert logits[real].allclose(full[real, t], atol=1e-10)
            tokens = target[:, t]


@pytest.mark.parametrize("kernel", [1, 3, 4])
def test_a_convolution_is_a_graph_convolution_over_its_windows(kernel: int) -> None:
    """T − k + 1 windows; Σ_j A_j X W_j equals torch's convolution in values and gradients."""
    torch.manual_seed(0)
    theirs, x = nn.Conv1d(5, 7, kernel, bias=False), torch.randn(2, 9, 5, requires_grad=True)
    joins = shifts(9, kernel, x)
    assert joins.shape == (kernel, 9 - kernel + 1, 9)
    assert joins.sum(0).sum(-1).eq(kernel).all()  # each window has k neighbours
    ours = sum(joins[j] @ x @ theirs.weight[:, :, j].T for j in range(kernel))
    expected = theirs(x.mT).mT
    assert expected.shape[1] == 9 - kernel + 1
    assert ours.allclose(expected, atol=1e-12)
    up = torch.randn_like(expected)
    for mine, other in zip(
        *(torch.autograd.grad((y * up).sum(), (x, theirs.weight)) for y in (ours, expected)), strict=True
    ):
        assert mine.allclose(other, atol=1e-12)
    with pytest.raises(ValueError, match="does not fit"):
        shifts(kernel - 1, kernel, x)


def test_layers_see_as_far_as_they_say_and_not_past_padding() -> None:
    torch.manual_seed(0)
    encoder, x = ConvolutionEncoder(4, 3, 3, 0.0), torch.randn(1, 15, 4, requires_grad=True)
    encoder(Context(x)).values[0, 7].sum().backward()
    assert x.grad is not None
    assert x.grad[0].abs().sum(-1).gt(0).tolist() == [4 <= t <= 10 for t in range(15)]  # 3 · (3 − 1) + 1 = 7 of them
    where = torch.tensor([[*range(9), *[-1] * 6]])
    padded = encoder(Context(x.detach(), where)).values
    assert padded[:, :9].allclose(encoder(Context(x.detach()[:, :9])).values)
    assert padded[:, 9:].eq(0).all()


def test_an_even_window_has_no_middle() -> None:
    with pytest.raises(ValueError, match="odd"):
        GatedConvolution(4, 2, 0.0, causal=False)
