"""Numbered lines of text from files, gzipped or not, and the faults in them.

Files are streamed: a corpus may be larger than memory. A path may lead to a file in a zip archive. Text comes out in
Unicode's NFC form, whatever its line ends are, and UTF-16 as UTF-8.
"""

from __future__ import annotations

import codecs
import gzip
import io
import json
import re
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, cast

from regard.data.folders import ZIP, member_of
from regard.errors import UserError

LONGEST_LINE = 16 * 2**20  # bytes: a "line" beyond this is no text, and would be held in memory whole
HEAD = 1 << 16  # bytes that tell of encoding and line ends
UTF_8 = "utf-8"
MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}  # byte order marks
ESCAPED = re.compile(r"\\u[dD][89a-fA-F]")  # a surrogate in JSON
LONE = re.compile("[\ud800-\udfff]")  # half a surrogate pair
NAME_IT = "name its encoding: `regard train FILE --set data.encoding=latin-1`"


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault at one line, or (line 0) of a whole file; `kind` is the same for faults that a report shows together."""

    file: str
    line: int
    what: str
    kind: str = "other"

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.what}" if self.line else f"{self.file}: {self.what}"


OnFault = Callable[[Fault], None]


def refuse(fault: Fault) -> NoReturn:
    """Raise UserError: the default for a fault."""
    raise UserError(str(fault))


def from_json(text: str) -> Any:
    """Return the value of a JSON text; half a surrogate pair, which JSON can say and UTF-8 cannot, is U+FFFD."""
    found = json.loads(text)
    return _mended(found) if ESCAPED.search(text) else found


def _mended(found: Any) -> Any:
    if isinstance(found, str):
        return LONE.sub("\ufffd", found)
    if isinstance(found, list):
        return [_mended(each) for each in found]
    return {_mended(key): _mended(value) for key, value in found.items()} if isinstance(found, dict) else found


# ---------------------------------------------------------------------------------------------- bytes


@contextmanager
def open_file(path: Path | str) -> Iterator[BinaryIO]:
    """Open a file, or a member of a zip archive, unpacked if it is gzipped. Every failure raises UserError."""
    path = Path(path)
    try:
        with _open(path) as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            if packed:
                with gzip.open(raw) as unpacked:
                    yield cast(BinaryIO, unpacked)
            else:
                yield raw
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{path} is a damaged gzip file ({error}); fetch or pack it again.") from error
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError) as error:  # damaged, locked, packed in another way
        raise UserError(f"{path} cannot be unpacked: {error}.") from error
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}.") from error


@contextmanager
def _open(path: Path) -> Iterator[BinaryIO]:
    member = None if path.exists() else member_of(path)
    if member is not None:
        with zipfile.ZipFile(member.path) as archive, archive.open(member.member) as inside:
            yield cast(BinaryIO, inside)
        return
    if not path.exists():
        raise UserError(f"{path}: there is no such file; check the name and the folder.")
    if path.is_dir():
        raise UserError(f"{path} is a folder, expected a file; name the file or files inside it.")
    if not path.is_file():
        raise UserError(
            f"{path} is not a regular file, and it has to be read more than once; give it as -, or save it."
        )
    with path.open("rb") as raw:
        yield raw


@contextmanager
def open_bytes(path: Path | str) -> Iterator[BinaryIO]:
    r"""Open the bytes of a text file: UTF-16 as UTF-8, and line ends `\r` as `\n`."""
    with open_file(path) as stream:
        head = stream.read(HEAD)
        stream.seek(0)
        if head.startswith(ZIP):
            raise UserError(f"{path} is a zip archive, expected text; name a file in it: {path}/NAME.")
        encoding = MARKS.get(head[:2]) or _without_marks(head)
        if encoding is not None:
            decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
            head = codecs.getincrementaldecoder(encoding)(errors="replace").decode(head).encode()
            stream = _recoded(stream, lambda block, last: decoder.decode(block, last).encode())
        if b"\r" in head and b"\n" not in head:
            stream = _recoded(stream, _returns())
        yield stream


def _without_marks(head: bytes) -> str | None:
    """Return the encoding of UTF-16 text without a byte order mark: every other byte of Latin letters is 0."""
    even, odd = head[0:2000:2].count(0), head[1:2000:2].count(0)
    half = len(head[:2000]) // 2
    if half < 8:
        return None
    if odd > 0.7 * half and even < 0.1 * half:
        return "utf-16-le"
    return "utf-16-be" if even > 0.7 * half and odd < 0.1 * half else None


class _Recoding(io.RawIOBase):
    """A stream whose blocks are changed as they are read."""

    def __init__(self, stream: BinaryIO, change: Callable[[bytes, bool], bytes]) -> None:
        super().__init__()
        self._stream, self._change, self._rest, self._ended = stream, change, b"", False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest and not self._ended:
            block = self._stream.read(HEAD)
            self._ended = not block
            self._rest = self._change(block, self._ended)
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count


def _recoded(stream: BinaryIO, change: Callable[[bytes, bool], bytes]) -> BinaryIO:
    return cast(BinaryIO, io.BufferedReader(_Recoding(stream, change), HEAD))


def _returns() -> Callable[[bytes, bool], bytes]:
    r"""Return a change of `\r` and `\r\n` to `\n`, also where a block ends between the two."""
    waiting = b""

    def change(block: bytes, last: bool) -> bytes:
        nonlocal waiting
        block, waiting = waiting + block, b""
        if block.endswith(b"\r") and not last:
            block, waiting = block[:-1], b"\r"
        return block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    return change


# ---------------------------------------------------------------------------------------------- lines


def read_lines(path: Path | str, longest: int | None = None, *, cut: bool = False) -> Iterator[tuple[int, bytes]]:
    r"""Yield numbered lines of a file, gzipped or not, without line ends (`\n` or `\r\n`) and byte order mark.

    A line of more than `longest` bytes is refused, or `cut`: then its parts are lines.
    """
    number, longest = 0, longest or LONGEST_LINE
    with open_bytes(path) as stream:
        while line := stream.readline(longest + 1):
            number += 1
            if len(line) > longest and not cut:
                raise UserError(
                    f"{path}:{number}: the line is longer than {longest:,} bytes; is this text with line breaks?"
                )
            if number == 1:
                line = line.removeprefix(codecs.BOM_UTF8)
            yield number, line.removesuffix(b"\n").removesuffix(b"\r")


def count_lines(path: Path | str) -> int:
    """Return the number of lines of a file, of any length."""
    count, last = 0, b"\n"
    with open_bytes(path) as stream:
        while block := stream.read(1 << 20):
            count, last = count + block.count(b"\n"), block[-1:]
    return count + (last != b"\n")


def check_encoding(encoding: str) -> None:
    """Refuse an encoding that is unknown, or that does not write line ends and tabs as ASCII does.

    UTF-16 is known by its bytes, whatever the encoding is said to be.
    """
    printable = bytes(range(32, 127)) + b"\t\n\r"
    try:
        if _is_utf_16(encoding):
            return
        decoded = printable.decode(encoding)
        # Only real text encodings come so far: bytes.decode refuses rot13, zlib and the like with a LookupError.
        sound = decoded == printable.decode("ascii") and "\n\t".encode(codecs.lookup(encoding).name) == b"\n\t"
    except (LookupError, ValueError):
        sound = False
    if not sound:
        raise UserError(
            f"The encoding {encoding!r} is unknown or does not write line ends as ASCII does; expected one such as "
            f"utf-8, latin-1, cp1252 or shift_jis, or save the file as UTF-8."
        )


def _is_utf_16(encoding: str) -> bool:
    return codecs.lookup(encoding).name.startswith("utf-16")


def decode_line(file: str, number: int, raw: bytes, on_fault: OnFault = refuse, encoding: str = UTF_8) -> str | None:
    """Return the text of one line in NFC form, or report its fault and return None."""
    if encoding != UTF_8 and _is_utf_16(encoding):
        encoding = UTF_8  # which is what `open_bytes` makes of it
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as error:
        name = "UTF-8" if encoding == UTF_8 else encoding
        what = (
            f"byte {error.start + 1} (0x{raw[error.start]:02x}) is not valid {name}; "
            f"save the file as UTF-8, or {NAME_IT}"
        )
        on_fault(Fault(file, number, what, f"not valid {name}"))
        return None
    if "\0" in text:
        what = f"character {text.index(chr(0)) + 1} is NUL; remove it"
        on_fault(Fault(file, number, what, "NUL characters"))
        return None
    return unicodedata.normalize("NFC", text)


def read_text(path: Path | str, on_fault: OnFault | None = None, encoding: str = UTF_8) -> Iterator[tuple[int, str]]:
    """Yield numbered lines of text; a line with a fault is reported and left out."""
    for number, raw in read_lines(path):
        text = decode_line(str(path), number, raw, on_fault or refuse, encoding)
        if text is not None:
            yield number, text
