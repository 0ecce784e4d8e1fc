"""Texts as an input: characters, words with their spelling, symbols or sub-words, chosen from an alphabet."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import Field as Setting
from torch import nn

from regard import metrics
from regard.attention import Context
from regard.config import Section, Tables
from regard.data.batches import pad
from regard.data.columns import JOINED
from regard.data.draws import Draws
from regard.data.format import Format, few
from regard.data.recognition import Files, recognise_files
from regard.data.store import Field, id_dtype
from regard.data.survey import Survey
from regard.data.tagged import split_words
from regard.inputs import token_choices
from regard.inputs.embedding import Embedding
from regard.inputs.input import Chosen, Covers, Input, Row, Source, Use, positions_from, readable
from regard.inputs.ngrams import Ngrams
from regard.inputs.sentences import Sentences, firsts
from regard.inputs.words import SPELLINGS, Forgetting, SpelledWords
from regard.inspection.view import Coverable, View, joined
from regard.layers.dropout import Dropout
from regard.layers.first_weights import first_weights
from regard.layers.stem import Marks, Stem
from regard.text import labels, scripts
from regard.text.blanks import BLANK
from regard.text.cutting import composed, places, without
from regard.text.stream import plain, shielded
from regard.text.tokenizer import END, START, SUB_WORDS, UNKNOWN, Tokenizer

Level = Literal["characters", "words", "symbols", "bpe", "unigram"]
BEGIN, FINISH, FINIS = "▶", "■", "∎"  # START and END in pictures; the end alone
NAME = "\t"  # before a name that is one token at the level of characters
HIDDEN = "\ufffd"  # in place of a word that is covered: no model knows it
EDGE = "‖"  # between the parts of a text in pictures, where END stands
PARTS = ("words", *SUB_WORDS)  # levels whose tokens may be parts of a word: at that of words, its punctuation marks


class TokenSettings(Tables):
    """Settings of the cut of texts into tokens."""

    vocabulary: ClassVar[bool] = True

    level: Level = Setting("characters", description="what a token is")
    lowercase: bool = Setting(False, description="in lower case")
    size: int | None = Setting(
        None, ge=5, description="largest number of tokens of the vocabulary (sub-words and words)"
    )

    decomposed: bool = Setting(
        False, description="composed characters (한, ế) are read as their parts; at the level of characters"
    )

    def rows(self) -> int:
        return self.size or 200


class PieceSettings(TokenSettings):
    """Texts of which hidden tokens are predicted."""

    level: Level = Setting("bpe", description="what a token is")


class WordSettings(TokenSettings):
    """Texts that are labelled whole."""

    level: Level = Setting("words", description="what a token is")
    unknown: float = Setting(0.1, ge=0, lt=1, description="share of tokens made unknown in training")


class UnitSettings(TokenSettings):
    """Sentences whose words are labelled."""

    level: Literal["words", "bpe", "unigram"] = Setting(
        "words", description="words with their characters, or sub-words of which the first speaks for its word"
    )
    lowercase: bool = Setting(False, description="tokens in lower case; a word's characters keep theirs")
    size: int | None = Setting(None, ge=5, description="largest number of words or sub-words of the vocabulary")
    unknown: float = Setting(0.1, ge=0, lt=1, description="share of tokens made unknown in training")
    spelling: Literal["cnn", "lstm"] = Setting("cnn", description="what reads a word's characters")
    spelling_width: int = Setting(
        64, ge=2, le=65536, description="share of the width that tells of a word's characters"
    )


SETTINGS: dict[Use, type[TokenSettings]] = {
    Use.SOURCE: TokenSettings,
    Use.UNITS: UnitSettings,
    Use.LABEL: WordSettings,
    Use.STREAM: TokenSettings,
    Use.BLANKS: PieceSettings,
}


class TokenStem(nn.Module):
    """Vectors of tokens; in training some known tokens are unknown."""

    def __init__(self, embedding: nn.Module, forget: float) -> None:
        super().__init__()
        self.embedding, self.forget = embedding, Forgetting(forget)

    @property
    def table(self) -> nn.Embedding:
        """The table of the tokens' vectors."""
        table = self.embedding.table
        assert isinstance(table, nn.Embedding)
        return table

    def forward(self, source: Source) -> Context:
        ids, *more = source.values
        x = self.embedding(self.forget(ids), source.positions, *more)
        return Context(x, source.positions, source.mask, source.units)


