import pytest

from regard.errors import UserError
from regard.pictures.points import Point, scatter


@pytest.mark.parametrize(("last", "scale"), [(3.0, "linear"), (4000.0, "log")])
def test_points_have_names_bars_and_plain_numbers(last: float, scale: str) -> None:
    figure = scatter([Point("a", 1.0, 5.0, 0.5), Point("b", last, 7.0, hollow=True)], "speed", "quality", title="t")
    axes = figure.axes[0]
    assert axes.get_xscale() == scale
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a", "b"]
    figure.canvas.draw()
    assert not any("$" in label.get_text() for label in axes.get_xticklabels())
    bar = axes.collections[0].get_segments()[0]
    assert (bar[0][1], bar[1][1]) == (4.5, 5.5)


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(UserError, match="no point to draw"):
        scatter([], "x", "y")
    with pytest.raises(UserError, match="expected positive values"):
        scatter([Point("a", 0.0, 1.0)], "x", "y")
