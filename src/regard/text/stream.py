"""Text that is decoded token by token, to exactly the text that all tokens give together."""

from __future__ import annotations

from collections.abc import Sequence

from regard.text.tokenizer import END, Tokenizer

TAB = "\ufdd0"  # in place of a tab, which at the level of characters begins a feature; Unicode keeps it for such uses


def shielded(line: str, level: str) -> str:
    return line.replace("\t", TAB) if level == "characters" else line


def plain(text: str, level: str) -> str:
    return text.replace(TAB, "\t") if level == "characters" else text


class Growing:
    """The text that tokens add to a prompt, one by one; joined, it equals the text decoded at once."""

    def __init__(self, vocabulary: Tokenizer, prompt: str, ids: Sequence[int]) -> None:
        self.vocabulary = vocabulary
        self.exact = vocabulary.level == "characters"
        last = max(place for place, id in enumerate(ids) if id == END)
        self.line = [] if self.exact else list(ids[last + 1 :])
        self.shown = vocabulary.decode(self.line)
        self.blank = not self.exact and prompt[-1:].isspace()  # and no second one is needed

    def add(self, id: int) -> str:
        """Return the text that one more token adds."""
        if id == END:
            self.line, self.shown, self.blank = [], "", False
            return "\n"
        if self.exact:
            return plain(self.vocabulary.decode([id]), self.vocabulary.level)
        self.line.append(id)
        whole = self.vocabulary.decode(self.line)
        new, self.shown = whole[len(self.shown) :], whole
        if self.blank and new:
            new, self.blank = new.removeprefix(" "), False
        return new
