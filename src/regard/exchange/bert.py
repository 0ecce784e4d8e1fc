"""BERT with its masked-word head (BertForMaskedLM): task `fill`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import UserError
from regard.exchange.folder import TOKENIZER, Facts, Vocabulary, need
from regard.exchange.kind import NEVER, RATE, Kind, State, by_layer, into_rows, out_of_rows, pick, published_id, unless
from regard.inputs.tokens import END, PAD, START
from regard.models.bert import BertEmbedding
from regard.outputs.fill import Settings
from regard.outputs.filler import Batch, Masked
from regard.outputs.task import Vocabularies

OUTSIDE = {
    "embedding.table.weight": "bert.embeddings.word_embeddings.weight",
    "embedding.places.table": "bert.embeddings.position_embeddings.weight",
    "embedding.segments.weight": "bert.embeddings.token_type_embeddings.weight",
    "embedding.norm.weight": "bert.embeddings.LayerNorm.weight",
    "embedding.norm.bias": "bert.embeddings.LayerNorm.bias",
    "transform.0.weight": "cls.predictions.transform.dense.weight",
    "transform.0.bias": "cls.predictions.transform.dense.bias",
    "transform.2.weight": "cls.predictions.transform.LayerNorm.weight",
    "transform.2.bias": "cls.predictions.transform.LayerNorm.bias",
    "bias": "cls.predictions.bias",
}
INSIDE = {
    "attention.q_proj": "attention.self.query",
    "attention.k_proj": "attention.self.key",
    "attention.v_proj": "attention.self.value",
    "attention.output_proj": "attention.output.dense",
    "around_attention.norm": "attention.output.LayerNorm",
    "feed.inner": "intermediate.dense",
    "feed.outer": "output.dense",
    "around_feed.norm": "output.LayerNorm",
}
# What fills no blanks: the pooled sentence, the next sentence, and the output layer, which is the embedding table.
UNUSED = re.compile(
    r"bert\.pooler\.|cls\.seq_relationship\.|cls\.predictions\.decoder\.|bert\.embeddings\.position_ids"
)


def canonical(facts: Facts, name: str) -> str | None:  # noqa: ARG001
    if UNUSED.match(name):
        return None
    return re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", name))  # as the first releases were saved


def names(layers: int) -> dict[str, str]:
    return OUTSIDE | by_layer(layers, "backbone.layers", "bert.encoder.layer", INSIDE)


def vocabularies(folder: Path, facts: Facts) -> Vocabularies:
    found = Vocabulary(need(folder, TOKENIZER), facts.number("vocab_size"))
    start = found.needed("cls_token", found.named("cls_token", "[CLS]"))
    end = found.needed("sep_token", found.named("sep_token", "[SEP]"))
    mask = found.needed("mask_token", found.named("mask_token", "[MASK]"))
    return (found.foreign((facts.id("pad_token_id", 0), found.unknown(), start, end), mask),)


def settings(facts: Facts, vocabularies: Vocabularies) -> dict[str, Any]:
    facts.demand("is_decoder", False)
    facts.demand("add_cross_attention", False)
    facts.demand("position_embedding_type", "absolute")
    facts.demand("hidden_act", "gelu")
    facts.demand("type_vocab_size", 2)
    facts.demand("layer_norm_eps", 1e-12)
    longest = facts.number("max_position_embeddings", 512) - 2
    if longest < 1:
        raise UserError(f"{facts.path}: max_position_embeddings is {longest + 2}, expected 3 at least.")
    return {
        "data": {"longest": longest},
        "tokens": {
            "level": vocabularies[0].level,
            "lowercase": vocabularies[0].lowercase,
            "size": vocabularies[0].size,
        },
        "model": {
            "kind": "bert",
            "layers": facts.number("num_hidden_layers", 12),
            "width": facts.number("hidden_size", 768),
            "hidden": facts.number("intermediate_size", 3072),
            "heads": facts.number("num_attention_heads", 12),
            "dropout": facts.share("hidden_dropout_prob", 0.1),
            "norm": "post",
        },
        "training": {"rate": RATE, "smoothing": 0.0, "decay": 0.01},
    }


def refuse(config: Settings) -> None:
    unless(config.model.kind == "bert", config, "model.kind", KIND.architecture, "it is another network")
    unless(config.model.norm == "post", config, "model.norm", KIND.architecture, "it normalises after each part (post)")


def facts(config: Settings, vocabularies: Vocabularies, network: nn.Module) -> dict[str, Any]:
    assert isinstance(network, Masked)
    assert isinstance(network.embedding, BertEmbedding)
    model, vocabulary = config.model, vocabularies[0]
    return {
        "model_type": "bert",
        "vocab_size": len(out_of_rows(network.bias, vocabulary)),
        "hidden_size": model.width,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "intermediate_size": model.hidden,
        "hidden_act": "gelu",
        "hidden_dropout_prob": model.dropout,
        "attention_probs_dropout_prob": 0.0,
        "max_position_embeddings": len(network.embedding.places.table),
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
        "pad_token_id": published_id(vocabulary, PAD),
        "bos_token_id": published_id(vocabulary, START),
        "eos_token_id": published_id(vocabulary, END),
    }


def ours(state: State, config: Settings, vocabularies: Vocabularies) -> State:
    found = pick(state, [(theirs, ours) for ours, theirs in names(config.model.layers).items()])
    table, bias = found["embedding.table.weight"], found["bias"]
    return found | {
        "embedding.table.weight": into_rows(table, vocabularies[0]),
        "bias": into_rows(bias, vocabularies[0], NEVER),
    }


def theirs(state: State, config: Settings, vocabularies: Vocabularies) -> State:
    rows = {name: out_of_rows(state[name], vocabularies[0]) for name in ("embedding.table.weight", "bias")}
    return pick(state | rows, [*names(config.model.layers).items()])


def logits(network: nn.Module, ids: Tensor) -> Tensor:
    found: Tensor = network(Batch(ids, ids, ids != PAD, torch.zeros_like(ids)))
    return found


KIND = Kind("BertForMaskedLM", "fill", canonical, vocabularies, settings, refuse, facts, ours, theirs, logits)
