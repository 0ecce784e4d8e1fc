"""`regard compare` from the file to the table, on trainings of a second."""

import csv
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regard.comparison.cells import Cell
from regard.comparison.compare import Budget, Comparison, DataFiles, compare
from regard.comparison.variants import Variant, every_combination
from regard.errors import UserError
from regard.runs.model import load
from tests.conftest import Regard

SET = ["model.width=16", "model.dropout=0", "training.budget=400", "training.rate=0.03", "training.warmup=2"]
SET += ["training.every=15"]
GOOD = Variant("good", ("model.kind=deepsets",))
BAD = Variant("bad", ("model.kind=deepsets", "training.rate=1e-7"))


def write_words(path: Path, count: int, seed: int) -> str:
    """Words with the label of the letter that is in them; anyone can learn it who looks at each letter."""
    draw = random.Random(seed)
    lines = []
    for _ in range(count):
        label = draw.choice("xyz")
        word = [*draw.choices("abcde", k=draw.randint(2, 6)), label]
        draw.shuffle(word)
        lines.append(f"{' '.join(word)}\t{label}\n")
    path.write_text("text\tlabel\n" + "".join(lines), encoding="utf-8")
    return str(path)


def asked(folder: Path, variants: list[Variant], **more: Any) -> Comparison:
    files = DataFiles(
        [write_words(folder / "words.tsv", 300, 0)], test=[write_words(folder / "test.tsv", 120, 1)], set=SET
    )
    return Comparison(files, variants, folder / "compared", **{"budget": Budget(steps=30), "jobs": 2, **more})


@pytest.fixture(scope="session")
def compared(once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """A comparison of a good variant with one that learns nothing."""
    return once("compared", lambda folder: compare(asked(folder, [GOOD, BAD]), lambda _: None)) / "compared"


def facts_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))
    return found


def row_of(facts: dict[str, Any], name: str) -> dict[str, Any]:
    return next(row for row in facts["rows"] if row["name"] == name)


def test_a_deliberately_worse_variant_is_found_worse(compared: Path) -> None:
    facts = facts_of(compared)
    bad = row_of(facts, "bad")
    assert bad["verdict"]["word"] == "worse"
    assert bad["verdict"]["high"] < 0
    assert row_of(facts, "good")["quality"] > 90
    assert facts["conclusion"].startswith("In accuracy, compared with good: bad is ")


def test_simple_baselines_are_always_there(compared: Path) -> None:
    facts = facts_of(compared)
    names = {row["name"]: row["simple"] for row in facts["rows"]}
    assert names == {"good": False, "bad": False, "window": True, "majority": True}  # DeepSets is a variant already
    assert 20 < row_of(facts, "majority")["quality"] < 50


def test_each_variant_is_an_ordinary_run_that_the_test_data_scored(compared: Path) -> None:
    model = load(compared / "runs" / "good" / "seed-2")
    assert model.config.training.seed == 2
    scores, _ = model.evaluate(compared.parent / "test.tsv")
    assert scores[0].value == row_of(facts_of(compared), "good")["each"][1]


def test_every_cost_is_measured(compared: Path) -> None:
    for row in facts_of(compared)["rows"]:
        if row["name"] != "majority":
            assert all(value and value > 0 for value in row["costs"].values()), row["costs"]


def test_the_duration_is_that_of_training_and_measuring(compared: Path) -> None:
    found = [json.loads(path.read_text(encoding="utf-8")) for path in (compared / "measures").glob("*.json")]
    assert all(each["measuring_minutes"] > 0 for each in found)
    minutes = sum(each["minutes"] + each["measuring_minutes"] for each in found)
    assert facts_of(compared)["minutes"] == pytest.approx(minutes)
    page = (compared / "README.md").read_text(encoding="utf-8")
    assert f"{minutes:.1f} minutes of training and measuring in all" in page
    assert "``" not in page  # called from Python there is no command


def test_table_csv_json_and_pictures_agree(compared: Path) -> None:
    facts = facts_of(compared)
    rows = list(csv.DictReader((compared / "table.csv").open(encoding="utf-8")))
    assert [float(row["quality"]) for row in rows] == [row["quality"] for row in facts["rows"]]
    page = (compared / "README.md").read_text(encoding="utf-8")
    assert facts["conclusion"] in page
    assert "| bad |" in page
    assert "| *window* |" in page
    assert "| ms an answer, one core |" in page
    for name in facts["pictures"]:
        assert (compared / "pictures" / name).stat().st_size > 5000
        assert f"(pictures/{name})" in page
    assert {*facts["pictures"]} == {"steps.png", "time.png", "speed.png"}


