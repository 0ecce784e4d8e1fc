"""Minutes of training until a translation is good: `make bench-bleu DATA=…/multi30k`.

English to German, Transformer-Tiny (4 + 4 layers, width 128, hidden 256, 4 heads, joint sub-words), the same batches
and threads for both programs. They take turns of a few minutes; after each the validation sentences are translated
greedily, which no clock counts. Regard trains by its own recipe, Hugging Face's Marian by Adam with a warm-up; a
program that needs more than `--times` the minutes of the first to be there is given up.
"""

import argparse
import gzip
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.measure import report
from benchmarks.peers import ours
from benchmarks.peers.learners import LEARNERS, MINUTES
from benchmarks.peers.programs import Shape
from benchmarks.training import Worker

from regard import config

MODEL = {"kind": "transformer", "layers": 4, "width": 128, "hidden": 256, "heads": 4}
DROPOUT = {"regard": 0.15, "transformers": 0.1}


def write(folder: Path, data: Path, steps: int) -> int:
    """The recipe, the validation pairs and the batches; the size of the vocabulary."""
    train, valid = ([str(data / f"{part}.{side}.gz") for side in ("en", "de")] for part in ("train", "val"))
    sides = [gzip.decompress(Path(path).read_bytes()).decode().splitlines() for path in valid]
    lines = ["\t".join(pair) + "\n" for pair in zip(*sides, strict=True)]
    (folder / "valid.tsv").write_text("".join(lines), encoding="utf-8")
    settings = config.make(
        {
            "task": "convert",
            "data": {"train": train, "valid": valid},
            "tokens": {
                "source_level": "bpe", "target_level": "bpe", "joint": True, "lowercase": True, "size": 10_000
            },
            "model": {**MODEL, "dropout": DROPOUT["regard"]},
            "training": {
                "budget": 4096, "optimiser": "muon", "rate": 4e-3, "warmup": 300, "steps": steps, "minutes": None
            },
        },
        "the benchmark",
    )  # fmt: skip
    config.write(settings, folder / "config.yaml", {})
    trainer = ours.of_config(folder)
    ours.write(trainer, folder, epochs=10)
    return int(trainer.task.vocabularies[0].size)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder with train.en.gz, train.de.gz, val.en.gz and val.de.gz")
    parser.add_argument("--bleu", type=float, default=36.0)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--steps", type=int, default=2800, help="of Regard's schedule, which ends with them")
    parser.add_argument("--most", type=int, default=90, help="minutes after which a program is given up")
    parser.add_argument("--times", type=float, default=2.2, help="it is given up too after as many times the first's")
    asked = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as place:
        size = write(Path(place), asked.data, asked.steps)
        workers = {
            name: Worker(
                name,
                Shape("transformer", MODEL["layers"], MODEL["width"], MODEL["hidden"], MODEL["heads"], size, dropout),
                Path(place),
                asked.threads,
                sys.executable,
            )
            for name, dropout in zip(LEARNERS, DROPOUT.values(), strict=True)
        }
        best = dict.fromkeys(workers, 0.0)
        most, minute = asked.most, 0
        while minute < most and min(best.values()) < asked.bleu:
            minute += MINUTES
            for name in [name for name in workers if best[name] < asked.bleu]:
                best[name] = max(best[name], found := workers[name].ask("steps 1")[1])
                rows.append({"program": name, "minute": minute, "BLEU": round(found, 2)})
                print(rows[-1], file=sys.stderr, flush=True)
                if best[name] >= asked.bleu:
                    most = min(most, round(minute * asked.times))
        for worker in workers.values():
            worker.end()
    report("reaching", rows)
