"""The networks of outputs that make things: an encoder with a decoder, or a critic with a generator."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from regard.inputs.input import Input, Restores
from regard.layers.stem import Stem
from regard.models.decoders import decoder
from regard.models.encoders import encoder_of
from regard.models.sagan import CriticTrunk, Generator, bound, every_place
from regard.network import Network
from regard.outputs.imagine.codes import CodeHead, Reader
from regard.outputs.imagine.duel import AdversarialHead
from regard.outputs.imagine.settings import DenseKind, ImagineSettings, SaganKind


def encoding(config: ImagineSettings, input: Input[Any]) -> tuple[Input[Any], nn.Module, nn.Module]:
    """Return the input with the marks that the encoder wants, its stem and its backbone."""
    model = config.model
    assert not isinstance(model, SaganKind)
    dense = isinstance(model, DenseKind)
    stem, backbone = (Stem(model.width), nn.Identity()) if dense else encoder_of(model, config.data.longest)  # type: ignore[arg-type]
    input = input.marked(stem.marks)
    return input, input.module(stem), backbone


def vectors_of(config: ImagineSettings, input: Input[Any], row: tuple[int, ...]) -> int:
    """Return how many vectors the encoder makes of one thing: networks differ, so it is tried."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        try:
            marked, stem, backbone = encoding(config, input)
        except ValueError:  # of settings that do not go together; said where the model is built
            return 1
        blank = marked.collate([tuple(np.zeros(row, field.dtype) for field in input.fields[:1])])
        return int(backbone.eval()(stem.eval()(blank)).values.shape[1])


def coded(
    config: ImagineSettings, input: Input[Any], shape: tuple[int, ...], vectors: int
) -> tuple[Input[Any], Network]:
    """Return an encoder, and the head that makes codes of its states and things of codes."""
    model, how = config.model, config.output
    input, stem, backbone = encoding(config, input)
    assert isinstance(input, Restores)
    variational, shared = how.kind == "vae", how.sigma == "shared"
    assert not isinstance(model, SaganKind)
    hidden = [model.width] * model.layers if isinstance(model, DenseKind) else []
    read = Reader(vectors, model.width, hidden, how.latent * (2 if variational and not shared else 1), model.dropout)
    head = CodeHead(
        read,
        decoder(how.decoder, how.latent, shape, how.width),
        input.restore,
        input.distance,
        variational=variational,
        shared=shared,
        noise=how.noise * input.spread,
    )
    return input, Network(stem, backbone, head)


def adversarial(
    model: SaganKind, input: Input[Any], shape: tuple[int, ...], latent: int, classes: int
) -> tuple[Input[Any], Network]:
    """Return a critic, and the head in which a generator plays against it."""
    assert isinstance(input, Restores)
    *places, channels = shape
    stem = input.module(Stem(channels, pixels=every_place))
    bound(stem)
    trunk = CriticTrunk(channels, places, model.width, attention=model.attention)
    generator = Generator(latent, shape, model.width, classes, attention=model.attention)
    head = AdversarialHead(
        generator,
        trunk.width,
        latent,
        classes,
        input.restore,
        rates=(model.critic_rate, model.generator_rate),
        average=model.average,
    )
    return input, Network(stem, trunk, head)
