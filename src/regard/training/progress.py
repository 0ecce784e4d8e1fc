"""Progress of a training: a live line with the time left on a terminal, plain lines in a log. Standard error only."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

if TYPE_CHECKING:
    from regard.metrics import Score
    from regard.training.position import Position

LONGEST = 90  # characters of a text in a line of progress
Shown = tuple[str, list[str], str]  # a source, its references, and the model's answer


class Progress:
    def __init__(self, *, quiet: bool = False) -> None:
        self.console = Console(stderr=True, highlight=False)
        self.quiet = quiet
        self.live = self.console.is_terminal and not quiet
        self.recent: deque[tuple[float, int, float]] = deque(maxlen=50)
        self.last_line = time.monotonic()
        columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.fields[more]}"))
        self.bar = Bar(TextColumn("{task.description}"), *columns, console=self.console, transient=True)
        self.work: Any = None

    def say(self, text: str) -> None:
        if self.quiet:
            return
        if self.live:
            self.bar.console.print(text, markup=False)
        else:
            print(text, file=sys.stderr, flush=True)

    def step(self, at: Position, latest: tuple[float, int, float]) -> None:
        self.recent.append(latest)
        seconds = sum(s for _, _, s in self.recent)
        speed = sum(n for _, n, _ in self.recent) / max(seconds, 1e-9)
        loss = sum(x for x, _, _ in self.recent) / len(self.recent)
        if self.live:
            if self.work is None:
                self.bar.start()
                self.work = self.bar.add_task("training", total=at.steps, more="")
            best = "" if not at.best else f"  best {abs(at.best[0]):.2f}"
            more = f"loss {loss:.3f}  {speed:,.0f} tokens/s{best}"
            self.bar.update(self.work, completed=at.step, total=at.steps, more=more)
        elif time.monotonic() - self.last_line > 30:
            self.last_line = time.monotonic()
            minutes = ((at.steps or 0) - at.step) * seconds / len(self.recent) / 60
            where = f"step {at.step:,}" if at.steps is None else f"step {at.step:,} of {at.steps:,}"
            left = "" if at.steps is None else f", {minutes:.1f} min left"
            self.say(f"{where}: loss {loss:.3f}, {speed:,.0f} tokens/s{left}")

    def validated(
        self, at: Position, entry: dict[str, Any], scores: Sequence[Score], shown: Shown | None, items: int
    ) -> None:
        """Log a validation: the first metric, if the task has one, the one that made it the best, if that is another,
        and an answer, if that is text. `items` are all."""
        self.last_line = time.monotonic()
        line = f"step {at.step:>6,}  epoch {at.epoch:>3}  {entry['minutes']:5.1f} min  loss {entry['loss']:.3f}"
        if scores:
            best = at.best_step == at.step
            mark = "  ← best" if best else ""
            mark = f" (of {entry['items']:,} items)" if entry["items"] < items else mark
            told = [scores[0], *([_better(at, scores)] if best else [])]
            line += (
                "  " + ", ".join(f"{s.name} {s.value:.2f}{s.unit and f' {s.unit}'}" for s in dict.fromkeys(told)) + mark
            )
        self.say(line)
        if shown is None:
            return
        source, references, answer = shown
        expected = "" if answer in references or not references else f"   (expected {_short(references[0])})"
        self.say(f"         {_short(source)} → {_short(answer)}{expected}")

    def close(self) -> None:
        if self.live and self.work is not None:
            self.bar.stop()


def _better(at: Position, scores: Sequence[Score]) -> Score:
    """Return the first metric that differs from the best validation before; the first one if there is none."""
    before = [entry for entry in at.history[:-1] if entry["items"] == at.history[-1]["items"]]
    names = [score.name for score in scores]
    sign = {score.name: 1 if score.higher_is_better else -1 for score in scores}
    best = max(before, key=lambda entry: [sign[name] * entry.get(name, 0.0) for name in names], default=None)
    changed = (s for s in scores if best is not None and round(s.value, 3) != best.get(s.name))
    return next(changed, scores[0])


def _short(text: str) -> str:
    """Return a text on one line, cut where it would fill the screen."""
    line = " ⏎ ".join(text.splitlines())
    return line if len(line) <= LONGEST else line[: LONGEST - 2].rstrip() + " …"
