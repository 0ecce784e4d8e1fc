"""The settings of outputs that label a whole row, or answer it with a number."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field as Setting

from regard.config import Config, Section
from regard.data.survey import Survey
from regard.inputs.input import Chosen
from regard.models.picture_settings import CnnKind, SwinKind, ViTKind
from regard.models.settings import (
    AlongEdges,
    BertKind,
    ConformerKind,
    ConvolutionEncoderKind,
    DeepSetsKind,
    GptEncoderKind,
    PyramidKind,
    RecurrentLabelKind,
    TransformerEncoderKind,
    WindowKind,
)
from regard.outputs.documents import are_documents, document_network, tokens_of

AnyEncoder = Annotated[
    RecurrentLabelKind
    | TransformerEncoderKind
    | ConvolutionEncoderKind
    | DeepSetsKind
    | BertKind
    | GptEncoderKind
    | ViTKind
    | CnnKind
    | SwinKind
    | ConformerKind
    | PyramidKind
    | WindowKind
    | AlongEdges,
    Setting(discriminator="kind"),
]


class PoolSettings(Section):
    """Settings of the answer, and of the pooling of a row's states; a run that starts from another pools as it does."""

    vocabulary: ClassVar[bool] = True

    kind: Literal["label", "number"] = Setting("label", description="what is answered: a label, or a number")
    metric: Literal["accuracy", "matthews", "f1"] = Setting(
        "accuracy", description="of labels: what training stops on, accuracy, matthews, or f1 of output.positive"
    )
    positive: str | None = Setting(None, description="the label of metric=f1; empty: the rarest of the training data")

    pooling: Literal["attention", "gate", "forgetting", "mean", "sum", "first", "last"] = Setting(
        "attention",
        description="how states become one: attention, gate, forgetting, mean, sum, or the first or last state alone",
    )
    forgetting: float = Setting(0.9, gt=0, le=1, description="share γ kept of each step by pooling=forgetting: γ^(n−i)")


class ClassifySettings(Config):
    """All settings of a model that labels."""

    task: Literal["classify"] = Setting("classify", description="what comes out: one label")
    model: AnyEncoder = RecurrentLabelKind()
    output: PoolSettings = PoolSettings()


def choose(seen: Survey, reading: dict[str, Any]) -> Chosen:
    """Choose settings for texts such as these."""
    few = seen.count < 20_000
    lengths = sorted(len(str(source).split()) for source in seen.sources)
    long = lengths[len(lengths) // 2] > 100
    model: dict[str, Any] = {"kind": "recurrent", "width": 128 if few else 256, "dropout": 0.5 if few else 0.3}
    if long:
        model = {"kind": "deepsets", "width": 256, "dropout": 0.5}
    kinds = len(set(seen.targets))
    reasons = {
        "model.kind": "half of the texts have more than 100 words: single words are enough, and fast to read"
        if long
        else "an LSTM learns labels of short texts from few examples better than a Transformer",
        "model.width": f"{seen.count:,} texts, {kinds} labels: width {model['width']}",
        "model.dropout": f"{seen.count:,} texts are {'few' if few else 'many'}: {model['dropout']}",
        "output.pooling": "a learned query weighs the words, so that `regard show` tells which ones decided",
    }
    training = {"budget": 1024 if few else 4096, "rate": 1e-3, "warmup": 100}
    if "level" in reading and are_documents(lengths := tokens_of(seen, reading["level"])):
        model, data, why = document_network(lengths)
        reasons |= why | {"model.width": f"{seen.count:,} texts, {kinds} labels: width {model['width']}"}
        return {"model": model, "training": training | {"budget": 8192}, "data": data}, reasons
    longest = 2 * max(128, max(map(len, seen.sources)) if reading.get("level") == "characters" else 256)
    return {"model": model, "training": training, "data": {"longest": min(longest, 2048)}}, reasons
