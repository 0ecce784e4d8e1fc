"""OpenAI's protocol: `/v1/models`, `/v1/completions` with streaming, `/v1/embeddings`, `/v1/audio/transcriptions`."""

from __future__ import annotations

import asyncio
import base64
import json
import struct
import time
import uuid
from collections.abc import AsyncIterator
from typing import Any, Literal

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from pydantic import Field
from starlette.datastructures import UploadFile

from regard.serving.queue import Job, Refused
from regard.serving.requests import Bytes, Lenient, Service, described, in_time, json_body, options_of

FORM: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {
                        "file": {"type": "string", "format": "binary"},
                        "model": {"type": "string"},
                        "response_format": {"enum": ["json", "text", "verbose_json"]},
                    },
                }
            }
        },
    }
}
CHOICES = 8  # answers to one prompt
STOPS = 4


class CompletionBody(Lenient):
    """A request of `POST /v1/completions`."""

    model: str | None = Field(None, max_length=200)
    prompt: str | list[str]
    max_tokens: int | None = Field(16, ge=1, le=4096)
    temperature: float | None = Field(1.0, ge=0, le=2)
    top_p: float | None = Field(1.0, gt=0, le=1)
    n: int | None = Field(1, ge=1, le=CHOICES)
    stream: bool | None = False
    echo: bool | None = False
    stop: str | list[str] | None = None
    seed: int | None = Field(None, ge=0, le=10**12)


class EmbeddingBody(Lenient):
    """A request of `POST /v1/embeddings`."""

    model: str | None = Field(None, max_length=200)
    input: str | list[str]
    encoding_format: Literal["float", "base64"] = "float"


def add(app: FastAPI, service: Service) -> None:
    """Add the routes."""
    began = int(time.time())

    @app.get("/v1/models")
    async def models() -> Response:
        """List the models (OpenAI)."""
        data = [
            {"id": name, "object": "model", "created": began, "owned_by": "regard", "task": facts["task"]}
            for name, facts in service.pool.facts.items()
        ]
        return JSONResponse({"object": "list", "data": data})

    @app.get("/v1/models/{name:path}")
    async def model(name: str) -> Response:
        """Describe one model (OpenAI)."""
        name, facts = service.model(name)
        return JSONResponse(
            {"id": name, "object": "model", "created": began, "owned_by": "regard", "task": facts["task"]}
        )

    @app.post("/v1/completions", openapi_extra=described(CompletionBody))
    async def completions(request: Request) -> Response:
        """Continue a prompt (OpenAI)."""
        body = await json_body(request, CompletionBody)
        name, facts = service.model(body.model)
        if facts["task"] not in ("continue", "convert"):
            raise Refused(400, f"model: it {facts['does']}, expected one that continues or converts texts.")
        jobs = _completions(service, name, facts, body)
        about = {
            "id": f"cmpl-{uuid.uuid4().hex}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": name,
        }
        if body.stream:
            if len(jobs) > 1:
                raise Refused(400, "stream: expected one prompt and n = 1.")
            events = _events(service, request, jobs[0], body, about, facts["task"])
            return StreamingResponse(events, media_type="text/event-stream")
        found = await service.answers(request, jobs)
        choices = [_choice(i, answer, facts, body) for i, answer in enumerate(found)]
        return JSONResponse({**about, "choices": choices, "usage": _usage(found, choices)})

    @app.post("/v1/embeddings", openapi_extra=described(EmbeddingBody))
    async def embeddings(request: Request) -> Response:
        """Return a vector for each text (OpenAI)."""
        body = await json_body(request, EmbeddingBody)
        name, facts = service.model(body.model)
        if "embeddings" not in facts["options"]:
            raise Refused(400, f"model: it {facts['does']} and gives no vectors, expected one of the task fill.")
        texts = body.input if isinstance(body.input, list) else [body.input]
        found = await service.answers(request, service.jobs(name, list(texts), {"embeddings": True}))
        vectors = [answer["embedding"] for answer in found]
        data = [
            {"object": "embedding", "index": i, "embedding": _packed(v) if body.encoding_format == "base64" else v}
            for i, v in enumerate(vectors)
        ]
        count = sum(len(answer.get("words", ())) for answer in found)
        usage = {"prompt_tokens": count, "total_tokens": count}
        return JSONResponse({"object": "list", "model": name, "data": data, "usage": usage})

    @app.post("/v1/audio/transcriptions", openapi_extra=FORM)
    async def transcriptions(request: Request) -> Response:
        """Write down a recording (OpenAI)."""
        form = await in_time(request.form(max_files=1, max_fields=20))
        file, wanted = form.get("file"), form.get("model")
        if not isinstance(file, UploadFile):
            raise Refused(400, "file: expected a recording.")
        name, facts = service.model(wanted if isinstance(wanted, str) and wanted else None)
        if facts["task"] != "convert" or facts["input"] != "frames":
            raise Refused(400, f"model: it {facts['does']}, expected one that writes down recordings.")
        content = base64.b64encode(await file.read()).decode()
        thing = Bytes(content=content, media_type=(file.content_type or "audio/wav")[:100])
        answer = (await service.answers(request, service.jobs(name, [thing], {})))[0]
        text = answer["answers"][0]["text"]
        form_of_answer = form.get("response_format") or "json"
        if form_of_answer == "text":
            return PlainTextResponse(text + "\n")
        if form_of_answer == "verbose_json":
            return JSONResponse(
                {"text": text, "language": "und", "duration": float(answer["tokens"][0]), "segments": []}
            )
        if form_of_answer != "json":
            raise Refused(400, "response_format: expected json, text or verbose_json.")
        return JSONResponse({"text": text})


