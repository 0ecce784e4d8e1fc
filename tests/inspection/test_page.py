"""The interactive page: the data it carries, and what a reader sees in a real browser."""

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from selenium.webdriver import ActionChains, Chrome, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.select import Select

from regard.errors import UserError
from regard.inspection import bundle, page
from tests.browser import browser, needs_browser

ENGLISH = ["the", "boy", "reads", "a", "book", "."]
FRENCH = ["le", "garçon", "lit", "un", "livre", "."]
ARABIC = ["يقرأ", "الولد", "كتابا", "."]
HOSTILE = [
    "</script><script>window.hacked=1</script>",
    "<img/src=x/onerror=window.hacked=1>",
    "<!--",
    "\"'`${window.hacked=1}",
    "\u2028",
    "{{data}}",
    "&lt;b&gt;",
    "\ud800",
]


def softmax(*shape: int, seed: int = 0) -> np.ndarray:
    scores = np.exp(2 * np.random.default_rng(seed).normal(size=shape))
    return scores / scores.sum(-1, keepdims=True)


def example(source: list[str], target: list[str], layers: int = 2, heads: int = 3) -> page.Exhibit:
    m, n = len(target), len(source)
    return page.Exhibit(
        source,
        target,
        [
            page.Map("decoder.cross", "target", "source", softmax(layers, heads, m, n, seed=1)),
            page.Map("encoder.self", "source", "source", softmax(layers, heads, n, n, seed=2)),
        ],
    )


def data_of(path: Path) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text("utf-8"), re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def unpacked(a_map: dict[str, Any], m: int, n: int) -> np.ndarray:
    steps = np.frombuffer(base64.b64decode(a_map["data"]), "<u2").reshape(a_map["layers"], a_map["heads"], m, n)
    return a_map["low"] + a_map["span"] * steps / 65535


# ---- the file


@pytest.mark.parametrize("spread", [1.0, 0.001, -3.0])
def test_weights_survive_packing_to_four_digits(tmp_path: Path, spread: float) -> None:
    weights = spread * softmax(2, 3, 4, 5)
    shown = page.Exhibit(list("abcde"), list("wxyz"), [page.Map("cross", "target", "source", weights)])
    packed = data_of(bundle.write(tmp_path / "a.html", [shown], "title"))["examples"][0]["maps"][0]
    assert np.abs(unpacked(packed, 4, 5) - weights).max() <= 1e-5 * abs(spread) * 2


def test_a_large_map_stays_below_a_megabyte(tmp_path: Path) -> None:
    tokens = [f"token{i}" for i in range(60)]
    shown = page.Exhibit(tokens, tokens, [page.Map("cross", "target", "source", softmax(6, 8, 60, 60))])
    assert bundle.write(tmp_path / "a.html", [shown], "title").stat().st_size < 600_000


def test_tokens_cannot_leave_their_data_block(tmp_path: Path) -> None:
    plain = bundle.write(tmp_path / "plain.html", [example(ENGLISH, FRENCH)], "title").read_text("utf-8")
    path = bundle.write(tmp_path / "a.html", [example(HOSTILE, HOSTILE)], "</title><script>window.hacked=1</script>")
    text = path.read_text("utf-8")
    for mark in ("<script", "</script", "<!--", "<img", "</title"):
        assert text.count(mark) == plain.count(mark)
    assert data_of(path)["examples"][0]["source"][:4] == HOSTILE[:4]
    assert "{{" not in re.sub(r'id="data">.*?</script>', "", text, flags=re.DOTALL)


def test_the_file_asks_for_nothing(tmp_path: Path) -> None:
    text = bundle.write(tmp_path / "a.html", [example(ENGLISH, FRENCH)], "title").read_text("utf-8")
    assert "default-src 'none'" in text
    assert "unsafe" not in text
    assert not re.search(r"\b(src|href)\s*=|@import|url\((?!data:)", text)
    assert set(re.findall(r"https?://[^\"'\s]+", text)) == {"http://www.w3.org/2000/svg"}  # a name, never fetched


