"""Text to numbers and back: characters, words, space-separated symbols, or sub-words.

Over the `tokenizers` library, saved as that library's own `tokenizer.json`. What the library's parts cannot
say (feature symbols after a tab, punctuation that remembers where it touched its neighbours) is a rewriting of the
text done here before the library sees it, in `_prepare`, and undone in `decode`:

| level | text | prepared | tokens |
|---|---|---|---|
| characters | `go⇥V;PST` | `go⇥V⇥PST` | `g` `o` `⇥V` `⇥PST` |
| words | `Yes, "go".` | `Yes ￭, "￭ go ￭" ￭.` | split at spaces |
| symbols | `a b ɑ̃` | the same | split at spaces |
| bpe, unigram | `Yes, go` | the same | `▁Yes` `,` `▁go` |
"""

from __future__ import annotations

import json
import os
import re
import statistics
import unicodedata
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, TypeVar

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers

from regard.errors import UserError
from regard.text import scripts

LEVELS = ("characters", "words", "symbols", "bpe", "unigram")
SUB_WORDS = ("bpe", "unigram")
PAD, UNKNOWN, START, END = range(4)
# The spaces inside the names keep them out of reach: no token made from text can contain a space.
SPECIALS = ("< pad >", "< unknown >", "< start >", "< end >")
SHOWN_UNKNOWN = "⁇"
JOINER = "￭"  # on the side of a punctuation mark that touched its neighbour
SPACE = "▁"  # begins each word in sub-words
STANDING = "\ue000"  # for a blank while a text is cut into tokens: a character that belongs to nobody
DEFAULT_SIZES = {"words": 30_000, "bpe": 8_000, "unigram": 8_000}
JUDGED = 20_000  # texts, from all over, tell the level of the others
T = TypeVar("T")


