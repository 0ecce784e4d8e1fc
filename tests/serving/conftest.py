"""A browser for the page of a server: it hears a tone where there is no microphone, and asks nobody else for anything."""

import json
from collections.abc import Iterator

import pytest
from selenium.webdriver import Chrome

from tests.browser import browser

FAKES = ("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")
OWN = ("http://127.0.0.1:", "chrome://", "data:", "blob:", "about:")


@pytest.fixture(scope="session")
def chrome() -> Iterator[Chrome]:
    with browser(*FAKES) as running:
        yield running


@pytest.fixture
def driver(chrome: Chrome) -> Iterator[Chrome]:
    """The browser on an empty page; a test must end without a word on the console."""
    chrome.get_log("browser")
    chrome.get_log("performance")
    chrome.get("about:blank")
    yield chrome
    assert chrome.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in chrome.get_log("performance")]
    urls = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert [url for url in urls if not url.startswith(OWN)] == []