@pytest.mark.parametrize(
    ("a_map", "message"),
    [
        (page.Map("x", "target", "source", np.ones((1, 1, 6, 5))), r"Example 1, map 'x': expected weights .*6, 6"),
        (page.Map("x", "target", "source", np.ones((6, 6))), r"found shape \(6, 6\)"),
        (page.Map("x", "target", "source", np.full((1, 1, 6, 6), np.nan)), "36 NaN or infinite"),
        (page.Map("x", "target", "middle", np.ones((1, 1, 6, 6))), "'target' or 'prefix', found 'middle'"),  # type: ignore[arg-type]
        (page.Map("x", "target", "source", np.ones((0, 1, 6, 6))), "at least one of each"),
    ],
)
def test_maps_that_do_not_fit_are_refused(tmp_path: Path, a_map: page.Map, message: str) -> None:
    with pytest.raises(UserError, match=message):
        bundle.write(tmp_path / "a.html", [page.Exhibit(ENGLISH, FRENCH, [a_map])], "title")
    assert not list(tmp_path.iterdir())


def test_pages_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    shown = [example(ENGLISH, FRENCH)]
    with pytest.raises(UserError, match=r"written as \.html"):
        bundle.write(tmp_path / "a.png", shown, "title")
    with pytest.raises(UserError, match="cannot be written"):
        bundle.write(tmp_path / "absent" / "a.html", shown, "title")
    with pytest.raises(UserError, match="no example"):
        bundle.write(tmp_path / "a.html", [], "title")
    with pytest.raises(UserError, match="Example 1 has no attention map"):
        bundle.write(tmp_path / "a.html", [page.Exhibit(ENGLISH, FRENCH, [])], "title")


# ---- in the browser


@pytest.fixture(scope="module")
def driver() -> Iterator[Chrome]:
    with browser() as running:
        yield running


@pytest.fixture
def opened(driver: Chrome, tmp_path: Path) -> Iterator[Chrome]:
    """The page with a French, an Arabic, a hostile and a long example; it must end without a word on the console."""
    long = [f"token{i}" for i in range(120)]
    shown = [example(ENGLISH, FRENCH), example(ARABIC, ENGLISH), example(HOSTILE, HOSTILE), example(long, long, 1, 1)]
    path = bundle.write(tmp_path / "page.html", shown, "Where it looked")
    driver.get_log("browser")
    driver.get_log("performance")
    driver.get(path.as_uri())
    yield driver
    assert driver.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    urls = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    # chrome:// is the browser's own empty tab, still loading its parts when the page is opened
    assert [url for url in urls if not url.startswith("chrome://")] == [path.as_uri()]


def words(driver: Chrome, side: str) -> list[WebElement]:
    return driver.find_elements(By.CSS_SELECTOR, f".{side} .word")


def hover(driver: Chrome, side: str, index: int) -> None:
    ActionChains(driver).move_to_element(words(driver, side)[index]).perform()


def choose(driver: Chrome, control: str, text: str) -> None:
    Select(driver.find_element(By.CSS_SELECTOR, f"select.{control}")).select_by_visible_text(text)


def choose_example(driver: Chrome, index: int) -> None:
    Select(driver.find_element(By.CSS_SELECTOR, "select.example")).select_by_index(index)


def lit(driver: Chrome, side: str) -> list[float]:
    """Return how strongly each word of a line is lit, as the browser shows it."""
    script = (
        "return [...arguments[0].querySelectorAll('.word')].map(w => Number(getComputedStyle(w, '::before').opacity))"
    )
    return list(driver.execute_script(script, driver.find_element(By.CLASS_NAME, side)))


def tab_to_words(driver: Chrome) -> None:
    """Go from the last of the controls to what follows."""
    buttons = driver.find_elements(By.CSS_SELECTOR, ".controls button")
    [button for button in buttons if button.is_displayed()][-1].send_keys(Keys.TAB)


CROSS = softmax(2, 3, 6, 6, seed=1)


def expected(weights: np.ndarray) -> np.ndarray:
    share = weights / weights.max()
    return np.where(share < 0.02, 0.0, share)


