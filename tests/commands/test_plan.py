"""`regard plan`: parts and their cost, memory, time, money; faults in one sentence; the published table."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

import regard
from regard.commands.plan import bar, plan, power, render, spoken
from regard.costs.machines import machine_of
from regard.costs.memory import Need
from regard.costs.published import TABLE, by_convention
from regard.costs.trace import traced
from regard.errors import UserError
from regard.machine import memory
from regard.runs import settings
from tests.conftest import TRANSFORMER, write_numbers

RECIPES = Path(__file__).parents[2] / "recipes"
BASE, BIG = (str(RECIPES / f"wmt14_en_de_{size}.yaml") for size in ("base", "big"))
SMALL = ["model.kind=transformer", "model.layers=1", "model.width=16", "model.hidden=32", "model.heads=2"]


def test_files_are_planned_on_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.training.calibration.SECONDS", 0.2)
    data = write_numbers(tmp_path / "data.tsv", 300)
    found = plan([str(data)], changes=[*SMALL, "training.steps=100", "training.minutes="])
    said = render(found)
    assert found.steps == 100
    assert 0 < found.seconds[0] < found.seconds[1]
    count = sum(p.numel() for p in found.sample.task.network.parameters())
    assert re.search(rf"(?m)^all +{count:,} ", said)
    assert "1 process: " in said
    assert "2 processes: " in said
    assert "this machine" in said


def test_a_run_is_planned_from_its_folder(tmp_path: Path) -> None:
    data = write_numbers(tmp_path / "data.tsv", 100)
    model = regard.train(data, tmp_path / "run", steps=1, set=[*TRANSFORMER, "data.held_out=10"], quiet=True)
    data.unlink()
    found = plan([str(tmp_path / "run")], on="A100x2", changes=["training.steps=50"])
    assert found.sample.count == len(found.sample.rows) > 80
    weights = found.sample.task.network.parameters()
    assert [p.shape for p in weights] == [p.shape for p in model.task.network.parameters()]
    assert found.machine.devices == 2
    assert found.needs["ddp", 2].there == 80e9


@pytest.mark.parametrize(("path", "weights", "hours", "row"), [(BASE, 63_119_496, 12, 8), (BIG, 214_282_376, 84, 9)])
def test_the_published_training_lies_in_the_range(path: str, weights: int, hours: float, row: int) -> None:
    """12 hours and 3.5 days on 8 P100; 3.3·10¹⁸ and 2.3·10¹⁹ operations by the paper's convention."""
    found = plan([path], on="P100x8")
    assert sum(p.numel() for p in found.sample.task.network.parameters()) == weights
    assert found.seconds[0] < 3600 * hours < found.seconds[1]
    published = TABLE[row].flops[0]
    assert published == pytest.approx(by_convention(hours, 8), rel=0.01)
    # Twice the weights for each token forward, twice that backward; encoder and decoder read their own side.
    width, hidden = (512, 2048) if path == BASE else (1024, 4096)
    layers = 6 * (4 * width**2 + 2 * width * hidden) + 6 * (8 * width**2 + 2 * width * hidden)
    about = found.steps * 6 * 25_000 * (layers + 37_000 * width)
    true = found.steps * found.step.flops
    assert true == pytest.approx(about, rel=0.03)
    assert 0.1 < true / published < 0.5
    assert f"{power(true)} operations in all" in render(found)


def test_planning_the_big_one_is_quick_and_small() -> None:
    code = """
import resource, sys
from regard.commands.plan import plan, render
render(plan([sys.argv[1]], on="P100x8"))
used = resource.getrusage(resource.RUSAGE_SELF)
from regard.costs.memory import peak
print(used.ru_utime + used.ru_stime, peak())
"""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code, BIG], capture_output=True, text=True, check=True, env=environment
    )
    seconds, size = map(float, done.stdout.split())
    assert seconds < 10  # of the processor: others may use it too
    assert size < 1e9


def test_what_this_machine_could_not_hold_is_planned_for_another() -> None:
    large = ["model.width=65536", "model.hidden=65536", "model.heads=64", "model.layers=1"]
    found = plan([BASE], "H100x64", changes=large)
    assert found.need.weights > memory()


