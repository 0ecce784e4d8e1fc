"""The demo that finds shapes: its boxes lie on its shapes, and it runs to its pictures."""

import random
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

from regard.commands import shapes
from regard.commands.scenes import FINE, draw_thing


@pytest.mark.parametrize("seed", range(5))
def test_boxes_lie_on_their_shapes(seed: int) -> None:
    for thing in shapes.crowd(random.Random(seed)):
        image = Image.new("L", (shapes.SIZE * FINE, shapes.SIZE * FINE))
        draw_thing(ImageDraw.Draw(image), thing, shapes.SIZE * FINE, (255,))
        rows, columns = np.nonzero(np.asarray(image))
        drawn = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
        assert [edge / FINE for edge in drawn] == pytest.approx(shapes.edges(thing), abs=0.6)


def test_shapes_overlap_but_none_hides_another() -> None:
    chosen = random.Random(0)
    scenes = [[shapes.edges(thing) for thing in shapes.crowd(chosen)] for _ in range(200)]
    shares = [shapes.covered(a, b) for boxes in scenes for i, a in enumerate(boxes) for b in boxes[:i]]
    assert 0.3 < max(shares) <= shapes.COVERED
    assert {len(boxes) for boxes in scenes} == set(range(1, shapes.MOST + 1))


def test_the_demo_runs_to_its_pictures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = {"layers": 1, "width": 16, "hidden": 16, "heads": 2}
    for name in ("encoder", "model"):
        monkeypatch.setitem(shapes.SETTINGS, name, shapes.SETTINGS[name] | small)  # type: ignore[operator]
    shapes.demonstrate(tmp_path / "run", 0.01, count=24, held_out=6)
    said = capsys.readouterr().out
    assert "On 6 held-out pictures: mAP50" in said
    assert "That is not much for 0.01 minutes" in said
    for name in ("boxes.png", "boxes.html", "precision_recall.png"):
        assert (tmp_path / "run/pictures" / name).stat().st_size > 1000
