"""An activation is the same number wherever it is written, and what a gradient needs is not overwritten."""

import pytest
import torch

from regard.backbones.transformer import FeedForward
from regard.models.stack import ACTIVATIONS


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_inference_computes_what_training_does(name: str) -> None:
    torch.manual_seed(0)
    feed, x = FeedForward(8, 16, 0.0, ACTIVATIONS[name]), torch.randn(3, 8)
    before, expected = x.clone(), feed.outer(ACTIVATIONS[name](feed.inner(x))).detach()
    with torch.no_grad():
        assert feed(x).equal(expected)
    assert x.equal(before)  # what the layer reads is not its own
    assert feed(x).equal(expected)
    assert torch.autograd.gradcheck(feed.double(), x.double().requires_grad_())


def test_hidden_vectors_take_no_second_block() -> None:
    seen: list[int] = []
    feed = FeedForward(8, 16, 0.0)
    feed.inner.register_forward_hook(lambda *given: seen.append(given[2].data_ptr()))
    feed.outer.register_forward_pre_hook(lambda *given: seen.append(given[1][0].data_ptr()))
    with torch.no_grad():
        feed(torch.randn(3, 8))
    feed(torch.randn(3, 8))
    assert seen[0] == seen[1]
    assert seen[2] != seen[3]
