"""ListOps (Nangia and Bowman 2018; Tay et al. 2021), generated: which attention kind learns it in the same minutes.

    python benchmarks/listops.py --minutes 10

Nested lists of digits under MAX, MIN, MED (median) and SM (sum modulo 10), such as `[MAX 4 [MIN 7 2 ] 9 ]` → 9, of 128
to 512 tokens; ten answers, so guessing the most frequent one is the baseline. DeepSets, which sees no order, stands
beside: what it reaches needs no attention. Minutes are those of the processor, one thread: what else the machine does
costs no kind anything.
"""

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.measure import report

import regard
from regard.training import loop

KINDS = ("full", "local", "linear", "performer", "linformer", "bigbird", "deepsets")
OPERATIONS = {
    "MAX": max,
    "MIN": min,
    "MED": lambda values: int(statistics.median(values)),
    "SM": lambda values: sum(values) % 10,
}


def tree(chosen: random.Random, depth: int) -> tuple[list[str], int]:
    """Return the tokens of a list and its value."""
    if depth == 0 or chosen.random() < 0.25:
        digit = chosen.randrange(10)
        return [str(digit)], digit
    name = chosen.choice(list(OPERATIONS))
    parts = [tree(chosen, depth - 1) for _ in range(chosen.randint(2, 10))]
    value: int = OPERATIONS[name]([value for _, value in parts])  # type: ignore[operator]
    return [f"[{name}", *(token for tokens, _ in parts for token in tokens), "]"], value


def rows(chosen: random.Random, count: int, shortest: int, longest: int) -> list[tuple[str, int]]:
    """Return lists whose lengths are spread evenly, so that the answer does not hang on the length."""
    found: list[tuple[str, int]] = []
    while len(found) < count:
        tokens, value = tree(chosen, chosen.randint(3, 6))
        if shortest <= len(tokens) <= longest:
            found.append((" ".join(tokens), value))
    return found


def write(path: Path, made: list[tuple[str, int]]) -> None:
    path.write_text("".join(f"{text}\t{value}\n" for text, value in made), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--steps", type=int, help="steps instead of minutes")
    parser.add_argument("--kinds", nargs="*", default=KINDS)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--lengths", type=int, nargs=2, default=(128, 512))
    parser.add_argument("--seed", type=int, default=1)
    how = parser.parse_args()
    torch.set_num_threads(1)
    loop.time = SimpleNamespace(monotonic=time.process_time)  # type: ignore[attr-defined]
    chosen = random.Random(how.seed)
    test = rows(chosen, 1000, *how.lengths)
    train, valid = rows(chosen, how.rows, *how.lengths), rows(chosen, 300, *how.lengths)
    most = Counter(value for _, value in train).most_common(1)[0][0]
    table: list[dict[str, Any]] = [{"kind": "most frequent", "accuracy": sum(v == most for _, v in test) / 10}]
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{name}.tsv" for name in ("train", "valid", "test")]
        for path, made in zip(files, (train, valid, test), strict=True):
            write(path, made)
        for kind in how.kinds:
            settings = ["tokens.level=words", "tokens.unknown=0", "data.longest=512", "training.rate=1e-3"]
            settings += ["training.budget=4096", "training.warmup=200", f"training.seed={how.seed}"]
            settings += ["training.patience=1000000"]  # each kind has all of its minutes
            if kind == "deepsets":
                settings += ["model.kind=deepsets", "model.width=128"]
            else:
                settings += ["model.kind=transformer", "model.layers=4", "model.width=64", "model.hidden=128"]
                settings += ["model.heads=4", "model.dropout=0", f"model.attention={kind}", "model.reach=32"]
                settings += ["model.features=64", "model.columns=64", "model.block=16"]
            limit = {"steps": how.steps} if how.steps else {"minutes": how.minutes}
            model = regard.train(
                files[0], valid=files[1], out=f"{folder}/{kind}", task="classify", set=settings, quiet=True, **limit
            )
            score = model.evaluate([str(files[2])])[0][0]
            last = json.loads((Path(folder) / kind / "metrics.jsonl").read_text().splitlines()[-1])
            table.append({"kind": kind, "accuracy": score.value, "steps": last["step"], "minutes": last["minutes"]})
            table[-1]["tokens a second"] = last["tokens_per_second"]
            print(json.dumps(table[-1]), file=sys.stderr, flush=True)
    report("listops", table)


if __name__ == "__main__":
    main()
