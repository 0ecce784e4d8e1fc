"""A real browser for tests: Debian's chromium, headless, with an empty profile and no network of its own."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
)


def missing() -> str | None:
    """Why there can be no browser here, or None when there can."""
    absent = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    if not absent:
        return None
    return f"no {' and no '.join(absent)} on this machine: apt-get install chromium chromium-driver runs these tests"


needs_browser = pytest.mark.skipif(missing() is not None, reason=str(missing()))


@contextmanager
def browser(*more: str, width: int = 1100, height: int = 800) -> Iterator[webdriver.Chrome]:
    """A fresh browser with some more flags that keeps its console and its network events for the test to read."""
    with tempfile.TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True) as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = str(shutil.which("chromium"))
        for flag in (*FLAGS, *more, f"--user-data-dir={profile}", f"--window-size={width},{height}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        driver = webdriver.Chrome(options=options, service=Service(str(shutil.which("chromedriver"))))
        try:
            driver.get("about:blank")
            yield driver
        finally:
            driver.quit()
