"""The HTTP application: the native API, what operators ask for, and the walls around both."""

from __future__ import annotations

import html
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from pydantic import Field
from starlette.exceptions import HTTPException

import regard
from regard.serving import clients, libretranslate, page
from regard.serving.browsing import Browser
from regard.serving.pool import WorkerPool
from regard.serving.queue import Refused
from regard.serving.requests import Bytes, RequestLimits, Service, Strict, described, json_body, options_of
from regard.serving.tokens import AccessTokens

OPEN = ("/healthz", "/readyz", *page.OPEN, *libretranslate.OPEN)  # need no token
TEMPORARY = (429, 503, 504)  # statuses of a server that is busy, stopping or late
UNKNOWN_BODY = 2**20  # bytes of a body whose token is inside
POLICY = b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'"
HEADERS = (
    (b"content-security-policy", POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)  # fmt: skip
Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]


class ServerMetrics:
    """The counters behind `/metrics`."""

    def __init__(self, pool: WorkerPool) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "regard_requests", "Requests by route and status.", ("route", "status"), registry=self.registry
        )
        self.seconds = Histogram("regard_request_seconds", "Time to answer a request.", registry=self.registry)
        self.batches = Histogram(
            "regard_batch_size",
            "Jobs answered together.",
            buckets=(1, 2, 4, 8, 16, 32, 64, 128),
            registry=self.registry,
        )
        for name, text, value in (
            ("regard_queue", "Jobs that wait.", lambda: len(pool.queue.waiting)),
            ("regard_workers_ready", "Workers that can answer.", lambda: sum(w.ready for w in pool.workers)),
            ("regard_worker_deaths", "Workers that died and were replaced.", lambda: pool.deaths),
            ("regard_jobs_answered", "Jobs answered since the start.", lambda: pool.answered),
        ):
            Gauge(name, text, registry=self.registry).set_function(value)

    def text(self, pool: WorkerPool) -> bytes:
        while pool.sizes:
            self.batches.observe(pool.sizes.popleft())
        return generate_latest(self.registry)


class Walls:
    """Around every request: a token where one is needed, a limit on the bytes of the body and on what waits already,
    headers, and counting."""

    def __init__(
        self, app: Any, tokens: AccessTokens, limits: RequestLimits, pool: WorkerPool, numbers: ServerMetrics
    ) -> None:
        self.app, self.tokens, self.limits, self.pool, self.numbers = app, tokens, limits, pool, numbers

    async def __call__(
        self, scope: Scope, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
    ) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status, read, most = time.perf_counter(), 0, 0, self.limits.body

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                own = {name.lower() for name, _ in message["headers"]}  # the page has a policy of its own
                message = {**message, "headers": [*message["headers"], *(h for h in HEADERS if h[0] not in own)]}
            await send(message)

        async def limited() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            _refuse_larger(read, most)
            return message

        headers = dict(scope["headers"])
        try:
            length = int(headers.get(b"content-length", b"0"))
        except ValueError:
            length = -1
        try:
            if length < 0:
                raise Refused(400, "content-length: expected a number.")
            most = self._admitted(scope["method"], scope["path"], headers)
            _refuse_larger(length, most)
            if scope["method"] == "POST":
                self.pool.refuse_late(self.limits.deadline)
            await self.app(scope, limited, answer)
        except Refused as refused:
            if not status:
                await rendered(refused, scope["path"])(scope, receive, answer)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self.numbers.requests.labels(route, str(status or 499)).inc()
            self.numbers.seconds.observe(time.perf_counter() - began)

    def _admitted(self, method: str, path: str, headers: dict[bytes, bytes]) -> int:
        """Return the most bytes of a body; refuse a request that needs a token and has none."""
        if (method == "GET" and path in OPEN) or self.tokens.in_header(headers):
            return self.limits.body
        if method == "POST" and path in libretranslate.KEYED:  # the token is in the body, and looked for there
            return min(UNKNOWN_BODY, self.limits.body)
        raise Refused(401, "A token is needed: send Authorization: Bearer …", kind="authentication_error")


def _refuse_larger(size: int, most: int) -> None:
    if size > most:
        raise Refused(413, f"The body is too large: expected at most {most:,} bytes.")


def rendered(refused: Refused, path: str) -> Response:
    """Return a refusal in the form that clients of a path expect."""
    content: dict[str, Any] = {"error": {"message": refused.message, "type": refused.kind, "param": None, "code": None}}
    if path in clients.PLAIN_ERRORS or path.startswith("/models/") or path == "/":
        content = {"error": refused.message}
    headers = {} if refused.again is None else {"Retry-After": str(max(1, round(refused.again)))}
    if refused.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(content, refused.status, headers)


