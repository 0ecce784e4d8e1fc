"""Attention along edges is dense attention under the same mask, in values and gradients; segment sums are loops."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from regard.attention import Edges, MultiHead, attend, causal, fast, normalisers, padding, scores
from regard.attention.edges import attend_edges, edge_weights, segment_softmax
from regard.attention.normalisers import Normaliser
from regard.attention.scores import Score
from regard.inspection.recording import watch

ROWS, N, HEADS, D = 3, 7, 2, 4


def some_edges(seed: int = 0, share: float = 0.4, *, shuffled: bool = True) -> Edges:
    """Random edges over padded nodes; some nodes receive nothing."""
    draw = torch.Generator().manual_seed(seed)
    row, receiver, sender = (torch.rand(ROWS, N, N, generator=draw) < share).nonzero(as_tuple=True)
    keep = receiver != 2  # node 2 of every row has nothing to look at
    edges = torch.stack((row[keep], receiver[keep], sender[keep]))
    if shuffled:
        edges = edges[:, torch.randperm(edges.shape[1], generator=draw)]
    return Edges(*edges)


def some_vectors(seed: int = 1) -> list[Tensor]:
    torch.manual_seed(seed)
    return [torch.randn(ROWS, HEADS, N, D, dtype=torch.float64, requires_grad=True) for _ in range(3)]


def gradients(answer: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    torch.manual_seed(5)
    return list(
        torch.autograd.grad((answer * torch.randn(answer.shape, dtype=answer.dtype)).sum(), inputs, allow_unused=True)
    )


SCORES: list[Callable[[], Score]] = [
    lambda: scores.dot,
    lambda: scores.scaled_dot,
    lambda: scores.uniform,
    lambda: scores.Bilinear(D, D).double(),
    lambda: scores.Additive(D, D, 5).double(),
    lambda: scores.MLP(D, D, 5).double(),
    lambda: scores.GraphAdditive(HEADS, D).double(),
    lambda: scores.GraphDynamic(HEADS, D).double(),
]
NORMALISERS = [
    normalisers.softmax, normalisers.mean, normalisers.symmetric, normalisers.sigmoid, normalisers.relu,
    normalisers.exponential, normalisers.none,
]  # fmt: skip


@pytest.mark.parametrize("make", SCORES)
@pytest.mark.parametrize("normalise", NORMALISERS, ids=lambda part: part.__name__)
def test_edges_equal_dense_attention_under_the_same_mask(make: Callable[[], Score], normalise: Normaliser) -> None:
    torch.manual_seed(3)
    score, edges, inputs = make(), some_edges(), some_vectors()
    learned = list(score.parameters()) if isinstance(score, torch.nn.Module) else []
    dense, weights = attend(*inputs, score=score, normalise=normalise, mask=edges.dense(ROWS, N, N))
    sparse = fast(*inputs, score=score, normalise=normalise, mask=edges)
    assert sparse.allclose(dense, atol=1e-10)
    asked = [*inputs, *learned]
    for one, other in zip(gradients(sparse, asked), gradients(dense, asked), strict=True):
        assert (one is None or one.abs().max() < 1e-12) if other is None else one.allclose(other, atol=1e-10)
    found, flat = edge_weights(*inputs[:2], edges, score=score, normalise=normalise)
    rows, receivers = flat.receiver // N, flat.receiver % N
    assert found.allclose(weights[rows, :, receivers, flat.sender % N], atol=1e-10)


def test_a_list_of_edges_is_a_mask_of_the_reference_too() -> None:
    edges, inputs = some_edges(), some_vectors()
    assert attend(*inputs, mask=edges)[0].allclose(attend(*inputs, mask=edges.dense(ROWS, N, N))[0])


def test_a_bias_by_positions_is_added_along_edges() -> None:
    edges, inputs = some_edges(), some_vectors()
    where = torch.arange(N)

    def bias(q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        return -(q_pos.unsqueeze(-1) - k_pos.unsqueeze(-2)).abs().double().unsqueeze(-3)

    dense, _ = attend(*inputs, mask=edges.dense(ROWS, N, N), bias=bias)
    assert attend_edges(*inputs, edges, bias=bias, q_pos=where, k_pos=where).allclose(dense)


def test_a_node_without_edges_gets_zeros_and_finite_gradients() -> None:
    edges, inputs = some_edges(), some_vectors()
    answer = fast(*inputs, mask=edges)
    assert answer[:, :, 2].abs().max() == 0
    assert all(part.isfinite().all() for part in gradients(answer, inputs))
    nothing = fast(*inputs, mask=edges.only(torch.zeros(len(edges), dtype=torch.bool)))
    assert nothing.abs().max() == 0
    assert all(part.abs().max() == 0 for part in gradients(nothing, inputs))


def test_softmax_per_receiver_is_stable() -> None:
    edges = some_edges(shuffled=False)
    flat = edges.flat(ROWS, N, N)
    scores_ = torch.randn(len(edges), HEADS, dtype=torch.float64)
    moved = scores_ + 1e4 * (flat.receiver % 3 - 1).unsqueeze(-1)  # rows of very different heights
    assert segment_softmax(moved, flat).allclose(segment_softmax(scores_, flat), atol=1e-9)
    total = torch.zeros(ROWS * N, HEADS, dtype=torch.float64).index_add(0, flat.receiver, segment_softmax(moved, flat))
    there = flat.offsets.diff() > 0
    assert total[there].allclose(torch.ones(()).double())
    assert total[~there].abs().max() == 0


def test_the_gradients_of_segment_softmax_are_those_of_finite_differences() -> None:
    flat = some_edges(shuffled=False).flat(ROWS, N, N)
    scores_ = torch.randn(len(flat.receiver), HEADS, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda s: segment_softmax(s, flat), (scores_,))


def test_an_edge_of_strength_two_counts_as_two() -> None:
    edges, inputs = some_edges(shuffled=False), some_vectors()
    strength = torch.where(torch.arange(len(edges)) % 3 == 0, 2.0, 1.0).double()
    twice = torch.cat((torch.arange(len(edges)), torch.arange(len(edges))[strength > 1]))
    doubled = Edges(edges.row[twice], edges.receiver[twice], edges.sender[twice])
    weighted = Edges(edges.row, edges.receiver, edges.sender, None, strength)
    for normalise in (normalisers.softmax, normalisers.mean, normalisers.exponential, normalisers.symmetric):
        one, other = (fast(*inputs, normalise=normalise, mask=each) for each in (weighted, doubled))
        assert one.allclose(other, atol=1e-10), normalise


def test_rules_and_edges_are_joined() -> None:
    edges = some_edges()
    assert (padding & edges) is edges
    earlier = causal & edges
    assert (earlier.sender <= earlier.receiver).all()
    assert earlier.dense(ROWS, N, N).equal(edges.dense(ROWS, N, N).tril())


def test_many_edges_are_summed_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    edges, inputs = some_edges(), some_vectors()
    whole = fast(*inputs, mask=edges)
    expected = gradients(whole, inputs)
    monkeypatch.setattr("regard.attention.edges.CHUNK", 5)
    parts = fast(*inputs, mask=edges)
    assert parts.allclose(whole)
    for one, other in zip(gradients(parts, inputs), expected, strict=True):
        assert one.allclose(other)


def test_multi_head_attention_takes_edges_and_can_be_watched() -> None:
    torch.manual_seed(0)
    layer, x, edges = MultiHead(8, 2), torch.randn(ROWS, N, 8), some_edges()
    dense, _ = layer(x, mask=edges.dense(ROWS, N, N))
    with watch(layer) as seen:
        sparse, _ = layer(x, mask=edges)
    with watch(layer, rows=[3, 1]) as some:
        layer(x, mask=edges)
    assert sparse.allclose(dense, atol=1e-6)
    (whole,), (few,) = seen.values(), some.values()
    assert whole.weights.shape == (ROWS, 2, N, N)
    assert few.calls[0].weights().allclose(whole.weights[:, :, [3, 1]], atol=1e-6)


def test_memory_is_linear_in_the_edges() -> None:
    """20,000 nodes: a dense matrix of booleans alone would take 400 MB."""
    n, e = 20_000, 60_000
    q = torch.randn(1, 1, n, 4, requires_grad=True)
    edges = Edges(torch.zeros(e, dtype=torch.long), torch.randint(n, (e,)), torch.randint(n, (e,)))
    made: list[int] = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            result = function(*args, **(kwargs or {}))
            made.extend(part.numel() for part in torch.utils._pytree.tree_leaves(result) if isinstance(part, Tensor))
            return result

    with Watch():
        fast(q, q, q, mask=edges).sum().backward()
    assert max(made) <= 8 * e
