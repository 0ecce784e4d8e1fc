"""Operations and parameters: own formulas against torch's counter on the unfused path, and against counts by hand."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from regard.attention import MultiHead
from regard.attention.edges import Edges
from regard.costs.shadow import shapes_of, without_weights
from regard.costs.steps import step_cost
from regard.costs.trace import LOOKING, Component, parameters, trace, traced
from regard.data.batches import Batches
from regard.layers import softmax
from regard.layers.recurrence import cells
from regard.runs.build import build
from regard.task import Task
from regard.training.prepare import counts_of, learn
from regard.training.train import settle
from tests import test_matrix as matrix

# Torch says that of GPUs when oneDNN is left out.
pytestmark = pytest.mark.filterwarnings("ignore:TF32 acceleration")

TRANSFORMER = ["model.kind=transformer", "model.heads=2", "model.hidden=24"]
CONVERT = ["model.heads=2", "model.hidden=24", "model.kind=transformer"]
LABEL = "tokens", "classify"
# fmt: off
KINDS: dict[str, tuple[str, str, list[str]]] = {
    "full": (*LABEL, TRANSFORMER),
    "rotary": (*LABEL, [*TRANSFORMER, "model.position=rotary"]),
    "t5": (*LABEL, [*TRANSFORMER, "model.position=t5"]),
    "shaw": (*LABEL, [*TRANSFORMER, "model.position=shaw"]),
    "local": (*LABEL, [*TRANSFORMER, "model.attention=local", "model.reach=2"]),
    "linear": (*LABEL, [*TRANSFORMER, "model.attention=linear"]),
    "performer": (*LABEL, [*TRANSFORMER, "model.attention=performer", "model.features=12"]),
    "linformer": (*LABEL, [*TRANSFORMER, "model.attention=linformer", "model.columns=3"]),
    "bigbird": (*LABEL, [*TRANSFORMER, "model.attention=bigbird", "model.block=2"]),
    "additive": (*LABEL, [*TRANSFORMER, "model.score=additive"]),
    "convolution": (*LABEL, ["model.kind=convolution"]),
    "deepsets": (*LABEL, ["model.kind=deepsets"]),
    "window": (*LABEL, ["model.kind=window"]),
    "mlp": (*LABEL, [*TRANSFORMER, "model.score=mlp"]),
    "bilinear": (*LABEL, [*TRANSFORMER, "model.score=bilinear"]),
    "transformer-xl positions": (*LABEL, [*TRANSFORMER, "model.position=transformer-xl"]),
    "convert": ("tokens", "convert", CONVERT),
    "convolution, convert": ("tokens", "convert", ["model.kind=convolution", "model.layers=2"]),
    "gpt": ("tokens", "continue", ["model.heads=2", "model.hidden=24", "output.context=48", "training.budget=200"]),
    "transformer-xl": ("tokens", "continue", ["model.kind=transformer-xl", "model.heads=2", "output.context=48"]),
    "bert": ("tokens", "fill", ["model.heads=2", "model.hidden=24"]),
    "xlnet": ("tokens", "fill", ["model.kind=xlnet", "model.heads=2", "model.hidden=24"]),
    "cnn": ("patches", "classify", ["model.kind=cnn"]),
    "vit": ("patches", "classify", ["model.kind=vit"]),
    "swin": ("patches", "classify", ["model.kind=swin"]),
    "captions": ("patches", "convert", matrix.MORE["patches", "convert"]),
    "detection": ("patches", "detect", matrix.MORE["patches", "detect"]),
    "vae": ("patches", "imagine", matrix.MORE["patches", "imagine"]),
    "gan": ("patches", "imagine", [*matrix.PLAYERS, "output.latent=3"]),
    "forgetting": (*LABEL, ["model.kind=recurrent", "model.cell=forgetting"]),
    "conformer": ("frames", "tag", matrix.MORE["frames", "tag"]),
    "floater": (*LABEL, [*TRANSFORMER, "model.position=floater"]),
    "learned": (*LABEL, [*TRANSFORMER, "model.position=learned", "model.position_way=heads"]),
    "alibi": (*LABEL, [*TRANSFORMER, "model.position=alibi", "model.heads_see=piece", "model.value_width=7"]),
    "mean": (*LABEL, [*TRANSFORMER, "model.normaliser=mean"]),
    "gpt, classify": (*LABEL, ["model.kind=gpt", "model.heads=2", "model.hidden=24", "model.language=0.5"]),
    "n-grams": ("tokens", "convert", [*CONVERT, "model.ngrams=3", "model.buckets=64"]),
    "recurrent": (*LABEL, ["model.kind=recurrent"]),
    "recurrent, tag": ("tokens", "tag", ["model.kind=recurrent", "model.cell=gru", "tokens.spelling_width=8"]),
    "recurrent, continue": ("tokens", "continue", ["model.kind=recurrent", "output.context=48"]),
    "recurrent, additive": ("tokens", "convert", ["model.kind=recurrent"]),
    "recurrent, location": ("tokens", "convert", ["model.kind=recurrent", "model.attention=location"]),
    "recurrent, heads": ("tokens", "convert", ["model.kind=recurrent", "model.heads=2", "model.order=before"]),
    "pyramid": ("frames", "classify", ["model.kind=pyramid"]),
    "speech": ("frames", "convert", matrix.MORE["frames", "convert"]),
    "show, attend and tell": ("patches", "convert", ["model.kind=show-attend-tell", "encoder.width=8"]),
    "video": ("clips", "classify", matrix.MORE["clips", "classify"]),
    "vae, dense": ("patches", "imagine", [*matrix.MORE["patches", "imagine"], "model.kind=dense"]),
}
# fmt: on
# They lack some settings of others.
FEW = [[f"model.kind={kind}"] for kind in ("deepsets", "window", "sagan", "pyramid", "show-attend-tell")]


def toy_task(folder: Path, source: str, output: str, changes: list[str]) -> tuple[Task, Any]:
    path = matrix.toy(folder, source, output)
    own = [change for change in matrix.SET if changes[:1] not in FEW or not change.startswith("model.")]
    config, _, seen = settle([str(path)], [], [], output, [*own, *changes])
    assert seen is not None
    task = build(config, learn(config, seen, None))
    return task, list(task.rows(seen.examples))[:8]


def counted(task: Task, batch: Any) -> int:
    """Return the count of torch, of which two faults are mended: it takes a convolution in groups for a whole one where it is
    differentiated by its weights, and does not see products that are added to a tensor in place. Without oneDNN an
    LSTM is the products of its cells, which it sees."""

    def backward(gradient: Any, x: Any, weight: Any, *rest: Any, **_: Any) -> int:
        batch, places, channels = gradient[0], gradient[2:].numel(), gradient[1]
        return 2 * batch * places * channels * weight[1:].numel() * sum(rest[-1][:2])

    mended = {torch.ops.aten.convolution_backward: backward}
    task.network.train()
    plain = torch.backends.mkldnn.flags(enabled=False)
    with FlopCounterMode(display=False, custom_mapping=mended) as counter, sdpa_kernel(SDPBackend.MATH), plain:
        task.network(batch, task.turns[0]).sum().backward()
    task.network.zero_grad(set_to_none=True)
    return int(counter.get_total_flops())


@pytest.mark.parametrize("name", KINDS)
def test_operations_and_parameters_are_torch_s(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(softmax._Chunked, "apply", softmax.plain)  # its gradient is added in place
    task, rows = toy_task(tmp_path, *KINDS[name])
    batch = task.batch(rows)
    found = traced(task.network, batch, task.turns[0])
    assert found.flops == pytest.approx(counted(task, batch), rel=0.01)
    assert parameters(task.network).total() == sum(p.numel() for p in task.network.parameters())
    assert all(p.grad is None for p in task.network.parameters())


def test_the_chunked_softmax_costs_what_the_plain_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task, rows = toy_task(tmp_path, *KINDS["gpt"])
    batch = task.batch(rows)
    chunked = traced(task.network, batch)
    monkeypatch.setattr(softmax._Chunked, "apply", softmax.plain)
    plain = traced(task.network, batch)
    assert chunked.flops == plain.flops


@pytest.mark.parametrize("kind", ["lstm", "gru", "rnn"])
@pytest.mark.parametrize("padded", [False, True])
def test_recurrence_costs_what_its_cells_do(kind: str, padded: bool) -> None:
    rnn = without_weights(cells(kind, 6, 5, 2, 0.0, both=True))
    lengths = torch.tensor([7, 4, 2] if padded else [7, 7, 7])
    x = shapes_of(torch.randn(3, 7, 6))

    def step() -> None:
        given: Any = x
        if padded:
            given = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
        out = rnn(given)[0]
        (out.data if padded else out).sum().backward()

    found = trace(rnn, step)
    cell = {"lstm": nn.LSTMCell, "gru": nn.GRUCell, "rnn": nn.RNNCell}[kind]
    total = 0
    for width in (6, 10):  # of the first layer, and of the second, which reads both directions
        module = cell(width, 5)
        with FlopCounterMode(display=False) as counter:
            state: Any = torch.zeros(1, 5)
            module(torch.randn(1, width), (state, state) if kind == "lstm" else state)
        total += 2 * int(lengths.sum()) * int(counter.get_total_flops())
    # Backward: as much for the weights, and for what is read: the first layer's input asks for no gradient.
    gates = {"lstm": 4, "gru": 3, "rnn": 1}[kind]
    assert found.forward.total() == total
    # Nor does the state before the first step.
    unasked = 2 * int(lengths.sum()) * 2 * gates * 5 * 6
    assert found.backward.total() == pytest.approx(2 * total - unasked, rel=0.12)


def test_edges_cost_a_score_and_a_sum_each() -> None:
    layer = MultiHead(8, 2)
    row, receiver = torch.zeros(6, dtype=torch.long), torch.tensor([0, 0, 1, 2, 3, 3])
    edges = Edges(row, receiver, torch.tensor([1, 2, 0, 3, 2, 0]))
    network = without_weights(layer)
    x = torch.randn(1, 4, 8)

    def step() -> None:
        network(x, mask=edges)[0].sum().backward()

    found = trace(network, step)
    projections = 4 * 2 * 4 * 8 * 8
    along = 6 * 2 * (2 * 4 + 2 * 4)  # edges, heads, a product and a weighted sum of 4 numbers
    assert found.forward.total() == projections + along
    assert found.backward.total() == 2 * projections - 3 * 2 * 4 * 8 * 8 + 2 * along  # x asks for no gradient


@pytest.mark.parametrize(
    ("kind", "scored", "learned"), [("gcn", 0, 0), ("graph", 0, 0), ("gat", 0, 1), ("gatv2", 1, 1)]
)
def test_networks_along_edges_cost_their_products_and_what_each_edge_does(
    kind: str, scored: int, learned: int, tmp_path: Path
) -> None:
    """For each edge of a layer of width w: 2w for a · LeakyReLU(q + k) where a score is one, 2w for the weighted sum; back
    2w for the values, 2w for weights that are learned, 4w for such a score."""
    task, rows = toy_task(tmp_path, "nodes", "classify", [f"model.kind={kind}"])
    batch = task.batch(rows)
    edges = batch.source.mask if kind != "graph" else batch.source.mask.without_loops()
    each = 2 * len(edges.receiver) * 16  # of one layer of the matrix's width
    assert traced(task.network, batch).flops - counted(task, batch) == each * (2 + 3 * scored + learned)


def test_a_transformer_layer_costs_what_its_formula_says(tmp_path: Path) -> None:
    """8 n d² for the projections, 4 n² d for scores and mixing, 4 n d h for the feed-forward part; twice that back."""
    task, rows = toy_task(tmp_path, "tokens", "fill", ["model.heads=2", "model.hidden=24"])
    batch = task.batch(rows)
    found = traced(task.network, batch)
    count, n = batch.source.values[0].shape
    d, h = 16, 24
    for made, times in ((found.forward, 1), (found.backward, 2)):
        assert made[Component("backbone", "self-attention")] == times * count * 8 * n * d * d
        assert made[Component("backbone", LOOKING)] == times * count * 4 * n * n * d
        assert made[Component("backbone", "feed-forward")] == times * count * 4 * n * d * h
    assert found.looking == 3 * count * 4 * n * n * d


def test_a_pass_without_gradients_costs_the_forward_pass(tmp_path: Path) -> None:
    task, rows = toy_task(tmp_path, *KINDS["full"])
    batch = task.batch(rows)
    learned, read = traced(task.network, batch), traced(task.network, batch, learning=False)
    assert read.forward == learned.forward
    assert not read.backward
    assert read.peak < learned.peak


def test_a_copied_network_keeps_its_rules_and_shares_no_weights(tmp_path: Path) -> None:
    task, _ = toy_task(tmp_path, *KINDS["linformer"])
    copied = without_weights(task.network)
    assert all(p.is_meta for p in copied.parameters())
    assert [n for n, _ in copied.named_parameters()] == [n for n, _ in task.network.named_parameters()]


def test_the_mean_step_is_that_of_all_batches(tmp_path: Path) -> None:
    task, rows = toy_task(tmp_path, *KINDS["full"])
    rows = rows * 4
    batches = Batches(counts_of(rows), 60, 1, [field.tokens for field in task.fields])
    content = lambda chosen: [rows[i] for i in chosen]  # noqa: E731
    every = [traced(task.network, task.batch(content(each))).flops for each in batches.order(0)]
    mean = step_cost(task, batches, content, sample=len(every))
    assert mean.flops == pytest.approx(sum(every) / len(every), rel=1e-3)
    assert step_cost(task, batches, content, accumulate=2, sample=len(every)).flops == pytest.approx(
        2 * mean.flops, rel=1e-3
    )
    assert isinstance(mean.parts, Counter)


class Branching(nn.Module):
    """A network that looks at whole numbers, and computes with others."""

    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Linear(4, 4)

    def forward(self, ids: Tensor, _: str) -> Tensor:
        chosen = ids > 2
        x = nn.functional.one_hot(ids, 4).float()
        found: Tensor = self.map(x[chosen]) if bool(chosen.any()) else self.map(x)
        return found


def test_whole_numbers_have_values() -> None:
    ids = torch.tensor([3, 1, 3, 0])
    assert traced(Branching(), ids).forward.total() == 2 * 2 * 4 * 4
    assert traced(Branching(), ids.clamp(max=2)).forward.total() == 2 * 4 * 4 * 4
