"""XLNet's two streams against a loop over the paper's equations and Hugging Face's XLNetModel; nothing leaks."""

import math
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import gelu, layer_norm

from regard.attention import Context
from regard.attention.positions import sinusoidal
from regard.backbones.streams import TwoStream
from regard.backbones.transformer import EncoderLayer
from regard.models.xlnet import xlnet
from tests.models.networks import embedded
from tests.models.same import shake

SHAPE: dict[str, Any] = {"layers": 2, "width": 8, "hidden": 12, "heads": 2, "dropout": 0.0}


def make(**more: Any) -> TwoStream:
    torch.manual_seed(0)
    backbone = xlnet(**SHAPE, **more)[1].double().eval()
    shake(backbone)
    return backbone


def look(layer: EncoderLayer, query: Tensor, where: int, seen: dict[int, Tensor]) -> Tensor:
    """One query at one position through one layer, over the contents at some positions: post-LN."""
    attention, bias = layer.attention, layer.attention.attention.bias
    d = 8 // attention.heads
    contexts = []
    for head in range(attention.heads):
        rows = slice(head * d, (head + 1) * d)
        w_q, w_k, w_v, w_r = (
            m.weight[rows] for m in (attention.q_proj, attention.k_proj, attention.v_proj, bias.r_proj)
        )
        u, v = bias.u[head, 0], bias.v[head, 0]
        q, scores = w_q @ query, []
        for j, content in seen.items():
            r, k = w_r @ sinusoidal(torch.tensor([where - j]), 8)[0].double(), w_k @ content
            scores.append(((q + u) @ k + (q + v) @ r) / math.sqrt(d))
        a = torch.stack(scores).softmax(0) if scores else []
        contexts.append(
            sum((a[n] * (w_v @ content) for n, content in enumerate(seen.values())), torch.zeros(d).double())
        )
    o, one, two, feed = attention.output_proj, layer.around_attention.norm, layer.around_feed.norm, layer.feed
    y = layer_norm(o.weight @ torch.cat(contexts) + o.bias + query, (8,), one.weight, one.bias, one.eps)
    z = feed.outer.weight @ gelu(feed.inner.weight @ y + feed.inner.bias) + feed.outer.bias
    return layer_norm(z + y, (8,), two.weight, two.bias, two.eps)


def by_loop(backbone: TwoStream, x: Tensor, z: list[int]) -> tuple[Tensor, Tensor]:
    """g_z_t looks at h_z_<t, h_z_t at h_z_≤t; z lists the positions in their order."""
    h, g = list(x), [backbone.query] * len(x)
    for layer in backbone.layers:
        new_h, new_g = list(h), list(g)
        for t, position in enumerate(z):
            new_g[position] = look(layer, g[position], position, {p: h[p] for p in z[:t]})
            new_h[position] = look(layer, h[position], position, {p: h[p] for p in z[: t + 1]})
        h, g = new_h, new_g
    return torch.stack(h), torch.stack(g)


def test_equals_a_loop_over_the_papers_equations_values_and_gradients() -> None:
    backbone = make()
    x = torch.randn(2, 5, 8, dtype=torch.float64, requires_grad=True)
    orders = [[3, 0, 4, 1, 2], [2, 1, 0, 4, 3]]
    ranks = torch.tensor(orders).argsort(-1)
    h, g = backbone.streams(Context(x), ranks, torch.arange(5))
    loops = [by_loop(backbone, row, z) for row, z in zip(x, orders, strict=True)]
    their_h, their_g = (torch.stack(stream) for stream in zip(*loops, strict=True))
    assert h.values.allclose(their_h, atol=1e-10)
    assert g.allclose(their_g, atol=1e-10)
    up = torch.randn_like(g)
    inputs = [x, *backbone.parameters()]
    ours, theirs = (
        torch.autograd.grad((a * up).sum() + (b * up).cos().sum(), inputs)
        for a, b in ((h.values, g), (their_h, their_g))
    )
    for a, b in zip(ours, theirs, strict=True):
        assert a.allclose(b, atol=1e-9)


