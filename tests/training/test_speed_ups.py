"""A training with every fast form and one with the plain form of each: the same seed, the same losses."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import regard
from regard.attention import attend, layer
from regard.layers import softmax
from regard.layers.dropout import Dropout, keep_mask
from regard.outputs.convert import head
from regard.training import loop
from regard.training.optimiser import optimiser

STEPS = 60
SETTINGS = ["model.width=32", "model.dropout=0.2", "training.budget=400", "training.rate=0.005", "training.warmup=10"]


def dropped(self: Dropout, x: Tensor) -> Tensor:
    """The formula with the same mask."""
    return torch.where(keep_mask(x.shape, self.p), x / (1 - self.p), torch.zeros(())) if self.training else x


PLAIN: dict[str, tuple[object, str, object]] = {
    "attention by the equation": (layer, "fast", lambda *given, **parts: attend(*given, **parts)[0]),
    "whole logits and cross-entropy": (head, "token_loss", softmax.plain),
    "dropout by the formula": (Dropout, "forward", dropped),
    "AdamW tensor by tensor": (loop, "optimiser", lambda *given, **_: optimiser(*given, fused=False)),
}


def losses(pairs: Path, out: Path, settings: list[str], patch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []
    inner: Callable[[Any], tuple[float, int]] = loop.Trainer._step

    def step(self: Any) -> tuple[float, int]:
        loss, tokens = inner(self)
        found.append(loss)
        return loss, tokens

    with patch.context() as inside:
        inside.setattr(loop.Trainer, "_step", step)
        regard.train(pairs, out, steps=STEPS, set=[*SETTINGS, *settings], quiet=True)
    return found


@pytest.mark.parametrize(
    "settings",
    [
        ["model.kind=transformer", "model.layers=2", "model.hidden=64", "model.heads=2"],
        ["model.kind=recurrent", "model.attention=additive"],
    ],
    ids=["transformer", "recurrent"],
)
def test_losses_are_those_of_the_plain_forms(
    settings: list[str], pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No loss of sixty steps differs by more than 0.0001."""
    fast = losses(pairs, tmp_path / "fast", settings, monkeypatch)
    assert fast[-1] < 0.8 * fast[0]
    for place, name, plain in PLAIN.values():
        monkeypatch.setattr(place, name, plain)
    together = losses(pairs, tmp_path / "plain", settings, monkeypatch)
    assert together == pytest.approx(fast, abs=1e-4)
    assert together != fast  # something was changed
