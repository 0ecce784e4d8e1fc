"""Numbered lines of text from files, gzipped or not, and the faults in them.

Files are streamed: a corpus may be larger than memory. Text comes out in Unicode's NFC form.
"""

from __future__ import annotations

import codecs
import gzip
import unicodedata
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NoReturn, cast

from regard.errors import UserError

LONGEST_LINE = 16 * 2**20  # bytes: a "line" beyond this is no text, and would be held in memory whole
UTF_8 = "utf-8"
NAME_IT = "name its encoding: `regard train FILE --set data.encoding=latin-1`"


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault at one line; `kind` is the same for faults that a report shows together."""

    file: str
    line: int
    what: str
    kind: str = "other"

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.what}"


OnFault = Callable[[Fault], None]


def refuse(fault: Fault) -> NoReturn:
    """Raise UserError: the default for a fault."""
    raise UserError(str(fault))


@contextmanager
def open_bytes(path: Path | str) -> Iterator[BinaryIO]:
    """Open the bytes of a file, unpacked if they are gzipped. Every failure raises UserError."""
    path = Path(path)
    if not path.exists():
        raise UserError(f"{path}: there is no such file; check the name and the folder.")
    if path.is_dir():
        raise UserError(f"{path} is a folder, expected a file; name the file or files inside it.")
    if not path.is_file():
        raise UserError(f"{path} is not a regular file, and it has to be read more than once; save it to a file.")
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            if packed:
                with gzip.open(raw) as unpacked:
                    yield cast(BinaryIO, unpacked)
            else:
                yield raw
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{path} is a damaged gzip file ({error}); fetch or pack it again.") from error
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}.") from error


def read_lines(path: Path | str) -> Iterator[tuple[int, bytes]]:
    r"""Yield numbered lines of a file, gzipped or not, without line ends (`\n` or `\r\n`) and byte order mark."""
    number = 0
    with open_bytes(path) as stream:
        while line := stream.readline(LONGEST_LINE + 1):
            number += 1
            if len(line) > LONGEST_LINE:
                raise UserError(
                    f"{path}:{number}: the line is longer than {LONGEST_LINE:,} bytes; is this text with line breaks?"
                )
            if number == 1:
                line = _without_mark(path, line)
            yield number, line.removesuffix(b"\n").removesuffix(b"\r")


def _without_mark(path: Path | str, line: bytes) -> bytes:
    if line.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise UserError(f"{path} is UTF-16 text, expected UTF-8; save it as UTF-8 (iconv -f UTF-16 -t UTF-8).")
    return line.removeprefix(b"\xef\xbb\xbf")


def check_encoding(encoding: str) -> None:
    """Refuse an encoding that is unknown, or that does not write line ends and tabs as ASCII does."""
    printable = bytes(range(32, 127)) + b"\t\n\r"
    try:
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


def decode_line(file: str, number: int, raw: bytes, on_fault: OnFault = refuse, encoding: str = UTF_8) -> str | None:
    """Return the text of one line in NFC form, or report its fault and return None."""
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
