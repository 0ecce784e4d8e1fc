"""What a published kind of model is to us, and the moves that all of them share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.config import Config
from regard.errors import UserError
from regard.exchange.folder import Facts
from regard.inputs.foreign import NEW, Foreign
from regard.inputs.tokens import Tokenizer
from regard.outputs.task import Vocabularies

NEVER = -1e4  # a logit that is never the best; the bias of tokens that a published model lacks
RATE = 1.5e-4  # a training that starts from a run takes a third of its rate: 5e-5, as published models want
State = dict[str, Tensor]


@dataclass(frozen=True)
class Kind:
    """`vocabularies` and `settings` read a folder; `refuse` and `facts` write one; weights go both ways."""

    architecture: str
    task: str
    canonical: Callable[[Facts, str], str | None]  # a tensor's name, however it was saved; None: of no use to us
    vocabularies: Callable[[Path, Facts], Vocabularies]
    settings: Callable[[Facts, Vocabularies], dict[str, Any]]
    refuse: Callable[[Any], None]  # settings that this kind cannot express
    facts: Callable[[Any, Vocabularies, nn.Module], dict[str, Any]]  # config.json
    ours: Callable[[State, Any, Vocabularies], State]
    theirs: Callable[[State, Any, Vocabularies], State]
    logits: Callable[[nn.Module, Tensor], Tensor]  # of padded rows of ids, at those that are no padding
    fixed: Callable[[dict[str, Any]], State] = lambda _: {}  # tensors that are no weights, but are looked for


def unless(expressible: bool, config: Config, key: str, architecture: str, reason: str) -> None:
    if not expressible:
        section, _, name = key.partition(".")
        value = getattr(getattr(config, section), name)
        raise UserError(f"{key} is {value}: {architecture} cannot express it, because {reason}.")


def into_rows(published: Tensor, vocabulary: Tokenizer, new: float = 0.0) -> Tensor:
    """Rows by published ids as rows by our ids; tokens that the published model lacks have `new` everywhere."""
    if not isinstance(vocabulary, Foreign):
        return published
    index = torch.tensor(vocabulary.rows)
    rows = published[index.clamp(min=0)]
    rows[index == NEW] = new
    return rows


def out_of_rows(rows: Tensor, vocabulary: Tokenizer) -> Tensor:
    """The same back."""
    if not isinstance(vocabulary, Foreign):
        return rows
    index = torch.tensor(vocabulary.rows)
    return rows[index.argsort()[int((index == NEW).sum()) :].to(rows.device)]


def published_id(vocabulary: Tokenizer, id: int) -> int | None:
    """The published id of one of ours."""
    if not isinstance(vocabulary, Foreign):
        return id
    return None if vocabulary.rows[id] == NEW else vocabulary.rows[id]


def by_layer(layers: int, ours: str, theirs: str, parts: dict[str, str]) -> dict[str, str]:
    """Names of all layers, ours to theirs: weights and biases of each part."""
    return {
        f"{ours}.{number}.{own}.{tensor}": f"{theirs}.{number}.{other}.{tensor}"
        for number in range(layers)
        for own, other in parts.items()
        for tensor in ("weight", "bias")
    }


def pick(state: State, names: Sequence[tuple[str, str]]) -> State:
    """Tensors under new names."""
    return {new: state[old] for old, new in names}
