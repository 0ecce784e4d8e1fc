"""Watching: bit-identical outputs, true weights, little memory, any layers, heads and rows."""

import subprocess
import sys

import pytest
import torch
from torch import nn

import regard
from regard.attention import Cache, MultiHead, attend, causal, masks, positions
from tests.attention.parts import INSIDE, some_masks


class Stack(nn.Module):
    def __init__(self, **parts: object) -> None:
        super().__init__()
        self.layers = nn.ModuleList([MultiHead(16, 2, **parts) for _ in range(3)])  # type: ignore[arg-type]

    def forward(self, x: torch.Tensor, mask: object = None) -> torch.Tensor:
        for layer in self.layers:
            x = x + layer(x, mask=mask)[0]
        return x


@pytest.mark.parametrize("kind", INSIDE)
@pytest.mark.parametrize("mask", ["causal", "window", "ordering", None])
def test_outputs_are_bit_identical_and_weights_are_those_of_the_reference(kind: str, mask: str | None) -> None:
    torch.manual_seed(0)
    layer = MultiHead(16, 2, **INSIDE[kind](2))
    x, rule = torch.randn(2, 140, 16), some_masks(140)[mask] if mask else None
    plain = layer(x, mask=rule)[0]
    with regard.watch(layer) as seen:
        watched = layer(x, mask=rule)[0]
    assert watched.equal(plain)
    call = seen["attention"].calls[0]
    parts = layer.attention
    reference = attend(call.q, call.k, call.k, score=parts.score, bias=parts.bias, mask=rule, normalise=parts.normalise)
    assert seen["attention"].weights.allclose(reference[1], atol=1e-6)
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
