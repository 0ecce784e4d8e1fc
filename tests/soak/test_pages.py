"""The page of every input and output, in three widths and both schemes: nothing is cut off, and nothing is complained about.
Screenshots are kept in PAGES, where it is set, to be looked at."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.browser import browser, needs_browser
from tests.serving.server import Server
from tests.test_matrix import FITTING, train

pytestmark = [pytest.mark.soak, needs_browser]
WIDTHS, SCHEMES = (390, 820, 1400), ("light", "dark")
PAIRS = [(i, o) for i, o in FITTING if i != "series"]


@pytest.fixture(scope="module")
def chrome() -> Iterator[Chrome]:
    with browser() as running:
        yield running


def seen(driver: Chrome, script: str) -> Any:
    return WebDriverWait(driver, 60, 0.1).until(lambda d: d.execute_script(script))


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
        chrome.get("about:blank")
        chrome.get(server.url)
        seen(chrome, "return globalThis.live?.restoring === false")
        seen(chrome, "return document.querySelectorAll('.examples button').length > 0")
        assert len(chrome.find_elements(By.CSS_SELECTOR, ".examples button")) <= 6
        chrome.find_element(By.CSS_SELECTOR, ".examples button").click()
        seen(chrome, "return document.querySelector('.answer').childElementCount > 1 && !live.desks[0].go.disabled")
        assert chrome.find_elements(By.CLASS_NAME, "fault") == []
        if chrome.execute_script("return !live.desks[0].sight.root.hidden"):
            parts = chrome.execute_script("return sights[0].parts.length")
            assert parts > 0
            chrome.execute_script("sights[0].pick({ side: 'rows', index: 0 })")
            if chrome.find_element(By.CLASS_NAME, "cover-one").is_enabled():
                chrome.find_element(By.CLASS_NAME, "cover-one").click()
                seen(chrome, "return document.querySelectorAll('.covered tbody tr').length > 0")
        each_size(chrome, f"{source}-{task}")
        chrome.find_element(By.CSS_SELECTOR, ".switch .runs").click()
        seen(chrome, "return document.querySelectorAll('table.runs tbody tr').length > 0")
        chrome.find_element(By.CSS_SELECTOR, "table.runs .plain").click()
        seen(chrome, "return document.querySelectorAll('.charts polyline').length > 0")
        each_size(chrome, f"{source}-{task}-runs")
        assert chrome.get_log("browser") == []
        chrome.get("about:blank")
