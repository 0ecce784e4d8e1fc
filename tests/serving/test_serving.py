"""`regard serve` as clients meet it: a real server, real clients, bad requests, dying workers."""

import base64
import contextlib
import json
import math
import os
import random
import shutil
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

import regard
from regard.commands.serve import serve
from regard.errors import UserError
from tests.runs.test_old_runs import compare
from tests.serving import malformed
from tests.serving.server import OLD, RUNS, Server

TEXTS = {
    "convert_transformer": ["one two", "three", "four five six seven", "", "nine zero one"],
    "convert_recurrent": ["abc", "dea", "j", "aaaaabbb"],
    "classify": ["a good film", "dull", "the plot was poor and it was bad"],
    "tag": ["the dog runs", "a", "to be or not to be"],
    "fill_bert": ["the ___ dog", "___", "no blank here"],
}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server("--engine", "torch") as started:
        yield started


def predicted(run: str, texts: list[str], **changes: Any) -> list[Any]:
    model = regard.load(OLD / run)
    lines = model.task.lines([model.task.input.read(t) for t in texts], 0, changes, with_score=False, as_json=True)
    return [json.loads(line) for line in lines]


def ask(server: Server, run: str, texts: Any, **more: Any) -> httpx.Response:
    return server.client.post("/v1/predict", json={"model": run, "input": texts, **more})


# ---- answers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("run", TEXTS)
def test_answers_are_those_of_predict_alone_and_together(server: Server, run: str) -> None:
    expected = predicted(run, TEXTS[run])
    together = ask(server, run, TEXTS[run])
    assert together.status_code == 200, together.text
    compare(together.json()["answers"], expected, 1e-5)
    for text, answer in zip(TEXTS[run], expected, strict=True):
        compare(ask(server, run, text).json()["answers"], [answer], 1e-5)


def test_draws_depend_on_the_seed_and_the_place_alone(server: Server) -> None:
    options = {"seed": 7, "longest": 9}
    expected = predicted("continue_gpt", ["to be", "or"], **options)
    assert ask(server, "continue_gpt", ["to be", "or"], options=options).json()["answers"] == expected
    with ThreadPoolExecutor(8) as threads:
        work = [threads.submit(ask, server, "continue_gpt", ["to be", "or"], options=options) for _ in range(8)]
        assert all(one.result().json()["answers"] == expected for one in work)


def test_under_mixed_load_every_answer_is_the_right_one(server: Server) -> None:
    expected = {(run, text): answer for run in TEXTS for text, answer in
                zip(TEXTS[run], predicted(run, TEXTS[run]), strict=True)}  # fmt: skip
    wanted = [*expected] * 6
    random.Random(0).shuffle(wanted)
    with ThreadPoolExecutor(16) as threads:
        found = list(threads.map(lambda one: ask(server, *one), wanted))
    for one, response in zip(wanted, found, strict=True):
        compare(response.json()["answers"], [expected[one]], 1e-5)


def test_one_bad_text_does_not_fail_the_others(server: Server) -> None:
    texts = ["one two", "one " * 4000, "three"]
    answers = ask(server, "convert_transformer", texts).json()["answers"]
    assert "too long" in answers[1]["error"]
    compare([answers[0], answers[2]], predicted("convert_transformer", [texts[0], texts[2]]))
    assert ask(server, "convert_transformer", texts[1]).status_code == 422


def test_attention_is_one_more_key(server: Server) -> None:
    plain = ask(server, "convert_transformer", "one two").json()["answers"][0]
    looked = ask(server, "convert_transformer", "one two", attention=True).json()["answers"][0]
    attention = looked.pop("attention")
    compare(looked, plain)
    model = regard.load(OLD / "convert_transformer")
    exhibit = model.task.exhibit(model.task.input.read("one two"), None)
    assert attention["tokens"]["source"] == list(exhibit.source)
    compare(attention["maps"][0]["weights"], exhibit.maps[0].weights.tolist())  # type: ignore[union-attr]


# ---- clients that exist ------------------------------------------------------------------------------------------------


