"""The ablation of GPT (Radford et al. 2018, table 5) on small tasks: how much do pre-training, the auxiliary language
model and the Transformer help? And BERT's two ways (Devlin et al. 2019, 5.3): fine-tuning, or a head on frozen
features.

    python recipes/understanding.py DATA -o runs/understanding --seeds 3

DATA holds the folders nlu_sick, cls_cola, cls_sst and, if it is there, multi30k. A GPT and an LSTM continue the
unlabelled texts of all of them, and a BERT fills in their words; then each of six variants is trained on four tasks:

    full                 GPT, pre-trained, with the auxiliary language-model loss
    no pre-training      the same from fresh weights
    no auxiliary LM      pre-trained, labels alone
    LSTM                 a causal LSTM, pre-trained, with the auxiliary loss
    BERT                 pre-trained, fine-tuned
    BERT, frozen         pre-trained, only the head learns

Interrupted, it resumes. The table is written to standard output, all scores to OUT/scores.json.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import statistics
from pathlib import Path
from typing import Any

import regard

SIZES = {"layers": 2, "width": 128, "heads": 4, "hidden": 512}
COMMON = ["tokens.level=bpe", "tokens.size=3000", "tokens.lowercase=true"]
AUXILIARY = "model.language=0.5"
VARIANTS: dict[str, tuple[str, list[str]]] = {  # the kind of model, and its settings
    "full": ("gpt", [AUXILIARY]),
    "no pre-training": ("gpt", [AUXILIARY]),
    "no auxiliary LM": ("gpt", []),
    "LSTM": ("recurrent", [AUXILIARY, "model.kind=recurrent", "model.both_ways=false"]),
    "BERT": ("bert", []),
    "BERT, frozen": ("bert", ["training.frozen=true"]),
}
TASKS = {
    "SICK entailment (accuracy)": ("sick_label", []),
    "SICK relatedness (Pearson)": ("sick_number", ["output.kind=number"]),
    "CoLA (Matthews)": ("cola", ["output.metric=matthews"]),
    "SST-2 (accuracy)": ("sst", []),
}


def lines(path: Path) -> list[str]:
    with gzip.open(path, "rt", encoding="utf-8-sig") as file:
        return file.read().splitlines()


def write(path: Path, rows: list[tuple[str, ...]]) -> None:
    path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")


def prepare(data: Path, out: Path) -> None:
    """Write each task as text<TAB>label, and all unlabelled training texts as one file."""
    out.mkdir(parents=True, exist_ok=True)
    plain = lines(data / "multi30k/train.en.gz") if (data / "multi30k/train.en.gz").exists() else []
    for split, name in (("train", "train"), ("trial", "valid"), ("test", "test")):
        rows = list(csv.reader(lines(data / f"nlu_sick/SICK_{split}.txt.gz"), delimiter="\t", quoting=csv.QUOTE_NONE))[
            1:
        ]
        write(out / f"sick_label.{name}.tsv", [(f"{row[1]} ||| {row[2]}", row[4]) for row in rows])
        related = [(f"{row[1]} ||| {row[2]}", row[3]) for row in rows]
        if name == "train":  # relatedness has no direction: both orders, as in the paper, 3.3
            related += [(f"{row[2]} ||| {row[1]}", row[3]) for row in rows]
        write(out / f"sick_number.{name}.tsv", related)
        if name == "train":
            plain += [text for row in rows for text in row[1:3]]
    parts = (("in_domain_train", "train"), ("in_domain_dev", "valid"), ("out_of_domain_dev", "test"))
    for split, name in parts:
        rows = [line.split("\t") for line in lines(data / f"cls_cola/{split}.tsv.gz")]
        write(out / f"cola.{name}.tsv", [(row[3], "good" if row[1] == "1" else "bad") for row in rows])
        plain += [row[3] for row in rows] if name == "train" else []
    for split, name in (("train", "train"), ("dev", "valid"), ("test", "test")):
        rows = [line.split(" ", 1) for line in lines(data / f"cls_sst/stsa.binary.{split}.gz")]
        write(out / f"sst.{name}.tsv", [(row[1], "positive" if row[0] == "1" else "negative") for row in rows])
        plain += [row[1] for row in rows] if name == "train" else []
    (out / "plain.txt").write_text("\n".join(plain) + "\n", encoding="utf-8")


def pretrain(out: Path, kind: str, steps: int) -> Path:
    """Train a model of this kind on the unlabelled texts."""
    sizes = ["model.width=192"] if kind == "recurrent" else [f"model.{name}={value}" for name, value in SIZES.items()]
    how = [*COMMON, f"model.kind={kind}", *sizes, "model.dropout=0.1", "training.budget=2080"]
    how += ["training.optimiser=muon", "training.rate=4e-3", "training.warmup=200", f"training.every={steps // 4}"]
    how += [] if kind == "bert" else ["output.context=64"]
    task, run = "fill" if kind == "bert" else "continue", out / f"pretrained_{kind}"
    if not (run / "README.md").exists():
        regard.train(out / "plain.txt", run, task=task, steps=steps, set=how, quiet=True)
    return run


def finetune(
    out: Path, variant: str, task: str, more: list[str], seed: int, steps: int, pretrained: dict[str, Path]
) -> float:
    """Train one variant on one task; return its first score on the test data."""
    run = out / "runs" / f"{task}-{variant.replace(', ', '_').replace(' ', '_')}-{seed}"
    kind, changes = VARIANTS[variant]
    how = [f"output.pooling={'first' if kind == 'bert' else 'last'}", *changes, *more]
    how += ["training.budget=1024", "training.smoothing=0", "model.dropout=0.2"]
    how += [f"training.every={max(1, steps // 3)}", "training.rate=5e-4", "training.warmup=50", f"training.patience={steps}"]
    start: Path | None = pretrained[kind]
    if variant == "no pre-training":
        start = None
        how += [*COMMON, "model.kind=gpt", *(f"model.{name}={value}" for name, value in SIZES.items())]
    files: dict[str, Any] = {"valid": [out / f"{task}.valid.tsv"], "test": [out / f"{task}.test.tsv"]}
    if not (run / "README.md").exists():
        regard.train(
            out / f"{task}.train.tsv",
            run,
            task="classify",
            start=start,
            steps=steps,
            seed=seed,
            set=how,
            quiet=True,
            **files,
        )
    return float(regard.load(run).evaluate([out / f"{task}.test.tsv"])[0][0].value)


def table(scores: dict[str, dict[str, list[float]]]) -> str:
    """Return mean ± deviation over seeds of each variant and task, and the average over tasks."""
    rows = [["variant", "average", *TASKS]]
    for variant, found in scores.items():
        means = [statistics.mean(found[task]) for task in TASKS if found.get(task)]
        cells = [
            f"{statistics.mean(v):.1f}" + (f" ± {statistics.stdev(v):.1f}" if len(v) > 1 else "")
            if (v := found.get(t))
            else ""
            for t in TASKS
        ]
        rows.append([variant, f"{statistics.mean(means):.1f}" if len(means) == len(TASKS) else "", *cells])
    return "\n".join("| " + " | ".join(row) + " |" for row in [rows[0], ["---"] * len(rows[0]), *rows[1:]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("-o", "--out", type=Path, default=Path("runs/understanding"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--pretraining", type=int, default=3000, help="steps")
    parser.add_argument("--steps", type=int, default=600, help="of fine-tuning")
    asked = parser.parse_args()
    prepare(asked.data, asked.out)
    pretrained = {kind: pretrain(asked.out, kind, asked.pretraining) for kind in ("gpt", "recurrent", "bert")}
    scores: dict[str, dict[str, list[float]]] = {variant: {} for variant in VARIANTS}
    for seed in range(1, asked.seeds + 1):
        for title, (task, more) in TASKS.items():
            for variant in VARIANTS:
                found = finetune(asked.out, variant, task, more, seed, asked.steps, pretrained)
                scores[variant].setdefault(title, []).append(found)
                (asked.out / "scores.json").write_text(json.dumps(scores, indent=1), encoding="utf-8")
        print(table(scores), flush=True)


if __name__ == "__main__":
    main()
