"""Whole networks from the parts that builders return, for a vocabulary of so many tokens."""

from dataclasses import dataclass
from typing import Any, cast

from torch import Tensor, nn

from regard.inputs.embedding import Embedding, positions_of
from regard.inputs.input import Batch, Source, Use
from regard.inputs.tokens import Tokens, TokenSettings
from regard.layers.dropout import Dropout
from regard.layers.stem import Stem
from regard.models.pair import Pair
from regard.network import Network
from regard.outputs.convert.head import ConvertHead, DecodingState, Written
from regard.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Sized:
    """All that a stem needs to know of an alphabet."""

    size: int
    level: str = "characters"


def embedded(parts: tuple[Stem, nn.Module], size: int) -> tuple[nn.Module, Any]:
    """Return the embedding that the input makes of a builder's stem, and the builder's backbone."""
    stem, backbone = parts
    tokens = Tokens(cast(Tokenizer, Sized(size)), None, TokenSettings(), Use.SOURCE)
    return tokens.module(stem).embedding, backbone


class Converter(Network):
    """An encoder and a decoder with a softmax; batches and steps from plain padded ids."""

    head: ConvertHead

    def __init__(self, pair: Pair, source: int, target: int, *, tied: bool = True, joint: bool = False) -> None:
        tokens = Tokens(cast(Tokenizer, Sized(source)), None, TokenSettings(), Use.SOURCE)
        stem, asked = tokens.module(pair.stem), pair.target
        into = Embedding(target, asked.width, asked.place, Dropout(asked.dropout), scale=asked.scale)
        if joint:
            into.table = stem.table
        super().__init__(stem, pair.encoder, ConvertHead(into, pair.decoder, tied=tied))

    def logits(self, source: Tensor, target: Tensor) -> Tensor:
        """Return the scores of each target token, (batch, m, vocabulary)."""
        return self.scores(Batch(ids(source), Written(target, positions_of(target))))

    def start(self, source: Tensor) -> DecodingState:
        return self.head.start(self, ids(source))

    def step(self, tokens: Tensor, state: DecodingState) -> tuple[Tensor, DecodingState]:
        return self.head.step(tokens, state)


def ids(rows: Tensor) -> Source:
    """Return padded ids as an input collates them."""
    return Source((rows,), positions_of(rows))
