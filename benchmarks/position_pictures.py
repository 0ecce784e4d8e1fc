"""Heat maps of the position tables of trained runs: `python -m benchmarks.position_pictures OUT.png --steps 300`.

One small Transformer for each table learns to turn strings of up to 24 letters round, where every position matters.
"""

import argparse
import random
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
import regard
from regard import pictures
from regard.inspection.positions import position_tables

SET = [
    "model.kind=transformer", "model.layers=1", "model.width=32", "model.hidden=64", "model.heads=4", "model.dropout=0",
    "training.budget=2048", "training.rate=0.004", "training.warmup=30", "training.every=1000", "model.scale=false",
    "model.ngrams=1", "decoding.beam=1", "data.held_out=50",
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=300)
    asked = parser.parse_args()
    chosen, tables = random.Random(1), {}
    with tempfile.TemporaryDirectory() as folder:
        words = ["".join(chosen.choices("abcdefgh", k=chosen.randint(4, 24))) for _ in range(4000)]
        path = Path(folder) / "reversed.tsv"
        path.write_text("".join(f"{word}\t{word[::-1]}\n" for word in words), encoding="utf-8")
        for kind in ("sinusoidal", "learned", "floater", "recurrent"):
            how = [*SET, f"model.position={kind}"]
            run = Path(folder) / kind
            model = regard.train(path, run, task="convert", steps=asked.steps, set=how, quiet=True, seed=1)
            first = next(iter(position_tables(model.network, 24).values()))
            right = model.evaluate([path])[0][0] if len(words) < 200 else None
            print(kind, first.shape, right, flush=True)
            tables[kind] = first
    pictures.save(pictures.position_tables(tables, f"position tables after {asked.steps} steps of training"), asked.out)


if __name__ == "__main__":
    main()
