"""The demo from beginning to end, with few dates and little time: what it says, writes and advises."""

from pathlib import Path

import pytest

from regard.commands import demo


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
