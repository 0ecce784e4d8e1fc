"""Every input × every output at toy size: trained, stopped, resumed to the same bits, predicted, evaluated, shown; killed by
a signal; trained by two processes. Combinations that make no sense are refused in a sentence.

A new input or output joins by being in its dictionary; here it needs a toy file for each kind of data it reads.
"""

import io
import itertools
import json
import math
import os
import random
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from PIL import Image

import regard
from regard.commands import shapes
from regard.commands.check import check_run
from regard.commands.evaluate import evaluate
from regard.commands.info import info
from regard.commands.predict import predict
from regard.commands.show import show
from regard.errors import UserError
from regard.inputs import INPUTS
from regard.outputs import OUTPUTS
from regard.runs import checkpoint, checksums, settings, verify
from regard.training.loop import Interrupted, Trainer
from tests.inputs import example
from tests.torture import forked

STEPS, STOP = 20, 10
SET = [
    "training.every=5", "training.average=2", "training.budget=300", "training.patience=100", "training.accumulate=2",
    "data.held_out=10", "model.width=16", "model.layers=1", "model.dropout=0.2",
]  # fmt: skip
MORE = {
    ("tokens", "tag"): ["tokens.spelling_width=8"],
    ("tokens", "classify"): [],
    ("tokens", "continue"): ["model.heads=2", "model.hidden=16", "output.context=48", "training.budget=200"],
    ("tokens", "fill"): ["model.heads=2", "model.hidden=16"],
    ("frames", "tag"): ["model.hidden=16", "model.kernel=5", "model.window=4,4", "frames.bins=8"],
    ("frames", "classify"): ["model.hidden=16", "frames.bins=8", "training.budget=100"],
    ("frames", "convert"): [
        "encoder.width=16",
        "encoder.layers=1",
        "encoder.hidden=16",
        "frames.bins=8",
        "training.budget=200",
    ],
    ("patches", "convert"): ["encoder.width=8", "model.heads=2", "model.hidden=16"],
    ("patches", "classify"): ["patches.mixup=0.4", "patches.colour=0.1", "model.norm=batch"],
    ("clips", "convert"): [
        "encoder.width=16",
        "encoder.heads=2",
        "encoder.hidden=16",
        "model.heads=2",
        "clips.shift=0.1",
    ],
    ("clips", "classify"): ["model.heads=2", "model.hidden=16", "clips.erase=0.5"],
    ("nodes", "convert"): ["encoder.dropout=0"],
    ("patches", "detect"): [
        "encoder.width=16", "encoder.layers=1", "encoder.dropout=0.1", "model.hidden=16", "model.queries=6",
        "training.accumulate=1",
    ],
    ("patches", "imagine"): ["output.latent=3", "output.width=8"],
    ("series", "imagine"): ["output.latent=2", "output.width=8"],
}  # fmt: skip
PLAYERS = ["model.kind=sagan", "model.width=8"]  # a critic and a generator, in turns
example.register()
FITTING = [(i, o) for i in INPUTS for o in OUTPUTS if not OUTPUTS[o].needs - INPUTS[i].offers]
# Each input once and each output once: what costs a process of its own is tried on these.
ONCE = [max((pair for pair in FITTING if pair[1] == o), key=lambda pair: pair[0] == "tokens") for o in OUTPUTS]
ONCE += [next(pair for pair in FITTING if pair[0] == i) for i in INPUTS if i not in {i for i, _ in ONCE}]


def words(chosen: random.Random, letters: str, count: int) -> list[str]:
    return ["".join(chosen.choices(letters, k=chosen.randint(2, 5))) for _ in range(count)]


def pairs(chosen: random.Random) -> str:
    return "".join(f"{word}\t{word.upper()}\n" for word in words(chosen, "abcd", 60))


def labels(chosen: random.Random) -> str:
    lines = [(words(chosen, "ab", 4), words(chosen, "cd", 4)) for _ in range(30)]
    return "".join(f"{' '.join(one)}\tlow\n{' '.join(other)}\thigh\n" for one, other in lines)


def tags(chosen: random.Random) -> str:
    sentences = [words(chosen, "abc", chosen.randint(2, 5)) for _ in range(60)]
    tagged = ("".join(f"{word}\t{'A' if word[0] == 'a' else 'B'}\n" for word in sentence) for sentence in sentences)
    return "\n".join(tagged) + "\n"


def lines(chosen: random.Random) -> str:
    return "".join(" ".join(words(chosen, "abcd", 5)) + "\n" for _ in range(80))


