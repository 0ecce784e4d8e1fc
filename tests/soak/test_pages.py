"""The page of every input and output, in three widths and both schemes: nothing is cut off, and nothing is complained about.
Screenshots are kept in PAGES, where it is set, to be looked at."""

import os
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from tests.browser import browser, needs_browser
from tests.serving.pages import answered, first_load, opened, until
from tests.serving.server import Server
from tests.test_matrix import FITTING, train

pytestmark = [pytest.mark.soak, needs_browser]
WIDTHS, SCHEMES = (390, 820, 1400), ("light", "dark")
PAIRS = [(i, o) for i, o in FITTING if i != "series"]


@pytest.fixture(scope="module")
def chrome() -> Iterator[Chrome]:
    with browser() as running:
        yield running


def each_size(driver: Chrome, name: str) -> None:
    for scheme in SCHEMES:
        feature = {"name": "prefers-color-scheme", "value": scheme}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        for width in WIDTHS:
            size = {"width": width, "height": 1300, "deviceScaleFactor": 1, "mobile": width < 500}
            driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            driver.execute_script("sights.forEach((sight) => sight.draw())")
            assert driver.execute_script("return document.documentElement.scrollWidth") <= width
            if "PAGES" in os.environ:
                driver.save_screenshot(str(Path(os.environ["PAGES"]) / f"{name}-{width}-{scheme}.png"))
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize(("source", "task"), PAIRS)
def test_an_example_of_the_run_is_answered_looked_into_and_covered(
    chrome: Chrome, tmp_path: Path, source: str, task: str
) -> None:
    train(tmp_path, "run", source, task)
    with Server(tmp_path / "run", tmp_path, runs=[]) as server:
        chrome.get_log("browser")
        opened(chrome, server, "run")
        examples = chrome.find_elements(By.CSS_SELECTOR, ".examples button")
        assert 0 < len(examples) <= 6
        for each in examples:  # a graph may have no edge that could be covered
            each.click()
            answered(chrome)
            if chrome.execute_script("return sights[0].parts.length"):
                break
        assert chrome.execute_script("return !live.desks[0].sight.root.hidden && sights[0].parts.length > 0")
        chrome.execute_script("sights[0].pick({ side: 'rows', index: 0 })")
        chrome.find_element(By.CLASS_NAME, "cover-one").click()
        until(chrome, "return document.querySelectorAll('.covered tbody tr').length > 0")
        each_size(chrome, f"{source}-{task}")
        chrome.find_element(By.CSS_SELECTOR, ".switch .runs").click()
        until(chrome, "return document.querySelectorAll('table.runs tbody tr').length > 0")
        chrome.find_element(By.CSS_SELECTOR, "table.runs .plain").click()
        until(chrome, "return document.querySelectorAll('.charts polyline').length > 0")
        each_size(chrome, f"{source}-{task}-runs")
        assert chrome.get_log("browser") == []
        chrome.get("about:blank")


def test_the_first_load_takes_at_most_a_second(chrome: Chrome) -> None:
    with Server(runs=["convert_transformer"]) as server:
        loads = [first_load(chrome, server.url) for _ in range(6)][
            1:
        ]  # the first one also starts the browser's own parts
    chrome.get("about:blank")
    loaded, usable = (median(getattr(load, name) for load in loads) for name in ("loaded", "usable"))
    print(f"{loads[0].bytes:,} bytes, loaded after {loaded:.3f} s, usable after {usable:.3f} s")
    assert usable <= 1
