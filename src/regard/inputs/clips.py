"""Clips as an input: frames of one size, stored as 8-bit pixels and read side by side, as a film strip.

    z_(t, r, c) = patches(x_t)_(r, c) + p_t

Every frame is read as a picture is; p_t says which frame it was. The vectors stand in the order of the strip, row by
row through all frames, so that weights are drawn on it as on any picture.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from pydantic import Field as Setting
from torch import Tensor, nn

from regard.attention import Context
from regard.attention.positions import sinusoidal
from regard.config import Section
from regard.data.clips import INPUT, count_of, fault_of, recognise_clips, sampled
from regard.data.draws import Draws
from regard.data.format import Format
from regard.data.pixels import ImageHandle, fitted, named, pixels_of
from regard.data.recognition import Files
from regard.data.store import Field
from regard.data.survey import Survey
from regard.errors import UserError
from regard.inputs import augmentation, picture_choices
from regard.inputs.augmentation import Variations
from regard.inputs.input import Chosen, Covers, Input, Opens, Row, Source, Use, positions_from
from regard.inputs.patches import (
    LARGEST,
    SequencePatches,
    covered,
    places_of,
    statistics_as_json,
    statistics_in,
    statistics_of,
)
from regard.inspection.view import Coverable, View
from regard.layers.stem import Marks, Shape, Stem
from regard.models.swin import SwinStem

SENT_PIXELS = 2**25  # of all frames of a clip that a stranger sends
STATISTICS = 300  # clips from which mean and deviation are learned
LOOKED_AT = 50  # clips whose frames are counted to choose how many are read
FRAMES = 8  # that are read of a clip, unless all of them are shorter


class ClipSettings(Section):
    """Settings of the reading and the variation of clips."""

    vocabulary: ClassVar[bool] = True  # a run that starts from another reads clips as that one does

    frames: int = Setting(FRAMES, ge=1, le=256, description="frames that are read of a clip, spread evenly over it")
    size: int = Setting(32, ge=4, le=LARGEST, description="pixels of a side; every frame is brought to this size")
    channels: Literal[1, 3] = Setting(3, description="1: grey, 3: colour")
    patch: int = Setting(8, ge=1, le=256, description="pixels of a patch's side; a CNN has strides of its own")
    fit: Literal["crop", "pad", "squash"] = Setting(
        "crop", description="what is done to oblong frames: cut to the middle, fill up, or stretch"
    )
    shift: float = Setting(0.0, ge=0, le=0.5, description="in training, moved by up to this share of a side")
    scale: float = Setting(0.0, ge=0, le=1, description="in training, made larger or smaller by up to this share")
    flip: bool = Setting(False, description="in training, half of the clips are mirrored left to right")
    erase: float = Setting(0.0, ge=0, le=1, description="in training, share of clips with a part erased")


class Clips(Input[ImageHandle], Opens, Covers):
    """Clips in: (frames, size, size, channels) bytes, with the mean and deviation of each channel."""

    name = INPUT
    noun = "clips"
    accepts = "image/*"

    def __init__(self, how: ClipSettings, mean: Sequence[float], deviation: Sequence[float]) -> None:
        self.how = how
        self.mean, self.deviation = [float(x) for x in mean], [float(x) for x in deviation]
        places = max(1, (how.size // how.patch) ** 2)
        self.fields = (Field("frames", "|u1", (how.size, how.size, how.channels), places),)
        self.variations = Variations(how.shift, how.scale, how.flip, erase=how.erase)

    @staticmethod
    def settings(use: Use) -> type[Section]:  # noqa: ARG004
        return ClipSettings

    @staticmethod
    def files(use: Use) -> tuple[str, ...]:  # noqa: ARG004
        return ("pixels.json",)

    @classmethod
    def recognise(cls, files: Files, task: str | None) -> Format | None:
        return recognise_clips(files.paths, lambda: files.samples, task)

    @classmethod
    def choose(cls, seen: Survey, use: Use) -> Chosen:
        sources = [one for one in seen.sources if one.path]
        some = sources[:: max(1, len(sources) // LOOKED_AT)]
        counts = [count_of(one) for one in some]
        firsts = [sampled(one, 1)[0] for one in some]
        side = median(min(pixels.shape[:2]) for pixels in firsts)
        size = min(64, picture_choices.size_for(side))
        patch = next(p for p in (8, 4, 6, 7, 5, size) if size % p == 0)
        frames = int(min(FRAMES, median(counts)))
        section = {"frames": frames, "size": size, "channels": max(p.shape[2] for p in firsts), "patch": patch}
        places = frames * (size // patch) ** 2
        reads = {"kind": "vit", "stem": "convolutional", "position": "sinusoidal", "layers": 2, "width": 64}
        reads |= {"hidden": 128, "heads": 4, "dropout": 0.1}
        if patch & (patch - 1):
            reads["stem"] = "linear"
        training = {"rate": 1e-3, "warmup": 200, "budget": 32 * places, "smoothing": 0.0}
        sections: dict[str, Any] = {"clips": section, "training": training, "data": {"longest": max(256, places)}}
        why: dict[str, str] = {}
        if use is Use.LABEL:
            sections |= {"model": reads, "output": {"pooling": "attention"}}
        else:
            writes = {"kind": "transformer", "layers": 2, "width": 64, "hidden": 128, "heads": 4, "dropout": 0.1}
            sections |= {"encoder": reads, "model": writes}
            words, why = picture_choices.words_of(seen)
            sections |= words
        return sections, {
            **why,
            "clips.frames": f"half of the clips have {median(counts):g} frames or more: {frames} of each are read",
            "clips.size": f"half of the clips have a shorter side of {side:g} pixels or more: {size} are read",
            "model.kind" if use is Use.LABEL else "encoder.kind": "a Transformer looks at all places of all frames",
        }

    @classmethod
    def learn(cls, how: ClipSettings, use: Use, sources: Sequence[ImageHandle], origin: Input[Any] | None) -> Self:
        del use
        if isinstance(origin, Clips) and origin.how.channels == how.channels:
            return cls(how, origin.mean, origin.deviation)
        some = [one for one in sources[:: max(1, len(sources) // STATISTICS)] if one.path]
        first = cls(how, [0.0] * how.channels, [1.0] * how.channels)
        return cls(how, *statistics_of(map(first._pixels, some), how.channels))

    @classmethod
    def load(cls, folder: Path, how: ClipSettings, use: Use, names: Mapping[str, str]) -> Self:
        del use
        return cls(how, *statistics_in(folder / names.get("pixels.json", "pixels.json"), how.channels))

    def contents(self) -> dict[str, bytes]:
        return {"pixels.json": statistics_as_json(self.mean, self.deviation)}

    # ---- from clips to vectors --------------------------------------------------------------------------------------

    def read(self, line: str) -> ImageHandle:
        return named(line.strip())

    def open(self, content: bytes, media: str) -> ImageHandle:
        if not media.startswith(("image/", "application/octet-stream")):
            raise UserError("The media type does not fit this model, expected image/gif or image/webp.")
        sent = ImageHandle("the clip", content=content)
        fault = fault_of(sent)
        if fault:
            raise UserError(fault)
        pixels = pixels_of(sent) * count_of(sent)
        if pixels > SENT_PIXELS:
            raise UserError(f"the clip is too large: expected at most {SENT_PIXELS:,} pixels in all, found {pixels:,}.")
        return sent

    def sample(self) -> ImageHandle:
        file = io.BytesIO()
        first, *others = (Image.new("L", (16, 16), shade) for shade in (64, 128, 192))
        first.save(file, "GIF", save_all=True, append_images=others)
        return self.open(file.getvalue(), "image/gif")

    @staticmethod
    def unreadable(source: ImageHandle) -> str:
        return fault_of(source)

    def encode(self, sources: Sequence[ImageHandle]) -> list[Row]:
        return [(self._pixels(source),) for source in sources]

    def _pixels(self, source: ImageHandle) -> NDArray[np.uint8]:
        how = self.how
        if not source.path:
            return np.zeros((0, how.size, how.size, how.channels), np.uint8)
        frames = sampled(source, how.frames, how.size)
        return np.stack([fitted(frame, how.size, how.channels, how.fit) for frame in frames])

    def units(self, row: Row) -> int:
        return len(row[0])

    def parts(self, row: Row, most: int) -> list[Row]:  # noqa: ARG002
        return [row] if len(row[0]) else []

    def collate(self, rows: Sequence[Row], extra: int = 0) -> Source:
        """Return pixels (batch, frames, rows, columns, channels), and the positions of frames."""
        size, channels = self.how.size, self.how.channels
        lengths = [max(1, len(row[0])) for row in rows]  # an empty clip is one black frame: there must be a vector
        longest = max(lengths, default=1) + extra
        pixels = np.zeros((len(rows), longest, size, size, channels), np.uint8)
        for i, row in enumerate(rows):
            pixels[i, : len(row[0])] = row[0]
        return Source((torch.from_numpy(pixels),), positions_from(lengths, longest))

    def vary(self, source: Source, draws: Draws) -> Source:
        """Change all frames of a clip alike."""
        if not any(self.variations):
            return source
        strips = source.values[0].permute(0, 2, 3, 1, 4)  # frames as more channels
        changed, change = augmentation.varied(strips.flatten(3), self.variations, draws)
        pixels = changed.unflatten(3, strips.shape[3:]).permute(0, 3, 1, 2, 4)
        return source._replace(values=(pixels,), change=change)

    def module(self, stem: Stem) -> nn.Module:
        if stem.whole is not None:
            raise ValueError("clips have no alphabet: choose another model.kind, such as vit, cnn or transformer")
        how = self.how
        shape = Shape(how.size, how.size, how.channels, how.patch)
        inner = SequencePatches(stem, shape) if stem.pixels is None else stem.pixels(shape)
        if isinstance(inner, SwinStem):
            raise ValueError("windows would lie across frames: choose another model.kind, such as vit or transformer")
        marks = int(Marks.FIRST in self.marks)
        return ClipStem(inner, stem.width, how.frames, marks, self.mean, self.deviation)

    def prepare(self, module: nn.Module, rows: Callable[[], Iterator[Row]]) -> None:
        """Nothing: the statistics were learned before."""

    # ---- for people -------------------------------------------------------------------------------------------------

    def view(self, source: ImageHandle) -> View:
        pixels = self._pixels(source)
        if not len(pixels):
            return View.of_picture(None, (0, 0))
        strip = np.concatenate(pixels, axis=1)
        count = self.how.size // self.how.patch
        picture = np.broadcast_to(strip, (*strip.shape[:2], 3))
        return View.of_picture(picture, (count, count * len(pixels)), int(Marks.FIRST in self.marks), len(pixels))

    def coverable(self, source: ImageHandle, view: View) -> list[Coverable]:  # noqa: ARG002
        """Return the places of the network's grid in each frame."""
        return places_of(view)

    def cover(self, source: ImageHandle, view: View, part: Coverable) -> ImageHandle:
        """Return the clip with the mean colour of the training data at a place of one frame."""
        pixels = self._pixels(source)
        strip = covered(np.concatenate(pixels, axis=1), view, part, self.mean)
        frames = [
            Image.fromarray(np.broadcast_to(each, (*each.shape[:2], 3))) for each in np.split(strip, len(pixels), 1)
        ]
        file = io.BytesIO()
        frames[0].save(file, "TIFF", save_all=True, append_images=frames[1:])  # which keeps frames that are the same
        return ImageHandle(str(source), content=file.getvalue())

    def text(self, source: ImageHandle) -> str:
        return str(source)

    def length(self, source: ImageHandle) -> int:
        """Return the number of frames."""
        return count_of(source) if source.path else 0