def series(target: Callable[[list[float]], str], steps: tuple[int, int] = (4, 8)) -> Callable[[random.Random], str]:
    def made(chosen: random.Random) -> str:
        rows = [[math.sin(t * (1 + i % 2)) + chosen.random() for t in range(chosen.randint(*steps))] for i in range(60)]
        numbered = (" ".join(f"{x:.2f}" for x in row) + " ; " + " ".join(f"{x * x:.2f}" for x in row) for row in rows)
        return "series,target\n" + "".join(f"{s},{target(row)}\n" for s, row in zip(numbered, rows, strict=True))

    return made


def images(captions: bool) -> Callable[[random.Random], bytes]:
    """Bars that lie or stand, of three shades, as an NPZ file."""

    def made(chosen: random.Random) -> bytes:
        pixels, targets = np.zeros((60, 12, 12), np.uint8), []
        for i in range(60):
            lies, place, shade = i % 2 == 0, chosen.randint(1, 9), chosen.choice((90, 170, 250))
            pixels[i][(slice(place, place + 3), slice(2, 10))[:: 1 if lies else -1]] = shade
            name = "lying" if lies else "standing"
            targets.append(f"a {'dark' if shade < 100 else 'bright'} {name} bar" if captions else name)
        file = io.BytesIO()
        np.savez(file, images=pixels, **{"captions" if captions else "labels": np.array(targets)})
        return file.getvalue()

    return made


def clips(captions: bool) -> Callable[[random.Random], bytes]:
    """A bar that moves left or right in two or three frames, in an archive of animated files."""

    def made(chosen: random.Random) -> bytes:
        file, table = io.BytesIO(), ["file_name,caption\n"]
        with zipfile.ZipFile(file, "w") as archive:
            for i in range(60):
                way, shade = ("left", "right")[i % 2], chosen.choice((90, 250))
                images = []
                for t in range(chosen.randint(2, 3)):
                    pixels = np.zeros((12, 12), np.uint8)
                    place = 4 + (t if way == "right" else -t)
                    pixels[2:10, place : place + 3] = shade
                    images.append(Image.fromarray(pixels))
                content = io.BytesIO()
                images[0].save(content, "GIF", save_all=True, append_images=images[1:], duration=100)
                archive.writestr(f"{i}.gif" if captions else f"{way}/{i}.gif", content.getvalue())
                table.append(f"{i}.gif,a {'dark' if shade < 100 else 'bright'} bar goes {way}\n")
            if captions:
                archive.writestr("metadata.csv", "".join(table))
        return file.getvalue()

    return made


def crowds(chosen: random.Random) -> bytes:
    """Shapes with their boxes, as an archive with a COCO file; every fourth picture has none."""
    made, file = io.BytesIO(), io.BytesIO()
    shapes.write(made, 40, str(chosen.random()))
    with zipfile.ZipFile(made) as whole, zipfile.ZipFile(file, "w") as some:
        for name in whole.namelist():
            content = whole.read(name)
            if name.endswith(".json"):
                found = json.loads(content)
                found["annotations"] = [entry for entry in found["annotations"] if entry["image_id"] % 4]
                content = json.dumps(found).encode()
            some.writestr(name, content)
    return file.getvalue()


def sounds(reads: str) -> Callable[[random.Random], bytes]:
    """Low and high tones in an archive: one in a folder of its label, some with their times, or some with their names."""

    def made(chosen: random.Random) -> bytes:
        file, table = io.BytesIO(), ["path\ttext\n"]
        with zipfile.ZipFile(file, "w") as archive:
            for i in range(40):
                said = chosen.choices("ab", k=1 if reads == "classify" else chosen.randint(1, 3))
                seconds = [chosen.uniform(0.04, 0.08) for _ in said]
                tones = [tone(300 if c == "a" else 1200, s) for c, s in zip(said, seconds, strict=True)]
                wave = io.BytesIO()
                soundfile.write(wave, np.concatenate(tones), 4000, format="WAV")
                name = f"{said[0]}/{i}" if reads == "classify" else f"{i}"
                archive.writestr(f"{name}.wav", wave.getvalue())
                ends = [0.0, *itertools.accumulate(seconds)]
                spans = [f"{a:.4f} {b:.4f} {c}\n" for a, b, c in zip(ends, ends[1:], said, strict=False)]
                if reads == "tag":
                    archive.writestr(f"{i}.lab", "".join(spans))
                table.append(f"{i}.wav\t{' '.join(said)}\n")
            if reads == "convert":
                archive.writestr("metadata.tsv", "".join(table))
        return file.getvalue()

    def tone(hertz: float, seconds: float) -> Any:
        time = np.arange(round(4000 * seconds)) / 4000
        return 0.3 * np.sin(2 * np.pi * hertz * time)

    return made


