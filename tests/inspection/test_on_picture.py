"""Weights on pictures: rollout against its formula, coarse grids spread, panels in their places, and the page."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By

from regard import pictures
from regard.commands.sheets import title_of
from regard.errors import UserError
from regard.inspection import bundle, on_picture
from regard.inspection.page import Exhibit, Map
from regard.inspection.view import Drawing, View
from regard.pictures.overlays import shaded
from tests.browser import browser, needs_browser


def view(marks: int = 0, rows: int = 4, columns: int = 4) -> View:
    shades = np.random.default_rng(0).integers(0, 256, (16, 16, 3)).astype(np.uint8)
    return View.of_picture(shades, (rows, columns), marks)


def weights(*shape: int) -> np.ndarray:
    found = np.random.default_rng(1).random(shape)
    return found / found.sum(-1, keepdims=True)


def test_rollout_equals_its_formula() -> None:
    found = weights(3, 2, 5, 5)
    expected = np.eye(5)
    for layer in range(3):
        a = np.zeros((5, 5))
        for i in range(5):
            for j in range(5):
                a[i, j] = 0.5 * (found[layer, 0, i, j] + found[layer, 1, i, j]) / 2 + 0.5 * (i == j)
        expected = a @ expected
    assert np.allclose(on_picture.rollout(found), expected)
    assert np.allclose(on_picture.rollout(found).sum(-1), 1)


def test_a_coarse_grid_is_spread_over_its_places() -> None:
    coarse = weights(2, 4, 4)  # from and to 2 × 2 places
    fine = view().spread(view().spread(coarse), -2)
    assert fine.shape == (2, 16, 16)
    assert np.allclose(fine.sum(-1), 1)
    assert np.allclose(fine[:, 0, [0, 1, 4, 5]].sum(-1), coarse[:, 0, 0])
    assert np.allclose(fine[:, 15], fine[:, 10])
    odd = view(rows=5, columns=5).spread(weights(9))  # 5 places in pairs are 3
    assert odd.shape == (25,)
    assert np.isclose(odd.sum(), 1)
    twice = view(rows=5, columns=5).spread(weights(4))  # 5, 3, 2: the last place of a side stands for one place
    assert len({*twice.reshape(5, 5)[:4, :4].ravel()}) == 1
    assert len({*twice.tolist()}) == 4
    same = weights(3, 16)
    assert view().spread(same) is same


def test_each_place_is_shaded_by_its_weight_on_light_and_dark_pictures() -> None:
    for ground in (0, 255):
        picture = np.full((8, 8, 3), ground, np.uint8)
        values = np.zeros(4)
        values[1] = 1  # above, right
        found = shaded(picture, values, (2, 2), 1.0).mean(-1)
        assert found[:4, 4:].max() < found[:4, :4].min() - 0.2
        assert np.allclose(found[4:], found[4, 0])
        assert found[7, 0] > 0.5


@pytest.mark.parametrize("marks", [0, 1])
@pytest.mark.parametrize("grid", [False, True])
def test_labels_captions_and_heads_are_drawn(marks: int, grid: bool, tmp_path: Path) -> None:
    shown, count = view(marks), 16 + marks
    inside = Map("backbone.attention", "source", "source", weights(2, 3, count, count))
    label = Drawing(weights(count).astype(np.float32), shown.names, title="cat (90 %)")
    exhibit = Exhibit(shown.names, ["cat"], [inside], view=shown, drawing=label)
    figure = on_picture.figure(exhibit, shown, label, grid=grid)
    assert len(figure.axes) == (6 if grid else 3) + 1
    assert pictures.save(figure, tmp_path / "x.png").stat().st_size > 1000
    cross = Map("decoder.cross", "target", "source", weights(2, 3, 4, count))
    caption = Drawing(weights(3, count).astype(np.float32), shown.names, ["a", "grey", "cat"])
    exhibit = Exhibit(shown.names, ["a", "grey", "cat", "∎"], [cross], view=shown, drawing=caption)
    assert len(on_picture.figure(exhibit, shown, caption, grid=grid).axes) == (6 if grid else 4) + 1


def test_a_head_that_is_there_several_times_is_drawn_once() -> None:
    shown, values = view(), weights(2, 4, 16, 16)
    values[0] = values[0, :1]
    few = Map("stages", "source", "source", values, heads=[1, 4])
    exhibit = Exhibit(shown.names, ["cat"], [few], view=shown)
    figure = on_picture.figure(exhibit, shown, Drawing(weights(16), shown.names), grid=True)
    names = [text.get_text() for text in figure.texts if text.get_text().startswith("head")]
    assert names == ["head 1", "head 1", "head 2", "head 3", "head 4"]
    assert len(figure.axes) == 5 + 1


def test_rollout_ends_at_the_answer() -> None:
    arrived, looked = weights(16, 16), weights(16)
    drawing = Drawing(looked.astype(np.float32), view().names)
    assert np.allclose(on_picture.answered(view(), drawing, arrived), looked @ arrived, atol=1e-6)
    by_gradient = Drawing(looked, view().names, what="influence (by the gradient)")
    assert np.allclose(on_picture.answered(view(), by_gradient, arrived), arrived.mean(0))
    marked = weights(17, 17)
    assert np.allclose(on_picture.answered(view(1), Drawing(weights(17), view(1).names), marked), marked[0])


def test_what_cannot_be_drawn_is_refused() -> None:
    picture = np.zeros((8, 8, 3), np.uint8)
    with pytest.raises(UserError, match="needs 4 weights, found 5"):
        pictures.overlay(picture, (2, 2), [("x", np.ones(5))])
    with pytest.raises(UserError, match="1 to 160 pictures"):
        pictures.overlay(picture, (2, 2), [])


def test_confusion_and_contact_sheet(tmp_path: Path) -> None:
    counts = np.array([[9, 1], [3, 7]])
    pictures.save(pictures.confusion(counts, ["a long name of a class", "b"]), tmp_path / "confusion.png")
    sheet = pictures.contact_sheet([np.zeros((8, 8, 3), np.uint8)] * 3, ["a\nnot b"] * 3, "3 are wrong")
    pictures.save(sheet, tmp_path / "contact.svg")


def test_titles_of_a_contact_sheet_are_whole_and_apart() -> None:
    assert title_of("bag", 0.5, "coat") == "bag (50 %)\nnot coat"
    titles = [title_of("a very long name of a class", 1.0, "another very long name of a class")] * 3
    assert titles[0].startswith("a very long n… (100 %)\n")
    figure = pictures.contact_sheet([np.zeros((8, 8, 3), np.uint8)] * 3, titles, "3 are wrong")
    boxes = [text.get_window_extent() for text in figure.texts if text.get_text().startswith("not a")]
    assert len(boxes) == 3
    assert all(left.x1 + 0.06 * figure.dpi < right.x0 for left, right in pairwise(boxes))


@needs_browser
def test_the_page_shows_weights_on_the_picture(tmp_path: Path) -> None:
    shown = view(marks=1)
    values = np.zeros((1, 1, 3, 17))
    values[0, 0, 0, 1 + 6], values[0, 0, 1, 1 + 9], values[0, 0, 2, 1:], values[0, 0, :, 0] = 0.2, 0.1, 0.025, 0.6
    exhibit = Exhibit(shown.names, ["red", "cat", "of"], [Map("cross", "target", "source", values)], view=shown)
    path = bundle.write(tmp_path / "x.html", [exhibit])
    with browser() as driver:
        driver.get(path.as_uri())
        places = driver.find_elements(By.CSS_SELECTOR, ".columns .place")
        assert len(places) == 16
        words = driver.find_elements(By.CSS_SELECTOR, ".rows .word")
        for word, place in ((0, 6), (1, 9)):
            ActionChains(driver).move_to_element(words[word]).perform()
            lit = driver.execute_script(
                "return arguments[0].map((place) => place.style.getPropertyValue('--w'))", places
            )
            assert [i for i, value in enumerate(lit) if value == "1.000"] == [place]
        ActionChains(driver).move_to_element(words[2]).perform()
        assert {place.get_attribute("style") for place in places} == {"--w: 0.250;"}  # as light as in a drawing
        box, outer = places[6].rect, driver.find_element(By.CSS_SELECTOR, ".places").rect
        assert abs(box["x"] - (outer["x"] + outer["width"] / 2)) < 3  # row 2, column 3 of 4
        assert abs(box["y"] - (outer["y"] + outer["height"] / 4)) < 3
        assert not [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]


@needs_browser
@pytest.mark.parametrize("width", [1400, 500])
def test_a_place_shows_what_it_looks_at_on_a_second_picture(tmp_path: Path, width: int) -> None:
    shown, values = view(marks=1), np.zeros((2, 1, 17, 17))
    values[:, 0, 1 + 6, 1 + 9] = 1.0
    inside = Map("backbone.attention", "source", "source", values)
    path = bundle.write(tmp_path / "x.html", [Exhibit(shown.names, ["cat"], [inside], view=shown)])
    with browser(width=width) as driver:
        driver.get(path.as_uri())
        looking = driver.find_elements(By.CSS_SELECTOR, ".rows .place")
        looked_at = driver.find_elements(By.CSS_SELECTOR, ".columns .place")
        assert len(looking) == len(looked_at) == 16
        assert min(place.rect["width"] for place in (*looking, *looked_at)) > 40
        page = driver.find_element(By.TAG_NAME, "html").rect["width"]
        assert max(place.rect["x"] + place.rect["width"] for place in (*looking, *looked_at)) <= page
        ActionChains(driver).move_to_element(looking[6]).perform()
        lit = [place.get_attribute("style") for place in looked_at]
        assert [i for i, style in enumerate(lit) if "--w: 1" in style] == [9]
