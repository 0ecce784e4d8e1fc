"""The ablation of GPT (Radford et al. 2018, table 5) on small tasks: how much do pre-training, the auxiliary language
model and the Transformer help? And BERT's two ways (Devlin et al. 2019, 5.3): fine-tuning, or a head on frozen
features.

    python recipes/understanding.py DATA -o runs/understanding --seeds 3

DATA holds the folders nlu_sick, cls_cola, cls_sst and, if it is there, multi30k. A GPT and an LSTM continue the
unlabelled texts of all of them, and a BERT fills in their words; then each of six variants is trained on four tasks:

    full                 GPT, pre-trained, with the auxiliary language-model loss
    no pre-training      the same from fresh weights
    no auxiliary LM      pre-trained, labels alone
    LSTM                 a causal LSTM of as many weights, pre-trained, with the auxiliary loss
    BERT                 pre-trained, fine-tuned
    BERT, frozen         pre-trained, only the head learns: a query that weighs the features, and the output layer

All are fine-tuned alike, by Muon; the head alone learns by AdamW. Interrupted, it resumes. The table is written to
standard output after each seed, all scores to OUT/scores.json.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import random
import statistics
from pathlib import Path
from typing import Any

import regard

SIZES = ["layers=3", "width=96", "heads=4", "hidden=192"]
LSTM = ["width=160"]
COMMON = ["tokens.level=bpe", "tokens.size=2000", "tokens.lowercase=true"]
AUXILIARY = "model.language=0.5"
VARIANTS: dict[str, tuple[str, list[str]]] = {  # the kind of model, and its settings
    "full": ("gpt", [AUXILIARY]),
    "no pre-training": ("gpt", [AUXILIARY]),
    "no auxiliary LM": ("gpt", []),
    "LSTM": ("recurrent", [AUXILIARY, "model.kind=recurrent", "model.both_ways=false"]),
    "BERT": ("bert", []),
    "BERT, frozen": ("bert", ["training.frozen=true", "output.pooling=attention", "training.optimiser=adamw"]),
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
    """Write each task as text<TAB>label, and all unlabelled training texts as one file: a pair is a paragraph of two
    lines, in both orders, so that one sentence is of use for the other; so is a single text with a variant of it."""
    out.mkdir(parents=True, exist_ok=True)
    captions = data / "multi30k/train.en.gz"
    plain = lines(captions) if captions.exists() else []
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
            plain += [f"{a}\n{b}" for row in rows for a, b in ((row[1], row[2]), (row[2], row[1]))]
    parts = (("in_domain_train", "train"), ("in_domain_dev", "valid"), ("out_of_domain_dev", "test"))
    for split, name in parts:
        rows = [line.split("\t") for line in lines(data / f"cls_cola/{split}.tsv.gz")]
        write(out / f"cola.{name}.tsv", [(row[3], "good" if row[1] == "1" else "bad") for row in rows])
        plain += [row[3] for row in rows] if name == "train" else []
    for split, name in (("train", "train"), ("dev", "valid"), ("test", "test")):
        rows = [line.split(" ", 1) for line in lines(data / f"cls_sst/stsa.binary.{split}.gz")]
        write(out / f"sst.{name}.tsv", [(row[1], "positive" if row[0] == "1" else "negative") for row in rows])
        plain += [row[1] for row in rows] if name == "train" else []
    draw = random.Random(1)
    draw.shuffle(plain)
    (out / "plain.txt").write_text("\n\n".join(paired(text, draw) for text in plain) + "\n", encoding="utf-8")


def paired(text: str, draw: random.Random) -> str:
    """Return a text and a variant of it, in either order: a fifth of its words is missing, and half of the variants begin
    in the middle. What is a pair already, or too short, stays as it is.

    Few tasks of pairs can be solved without looking up the words of one sentence in the other, and small models do not
    learn that from 4,500 labelled pairs.
    """
    if "\n" in text or len(text.split()) < 6:
        return text
    words = [word for word in text.split() if draw.random() > 0.2] or text.split()
    start = draw.choice((0, draw.randrange(len(words))))
    variant = " ".join(words[start:] + words[:start])
    return f"{text}\n{variant}" if draw.random() < 0.5 else f"{variant}\n{text}"


def sizes(kind: str) -> list[str]:
    return [f"model.kind={kind}", *(f"model.{size}" for size in (LSTM if kind == "recurrent" else SIZES))]


def pretrain(out: Path, kind: str, steps: int) -> Path:
    """Train a model of this kind on the unlabelled texts."""
    how = [*COMMON, *sizes(kind), "model.dropout=0.1", "training.budget=2080", "training.optimiser=muon"]
    how += ["training.rate=4e-3", "training.warmup=100", f"training.every={steps // 4}", "training.average=1"]
    how += ["output.text=paragraph"] if kind == "bert" else ["output.context=64"]
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
    how = [f"output.pooling={'first' if kind == 'bert' else 'last'}", "tokens.unknown=0", "model.dropout=0.1"]
    how += [
        "training.budget=2048",
        "training.smoothing=0",
        "training.optimiser=muon",
        "training.rate=3e-3",
        "training.warmup=30",
    ]
    how += [f"training.every={max(1, steps // 4)}", f"training.patience={steps}", "training.average=1", *changes, *more]
    start: Path | None = pretrained[kind]
    if variant == "no pre-training":
        start, how = None, [*how, *COMMON, *sizes(kind)]
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
    return float(json.loads((run / "results.json").read_text())["test"][0]["value"])


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
    parser.add_argument("--pretraining", type=int, default=1200, help="steps")
    parser.add_argument("--steps", type=int, default=400, help="of fine-tuning")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=[*VARIANTS], metavar="VARIANT")
    asked = parser.parse_args()
    prepare(asked.data, asked.out)
    kinds = {VARIANTS[variant][0] for variant in asked.variants}
    pretrained = {kind: pretrain(asked.out, kind, asked.pretraining) for kind in sorted(kinds)}
    scores: dict[str, dict[str, list[float]]] = {variant: {} for variant in asked.variants}
    for seed in range(1, asked.seeds + 1):
        for title, (task, more) in TASKS.items():
            for variant in asked.variants:
                found = finetune(asked.out, variant, task, more, seed, asked.steps, pretrained)
                scores[variant].setdefault(title, []).append(found)
                (asked.out / "scores.json").write_text(json.dumps(scores, indent=1), encoding="utf-8")
        print(table(scores), flush=True)


if __name__ == "__main__":
    main()
