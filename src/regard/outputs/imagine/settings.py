"""The settings of models that make their input again, or something new of its kind."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field as Setting

from regard.config import Config, Section
from regard.data.survey import Survey
from regard.inputs.input import Chosen
from regard.models.picture_settings import CnnKind, SwinKind, ViTKind
from regard.models.settings import (
    ConvolutionEncoderKind,
    DropoutRate,
    Kind,
    RecurrentEncoderKind,
    TransformerEncoderKind,
)


class DenseKind(Kind):
    """A fully connected encoder: all vectors of the input side by side, and layers over them."""

    kind: Literal["dense"] = Setting("dense", description="which network: fully connected layers over all vectors")
    layers: int = Setting(2, ge=1, le=100, description="hidden layers")
    width: int = Setting(256, ge=2, le=65536, description="width of a hidden layer, and of the vectors before them")
    dropout: DropoutRate = 0.0

    def parameters(self) -> int:
        return self.layers * self.width**2


class SaganKind(Kind):
    """A Self-Attention GAN: a critic reads, and a generator plays against it."""

    kind: Literal["sagan"] = Setting("sagan", description="which network: a critic, and a generator against it")
    width: int = Setting(
        32, ge=8, le=4096, description="channels of the largest map; smaller ones have up to 4 times more"
    )
    attention: bool = Setting(True, description="a self-attention block in both, behind a factor that begins at 0")
    critic_rate: float = Setting(
        0.4, ge=0, le=100, description="learning rate of the critic, as a factor of training.rate"
    )
    generator_rate: float = Setting(0.1, ge=0, le=100, description="learning rate of the generator, likewise")
    conditional: bool = Setting(True, description="make things of a class, where the data has labels")
    average: float = Setting(0.999, ge=0, lt=1, description="decay of the moving average of the generator's weights")

    def parameters(self) -> int:
        return 400 * self.width**2


AnyMaker = Annotated[
    DenseKind
    | CnnKind
    | ViTKind
    | SwinKind
    | TransformerEncoderKind
    | ConvolutionEncoderKind
    | RecurrentEncoderKind
    | SaganKind,
    Setting(discriminator="kind"),
]


class CodeSettings(Section):
    """Settings of the code z, and of what is made of it."""

    vocabulary: ClassVar[bool] = True

    kind: Literal["vae", "autoencoder"] = Setting(
        "vae", description="of encoders: a variational autoencoder, or a plain one; a sagan is neither"
    )
    latent: int = Setting(16, ge=1, le=4096, description="numbers of a code z")
    sigma: Literal["own", "shared"] = Setting(
        "own", description="of a vae: σ of each number of each code, or one learned σ for all"
    )
    noise: float = Setting(
        0.0, ge=0, le=10, description="denoising: deviations of the noise added to what is read in training"
    )
    decoder: Literal["convolution", "dense"] = Setting("convolution", description="how a code becomes a thing again")
    width: int = Setting(32, ge=1, le=65536, description="channels of the decoder's last stage, or its hidden width")


class LossSettings(Section):
    """Settings of the loss of a VAE, (m/n) Σ (x − x̂)² + β Σ (μ² + σ² − log σ² − 1)."""

    beta: float | None = Setting(
        None,
        ge=0,
        le=1e6,
        description="β, beside (m/n) Σ (x − x̂)²; empty: m/n, so that both sums count alike",
    )
    rows: int | None = Setting(
        None, ge=1, description="n of the loss, the training rows; empty: counted by the training"
    )


class ImagineSettings(Config):
    """All settings of a model that makes new things."""

    task: Literal["imagine"] = Setting("imagine", description="what comes out: new data of the same kind")
    model: AnyMaker = DenseKind()
    output: CodeSettings = CodeSettings()
    loss: LossSettings = LossSettings()


def choose(seen: Survey, reading: dict[str, Any]) -> Chosen:
    """Choose settings for things such as these."""
    del reading
    few = seen.count < 2_000
    latent = 8 if few else 16
    why = {
        "model.kind": "every component is known to every other: fully connected layers read a thing of one length",
        "output.latent": f"{seen.count:,} examples: codes of {latent} numbers",
        "loss.beta": "both sums of the loss count alike: β is the share of the data in a batch",
    }
    training = {"rate": 1e-3, "warmup": 100, "budget": 2048, "clip": 100.0, "smoothing": 0.0}
    return {"model": {"kind": "dense"}, "output": {"latent": latent}, "training": training}, why
