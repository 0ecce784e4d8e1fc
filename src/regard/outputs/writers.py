"""The networks that write a text on: their settings, and how these are chosen from a text."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from regard import config
from regard.config import Activation, Config, Dropout, Heads, Hidden, Layers, Level, Position, Section, Width
from regard.inputs.tokens import SUB_WORDS, choose_level
from regard.models.gpt import gpt
from regard.models.lstm import lstm
from regard.models.transformer_xl import transformer_xl
from regard.outputs.task import Survey
from regard.outputs.writer import Writer

FARTHER = 16  # times its context that ALiBi may read in writing: it stays good there (Press et al. 2022)


class Tokens(Section):
    level: Level = Field("characters", description="what a token is")
    lowercase: bool = Field(False, description="all in lower case")
    size: int | None = Field(None, ge=5, description="largest number of tokens of the vocabulary (sub-words and words)")
    context: int = Field(128, ge=2, le=10**6, description="tokens of a row of training; what GPT can look back on")


class Gpt(Layers):
    kind: Literal["gpt"] = Field("gpt", description="gpt, recurrent or transformer-xl")
    width: Width = 192
    hidden: Hidden = 768
    heads: Heads = 6
    position: Position = Field("learned", description="how positions come in")
    tied: bool = Field(True, description="the output layer is the embedding table")
    bias: bool = Field(True, description="the output layer has a bias; GPT-2's has none")
    activation: Activation = Field("gelu", description="inside the feed-forward parts; GPT-2 has gelu_tanh")


class Recurrent(Section):
    kind: Literal["recurrent"] = Field("recurrent", description="gpt, recurrent or transformer-xl")
    cell: Literal["lstm", "gru"] = Field("lstm", description="lstm or gru")
    layers: int = Field(1, ge=1, le=100, description="layers")
    width: int = Field(256, ge=2, le=65536, description="width of embeddings and states")
    dropout: Dropout = 0.1
    tied: bool = Field(True, description="the output layer is the embedding table")

    def parameters(self) -> int:
        return self.layers * (4 if self.cell == "lstm" else 3) * 2 * self.width**2


class TransformerXL(Layers):
    products: ClassVar[int] = 5

    kind: Literal["transformer-xl"] = Field("transformer-xl", description="gpt, recurrent or transformer-xl")
    width: Width = 192
    hidden: Hidden = 768
    heads: Heads = 6
    segment: int = Field(64, ge=1, le=10**6, description="tokens read at once; tokens.context holds several times that")
    memory: int = Field(
        64, ge=1, le=10**6, description="positions that each layer looks back, into earlier segments too"
    )
    tied: bool = Field(True, description="the output layer is the embedding table")


class Training(config.Training):
    smoothing: float = Field(0.0, ge=0, lt=1, description="label smoothing; perplexity measures unsmoothed ones")


class Decoding(Section):
    temperature: float = Field(0.8, gt=0, le=100, description="of drawing: below 1 is more certain")
    top_k: int | None = Field(None, ge=1, description="draw among the k most probable tokens; empty: all")
    top_p: float | None = Field(None, gt=0, le=1, description="draw among the most probable that make up p; empty: all")
    longest: int = Field(300, ge=1, le=10**6, description="tokens that are written after a text")


class Settings(Config):
    task: Literal["continue"] = Field("continue", description="what comes out: the text and what comes next")
    tokens: Tokens = Tokens()
    model: Annotated[Gpt | Recurrent | TransformerXL, Field(discriminator="kind")] = Gpt()
    training: Training = Training()
    decoding: Decoding = Decoding()

    @model_validator(mode="after")
    def _nothing_is_too_long(self) -> Self:
        """A text is cut into rows of the context and one more token: none of it is left out."""
        self.data.longest = max(self.data.longest, self.tokens.context + 1)
        return self

    def parameters(self) -> int:
        return self.model.parameters() + (self.tokens.size or 200) * self.model.width


def network(config: Settings, size: int) -> Writer:
    """The network of these settings for a vocabulary of this size."""
    parts: dict[str, Any] = config.model.model_dump(exclude={"kind", "tied", "segment", "bias"})
    context, tied = config.tokens.context, config.model.tied
    if isinstance(config.model, Gpt):
        window = context * (FARTHER if config.model.position == "alibi" else 1)
        return Writer(*gpt(size, context=context, **parts), tied=tied, bias=config.model.bias, window=window)
    if isinstance(config.model, Recurrent):
        return Writer(*lstm(size, **parts), tied=tied)
    # Each position looks back equally far, so that it does not matter how a text is cut into segments.
    return Writer(*transformer_xl(size, same_length=True, **parts), tied=tied, segment=config.model.segment)


def choose(seen: Survey) -> tuple[dict[str, Any], dict[str, str]]:
    """Settings for a text of this size, and the reason for each that was chosen."""
    characters = seen.count * sum(len(line) + 1 for line in seen.sources) / max(1, len(seen.sources))
    amount = f"about {characters / 1e6:.2g} million characters"
    tokens, why = _tokens(seen, characters)
    model, training = _sizes(characters)
    rows = training.pop("rows")
    training["budget"] = rows * (tokens["context"] + 1)
    reasons = {
        "tokens.level": why,
        "tokens.context": f"{tokens['context']} tokens: more cost more time than they gain on a CPU",
        "model.kind": "GPT: it learns all tokens of a row at once",
        "model.width": f"{amount}: width {model['width']}, layers {model['layers']}",
        "model.dropout": f"{amount}: {model['dropout']:g} of the numbers are dropped in training",
        "training.optimiser": "muon: in the same time a GPT learns more by it than by adamw",
        "training.budget": f"{rows} rows of {tokens['context']} tokens and the next",
    }
    return {"tokens": tokens, "model": model, "training": training}, reasons


def _tokens(seen: Survey, characters: float) -> tuple[dict[str, Any], str]:
    level, why = choose_level(seen.sources)
    size = None
    if level != "symbols" and characters < 5e6:
        level, why = "characters", "the text is short: its characters are learned, and kept exactly"
    elif level != "symbols":
        level, why = "bpe", "the text is long enough to learn sub-words from"
    if seen.level("level", level) in SUB_WORDS:
        size = 4_000 if characters < 5e7 else 8_000
    return {"level": level, "size": size, "context": 128}, why


def _sizes(characters: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """The model, and how it is trained: `rows` to a batch."""
    model: dict[str, Any] = {"kind": "gpt", "layers": 4, "width": 192, "hidden": 768, "heads": 6, "dropout": 0.1}
    model["bias"] = False  # as in GPT-2, so that it can be exported as one
    training: dict[str, Any] = {"rows": 16, "optimiser": "muon", "rate": 2e-3, "warmup": 200, "decay": 0.1}
    if characters < 2e5:
        model |= {"layers": 3, "width": 128, "hidden": 512, "heads": 4, "dropout": 0.3}
    if characters > 2e7:
        model |= {"width": 256, "hidden": 1024, "heads": 4, "dropout": 0.0}
    return model, training
