"""The page's routes: the page itself, what it asks of models, and the runs that it shows."""

from __future__ import annotations

import json
from typing import Any, Literal

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from pydantic import Field, model_validator
from starlette.concurrency import run_in_threadpool

from regard.inspection import bundle
from regard.runs.examples_file import examples_in
from regard.serving.browsing import Browser
from regard.serving.looking import MEDIA
from regard.serving.queue import Job
from regard.serving.requests import Bytes, Service, Strict, json_body

OPEN = ("/", "/favicon.ico")  # the page itself tells nothing
POLICY = "content-security-policy"


class LookBody(Strict):
    """A request of `POST /page/look`."""

    model: str | None = Field(None, max_length=200)
    input: str | Bytes | None = Field(None, description="a text or bytes")
    example: int | None = Field(None, ge=0, description="the number of an example of the run")
    node: str | None = Field(None, max_length=200, description="a node of the graph that the run was trained on")
    answer: str | None = Field(None, max_length=20_000, description="inspect this answer instead of the model's own")
    cover: int | Literal["each"] | None = Field(None, description="the part to cover, or each in turn")

    @model_validator(mode="after")
    def _one(self) -> LookBody:
        if sum(each is not None for each in (self.input, self.example, self.node)) != 1:
            raise ValueError("expected one of input, example and node")
        return self


def add(app: FastAPI, service: Service, browser: Browser) -> None:
    """Add the routes."""

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        allowed = bundle.policy(bundle.SERVED)
        return HTMLResponse(bundle.page({"server": True}, "Regard", _inside(allowed)), headers={POLICY: allowed})

    @app.get("/favicon.ico", include_in_schema=False)
    async def icon() -> Response:
        return Response(status_code=204)  # browsers ask for one

    @app.get("/page/about", include_in_schema=False)
    async def about() -> Response:
        runs = await run_in_threadpool(browser.found)
        shown = ("task", "input", "does", "noun", "options", "accepts", "streams", "picks")
        models = {name: {key: facts[key] for key in shown} for name, facts in service.pool.facts.items()}
        return JSONResponse({"models": models, "runs": [*runs], "ready": service.pool.ready})

    @app.get("/page/examples", include_in_schema=False)
    async def examples(model: str) -> Response:
        name, _ = service.model(model)
        found = await run_in_threadpool(examples_in, browser.found()[name])
        return JSONResponse({"examples": [{key: one[key] for key in one if key != "file"} for one in found]})

    @app.get("/page/runs", include_in_schema=False)
    async def runs() -> Response:
        return JSONResponse(await run_in_threadpool(browser.listed))

    @app.get("/page/run", include_in_schema=False)
    async def run(name: str) -> Response:
        return JSONResponse(await run_in_threadpool(browser.run, name))

    @app.get("/page/picture", include_in_schema=False)
    async def picture(run: str, name: str) -> Response:
        content, media = await run_in_threadpool(browser.picture, run, name)
        return Response(content, media_type=media)

    @app.post("/page/look", include_in_schema=False)
    async def look(request: Request) -> Response:
        body = await json_body(request, LookBody)
        name, _ = service.model(body.model)
        (found,) = await service.answers(request, [_job(service, name, body)])
        return JSONResponse(found)


def _job(service: Service, name: str, body: LookBody) -> Job:
    """Return the job of a look: the limits of its input are those of any other."""
    question: dict[str, Any] = body.model_dump(exclude={"model", "input"}, exclude_none=True)
    if body.input is not None:
        (given,) = service.jobs(name, [body.input], {})  # which refuses what is too large
        given.done.cancel()
    if isinstance(body.input, Bytes):
        question |= body.input.model_dump()
    elif body.input is not None:
        question["input"] = body.input
    (job,) = service.jobs(name, [""], {}, wants="look")
    job.content, job.media = json.dumps(question), MEDIA
    return job


def _inside(allowed: str) -> str:
    """Return a policy without what a <meta> element may not say."""
    return "; ".join(part for part in allowed.split("; ") if not part.startswith("frame-ancestors"))