class Tokenizer(ABC):
    """Text to ids and back at one level; made by `train` or `load`. The ids 0 to 3 are PAD, UNKNOWN, START and END."""

    level: str

    @staticmethod
    def train(
        texts: Iterable[str],
        level: str,
        size: int | None = None,
        *,
        lowercase: bool = False,
        decomposed: bool = False,
    ) -> Tokenizer:
        """Learn the tokens of `texts`, at most `size` of them (sub-words and words have a default).

        `decomposed`: characters that are made of others (한, ế) are read as these (Unicode's NFD), and written whole.
        """
        from regard.text import subwords

        if level not in LEVELS:
            raise UserError(f"The level {level!r} is unknown, expected one of {', '.join(LEVELS)}.")
        size = size if size is not None else DEFAULT_SIZES.get(level)
        if size is not None and size <= len(SPECIALS):
            raise UserError(f"A vocabulary of {size} tokens is too small, expected more than {len(SPECIALS)}.")
        if decomposed and level != "characters":
            raise UserError(f"Only characters can be decomposed, found the level {level!r}.")
        prepared = (_prepare(text.lower() if lowercase else text, level) for text in texts)
        if decomposed:
            prepared = (unicodedata.normalize("NFD", text) for text in prepared)
        if level == "bpe":
            model = subwords.train_bpe(prepared, size or 0, _pre_tokenizer(level)).model
        elif level == "unigram":
            model = subwords.train_unigram(prepared, size or 0, _pre_tokenizer(level))
        else:
            model = _train_list(prepared, level, size)
        inner = _assemble(model, level)
        steps = [*([normalizers.NFD()] if decomposed else []), *([normalizers.Lowercase()] if lowercase else [])]
        if steps:
            inner.normalizer = steps[0] if len(steps) == 1 else normalizers.Sequence(steps)
        return LearnedTokenizer(inner, level)

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of ids, with the four special ones."""

    @property
    @abstractmethod
    def lowercase(self) -> bool:
        """True if text is read, and therefore written, in lower case."""

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without start and end."""

    @abstractmethod
    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of several texts: the same as `encode` of each, in parallel."""

    @abstractmethod
    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of some ids: special ones are dropped, unknown ones shown as ⁇."""

    @abstractmethod
    def pieces(self, text: str) -> list[str]:
        """Return the tokens of a text for display, one for each id; an unknown one shows the text itself."""

    @abstractmethod
    def pieces_of(self, ids: Iterable[int]) -> list[str]:
        """Return the tokens of ids (a model's output) for display, one for each id that is not special."""

    @abstractmethod
    def groups(self, text: str) -> list[int]:
        """Return the index of the word (see `words`) to which each token belongs.

        In sub-words of a script without spaces, where words are not visible, each piece that begins with a letter
        counts as a word.
        """

    @abstractmethod
    def groups_of(self, ids: Iterable[int]) -> list[int]:
        """Return the index of the word of each id (a model's output) that is not special."""

    @abstractmethod
    def content(self) -> dict[str, Any]:
        """Return the content of the file that `save` writes, as JSON."""

    def words(self, text: str) -> list[str]:
        """Return the words of a text, separated by blanks; at the level of characters also each feature symbol."""
        if self.level == "characters":
            return _prepare(text, self.level).split()
        return unicodedata.normalize("NFC", text).split()

    @staticmethod
    def supposed(size: int) -> Tokenizer:
        """Return sub-words of which only the number is known, to plan with."""
        names = [*SPECIALS, *(f"{SPACE}{number}" for number in range(size - len(SPECIALS)))]
        vocabulary = {name: number for number, name in enumerate(names)}
        return LearnedTokenizer(_assemble(models.BPE(vocabulary, [], unk_token=SPECIALS[UNKNOWN]), "bpe"), "bpe")

    def save(self, path: Path | str) -> None:
        """Write `tokenizer.json`, whole or not at all."""
        path = Path(path)
        partial = path.with_name(path.name + ".partial")
        partial.write_bytes(self.as_bytes())
        os.replace(partial, path)

    def as_bytes(self) -> bytes:
        return (json.dumps(self.content(), ensure_ascii=False, indent=1) + "\n").encode()

    @staticmethod
    def load(path: Path | str) -> Tokenizer:
        """Read what `save` wrote; the level is recovered from the parts in the file."""
        path = Path(path)
        content = parsed(path)
        if "foreign" in content:
            from regard.text.published import PublishedTokenizer

            return PublishedTokenizer.of(content, path)
        level = understood(path, lambda: _level_of(content))
        inner = understood(path, lambda: tokenizers.Tokenizer.from_str(json.dumps(content))) if level else None
        if inner is None or level is None or not _is_ours(inner, level):
            raise UserError(
                f"{path} was not written by regard: expected a tokenizer.json with {SPECIALS[0]!r} as id 0."
            )
        return LearnedTokenizer(inner, level)


def parsed(path: Path) -> dict[str, Any]:
    """Return the JSON object in a tokenizer's file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise UserError(f"{path}: the tokenizer cannot be read: {reason}.") from error
    content = understood(path, lambda: json.loads(text))
    if not isinstance(content, dict):
        raise UserError(f"{path} is a damaged tokenizer file (no JSON object); restore it from the run it came from.")
    return content


def understood(path: Path, read: Callable[[], T]) -> T:
    """Return the result of `read`, or raise UserError: the tokenizer's file is damaged."""
    try:
        return read()
    except BaseException as error:  # the library raises plain Exception, and a BaseException where it gives up
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise UserError(
            f"{path} is a damaged tokenizer file ({error}); restore it from the run it came from."
        ) from error


