"""Marian (MarianMTModel, post-LN) and its pre-LN twin (PegasusForConditionalGeneration): task `convert`.

Both have the Transformer's sinusoidal positions with all sines before all cosines; ours alternate. The rest of the
network does not depend on the order of the numbers in a vector, so import puts them in our order and export back. The
decoder begins with the padding token in most of them: that token is our START, and our PAD is a row that they lack.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.attention.positions import sinusoidal
from regard.errors import UserError
from regard.exchange.folder import PUBLISHED, TOKENIZER, Facts, Vocabulary, need
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
from regard.inputs.input import Use
from regard.inputs.tokens import Tokens, TokenSettings
from regard.models.settings import TransformerPair
from regard.network import Network
from regard.outputs.convert.output import Convert
from regard.outputs.convert.settings import ConvertSettings
from regard.runs.build import Parts
from regard.task import Task
from regard.text.published import PublishedTokenizer
from regard.text.tokenizer import END, PAD, START, Tokenizer

SHARED = "model.shared.weight"
TARGET_TOKENIZER = "target_tokenizer.json"  # where the two sides have vocabularies of their own
SOURCE, TARGET = "stem.embedding.table.weight", "head.target.table.weight"
OUTPUT, BIAS = "head.output.weight", "head.output.bias"
ENCODER = {
    "attention.q_proj": "self_attn.q_proj",
    "attention.k_proj": "self_attn.k_proj",
    "attention.v_proj": "self_attn.v_proj",
    "attention.output_proj": "self_attn.out_proj",
    "around_attention.norm": "self_attn_layer_norm",
    "feed.inner": "fc1",
    "feed.outer": "fc2",
    "around_feed.norm": "final_layer_norm",
}
DECODER = {
    "own.q_proj": "self_attn.q_proj",
    "own.k_proj": "self_attn.k_proj",
    "own.v_proj": "self_attn.v_proj",
    "own.output_proj": "self_attn.out_proj",
    "around_own.norm": "self_attn_layer_norm",
    "cross.q_proj": "encoder_attn.q_proj",
    "cross.k_proj": "encoder_attn.k_proj",
    "cross.v_proj": "encoder_attn.v_proj",
    "cross.output_proj": "encoder_attn.out_proj",
    "around_cross.norm": "encoder_attn_layer_norm",
    "feed.inner": "fc1",
    "feed.outer": "fc2",
    "around_feed.norm": "final_layer_norm",
}
SIDES = {"encoder": "backbone", "decoder": "head.decoder"}
LAST = {
    f"{own}.norm.{tensor}": f"model.{side}.layer_norm.{tensor}"
    for side, own in SIDES.items()
    for tensor in ("weight", "bias")
}
# Where a tensor has the numbers of a vector between layers: in its columns, or in its rows.
COLUMNS = re.compile(r"table\.weight$|output\.weight$|[qkv]_proj\.weight$|inner\.weight$")
ROWS = re.compile(r"output_proj\.|outer\.|norm\.")


def canonical(facts: Facts, name: str) -> str | None:
    """Return one name for a table that has several, or None for what follows from the others."""
    if "embed_positions" in name or (name == "lm_head.weight" and facts.get("tie_word_embeddings", True)):
        return None
    if name.endswith("embed_tokens.weight") and _joint(facts):
        return SHARED
    return None if name == SHARED and not _joint(facts) else name


def names(config: ConvertSettings) -> dict[str, str]:
    """Return the names of all tensors, ours to theirs."""
    model = _transformer(config)
    tables = {BIAS: "final_logits_bias"}
    if config.joint:
        tables[SOURCE] = SHARED
    else:
        tables |= {SOURCE: "model.encoder.embed_tokens.weight", TARGET: "model.decoder.embed_tokens.weight"}
    if not model.tied:
        tables[OUTPUT] = "lm_head.weight"
    encoder, decoder = (
        by_layer(model.layers, f"{own}.layers", f"model.{side}.layers", inside)
        for (side, own), inside in zip(SIDES.items(), (ENCODER, DECODER), strict=True)
    )
    return tables | encoder | decoder | (LAST if model.norm == "pre" else {})


def parts(folder: Path, facts: Facts) -> Parts:
    """Read the tokenizer of both sides, or one for each."""
    rows = facts.number("vocab_size")
    source = target = _vocabulary(need(folder, TOKENIZER), rows, facts)
    if not _joint(facts):
        target = _vocabulary(need(folder, TARGET_TOKENIZER), facts.number("decoder_vocab_size", rows), facts)
    return Tokens(source, None, TokenSettings(), Use.SOURCE), Convert(target)


def vocabularies(parts: Parts) -> tuple[Tokenizer, Tokenizer]:
    """Return the vocabularies of source and target."""
    assert isinstance(parts[1], Convert)
    return alphabet(parts), parts[1].vocabulary


def _vocabulary(path: Path, rows: int, facts: Facts) -> PublishedTokenizer:
    given = Vocabulary(path, rows)
    padding = facts.id("pad_token_id")
    start = given.needed("token to begin with", facts.id("decoder_start_token_id", padding))
    end = given.needed("eos_token", facts.id("eos_token_id", 0))
    return given.foreign((None if padding == start else padding, given.unknown(), start, end))


def _joint(facts: Facts) -> bool:
    return bool(facts.get("share_encoder_decoder_embeddings", True))


def _transformer(config: ConvertSettings) -> TransformerPair:
    assert isinstance(config.model, TransformerPair)
    return config.model


def settings(norm: str, facts: Facts, parts: Parts) -> dict[str, Any]:
    """Return the settings of a model that a config.json describes."""
    sides = {}
    for key, default in (("layers", 12), ("ffn_dim", 4096), ("attention_heads", 16)):
        encoder, decoder = (facts.number(f"{side}_{key}", default) for side in ("encoder", "decoder"))
        if encoder != decoder:
            raise UserError(f"{facts.path}: encoder_{key} is {encoder} and decoder_{key} {decoder}, expected the same.")
        sides[key] = encoder
    source, target = vocabularies(parts)
    assert isinstance(source, PublishedTokenizer)
    return {
        "tokens": {"level": source.level, "lowercase": source.lowercase, "size": max(source.size, target.size)},
        "output": {"level": target.level, "joint": _joint(facts)},
        "model": {
            "kind": "transformer",
            "layers": sides["layers"],
            "width": facts.number("d_model", 1024),
            "hidden": sides["ffn_dim"],
            "heads": sides["attention_heads"],
            "dropout": facts.share("dropout", 0.1),
            "norm": norm,
            "position": "sinusoidal",
            "tied": bool(facts.get("tie_word_embeddings", True)),
            "activation": facts.activation("activation_function", "gelu"),
            "scale": bool(facts.get("scale_embedding", False)),
            "closed": source.closes(),
        },
        "training": {"rate": RATE},
    }


def refuse(architecture: str, config: ConvertSettings) -> None:
    """Refuse what this architecture cannot express."""
    model = config.model
    unless(model.kind == "transformer", config, "model.kind", architecture, "it is another network")
    assert model.kind == "transformer"
    unless(config.encoder.kind == "own", config, "encoder.kind", architecture, "it has an encoder of its own")
    refuse_parts(config, architecture)
    unless(model.position == "sinusoidal", config, "model.position", architecture, "its positions are sinusoidal")
    reason = "it has vectors of tokens only: train with --set model.ngrams=1"
    unless(model.ngrams == 1, config, "model.ngrams", architecture, reason)
    if model.norm == "pre":
        reason = "where it normalises before each part it has one vocabulary: train with output.joint=true, or post"
        unless(config.joint, config, "output.joint", architecture, reason)


def facts(model_type: str, config: ConvertSettings, parts: Parts, network: Network) -> dict[str, Any]:
    """Return the config.json of a model."""
    model, both = _transformer(config), vocabularies(parts)
    start, padding, end = (published_id(both[1], id) for id in (START, PAD, END))
    tables = (network.get_parameter(name) for name in (SOURCE, TARGET))
    sizes = [len(out_of_rows(table, own)) for table, own in zip(tables, both, strict=True)]
    each = {"layers": model.layers, "ffn_dim": model.hidden, "attention_heads": model.heads}
    return {f"{side}_{key}": value for side in SIDES for key, value in each.items()} | {
        "model_type": model_type,
        "is_encoder_decoder": True,
        "vocab_size": sizes[0],
        "decoder_vocab_size": sizes[1],
        "d_model": model.width,
        "activation_function": PUBLISHED[model.activation],
        "dropout": model.dropout,
        "attention_dropout": 0.0,
        "activation_dropout": model.dropout,
        "max_position_embeddings": max(512, 2 + config.data.longest, 2 + config.decoding.longest),
        "scale_embedding": model.scale,
        "share_encoder_decoder_embeddings": config.joint,
        "tie_word_embeddings": model.tied,
        "pad_token_id": start if padding is None else padding,
        "decoder_start_token_id": start,
        "eos_token_id": end,
        "forced_eos_token_id": end,
        "bos_token_id": None,
        "bad_words_ids": [[start]],
        "num_beams": config.decoding.beam,
        "length_penalty": config.decoding.length_penalty,
        "max_length": config.decoding.longest,
    }


def alternating(width: int) -> Tensor:
    """Return the place in their vectors of each number of ours: sin, cos, sin … from all sines before all cosines."""
    return torch.arange(width).reshape(2, -1).T.flatten()


def _moved(name: str, value: Tensor, order: Tensor) -> Tensor:
    order = order.to(value.device)
    if COLUMNS.search(name):
        return value[:, order]
    return value[order] if ROWS.search(name) else value


def _tables(parts: Parts) -> dict[str, Tokenizer]:
    """Return the tensors that have a row for each token, and whose tokens these are."""
    source, target = vocabularies(parts)
    return {SOURCE: source, TARGET: target, OUTPUT: target, BIAS: target}


def ours(state: Tensors, config: ConvertSettings, parts: Parts) -> Tensors:
    """Return the published weights as ours."""
    state = pick(state, [(theirs, ours) for ours, theirs in names(config).items()])
    state[BIAS] = state[BIAS][0]
    order = alternating(config.model.width)
    state = {name: _moved(name, value, order) for name, value in state.items()}
    for name, tokens in _tables(parts).items():
        if name in state:
            state[name] = into_rows(state[name], tokens, NEVER if name == BIAS else 0.0)
    return state


def theirs(state: Tensors, config: ConvertSettings, parts: Parts) -> Tensors:
    """Return our weights as the published ones."""
    tables = _tables(parts)
    state = {name: out_of_rows(value, tables[name]) if name in tables else value for name, value in state.items()}
    order = alternating(config.model.width).argsort()
    state = {name: _moved(name, value, order) for name, value in state.items()}
    state[BIAS] = state[BIAS][None]
    return pick(state, [*names(config).items()])


def logits(task: Task, rows: Ids) -> Tensor:
    """Return the logits for each token and the end of all rows; the target of the first is the last one, and so on."""
    batch = task.batch([(row, [*target, END]) for row, target in zip(rows, reversed(rows), strict=True)])
    return task.network.scores(batch)[batch.target.real]


def table(facts: dict[str, Any]) -> Tensors:
    """Return the sinusoids, which a Pegasus has in its file."""
    width = facts["d_model"]
    places = sinusoidal(torch.arange(facts["max_position_embeddings"]), width)[:, alternating(width).argsort()]
    return {f"model.{side}.embed_positions.weight": places.clone() for side in SIDES}


def _kind(architecture: str, model_type: str, norm: str) -> PublishedKind:
    return PublishedKind(
        architecture, "convert", canonical, parts, vocabularies, partial(settings, norm),
        partial(refuse, architecture), partial(facts, model_type), ours, theirs, logits,
        *([table] if norm == "pre" else []),
    )  # fmt: skip


MARIAN = _kind("MarianMTModel", "marian", "post")
PEGASUS = _kind("PegasusForConditionalGeneration", "pegasus", "pre")
