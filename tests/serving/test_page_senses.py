"""The page of models that read images, clips, recordings and graphs, in a real browser: files are dropped, sound is recorded,
a node is named; weights are those of a watch, effects those of a direct computation, and the keyboard reaches all."""

import base64
import io
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from selenium.webdriver import Chrome, Keys
from selenium.webdriver.common.by import By

import regard
from tests import test_matrix as matrix
from tests.browser import needs_browser
from tests.serving import hostile
from tests.serving.pages import answered, opened, unnamed, unreached, until
from tests.serving.server import Server

pytestmark = needs_browser
RUNS = [("patches", "convert"), ("clips", "classify"), ("frames", "convert"), ("nodes", "tag")]
PEOPLE = 12


def friends(folder: Path) -> Path:
    """One graph: two circles of people that know each other."""
    nodes = [
        {"id": f"p{i}", "colour": ("red", "blue")[i % 2], "label": ("chess", "opera")[i % 2], "split": split}
        for i, split in enumerate(["train"] * 6 + ["valid"] * 3 + ["test"] * 3)
    ]
    edges = [[f"p{i}", f"p{(i + 2) % PEOPLE}"] for i in range(PEOPLE)] + [["p0", "p1"]]
    path = folder / "friends.json"
    path.write_text(json.dumps({"nodes": nodes, "edges": edges}))
    return path


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("seen")
    for source, task in RUNS:
        path = friends(folder) if source == "nodes" else matrix.toy(folder, source, task)
        more = [*matrix.SET, *matrix.MORE.get((source, task), [])]
        regard.train(path, folder / source, task=task, steps=10, set=more, quiet=True)
    return folder


@pytest.fixture(scope="module")
def server(runs: Path) -> Iterator[Server]:
    with Server("--workers", "1", runs=[str(runs / source) for source, _ in RUNS]) as started:
        yield started


