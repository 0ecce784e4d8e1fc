"""Recordings in pictures and pages: times by attention, the spectrogram, and a page that plays."""

import base64
import io
import itertools
import json
import re
import wave
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from selenium.webdriver import ActionChains, Keys

from regard.errors import UserError
from regard.inspection import bundle, on_sound
from regard.inspection.page import Effects, Exhibit, Map
from regard.inspection.sound import Heard, SoundView, monotonic, runs
from regard.inspection.view import Coverable, Drawing
from regard.outputs.effects import with_effects
from tests.browser import browser, needs_browser
from tests.data.sounds import tone


def view(seconds: float = 1.0) -> SoundView:
    samples = tone(500, seconds).astype(np.float32)
    spectrogram = np.random.default_rng(0).random((round(100 * seconds), 20)).astype(np.float32)
    return SoundView(0.5, 0.04, lambda: Heard(spectrogram, samples, 8000))


def exhibit(seconds: float = 1.0, words: int = 3) -> Exhibit:
    n = round(25 * seconds)
    weights = np.full((words, n), 0.001)
    for row in range(words):
        weights[row, row * n // words : (row + 1) * n // words] = 1.0
    weights /= weights.sum(-1, keepdims=True)
    names = [f"word{i}" for i in range(words)]
    drawing = Drawing(weights.astype(np.float32), [str(i) for i in range(n)], names, "a title", spoken=True)
    maps = [Map("cross", "target", "source", weights[None, None])]
    return Exhibit([f"{i * 0.04:.2f}" for i in range(n)], names, maps, "a.wav", drawing=drawing, sound=view(seconds))


def test_times_are_those_of_the_best_monotonic_way() -> None:
    draw = np.random.default_rng(0)
    for m, n in ((1, 4), (2, 5), (3, 6), (4, 4)):
        weights = draw.random((m, n))
        ways = [[0, *cuts, n] for cuts in itertools.combinations(range(1, n), m - 1)]
        best = max(ways, key=lambda way: sum(weights[i, way[i] : way[i + 1]].sum() for i in range(m)))
        assert monotonic(weights) == list(itertools.pairwise(best))
    assert monotonic(draw.random((3, 2))) == [(0, 1), (0, 1), (1, 2)]


def test_times_are_seconds_of_the_recording() -> None:
    weights = np.zeros((2, 25))
    weights[0, :10], weights[1, 10:] = 1, 1
    assert view().times(weights) == [(0.5, pytest.approx(0.9)), (pytest.approx(0.9), 1.5)]
    assert runs(["a", "a", "b"]) == [(0, 2, "a"), (2, 3, "b")]


@pytest.mark.parametrize("weights", ["two", "one"])
def test_the_picture_has_a_time_axis_in_seconds(weights: str) -> None:
    shown = exhibit()
    assert shown.drawing is not None
    assert shown.sound is not None
    drawing = shown.drawing if weights == "two" else Drawing(shown.drawing.weights[0], shown.drawing.columns, title="x")
    figure = on_sound.figure(shown.sound, drawing, grid=False)
    axes = figure.axes
    assert axes[0].get_xlim() == (0.5, 1.5)
    below = next(a for a in axes if a.get_xlabel() == "seconds")
    assert below.get_xlim() == (0.5, 1.5)
    assert axes[0].get_ylabel() == "Hz"
    if weights == "two":
        assert [t.get_text() for t in below.get_yticklabels()] == ["word0", "word1", "word2"]
        assert any(t.get_text() == "word1" for a in axes for t in a.texts)  # where it is said


def test_the_page_holds_the_sound_and_asks_for_nothing(tmp_path: Path) -> None:
    path = bundle.write(tmp_path / "a.html", [exhibit(), exhibit(0.4)], "</title><script>x</script>")
    text = path.read_text("utf-8")
    assert "default-src 'none'" in text
    assert "media-src blob:" in text
    assert "unsafe" not in text
    found = re.search(r'id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    one = json.loads(found[1])["examples"][0]
    with wave.open(io.BytesIO(base64.b64decode(one["sound"]["wav"]))) as sound:
        assert sound.getnframes() == 8000
        assert sound.getframerate() == 8000
    assert len(base64.b64decode(one["sound"]["spectrogram"])) == one["sound"]["frames"] * one["sound"]["bins"]
    assert one["times"][0][0] == 0.5
    assert one["times"][-1][1] == pytest.approx(1.5, abs=0.01)


@needs_browser
def test_the_page_lights_up_where_each_word_was_heard_and_what_covering_does(tmp_path: Path) -> None:
    shown = exhibit()
    n = len(shown.source)
    parts = [Coverable(f"{i}–{i + 5}", tuple(range(i, i + 5))) for i in range(0, n, 5)]
    covered = {
        i: ("word0 word1" if i == 4 else "word0 word1 word2", [0.9, 0.9, 0.1 if i == 4 else 0.9]) for i in range(5)
    }
    effects = Effects("word0 word1 word2", [0.9, 0.9, 0.9], covered)
    path = bundle.write(tmp_path / "a.html", [with_effects(replace(shown, parts=parts), effects, drawn=True)], "sound")
    with browser() as driver:
        driver.get(path.as_uri())
        words = driver.find_elements("css selector", ".rows .word")
        assert [word.text for word in words] == ["word0\n0.50 s", "word1\n0.82 s", "word2\n1.14 s"]
        ActionChains(driver).move_to_element(words[2]).perform()
        status = driver.find_element("class name", "status").text
        assert status.endswith("by its attention it is said from 1.14 to 1.50 s")
        light = """const { canvas } = sights[0].panels.columns, pen = canvas.getContext("2d");
        return arguments[0].map((share) => pen.getImageData(share * canvas.width, 2, 30, 20).data.reduce((a, b) => a + b))"""
        early, late = driver.execute_script(light, [0.1, 0.85])
        assert late > early, "what is not looked at is darkened"
        words[2].click()
        rows = driver.find_elements("css selector", ".covered tbody tr")
        assert len(rows) == 5
        assert rows[0].text.startswith("20–25")
        assert "90 % → 10 %" in rows[0].text
        assert "73 % → 8.1 %" in rows[0].text
        canvas = driver.find_element("css selector", ".sound canvas")
        canvas.send_keys(Keys.ARROW_RIGHT)
        assert canvas.get_attribute("aria-valuetext") == "0.04 seconds"
        assert not [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]


def test_what_is_too_long_for_a_page_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has 61 s, expected at most 60 to show; name a part: FILE#0-30"):
        bundle.write(tmp_path / "a.html", [exhibit(61.0)], "x")
