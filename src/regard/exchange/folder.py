"""A folder in the Hugging Face layout: config.json, model.safetensors, tokenizer.json. Read with distrust."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from regard.errors import UserError
from regard.runs.checkpoint import Shapes
from regard.text import published
from regard.text.published import PublishedTokenizer
from regard.text.tokenizer import parsed, understood

CONFIG, WEIGHTS, TOKENIZER, TOKENIZER_CONFIG = (
    "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"
)  # fmt: skip
LAYOUT = f"expected a folder in the Hugging Face layout ({CONFIG}, {WEIGHTS}, {TOKENIZER})"
FLOATS = ("F32", "F16", "BF16")
LARGEST = 1 << 20  # bytes of a config.json


@dataclass(frozen=True)
class Facts:
    """The content of a config.json; every fault is a sentence that names the key."""

    values: dict[str, Any]
    path: Path

    @staticmethod
    def read(path: Path) -> Facts:
        if path.stat().st_size > LARGEST:
            raise UserError(f"{path} has {path.stat().st_size:,} bytes, expected at most {LARGEST:,}.")
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise UserError(f"{path} is not valid JSON ({error}): restore it.") from error
        if not isinstance(found, dict):
            raise UserError(f"{path} holds no settings: expected a JSON object.")
        return Facts(found, path)

    def get(self, key: str, default: Any = None) -> Any:
        value = self.values.get(key)
        return default if value is None else value

    def number(self, key: str, default: int | None = None) -> int:
        value = self.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 10**7:
            raise UserError(f"{self.path}: {key} is {value!r}, expected a whole number above 0.")
        return value

    def share(self, key: str, default: float = 0.0) -> float:
        value = self.get(key, default)
        if not isinstance(value, int | float) or not 0 <= value < 1:
            raise UserError(f"{self.path}: {key} is {value!r}, expected a number from 0 to below 1.")
        return float(value)

    def id(self, key: str, default: int | None = None) -> int | None:
        """Return a token's number; the first of several."""
        value = self.get(key, default)
        value = value[0] if isinstance(value, list) and value else value
        if value is not None and (not isinstance(value, int) or not 0 <= value < 10**7):
            raise UserError(f"{self.path}: {key} is {value!r}, expected the number of a token.")
        return value

    def demand(self, key: str, expected: Any, default: Any = None) -> None:
        """Refuse any other value: Regard has no such model."""
        value = self.get(key, expected if default is None else default)
        if value != expected:
            raise UserError(f"{self.path}: {key} is {value!r}: only a model with {expected!r} can be imported.")

    def activation(self, key: str, default: str) -> str:
        value = self.get(key, default)
        if value not in ACTIVATIONS:
            raise UserError(f"{self.path}: {key} is {value!r}, expected one of {', '.join(ACTIVATIONS)}.")
        return ACTIVATIONS[value]


ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "swish": "swish",
    "silu": "swish",
}
PUBLISHED = {"relu": "relu", "gelu": "gelu", "gelu_tanh": "gelu_new", "swish": "swish"}


def need(folder: Path, name: str) -> Path:
    """Return the path of a file in the folder; refuse a folder without it, and say what is there instead."""
    path = folder / name
    if path.is_file():
        return path
    if not folder.is_dir():
        if not folder.exists():
            fetch = f"hf download {folder} --local-dir {folder.name}"
            raise UserError(f"{folder} does not exist: {LAYOUT}. Download it first, for example with `{fetch}`.")
        raise UserError(f"{folder} is a file: {LAYOUT}.")
    others = {file.name for file in folder.iterdir()}
    if name == WEIGHTS and f"{WEIGHTS}.index.json" in others:
        raise UserError(f"{folder} has its weights in several files: save the model as one {WEIGHTS} first.")
    if name == WEIGHTS and any(other.endswith((".bin", ".pt", ".pth", ".ckpt")) for other in others):
        raise UserError(f"{folder} has its weights in pickle files, which may run code: save them as {WEIGHTS} first.")
    if name == TOKENIZER and any(other.endswith(".spm") for other in others):
        raise UserError(f"{folder} has SentencePiece files and no {TOKENIZER}: save its fast tokenizer there first.")
    raise UserError(f"{folder} has no {name}: {LAYOUT}.")


