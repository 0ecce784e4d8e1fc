"""The loop: it learns, stops, resumes to the same bits, refuses other data, and survives bad numbers."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import regard
from regard import checkpoint
from regard.config import Training
from regard.data.reading import Pair
from regard.errors import UserError
from regard.training import Trainer, rate_at

TINY = [
    "model.kind=recurrent", "model.width=16", "model.dropout=0.2", "training.budget=400", "training.every=10",
    "training.rate=0.01", "training.warmup=5", "data.held_out=40",
]  # fmt: skip


def digest(run: Path) -> str:
    """Of the newest state's weights and optimiser."""
    newest = sorted((run / "state").glob("[0-9]*"))[-1]
    return hashlib.sha256(
        b"".join((newest / f"{n}.safetensors").read_bytes() for n in ("weights", "optimiser"))
    ).hexdigest()


def test_it_learns_and_the_folder_is_all_that_is_needed(pairs: Path, tmp_path: Path) -> None:
    model = regard.train(pairs, tmp_path / "run", steps=500, set=[*TINY, "training.every=100"], quiet=True)
    answers = model.predict(["fade", "cab", ""])
    assert answers == ["F A D E", "C A B", ""]
    pairs.unlink()
    (tmp_path / "run").rename(tmp_path / "moved")
    assert regard.load(tmp_path / "moved").predict(["fade", "cab", ""]) == answers
    names = {path.name for path in (tmp_path / "moved").iterdir()}
    assert {
        "config.yaml",
        "model.safetensors",
        "source.json",
        "target.json",
        "metrics.jsonl",
        "README.md",
        "state",
    } <= names


