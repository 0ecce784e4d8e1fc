"""Token by token equals all at once, for every position kind and every mask that allows it; the others refuse."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.attention import Cache, Context, MultiHead, Rolling, causal, masks
from regard.attention.state import Fixed
from tests.attention.parts import INSIDE, gradients, some_masks

LENGTH = 9
CAUSAL = {name: mask for name, mask in some_masks(LENGTH).items() if mask.ahead == 0}
AHEAD = {name: mask for name, mask in some_masks(LENGTH).items() if mask.ahead > 0}


def decode(layer: MultiHead, x: torch.Tensor, mask: masks.Mask, state: object, sizes: list[int]) -> torch.Tensor:
    out, start = [], 0
    for size in sizes:
        piece = x[:, start : start + size]
        y, state = layer(piece, positions=torch.arange(start, start + size), mask=mask, state=state)  # type: ignore[arg-type]
        out.append(y)
        start += size
    return torch.cat(out, 1)


@pytest.mark.parametrize("mask", CAUSAL.values(), ids=CAUSAL)
@pytest.mark.parametrize("kind", INSIDE)
def test_cached_equals_the_full_pass(kind: str, mask: masks.Mask) -> None:
    torch.manual_seed(0)
    layer = MultiHead(16, 2, **INSIDE[kind](2)).double()
    x = torch.randn(2, LENGTH, 16, dtype=torch.float64)
    full, _ = layer(x, mask=mask)
    with torch.no_grad():
        assert decode(layer, x, mask, Cache(), [1] * LENGTH).allclose(full, atol=1e-10)
        assert decode(layer, x, mask, Cache(), [3, 1, 5]).allclose(full, atol=1e-10)


@pytest.mark.parametrize("mask", [None, *AHEAD.values()], ids=["no mask", *AHEAD])
def test_what_looks_ahead_refuses_a_cache(mask: masks.Mask | None) -> None:
    with pytest.raises(ValueError, match="lets a position look ahead, so step by step gives another answer"):
        MultiHead(16, 2)(torch.randn(1, 1, 16), mask=mask, state=Cache())


def test_a_rolling_window_shorter_than_the_masks_reach_is_refused() -> None:
    layer, x = MultiHead(16, 2), torch.randn(1, 1, 16)
    for mask in (causal, masks.window(5, 0)):
        with pytest.raises(ValueError, match=r"but Rolling\(4\) forgets sooner: keep more, or use Cache\(\)"):
            layer(x, mask=mask, state=Rolling(4))
    with pytest.raises(ValueError, match="keeps at least 1 position, found 0"):
        Rolling(0)


@settings(max_examples=20, deadline=None)
@given(
    left=st.integers(0, 6),
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=8),
    kind=st.sampled_from(list(INSIDE)),
)
def test_a_rolling_window_forgets_only_what_is_out_of_reach(left: int, sizes: list[int], kind: str) -> None:
    torch.manual_seed(0)
    layer = MultiHead(16, 2, **INSIDE[kind](2)).double()
    x = torch.randn(2, sum(sizes), 16, dtype=torch.float64)
    full, _ = layer(x, mask=masks.window(left, 0))
    with torch.no_grad():
        assert decode(layer, x, masks.window(left, 0), Rolling(max(left, 1)), sizes).allclose(full, atol=1e-10)
    _, state = layer(x, mask=masks.window(left, 0), state=Rolling(max(left, 1)))
    assert state.kept.k.shape[-2] <= max(left, 1)  # type: ignore[union-attr]


def test_gradients_flow_through_a_cache() -> None:
    torch.manual_seed(0)
    layer = MultiHead(16, 2).double()
    x = torch.randn(2, 5, 16, dtype=torch.float64, requires_grad=True)
    full, stepped = layer(x, mask=causal)[0], decode(layer, x, causal, Cache(), [2, 1, 2])
    up = torch.randn_like(full)
    inputs = [x, *layer.parameters()]
    for a, b in zip(gradients(full, inputs, up), gradients(stepped, inputs, up), strict=True):
        assert a.allclose(b, atol=1e-10)


@torch.no_grad()
def test_a_cache_is_a_value_two_continuations_do_not_disturb_each_other() -> None:
    torch.manual_seed(0)
    layer = MultiHead(16, 2)
    x, y = torch.randn(1, 6, 16), torch.randn(1, 6, 16)
    _, state = layer(x[:, :3], positions=torch.arange(3), mask=causal, state=Cache())
    first, _ = layer(x[:, 3:], positions=torch.arange(3, 6), mask=causal, state=state)
    other, _ = layer(y[:, 3:], positions=torch.arange(3, 6), mask=causal, state=state)
    joined = torch.cat((x[:, :3], y[:, 3:]), 1)
    assert other.allclose(layer(joined, mask=causal)[0][:, 3:], atol=1e-6)
    again, _ = layer(x[:, 3:], positions=torch.arange(3, 6), mask=causal, state=state)
    assert first.equal(again)


@torch.no_grad()
def test_reorder_moves_rows_of_every_state() -> None:
    torch.manual_seed(0)
    layer = MultiHead(16, 2, bias=None)
    x, order = torch.randn(3, 5, 16), torch.tensor([2, 2, 0])
    for start, mask in ((Cache(), causal), (Rolling(2), masks.window(2, 0))):
        _, state = layer(x[:, :4], positions=torch.arange(4), mask=mask, state=start)
        y, _ = layer(x[order, 4:], positions=torch.tensor([4]), mask=mask, state=state.reorder(order))
        assert y.allclose(layer(x, mask=mask)[0][order, 4:], atol=1e-6)
    cross, context = MultiHead(16, 2), torch.randn(3, 7, 16)
    where = torch.arange(7).expand(3, -1).clone()
    where[0, 4:] = -1
    _, state = cross(x, Context(context, where))
    y, _ = cross(x[order], state=state.reorder(order))
    assert y.allclose(cross(x[order], Context(context[order], where[order]))[0], atol=1e-6)


@torch.no_grad()
def test_positions_by_batch_with_padding_in_the_cache() -> None:
    """A prompt padded on the left: rows of unlike length are continued together."""
    torch.manual_seed(0)
    layer = MultiHead(16, 2)
    x = torch.randn(2, 6, 16)
    prompt = torch.tensor([[0, 1, 2, 3], [-1, -1, 0, 1]])
    _, state = layer(x[:, :4], positions=prompt, mask=causal, state=Cache())
    y, _ = layer(x[:, 4:5], positions=torch.tensor([[4], [2]]), mask=causal, state=state)
    assert y[0].allclose(layer(x[:1, :5], mask=causal)[0][0, 4:], atol=1e-6)
    assert y[1].allclose(layer(x[1:, 2:5], mask=causal)[0][0, 2:], atol=1e-6)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 4), st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=6), max_size=5))
def test_a_fixed_state_reordered_again_and_again(rows: int, orders: list[list[int]]) -> None:
    """Copies of a row may change places without being moved; rows that differ may not."""
    k, positions = torch.randn(rows, 1, 2, 3), torch.arange(2 * rows).reshape(rows, 2)
    state, expected = Fixed(k, -k, positions), torch.arange(rows)
    for order in orders:
        index = torch.tensor(order) % len(expected)
        state, expected = state.reorder(index), expected[index]
    assert state.k.equal(k[expected])
    assert state.v.equal(-k[expected])
    assert state.positions.equal(positions[expected])


def test_copies_that_change_places_are_not_moved() -> None:
    state = Fixed(torch.randn(2, 1, 2, 3), torch.randn(2, 1, 2, 3), torch.arange(2)).reorder(torch.tensor([0, 0, 1]))
    assert state.reorder(torch.tensor([1, 0, 2])) is state


def test_gradients_go_through_a_cache_that_is_reordered() -> None:
    k = torch.randn(2, 1, 3, 4, requires_grad=True)
    *_, state = Cache().extend(k, k, torch.arange(3))
    keys, *_ = state.reorder(torch.tensor([1, 1])).extend(k, k, torch.arange(6))
    keys[:, :, :3].sum().backward()
    assert torch.equal(k.grad, torch.stack((torch.zeros(1, 3, 4), torch.full((1, 3, 4), 2.0))))