def dropped(driver: Chrome, path: Path) -> None:
    """Drag a file from the disk onto the page and let it go there."""
    box = driver.find_element(By.CLASS_NAME, "drop").rect
    data = {"items": [], "files": [str(path)], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        place = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
        driver.execute_cdp_cmd("Input.dispatchDragEvent", {"type": kind, "data": data, **place})
    answered(driver)


def asked(driver: Chrome) -> tuple[bytes, str]:
    """Return what the page has sent."""
    found = driver.execute_script("return live.desks[0].asked.input")
    return base64.b64decode(found["content"]), found["media_type"]


def same_as_watched(driver: Chrome, model: Any, source: Any) -> None:
    """All weights on the page are those of `regard.watch` on the same answer."""
    task = model.task
    batch = task.output.known(task.passes, [source], task.answers([source]))
    with regard.watch(model) as seen:
        task.passes.scores(batch)
    maps = driver.execute_script(
        "return sights[0].shown.maps.map((map) => [map.name, [...unpack(map)], map.layers, map.heads])"
    )
    names, graph = driver.execute_script("return [sights[0].shown.source, Boolean(sights[0].shown.scene)]")
    drawn = [task.passes.view(source).names.index(name) for name in names] if graph else None
    compared = 0
    for name, values, layers, heads in maps:
        own = [key for key in seen if name in (kind(key), kind(key.replace("backbone.", "encoder.", 1)))]
        if not own:
            assert name.startswith("influence"), name
            continue
        found = np.stack([seen[key].weights[0].numpy() for key in own])
        assert found.shape[:2] == (layers, heads)
        if drawn is not None:  # those nodes that the answer depends on
            found = found[..., drawn, :][..., drawn]
        shown = np.array(values).reshape(layers, heads, -1)
        assert np.abs(shown - found.reshape(layers, heads, -1)).max() < 2e-5, name
        compared += 1
    assert compared > 0


def kind(key: str) -> str:
    """The name that a layer's weights have on the page: without its number."""
    parts = [part for part in key.split(".") if not part.isdigit() and part != "layers"]
    return ".".join(parts).removeprefix("head.")


def covered(driver: Chrome, model: Any, source: Any, text: Any) -> None:
    """Cover what is looked at most: the table says what the model answers to the same without it."""
    driver.execute_script("sights[0].pick({ side: 'rows', index: 0 })")
    chosen = driver.execute_script("return sights[0].partFor(sights[0].chosen).part.name")
    driver.find_element(By.CLASS_NAME, "cover-one").send_keys(Keys.ENTER)
    until(driver, "return document.querySelectorAll('.covered tbody tr').length === 1")
    name, shown = driver.execute_script(
        "return ['th', 'td.same bdi, td.other bdi'].map((css) => document.querySelector(`.covered tbody ${css}`).textContent)"
    )
    task = model.task
    view = task.passes.view(source)
    part = next(each for each in task.input.coverable(source, view) if each.name == chosen)
    assert name == chosen
    assert shown == task.output.as_target(task.answers([task.input.cover(source, view, part)])[0])
    assert text is None or text == task.output.as_target(task.answers([source])[0])


def by_keyboard(driver: Chrome) -> None:
    assert unreached(driver) == []
    assert unnamed(driver) == []


def test_an_image_is_dropped(driver: Chrome, server: Server, runs: Path, tmp_path: Path) -> None:
    model, path = regard.load(runs / "patches"), tmp_path / "input.png"
    path.write_bytes(hostile.image("PNG", (12, 12), "L"))
    opened(driver, server, "patches")
    dropped(driver, path)
    assert asked(driver) == (path.read_bytes(), "image/png")
    assert driver.find_element(By.CSS_SELECTOR, ".preview a").text == "input.png"
    source = model.task.input.read(str(path))
    same_as_watched(driver, model, source)
    covered(driver, model, source, driver.find_element(By.CSS_SELECTOR, ".answer li bdi").text)
    curl = driver.execute_script("return document.querySelector('.code pre').textContent")
    done = subprocess.run(["bash", "-c", curl], cwd=tmp_path, capture_output=True, text=True, check=True)
    text = json.loads(done.stdout)["answers"][0]["answers"][0]["text"]
    assert text == model.predict([str(path)])[0]
    by_keyboard(driver)


def test_an_example_of_a_clip_has_its_frames_and_its_link_is_kept(driver: Chrome, server: Server, runs: Path) -> None:
    model = regard.load(runs / "clips")
    opened(driver, server, "clips", more="&example=1")
    answered(driver)
    source = model.task.input.open(*asked(driver))
    named = driver.find_element(By.CSS_SELECTOR, ".preview a").text
    (original,) = [
        one.example.source
        for one in model.held([runs / "clips_classify.zip"]).items
        if Path(str(one.example.source)).name == named
    ]
    assert np.array_equal(*(model.task.input.encode([each])[0][0] for each in (source, original)))
    frames = driver.execute_script("return sights[0].shown.picture.frames")
    assert frames == len(model.task.input.encode([original])[0][0]) > 1
    assert len(driver.find_elements(By.CSS_SELECTOR, ".columns .place.frame")) > 0
    same_as_watched(driver, model, source)
    until(driver, "return location.hash.includes('example=1')")


def test_sound_is_recorded_and_answered(driver: Chrome, server: Server, runs: Path) -> None:
    model = regard.load(runs / "frames")
    opened(driver, server, "frames")
    record = driver.find_element(By.CLASS_NAME, "record")
    record.click()
    until(driver, "return live.desks[0].recorder?.blocks.length > 3")
    record.click()
    answered(driver)
    content, media = asked(driver)
    samples, rate = soundfile.read(io.BytesIO(content))
    assert media == "audio/wav"
    assert rate >= 8000
    assert 0.2 < len(samples) / rate < 30
    source = model.task.input.open(content, media)
    same_as_watched(driver, model, source)
    covered(driver, model, source, driver.find_element(By.CSS_SELECTOR, ".answer li bdi").text)
    driver.find_element(By.CLASS_NAME, "play").click()
    until(driver, "return sights[0].panels.columns.now() > 0.05")  # it is heard
    driver.find_element(By.CLASS_NAME, "play").click()
    by_keyboard(driver)
    said = [entry["message"] for entry in driver.get_log("browser")]
    assert [message for message in said if "ScriptProcessorNode is deprecated" not in message] == []


def test_a_recording_is_dropped(driver: Chrome, server: Server, tmp_path: Path) -> None:
    path = tmp_path / "tone.wav"
    path.write_bytes(hostile.sound("WAV", 0.3))
    opened(driver, server, "frames")
    dropped(driver, path)
    assert asked(driver) == (path.read_bytes(), "audio/wav")


def test_a_node_is_named(driver: Chrome, server: Server, runs: Path) -> None:
    model = regard.load(runs / "nodes")
    opened(driver, server, "nodes")
    driver.find_element(By.CLASS_NAME, "node").send_keys("p7" + Keys.ENTER)
    answered(driver)
    source = model.task.input.read(f"{runs / 'friends.json'}@p7")
    assert driver.find_element(By.CSS_SELECTOR, ".tagged bdi").text == "p7"
    same_as_watched(driver, model, source)
    covered(driver, model, source, driver.find_element(By.CSS_SELECTOR, ".tagged small").text)
    by_keyboard(driver)
    until(driver, "return location.hash.includes('node=p7')")
