"""The scenes of `regard demo scenes`: the picture decides the caption, and the command runs to its pictures."""

import random
from pathlib import Path

import numpy as np
import pytest

from regard.commands import scenes


def test_the_picture_decides_the_caption() -> None:
    chosen = random.Random(1)
    for _ in range(300):
        shown = scenes.scene(chosen)
        large, small = shown.large, shown.small
        assert large.radius > 1.6 * small.radius
        dx, dy = small.x - large.x, small.y - large.y
        expected = ("left of" if dx > 0 else "right of") if abs(dx) > abs(dy) else ("above" if dy > 0 else "below")
        assert shown.relation == expected
        assert abs(abs(dx) - abs(dy)) > 0.2
        assert not shown.unseen
        assert scenes.scene(chosen, unseen=True).unseen
        for thing in (large, small):
            assert thing.radius <= thing.x <= 1 - thing.radius


def test_shapes_are_drawn_where_they_are() -> None:
    shown = scenes.Scene(
        scenes.Thing("red", "circle", 0.3, 0.3, 0.2), scenes.Thing("blue", "square", 0.8, 0.3, 0.1), "left of"
    )
    assert shown.caption == "a red circle left of a blue square"
    pixels = scenes.drawn(shown, random.Random(0)).astype(int)
    red, blue = pixels[17, 17], pixels[17, 45]
    assert red[0] > red[1] + 100
    assert blue[2] > blue[0] + 100
    assert pixels[50, 50].min() > 220
    assert (np.abs(pixels[17, 30] - pixels[50, 50]) < 30).all()


def test_the_demo_runs_to_its_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scenes.demonstrate(tmp_path / "scenes", 0.05, count=64, held_out=8)
    out = capsys.readouterr().out
    assert "of 8 held-out scenes exactly" in out
    assert "never seen together" in out
    for name in ("words.png", "heads.png", "words.html"):
        assert (tmp_path / "scenes" / "pictures" / name).stat().st_size > 1000
