"""A kind of published model, as Regard reads and writes it, and the steps that all of them share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.config import Config
from regard.errors import UserError
from regard.exchange.folder import Facts
from regard.network import Network
from regard.runs.build import Parts
from regard.task import Task
from regard.text.published import NEW, PublishedTokenizer
from regard.text.tokenizer import Tokenizer

NEVER = -1e4  # a logit that is never the best; the bias of tokens that a published model lacks
RATE = 1.5e-4  # a training that starts from a run takes a third of its rate: 5e-5, as published models want
Tensors = dict[str, Tensor]  # by name
Ids = list[list[int]]  # rows of tokens


@dataclass(frozen=True)
class PublishedKind:
    """Functions that read a folder (`parts`, `settings`), write one (`refuse`, `facts`), and convert weights.

    Of the parts that `parts` makes only the vocabularies count: a run folder is loaded with the settings it has.
    """

    architecture: str
    task: str
    canonical: Callable[[Facts, str], str | None]  # one name for a tensor, however it was saved; None: not needed
    parts: Callable[[Path, Facts], Parts]  # with the published vocabularies
    vocabularies: Callable[[Parts], tuple[Tokenizer, ...]]  # the source's, and the target's if it has one
    settings: Callable[[Facts, Parts], dict[str, Any]]
    refuse: Callable[[Any], None]  # settings that this kind cannot express
    facts: Callable[[Any, Parts, Network], dict[str, Any]]  # config.json
    ours: Callable[[Tensors, Any, Parts], Tensors]
    theirs: Callable[[Tensors, Any, Parts], Tensors]
    logits: Callable[[Task, Ids], Tensor]  # at the tokens of all rows, (tokens, vocabulary)
    fixed: Callable[[dict[str, Any]], Tensors] = lambda _: {}  # tensors that are not weights, but are expected
    input: str = field(default="tokens", kw_only=True)
    beside: Callable[[Any, Parts], dict[str, dict[str, Any]]] = field(default=lambda *_: {}, kw_only=True)  # more JSON


def alphabet(parts: Parts) -> Tokenizer:
    """Return the vocabulary of the source."""
    tokens = parts[0].alphabet
    assert tokens is not None
    return tokens


def unless(expressible: bool, config: Config, key: str, architecture: str, reason: str) -> None:
    """Refuse the setting `key` unless this architecture can express it."""
    if not expressible:
        section, _, name = key.partition(".")
        value = getattr(getattr(config, section), name)
        raise UserError(f"{key} is {value}: {architecture} cannot express it, because {reason}.")


PLAIN: dict[str, Any] = {
    "attention": "full",
    "score": "scaled_dot",
    "normaliser": "softmax",
    "heads_see": "all",
    "key_width": None,
    "value_width": None,
    "position_way": "added",
    "position_layers": "first",
}  # parts of published attentions


def refuse_parts(config: Config, architecture: str) -> None:
    """Refuse attentions of other parts than published models have."""
    for name, plain in PLAIN.items():
        expressible = getattr(config.model, name, plain) == plain
        unless(expressible, config, f"model.{name}", architecture, f"its attention has only {plain or 'width ÷ heads'}")
    scaled = getattr(config.model, "norm", None) == "deep"
    unless(not scaled, config, "model.norm", architecture, "it adds what goes around a part unscaled")


def into_rows(published: Tensor, vocabulary: Tokenizer, new: float = 0.0) -> Tensor:
    """Return rows in the order of our ids; tokens that the published model lacks have `new` everywhere."""
    if not isinstance(vocabulary, PublishedTokenizer):
        return published
    index = torch.tensor(vocabulary.rows)
    rows = published[index.clamp(min=0)]
    rows[index == NEW] = new
    return rows


def out_of_rows(rows: Tensor, vocabulary: Tokenizer) -> Tensor:
    """Return rows in the order of the published ids."""
    if not isinstance(vocabulary, PublishedTokenizer):
        return rows
    index = torch.tensor(vocabulary.rows)
    return rows[index.argsort()[int((index == NEW).sum()) :].to(rows.device)]


def published_id(vocabulary: Tokenizer, id: int) -> int | None:
    """Return the published id of one of ours."""
    if not isinstance(vocabulary, PublishedTokenizer):
        return id
    return None if vocabulary.rows[id] == NEW else vocabulary.rows[id]


def by_layer(layers: int, ours: str, theirs: str, parts: dict[str, str]) -> dict[str, str]:
    """Return the names in all layers, ours to theirs: weights and biases of each part."""
    return {
        f"{ours}.{number}.{own}.{tensor}": f"{theirs}.{number}.{other}.{tensor}"
        for number in range(layers)
        for own, other in parts.items()
        for tensor in ("weight", "bias")
    }


def pick(state: Tensors, names: Sequence[tuple[str, str]]) -> Tensors:
    """Return tensors under new names."""
    return {new: state[old] for old, new in names}