def test_what_was_held_equal_is_said_and_what_misleads_is_warned_of(compared: Path) -> None:
    facts = facts_of(compared)
    assert facts["fairness"][0].startswith("Held equal: the same steps, the same data")
    assert "Steps (meant to be equal): within 2 % of good." in facts["fairness"]
    assert any(line.startswith("Parameters: window ") for line in facts["fairness"])
    assert not any("one seed" in line for line in facts["warnings"])
    assert all(len(checks) >= 2 for checks in facts["checks"].values())


def test_a_finished_comparison_trains_nothing_again_and_takes_more_seeds(compared: Path, tmp_path: Path) -> None:
    said: list[str] = []
    compare(asked(compared.parent, [GOOD, BAD]), said.append)
    assert said == ["3 variants, 3 seeds: 9 trainings, 9 of them done already"]
    with pytest.raises(UserError, match=r"holds another comparison: good had another training.steps"):
        compare(asked(compared.parent, [GOOD, BAD], budget=Budget(steps=31)), said.append)


def test_a_variant_that_fails_a_check_is_excluded(compared: Path, tmp_path: Path) -> None:
    """As one would that sees what it has to predict."""
    import shutil

    shutil.copytree(compared.parent, tmp_path / "copy")
    records = sorted((tmp_path / "copy" / "compared" / "measures").glob("bad-*.json"))
    found = json.loads(records[0].read_text(encoding="utf-8"))
    found["checks"].append(["causality: a later token changes nothing earlier", 0.31])
    records[0].write_text(json.dumps(found), encoding="utf-8")
    records[2].unlink()  # it is not trained with further seeds
    facts = compare(asked(tmp_path / "copy", [GOOD, BAD]), lambda _: None)
    bad = row_of(facts, "bad")
    assert bad["excluded"] == "causality: a later token changes nothing earlier: violated by 3.1e-01"
    assert "bad" not in facts["conclusion"]
    page = (tmp_path / "copy" / "compared" / "README.md").read_text(encoding="utf-8")
    assert "| ~~bad~~ |" in page
    assert "Excluded: bad, causality" in page


# ---- interrupted -----------------------------------------------------------------------------------------------------


def qualities(folder: Path) -> list[Any]:
    return [[row["name"], row["each"], row["verdict"]] for row in facts_of(folder)["rows"]]


def killed_and_continued(folder: Path, kills: int) -> Path:
    """Run a comparison as a command that is killed so many times at random moments, and then let it end."""
    write_words(folder / "words.tsv", 300, 0), write_words(folder / "test.tsv", 120, 1)
    code = "from regard.commands.app import main; main()"
    options = ["--test", str(folder / "test.tsv"), "--steps", "30", "--seeds", "1", "--jobs", "2", "-q", "--set", *SET]
    (folder / "variants.yaml").write_text(
        "good: {model.kind: deepsets}\nbad: {model.kind: deepsets, training.rate: 1.0e-7}\n"
    )
    command = [
        sys.executable,
        "-c",
        code,
        "compare",
        str(folder / "words.tsv"),
        "--variants",
        str(folder / "variants.yaml"),
    ]
    command += ["-o", str(folder / "compared"), *options]
    draw = random.Random(kills)
    for _ in range(kills):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder)
        began = time.monotonic()
        while process.poll() is None and not (folder / "compared" / "runs").is_dir() and time.monotonic() - began < 60:
            time.sleep(0.02)
        time.sleep(draw.uniform(0, 2.5))
        process.send_signal(signal.SIGKILL)
        process.wait()
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False, env={**os.environ})
    assert done.returncode == 0, done.stderr
    return folder / "compared"


def test_a_comparison_that_is_killed_ends_with_the_same_quality(compared: Path, tmp_path: Path) -> None:
    found = facts_of(killed_and_continued(tmp_path, 3))
    for row in found["rows"]:
        assert row["each"] == row_of(facts_of(compared), row["name"])["each"][:1]
    assert any("one seed" in line for line in found["warnings"])


# ---- other questions -------------------------------------------------------------------------------------------------


def test_lengths_data_sizes_and_equal_parameters(tmp_path: Path) -> None:
    said: list[str] = []
    variants = [GOOD, Variant("recurrent", ("model.kind=recurrent",))]
    more: dict[str, Any] = {"seeds": 1, "budget": Budget(steps=4), "match": "parameters"}
    facts = compare(asked(tmp_path, variants, lengths=(4, 7), sizes=(60, 150), **more), said.append)
    for row in facts["rows"][:2]:
        assert list(row["lengths"]) == ["4", "7"]
        assert list(row["sizes"]) == ["60", "150"]
    assert abs(row_of(facts, "recurrent")["misses"]["parameters"]) < 0.1
    assert {"lengths.png", "sizes.png"} <= {*facts["pictures"]}
    assert facts["fairness"][0].startswith("Held equal: the same steps, the same number of parameters")
    model = load(tmp_path / "compared" / "runs" / "good-60" / "seed-1")
    assert (model.config.data.most, model.config.data.longest) == (60, 4)
    assert any(line.startswith("recurrent: width ") for line in said)


