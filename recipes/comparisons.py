"""The lectures' comparisons: `python recipes/comparisons.py run NAME…` makes them, `… page` writes docs/comparisons.md.

`run --processor NAME…` counts seconds and minutes of the processor, with one thread: for machines that have other work.
Start them in the folder of the sources, with the data under `data/`; make `data/copy` and `data/reverse` with
recipes/sequences.py and `data/fsdd` with recipes/speech.py. A comparison is one `regard compare`; its result,
`comparison.json`, is kept in docs/comparisons/, and the page is written from these files alone. What has no result yet
is listed as not run.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.comparison import equal_quality, report, table
from regard.comparison.paths import as_table as as_paths
from regard.comparison.paths import paths
from regard.comparison.symmetries import as_table, symmetries

ROOT = Path(__file__).parent.parent
PROCESSOR = ROOT / "recipes" / "processor"
RESULTS, PAGE, PICTURES = ROOT / "docs" / "comparisons", ROOT / "docs" / "comparisons.md", ROOT / "docs" / "pictures"
TINY = "model.width=64 model.hidden=128 model.heads=4 model.layers=2 model.dropout=0"
WHOLE = "training.patience=100000 training.ceiling=false"  # nobody stops early
SHORT = f"training.warmup=50 training.budget=2000 training.smoothing=0 training.every=100 {WHOLE}"
WRONG = "tokens.level=symbols output.metric=wer decoding.beam=1"  # letters that are wrong, also of long answers
KINDS = "sinusoidal,learned,rotary,alibi,t5"
LETTERS = "--valid data/{0}/valid.tsv --test data/{0}/test.tsv"
G2P = "data/g2p_sigmorphon2021/fre"


@dataclass(frozen=True)
class Asked:
    """A comparison: its heading, its question, the arguments of `regard compare`, and what its result says."""

    heading: str
    question: str
    arguments: str
    answer: str = ""


def _positions(task: str) -> str:
    return (
        f"data/{task}/train.tsv {LETTERS.format(task)} --lengths 8,16,32,64 --vary model.position={KINDS} "
        f"--set model.kind=transformer {TINY} {WRONG} training.rate=0.003 {SHORT} --steps 400 --seeds 2"
    )


def _small(name: str, more: str) -> str:
    return (
        f"{G2P}_train.tsv.gz --valid {G2P}_dev.tsv.gz --test {G2P}_test.tsv.gz "
        f"--variants recipes/small_machines/{name}.yaml {more} --seeds 2"
    )


ALL = {
    "scores": Asked(
        "Scores of attention",
        "An RNN reverses words of up to 8 letters and is tried on up to 16: which score aligns best?",
        f"data/reverse/train.tsv {LETTERS.format('reverse')} --lengths 8,16 "
        "--vary model.attention=additive,dot,scaled_dot,bilinear,mlp,mean --set model.kind=recurrent model.width=48 "
        f"model.layers=1 model.dropout=0 {WRONG} training.rate=0.01 {SHORT} --steps 200 --seeds 3",
        "Every score aligns: 2 to 13 % of the letters are wrong, which three seeds do not tell apart; with the mean, which weighs "
        "all letters\nalike, 27 % are. At twice the length 39 % and more are wrong with each of them.",
    ),
    "positions_copy": Asked(
        "Positions: copying",
        "Trained on up to 8 letters: which kind of positions still copies 2, 4 and 8 times as many?",
        _positions("copy"),
        "None copies longer sequences than it has seen: at twice the length more than a third of the letters are wrong, at "
        "eight times as many\nas where nothing is read (majority). ALiBi sees how far away a letter is, but not on which "
        "side: without positions across, a sequence and\nits reversal are the same to its decoder.",
    ),
    "positions_reverse": Asked(
        "Positions: reversing",
        "The same for reversing.",
        _positions("reverse"),
        "As in copying: who knows where a letter stands learns it at the trained length (sinusoids, a table, rotations), who sees "
        "distances alone\n(ALiBi, T5) hardly, and none of them does it at twice the length.",
    ),
    "positions_shakespeare": Asked(
        "Positions: text",
        "A language model of characters, trained with a context of 32, reads 64, 128 and 256.",
        f"data/lm_tinyshakespeare/input.txt.gz --lengths 32,64,128,256 --vary model.position={KINDS} --set "
        "model.width=64 model.hidden=256 model.heads=4 model.layers=2 model.dropout=0 data.held_out=400 "
        f"training.budget=1056 training.warmup=50 training.every=100 {WHOLE} --steps 400 --seeds 2",
        "The published shape (Press et al. 2022): with ALiBi the perplexity is the same at eight times the length, with "
        "sinusoids it is twice as high\nat twice the length already, rotary and T5 lie between, and a learned table ends.",
    ),
    "segments": Asked(
        "Segments with a memory",
        "Characters, a context of 256 read at once (GPT), by segments of 64 with a memory of 64 (Transformer-XL), or one by one "
        "(LSTM).",
        "data/lm_tinyshakespeare/input.txt.gz --variants recipes/segments/kinds.yaml --set model.dropout=0 data.held_out=200 "
        f"output.context=256 training.budget=2056 training.warmup=50 training.every=100 {WHOLE} --steps 400 --seeds 3",
        "A memory of 64 is worth a little more than a context of 256 whose positions are learned; rotary positions and an LSTM are worth "
        "more, and a\nwindow of four characters more than any of them: after so few steps what is near counts most.",
    ),
    "window_tagging": Asked(
        "Neighbours alone, or self-attention",
        "A fully connected network over each word and its neighbours, against self-attention and an LSTM: parts of speech.",
        "data/ud_english_ewt/en_ewt-ud-train.conllu.gz --valid data/ud_english_ewt/en_ewt-ud-dev.conllu.gz "
        "--test data/ud_english_ewt/en_ewt-ud-test.conllu.gz --vary model.kind=window,transformer,recurrent "
        "--set model.width=64 tokens.level=words tokens.spelling_width=32 training.budget=1024 "
        f"training.rate=0.004 training.warmup=50 training.every=300 {WHOLE} --steps 1500 --seeds 3",
        "As lectures have it, before self-attention comes a window: after so few steps the neighbours of a word say more about it than "
        "what attention\nfinds, which is no better than the most frequent tag of each word. The LSTM waits for each word before the next, and "
        "learns least.",
    ),
    "kinds_text": Asked(
        "CNN, RNN, attention: text",
        "Kinds of questions (TREC), with equal numbers of parameters.",
        "data/cls_trec/TREC.train.all.gz --test data/cls_trec/TREC.test.all.gz --vary "
        "model.kind=transformer,convolution,recurrent --set model.width=64 data.encoding=latin-1 training.rate=0.003 "
        f"training.warmup=30 training.every=100 {WHOLE} --match parameters --steps 600 --seeds 3",
        "Questions are short, and all kinds are equally good at them; what differs is the speed: the LSTM and the convolution answer 2.1 "
        "and 1.6 times\nas many as self-attention.",
    ),
    "kinds_images": Asked(
        "CNN, RNN, attention: images",
        "Clothes (3,000 images of Fashion-MNIST), with equal numbers of parameters; the RNN reads patches in a row.",
        "data/img_fashion_mnist/train-images-idx3-ubyte.gz --vary model.kind=vit,cnn,recurrent --set model.width=32 "
        "data.held_out=1000 data.most=3000 training.budget=3136 training.rate=0.003 training.warmup=30 "
        f"training.every=30 {WHOLE} --match parameters --steps 120 --seeds 4",
        "On few images the convolutions lead, as what is near belongs together; four seeds leave it open. To read patches in a row is "
        "as good as\nto attend to all of them here, at two fifths of the time of a step. The curve over the number of images is in "
        "[results](results.md#images).",
    ),
    "kinds_audio": Asked(
        "CNN, RNN, attention: audio",
        "Spoken digits (FSDD), with equal numbers of parameters.",
        "data/fsdd/train.tsv --valid data/fsdd/valid.tsv --test data/fsdd/test.tsv --vary "
        "model.kind=transformer,convolution,recurrent --set model.width=48 data.longest=500 training.budget=1024 "
        f"training.rate=0.003 training.warmup=30 training.every=50 {WHOLE} --match parameters --steps 200 --seeds 4",
        "Which digit was said is seen in a few neighbouring frames: a window is as good as any of the three, and only DeepSets, which "
        "knows no\norder at all, is worse.",
    ),
    "small_machines": Asked(
        "LSTM or Transformer: parameters at equal quality",
        "French pronunciation, three widths each: how small may a model be that is as good as the other kind's best?",
        _small("widths", f"--set decoding.beam=1 training.every=300 {WHOLE} --steps 1500"),
    ),
    **{
        f"small_machines_{size}_{minutes}": Asked(
            f"LSTM or Transformer: {size:,} parameters, {minutes} minute{'s' * (minutes > 1)}",
            "French pronunciation with equal numbers of parameters: quality, and milliseconds for each answer.",
            _small(str(size), f"--match parameters --minutes {minutes}"),
        )
        for minutes in (1, 5, 20)
        for size in (100_000, 1_000_000)
    },
}
START = """# Comparisons

