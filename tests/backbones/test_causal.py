"""Invariants of every network that only looks back: no future leaks, and cuts, padding and company change nothing."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from regard.attention import Context, MultiHead, Rolling, masks, window
from regard.backbones.transformer import Causal
from regard.inputs.embedding import Embedding
from regard.models.gpt import gpt
from regard.models.lstm import lstm
from regard.models.position_kinds import INSIDE, TABLES
from regard.models.stack import gelu_tanh, stack
from regard.models.transformer_xl import transformer_xl
from tests.models.networks import embedded

Network = tuple[nn.Module, nn.Module]
SHAPE: dict[str, Any] = {"layers": 2, "width": 16, "hidden": 24, "heads": 2, "dropout": 0.0}
REACH = 3


def made(builder: Callable[..., Any], **parts: Any) -> Callable[[], Network]:
    """A network of one of our builders, for 20 tokens."""
    return lambda: embedded(builder(**parts), 20)


def windowed() -> Network:
    """A GPT whose layers look back REACH positions and forget what is further."""
    parts = stack([MultiHead(16, 2) for _ in range(2)], 16, 24, 0.0, norm="pre", activation=gelu_tanh)
    embedding = Embedding(20, 16, None, nn.Identity(), scale=False)
    return embedding, Causal(*parts, mask=window(REACH, 0), start=partial(Rolling, REACH))


NETWORKS: dict[str, Callable[[], Network]] = {
    **{f"gpt {kind}": made(gpt, context=32, position=kind, **SHAPE) for kind in (*TABLES, *INSIDE)},
    "gpt post-LN": made(gpt, context=32, norm="post", **SHAPE),
    "gpt windowed": windowed,
    "lstm": made(lstm, layers=2, width=16, dropout=0.0),
    "gru": made(lstm, layers=1, width=16, dropout=0.0, cell="gru"),
    "transformer-xl": made(transformer_xl, memory=32, **SHAPE),
    "transformer-xl pre-LN": made(transformer_xl, memory=32, norm="pre", **SHAPE),
    "transformer-xl same length": made(transformer_xl, memory=REACH, same_length=True, **SHAPE),
}
FORGETFUL = {"gpt windowed", "transformer-xl same length"}  # padding takes up room in what they keep

networks = pytest.mark.parametrize("name", NETWORKS)
lengths = st.integers(2, 9)
seeds = st.integers(0, 2**31)
few = settings(max_examples=8, deadline=None)


def make(name: str) -> Network:
    torch.manual_seed(0)
    embedding, backbone = (part.double().eval() for part in NETWORKS[name]())
    with torch.no_grad():  # first weights are so small that mistakes would drown
        for parameter in [*embedding.parameters(), *backbone.parameters()]:
            parameter.normal_(0.3 if parameter.dim() == 1 else 0.0, 0.3)
    return embedding, backbone


def run(network: Network, ids: Tensor, positions: Tensor) -> Tensor:
    embedding, backbone = network
    with torch.no_grad():
        return backbone(Context(embedding(ids, positions), positions)).values


def steps(network: Network, ids: Tensor, positions: Tensor, state: Any = None) -> tuple[Tensor, Any]:
    embedding, backbone = network
    with torch.no_grad():
        features, state = backbone.steps(Context(embedding(ids, positions), positions), state)
    return features.values, state


def same(ours: Tensor, theirs: Tensor) -> bool:
    return ours.allclose(theirs, atol=1e-9)


def padded(generator: torch.Generator, batch: int, length: int, *, anywhere: bool) -> Tensor:
    """Positions of rows with some padding, at least one element each: at the end, or anywhere."""
    rows = torch.full((batch, length), -1)
    for row in rows:
        real = int(torch.randint(1, length + 1, (), generator=generator))
        where = torch.randperm(length, generator=generator)[:real].sort().values if anywhere else torch.arange(real)
        row[where] = torch.arange(real)
    return rows


@networks
@few
@given(length=lengths, seed=seeds)
def test_a_later_token_never_changes_an_earlier_answer(name: str, length: int, seed: int) -> None:
    network, generator = make(name), torch.Generator().manual_seed(seed)
    ids = torch.randint(4, 20, (2, length), generator=generator)
    where = int(torch.randint(0, length, (), generator=generator))
    changed = ids.clone()
    changed[:, where] = 4 + (ids[:, where] - 3) % 16
    before, after = (run(network, x, torch.arange(length)) for x in (ids, changed))
    assert before[:, :where].equal(after[:, :where])
    assert not same(before[:, where], after[:, where])


@networks
@few
@given(length=lengths, seed=seeds)
def test_continued_from_a_state_it_says_the_same_in_any_cut(name: str, length: int, seed: int) -> None:
    network, generator = make(name), torch.Generator().manual_seed(seed)
    ids = torch.randint(4, 20, (3, length), generator=generator)
    positions = torch.arange(length)
    if seed % 2:
        positions = padded(generator, 3, length, anywhere=name not in FORGETFUL)
    whole = run(network, ids, positions)
    cuts = (torch.rand(length - 1, generator=generator) < 0.5).nonzero()[:, 0] + 1
    state, order = None, torch.arange(3)
    pieces = zip(ids.tensor_split(cuts, 1), positions.tensor_split(cuts, -1), whole.tensor_split(cuts, 1), strict=True)
    for some, where, expected in pieces:
        rows = where[order] if where.dim() == 2 else where
        ours, state = steps(network, some[order], rows, state)
        real = (rows >= 0).expand(3, -1)
        assert same(ours[real], expected[order][real])
        index = torch.randint(0, 3, (3,), generator=generator)
        state, order = state.reorder(index), order[index]


@networks
@few
@given(length=lengths, seed=seeds)
def test_padding_anywhere_and_other_rows_change_nothing(name: str, length: int, seed: int) -> None:
    network, generator = make(name), torch.Generator().manual_seed(seed)
    ids = torch.randint(4, 20, (3, length), generator=generator)
    positions = padded(generator, 3, length, anywhere=True)
    together = run(network, ids, positions)
    assert together.isfinite().all()
    for row, where, answer in zip(ids, positions, together, strict=True):
        real = where >= 0
        alone = run(network, row[None, real], torch.arange(int(real.sum())))
        assert same(answer[real], alone[0])
    order = torch.randperm(3, generator=generator)
    assert same(run(network, ids[order], positions[order]), together[order])


@networks
def test_every_parameter_learns(name: str) -> None:
    embedding, backbone = make(name)
    positions = torch.arange(5)
    features = backbone(Context(embedding(torch.tensor([[4, 5, 6, 7, 8]]), positions), positions)).values
    (features * torch.randn(features.shape, dtype=torch.float64)).sum().backward()
    assert not [n for part in (embedding, backbone) for n, p in part.named_parameters() if p.grad is None]


@pytest.mark.parametrize("name", ["gpt learned", "transformer-xl"])
@pytest.mark.parametrize("padded", [False, True])
def test_masks_are_laid_once_per_call_with_a_state_too(
    name: str, padded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where positions differ by row and a search has reordered the state of every layer."""
    calls = []
    original = masks.Laid.rows
    monkeypatch.setattr(masks.Laid, "rows", lambda self, q_pos: calls.append(q_pos) or original(self, q_pos))
    network = make(name)
    first = torch.tensor([[0, 1, 2], [-1, 0, 1]]) if padded else torch.arange(3)
    then = torch.tensor([[2, 3], [3, 4]]) if padded else torch.arange(3, 5)
    _, state = steps(network, torch.tensor([[4, 5, 6], [7, 8, 9]]), first)
    state = state.reorder(torch.tensor([1, 0]))
    calls.clear()
    steps(network, torch.tensor([[7, 8], [5, 6]]), then, state)
    assert len(calls) == 1
