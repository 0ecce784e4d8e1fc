"""`fast` against `attend`: values and gradients over generated shapes, masks, biases, positions and cached steps."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.attention import attend, fast, masks, normalisers, positions, reason, scores
from regard.attention.fast import flex
from regard.attention.mixing import ShawValues
from tests.attention.parts import gradients, some_masks

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
BIASES = {
    "none": lambda heads: None,
    "alibi": positions.Alibi,
    "t5": positions.T5,
    "shaw": lambda heads: positions.Shaw(2, 8),
    "transformer-xl": lambda heads: positions.RelativeTransformerXL(heads, 8),
    "own": lambda heads: lambda q, k, q_pos, k_pos: -0.1 * positions.distance(q_pos, k_pos).abs().to(q.dtype),
}


def agree(q: Tensor, k: Tensor, v: Tensor, **parts: Any) -> None:
    ours, reference = fast(q, k, v, **parts), attend(q, k, v, **parts)[0]
    modules = [p for p in parts.values() if isinstance(p, torch.nn.Module)]
    inputs = [q, k, v, *(p for m in modules for p in m.parameters())]
    assert ours.shape == reference.shape
    assert ours.dtype == q.dtype
    upstream = torch.randn_like(ours)
    tolerance = TOLERANCE[q.dtype]
    assert ours.allclose(reference, atol=tolerance, rtol=tolerance)
    for mine, other in zip(gradients(ours, inputs, upstream), gradients(reference, inputs, upstream), strict=True):
        assert mine.isfinite().all()
        assert mine.allclose(other, atol=tolerance * max(1.0, float(other.abs().max()) if other.numel() else 1), rtol=0)


def combinations(length: int) -> st.SearchStrategy[masks.Mask]:
    """Any mask, and any combination of masks by `&`, `|` and `~`."""
    single = st.sampled_from(list(some_masks(length).values()))
    pair = st.tuples(single, single)
    return single | pair.map(lambda p: p[0] & p[1]) | pair.map(lambda p: p[0] | p[1]) | pair.map(lambda p: ~p[0] & p[1])


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_fast_equals_attend(data: st.DataObject) -> None:
    draw = data.draw
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    batch, groups, per_group = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(1, 3))
    m, n = draw(st.integers(0, 9)), draw(st.integers(0, 9))
    heads = groups * per_group
    torch.manual_seed(draw(st.integers(0, 2**31)))
    q = torch.randn(batch, heads, m, 8, dtype=dtype, requires_grad=True)
    k = torch.randn(batch, groups, n, 8, dtype=dtype, requires_grad=True)
    v = torch.randn(batch, groups, n, draw(st.sampled_from([8, 5])), dtype=dtype, requires_grad=True)
    parts: dict[str, Any] = {"score": draw(st.sampled_from([scores.dot, scores.scaled_dot]))}
    bias = BIASES[draw(st.sampled_from(list(BIASES)))](heads)
    parts["bias"] = bias.to(dtype) if isinstance(bias, torch.nn.Module) else bias
    parts["mask"] = draw(st.none() | combinations(max(m, n)))
    if draw(st.booleans()):  # positions by batch, with padding anywhere, also whole rows of it
        k_pos = torch.arange(n).expand(batch, -1)
        parts["k_pos"] = torch.where(torch.rand(batch, n) < draw(st.sampled_from([0.3, 1.0])), -1, k_pos)
        parts["q_pos"] = torch.arange(m).expand(batch, -1)
    elif draw(st.booleans()):  # shared positions, with padding among them
        parts["k_pos"] = torch.where(torch.rand(n) < 0.3, -1, torch.arange(n))
    agree(q, k, v, **parts)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**31), rows=st.integers(1, 5), dtype=st.sampled_from([torch.float32, torch.float64]))
def test_boolean_tensors_as_masks_with_empty_rows(seed: int, rows: int, dtype: torch.dtype) -> None:
    torch.manual_seed(seed)
    q, k, v = (torch.randn(2, 2, rows, 8, dtype=dtype, requires_grad=True) for _ in range(3))
    mask = torch.rand(2, 1, rows, rows) < 0.4
    mask[0, 0, 0] = False
    agree(q, k, v, mask=mask)
    assert fast(q, k, v, mask=mask)[0, :, 0].eq(0).all()


@pytest.mark.parametrize(
    "mask", [masks.window(20, 0), masks.window(9, 13), masks.causal & masks.window(30, 5), masks.block(16)]
)
@pytest.mark.parametrize("bias", list(BIASES))
@pytest.mark.parametrize("padded", [False, True])
def test_windows_equal_the_dense_form(mask: masks.Mask, bias: str, padded: bool) -> None:
    """Long enough to be cut into blocks, with a length that no block divides; several chunks are in test_windows."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 2, 203, 8, dtype=torch.float64, requires_grad=True) for _ in range(3))
    added = BIASES[bias](2)
    parts: dict[str, Any] = {"mask": mask, "bias": added.double() if isinstance(added, torch.nn.Module) else added}
    if padded:
        where = torch.arange(203).expand(2, -1).clone()
        where[1, 150:] = -1
        parts |= {"q_pos": where, "k_pos": where}
    agree(q, k, v, **parts)