@needs_browser
def test_pointing_at_a_word_lights_its_partners_in_proportion(opened: Chrome) -> None:
    assert [word.text for word in words(opened, "columns")] == ENGLISH
    assert [word.text for word in words(opened, "rows")] == FRENCH
    mean = CROSS[1].mean(axis=0)  # the page opens at the last layer, with the mean of heads
    for row in (0, 2, 5):
        hover(opened, "rows", row)
        assert np.allclose(lit(opened, "columns"), expected(mean[row]), atol=2e-3)
        assert not any(lit(opened, "rows"))
        strongest = ENGLISH[int(mean[row].argmax())]
        assert opened.find_element(By.CLASS_NAME, "status").text.startswith(f"{FRENCH[row]} looks at {strongest} ")
    hover(opened, "columns", 2)
    assert np.allclose(lit(opened, "rows"), expected(mean[:, 2]), atol=2e-3)
    paths = opened.find_elements(By.CSS_SELECTOR, ".ribbons path")
    assert len(paths) == np.count_nonzero(expected(mean[:, 2]))


@needs_browser
def test_layer_head_and_kind_can_be_chosen(opened: Chrome) -> None:
    for layer, head in [(1, 0), (1, 1), (0, 2)]:
        choose(opened, "layer", f"layer {layer + 1}")
        choose(opened, "head", f"head {head + 1}")
        hover(opened, "rows", 1)
        assert np.allclose(lit(opened, "columns"), expected(CROSS[layer, head, 1]), atol=2e-3)
    assert len({int(CROSS[layer, head, 1].argmax()) for layer, head in [(1, 0), (1, 1), (0, 2)]}) > 1
    choose(opened, "map", "encoder.self")
    assert [word.text for word in words(opened, "rows")] == ENGLISH
    hover(opened, "rows", 3)
    inner = softmax(2, 3, 6, 6, seed=2)[0, 2, 3]
    assert np.allclose(lit(opened, "columns"), expected(inner), atol=2e-3)


def percent(share: float) -> str:
    return f"{100 * share:.{0 if share > 0.0995 else 1 if share > 0.00995 else 2}f} %"


@needs_browser
def test_heads_are_previewed_and_kept_layers_rolled_out_and_sinks_hidden(driver: Chrome, tmp_path: Path) -> None:
    weights = softmax(2, 3, 6, 6)
    weights[..., 3] += 1.0  # everybody looks there
    weights /= weights.sum(-1, keepdims=True)
    names = [page.BEGINNING, *ENGLISH[1:]]
    shown = page.Exhibit(names, FRENCH, [page.Map("encoder.self", "source", "source", weights)])
    driver.get(bundle.write(tmp_path / "a.html", [shown], "title").as_uri())
    thumb, aside = (
        driver.find_element(By.CSS_SELECTOR, ".thumb[data-head='0,1']"),
        driver.find_element(By.TAG_NAME, "h1"),
    )

    def now() -> np.ndarray:
        return np.array(driver.execute_script("return [...sights[0].weights.values]")).reshape(6, 6)

    mean = weights[-1].mean(0)  # what is shown at first
    assert np.allclose(now(), mean, atol=1e-4)
    ActionChains(driver).move_to_element(thumb).perform()
    assert np.allclose(now(), weights[0, 1], atol=1e-4)
    ActionChains(driver).move_to_element(aside).perform()
    assert np.allclose(now(), mean, atol=1e-4)
    ActionChains(driver).move_to_element(thumb).click().move_to_element(aside).perform()
    assert np.allclose(now(), weights[0, 1], atol=1e-4)
    assert thumb.get_attribute("aria-pressed") == "true"
    rolled = np.eye(6)
    for layer in weights.mean(1):
        rolled = (layer + np.eye(6)) / 2 @ rolled
    choose(driver, "layer", "rollout of all layers")
    assert np.allclose(now(), rolled, atol=1e-4)
    choose(driver, "layer", "layer 2")
    choose(driver, "head", "mean of heads")
    button, sinks = driver.find_element(By.CLASS_NAME, "sinks"), [0, 3]  # the mark, and the column of everybody
    assert button.text == f"hide sinks ({percent(mean[:, sinks].sum() / 6)})"
    button.click()
    mean[:, sinks] = 0
    assert np.allclose(now(), mean, atol=1e-4)


