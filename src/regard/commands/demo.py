"""The default job: learn to read dates written in many languages. No data needed."""

from __future__ import annotations

import os
import shutil
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from rich.cells import cell_len

from regard import pictures
from regard.commands import dates
from regard.commands.dates import DateExample
from regard.commands.show import show_answered
from regard.runs import settings
from regard.runs.folder import quoted, refuse_unwritable
from regard.runs.model import Model
from regard.training.progress import Progress
from regard.training.train import run_training

TRAIN, HELD_OUT = 30_000, 1_000
ENOUGH = 95.0  # % of held-out dates that two minutes on two cores read, and more
SETTINGS = {
    "tokens": {"level": "characters"},
    "output": {"level": "characters"},
    "model": {"kind": "recurrent", "width": 128, "layers": 1, "attention": "additive", "feeding": True, "dropout": 0.1},
    "training": {
        "budget": 8192,
        "rate": 5e-3,
        "warmup": 100,
        "smoothing": 0.0,
        "patience": 100,
        "ceiling": False,
        "average": 3,
    },
}


def demonstrate(run: Path, minutes: float) -> None:
    """Write the dates, train, say how well it reads held-out and unseen ones, and draw where it looked."""
    refuse_unwritable(run)
    say = Progress().say
    say(dates.describe())
    found = dates.splits(TRAIN, HELD_OUT, 1)
    folder = run.with_name(run.name + "-data")
    folder.mkdir(parents=True, exist_ok=True)
    files = {name: _write(folder / f"{name}.tsv", getattr(found, name)) for name in ("train", "valid", "test")}
    config = settings.make({"data": {"train": [files["train"]], "valid": [files["valid"]]}, **SETTINGS}, "the demo")
    config = settings.override(config, [f"training.minutes={minutes}"])
    model = run_training(config, {}, run, Progress())

    right, by_language = _read(model, found.test)
    print(
        f"\nRead {right:.1f} % of {len(found.test):,} held-out dates in {len(by_language)} languages exactly, such as"
    )
    for example in _one_each(found.test)[:8]:
        language, answer = dates.language_name(example.locale), model.predict([example.text])[0]
        print(f"  {_wide(language, 12)} {_wide(example.text, 36)} → {answer}")
    weakest = sorted(by_language.items(), key=lambda item: item[1])[:3]
    print("Hardest: " + ", ".join(f"{dates.language_name(name)} {share:.0f} %" for name, share in weakest))
    for name, examples in found.unseen.items():
        share, _ = _read(model, examples)
        print(f"Not seen in training, {dates.UNSEEN[name]}: {share:.0f} % right, {_sample(model, examples)}")
    started = Path(sys.argv[0])  # such as .venv/bin/regard, where no other is on the path
    command = os.path.relpath(started) if started.name == "regard" and not shutil.which("regard") else "regard"
    if right < ENOUGH:
        print(
            f"That is not much: only {_history(run)[-1]['step']} steps fitted into {minutes:g} minutes: this machine "
            f"is slow or busy. Give it more: {command} demo -o {quoted(run)} --minutes {4 * minutes:g}"
        )
    one = min((e for e in found.test if e.locale in ("fr", "ru")), key=lambda e: abs(len(e.text) - 24))
    some = {e.text: e.iso for e in _one_each(found.test)[:12]}
    (run / "pictures").mkdir(exist_ok=True)
    picture = show_answered(model, {one.text: one.iso}, run / "pictures" / "alignment.png")
    page = show_answered(model, some, run / "pictures" / "alignment.html")
    losses = [(entry["step"], entry["exact_match"]) for entry in _history(run)]
    curve = pictures.curves(
        [s for s, _ in losses], {"exact match": [v for _, v in losses]}, "step", "% of held-out dates read"
    )
    pictures.save(curve, run / "pictures" / "learning.png")
    print(f"\nWhere it looked: {picture} and, to hover over, {page}")
    print("What to try next:")
    print(f"  {command} predict {quoted(run)} '3 mars 2024' 'lundi 5 mai 1997'")
    print(f"  {command} show {quoted(run)} '3 mars 2024' -o mars.html")
    print(f"  {command} train your-pairs.tsv        # source<TAB>target on each line")


def _wide(text: str, cells: int) -> str:
    """Filled up with blanks; a Chinese sign takes two cells of a terminal."""
    return text + " " * (cells - cell_len(text))


def _write(path: Path, examples: Sequence[DateExample]) -> str:
    path.write_text("".join(f"{e.text}\t{e.iso}\n" for e in examples), encoding="utf-8")
    return str(path)


def _read(model: Model, examples: Sequence[DateExample]) -> tuple[float, dict[str, float]]:
    """The share of dates read exactly, in all and by language."""
    answers = model.predict([e.text for e in examples], beam=1)
    hits: dict[str, list[bool]] = defaultdict(list)
    for example, answer in zip(examples, answers, strict=True):
        hits[example.locale].append(answer == example.iso)
    total = sum(sum(each) for each in hits.values())
    return 100 * total / len(examples), {name: 100 * sum(each) / len(each) for name, each in hits.items()}


def _sample(model: Model, examples: Sequence[DateExample]) -> str:
    example = examples[0]
    answer = model.predict([example.text])[0]
    return f"such as {example.text} → {answer}" + ("" if answer == example.iso else f" (it is {example.iso})")


def _one_each(examples: Sequence[DateExample]) -> list[DateExample]:
    """One date of each language, in many scripts."""
    order = ("fr", "de", "ru", "ar", "he", "hi", "th", "zh", "ja", "ko", "el", "ka", "hy", "en", "es", "tr")
    first = {example.locale: example for example in reversed(examples)}
    return [first[name] for name in order if name in first]


def _history(run: Path) -> list[dict[str, float]]:
    import json

    return [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
