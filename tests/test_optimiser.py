"""Muon beside torch's own, beside the singular values on paper, and in a training that is stopped and goes on."""

import pytest
import torch
from torch import nn

from regard.config import Training
from regard.optimiser import optimiser, orthogonal


@pytest.mark.parametrize("shape", [(8, 8), (6, 20), (20, 6), (3, 16, 5)])
def test_every_direction_moves_alike(shape: tuple[int, ...]) -> None:
    matrix = torch.randn(shape)
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    turned = orthogonal(matrix * 1000)
    # In the frame of its singular vectors a matrix stays diagonal; its values go to about one.
    inside = left.mT @ turned @ right.mT
    diagonal = torch.diagonal(inside, dim1=-2, dim2=-1)
    assert torch.allclose(inside, torch.diag_embed(diagonal), atol=1e-4)
    assert (diagonal[values > 0.1] > 0.6).all()
    assert (diagonal < 1.3).all()


def test_steps_are_those_of_torch() -> None:
    """torch rounds the iteration to bfloat16: the steps agree to its precision."""
    mine, theirs = nn.Linear(24, 40, bias=False), nn.Linear(24, 40, bias=False)
    theirs.load_state_dict(mine.state_dict())
    began = mine.weight.detach().clone()
    own = optimiser(mine, Training(optimiser="muon", rate=0.01, decay=0.1), fused=True)
    peer = torch.optim.Muon(theirs.parameters(), lr=0.01, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    for _ in range(5):
        gradient = torch.randn_like(began)
        for layer, steps in ((mine, own), (theirs, peer)):
            layer.weight.grad = gradient.clone()
            steps.step()
    moved = (theirs.weight - began).norm()
    assert (mine.weight - theirs.weight).norm() < 0.02 * moved
    assert moved > 0.1


def test_tables_heads_and_vectors_are_adams() -> None:
    network = nn.ModuleDict({"table": nn.Embedding(7, 4), "between": nn.Linear(4, 4), "head": nn.Linear(4, 7)})
    made = optimiser(network, Training(optimiser="muon"), fused=True)
    for weight in network.parameters():
        weight.grad = torch.randn_like(weight)
    made.step()
    kinds = {name: set(made.state[weight]) for name, weight in network.named_parameters()}
    assert {name for name, state in kinds.items() if "momentum" in state} == {"between.weight"}
    assert all("exp_avg_sq" in state for name, state in kinds.items() if name != "between.weight")
