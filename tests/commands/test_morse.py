"""The recordings of `regard demo morse`: texts, times, and what a model may not have heard."""

from pathlib import Path

import numpy as np
import pytest

from regard import inputs
from regard.commands import morse
from regard.data.sound import seconds
from regard.runs import settings


def test_texts_of_a_training_and_of_tests_are_apart() -> None:
    heard = {text for text, _ in morse.messages(300, 1, unheard=False)}
    unheard = {text for text, _ in morse.messages(100, 2, unheard=True)}
    assert heard.isdisjoint(unheard)
    assert {len(text) for text in unheard} == {1, 2, 3, 4}
    assert {*"".join(heard)} == {*morse.LETTERS}


def test_a_message_lasts_as_long_as_its_signs() -> None:
    """PARIS, with the gap after it, is 50 dots; a word a minute is 50 dots a minute."""
    how = morse.Conditions(speed=(20.0, 20.0), noise=(60.0, 60.0), fading=1.0)
    samples = morse.recorded("PARIS", np.random.default_rng(0), how)
    dots = 43  # without the gap
    assert len(samples) / morse.RATE == pytest.approx(dots * 1.2 / 20 + 0.4, abs=0.35)
    loud = np.abs(samples / np.abs(samples).max()) > 0.2
    assert loud.mean() == pytest.approx(
        0.87 * 22 / 49, abs=0.08
    )  # a tone is above a fifth of its height for 87 % of the time


def test_a_table_names_the_parts_of_one_recording(tmp_path: Path) -> None:
    table = morse.write_together(tmp_path, "train", morse.messages(5, 1, unheard=False))
    form = inputs.recognise([table])
    found = list(inputs.read([table], form))
    assert form.task == "convert"
    assert [e.target for e in found] == [text for text, _ in morse.messages(5, 1, unheard=False)]
    lengths = [len(samples) / morse.RATE for _, samples in morse.messages(5, 1, unheard=False)]
    assert [seconds(e.source) for e in found] == pytest.approx(lengths, abs=1e-3)
    paths = morse.write_apart(tmp_path / "apart", [*morse.messages(2, 3, unheard=True)])
    assert [path.name for path in paths] == ["message01.wav", "message02.wav"]


def test_its_settings_are_valid() -> None:
    config = settings.make({"data": {"train": ["x"]}, **morse.SETTINGS}, "the demo")
    assert config.task == "convert"
    assert config.input == "frames"


def test_the_demo_runs_to_its_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    morse.demonstrate(tmp_path / "morse", 0.03, count=48, held=6)
    out = capsys.readouterr().out
    assert "of 6 held-out messages exactly" in out
    for name in morse.OTHERS:
        assert f"Never heard in training, {name}:" in out
    drawn = sorted(path.name for path in (tmp_path / "morse" / "pictures").iterdir())
    assert drawn in (["heard.png"], ["heard.html", "heard.png"])  # a page of those that have an answer
    assert (tmp_path / "morse" / "pictures" / "heard.png").stat().st_size > 1000
