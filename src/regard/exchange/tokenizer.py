"""Vocabularies as a tokenizer.json that gives the same ids to other programs.

Regard prepares a text before the library sees it (see `regard.text.tokenizer`). Those steps are written into the file
as a normaliser of the library's own. Where that is impossible the vocabulary is refused.
"""

from __future__ import annotations

from typing import Any

from regard.errors import UserError
from regard.text.published import PublishedTokenizer
from regard.text.stream import TAB
from regard.text.tokenizer import END, PAD, SPACE, SPECIALS, START, UNKNOWN, Tokenizer

# What is blank to Python: `" ".join(text.split())` as a pattern.
BLANKS = r"[\t-\r\x1c-\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]+"
MASK, LINE = "[MASK]", "\n"
ROLES = {
    "fill": {"pad_token": PAD, "unk_token": UNKNOWN, "cls_token": START, "sep_token": END},
    "continue": {"pad_token": PAD, "unk_token": UNKNOWN, "bos_token": START, "eos_token": END},
    "convert": {"pad_token": PAD, "unk_token": UNKNOWN, "eos_token": END},
}
File = dict[str, Any]


def published(vocabulary: Tokenizer, task: str, *, closed: bool = False) -> tuple[File, File]:
    """Return the tokenizer.json and tokenizer_config.json of a vocabulary in a model of this task."""
    about: File = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    if isinstance(vocabulary, PublishedTokenizer):
        names = {role: vocabulary.token(id) for role, id in ROLES[task].items()}
        if task == "convert" and not names["pad_token"]:
            names["pad_token"] = vocabulary.token(START)  # it begins with padding
        if task == "continue":
            names = {role: name for role, name in names.items() if role == "bos_token"}
            names["eos_token"] = names["bos_token"]
        if vocabulary.mask is not None:
            names["mask_token"] = vocabulary.token(vocabulary.size)
        return vocabulary.file, about | {role: name for role, name in names.items() if name}
    _refuse(vocabulary, task)
    names = {role: SPECIALS[id] for role, id in ROLES[task].items()}
    file = vocabulary.content()
    file["normalizer"] = {"type": "Sequence", "normalizers": [*_steps(vocabulary, task), *_given(file["normalizer"])]}
    if task == "fill":
        names["mask_token"] = MASK
        file["added_tokens"] = [_added(MASK, vocabulary.size, special=True)]
        file["post_processor"] = _template([SPECIALS[START]], [SPECIALS[END]])
        _only_first(file)
    elif task == "continue":
        names["eos_token"] = names["bos_token"]
        _rename(file["model"], SPECIALS[END], LINE)
        file["added_tokens"] = [_added(LINE, END, special=False)]
        file["post_processor"] = _template([LINE], [])
    elif closed:
        file["post_processor"] = _template([], [SPECIALS[END]])
    return file, about | names


def _refuse(vocabulary: Tokenizer, task: str) -> None:
    if vocabulary.level == "words":
        raise UserError(
            "The vocabulary is of whole words: a tokenizer.json cannot express how their punctuation is set apart; "
            "train with sub-words (bpe or unigram), characters or symbols."
        )
    if vocabulary.level != "characters" or task != "convert":
        return
    if any(piece.startswith("\t") for piece in vocabulary.content()["model"]["vocab"]):
        raise UserError("The vocabulary has features after a tab (V;PST): a tokenizer.json cannot express them.")


def _steps(vocabulary: Tokenizer, task: str) -> list[File]:
    steps: list[File] = [{"type": "NFC"}]
    if vocabulary.level == "characters" and task == "continue":
        return [*steps, _replace("String", "\t", TAB)]
    if vocabulary.level == "characters" and task == "convert":
        return [*steps, {"type": "Strip", "strip_left": True, "strip_right": True}]
    # A blank in front stays where a text may go on after a mask: it says that a word begins, and is no token itself.
    stays = task == "fill" and vocabulary.level != "characters"
    strip = {"type": "Strip", "strip_left": not stays, "strip_right": True}
    steps += [_replace("Regex", BLANKS, " "), strip]
    return [*steps, _replace("String", SPACE, "_")] if vocabulary.level in ("bpe", "unigram") else steps


def _replace(kind: str, pattern: str, content: str) -> File:
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def _given(normaliser: File | None) -> list[File]:
    return [] if normaliser is None else [normaliser]


def _added(content: str, id: int, *, special: bool) -> File:
    return {
        "id": id, "content": content, "single_word": False, "lstrip": special, "rstrip": False, "normalized": False,
        "special": special,
    }  # fmt: skip


def _template(before: list[str], after: list[str]) -> File:
    marks = {name: LINE_OR_SPECIAL[name] for name in (*before, *after)}

    def pieces(sequence: str) -> list[File]:
        return [
            *({"SpecialToken": {"id": name, "type_id": 0}} for name in before),
            {"Sequence": {"id": sequence, "type_id": 0}},
            *({"SpecialToken": {"id": name, "type_id": 0}} for name in after),
        ]

    return {
        "type": "TemplateProcessing",
        "single": pieces("A"),
        "pair": [*pieces("A"), *pieces("B")[len(before) :]],
        "special_tokens": {name: {"id": name, "ids": [id], "tokens": [name]} for name, id in marks.items()},
    }


LINE_OR_SPECIAL = {LINE: END, SPECIALS[START]: START, SPECIALS[END]: END}


def _only_first(file: File) -> None:
    """Put ▁ in front of the whole text, not of what follows a mask."""
    for part in (file["pre_tokenizer"] or {}).get("pretokenizers", []):
        if part["type"] == "Metaspace":
            part["prepend_scheme"] = "first"


def _rename(model: File, old: str, new: str) -> None:
    if isinstance(model["vocab"], dict):
        model["vocab"] = {new if token == old else token: id for token, id in model["vocab"].items()}
    else:
        model["vocab"] = [[new if token == old else token, score] for token, score in model["vocab"]]
