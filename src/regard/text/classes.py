"""Classes: the labels or tags that an output chooses between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from regard.errors import UserError
from regard.text import labels
from regard.text.tokenizer import Tokenizer


class Classes:
    """Names and their numbers; `blank` stands for a blank inside a name."""

    def __init__(self, vocabulary: Tokenizer, blank: str = " ") -> None:
        self.vocabulary, self.names = vocabulary, labels.classes(vocabulary, blank)

    @classmethod
    def learn(cls, names: Counter[str], blank: str, origin: Classes | None) -> Classes:
        """Learn the names, the most frequent first; the same ones as `origin`'s keep their numbers."""
        own = cls(labels.learn(names.elements()), blank)
        return origin if origin is not None and {*origin.names} == {*own.names} else own

    @classmethod
    def load(cls, path: Path, blank: str = " ") -> Classes:
        return cls(Tokenizer.load(path), blank)

    def __len__(self) -> int:
        return len(self.names)

    def encode(self, texts: Iterable[str]) -> list[list[int]]:
        """Return the numbers of the names in each text; one that is not known counts as the first."""
        rows = self.vocabulary.encode_batch(list(texts))
        return [[labels.class_of(id) for id in row] for row in rows]

    def number(self, name: str, noun: str, verb: str, some: str) -> int:
        """Return the number of a name given with --answer; noun, verb and `some` ("one of") are for the complaint."""
        if name in self.names:
            return self.names.index(name)
        known = ", ".join(self.names[:8]) + (" …" if len(self.names) > 8 else "")
        raise UserError(f"--answer {verb} {name!r}, which is not a {noun} of this model, expected {some} {known}.")
