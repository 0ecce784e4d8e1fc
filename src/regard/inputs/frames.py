"""Recordings as an input: log-mel frames of 10 ms, of which several make a vector."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field as Setting
from torch import nn

from regard.attention import Context
from regard.config import Section
from regard.data.draws import Draws
from regard.data.filterbank import features
from regard.data.folders import Handle
from regard.data.format import Format
from regard.data.recognition import Files
from regard.data.recordings import length as seconds_of
from regard.data.sound import HOP, Clip, clip_at, frame_count, header, resampled, samples_of
from regard.data.sound_forms import recognise_sound
from regard.data.store import Field
from regard.data.survey import Survey
from regard.errors import UserError
from regard.inputs.frame_choices import chosen
from regard.inputs.input import Chosen, Covers, Input, Opens, Row, Source, Use, positions_from
from regard.inputs.specaugment import Variation, stretched
from regard.inspection.sound import Heard, SoundView
from regard.inspection.view import Coverable, View
from regard.layers.dropout import Dropout
from regard.layers.stem import Stem
from regard.layers.subsampling import ConvolvedFrames, StackedFrames

PARTS = 40  # segments of a recording that can be covered
LEARNED = 500  # recordings that mean and deviation are learned from
SENT_SECONDS, SENT_SAMPLES = 600.0, 60_000_000  # of a recording that a stranger sends, of all channels together
SURVEYED = 300  # recordings whose headers are looked at before settings are chosen


class FrameSettings(Section):
    """Settings of frames, and of the vectors that they become."""

    rate: int = Setting(16000, ge=1000, le=192_000, description="samples a second; others are resampled")
    bins: int = Setting(80, ge=4, le=512, description="mel filters, the numbers of a frame")
    normal: Literal["data", "recording"] = Setting(
        "data", description="mean and deviation of all recordings; or of each recording its own mean"
    )
    reduction: int = Setting(4, ge=1, le=64, description="frames of 10 ms that become one vector")
    reduce: Literal["convolution", "stack"] = Setting("convolution", description="how they are joined")
    stored: Literal["float16", "float32"] = Setting("float16", description="numbers on disk")
    speed: float = Setting(0.0, ge=0, lt=1, description="each time, recordings are up to this share faster or slower")
    masks: int = Setting(0, ge=0, le=100, description="SpecAugment: masks of each kind, each time anew")
    mask_bins: int = Setting(8, ge=0, le=512, description="SpecAugment: most bins of a mask")
    mask_frames: int = Setting(10, ge=0, le=10_000, description="SpecAugment: most frames of a mask")


class FrameStem(nn.Module):
    """Vectors of frames, with positions; the frames that each stands for are in `units`."""

    def __init__(self, reduce: StackedFrames | ConvolvedFrames, reduction: int, stem: Stem) -> None:
        super().__init__()
        self.reduce, self.reduction, self.place = reduce, reduction, stem.place
        self.dropout = Dropout(stem.dropout)

    @property
    def halo(self) -> int:
        """The frames beyond its own that a vector sees on either side."""
        return self.reduce.reach

    def forward(self, source: Source) -> Context:
        (frames,), where, k = source.values, source.positions, self.reduction
        real = (where >= 0).expand(frames.shape[0], -1)
        x = self.reduce(frames * real.unsqueeze(-1), real.sum(-1))
        units = torch.where(real, torch.arange(frames.shape[1], device=frames.device) // k, -1)
        fewer = torch.where(where[..., ::k] >= 0, where[..., ::k] // k, -1)
        x = self.dropout(x if self.place is None else self.place(x, fewer))
        return Context(x, fewer, source.mask, units, stride=(k, 1, 1))


class Frames(Input[Clip], Opens, Covers):
    """Recordings in, their frames scaled to mean 0 and deviation 1."""

    name = "frames"
    noun = "recordings"
    accepts = "audio/*"
    baselines: ClassVar[tuple[str, ...]] = ("deepsets", "window")
    offers: ClassVar[frozenset[str]] = frozenset(("units to label",))

    def __init__(self, mean: Sequence[float], deviation: Sequence[float], how: FrameSettings, use: Use) -> None:
        self.mean, self.deviation = np.asarray(mean, np.float32), np.asarray(deviation, np.float32)
        self.how, self.use = how, use
        dtype = "<f2" if how.stored == "float16" else "<f4"
        self.fields = (Field("frames", dtype, (how.bins,), tokens=1 / how.reduction),)

    @staticmethod
    def settings(use: Use) -> type[Section]:  # noqa: ARG004
        return FrameSettings

    @staticmethod
    def files(use: Use) -> tuple[str, ...]:  # noqa: ARG004
        return ("frames.json",)

    @classmethod
    def recognise(cls, files: Files, task: str | None) -> Format | None:
        return recognise_sound(files, task)

    @classmethod
    def choose(cls, seen: Survey, use: Use) -> Chosen:
        some = seen.sources[:: max(1, len(seen.sources) // SURVEYED)]
        rates = Counter(header(clip.handle).rate for clip in some)
        return chosen(seen, use, rates, [seconds_of(clip) for clip in some])

    @classmethod
    def learn(cls, how: FrameSettings, use: Use, sources: Sequence[Clip], origin: Input[Any] | None) -> Self:
        if isinstance(origin, Frames):
            return cls(origin.mean.tolist(), origin.deviation.tolist(), how, use)
        total, squares, count = np.zeros(how.bins), np.zeros(how.bins), 0
        for clip in sources[:: max(1, len(sources) // LEARNED)]:
            frames = _own(clip, how).astype(np.float64)
            total, squares, count = total + frames.sum(0), squares + (frames**2).sum(0), count + len(frames)
        mean = total / max(1, count)
        deviation = np.sqrt(np.maximum(squares / max(1, count) - mean**2, 1e-4))
        return cls(mean.tolist(), deviation.tolist(), how, use)

    @classmethod
    def load(cls, folder: Path, how: FrameSettings, use: Use, names: Mapping[str, str]) -> Self:
        path = folder / names.get("frames.json", "frames.json")
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            mean, deviation = (np.asarray(found[name], np.float32) for name in ("mean", "deviation"))
            sound = mean.shape == deviation.shape == (how.bins,) and bool((deviation > 0).all())
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path} is damaged ({error}): restore it, or train again.") from error
        if not sound:
            raise UserError(f"{path}: expected mean and deviation of {how.bins} bins: restore it, or train again.")
        return cls(mean.tolist(), deviation.tolist(), how, use)

    def contents(self) -> dict[str, bytes]:
        found = {"mean": self.mean.tolist(), "deviation": self.deviation.tolist()}
        return {"frames.json": json.dumps(found).encode()}

    # ---- from recordings to vectors ---------------------------------------------------------------------------------

    def read(self, line: str) -> Clip:
        return clip_at(line)

    def open(self, content: bytes, media: str) -> Clip:
        if not media.startswith(("audio/", "video/ogg", "application/octet-stream", "application/ogg")):
            raise UserError("The media type does not fit this model, expected one of audio/….")
        sent = Clip(Handle("the recording", content=content))
        known = header(sent.handle)
        if known.seconds > SENT_SECONDS or known.samples * known.channels > SENT_SAMPLES:
            raise UserError(
                f"the recording is too long: expected at most {SENT_SECONDS:.0f} seconds and {SENT_SAMPLES:,} samples, "
                f"found {known.seconds:,.0f} and {known.samples * known.channels:,}."
            )
        return sent

    def sample(self) -> Clip:
        import soundfile

        file, noise = io.BytesIO(), np.random.default_rng(0).standard_normal(self.how.rate // 2)
        soundfile.write(file, 0.01 * noise, self.how.rate, format="WAV")
        return self.open(file.getvalue(), "audio/wav")

    @staticmethod
    def unreadable(source: Clip) -> str:
        try:
            if source:
                frame_count(source)
        except UserError as error:
            return str(error).rstrip(".")
        return ""

    def encode(self, sources: Sequence[Clip]) -> list[Row]:
        return [(self._normal(clip),) for clip in sources]

    def _normal(self, clip: Clip) -> NDArray[np.float32]:
        if not clip:
            return np.empty((0, self.how.bins), np.float32)
        found: NDArray[np.float32] = (_own(clip, self.how) - self.mean) / self.deviation
        return found.astype(self.fields[0].dtype).astype(np.float32)  # as it is stored

    def units(self, row: Row) -> int:
        return len(row[0])

    def parts(self, row: Row, most: int) -> list[Row]:
        count, k = max(1, -(-len(row[0]) // max(1, most))), self.how.reduction
        ends = [min(len(row[0]), -(-(i * len(row[0])) // (count * k)) * k) for i in range(count + 1)]
        return [(row[0][a:b],) for a, b in pairwise(ends) if b > a]

    def collate(self, rows: Sequence[Row], extra: int = 0) -> Source:
        values = nn.utils.rnn.pad_sequence([torch.from_numpy(np.asarray(row[0], np.float32)) for row in rows], True)
        values = nn.functional.pad(values, (0, 0, 0, extra))
        return Source((values,), positions_from([len(row[0]) for row in rows], values.shape[1]))

    def vary(self, source: Source, draws: Draws) -> Source:
        how = self.how
        speed = 0.0 if self.use is Use.UNITS else how.speed  # labels of frames are not stretched
        if not speed and not how.masks:
            return source
        return stretched(source, Variation(speed, how.masks, how.mask_bins, how.mask_frames), draws)

    def module(self, stem: Stem) -> nn.Module:
        if self.marks or stem.whole is not None:
            raise ValueError(
                "recordings have no alphabet and no marks: choose model.kind conformer, transformer, recurrent, "
                "pyramid or window, and an output.pooling of attention, mean or sum"
            )
        kind = ConvolvedFrames if self.how.reduce == "convolution" else StackedFrames
        return FrameStem(kind(self.how.bins, stem.width, self.how.reduction), self.how.reduction, stem)

    def prepare(self, module: nn.Module, rows: Callable[[], Iterator[Row]]) -> None:
        """Nothing is learned from rows."""

    # ---- for people -------------------------------------------------------------------------------------------------

    def view(self, source: Clip) -> View:
        k = self.how.reduction
        frames = frame_count(source) if source else 0
        names = [f"{source.start + i * k * HOP:.2f}" for i in range(-(-frames // k))]
        units = [i // k for i in range(frames)] if self.use is Use.UNITS else None
        sound = (
            SoundView(source.start, k * HOP, partial(_heard, source, self.how.rate, self.how.bins)) if source else None
        )
        return View(names, units=units, sound=sound)

    def coverable(self, source: Clip, view: View) -> list[Coverable]:  # noqa: ARG002
        """Return segments of the recording, at most PARTS of them."""
        if view.sound is None:
            return []
        count, sound = len(view.names), view.sound
        size = -(-count // PARTS)
        ends = [(first, min(count, first + size)) for first in range(0, count, size)]
        named = [f"{sound.start + a * sound.step:.2f}–{sound.start + b * sound.step:.2f} s" for a, b in ends]
        return [Coverable(name, tuple(range(a, b))) for name, (a, b) in zip(named, ends, strict=True)]

    def cover(self, source: Clip, view: View, part: Coverable) -> Clip:
        """Return the recording with silence in place of a segment."""
        import soundfile

        assert view.sound is not None
        (samples, rate), step = samples_of(source), view.sound.step
        silent = samples.copy()
        silent[round(part.vectors[0] * step * rate) : round((part.vectors[-1] + 1) * step * rate)] = 0
        file = io.BytesIO()
        soundfile.write(file, silent, rate, format="WAV", subtype="FLOAT")
        return Clip(Handle(str(source), content=file.getvalue()))

    def text(self, source: Clip) -> str:
        return str(source) if source else ""

    def length(self, source: Clip) -> int:
        """Return whole seconds."""
        return round(seconds_of(source) + 0.5)


def _heard(clip: Clip, rate: int, bins: int) -> Heard:
    samples, own = samples_of(clip)
    return Heard(_known_features(clip, rate, bins), resampled(samples, own, rate), rate)


def _own(clip: Clip, how: FrameSettings) -> NDArray[np.float32]:
    """Return the features of a clip; of `normal=recording` without their mean."""
    frames = _known_features(clip, how.rate, how.bins)
    return frames - frames.mean(0) if how.normal == "recording" else frames


def _known_features(clip: Clip, rate: int, bins: int) -> NDArray[np.float32]:
    """Return the features of a clip; those of bytes that somebody sent are not kept."""
    return _features(clip, rate, bins) if clip.handle.content is None else features(clip, rate, bins)


@lru_cache(maxsize=32)  # a clip is asked for several times in a row: may it be answered, the answer, the picture
def _features(clip: Clip, rate: int, bins: int) -> NDArray[np.float32]:
    return features(clip, rate, bins)
