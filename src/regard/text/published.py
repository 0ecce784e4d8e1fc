"""A published tokenizer: a `tokenizer.json` that others trained, in our order of ids.

Its ids are reordered: PAD, UNKNOWN, START and END are 0 to 3, and the mask, if there is one, comes last. The rows of
embedding tables are reordered with them. The file in a run folder holds the published one unchanged, and

    "foreign": {"rows": …, "specials": [pad, unknown, start, end], "mask": …}

with the published ids; a special token that the published model lacks is null, and a row of its own is made for it.
Tokens are shown as ours are: ▁ stands before what begins a word.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders

from regard.errors import UserError
from regard.text import scripts
from regard.text.tokenizer import END, PAD, SHOWN_UNKNOWN, SPACE, STANDING, START, UNKNOWN, Tokenizer, understood

SPARE_ROWS = 1_000_000  # that a model may have beyond the tokens of its vocabulary
NEW = -1  # in `rows`: a token that the published model lacks
Piece = tuple[int, str, int]  # id, what is shown, and the place in the text where it begins


class PublishedTokenizer(Tokenizer):
    """Our ids for the tokens of a published tokenizer. `rows[our id]` is the published id."""

    def __init__(self, file: dict[str, Any], rows: int, specials: Sequence[int | None], mask: int | None) -> None:
        self.file, self.specials, self.mask = file, list(specials), mask
        self._inner = tokenizers.Tokenizer.from_str(json.dumps(file))
        self._inner.no_padding()
        self._inner.no_truncation()
        moved = {*specials, mask}
        others = [id for id in range(rows) if id not in moved]
        first = [NEW if id is None else id for id in specials]
        self.rows = [*first, *others, *([] if mask is None else [mask])]
        self._ours = {theirs: ours for ours, theirs in enumerate(self.rows)}
        self.level, self._plain = _manner(file)

    @staticmethod
    def of(content: dict[str, Any], path: Path) -> PublishedTokenizer:
        """Return the tokenizer that a file in a run folder describes."""
        about, file = content.get("foreign"), content.get("tokenizer")
        if not isinstance(about, dict) or not isinstance(file, dict):
            raise UserError(f"{path} is a damaged tokenizer file (a part is missing); restore it.")
        rows, specials, mask = about.get("rows"), about.get("specials"), about.get("mask")
        most = tokens_in(file, path)
        given = [id for id in (*specials, mask) if id is not None] if isinstance(specials, list) else []
        sound = isinstance(rows, int) and most <= rows <= most + SPARE_ROWS and len(specials or ()) == 4
        if not sound or len({*map(str, given)}) < len(given) or not all(
            isinstance(id, int) and 0 <= id < (rows or 0) for id in given
        ):  # fmt: skip
            raise UserError(f"{path} is a damaged tokenizer file (its ids do not fit together); restore it.")
        return understood(path, lambda: PublishedTokenizer(file, rows or 0, specials or [], mask))

    @property
    def size(self) -> int:
        return len(self.rows) - (self.mask is not None)

    @property
    def lowercase(self) -> bool:
        return any(
            part.get("type") == "Lowercase" or (part.get("type") == "BertNormalizer" and bool(part.get("lowercase")))
            for part in parts_of(self.file.get("normalizer"))
        )

    def encode(self, text: str) -> list[int]:
        return [id for id, _, _ in self._pieces(text)]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        if any(STANDING in text for text in texts):
            return [self.encode(text) for text in texts]
        encodings = self._inner.encode_batch_fast([_sound(text) for text in texts], add_special_tokens=False)
        return [[self._own(id) for id in encoding.ids] for encoding in encodings]

    def decode(self, ids: Iterable[int]) -> str:
        kept = [self.rows[id] for id in map(int, ids) if id not in (PAD, START, END) and id < self.size]
        text = self._inner.decode([id for id in kept if id != NEW], skip_special_tokens=False)
        unknown = self.rows[UNKNOWN]
        if unknown != NEW and unknown in kept:
            text = text.replace(self._inner.id_to_token(unknown) or SHOWN_UNKNOWN, SHOWN_UNKNOWN)
        return text.rstrip("\ufffd")  # the first bytes of a character that is not complete yet

    def pieces(self, text: str) -> list[str]:
        return [piece for _, piece, _ in self._pieces(text)]

    def pieces_of(self, ids: Iterable[int]) -> list[str]:
        return [
            self._plain(self._inner.id_to_token(self.rows[id]) or "") if id != UNKNOWN else SHOWN_UNKNOWN
            for id in map(int, ids)
            if id not in (PAD, START, END)
        ]

    def groups(self, text: str) -> list[int]:
        """Return the word of each token, by its place in the text.

        That is the number of words, and of units without a space (`scripts.opens`), that began before it.
        """
        begins = [place for place, character in enumerate(text) if not character.isspace() and _blank(text, place - 1)]
        groups, word, units, before = [], 0, 0, ""
        for _, piece, place in self._pieces(text):
            known = word
            while word + 1 < len(begins) and begins[word + 1] <= _skip(text, place):
                word += 1
            units += word == known and scripts.opens(before, piece.removeprefix(SPACE))
            before = piece.removeprefix(SPACE)
            groups.append(word + units)
        return groups

    def groups_of(self, ids: Iterable[int]) -> list[int]:
        groups: list[int] = []
        before = ""
        for piece in self.pieces_of(ids):
            begins = piece.startswith(SPACE) or self.level == "symbols" or scripts.opens(before, piece)
            groups.append(0 if not groups else groups[-1] + begins)
            before = piece.removeprefix(SPACE)
        return groups

    def content(self) -> dict[str, Any]:
        count = len(self.rows) - self.specials.count(None)
        return {"foreign": {"rows": count, "specials": self.specials, "mask": self.mask}, "tokenizer": self.file}

    def token(self, id: int) -> str:
        """Return the published name of a token."""
        return self._inner.id_to_token(self.rows[id]) or "" if self.rows[id] != NEW else ""

    def closes(self) -> bool:
        """Return True if the published tokenizer appends END to a text."""
        ids = self._inner.encode("a", add_special_tokens=True).ids
        return bool(ids) and self._ours.get(ids[-1]) == END

    def _own(self, id: int) -> int:
        """Return our id for a published one. Padding that is written in a text is not padding, but an unknown token."""
        return self._ours.get(id, UNKNOWN) or UNKNOWN

    def _pieces(self, text: str) -> list[Piece]:
        """Return the tokens of a text. The stand-in for a blank is a token: a published normaliser may drop it.

        Of characters it is one by itself, and the spaces beside it are tokens, too.
        """
        pieces: list[Piece] = []
        start, sound = 0, _sound(text)
        for number, part in enumerate([sound] if self.level == "characters" else sound.split(STANDING)):
            if number:
                pieces.append((UNKNOWN, STANDING, start - 1))
            encoding = self._inner.encode(part, add_special_tokens=False)
            for id, token, (begin, end) in zip(encoding.ids, encoding.tokens, encoding.offsets, strict=True):
                own = self._own(id)
                shown = self._plain(token)
                if own == UNKNOWN:
                    space = self.level in ("bpe", "unigram") and _blank(text, start + begin - 1)
                    shown = SPACE * space + part[begin:end]
                pieces.append((own, shown, start + begin))
            start += len(part) + 1
        return pieces


def _sound(text: str) -> str:
    """Return text that has a UTF-8 form: a lone surrogate, from a broken terminal, has none."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _blank(text: str, place: int) -> bool:
    return place < 0 or text[place].isspace()


