"""Position kinds against the paper's facts, Hugging Face's implementations, loops from the formulas, and scipy."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp
from torch import Tensor, nn

from regard.attention import attend, positions
from regard.attention.mixing import ShawValues
from regard.attention.scores import dot


@settings(max_examples=30, deadline=None)
@given(t=st.integers(0, 300), gap=st.integers(0, 100), width=st.sampled_from([2, 16, 128]))
def test_sinusoidal_products_depend_on_the_distance_alone(t: int, gap: int, width: int) -> None:
    torch.set_default_dtype(torch.float64)
    try:
        p = positions.sinusoidal(torch.tensor([0, gap, t, t + gap]), width)
    finally:
        torch.set_default_dtype(torch.float32)
    assert (p[0] @ p[1]).item() == pytest.approx((p[2] @ p[3]).item(), abs=1e-8)
    # P_(t+τ) = M_τ P_t with M_τ block-diagonal rotations by τ / 10000^(2i/d)
    for i in range(width // 2):
        angle = gap / 10000 ** (2 * i / width)
        turn = torch.tensor(
            [[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]], dtype=torch.float64
        )
        assert (turn @ p[2, 2 * i : 2 * i + 2]).allclose(p[3, 2 * i : 2 * i + 2], atol=1e-9)


def test_sinusoidal_table_from_the_formula() -> None:
    table = positions.sinusoidal(torch.arange(20), 8)
    for t in range(20):
        for i in range(4):
            assert table[t, 2 * i].item() == pytest.approx(math.sin(t / 10000 ** (2 * i / 8)), abs=1e-6)
            assert table[t, 2 * i + 1].item() == pytest.approx(math.cos(t / 10000 ** (2 * i / 8)), abs=1e-6)


def test_the_variance_of_the_products_sits_in_the_first_components() -> None:
    """d = 128, distances to 50: Var ⟨p_t^{1…k}, p_t'^{1…k}⟩ at k = 50 is 80 % of that at k = d, as lectured."""
    p = positions.sinusoidal(torch.arange(51), 128).double()
    variance = [torch.stack([p[0, :k] @ row[:k] for row in p]).var().item() for k in (50, 128)]
    assert variance[0] / variance[1] == pytest.approx(0.8, abs=0.02)


def test_learned_table_ends_with_a_clear_word() -> None:
    table = positions.LearnedTable(10, 4)
    assert table(torch.tensor([[0, 9, -1]])).shape == (1, 3, 4)
    with pytest.raises(
        ValueError, match=r"positions 0 to 9, found position 10: shorten the input, make the table longer"
    ):
        table(torch.tensor([10]))


def test_recurrent_positions_are_a_gru_walked_by_hand() -> None:
    torch.manual_seed(0)
    table = positions.RecurrentTable(6)
    cell = nn.GRUCell(6, 6)
    cell.load_state_dict({name.removesuffix("_l0"): value for name, value in table.walk.state_dict().items()})
    state, steps = table.first, []
    for _ in range(5):
        state = cell(table.first, state)
        steps.append(state)
    assert table(torch.arange(5)).allclose(torch.stack(steps), atol=1e-6)
    assert table(torch.tensor([[4, -1], [2, 3]]))[1, 0].allclose(steps[2], atol=1e-6)
    for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):  # the same parameters, to compare gradients
        delattr(cell, name)
        setattr(cell, name, getattr(table.walk, f"{name}_l0"))
    same, state = [], table.first
    for _ in range(5):
        state = cell(table.first, state)
        same.append(state)
    up, weights = torch.randn(5, 6), [*table.parameters()]
    ours, theirs = (torch.autograd.grad((y * up).sum(), weights) for y in (table(torch.arange(5)), torch.stack(same)))
    assert all(mine.allclose(other, atol=1e-5) for mine, other in zip(ours, theirs, strict=True))


