"""The networks that read a row for labels: from the settings of each kind to its stem and backbone."""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from regard.layers.stem import Marks, Stem
from regard.models.bert import bert
from regard.models.cnn import cnn
from regard.models.convolution import convolution
from regard.models.encoder import deepsets, encoder
from regard.models.gpt import gpt
from regard.models.graph import gat, gcn, graph_convolution
from regard.models.lstm import bilstm
from regard.models.picture_settings import CnnKind, SwinKind, ViTKind
from regard.models.settings import (
    AlongEdges,
    BertKind,
    ConformerKind,
    ConvolutionEncoderKind,
    DeepSetsKind,
    GatKind,
    Gatv2Kind,
    GcnKind,
    GptEncoderKind,
    GraphConvolutionKind,
    PyramidKind,
    RecurrentEncoderKind,
    TransformerEncoderKind,
    WindowKind,
)
from regard.models.speech import conformer, neighbours, pyramid
from regard.models.swin import swin
from regard.models.vit import vit

Encoding = (
    RecurrentEncoderKind
    | TransformerEncoderKind
    | BertKind
    | GptEncoderKind
    | ConvolutionEncoderKind
    | DeepSetsKind
    | ViTKind
    | CnnKind
    | SwinKind
    | ConformerKind
    | PyramidKind
    | WindowKind
    | AlongEdges
)


def encoder_of(model: Encoding, longest: int) -> tuple[Stem, nn.Module]:
    """Build the network of these settings; rows have at most `longest` elements and two marks."""
    parts = model.model_dump(exclude={"kind", "language"})
    if isinstance(model, PyramidKind):
        return pyramid(**parts)
    if isinstance(model, WindowKind):
        return neighbours(**parts)
    if isinstance(model, ConformerKind):
        del parts["norm"]
        return conformer(length=longest + 2, **parts)
    if isinstance(model, RecurrentEncoderKind):
        return bilstm(**parts)
    if isinstance(model, ViTKind):
        return vit(length=longest + 2, **parts)
    if isinstance(model, CnnKind):
        return cnn(**parts)
    if isinstance(model, SwinKind):
        return swin(**parts)
    if isinstance(model, ConvolutionEncoderKind):
        return convolution(length=longest + 2, **parts)
    if isinstance(model, GatKind):
        return gat(**parts, dynamic=isinstance(model, Gatv2Kind))
    if isinstance(model, GcnKind):
        return gcn(**parts)
    if isinstance(model, GraphConvolutionKind):
        return graph_convolution(**parts)
    if isinstance(model, DeepSetsKind):
        return deepsets(**parts)
    if isinstance(model, GptEncoderKind):
        stem, backbone = gpt(context=longest + 2, **parts)
        return replace(stem, marks=Marks.BOTH), backbone  # START, the elements, END, whose state has read all of them
    if isinstance(model, BertKind):
        return bert(length=longest + 2, **parts)
    return encoder(length=longest + 2, **parts)