Each of these is one command of [`regard compare`](compare.md): equal budgets, several seeds, simple baselines, verdicts
with intervals. The tables and pictures are written from the results kept in docs/comparisons/ by
`python recipes/comparisons.py page`; [recipes/comparisons.py](../recipes/comparisons.py) has the commands. The budgets are the
smallest that tell anything: they say what learns fast, not what is best in the end.
"""
CONVOLUTION = """## Attention that is a convolution

A self-attention layer with K² heads and relative positions equals a convolution with a kernel of K × K exactly (Cordonnier
et al. 2020): head h looks only at the place Δ_h away. [convolution.py](../src/regard/attention/convolution.py) builds the layer from
a convolution of torch; a test compares values and gradients to 10⁻¹³.

```python
import torch
from regard.attention.convolution import as_attention

convolution = torch.nn.Conv2d(3, 8, 3, padding=1)
x = torch.randn(2, 3, 10, 12)
assert as_attention(convolution)(x).allclose(convolution(x), atol=1e-5)
```

![Where the nine heads look from one pixel](pictures/compare_convolution.png)
"""


def run(names: list[str], *, processor: bool) -> None:
    path = os.pathsep.join([str(PROCESSOR), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"} if processor else None
    for name in names:
        command = ["regard", "compare", *shlex.split(ALL[name].arguments), "-o", f"runs/{name}"]
        print(shlex.join(command), file=sys.stderr)
        subprocess.run(command, check=True, env=environment)
        take(Path("runs") / name, name, "processor" if processor else "wall")


def take(folder: Path, name: str, clock: str = "wall") -> None:
    """Keep the result and the pictures of a comparison in docs/, with the clock that was looked at."""
    RESULTS.mkdir(exist_ok=True)
    facts = json.loads((folder / "comparison.json").read_text(encoding="utf-8")) | {"clock": clock}
    (RESULTS / f"{name}.json").write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if picture := _shown(facts):
        shutil.copy(folder / "pictures" / picture, PICTURES / f"compare_{name}_{picture}")


def _shown(facts: dict[str, Any]) -> str | None:
    """Return the name of the picture that the page has."""
    return next((name for name in ("lengths.png", "speed.png") if name in facts["pictures"]), None)


def page() -> str:
    """Return the page, written from the kept results."""
    parts, missing = [START], []
    for name, asked in ALL.items():
        path = RESULTS / f"{name}.json"
        if path.is_file():
            parts.append(_section(name, asked, json.loads(path.read_text(encoding="utf-8"))))
        else:
            missing.append(f"- {asked.heading}. {asked.question}\n  `regard compare {asked.arguments} -o runs/{name}`")
    parts += [CONVOLUTION, _paths(), _symmetries()]
    left = (
        "These did not fit into the time that was there:\n\n" + "\n".join(missing) if missing else "None: all were run."
    )
    return "\n".join([*parts, f"## Not run\n\n{left}\n"])  # other pages lead here


def _section(name: str, asked: Asked, facts: dict[str, Any]) -> str:
    said = table.concluded(facts)
    lines = [f"## {asked.heading}", asked.question, f"**{said}**", report.table(facts)]
    lines += equal_quality.sentences(facts)
    lines += [asked.answer] if asked.answer else []
    lines += [
        report.by_key(facts, key, what) for key, what in (("lengths", "length"), ("sizes", "examples")) if facts[key]
    ]
    lines.append(
        "\n".join(f"- {line}" for line in (*facts["fairness"], *(f"Warning: {each}." for each in facts["warnings"])))
    )
    if shown := _shown(facts):
        lines.append(f"![{facts['pictures'][shown]}](pictures/compare_{name}_{shown})")
    clock = " Seconds and minutes are those of the processor." if facts["clock"] == "processor" else ""
    return "\n\n".join([*lines, report.made(facts) + clock]) + "\n"


def _paths() -> str:
    return (
        "## Path lengths\n\nThe steps that a change of one element takes to reach another, and the operations of a pass "
        "for each element, measured on networks\nof the kinds above with width 32 (`python -m regard.comparison.paths`): "
        "states of an RNN that follow one another, convolutions, poolings,\nattention. A dash: no way before all elements "
        "are pooled. Distances are in elements, for the last two in pixels of a row.\n\n" + as_paths(paths()) + "\n"
    )


def _symmetries() -> str:
    return (
        "## Symmetries\n\nWhich architecture commutes with which change of its input, measured:\nmax |F(g x) − g F(x)| ÷ "
        "max |F(x)| with random weights; a tick where it is rounding alone. Pixels of a periodic grid are also\nelements of a "
        "set and nodes of a graph, so that each change can be applied to each network "
        "(`python -m regard.comparison.symmetries`).\n\n" + as_table(symmetries()) + "\n"
    )


def draw_convolution(path: Path) -> None:
    import torch

    from regard import pictures
    from regard.attention.convolution import as_attention
    from regard.pictures.places import places

    torch.manual_seed(0)
    _, weights = as_attention(torch.nn.Conv2d(1, 1, 3, padding=1)).look(torch.zeros(1, 1, 5, 5))
    found = weights[0, :, 12].view(9, 7, 7)[:, 1:-1, 1:-1].detach().numpy()
    names = [f"Δ = ({row}, {column})" for row in (-1, 0, 1) for column in (-1, 0, 1)]
    pictures.save(places(dict(zip(names, found, strict=True)), (2, 2), columns=3), path)


def main() -> None:
    what, *names = sys.argv[1:] or [""]
    processor = names[:1] == ["--processor"]
    names = names[processor:]
    if what == "run" and names and all(name in ALL for name in names):
        run(names, processor=processor)
    elif what == "take" and len(names) == 2 and names[1] in ALL:
        take(Path(names[0]), names[1])
    elif what == "page":
        draw_convolution(PICTURES / "compare_convolution.png")
        PAGE.write_text(page(), encoding="utf-8")
    else:
        raise SystemExit(
            f"usage: python recipes/comparisons.py run [--processor] NAME… | take FOLDER NAME | page; names: {', '.join(ALL)}"
        )


if __name__ == "__main__":
    main()
