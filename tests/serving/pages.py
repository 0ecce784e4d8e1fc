"""Steps on the page of a server."""

import json
from typing import Any, NamedTuple

from selenium.webdriver import ActionChains, Chrome, Keys
from selenium.webdriver.support.ui import WebDriverWait

from tests.serving.server import Server

# What a mouse can do something with; what plays a sound has controls of the browser's own.
CONTROLS = """const all = [...document.querySelectorAll("a, button, select, textarea, input, summary, canvas[tabindex], [role=button]")]
.filter((each) => each.checkVisibility() && !each.disabled);
all.forEach((each, number) => { each.dataset.number = number; });
globalThis.reached = new Set();
document.addEventListener("focusin", (event) => globalThis.reached.add(Number(event.target.dataset.number)));
document.activeElement.blur();
return all.map((each) => each.outerHTML.slice(0, 100))"""
# How many more things of a group the arrow keys lead to.
GROUP = """const here = document.activeElement;
return here.matches("[data-index], .thumb") ? here.closest("[role=group]").querySelectorAll("button, [role=button]").length : 0"""
REACHED = "return [...globalThis.reached]"


def until(driver: Chrome, script: str, *arguments: Any) -> Any:
    return WebDriverWait(driver, 60, 0.05).until(lambda d: d.execute_script(script, *arguments))


def opened(driver: Chrome, server: Server, model: str, text: str = "", more: str = "") -> None:
    driver.get("about:blank")
    driver.get(f"{server.url}/#model={model}&text={text}{more}")
    until(driver, "return globalThis.live?.restoring === false")
    until(driver, "return !document.querySelector('.go').disabled")


class Load(NamedTuple):
    """The first load of a page: bytes over the wire, addresses, and seconds until it is loaded and can be used."""

    bytes: int
    urls: list[str]
    loaded: float
    usable: float


USABLE = """const look = () => { if (document.querySelector(".go")?.checkVisibility()) globalThis.usable = performance.now();
else requestAnimationFrame(look); };
look()"""


def first_load(driver: Chrome, url: str) -> Load:
    """Open a page with nothing in the cache, up to the moment when something can be asked."""
    driver.execute_cdp_cmd("Network.clearBrowserCache", {})
    added = driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": USABLE})
    driver.get_log("performance")
    driver.get(url)
    until(driver, "return globalThis.usable && live.restoring === false")
    driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)
    timing = driver.execute_script(
        "return [performance.getEntriesByType('navigation')[0].loadEventEnd, globalThis.usable]"
    )
    events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    ended = [e["params"]["encodedDataLength"] for e in events if e["method"] == "Network.loadingFinished"]
    asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    urls = [each for each in asked if not each.endswith("/favicon.ico")]  # the browser's own wish
    return Load(int(sum(ended)), urls, timing[0] / 1000, timing[1] / 1000)


def answered(driver: Chrome) -> None:
    until(driver, "return document.querySelector('.answer').childElementCount > 1 && !live.desks[0].go.disabled")
    assert driver.execute_script("return [...document.querySelectorAll('.fault')].map((p) => p.textContent)") == []


def unreached(driver: Chrome) -> list[str]:
    """Go through the page by Tab, and in groups by the arrow keys; return the controls that were not reached."""
    wanted = driver.execute_script(CONTROLS)
    for _ in range(2 * len(wanted) + 20):  # from where it is to the end, and from the beginning
        ActionChains(driver, duration=0).send_keys(Keys.TAB).perform()
        others = driver.execute_script(GROUP)
        if others:
            back = [] if others > 40 else [Keys.ARROW_LEFT] * others  # a picture has Home
            keys = [*back, Keys.HOME, *[Keys.ARROW_RIGHT] * others]
            ActionChains(driver, duration=0).send_keys(*keys).perform()
        reached = {*driver.execute_script(REACHED)}
        if len(reached - {None}) == len(wanted):
            break
    return [html for number, html in enumerate(wanted) if number not in reached]


def unnamed(driver: Chrome) -> list[str]:
    """The roles of focusable things that a screen reader has no name for."""
    nodes = driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    found = []
    for node in nodes:
        focusable = any(p["name"] == "focusable" and p["value"]["value"] for p in node.get("properties", ()))
        if focusable and not node.get("ignored") and not node.get("name", {}).get("value"):
            found.append(node["role"]["value"])
    return [role for role in found if role not in ("RootWebArea", "generic")]
