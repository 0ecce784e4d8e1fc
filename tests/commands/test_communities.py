"""The demo of communities: nine of ten people are named right from few who told, and hardly any without edges."""

from pathlib import Path

import pytest

from regard.commands.communities import demonstrate


def test_demo_of_communities(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demonstrate(tmp_path / "run", 1.0)
    printed = capsys.readouterr().out
    shares = [float(line.split()[-2]) for line in printed.splitlines() if line.endswith(" %")]
    assert shares[0] >= 90
    assert shares[1] <= 60
    for name in ("communities.png", "person.png", "person.html"):
        assert (tmp_path / "run" / "pictures" / name).stat().st_size > 1000
