"""Pictures as an input: stored as 8-bit pixels of one size, varied at random in training, read as a grid of vectors."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from pydantic import Field as Setting
from torch import Tensor, nn

from regard.attention import Context
from regard.config import Section
from regard.data.box_forms import recognise_boxes
from regard.data.draws import Draws
from regard.data.format import Format
from regard.data.images import INPUT, recognise_images
from regard.data.pixels import ImageHandle, Pixels, decoded, fault_of, fitted, fitting, named, pixels_of, size_of
from regard.data.recognition import Files
from regard.data.store import Field
from regard.data.survey import Survey
from regard.errors import UserError
from regard.inputs import augmentation, picture_choices
from regard.inputs.augmentation import Variations
from regard.inputs.input import RESTORED, Chosen, Covers, Framed, Input, Opens, Restores, Row, Source, Use, Window
from regard.inspection.view import Coverable, View
from regard.layers.dropout import Dropout
from regard.layers.stem import Marks, Shape, Stem
from regard.models.vit import LinearPatches

STATISTICS = 2000  # pictures from which mean and deviation are learned
SENT_PIXELS = 2**24  # of an image that a stranger sends
LARGEST = 1024  # pixels of a side


class PictureSettings(Section):
    """Settings of the reading and the variation of pictures."""

    vocabulary: ClassVar[bool] = True  # a run that starts from another reads pictures as that one does

    size: int = Setting(32, ge=4, le=LARGEST, description="pixels of a side; every picture is brought to this size")
    channels: Literal[1, 3] = Setting(3, description="1: grey, 3: colour")
    patch: int = Setting(4, ge=1, le=256, description="pixels of a patch's side; a CNN has strides of its own")
    fit: Literal["crop", "pad", "squash"] = Setting(
        "crop", description="what is done to oblong pictures: cut to the middle, fill up, or stretch"
    )
    shift: float = Setting(0.0, ge=0, le=0.5, description="in training, moved by up to this share of a side")
    scale: float = Setting(0.0, ge=0, le=1, description="in training, made larger or smaller by up to this share")
    flip: bool = Setting(False, description="in training, half of the pictures are mirrored left to right")
    colour: float = Setting(0.0, ge=0, le=1, description="in training, brightness, contrast and colours change")
    erase: float = Setting(0.0, ge=0, le=1, description="in training, share of pictures with a part erased")


class LabelledPictureSettings(PictureSettings):
    """Pictures that are labelled whole."""

    mixup: float = Setting(
        0.0, ge=0, le=10, description="α of mixup: in training, pictures and labels are mixed; 0: not"
    )


class Patches(Input[ImageHandle], Opens, Framed, Restores[ImageHandle], Covers):
    """Pictures in: (size, size, channels) bytes, with the mean and deviation of each channel of the training data."""

    name = INPUT
    noun = "images"
    accepts = "image/*"
    offers: ClassVar[frozenset[str]] = frozenset(("a grid", RESTORED))

    def __init__(self, how: PictureSettings, mean: Sequence[float], deviation: Sequence[float]) -> None:
        self.how = how
        self.mean, self.deviation = [float(x) for x in mean], [float(x) for x in deviation]
        places = max(1, (how.size // how.patch) ** 2)
        self.fields = (Field("pixels", "|u1", (how.size, how.size, how.channels), places),)
        self.spread = 255 * float(np.mean(self.deviation))
        self.variations = Variations._make(getattr(how, name, 0) for name in Variations._fields)
        self.mixes = self.variations.mixup > 0

    @staticmethod
    def settings(use: Use) -> type[Section]:
        return LabelledPictureSettings if use is Use.LABEL else PictureSettings

    @staticmethod
    def files(use: Use) -> tuple[str, ...]:  # noqa: ARG004
        return ("pixels.json",)

    @classmethod
    def recognise(cls, files: Files, task: str | None) -> Format | None:
        boxes = recognise_boxes(files.paths, task)
        if boxes is not None or task == "detect":  # labels and captions are no boxes
            return boxes
        return recognise_images(files.paths, lambda: files.samples, task)

    @classmethod
    def choose(cls, seen: Survey, use: Use) -> Chosen:
        return picture_choices.choose(seen, use)

    @classmethod
    def learn(cls, how: PictureSettings, use: Use, sources: Sequence[ImageHandle], origin: Input[Any] | None) -> Self:
        del use
        if isinstance(origin, Patches) and origin.how.channels == how.channels:
            return cls(how, origin.mean, origin.deviation)
        some = [one for one in sources if one.path][:: max(1, len(sources) // STATISTICS)]
        pixels = (fitted(decoded(one, how.size), how.size, how.channels, how.fit) for one in some)
        return cls(how, *statistics_of(pixels, how.channels))

    @classmethod
    def load(cls, folder: Path, how: PictureSettings, use: Use, names: Mapping[str, str]) -> Self:
        del use
        return cls(how, *statistics_in(folder / names.get("pixels.json", "pixels.json"), how.channels))

    def contents(self) -> dict[str, bytes]:
        return {"pixels.json": statistics_as_json(self.mean, self.deviation)}

    # ---- from pictures to vectors -----------------------------------------------------------------------------------

    def read(self, line: str) -> ImageHandle:
        return named(line.strip())

    def open(self, content: bytes, media: str) -> ImageHandle:
        if not media.startswith(("image/", "application/octet-stream")):
            raise UserError("The media type does not fit this model, expected one of image/….")
        sent = ImageHandle("the image", content=content)
        fault = fault_of(sent)
        if fault:
            raise UserError(fault)
        if (count := pixels_of(sent)) > SENT_PIXELS:
            raise UserError(f"the image is too large: expected at most {SENT_PIXELS:,} pixels, found {count:,}.")
        return sent

    def sample(self) -> ImageHandle:
        file = io.BytesIO()
        Image.new("L", (16, 16), 128).save(file, "PNG")
        return self.open(file.getvalue(), "image/png")

    @staticmethod
    def unreadable(source: ImageHandle) -> str:
        return fault_of(source)

    def encode(self, sources: Sequence[ImageHandle]) -> list[Row]:
        return [(self._pixels(source),) for source in sources]

    def _pixels(self, source: ImageHandle) -> NDArray[np.uint8]:
        how = self.how
        if not source.path:
            return np.zeros((0, how.size, how.size, how.channels), np.uint8)
        return fitted(decoded(source, how.size), how.size, how.channels, how.fit)[None]

    def window(self, source: ImageHandle) -> Window:
        if not source.path:
            return Window(0, 0, 1, 1)
        rows, columns, _ = size_of(source)
        return Window(*fitting(rows, columns, self.how.fit))

    def units(self, row: Row) -> int:
        return len(row[0])

    def parts(self, row: Row, most: int) -> list[Row]:  # noqa: ARG002
        return [row] if len(row[0]) else []

    def collate(self, rows: Sequence[Row], extra: int = 0) -> Source:  # noqa: ARG002
        """Return pixels (batch, rows, columns, channels). All pictures have one size, so there is no padding."""
        size, channels = self.how.size, self.how.channels
        pixels = np.zeros((len(rows), size, size, channels), np.uint8)
        for i, row in enumerate(rows):
            if len(row[0]):
                pixels[i] = row[0][0]
        return Source((torch.from_numpy(pixels),), torch.arange((size // self.how.patch) ** 2))

    def vary(self, source: Source, draws: Draws) -> Source:
        count, how = len(draws.rows), self.variations
        if not any(how):
            return source
        pixels, change = augmentation.varied(source.values[0][:count], how, draws)
        if not self.mixes:
            return source._replace(values=(pixels,), change=change)
        others, _ = augmentation.varied(source.values[0][count:], how, replace(draws, seed=draws.seed ^ 0x6D6978))
        share = augmentation.shares(how.mixup, draws)
        mixed = share[:, None, None, None] * pixels + (1 - share[:, None, None, None]) * others
        return source._replace(values=(mixed,), change=change, shares=share)

    def module(self, stem: Stem) -> nn.Module:
        if stem.whole is not None:
            raise ValueError("images have no alphabet: choose another model.kind, such as vit, cnn or transformer")
        how = self.how
        shape = Shape(how.size, how.size, how.channels, how.patch, int(Marks.FIRST in self.marks))
        inner = SequencePatches(stem, shape) if stem.pixels is None else stem.pixels(shape)
        return PictureStem(inner, self.mean, self.deviation)

    def prepare(self, module: nn.Module, rows: Callable[[], Iterator[Row]]) -> None:
        """Nothing: the statistics were learned before."""

    def restore(self, values: Tensor) -> Tensor:
        """Return normalised values (…, channels) as numbers from 0 to 255: the inverse of the stem's normalisation.

        The gradient passes what is cut off: a number on the wrong side comes back, one on the right side has none.
        """
        mean, deviation = (torch.tensor(x, device=values.device) for x in (self.mean, self.deviation))
        pixels = (values * deviation + mean) * 255
        return pixels + (pixels.clamp(0, 255) - pixels).detach()

    def distance(self, values: Tensor, predicted: Tensor) -> Tensor:
        """Return the squared difference of each picture from a predicted one, in units of 255."""
        return ((values.to(predicted) - predicted) / 255).square().flatten(1).sum(1)

    def thing(self, values: NDArray[Any]) -> ImageHandle:
        pixels = np.clip(np.rint(values), 0, 255).astype(np.uint8)
        file = io.BytesIO()
        Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).save(file, "PNG")
        return ImageHandle("a new image", content=file.getvalue())

    def written(self, values: NDArray[Any]) -> dict[str, Any]:
        content = self.thing(values).content
        assert content is not None
        return {"media_type": "image/png", "content": base64.b64encode(content).decode()}

    # ---- for people -------------------------------------------------------------------------------------------------

    def view(self, source: ImageHandle) -> View:
        pixels = self._pixels(source)
        picture = np.broadcast_to(pixels[0], (*pixels.shape[1:3], 3)) if len(pixels) else None
        count = self.how.size // self.how.patch
        return View.of_picture(picture, (count, count), int(Marks.FIRST in self.marks))

    def coverable(self, source: ImageHandle, view: View) -> list[Coverable]:  # noqa: ARG002
        """Return the places of the network's grid."""
        return places_of(view)

    def cover(self, source: ImageHandle, view: View, part: Coverable) -> ImageHandle:
        """Return the picture with the mean colour of the training data at a place."""
        pixels = covered(self._pixels(source)[0], view, part, self.mean)
        file = io.BytesIO()
        Image.fromarray(pixels[..., 0] if self.how.channels == 1 else pixels).save(file, "PNG")
        return ImageHandle(str(source), content=file.getvalue())

    def text(self, source: ImageHandle) -> str:
        return str(source)

    def length(self, source: ImageHandle) -> int:
        """Return the number of pixels of the longer side."""
        return max(size_of(source)[:2]) if source.path else 0


