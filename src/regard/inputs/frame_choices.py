"""Choosing settings for recordings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from regard.data.sound import HOP
from regard.data.survey import Survey
from regard.inputs.input import Chosen, Use


def chosen(seen: Survey, use: Use, rates: Counter[int], lengths: Sequence[float]) -> Chosen:
    """Return how recordings of these rates and lengths in seconds are read, and networks that suit them."""
    common = rates.most_common(1)[0][0] if rates else 16000
    rate = 16000 if common >= 16000 else common
    hours = seen.count * sum(lengths) / max(1, len(lengths)) / 3600
    frames: dict[str, Any] = {"rate": rate, "bins": 80 if rate >= 16000 else 40}
    frames |= {"normal": "data" if use is Use.UNITS else "recording", "reduction": 1 if use is Use.UNITS else 4}
    frames |= {"masks": 2, "mask_bins": frames["bins"] // 6, "mask_frames": 15 if use is Use.SOURCE else 8}
    frames["speed"] = 0.0 if use is Use.UNITS else 0.1
    longest = max(200, round(2 * max(lengths, default=1.0) / HOP))
    about = f"{seen.count:,} recordings, about " + (f"{hours:.1f} hours" if hours >= 1 else f"{60 * hours:.0f} minutes")
    reasons = {
        "frames.rate": f"{common:,} samples a second are the most common"
        + (", more tell nothing new" * (rate < common)),
        "frames.reduction": "each frame is labelled" if use is Use.UNITS else "four frames make a vector: 40 ms",
        "frames.masks": f"{about}: masks and other speeds make them more",
        "data.longest": f"{longest:,} frames, twice the longest of a sample: {longest * HOP / 2:.1f} s",
    }
    sections = {"frames": frames, "data": {"longest": min(10**6, longest)}}
    more, why = {Use.UNITS: _for_tags, Use.LABEL: _for_label, Use.SOURCE: _for_text}[use](seen, hours, about)
    return sections | more, reasons | why


def _for_tags(seen: Survey, hours: float, about: str) -> Chosen:
    del seen
    model: dict[str, Any] = {
        "kind": "conformer",
        "layers": 3 if hours < 5 else 6,
        "width": 96,
        "hidden": 192,
        "heads": 4,
        "kernel": 15,
    }
    model |= {"dropout": 0.1, "window": [64, 64]}
    training = {"budget": 8192, "rate": 2e-3, "warmup": 200}
    return {"model": model, "training": training, "output": {"kind": "softmax", "metric": "segments"}}, {
        "model.kind": f"{about}: convolution and attention read what is near",
        "model.window": "a label hangs on 0.64 s before and after it; recordings of any length can be read in chunks",
        "output.metric": "frames in a row with one label are a segment",
    }


def _for_label(seen: Survey, hours: float, about: str) -> Chosen:
    del hours
    model: dict[str, Any] = {
        "kind": "conformer",
        "layers": 2 if seen.count < 5_000 else 4,
        "width": 96,
        "hidden": 192,
        "heads": 4,
    }
    model |= {"kernel": 7, "dropout": 0.1}
    training = {"budget": 2048, "rate": 1e-3, "warmup": 100}
    return {"model": model, "training": training}, {
        "model.kind": f"{about}: convolution and attention",
        "output.pooling": "a learned query weighs the vectors, so that `regard show` tells which ones decided",
    }


def _for_text(seen: Survey, hours: float, about: str) -> Chosen:
    words = Counter(word for target in seen.targets for word in str(target).split())
    few = len(words) <= 60 and sum(words.values()) >= 10 * len(words)
    level = "words" if few else "characters" if hours < 50 else "bpe"
    small = hours < 5
    encoder: dict[str, Any] = {
        "kind": "conformer",
        "layers": 3 if small else 6,
        "width": 96 if small else 192,
        "heads": 4,
    }
    encoder |= {"hidden": 192 if small else 768, "kernel": 15, "dropout": 0.1}
    model: dict[str, Any] = {
        "kind": "recurrent",
        "width": 96 if small else 256,
        "layers": 1,
        "attention": "location",
        "dropout": 0.1,
    }
    output = {"level": level, "metric": "wer", "ctc": 0.5, "size": None if level != "bpe" else 1000}
    training = {"budget": 2048 if small else 8192, "rate": 2e-3, "warmup": 300}
    return {"encoder": encoder, "model": model, "output": output, "training": training}, {
        "encoder.kind": f"{about}: convolution and attention",
        "model.attention": "a score that knows where it looked last moves along the recording",
        "output.level": f"{len(words)} different words, each often: a token each" if few else f"{about}: {level}",
        "output.ctc": "CTC shows the encoder early where each token is",
        "output.metric": "transcripts are compared by words and characters",
    }