def test_the_client_of_openai(server: Server) -> None:
    import openai

    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    assert {model.id for model in client.models.list()} == {*RUNS}
    made = client.completions.create(model="continue_gpt", prompt="to be", max_tokens=8, seed=7)
    whole = predicted("continue_gpt", ["to be"], seed=7, longest=8, temperature=1.0)[0]["answers"][0]["text"]
    assert made.choices[0].text == whole.removeprefix("to be")
    assert made.choices[0].finish_reason == "length"
    assert made.usage is not None
    assert made.usage.completion_tokens == 8
    streamed = client.completions.create(model="continue_gpt", prompt="to be", max_tokens=8, seed=7, stream=True)
    events = list(streamed)
    assert "".join(event.choices[0].text for event in events) == whole.removeprefix("to be")
    assert [event.choices[0].finish_reason for event in events[-2:]] == [None, "length"]
    echoed = client.completions.create(
        model="continue_gpt", prompt="to be", max_tokens=8, seed=7, echo=True, stop=["be"]
    )
    assert echoed.choices[0].text == "to "
    vectors = client.embeddings.create(model="fill_bert", input=["the dog", "a"])
    expected = predicted("fill_bert", ["the dog", "a"], embeddings=True)
    for one, other in zip(vectors.data, expected, strict=True):
        assert one.embedding == pytest.approx(other["embedding"], abs=1e-4)
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="nothing", prompt="a")
    with pytest.raises(openai.BadRequestError):
        client.embeddings.create(model="tag", input="a")


def test_a_stream_says_what_the_whole_answer_says(server: Server) -> None:
    import openai

    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    free = client.completions.create(model="continue_gpt", prompt="to be", max_tokens=8, seed=7).choices[0].text
    for request in (
        {"model": "convert_transformer", "prompt": "four five six seven"},
        {"model": "convert_transformer", "prompt": "four five six seven", "max_tokens": 1},
        {"model": "continue_gpt", "prompt": "to be", "max_tokens": 8, "seed": 7, "stop": [free[2:6], "never said"]},
        {"model": "continue_gpt", "prompt": "to be", "max_tokens": 8, "seed": 7, "stop": free[-1] + "never said"},
    ):
        whole = client.completions.create(**request).choices[0]
        events = [event.choices[0] for event in client.completions.create(**request, stream=True)]
        assert "".join(event.text for event in events) == whole.text
        assert events[-1].finish_reason == whole.finish_reason


def test_the_client_of_hugging_face(server: Server) -> None:
    from huggingface_hub import InferenceClient

    labels = InferenceClient(f"{server.url}/models/classify").text_classification("a good film")
    shares = predicted("classify", ["a good film"])[0]["probabilities"]
    assert {one.label: pytest.approx(one.score, abs=1e-4) for one in labels} == shares
    tags = InferenceClient(f"{server.url}/models/tag").token_classification("the dog runs")
    assert [(one.word, one.start, one.end) for one in tags] == [("the", 0, 3), ("dog", 4, 7), ("runs", 8, 12)]
    made = InferenceClient(f"{server.url}/models/convert_transformer").translation("one two")
    assert made.translation_text == predicted("convert_transformer", ["one two"])[0]["answers"][0]["text"]
    filled = InferenceClient(f"{server.url}/models/fill_bert").fill_mask("the [MASK] dog")
    assert len(filled) == 5
    assert filled[0].sequence.startswith("the ")


def test_libretranslate(server: Server) -> None:
    best = [one["answers"][0]["text"] for one in predicted("convert_transformer", ["one two", "three"])]
    found = server.client.post("/translate", json={"q": "one two", "source": "auto", "target": "und"}).json()
    assert found == {"translatedText": best[0], "detectedLanguage": {"confidence": 100.0, "language": "und"}}
    form = server.client.post("/translate", data={"q": "three", "source": "und", "target": "und", "format": "text"})
    assert form.json() == {"translatedText": best[1]}
    html = {"q": ["<p>one two</p> <b>three</b>"], "source": "auto", "target": "und", "format": "html"}
    assert server.client.post("/translate", json=html).json()["translatedText"] == [
        f"<p>{best[0]}</p> <b>{best[1]}</b>"
    ]
    several = server.client.post(
        "/translate", json={"q": "one two", "source": "und", "target": "und", "alternatives": 2}
    )
    assert len(several.json()["alternatives"]) == 2
    assert server.client.get("/languages").json() == [{"code": "und", "name": "Unknown language", "targets": ["und"]}]
    assert server.client.get("/frontend/settings").json()["charLimit"] == 20_000
    refused = server.client.post("/translate", json={"q": "x", "source": "fr", "target": "und"})
    assert (refused.status_code, type(refused.json()["error"])) == (400, str)
    assert server.client.post("/translate", json={"q": "x", "target": "und", "alternatives": 10_000}).status_code == 400


