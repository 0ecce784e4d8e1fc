"""Comforts that save a newcomer a search: nothing overwritten, resuming by folder, files, short hints, and one screen of facts."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from regard.commands import trials
from regard.runs import checksums
from tests.conftest import Regard


@pytest.fixture
def run(blind: Path, tmp_path: Path) -> Path:
    """A run that can be resumed, and its data beside it."""
    shutil.copy(blind / "data.tsv", tmp_path / "data.tsv")
    copy = Path(shutil.copytree(blind / "run", tmp_path / "runs" / "blind"))
    text = (copy / "config.yaml").read_text().replace(str(blind / "data.tsv"), "../../data.tsv")
    checksums.publish(copy, {"config.yaml": text.encode()})
    return copy


def digest(run: Path) -> str:
    return checksums.sha256(run / "model.safetensors")


# ---- a model is never overwritten ----------------------------------------------------------------------------------


def test_a_model_without_a_state_is_not_overwritten(cli: Regard, run: Path) -> None:
    """As imported and averaged ones, and those whose state was removed to save room."""
    before = digest(run)
    shutil.rmtree(run / "state")
    for given in (["train", "data.tsv", "-o", run], ["train", run], ["train", "data.tsv", "--from", run, "-o", run]):
        cli.run(*given, "--steps", "3", code=1)
        assert "would overwrite it" in cli.said
        assert f"--from {run} " in cli.said
        assert "another folder with -o" in cli.said
    assert digest(run) == before


def test_an_average_is_not_trained_over(cli: Regard, run: Path) -> None:
    cli.run("average", run, "-o", "runs/mean")
    before = digest(Path("runs/mean"))
    cli.run("train", "data.tsv", "-o", "runs/mean", "--steps", "3", code=1)
    assert "would overwrite it" in cli.said
    assert digest(Path("runs/mean")) == before


def test_damaged_states_cost_no_model(cli: Regard, run: Path) -> None:
    for state in (run / "state").glob("[0-9]*"):
        (state / "weights.safetensors").write_bytes(b"")
    before = digest(run)
    cli.run("train", run, code=1)
    assert "every saved state is damaged" in cli.said
    assert "is kept" in cli.said
    assert f"--from {run} " in cli.said
    assert "remove" not in cli.said
    assert digest(run) == before


def test_another_task_does_not_continue_a_run(cli: Regard, run: Path) -> None:
    Path("labels.tsv").write_text("".join(f"text {i}\t{'good' if i % 2 else 'bad'}\n" for i in range(60)))
    before = digest(run)
    cli.run("train", "labels.tsv", "-o", run, "--steps", "3", code=1)
    assert "a training of the task convert on tokens, found classify on tokens" in cli.said
    assert digest(run) == before


# ---- resuming, from anywhere ---------------------------------------------------------------------------------------


def test_a_folder_is_resumed_from_any_working_directory(
    cli: Regard, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run.parent / "deep").mkdir()
    monkeypatch.chdir(run.parent / "deep")
    assert cli.run("train", "../blind", "--steps", "3") == "../blind\n"
    assert "resuming at step 2" in cli.said
    monkeypatch.chdir(run.parent.parent)
    assert "train: [../../data.tsv]" in (run / "config.yaml").read_text()
    cli.run("train", "runs/blind", "--steps", "4")
    assert "resuming at step 3" in cli.said
    cli.run("train", "runs/blind/config.yaml", "-o", "again", "--steps", "1")
    assert "train: [../data.tsv]" in Path("again/config.yaml").read_text()


def test_quiet_says_nothing_but_the_folder(cli: Regard, run: Path) -> None:
    assert cli.run("train", run, "--steps", "3", "--quiet") == f"{run}\n"
    assert cli.said == ""


# ---- small things --------------------------------------------------------------------------------------------------


def test_the_version_is_shown(cli: Regard) -> None:
    import regard

    assert cli.run("--version") == f"{regard.__version__}\n"


def test_a_run_fits_on_one_screen(cli: Regard, letters: Path, run: Path) -> None:
    lines = cli.lines("info", letters / "run")
    assert len(lines) <= 24
    text = "\n".join(lines)
    for words in (
        "converts texts",
        "data.tsv",
        "parameters",
        "120 steps",
        "exact_match",
        "kind recurrent",
        "regard train",
    ):
        assert words in text
    facts = json.loads(cli.run("info", letters / "run", "--json"))
    assert facts["rows"]["train"] > 500
    assert facts["scores"]["validation"]
    shutil.rmtree(run / "state")
    assert "--from" in cli.run("info", run)


def test_a_file_is_answered_by_its_sources_or_lines(cli: Regard, letters: Path, tmp_path: Path) -> None:
    given = [line.split("\t")[0] for line in (letters / "test.tsv").read_text().splitlines()]
    expected = cli.lines("predict", letters / "run", given="\n".join(given) + "\n")
    assert cli.lines("predict", letters / "run", "--file", letters / "test.tsv") == expected
    assert "the sources are answered" in cli.said
    (tmp_path / "plain.txt").write_text("\n".join(given) + "\n")
    assert cli.lines("predict", letters / "run", "--file", tmp_path / "plain.txt") == expected
    assert "every line is answered" in cli.said
    cli.run("predict", letters / "run", "abc", tmp_path / "plain.txt")
    assert "plain.txt is answered as a text; --file " in cli.said
    assert "abc is answered" not in cli.said
    cli.run("predict", letters / "run", "abc", "--file", tmp_path / "plain.txt", code=1)
    cli.run("predict", letters / "run", "--file", tmp_path / "none.txt", code=1)
    assert "no such file" in cli.said


@pytest.mark.parametrize(("more", "count"), [([], 4), (["--n-best", "2"], 8)])
def test_faulty_lines_are_skipped_with_a_note(
    more: list[str], count: int, cli: Regard, letters: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lines").write_bytes(b"abc\n\xff\n" + b"x" * 5000 + b"\nbad\n")

    def lines(*options: str) -> list[str]:
        monkeypatch.setattr("sys.stdin", (tmp_path / "lines").open())
        return cli.lines("predict", letters / "run", "--skip-faults", *more, *options)

    answers = lines()
    assert len(answers) == count
    assert answers[count // 4] == answers[count // 2] == ""
    assert answers[0]
    assert answers[-count // 4]
    assert "standard input:2: it is not UTF-8" in cli.said
    assert "standard input:3: The text" in cli.said
    assert ["fault" in json.loads(line) for line in lines("--json")] == [False, True, True, False]


def test_an_unknown_device_is_one_sentence(cli: Regard, letters: Path) -> None:
    assert cli.lines("predict", letters / "run", "abc", "--device", "cpu")
    cli.run("predict", letters / "run", "abc", "--device", "abacus", code=1)
    assert "--device abacus: expected a device of this machine" in cli.said


def test_hints_fit_on_a_line(letters: Path) -> None:
    import regard

    model = regard.load(letters / "run")
    for text in ("a" * 300, "word " * 100):
        cut = trials._cut(text, 40)
        assert 0 < len(cut) <= 40
    assert len(trials.example(model)) <= 40


def test_shells_complete_commands() -> None:
    asked = {"_REGARD_COMPLETE": "complete_bash", "COMP_WORDS": "regard in", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "regard"], env=os.environ | asked, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["info"]
