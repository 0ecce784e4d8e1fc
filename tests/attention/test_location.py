"""Location-aware attention against a loop over the paper's equations, and as a part of a decoder."""

import torch
from torch import Tensor

from regard.attention import Context, padding
from regard.attention.location import LocationAware
from regard.inspection.recording import watch
from regard.models.recurrent import recurrent


def looped(layer: LocationAware, queries: Tensor, states: Tensor, real: int) -> tuple[Tensor, Tensor]:
    """Chorowski et al. 2015, equations 5 to 9, for one row of which `real` states are no padding."""
    filters, radius = layer.convolution.weight[:, 0], layer.convolution.weight.shape[-1] // 2
    w = layer.attention.score.output.weight[0]  # type: ignore[union-attr, index]
    last = torch.full((real,), 1 / real, dtype=states.dtype)
    contexts, alignments = [], []
    for q in queries:
        energies = []
        for i in range(real):
            f = torch.zeros(len(filters), dtype=states.dtype)
            for k in range(len(filters)):
                for d in range(-radius, radius + 1):
                    if 0 <= i + d < real:
                        f[k] = f[k] + filters[k, d + radius] * last[i + d]
            inside = (
                layer.q_proj.weight @ q
                + layer.k_proj.weight @ states[i]
                + layer.k_proj.bias
                + layer.location_proj.weight @ f
            )
            energies.append(w @ inside.tanh())
        last = torch.stack(energies).softmax(0)
        alignments.append(last)
        contexts.append(last @ states[:real])
    return torch.stack(contexts), torch.stack(alignments)


def test_it_equals_the_equations_in_values_and_gradients() -> None:
    torch.manual_seed(0)
    layer = LocationAware(4, 5, 6, filters=3, kernel=5).double()
    q, h = torch.randn(2, 3, 4, dtype=torch.double), torch.randn(2, 7, 5, dtype=torch.double)
    where = torch.tensor([[0, 1, 2, 3, 4, 5, 6], [0, 1, 2, 3, -1, -1, -1]])
    context = Context(h, where)
    with watch(layer) as seen:
        ours, _ = layer(q, context, torch.arange(3), padding.at(torch.arange(3)))
    for row, real in enumerate((7, 4)):
        theirs, weights = looped(layer, q[row], h[row], real)
        assert ours[row].allclose(theirs, atol=1e-12)
        assert seen["attention"].weights[row, 0, :, :real].allclose(weights, atol=1e-12)
        upstream = torch.randn_like(theirs)
        for mine, other in zip(
            torch.autograd.grad((ours[row] * upstream).sum(), [*layer.parameters()], retain_graph=True),
            torch.autograd.grad((theirs * upstream).sum(), [*layer.parameters()]),
            strict=True,
        ):
            assert mine.allclose(other, atol=1e-10)


def test_step_by_step_and_reordered_it_is_the_same() -> None:
    torch.manual_seed(1)
    layer = LocationAware(4, 5, 6)
    q, context = torch.randn(2, 4, 4), Context(torch.randn(2, 9, 5))
    whole, _ = layer(q, context, None, padding)
    state, steps = None, []
    for t in range(4):
        y, state = layer(q[:, t : t + 1], context if state is None else None, torch.tensor([t]), padding, state)
        steps.append(y)
    assert torch.cat(steps, 1).allclose(whole, atol=1e-6)
    turned = torch.tensor([1, 0])
    _, state = layer(q[:, :2], context, None, padding)
    y, _ = layer(q[turned][:, 2:3], None, torch.tensor([2]), padding, state.reorder(turned))
    assert y.allclose(whole[turned][:, 2:3], atol=1e-6)


def test_a_recurrent_decoder_takes_it_with_and_without_input_feeding() -> None:
    for feeding in (True, False):
        pair = recurrent(width=8, attention="location", feeding=feeding, dropout=0.0)
        memory = pair.encoder(Context(torch.randn(2, 6, 8)))
        y, _ = pair.decoder(Context(torch.randn(2, 3, 8)), memory)
        assert y.shape == (2, 3, 8)