# ---- walls -----------------------------------------------------------------------------------------------------------


def test_what_operators_ask_for(server: Server) -> None:
    assert server.client.get("/healthz").text == "ok\n"
    assert server.client.get("/readyz").status_code == 200
    assert "regard_batch_size_count" in server.client.get("/metrics").text
    paths = server.client.get("/openapi.json").json()["paths"]
    assert {"/v1/predict", "/v1/completions", "/translate", "/models/{name}"} <= paths.keys()
    docs = server.client.get("/docs")
    assert "<script" not in docs.text
    assert "://" not in docs.text
    for name, value in (("x-content-type-options", "nosniff"), ("x-frame-options", "DENY")):
        assert docs.headers[name] == value
    assert "frame-ancestors 'none'" in docs.headers["content-security-policy"]
    assert "access-control-allow-origin" not in server.client.get("/healthz", headers={"Origin": "http://x"}).headers
    assert "server" not in docs.headers


def test_answers_over_a_kept_connection_do_not_wait_for_acknowledgements(server: Server) -> None:
    def taken() -> float:
        began = time.perf_counter()
        assert server.client.get("/healthz").status_code == 200
        return time.perf_counter() - began

    assert sorted(taken() for _ in range(20))[5] < 0.035, "a delayed acknowledgement takes 40 ms"


SECRET = "echo-me-never"
BAD: list[tuple[bytes, int]] = [
    (b"", 400),
    (b"{", 400),
    (b"\xff\xfe", 400),
    (b'{"input": NaN}', 400),
    (b'{"input": "\\ud800"}', 400),
    (b'{"\\ud800": "x"}', 400),
    (b"[" * 100_000, 400),
    (b'{"input": "x", "beam": 3}', 400),
    (b'{"input": "x", "echo-me-never": 3, "echo_me_never": 4}', 400),
    (json.dumps({"model": "tag", "input": "x", "options": {SECRET: 1}}).encode(), 400),
    (json.dumps({"input": SECRET, "model": SECRET}).encode(), 404),
    (json.dumps({"model": "tag", "input": [SECRET] * 300}).encode(), 413),
    (json.dumps({"model": "tag", "input": "x" * 30_000}).encode(), 413),
    (json.dumps({"model": "tag", "input": []}).encode(), 400),
    (json.dumps({"model": "tag", "input": [1]}).encode(), 400),
    (json.dumps({"model": "tag", "input": "x", "options": {"beam": 3}}).encode(), 400),
    (json.dumps({"model": "convert_transformer", "input": "x", "options": {"beam": "3"}}).encode(), 400),
    (json.dumps({"model": "convert_transformer", "input": "x", "options": {"beam": True}}).encode(), 400),
    (json.dumps({"model": "convert_transformer", "input": "x", "options": {"beam": 10**9}}).encode(), 400),
    (json.dumps({"model": "convert_transformer", "input": "x", "options": {"n_best": 2.5}}).encode(), 400),
    (json.dumps({"model": "tag", "input": {"content": "no base64!"}}).encode(), 400),
    (json.dumps({"model": "tag", "input": "x", "deadline": 0}).encode(), 400),
]


@pytest.mark.parametrize(("body", "status"), BAD)
def test_a_bad_body_is_one_sentence_that_repeats_nothing(server: Server, body: bytes, status: int) -> None:
    response = server.client.post("/v1/predict", content=body, headers={"content-type": "application/json"})
    assert response.status_code == status, response.text
    assert SECRET not in response.text.replace("_", "-")
    assert len(response.json()["error"]["message"]) < 300


