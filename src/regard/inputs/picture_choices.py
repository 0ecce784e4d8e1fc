"""The settings that fit pictures: their size and patches, how they are varied, and the network that reads them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import Any

import numpy as np

from regard.data.pixels import ImageHandle, decoded, size_of
from regard.data.survey import Survey
from regard.inputs.input import Chosen, Use
from regard.text.scripts import mostly_unspaced

LARGEST = 96  # pixels of a side that a laptop trains on
LARGEST_FOUND = 160  # … where things are to be found in a picture
LOOKED_AT = 300  # pictures
OFTEN = 5  # times that a word is seen
RUN = 4  # words of the longest runs that BLEU counts: texts without any have 0, however good they are
GREY = 6  # a picture whose channels differ less is grey, whatever its mode says


def choose(seen: Survey, use: Use) -> Chosen:
    """Choose settings for pictures such as these, labelled or described."""
    sources = [one for one in seen.sources if one.path]
    side, oblong, colour = typical(sources)
    if use is Use.PLACES:
        return _to_find(side, oblong, colour)
    size = size_for(side)
    patch = next(p for p in (4, 8, 2, 6, 7, 3, 5, 1, size) if size % p == 0 and size // p <= 14)
    photographs = colour and side >= 64
    labels = use is Use.LABEL
    section: dict[str, Any] = {
        "size": size,
        "channels": 3 if colour else 1,
        "patch": patch,
        "fit": "crop" if oblong < 1.6 else "pad",
        "shift": 0.0 if use is Use.SELF else 0.08,
        "scale": 0.0 if use is Use.SELF else 0.1,
        "flip": photographs and labels,
        "colour": 0.2 if colour and labels else 0.0,
        "erase": 0.25 if labels and seen.count < 100_000 else 0.0,
    }
    what = "photographs in colour" if photographs else "small pictures or drawings"
    reasons = {
        "patches.size": f"half of the pictures have a shorter side of {side:g} pixels or more: {size} are read",
        "patches.channels": "most pictures are in colour" if colour else "the pictures are grey",
        "patches.patch": f"{(size // patch) ** 2} patches of {patch} × {patch} pixels",
        "patches.flip": f"{what}: {'mirrored at random' if section['flip'] else 'left and right may matter'}",
        "patches.shift": "every picture is moved and scaled a little at random, anew in each epoch",
        **({} if use is Use.SELF else _of_variations(section, labels=labels)),
    }
    if use is Use.SELF:
        reasons["patches.shift"] = reasons["patches.flip"] = "what is made again is made as it is"
        return {"patches": section | {"flip": False}, **_to_make(size, patch)}, reasons
    sections, why = (_to_label if labels else _to_describe)(seen, size, patch)
    return {"patches": section, **sections}, reasons | why


def _of_variations(section: dict[str, Any], *, labels: bool) -> dict[str, str]:
    """Return why colours are changed and parts erased, or not."""
    if not labels:
        return {"patches.colour": "0, and nothing is erased: captions name colours and parts"}
    colour, erase = section["colour"], section["erase"]
    return {
        "patches.colour": f"up to {colour:g}: light is no class" if colour else "0: grey pictures keep their shades",
        "patches.erase": f"a part of {100 * erase:.0f} % of the pictures is erased at random, anew in each epoch"
        if erase
        else "0: there are enough pictures",
        "patches.mixup": "0: pictures and their labels are not mixed; --set patches.mixup=0.2 mixes them",
    }


def size_for(side: float, largest: int = LARGEST) -> int:
    """Return the size to read pictures of a usual shorter side at: as they are if they are small."""
    if side <= largest and side % 4 == 0:
        return int(side)
    return int(max(8, min(largest, side) // 8 * 8))


def _to_find(side: float, oblong: float, colour: bool) -> Chosen:
    """Choose how pictures are read in which things are to be found: whole, with room for small things."""
    size = size_for(side, LARGEST_FOUND)
    patch = next(p for p in (8, 4, 2, 1) if (size % p == 0 and size // p >= 8) or p == 1)
    section: dict[str, Any] = {
        "size": size,
        "channels": 3 if colour else 1,
        "patch": patch,
        "fit": "squash" if oblong < 1.6 else "pad",
    }
    section |= {"shift": 0.1, "scale": 0.2, "flip": True, "colour": 0.2 if colour else 0.0}
    reasons = {
        "patches.size": f"half of the pictures have a shorter side of {side:g} pixels or more: {size} are read",
        "patches.fit": "things may be anywhere, so that nothing is cut off",
        "patches.flip": "mirrored at random, with their boxes; flip=false where left and right matter",
        "patches.patch": f"{(size // patch) ** 2} places of {patch} × {patch} pixels",
    }
    return {"patches": section}, reasons


def typical(sources: Sequence[ImageHandle]) -> tuple[float, float, bool]:
    """Return the usual shorter side of some pictures, how oblong they are, and whether they are in colour."""
    some = sources[:: max(1, len(sources) // LOOKED_AT)]
    found = [size_of(one) for one in some]
    side = median(min(rows, columns) for rows, columns, _ in found)
    oblong = median(max(rows, columns) / min(rows, columns) for rows, columns, _ in found)
    coloured = [one for one, (_, _, channels) in zip(some, found, strict=True) if channels == 3]
    if 2 * len(coloured) <= len(found):
        return side, oblong, False
    look = [decoded(one, 32) for one in coloured[:: max(1, len(coloured) // 30)]]
    differ = [float(np.ptp(pixels.astype(np.int16), axis=2).mean()) for pixels in look]
    return side, oblong, max(differ) > GREY


def _stages(size: int) -> int:
    """Return how many stages bring a side to between 6 and 12 places."""
    stages = 1
    while size / 2 ** (stages - 1) > 12:
        stages += 1
    return stages


def _to_label(seen: Survey, size: int, patch: int) -> Chosen:
    count = seen.count
    training: dict[str, Any] = {"rate": 1e-3, "warmup": 200, "decay": 0.05, "budget": 64 * (size // patch) ** 2}
    data = {"longest": max(256, (size // patch) ** 2)}
    if count < 20_000:
        width = 64 if count < 3_000 else 128
        model: dict[str, Any] = {"kind": "cnn", "residual": True, "layers": 1 if count < 3_000 else 2, "width": width}
        model |= {"stages": _stages(size), "dropout": 0.3 if count < 3_000 else 0.2}
        why = f"{count:,} pictures are few: convolutions learn more from them than a Transformer"
        training["warmup"] = 100
        training["budget"] = 32 * (size // patch) ** 2
    else:
        model = {"kind": "vit", "stem": "pairs", "layers": 6, "width": 96, "hidden": 192, "heads": 4}
        model |= {"dropout": 0.1}
        if patch & (patch - 1):
            model["stem"] = "linear"
        why = f"{count:,} pictures are enough for a Transformer whose first steps are convolutions"
    sections = {"model": model, "training": training, "data": data, "output": {"pooling": "attention"}}
    return sections, {"model.kind": why, "model.width": f"{count:,} pictures: width {model['width']}"}


def _to_make(size: int, patch: int) -> dict[str, Any]:
    model = {"kind": "cnn", "layers": 1, "stages": _stages(size), "width": 64, "dropout": 0.0}
    places = (size // patch) ** 2
    return {"model": model, "training": {"budget": 128 * (places + 1)}, "data": {"longest": max(256, places)}}


def _to_describe(seen: Survey, size: int, patch: int) -> Chosen:
    count = seen.count
    width = 128
    encoder = {"kind": "cnn", "residual": True, "layers": 1, "stages": _stages(size), "width": width, "dropout": 0.1}
    model = {"kind": "transformer", "layers": 2, "width": width, "hidden": 2 * width, "heads": 4}
    model["dropout"] = 0.3 if count < 5_000 else 0.1
    training = {"budget": 64 * ((size // patch) ** 2 + 12), "rate": 1e-3, "warmup": 200, "optimiser": "adamw"}
    sections: dict[str, Any] = {"encoder": encoder, "model": model, "training": training}
    words, why = words_of(seen)
    sections |= words
    sections["data"] = {"longest": max(256, (size // patch) ** 2)}
    return sections, {
        **why,
        "encoder.kind": "convolutions read the picture; the decoder looks at their map, a vector for each place",
        "model.kind": "a Transformer writes the captions",
        "model.width": f"{count:,} captions: width {width}",
    }


def words_of(seen: Survey) -> Chosen:
    """Choose to write captions word by word where most words recur, and exact match as the metric of short ones."""
    if mostly_unspaced(seen.targets) or not _recurring(seen.targets):
        return {}, {}
    why = {"output.level": "most words of the captions recur: they are written word by word"}
    short = median(len(caption.split()) for caption in seen.targets) < RUN
    if short:
        why["output.closed"] = f"half of the captions have less than {RUN} words, too few for BLEU: exact match decides"
    return {"output": {"level": "words", "closed": short}}, why


def _recurring(captions: Sequence[str]) -> bool:
    """Return True if nearly all words of captions are seen often enough to be learned."""
    words = Counter(word for caption in captions for word in caption.lower().split())
    return sum(n for n in words.values() if n >= OFTEN) >= 0.95 * sum(words.values())
