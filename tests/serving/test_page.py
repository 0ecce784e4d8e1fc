"""The page of a server in a real browser: answers, where models looked, covering, permalinks, runs; and what it may do."""

import ast
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import numpy as np
import pytest
from PIL import Image
from selenium.webdriver import Chrome, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.support.select import Select

import regard
from regard.inspection import bundle
from regard.runs.examples_file import FILE
from regard.serving.browsing import Browser
from tests.browser import needs_browser
from tests.runs.test_old_runs import compare
from tests.serving.pages import first_load, opened, unnamed, unreached, until
from tests.serving.server import OLD, Server

RUNS = ["convert_transformer", "classify", "continue_gpt", "tag"]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server("--engine", "torch", runs=RUNS) as running:
        yield running


def test_the_page_is_small_and_asks_for_nothing_else(server: Server) -> None:
    answer = server.client.get("/")
    assert len(answer.content) < 300_000
    assert answer.elapsed.total_seconds() < 1
    policy = answer.headers["content-security-policy"]
    assert answer.headers.get_list("content-security-policy") == [policy]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"\b(src|href)\s*=|@import|url\((?!data:)", answer.text)
    assert set(re.findall(r"https?://[^\"'\s]+", answer.text)) == {
        "http://www.w3.org/2000/svg"
    }  # a name, never fetched
    assert not re.search(r"(fetch|ask)\(\s*[`\"']/", answer.text)  # relative addresses alone


@needs_browser
def test_the_first_load_is_small_and_asks_nobody_else(driver: Chrome, server: Server) -> None:
    found = first_load(driver, server.url)
    paths = [url.removeprefix(server.url) for url in found.urls]
    assert paths == ["/", "/page/about", "/page/examples?model=convert_transformer"]
    assert 10_000 < found.bytes <= 300_000
    assert 0 < found.loaded <= found.usable  # how long, on an idle machine, is measured by tests/soak/test_pages.py


@needs_browser
def test_weights_on_the_page_are_those_of_watch(driver: Chrome, server: Server) -> None:
    model = regard.load(OLD / "convert_transformer")
    (text, *_) = (OLD / "pairs.tsv").read_text("utf-8").split("\t")
    opened(driver, server, "convert_transformer", text)
    answers = model.answers([text])
    with regard.watch(model) as seen:
        model.task.passes.scores(model.task.output.known(model.task.passes, [text], answers))
    name = next(name for name in seen if name.endswith("cross"))
    shown = driver.execute_script(
        "const sight = sights[0], map = sight.shown.maps[0]; return [map.name, [...unpack(map)], map.layers, map.heads]"
    )
    layers = [seen[each].weights[0].numpy() for each in seen if each.endswith("cross")]
    found = np.array(shown[1]).reshape(shown[2], shown[3], *layers[0].shape[-2:])
    assert np.abs(found - np.stack(layers)).max() < 2e-5, name
    assert driver.find_element(By.CSS_SELECTOR, ".answer li").text.startswith(answers[0][0].text)


@needs_browser
def test_covering_shows_what_the_answer_becomes(driver: Chrome, server: Server) -> None:
    opened(driver, server, "classify", "bad film good")
    words = driver.find_elements(By.CSS_SELECTOR, ".columns .word")
    assert [word.text for word in words] == ["bad", "film", "good"]
    words[0].click()
    driver.find_element(By.CLASS_NAME, "cover-one").click()
    until(driver, "return document.querySelectorAll('.covered tbody tr').length === 1")
    row = driver.find_element(By.CSS_SELECTOR, ".covered tbody tr").text
    before, after = regard.load(OLD / "classify").answers(["bad film good", "film good"])
    assert f"{100 * before.probabilities[before.label]:.0f} % → {100 * after.probabilities[before.label]:.0f} %" in row
    assert row.split()[0] == "bad"
    assert after.label in row
    assert "struck" in words[0].get_attribute("class")
    driver.find_element(By.CLASS_NAME, "cover-each").click()
    until(driver, "return document.querySelectorAll('.covered tbody tr').length === 3")
    assert any(
        "effect of covering" in o.text for o in Select(driver.find_element(By.CSS_SELECTOR, "select.map")).options
    )


