"""The settings of outputs that write on, and how these are chosen from the data."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from regard.config import Config, Section, Training
from regard.data.survey import Survey
from regard.inputs.input import Chosen
from regard.models.settings import GptKind, RecurrentLanguageKind, TransformerXLKind

LONG = 1024  # tokens of context from which on the full attention costs more than the rest of a small GPT
REACH = 256  # tokens that each looks back then in a layer
FARTHER = 16  # times its context that ALiBi may read in writing: it stays good there (Press et al. 2022)


class StreamSettings(Section):
    """Settings of the cut of a stream."""

    context: int = Field(128, ge=2, le=10**6, description="tokens of a row of training; what GPT can look back on")


class DrawSettings(Section):
    """Settings of sampling."""

    temperature: float = Field(0.8, gt=0, le=100, description="sampling temperature; below 1 is more certain")
    top_k: int | None = Field(None, ge=1, description="sample among the k most probable tokens; empty: all")
    top_p: float | None = Field(
        None, gt=0, le=1, description="sample among the most probable tokens that sum to p; empty: all"
    )
    longest: int = Field(300, ge=1, le=10**6, description="tokens that are written after a text")


class LanguageTraining(Training):
    """Perplexity measures probabilities that were not smoothed."""

    smoothing: float = Field(0.0, ge=0, lt=1, description="label smoothing; perplexity measures unsmoothed ones")


class ContinueSettings(Config):
    """All settings of a model that writes on."""

    task: Literal["continue"] = Field("continue", description="what comes out: the text and what comes next")
    model: Annotated[GptKind | RecurrentLanguageKind | TransformerXLKind, Field(discriminator="kind")] = GptKind()
    output: StreamSettings = StreamSettings()
    training: LanguageTraining = LanguageTraining()
    decoding: DrawSettings = DrawSettings()

    @model_validator(mode="after")
    def _nothing_is_too_long(self) -> Self:
        """A stream is cut into rows of the context and one more element: none of it is left out."""
        self.data.longest = max(self.data.longest, self.output.context + 1)
        return self


def choose(seen: Survey) -> Chosen:
    """Choose settings for a text of this size."""
    characters = seen.count * sum(len(line) + 1 for line in seen.sources) / max(1, len(seen.sources))
    amount = f"about {characters / 1e6:.2g} million characters"
    model, training = _sizes(characters)
    rows, context = training.pop("rows"), _context(seen)
    rows = max(1, rows * 128 // context)
    training["budget"] = rows * (context + 1)
    reasons = {
        "output.context": f"{context:,} tokens: more cost more time than they gain on a CPU",
        "model.kind": "GPT: it learns all tokens of a row at once",
        "model.width": f"{amount}: width {model['width']}, layers {model['layers']}",
        "model.dropout": f"{amount}: {model['dropout']:g} of the numbers are dropped in training",
        "training.optimiser": "muon: in the same time a GPT learns more by it than by adamw",
        "training.budget": f"{rows} row{'s' * (rows > 1)} of {context:,} tokens and the next",
    }
    if context >= LONG:
        model |= {"attention": "local", "reach": REACH, "position": "rotary"}
        reasons["output.context"] = f"{context:,} tokens, as given"
        reasons["model.attention"] = (
            f"local: each token looks {REACH} back in a layer, {model['layers'] * REACH:,} through all of them, which "
            f"costs about {context // (2 * REACH)} times less than {context:,}"
        )
        reasons["model.position"] = "rotary: positions are relative, so that a text can be of any length"
    return {"output": {"context": context}, "model": model, "training": training}, reasons


def _context(seen: Survey) -> int:
    """Return the context that was asked for, if it is a number that will not be refused, or the usual one."""
    given = seen.given.get("output.context", "")
    return int(given) if given.isdecimal() and 2 <= int(given) <= 10**6 else 128


def _sizes(characters: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the model, and how it is trained: `rows` to a batch."""
    model: dict[str, Any] = {"kind": "gpt", "layers": 4, "width": 192, "hidden": 768, "heads": 6, "dropout": 0.1}
    model["bias"] = False  # as in GPT-2, so that it can be exported as one
    training: dict[str, Any] = {"rows": 16, "optimiser": "muon", "rate": 2e-3, "warmup": 200, "decay": 0.1}
    if characters < 2e5:
        model |= {"layers": 3, "width": 128, "hidden": 512, "heads": 4, "dropout": 0.3}
    if characters > 2e7:
        model |= {"width": 256, "hidden": 1024, "heads": 4, "dropout": 0.0}
    return model, training