def _skip(text: str, place: int) -> int:
    """Return the first place from here on that is not blank: a token may begin with the blank before its word."""
    while place < len(text) and text[place].isspace():
        place += 1
    return place


# ---------------------------------------------------------------------------------------------- published files


def tokens_in(file: dict[str, Any], path: Path) -> int:
    """Return the largest id plus one, checked first: the library counts up to that id, even to 2³¹."""
    vocabulary = file["model"].get("vocab") if isinstance(file.get("model"), dict) else None
    added = file.get("added_tokens") or []
    if not isinstance(vocabulary, dict | list) or not isinstance(added, list):
        raise UserError(f"{path} is a damaged tokenizer file (it has no model.vocab); restore it.")
    ids: list[Any] = list(vocabulary.values()) if isinstance(vocabulary, dict) else [len(vocabulary) - 1]
    ids += [token.get("id") if isinstance(token, dict) else None for token in added]
    count = len(vocabulary) + len(added)
    if not all(isinstance(id, int) and 0 <= id < count + SPARE_ROWS for id in ids):
        raise UserError(f"{path} is a damaged tokenizer file (an id is not a number up to {count:,}); restore it.")
    return 1 + max(ids, default=-1)


def parts_of(part: Any) -> list[dict[str, Any]]:
    """Return a part of a tokenizer.json as a list, or the parts of a sequence."""
    if not isinstance(part, dict):
        return []
    inner = next((part[name] for name in ("normalizers", "pretokenizers", "decoders") if name in part), None)
    return [part] if not isinstance(inner, list) else [each for one in inner for each in parts_of(one)]


def byte_names() -> dict[str, int]:
    """Return the byte of each character in byte-level tokens (Radford et al. 2019).

    Printable bytes stand for themselves; the others are the characters 256, 257 … in their order.
    """
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(256 + n): b for n, b in enumerate(others)}


def _manner(file: dict[str, Any]) -> tuple[str, Callable[[str], str]]:
    """Return the nearest level, and a function that shows a published token as ours are shown."""
    model = file.get("model") or {}
    kinds = {part.get("type") for name in ("pre_tokenizer", "decoder") for part in parts_of(file.get(name))}
    if model.get("type") == "WordPiece":
        prefix = str(model.get("continuing_subword_prefix") or "##")
        return "bpe", lambda token: token.removeprefix(prefix) if token.startswith(prefix) else SPACE + token
    if "ByteLevel" in kinds:
        return "bpe", _from_bytes
    if "Metaspace" in kinds:
        return "unigram" if model.get("type") == "Unigram" else "bpe", lambda token: token
    if "Fuse" in kinds:
        return "characters", lambda token: "␣" if token.isspace() else token
    return "symbols", lambda token: token


def _from_bytes(token: str) -> str:
    text = decoders.ByteLevel().decode([token])
    return SPACE + text[1:] if text.startswith(" ") else text
