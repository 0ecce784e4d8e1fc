"""Plain text, line by line exactly as it is; a text without line breaks is cut at blanks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from regard.data.example import Example, TextExample
from regard.data.format import Format
from regard.data.lines import UTF_8, OnFault, decode_line, open_bytes, read_text

ENDLESS = 1 << 20  # bytes without a line break: there are hardly any farther on
PIECES, SHORTEST, LONGEST = 20, 200, 4096  # of a text in one line: how many, and their bytes


def read_plain(path: Path | str, form: Format, report: OnFault, encoding: str = UTF_8) -> Iterator[TextExample]:
    """Yield the lines of a text as they are, with blank lines and with blanks at the ends."""
    del form
    size = _piece(path)
    lines = read_text(path, report, encoding) if size is None else _pieces(path, size, report, encoding)
    for number, text in lines:
        yield Example(text, "", str(path), number)


def _piece(path: Path | str) -> int | None:
    """Return the bytes of a piece for a text that is one line; None for a text with line breaks."""
    with open_bytes(path) as stream:
        head = stream.readline(ENDLESS)
        if head.endswith(b"\n") and stream.read(1):
            return None
        length = len(head.strip())
    return min(LONGEST, max(SHORTEST, length // PIECES)) if length >= 2 * SHORTEST else None


def _pieces(path: Path | str, size: int, report: OnFault, encoding: str) -> Iterator[tuple[int, str]]:
    """Yield a text in pieces of about so many bytes that end at blanks, each as a line of its own."""
    number, rest = 0, b""
    with open_bytes(path) as stream:
        while block := stream.read(1 << 20):
            rest += block
            while len(rest) > 2 * size and (cut := _cut(rest, size)) is not None:
                number, piece, rest = number + 1, rest[:cut], rest[cut + 1 :]
                text = decode_line(str(path), number, piece.removeprefix(b"\xef\xbb\xbf"), report, encoding)
                if text is not None:
                    yield number, text
    text = decode_line(str(path), number + 1, rest.removesuffix(b"\n").removesuffix(b"\r"), report, encoding)
    if text:
        yield number + 1, text


def _cut(text: bytes, size: int) -> int | None:
    """Return the first line break, else the first blank behind so many bytes."""
    found = text.find(b"\n", 0, 2 * size)
    found = found if found >= 0 else text.find(b" ", size)
    return found if found >= 0 else None
