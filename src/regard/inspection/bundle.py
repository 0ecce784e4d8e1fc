"""The page: one HTML file with its style and script inside, which a server sends and `regard show` saves.

The files of `web/` are joined as they are; there is no build step. What somebody wrote reaches the page only as JSON,
in a data block or from the server, and is shown only as text. The content security policy admits the page's own script
and style by their hashes and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from regard.errors import UserError
from regard.inspection.packing import one_line, packed
from regard.inspection.page import Exhibit

WEB = Path(__file__).with_name("web")
SCRIPTS = (
    "dom", "weights", "script", "tokens", "picture", "graph", "sound", "heat", "heads", "cover", "sight", "covering",
    "server", "recorder", "answers", "desk", "runs", "main",
)  # fmt: skip
OFFLINE = "img-src data:; media-src blob:"
SERVED = "connect-src 'self'; img-src 'self' data: blob:; media-src blob:; frame-ancestors 'none'"


def write(path: str | Path, exhibits: Sequence[Exhibit], title: str = "Attention") -> Path:
    """Write the page for `exhibits` to `path` (.html) and return the path."""
    path = Path(path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"{path}: a page is written as .html, not as {path.suffix or 'a file without suffix'}.")
    if not exhibits:
        raise UserError(f"{path}: there is no example to show, give at least one.")
    examples = [packed(exhibit, f"Example {number}") for number, exhibit in enumerate(exhibits, 1)]
    try:
        path.write_text(page({"examples": examples}, title, policy(OFFLINE)), encoding="utf-8", newline="\n")
    except OSError as fault:
        raise UserError(
            f"{path} cannot be written ({fault.strerror}): give a file in an existing folder you may write to."
        ) from fault
    return path


def page(data: object, title: str, allowed: str) -> str:
    """Return the page with this data in it, under a content security policy."""
    parts = {
        "title": html.escape(one_line(title)),
        "policy": allowed,
        "style": style(),
        "script": script(),
        "data": as_json(data),
    }
    template = (WEB / "page.html").read_text(encoding="utf-8")
    # one pass, so that a token that looks like a place-holder stays a token
    return re.sub(r"\{\{([a-z-]+)\}\}", lambda match: parts[match[1]], template)


def policy(more: str) -> str:
    """Return the content security policy of the page: nothing but its own script and style, and `more`."""
    own = f"script-src '{_hash(script())}'; style-src '{_hash(style())}'"
    return f"default-src 'none'; {own}; {more}; base-uri 'none'; form-action 'none'"


@cache
def script() -> str:
    return "\n".join((WEB / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS)


@cache
def style() -> str:
    return (WEB / "style.css").read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def as_json(data: object) -> str:
    """Return JSON that cannot end its script element or open a comment: < > & and non-ASCII are escaped."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return re.sub("[<>&]", lambda match: f"\\u{ord(match[0]):04x}", text)