def test_a_body_may_be_so_large(server: Server) -> None:
    large = server.client.post("/v1/predict", content=b"x" * (17 * 2**20))
    assert large.status_code == 413

    def endless() -> Iterator[bytes]:
        for _ in range(40):
            yield b" " * 2**20

    try:
        status = server.client.post("/v1/predict", content=endless()).status_code
    except httpx.TransportError:
        status = 413  # the server may have closed the connection before all was sent
    assert status == 413


def test_malformed_requests_are_never_a_failure_of_the_server(server: Server) -> None:
    malformed.flood(server, 200)
    assert malformed.generated(server, 8) >= 100
    assert ask(server, "tag", "the dog").status_code == 200


# ---- overload, deadlines, deaths -------------------------------------------------------------------------------------


def test_a_full_queue_a_deadline_and_clients_that_have_gone() -> None:
    with Server("--queue", "4", "--deadline", "5", runs=["continue_gpt"]) as server:
        slow = {"options": {"longest": 4096, "seed": 1}}
        with ThreadPoolExecutor(12) as threads:
            found = [one.result() for one in
                     [threads.submit(ask, server, "continue_gpt", "to be", deadline=1.0, **slow) for _ in range(12)]]  # fmt: skip
        statuses = sorted({one.status_code for one in found})
        assert {*statuses} <= {200, 429, 504}
        assert {429, 504} <= {*statuses}
        assert all(int(one.headers["retry-after"]) >= 1 for one in found if one.status_code == 429)
        began = time.monotonic()
        assert ask(server, "continue_gpt", "to be", options={"longest": 2}).status_code == 200
        assert time.monotonic() - began < 3, "what nobody waits for is not computed to its end"
        for _ in range(10):
            with pytest.raises(httpx.TimeoutException):
                httpx.post(f"{server.url}/v1/predict", timeout=0.1, json={"input": "to be", **slow})
        began = time.monotonic()
        assert ask(server, "continue_gpt", "to be", options={"longest": 2}).status_code in (200, 429)
        assert time.monotonic() - began < 3, "a client that has gone leaves the queue"


def killing(kills: int) -> None:
    """Kill workers under load: every request has one response, the right answer or 503."""
    expected = predicted("convert_recurrent", ["abc"])
    with Server("--workers", "2", runs=["convert_recurrent"]) as server:
        stop, found = threading.Event(), []

        def load() -> None:
            with httpx.Client(base_url=server.url, timeout=60) as client:
                while not stop.is_set():
                    found.append(client.post("/v1/predict", json={"input": "abc"}))

        clients = [threading.Thread(target=load) for _ in range(4)]
        for client in clients:
            client.start()
        for _ in range(kills):
            time.sleep(0.3)
            workers = server.workers()
            if workers:
                os.kill(random.choice(workers), signal.SIGKILL)
            time.sleep(0.5)
        server.until("/readyz", 200)
        count = len(found)
        ended = time.monotonic() + 60
        while len(found) < count + 20 and time.monotonic() < ended:
            time.sleep(0.05)
        stop.set()
        for client in clients:
            client.join(60)
        assert {response.status_code for response in found} <= {200, 503}
        assert sum(response.status_code == 200 for response in found) > 20
        for response in found:
            if response.status_code == 200:
                compare(response.json()["answers"], expected)
        assert "regard_worker_deaths 0.0" not in server.client.get("/metrics").text


def test_killed_workers_are_replaced() -> None:
    killing(3)


