"""GPT-2 (GPT2LMHeadModel): task `continue`.

Its tokens are pieces of bytes, and it has one special token, <|endoftext|>. Four of ours have to be among them:

| ours | GPT-2's |
|---|---|
| END, the line break | the token of the byte 10 |
| START | <|endoftext|> |
| PAD, UNKNOWN | tokens of bytes that no UTF-8 text contains (F5 … FF, C0, C1) |

so that the model keeps exactly the rows that it has.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.errors import UserError
from regard.exchange.folder import PUBLISHED, TOKENIZER, Facts, Vocabulary, need
from regard.exchange.kind import (
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
from regard.inputs.tokens import Tokens, TokenSettings
from regard.models.settings import GptKind
from regard.network import Network
from regard.outputs.continuation.output import Continue
from regard.outputs.continuation.settings import ContinueSettings
from regard.runs.build import Parts
from regard.task import Task
from regard.text.published import PublishedTokenizer, byte_names
from regard.text.tokenizer import END, PAD, START, Tokenizer

TABLE, OUTPUT = "stem.embedding.table.weight", "head.output.weight"  # with a row for each token
OUTSIDE = {
    TABLE: "transformer.wte.weight",
    "stem.embedding.place.table.table": "transformer.wpe.weight",
    "backbone.norm.weight": "transformer.ln_f.weight",
    "backbone.norm.bias": "transformer.ln_f.bias",
}
NORMS = {"around_attention.norm": "ln_1", "around_feed.norm": "ln_2"}
TURNED = {"attention.output_proj": "attn.c_proj", "feed.inner": "mlp.c_fc", "feed.outer": "mlp.c_proj"}
LINE = ("Ċ", "\n")  # a line break in byte-level vocabularies, and in others
NOWHERE = [*range(0xF5, 0x100), 0xC0, 0xC1]  # bytes that no UTF-8 text contains


def canonical(facts: Facts, name: str) -> str | None:
    """Return the full name of a tensor, or None for what follows from the others."""
    if re.search(r"\.attn\.(bias|masked_bias)$", name):
        return None  # masks that early releases were saved with
    if name == "lm_head.weight" and facts.get("tie_word_embeddings", True):
        return None  # the embedding table once more
    return name if name.startswith(("transformer.", "lm_head.")) else f"transformer.{name}"


def names(model: GptKind) -> dict[str, str]:
    """Return the names of tensors that are the same with both, or turned; queries, keys and values are one in GPT-2."""
    plain = OUTSIDE | by_layer(model.layers, "backbone.layers", "transformer.h", NORMS | TURNED)
    return plain if model.tied else plain | {OUTPUT: "lm_head.weight"}


def parts(folder: Path, facts: Facts) -> Parts:
    """Read the tokenizer, and find tokens that can be our special ones."""
    given = Vocabulary(need(folder, TOKENIZER), facts.number("vocab_size", 50257))
    last = facts.id("eos_token_id", None)
    line = next((given.ids[name] for name in LINE if name in given.ids), None)
    end = given.needed("token for a line break, nor an eos_token", last if line is None else line)
    spare = [given.ids[name] for name, byte in byte_names().items() if byte in NOWHERE and name in given.ids]
    taken = [end]

    def take(id: int | None) -> int:
        free = next((one for one in (id, *spare) if one is not None and one not in taken), None)
        if free is None:
            raise UserError(
                f"{given.path} has no tokens that could stand for padding, unknown and start: "
                f"name them in {facts.path.name} (pad_token_id, bos_token_id) and as unk_token."
            )
        taken.append(free)
        return free

    start = take(facts.id("bos_token_id", last))
    tokens = given.foreign((take(facts.id("pad_token_id")), take(given.unknown()), start, end))
    return Tokens(tokens, None, TokenSettings(), Use.STREAM), Continue(facts.number("n_positions", 1024))


def settings(facts: Facts, parts: Parts) -> dict[str, Any]:
    """Return the settings of a model that a config.json describes."""
    for key in ("add_cross_attention", "scale_attn_by_inverse_layer_idx"):
        facts.demand(key, False)
    facts.demand("scale_attn_weights", True)
    facts.demand("layer_norm_epsilon", 1e-5)
    width = facts.number("n_embd", 768)
    tied = facts.get("tie_word_embeddings", True)
    tokens = alphabet(parts)
    return {
        "tokens": {"level": tokens.level, "lowercase": tokens.lowercase, "size": tokens.size},
        "output": {"context": facts.number("n_positions", 1024)},
        "model": {
            "kind": "gpt",
            "layers": facts.number("n_layer", 12),
            "width": width,
            "hidden": facts.number("n_inner", 4 * width),
            "heads": facts.number("n_head", 12),
            "dropout": facts.share("resid_pdrop", 0.1),
            "norm": "pre",
            "position": "learned",
            "tied": bool(tied),
            "bias": False,
            "activation": facts.activation("activation_function", "gelu_new"),
        },
        "training": {"rate": RATE, "decay": 0.01},
    }


def refuse(config: ContinueSettings) -> None:
    """Refuse what GPT-2 cannot express."""
    model, architecture = config.model, KIND.architecture
    unless(model.kind == "gpt", config, "model.kind", architecture, "it is another network")
    assert model.kind == "gpt"
    refuse_parts(config, KIND.architecture)
    unless(model.position == "learned", config, "model.position", architecture, "its positions are a learned table")
    unless(model.norm == "pre", config, "model.norm", architecture, "it normalises before each part (pre)")
    reason = "its output layer has none: train with --set model.bias=false"
    unless(not model.bias, config, "model.bias", architecture, reason)


def facts(config: ContinueSettings, parts: Parts, network: Network) -> dict[str, Any]:
    """Return the config.json of a model."""
    tokens, model = alphabet(parts), _gpt(config)
    start, end = published_id(tokens, START), published_id(tokens, END)
    return {
        "model_type": "gpt2",
        "vocab_size": len(network.get_parameter(TABLE)),
        "n_positions": config.output.context,
        "n_embd": model.width,
        "n_layer": model.layers,
        "n_head": model.heads,
        "n_inner": model.hidden,
        "activation_function": PUBLISHED[model.activation],
        "resid_pdrop": model.dropout,
        "embd_pdrop": model.dropout,
        "attn_pdrop": 0.0,
        "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": model.tied,
        "bos_token_id": start,
        "eos_token_id": start if _ends_lines(tokens) else end,  # a line break does not end a text
        "pad_token_id": None if _is_spare(tokens) else published_id(tokens, PAD),
    }


def _gpt(config: ContinueSettings) -> GptKind:
    assert isinstance(config.model, GptKind)
    return config.model


def _ends_lines(tokens: Tokenizer) -> bool:
    return not isinstance(tokens, PublishedTokenizer) or tokens.token(END) in LINE


def _is_spare(tokens: Tokenizer) -> bool:
    """Return True if padding is a byte that no text contains, rather than a token that was meant for it."""
    return isinstance(tokens, PublishedTokenizer) and byte_names().get(tokens.token(PAD), 0) in NOWHERE


def ours(state: Tensors, config: ContinueSettings, parts: Parts) -> Tensors:
    """Return the published weights as ours."""
    model = _gpt(config)
    own = pick(state, [(theirs, ours) for ours, theirs in names(model).items()])
    own = {name: value.mT if _turned(name) else value for name, value in own.items()}
    for number in range(model.layers):
        for tensor in ("weight", "bias"):
            three = state[f"transformer.h.{number}.attn.c_attn.{tensor}"].chunk(3, dim=-1)
            for letter, part in zip("qkv", three, strict=True):
                name = f"backbone.layers.{number}.attention.{letter}_proj.{tensor}"
                own[name] = part.mT if part.dim() == 2 else part
    return own | {name: into_rows(own[name], alphabet(parts)) for name in own.keys() & {TABLE, OUTPUT}}


def theirs(state: Tensors, config: ContinueSettings, parts: Parts) -> Tensors:
    """Return our weights as the published ones."""
    model = _gpt(config)
    state = state | {name: out_of_rows(state[name], alphabet(parts)) for name in state.keys() & {TABLE, OUTPUT}}
    state = {name: value.mT if _turned(name) else value for name, value in state.items()}
    published = pick(state, [*names(model).items()])
    for number in range(model.layers):
        for tensor in ("weight", "bias"):
            three = [state[f"backbone.layers.{number}.attention.{letter}_proj.{tensor}"] for letter in "qkv"]
            three = [part.mT if part.dim() == 2 else part for part in three]
            published[f"transformer.h.{number}.attn.c_attn.{tensor}"] = torch.cat(three, -1)
    return published


def _turned(name: str) -> bool:
    """Return True for the matrices that GPT-2 keeps as (in, out)."""
    return name.endswith(tuple(f"{part}.weight" for part in TURNED))


def logits(task: Task, rows: Ids) -> Tensor:
    """Return the logits for what follows each token of all rows."""
    source = task.input.collate([(row,) for row in rows])
    return task.network.scores(Batch(source, None))[source.real]


KIND = PublishedKind(
    "GPT2LMHeadModel", "continue", canonical, parts, lambda parts: (alphabet(parts),), settings, refuse, facts, ours,
    theirs, logits,
)  # fmt: skip
