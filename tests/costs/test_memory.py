"""The memory that a training needs: counted by hand, extrapolated as measured whole, near the truth, and said with a remedy."""

import os
import random
import re
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import regard
from regard.commands import check as checking
from regard.config import Config, Training
from regard.costs import memory
from regard.costs.shadow import shapes_of, without_weights
from regard.costs.trace import InUse, trace
from regard.data.batches import Batches
from regard.errors import UserError, shell
from regard.runs import build, settings
from regard.training import choose, prepare, rehearsal, split
from tests import corpora
from tests.conftest import TRANSFORMER, write_numbers

CPU = torch.device("cpu")
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc tells how much memory is in use")
DATA = {
    "convert": lambda chosen, words: f"{' '.join(words)}\t{' '.join(reversed(words))}\n",
    "tag": lambda chosen, words: "".join(f"{word}\t{chosen.choice(['NOUN', 'VERB'])}\n" for word in words) + "\n",
    "classify": lambda chosen, words: f"{' '.join(words)}\t{chosen.choice(['good', 'bad'])}\n",
    "continue": lambda chosen, words: " ".join(words) + "\n",
    "fill": lambda chosen, words: " ".join(words) + "\n",
}
MODELS = {"convert": ["transformer", "recurrent"], "tag": ["recurrent", "transformer"], "classify": ["recurrent"]}
MODELS |= {"continue": ["gpt", "transformer-xl"], "fill": ["bert", "xlnet"]}


def settings_for(task: str, kind: str, folder: Path) -> Config:
    chosen = random.Random(0)
    names = ["".join(chosen.choices("abcdefgh", k=chosen.randint(2, 7))) for _ in range(150)]
    rows = [DATA[task](chosen, chosen.choices(names, k=chosen.randint(6, 25))) for _ in range(300)]
    (folder / "data").write_text("".join(rows), encoding="utf-8")
    config = choose.choose([str(folder / "data")], task=task)[0]
    sizes = ["model.width=128", "training.budget=3000", *([] if kind == "recurrent" else ["model.heads=4"])]
    return settings.override(config, [f"model.kind={kind}", *sizes])


def test_tensors_in_use_are_counted_as_by_hand() -> None:
    network = without_weights(nn.Sequential(nn.Linear(30, 50), nn.ReLU(), nn.Linear(50, 20)))
    x = shapes_of(torch.randn(7, 30))
    forward = trace(network, lambda: network(x).sum())
    # What relu gives is all that backward needs of the first layer; its input is there while it is made. Transposed
    # weights are views: they are not counted.
    assert forward.peak == 4 * (7 * 50 + 7 * 50)
    both = trace(network, lambda: network(x).sum().backward())
    gradients = sum(p.numel() for p in network.parameters())
    assert both.peak == pytest.approx(4 * (gradients + 7 * 50), abs=4 * (7 * 50 + 7 * 20 + 3))


@pytest.mark.parametrize(("task", "kind"), [(task, kind) for task, kinds in MODELS.items() for kind in kinds])
def test_shapes_take_the_memory_that_values_take(task: str, kind: str, tmp_path: Path) -> None:
    """The same pass with weights and values: what is in use at its peak is what the shapes said."""
    config = settings_for(task, kind, tmp_path)
    sample = rehearsal.of_files(config, 300)
    real = build.build(config, sample.parts).network.train()
    batch = sample.batch(sample.batches.largest())
    traced = memory.peak_of(sample.task.network, sample.batch, sample.task.turns, sample.batches)
    live = InUse()
    with Watched(live):
        real(batch, sample.task.turns[0]).sum().backward()
    assert traced == pytest.approx(live.peak, rel=0.15)


class Watched(TorchDispatchMode):
    """Every operation as it is, and what it leaves in use."""

    def __init__(self, live: InUse) -> None:
        super().__init__()
        self.live = live

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = function(*args, **(kwargs or {}))
        self.live.seen((args, kwargs or {}), result)
        return result