@needs_browser
def test_what_a_decoder_looks_at_begins_with_the_start(driver: Chrome, tmp_path: Path) -> None:
    weights = np.tri(6) / np.arange(1, 7)[:, None]
    own = page.Map("decoder.own", "target", "prefix", weights[None, None])
    driver.get(bundle.write(tmp_path / "a.html", [page.Exhibit(ENGLISH, FRENCH, [own])], "title").as_uri())
    assert [word.text for word in words(driver, "columns")] == [page.BEGINNING, *FRENCH[:-1]]
    assert driver.find_element(By.CLASS_NAME, "heading").text == "output so far (looked at)"
    hover(driver, "rows", 0)
    assert driver.find_element(By.CLASS_NAME, "status").text.startswith(f"{FRENCH[0]} looks at {page.BEGINNING} 1.000")
    assert lit(driver, "columns") == [1, 0, 0, 0, 0, 0]
    hover(driver, "columns", 4)
    assert [value > 0 for value in lit(driver, "rows")] == [False] * 4 + [True] * 2


PIECES = ["▁K", "at", "ze", "▁", "s", "ieht", "."]
SOURCE_WORDS = page.WordGroups(["Katze", "sieht."], [0, 0, 0, 1, 1, 1, 1])
TARGET_WORDS = page.WordGroups(["बिल्ली", "देखती"], [0, 0, 0, 1, 1]).then("∎")


def in_sub_words() -> page.Exhibit:
    target = ["▁ब", "िल्", "ली", "▁देख", "ती", "∎"]
    maps = [
        page.Map("cross", "target", "source", softmax(1, 2, 6, 7, seed=3)),
        page.Map("own", "target", "prefix", softmax(1, 2, 6, 6, seed=4)),
    ]
    return page.Exhibit(PIECES, target, maps, "Katze sieht.", {"source": SOURCE_WORDS, "target": TARGET_WORDS})


def merged_by_loops(weights: np.ndarray, rows: list[int], columns: list[int]) -> np.ndarray:
    found = np.zeros((*weights.shape[:2], max(rows) + 1, max(columns) + 1))
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            found[:, :, row, column] += weights[:, :, i, j] / rows.count(row)
    return found


def test_sub_words_are_merged_into_words() -> None:
    shown = in_sub_words()
    of = {"source": [0, 0, 0, 1, 1, 1, 1], "target": [0, 0, 0, 1, 1, 2], "prefix": [0, 1, 1, 1, 2, 2]}
    names = {
        "source": ["Katze", "sieht."],
        "target": ["बिल्ली", "देखती", "∎"],
        "prefix": [page.BEGINNING, "बिल्ली", "देखती"],
    }
    for a_map in shown.maps:
        weights, rows, columns = shown.in_words(a_map)
        assert (rows, columns) == (names[a_map.rows], names[a_map.columns])
        expected = merged_by_loops(np.asarray(a_map.weights), of[a_map.rows], of[a_map.columns])
        assert np.allclose(weights, expected)
        assert np.allclose(weights.sum(-1), 1)


@needs_browser
def test_sub_words_are_shown_as_words_until_they_are_asked_for(driver: Chrome, tmp_path: Path) -> None:
    shown = in_sub_words()
    path = bundle.write(tmp_path / "a.html", [shown, example(ENGLISH, FRENCH, 1, 2)], "title")
    driver.get(path.as_uri())
    assert Select(driver.find_element(By.CSS_SELECTOR, "select.example")).options[0].text == "1: Katze sieht."
    for a_map in shown.maps:
        choose(driver, "map", a_map.name)
        weights, rows, columns = shown.in_words(a_map)
        assert [word.text for word in words(driver, "columns")] == columns
        assert [word.text for word in words(driver, "rows")] == rows
        hover(driver, "rows", 1)
        assert np.allclose(lit(driver, "columns"), expected(weights[0].mean(0)[1]), atol=2e-3)
    choose(driver, "map", "cross")
    driver.find_element(By.CLASS_NAME, "pieces").click()
    assert [word.text for word in words(driver, "columns")] == PIECES
    hover(driver, "rows", 3)
    tokens = softmax(1, 2, 6, 7, seed=3)[0].mean(0)[3]
    assert np.allclose(lit(driver, "columns"), expected(tokens), atol=2e-3)
    assert driver.find_element(By.CLASS_NAME, "status").text.startswith("देख looks at ")
    assert "▁K" not in driver.find_element(By.CLASS_NAME, "status").text
    choose_example(driver, 1)
    assert not driver.find_element(By.CSS_SELECTOR, "[aria-label=units]").is_displayed()
    choose_example(driver, 0)
    assert driver.find_element(By.CSS_SELECTOR, "[aria-label=units]").is_displayed()


