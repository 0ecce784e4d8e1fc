"""BERT against Hugging Face's BertModel with the same weights: values, gradients, padding, segments."""

from typing import Any

import pytest
import torch
from torch import Tensor

from regard.attention import Context
from regard.inputs.embedding import positions_of
from regard.models.bert import bert
from tests.models.networks import embedded
from tests.models.same import assert_same_gradients, shake

EMBEDDING = {
    "word_embeddings.weight": "table.weight", "position_embeddings.weight": "places.table",
    "token_type_embeddings.weight": "segments.weight", "LayerNorm.weight": "norm.weight", "LayerNorm.bias": "norm.bias",
}  # fmt: skip
PARTS = {
    "attention.self.query": "attention.q_proj", "attention.self.key": "attention.k_proj",
    "attention.self.value": "attention.v_proj", "attention.output.dense": "attention.output_proj",
    "attention.output.LayerNorm": "around_attention.norm", "intermediate.dense": "feed.inner", "output.dense": "feed.outer",
    "output.LayerNorm": "around_feed.norm",
}  # fmt: skip


def translated(theirs: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Weights or gradients of a BertModel under our names."""
    embedding = {ours: theirs[f"embeddings.{name}"] for name, ours in EMBEDDING.items()}
    encoder = {}
    for name, value in theirs.items():
        if name.startswith("encoder.layer."):
            _, _, number, rest = name.split(".", 3)
            path, _, kind = rest.rpartition(".")
            encoder[f"layers.{number}.{PARTS[path]}.{kind}"] = value
    return embedding, encoder


@pytest.mark.parametrize("epsilon", [1e-12, 0.1])
def test_equals_bert_with_the_same_weights_values_and_gradients(epsilon: float) -> None:
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=30, hidden_size=24, num_hidden_layers=3, num_attention_heads=4, intermediate_size=40,
        max_position_embeddings=16, pad_token_id=0, layer_norm_eps=epsilon,
    )  # fmt: skip
    theirs = shake(BertModel(config, add_pooling_layer=False).eval())
    embedding, encoder = embedded(bert(layers=3, width=24, hidden=40, heads=4, length=16, epsilon=epsilon), 30)
    for module, state in zip((embedding, encoder), translated(theirs.state_dict()), strict=True):
        module.eval().load_state_dict(state)
    ids = torch.randint(4, 30, (3, 12))
    ids[1, 7:], ids[2, 1:] = 0, 0
    segments = (torch.arange(12) >= 5).long().expand(3, -1)
    real, positions = ids != 0, positions_of(ids)
    for given in (segments, None):
        ours = encoder(Context(embedding(ids, positions, given), positions))
        their = theirs(input_ids=ids, attention_mask=real.long(), token_type_ids=given).last_hidden_state
        assert ours.values[real].allclose(their[real], atol=1e-5)
        assert ours.positions.equal(positions)
        part = embedding(ids[1:2, :7], torch.arange(7), None if given is None else given[1:2, :7])
        alone = encoder(Context(part, torch.arange(7)))
        assert alone.values[0].allclose(ours.values[1, :7], atol=1e-5)
        for model in (theirs, embedding, encoder):
            model.zero_grad()
        up = torch.randn(int(real.sum()), 24)
        (ours.values[real] * up).sum().backward()
        (their[real] * up).sum().backward()
        expected = translated({name: p.grad for name, p in theirs.named_parameters()})
        for module, gradients in zip((embedding, encoder), expected, strict=True):
            assert_same_gradients(module, gradients)


def test_the_order_of_rows_and_padding_change_nothing_before_or_after_the_norms() -> None:
    torch.manual_seed(0)
    for norm in ("pre", "post"):
        shape: dict[str, Any] = {"layers": 2, "width": 16, "hidden": 24, "heads": 2, "length": 16, "dropout": 0.0}
        embedding, encoder = embedded(bert(**shape, norm=norm), 30)
        ids = torch.tensor([[5, 6, 7, 8, 9], [10, 11, 0, 0, 0], [12, 13, 14, 0, 0]])
        order = torch.tensor([2, 0, 1])
        features, moved = (
            encoder(Context(embedding(x, positions_of(x)), positions_of(x))).values for x in (ids, ids[order])
        )
        assert moved.allclose(features[order], atol=1e-6)
        alone = encoder(Context(embedding(ids[1:2, :2], torch.arange(2)))).values
        assert alone[0].allclose(features[1, :2], atol=1e-6)
        features.pow(2).sum().backward()
        assert not [n for part in (embedding, encoder) for n, p in part.named_parameters() if p.grad is None]