class PredictBody(Strict):
    """A request of `POST /v1/predict`."""

    model: str | None = Field(None, description="the model's name; optional if there is only one", max_length=200)
    input: str | Bytes | list[str | Bytes] = Field(description="a text or bytes, or several")
    attention: bool = Field(False, description="add where the model looked")
    deadline: float | None = Field(None, gt=0, le=3600, description="deadline in seconds")
    options: dict[str, Any] = Field(default_factory=dict, description="beam, n_best, longest, seed …")


def build(
    pool: WorkerPool,
    limits: RequestLimits,
    tokens: tuple[str, ...] = (),
    languages: tuple[str, str] | None = None,
    browsed: tuple[Path, ...] = (),
) -> FastAPI:
    """Return the application over a pool of workers; `browsed` are folders whose runs the page lists."""

    @asynccontextmanager
    async def life(_: FastAPI) -> Any:
        yield
        await pool.close()

    app = FastAPI(title="Regard", version=regard.__version__, docs_url=None, redoc_url=None, lifespan=life)
    service, numbers = Service(pool, limits), ServerMetrics(pool)
    known = AccessTokens(tokens)
    app.add_middleware(Walls, tokens=known, limits=limits, pool=pool, numbers=numbers)

    @app.exception_handler(Refused)
    async def refused(request: Request, error: Refused) -> Response:
        return rendered(error, request.url.path)

    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> Response:
        kind = "not_found" if error.status_code == 404 else "invalid_request_error"
        found = {404: "There is no such path.", 405: "This method is not allowed here."}
        message = found.get(error.status_code, "The request cannot be read.")
        return rendered(Refused(error.status_code, message, kind=kind), request.url.path)

    @app.post("/v1/predict", openapi_extra=described(PredictBody))
    async def predict(request: Request) -> Response:
        """Answer one thing or several: the objects that `regard predict --json` prints."""
        body = await clients.uploaded(request, PredictBody) or await json_body(request, PredictBody)
        name, facts = service.model(body.model)
        options = options_of(body.options, facts["options"])
        several = isinstance(body.input, list)
        things = body.input if isinstance(body.input, list) else [body.input]
        wants = "attention" if body.attention else "answer"
        drawn = "seed" in options or facts["draws"]
        jobs = service.jobs(name, things, options, wants=wants, deadline=body.deadline, drawn=drawn)
        found = await service.results(request, jobs)
        return JSONResponse({"model": name, "answers": _written(found, alone=not several)})

    @app.get("/healthz")
    async def healthy() -> Response:
        """The server runs."""
        return PlainTextResponse("ok\n")

    @app.get("/readyz")
    async def ready() -> Response:
        """The server can answer: a worker has answered something real."""
        return (
            PlainTextResponse("ready\n") if pool.ready and not pool.closing else PlainTextResponse("not ready\n", 503)
        )

    @app.get("/metrics")
    async def metrics() -> Response:
        """Counts for Prometheus."""
        return Response(numbers.text(pool), media_type="text/plain; version=0.0.4")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(page_of(app.openapi()))

    page.add(app, service, Browser(browsed, pool.order.runs))
    clients.add(app, service, languages, known)
    return app


def _written(found: Sequence[dict[str, Any] | Refused], *, alone: bool) -> list[dict[str, Any]]:
    """Return results as JSON. A refusal is the whole response where nothing else was asked for, or where all were
    refused for one reason that has nothing to do with them."""
    refused = [one for one in found if isinstance(one, Refused)]
    if refused and alone:
        raise refused[0]
    if len(refused) == len(found) and len({one.status for one in refused}) == 1 and refused[0].status in TEMPORARY:
        raise refused[0]
    return [
        {"error": one.message, "status": one.status}
        if isinstance(one, Refused)
        else {name: value for name, value in one.items() if name != "tokens"}
        for one in found
    ]


def page_of(description: dict[str, Any]) -> str:
    """Return the API's description as a plain page without scripts."""
    rows = []
    for path, methods in description["paths"].items():
        for method, about in methods.items():
            text = html.escape(about.get("description") or about.get("summary") or "")
            body = about.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            fields = "".join(
                f"<li><code>{html.escape(name)}</code> {html.escape(str(field.get('description', '')))}</li>"
                for name, field in body.get("properties", {}).items()
            )
            rows.append(f"<h2><code>{method.upper()} {html.escape(path)}</code></h2><p>{text}</p><ul>{fields}</ul>")
    return (
        "<!doctype html><html lang='en'><meta charset='utf-8'><title>Regard API</title><style>body{font:16px/1.5 "
        "system-ui,sans-serif;max-width:50rem;margin:2rem auto;padding:0 1rem}h2{margin-top:2rem}</style>"
        f"<h1>Regard {html.escape(description['info']['version'])}</h1>{''.join(rows)}</html>"
    )
