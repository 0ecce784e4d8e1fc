"""Watching: bit-identical outputs, true weights, little memory, any layers, heads and rows."""

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import regard
from regard.attention import Cache, Context, Mask, MultiHead, Rolling, Watchable, causal, masks, mixing, positions
from regard.attention.equation import AnyMask
from regard.backbones.transformer import Encoder
from regard.models.pair import Pair
from regard.models.recurrent import recurrent
from regard.models.transformer import transformer
from regard.models.transformer_xl import transformer_xl
from regard.models.xlnet import xlnet
from tests.attention.parts import INSIDE, some_masks
from tests.models.networks import Converter
from tests.models.same import shake


class Stack(nn.Module):
    def __init__(self, **parts: object) -> None:
        super().__init__()
        self.layers = nn.ModuleList([MultiHead(16, 2, **parts) for _ in range(3)])  # type: ignore[arg-type]

    def forward(self, x: torch.Tensor, mask: object = None) -> torch.Tensor:
        for layer in self.layers:
            x = x + layer(x, mask=mask)[0]
        return x


def made_by(layer: MultiHead, weights: Tensor, x: Tensor) -> Tensor:
    """The answer that weights give with values of our own, from all elements of x at their positions."""
    v = layer.v_proj(x).unflatten(-1, (layer.heads, -1)).transpose(1, 2)
    where = torch.arange(x.shape[1])
    mixed = weights @ v if layer.attention.mix is mixing.weighted_sum else layer.attention.mix(weights, v, where, where)
    return layer.output_proj(mixed.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("kind", INSIDE)
@pytest.mark.parametrize("mask", ["causal", "window", "ordering", None])
def test_outputs_are_bit_identical_and_the_weights_make_them(kind: str, mask: str | None) -> None:
    torch.manual_seed(0)
    layer = MultiHead(16, 2, **INSIDE[kind](2))
    x, rule = torch.randn(2, 140, 16), some_masks(140)[mask] if mask else None
    plain = layer(x, mask=rule)[0]
    with regard.watch(layer) as seen:
        watched = layer(x, mask=rule)[0]
    assert watched.equal(plain)
    assert made_by(layer, seen["attention"].weights, x).allclose(plain, atol=1e-5)
    assert not layer.attention._forward_pre_hooks


def test_layers_heads_and_rows_are_chosen() -> None:
    model, x = Stack(rotate=positions.Rotary(8)), torch.randn(2, 7, 16)
    with regard.watch(model) as everything:
        model(x, causal)
    with regard.watch(model, layers="layers.[12]", heads=[1], rows=[0, 6]) as some:
        model(x, causal)
    assert list(everything) == ["layers.0", "layers.1", "layers.2"]
    assert list(some) == ["layers.1", "layers.2"]
    assert some["layers.1"].weights.shape == (2, 1, 2, 7)
    assert some["layers.1"].weights[:, 0].allclose(everything["layers.1"].weights[:, 1, [0, 6]], atol=1e-6)


def test_learned_biases_by_head_and_tensor_masks_follow_the_choice() -> None:
    layer, x = MultiHead(16, 2, bias=positions.T5(2)), torch.randn(2, 7, 16)
    mask = torch.rand(2, 2, 7, 7) < 0.7
    with regard.watch(layer) as everything, regard.watch(layer, heads=[1], rows=slice(2, 4)) as some:
        layer(x, mask=mask)
    assert some["attention"].weights[:, 0].allclose(everything["attention"].weights[:, 1, 2:4], atol=1e-6)


@torch.no_grad()
def test_step_by_step_joins_into_the_full_matrix() -> None:
    layer, x = MultiHead(16, 2), torch.randn(1, 5, 16)
    with regard.watch(layer) as full:
        layer(x, mask=causal)
    state: object = Cache()
    with regard.watch(layer) as steps:
        for t in range(5):
            _, state = layer(x[:, t : t + 1], positions=torch.tensor([t]), mask=causal, state=state)
    assert steps["attention"].weights.allclose(full["attention"].weights, atol=1e-6)


@torch.no_grad()
def test_a_rolling_window_is_shown_at_the_positions_it_looked_at() -> None:
    layer, x, near = MultiHead(16, 2), torch.randn(2, 9, 16), masks.window(3, 0)
    with regard.watch(layer) as full:
        layer(x, mask=near)
    state, answers = Rolling(3), []
    with regard.watch(layer) as steps:
        for some in torch.arange(9).split([2, 1, 4, 1, 1]):
            y, state = layer(x[:, some], positions=some, mask=near, state=state)
            answers.append(y)
    weights = steps["attention"].weights
    assert weights.allclose(full["attention"].weights, atol=1e-6)
    assert made_by(layer, weights, x).allclose(torch.cat(answers, 1), atol=1e-5)
    rows = torch.arange(9)
    assert weights.gt(0).equal(near(rows[:, None], rows).expand(2, 2, -1, -1))


@torch.no_grad()
def test_segments_with_a_short_memory_are_shown_as_one_pass_over_all() -> None:
    """12 tokens, segments of 4, a memory of 6: no call has more than 10 keys, and there are 12 columns."""
    torch.manual_seed(0)
    shape: dict[str, Any] = {"layers": 3, "width": 8, "hidden": 12, "heads": 2, "dropout": 0.0}
    backbone = shake(transformer_xl(memory=6, **shape)[1])
    x, where, state = torch.randn(2, 12, 8), torch.arange(12), None
    first, answers = backbone.layers[0].attention, []
    hook = first.register_forward_hook(lambda _module, _inputs, result: answers.append(result[0]))
    with regard.watch(backbone) as steps:
        for some in where.split(4):
            _, state = backbone.steps(Context(x[:, some], some), state)
    hook.remove()
    assert made_by(first, steps["layers.0.attention"].weights, x).allclose(torch.cat(answers, 1), atol=1e-5)
    allowed = causal & Mask(lambda q, k: k >= q // 4 * 4 - 6, "segment")
    with regard.watch(backbone) as full:
        Encoder(list(backbone.layers), backbone.norm, mask=allowed)(Context(x, where))
    for name in full:
        assert steps[name].weights.shape == (2, 2, 12, 12)
        assert steps[name].weights.allclose(full[name].weights, atol=1e-6)


@torch.no_grad()
def test_rows_of_unlike_length_are_shown_from_their_first_position() -> None:
    """Padded in front, continued together: each row is what it is alone, and 0 beyond its end."""
    torch.manual_seed(0)
    layer, x = MultiHead(16, 2), torch.randn(2, 6, 16)
    prompt, last = torch.tensor([[0, 1, 2, 3], [-1, -1, 0, 1]]), torch.tensor([[4], [2]])
    with regard.watch(layer) as seen:
        _, state = layer(x[:, :4], positions=prompt, mask=causal, state=Cache())
        layer(x[:, 4:5], positions=last, mask=causal, state=state)
    together = seen["attention"].weights
    assert together.shape == (2, 2, 5, 5)
    for row, start, length in ((0, 0, 5), (1, 2, 3)):
        with regard.watch(layer) as seen:
            layer(x[row : row + 1, start : start + length], mask=causal)
        assert together[row, :, :length, :length].allclose(seen["attention"].weights[0], atol=1e-6)
        assert together[row, :, length:].eq(0).all()
        assert together[row, :, :, length:].eq(0).all()


@torch.no_grad()
@pytest.mark.parametrize("pair", [
    transformer(layers=2, width=16, hidden=24, heads=2, dropout=0.0),
    recurrent(width=8, dropout=0.0), recurrent(width=8, heads=2, dropout=0.0, feeding=False),
])  # fmt: skip
def test_a_converter_step_by_step_shows_what_one_pass_shows(pair: Pair) -> None:
    model = Converter(pair, 12, 11).eval()
    source, target = torch.tensor([[5, 6, 7, 8], [9, 4, 0, 0]]), torch.tensor([[4, 5, 7, 3], [6, 8, 9, 3]])
    with regard.watch(model) as full:
        model.logits(source, target)
    with regard.watch(model) as steps:
        state, tokens = model.start(source), torch.tensor([2, 2])
        for t in range(4):
            _, state = model.step(tokens, state)
            tokens = target[:, t]
    for name, layer in full.items():
        assert layer.weights.shape[-1] == 4
        assert layer.weights.sum(-1).allclose((layer.weights.sum(-1) > 0).float(), atol=1e-6)
        assert steps[name].weights.allclose(layer.weights, atol=1e-6)
        if name.endswith(("cross", "glimpse")):
            assert layer.weights[1, :, :, 2:].eq(0).all()
            assert layer.weights[1, :, :, :2].gt(0).all()
    with regard.watch(model) as padded:
        model.logits(source, torch.tensor([[4, 5, 7, 3], [6, 3, 0, 0]]))
    for name, layer in padded.items():
        if not name.startswith("backbone"):
            assert layer.weights.shape[-2] == 4
            assert layer.weights[0].allclose(full[name].weights[0], atol=1e-6)
            assert layer.weights[1, :, :1].allclose(full[name].weights[1, :, :1], atol=1e-6)
            assert layer.weights[1, :, 2:].eq(0).all()


@pytest.mark.parametrize("sizes", [(2, 2), (2, 3)])
def test_calls_on_unrelated_batches_are_not_joined(sizes: tuple[int, int]) -> None:
    layer, batches = MultiHead(16, 2), [torch.randn(size, 5, 16) for size in sizes]
    with regard.watch(layer) as seen:
        for x in batches:
            layer(x, mask=causal)
    with pytest.raises(ValueError, match="called 2 times on batches that are no steps of one decoding"):
        _ = seen["attention"].weights
    for call, x in zip(seen["attention"].calls, batches, strict=True):
        with regard.watch(layer) as alone:
            layer(x, mask=causal)
        assert call.weights().equal(alone["attention"].weights)


class Neighbour(Watchable):
    """An attention that is not the equation: each query takes the value of the key before it, and the first nothing."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: AnyMask, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        return self.weights(q, k, mask, q_pos, k_pos) @ v

    def weights(
        self, q: Tensor, k: Tensor, mask: AnyMask, q_pos: Tensor, k_pos: Tensor, heads: Sequence[int] | None = None
    ) -> Tensor:
        found = (k_pos == q_pos[:, None] - 1).to(q.dtype)
        return found.expand(len(k), q.shape[1] if heads is None else len(heads), -1, -1)


def test_an_attention_that_is_not_the_equation_shows_weights_of_its_own() -> None:
    layer, x = MultiHead(16, 2), torch.randn(3, 5, 16)
    layer.attention = Neighbour()  # type: ignore[assignment]
    with regard.watch(layer, heads=[1], rows=[0, 3]) as seen:
        y, _ = layer(x)
    weights = seen["attention"].weights
    assert weights.shape == (3, 1, 2, 5)
    assert weights[0, 0].tolist() == [[0, 0, 0, 0, 0], [0, 0, 1, 0, 0]]
    assert layer.output_proj(layer.v_proj(x))[:, :4].allclose(y[:, 1:], atol=1e-5)


def test_two_streams_keep_the_order_of_the_call() -> None:
    backbone = xlnet(layers=1, width=8, hidden=12, heads=2, dropout=0.0)[1]
    with regard.watch(backbone) as seen:
        backbone.streams(Context(torch.randn(1, 4, 8)), torch.tensor([0, 2, 0, 1]), torch.tensor([1, 3]))
    weights = seen["layers.0.attention"].weights[0, 0]
    expected = [[1, 0, 1, 0], [1, 1, 1, 1], [1, 0, 1, 0], [1, 0, 1, 1], [1, 0, 1, 1], [1, 0, 1, 0]]
    assert weights.gt(0).int().tolist() == expected


def test_windows_keep_their_kernel_while_watched() -> None:
    layer, x = MultiHead(16, 2), torch.randn(1, 600, 16)
    plain = layer(x, mask=masks.window(20, 0))[0]
    with regard.watch(layer, rows=[599]) as seen:
        assert layer(x, mask=masks.window(20, 0))[0].equal(plain)
    weights = seen["attention"].weights
    assert weights.shape == (1, 2, 1, 600)
    assert weights[..., :579].eq(0).all()
    assert weights.sum().item() == pytest.approx(2, abs=1e-5)


def test_refusals() -> None:
    model = Stack()
    with pytest.raises(ValueError, match="Linear has no attention inside"), regard.watch(nn.Linear(2, 2)):
        pass
    with (
        pytest.raises(ValueError, match=r"no attention layer is called 'decoder'; there are: layers\.0, layers\.1"),
        regard.watch(model, "decoder"),
    ):
        pass
    with regard.watch(model, "layers.0") as seen:
        pass
    with pytest.raises(KeyError, match=r"no watched layer is called 'layers\.1'"):
        seen["layers.1"]
    with pytest.raises(ValueError, match="nothing was seen: call the model inside"):
        _ = seen["layers.0"].weights


MEMORY = """
import sys, torch, regard
from regard.attention import MultiHead
from regard.attention.masks import causal
def status(key): return int(next(line for line in open('/proc/self/status') if line.startswith(key)).split()[1])
torch.set_num_threads(1)
layer = MultiHead(512, 8)
x = torch.randn(1, 8192, 512)
with torch.no_grad():
    layer(x[:, :64], mask=causal)
    open('/proc/self/clear_refs', 'w').write('5')  # the high-water mark from here on
    before = status('VmRSS')
    if sys.argv[1] == "watched":
        with regard.watch(layer, heads=[3], rows=range(0, 8192, 512)) as seen:
            layer(x, mask=causal)
        assert seen["attention"].weights.shape == (1, 1, 16, 8192)
    else:
        layer(x, mask=causal)
print(status('VmHWM') - before)
"""


def test_watching_a_head_and_sixteen_rows_of_8192_adds_little_memory() -> None:
    """Peak of a process of its own; explicit weights of this layer would take 8 · 8192² · 4 bytes = 2.1 GB."""
    peaks = {
        how: int(subprocess.run([sys.executable, "-c", MEMORY, how], capture_output=True, text=True, check=True).stdout)
        for how in ("plain", "watched")
    }
    assert peaks["plain"] * 1024 > 8192 * 512 * 4 * 4, "the measure sees at least q, k, v and the answer"
    assert (peaks["watched"] - peaks["plain"]) * 1024 < 64e6


@pytest.mark.parametrize(
    ("model", "error", "words"),
    [
        (nn.Linear, TypeError, "expected a module or a trained model to watch, found Linear"),
        (nn.Linear(2, 2), ValueError, "Linear has no attention inside"),
        (nn.TransformerEncoderLayer(8, 2), ValueError, r"torch's own attention .* Try regard\.attention\.MultiHead"),
    ],
)
def test_what_cannot_be_watched_is_refused_at_once(model: object, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        regard.watch(model)