def test_resumed_in_the_middle_of_an_epoch_equals_uninterrupted(pairs: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    regard.train(pairs, whole, steps=30, set=TINY, quiet=True)
    parts = tmp_path / "parts"
    for steps in (10, 20, 30):  # `steps` is the schedule's length too, so it must not change: stop by signal instead
        code = f"""
import os, signal, regard
from regard.training import Trainer, Interrupted
inner = Trainer._step
def step(self):
    found = inner(self)
    if self.at.step == {steps} - 3: os.kill(os.getpid(), signal.SIGTERM)
    return found
Trainer._step = step
try: regard.train({str(pairs)!r}, {str(parts)!r}, steps=30, set={TINY!r}, quiet=True)
except Interrupted: print("interrupted")
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert "interrupted" in done.stdout
    regard.train(pairs, parts, steps=30, set=TINY, quiet=True)
    assert digest(parts) == digest(whole)


def test_a_lost_item_of_the_state_is_noticed_by_that_test(
    pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: without the random state the resumed run differs, so the equality above means something."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    regard.train(pairs, whole, steps=20, set=TINY, quiet=True)
    regard.train(pairs, parts, steps=20, set=TINY, quiet=True)
    assert digest(parts) == digest(whole)
    newest = sorted((parts / "state").glob("[0-9]*"))
    assert len(newest) == 2
    subprocess.run(["rm", "-r", newest[-1]], check=True)
    monkeypatch.setattr(torch, "set_rng_state", lambda state: None)
    regard.train(pairs, parts, steps=20, set=TINY, quiet=True)
    assert digest(parts) != digest(whole)


def test_interrupt_saves_and_says_how_to_go_on(pairs: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "regard", "train", str(pairs), "-o", str(tmp_path / "run"), "--steps", "100000"]
    for setting in TINY:
        command += ["--set", setting]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    deadline = time.time() + 60
    while not (tmp_path / "run" / "metrics.jsonl").exists():
        assert time.time() < deadline
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "everything is saved. Go on with the same command" in errors
    assert "Traceback" not in errors
    assert regard.load(tmp_path / "run").predict(["abc"])


def test_a_damaged_state_is_passed_over_and_a_second_process_refused(
    pairs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    regard.train(pairs, run, steps=20, set=TINY, quiet=True)
    newest = sorted((run / "state").glob("[0-9]*"))[-1] / "weights.safetensors"
    raw = bytearray(newest.read_bytes())
    raw[len(raw) // 2] ^= 1
    newest.write_bytes(raw)
    regard.train(pairs, run, steps=20, set=TINY)
    assert "weights.safetensors is not what was written" in capsys.readouterr().err
    from regard.running import _locked

    with _locked(run), pytest.raises(UserError, match="in use by another training"):
        regard.train(pairs, run, steps=20, set=TINY, quiet=True)


def test_other_settings_or_data_do_not_continue_a_run(pairs: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    regard.train(pairs, run, steps=10, set=TINY, quiet=True)
    with pytest.raises(UserError, match=r"was begun with model\.width=16, now it is 32"):
        regard.train(pairs, run, steps=10, set=[*TINY, "model.width=32"], quiet=True)
    pairs.write_text(pairs.read_text() + "abab\tA B A B\n")
    with pytest.raises(UserError, match="the data has changed since this run began"):
        regard.train(pairs, run, steps=10, set=TINY, quiet=True)


def test_a_loss_that_is_no_number_is_not_applied_and_ends_the_run(
    pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights: list[torch.Tensor] = []
    original = Trainer._step

    def spoiled(self: Trainer) -> tuple[float, int]:
        inner = self.network.loss

        def loss(batch: object, smoothing: float = 0.0) -> tuple[torch.Tensor, int]:
            value, count = inner(batch, smoothing)
            return value * (float("nan") if self.at.step >= 3 else 1.0), count

        self.network.loss = loss
        try:
            found = original(self)
        finally:
            self.network.loss = inner
        weights.append(self.network.head.bias.detach().clone())
        return found

    monkeypatch.setattr(Trainer, "_step", spoiled)
    with pytest.raises(UserError, match="not finite for 5 steps in a row, last at epoch 0, batch"):
        regard.train(pairs, tmp_path / "run", steps=30, set=TINY, quiet=True)
    assert not weights[0].equal(weights[2])
    assert weights[2].equal(weights[-1])
    assert checkpoint.load_state(tmp_path / "run") is not None


def test_accumulated_batches_equal_one_large_batch(pairs: Path, tmp_path: Path) -> None:
    """The loss is per token: two batches of unlike size weigh as their tokens do."""
    model = regard.train(pairs, tmp_path / "run", steps=2, set=[*TINY, "model.dropout=0.0"], quiet=True)
    task = model.task
    pairs = [Pair(word, " ".join(word.upper()), "", 0) for word in ("abc", "abcdef", "fa")]
    rows = task.rows(pairs)
    whole = task.network.loss(task.batch([[torch.tensor(x).numpy() for x in row] for row in rows]))
    parts = [task.network.loss(task.batch([[torch.tensor(x).numpy() for x in row]])) for row in rows]
    assert sum(count for _, count in parts) == whole[1]
    assert sum(loss.item() for loss, _ in parts) == pytest.approx(whole[0].item(), rel=1e-5)


def test_held_out_sources_are_never_trained_on(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"w{i % 50}\tx {i}\n" for i in range(500)))
    from regard.choosing import choose
    from regard.preparing import Split

    config, reasons = choose([str(path)])
    split = Split(config, False, None)
    train, valid = ({pair.source for pair in part} for part in (split.train(), split.valid()))
    assert valid
    assert not train & valid
    assert train | valid == {f"w{i}" for i in range(50)}
    assert "held out" in reasons["data.held_out"]


def test_tensorboard_holds_what_the_metrics_say(pairs: Path, tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    regard.train(pairs, tmp_path / "run", steps=20, set=TINY, quiet=True)
    entries = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    found = accumulator.EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    found.Reload()
    assert [event.step for event in found.Scalars("loss")] == [10, 20]
    assert [event.value for event in found.Scalars("loss")] == pytest.approx([entry["loss"] for entry in entries])


def test_learning_rates() -> None:
    how = Training(rate=1.0, warmup=10, schedule="cosine")
    assert [rate_at(s, 100, how) for s in (1, 5, 10)] == [0.1, 0.5, 1.0]
    assert rate_at(55, 100, how) == pytest.approx(0.5)
    assert rate_at(100, 100, how) == pytest.approx(0.0)
    assert rate_at(40, None, Training(rate=1.0, warmup=10, schedule="inverse_sqrt")) == 0.5
    assert rate_at(40, None, Training(rate=1.0, warmup=10, schedule="constant")) == 1.0


def test_a_memory_that_is_too_small_is_said_with_a_remedy(pairs: Path, tmp_path: Path) -> None:
    """A real limit on a real process: the largest batch is tried before anything else."""
    code = f"""
import resource, torch, regard
torch.zeros(1)
used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()
inner = torch.Tensor.backward
from regard.training import Trainer
original = Trainer._try_largest
def limited(self):
    used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 60_000_000, used + 60_000_000))
    original(self)
Trainer._try_largest = limited
try:
    regard.train({str(pairs)!r}, {str(tmp_path / "run")!r}, steps=5, quiet=True,
        set=["model.kind=transformer", "model.width=512", "model.heads=4", "model.hidden=2048", "training.budget=100000"])
except regard.UserError as error:
    print(error)
"""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=120)
    assert "does not fit into memory: --set training.budget=50000 training.accumulate=2" in done.stdout, done.stderr[
        -500:
    ]
