"""BERT with its masked-word head (BertForMaskedLM): task `fill`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from torch import Tensor

from regard.errors import UserError
from regard.exchange.folder import TOKENIZER, Facts, Vocabulary, need
from regard.exchange.kind import (
    NEVER,
    RATE,
    Ids,
    PublishedKind,
    Tensors,
    alphabet,
    by_layer,
    into_rows,
    out_of_rows,
    pick,
    published_id,
    refuse_parts,
    unless,
)
from regard.inputs.input import Batch, Use
from regard.inputs.tokens import PieceSettings, Tokens
from regard.network import Network
from regard.outputs.fill.head import Hidden
from regard.outputs.fill.output import Fill, FillSettings
from regard.runs.build import Parts
from regard.task import Task
from regard.text.tokenizer import END, PAD, START

TABLE, BIAS = "stem.embedding.table.weight", "head.bias"  # with a row for each token
OUTSIDE = {
    TABLE: "bert.embeddings.word_embeddings.weight",
    "stem.embedding.places.table": "bert.embeddings.position_embeddings.weight",
    "stem.embedding.segments.weight": "bert.embeddings.token_type_embeddings.weight",
    "stem.embedding.norm.weight": "bert.embeddings.LayerNorm.weight",
    "stem.embedding.norm.bias": "bert.embeddings.LayerNorm.bias",
    "head.transform.0.weight": "cls.predictions.transform.dense.weight",
    "head.transform.0.bias": "cls.predictions.transform.dense.bias",
    "head.transform.2.weight": "cls.predictions.transform.LayerNorm.weight",
    "head.transform.2.bias": "cls.predictions.transform.LayerNorm.bias",
    BIAS: "cls.predictions.bias",
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
# Not needed to fill blanks: the pooled sentence, the next sentence, and the output layer, which is the embedding table.
UNUSED = re.compile(
    r"bert\.pooler\.|cls\.seq_relationship\.|cls\.predictions\.decoder\.|bert\.embeddings\.position_ids"
)


def canonical(facts: Facts, name: str) -> str | None:  # noqa: ARG001
    """Return the name of a tensor in today's releases, or None if blanks are filled without it."""
    if UNUSED.match(name):
        return None
    return re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", name))  # as the first releases were saved


def names(layers: int) -> dict[str, str]:
    """Return the names of all tensors, ours to theirs."""
    return OUTSIDE | by_layer(layers, "backbone.layers", "bert.encoder.layer", INSIDE)


def parts(folder: Path, facts: Facts) -> Parts:
    """Read the tokenizer, and take the ids of [CLS], [SEP] and [MASK] from the files beside it."""
    given = Vocabulary(need(folder, TOKENIZER), facts.number("vocab_size"))
    start = given.needed("cls_token", given.named("cls_token", "[CLS]"))
    end = given.needed("sep_token", given.named("sep_token", "[SEP]"))
    mask = given.needed("mask_token", given.named("mask_token", "[MASK]"))
    tokens = given.foreign((facts.id("pad_token_id", 0), given.unknown(), start, end), mask)
    return Tokens(tokens, None, PieceSettings(), Use.BLANKS), Fill(tokens)


def settings(facts: Facts, parts: Parts) -> dict[str, Any]:
    """Return the settings of a model that a config.json describes."""
    facts.demand("is_decoder", False)
    facts.demand("add_cross_attention", False)
    facts.demand("position_embedding_type", "absolute")
    facts.demand("hidden_act", "gelu")
    facts.demand("type_vocab_size", 2)
    facts.demand("layer_norm_eps", 1e-12)
    longest = facts.number("max_position_embeddings", 512) - 2
    if longest < 1:
        raise UserError(f"{facts.path}: max_position_embeddings is {longest + 2}, expected at least 3.")
    tokens = alphabet(parts)
    return {
        "data": {"longest": longest},
        "tokens": {"level": tokens.level, "lowercase": tokens.lowercase, "size": tokens.size},
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


def refuse(config: FillSettings) -> None:
    """Refuse what BERT cannot express."""
    unless(config.model.kind == "bert", config, "model.kind", KIND.architecture, "it is another network")
    refuse_parts(config, KIND.architecture)
    learned = getattr(config.model, "position", "") == "learned"
    unless(learned, config, "model.position", KIND.architecture, "it learns a table of positions")
    unless(config.model.norm == "post", config, "model.norm", KIND.architecture, "it normalises after each part (post)")


def facts(config: FillSettings, parts: Parts, network: Network) -> dict[str, Any]:
    """Return the config.json of a model."""
    model, tokens = config.model, alphabet(parts)
    return {
        "model_type": "bert",
        "vocab_size": len(out_of_rows(network.get_parameter(BIAS), tokens)),
        "hidden_size": model.width,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "intermediate_size": model.hidden,
        "hidden_act": "gelu",
        "hidden_dropout_prob": model.dropout,
        "attention_probs_dropout_prob": 0.0,
        "max_position_embeddings": network.longest,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
        "pad_token_id": published_id(tokens, PAD),
        "bos_token_id": published_id(tokens, START),
        "eos_token_id": published_id(tokens, END),
    }


def ours(state: Tensors, config: FillSettings, parts: Parts) -> Tensors:
    """Return the published weights as ours."""
    state = pick(state, [(theirs, ours) for ours, theirs in names(config.model.layers).items()])
    tokens = alphabet(parts)
    return state | {TABLE: into_rows(state[TABLE], tokens), BIAS: into_rows(state[BIAS], tokens, NEVER)}


def theirs(state: Tensors, config: FillSettings, parts: Parts) -> Tensors:
    """Return our weights as the published ones."""
    rows = {name: out_of_rows(state[name], alphabet(parts)) for name in (TABLE, BIAS)}
    return pick(state | rows, [*names(config.model.layers).items()])


def logits(task: Task, rows: Ids) -> Tensor:
    """Return the logits at START, each token and END of all rows, nothing being masked."""
    source = task.input.collate([(row,) for row in rows])
    truth = source.values[0]
    return task.network.scores(Batch(source, Hidden(truth, source.real, source.real.long())))[:, 0]


KIND = PublishedKind(
    "BertForMaskedLM", "fill", canonical, parts, lambda parts: (alphabet(parts),), settings, refuse, facts, ours,
    theirs, logits,
)  # fmt: skip