def graphs(target: Callable[[random.Random, list[str], set[tuple[int, int]]], dict[str, Any]]) -> Callable[..., str]:
    """Rings of 4 to 7 nodes of two colours, some with a chord."""

    def made(chosen: random.Random) -> str:
        found = []
        for _ in range(60):
            colours = chosen.choices(("red", "blue"), k=chosen.randint(4, 7))
            pairs = (
                {(i, (i + 1) % len(colours)) for i in range(len(colours))} | {(0, 2)}
                if chosen.random() < 0.5
                else set()
            )
            found.append(target(chosen, colours, pairs))
        return json.dumps(found)

    return made


def ring(colours: list[str], pairs: set[tuple[int, int]], labels: list[str | None] | None = None) -> dict[str, Any]:
    nodes = [{"id": f"n{i}", "colour": colour} for i, colour in enumerate(colours)]
    if labels is not None:
        nodes = [node | {"label": label} for node, label in zip(nodes, labels, strict=True)]
    return {"nodes": nodes, "links": [{"source": f"n{a}", "target": f"n{b}"} for a, b in sorted(pairs)]}


def many_reds(colours: list[str]) -> str:
    return "many" if colours.count("red") > len(colours) / 2 else "few"


TOYS: dict[str, dict[str, Callable[[random.Random], str | bytes]]] = {
    "patches": {"convert": images(True), "classify": images(False), "imagine": images(False), "detect": crowds},
    "clips": {"convert": clips(True), "classify": clips(False)},
    "frames": {name: sounds(name) for name in ("convert", "classify", "tag")},
    "tokens": {"convert": pairs, "classify": labels, "tag": tags, "continue": lines},
    "series": {
        "convert": series(lambda row: f"from {row[0]:.1f} to {row[-1]:.1f}"),
        "classify": series(lambda row: "up" if row[-1] > row[0] else "down"),
        "tag": series(lambda row: " ".join("high" if x > 0.5 else "low" for x in row)),
        "imagine": series(lambda row: "up" if row[-1] > row[0] else "down", (6, 6)),
    },
    "nodes": {
        "convert": graphs(
            lambda draw, c, e: ring(c, e) | {"target": f"{c.count('red')} red and {len(e)} edges {draw.random():.1f}"}
        ),
        "classify": graphs(lambda _, c, e: ring(c, e) | {"label": many_reds(c)}),
        "tag": graphs(lambda draw, c, e: ring(c, e, [None if draw.random() < 0.2 else f"{x}er" for x in c])),
    },
}
SUFFIX = {"series": ".csv", "patches": ".npz", "frames": ".zip", "clips": ".zip", "nodes": ".json"}


def toy(folder: Path, source: str, task: str) -> Path:
    """A file of this input for this output."""
    reads = OUTPUTS[task].reads
    assert reads in TOYS.get(source, {}), f"write a toy file of {source} for {task} (tests/test_matrix.py)"
    usual = SUFFIX.get(source, ".tsv" if reads in ("convert", "classify") else ".txt")
    path = folder / f"{source}_{reads}{'.zip' if reads == 'detect' else usual}"
    if not path.exists():
        content = TOYS[source][reads](random.Random(1))
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def train(
    folder: Path,
    name: str,
    source: str,
    task: str,
    at: Callable[[Trainer], object] | None = None,
    more: Sequence[str] = (),
) -> Any:
    """Train in this process; `at` is called after every step."""
    inner = Trainer._step

    def step(self: Trainer) -> tuple[float, int]:
        found = inner(self)
        if at is not None:
            at(self)
        return found

    Trainer._step = step  # type: ignore[method-assign]
    path = toy(folder, source, task)
    try:
        changes = [*SET, *MORE.get((source, task), []), *more]
        if any(change.startswith("model.kind=sagan") for change in more):  # it has other settings than encoders
            changes = [change for change in changes if change in more or not change.startswith("model.")]
        return regard.train(path, folder / name, task=task, steps=STEPS, set=changes, quiet=True)
    except Interrupted:
        return None
    finally:
        Trainer._step = inner  # type: ignore[method-assign]


def outcome(run: Path) -> list[str]:
    """The sums of all that two equal runs have in common."""
    newest = checkpoint.states(run)[-1]
    files = [
        *(newest / f"{name}.safetensors" for name in ("weights", "optimiser", "random")),
        run / "model.safetensors",
    ]
    return [checksums.sha256(path) for path in files]


def stop(trainer: Trainer) -> None:
    trainer.stop = trainer.at.step == STOP


@pytest.fixture(scope="module", params=FITTING, ids="-".join)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    source, task = request.param
    folder = tmp_path_factory.mktemp("matrix")
    train(folder, "whole", source, task)
    return folder, source, task


def test_stopped_and_resumed_equals_uninterrupted(made: tuple[Path, str, str]) -> None:
    folder, source, task = made
    assert train(folder, "parts", source, task, stop) is None
    assert train(folder, "parts", source, task) is not None
    assert outcome(folder / "parts") == outcome(folder / "whole")
    assert verify.verify(folder / "parts") == []


