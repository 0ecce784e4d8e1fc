"""Answers by Regard's engines, Hugging Face's `generate` and CTranslate2 side by side: `make bench-decode`.

From text to text: lines with the lengths of image captions, 25 tokens written to each, a Transformer of width 256 with
3 + 3 layers and 8,000 words. With `--run RUN --texts FILE` that run answers the lines of that file, and every answer is
as long as it comes out. All programs have the same weights, and each runs in a process of its own with as many threads;
they take turns at all the texts, and the order of a turn is reversed in the next. What is reported are texts answered a
second, the ratio to a peer within a turn (median and quartiles), and how many answers are the peer's to the letter.
"""

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.measure import quartiles, report
from benchmarks.peers import ours
from benchmarks.peers.decoders import DECODERS
from benchmarks.training import SHAPES, Worker

import regard
from regard.data.lines import read_text, refuse
from regard.errors import UserError
from regard.exchange import ctranslate2, huggingface

TOKENS = 25
SHAPE = SHAPES["transformer 256"]
AGAINST = {
    "regard torch": "transformers",
    "regard ctranslate2": "ctranslate2",
    "regard ctranslate2-int8": "ctranslate2 int8",
}


def begin(folder: Path, lines: int, run: Path | None, texts: Path | None) -> None:
    """The texts and the run in all three forms."""
    if run and texts:
        (folder / "run").symlink_to(run.resolve())
        found = [text for _, text in read_text(texts, refuse)][:lines]
        (folder / "texts.txt").write_text("".join(f"{line}\n" for line in found), encoding="utf-8")
    else:
        write(folder, lines)
    model = regard.load(folder / "run")
    ctranslate2.export(model, folder / "ctranslate2")
    huggingface.export(model, folder / "huggingface")


def write(folder: Path, texts: int) -> None:
    """The texts, how long an answer must be, and a run that has hardly learned."""
    ours.corpus(folder / "pairs.tsv", SHAPE.size - 4)
    lines = (folder / "pairs.tsv").read_text(encoding="utf-8").splitlines()[:texts]
    (folder / "texts.txt").write_text("".join(line.split("\t")[0] + "\n" for line in lines), encoding="utf-8")
    (folder / "tokens.txt").write_text(str(TOKENS))
    model = {"layers": SHAPE.layers, "width": SHAPE.width, "hidden": SHAPE.hidden, "heads": SHAPE.heads}
    tokens = {"source_level": "words", "target_level": "words", "joint": "true", "size": SHAPE.size}
    settings = [f"model.{key}={value}" for key, value in ({"kind": "transformer"} | model).items()]
    settings += [f"tokens.{key}={value}" for key, value in tokens.items()] + ["data.held_out=20", "training.budget=512"]
    regard.train(folder / "pairs.tsv", folder / "run", steps=1, set=settings, quiet=True)


def compare(beam: int, threads: int, turns: int, folder: Path) -> list[dict[str, Any]]:
    """Rows of the table: one for each program."""
    programs = [name for name in DECODERS if name.endswith(f", beam {beam}")]
    workers = {program: Worker(program, SHAPE, folder, threads, sys.executable) for program in programs}
    texts = {program: worker.ask("steps 1")[1] for program, worker in workers.items()}  # warm
    seconds: dict[str, list[float]] = {program: [] for program in programs}
    for turn in range(turns):
        for program in programs if turn % 2 == 0 else programs[::-1]:
            seconds[program].append(workers[program].ask("steps 1")[0])
    for worker in workers.values():
        worker.end()
    found = {program: (folder / f"{program}.out").read_text(encoding="utf-8").split("\n") for program in programs}
    rows = []
    for program in programs:
        row = {"beam": beam, "threads": threads, "program": program.split(",")[0]}
        row["texts/s"] = texts[program] / statistics.median(seconds[program])
        if peer := AGAINST.get(row["program"]):
            other = f"{peer}, beam {beam}"
            ratios = [a / b for a, b in zip(seconds[other], seconds[program], strict=True)]
            row["× faster"] = f"{quartiles(ratios)} than {peer}"
            row["same answers"] = sum(a == b for a, b in zip(found[program], found[other], strict=True))
        rows.append(row)
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beam", type=int, choices=(1, 5), action="append", help="one or both; both without it")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--lines", type=int, default=512, help="of the texts")
    parser.add_argument("--run", type=Path, help="a trained run that answers, instead of one that has hardly learned")
    parser.add_argument("--texts", type=Path, help="what it answers: a file, or a .gz of one")
    asked = parser.parse_args()
    if bool(asked.run) != bool(asked.texts):
        parser.error("--run and --texts come together")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        try:
            begin(folder, asked.lines, asked.run, asked.texts)
        except UserError as error:
            sys.exit(str(error))
        found = [row for beam in asked.beam or (1, 5) for row in compare(beam, asked.threads, asked.turns, folder)]
    report("decoding", found)
