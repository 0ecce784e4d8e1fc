"""Nothing computed is lost: killed, damaged, full, read-only, mutated. The long versions are in tests/soak."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.commands import check as checking
from regard.errors import UserError
from regard.inputs.input import Use
from regard.inputs.tokens import Tokens
from regard.outputs.convert.output import Convert
from regard.runs import build, checkpoint, checksums, settings, verify
from regard.training import prepare
from regard.training.averaging import average
from regard.training.loop import Position, Trainer
from tests import torture
from tests.conftest import write_pairs

Once = Callable[[str, Callable[[Path], object]], Path]


@pytest.fixture(scope="session")
def place(once: Once) -> Path:
    """pairs.tsv, `whole`, a run that nothing happened to, and the moments it has; tests only read them."""

    def make(folder: Path) -> None:
        pairs = write_pairs(folder / "pairs.tsv", 300, longest=4)
        torture._end(pairs, folder / "first")  # the children inherit the modules it has loaded
        torture.moments(pairs, folder / "whole", folder / "moments")

    return once("torture", make)


@pytest.fixture
def pairs(place: Path) -> Path:
    return place / "pairs.tsv"


@pytest.fixture
def run(place: Path, tmp_path: Path) -> Path:
    """A copy of the whole run, to be hurt."""
    return Path(shutil.copytree(place / "whole", tmp_path / "run"))


# ---- exact resume --------------------------------------------------------------------------------------------------


def test_killed_inside_a_save_it_comes_to_the_same_end(place: Path, pairs: Path, tmp_path: Path) -> None:
    """Six moments of one life; the long version takes every one."""
    names = (place / "moments").read_text().splitlines()
    starts = (
        "os.rename index",
        "save weights.safetensors, torn",
        "os.rename .0",
        "os.rename model",
        "os.remove sums",
        "step 2",
    )
    kills = [next(i for i, name in enumerate(names, 1) if name.startswith(start)) for start in starts]
    ends = [torture.killed(pairs, tmp_path / "run", moment) for moment in kills]
    assert ends == [-signal.SIGKILL] * len(kills)
    torture.survives(pairs, tmp_path / "run", [], torture.outcome(place / "whole"))


def test_a_fresh_process_comes_to_the_same_end(place: Path, pairs: Path, tmp_path: Path) -> None:
    """Not a fork: a new interpreter goes on where a killed one was."""
    moment = (place / "moments").read_text().splitlines().index("step 18") + 1
    assert torture.killed(pairs, tmp_path / "run", moment) == -signal.SIGKILL
    code = f"from pathlib import Path\nfrom tests import torture\ntorture._end(Path({str(pairs)!r}), Path({str(tmp_path / 'run')!r}))"
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, cwd=Path(__file__).parent.parent.parent)
    assert torture.outcome(tmp_path / "run") == torture.outcome(place / "whole")


def test_with_n_grams_too(pairs: Path, tmp_path: Path) -> None:
    """The n-grams that are forgotten in a step, and those that are frequent enough, are the same after a pause."""
    runs = ["model.ngrams=3", "model.buckets=100"]
    torture.train(pairs, tmp_path / "whole", settings=runs)
    assert torture.train(pairs, tmp_path / "parts", settings=runs, at={17: torture.stop}) == "interrupted"
    torture.train(pairs, tmp_path / "parts", settings=runs)
    assert torture.outcome(tmp_path / "parts") == torture.outcome(tmp_path / "whole")


ITEMS = ["weights", "optimiser", "random", "window", *(field.name for field in fields(Position))]


MORE = ["training.steps=", "training.minutes=100"]  # as many steps as fit into the minutes


@pytest.fixture
def hard_life(monkeypatch: pytest.MonkeyPatch) -> Callable[[range], None]:
    """Trainings that settle their own number of steps, and have steps whose loss is no number."""
    begin = Trainer.__init__

    def settle(self: Trainer, _: object) -> None:
        if self.at.step == 12:
            self.at.steps = torture.STEPS
        if self.at.step > torture.STEPS:
            raise UserError("Without a number of steps it never ends.")

    def spoil(steps: range) -> None:
        def spoiled(self: Trainer, *given: Any) -> None:
            begin(self, *given)
            inner: Any = self.loss
            self.loss = lambda *batch: inner(*batch) * (float("nan") if self.at.step + 1 in steps else 1.0)  # type: ignore[assignment]

        def plan(self: Trainer) -> None:
            self.at.items, self.at.whole = (7, 2) if self.at.step < 27 else (5, 3)

        monkeypatch.setattr(Trainer, "__init__", spoiled)
        monkeypatch.setattr(Trainer, "_settle", settle)
        monkeypatch.setattr(Trainer, "_plan", plan)

    return spoil


@pytest.mark.parametrize("item", [None, *ITEMS])
def test_dropping_any_item_of_the_state_shows(
    item: str | None, pairs: Path, tmp_path: Path, hard_life: Callable[[range], None], once: Once
) -> None:
    """The control: the equality of an interrupted and a whole run holds, and fails without any one item of the state.

    The run is stopped in the middle of an epoch, between validations and after bad steps, so that no item of the state
    has the value it begins with.
    """
    steps = range(26, 31) if item == "bad" else range(26, 28)  # five in a row end a run, two do not
    hard_life(steps)

    def make(folder: Path) -> None:
        torture.train(pairs, folder / "whole", steps=None, settings=MORE)
        assert torture.train(pairs, folder / "parts", steps=None, settings=MORE, at={27: torture.stop}) == "interrupted"

    made = once(f"hard-life-{len(steps)}", make)
    parts = Path(shutil.copytree(made / "parts", tmp_path / "parts"))
    facts = checkpoint.read_facts(torture.newest(parts))
    assert [name for name, value in vars(Position()).items() if facts[name] == value] == []
    assert facts["window"]
    if item is not None:
        _drop(torture.newest(parts), item)
    torture.train(pairs, parts, steps=None, settings=MORE)
    assert (torture.outcome(parts) == torture.outcome(made / "whole")) == (item is None)


def _drop(folder: Path, item: str) -> None:
    """A state in which an item has the value it has at the beginning of a run."""
    facts = json.loads((folder / "facts.json").read_text())
    if item in ("weights", "optimiser", "random"):
        begin = torch.Generator().manual_seed(1)
        tensors = checkpoint.load_weights(folder / f"{item}.safetensors")
        fresh = (
            {"torch": begin.get_state()} if item == "random" else {k: torch.zeros_like(v) for k, v in tensors.items()}
        )
        checkpoint.save_weights(fresh, folder / f"{item}.safetensors")
    else:
        facts[item] = [] if item == "window" else getattr(Position(), item)
        (folder / "facts.json").write_text(json.dumps(facts))
    checksums.write_sums(
        folder, {path.name: [checksums.sha256(path)] for path in folder.iterdir() if path.name != checksums.SUMS}
    )


def test_what_breaks_exactness_is_said(
    run: Path, pairs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch, "__version__", "2.99.0")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 64)
    regard.train(pairs, run, steps=torture.STEPS, set=[*torture.TINY, "training.patience=50"])
    said = capsys.readouterr().err
    for words in (
        "torch was 2.",
        "is 2.99.0: the result will not be bit-for-bit",
        "threads was",
        "is 64",
        "training.patience was 100.0, is 50.0",
    ):
        assert words in said


def test_vocabularies_and_tokens_are_made_once(
    run: Path, pairs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[object] = []
    learn = prepare.learn
    monkeypatch.setattr(prepare, "learn", lambda *given: made.append(given) or learn(*given))
    before = _prepared(run)
    assert torture.train(pairs, run) is None
    assert not made
    assert {f"cache/{name}" for name in ("sums.json", "origin.json", "train/index.json", "valid/index.json")} < {
        *before
    }
    for name in ("tokenizer.json", "target.json", *(name for name in before if name.startswith("cache/"))):
        (run / name).write_bytes(torture.flip((run / name).read_bytes(), random.Random(1)))
        regard.train(pairs, run, steps=torture.STEPS, set=torture.TINY)
        assert made.pop()
        assert "the cache is rebuilt" in capsys.readouterr().err
        assert _prepared(run) == before


def _prepared(run: Path) -> dict[str, bytes]:
    """Return what was learned, and the stored rows of both sides."""
    files = [run / name for name in torture.VOCABULARIES]
    files += [path for path in (run / "cache").rglob("*") if path.is_file()]
    return {str(path.relative_to(run)): path.read_bytes() for path in files}


# ---- damage --------------------------------------------------------------------------------------------------------


def test_flipped_bits_and_truncations_are_reported(run: Path) -> None:
    generator = random.Random(4)
    for change in [torture.flip] * 60 + [torture.truncate] * 10:
        path = generator.choice(torture.files_of(run))
        assert torture.unreported(run, path, change(path.read_bytes(), generator)) is None


def test_an_edited_config_is_refused_until_it_is_accepted(run: Path) -> None:
    config = run / "config.yaml"
    config.write_text(config.read_text().replace("beam: 1", "beam: 2"))
    with pytest.raises(
        UserError, match=r"config\.yaml has changed since it was written .* with `regard check .*run --accept`"
    ):
        regard.load(run)
    report, sound = checking.check([str(run)], [])
    assert "config.yaml has changed since it was written" in report
    assert not sound
    report, sound = checking.check([str(run)], [], accept=True)
    assert "every file matches its checksum" in report
    assert "causality" in report
    assert sound
    assert regard.load(run).config.decoding.beam == 2


def test_check_of_a_run_without_its_data_is_a_check_of_its_files(run: Path) -> None:
    text = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(re.sub(r"[^\s\[]+pairs\.tsv", "gone.tsv", text))
    report, sound = checking.check([str(run)], [], accept=True)
    assert "every file matches its checksum" in report
    assert "not checked, which needs its data: gone.tsv" in report
    assert sound


def test_nothing_but_a_run_is_accepted(tmp_path: Path, pairs: Path) -> None:
    with pytest.raises(UserError, match=r"accept takes the files of a run as they are, but .* is not a run folder"):
        checking.check([str(tmp_path)], [], accept=True)
    assert not list(tmp_path.iterdir())
    with pytest.raises(UserError, match=r"accept takes the files of a run as they are, but .*pairs\.tsv is not"):
        checking.check([str(pairs)], [], accept=True)


def test_a_damaged_state_is_passed_over_and_never_pushes_out_a_good_one(place: Path, run: Path, pairs: Path) -> None:
    last = torture.newest(run)
    weights = last / "weights.safetensors"
    weights.write_bytes(torture.flip(weights.read_bytes(), random.Random(1)))
    assert torture.train(pairs, run) is None
    assert torture.outcome(run) == torture.outcome(place / "whole")
    assert len(checkpoint.states(run)) == 2
    assert verify.verify(run) == []


def test_lost_checkpoints_are_taken_back_or_said(run: Path, pairs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    facts = checkpoint.read_facts(torture.newest(run))
    best = run / "checkpoints" / f"{facts['best_step']:08d}.safetensors"
    checksums.publish(run, {"model.safetensors": best})  # as it is before the end, where the average may be better
    best.write_bytes(b"damaged")
    other = next(run / "checkpoints" / name for name in facts["kept"] if name != best.name)
    other.unlink()
    regard.train(pairs, run, steps=torture.STEPS, set=torture.TINY)
    said = capsys.readouterr().err
    assert f"{best} was damaged or gone: taken back from" in said
    assert f"{other} is damaged or gone: training continues without it" in said
    assert checksums.sha256(best) == facts["kept"][best.name]


def test_metrics_follow_the_state(run: Path, pairs: Path) -> None:
    before = (run / "metrics.jsonl").read_text()
    (run / "metrics.jsonl").write_text(before + before.splitlines()[-1] + '\n{"step": 3')
    assert torture.train(pairs, run) is None
    assert (run / "metrics.jsonl").read_text() == before


# ---- a disk that refuses -------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with two megabytes, if this machine lets us make one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"a file system cannot be mounted here: {made.stderr.strip()}")
    yield folder
    subprocess.run(["umount", folder], check=True)


def _fill(folder: Path) -> None:
    with (folder / "ballast").open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"\0" * 4096)


def test_a_full_disk_loses_nothing_and_is_made_up_for(
    place: Path, pairs: Path, small_disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, good = small_disk / "run", dict[str, Any]()

    def fill(_: Trainer) -> None:
        good.update(torture.outcome(run))
        _fill(small_disk)

    def look(trainer: Trainer) -> None:
        """After a validation that could not be saved: what was there is there."""
        assert torture.outcome(run) == good
        assert verify.verify(run) == []
        assert trainer.at.step == 17
        (small_disk / "ballast").unlink()

    assert torture.train(pairs, run, at={12: fill, 17: look}) is None
    found, expected = torture.outcome(run), torture.outcome(place / "whole")
    for name in ("weights.safetensors", "optimiser.safetensors", "random.safetensors", "metrics.jsonl"):
        assert found[name] == expected[name]
    assert found["step"] == torture.STEPS
    assert regard.load(run).predict(["abc"])


def test_a_disk_that_is_full_to_the_end_is_told_with_what_is_saved(pairs: Path, small_disk: Path) -> None:
    run = small_disk / "run"
    said = torture.train(pairs, run, at={12: lambda _: _fill(small_disk)})
    assert said is not None
    assert f"10 of {torture.STEPS} steps are saved, but " in said
    assert "No space left on device" in said
    assert not [*run.rglob("*.partial")], "what is left of an attempt would be in the way of the next"
    (small_disk / "ballast").unlink()
    assert torture.train(pairs, run) is None
    assert regard.load(run).predict(["abc"])


def test_a_disk_that_stays_full_ends_with_a_sentence_and_the_state_before(pairs: Path, small_disk: Path) -> None:
    run = small_disk / "run"
    said = torture.train(pairs, run, at={12: lambda _: _fill(small_disk), 17: torture.stop})
    assert said is not None
    assert "Step 17 is not saved" in said
    assert "No space left on device" in said
    assert f"what was saved before is in {run / 'state'}" in said
    assert checkpoint.read_facts(torture.newest(run))["step"] == 10
    assert verify.verify(run) == []
    (small_disk / "ballast").unlink()
    assert torture.train(pairs, run) is None


def test_a_folder_that_may_no_longer_be_written_to(place: Path, pairs: Path, tmp_path: Path) -> None:
    """The permission is lost for a while: also the administrator may not write to what is immutable."""
    run = tmp_path / "run"
    guarded = [run, run / "state", run / "checkpoints"]
    probe = tmp_path / "probe"
    probe.mkdir()
    if subprocess.run(["chattr", "+i", probe], capture_output=True).returncode:
        pytest.skip("folders cannot be made immutable here")
    subprocess.run(["chattr", "-i", probe], check=True)
    try:
        said = torture.train(
            pairs,
            run,
            at={
                11: lambda _: subprocess.run(["chattr", "+i", *guarded], check=True),
                16: lambda _: _same(run, 10) and subprocess.run(["chattr", "-i", *guarded], check=True),
            },
        )
    finally:
        subprocess.run(["chattr", "-i", *guarded], check=False)
    assert said is None
    assert torture.outcome(run)["weights.safetensors"] == torture.outcome(place / "whole")["weights.safetensors"]


def _same(run: Path, step: int) -> bool:
    assert checkpoint.read_facts(torture.newest(run))["step"] == step
    assert verify.verify(run) == []
    return True


def test_a_read_only_folder_is_refused_and_left_alone(place: Path, pairs: Path, small_disk: Path) -> None:
    run = Path(shutil.copytree(place / "whole", small_disk / "run"))
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    before = torture.outcome(run)
    assert torture.train(pairs, run) == f"{run}: cannot be written to: Read-only file system."
    assert torture.outcome(run) == before
    assert regard.load(run).predict(["abc"])


# ---- bad moments ---------------------------------------------------------------------------------------------------


def test_out_of_memory_is_said_with_a_remedy_and_the_state_kept(pairs: Path, tmp_path: Path, place: Path) -> None:
    run = tmp_path / "run"

    def exhausted(_: Trainer) -> None:
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")

    said = torture.train(pairs, run, at={17: exhausted})
    assert said is not None
    assert "Out of memory at step 17: the last state is in" in said
    assert 'set={"training.budget": 200, "training.accumulate": 2}' in said
    assert torture.train(pairs, run) is None
    assert torture.outcome(run) == torture.outcome(place / "whole")


def test_a_second_interrupt_leaves_at_once_without_harm(pairs: Path, tmp_path: Path, place: Path) -> None:
    run = tmp_path / "run"

    def twice(_: Trainer) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        torture.train(pairs, run, at={17: twice})
    assert checkpoint.read_facts(torture.newest(run))["step"] == 15
    assert torture.train(pairs, run) is None
    assert torture.outcome(run) == torture.outcome(place / "whole")


def test_long_pauses_between_validations_are_saved_too(
    pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    save = checkpoint.save_state
    monkeypatch.setattr("regard.training.loop.SAVE_SECONDS", 0.3)  # by the clock of these tests, three steps
    monkeypatch.setattr(checkpoint, "save_state", lambda run, step, *rest: seen.append(step) or save(run, step, *rest))
    assert torture.train(pairs, tmp_path / "other") is None
    assert seen[:4] == [3, 5, 8, 10]


# ---- safe loading --------------------------------------------------------------------------------------------------


def test_mutated_run_files_are_refused_quickly(run: Path) -> None:
    regard.load(run).predict(["abc"])
    mutations = torture.Mutations(run, seed=5)
    for _ in range(300):
        mutations.once()
    assert not mutations.faults, "\n".join(mutations.faults[:5])
    assert mutations.refused > 200


@pytest.mark.parametrize("name", ["../outside.txt", "/etc/hostname", "state/../../outside.txt"])
def test_names_do_not_lead_out_of_the_folder(name: str, run: Path) -> None:
    (run.parent / "outside.txt").write_text("secret")
    checksums.write_sums(run, checksums.read_sums(run) | {name: ["0"]})
    assert any("leads out of the folder" in fault for fault in verify.verify(run))


def test_links_do_not_lead_out_of_the_folder(run: Path) -> None:
    shutil.move(run / "model.safetensors", run.parent / "elsewhere")
    (run / "model.safetensors").symlink_to(run.parent / "elsewhere")
    with pytest.raises(UserError, match=r"'model\.safetensors' leads out of the folder"):
        regard.load(run)


@pytest.mark.parametrize(
    "change", ["width: 8 → width: 65536", "layers: 1 → layers: 1000", "longest: 256 → longest: 1000000"]
)
def test_sizes_are_compared_before_anything_is_allocated(change: str, run: Path) -> None:
    """With fitting sums, as somebody would send who means harm."""
    old, new = change.split(" → ")
    text = (run / "config.yaml").read_text()
    assert old in text
    (run / "config.yaml").write_text(text.replace(old, new))
    verify.accept(run)
    memory, began = torture.Memory(), time.process_time()
    if "longest" not in change:
        with pytest.raises(UserError, match=r"memory|does not fit the model its config\.yaml describes"):
            regard.load(run)
    else:
        regard.load(run)  # costs nothing until it is used
    assert time.process_time() - began < 1
    assert memory.taken() < 512e6


@pytest.mark.parametrize("bomb", ["aliases", "depth", "tokens", "id", "header"])
def test_small_files_that_stand_for_much_are_refused_at_once(bomb: str, run: Path) -> None:
    names = "abcdefghij"
    if bomb == "aliases":  # 10¹⁰ items if written out
        lines = [
            "a: &a [x,x,x,x,x,x,x,x,x,x]",
            *(f"{b}: &{b} [{','.join([f'*{a}'] * 10)}]" for a, b in pairwise(names)),
        ]
        (run / "config.yaml").write_text("\n".join([*lines, "data: {train: *j}"]))
    elif bomb == "depth":
        (run / "config.yaml").write_text("data: " + "[" * 20_000)
    elif bomb == "tokens":
        file = json.loads((run / "tokenizer.json").read_text())
        file["model"]["vocab"] |= {f"token {i}": len(file["model"]["vocab"]) + i for i in range(100_000)}
        (run / "tokenizer.json").write_text(json.dumps(file))
    elif bomb == "id":  # to which the library would count
        (run / "tokenizer.json").write_text((run / "tokenizer.json").read_text().replace('"a": 4', '"a": 2147483648'))
    else:
        header = json.dumps({"x": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}).encode()
        (run / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(100))
    verify.accept(run)
    memory, began = torture.Memory(), time.process_time()
    with pytest.raises(UserError, match=r"alias|nested too deep|expected at most|is damaged|not written by regard"):
        regard.load(run)
    assert time.process_time() - began < 1
    assert memory.taken() < 100e6


def test_loading_does_not_wait_for_a_compiler(run: Path) -> None:
    """To draw random numbers for weights without memory, torch would load all of it: 1.5 s each time."""
    code = "import sys, regard; regard.load(sys.argv[1]); print('torch._dynamo' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, run], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_vocabulary_too_large_for_the_machine_is_refused_before_it_is_built() -> None:
    class Giant:
        size = 10**12

    config = settings.make({"data": {"train": ["a"]}}, "here")
    with pytest.raises(UserError, match=r"513,.* weights need .* GB, there are"):
        build.build(config, (Tokens(Giant(), None, config.tokens, Use.SOURCE), Convert(Giant())))  # type: ignore[arg-type]


def test_a_run_without_sums_is_refused_with_the_remedy(run: Path) -> None:
    (run / checksums.SUMS).unlink()
    with pytest.raises(UserError, match=r"sums\.json is damaged .* --accept"):
        regard.load(run)
    verify.accept(run)
    assert regard.load(run).predict(["abc"])


def test_an_average_is_a_run_with_sums_of_its_own(run: Path, tmp_path: Path) -> None:
    made = average(run, None, tmp_path / "mean")
    assert verify.verify(made) == []
    regard.load(made)
    kept = next((run / "checkpoints").iterdir())
    kept.write_bytes(torture.flip(kept.read_bytes(), random.Random(3)))
    with pytest.raises(UserError, match="is damaged or gone"):
        average(run, None, tmp_path / "other")
