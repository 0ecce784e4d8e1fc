"""The settings of networks that read pictures."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from regard.models.settings import (
    AlongEdges,
    BertKind,
    ConformerKind,
    ConvolutionEncoderKind,
    DeepSetsKind,
    DropoutRate,
    Equation,
    Heads,
    Hidden,
    Kind,
    OwnEncoder,
    PyramidKind,
    RecurrentEncoderKind,
    TransformerEncoderKind,
    Width,
    WindowKind,
)


class ViTKind(Equation):
    """A Vision Transformer: patches as a sequence."""

    kind: Literal["vit"] = Field("vit", description="which network: patches, then a Transformer")
    layers: int = Field(6, ge=1, le=1000, description="layers of the encoder")
    width: Width = 128
    hidden: Hidden = 256
    position: Literal["learned", "sinusoidal", "none"] = Field(
        "learned", description="how places come in: a learned grid, or sinusoids of rows and columns"
    )
    stem: Literal["linear", "convolutional", "pairs"] = Field(
        "linear",
        description="how a patch becomes a vector: a linear map, a few 3 × 3 convolutions, or pairs of them",
    )


class CnnKind(Kind):
    """A convolutional network."""

    kind: Literal["cnn"] = Field("cnn", description="which network: convolutions")
    layers: int = Field(2, ge=1, le=100, description="convolutions (or residual blocks) of a stage")
    stages: int = Field(3, ge=1, le=10, description="stages; each has half the rows and columns of the one before")
    width: int = Field(128, ge=2, le=65536, description="channels of the last stage; the one before has half as many")
    residual: bool = Field(False, description="residual blocks of two convolutions each")
    norm: Literal["group", "batch"] = Field(
        "group", description="GroupNorm; BatchNorm couples the rows of a batch, also over processes"
    )
    dropout: DropoutRate = 0.1

    def parameters(self) -> int:
        return 12 * self.layers * (2 if self.residual else 1) * self.width**2


class SwinKind(Kind):
    """Swin: windows, shifted in every other layer, and fewer, wider vectors from stage to stage."""

    kind: Literal["swin"] = Field("swin", description="which network: windows")
    layers: int = Field(2, ge=1, le=1000, description="layers of a stage, unless depths has others")
    stages: int = Field(2, ge=1, le=10, description="stages; each joins 2 × 2 vectors of the one before")
    depths: list[int] = Field([], description="layers of each stage; empty: `layers` in each of `stages`")
    width: int = Field(128, ge=2, le=65536, description="width of the last stage; the one before has half of it")
    hidden: Hidden = 256
    heads: Heads = 4
    window: int = Field(7, ge=1, le=1000, description="places of a window's side")
    dropout: DropoutRate = 0.1

    def parameters(self) -> int:
        return sum(self.depths or [self.layers] * self.stages) * (4 * self.width**2 + 2 * self.width * self.hidden)


class TellKind(Kind):
    """Show, Attend and Tell: an LSTM that looks before it writes each word."""

    kind: Literal["show-attend-tell"] = Field("show-attend-tell", description="an LSTM that looks, then writes a word")
    width: int = Field(256, ge=2, le=65536, description="width of embeddings and states")
    gated: bool = Field(True, description="a gate decides at each word how much of the input matters")
    penalty: float = Field(
        1.0, ge=0, le=100, description="λ of the doubly stochastic penalty: every place is looked at some time; 0: none"
    )
    dropout: DropoutRate = 0.3
    tied: bool = Field(False, description="the output layer is the target's embedding table")

    def parameters(self) -> int:
        return 20 * self.width**2


# What reads the input in place of a model's own encoder.
SourceEncoder = Annotated[
    OwnEncoder
    | RecurrentEncoderKind
    | TransformerEncoderKind
    | ConvolutionEncoderKind
    | ConformerKind
    | PyramidKind
    | WindowKind
    | BertKind
    | DeepSetsKind
    | ViTKind
    | CnnKind
    | SwinKind
    | AlongEdges,
    Field(discriminator="kind"),
]