class LearnedTokenizer(Tokenizer):
    """Tokens learned from a user's own data."""

    def __init__(self, inner: tokenizers.Tokenizer, level: str) -> None:
        self._inner = inner
        self.level = level

    @property
    def size(self) -> int:
        return int(self._inner.get_vocab_size())

    @cached_property
    def lowercase(self) -> bool:
        return "Lowercase" in _steps(self.content()["normalizer"])

    def encode(self, text: str) -> list[int]:
        return list(self._inner.encode(_prepare(text, self.level), add_special_tokens=False).ids)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        prepared = [_prepare(text, self.level) for text in texts]
        return [encoding.ids for encoding in self._inner.encode_batch_fast(prepared, add_special_tokens=False)]

    def decode(self, ids: Iterable[int]) -> str:
        units = self._units_of(ids)
        if self.level == "symbols":
            return " ".join(units)
        if self.level == "words":
            joined = " ".join(units)
            return joined.replace(f" {JOINER}", "").replace(f"{JOINER} ", "").replace(JOINER, "")
        joined = "".join(units)
        if self.level == "characters":
            head, tab, features = unicodedata.normalize("NFC", joined).partition("\t")
            return head + tab + features.replace("\t", ";")
        return joined.replace(SPACE, " ").strip()

    def pieces(self, text: str) -> list[str]:
        return [_shown(unit, self.level) for unit in self._units(text)]

    def pieces_of(self, ids: Iterable[int]) -> list[str]:
        return [_shown(unit, self.level) for unit in self._units_of(ids)]

    def groups(self, text: str) -> list[int]:
        return _groups(self._units(text), self.level)

    def groups_of(self, ids: Iterable[int]) -> list[int]:
        return _groups(self._units_of(ids), self.level)

    def content(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self._inner.to_str())
        return content

    def _units(self, text: str) -> list[str]:
        """Return one string for each id: the token, or the text itself where the token is unknown."""
        prepared = _prepare(text, self.level)
        encoding = self._inner.encode(prepared, add_special_tokens=False)
        rows = zip(encoding.ids, encoding.tokens, encoding.offsets, strict=True)
        return [token if id != UNKNOWN else prepared[slice(*span)] for id, token, span in rows]

    def _units_of(self, ids: Iterable[int]) -> list[str]:
        return [
            self._inner.id_to_token(id) or SHOWN_UNKNOWN if id != UNKNOWN else SHOWN_UNKNOWN
            for id in map(int, ids)
            if id not in (PAD, START, END)
        ]


# ---------------------------------------------------------------------------------------------- text to units


def _prepare(text: str, level: str) -> str:
    """Return the text as the library should see it (the table at the top)."""
    text = unicodedata.normalize("NFC", text)
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()  # a lone surrogate, from a broken terminal, has no UTF-8 form
    if level == "characters":
        head, _, tail = text.partition("\t")
        return head + "".join("\t" + feature for feature in re.split(r"[;\s]+", tail) if feature)
    if level == "words":
        return " ".join(unit for word in text.replace(JOINER, "").split() for unit in split_word(word))
    text = " ".join(text.split())
    return text if level == "symbols" else text.replace(SPACE, "_")


def split_word(word: str) -> list[str]:
    """Split a word from its marks, each noting what it touched: `"don't",` gives `"￭`, `don't`, `￭"`, `￭,`."""
    if word.isalnum():
        return [word]
    parts: list[str] = []
    inside = False  # of a word rather than after a mark
    for index, character in enumerate(word):
        before, after = word[index - 1 : index] if index else "", word[index + 1 : index + 2]
        if _is_mark(character) and not _is_inner(before, character, after):
            parts.append((JOINER if index else "") + character + (JOINER if after and not _is_mark(after) else ""))
            inside = False
        elif inside:
            parts[-1] += character
        else:
            parts.append(character)
            inside = True
    return parts


def _is_inner(before: str, character: str, after: str) -> bool:
    """Return True for an apostrophe between letters and a point or comma between digits."""
    return (character in "'’" and before.isalpha() and after.isalpha()) or (
        character in ".," and before.isdigit() and after.isdigit()
    )


@lru_cache(maxsize=4096)
def _is_mark(character: str) -> bool:
    return unicodedata.category(character)[0] in "PS"


