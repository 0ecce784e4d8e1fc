"""The loop: it learns, stops, resumes to the same bits, refuses other data, and survives bad numbers."""

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import regard
from regard import metrics
from regard.config import Training
from regard.data.batches import BatchReader
from regard.data.example import Example
from regard.data.store import Store
from regard.errors import UserError
from regard.inference.passes import Passes
from regard.outputs.convert.output import Convert
from regard.outputs.output import Held
from regard.runs import checkpoint, folder
from regard.text.tokenizer import Tokenizer
from regard.training import loop, validation
from regard.training.choose import choose
from regard.training.distributed import World
from regard.training.loop import Trainer
from regard.training.optimiser import rate_at
from regard.training.prepare import counts_of
from regard.training.split import Split, examples_of
from tests import torture

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
        "tokenizer.json",
        "target.json",
        "metrics.jsonl",
        "README.md",
        "state",
    } <= names


@pytest.mark.parametrize("optimiser", ["adamw", "muon"])
def test_resumed_in_the_middle_of_an_epoch_equals_uninterrupted(pairs: Path, tmp_path: Path, optimiser: str) -> None:
    whole, settings = tmp_path / "whole", [*TINY, f"training.optimiser={optimiser}"]
    regard.train(pairs, whole, steps=30, set=settings, quiet=True)
    parts = tmp_path / "parts"
    for steps in (10, 20, 30):  # `steps` is the schedule's length too, so it must not change: stop by signal instead
        code = f"""
import os, signal, regard
from regard.training.loop import Trainer, Interrupted
inner = Trainer._step
def step(self):
    found = inner(self)
    if self.at.step == {steps} - 3: os.kill(os.getpid(), signal.SIGTERM)
    return found
Trainer._step = step
try: regard.train({str(pairs)!r}, {str(parts)!r}, steps=30, set={settings!r}, quiet=True)
except Interrupted: print("interrupted")
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert "interrupted" in done.stdout, done.stderr
    regard.train(pairs, parts, steps=30, set=settings, quiet=True)
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
    assert "everything is saved. Resume with the same command" in errors
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
    assert "weights.safetensors has changed since it was written" in capsys.readouterr().err
    with folder.locked(run), pytest.raises(UserError, match="in use by another training"):
        regard.train(pairs, run, steps=20, set=TINY, quiet=True)


def test_a_file_system_without_locks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(handle: int, how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(UserError, match="cannot be locked: No locks available"), folder.locked(tmp_path):
        pass


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
        head = self.network.head
        inner = head.loss
        head.loss = lambda *given: inner(*given) * (float("nan") if self.at.step >= 3 else 1.0)
        try:
            found = original(self)
        finally:
            head.loss = inner
        weights.append(head.output.bias.detach().clone())
        return found

    monkeypatch.setattr(Trainer, "_step", spoiled)
    with pytest.raises(UserError, match="not finite for 5 steps in a row, last at epoch 0, batch"):
        regard.train(pairs, tmp_path / "run", steps=30, set=TINY, quiet=True)
    assert not weights[0].equal(weights[2])
    assert weights[2].equal(weights[-1])
    assert checkpoint.load_state(tmp_path / "run") is not None


def test_the_loss_of_a_batch_is_the_sum_over_its_rows(pairs: Path, tmp_path: Path) -> None:
    """Padding counts nothing, so rows of unlike lengths may be in one batch or in several."""
    model = regard.train(pairs, tmp_path / "run", steps=2, set=[*TINY, "model.dropout=0.0"], quiet=True)
    task = model.task
    rows = [*task.rows(Example(word, " ".join(word.upper()), "", 0) for word in ("abc", "abcdef", "fa"))]
    whole, parts = task.network(task.batch(rows)), [task.network(task.batch([row])) for row in rows]
    totals = [task.predictions(counts_of([row]))[0] for row in rows]
    assert sum(totals) == task.predictions(counts_of(rows))[0]
    assert totals == [4, 7, 3]  # letters, and an end
    assert sum(loss.item() for loss in parts) == pytest.approx(whole.item(), rel=1e-5)


def sides(split: Split) -> tuple[set[str], set[str]]:
    """The sources that are trained on, and those that are held out."""
    numbered = [*enumerate(examples_of(split.config, split.seen))]
    valid = {example.source for number, example in numbered if split.held_out(number, example)}
    train = {example.source for number, example in numbered if not split.held_out(number, example)}
    assert {*split.learning().sources} == train  # vocabularies are learned from these
    return train, valid


def test_held_out_sources_are_never_trained_on(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"w{i % 50}\tx {i}\n" for i in range(500)))
    config, reasons, seen = choose([str(path)])
    train, valid = sides(Split(config, seen))
    assert valid
    assert not train & valid
    assert train | valid == {f"w{i}" for i in range(50)}
    assert "held out" in reasons["data.held_out"]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("sources", "held_out"), [(2, 1), (3, 1), (10, 1), (10, 500), (100, 1)])
def test_of_a_small_file_some_is_held_out_and_some_trained_on(
    tmp_path: Path, seed: int, sources: int, held_out: int
) -> None:
    """A share of few hashes may be none or all of them."""
    lines = [f"w{i}\tx {i} {copy}\n" for i in range(sources) for copy in range(2)]
    found = []
    for order in (1, -1):
        path = tmp_path / "pairs.tsv"
        path.write_text("".join(lines[::order]))
        config, _, seen = choose([str(path)])
        config.data.held_out, config.training.seed = held_out, seed
        split = Split(config, seen)
        train, valid = sides(split)
        assert train
        assert valid
        assert not train & valid
        assert train | valid == {f"w{i}" for i in range(sources)}
        assert split.chosen is None or len(valid) == min(held_out, sources // 2)
        found.append(valid)
    assert found[0] == found[1], "the order of the file does not matter"


def test_which_of_a_large_file_are_held_out_never_changes(tmp_path: Path) -> None:
    """Runs that were begun long ago go on with the same pairs."""
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"w{i}\tx {i}\n" for i in range(200)))
    config, _, seen = choose([str(path)])
    config.data.held_out = 5
    assert sorted(sides(Split(config, seen))[1], key=lambda word: int(word[1:])) == [
        "w39",
        "w60",
        "w64",
        "w83",
        "w87",
        "w156",
    ]


def test_when_the_machine_gets_slower_the_learning_rate_still_ends_with_the_time(
    pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fewer steps fit then; validations come more often than every 20 steps here, as in every short run."""
    clock, step = torture.Clock(), Trainer._step

    def stepped(self: Trainer) -> tuple[float, int]:
        clock.now += 0.1 if self.at.step < 15 else 0.3
        return step(self)

    monkeypatch.setattr(Trainer, "_step", stepped)
    monkeypatch.setattr(loop, "time", clock)
    model = regard.train(pairs, tmp_path / "run", minutes=0.5, set=[*TINY, "training.schedule=cosine"], quiet=True)
    last = json.loads((model.folder / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["minutes"] <= 0.51
    assert 90 < last["step"] < 112
    assert last["rate"] < 0.001, "of 0.01 at its highest"


def test_what_is_validated_on_is_left_out_of_training_if_asked(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    train, valid = tmp_path / "train.tsv", tmp_path / "valid.tsv"
    train.write_text("".join(f"w{i}\tx {i}\n" for i in range(40)))
    valid.write_text("w3\tanother\nw7\tx 7\nnew\tx\n")
    settings = [*TINY, "data.apart=true"]
    regard.train(train, tmp_path / "run", valid=valid, steps=1, set=settings)
    assert "left out of training (data.apart)" in capsys.readouterr().err
    store = Store.open(tmp_path / "run/cache/train")
    source = Tokenizer.load(tmp_path / "run/tokenizer.json")
    assert {source.decode(list(store[i][0])) for i in range(len(store))} == {f"w{i}" for i in range(40)} - {"w3", "w7"}


def test_an_average_is_kept_unless_the_best_is_clearly_better(pairs: Path, tmp_path: Path) -> None:
    """The scores of the last validations are made up; the weights and the evaluation of their mean are real."""
    settings = [*TINY, "training.every=20", "training.average=3"]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("regard.training.validation.MOST", 8)  # so few that a standard error is many points
        few = regard.train(pairs, tmp_path / "few", steps=300, set=settings, quiet=True)
    last = [load_file(path) for path in sorted((tmp_path / "few/checkpoints").glob("*.safetensors"))[-3:]]
    mean = {name: torch.stack([weights[name] for weights in last]).mean(0) for name in last[0]}
    kept = load_file(tmp_path / "few/model.safetensors")
    for name, weight in mean.items():
        torch.testing.assert_close(kept[name], weight)
    assert few.predict(["fade"])
    score = metrics.Score("exact_match", 70.0, "%", 60.2, 79.8, 100, True, "")  # a standard error of 5
    assert metrics.as_good(score, [70.0])[0]
    assert metrics.as_good(score, [74.9])[0]
    assert not metrics.as_good(score, [75.1])[0]
    wrong = metrics.Score("sequence_error_rate", 30.0, "%", 20.2, 39.8, 100, False, "")
    assert metrics.as_good(wrong, [-25.1])[0]
    assert not metrics.as_good(wrong, [-24.9])[0]
    exact = metrics.Score("perplexity", 5.0, "", None, None, 1, False, "")
    assert metrics.as_good(exact, [-5.0])[0]
    assert not metrics.as_good(exact, [-4.99])[0]


def test_only_frequent_n_grams_are_learned(tmp_path: Path) -> None:
    words = [f"aab{letter}" for letter in "cdefghijklmnopqrstuvwxyz"]  # "aa" and "ab" in all, "bc" and "c" in one each
    (tmp_path / "pairs.tsv").write_text("".join(f"{word}\t{word.upper()}\n" for word in words), encoding="utf-8")
    settings = [*TINY, "model.ngrams=2", "model.buckets=1000000", "data.held_out=1"]
    model = regard.train(tmp_path / "pairs.tsv", tmp_path / "run", steps=20, set=settings, quiet=True)
    ngrams = model.network.stem.embedding.ngrams

    def learned(text: str) -> list[bool]:
        return ngrams(torch.tensor([model.task.input.alphabet.encode(text)]))[0].any(-1).tolist()

    assert learned("aab") == [True, True, True]  # what comes before the first letter is nothing, and often so
    assert learned("aabc") == [True, True, True, False]
    assert learned("zaab") == [False, False, True, True]


def test_validations_look_at_items_from_all_over_a_sorted_file(tmp_path: Path) -> None:
    words = sorted(f"{a}{b}{c}{d}" for a in "abcdefgh" for b in "abcdefgh" for c in "abcdefgh" for d in "abcdef")
    (tmp_path / "sorted.tsv").write_text("".join(f"{word}\t{' '.join(word.upper())}\n" for word in words))
    seen: list[str] = []
    with pytest.MonkeyPatch.context() as patched:
        inner = Convert.evaluate

        def evaluate(self: Convert, passes: Passes, held: Held, *given: Any, **more: Any) -> Any:
            seen.extend(item.example.source for item in held.items)
            return inner(self, passes, held, *given, **more)

        patched.setattr(Convert, "evaluate", evaluate)
        patched.setattr(validation, "CHEAP", 60.0)
        regard.train(
            tmp_path / "sorted.tsv", tmp_path / "run", valid=tmp_path / "sorted.tsv", steps=1,
            set=[*TINY, "training.every=1", "training.average=1"], quiet=True,
        )  # fmt: skip
    few, first = seen[: validation.FEW], seen[validation.FEW : validation.FEW + validation.MOST]  # timed, and scored
    assert len(first) == len(set(first)) == validation.MOST
    assert {word[0] for word in few} == {word[0] for word in first} == set("abcdefgh")
    assert len(seen) == validation.FEW + validation.MOST + len(words)  # the report at the end is on them all


def test_minutes_or_steps_that_are_given_decide_alone(pairs: Path, tmp_path: Path) -> None:
    few = tmp_path / "few.tsv"
    few.write_text("".join(pairs.read_text().splitlines(keepends=True)[:200]))
    settings = [*TINY, "data.held_out=20"]
    chosen = choose([str(few)])[0].training
    assert (chosen.steps, chosen.minutes) == (4000, 20)  # whichever comes first
    by_steps = regard.train(few, tmp_path / "steps", steps=3, set=settings, quiet=True).config.training
    assert (by_steps.steps, by_steps.minutes) == (3, None)
    by_time = regard.train(few, tmp_path / "time", minutes=0.01, set=settings, quiet=True).config.training
    assert (by_time.steps, by_time.minutes) == (None, 0.01)


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
from regard.training.loop import Trainer
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
    assert 'does not fit into memory: set={"training.budget": 50000, "training.accumulate": 2}' in done.stdout, (
        done.stderr[-500:]
    )


# ---- what a GPU wants, tried on a CPU ------------------------------------------------------------------------------

SMALL = ["model.kind=transformer", "model.width=16", "model.heads=2", "model.hidden=32", "model.layers=1"]


def test_batches_read_ahead_and_a_copy_elsewhere_change_nothing(
    pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device of another name, so that a copy of the network is trained, and rows that a thread reads; stopped in the
    middle of an epoch too."""
    regard.train(pairs, tmp_path / "plain", steps=20, set=TINY, quiet=True)
    inner, step = World.__init__, Trainer._step

    def elsewhere(self: World, *given: Any) -> None:
        inner(self, *given)
        self.device = torch.device("cpu", 0)

    def stopping(self: Trainer) -> tuple[float, int]:
        found = step(self)
        self.stop = self.at.step == 13
        return found

    monkeypatch.setattr(World, "__init__", elsewhere)
    monkeypatch.setattr(loop, "BatchReader", lambda *given, ahead: BatchReader(*given, ahead=True))
    monkeypatch.setattr(Trainer, "_step", stopping)
    with pytest.raises(loop.Interrupted):
        regard.train(pairs, tmp_path / "other", steps=20, set=TINY, quiet=True)
    monkeypatch.setattr(Trainer, "_step", step)
    regard.train(pairs, tmp_path / "other", steps=20, set=TINY, quiet=True)
    assert digest(tmp_path / "other") == digest(tmp_path / "plain")
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("other", "plain")]
    assert models[0] == models[1]
    scores = [json.loads((tmp_path / name / "results.json").read_text()) for name in ("other", "plain")]
    assert scores[0]["validation"] == scores[1]["validation"]


def batch_of(model: regard.Model, pairs: Path) -> object:
    lines = [line.split("\t") for line in pairs.read_text().splitlines()[:16]]
    return model.task.batch([*model.task.rows([Example(s, t, "", 0) for s, t in lines])])


@pytest.mark.parametrize("kind", [SMALL, ["model.cell=gru"]], ids=["transformer", "recurrent"])
def test_bfloat16_is_near_and_weights_stay_whole(kind: list[str], pairs: Path, tmp_path: Path) -> None:
    given = [*TINY, *kind, "model.dropout=0", "training.precision=bfloat16"]
    model = regard.train(pairs, tmp_path / "run", steps=10, set=given, quiet=True)
    newest = sorted((tmp_path / "run" / "state").glob("[0-9]*"))[-1]
    for name in ("weights", "optimiser"):
        assert {tensor.dtype for tensor in load_file(newest / f"{name}.safetensors").values()} == {torch.float32}
    batch, network = batch_of(model, pairs), model.network
    exact = network(batch, "all")
    with torch.autocast("cpu", torch.bfloat16):
        near = network(batch, "all")
    assert near.dtype == torch.float32
    assert near.item() != exact.item()
    assert near.item() == pytest.approx(exact.item(), rel=0.02)
    losses = [json.loads(line)["loss"] for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    whole = regard.train(pairs, tmp_path / "whole", steps=10, set=[*given, "training.precision=float32"], quiet=True)
    first = [json.loads(line)["loss"] for line in (whole.folder / "metrics.jsonl").read_text().splitlines()]
    assert losses == pytest.approx(first, rel=0.02)


def test_a_processor_without_such_kernels_is_one_sentence(pairs: Path, tmp_path: Path) -> None:
    """Many have none for an LSTM; those that do train it."""
    try:
        regard.train(pairs, tmp_path / "run", steps=1, set=[*TINY, "training.precision=bfloat16"], quiet=True)
    except UserError as error:
        assert "--set training.precision=float32" in str(error)  # noqa: PT017


COMPILER = any(map(shutil.which, ("c++", "g++", "clang++")))
INDUCTOR = [pytest.mark.soak, pytest.mark.skipif(not COMPILER, reason="torch.compile needs a C++ compiler")]


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=INDUCTOR)])
def test_the_compiled_loss_is_the_same(backend: str, pairs: Path, tmp_path: Path) -> None:
    """Traced and run step by step; with C++ made of it, which takes minutes, by `make soak`."""
    model = regard.train(pairs, tmp_path / "run", steps=1, set=[*TINY, *SMALL, "model.dropout=0"], quiet=True)
    network, batch = model.network, batch_of(model, pairs)
    found = []
    for loss in (network.forward, network):
        if loss is network:
            network.compile(dynamic=True, backend=backend)
        network.zero_grad(set_to_none=True)
        value = loss(batch, "all")
        value.backward()
        found.append([value.detach(), *(parameter.grad for parameter in network.parameters())])
    assert network._compiled_call_impl is not None
    for expected, other in zip(*found, strict=True):
        torch.testing.assert_close(other, expected, rtol=1e-4, atol=1e-4)


def test_a_training_says_what_it_needs_and_what_it_took(
    pairs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    regard.train(pairs, tmp_path / "run", steps=2, set=TINY)
    said = capsys.readouterr().err
    assert re.search(
        r"training needs about \d\.\d\d GB of memory \(.* for weights and optimiser, .* for a batch, .* for the program\)\n",
        said,
    )
    assert re.search(r"peak memory: \d\.\d\d GB\n", said)


def test_the_loss_on_validation_data_may_decide_about_the_best_weights(pairs: Path, tmp_path: Path) -> None:
    changes = [*TINY, "training.best=loss", "training.smoothing=0", "training.average=1", "training.steps=60"]
    run = tmp_path / "run"
    regard.train(pairs, run, set=changes, quiet=True)
    entries = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    losses = {entry["step"]: entry["validation_loss"] for entry in entries}
    facts = checkpoint.read_facts(sorted((run / "state").glob("[0-9]*"))[-1])
    assert facts["best_step"] == min(losses, key=losses.__getitem__)


def test_the_loss_of_rows_does_not_depend_on_how_they_are_cut() -> None:
    rows = [(np.arange(n), np.arange(m)) for n, m in ((3, 1), (9, 4), (1, 2), (5, 5))]

    def sums(some: Any) -> torch.Tensor:
        return torch.tensor([float(sum(len(row[0]) ** 2 for row in some)), float(len(some))])

    def totals(lengths: Any) -> tuple[float, float]:
        return float(lengths[:, 0].sum()), 0.0

    found = [validation.loss(rows, sums, totals, budget) for budget in (1, 10, 1000)]
    assert {score.value for score in found} == {(9 + 81 + 1 + 25) / 18}  # nothing of the second term counts as zero
    assert not found[0].higher_is_better
    assert found[0].count == 4
