"""Muon beside torch's own, beside the singular values on paper, and in a training that is stopped and goes on."""

import copy
from collections import Counter
from typing import Any

import pytest
import torch
from torch import nn

from regard.attention.positions import LearnedTable
from regard.attention.scores import Bilinear
from regard.config import Training
from regard.data.example import Example
from regard.data.survey import Survey
from regard.layers.roles import chosen_among
from regard.network import Network, Player
from regard.outputs import OUTPUTS
from regard.outputs.abilities import names_in
from regard.runs import settings
from regard.training.optimiser import optimiser, orthogonal, players_of
from regard.training.prepare import learn
from tests.training.toys import DuelHead, FrameStem, adversaries, two_terms


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


def groups_of(network: nn.Module) -> list[tuple[str, list[str]]]:
    """The names in each group of the optimiser, in order."""
    names = {id(parameter): name for name, parameter in network.named_parameters()}
    made = optimiser(network, Training(optimiser="muon", decay=0.1), fused=False)
    return [
        (
            "muon" if group["orthogonal"] else "decay" if group["weight_decay"] else "plain",
            [names[id(parameter)] for parameter in group["params"]],
        )
        for group in made.param_groups
    ]


def test_tables_heads_and_vectors_are_adams() -> None:
    head = chosen_among(nn.Linear(4, 7))
    network = nn.ModuleDict({"table": nn.Embedding(7, 4), "between": nn.Linear(4, 4), "head": head})
    made = optimiser(network, Training(optimiser="muon"), fused=True)
    for weight in network.parameters():
        weight.grad = torch.randn_like(weight)
    made.step()
    kinds = {name: set(made.state[weight]) for name, weight in network.named_parameters()}
    assert {name for name, state in kinds.items() if "momentum" in state} == {"between.weight"}
    assert all("exp_avg_sq" in state for name, state in kinds.items() if name != "between.weight")


def test_names_decide_nothing() -> None:
    """A box head of DETR is no choice among classes, and a table of another name is a table."""
    network = nn.ModuleDict(
        {
            "box_head": nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)),
            "equitable": nn.Linear(4, 4),
            "segments": nn.Embedding(2, 4),
            "classes": chosen_among(nn.Linear(4, 3)),
            "cell": nn.GRUCell(4, 4),
            "score": Bilinear(4, 4),
            "places": LearnedTable(9, 4),
            "convolution": nn.Conv1d(4, 4, 3),
        }
    )
    muon, decay, plain = groups_of(copy.deepcopy(network))  # a copy has the same roles
    assert muon == (
        "muon",
        [
            "box_head.0.weight",
            "box_head.2.weight",
            "equitable.weight",
            "cell.weight_ih",
            "cell.weight_hh",
            "score.weight",
        ],
    )
    assert decay == ("decay", ["classes.weight", "convolution.weight"])
    assert {"segments.weight", "places.table", "classes.bias", "box_head.0.bias"} < {*plain[1]}


def test_a_table_that_is_tied_to_an_output_layer_is_a_table() -> None:
    network = nn.ModuleDict({"head": chosen_among(nn.Linear(4, 7)), "table": nn.Embedding(7, 4)})
    network["head"].weight = network["table"].weight
    assert groups_of(network) == [("plain", ["head.weight", "head.bias"])]


THEN = ("recurrent", "transformer", "bert", "gpt", "transformer-xl", "xlnet", "deepsets")  # kinds of version 0.1
TASKS = ("convert", "tag", "classify", "continue", "fill")
NETWORKS = [
    (task, kind, more)
    for task, output in OUTPUTS.items()
    for kind, model in settings.kinds_of(output.settings).items()
    for more in ({}, {"tied": False}, {"position": "shaw"}, {"attention": "bilinear", "heads": 2})
    if task in TASKS
    and kind in THEN
    and more.keys() <= model.model_fields.keys()
    and ("attention" not in more or kind == "recurrent")
]


@pytest.mark.parametrize(("task", "kind", "more"), NETWORKS)
def test_groups_are_those_of_version_0_1(task: str, kind: str, more: dict[str, Any]) -> None:
    """There the names of parameters decided; but for one table, which its name did not show to be one."""
    level = {"level": "bpe"} if (task, kind) == ("tag", "bert") else {}
    found = {"task": task, "data": {"train": ["-"]}, "tokens": level, "model": {"kind": kind, "width": 96} | more}
    config = settings.make(found, "test")
    texts = ["abc def gab", "fed cab"]
    target = {"tag": "X Y X", "classify": "X"}.get(task, "abc")
    examples = [Example(text, " ".join(target.split()[: len(text.split())]), "-", 1) for text in texts]
    names = Counter(name for example in examples for name in names_in(OUTPUTS[task])(example.target))
    input, output = learn(config, Survey(2, examples, [0, 1], "", names), None)
    network = output.network(config, input)[1]
    expected: dict[str, list[str]] = {"muon": [], "decay": [], "plain": []}
    for name, weight in network.named_parameters():
        linear = weight.dim() == 2 and name.rpartition(".")[2].startswith("weight") and "head.output." not in name
        table = weight.dim() < 2 or "table" in name or name == "stem.embedding.segments.weight"
        expected["plain" if table else "muon" if linear else "decay"].append(name)
    assert groups_of(network) == [(group, names) for group, names in expected.items() if names]


# ---- players -------------------------------------------------------------------------------------------------------


TURNS = ("critic", "generator")


def test_each_player_has_groups_and_a_rate_of_its_own() -> None:
    network = adversaries()
    groups = optimiser(
        network, Training(optimiser="muon"), fused=False, players=players_of(network, TURNS)
    ).param_groups
    assert [(group["factor"], group["orthogonal"]) for group in groups] == [
        (2.0, True), (2.0, False), (1.0, True), (1.0, False),
    ]  # fmt: skip
    assert groups[2]["params"] == [network.head.generator.weight]


class GreedyHead(DuelHead):
    """A critic that takes a weight of the generator's, too."""

    def players(self, body: Network) -> dict[str, Player]:
        found = super().players(body)
        critic = found["critic"]
        return found | {"critic": Player((*critic.parameters, self.generator.weight), critic.rate)}


class LazyHead(DuelHead):
    """A generator that never learns."""

    def players(self, body: Network) -> dict[str, Player]:
        return super().players(body) | {"generator": Player(())}


def test_players_are_one_for_each_turn_and_share_nothing() -> None:
    with pytest.raises(ValueError, match="one for each turn"):
        players_of(adversaries(), ("critic",))
    with pytest.raises(ValueError, match="one for each turn"):
        players_of(two_terms(), TURNS)  # its head has no turns
    for head in (GreedyHead, LazyHead):
        with pytest.raises(ValueError, match="exactly one player"):
            players_of(Network(FrameStem(), nn.Identity(), head()), TURNS)