@needs_browser
def test_another_answer_may_be_looked_at_and_the_link_keeps_it(driver: Chrome, server: Server) -> None:
    opened(driver, server, "convert_transformer", "dea")
    field = driver.find_element(By.CLASS_NAME, "edited")
    field.clear()
    field.send_keys("one two" + Keys.ENTER)
    until(
        driver,
        "return sights[0].shown.words.target?.names.includes('one') || sights[0].shown.target.join('').includes('one')",
    )
    rows = [word.text for word in driver.find_elements(By.CSS_SELECTOR, ".rows .word")]
    assert "".join(rows).startswith("one")
    until(driver, "return location.hash.includes('answer=one')")
    link = driver.current_url
    driver.get("about:blank")
    driver.get(link)
    until(driver, "return globalThis.live?.restoring === false")
    assert [word.text for word in driver.find_elements(By.CSS_SELECTOR, ".rows .word")] == rows


@needs_browser
def test_what_is_copied_does_the_same(
    driver: Chrome, server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = 'it\'s \\ "dea" $HOME `x`'
    opened(driver, server, "classify", quote(text))
    shown = driver.execute_script("return live.desks[0].answer.querySelector('li bdi').textContent")
    rights = {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"], "origin": server.url}
    driver.execute_cdp_cmd("Browser.grantPermissions", rights)
    driver.find_element(By.CSS_SELECTOR, ".code summary").click()
    copied = []
    for button in driver.find_elements(By.CSS_SELECTOR, ".code button"):
        button.click()
        until(driver, "return arguments[0].textContent === 'copied'", button)
        copied.append(driver.execute_async_script("navigator.clipboard.readText().then(arguments[0])"))
    curl, python = copied
    done = subprocess.run(["bash", "-c", curl], capture_output=True, text=True, check=True)
    (by_curl,) = json.loads(done.stdout)["answers"]
    assert by_curl.pop("source") == text
    monkeypatch.chdir(OLD)
    exec(python, {})
    (by_python,) = ast.literal_eval(capsys.readouterr().out)
    compare(by_curl, by_python)
    assert by_curl["label"] == shown


@needs_browser
def test_two_models_side_by_side_by_keyboard_alone(driver: Chrome, server: Server) -> None:
    opened(driver, server, "tag", "the cat sees")
    driver.find_element(By.CLASS_NAME, "beside").send_keys(Keys.ENTER)
    until(driver, "return live.desks.length === 2 && live.desks[1].text.value === 'the cat sees'")
    Select(driver.find_elements(By.CSS_SELECTOR, "select.model")[1]).select_by_visible_text("classify")
    until(driver, "return live.desks[1].name === 'classify'")
    driver.find_elements(By.CSS_SELECTOR, "textarea")[1].send_keys("good film" + Keys.ENTER)
    until(driver, "return !live.desks[1].sight.root.hidden")
    assert unreached(driver) == []
    assert unnamed(driver) == []


@needs_browser
def test_an_answer_is_streamed(driver: Chrome, server: Server) -> None:
    opened(driver, server, "continue_gpt")
    driver.find_element(By.TAG_NAME, "textarea").send_keys("the cat" + Keys.ENTER)
    until(driver, "return !live.desks[0].sight.root.hidden")
    names = driver.execute_script("return sights[0].shown.source")
    assert "".join(names[1:8]).replace("␣", " ") == "the cat"
    assert len(names) > 10
    assert driver.execute_script("return sights[0].shown.parts.length") == 7


SCRIPTS = [
    "<script>window.hacked=1</script>", "</script><script>window.hacked=1</script>", "<img src=x onerror=window.hacked=1>",
    "<svg onload=window.hacked=1>", "javascript:window.hacked=1", "\"><script>window.hacked=1</script>",
    "'-window.hacked=1-'", "${window.hacked=1}", "{{constructor.constructor('window.hacked=1')()}}", "<!--<script>window.hacked=1",
]  # fmt: skip


def hostile_examples() -> list[dict[str, Any]]:
    return [{"text": each, "name": each, "expected": each, "right": False} for each in SCRIPTS[:6]]


@needs_browser
def test_fifty_injections_do_nothing(chrome: Chrome, tmp_path: Path) -> None:
    """As text, answer, token, name of an example, of a model and its card, of a file, of a picture, and of settings."""
    run = tmp_path / "<img src=x onerror=window.hacked=1>"
    run.mkdir()
    for path in (OLD / "classify").iterdir():
        (run / path.name).write_bytes(path.read_bytes())
    (run / FILE).write_text(json.dumps(hostile_examples()), encoding="utf-8")
    (run / "README.md").write_text("\n".join(SCRIPTS), encoding="utf-8")
    (run / "metrics.jsonl").write_text(
        json.dumps({"step": 1, SCRIPTS[0]: 1.0, SCRIPTS[2]: 2.0}) + "\n", encoding="utf-8"
    )
    (run / "<svg onload=window.hacked=1>.png").write_bytes(b"x")
    with Server(run, tmp_path, runs=[]) as server:
        chrome.get(server.url)
        until(chrome, "return globalThis.live?.restoring === false")
        assert len(chrome.find_elements(By.CSS_SELECTOR, ".examples button")) == 6
        tried = 0
        for text in SCRIPTS:
            for act in (
                "live.desks[0].text.value = arguments[0]; return live.desks[0].run().then(() => true)",
                "return live.desks[0].look(arguments[0]).then(() => true)",
                "live.desks[0].taken(new Uint8Array([1]), 'image/png', arguments[0]); live.desks[0].bytes = null; return true",
                "live.desks[0].answer.replaceChildren(...answered({ label: arguments[0], probabilities: { [arguments[0]]: 1 } }))",
                "live.desks[0].answer.replaceChildren(...answered({ words: [arguments[0]], tags: [arguments[0]] }))",
            ):
                chrome.execute_script(act, text)
                tried += 1
        chrome.find_element(By.CSS_SELECTOR, ".switch .runs").click()
        until(chrome, "return document.querySelectorAll('table.runs tbody tr').length > 0")
        chrome.find_element(By.CSS_SELECTOR, "table.runs .plain").click()
        until(chrome, "return document.querySelectorAll('.charts figure').length > 0")
        assert tried == 50
        assert chrome.execute_script("return [window.hacked, document.scripts.length]") == [None, 2]
        assert chrome.execute_script("return document.querySelectorAll('[onerror], [onload], [src=x]').length") == 0
        chrome.get("about:blank")
        said = [entry["message"] for entry in chrome.get_log("browser")]  # the picture that is none is complained about
        assert [message for message in said if "Content Security Policy" in message] == []


def fake_run(run: Path, loss: float) -> None:
    run.joinpath("pictures").mkdir(parents=True)
    run.joinpath("config.yaml").write_text(f"task: convert\nmodel:\n  kind: recurrent\n  width: {int(loss)}\n")
    lines = [
        json.dumps({"step": s, "minutes": s / 10, "loss": loss / s, "items": 9, "exact_match": s}) for s in (1, 2, 3)
    ]
    run.joinpath("metrics.jsonl").write_text("\n".join(lines) + '\n{"step": 4, "lo')
    run.joinpath("README.md").write_text(f"# A card of {run.name}\n")
    score = {
        "name": "exact_match",
        "value": 30 * loss,
        "low": 1.0,
        "high": 99.0,
        "unit": "%",
        "signature": "a signature",
    }
    run.joinpath("results.json").write_text(json.dumps({"test": [score]}))
    Image.new("RGB", (30, 20)).save(run / "pictures" / "heads.png")


TRAIN = """
import sys, time
from pathlib import Path
from tests import test_matrix as matrix
folder = Path(sys.argv[1])
def at(trainer):
    while trainer.at.step >= 11 and not (folder / "go").exists():
        time.sleep(0.05)
matrix.train(folder, "live", "tokens", "classify", at)
"""


@needs_browser
def test_runs_are_listed_side_by_side_and_curves_grow_while_one_is_trained(driver: Chrome, tmp_path: Path) -> None:
    training = subprocess.Popen([sys.executable, "-c", TRAIN, str(tmp_path)], cwd=Path(__file__).parents[2])
    for name, loss in (("one", 2.0), ("two", 1.0)):
        fake_run(tmp_path / "deep" / name, loss)
    (tmp_path / "comparison.json").write_text("{}")
    (tmp_path / "README.md").write_text("# x\n\n| model | score |\n|---|---|\n| lstm | 3 |\n")
    with Server(tmp_path, runs=[]) as server:
        driver.get(server.url)
        until(driver, "return document.querySelectorAll('table.runs tbody tr').length === 3")
        for box in range(2):
            driver.find_elements(By.CSS_SELECTOR, "table.runs input")[box].click()
            until(driver, "return document.querySelectorAll('.charts polyline').length === arguments[0]", 2 * (box + 1))
        settings, scores = driver.find_elements(By.CSS_SELECTOR, ".detail .wide")
        assert [cell.text for cell in settings.find_elements(By.TAG_NAME, "td")] == ["2", "1"]
        assert "60.00 % (1.00 to 99.00)" in scores.text
        for summary in driver.find_elements(By.CSS_SELECTOR, ".detail summary"):
            if summary.text != "settings that differ":
                summary.click()
        until(driver, "return [...document.querySelectorAll('.detail img')].every((i) => i.naturalWidth === 30)")
        assert [card.text for card in driver.find_elements(By.CLASS_NAME, "card")] == [
            "# A card of one",
            "# A card of two",
        ]
        assert "lstm" in driver.find_element(By.CLASS_NAME, "compared").text
        assert (
            server.client.get("/page/picture", params={"run": "deep/one", "name": "../config.yaml"}).status_code == 404
        )
        assert server.client.get("/page/run", params={"name": "../../etc"}).status_code == 404
        for box in range(2):
            driver.find_elements(By.CSS_SELECTOR, "table.runs input")[box].click()
        until(driver, "return document.querySelectorAll('.live').length === 1")  # it is being trained
        driver.find_elements(By.CSS_SELECTOR, "table.runs input")[2].click()
        points = "return document.querySelector('.charts polyline')?.points.length ?? 0"
        before = until(driver, points)
        driver.find_elements(By.CSS_SELECTOR, "table.runs input")[2].send_keys("")  # the focus is there
        (tmp_path / "go").touch()
        until(driver, points.replace("return", "return arguments[0] < (") + ")", before)
        until(driver, "return document.querySelectorAll('.live').length === 0")
        assert driver.execute_script("return document.activeElement.ariaLabel") == "show live"
        assert training.wait(60) == 0
        driver.get("about:blank")


def test_runs_that_are_not_whole_are_listed(tmp_path: Path) -> None:
    fake_run(tmp_path / "deep" / "one", 2.0)
    (tmp_path / "deep" / "one" / "results.json").unlink()
    (found,) = Browser((tmp_path,), {}).listed()["runs"]
    assert found["name"] == "deep/one"
    assert found["score"] == {"name": "exact_match", "value": 3, "unit": ""}
    assert found["steps"] == 3


def test_runs_whose_files_are_spoilt_are_listed(tmp_path: Path) -> None:
    fake_run(tmp_path / "one", 2.0)
    (tmp_path / "one" / "results.json").write_text("[" * 100_000)
    for settings in ("task: 2024-13-01", "task: &a [b]\nmodel: *a", "[" * 10_000):
        (tmp_path / "one" / "config.yaml").write_text(settings)
        (found,) = Browser((tmp_path,), {}).listed()["runs"]
        assert (found["name"], found["task"], found["kind"]) == ("one", "", "")


class BelowPath(BaseHTTPRequestHandler):
    """A proxy that knows the server below /x/y/ alone."""

    url = ""

    def _pass(self) -> None:
        if not self.path.startswith("/x/y/"):
            self.send_error(404)
            return
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        kind = {"content-type": self.headers.get("content-type", "text/plain")}
        found = httpx.request(self.command, self.url + self.path[4:], content=body, headers=kind, timeout=60)
        self.send_response(found.status_code)
        for key in ("content-type", "content-security-policy"):
            self.send_header(key, found.headers.get(key, ""))
        self.end_headers()
        self.wfile.write(found.content)

    do_GET = do_POST = _pass

    def log_message(self, *_: object) -> None: ...


@needs_browser
def test_the_page_works_below_a_path(chrome: Chrome, server: Server) -> None:
    BelowPath.url = server.url
    with ThreadingHTTPServer(("127.0.0.1", 0), BelowPath) as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        chrome.get(f"http://127.0.0.1:{proxy.server_port}/x/y/#model=classify&text=good+film")
        until(chrome, "return globalThis.live?.restoring === false")
        assert chrome.find_element(By.CSS_SELECTOR, ".answer li").text
        assert len(chrome.find_elements(By.CSS_SELECTOR, ".columns .word")) == 2
        chrome.get("about:blank")
        chrome.get_log("browser")  # an icon is asked for above the path
        proxy.shutdown()


def test_a_server_with_tokens_shows_the_page_and_nothing_else(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("a-long-token\n")
    with Server("--token-file", tokens, runs=["classify"]) as server:
        assert server.client.get("/").status_code == 200
        for path in ("/page/about", "/page/runs", "/page/examples?model=classify"):
            assert server.client.get(path).status_code == 401
        assert server.client.post("/", json={"inputs": "x"}).status_code == 401
        headers = {"Authorization": "Bearer a-long-token"}
        assert server.client.get("/page/about", headers=headers).status_code == 200


def test_the_bundle_is_the_same_offline_and_served(server: Server) -> None:
    assert bundle.script() in server.client.get("/").text
