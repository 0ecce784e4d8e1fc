import numpy as np
import pytest

from regard.errors import UserError
from regard.pictures.places import places


def test_each_map_has_its_name_and_the_query_a_frame() -> None:
    figure = places({"a": np.eye(3), "b": np.zeros((3, 3))}, (1, 2), columns=2)
    assert [axes.get_title() for axes in figure.axes] == ["a", "b"]
    assert np.asarray(figure.axes[0].images[0].get_array()).tolist() == np.eye(3).tolist()
    assert [axes.patches[0].get_xy() for axes in figure.axes] == [(1.5, 0.5)] * 2  # type: ignore[attr-defined]


def test_no_map_is_refused() -> None:
    with pytest.raises(UserError, match="no map to draw"):
        places({}, (0, 0))
