"""Requests: bodies that are read within limits, JSON that is strictly JSON, and the jobs that a request stands for."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import re
import time
from collections.abc import Awaitable, Mapping
from typing import Any, NamedTuple, NoReturn, TypeVar

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from regard.serving.pool import WorkerPool
from regard.serving.queue import Job, Refused
from regard.serving.worker import TEXT

BODY_SECONDS = 20.0  # until the whole body must be there
LONE = re.compile("[\ud800-\udfff]")
POLL = 0.25  # seconds between two looks whether the client is still there
NUMBERS: dict[str, tuple[float, float]] = {
    "beam": (1, 32), "n_best": (1, 32), "minimum": (0, 4096), "longest": (1, 4096), "seed": (0, 10**12),
    "length_penalty": (0, 10), "temperature": (0.01, 100), "top_k": (1, 10**6), "top_p": (1e-6, 1), "threshold": (0, 1),
}  # fmt: skip
WHOLE = ("beam", "n_best", "minimum", "longest", "seed", "top_k")
M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")


class Strict(BaseModel):
    """A body without unknown fields, whose numbers are numbers."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class Lenient(BaseModel):
    """A body of an existing protocol: fields that mean nothing here are passed over."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)


class Bytes(Strict):
    """Bytes in base64: a picture, a recording."""

    content: str = Field(description="bytes in base64")
    media_type: str = Field("application/octet-stream", max_length=100)


class RequestLimits(NamedTuple):
    """The limits of one request."""

    body: int = 16 * 2**20  # bytes
    things: int = 256
    characters: int = 20_000  # of a text
    deadline: float = 30.0  # seconds


async def json_body(request: Request, kind: type[M]) -> M:
    """Return the body as JSON of this kind. Complaints name fields, and never repeat what was sent."""
    content = await in_time(request.body())
    try:
        found = json.loads(content.decode("utf-8"), parse_constant=_no_constant)
    except (UnicodeDecodeError, ValueError, RecursionError):
        raise Refused(400, "The body is not valid JSON in UTF-8.") from None
    return checked(found, kind)


async def in_time(body: Awaitable[T]) -> T:
    """Return a body in any form, if all of it arrives in time."""
    try:
        return await asyncio.wait_for(body, BODY_SECONDS)
    except TimeoutError:
        raise Refused(408, "The body did not arrive in time.", kind="timeout") from None


def checked(found: Any, kind: type[M]) -> M:
    """Return a decoded body as this kind."""
    try:
        refuse_lone(found)
        return kind.model_validate(found)
    except RecursionError:
        raise Refused(400, "The body is nested too deep.") from None
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"] if isinstance(part, str | int))[:80] or "body"
        known = first["type"] != "extra_forbidden" and re.fullmatch(r"[\w.]+", where)
        where = where if known else "body"  # a name that somebody made up is not repeated
        raise Refused(400, f"{where}: {first['msg'][:200]}.") from None


def described(kind: type[Any]) -> dict[str, Any]:
    """Return what the API's description says of a body."""
    schema = kind.model_json_schema(ref_template="#/components/schemas/{model}")
    for name, definition in schema.pop("$defs", {}).items():
        schema = json.loads(
            json.dumps(schema).replace(f'{{"$ref": "#/components/schemas/{name}"}}', json.dumps(definition))
        )
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def refuse_lone(found: Any) -> None:
    """Refuse half a surrogate pair anywhere: UTF-8 cannot write it."""
    if isinstance(found, str):
        if LONE.search(found):
            raise Refused(400, "A string holds half a surrogate pair, which is not text.")
    elif isinstance(found, dict):
        for key, value in found.items():
            refuse_lone(key)
            refuse_lone(value)
    elif isinstance(found, list):
        for value in found:
            refuse_lone(value)