def test_floater_solves_its_equation() -> None:
    torch.manual_seed(0)
    table = positions.Floater(4, span=0.5, steps=4).double()

    def slope(time: float, p: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return np.asarray(table.derivative(time, torch.tensor(p)))

    solved = solve_ivp(slope, (0, 3), table.first.detach().numpy(), t_eval=np.arange(7) * 0.5, rtol=1e-10, atol=1e-12)
    assert np.allclose(table(torch.arange(7)).detach().numpy(), solved.y.T, atol=1e-6)
    table(torch.arange(7)).sum().backward()
    for weight in table.parameters():  # against the slope of the sum, by differences of scipy's solutions
        place, step, sums = (0,) * weight.dim(), 1e-5, []
        for change in (step, -step):
            with torch.no_grad():
                weight[place] += change
            solved = solve_ivp(
                slope, (0, 3), table.first.detach().numpy(), t_eval=np.arange(7) * 0.5, rtol=1e-11, atol=1e-13
            )
            sums.append(solved.y.sum())
            with torch.no_grad():
                weight[place] -= change
        assert weight.grad is not None
        assert weight.grad[place].item() == pytest.approx((sums[0] - sums[1]) / (2 * step), rel=1e-3, abs=1e-5)


@pytest.mark.parametrize(
    "kind", [positions.Sinusoidal(4), positions.RecurrentTable(4), positions.Floater(4), positions.LearnedTable(30, 4)]
)
def test_tables_are_the_same_for_a_position_wherever_it_stands(kind: nn.Module) -> None:
    together = kind(torch.arange(20))
    assert kind(torch.tensor([7, 3])).allclose(together[[7, 3]], atol=1e-6)
    assert positions.Added(kind)(torch.ones(2, 20, 4), torch.arange(20)).allclose(together + 1)


def test_concatenated_is_a_linear_map_of_both() -> None:
    join = positions.Concatenated(positions.Sinusoidal(6), 4, 6)
    x, p = torch.randn(2, 5, 4), positions.sinusoidal(torch.arange(5), 6)
    for b in range(2):
        for t in range(5):
            expected = join.join.weight @ torch.cat((x[b, t], p[t])) + join.join.bias
            assert join(x, torch.arange(5))[b, t].allclose(expected, atol=1e-6)


def test_rotary_equals_llama() -> None:
    from transformers.models.llama.configuration_llama import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

    q, k = torch.randn(2, 4, 11, 16), torch.randn(2, 4, 11, 16)
    where = torch.stack((torch.arange(11), torch.arange(5, 16)))
    config = LlamaConfig(hidden_size=64, num_attention_heads=4, max_position_embeddings=64)
    theirs = apply_rotary_pos_emb(q, k, *LlamaRotaryEmbedding(config)(q, where))
    rotate = positions.Rotary(16)
    assert rotate(q, where).allclose(theirs[0], atol=1e-5)
    assert rotate(k, where).allclose(theirs[1], atol=1e-5)


@settings(max_examples=20, deadline=None)
@given(t=st.integers(0, 2000), gap=st.integers(0, 2000))
def test_rotary_products_depend_on_the_distance_alone(t: int, gap: int) -> None:
    q, k = torch.randn(1, 1, 1, 8, dtype=torch.float64), torch.randn(1, 1, 1, 8, dtype=torch.float64)
    rotate = positions.Rotary(8)
    near = dot(rotate(q, torch.tensor([gap])), rotate(k, torch.tensor([0])))
    far = dot(rotate(q, torch.tensor([t + gap])), rotate(k, torch.tensor([t])))
    assert near.item() == pytest.approx(far.item(), abs=1e-8)


@pytest.mark.parametrize("heads", [1, 8, 12])
def test_alibi_equals_bloom(heads: int) -> None:
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    theirs = build_alibi_tensor(torch.ones(1, 9), heads, torch.float32)  # (heads, 1, n): up to a constant per row
    ours = positions.Alibi(heads)(
        torch.zeros(1, heads, 9, 4), torch.zeros(1, heads, 9, 4), torch.arange(9), torch.arange(9)
    )
    lower = torch.ones(9, 9).tril().bool()
    masked = [x.expand(heads, 9, 9).masked_fill(~lower, -math.inf).softmax(-1) for x in (ours, theirs)]
    assert masked[0].allclose(masked[1], atol=1e-6)


@pytest.mark.parametrize("both_ways", [True, False])
def test_t5_bias_equals_t5(both_ways: bool) -> None:
    from transformers.models.t5.configuration_t5 import T5Config
    from transformers.models.t5.modeling_t5 import T5Attention

    config = T5Config(d_model=32, num_heads=4, d_kv=8, is_decoder=not both_ways, relative_attention_num_buckets=32)
    theirs = T5Attention(config, has_relative_attention_bias=True)
    ours = positions.T5(4, both_ways=both_ways)
    ours.table.data.copy_(theirs.relative_attention_bias.weight)
    x = torch.zeros(1, 4, 300, 8)
    bias = ours(x, x, torch.arange(300), torch.arange(300))
    assert bias.allclose(theirs.compute_bias(300, 300)[0])
    batched = ours(x, x, torch.arange(300).expand(2, -1), torch.arange(300).expand(2, -1))
    assert batched.shape == (2, 4, 300, 300)
    assert batched[1].allclose(bias)


def test_shaw_equals_a_loop_over_the_papers_formula() -> None:
    torch.manual_seed(0)
    n, width, limit = 7, 4, 2
    q, k, v = (torch.randn(1, 2, n, width, dtype=torch.float64, requires_grad=True) for _ in range(3))
    keys, values = positions.Shaw(limit, width).double(), ShawValues(limit, width).double()
    ours, _ = attend(q, k, v, bias=keys, mix=values)

    def clipped(table: Tensor, j: int, i: int) -> Tensor:
        return table[max(-limit, min(limit, i - j)) + limit]

    rows = []
    for h in range(2):
        for j in range(n):
            e = torch.stack(
                [q[0, h, j] @ (k[0, h, i] + clipped(keys.table, j, i)) / math.sqrt(width) for i in range(n)]
            )
            a = e.softmax(0)
            rows.append(torch.stack([a[i] * (v[0, h, i] + clipped(values.table, j, i)) for i in range(n)]).sum(0))
    theirs = torch.stack(rows).view(1, 2, n, width)
    assert ours.allclose(theirs, atol=1e-10)
    inputs, up = [q, k, v, keys.table, values.table], torch.randn_like(ours)
    for a, b in zip(
        torch.autograd.grad((ours * up).sum(), inputs), torch.autograd.grad((theirs * up).sum(), inputs), strict=True
    ):
        assert a.allclose(b, atol=1e-9)


def test_transformer_xl_equals_a_loop_over_the_papers_formula() -> None:
    torch.manual_seed(0)
    heads, width, m, n = 2, 4, 3, 6
    bias = positions.RelativeTransformerXL(heads, width).double()
    nn.init.normal_(bias.u)
    nn.init.normal_(bias.v)
    q = torch.randn(1, heads, m, width, dtype=torch.float64, requires_grad=True)
    k, v = (torch.randn(1, heads, n, width, dtype=torch.float64, requires_grad=True) for _ in range(2))
    q_pos, k_pos = torch.arange(3, 6), torch.arange(n)
    ours, _ = attend(q, k, v, bias=bias, q_pos=q_pos, k_pos=k_pos)
    rows = []
    for h in range(heads):
        for j in range(m):
            scores = []
            for i in range(n):
                table = positions.sinusoidal(torch.tensor([int(q_pos[j]) - i]), heads * width).double()[0]
                r = (bias.r_proj.weight @ table).view(heads, width)[h]
                content, distance = q[0, h, j] @ k[0, h, i], q[0, h, j] @ r
                scores.append((content + distance + bias.u[h, 0] @ k[0, h, i] + bias.v[h, 0] @ r) / math.sqrt(width))
            rows.append(torch.stack(scores).softmax(0) @ v[0, h])
    theirs = torch.stack(rows).view(1, heads, m, width)
    assert ours.allclose(theirs, atol=1e-10)
    inputs, up = [q, k, v, bias.u, bias.v, bias.r_proj.weight], torch.randn_like(ours)
    for a, b in zip(
        torch.autograd.grad((ours * up).sum(), inputs), torch.autograd.grad((theirs * up).sum(), inputs), strict=True
    ):
        assert a.allclose(b, atol=1e-9)


@pytest.mark.parametrize(("make", "sentence"), [
    (lambda: positions.Rotary(7), "the width of a head must be even, found 7"),
    (lambda: positions.sinusoidal(torch.arange(3), 5), "the width must be even, found 5"),
    (lambda: positions.Decay(1.5), "0 < γ ≤ 1, found 1.5"),
])  # fmt: skip
def test_refusals(make: object, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make()  # type: ignore[operator]