@needs_browser
def test_a_click_keeps_the_word_until_escape(opened: Chrome) -> None:
    words(opened, "rows")[2].click()
    hover(opened, "rows", 2)
    ActionChains(opened).move_to_element(opened.find_element(By.TAG_NAME, "h1")).perform()
    assert max(lit(opened, "columns")) == 1
    ActionChains(opened).send_keys(Keys.ESCAPE).perform()
    assert max(lit(opened, "columns")) == 0


@needs_browser
def test_the_keyboard_reaches_every_word(opened: Chrome) -> None:
    ActionChains(opened).move_to_element(opened.find_element(By.TAG_NAME, "h1")).perform()
    mean = CROSS[1].mean(axis=0)
    tab_to_words(opened)
    assert opened.switch_to.active_element.text == ENGLISH[0]
    ActionChains(opened).send_keys(Keys.ARROW_RIGHT).perform()
    assert np.allclose(lit(opened, "rows"), expected(mean[:, 1]), atol=2e-3)
    ActionChains(opened).send_keys(Keys.ARROW_DOWN).perform()
    row = int(mean[:, 1].argmax())
    assert opened.switch_to.active_element == words(opened, "rows")[row]
    assert np.allclose(lit(opened, "columns"), expected(mean[row]), atol=2e-3)
    ActionChains(opened).send_keys(Keys.END).perform()
    assert opened.switch_to.active_element == words(opened, "rows")[5]


@needs_browser
def test_hostile_tokens_are_text_and_do_nothing(opened: Chrome) -> None:
    choose_example(opened, 2)
    shown = [word.text for word in words(opened, "columns")]
    assert shown == [*HOSTILE[:4], "↵", *HOSTILE[5:7], "\ufffd"]
    for index in range(len(shown)):
        hover(opened, "columns", index)
    opened.find_element(By.CLASS_NAME, "matrix").click()
    ActionChains(opened).move_to_element(opened.find_element(By.CLASS_NAME, "cells")).perform()
    assert opened.execute_script("return window.hacked") is None
    assert opened.execute_script("return document.images.length + document.scripts.length") == 2


@needs_browser
def test_right_to_left_lines_start_at_the_right(opened: Chrome) -> None:
    choose_example(opened, 1)
    columns, rows = (opened.find_element(By.CSS_SELECTOR, f".{side} .line") for side in ("columns", "rows"))
    assert columns.value_of_css_property("direction") == "rtl"
    assert rows.value_of_css_property("direction") == "ltr"
    places = [word.location["x"] for word in words(opened, "columns")]
    assert places == sorted(places, reverse=True)
    ActionChains(opened).move_to_element(opened.find_element(By.TAG_NAME, "h1")).perform()
    tab_to_words(opened)
    ActionChains(opened).send_keys(Keys.ARROW_LEFT).perform()
    assert opened.switch_to.active_element.text == ARABIC[1]


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("عام ٢٠١٩ في", "يف ٢٠١٩ ماع"),
        ("في 12:30، 7/8 ثم", "مث 7/8 ،12:30 يف"),
        ("رقم ١، ٢", "٢ ،١ مقر"),
        ("شبكة 5G جديدة", "ةديدج 5G ةكبش"),
    ],
)
@needs_browser
def test_numbers_read_from_left_to_right_in_a_right_to_left_line(
    driver: Chrome, tmp_path: Path, text: str, seen: str
) -> None:
    driver.get(bundle.write(tmp_path / "a.html", [example(list(text), ["a"], 1, 1)], "title").as_uri())
    placed = sorted(words(driver, "columns"), key=lambda word: word.rect["x"])
    assert "".join(word.text for word in placed).replace("␣", " ") == seen
    tab_to_words(driver)
    walked = [driver.switch_to.active_element.text]
    for _ in text[1:]:
        ActionChains(driver).send_keys(Keys.ARROW_LEFT).perform()
        walked.append(driver.switch_to.active_element.text)
    assert "".join(reversed(walked)).replace("␣", " ") == seen