def test_tokens_reloads_that_drop_nothing_and_an_end_after_what_was_accepted(tmp_path: Path) -> None:
    tokens, run = tmp_path / "tokens", tmp_path / "changed"
    tokens.write_text("first-secret-token\nsecond-secret-token\n")
    shutil.copytree(OLD / "tag", run)
    given = ["--token-file", tokens, "--workers", "1"]
    with Server(*given, runs=["continue_gpt", "convert_transformer", str(run)]) as server:
        assert server.client.get("/healthz").status_code == 200
        assert server.client.get("/v1/models").status_code == 401
        for given, status in (
            ("first-secret-token", 200),
            ("second-secret-token", 200),
            ("first", 401),
            ("x" * 99, 401),
        ):
            found = server.client.get("/v1/models", headers={"Authorization": f"Bearer {given}"})
            assert found.status_code == status
        keys_of_libretranslate(server)
        server.client.headers["Authorization"] = "Bearer first-secret-token"
        assert "tags" in ask(server, "changed", "a good film").json()["answers"][0]
        reloaded(server, run)
        reload_that_fails(server, run)
        with ThreadPoolExecutor(1) as threads:
            last = threads.submit(ask, server, "continue_gpt", "to be", options={"longest": 40, "seed": 1})
            time.sleep(0.1)
            assert server.end() == 0
            assert last.result().status_code == 200


def keys_of_libretranslate(server: Server) -> None:
    """Clients of LibreTranslate have the token in the body, as `api_key`, and ask first whether one is needed."""
    asked = {"q": "three", "source": "auto", "target": "und"}
    settings = server.client.get("/frontend/settings").json()
    assert (settings["apiKeys"], settings["keyRequired"]) == (True, True)
    assert server.client.get("/languages").status_code == 200
    for key, status in (("second-secret-token", 200), ("second", 403), ("", 403), ("ä", 403), (None, 403)):
        for path in ("/translate", "/detect"):
            found = server.client.post(path, json={**asked, "api_key": key})
            assert found.status_code == status, (path, key, found.text)
    assert found.json()["error"].startswith("A key is needed")
    form = {**asked, "api_key": "first-secret-token"}
    assert server.client.post("/translate", data=form).status_code == 200
    assert server.client.post("/v1/predict", json={**form, "input": "x"}).status_code == 401, "nowhere else"
    assert server.client.post("/translate", content=b" " * (2**20 + 1)).status_code == 413, "of somebody unknown"
    bearer = {"Authorization": "Bearer first-secret-token"}
    assert server.client.post("/translate", json=asked, headers=bearer).status_code == 200


def reloaded(server: Server, run: Path) -> None:
    """Another run in the folder is loaded, and nothing is dropped meanwhile."""
    shutil.rmtree(run)
    shutil.copytree(OLD / "classify", run)
    before, short = server.workers(), {"longest": 40, "seed": 1}
    with ThreadPoolExecutor(4) as threads:
        work = [threads.submit(ask, server, "continue_gpt", "to be", options=short) for _ in range(4)]
        server.process.send_signal(signal.SIGHUP)
        assert [one.result().status_code for one in work] == [200] * 4
    ended = time.monotonic() + 120
    while {*server.workers()} & {*before} and time.monotonic() < ended:
        assert ask(server, "continue_gpt", "to be", options={"longest": 2}).status_code == 200
        time.sleep(0.05)
    assert not {*server.workers()} & {*before}
    compare(ask(server, "changed", "a good film").json()["answers"], predicted("classify", ["a good film"]))


