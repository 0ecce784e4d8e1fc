"""Requests that are nearly right: mutations of our own, and what schemathesis makes of the API's description."""

import json
import random
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as trying

from tests.serving.server import RUNS, Server


def mutated(chosen: random.Random) -> tuple[str, str, bytes, dict[str, str]]:
    """A request that is nearly right."""
    paths = ["/v1/predict", "/v1/completions", "/v1/embeddings", "/translate", "/detect", "/models/tag", "/models/classify",
             "/", "/v1/audio/transcriptions", "/v1/models/x", "/languages"]  # fmt: skip
    odd: list[Any] = [None, -1, 1e308, "", "\x00", "é" * 50, [], {}, True, [[]], {"a": {}}, "x" * 500, 2**70, 0.1]
    body: dict[str, Any] = {"model": chosen.choice([*RUNS, "x"]), "input": "a b", "prompt": "a", "q": "a", "inputs": "a",
                            "target": "und", "max_tokens": 3, "options": {}}  # fmt: skip
    for _ in range(chosen.randint(1, 3)):
        body[chosen.choice([*body, "extra", "stream", "n", "temperature", "alternatives"])] = chosen.choice(odd)
    content = json.dumps(body).encode()
    if chosen.random() < 0.3:
        place = chosen.randrange(len(content))
        content = content[:place] + bytes([chosen.randrange(256)]) + content[place + chosen.randint(0, 2) :]
    media = chosen.choice(["application/json", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data",
                           "multipart/form-data; boundary=x", ""])  # fmt: skip
    return chosen.choice(["POST", "POST", "POST", "GET", "PUT"]), chosen.choice(paths), content, {"content-type": media}


def flood(server: Server, count: int) -> None:
    chosen = random.Random(count)
    for _ in range(count):
        method, path, content, headers = mutated(chosen)
        response = server.client.request(method, path, content=content, headers=headers)
        assert response.status_code < 500, (method, path, content, response.text)
        if "event-stream" not in response.headers["content-type"] and response.status_code != 200:
            assert "error" in response.json()


def generated(server: Server, each: int) -> int:
    """Send requests to every route that fit the API's description, and such that do not; return how many."""
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    count = 0
    for found in schema.get_all_operations():
        operation = found.ok()
        for mode in (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE):

            @given(case=operation.as_strategy(generation_mode=mode))
            @trying(max_examples=each, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
                    suppress_health_check=[*HealthCheck])  # fmt: skip
            def send(case: Any) -> None:
                nonlocal count
                response = case.call(timeout=60)
                count += 1
                assert response.status_code < 500, (case.method, case.path, case.body, response.text)

            try:
                send()
            except schemathesis.errors.InvalidSchema:
                raise
            except Exception as error:
                if type(error).__name__ not in ("Unsatisfiable", "SkipTest"):  # nothing can be wrong about such a route
                    raise
    return count