@needs_browser
def test_a_number_is_not_torn_apart_at_the_end_of_a_line(driver: Chrome, tmp_path: Path) -> None:
    shown = example(list("السبت، ١٧ أغسطس ٢٠١٩" * 3), ["a"], 1, 1)
    driver.get(bundle.write(tmp_path / "a.html", [shown], "title").as_uri())
    for width in range(400, 800, 40):
        driver.execute_script("document.querySelector('.columns').style.width = arguments[0] + 'px'", width)
        heights = [[word.rect["y"] for word in words(driver, "columns")[k : k + 4]] for k in (16, 36, 56)]
        assert all(len({*each}) == 1 for each in heights)
    hover(driver, "rows", 0)
    weights = np.asarray(shown.maps[0].weights)[0, 0, 0]
    assert np.allclose(lit(driver, "columns"), expected(weights), atol=2e-3)


@needs_browser
def test_numbers_that_are_words_of_their_own_keep_the_order_of_words(driver: Chrome, tmp_path: Path) -> None:
    shown = [*ARABIC, "2019", "17", "NATO", "G"]
    driver.get(bundle.write(tmp_path / "a.html", [example(shown, ["a"], 1, 1)], "title").as_uri())
    across = [word.rect["x"] for word in words(driver, "columns")]
    assert across == sorted(across, reverse=True)


@needs_browser
def test_numbers_in_sub_words_read_from_left_to_right_too(driver: Chrome, tmp_path: Path) -> None:
    pieces, names = ["▁عام", "▁20", "19", "▁1", "7", "▁في"], ["عام", "2019", "17", "في"]
    shown = page.Exhibit(
        pieces,
        ["a"],
        [page.Map("cross", "target", "source", softmax(1, 1, 1, 6))],
        words={"source": page.WordGroups(names, [0, 1, 1, 2, 2, 3])},
    )
    driver.get(bundle.write(tmp_path / "a.html", [shown], "title").as_uri())
    for button, expected in (("whole", names[::-1]), ("pieces", ["▁في", "▁1", "7", "▁20", "19", "▁عام"])):
        driver.find_element(By.CLASS_NAME, button).click()
        placed = sorted(words(driver, "columns"), key=lambda word: word.rect["x"])
        assert [word.text for word in placed] == expected


@needs_browser
def test_the_heat_map_tells_the_weight_under_the_pointer(opened: Chrome) -> None:
    choose(opened, "head", "head 2")
    opened.find_element(By.CLASS_NAME, "matrix").click()
    canvas = opened.find_element(By.CLASS_NAME, "cells")
    left, top, side = opened.execute_script(
        "const { left, top, side } = sights[0].matrix.geometry; return [left, top, side]"
    )
    row, column = 4, 1
    x = left + (column + 0.5) * side - canvas.size["width"] / 2
    y = top + (row + 0.5) * side - canvas.size["height"] / 2
    ActionChains(opened).move_to_element_with_offset(canvas, int(x), int(y)).perform()
    tip = opened.find_element(By.CLASS_NAME, "tip")
    assert tip.text == f"{FRENCH[row]} looks at {ENGLISH[column]} {CROSS[1, 1, row, column]:.3f}"
    canvas.send_keys(Keys.ARROW_UP)
    status = opened.find_element(By.CLASS_NAME, "status").text
    assert status == f"{FRENCH[row - 1]} looks at {ENGLISH[column]} {CROSS[1, 1, row - 1, column]:.3f}"
    peak = np.unravel_index(CROSS[1, 1].argmax(), (6, 6))
    script = """const [row, column] = arguments, { canvas, geometry: { left, top, side } } = sights[0].matrix, pen = canvas.getContext("2d");
    return [...pen.getImageData(left + (column + .5) * side, top + (row + .5) * side, 1, 1).data].slice(0, 3)"""
    found = opened.execute_script(script, int(peak[0]), int(peak[1]))
    scale = opened.execute_script("return [arguments[0], 1].map(colour)", round(float(CROSS[1, 1][peak]), 2))
    assert scale == [f"rgb({' '.join(map(str, found))})", "rgb(28 38 64)"]  # from 0 to 1, which is the darkest