def _shown(unit: str, level: str) -> str:
    if level == "characters":
        return "␣" if unit.isspace() else unit.removeprefix("\t")
    return unit.replace(JOINER, "") if level == "words" else unit


def _groups(units: list[str], level: str) -> list[int]:
    """Return the word index of each unit."""
    if level == "characters":
        return _character_groups(units)
    groups: list[int] = []
    word, touching, before = -1, False, ""
    for unit in units:
        if level == "words":
            word += not (touching or unit.startswith(JOINER))
            touching = unit.endswith(JOINER)
        else:
            word += level == "symbols" or unit.startswith(SPACE) or scripts.opens(before, unit)
            before = unit.removeprefix(SPACE)
        groups.append(max(word, 0))
    return groups


def _character_groups(units: list[str]) -> list[int]:
    """Return the word index of each character.

    A blank belongs to the word that follows it, as in sub-words; blanks at the end belong to the last word.
    """
    groups: list[int] = []
    word, between = -1, True
    for unit in units:
        if unit.isspace():
            between = True
        elif between or unit.startswith("\t"):
            word, between = word + 1, False
        groups.append(word + between)
    return [min(group, max(word, 0)) for group in groups]


# ---------------------------------------------------------------------------------------------- training


def _pre_tokenizer(level: str) -> Any:
    if level == "characters":
        return pre_tokenizers.Split(Regex(r"\t[^\t]*|[\s\S]"), "isolated")
    if level in ("words", "symbols"):
        return pre_tokenizers.WhitespaceSplit()
    # No sub-word reaches across the border of a word and its punctuation: "house" and "house." share their pieces.
    marks = pre_tokenizers.Split(Regex(rf"{SPACE}?[\p{{P}}\p{{S}}&&[^{SPACE}]]+"), "isolated")
    return pre_tokenizers.Sequence([pre_tokenizers.Metaspace(SPACE, prepend_scheme="always"), marks])


def _assemble(model: Any, level: str) -> tokenizers.Tokenizer:
    """Return a tokenizer without "added tokens": the library would look for those in the user's text."""
    inner = tokenizers.Tokenizer(model)
    inner.pre_tokenizer = _pre_tokenizer(level)
    if level == "words":
        inner.decoder = decoders.WordPiece(prefix=JOINER, cleanup=False)
    elif level == "characters":
        inner.decoder = decoders.Fuse()
    elif level != "symbols":
        inner.decoder = decoders.Metaspace(SPACE, prepend_scheme="always")
    return inner


def _level_of(file: Any) -> str | None:
    """Return the level of a parsed tokenizer.json from the kinds of its parts; None if it is not one of ours."""
    kinds = [(file.get(part) or {}).get("type") for part in ("model", "pre_tokenizer", "decoder")]
    vocabulary = file["model"]["vocab"]
    first = (
        [piece for piece, _ in vocabulary[:4]] if kinds[0] == "Unigram" else sorted(vocabulary, key=vocabulary.get)[:4]
    )
    if tuple(first) != SPECIALS or file.get("added_tokens"):
        return None
    levels: dict[tuple[Any, ...], str] = {
        ("WordLevel", "Split", "Fuse"): "characters",
        ("WordLevel", "WhitespaceSplit", "WordPiece"): "words",
        ("WordLevel", "WhitespaceSplit", None): "symbols",
        ("BPE", "Sequence", "Metaspace"): "bpe",
        ("Unigram", "Sequence", "Metaspace"): "unigram",
    }
    return levels.get(tuple(kinds))


