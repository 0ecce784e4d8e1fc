"""GPT against Hugging Face's GPT-2 with the same weights, and its first weights."""

import math

import pytest
import torch
from torch import Tensor, nn

from regard.attention import Context
from regard.models.gpt import gpt
from tests.models.networks import embedded
from tests.models.same import assert_same_gradients, shake

PARTS = {
    "ln_1": "around_attention.norm", "ln_2": "around_feed.norm", "attn.c_proj": "attention.output_proj",
    "mlp.c_fc": "feed.inner", "mlp.c_proj": "feed.outer",
}  # fmt: skip


def translated(theirs: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Weights or gradients of a GPT2Model under our names: its matrices are transposed, and q, k and v are one."""
    embedding = {"table.weight": theirs["wte.weight"], "place.table.table": theirs["wpe.weight"]}
    backbone = {f"norm.{kind}": theirs[f"ln_f.{kind}"] for kind in ("weight", "bias")}
    for name, value in theirs.items():
        if not name.startswith("h."):
            continue
        number = name.split(".")[1]
        kind = name.rpartition(".")[2]
        value = value.mT if value.dim() == 2 else value
        path = name.removeprefix(f"h.{number}.").removesuffix(f".{kind}")
        if path == "attn.c_attn":
            for own, piece in zip("qkv", value.chunk(3), strict=True):
                backbone[f"layers.{number}.attention.{own}_proj.{kind}"] = piece
        else:
            backbone[f"layers.{number}.{PARTS[path]}.{kind}"] = value
    return embedding, backbone


def test_equals_gpt2_with_the_same_weights_values_and_gradients() -> None:
    from transformers import GPT2Config, GPT2Model

    torch.manual_seed(0)
    config = GPT2Config(vocab_size=30, n_positions=16, n_embd=24, n_layer=3, n_head=4, n_inner=40)
    theirs = shake(GPT2Model(config).eval())
    embedding, backbone = embedded(gpt(layers=3, width=24, hidden=40, heads=4, context=16, activation="gelu_tanh"), 30)
    for module, state in zip((embedding, backbone), translated(theirs.state_dict()), strict=True):
        module.eval().load_state_dict(state)
    ids, positions = torch.randint(4, 30, (3, 12)), torch.arange(12)
    ours = backbone(Context(embedding(ids, positions), positions)).values
    their = theirs(input_ids=ids).last_hidden_state
    assert ours.allclose(their, atol=1e-5)
    up = torch.randn_like(ours)
    (ours * up).sum().backward()
    (their * up).sum().backward()
    expected = translated({name: p.grad for name, p in theirs.named_parameters()})
    for module, gradients in zip((embedding, backbone), expected, strict=True):
        assert_same_gradients(module, gradients)


def test_first_weights_are_gpt2s() -> None:
    torch.manual_seed(0)
    embedding, backbone = embedded(gpt(layers=6, width=64, hidden=256, heads=4, context=64), 500)
    for name, p in [*embedding.named_parameters(), *backbone.named_parameters()]:
        if p.dim() == 2:
            scaled = name.endswith(("output_proj.weight", "outer.weight"))
            assert p.std().item() == pytest.approx(0.02 / math.sqrt(12) if scaled else 0.02, rel=0.05), name
        else:
            assert p.eq(1.0 if name.endswith("norm.weight") else 0.0).all(), name
    assert embedding.table.weight[0].eq(0).all()
    assert isinstance(backbone.norm, nn.LayerNorm)
    assert sum(p.numel() for p in backbone.parameters()) == 6 * (4 * 64 * 65 + 2 * 64 * 256 + 256 + 64 + 4 * 64) + 128


def test_a_row_longer_than_the_context_is_refused_with_a_remedy() -> None:
    embedding, _ = embedded(gpt(layers=1, width=8, hidden=8, heads=2, context=4), 20)
    with pytest.raises(ValueError, match="positions 0 to 3, found position 4: shorten the input"):
        embedding(torch.full((1, 5), 4), torch.arange(5))
