"""Recordings: time of features, and time and memory of truncated attention against the length of a recording.

python -m benchmarks.audio            features of an hour; 60 s against 600 s, whole and in chunks
"""

from __future__ import annotations

import os
import time

import numpy as np
import torch
from benchmarks.measure import alternate, peak_memory, ratio

from regard.data.filterbank import log_mel
from regard.data.sound import resampled
from regard.inputs.frames import Frames, FrameSettings
from regard.inputs.input import Batch, Use
from regard.models.speech import conformer
from regard.network import Network
from regard.outputs.output import Passes
from regard.outputs.tag.head import Independent, TagHead
from regard.training.allocator import keep_memory

BINS, CHUNK = 40, 3000


def network() -> tuple[Frames, Network]:
    """A small Conformer that labels frames and looks 0.64 s back and ahead in each layer."""
    torch.manual_seed(0)
    input = Frames([0.0] * BINS, [1.0] * BINS, FrameSettings(bins=BINS, reduction=2), Use.UNITS)
    stem, backbone = conformer(
        layers=3, width=96, hidden=192, heads=4, kernel=15, length=2, dropout=0.0, window=(32, 32)
    )
    return input, Network(input.module(stem), backbone, TagHead(96, 40, Independent(), dropout=0.0)).eval()


def recording(seconds: int) -> tuple[np.ndarray]:
    return (np.random.default_rng(0).standard_normal((100 * seconds, BINS), dtype=np.float32),)


@torch.no_grad()
def whole(row: tuple[np.ndarray]) -> None:
    input, model = network()
    model.scores(Batch(input.collate([row]), None))


@torch.no_grad()
def chunks(row: tuple[np.ndarray]) -> None:
    input, model = network()
    passes = Passes(input, model, 10**9)
    for source, own in passes.in_chunks(row, CHUNK):
        model.scores(Batch(source, None))[0, own].argmax(-1)


def features() -> float:
    """Seconds of processor time for an hour of speech at 16 kHz, and for one at 44.1 kHz that is resampled."""
    minute = np.random.default_rng(0).standard_normal(60 * 16000).astype(np.float32) * 0.1
    started = time.process_time()
    for _ in range(60):
        log_mel(minute, 16000, 80)
    plain = time.process_time() - started
    other = np.random.default_rng(0).standard_normal(60 * 44100).astype(np.float32) * 0.1
    started = time.process_time()
    for _ in range(6):
        log_mel(resampled(other, 44100, 16000), 16000, 80)
    print(f"features of an hour: {plain:.1f} s; resampled from 44.1 kHz: {10 * (time.process_time() - started):.1f} s")
    return plain


MEASURED = """
import torch
torch.set_num_threads(1)
from benchmarks import audio
row = audio.recording({seconds})
audio.chunks(audio.recording(2))
mark()
audio.{name}(row)
"""


def main() -> None:
    torch.set_num_threads(1)
    keep_memory()  # as `regard predict` does
    features()
    short, long = recording(60), recording(600)
    for name, read in (("whole", whole), ("in chunks", chunks)):
        times = alternate({"60": lambda read=read: read(short), "600": lambda read=read: read(long)}, 7)
        found = {key: value / 10 for key, value in ratio(times, "600", "60").items()}
        print(
            f"{name}: a second of 600 s takes {found['ratio']:.2f} [{found['low']:.2f}, {found['high']:.2f}] times the "
            "time of one of 60 s"
        )
    os.environ["MALLOC_MMAP_THRESHOLD_"] = "100000"  # what is freed is given back: peaks are of what is in use
    for name in ("whole", "chunks"):
        used = [peak_memory(MEASURED.format(name=name, seconds=seconds)) for seconds in (60, 600)]
        print(f"{name}: {used[0]:.0f} MB beside the frames at 60 s, {used[1]:.0f} MB at 600 s")


if __name__ == "__main__":
    main()
