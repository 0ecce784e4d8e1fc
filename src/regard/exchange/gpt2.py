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
from torch import Tensor, nn

from regard.errors import UserError
from regard.exchange.folder import PUBLISHED, TOKENIZER, Facts, Vocabulary, need
from regard.exchange.kind import RATE, Kind, State, by_layer, into_rows, out_of_rows, pick, published_id, unless
from regard.inputs.foreign import Foreign, byte_names
from regard.inputs.tokens import END, PAD, START
from regard.outputs.task import Vocabularies
from regard.outputs.writer import Writer
from regard.outputs.writers import Settings

OUTSIDE = {
    "embedding.table.weight": "transformer.wte.weight",
    "embedding.place.table.table": "transformer.wpe.weight",
    "backbone.norm.weight": "transformer.ln_f.weight",
    "backbone.norm.bias": "transformer.ln_f.bias",
}
NORMS = {"around_attention.norm": "ln_1", "around_feed.norm": "ln_2"}
TURNED = {"attention.output_proj": "attn.c_proj", "feed.inner": "mlp.c_fc", "feed.outer": "mlp.c_proj"}
LINE = ("Ċ", "\n")  # a line break in byte-level vocabularies, and in others
NOWHERE = [*range(0xF5, 0x100), 0xC0, 0xC1]  # bytes that no UTF-8 text contains


def canonical(facts: Facts, name: str) -> str | None:
    if re.search(r"\.attn\.(bias|masked_bias)$", name):
        return None  # masks that early releases were saved with
    if name == "lm_head.weight" and facts.get("tie_word_embeddings", True):
        return None  # the embedding table once more
    return name if name.startswith(("transformer.", "lm_head.")) else f"transformer.{name}"


def names(config: Settings) -> dict[str, str]:
    """The tensors that are the same with both, or turned; queries, keys and values are one in GPT-2."""
    layers = config.model.layers
    plain = OUTSIDE | by_layer(layers, "backbone.layers", "transformer.h", NORMS | TURNED)
    return plain if getattr(config.model, "tied", True) else plain | {"head.weight": "lm_head.weight"}


def vocabularies(folder: Path, facts: Facts) -> Vocabularies:
    found = Vocabulary(need(folder, TOKENIZER), facts.number("vocab_size", 50257))
    last = facts.id("eos_token_id", None)
    line = next((found.ids[name] for name in LINE if name in found.ids), None)
    end = found.needed("token for a line break, nor an eos_token", last if line is None else line)
    spare = [found.ids[name] for name, byte in byte_names().items() if byte in NOWHERE and name in found.ids]
    taken = [end]

    def take(id: int | None) -> int:
        free = next((one for one in (id, *spare) if one is not None and one not in taken), None)
        if free is None:
            raise UserError(
                f"{found.path} has no tokens that could stand for padding, unknown and start: "
                f"name them in {facts.path.name} (pad_token_id, bos_token_id) and as unk_token."
            )
        taken.append(free)
        return free

    start = take(facts.id("bos_token_id", last))
    return (found.foreign((take(facts.id("pad_token_id")), take(found.unknown()), start, end)),)


def settings(facts: Facts, vocabularies: Vocabularies) -> dict[str, Any]:
    for key in ("add_cross_attention", "scale_attn_by_inverse_layer_idx"):
        facts.demand(key, False)
    facts.demand("scale_attn_weights", True)
    facts.demand("layer_norm_epsilon", 1e-5)
    width = facts.number("n_embd", 768)
    tied = facts.get("tie_word_embeddings", True)
    return {
        "tokens": {
            "level": vocabularies[0].level,
            "lowercase": vocabularies[0].lowercase,
            "size": vocabularies[0].size,
            "context": facts.number("n_positions", 1024),
        },
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


def refuse(config: Settings) -> None:
    model, architecture = config.model, KIND.architecture
    unless(model.kind == "gpt", config, "model.kind", architecture, "it is another network")
    assert model.kind == "gpt"
    unless(model.position == "learned", config, "model.position", architecture, "its positions are a learned table")
    unless(model.norm == "pre", config, "model.norm", architecture, "it normalises before each part (pre)")
    reason = "its output layer has none: train with --set model.bias=false"
    unless(not model.bias, config, "model.bias", architecture, reason)


def facts(config: Settings, vocabularies: Vocabularies, network: nn.Module) -> dict[str, Any]:
    assert isinstance(network, Writer)
    vocabulary, model = vocabularies[0], config.model
    assert model.kind == "gpt"
    start, end = published_id(vocabulary, START), published_id(vocabulary, END)
    return {
        "model_type": "gpt2",
        "vocab_size": network.head.out_features,
        "n_positions": config.tokens.context,
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
        "eos_token_id": start if _ends_lines(vocabulary) else end,  # a line break does not end a text
        "pad_token_id": None if _is_spare(vocabulary) else published_id(vocabulary, PAD),
    }


def _ends_lines(vocabulary: Any) -> bool:
    return not isinstance(vocabulary, Foreign) or vocabulary.token(END) in LINE


def _is_spare(vocabulary: Any) -> bool:
    """Whether padding is a byte that stands nowhere, rather than a token that was meant for it."""
    return isinstance(vocabulary, Foreign) and byte_names().get(vocabulary.token(PAD), 0) in NOWHERE


def ours(state: State, config: Settings, vocabularies: Vocabularies) -> State:
    found = pick(state, [(theirs, ours) for ours, theirs in names(config).items()])
    found = {name: value.mT if _turned(name) else value for name, value in found.items()}
    for number in range(config.model.layers):
        for tensor in ("weight", "bias"):
            three = state[f"transformer.h.{number}.attn.c_attn.{tensor}"].chunk(3, dim=-1)
            for own, part in zip("qkv", three, strict=True):
                found[f"backbone.layers.{number}.attention.{own}_proj.{tensor}"] = part.mT if part.dim() == 2 else part
    for name in found.keys() & {"embedding.table.weight", "head.weight"}:
        found[name] = into_rows(found[name], vocabularies[0])
    return found


def theirs(state: State, config: Settings, vocabularies: Vocabularies) -> State:
    tables = state.keys() & {"embedding.table.weight", "head.weight"}
    state = state | {name: out_of_rows(state[name], vocabularies[0]) for name in tables}
    state = {name: value.mT if _turned(name) else value for name, value in state.items()}
    found = pick(state, [*names(config).items()])
    for number in range(config.model.layers):
        for tensor in ("weight", "bias"):
            three = [state[f"backbone.layers.{number}.attention.{own}_proj.{tensor}"] for own in "qkv"]
            three = [part.mT if part.dim() == 2 else part for part in three]
            found[f"transformer.h.{number}.attn.c_attn.{tensor}"] = torch.cat(three, -1)
    return found


def _turned(name: str) -> bool:
    """GPT-2 keeps its matrices as (in, out)."""
    return name.endswith(tuple(f"{part}.weight" for part in TURNED))


def logits(network: nn.Module, ids: Tensor) -> Tensor:
    found: Tensor = network(ids)[ids != PAD]
    return found


KIND = Kind("GPT2LMHeadModel", "continue", canonical, vocabularies, settings, refuse, facts, ours, theirs, logits)