class Weights:
    """The tensors of a file by `canonical(name)`; those without a canonical name are passed over."""

    def __init__(self, path: Path, canonical: Callable[[str], str | None]) -> None:
        self.path = path
        self.names: dict[str, str] = {}
        self.shapes: Shapes = {}
        try:
            with safe_open(path, "pt") as file:  # compares the header with the file's size; nothing is allocated
                for name in file.offset_keys():
                    known = canonical(name)
                    if known is None or known in self.names:
                        continue
                    part = file.get_slice(name)
                    if part.get_dtype() not in FLOATS:
                        raise UserError(f"{path}: {name!r} is {part.get_dtype()}, expected {', '.join(FLOATS)}.")
                    self.names[known], self.shapes[known] = name, tuple(part.get_shape())
        except (SafetensorError, OSError, MemoryError) as error:
            raise UserError(f"{path} is damaged ({error}): fetch or save it again.") from error

    def refuse_unfit(self, expected: Shapes) -> None:
        """Compare with the shapes that a config describes, before anything is allocated."""
        for name, shape in expected.items():
            if name not in self.shapes:
                raise UserError(f"{self.path} has no {name!r}, which the model in {CONFIG} needs.")
            if self.shapes[name] != shape:
                raise UserError(
                    f"{self.path}: {name!r} has the shape {list(self.shapes[name])}, but {CONFIG} says {list(shape)}."
                )
        for name in self.shapes.keys() - expected.keys():
            raise UserError(f"{self.path} has {self.names[name]!r}, which the model in {CONFIG} has not.")

    def load(self) -> dict[str, Tensor]:
        try:
            with safe_open(self.path, "pt") as file:
                return {known: file.get_tensor(name).float() for known, name in self.names.items()}
        except (SafetensorError, OSError, MemoryError) as error:
            raise UserError(f"{self.path} is damaged ({error}): fetch or save it again.") from error


class Vocabulary:
    """A tokenizer.json and what is said about its special tokens beside it."""

    def __init__(self, path: Path, rows: int) -> None:
        self.path, self.rows = path, rows
        if path.stat().st_size > (1 << 22) + 1000 * rows:
            raise UserError(f"{path} has {path.stat().st_size:,} bytes, too many for the {rows:,} tokens of {CONFIG}.")
        self.file = parsed(path)
        count = published.tokens_in(self.file, path)
        if count > rows:
            raise UserError(f"{path} has {count:,} tokens, but vocab_size in {CONFIG} is {rows:,}.")
        if rows > count + published.SPARE_ROWS:
            raise UserError(f"{path} has {count:,} tokens, far fewer than vocab_size in {CONFIG}, which is {rows:,}.")
        vocabulary = self.file["model"]["vocab"]
        listed = vocabulary if isinstance(vocabulary, dict) else {entry[0]: n for n, entry in enumerate(vocabulary)}
        self.ids: dict[str, int] = listed | {
            token["content"]: token["id"] for token in self.file.get("added_tokens", [])
        }
        beside = path.parent / TOKENIZER_CONFIG
        self.beside = Facts.read(beside).values if beside.is_file() else {}

    def named(self, role: str, default: str | None = None) -> int | None:
        """Return the id of the `role` token ("cls_token") as it is named beside the tokenizer."""
        name = self.beside.get(role) or default
        name = name.get("content") if isinstance(name, dict) else name
        return self.ids.get(name) if isinstance(name, str) else None

    def unknown(self) -> int | None:
        model = self.file["model"]
        found = self.ids.get(model["unk_token"]) if isinstance(model.get("unk_token"), str) else model.get("unk_id")
        return found if isinstance(found, int) else self.named("unk_token")

    def needed(self, role: str, id: int | None) -> int:
        if id is None:
            raise UserError(f"{self.path} names no {role}: give one in {TOKENIZER_CONFIG}.")
        return id

    def foreign(
        self, specials: tuple[int | None, int | None, int | None, int | None], mask: int | None = None
    ) -> PublishedTokenizer:
        """Return the tokenizer with these published ids for PAD, UNKNOWN, START and END."""
        given = [id for id in (*specials, mask) if id is not None]
        if len({*given}) < len(given) or any(id >= self.rows for id in given):
            raise UserError(
                f"{self.path}: padding, unknown, start, end and mask have the ids {given}, expected different ones "
                f"below {self.rows:,}."
            )
        return understood(self.path, lambda: PublishedTokenizer(self.file, self.rows, specials, mask))