class ClipStem(nn.Module):
    """(x / 255 − mean) / deviation of each channel, a picture's vectors for each frame, and p_t added to them.

    The table p begins as sinusoids and is learned. Padding has the position −1.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(
        self, picture: nn.Module, width: int, frames: int, marks: int, mean: Sequence[float], deviation: Sequence[float]
    ) -> None:
        super().__init__()
        self.picture, self.width = picture, width
        self.time = nn.Parameter(sinusoidal(torch.arange(frames), width).float())
        self.mark = nn.Parameter(torch.zeros(marks, width)) if marks else None
        for name, numbers in (("mean", mean), ("deviation", deviation)):
            scaled = torch.tensor([255 * x for x in numbers])
            self.register_buffer(name, scaled, persistent=False)  # they are in pixels.json

    def forward(self, source: Source) -> Context:
        x, where = source.values[0], source.positions.expand(len(source.values[0]), -1)
        batch, frames = x.shape[:2]
        pixels = ((x - self.mean) / self.deviation).flatten(0, 1).permute(0, 3, 1, 2)
        context: Context = self.picture(pixels)
        assert context.grid is not None
        _, rows, columns = context.grid
        z = context.values.view(batch, frames, rows, columns, -1) + self.time[where.clamp(min=0)][:, :, None, None]
        strip = z.transpose(1, 2).flatten(1, 3)  # (batch, rows · frames · columns, width)
        real = (where >= 0)[:, None, :, None].expand(-1, rows, -1, columns).flatten(1)
        if self.mark is not None:
            strip = torch.cat((self.mark.expand(batch, -1, -1), strip), 1)
            real = torch.cat((real.new_ones(batch, len(self.mark)), real), 1)
        line = torch.arange(strip.shape[1], device=strip.device)
        positions = torch.where(real, line, -1)
        return Context(strip, positions, grid=(1, rows, frames * columns), stride=context.stride)
