"""Pace: the number of steps that fit into the minutes of a training."""

from __future__ import annotations

from collections import deque

WARM = 12  # steps timed before their number is settled
LATELY = 20  # steps that tell how fast the machine is now
VALIDATING = 0.1  # share of the time that validations take, until it is known better


class Pace:
    """The times of the steps. The schedule of the learning rate ends where the minutes end, so a wrong guess would cost
    quality: the number of steps is settled from the first of them, and anew if the machine's speed has changed.

    `seconds` is the time of the whole run so far, validations included, as everywhere in a training.
    """

    def __init__(self, minutes: float, seconds: float) -> None:
        self.minutes, self.began = minutes, seconds
        self.lately: deque[float] = deque(maxlen=LATELY)
        self.stepping = 0.0  # seconds of all steps since this training began or went on

    def took(self, seconds: float) -> None:
        """One more step."""
        self.lately.append(seconds)
        self.stepping += seconds

    @property
    def each(self) -> float:
        """Seconds of a step at the moment: a mean without the slowest two."""
        times = sorted(self.lately)[: max(1, len(self.lately) - 2)]
        return sum(times) / len(times)

    def due(self, step: int, settled: bool) -> bool:
        """Return True when it is time to count, after so many steps."""
        return step >= WARM and (not settled or (len(self.lately) == LATELY and step % LATELY == 0))

    def steps(self, step: int, seconds: float, validated: bool) -> int:
        """Return the number of steps in all."""
        share = self.stepping / (seconds - self.began) if validated else 1 - VALIDATING
        return step + max(1, int(min(1.0, max(0.5, share)) * (60 * self.minutes - seconds) / self.each))

    @staticmethod
    def changed(left: int, before: int) -> bool:
        """Return True if the plan must change. Fewer steps weigh more: the learning rate would not come to its end."""
        return not 0.85 < left / max(1, before) < 1.5

    def sentence(self, steps: int) -> str:
        plural = "" if self.minutes == 1 else "s"
        return f"{steps:,} steps fit into {self.minutes:g} minute{plural} ({1000 * self.each:.0f} ms each)"
