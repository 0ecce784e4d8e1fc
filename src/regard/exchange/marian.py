"""Marian (MarianMTModel, post-LN) and its pre-LN twin (PegasusForConditionalGeneration): task `convert`.

Both have the Transformer's sinusoidal positions with all sines before all cosines; with us they alternate. The order of
the numbers in a vector means nothing to the rest of the network, so the numbers are put in our order at import and
back at export. The decoder begins with the padding token in most of them: that token is our START, and our PAD is a
row that they do not have.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.positions import sinusoidal
from regard.errors import UserError
from regard.exchange.folder import PUBLISHED, TOKENIZER, Facts, Vocabulary, need
from regard.exchange.kind import NEVER, RATE, Kind, State, by_layer, into_rows, out_of_rows, pick, published_id, unless
from regard.inputs.foreign import Foreign
from regard.inputs.tokens import END, PAD, START
from regard.outputs.converter import Batch, Converter
from regard.outputs.converters import Settings
from regard.outputs.task import Vocabularies

SHARED = "model.shared.weight"
TARGET_TOKENIZER = "target_tokenizer.json"  # where the two sides have vocabularies of their own
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
LAST = {
    f"{side}.norm.{t}": f"model.{side}.layer_norm.{t}" for side in ("encoder", "decoder") for t in ("weight", "bias")
}
# Where a tensor has the numbers of a vector between layers: in its columns, or in its rows.
COLUMNS = re.compile(r"table\.weight$|head\.weight$|[qkv]_proj\.weight$|inner\.weight$")
ROWS = re.compile(r"output_proj\.|outer\.|norm\.")


def canonical(facts: Facts, name: str) -> str | None:
    if "embed_positions" in name or (name == "lm_head.weight" and facts.get("tie_word_embeddings", True)):
        return None
    if name.endswith("embed_tokens.weight") and _joint(facts):
        return SHARED
    return None if name == SHARED and not _joint(facts) else name


def names(config: Settings) -> dict[str, str]:
    model = config.model
    assert model.kind == "transformer"
    found = {"head.bias": "final_logits_bias"}
    if config.tokens.joint:
        found["source.table.weight"] = SHARED
    else:
        found["source.table.weight"] = "model.encoder.embed_tokens.weight"
        found["target.table.weight"] = "model.decoder.embed_tokens.weight"
    if not model.tied:
        found["head.weight"] = "lm_head.weight"
    found |= by_layer(model.layers, "encoder.layers", "model.encoder.layers", ENCODER)
    found |= by_layer(model.layers, "decoder.layers", "model.decoder.layers", DECODER)
    return found | (LAST if model.norm == "pre" else {})


def vocabularies(folder: Path, facts: Facts) -> Vocabularies:
    rows = facts.number("vocab_size")
    joint = _joint(facts)
    source = _vocabulary(need(folder, TOKENIZER), rows, facts)
    if joint:
        return source, source
    return source, _vocabulary(need(folder, TARGET_TOKENIZER), facts.number("decoder_vocab_size", rows), facts)


def _vocabulary(path: Path, rows: int, facts: Facts) -> Foreign:
    found = Vocabulary(path, rows)
    padding = facts.id("pad_token_id")
    start = found.needed("token to begin with", facts.id("decoder_start_token_id", padding))
    end = found.needed("eos_token", facts.id("eos_token_id", 0))
    return found.foreign((None if padding == start else padding, found.unknown(), start, end))


def _joint(facts: Facts) -> bool:
    return bool(facts.get("share_encoder_decoder_embeddings", True))


def settings(norm: str, facts: Facts, vocabularies: Vocabularies) -> dict[str, Any]:
    sides = {}
    for key, default in (("layers", 12), ("ffn_dim", 4096), ("attention_heads", 16)):
        encoder, decoder = (facts.number(f"{side}_{key}", default) for side in ("encoder", "decoder"))
        if encoder != decoder:
            raise UserError(f"{facts.path}: encoder_{key} is {encoder} and decoder_{key} {decoder}, expected the same.")
        sides[key] = encoder
    source, target = vocabularies
    assert isinstance(source, Foreign)
    return {
        "tokens": {
            "source_level": source.level,
            "target_level": target.level,
            "joint": _joint(facts),
            "lowercase": source.lowercase,
            "size": max(source.size, target.size),
        },
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


def refuse(architecture: str, config: Settings) -> None:
    model = config.model
    unless(model.kind == "transformer", config, "model.kind", architecture, "it is another network")
    assert model.kind == "transformer"
    unless(model.position == "sinusoidal", config, "model.position", architecture, "its positions are sinusoidal")
    reason = "it has vectors of tokens only: train with --set model.ngrams=1"
    unless(model.ngrams == 1, config, "model.ngrams", architecture, reason)
    if model.norm == "pre":
        reason = "where it normalises before each part it has one vocabulary: train with tokens.joint=true, or post"
        unless(config.tokens.joint, config, "tokens.joint", architecture, reason)


def facts(model_type: str, config: Settings, vocabularies: Vocabularies, network: nn.Module) -> dict[str, Any]:
    assert isinstance(network, Converter)
    model = config.model
    assert model.kind == "transformer"
    start, padding, end = (published_id(vocabularies[1], id) for id in (START, PAD, END))
    tables = (side.table.weight for side in (network.source, network.target))
    sizes = [len(out_of_rows(table, own)) for table, own in zip(tables, vocabularies, strict=True)]
    both = {f"{side}_{key}": value for side in ("encoder", "decoder") for key, value in (
        ("layers", model.layers), ("ffn_dim", model.hidden), ("attention_heads", model.heads)
    )}  # fmt: skip
    return both | {
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
        "share_encoder_decoder_embeddings": config.tokens.joint,
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
    """For each number of our vectors its place in theirs: sin, cos, sin, cos … from all sines and then all cosines."""
    return torch.arange(width).reshape(2, -1).T.flatten()


def _moved(name: str, value: Tensor, order: Tensor) -> Tensor:
    order = order.to(value.device)
    if COLUMNS.search(name):
        return value[:, order]
    return value[order] if ROWS.search(name) else value


def _tables(vocabularies: Vocabularies) -> dict[str, Any]:
    source, target = vocabularies
    return {"source.table.weight": source, "target.table.weight": target, "head.weight": target, "head.bias": target}


def ours(state: State, config: Settings, vocabularies: Vocabularies) -> State:
    found = pick(state, [(theirs, ours) for ours, theirs in names(config).items()])
    found["head.bias"] = found["head.bias"][0]
    order = alternating(config.model.width)
    found = {name: _moved(name, value, order) for name, value in found.items()}
    for name, vocabulary in _tables(vocabularies).items():
        if name in found:
            found[name] = into_rows(found[name], vocabulary, NEVER if name == "head.bias" else 0.0)
    return found


def theirs(state: State, config: Settings, vocabularies: Vocabularies) -> State:
    tables = _tables(vocabularies)
    state = {n: out_of_rows(value, tables[n]) if n in tables else value for n, value in state.items()}
    order = alternating(config.model.width).argsort()
    state = {name: _moved(name, value, order) for name, value in state.items()}
    state["head.bias"] = state["head.bias"][None]
    return pick(state, [*names(config).items()])


def logits(network: nn.Module, ids: Tensor) -> Tensor:
    found: Tensor = network(Batch(ids, ids.flip(0)))[ids.flip(0) != PAD]
    return found


def table(facts: dict[str, Any]) -> State:
    """The sinusoids, which a Pegasus has in its file."""
    width = facts["d_model"]
    places = sinusoidal(torch.arange(facts["max_position_embeddings"]), width)[:, alternating(width).argsort()]
    return {f"model.{side}.embed_positions.weight": places.clone() for side in ("encoder", "decoder")}


def _kind(architecture: str, model_type: str, norm: str) -> Kind:
    return Kind(
        architecture, "convert", canonical, vocabularies, partial(settings, norm), partial(refuse, architecture),
        partial(facts, model_type), ours, theirs, logits, *([table] if norm == "pre" else []),
    )  # fmt: skip


MARIAN = _kind("MarianMTModel", "marian", "post")
PEGASUS = _kind("PegasusForConditionalGeneration", "pegasus", "pre")