def places_of(view: View) -> list[Coverable]:
    """Return the places of a picture that can be covered."""
    rows, columns = view.grid or (0, 0)
    first = len(view.names) - rows * columns
    return [Coverable(view.names[i], (i,)) for i in range(first, len(view.names))]


def covered(pixels: Pixels, view: View, part: Coverable, mean: Sequence[float]) -> Pixels:
    """Return a picture with the mean colour at a place."""
    assert view.grid is not None
    (rows, columns), found = view.grid, pixels.copy()
    row, column = divmod(part.vectors[0] - (len(view.names) - rows * columns), columns)
    down, across = (
        slice(n * side // of, (n + 1) * side // of)
        for n, of, side in zip((row, column), (rows, columns), pixels.shape[:2], strict=True)
    )
    found[down, across] = np.round(255 * np.asarray(mean))
    return found


def statistics_of(pictures: Iterable[Pixels], channels: int) -> tuple[list[float], list[float]]:
    """Return the mean and deviation of each channel, from 0 to 1; only one picture is held at a time."""
    total, squares, count = np.zeros(channels), np.zeros(channels), 0
    for picture in pictures:
        pixels = picture.reshape(-1, channels) / 255
        total, squares, count = total + pixels.sum(0), squares + (pixels**2).sum(0), count + len(pixels)
    mean = total / max(1, count)
    deviation = np.sqrt(np.maximum(squares / max(1, count) - mean**2, 0)) + 1e-3
    return mean.tolist(), deviation.tolist()


def statistics_as_json(mean: Sequence[float], deviation: Sequence[float]) -> bytes:
    """Return the mean and deviation of each channel as the content of a file."""
    found = {"mean": mean, "deviation": deviation}
    return json.dumps({name: [round(x, 6) for x in numbers] for name, numbers in found.items()}).encode()


def statistics_in(path: Path, channels: int) -> tuple[list[float], list[float]]:
    """Return the mean and deviation of each channel that a file holds."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        mean, deviation = ([float(x) for x in found[key]] for key in ("mean", "deviation"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is damaged ({error}): restore it, or train again.") from error
    if not len(mean) == len(deviation) == channels or not all(x > 0 for x in deviation):
        raise UserError(f"{path}: expected mean and deviation of {channels} channels: restore it.")
    return mean, deviation


class PictureStem(nn.Module):
    """(x / 255 − mean) / deviation of each channel, and what makes vectors of it."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, picture: nn.Module, mean: Sequence[float], deviation: Sequence[float]) -> None:
        super().__init__()
        self.picture = picture
        for name, numbers in (("mean", mean), ("deviation", deviation)):
            scaled = torch.tensor([255 * x for x in numbers])
            self.register_buffer(name, scaled, persistent=False)  # they are in pixels.json

    def forward(self, source: Source) -> Context:
        x = (source.values[0] - self.mean) / self.deviation
        context: Context = self.picture(x.permute(0, 3, 1, 2))
        return context


class SequencePatches(nn.Module):
    """Linear patches, row by row, for networks that read sequences; places are added as networks of texts do."""

    def __init__(self, stem: Stem, shape: Shape) -> None:
        super().__init__()
        if shape.rows % shape.patch or shape.columns % shape.patch:
            raise ValueError(f"patches.patch={shape.patch} must divide patches.size={shape.rows}")
        self.patches = LinearPatches(shape.channels, shape.patch, stem.width)
        self.place, self.dropout = stem.place, Dropout(stem.dropout)
        self.mark = nn.Parameter(torch.zeros(shape.marks, stem.width)) if shape.marks else None

    def forward(self, x: Tensor) -> Context:
        patch = self.patches.patch
        rows, columns = (side // patch for side in x.shape[2:])
        z: Tensor = self.patches(x)
        if self.mark is not None:
            z = torch.cat((self.mark.expand(z.shape[0], -1, -1), z), 1)
        where = torch.arange(z.shape[1], device=z.device)
        z = self.dropout(z if self.place is None else self.place(z, where))
        return Context(z, where, grid=(1, rows, columns), stride=(1, patch, patch))
