"""The settings of outputs that find things, and how these are chosen from pictures with boxes."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from regard.config import Config, Section
from regard.data.boxes import parsed
from regard.data.survey import Survey
from regard.inputs.input import Chosen
from regard.models.picture_settings import CnnKind, SwinKind, ViTKind
from regard.models.settings import DropoutRate, Heads, Hidden, Kind, Width

SPARE = 1.5  # times as many queries as the fullest picture has things


class DetrKind(Kind):
    """DETR: queries that ask a picture for things."""

    kind: Literal["detr"] = Field("detr", description="which network: queries over the features of a picture")
    layers: int = Field(3, ge=1, le=100, description="layers of the decoder")
    encoder_layers: int = Field(1, ge=0, le=100, description="Transformer layers over the features of the encoder")
    width: Width = 128
    hidden: Hidden = 256
    heads: Heads = 4
    dropout: DropoutRate = 0.1
    queries: int = Field(20, ge=1, le=10_000, description="things that may be found in a picture at most")
    anchors: bool = Field(True, description="queries are boxes that each layer refines; else learned vectors (DETR)")
    auxiliary: bool = Field(True, description="every layer of the decoder has the loss of the last one")
    denoising: int = Field(3, ge=0, le=100, description="groups of noised boxes that training restores; 0: none")
    box_noise: float = Field(0.4, ge=0, le=1, description="denoising: how far boxes are moved, in their sizes")
    label_noise: float = Field(0.2, ge=0, le=1, description="denoising: share of the classes that are replaced")
    repeats: int = Field(1, ge=1, le=100, description="queries that each thing is matched with; the best one answers")
    dense: float = Field(0.0, ge=0, le=100, description="weight of a loss that warms up the features; 0: none")

    @model_validator(mode="after")
    def _anchors_are_spoilt(self) -> Self:
        if self.denoising and not self.anchors:
            raise PydanticCustomError(
                "denoising", "denoising={n} adds noise to boxes, and anchors=false has none: set model.denoising=0",
                {"n": self.denoising},
            )  # fmt: skip
        return self

    def parameters(self) -> int:
        each = self.width**2 * 4 + 2 * self.width * self.hidden
        return self.encoder_layers * each + self.layers * (each + 4 * self.width**2)


class BoxSettings(Section):
    """Settings of the loss and of the answer."""

    label: float = Field(1.0, ge=0, le=100, description="weight of the classes, in the matching and in the loss")
    distance: float = Field(5.0, ge=0, le=100, description="the same of the distance |b − b'|₁ of boxes")
    overlap: float = Field(2.0, ge=0, le=100, description="the same of their generalised IoU")
    empty: float = Field(0.1, gt=0, le=1, description='weight of "no object" in the loss of the classes')
    threshold: float = Field(0.5, ge=0, le=1, description="probability from which a thing counts as found")


class DetectSettings(Config):
    """All settings of a model that finds things. `encoder` reads the picture."""

    task: Literal["detect"] = Field("detect", description="what comes out: boxes")
    encoder: Annotated[CnnKind | ViTKind | SwinKind, Field(discriminator="kind")] = ViTKind()
    model: DetrKind = DetrKind()
    output: BoxSettings = BoxSettings()


def choose(seen: Survey, reading: dict[str, Any]) -> Chosen:
    """Choose settings for pictures with boxes such as these."""
    counts = sorted(len(parsed(target)) for target in seen.targets)
    most, mean = counts[-1], sum(counts) / len(counts)
    queries = max(10, round(SPARE * most))
    few = seen.count < 2_000
    width = 64 if few else 96
    places = (reading.get("size", 64) // reading.get("patch", 8)) ** 2
    encoder = {"kind": "vit", "stem": "convolutional", "position": "sinusoidal", "layers": 2, "width": width}
    encoder |= {"hidden": 2 * width, "heads": 4, "dropout": 0.1 if few else 0.0}
    model: dict[str, Any] = {"kind": "detr", "layers": 3, "encoder_layers": 0, "width": width, "hidden": 2 * width}
    model |= {"heads": 4, "dropout": 0.1 if few else 0.0, "queries": queries, "dense": 1.0 if few else 0.0}
    if mean > 20:
        model["denoising"] = 1  # as many queries again as there are things
    training = {"budget": (8 if few else 32) * (places + round(mean)), "rate": 1e-3, "warmup": 100, "decay": 1e-4}
    reasons = {
        "model.queries": f"pictures have up to {most} things, {mean:.1f} on average: {queries} queries",
        "model.anchors": "queries that are boxes learn from few pictures; learned vectors (DETR) need thousands",
        "model.width": f"{seen.count:,} pictures: width {width}",
    }
    if few:
        reasons["model.dense"] = f"{seen.count:,} pictures are few: every place learns its class, too"
    return {
        "encoder": encoder,
        "model": model,
        "training": training,
        "data": {"longest": max(256, most, places)},
    }, reasons