def test_attention_is_half_of_a_step_where_the_plan_says_so() -> None:
    sizes = ["model.width=64", "model.heads=2", "model.hidden=128", "model.layers=1"]
    found = plan([BASE], on="P100x8", changes=sizes)
    assert found.dominates is not None
    length = round(found.dominates)
    row = tuple(np.resize(np.asarray(field), length) for field in found.sample.rows[0])
    cost = traced(found.sample.task.network, found.sample.task.batch([row]))
    assert cost.looking / cost.flops == pytest.approx(0.5, abs=0.01)
    local = plan([BASE], on="P100x8", changes=[*sizes, "model.attention=local", "model.reach=16"])
    assert local.dominates is not None
    assert local.dominates > 1.5 * length  # a decoder still looks at the whole source


@pytest.mark.parametrize(
    ("name", "said"), [("A100x", "'A100x8'"), ("h100x64", "'H100x64'"), ("loptop", "'laptop'"), ("P100x0", "'P100x8'")]
)
def test_an_unknown_machine_is_one_sentence_with_the_nearest_name(name: str, said: str) -> None:
    with pytest.raises(
        UserError, match=rf"^on {name}: expected one of this, .*, or a YAML file, did you mean {said}\?$"
    ):
        machine_of(name)


def test_an_own_machine_has_a_price_and_takes_energy(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    own = {"devices": 4, "teraflops": 10, "gigabytes": 24, "watts": 300, "price": 2, "currency": "€"}
    path.write_text(yaml.safe_dump(own), encoding="utf-8")
    found = plan([BASE], on=str(path))
    hours = [seconds * 4 / 3600 for seconds in found.seconds]
    said = render(found)
    assert f"price: {2 * hours[0]:,.2f} to {2 * hours[1]:,.2f} €" in said
    assert f"energy: {0.3 * hours[0]:,.3g} to {0.3 * hours[1]:,.3g} kWh" in said
    assert found.seconds[1] == pytest.approx(found.steps * found.step.flops / (0.2 * 4e13))
    path.write_text(yaml.safe_dump(own | {"teraflop": 3}), encoding="utf-8")
    with pytest.raises(UserError, match=r"there is no key 'teraflop' of a machine, did you mean 'teraflops'\?$"):
        machine_of(str(path))
    path.write_text(yaml.safe_dump({"teraflops": 3}), encoding="utf-8")
    with pytest.raises(UserError, match="gigabytes: field required"):
        machine_of(str(path))


def test_what_does_not_fit_is_said_with_what_would(tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(json.dumps({"teraflops": 1, "gigabytes": 1}), encoding="utf-8")
    said = render(plan([BASE], on=str(path)))
    assert "too much" in said
    assert re.search(r"it does not fit into 1.00 GB: .*training.budget=25000 training.accumulate=2", said)
    assert "half the steps: --set training.steps=50000" in said
    assert re.search(r"\d+ % of the operations: --set model.layers=3", said)


def test_a_bar_is_as_long_as_its_parts() -> None:
    fits = bar(Need(10**9, 10**9, 2 * 10**9, 10**9, 10**9, 12 * 10**9))
    assert fits.startswith("[" + "p" * 4 + "w" * 4 + "m" * 8 + "g" * 4 + "a" * 4 + "." * 24 + "] 6.00 GB of 12 GB")
    over = bar(Need(0, 10**9, 2 * 10**9, 10**9, 2 * 10**9, 3 * 10**9))
    assert "|" in over
    assert "too much" in over


def test_numbers_are_said_in_units_that_suit_them() -> None:
    assert [spoken(s) for s in (2, 120, 7200, 259200)] == ["2 seconds", "2 minutes", "2 hours", "3 days"]
    assert power(3.28e18) == "3.3·10¹⁸"


def test_settings_without_data_and_vocabulary_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text("task: convert\ndata: {train: [gone.tsv]}\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"^gone.tsv: the data is not there, and .*tokens.size\.$"):
        plan([str(path)], on="laptop")


def test_both_recipes_differ_only_in_what_the_paper_says() -> None:
    base, big = (settings.load(Path(path)).model_dump() for path in (BASE, BIG))
    different = {
        f"{section}.{key}"
        for section in ("data", "tokens", "output", "model", "training", "decoding")
        for key in base[section]
        if base[section][key] != big[section][key]
    }
    sizes = {"model.width", "model.hidden", "model.heads", "model.dropout"}
    assert different == sizes | {
        "training.rate",
        "training.steps",
        "training.every",
        "training.average",
        "training.patience",
    }
