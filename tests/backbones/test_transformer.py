"""The Transformer encoder–decoder against Hugging Face's Marian with the same weights; pre- and post-LN; every position kind."""

import pytest
import torch

from regard.attention import causal, masks
from regard.attention.positions import sinusoidal
from regard.models.position_kinds import INSIDE, TABLES
from regard.models.settings import TransformerPair
from regard.models.transformer import transformer
from tests.models.networks import Converter, ids


def marian(model: Converter, width: int) -> torch.nn.Module:
    """A Marian of the same shape, filled with our weights. Marian is post-LN with one table for both sides."""
    from transformers import MarianConfig, MarianMTModel

    config = MarianConfig(
        vocab_size=30, d_model=width, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=24, decoder_ffn_dim=24, activation_function="relu", scale_embedding=True, dropout=0.0, pad_token_id=0,
        decoder_start_token_id=2, eos_token_id=3, max_position_embeddings=64, share_encoder_decoder_embeddings=True,
    )  # fmt: skip
    theirs = MarianMTModel(config).eval()
    names = {
        "attention": "self_attn", "own": "self_attn", "cross": "encoder_attn", "around_attention.norm": "self_attn_layer_norm",
        "around_own.norm": "self_attn_layer_norm", "around_cross.norm": "encoder_attn_layer_norm", "around_feed.norm": "final_layer_norm",
        "feed.inner": "fc1", "feed.outer": "fc2",
    }  # fmt: skip
    state = theirs.state_dict()
    for side, part in (("encoder", model.backbone), ("decoder", model.head.decoder)):
        for name, value in part.state_dict().items():
            _, number, rest = name.split(".", 2)
            for ours, other in names.items():
                if rest.startswith(ours + "."):
                    tail = rest.removeprefix(ours + ".").replace("output_proj", "out_proj")
                    state[f"model.{side}.layers.{number}.{other}.{tail}"] = value
    for name in state:
        if name.endswith(("embed_tokens.weight", "shared.weight", "lm_head.weight")):
            state[name] = model.stem.table.weight.detach()
        if name.endswith("embed_positions.weight"):
            state[name] = sinusoidal(torch.arange(64), width)
    state["final_logits_bias"] = model.head.output.bias.detach()[None]
    theirs.load_state_dict(state)
    return theirs


def test_equals_marian_with_the_same_weights() -> None:
    torch.manual_seed(0)
    pair = transformer(layers=2, width=16, hidden=24, heads=4, dropout=0.0, norm="post")
    model = Converter(pair, 30, 30, joint=True).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() == 1:
                p.normal_(1.0 if "norm.weight" in name else 0.0, 0.3)
    theirs = marian(model, 16)
    source = torch.tensor([[5, 6, 7, 8, 3], [9, 4, 3, 0, 0]])
    target = torch.tensor([[11, 12, 13, 3], [14, 3, 0, 0]])
    given = torch.cat((torch.full((2, 1), 2), target[:, :-1]), 1)
    with torch.no_grad():
        their = theirs(input_ids=source, attention_mask=(source != 0).long(), decoder_input_ids=given)
        memory = model.features(ids(source))
        assert memory.values[source != 0].allclose(their.encoder_last_hidden_state[source != 0], atol=1e-5)
        assert model.logits(source, target)[target != 0].allclose(their.logits[target != 0], atol=1e-5)


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("position", [*TABLES, *INSIDE])
def test_every_position_kind_steps_as_it_trains_and_ignores_padding(norm: str, position: str) -> None:
    torch.manual_seed(0)
    pair = transformer(layers=2, width=16, hidden=24, heads=2, dropout=0.0, norm=norm, position=position)
    model = Converter(pair, 12, 11).double()
    source, target = torch.tensor([[5, 6, 7, 8], [9, 4, 0, 0]]), torch.tensor([[4, 5, 7, 3], [6, 3, 0, 0]])
    full = model.logits(source, target)
    full[target != 0].pow(2).sum().backward()
    assert not [name for name, p in model.named_parameters() if p.grad is None]
    model.eval()
    with torch.no_grad():
        state, tokens = model.start(source), torch.tensor([2, 2])
        for t in range(4):
            logits, state = model.step(tokens, state)
            real = target[:, t] != 0
            assert logits[real].allclose(full[real, t], atol=1e-9)
            tokens = target[:, t]
        assert model.logits(torch.tensor([[9, 4]]), torch.tensor([[6, 3]]))[0].allclose(full[1, :2], atol=1e-9)
        changed = torch.tensor([[4, 5, 8, 9], [6, 3, 0, 0]])
        assert model.logits(source, changed)[0, :3].allclose(full[0, :3], atol=1e-9)


def test_sizes_are_those_published() -> None:
    """Vaswani et al. 2017, table 3: base has 65 and big 213 million parameters with a vocabulary of 37,000."""
    for name, millions in (("base", 65), ("big", 213)):
        with torch.device("meta"):
            model = Converter(transformer(**TransformerPair.sizes[name], norm="post"), 37000, 37000, joint=True)
        assert sum(p.numel() for p in model.parameters()) / 1e6 == pytest.approx(millions, rel=0.05)


def test_masks_are_laid_once_per_batch_not_once_per_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    original = masks.Laid.rows

    def counted(self: masks.Laid, q_pos: torch.Tensor) -> torch.Tensor:
        calls.append(self.mask.name)
        return original(self, q_pos)

    monkeypatch.setattr(masks.Laid, "rows", counted)
    model = Converter(transformer(layers=4, width=16, hidden=24, heads=2), 12, 11)
    model.logits(torch.tensor([[5, 6], [7, 0]]), torch.tensor([[4, 3], [3, 0]]))
    assert sorted(calls) == [causal.name, "padding", "padding"]
