"""The forgetting recurrence against a loop over its equation, and against packed rows."""

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.layers.recurrence import cells, scan


@pytest.mark.parametrize("length", [0, 1, 2, 7, 32, 33])
def test_a_scan_equals_its_loop_in_values_and_gradients(length: int) -> None:
    torch.manual_seed(0)
    keep, added = (torch.rand(3, length, 4, dtype=torch.float64, requires_grad=True) for _ in "ab")
    first = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    h, states = first, []
    for t in range(length):
        h = keep[:, t] * h + added[:, t]
        states.append(h)
    found, expected = scan(keep, added, first), torch.stack(states, 1) if states else added
    assert found.allclose(expected, atol=1e-12)
    if length:
        upstream = torch.randn_like(found)
        ours, theirs = (torch.autograd.grad((y * upstream).sum(), (keep, added, first)) for y in (found, expected))
        assert all(a.allclose(b, atol=1e-12) for a, b in zip(ours, theirs, strict=True))


def test_a_memory_that_never_forgets_is_the_sum_and_one_that_always_does_is_the_last() -> None:
    rnn = cells("forgetting", 3, 2, 1, 0.0, both=False)
    x = torch.randn(1, 5, 3)
    for bias, expected in ((50.0, torch.cumsum), (-50.0, lambda y, _: y)):
        with torch.no_grad():
            rnn.maps[0].weight[:2], rnn.maps[0].bias[:2] = 0.0, bias
            added = rnn.maps[0](x)[..., 2:]
            assert rnn(x)[0].allclose(expected(added, 1), atol=1e-5)


@pytest.mark.parametrize("both", [True, False])
def test_packed_rows_equal_each_row_alone(both: bool) -> None:
    torch.manual_seed(0)
    rnn = cells("forgetting", 3, 4, 2, 0.0, both=both).double()
    x, lengths = torch.randn(3, 5, 3, dtype=torch.float64), torch.tensor([2, 5, 1])
    first = torch.randn(4 if both else 2, 3, 4, dtype=torch.float64)
    packed, last = rnn(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False), first)
    states, _ = pad_packed_sequence(packed, batch_first=True)
    for i, length in enumerate(lengths):
        alone, end = rnn(x[i : i + 1, :length], first[:, i : i + 1])
        assert states[i, :length].allclose(alone[0], atol=1e-12)
        assert last[:, i].allclose(end[:, 0], atol=1e-12)