@pytest.mark.parametrize(("parts", "because"), [
    ({"score": scores.Additive(8, 8, 4)}, "the score Additive is not a dot product"),
    ({"score": scores.MLP(8, 8, 4)}, "the score MLP is not a dot product"),
    ({"normalise": normalisers.sigmoid}, "the normaliser sigmoid is not softmax"),
    ({"normalise": normalisers.relu}, "the normaliser relu is not softmax"),
    ({"normalise": normalisers.mean}, "the normaliser mean is not softmax"),
    ({"normalise": normalisers.none}, "the normaliser none is not softmax"),
    ({"normalise": normalisers.WeightDropout(normalisers.softmax, 0.5)}, "attention dropout needs the weights"),
    ({"mix": ShawValues(2, 8)}, "the mix ShawValues needs the weights"),
    ({"bias": positions.T5(2)}, "the bias is learned"),
])  # fmt: skip
def test_it_says_why_it_cannot_and_answers_all_the_same(parts: dict[str, Any], because: str) -> None:
    assert because in (reason(**parts) or "")
    if "normalise" in parts and isinstance(parts["normalise"], normalisers.WeightDropout):
        parts["normalise"].eval()  # what is dropped is random; without training nothing is, and the kernel is fused
        assert reason(**parts) is None
    q, k, v = (torch.randn(2, 2, 6, 8, requires_grad=True) for _ in range(3))
    agree(q, k, v, mask=masks.causal, **parts)


def test_fused_parts_have_no_reason() -> None:
    assert reason() is None
    assert reason(score=scores.dot) is None
    assert reason(score=scores.Bilinear(4, 4)) is None
    assert reason(bias=positions.Alibi(2)) is None
    with torch.no_grad():
        assert reason(bias=positions.T5(2)) is None


def test_bilinear_goes_through_the_fused_kernel() -> None:
    q = torch.randn(2, 2, 5, 6, requires_grad=True)
    k, v = (torch.randn(2, 2, 7, 8, requires_grad=True) for _ in range(2))
    agree(q, k, v, score=scores.Bilinear(6, 8), mask=masks.causal)


def test_dropout_drops_with_its_probability_and_keeps_the_mean() -> None:
    torch.manual_seed(0)
    q, k, v = (torch.zeros(1, 1, 200, 4) + (1 if i == 2 else 0) for i in range(3))
    answer = fast(q, k, v, normalise=normalisers.WeightDropout(normalisers.softmax, 0.25))
    assert answer.mean().item() == pytest.approx(1.0, abs=0.01)
    assert answer.std() > 0


def test_nan_in_q_is_refused_though_the_kernel_would_swallow_it() -> None:
    q, k = torch.randn(1, 1, 4, 8), torch.randn(1, 1, 4, 8)
    q[0, 0, 2, 3] = float("nan")
    with pytest.raises(ValueError, match=r"q holds NaN, first at index \(0, 0, 2, 3\)"):
        fast(q, k, k)


@pytest.mark.parametrize("groups", [4, 2])
@pytest.mark.parametrize("keys", [7, 8, 30])
def test_single_queries_of_many_rows_as_in_decoding(groups: int, keys: int) -> None:
    """Whichever form answers them: one row may see nothing at all."""
    torch.manual_seed(keys)
    q, (k, v) = torch.randn(70, 4, 1, 8), torch.randn(2, 70, groups, keys, 8)
    k_pos = torch.arange(keys).expand(70, keys).clone()
    k_pos[::3, -2:] = -1
    k_pos[5] = -1
    parts: dict[str, Any] = {"mask": masks.padding, "q_pos": torch.tensor([keys]), "k_pos": k_pos}
    expected, _ = attend(*(x.double() for x in (q, k, v)), **parts)
    with torch.no_grad():
        found = fast(q, k, v, **parts)
    assert torch.allclose(found.double(), expected, atol=1e-5)
    assert not found[5].any()


def test_wrong_masks_are_refused() -> None:
    q = torch.randn(2, 2, 4, 8)
    with pytest.raises(ValueError, match=r"the mask has shape \(3, 4\), expected"):
        fast(q, q, q, mask=torch.ones(3, 4, dtype=torch.bool))


@pytest.mark.parametrize("name", ["causal", "window", "ordering", "query stream", "document"])
def test_flex_gives_the_same_forward(name: str) -> None:
    """The kernel used on GPUs, at toy size; torch has no backward for it on a CPU."""
    with torch.no_grad():
        q, k, v = torch.randn(2, 4, 16, 16), torch.randn(2, 2, 16, 16), torch.randn(2, 2, 16, 16)
        where = torch.arange(16).expand(2, -1).clone()
        where[1, 11:] = -1
        for positions_ in (torch.arange(16), where):
            laid = some_masks(16)[name].on(positions_, positions_)
            assert flex(q, k, v, laid).allclose(attend(q, k, v, mask=laid)[0], atol=1e-5)
