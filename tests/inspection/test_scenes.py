"""Graphs as they are drawn: which nodes, where they lie, which weights; and the page in a real browser."""

from pathlib import Path

import numpy as np
import pytest

from regard import pictures
from regard.errors import UserError
from regard.inspection import bundle, page
from regard.inspection.scenes import DRAWN, refuse_crowd, sketch
from regard.inspection.view import GraphView, View
from regard.pictures.sketch import rings, springs
from tests.browser import browser, needs_browser

LINE = np.array([(i, i + 1) for i in range(4)] + [(i + 1, i) for i in range(4)])


def weights_on(count: int, edges: np.ndarray, seed: int = 0) -> np.ndarray:
    """Random weights along edges and loops whose rows add to 1, (heads, n, n)."""
    found = np.zeros((2, count, count))
    found[:, edges[:, 1], edges[:, 0]] = np.random.default_rng(seed).random((2, len(edges))) + 0.1
    found[:, range(count), range(count)] = 0.5
    return found / found.sum(-1, keepdims=True)


def test_hops_show_the_last_layer_first_and_only_who_was_reached() -> None:
    view = View(list("abcde"), units=[0], scene=GraphView(LINE, centres=[0]))
    one, two = weights_on(5, LINE, 1), weights_on(5, LINE, 2)
    drawn = sketch(view, [one, two], "a")
    assert [title for title, _ in drawn.panels] == ["hop 1 (layer 2)", "hop 2 (layer 1)"]
    assert list(drawn.names) == ["a", "b", "c"], "d and e are three hops away and more"
    (_, first), (_, second) = drawn.panels
    seen = {
        tuple(edge): weight for edge, weight in zip(drawn.edges.tolist(), first, strict=True) if np.isfinite(weight)
    }
    assert seen == {(1, 0): pytest.approx(two.mean(0)[0, 1])}
    later = {tuple(edge) for edge, weight in zip(drawn.edges.tolist(), second, strict=True) if np.isfinite(weight)}
    assert later == {(1, 0), (0, 1), (2, 1)}
    assert drawn.loops == [(0, pytest.approx(two.mean(0)[0, 0]))]


def test_the_nodes_that_counted_most_are_drawn() -> None:
    count = 200
    star = np.array([(i, 0) for i in range(1, count)])
    weights = np.zeros((1, count, count))
    weights[0, 0, 1:] = np.arange(1, count) / np.arange(1, count).sum()
    drawn = sketch(View([str(i) for i in range(count)], scene=GraphView(star, centres=[0])), [weights], "star")
    assert len(drawn.names) == DRAWN
    assert drawn.names[0] == "0"
    assert min(int(name) for name in drawn.names[1:]) == count - DRAWN + 1


def test_crowds_are_refused() -> None:
    edges = np.zeros((0, 2), np.int64)
    with pytest.raises(UserError, match=r"201 nodes, expected at most 200 in a picture: choose some with (--)?node"):
        refuse_crowd(View(["x"] * 201, scene=GraphView(edges)), "graph")
    refuse_crowd(View(["x"] * 201, scene=GraphView(edges, centres=[0])), "graph")
    refuse_crowd(View(["x"] * 5000), "a text")


def test_places() -> None:
    found = rings(5, LINE, 0)
    distance = np.linalg.norm(found, axis=1)
    assert np.allclose(distance, np.arange(5) / distance.max() * distance.max() / 4, atol=0.3)
    assert (np.diff(distance) > 0).all()
    loose = springs(6, np.array([(0, 1), (2, 3)]))
    assert np.isfinite(loose).all()
    assert np.abs(loose).max() <= 1.1
    assert np.linalg.norm(loose[0] - loose[1]) < np.linalg.norm(loose[0] - loose[2])


def drawn_page(folder: Path) -> Path:
    view = View(list("abcde"), units=[0], scene=GraphView(LINE, ["x", "y", "x", None, "x"], centres=[0]))
    layers = [weights_on(5, LINE, 1), weights_on(5, LINE, 2)]
    drawn = sketch(view, layers, "a → x")
    kept = np.asarray(drawn.kept)
    maps = [page.Map("attention", "source", "source", np.stack(layers)[..., kept, :][..., kept])]
    exhibit = page.Exhibit(drawn.names, ["x"], maps, "graph@a", sketch=drawn)
    assert pictures.save(pictures.graph(drawn), folder / "graph.png").stat().st_size > 5000
    return bundle.write(folder / "graph.html", [exhibit])


def test_a_picture_and_a_page_are_written(tmp_path: Path) -> None:
    text = drawn_page(tmp_path).read_text(encoding="utf-8")
    assert '"edges":[[' in text


@needs_browser
def test_a_node_that_is_pointed_at_shows_its_incoming_weights(tmp_path: Path) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    path = drawn_page(tmp_path)
    with browser() as driver:
        driver.get(path.as_uri())
        status = driver.find_element("class name", "status")
        dots = driver.find_elements("css selector", ".graph circle[data-index]")
        assert len(dots) == 3
        assert status.text.startswith("a looks at "), "the node that was asked about is chosen at first"
        ActionChains(driver).move_to_element(dots[1]).perform()
        assert status.text.startswith("b looks at ")
        assert len(driver.find_elements("css selector", ".graph path")) == 2
        dots[1].send_keys(Keys.ARROW_RIGHT)
        ActionChains(driver).move_by_offset(300, 250).perform()
        assert status.text.startswith("c looks at ")
        driver.find_element("class name", "matrix").click()
        assert not driver.find_element("class name", "graph").is_displayed()
        driver.find_element("class name", "own").click()
        assert driver.find_element("class name", "graph").is_displayed()
        assert driver.get_log("browser") == []
