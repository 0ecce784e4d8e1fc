"""Layers along edges equal PyTorch Geometric's and loops over the formulas; order does not matter, and isolated nodes,
padding and disjoint unions are no special cases."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GATv2Conv, GCNConv

from regard.attention import Context, Edges, fast, normalisers, scores
from regard.backbones.graph import GraphEncoder, GraphLayer
from regard.models.encoder import encoder
from regard.models.graph import gat, gcn, graph_convolution

N, WIDTH, HEADS = 9, 8, 2
HOW: dict[str, Any] = {"width": WIDTH, "dropout": 0.0, "skip": False, "norm": False, "edge_width": 0}
GAT = HOW | {"heads": HEADS, "attention_dropout": 0.0}


def graph(seed: int = 0, *, loops: bool = True) -> tuple[Edges, Tensor]:
    """A random undirected graph with an isolated node, and as PyG writes it, without loops."""
    draw = torch.Generator().manual_seed(seed)
    some = torch.rand(N, N, generator=draw) < 0.3
    some = (some | some.T).fill_diagonal_(False)
    some[4] = some[:, 4] = False
    sender, receiver = some.nonzero(as_tuple=True)
    pyg = torch.stack((sender, receiver))
    own = torch.arange(N) if loops else torch.arange(0)
    sender, receiver = torch.cat((sender, own)), torch.cat((receiver, own))
    return Edges(torch.zeros_like(sender), receiver, sender), pyg


def twins() -> list[Tensor]:
    """The same features twice."""
    x = torch.randn(N, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    return [x.clone().requires_grad_() for _ in range(2)]


def first_layer(kind: str) -> GraphLayer:
    torch.manual_seed(1)
    if kind == "gcn":
        made = gcn(layers=2, **HOW)[1]
    elif kind == "graph":
        made = graph_convolution(layers=2, **HOW)[1]
    else:
        made = gat(layers=2, **GAT, dynamic=kind == "gatv2")[1]
    layer = made.layers[0]
    assert isinstance(layer, GraphLayer)
    return layer.double()


def same(ours: Tensor, theirs: Tensor, pairs: list[tuple[Tensor, Tensor]]) -> None:
    upstream = torch.randn(ours.shape, dtype=ours.dtype)
    assert (ours - theirs).abs().max() < 1e-5
    mine = torch.autograd.grad((ours * upstream).sum(), [one for one, _ in pairs])
    other = torch.autograd.grad((theirs * upstream).sum(), [other for _, other in pairs])
    for one, their in zip(mine, other, strict=True):
        assert (one - their.view_as(one)).abs().max() < 1e-5


def test_gcn_equals_pyg() -> None:
    edges, pyg = graph()
    layer, theirs = first_layer("gcn"), GCNConv(5, WIDTH).double()
    matrix = nn.Parameter(theirs.lin.weight.detach().clone())
    x, other = twins()
    assert layer.bias is not None
    assert theirs.bias is not None
    ours = layer((x @ matrix.T).unsqueeze(0), torch.arange(N), edges)[0]
    same(ours, theirs(other, pyg).relu(), [(x, other), (matrix, theirs.lin.weight), (layer.bias, theirs.bias)])


def test_gcn_with_weights_of_edges_equals_pyg() -> None:
    edges, pyg = graph()
    strength = torch.rand(pyg.shape[1], dtype=torch.float64)
    weighted = Edges(edges.row, edges.receiver, edges.sender, None, torch.cat((strength, torch.ones(N).double())))
    theirs = GCNConv(WIDTH, WIDTH).double()
    x = torch.randn(N, WIDTH, dtype=torch.float64)
    ours = first_layer("gcn")((x @ theirs.lin.weight.T).unsqueeze(0), torch.arange(N), weighted)[0]
    assert (ours - theirs(x, pyg, strength).relu()).abs().max() < 1e-5


def test_gat_equals_pyg() -> None:
    edges, pyg = graph()
    layer, theirs = first_layer("gat"), GATConv(5, WIDTH // HEADS, HEADS).double()
    score: Any = layer.attention.score
    with torch.no_grad():
        score.of_key.copy_(theirs.att_src[0])
        score.of_query.copy_(theirs.att_dst[0])
    matrix = nn.Parameter(theirs.lin.weight.detach().clone())
    x, other = twins()
    ours = layer((x @ matrix.T).unsqueeze(0), torch.arange(N), edges)[0]
    pairs = [(x, other), (matrix, theirs.lin.weight), (score.of_key, theirs.att_src), (score.of_query, theirs.att_dst)]
    same(ours, nn.functional.elu(theirs(other, pyg)), pairs)


def test_gatv2_equals_pyg() -> None:
    edges, pyg = graph()
    layer, theirs = first_layer("gatv2"), GATv2Conv(5, WIDTH // HEADS, HEADS, bias=False).double()
    score: Any = layer.attention.score
    with torch.no_grad():
        score.functional.copy_(theirs.att[0])
        assert theirs.lin_l.bias is None
    matrix = nn.Parameter(torch.cat((theirs.lin_r.weight, theirs.lin_l.weight)).detach().clone())
    x, other = twins()
    ours = layer((x @ matrix.T).unsqueeze(0), torch.arange(N), edges)[0]
    same(ours, nn.functional.elu(theirs(other, pyg)), [(x, other), (score.functional, theirs.att)])


def test_the_graph_convolution_equals_a_loop_over_its_formula() -> None:
    edges, pyg = graph()
    layer = first_layer("graph")
    x = torch.randn(N, 5, dtype=torch.float64, requires_grad=True)
    one, two = (torch.randn(5, WIDTH, dtype=torch.float64, requires_grad=True) for _ in range(2))
    ours = layer(torch.cat((x @ one, x @ two), -1).unsqueeze(0), torch.arange(N), edges)[0]
    rows = []
    for j in range(N):
        total = one.T @ x[j]
        for i in pyg[0][pyg[1] == j].tolist():
            total = total + two.T @ x[i]
        rows.append(total.relu())
    same(ours, torch.stack(rows), [(x, x), (one, one), (two, two)])


def networks() -> dict[str, tuple[Any, nn.Module]]:
    torch.manual_seed(0)
    made = {
        "gcn": gcn(layers=2, **HOW),
        "graph": graph_convolution(layers=2, **HOW | {"skip": True, "norm": True}),
        "gat": gat(layers=2, **GAT),
        "gatv2": gat(layers=3, **GAT, dynamic=True),
        "transformer": encoder(layers=2, width=WIDTH, hidden=16, heads=2, length=99, dropout=0.0, position="none"),
    }
    return {name: (stem, backbone.double().eval()) for name, (stem, backbone) in made.items()}


def run(name: str, x: Tensor, edges: Edges, positions: Tensor | None = None) -> Tensor:
    found: Context = networks()[name][1](Context(x, positions, edges))
    return found.values


@pytest.mark.parametrize("name", networks())
def test_renumbered_nodes_get_the_same_features(name: str) -> None:
    """F(P X, P A Pᵀ) = P F(X, A); so a sum over all nodes does not change at all."""
    edges, _ = graph(3)
    x = torch.randn(1, N, networks()[name][0].width, dtype=torch.float64)
    to = torch.randperm(N)
    moved = Edges(edges.row, to[edges.receiver], to[edges.sender])
    plain, other = run(name, x, edges), run(name, torch.empty_like(x).index_copy(1, to, x), moved)
    assert other[:, to].allclose(plain, atol=1e-10)
    assert other.sum(1).allclose(plain.sum(1), atol=1e-10)


@pytest.mark.parametrize("name", networks())
def test_padded_and_block_diagonal_batches_are_the_same(name: str) -> None:
    width = networks()[name][0].width
    one, _ = graph(3)
    other, _ = graph(4)
    small = other.only((other.receiver < 6) & (other.sender < 6))
    x, y = torch.randn(N, width, dtype=torch.float64), torch.randn(6, width, dtype=torch.float64)
    padded = torch.full((2, N + 3, width), 7.0, dtype=torch.float64)
    padded[0, :N], padded[1, :6] = x, y
    positions = torch.full((2, N + 3), -1)
    positions[0, :N], positions[1, :6] = torch.arange(N), torch.arange(6)
    parts = zip((one.receiver, one.sender), (small.receiver, small.sender), strict=True)
    batch = Edges(torch.cat((one.row, small.row + 1)), *(torch.cat(pair) for pair in parts))
    union = Edges(
        torch.zeros_like(batch.row),
        torch.cat((one.receiver, small.receiver + N)),
        torch.cat((one.sender, small.sender + N)),
    )
    apart = run(name, padded, batch, positions)
    together = run(name, torch.cat((x, y)).unsqueeze(0), union)
    assert torch.cat((apart[0, :N], apart[1, :6])).allclose(together[0], atol=1e-10)


def test_a_standard_convolution_is_a_graph_convolution_over_windows() -> None:
    """A 1-D convolution of size 3 is a sum over three graphs: to the left, the node itself, to the right."""
    x = torch.randn(1, 5, 12, dtype=torch.float64)
    convolution = nn.Conv1d(5, 4, 3, padding=1).double()
    found = torch.zeros(12, 4, dtype=torch.float64) + convolution.bias
    for k, shift in enumerate((-1, 0, 1)):
        receiver = torch.arange(max(0, -shift), 12 - max(0, shift))
        edges = Edges(torch.zeros_like(receiver), receiver, receiver + shift)
        v = (x[0].T @ convolution.weight[:, :, k].T).view(1, 1, 12, 4)
        found = found + fast(v, v, v, score=scores.uniform, normalise=normalisers.exponential, mask=edges)[0, 0]
    assert found.allclose(convolution(x)[0].T, atol=1e-10)


def test_a_layer_without_edges_says_so() -> None:
    with pytest.raises(ValueError, match="needs edges"):
        GraphEncoder([first_layer("gcn")])(Context(torch.randn(1, 3, WIDTH)))
