"""The WMT14 recipe at toy size on the same path: joint BPE, two processes, averages of 5 and of 20 checkpoints, beam 4,
length penalty 0.6, and the published score beside sacreBLEU."""

import json
import os
import random
import subprocess
from pathlib import Path

import regard
from regard.commands.evaluate import evaluate
from regard.training.averaging import average
from tests.training.test_distributed import TORCHRUN

RECIPE = Path(__file__).parent.parent / "recipes/wmt14_en_de_big.yaml"
WORDS = {"house": "Haus", "town": "Stadt", "old": "alt", "new": "neu", "first": "Erst", "well known": "wohl-bekannt"}
SMALL = [
    "model.layers=1", "model.width=16", "model.hidden=32", "model.heads=2", "tokens.size=120", "training.budget=400",
    "training.steps=44", "training.every=2", "training.rate=0.01", "training.warmup=5",
]  # fmt: skip


def write(folder: Path, name: str, count: int, seed: int) -> None:
    draw = random.Random(seed)
    pairs = [draw.choices(list(WORDS.items()), k=draw.randint(2, 6)) for _ in range(count)]
    for side, suffix in ((0, "en"), (1, "de")):
        lines = "".join(" ".join(pair[side] for pair in row) + "\n" for row in pairs)
        (folder / f"{name}.{suffix}").write_text(lines, encoding="utf-8")


def test_the_recipe_runs_from_end_to_end(tmp_path: Path) -> None:
    data = tmp_path / "data/wmt14"
    data.mkdir(parents=True)
    for name, count in (("train", 300), ("newstest2013", 12), ("newstest2014", 12)):
        write(data, name, count, len(name))
    changes = [part for setting in SMALL for part in ("--set", setting)]
    command = [*TORCHRUN, "-m", "regard", "train", str(RECIPE), "-o", "runs/toy", *changes]
    source = str(Path(regard.__file__).parents[1])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": source}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "average of the last 20 checkpoints" in done.stderr
    run = tmp_path / "runs/toy"
    tables = [json.loads((run / name).read_text(encoding="utf-8")) for name in ("tokenizer.json", "target.json")]
    assert tables[0]["model"] == tables[1]["model"]  # joint
    for last in (5, 20):
        model = regard.load(average(run, last, tmp_path / f"mean{last}"))
        assert (model.task.output.how.beam, model.task.output.how.length_penalty) == (4, 0.6)
        test = [str(data / f"newstest2014.{suffix}") for suffix in ("en", "de")]
        scores = evaluate(model, test, {}, compounds=True).scores
        assert (scores[0].name, scores[-1].name) == ("bleu", "compound_bleu")
