"""LibreTranslate's protocol for models that convert: `/translate`, `/languages`, `/detect`, `/frontend/settings`."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any, Literal, TypeVar

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from pydantic import Field

from regard.serving.queue import Refused
from regard.serving.requests import Lenient, Service, checked, described, in_time, json_body, options_of
from regard.serving.tokens import AccessTokens

OPEN = ("/languages", "/frontend/settings")  # clients ask for these before they know that a key is needed
KEYED = ("/translate", "/detect")  # clients have the key in the body
PATHS = (*OPEN, *KEYED)
UNKNOWN = "und"
ALTERNATIVES = 10
TAG = re.compile(r"(<[^>]*>)")
K = TypeVar("K", "TranslateBody", "DetectBody")


class TranslateBody(Lenient):
    """A request of `POST /translate`."""

    q: str | list[str]
    source: str = Field("auto", max_length=35)
    target: str = Field("", max_length=35)
    format: Literal["text", "html"] = "text"
    alternatives: int = Field(0, ge=0, le=ALTERNATIVES)
    api_key: str | None = Field(None, description="a token, where the header has none")


class DetectBody(Lenient):
    """A request of `POST /detect`."""

    q: str
    api_key: str | None = Field(None, description="a token, where the header has none")


def add(app: FastAPI, service: Service, languages: tuple[str, str] | None, tokens: AccessTokens) -> None:
    """Add the routes."""

    def pairs() -> dict[str, tuple[str, str]]:
        """Return the languages of each model that converts texts."""
        found = {}
        for name, facts in service.pool.facts.items():
            if facts["task"] == "convert" and facts["input"] == "tokens":
                found[name] = languages or languages_of(facts["files"])
        return found

    def chosen(source: str, target: str) -> tuple[str, str, str]:
        """Return the model that translates between two languages, and these."""
        known = pairs()
        for name, (from_, to) in known.items():
            if source in ("auto", from_) and target in ("", to):
                return name, from_, to
        if not known:
            raise Refused(400, "No model here translates texts.")
        raise Refused(400, "These languages are not supported; /languages lists those that are.")

    @app.post("/translate", openapi_extra=described(TranslateBody))
    async def translate(request: Request) -> Response:
        """Translate a text or several (LibreTranslate)."""
        body = await _body(request, TranslateBody, tokens)
        name, source, _ = chosen(body.source, body.target)
        options = {"n_best": body.alternatives + 1} if body.alternatives else {}
        if body.alternatives:
            options["beam"] = max(5, body.alternatives + 1)
        options = options_of(options, service.pool.facts[name]["options"])
        texts = body.q if isinstance(body.q, list) else [body.q]
        cut = [TAG.split(text) if body.format == "html" else [text] for text in texts]
        plain = [[html.unescape(p) if body.format == "html" else p for p in pieces] for pieces in cut]
        wanted = [(i, k) for i, pieces in enumerate(plain) for k, p in enumerate(pieces) if _text(p, body.format)]
        answers: dict[tuple[int, int], list[str]] = {}
        if wanted:
            jobs = service.jobs(name, [plain[i][k] for i, k in wanted], options)
            found = await service.answers(request, jobs)
            answers = {
                place: [one["text"] for one in answer["answers"]] for place, answer in zip(wanted, found, strict=True)
            }
        count = body.alternatives + 1
        joined = [
            [_joined(cut[i], plain[i], answers, i, n, body.format) for n in range(count)] for i in range(len(texts))
        ]
        result: dict[str, Any] = {"translatedText": [each[0] for each in joined]}
        if body.source == "auto":
            result["detectedLanguage"] = [{"confidence": 100.0, "language": source} for _ in texts]
        if body.alternatives:
            result["alternatives"] = [[one for one in dict.fromkeys(each[1:]) if one] for each in joined]
        if not isinstance(body.q, list):
            result = {key: value[0] for key, value in result.items()}
        return JSONResponse(result)

    @app.get("/languages")
    async def listed() -> Response:
        """List the languages (LibreTranslate)."""
        targets: dict[str, list[str]] = {}
        for source, target in pairs().values():
            targets.setdefault(source, []).append(target)
            targets.setdefault(target, [])
        return JSONResponse(
            [{"code": code, "name": name_of(code), "targets": sorted({*to})} for code, to in targets.items()]
        )

    @app.post("/detect", openapi_extra=described(DetectBody))
    async def detect(request: Request) -> Response:
        """Tell the language: that of the model, for it knows no other (LibreTranslate)."""
        await _body(request, DetectBody, tokens)
        return JSONResponse([{"confidence": 100.0, "language": chosen("auto", "")[1]}])

    @app.get("/frontend/settings")
    async def settings() -> Response:
        """Tell a client what it may ask for (LibreTranslate)."""
        source, target = next(iter(pairs().values()), (UNKNOWN, UNKNOWN))
        sides = {
            "source": {"code": source, "name": name_of(source)},
            "target": {"code": target, "name": name_of(target)},
        }
        keys = bool(tokens)
        return JSONResponse(
            {
                "charLimit": service.limits.characters, "frontendTimeout": 500, "apiKeys": keys, "keyRequired": keys,
                "suggestions": False, "filesTranslation": False, "supportedFilesFormat": [], "language": sides,
            }
        )  # fmt: skip


async def _body(request: Request, kind: type[K], tokens: AccessTokens) -> K:
    """Return the body, which may be JSON or a form, of a client that is known by the header or by `api_key`."""
    body = await _read(request, kind)
    if not tokens.in_header(dict(request.headers.raw)) and not tokens.admit((body.api_key or "").encode()):
        raise Refused(403, "A key is needed: send api_key, or Authorization: Bearer …", kind="authentication_error")
    return body


async def _read(request: Request, kind: type[K]) -> K:
    if not request.headers.get("content-type", "").startswith(
        ("application/x-www-form-urlencoded", "multipart/form-data")
    ):
        return await json_body(request, kind)
    form = await in_time(request.form(max_files=0, max_fields=20))
    found: dict[str, Any] = {key: value for key, value in form.items() if isinstance(value, str)}
    if "alternatives" in found:
        digits = found["alternatives"]
        found["alternatives"] = int(digits) if re.fullmatch(r"\d{1,4}", digits) else digits
    return checked(found, kind)


def _text(piece: str, form: str) -> bool:
    return bool(piece.strip()) and not (form == "html" and TAG.fullmatch(piece))


def _joined(
    cut: list[str], plain: list[str], answers: dict[tuple[int, int], list[str]], i: int, n: int, form: str
) -> str:
    """Return the n-th translation of a text; tags and blanks around pieces stay as they are."""
    parts = []
    for k, (piece, text) in enumerate(zip(cut, plain, strict=True)):
        found = answers.get((i, k))
        if found is None:
            parts.append(piece)
            continue
        best = found[n] if n < len(found) else ("" if n and len(cut) == 1 else found[0])
        if form == "html":
            start, end = text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :]
            best = start + html.escape(best, quote=False) + end
        parts.append(best)
    return "".join(parts)


def languages_of(files: list[str]) -> tuple[str, str]:
    """Return the languages that the suffixes of line-aligned files name: train.en and train.de."""
    suffixes = [Path(file.removesuffix(".gz")).suffix[1:].lower() for file in files]
    if len(suffixes) == 2 and all(re.fullmatch(r"[a-z]{2,3}", suffix) for suffix in suffixes):
        return suffixes[0], suffixes[1]
    return UNKNOWN, UNKNOWN


def name_of(code: str) -> str:
    """Return the English name of a language."""
    from babel import Locale

    return str(Locale("en").languages.get(code, code))
