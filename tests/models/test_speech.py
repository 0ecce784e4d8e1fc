"""Networks for long rows of vectors: the Conformer, the pyramidal LSTM, the window baseline, and truncated attention."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import pad

from regard.attention import Context
from regard.backbones.conformer import ConvolutionModule
from regard.backbones.pyramid import Pyramid, paired_up
from regard.backbones.window import Neighbours
from regard.data.draws import Draws
from regard.inputs.frames import Frames, FrameSettings
from regard.inputs.input import Batch, Source, Use
from regard.inputs.specaugment import Variation, at_speed, stretched
from regard.layers import subsampling
from regard.layers.stem import Stem
from regard.layers.subsampling import ConvolvedFrames, StackedFrames
from regard.models.encoder import encoder
from regard.models.speech import conformer, neighbours, pyramid
from regard.network import Network
from regard.outputs.output import Passes
from regard.outputs.tag.head import Independent, TagHead

BUILDERS: dict[str, Any] = {
    "conformer": lambda: conformer(layers=2, width=8, hidden=16, heads=2, kernel=5, length=50, dropout=0.0),
    "truncated conformer": lambda: conformer(
        layers=2, width=8, hidden=16, heads=2, kernel=5, length=50, dropout=0.0, window=(3, 2)
    ),
    "truncated": lambda: encoder(layers=2, width=8, hidden=16, heads=2, length=50, dropout=0.0, window=(3, 2)),
    "pyramid": lambda: pyramid(cell="lstm", width=8, halvings=2, dropout=0.0),
    "window": lambda: neighbours(width=8, hidden=16, radius=2, dropout=0.0),
}


@pytest.mark.parametrize("name", BUILDERS)
def test_padding_and_the_rest_of_the_batch_change_nothing(name: str) -> None:
    torch.manual_seed(0)
    _, backbone = BUILDERS[name]()
    backbone.eval()
    x = torch.randn(2, 11, 8)
    where = torch.stack([torch.arange(11), torch.where(torch.arange(11) < 6, torch.arange(11), -1)])
    both = backbone(Context(x, where))
    for row, real in ((0, 11), (1, 6)):
        alone = backbone(Context(x[row : row + 1, :real], torch.arange(real)))
        count = alone.values.shape[1]
        assert both.values[row, :count].allclose(alone.values[0], atol=1e-5)
    noisy = x.clone()
    noisy[1, 6:] = 9.0
    assert backbone(Context(noisy, where)).values[1, :2].allclose(both.values[1, :2], atol=1e-5)


def test_the_window_baseline_is_a_network_over_each_vector_and_its_neighbours() -> None:
    torch.manual_seed(0)
    layer, x = Neighbours(3, 5, 2, 0.0), torch.randn(1, 6, 3)
    y = layer(Context(x)).values[0]
    wide = pad(x[0], (0, 0, 2, 2))
    for i in range(6):
        near = wide[i : i + 5]  # (5, 3)
        inner = torch.stack([(layer.inner.weight[h] * near.T).sum() + layer.inner.bias[h] for h in range(5)])  # type: ignore[index]
        assert y[i].allclose(layer.outer.weight @ inner.relu() + layer.outer.bias, atol=1e-5)


def test_a_pyramid_halves_rows_and_keeps_positions_and_units() -> None:
    units = torch.tensor([[0, 1, 2, 3, 4, -1], [0, 1, 2, -1, -1, -1]])
    where = torch.tensor([[0, 1, 2, 3, 4], [0, 1, 2, -1, -1]])
    half = paired_up(Context(torch.arange(20.0).view(2, 5, 2), where, units=units, stride=(4, 1, 1)))
    assert half.positions is not None
    assert half.positions.tolist() == [[0, 2, 4], [0, 2, -1]]
    assert half.units is not None
    assert half.units.tolist() == [[0, 0, 1, 1, 2, -1], [0, 0, 1, -1, -1, -1]]
    assert half.stride == (8, 1, 1)
    assert half.values[0, 2].tolist() == [8.0, 9.0, 0.0, 0.0]
    torch.manual_seed(0)
    model, x = Pyramid("lstm", 4, 1, 0.0), torch.randn(1, 6, 4)
    below = nn.LSTM(4, 2, batch_first=True, bidirectional=True)
    below.load_state_dict(model.first.rnn.state_dict())
    above = nn.LSTM(8, 2, batch_first=True, bidirectional=True)
    above.load_state_dict(model.layers[0].rnn.state_dict())  # type: ignore[union-attr]
    states = below(x)[0]
    assert model(Context(x)).values.allclose(above(states.view(1, 3, 8))[0], atol=1e-6)


def test_the_convolution_of_a_conformer_equals_its_formula() -> None:
    torch.manual_seed(0)
    module, x = ConvolutionModule(4, 3, 0.0), torch.randn(1, 5, 4)
    a, b = module.inner(x[0]).chunk(2, -1)
    gated = pad(a * b.sigmoid(), (0, 0, 1, 1))
    rows = [
        torch.stack(
            [(gated[i : i + 3, c] * module.depthwise.weight[c, 0]).sum() + module.depthwise.bias[c] for c in range(4)]
        )  # type: ignore[index]
        for i in range(5)
    ]
    mixed = module.norm(torch.stack(rows))
    assert module(x, torch.ones(1, 5, dtype=torch.bool))[0].allclose(module.outer(mixed * mixed.sigmoid()), atol=1e-5)


# ---- frames to vectors


def frames(**how: Any) -> Frames:
    given = FrameSettings(bins=6, **how)
    return Frames([0.0] * 6, [1.0] * 6, given, Use.UNITS)


@pytest.mark.parametrize(("reduce", "k"), [*itertools.product(("convolution", "stack"), (1, 2, 4)), ("stack", 3)])
def test_a_stem_makes_one_vector_of_several_frames_and_padding_changes_nothing(reduce: str, k: int) -> None:
    torch.manual_seed(0)
    input = frames(reduction=k, reduce=reduce)
    stem = input.module(Stem(8)).eval()
    rows = [np.random.default_rng(i).standard_normal((n, 6)).astype(np.float32) for i, n in enumerate((13, 7))]
    both = stem(input.collate([(row,) for row in rows], extra=5))
    for i, row in enumerate(rows):
        alone = stem(input.collate([(row,)]))
        count = -(-len(row) // k)
        assert alone.values.shape[1] == count
        assert both.values[i, :count].allclose(alone.values[0], atol=1e-5)
        assert (both.where()[i] >= 0).sum() == count
        assert both.units[i, : len(row)].tolist() == [j // k for j in range(len(row))]


@pytest.mark.parametrize("k", [1, 2, 4, 8])
def test_a_long_recording_is_convolved_piece_by_piece(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    module, x = ConvolvedFrames(6, 8, k), torch.randn(2, 83, 6)
    lengths = torch.tensor([83, 41])
    x[1, 41:] = 0
    expected = module(x, lengths)
    monkeypatch.setattr(subsampling, "PIECE", 16)
    found = module(x, lengths)
    assert found.allclose(expected, atol=1e-6)
    weights = [*module.parameters()]
    for one, other in zip(*(torch.autograd.grad(y.square().sum(), weights) for y in (found, expected)), strict=True):
        assert one.allclose(other, atol=1e-4)


def test_convolutions_need_a_power_of_two() -> None:
    with pytest.raises(ValueError, match="not a power of 2"):
        frames(reduction=3).module(Stem(8))
    assert isinstance(frames(reduction=3, reduce="stack").module(Stem(8)).reduce, StackedFrames)
    assert ConvolvedFrames(6, 8, 4).reach >= 3


@pytest.mark.parametrize("name", ["truncated", "truncated conformer", "window"])
@pytest.mark.parametrize("k", [1, 4])
def test_read_in_chunks_a_recording_gives_the_same_as_whole(name: str, k: int) -> None:
    torch.manual_seed(0)
    input = frames(reduction=k)
    stem, backbone = BUILDERS[name]()
    network = Network(input.module(stem), backbone, TagHead(8, 3, Independent(), dropout=0.0)).eval()
    row = (np.random.default_rng(0).standard_normal((403, 6)).astype(np.float32),)
    passes = Passes(input, network, 10_000)
    assert network.reach is not None
    with torch.no_grad():
        whole = network.scores(Batch(input.collate([row]), None))[0]
        chunks = [*passes.in_chunks(row, 60)]
        parts = [network.scores(Batch(source, None))[0, own] for source, own in chunks]
    assert len(parts) > 3
    assert max(source.values[0].shape[1] for source, _ in chunks) <= max(60, 2 * sum(network.reach)) + 3 * k
    assert torch.cat(parts).allclose(whole, atol=1e-5)


def test_what_looks_at_everything_has_no_reach() -> None:
    input = frames()
    for name in ("conformer", "pyramid"):
        stem, backbone = BUILDERS[name]()
        assert Network(input.module(stem), backbone, TagHead(8, 3, Independent(), dropout=0.0)).reach is None


# ---- augmentation


def draws(rows: list[int], epoch: int = 0, seed: int = 1) -> Draws:
    return Draws(seed, epoch, np.array(rows), 100, lambda _: [])


def test_augmentation_is_a_function_of_seed_epoch_and_row_alone() -> None:
    x = torch.randn(3, 40, 6)
    source = Source((x,), torch.arange(40))
    how = Variation(0.2, 2, 3, 5)
    whole = stretched(source, how, draws([7, 8, 9]))
    real = (whole.positions >= 0).expand(3, -1).sum(-1)
    one = stretched(Source((x[1:2],), torch.arange(40)), how, draws([8]))
    assert one.values[0][0].equal(whole.values[0][1, : int(real[1])])
    assert len({*real.tolist()}) > 1
    other = stretched(source, how, draws([7, 8, 9], epoch=1)).values[0]
    assert other.shape != whole.values[0].shape or not other.equal(whole.values[0])
    assert x.equal(source.values[0])


def test_masks_are_zeros_over_bins_and_frames() -> None:
    source = Source((torch.ones(4, 50, 6),), torch.arange(50))
    found = stretched(source, Variation(0.0, 1, 3, 8), draws([0, 1, 2, 3])).values[0]
    for row in found:
        bins, times = row.amax(0) == 0, row.amax(1) == 0
        assert bins.sum() <= 3
        assert times.sum() <= 8
        kept = row[~times][:, ~bins]
        assert bool((kept == 1).all())
    assert bool((found == 0).any())


def test_another_speed_stretches_time() -> None:
    ramp = torch.arange(100.0)[:, None].expand(-1, 2)
    fast, slow = at_speed(ramp, 1.25), at_speed(ramp, 0.8)
    assert (len(fast), len(slow)) == (80, 125)
    assert fast[40, 0] == pytest.approx(50, abs=1)
    assert slow[:, 1].diff().min() >= 0


def test_labels_of_frames_are_never_stretched() -> None:
    input = frames(speed=0.5, masks=0)
    source = input.collate([(np.ones((30, 6), np.float32),)])
    assert input.vary(source, draws([0])).positions.shape == source.positions.shape


def test_parts_are_cut_between_vectors() -> None:
    input = frames(reduction=4)
    row = (np.arange(50 * 6, dtype=np.float32).reshape(50, 6),)
    parts = input.parts(row, 20)
    assert np.concatenate([p[0] for p in parts]).shape == (50, 6)
    assert all(len(p[0]) % 4 == 0 for p in parts[:-1])
    assert max(len(p[0]) for p in parts) <= 20
