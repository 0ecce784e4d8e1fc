"""The settings of outputs that convert, and how these are chosen from pairs."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from regard.config import Config, Section, Tables
from regard.data.example import counted
from regard.data.survey import Survey
from regard.inputs.input import Chosen
from regard.models.picture_settings import SourceEncoder, TellKind
from regard.models.settings import ConvolutionPair, OwnEncoder, RecurrentPair, TransformerPair
from regard.text import scripts
from regard.text.closed import WHOLE, closed_level
from regard.text.composed import decompose
from regard.text.tokenizer import SUB_WORDS, choose_level

Level = Literal["characters", "words", "symbols", "bpe", "unigram"]


class TargetSettings(Tables):
    """Settings of the cut of targets into tokens."""

    vocabulary: ClassVar[bool] = True

    level: Level = Field("characters", description="what a token of the target is")
    joint: bool = Field(False, description="one vocabulary for both sides")
    lowercase: bool | None = Field(None, description="targets in lower case; empty: as the sources are")
    size: int | None = Field(
        None, ge=5, description="largest number of tokens of the target's vocabulary; empty: as of the source's"
    )
    decomposed: bool = Field(
        False, description="composed characters are written as their parts; at the level of characters"
    )
    closed: bool = Field(False, description="targets are made of few words: exact match is the first metric")
    ctc: float = Field(0.0, ge=0, lt=1, description="share of the loss that is CTC's, of an auxiliary head; 0: none")
    metric: Literal["auto", "wer"] = Field("auto", description="auto: by the level; wer: word error rate, as of speech")

    def rows(self) -> int:
        return 0 if self.joint else self.size or 200


class SearchSettings(Section):
    """Settings of the search."""

    beam: int = Field(5, ge=1, le=1000, description="hypotheses kept by the search")
    length_penalty: float = Field(
        1.0, ge=0, le=10, description="length penalty: scores are divided by length to this power"
    )
    factor: float = Field(3.0, gt=0, le=1e6, description="an answer to n tokens has at most factor · (n + 3) + 3")
    longest: int = Field(256, ge=1, le=10**6, description="maximum number of tokens of an answer")
    ctc: float = Field(0.3, ge=0, le=1, description="weight of CTC's prefix scores in the search, where there is CTC")


class ConvertSettings(Config):
    """All settings of a model that converts. `encoder` may take the place of the model's own one."""

    task: Literal["convert"] = Field("convert", description="what comes out: a sequence")
    model: Annotated[TransformerPair | RecurrentPair | ConvolutionPair | TellKind, Field(discriminator="kind")] = (
        TransformerPair()
    )
    encoder: SourceEncoder = OwnEncoder()
    output: TargetSettings = TargetSettings()
    decoding: SearchSettings = SearchSettings()


def choose(seen: Survey, reading: dict[str, Any]) -> Chosen:
    """Choose settings for pairs such as these."""
    output, reasons = _target(seen, reading)
    count = seen.count
    if output.get("closed"):
        model, training, why = _for_closed(count)
    elif output["level"] == "bpe":
        model, training, why = _for_text(count)
    else:
        model, training, why = _for_strings(count)
    few = model["dropout"] > 0.2
    reasons |= {
        "model.kind": why,
        "model.width": f"{count:,} pairs: width {model['width']}, layers {model['layers']}",
        "model.dropout": f"{count:,} pairs are {'few' if few else 'many'}: {model['dropout']}",
    }
    if "level" not in reading:
        model.pop("ngrams", None)  # only an alphabet has runs that can be looked up
    if "ngrams" in model:
        reasons["model.ngrams"] = f"{count:,} pairs show many runs of up to {model['ngrams']} letters often"
    if "steps" in training:
        reasons["training.steps"] = f"enough for {counted(count, 'pair')}; --steps changes it"
    return {"output": output, "model": model, "training": training}, reasons


def _target(seen: Survey, reading: dict[str, Any]) -> Chosen:
    """Choose how targets are cut, and how large the vocabularies of both sides are."""
    level, why = choose_level(seen.targets)
    whole = level != "symbols" and seen.given.get("output.level", "words") in WHOLE
    few = closed_level(seen.targets) if whole else None
    level, why = few or (level, why)
    source = reading.get("level")
    used = [seen.given.get("tokens.level", source or ""), seen.given.get("output.level", level)]
    joint = source == level == "bpe" and used[0] == used[1] and used[0] in SUB_WORDS
    reasons = {"output.level": why}
    output: dict[str, Any] = {"level": level, "joint": joint}
    if used[1] == "characters" and (parts := decompose(seen.targets)):
        output["decomposed"] = True
        reasons["output.decomposed"] = parts
    if few:
        output["closed"] = True
        reasons["output.closed"] = "few words: an answer is right or wrong, so training stops on exact match"
    if {*used} & {*SUB_WORDS} and "words" not in used:  # of which there may be many more
        texts = [*(seen.sources if source else ()), *seen.targets]
        words = len({word for text in texts[:100_000] for word in scripts.parts(text)})
        size = 4_000 if seen.count < 10_000 else 8_000 if seen.count < 300_000 else 16_000
        size = min(size, max(300, words))
        why_size = f"{size:,} sub-words: enough for {seen.count:,} pairs to show each of them often"
        if source:  # the vocabulary of the targets is as large as that of the sources
            reading["size"] = size
            reasons["tokens.size"] = why_size
        else:
            output["size"] = size
            reasons["output.size"] = why_size
    if joint:
        reasons["output.joint"] = "both sides are running text: names and numbers are written the same on both"
    return output, reasons


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


def _for_closed(count: int) -> tuple[dict[str, Any], dict[str, Any], str]:
    # Commands over nineteen words, 10 minutes of one core: an LSTM reads nearly all new ones, a Transformer half.
    model: dict[str, Any] = {"kind": "recurrent", "cell": "lstm", "layers": 1, "attention": "additive", "feeding": True}
    model |= {"width": 128, "dropout": 0.3 if count < 2_000 else 0.1}
    training = {"budget": 1024 if count < 2_000 else 4096, "rate": 3e-3, "warmup": 200, "smoothing": 0.0}
    return model, training, "few words in fixed patterns: an LSTM with attention learns them in less time"


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
    model = {"kind": "recurrent", "cell": "lstm", "layers": 1, "attention": "additive"}
    model |= {"width": 128 if count < 2_000 else 192, "dropout": 0.4}
    # A rate that stays high and the mean of many checkpoints generalise better here than a rate that ends at zero.
    training = {"budget": 2048, "rate": 3e-3, "warmup": 400, "schedule": "inverse_sqrt", "average": 10}
    if count < 2_000:  # small batches generalise better: of 800 words 27 % are wrong in place of 30 %
        training |= {"budget": 512, "steps": 4000}
    return model, training, "few short strings: an LSTM with attention learns more from them than a Transformer"