def _completions(service: Service, name: str, facts: dict[str, Any], body: CompletionBody) -> list[Job]:
    prompts = body.prompt if isinstance(body.prompt, list) else [body.prompt]
    stops = [body.stop] if isinstance(body.stop, str) else body.stop or []
    if len(stops) > STOPS or not all(stops):
        raise Refused(400, f"stop: expected at most {STOPS} texts that are not empty.")
    options: dict[str, Any] = {"longest": body.max_tokens or 16}
    if facts["task"] == "continue":
        seed = body.seed if body.seed is not None else uuid.uuid4().int % 10**12
        options |= {"temperature": body.temperature or 1.0, "seed": seed}
        if body.temperature == 0:
            options["top_k"] = 1
        elif body.top_p is not None and body.top_p < 1:
            options["top_p"] = body.top_p
    things: list[str | Bytes] = [prompt for prompt in prompts for _ in range(body.n or 1)]
    wants = "stream" if body.stream else "answer"
    return service.jobs(name, things, options_of(options, facts["options"]), wants=wants, drawn=True)


def _choice(number: int, answer: dict[str, Any], facts: dict[str, Any], body: CompletionBody) -> dict[str, Any]:
    best = answer["answers"][0]
    text: str = best["text"]
    if facts["task"] == "continue" and not body.echo:
        text = text.removeprefix(answer["source"])
    text, stopped = _cut(text, body.stop)
    ended = stopped or (facts["task"] == "convert" and _finished(answer))
    return {"index": number, "text": text, "logprobs": None, "finish_reason": "stop" if ended else "length"}


def _cut(text: str, stop: str | list[str] | None) -> tuple[str, bool]:
    """Return a text up to the first of the stops."""
    places = [at for one in ([stop] if isinstance(stop, str) else stop or []) if (at := text.find(one)) >= 0]
    return (text[: min(places)], True) if places else (text, False)


def _usage(found: list[dict[str, Any]], choices: list[dict[str, Any]]) -> dict[str, int]:
    prompt = sum(answer["tokens"][0] for answer in found)
    written = sum(answer["tokens"][1] for answer in found) or len(choices)
    return {"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written}


class _Outlet:
    """A text that is sent while it is written: nothing from a stop on, and no end that may become a stop."""

    def __init__(self, skip: int, stop: str | list[str] | None) -> None:
        self.stops = [stop] if isinstance(stop, str) else stop or []
        self.skip, self.written, self.sent, self.stopped = skip, "", 0, False

    def add(self, piece: str) -> str:
        """Return what can be sent now."""
        self.written += piece
        text, self.stopped = _cut(self.written[self.skip :], self.stops)
        return self._send(text if self.stopped else text[: len(text) - self._begun(text)])

    def rest(self) -> str:
        """Return what was kept back, now that nothing follows."""
        return "" if self.stopped else self._send(self.written[self.skip :])

    def _send(self, text: str) -> str:
        new = text[self.sent :]
        self.sent += len(new)
        return new

    def _begun(self, text: str) -> int:
        """Return how many characters at the end may be the beginning of a stop."""
        return max((n for stop in self.stops for n in range(1, len(stop)) if text.endswith(stop[:n])), default=0)


async def _events(
    service: Service, request: Request, job: Job, body: CompletionBody, about: dict[str, Any], task: str
) -> AsyncIterator[str]:
    """Yield server-sent events: pieces as they are written, the reason of the end, and [DONE]."""
    pieces: asyncio.Queue[str | None] = asyncio.Queue()
    job.pieces = pieces.put_nowait
    job.done.add_done_callback(lambda _: pieces.put_nowait(None))

    def event(text: str, reason: str | None) -> str:
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": reason}
        return f"data: {json.dumps({**about, 'choices': [choice]}, ensure_ascii=False)}\n\n"

    try:
        service.pool.submit([job])
        outlet = _Outlet(len(job.content) if task == "continue" and not body.echo else 0, body.stop)
        gone = False
        while not (outlet.stopped or gone) and (piece := await pieces.get()) is not None:
            if new := outlet.add(piece):
                yield event(new, None)
            gone = await request.is_disconnected()
        if new := outlet.rest():
            yield event(new, None)
        whole = job.done.done() and not job.done.cancelled()
        fault = job.done.exception() if whole else None
        if isinstance(fault, Refused):
            yield f"data: {json.dumps({'error': {'message': fault.message, 'type': fault.kind}})}\n\n"
        else:
            ended = outlet.stopped or (task == "convert" and whole and _finished(job.done.result()))
            yield event("", "stop" if ended else "length")
        yield "data: [DONE]\n\n"
    except Refused as refused:
        yield f"data: {json.dumps({'error': {'message': refused.message, 'type': refused.kind}})}\n\n"
    finally:
        job.done.cancel()


def _finished(answer: dict[str, Any]) -> bool:
    """Return True for a conversion that came to its end."""
    return bool(answer["answers"][0].get("finished", True))


def _packed(vector: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
