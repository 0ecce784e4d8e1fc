"""The networks that convert: their settings, and how these are chosen from pairs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from regard.config import Config, Level, Recurrent, Section, Transformer
from regard.inputs.scripts import parts
from regard.inputs.tokens import SUB_WORDS, choose_level
from regard.models.bahdanau import recurrent
from regard.models.transformer import transformer
from regard.outputs.converter import Converter
from regard.outputs.task import Survey


class Tokens(Section):
    source_level: Level = Field("characters", description="what a source token is")
    target_level: Level = Field("characters", description="what a target token is")
    joint: bool = Field(False, description="one vocabulary for both sides")
    lowercase: bool = Field(False, description="both sides in lower case")
    size: int | None = Field(None, ge=5, description="largest number of tokens of a vocabulary (sub-words and words)")


class Decoding(Section):
    beam: int = Field(5, ge=1, le=1000, description="hypotheses kept by the search")
    length_penalty: float = Field(1.0, ge=0, le=10, description="score ÷ length to this power")
    factor: float = Field(3.0, gt=0, le=1e6, description="an answer to n tokens has at most factor · (n + 3) + 3")
    longest: int = Field(256, ge=1, le=10**6, description="most tokens of an answer in any case")


class Settings(Config):
    task: Literal["convert"] = Field("convert", description="what comes out: a sequence")
    tokens: Tokens = Tokens()
    model: Annotated[Transformer | Recurrent, Field(discriminator="kind")] = Transformer()
    decoding: Decoding = Decoding()

    def parameters(self) -> int:
        model, size = self.model, self.tokens.size or 200
        if isinstance(model, Transformer):
            layers = model.layers * (12 * model.width**2 + 4 * model.width * model.hidden)
        else:
            gates = 4 if model.cell == "lstm" else 3
            layers = model.width**2 * ((8 * model.layers - 1) * gates + 12)
        rows = (1 if self.tokens.joint else 2) * size + (model.buckets if model.ngrams > 1 else 0)
        return layers + rows * model.width


def design(config: Settings, source: int, target: int) -> Converter:
    """The network of these settings, for vocabularies of these sizes."""
    given: dict[str, Any] = config.model.model_dump(exclude={"kind"}) | {"joint": config.tokens.joint}
    if isinstance(config.model, Transformer):
        return transformer(source, target, length=2 + max(config.data.longest, config.decoding.longest), **given)
    return recurrent(source, target, **given)


def choose(seen: Survey) -> tuple[dict[str, Any], dict[str, str]]:
    """Settings for pairs such as these, and the reason for each that was chosen."""
    tokens, reasons = _tokens(seen)
    count = seen.count
    model, training, why = _for_text(count) if tokens["target_level"] == "bpe" else _for_strings(count)
    few = model["dropout"] > 0.2
    reasons |= {
        "model.kind": why,
        "model.width": f"{count:,} pairs: width {model['width']}, layers {model['layers']}",
        "model.dropout": f"{count:,} pairs are {'few: much' if few else 'many: little'} is dropped in training",
    }
    if "ngrams" in model:
        reasons["model.ngrams"] = f"{count:,} pairs show many runs of up to {model['ngrams']} letters often"
    if "steps" in training:
        reasons["training.steps"] = f"{count:,} pairs are learned by then; --steps gives it more or less"
    return {"tokens": tokens, "model": model, "training": training}, reasons


def _tokens(seen: Survey) -> tuple[dict[str, Any], dict[str, str]]:
    (source, source_why), (target, target_why) = choose_level(seen.sources), choose_level(seen.targets)
    used = [seen.level("source_level", source), seen.level("target_level", target)]
    joint = source == target == "bpe" and used[0] == used[1] and used[0] in SUB_WORDS
    words = len({word for text in (seen.sources + seen.targets)[:100_000] for word in parts(text)})
    size = None
    reasons = {"tokens.source_level": source_why, "tokens.target_level": target_why}
    if {*used} & {*SUB_WORDS} and "words" not in used:  # of which there may be many more
        size = 4_000 if seen.count < 10_000 else 8_000 if seen.count < 300_000 else 16_000
        size = min(size, max(300, words))
        reasons["tokens.size"] = f"{size:,} sub-words: enough for {seen.count:,} pairs to show each of them often"
    if joint:
        reasons["tokens.joint"] = "both sides are running text: names and numbers are written the same on both"
    return {"source_level": source, "target_level": target, "joint": joint, "size": size}, reasons


def _for_text(count: int) -> tuple[dict[str, Any], dict[str, Any], str]:
    # In the minutes of a first training a small model sees the text more often, and gets further, than a large one.
    model: dict[str, Any] = {"kind": "transformer", "layers": 4, "width": 128, "hidden": 512, "heads": 4}
    if count < 20_000:
        model |= {"layers": 2 if count < 5_000 else 4, "dropout": 0.3}
    elif count < 300_000:
        model |= {"dropout": 0.1}
    else:
        model |= {"width": 256, "hidden": 1024, "dropout": 0.1}
    training = {"budget": 4096, "optimiser": "muon", "rate": 4e-3, "warmup": 300}
    return model, training, "running text: a Transformer translates it best"


def _for_strings(count: int) -> tuple[dict[str, Any], dict[str, Any], str]:
    model: dict[str, Any]
    training: dict[str, Any]
    if count >= 20_000:
        model = {"kind": "transformer", "layers": 3, "width": 128, "hidden": 512, "heads": 4}
        model["dropout"] = 0.1 if count < 60_000 else 0.05  # 100,000 are seen eight times in the minutes of a training
        # What a letter sounds like hangs on its neighbours, not on its place in the word.
        model |= {"position": "rotary", "ngrams": 5}
        training = {"budget": 4096, "optimiser": "muon", "rate": 4e-3, "warmup": 200, "average": 10}
        return model, training, "many short strings: a Transformer learns them in less time than an LSTM"
    model = {"kind": "recurrent", "cell": "lstm", "layers": 1, "attention": "additive", "feeding": True}
    model |= {"width": 128 if count < 2_000 else 192, "dropout": 0.4}
    # A rate that stays high and the mean of many checkpoints generalise better here than a rate that ends at zero.
    training = {"budget": 2048, "rate": 3e-3, "warmup": 400, "schedule": "inverse_sqrt", "average": 10}
    if count < 2_000:  # small batches generalise better: of 800 words 27 % are wrong in place of 30 %
        training |= {"budget": 512, "steps": 4000}
    return model, training, "few short strings: an LSTM with attention learns more from them than a Transformer"
