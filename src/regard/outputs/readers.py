"""The networks that read a text for a label or for tags: their settings, and the embedding and backbone of each."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import nn

from regard.config import Activation, Bert, Dropout, Hidden, Layers, Position, Section, Width
from regard.models.bert import bert
from regard.models.encoder import deepsets, encoder
from regard.models.gpt import gpt
from regard.models.lstm import bilstm


class Recurrent(Section):
    kind: Literal["recurrent"] = Field("recurrent", description="which network")
    cell: Literal["lstm", "gru"] = Field("lstm", description="lstm or gru")
    layers: int = Field(1, ge=1, le=100, description="layers, each read both ways")
    width: int = Field(256, ge=2, le=65536, description="width of embeddings and states, even: half for each direction")
    heads: int = Field(0, ge=0, le=4096, description="of self-attention over the states; 0: none")
    dropout: Dropout = 0.4

    def parameters(self) -> int:
        gates = 4 if self.cell == "lstm" else 3
        return self.layers * gates * 2 * self.width**2 + (4 * self.width**2 if self.heads else 0)


class Transformer(Layers):
    kind: Literal["transformer"] = Field("transformer", description="which network")
    layers: int = Field(2, ge=1, le=1000, description="layers of the encoder")
    width: Width = 128
    hidden: Hidden = 256
    dropout: Dropout = 0.3
    position: Position = Field("sinusoidal", description="how positions come in")


class Gpt(Layers):
    """A decoder alone: START, the tokens, END, whose state has read all of them (Radford et al. 2018, 3.3)."""

    kind: Literal["gpt"] = Field("gpt", description="which network")
    width: Width = 128
    hidden: Hidden = 512
    position: Position = Field("learned", description="how positions come in")
    activation: Activation = Field("gelu", description="inside the feed-forward parts; GPT-2 has gelu_tanh")
    language: float = Field(0.0, ge=0, le=100, description="weight of the auxiliary language-model loss; 0: without it")


class DeepSets(Section):
    kind: Literal["deepsets"] = Field("deepsets", description="which network: each token alone")
    width: int = Field(128, ge=2, le=65536, description="width of embeddings and features")
    dropout: Dropout = 0.5

    def parameters(self) -> int:
        return self.width**2


Reader = Recurrent | Transformer | Bert | Gpt | DeepSets
ENCLOSED = ("bert", "gpt")  # kinds that read START, the tokens, END


def network(model: Reader, size: int, longest: int) -> tuple[nn.Module, nn.Module]:
    """The embedding of a vocabulary of this size and the backbone; rows have at most `longest` tokens and two marks."""
    parts = model.model_dump(exclude={"kind", "language"})
    if isinstance(model, Recurrent):
        return bilstm(size, **parts)
    if isinstance(model, DeepSets):
        return deepsets(size, **parts)
    if isinstance(model, Gpt):
        return gpt(size, context=longest + 2, **parts)
    if isinstance(model, Bert):
        return bert(size, length=longest + 2, **parts)
    return encoder(size, length=longest + 2, **parts)


def limit(model: Reader, longest: int) -> int:
    """How many tokens are read at once: what a position table holds, otherwise somewhat more than in training."""
    table = isinstance(model, Bert) or getattr(model, "position", None) == "learned"
    return longest if table else 4 * longest
