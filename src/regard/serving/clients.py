"""Protocols that existing clients speak, as thin adapters over the native answers; and uploads."""

from __future__ import annotations

import base64
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from pydantic import BaseModel
from starlette.datastructures import UploadFile

from regard.serving import huggingface, libretranslate, openai
from regard.serving.queue import Refused
from regard.serving.requests import Service, checked, in_time
from regard.serving.tokens import AccessTokens

M = TypeVar("M", bound=BaseModel)
PLAIN_ERRORS = libretranslate.PATHS  # paths whose clients expect {"error": text}


def add(app: FastAPI, service: Service, languages: tuple[str, str] | None, tokens: AccessTokens) -> None:
    """Add the routes of all protocols."""
    libretranslate.add(app, service, languages, tokens)
    openai.add(app, service)
    huggingface.add(app, service)


async def uploaded(request: Request, kind: type[M]) -> M | None:
    """Return the body of an upload (multipart/form-data with `file`, perhaps several, and `model`); None for others."""
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        return None
    form = await in_time(request.form(max_files=64, max_fields=64))
    files = [item for item in form.getlist("file") if isinstance(item, UploadFile)]
    if not files:
        raise Refused(400, "file: expected at least one file.")
    things = [
        {
            "content": base64.b64encode(await file.read()).decode(),
            "media_type": (file.content_type or "application/octet-stream")[:100],
        }
        for file in files
    ]
    found: dict[str, Any] = {"input": things[0] if len(things) == 1 else things}
    model = form.get("model")
    if isinstance(model, str):
        found["model"] = model
    if form.get("attention") == "true":
        found["attention"] = True
    return checked(found, kind)
