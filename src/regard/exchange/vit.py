"""ViT with a classifier (ViTForImageClassification): task `classify` on pictures."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.errors import UserError
from regard.exchange.folder import Facts
from regard.exchange.kind import RATE, Ids, PublishedKind, Tensors, by_layer, pick, refuse_parts, unless
from regard.inputs.input import Batch
from regard.inputs.patches import LabelledPictureSettings, Patches
from regard.network import Network
from regard.outputs.classify.output import Classify
from regard.runs.build import Parts
from regard.task import Task
from regard.text.classes import Classes

PREPROCESSOR = "preprocessor_config.json"
MARK, PLACES, PATCHES = "stem.picture.mark", "stem.picture.place.table", "stem.picture.patches.map.weight"
TOKEN, POSITIONS = "vit.embeddings.cls_token", "vit.embeddings.position_embeddings"
PROJECTION = "vit.embeddings.patch_embeddings.projection"
OUTSIDE = {
    "stem.picture.patches.map.bias": f"{PROJECTION}.bias",
    "backbone.norm.weight": "vit.layernorm.weight",
    "backbone.norm.bias": "vit.layernorm.bias",
    "head.output.weight": "classifier.weight",
    "head.output.bias": "classifier.bias",
}
INSIDE = {
    "attention.q_proj": "attention.attention.query",
    "attention.k_proj": "attention.attention.key",
    "attention.v_proj": "attention.attention.value",
    "attention.output_proj": "attention.output.dense",
    "around_attention.norm": "layernorm_before",
    "feed.inner": "intermediate.dense",
    "feed.outer": "output.dense",
    "around_feed.norm": "layernorm_after",
}
HALF = [0.5, 0.5, 0.5]


def canonical(facts: Facts, name: str) -> str | None:  # noqa: ARG001
    """Return the name of a tensor in published files, or None if labels are chosen without it."""
    return None if re.match(r"vit\.pooler\.|vit\.embeddings\.mask_token", name) else name


def names(layers: int) -> dict[str, str]:
    """Return the names of the tensors that are the same, ours to theirs."""
    return OUTSIDE | by_layer(layers, "backbone.layers", "vit.encoder.layer", INSIDE)


def parts(folder: Path, facts: Facts) -> Parts:
    """Read the labels, and the mean and deviation of each channel from the file beside it."""
    path, channels = folder / PREPROCESSOR, facts.number("num_channels", 3)
    beside = Facts.read(path) if path.is_file() else Facts({}, path)
    mean, deviation = (beside.get(key, HALF)[:channels] for key in ("image_mean", "image_std"))
    known = facts.get("id2label", {})
    try:
        labels = [str(known[str(number)]) for number in range(len(known))]
        reader = Patches(LabelledPictureSettings(**section(facts)), mean, deviation)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{facts.path}: labels or sizes cannot be read ({error}).") from error
    return reader, Classify(_classes(labels))


def _classes(labels: list[str]) -> Classes:
    """Return classes in this order; of labels with the same name, the later ones are numbered."""
    told: Counter[str] = Counter()
    ordered: Counter[str] = Counter()
    for number, label in enumerate(labels):
        told[label] += 1
        ordered[label if told[label] == 1 else f"{label} ({told[label]})"] = len(labels) - number
    return Classes.learn(ordered, " ", None)


def section(facts: Facts) -> dict[str, Any]:
    """Return the settings of the pictures that a config.json describes."""
    return {
        "size": facts.number("image_size", 224),
        "channels": facts.number("num_channels", 3),
        "patch": facts.number("patch_size", 16),
        "fit": "squash",
    }


def settings(facts: Facts, parts: Parts) -> dict[str, Any]:  # noqa: ARG001
    """Return the settings of a model that a config.json describes."""
    facts.demand("hidden_act", "gelu")
    facts.demand("qkv_bias", True)
    facts.demand("layer_norm_eps", 1e-12)
    pictures = section(facts)
    places = (pictures["size"] // pictures["patch"]) ** 2
    return {
        "data": {"longest": max(256, places)},
        "patches": pictures,
        "model": {
            "kind": "vit",
            "layers": facts.number("num_hidden_layers", 12),
            "width": facts.number("hidden_size", 768),
            "hidden": facts.number("intermediate_size", 3072),
            "heads": facts.number("num_attention_heads", 12),
            "dropout": facts.share("hidden_dropout_prob", 0.0),
        },
        "output": {"pooling": "first"},
        "training": {"rate": RATE, "smoothing": 0.0, "decay": 0.01, "budget": 16 * places},
    }


def refuse(config: Any) -> None:
    """Refuse what ViT cannot express."""
    architecture = KIND.architecture
    unless(config.model.kind == "vit", config, "model.kind", architecture, "it is another network")
    unless(config.model.stem == "linear", config, "model.stem", architecture, "its patches are mapped linearly")
    unless(config.model.position == "learned", config, "model.position", architecture, "its positions are learned")
    unless(config.model.norm == "pre", config, "model.norm", architecture, "it normalises before each part (pre)")
    refuse_parts(config, architecture)
    unless(config.output.pooling == "first", config, "output.pooling", architecture, "the class token is labelled")


def facts(config: Any, parts: Parts, network: Network) -> dict[str, Any]:  # noqa: ARG001
    """Return the config.json of a model."""
    model, output = config.model, parts[1]
    assert isinstance(output, Classify)
    labels = output.classes.names
    return {
        "model_type": "vit",
        "hidden_size": model.width,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "intermediate_size": model.hidden,
        "hidden_act": "gelu",
        "hidden_dropout_prob": model.dropout,
        "attention_probs_dropout_prob": 0.0,
        "layer_norm_eps": 1e-12,
        "qkv_bias": True,
        "image_size": config.patches.size,
        "patch_size": config.patches.patch,
        "num_channels": config.patches.channels,
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "label2id": {label: number for number, label in enumerate(labels)},
    }


def beside(config: Any, parts: Parts) -> dict[str, dict[str, Any]]:
    """Return the files about preprocessing."""
    reader = parts[0]
    assert isinstance(reader, Patches)
    size = {"height": config.patches.size, "width": config.patches.size}
    about = {"image_processor_type": "ViTImageProcessor", "do_resize": True, "size": size, "resample": 3}
    about |= {"do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True}
    return {PREPROCESSOR: about | {"image_mean": reader.mean, "image_std": reader.deviation}}


def ours(state: Tensors, config: Any, parts: Parts) -> Tensors:  # noqa: ARG001
    """Return the published weights as ours."""
    side = config.patches.size // config.patches.patch
    positions, width = state[POSITIONS][0], config.model.width
    return pick(state, [(theirs, own) for own, theirs in names(config.model.layers).items()]) | {
        MARK: state[TOKEN][0] + positions[:1],
        PLACES: positions[1:].reshape(side, side, width).clone(),
        PATCHES: state[f"{PROJECTION}.weight"].flatten(1),
    }


def theirs(state: Tensors, config: Any, parts: Parts) -> Tensors:  # noqa: ARG001
    """Return our weights as the published ones; the class token has all of its position in it."""
    pictures, width = config.patches, config.model.width
    places = state[PLACES].flatten(0, 1)
    nowhere = torch.zeros_like(places[:1])
    return pick(state, [*names(config.model.layers).items()]) | {
        TOKEN: state[MARK][None],
        POSITIONS: torch.cat((nowhere, places))[None],
        f"{PROJECTION}.weight": state[PATCHES].view(width, pictures.channels, pictures.patch, pictures.patch),
    }


def logits(task: Task, rows: Ids) -> Tensor:
    """Return the logits of pictures of noise, as many as there are rows."""
    field = task.input.fields[0]
    noise = torch.randint(0, 256, (len(rows), *field.shape), generator=torch.Generator().manual_seed(1))
    source = task.input.collate([(picture[None].numpy(),) for picture in noise])
    return task.network.scores(Batch(source, torch.zeros(len(rows), dtype=torch.long)))[:, 0]


KIND = PublishedKind(
    "ViTForImageClassification", "classify", canonical, parts, lambda _: (), settings, refuse, facts, ours, theirs,
    logits, input="patches", beside=beside,
)  # fmt: skip
