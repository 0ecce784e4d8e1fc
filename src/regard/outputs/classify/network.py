"""The network of outputs that answer a whole row: an encoder, a pool of its states, and one layer."""

from __future__ import annotations

from typing import Any

from regard.inputs.input import Input
from regard.layers.stem import Marks
from regard.models.encoders import encoder_of
from regard.models.settings import DeepSetsKind, GptEncoderKind, Kind, RecurrentLabelKind
from regard.network import Network
from regard.outputs.classify.head import ClassifyHead, Measure, pool
from regard.outputs.classify.settings import ClassifySettings


def pooled(config: ClassifySettings, input: Input[Any], answers: int, measure: Measure) -> tuple[Input[Any], Network]:
    """Return the network of these settings with so many numbers out, and the input with the marks that it wants."""
    model, how = config.model, config.output
    _refuse_blind(model, how.pooling)
    stem, backbone = encoder_of(model, config.data.longest)
    input = input.marked(stem.marks | (Marks.BOTH if how.pooling in ("first", "last") else Marks.NONE))
    language = language_of(model)
    if language and input.alphabet is None:
        raise ValueError("model.language predicts the next element of an alphabet, and this input has none")
    states = pool(how.pooling, model.width, how.forgetting)
    dropout = model.dropout if model.drops_last else 0.0
    head = ClassifyHead(states, model.width, answers, dropout=dropout, measure=measure, language=language)
    return input, Network(input.module(stem), backbone, head)


def terms_of(config: ClassifySettings) -> int:
    """Return how many terms the loss has."""
    return 2 if language_of(config.model) else 1


def language_of(model: Kind) -> float:
    """Return the weight of the auxiliary language-model loss."""
    return model.language if isinstance(model, GptEncoderKind | RecurrentLabelKind) else 0.0


def _refuse_blind(model: Kind, pooling: str) -> None:
    """Refuse a label that would come from one mark alone, because the network does not look from there at the text."""
    if isinstance(model, DeepSetsKind) and pooling in ("first", "last"):
        fitting, why = "attention, gate, mean or sum", "looks at each token alone"
    elif isinstance(model, GptEncoderKind | RecurrentLabelKind) and pooling == "first" and _looks_back(model):
        fitting, why = "last, attention, mean or sum", "only looks back"
    else:
        return
    raise ValueError(
        f"model.kind={model.kind} {why}, so output.pooling={pooling} would see nothing of a text, expected {fitting}"
    )


def _looks_back(model: GptEncoderKind | RecurrentLabelKind) -> bool:
    return isinstance(model, GptEncoderKind) or not (model.both_ways or model.heads)