def test_processes_share_what_can_be_shared(tmp_path: Path) -> None:
    sample = rehearsal.of_files(settings_for("convert", "transformer", tmp_path), 300)
    network, how = sample.task.network, sample.config.training
    count = sum(p.numel() for p in network.parameters())
    one, *two = (memory.Place(10**10, processes) for processes in (1, 2, 4))
    alone = sample.need(one)
    assert (alone.weights, alone.moments, alone.gradients) == (4 * count, 8 * count, 4 * count)
    sharded = how.model_copy(update={"parallel": "fsdp"})
    for place in two:
        ddp, fsdp = sample.need(place), sample.need(place, sharded)
        assert (ddp.weights, ddp.moments, ddp.gradients) == (4 * count, 8 * count, 8 * count)
        assert fsdp.weights == 4 * count + 4 * count // place.processes
        assert (fsdp.moments, fsdp.gradients) == (8 * count // place.processes, 4 * count // place.processes)
        assert ddp.activations < 1.1 * alone.activations / place.processes + 12 * count
    muon = how.model_copy(update={"optimiser": "muon"})
    assert 4 * count < memory.moments_of(network, muon) < 8 * count


def test_a_trial_leaves_nothing_behind(tmp_path: Path) -> None:
    sample = rehearsal.of_files(settings_for("classify", "recurrent", tmp_path), 300)
    network = build.build(sample.config, sample.parts).network.eval()
    before = torch.get_rng_state()
    memory.predict(network, sample.batch, ("all",), sample.batches, memory.Place(10**9), sample.config.training)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(parameter.grad is None for parameter in network.parameters())
    assert not network.training


@linux
def test_the_peak_is_this_process_s_own() -> None:
    """The system's figure begins with that of the process that called it."""
    code = """
import subprocess, sys, torch
from regard.costs import memory
if len(sys.argv) > 1:
    print(memory.peak())
else:
    before, large = memory.peak(), torch.ones(100_000_000)
    print(memory.peak() - before, flush=True)
    subprocess.run([sys.executable, "-c", "import sys; sys.argv.append('child')\\n" + open("/proc/self/cmdline").read().split(chr(0))[2]])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    grown, child = map(int, done.stdout.split())
    assert 390e6 < grown < 450e6
    assert child < 400e6


def small_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of 210 MB, whoever asks."""
    for place, name in ((settings, "memory"), (build, "memory"), (memory, "memory")):
        monkeypatch.setattr(place, name, lambda: 200 * 2**20)


@shell()
def test_too_much_is_said_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = write_numbers(tmp_path / "data.tsv", 100)
    assert "more than" not in checking.check([str(data)], [])[0]
    small_machine(monkeypatch)
    found = checking.check([str(data)], [])[0]
    assert re.search(
        r"(?m)more than the 0.21 GB of this machine \(.* for the program\): --set training.budget=\d+ training.accumulate=2\.?$",
        found,
    )


@shell()
def test_a_training_that_cannot_fit_is_refused_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write_numbers(tmp_path / "data.tsv", 100)
    small_machine(monkeypatch)
    with pytest.raises(
        UserError, match=r"^The training needs about .* more than the 0.21 GB .*training.accumulate=2\.$"
    ):
        regard.train(data, tmp_path / "run", steps=1, set=["model.width=8"], quiet=True)


def test_a_model_too_large_to_try_is_told_to_be_smaller() -> None:
    need = memory.Need(10**8, 4 * 10**13, 8 * 10**13, 4 * 10**13, 0, there=10**10)
    assert "model.width" in need.sentence(Training())
    with pytest.raises(UserError, match="enough"), memory.shortage(lambda: "It is not enough:", Training()):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
    with pytest.raises(RuntimeError, match="other"), memory.shortage(str, Training()):
        raise RuntimeError("other")


@linux
def test_prediction_and_peak_of_a_real_training_agree(tmp_path: Path) -> None:
    data, run = write_numbers(tmp_path / "data.tsv", 1000), str(tmp_path / "run")
    sizes = ["model.width=128", "model.heads=4", "model.hidden=512", "training.budget=10000", "data.held_out=10"]
    changes = [part for setting in [*TRANSFORMER, *sizes] for part in ("--set", setting)]
    command = [sys.executable, "-m", "regard", "train", str(data), "-o", run, "--steps", "2", *changes]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    said = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stderr
    predicted, found = (
        float(re.search(pattern, said)[1])  # type: ignore[index]
        for pattern in (r"training needs about ([\d.]+) GB", r"peak memory: ([\d.]+) GB")
    )
    assert found > 0.5  # more than torch alone
    assert predicted == pytest.approx(found, rel=0.15)


def test_a_corpus_is_not_held_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading, storing and ordering eight times the corpus takes less than a quarter of what it is larger; tests/soak
    trains on one under a real limit."""
    monkeypatch.setattr("regard.outputs.output.CHUNK", 200)  # texts and tokens that are in memory at a time
    monkeypatch.setattr("regard.data.store.BUFFER", 1 << 12)
    monkeypatch.setattr("regard.data.survey.SAMPLE", 500)  # examples that are kept to learn from
    found = []
    for pairs in (1_000, 8_000):
        path = corpora.write_corpus(tmp_path / str(pairs), pairs, 25)
        config = settings.load(path)
        (path.parent / "run").mkdir()
        tracemalloc.start()
        prepared = prepare.prepare(config, path.parent / "run", split.survey(config), lambda _: None)
        Batches(prepared.store.lengths, 500, 1).order(0)
        found.append((tracemalloc.get_traced_memory()[1], corpora.size_of(path)))
        tracemalloc.stop()
    assert len(prepared.store) == 8_000
    (before, small), (after, large) = found
    assert large - small > 3e6
    assert after - before < (large - small) / 4