def test_a_run_predicts_evaluates_shows_and_passes_its_checks(made: tuple[Path, str, str]) -> None:
    folder, source, task = made
    model, path = regard.load(folder / "whole"), toy(folder, source, task)
    asked = [model.task.input.text(item.example.source) for item in model.held([path]).items[:3]]
    out = io.StringIO()
    predict(model, iter([[*asked, ""]]), {"seed": 1} if model.task.output.draws else {}, out, as_json=True)
    answers = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [answer["source"] for answer in answers] == [*asked, ""]
    report = evaluate(model, [str(path)], {})
    assert all(math.isfinite(score.value) for score in report.scores)
    for suffix, magic in ((".png", b"\x89PNG"), (".html", b"<!doctype html>")):
        shown = show(model, asked[:1], folder / f"shown{suffix}")
        assert shown.read_bytes()[: len(magic)].lower() == magic.lower()
    assert info(folder / "whole").does == model.task.does
    said, sound = check_run(folder / "whole", accept=False)
    assert sound, said


@pytest.mark.parametrize(("source", "task"), [(i, o) for i in INPUTS for o in OUTPUTS if (i, o) not in FITTING])
def test_any_other_combination_is_refused_in_a_sentence(source: str, task: str) -> None:
    with pytest.raises(UserError, match=rf"The task {task} needs .* \({source}\) has none") as refused:
        settings.make({"task": task, "input": source, "data": {"train": ["x"]}}, "here")
    assert str(refused.value).count(". ") == 0


@pytest.mark.parametrize(("source", "task"), ONCE)
def test_killed_by_a_signal_it_resumes_to_the_same_bits(source: str, task: str, tmp_path: Path) -> None:
    def kill(trainer: Trainer) -> None:
        if trainer.at.step == STOP + 2:
            os.kill(os.getpid(), signal.SIGKILL)

    assert forked(lambda: train(tmp_path, "killed", source, task, kill)) == -signal.SIGKILL
    assert [path.name for path in checkpoint.states(tmp_path / "killed")][-1] == f"{STOP:08d}"
    train(tmp_path, "killed", source, task)
    train(tmp_path, "whole", source, task)
    assert outcome(tmp_path / "killed") == outcome(tmp_path / "whole")


def draw_nothing() -> None:
    """Settings without dropout and without words that are made unknown."""
    SET.append("model.dropout=0")
    for task in ("tag", "classify"):
        MORE["tokens", task] = [*MORE["tokens", task], "tokens.unknown=0"]
    MORE["patches", "classify"] = [*MORE["patches", "classify"], "model.norm=group"]  # BatchNorm is each process's own
    MORE["patches", "detect"] = [*MORE["patches", "detect"], "encoder.dropout=0", "model.denoising=0"]
    MORE["patches", "imagine"] = [*MORE["patches", "imagine"], "output.kind=autoencoder"]  # a VAE draws its codes
    for source in ("patches", "frames", "clips"):
        MORE[source, "convert"] = [*MORE[source, "convert"], "encoder.dropout=0"]


def test_two_processes_learn_as_one_does(tmp_path: Path) -> None:
    """One `torchrun` goes through each input and each output, without what each process draws for itself."""
    for source, task in ONCE:
        toy(tmp_path, source, task)
    code = f"""
from pathlib import Path
from tests import test_matrix as matrix
matrix.draw_nothing()
for source, task in matrix.ONCE:
    matrix.train(Path({str(tmp_path)!r}), f"two_{{source}}_{{task}}", source, task)
matrix.train(Path({str(tmp_path)!r}), "two_players", "patches", "imagine", more=matrix.PLAYERS)
"""
    script = tmp_path / "several.py"
    script.write_text(code, encoding="utf-8")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[1], env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": f".{os.pathsep}src"},
        capture_output=True, text=True, check=False, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    drawing = [*SET], {**MORE}
    draw_nothing()
    try:
        for source, task in ONCE:
            train(tmp_path, f"one_{source}_{task}", source, task)
    finally:
        SET[:] = drawing[0]
        MORE.update(drawing[1])
    for source, task in ONCE:
        one, two = (
            [json.loads(line)["loss"] for line in (tmp_path / f"{n}_{source}_{task}/metrics.jsonl").open()]
            for n in ("one", "two")
        )
        if task != "fill":  # each process hides words of its own
            assert one == pytest.approx(two, abs=2e-4), (source, task)
        assert len(one) == STEPS // 5
    losses = [json.loads(line)["loss"] for line in (tmp_path / "two_players/metrics.jsonl").open()]
    assert len(losses) == STEPS / 5
    assert all(map(math.isfinite, losses))