class Tokens(Input[str], Covers):
    """Texts in. Where each word is labelled, a text is a sentence of words; else it is cut as a whole."""

    name = "tokens"
    noun = "texts"
    baselines: ClassVar[tuple[str, ...]] = ("deepsets", "window")
    offers: ClassVar[frozenset[str]] = frozenset(("an alphabet", "units to label"))
    alphabet: Tokenizer

    def __init__(self, alphabet: Tokenizer, characters: Tokenizer | None, how: TokenSettings, use: Use) -> None:
        self.alphabet, self.characters, self.how, self.use = alphabet, characters, how, use
        self.sentences = None if characters is None else Sentences(alphabet, characters)
        self.fields = (Field("tokens", id_dtype(alphabet.size)),)
        if characters is not None:
            self.fields += (Field("inside", id_dtype(characters.size)),)

    @staticmethod
    def settings(use: Use) -> type[Section]:
        return SETTINGS[use]

    @classmethod
    def recognise(cls, files: Files, task: str | None) -> Format | None:
        return recognise_files(files, task)

    @staticmethod
    def files(use: Use) -> tuple[str, ...]:
        return ("tokenizer.json", "characters.json") if use is Use.UNITS else ("tokenizer.json",)

    @classmethod
    def learn(cls, how: TokenSettings, use: Use, sources: Sequence[str], origin: Input[Any] | None) -> Self:
        before = origin if isinstance(origin, Tokens) else None
        if not isinstance(how, UnitSettings):
            cleaned = [_cleaned(text, use, how.level) for text in sources]
            if any(JOINED in text for text in cleaned):
                parted = [_parts(text, use) for text in cleaned]
                names = _names(parted) if how.level == "characters" else frozenset()
                cleaned = [NAME + part if part in names else part for parts in parted for part in parts]
            tokens = before.alphabet if before else _learned(cleaned, how.level, how)
            return cls(tokens, None, how, use)
        closed = (" ".join(map(labels.closed, split_words(text))) for text in sources)
        tokens = before.alphabet if before else _learned(closed, "symbols" if how.level == "words" else how.level, how)
        characters = before.characters if before else None
        words = (word for text in sources for word in split_words(text))
        return cls(tokens, characters or Tokenizer.train(words, "characters"), how, use)

    @classmethod
    def load(cls, folder: Path, how: TokenSettings, use: Use, names: Mapping[str, str]) -> Self:
        alphabet = Tokenizer.load(folder / names.get("tokenizer.json", "tokenizer.json"))
        characters = Tokenizer.load(folder / "characters.json") if use is Use.UNITS else None
        return cls(alphabet, characters, how, use)

    def contents(self) -> dict[str, bytes]:
        found = {"tokenizer.json": self.alphabet.as_bytes()}
        return found if self.characters is None else found | {"characters.json": self.characters.as_bytes()}

    # ---- from texts to vectors --------------------------------------------------------------------------------------

    def read(self, line: str) -> str:
        return readable(line) if self.use is Use.STREAM else readable(line).strip()

    @staticmethod
    def unreadable(source: str) -> str:
        return "" if isinstance(source, str) else f"expected a text, found {type(source).__name__}"

    def encode(self, sources: Sequence[str]) -> list[Row]:
        if self.sentences is not None:
            return self.sentences.encode([split_words(unicodedata.normalize("NFC", text)) for text in sources])
        if not any(JOINED in text for text in sources):  # texts of one part are the usual ones
            cleaned = [_cleaned(text, self.use, self.alphabet.level) for text in sources]
            return [(ids,) for ids in self.alphabet.encode_batch(cleaned)]
        parted = [self._parted(text) for text in sources]
        encoded = iter(self.alphabet.encode_batch([part for parts in parted for part in parts]))
        return [(_with_ends([next(encoded) for _ in parts]),) for parts in parted]

    def _parted(self, source: str) -> list[str]:
        """Return the parts of a text; one that names something, such as a language, is one token."""
        parts = _parts(_cleaned(source, self.use, self.alphabet.level), self.use)
        if len(parts) == 1 or self.alphabet.level != "characters":
            return parts
        return [NAME + part if self._known(part) else part for part in parts]

    def _known(self, part: str) -> bool:
        ids = self.alphabet.encode(NAME + part)
        return len(ids) == 1 and ids[0] != UNKNOWN

    def units(self, row: Row) -> int:
        if self.sentences is None or self.sentences.spelled:
            return len(row[0])
        return int(np.sum(np.asarray(row[1])))

    def parts(self, row: Row, most: int) -> list[Row]:
        if len(row[0]) <= most:
            return [row] if len(row[0]) else []
        if self.sentences is not None:
            return list(self.sentences.parts(row, most))
        count = -(-len(row[0]) // most)
        ends = [i * len(row[0]) // count for i in range(count + 1)]
        return [(row[0][a:b],) for a, b in pairwise(ends)]

    def collate(self, rows: Sequence[Row], extra: int = 0) -> Source:
        begin, end = [START] * (Marks.FIRST in self.marks), [END] * (Marks.LAST in self.marks)
        arrays = [np.asarray([*begin, *row[0], *end] if self.marks else row[0]) for row in rows]
        ids = pad(arrays)
        if extra:
            ids = np.pad(ids, ((0, 0), (0, extra)))
        values: tuple[torch.Tensor, ...] = (torch.from_numpy(ids),)
        positions = positions_from([len(array) for array in arrays], ids.shape[1])
        if self.sentences is None:
            return Source(values, positions)
        if not self.sentences.spelled:
            return Source(values, positions, units=firsts(rows, len(begin)))
        spellings, which = self.sentences.spellings(rows)
        where = torch.from_numpy(np.pad(which, ((0, 0), (len(begin), len(end) + extra))))
        units = None
        if self.marks:
            units = firsts([(row[0], [1] * len(row[0])) for row in rows], len(begin))
        return Source((*values, spellings, where), positions, units=units)

    def vary(self, source: Source, draws: Draws) -> Source:  # noqa: ARG002
        return source

    def module(self, stem: Stem) -> TokenStem:
        how, size = self.how, self.alphabet.size
        forget = how.unknown if isinstance(how, WordSettings | UnitSettings) else 0.0
        spelled = self.sentences is not None and self.sentences.spelled
        if stem.pixels is not None:
            raise ValueError("this network reads pixels, and texts have none: choose another kind, such as transformer")
        if stem.whole is not None:
            if spelled:
                raise ValueError("model.kind=bert reads sub-words: set tokens.level to bpe or unigram")
            return TokenStem(stem.whole(size), forget)
        if spelled:
            assert isinstance(how, UnitSettings)
            assert self.characters is not None
            spelling = SPELLINGS[how.spelling](self.characters.size, how.spelling_width, Dropout(stem.dropout))
            return TokenStem(SpelledWords(size, stem.width, spelling, stem.place, Dropout(stem.dropout)), forget)
        runs = Ngrams(stem.ngrams, stem.buckets, stem.width) if stem.ngrams > 1 else None
        table = Embedding(size, stem.width, stem.place, Dropout(stem.dropout), scale=stem.scale, ngrams=runs)
        if stem.std is not None:
            first_weights(table, std=stem.std)
        return TokenStem(table, forget)

    def prepare(self, module: nn.Module, rows: Callable[[], Iterator[Row]]) -> None:
        """Find the n-grams that are frequent enough to be learned."""
        assert isinstance(module, TokenStem)
        runs = getattr(module.embedding, "ngrams", None)
        if isinstance(runs, Ngrams):
            runs.know(np.asarray(row[0]) for row in rows())

    # ---- for people -------------------------------------------------------------------------------------------------

    def view(self, source: str) -> View:
        begin = [BEGIN] * (Marks.FIRST in self.marks)
        end = [FINIS if self.marks == Marks.LAST else FINISH] * (Marks.LAST in self.marks)
        if self.sentences is not None:
            words = split_words(unicodedata.normalize("NFC", source))
            pieces = [self.alphabet.encode(labels.closed(word)) or [0] for word in words]
            groups = [number for number, ids in enumerate(pieces) for _ in ids]
            names = [words[group] for group in groups]
            units = [len(begin) + i for i, g in enumerate(groups) if i == 0 or groups[i - 1] != g]
            return _view(names, groups, words, begin, end, units, merged=True)
        names, groups = [], []
        for number, text in enumerate(self._parted(source)):
            shift = groups[-1] + 1 if groups else 0
            if number:
                names.append(EDGE)
                groups.append(shift)
                shift += 1
            names += [plain(piece, self.alphabet.level) for piece in self.alphabet.pieces(text)]
            if self.alphabet.level in PARTS:
                groups += [shift + group for group in self.alphabet.groups(text)]
        if self.alphabet.level not in PARTS:
            return View([*begin, *names, *end])
        return _view(names, groups, joined(names, groups), begin, end, None, merged=self.alphabet.level in SUB_WORDS)

    def coverable(self, source: str, view: View) -> list[Coverable]:
        """Return the words, or where there are none the characters, that are written in a text as they are called."""
        names = list(view.names if view.groups is None else view.labels)
        groups = list(range(len(view.names)) if view.groups is None else view.groups)
        marks = {BEGIN, FINISH, FINIS, EDGE}
        found = []
        for number, place in enumerate(self._places(source, names)):
            vectors = tuple(i for i, group in enumerate(groups) if group == number)
            if place is not None and vectors and names[number] not in marks and not BLANK.fullmatch(names[number]):
                found.append(Coverable(names[number], vectors))
        return found

    def cover(self, source: str, view: View, part: Coverable) -> str:
        """Return the text without a word; where each word is labelled, with an unknown one in its place."""
        number = part.vectors[0] if view.groups is None else view.groups[part.vectors[0]]
        place = self._places(source, list(view.names if view.groups is None else view.labels))[number]
        text = composed(source)
        if place is None:
            return text
        return text[: place[0]] + HIDDEN + text[place[1] :] if self.sentences is not None else without(text, *place)

    def _places(self, source: str, names: Sequence[str]) -> list[tuple[int, int] | None]:
        begin = int(Marks.FIRST in self.marks)
        found = places(names[begin : len(names) - (Marks.LAST in self.marks)], composed(source))
        return [*[None] * begin, *found, *[None] * (Marks.LAST in self.marks)]

    def text(self, source: str) -> str:
        return source

    def length(self, source: str) -> int:
        """Return the number of words; of strings that are converted, of characters."""
        strings = self.use is Use.SOURCE and (self.alphabet.level not in PARTS or scripts.mostly_unspaced([source]))
        return len(source) if strings else metrics.count_words(source)

    # ---- choosing ---------------------------------------------------------------------------------------------------

    @classmethod
    def choose(cls, seen: Survey, use: Use) -> Chosen:
        return token_choices.chosen(seen, use)


def _learned(texts: Iterable[str], level: str, how: TokenSettings) -> Tokenizer:
    return Tokenizer.train(texts, level, how.size, lowercase=how.lowercase, decomposed=how.decomposed)


def _cleaned(text: str, use: Use, level: str) -> str:
    if use is Use.STREAM:
        return shielded(text, level)
    return " ".join(text.split()) if use is Use.BLANKS else text.strip()


def _parts(text: str, use: Use) -> list[str]:
    """Return the parts of a text that is read whole: a premise and a hypothesis, a question and a context …"""
    return text.split(JOINED) if use in (Use.LABEL, Use.SOURCE) else [text]


def _names(parted: Sequence[list[str]]) -> frozenset[str]:
    """Return the parts that name something: the first or the last of all texts, single words of which few are
    different. At the level of words and sub-words they are tokens anyway."""
    found: set[str] = set()
    if all(len(parts) > 1 for parts in parted):
        for place in (0, -1):
            values = [parts[place] for parts in parted]
            if few(values) and all(value and not set(value) & {" ", "\t", ";"} for value in values):
                found.update(values)
    return frozenset(found)


def _with_ends(parts: Sequence[list[int]]) -> list[int]:
    """Return ids of the parts with END between two of them: BERT's A [SEP] B, and GPT's delimiter."""
    if len(parts) == 1:
        return parts[0]
    return [id for number, part in enumerate(parts) for id in ([END] * (number > 0) + part)]


def _view(
    names: list[str],
    groups: list[int],
    words: list[str],
    begin: list[str],
    end: list[str],
    units: list[int] | None,
    *,
    merged: bool,
) -> View:
    """Return a view whose marks are things of their own."""
    shift = len(begin)
    moved = [*range(shift), *(group + shift for group in groups), *(shift + len(words) for _ in end)]
    return View([*begin, *names, *end], moved, [*begin, *words, *end], units, merged)