@settings(max_examples=40, deadline=None)
@given(length=st.integers(1, 8), seed=st.integers(0, 2**31), norm=st.sampled_from(["pre", "post"]))
def test_a_token_never_changes_its_own_prediction_nor_those_before_it_in_the_order(
    length: int, seed: int, norm: str
) -> None:
    backbone, generator = make(norm=norm), torch.Generator().manual_seed(seed)
    x = torch.randn(2, length, 8, dtype=torch.float64, generator=generator)
    rank = torch.stack([torch.randperm(length, generator=generator) for _ in range(2)])
    if seed % 3 == 0:  # some are given: they share the first rank
        rank = (rank - length // 2).clamp(min=0)
    changed, where = x.clone(), int(torch.randint(0, length, (), generator=generator))
    changed[:, where] = torch.randn(8, dtype=torch.float64, generator=generator)
    with torch.no_grad():
        (h, g), (other_h, other_g) = (
            backbone.streams(Context(each), rank, torch.arange(length)) for each in (x, changed)
        )
    for row in range(2):
        at = rank[row, where]
        early, later = rank[row] <= at, rank[row] > at
        assert g[row, early].equal(other_g[row, early])
        assert h.values[row, rank[row] < at].equal(other_h.values[row, rank[row] < at])
        assert not h.values[row, where].allclose(other_h.values[row, where], atol=1e-6)
        for position in later.nonzero()[:, 0].tolist():
            assert not g[row, position].allclose(other_g[row, position], atol=1e-9)


def test_some_targets_in_any_order_with_padding_say_what_all_say() -> None:
    backbone = make()
    x = torch.randn(2, 6, 8, dtype=torch.float64)
    rank = torch.stack([torch.randperm(6), torch.tensor([1, 3, 0, 2, 4, 5])])
    positions = torch.tensor([[0, 1, 2, 3, 4, 5], [0, 1, 2, 3, -1, -1]])
    targets = torch.tensor([[4, 0, 2], [3, 1, -1]])
    with torch.no_grad():
        h, g = backbone.streams(Context(x, positions), rank, targets)
        _, everything = backbone.streams(Context(x[:1]), rank[0], torch.arange(6))
        assert g[0].allclose(everything[0, [4, 0, 2]], atol=1e-10)
        alone, small = backbone.streams(Context(x[1:, :4]), rank[1, :4], torch.arange(4))
    assert g[1, :2].allclose(small[0, [3, 1]], atol=1e-10)
    assert h.values[1, :4].allclose(alone.values[0], atol=1e-10)
    assert g.isfinite().all()


def test_read_both_ways_it_is_the_content_stream_of_one_rank() -> None:
    backbone = make()
    x, positions = torch.randn(2, 5, 8, dtype=torch.float64), torch.tensor([[0, 1, 2, 3, 4], [0, 1, 2, -1, -1]])
    with torch.no_grad():
        read = backbone(Context(x, positions))
        h, _ = backbone.streams(Context(x, positions), torch.zeros(5, dtype=torch.long), torch.arange(0))
        alone = backbone(Context(x[1:, :3], torch.arange(3)))
    real = positions >= 0
    assert read.values[real].allclose(h.values[real], atol=1e-10)
    assert read.values[1, :3].allclose(alone.values[0], atol=1e-10)


def translated(theirs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Weights or gradients of an XLNetModel under our names; of its segment terms, which zero ids never reach, none.

    Its matrices are (width, heads, head width), and its distances list all sines before all cosines.
    """
    backbone = {"query": theirs["mask_emb"].flatten()}
    for name, value in theirs.items():
        if not name.startswith("layer."):
            continue
        _, number, part, kind, *tail = name.split(".")
        ours = f"layers.{number}."
        if kind in ("q", "k", "v"):
            backbone[f"{ours}attention.{kind}_proj.weight"] = value.flatten(1).mT
        elif kind == "o":
            backbone[f"{ours}attention.output_proj.weight"] = value.flatten(1)
        elif kind == "r":
            interleaved = torch.stack(value.flatten(1).mT.chunk(2, -1), -1).flatten(-2)
            backbone[f"{ours}attention.attention.bias.r_proj.weight"] = interleaved
        elif kind in ("r_w_bias", "r_r_bias"):
            backbone[f"{ours}attention.attention.bias.{'u' if kind == 'r_w_bias' else 'v'}"] = value[:, None]
        elif kind == "layer_norm":
            backbone[f"{ours}around_{'attention' if part == 'rel_attn' else 'feed'}.norm.{tail[0]}"] = value
        elif kind in ("layer_1", "layer_2"):
            backbone[f"{ours}feed.{'inner' if kind == 'layer_1' else 'outer'}.{tail[0]}"] = value
    return backbone


def test_equals_xlnet_with_the_same_weights_values_and_gradients() -> None:
    from transformers import XLNetConfig, XLNetModel

    torch.manual_seed(0)
    config = XLNetConfig(vocab_size=30, d_model=24, n_layer=3, n_head=4, d_inner=40, ff_activation="gelu", dropout=0.0)
    theirs = shake(XLNetModel(config).eval())
    embedding, backbone = embedded(xlnet(layers=3, width=24, hidden=40, heads=4, dropout=0.0), 30)
    state = translated(theirs.state_dict())
    zero = {f"layers.{n}.attention.output_proj.bias": torch.zeros(24) for n in range(3)}  # which theirs does without
    backbone.eval().load_state_dict(state | zero)
    embedding.load_state_dict({"table.weight": theirs.word_embedding.weight})
    ids, rank = torch.randint(4, 30, (2, 7)), torch.stack([torch.randperm(7), torch.randperm(7)])
    # The first of an order sees nothing; theirs then looks at everything alike, what is to be predicted included.
    targets = torch.stack([row.argsort()[[4, 6, 1, 3]] for row in rank])
    hidden = (rank[:, :, None] <= rank[:, None, :]).float()  # theirs: 1 where i may not look at j
    their = theirs(
        input_ids=ids, perm_mask=hidden, target_mapping=torch.nn.functional.one_hot(targets, 7).float(), output_hidden_states=True
    )  # fmt: skip
    h, g = backbone.streams(Context(embedding(ids, torch.arange(7)), torch.arange(7)), rank, targets)
    assert g.allclose(their.last_hidden_state, atol=1e-5)
    assert h.values.allclose(their.hidden_states[-2], atol=1e-5)
    up = torch.randn_like(g)
    (g * up).sum().backward()
    (their.last_hidden_state * up).sum().backward()
    expected = translated({name: p.grad for name, p in theirs.named_parameters() if p.grad is not None})
    for name in zero:
        backbone.get_parameter(name).grad = None
        expected.pop(name, None)
    found = {name: p for name, p in backbone.named_parameters() if p.grad is not None}
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        assert found[name].grad.allclose(gradient, atol=1e-4, rtol=1e-4), name
    assert embedding.table.weight.grad.allclose(theirs.word_embedding.weight.grad, atol=1e-4)


def test_read_both_ways_it_equals_xlnet_with_padding() -> None:
    from transformers import XLNetConfig, XLNetModel

    torch.manual_seed(0)
    config = XLNetConfig(vocab_size=30, d_model=24, n_layer=2, n_head=4, d_inner=40, ff_activation="gelu", dropout=0.0)
    theirs = shake(XLNetModel(config).eval())
    embedding, backbone = embedded(xlnet(layers=2, width=24, hidden=40, heads=4, dropout=0.0), 30)
    zero = {f"layers.{n}.attention.output_proj.bias": torch.zeros(24) for n in range(2)}
    backbone.eval().load_state_dict(translated(theirs.state_dict()) | zero)
    embedding.load_state_dict({"table.weight": theirs.word_embedding.weight})
    ids = torch.tensor([[5, 6, 7, 8], [9, 10, 4, 4]])
    positions = torch.tensor([[0, 1, 2, 3], [0, 1, -1, -1]])
    with torch.no_grad():
        their = theirs(input_ids=ids, attention_mask=(positions >= 0).float()).last_hidden_state
        ours = backbone(Context(embedding(ids, positions), positions)).values
    assert ours[positions >= 0].allclose(their[positions >= 0], atol=1e-5)