def reload_that_fails(server: Server, run: Path) -> None:
    """A run that cannot be loaded leaves the old workers; one that dies then is replaced once the run is whole."""
    before = server.workers()
    whole = (run / "model.safetensors").read_bytes()
    (run / "model.safetensors").write_bytes(b"damaged")
    server.process.send_signal(signal.SIGHUP)
    server.until_said("the runs could not be reloaded, and the old ones stay")
    assert ask(server, "changed", "a good film").status_code == 200
    assert {*before} <= {*server.workers()}
    for worker in before:
        os.kill(worker, signal.SIGKILL)
    server.until_said("a worker cannot load the runs, and tries again")
    (run / "model.safetensors").write_bytes(whole)
    server.until("/readyz", 200)
    compare(ask(server, "changed", "a good film").json()["answers"], predicted("classify", ["a good film"]))


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"runs": [Path("none")]}, "is not a run folder"),
        ({"engine": "steam"}, "expected one of torch"),
        ({"port": 99999}, "port is 99999, expected 0 to 65535"),
        ({"workers": 0}, "workers is 0, expected 1 or more"),
        ({"queue": -1}, "queue is -1, expected 1 or more"),
        ({"deadline": 0.0}, "deadline is 0, expected more than 0 seconds"),
        ({"deadline": math.nan}, "deadline is nan, expected more than 0 seconds"),
        ({"languages": "en"}, "expected two codes"),
        ({"token_file": Path("none")}, "cannot be read"),
        ({"runs": [OLD / "tag", OLD / "tag"]}, "tag is named twice, expected each run once"),
        ({"host": "203.0.113.1"}, "cannot be listened on"),
    ],
)
def test_what_cannot_be_served_is_a_sentence(more: dict[str, Any], sentence: str) -> None:
    given: dict[str, Any] = {"runs": [OLD / "tag"], "port": 0, **more}
    with pytest.raises(UserError, match=sentence):
        serve(given.pop("runs"), print, **given)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_server_by_onnx_answers_as_torch_does(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    runs = ["classify", "tag", "fill_bert"]
    for run in runs:
        shutil.copytree(OLD / run, tmp_path / run)
    with Server("--engine", "onnx", "--workers", "1", runs=[str(tmp_path / run) for run in runs]) as server:
        assert all((tmp_path / run / "onnx" / "model.onnx").is_file() for run in runs)
        for run in runs:
            compare(ask(server, run, TEXTS[run]).json()["answers"], predicted(run, TEXTS[run]))
            for text, answer in zip(TEXTS[run], predicted(run, TEXTS[run]), strict=True):
                compare(ask(server, run, text).json()["answers"], [answer])


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_ten_thousand_malformed_requests() -> None:
    with Server("--engine", "torch", "--workers", "1") as server:
        malformed.flood(server, 500)  # until everything is loaded that any request needs …
        malformed.generated(server, 50)  # … those of the description too: wide beams, long batches
        before, workers = server.memory(), server.workers()
        malformed.flood(server, 7000)
        count = 7000 + malformed.generated(server, 250)
        after = server.memory()
        print(f"{count:,} malformed requests, {before:.0f} MB before, {after:.0f} MB after")
        assert count >= 10_000
        assert server.workers() == workers
        assert after - before <= 20


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_twenty_kills() -> None:
    killing(20)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_slow_connections_do_not_delay_others() -> None:
    """200 clients that send a byte now and then: the 95th percentile of others stays below twice its value."""
    with Server("--workers", "1", runs=["convert_transformer"]) as server:

        def p95() -> float:
            taken = []
            for _ in range(300):
                began = time.perf_counter()
                assert ask(server, "convert_transformer", "one two three").status_code == 200
                taken.append(time.perf_counter() - began)
            return sorted(taken)[285]

        p95()
        stop, host, port = threading.Event(), "127.0.0.1", int(server.url.rpartition(":")[2])

        def slow() -> None:
            some = [socket.create_connection((host, port)) for _ in range(50)]
            for one in some:
                one.sendall(b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
            while not stop.wait(1.0):
                for one in some:
                    with contextlib.suppress(OSError):
                        one.sendall(b" ")

        turns = []
        for _ in range(3):
            alone = p95()
            stop.clear()
            threads = [threading.Thread(target=slow) for _ in range(4)]
            for thread in threads:
                thread.start()
            time.sleep(1.5)
            turns.append((alone, p95()))
            stop.set()
            for thread in threads:
                thread.join()
        ratio = sorted(crowded / alone for alone, crowded in turns)[1]
        print(
            f"p95 alone and beside 200 slow connections, ms: {[(1000 * a, 1000 * b) for a, b in turns]}, ratio {ratio:.2f}"
        )
        assert ratio < 2


def test_bytes_for_a_model_of_texts_are_refused(server: Server) -> None:
    content = {"content": base64.b64encode(b"\x89PNG").decode(), "media_type": "image/png"}
    assert ask(server, "tag", content).status_code == 422
    upload = server.client.post(
        "/v1/predict", files={"file": ("x.png", b"\x89PNG", "image/png")}, data={"model": "tag"}
    )
    assert upload.status_code == 422