@needs_browser
def test_what_rounds_to_zero_is_not_told(driver: Chrome, tmp_path: Path) -> None:
    small = page.Map("cross", "target", "source", [[[[0.9956, 0.0044, 0.0, 0.0, 0.0, 0.0], [0.0002] * 6]]])
    driver.get(bundle.write(tmp_path / "a.html", [page.Exhibit(ENGLISH, ["le", "un"], [small])], "title").as_uri())
    hover(driver, "rows", 0)
    assert [word.get_attribute("data-weight") for word in words(driver, "columns")] == ["1.00", *[None] * 5]
    assert driver.find_element(By.CLASS_NAME, "status").text == "le looks at the 0.996, boy 0.004"
    hover(driver, "rows", 1)
    assert not any(word.get_attribute("data-weight") for word in words(driver, "columns"))
    assert driver.find_element(By.CLASS_NAME, "status").text == "un looks at the 0.000"


INKED = """const [id, x, y, width, height] = arguments, pen = document.querySelector("." + id).getContext("2d");
const data = pen.getImageData(x, y, width, height).data;
return data.filter((value, i) => i % 4 === 3 && value > 0).length"""


@needs_browser
def test_flat_labels_of_columns_keep_clear_of_the_frame(driver: Chrome, tmp_path: Path) -> None:
    shown = example(list("gjpqy"), ["a", "b"], 1, 1)  # letters with descenders
    driver.get(bundle.write(tmp_path / "a.html", [shown], "title").as_uri())
    driver.find_element(By.CLASS_NAME, "matrix").click()
    left, top, side = driver.execute_script(
        "const { left, top, side } = sights[0].matrix.geometry; return [left, top, side]"
    )
    assert driver.execute_script(INKED, "cells", left, 0, 5 * side, top - 4) > 20
    assert driver.execute_script(INKED, "cells", left, top - 4, 5 * side, 2) == 0


SCROLLED = """const heat = document.querySelector(".heat"), names = document.querySelector(".names");
heat.scrollLeft = 400;
return [heat.scrollLeft, names.getBoundingClientRect().x]"""


@needs_browser
def test_names_of_rows_stay_when_the_heat_map_is_scrolled(opened: Chrome) -> None:
    size = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        choose_example(opened, 3)
        opened.find_element(By.CLASS_NAME, "matrix").click()
        before = opened.execute_script("return document.querySelector('.names').getBoundingClientRect().x")
        assert opened.execute_script(SCROLLED) == [400, before]
        width, height = (opened.find_element(By.CLASS_NAME, "names").size[side] for side in ("width", "height"))
        assert width < 200
        assert opened.execute_script(INKED, "names", 0, 0, width, height) > 1000
    finally:
        opened.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@needs_browser
@pytest.mark.parametrize("index", [0, 3])
def test_the_page_fits_a_telephone(opened: Chrome, index: int) -> None:
    size = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
    opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        choose_example(opened, index)
        for view in ("own", "matrix"):
            opened.find_element(By.CLASS_NAME, view).click()
            assert opened.execute_script("return document.documentElement.scrollWidth") <= 360
        opened.find_element(By.CLASS_NAME, "own").click()
        opened.execute_script("arguments[0].click()", words(opened, "rows")[2])  # as a tap does
        assert max(lit(opened, "columns")) == 1
        strongest = words(opened, "columns")[int(np.argmax(lit(opened, "columns")))]
        line = opened.find_element(By.CSS_SELECTOR, ".columns .line")
        assert line.rect["y"] - 1 <= strongest.rect["y"] <= line.rect["y"] + line.rect["height"]  # scrolled into sight
    finally:
        opened.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@needs_browser
def test_the_dark_scheme_is_dark(opened: Chrome) -> None:
    def background(scheme: str) -> str:
        feature = {"name": "prefers-color-scheme", "value": scheme}
        opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        return opened.find_element(By.TAG_NAME, "body").value_of_css_property("background-color")

    assert background("dark") == "rgba(18, 22, 29, 1)"
    assert background("light") == "rgba(255, 255, 255, 1)"
