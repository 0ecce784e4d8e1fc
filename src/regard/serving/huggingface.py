"""Hugging Face's inference protocol: `POST /models/NAME`, or `POST /` where there is one model."""

from __future__ import annotations

import base64
import math
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from pydantic import Field

from regard.serving.queue import Refused
from regard.serving.requests import Bytes, Lenient, Service, checked, described, in_time, json_body, options_of


class InferenceBody(Lenient):
    """A request: texts, or bytes in base64."""

    inputs: str | list[str]
    parameters: dict[str, Any] = Field(default_factory=dict)


def add(app: FastAPI, service: Service) -> None:
    """Add the routes."""

    @app.post("/models/{name:path}", openapi_extra=described(InferenceBody))
    async def infer(request: Request, name: str) -> Response:
        """Answer as the pipeline of the model's task does (Hugging Face)."""
        return await _infer(service, request, name)

    @app.post("/", openapi_extra=described(InferenceBody))
    async def infer_one(request: Request) -> Response:
        """Answer by the only model there is (Hugging Face)."""
        return await _infer(service, request, None)


async def _infer(service: Service, request: Request, name: str | None) -> Response:
    name, facts = service.model(name)
    body, things = await _read(request, facts)
    parameters = body.parameters
    options: dict[str, Any] = {}
    if facts["task"] == "fill":
        options["n_best"] = parameters.get("top_k") or 5
    if facts["task"] == "continue":
        options = {
            "longest": parameters.get("max_new_tokens") or 20,
            "temperature": parameters.get("temperature"),
            "top_k": parameters.get("top_k"),
            "top_p": parameters.get("top_p"),
            "seed": parameters.get("seed"),
        }
    if facts["task"] == "detect":
        options["threshold"] = parameters.get("threshold")
    chosen = options_of(options, facts["options"])
    texts = [_blank(thing) if facts["task"] == "fill" and isinstance(thing, str) else thing for thing in things]
    found = await service.answers(request, service.jobs(name, texts, chosen, drawn=facts["draws"]))
    answers = [_shaped(answer, facts, parameters) for answer in found]
    if facts["task"] == "convert" and facts["input"] == "frames":
        return JSONResponse(answers[0])
    if facts["task"] == "convert" or (facts["task"] == "classify" and facts["input"] == "tokens"):
        return JSONResponse(answers)  # a list, also for one alone
    return JSONResponse(answers if isinstance(body.inputs, list) and len(answers) > 1 else answers[0])


async def _read(request: Request, facts: dict[str, Any]) -> tuple[InferenceBody, list[str | Bytes]]:
    """Return the body and its things: JSON, or the raw bytes of a picture or a recording."""
    media = request.headers.get("content-type", "")
    if facts["input"] != "tokens" and not media.startswith("application/json"):
        content = base64.b64encode(await in_time(request.body())).decode()
        thing = Bytes(content=content, media_type=media[:100] or "application/octet-stream")
        return checked({"inputs": ""}, InferenceBody), [thing]
    body = await json_body(request, InferenceBody)
    things = body.inputs if isinstance(body.inputs, list) else [body.inputs]
    if facts["input"] != "tokens":
        return body, [Bytes(content=thing, media_type="application/octet-stream") for thing in things]
    return body, list(things)


def _blank(text: str) -> str:
    return text.replace("[MASK]", "___").replace("<mask>", "___")


def _shaped(answer: dict[str, Any], facts: dict[str, Any], parameters: dict[str, Any]) -> Any:
    """Return an answer in the form of the task's pipeline."""
    task = facts["task"]
    if task == "classify":
        if "probabilities" not in answer:
            raise Refused(400, "model: it answers with a number, and this protocol knows labels only.")
        shares = [{"label": label, "score": share} for label, share in answer["probabilities"].items()]
        top = parameters.get("top_k")
        return shares[:top] if isinstance(top, int) and top > 0 else shares
    if task == "tag":
        return _entities(answer)
    if task == "detect":
        return [_detected(each) for each in answer["annotations"]]
    if task == "convert":
        text = answer["answers"][0]["text"]
        return {"text": text} if facts["input"] == "frames" else {"translation_text": text, "generated_text": text}
    if task == "continue":
        text = answer["answers"][0]["text"]
        return {"generated_text": text if parameters.get("return_full_text") else text.removeprefix(answer["source"])}
    if task == "fill":
        return [
            {
                "score": math.exp(one["score"]),
                "token": 0,
                "token_str": one["words"][0],
                "sequence": one["text"],
            }
            for one in answer["answers"]
            if one["words"]
        ]
    raise Refused(400, f"model: the task {task} has no form in this protocol; use /v1/predict.")


def _detected(each: dict[str, Any]) -> dict[str, Any]:
    """Return a thing with its edges in whole pixels."""
    x, y, width, height = each["bbox"]
    edges = {"xmin": round(x), "ymin": round(y), "xmax": round(x + width), "ymax": round(y + height)}
    return {"label": each["category"], "score": each["score"], "box": edges}


def _entities(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Return each word with its tag and its place in the text."""
    found, at = [], 0
    for word, tag, share in zip(answer["words"], answer["tags"], answer["probabilities"], strict=True):
        start = answer["source"].find(word, at)
        start = at if start < 0 else start
        at = start + len(word)
        found.append({"entity": tag, "score": share, "word": word, "start": start, "end": at})
    return found