def _is_ours(inner: tokenizers.Tokenizer, level: str) -> bool:
    """Return True if ids count up from 0 without a gap, and all parts but the vocabulary are those of `_assemble`.

    A file cannot bring patterns of its own, nor ids that a model has no row for.
    """
    ids = inner.get_vocab().values()
    if sorted(ids) != list(range(len(ids))):
        return False  # first: in writing it out the library would count to the largest id, be it 2³¹
    given, plain = (json.loads(each.to_str()) for each in (inner, _assemble(models.WordLevel({}, unk_token=""), level)))
    allowed = (["Lowercase"], ["NFD"], ["NFD", "Lowercase"]) if level == "characters" else (["Lowercase"],)
    plain["normalizer"] = given["normalizer"] if _steps(given["normalizer"]) in allowed else None
    return {**given, "model": None} == {**plain, "model": None}


def _steps(normalizer: Any) -> list[str]:
    """Return the kinds of the steps of a normalizer in a tokenizer.json; those with settings are none of ours."""
    if not normalizer:
        return []
    parts = normalizer["normalizers"] if normalizer.get("type") == "Sequence" else [normalizer]
    return [part["type"] if len(part) == 1 else "other" for part in parts]


def ranked(counts: Counter[str]) -> list[tuple[str, int]]:
    """Return the most frequent first, equal counts in alphabetical order: nothing depends on chance."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _train_list(prepared: Iterable[str], level: str, size: int | None) -> Any:
    split = _pre_tokenizer(level)
    counts: Counter[str] = Counter()
    for text in prepared:
        if level == "characters":
            counts.update(token for token, _ in split.pre_tokenize_str(text))
        else:
            counts.update(text.split())
    tokens = [*SPECIALS, *(token for token, _ in ranked(counts))]
    return models.WordLevel({token: id for id, token in enumerate(tokens[:size])}, unk_token=SPECIALS[UNKNOWN])


# ---------------------------------------------------------------------------------------------- choice of a level


def looks_like_symbols(text: str) -> bool:
    """Return True for a row of short symbols separated by spaces, such as `a b ɑ̃ d ɔ̃`."""
    symbols = text.split()
    return len(symbols) > 1 and sum(map(_is_short, symbols)) >= 0.9 * len(symbols)


@lru_cache(maxsize=4096)
def _is_short(symbol: str) -> bool:
    """Return True for at most three characters, not counting marks and modifiers (t͡ʃʰ)."""
    return len(symbol) <= 3 or sum(unicodedata.category(character) not in ("Mn", "Lm") for character in symbol) <= 3


def choose_level(texts: Iterable[str]) -> tuple[str, str]:
    """Return the level that suits a sample of texts, and the reason in a sentence."""
    texts = list(texts)
    some = texts[:: max(1, len(texts) // JUDGED)]
    heads = [head for text in some if (head := text.partition("\t")[0].strip())]
    if not heads:
        return "characters", "There is no text to judge by, so single characters are safest."
    symbols = Counter(symbol for head in heads for symbol in head.split())
    total = symbols.total()
    rows = sum(map(looks_like_symbols, heads)) / len(heads)
    short = sum(count for symbol, count in symbols.items() if _is_short(symbol)) / total
    if rows >= 0.5 and short >= 0.9 and len(symbols) <= max(100, total / 10):
        return (
            "symbols",
            f"symbols between spaces: {short:.0%} of them have 1 to 3 characters, {len(symbols):,} distinct.",
        )
    between = statistics.median(len(head.split()) for head in heads)
    length = statistics.median(map(len, heads))
    if between > 4:
        return "bpe", f"sub-words, as the texts are sentences: half of them have {between:g} words or more."
    # Where no blanks are written, letters tell how much there is to read, and the marks at the end of sentences.
    words = statistics.median(map(scripts.count_words, heads))
    if words > 4 or 2 * sum(map(scripts.is_sentence, heads)) > len(heads):
        return (
            "bpe",
            f"sub-words, as the texts are sentences without spaces: half of them have {length:g} characters or more.",
        )
    return (
        "characters",
        f"characters: half of the texts have at most {between:g} word{'s' * (between != 1)} and {length:g} "
        f"character{'s' * (length != 1)}.",
    )
