"""A check of pictures before training: every one that is broken, empty, oversized or there twice, by its file."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np

from regard.data.boxes import parsed
from regard.data.check import SHOWN, Part, Read
from regard.data.format import Format
from regard.data.lines import Fault
from regard.data.pixels import ImageHandle, Pixels, decoded
from regard.errors import UserError

OVERSIZED, LARGE = 4, 256  # times the median of the longer sides, and pixels at least
SHOWN_LABELS = 20
Look = Callable[[ImageHandle], Pixels]


@dataclass
class ImageReport:
    """The result of `check_images`: faults by kind, sizes, labels."""

    format: Format
    pictures: int = 0
    examples: int = 0
    labels: Counter[str] = field(default_factory=Counter)
    sizes: list[tuple[int, int]] = field(default_factory=list)
    grey: int = 0
    faults: list[Fault] = field(default_factory=list)
    stops: Counter[str] = field(default_factory=Counter)  # faults that stop a training, by the part they are in

    @property
    def counts(self) -> dict[str, int]:
        return dict(Counter(fault.kind for fault in self.faults))

    def render(self) -> str:
        """Return the report for a terminal."""
        lines = [
            f"Recognised as {self.format.description}.",
            f"{self.pictures:,} pictures, {self.examples:,} examples.",
        ]
        if self.sizes:
            sides = sorted(min(size) for size in self.sizes)
            longest = max(max(size) for size in self.sizes)
            lines.append(
                f"  shorter side: least {sides[0]:,}, median {sides[len(sides) // 2]:,}, most {sides[-1]:,} pixels; "
                f"longest side {longest:,}; {self.grey:,} grey, {self.pictures - self.grey:,} in colour"
            )
        if self.format.task in ("classify", "detect") and self.labels:
            total = self.labels.total()
            shown = [f"{label} {100 * count / total:.1f} %" for label, count in self.labels.most_common(SHOWN_LABELS)]
            more = len(self.labels) - len(shown)
            boxes = f" of {total:,} boxes" if self.format.task == "detect" else ""
            lines.append(
                f"{len(self.labels):,} labels{boxes}: {', '.join(shown)}{f' and {more:,} more' if more else ''}."
            )
        lines.append("")
        if not self.faults:
            lines.append("No faults were found.")
        for kind, count in self.counts.items():
            lines.append(f"{kind} ({count:,}):")
            lines += [f"  {fault}" for fault in self.faults if fault.kind == kind][:SHOWN]
            lines += [f"  ... and {count - SHOWN:,} more"] if count > SHOWN else []
        return "\n".join(lines)


def check_images(train: Part, others: Sequence[Part], encoding: str, read: Read, look: Look = decoded) -> ImageReport:
    """Decode every picture once and report on all of them; those of other parts must not be in the training data.

    `look` returns the pixels of a picture, or of what else is seen.
    """
    report = ImageReport(train.form)
    gathered = _Gathering(report, look)
    for part in (train, *others):
        gathered.add(part, encoding, read)
    gathered.find_oversized()
    return report


def labels_in(target: str, task: str) -> list[str]:
    """Return the labels in a target: of each box, or of the whole picture."""
    return [box.label for box in parsed(target)] if task == "detect" else [target]


class _Gathering:
    """The content of pictures by their hashes, and their sizes."""

    def __init__(self, report: ImageReport, look: Look) -> None:
        self.report, self.look = report, look
        self.known: dict[bytes, tuple[ImageHandle, str, str]] = {}  # the first of equal pictures, its target and part
        self.sizes: list[tuple[ImageHandle, int]] = []

    def add(self, part: Part, encoding: str, read: Read) -> None:
        report, seen = self.report, set()

        def stop(fault: Fault) -> None:
            report.stops[part.name] += 1
            report.faults.append(fault)

        for example in read(part.paths, part.form, stop, encoding):
            report.examples += 1
            report.labels.update(labels_in(example.target, part.form.task))
            if example.source in seen:
                continue
            seen.add(example.source)
            try:
                pixels = self.look(example.source)
            except UserError as error:
                what = str(error).removeprefix(f"{example.file} ")
                stop(Fault(example.file, example.line, what, "unreadable pictures"))
                continue
            report.pictures += 1
            report.grey += pixels.shape[2] == 1
            report.sizes.append((pixels.shape[0], pixels.shape[1]))
            self.sizes.append((example.source, max(pixels.shape[:2])))
            self._compare(example.source, example.target, pixels, part.name, labels=part.form.task == "classify")

    def _compare(self, picture: ImageHandle, target: str, pixels: Pixels, part: str, *, labels: bool) -> None:
        content = hashlib.blake2b(str(pixels.shape).encode(), digest_size=16)
        content.update(np.ascontiguousarray(pixels).data)  # which is not copied: a picture may have 200 MB
        key = content.digest()
        if key not in self.known:
            self.known[key] = (picture, target, part)
            return
        first, told, where = self.known[key]
        kind = "equal pictures with different labels" if labels and told != target else "duplicate pictures"
        if part != where:
            kind = f"{part} pictures in the training data"
        fault = Fault(str(picture), 0, f"is the same picture as {first}; remove one of them", kind)
        self.report.faults.append(fault)

    def find_oversized(self) -> None:
        """Report pictures far larger than most."""
        usual = median(side for _, side in self.sizes) if self.sizes else 0
        for picture, side in self.sizes:
            if side > max(OVERSIZED * usual, LARGE):
                what = (
                    f"has a side of {side:,} pixels, half of the pictures have at most {usual:,.0f}; is it one of them?"
                )
                self.report.faults.append(Fault(str(picture), 0, what, "oversized pictures"))
