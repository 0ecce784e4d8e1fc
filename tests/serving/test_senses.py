"""`regard serve` for images, recordings and graphs: real clients, and files that strangers may send."""

import base64
import io
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

import regard
from tests import test_matrix as matrix
from tests.runs.test_old_runs import compare
from tests.serving import hostile
from tests.serving.server import Server

RUNS = [("frames", "convert"), ("frames", "classify"), ("patches", "classify"), ("nodes", "tag")]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("senses")
    for source, task in RUNS:
        more = [*matrix.SET, *matrix.MORE.get((source, task), [])]
        path = matrix.toy(folder, source, task)
        regard.train(path, folder / f"{source}_{task}", task=task, steps=10, set=more, quiet=True)
    return folder


@pytest.fixture(scope="module")
def server(runs: Path) -> Iterator[Server]:
    folders = [str(runs / f"{source}_{task}") for source, task in RUNS]
    with Server("--workers", "1", runs=folders) as started:
        yield started


def recording() -> bytes:
    file = io.BytesIO()
    time = np.arange(1600) / 4000
    soundfile.write(file, 0.3 * np.sin(2 * np.pi * 300 * time), 4000, format="WAV")
    return file.getvalue()


def expected(runs: Path, run: str, content: bytes, suffix: str) -> dict[str, Any]:
    """Return what `regard predict --json` says of a file."""
    path = runs / f"asked{suffix}"
    path.write_bytes(content)
    model = regard.load(runs / run)
    lines = model.task.lines([model.task.input.read(str(path))], 0, {}, with_score=False, as_json=True)
    found: dict[str, Any] = json.loads(next(iter(lines)))
    return {name: value for name, value in found.items() if name != "source"}


def sent(server: Server, model: str, content: bytes, media: str, way: str) -> Any:
    """An answer to bytes in base64, or to an upload."""
    if way == "upload":
        files = {"file": ("name", content, media)}
        return server.client.post("/v1/predict", files=files, data={"model": model})
    thing = {"content": base64.b64encode(content).decode(), "media_type": media}
    return server.client.post("/v1/predict", json={"model": model, "input": thing})


@pytest.mark.parametrize("way", ["base64", "upload"])
def test_answers_to_bytes_are_those_of_predict_to_files(server: Server, runs: Path, way: str) -> None:
    picture = hostile.image("PNG", (12, 12), "L")
    graph = json.dumps(matrix.ring(["red", "blue", "red", "red"], {(0, 1), (1, 2), (2, 3), (3, 0)})).encode()
    for run, content, media, suffix in (
        ("frames_convert", recording(), "audio/wav", ".wav"),
        ("frames_classify", recording(), "audio/wav", ".wav"),
        ("patches_classify", picture, "image/png", ".png"),
        ("nodes_tag", graph, "application/json", ".json"),
    ):
        response = sent(server, run, content, media, way)
        assert response.status_code == 200, response.text
        answer = response.json()["answers"][0]
        assert answer.pop("source").startswith("the ")
        compare(answer, expected(runs, run, content, suffix))


def test_real_clients_send_recordings_and_images(server: Server, runs: Path) -> None:
    import openai
    from huggingface_hub import InferenceClient

    text = expected(runs, "frames_convert", recording(), ".wav")["answers"][0]["text"]
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    heard = client.audio.transcriptions.create(model="frames_convert", file=("a.wav", recording()))
    assert heard.text == text
    verbose = client.audio.transcriptions.create(
        model="frames_convert", file=("a.wav", recording()), response_format="verbose_json"
    )
    assert (verbose.text, verbose.duration) == (text, 1.0)
    with pytest.raises(openai.BadRequestError):
        client.audio.transcriptions.create(model="patches_classify", file=("a.wav", recording()))
    asked = InferenceClient(f"{server.url}/models/frames_convert").automatic_speech_recognition(recording())
    assert asked.text == text
    for run, content, suffix in (
        ("frames_classify", recording(), ".wav"),
        ("patches_classify", hostile.image("PNG", (12, 12), "L"), ".png"),
    ):
        there = InferenceClient(f"{server.url}/models/{run}")
        found = there.audio_classification(content) if suffix == ".wav" else there.image_classification(content)
        shares = expected(runs, run, content, suffix)["probabilities"]
        assert {one.label: pytest.approx(one.score, abs=1e-5) for one in found} == shares


def test_hostile_files_are_refused_in_bounded_time_and_memory(server: Server) -> None:
    files = [("patches_classify", "image/png", *one) for one in hostile.images()]
    files += [("frames_classify", "audio/wav", *one) for one in hostile.sounds()]
    assert len(files) >= 40
    before, workers = server.memory(), server.workers()
    for run, media, name, content in files:
        began = time.monotonic()
        for way in ("base64", "upload"):
            response = sent(server, run, content, media, way)
            assert 400 <= response.status_code < 500, (name, way, response.status_code, response.text[:300])
        assert time.monotonic() - began < 20, name
    assert server.workers() == workers, "none of them ended a worker"
    assert server.memory() - before < 150
    assert sent(server, "frames_classify", recording(), "audio/wav", "upload").status_code == 200


def test_graphs_that_cannot_be_read_are_refused_without_an_echo(server: Server) -> None:
    large = {"nodes": [{"id": i, "colour": "red"} for i in range(30_000)], "edges": []}
    for content in (b"", b"{", b"[1]", b'{"nodes": [{"id": "echo-me-never"}], "edges": [["echo-me-never", "x"]]}',
                    b"[" * 50_000, json.dumps(large).encode()):  # fmt: skip
        response = sent(server, "nodes_tag", content, "application/json", "base64")
        assert response.status_code == 422, response.text
        assert "echo-me-never" not in response.text
