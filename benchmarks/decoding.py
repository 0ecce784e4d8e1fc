"""Answers by Regard's engines, Hugging Face's `generate` and CTranslate2 side by side: `make bench-decode`.

From text to text: lines with the lengths of image captions, 25 tokens written to each, a Transformer of width 256 with
3 + 3 layers and 8,000 words. Every program runs in a process of its own with as many threads; they take turns at all
the texts, and the order of a turn is reversed in the next. What is reported are tokens written a second, and the ratio
to a peer within a turn (median and quartiles).
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
from regard.exchange import ctranslate2

SHAPE = SHAPES["transformer 256"]
AGAINST = {
    "regard torch": "transformers",
    "regard ctranslate2": "ctranslate2",
    "regard ctranslate2-int8": "ctranslate2 int8",
}


def write(folder: Path, texts: int) -> None:
    """The texts, a run that has hardly learned, and CTranslate2's form of it."""
    ours.corpus(folder / "pairs.tsv", SHAPE.size - 4)
    lines = (folder / "pairs.tsv").read_text(encoding="utf-8").splitlines()[:texts]
    (folder / "texts.txt").write_text("".join(line.split("\t")[0] + "\n" for line in lines), encoding="utf-8")
    model = {"layers": SHAPE.layers, "width": SHAPE.width, "hidden": SHAPE.hidden, "heads": SHAPE.heads}
    tokens = {"source_level": "words", "target_level": "words", "joint": "true", "size": SHAPE.size}
    settings = [f"model.{key}={value}" for key, value in ({"kind": "transformer"} | model).items()]
    settings += [f"tokens.{key}={value}" for key, value in tokens.items()] + ["data.held_out=20", "training.budget=512"]
    ctranslate2.export(
        regard.train(folder / "pairs.tsv", folder / "run", steps=1, set=settings, quiet=True), folder / "ctranslate2"
    )


def compare(beam: int, threads: int, turns: int, folder: Path) -> list[dict[str, Any]]:
    """Rows of the table: one for each program."""
    programs = [name for name in DECODERS if name.endswith(f", beam {beam}")]
    workers = {program: Worker(program, SHAPE, folder, threads, sys.executable) for program in programs}
    written = {program: worker.ask("steps 1")[1] for program, worker in workers.items()}  # warm
    seconds: dict[str, list[float]] = {program: [] for program in programs}
    for turn in range(turns):
        for program in programs if turn % 2 == 0 else programs[::-1]:
            seconds[program].append(workers[program].ask("steps 1")[0])
    for worker in workers.values():
        worker.end()
    rows = []
    for program in programs:
        peer = AGAINST.get(program.split(",")[0])
        pairs = zip(seconds[f"{peer}, beam {beam}"], seconds[program], strict=True) if peer else []
        rows.append(
            {
                "beam": beam,
                "threads": threads,
                "program": program.split(",")[0],
                "tokens/s": written[program] / statistics.median(seconds[program]),
                "× faster": f"{quartiles([a / b for a, b in pairs])} than {peer}" if peer else "",
            }
        )
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beam", type=int, choices=(1, 5), action="append", help="one or both; both without it")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--texts", type=int, default=512)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        write(Path(place), asked.texts)
        found = [row for beam in asked.beam or (1, 5) for row in compare(beam, asked.threads, asked.turns, Path(place))]
    report("decoding", found)