def test_equal_flops_give_cheap_variants_more_steps(tmp_path: Path) -> None:
    variants = [Variant("narrow", ("model.kind=deepsets", "model.width=8")), Variant("wide", ("model.kind=deepsets",))]
    facts = compare(asked(tmp_path, variants, seeds=1, budget=Budget(flops=2e6)), lambda _: None)
    narrow, wide = (row_of(facts, name)["costs"] for name in ("narrow", "wide"))
    assert narrow["steps"] > 1.5 * wide["steps"]
    assert narrow["flops"] == pytest.approx(wide["flops"], rel=0.2)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--vary", "model.atention=full,local"],
            "there is no setting 'model.atention', did you mean 'model.attention'?",
        ),
        (["--vary", "model.kind=deepsets,deepset"], "found 'deepset': did you mean 'deepsets'?"),
        (["--vary", "task=classify,tag"], "--vary task=classify: expected variants of one task and input"),
        (["--variants", "wrong.yaml"], "wrong.yaml, two: model.widht=16: there is no setting 'model.widht', did you"),
        (
            ["--vary", "model.kind=transformer,recurrent", "--set", "model.hidden=24"],
            "recurrent: --set model.hidden=24: this",
        ),
        (["--vary", "model.width=8,16", "--flops", "inf"], "--flops inf: expected a finite budget above 0"),
        (["--vary", "model.width=8,16", "--lengths", "5,70,90"], "--lengths: no item of 71 to 90"),
        (["--vary", "model.kind=deepsets,"], "value 2 of 2 is empty"),
        (["--vary", "model.width=8,16", "--steps", "0"], "--steps 0: expected a finite budget above 0"),
        (["--vary", "model.width=8,16", "--minutes", "-1"], "--minutes -1: expected a finite budget above 0"),
        (
            ["--vary", "model.width=8,16", "--steps", "9", "--minutes", "1"],
            "--minutes and --steps: expected one budget",
        ),
        (["--vary", "model.width=8,16", "--match", "size"], "--match size: expected parameters or flops"),
        (["--vary", "model.width=8,16", "--seeds", "0"], "--seeds 0: expected 1 or more"),
        (["--vary", "model.width=8,16", "--lengths", "8,x"], "--lengths 8,x: expected numbers"),
        (["--vary", "model.width=8,16", "--lengths", "8,4"], "--lengths: expected growing numbers"),
        (
            ["--vary", "model.width=8,16", "--data-sizes", "9000", "--steps", "2"],
            "data.most=9,000: expected at most the 2",
        ),
    ],
)
def test_faults_are_one_sentence(cli: Regard, arguments: list[str], said: str) -> None:
    write_words(cli.folder / "words.tsv", 300, 0)
    (cli.folder / "wrong.yaml").write_text("one: {model.width: 8}\ntwo: {model.widht: 16}\n")
    cli.run("compare", "words.tsv", "-o", "compared", "--set", "model.kind=transformer", *arguments, code=1)
    assert said in cli.said.strip().splitlines()[-1]
    assert not (cli.folder / "compared").exists()  # nothing was trained first


def test_a_folder_of_something_else_is_refused(cli: Regard) -> None:
    write_words(cli.folder / "words.tsv", 300, 0)
    cli.run("compare", "words.tsv", "-o", ".", "--vary", "model.width=8,16", code=1)
    assert ". is not empty and holds no comparison: name another folder with -o." in cli.said


def test_seeds_come_one_after_the_other_with_the_variants_in_turn(tmp_path: Path) -> None:
    from regard.comparison.cells import cells_of
    from regard.comparison.compare import _configs

    more = asked(tmp_path, every_combination(["model.width=8,16"]), seeds=2)
    cells: list[Cell] = list(cells_of(tmp_path, _configs(more, lambda _: None), 2, [None]))
    assert {cell.config.model.dropout for cell in cells} == {0}  # that of --set, also for simple baselines
    order = [(cell.config.training.seed, cell.variant.name) for cell in cells]
    names = ["width=8", "width=16", "deepsets", "window"]
    assert order == [(seed, name) for seed in (1, 2) for name in names]
