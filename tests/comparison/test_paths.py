"""The path length between two elements of each architecture (catalogue C23), measured, against what its sizes say."""

from math import ceil

import pytest
import torch
from torch import nn

from regard.attention import Context, window
from regard.comparison.paths import (
    DISTANCES,
    LENGTHS,
    Paths,
    as_table,
    over_pictures,
    paths,
    steps_along,
    steps_through,
)
from regard.models.convolution import convolution
from regard.models.encoder import encoder
from regard.models.lstm import lstm


def formula(each_way: int, layers: int) -> dict[int, int | None]:
    """⌈n / r⌉ layers that look r elements each way, if there are as many."""
    found = {n: ceil(n / each_way) for n in DISTANCES}
    return {n: steps if steps <= layers else None for n, steps in found.items()}


@pytest.fixture(scope="module")
def known() -> dict[str, Paths]:
    return paths()


def test_paths_are_as_long_as_the_sizes_say(known: dict[str, Paths]) -> None:
    found = {name.split(":")[0]: each.steps for name, each in known.items()}
    assert found["LSTM"] == {n: n for n in DISTANCES}
    assert found["convolution"] == formula(1, 4)
    assert found["self-attention"] == dict.fromkeys(DISTANCES, 1)
    assert found["local attention"] == formula(8, 2)
    assert found["window"] == formula(5, 1)
    assert found["DeepSets"] == dict.fromkeys(DISTANCES)
    assert found["Vision Transformer"] == dict.fromkeys(DISTANCES, 1)


@pytest.mark.parametrize(("kernel", "layers"), [(5, 3), (3, 8)])
def test_windows_add_up(kernel: int, layers: int) -> None:
    network = convolution(layers=layers, width=16, kernel=kernel, length=64)[1]
    assert steps_through(network, torch.randn(4, 40, 16), range(1, 12)) == {
        n: steps if (steps := ceil(n / (kernel // 2))) <= layers else None for n in range(1, 12)
    }


def test_a_cnn_sees_farther_from_stage_to_stage() -> None:
    """After each operation, the columns that the first pixel reaches: windows add one, pooling halves."""
    reaches, last, size = [], 0, 1
    for operation in ("conv", "conv", "pool", "conv", "conv", "pool", "conv", "conv"):
        last, size = (last + 1, size) if operation == "conv" else (last // 2, 2 * size)
        reaches.append((last + 1) * size - 1)
    network = over_pictures()["CNN: 3 stages of 2 convolutions, 3 wide"]
    found = steps_through(network, torch.randn(8, 1, 4, 64), range(1, 24))
    assert found == {n: next((at for at, far in enumerate(reaches, 1) if far >= n), None) for n in range(1, 24)}
    assert max(n for n, steps in found.items() if steps) == 15


def test_nothing_passes_where_the_state_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    network = lstm(layers=1, width=32)[1]
    whole = type(network).steps
    monkeypatch.setattr(type(network), "steps", lambda self, context, _=None: whole(self, context))
    assert steps_along(network, (1, 4)) == {1: None, 4: None}


def test_attention_gives_no_path_to_what_it_may_not_see() -> None:
    class Narrow(nn.Module):
        """An encoder that is told to look three elements each way."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = encoder(layers=1, width=16, hidden=16, heads=2, length=64)[1]

        def forward(self, context: Context) -> Context:
            found: Context = self.inner(context._replace(mask=window(3, 3)))
            return found

    assert steps_through(Narrow(), torch.randn(2, 12, 16), (3, 4)) == {3: 1, 4: None}


def test_operations_are_those_of_the_formula(known: dict[str, Paths]) -> None:
    found = known["self-attention: 2 layers"].operations
    d, h = 32, 64
    assert found == {n: 2 * (8 * d * d + 4 * n * d + 4 * d * h) for n in LENGTHS}


def test_the_table_has_a_dash_where_there_is_no_way(known: dict[str, Paths]) -> None:
    assert "| DeepSets | – | – | – | – | – | 2.0 | 2.0 |" in as_table(known)
