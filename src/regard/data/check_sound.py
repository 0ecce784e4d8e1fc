"""A check of recordings before training: what cannot be read or heard, and transcripts that do not fit."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regard.data.check import LEAKED, SHOWN, STRANGE, Faults, Part, Read
from regard.data.example import UNITS
from regard.data.format import Format
from regard.data.lines import Fault, OnFault
from regard.data.recordings import SoundExample
from regard.data.sound import faults_of, header, samples_of
from regard.errors import UserError

OVERLONG = 20  # times the median, and
LONG = 30.0  # seconds at least
FAST = 35.0  # characters a second that nobody says
SLOW = 60.0  # seconds for a character or less are no transcript of all of it


@dataclass(frozen=True)
class Hours:
    """Numbers, lengths, rates, channels, speakers and labels of recordings."""

    pairs: int
    seconds: tuple[float, ...]
    rates: dict[int, int]
    channels: dict[int, int]
    speakers: int
    labels: dict[str, int]


@dataclass(frozen=True)
class SoundReport:
    """The result of `check_recordings`."""

    format: Format
    statistics: Hours
    faults: list[Fault]
    counts: dict[str, int]
    stops: dict[str, int]  # faults of each part that would stop a training

    @property
    def pairs(self) -> int:
        return self.statistics.pairs

    def render(self) -> str:
        """Return the report for a terminal."""
        known = self.statistics
        times = np.array(known.seconds or (0.0,))
        lines = [
            f"Recognised as {self.format.description}.",
            f"{known.pairs:,} recordings, {times.sum() / 3600:.2f} hours: half of them have at most "
            f"{np.median(times):.2f} s, the longest {times.max():.2f} s",
            "samples a second: " + ", ".join(f"{rate:,} ({n:,})" for rate, n in known.rates.items())
            + "; channels: " + ", ".join(f"{c} ({n:,})" for c, n in known.channels.items()),
        ]  # fmt: skip
        if known.speakers:
            lines.append(f"{known.speakers:,} speakers, held out whole")
        if known.labels:
            some = ", ".join(f"{name} {count:,}" for name, count in list(known.labels.items())[:12])
            lines.append(f"{len(known.labels)} labels: {some}{' …' if len(known.labels) > 12 else ''}")
        lines += ["", *([] if self.counts else ["No faults were found."])]
        for kind, count in self.counts.items():
            shown = [fault for fault in self.faults if fault.kind == kind][:SHOWN]
            lines += [f"{kind} ({count:,}):", *(f"  {fault}" for fault in shown)]
            lines += [f"  ... and {count - len(shown):,} more"] * (count > len(shown))
        return "\n".join(lines)


def check_recordings(train: Part, others: Sequence[Part], encoding: str, read: Read) -> SoundReport:
    """Read and listen to all recordings; those of other parts must not be in the training data."""
    faults, form = Faults(), train.form
    kept = _listened(train, encoding, read, faults)
    _find_long(kept, faults)
    known = {digest: example for example, _, digest, _, _ in kept}
    for part in others:
        for other, _, digest, _, _ in _listened(part, encoding, read, faults):
            if digest in known:
                what = (
                    f"{other.source} is also in the training data ({known[digest].source}); remove it from one of them"
                )
                faults.add(Fault(other.file, other.line, what, f"{part.name} {UNITS[form.task]}s {LEAKED}"))
    labels: Counter[str] = Counter()
    if form.task != "convert":
        for example, *_ in kept:
            labels.update(example.target.split(" ") if form.task == "tag" else [example.target])
    statistics = Hours(
        len(kept),
        tuple(seconds for _, seconds, _, _, _ in kept),
        dict(Counter(rate for _, _, _, rate, _ in kept).most_common()),
        dict(Counter(channels for _, _, _, _, channels in kept).most_common()),
        len({example.group for example, *_ in kept} - {""}),
        dict(labels.most_common()),
    )
    return SoundReport(form, statistics, faults.kept, dict(faults.counts), dict(faults.stops))


def _listened(part: Part, encoding: str, read: Read, faults: Faults) -> list[Heard]:
    """Listen to the recordings of a part; what cannot be read would stop a training."""

    def stop(fault: Fault) -> None:
        faults.stops[part.name] += 1
        faults.add(fault)

    found = [_heard(example, faults, part.form, stop) for example in read(part.paths, part.form, stop, encoding)]
    return [each for each in found if each is not None]


Heard = tuple[SoundExample, float, bytes, int, int]  # seconds, a digest of the samples, rate and channels


def _heard(example: SoundExample, faults: Faults, form: Format, stop: OnFault) -> Heard | None:
    """Listen to one recording, and report what is wrong with it."""
    clip = example.source
    try:
        samples, rate = samples_of(clip)
    except UserError as error:
        stop(Fault(example.file, example.line, str(error).rstrip("."), "broken recordings"))
        return None
    for kind, what in faults_of(samples, rate):
        faults.add(Fault(example.file, example.line, f"{clip}: {what}", kind))
    seconds = len(samples) / rate
    if form.task == "convert":
        _check_transcript(example, seconds, faults)
    digest = hashlib.blake2b(samples.tobytes(), digest_size=8).digest()
    return example, seconds, digest, rate, header(clip.handle).channels


def _check_transcript(example: SoundExample, seconds: float, faults: Faults) -> None:
    text, place = example.target, (example.file, example.line)
    match = STRANGE.search(text)
    if match is not None:
        what = f"the transcript has U+{ord(match[0]):04X} at character {match.start() + 1}; remove it"
        faults.add(Fault(*place, what, "strange characters"))
    if len(text) > FAST * seconds + 5:
        what = f"{len(text)} characters in {seconds:.2f} s of {example.source}: does the transcript belong to it?"
        faults.add(Fault(*place, what, "transcripts that are too long"))
    if seconds > SLOW and seconds > SLOW * len(text):
        what = f"{len(text)} characters for {seconds:.0f} s of {example.source}: is all of it transcribed?"
        faults.add(Fault(*place, what, "transcripts that are too short"))


def _find_long(kept: Sequence[Heard], faults: Faults) -> None:
    if not kept:
        return
    median = float(np.median([seconds for _, seconds, _, _, _ in kept]))
    for example, seconds, *_ in kept:
        if seconds > max(OVERLONG * median, LONG):
            what = f"{example.source} has {seconds:.1f} s, half of them have at most {median:.1f}; cut or remove it"
            faults.add(Fault(example.file, example.line, what, "overlong recordings"))