def options_of(found: Mapping[str, Any], known: list[str]) -> dict[str, Any]:
    """Return options of a request as changes to a model's search; what is out of range or unknown is refused."""
    options = {name: value for name, value in found.items() if value is not None}
    for name, value in options.items():
        if name not in known:
            raise Refused(400, f"options: this model has no such option; it has {', '.join(known) or 'none'}.")
        if name not in NUMBERS:
            continue
        low, high = NUMBERS[name]
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise Refused(400, f"{name}: expected a number from {low:g} to {high:g}.")
        if name in WHOLE and not isinstance(value, int):
            raise Refused(400, f"{name}: expected a whole number.")
    if options.get("n_best", 1) > options.get("beam", 32):
        raise Refused(400, "n_best: a beam finds at most as many answers as its size.")
    return options


class Service:
    """The models of a server, as requests see them."""

    def __init__(self, pool: WorkerPool, limits: RequestLimits) -> None:
        self.pool, self.limits = pool, limits

    def model(self, name: str | None) -> tuple[str, dict[str, Any]]:
        """Return the name and the facts of a model; without a name, of the only one."""
        facts = self.pool.facts
        if not facts:
            raise Refused(503, "The models are not loaded yet.", kind="unavailable", again=1)
        if name is None and len(facts) == 1:
            name = next(iter(facts))
        if name is None:
            raise Refused(400, f"model: name one of {', '.join(facts)}.")
        if name not in facts:
            raise Refused(404, "There is no model of this name; /v1/models lists them.", kind="not_found")
        return name, facts[name]

    def jobs(
        self,
        model: str,
        things: list[str | Bytes],
        options: Mapping[str, Any],
        *,
        wants: str = "answer",
        deadline: float | None = None,
        drawn: bool = False,
    ) -> list[Job]:
        """Return a job for each thing of a request."""
        if not things:
            raise Refused(400, "input: expected at least one.")
        if len(things) > self.limits.things:
            raise Refused(413, f"input: expected at most {self.limits.things} at once.")
        ends = time.monotonic() + min(self.limits.deadline, deadline or self.limits.deadline)
        jobs = []
        for place, thing in enumerate(things):
            content, media = (thing, TEXT) if isinstance(thing, str) else (thing.content, thing.media_type)
            if isinstance(thing, str) and len(thing) > self.limits.characters:
                raise Refused(413, f"input: a text has at most {self.limits.characters:,} characters.")
            if not isinstance(thing, str):
                _refuse_no_base64(content)
            jobs.append(Job(model, content, media, options, ends, len(content) + 8, wants, place))
        if drawn:  # what is drawn depends on the place among the things of one request
            name = str(jobs[0].number)
            for job in jobs:
                job.alone = name
        return jobs

    async def results(self, request: Request, jobs: list[Job]) -> list[dict[str, Any] | Refused]:
        """Queue jobs and return the answer or the refusal of each; a client that has gone leaves the queue."""
        self.pool.submit(jobs)
        waiting = {job.done for job in jobs}
        try:
            while waiting:
                _, waiting = await asyncio.wait(waiting, timeout=POLL)
                if waiting and await request.is_disconnected():
                    raise Refused(499, "The client has gone.", kind="cancelled")
        finally:
            for job in jobs:
                job.done.cancel()
        found: list[dict[str, Any] | Refused] = []
        for job in jobs:
            fault = job.done.exception()
            found.append(fault if isinstance(fault, Refused) else job.done.result())
        return found

    async def answers(self, request: Request, jobs: list[Job]) -> list[dict[str, Any]]:
        """Queue jobs and return their answers; the first refusal is that of the request."""
        found = await self.results(request, jobs)
        for one in found:
            if isinstance(one, Refused):
                raise one
        return [one for one in found if isinstance(one, dict)]


def _refuse_no_base64(content: str) -> None:
    try:
        base64.b64decode(content, validate=True)
    except (binascii.Error, ValueError):
        raise Refused(400, "content: expected bytes in base64.") from None
