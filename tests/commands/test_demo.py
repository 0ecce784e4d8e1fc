"""The demo from beginning to end, with few dates and little time: what it says, writes and advises."""

from pathlib import Path

import pytest

from regard.commands import demo, show
from regard.runs.model import load


def test_it_says_how_well_it_reads_draws_where_it_looked_and_asks_for_more_time_if_that_is_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "TRAIN", 300)
    monkeypatch.setattr(demo, "HELD_OUT", 60)
    monkeypatch.chdir(tmp_path)
    demo.demonstrate(Path("a run"), 0.02)
    said = capsys.readouterr().out
    assert "held-out dates in" in said
    assert "Not seen in training" in said
    assert "That is not much: only" in said
    assert "demo -o 'a run' --minutes 0.08" in said, "as a shell takes it"
    for name in ("alignment.png", "alignment.html", "learning.png"):
        assert (tmp_path / "a run" / "pictures" / name).stat().st_size > 1000
    arrows = [line for line in said.splitlines() if line.startswith("  ") and " → " in line]
    assert len(arrows) >= 5


def test_a_model_that_writes_nothing_yet_is_shown_where_it_looks_for_the_right_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load(Path(__file__).parents[1] / "runs" / "old" / "convert_recurrent")
    silent, say = {"dea"}, model.predict
    monkeypatch.setattr(model, "predict", lambda texts: ["" if text in silent else say([text])[0] for text in texts])
    asked, calls, really = {"dea": "DEA", "cc": "CC"}, [], show.show
    monkeypatch.setattr(
        show, "show", lambda *given, **how: calls.append((given[1], how["answer"])) or really(*given, **how)
    )
    show.show_answered(model, asked, tmp_path / "page.html")
    silent.add("cc")
    show.show_answered(model, asked, tmp_path / "page.html")
    show.show_answered(model, asked, tmp_path / "one.png", grid=True)
    assert calls == [(["cc"], None), (["dea"], "DEA"), (["dea"], "DEA")]
    assert (tmp_path / "one.png").stat().st_size > 1000
