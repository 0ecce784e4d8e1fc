"""Words as vectors: a table of the known ones, and beside it what the characters of each word say.

    x = [E[word]; spelling(characters of the word)]

The table knows what a word means where it was frequent; the spelling (an ending, a capital, digits) says something of
every word, also of one never seen. So that the table's entry for unknown words is learned too, `Forgetting` makes known
words unknown at random in training.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from regard.inputs.embedding import positions_of
from regard.layers.recurrence import cells, walk
from regard.text.tokenizer import END, PAD, UNKNOWN

INNER = 32  # width of a character's vector


class Forgetting(nn.Module):
    """In training each known token is unknown with probability p; special ones stay. Draws from torch's generator."""

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"the share of tokens to forget is from 0 to below 1, found {p}")
        self.p = p

    def forward(self, ids: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return ids
        lost = torch.rand(ids.shape, device=ids.device) < self.p
        return ids.masked_fill(lost & (ids > END), UNKNOWN)


class Convolved(nn.Module):
    """max_t ReLU(W [c_(t−1); c_t; c_(t+1)] + b): which groups of three characters a word has (Ma and Hovy 2016)."""

    def __init__(self, size: int, width: int, dropout: nn.Module) -> None:
        super().__init__()
        self.width, self.dropout = width, dropout
        self.table = nn.Embedding(size, INNER, padding_idx=PAD)
        self.filters = nn.Conv1d(INNER, width, 3, padding=1)

    def forward(self, spellings: Tensor) -> Tensor:
        """(words, characters) to (words, width). Padding is nothing, as what lies beyond a word's ends is."""
        padded = (spellings == PAD).unsqueeze(1)
        x = self.dropout(self.table(spellings)).transpose(1, 2).masked_fill(padded, 0.0)
        best: Tensor = self.filters(x).relu().masked_fill(padded, 0.0).amax(-1)  # ReLU is nowhere below 0
        return best


class Spelled(nn.Module):
    """[h→ at the last character; h← at the first one] of an LSTM over the characters (Plank et al. 2016)."""

    def __init__(self, size: int, width: int, dropout: nn.Module) -> None:
        super().__init__()
        if width % 2:
            raise ValueError(f"a spelling is read both ways: its width must be even, found {width}")
        self.width, self.dropout = width, dropout
        self.table = nn.Embedding(size, INNER, padding_idx=PAD)
        self.rnn = cells("lstm", INNER, width // 2, 1, 0.0, both=True)

    def forward(self, spellings: Tensor) -> Tensor:
        """(words, characters) to (words, width)."""
        _, (last, *_) = walk(self.rnn, self.dropout(self.table(spellings)), positions_of(spellings))
        return last.transpose(0, 1).flatten(1)


SPELLINGS: dict[str, type[Convolved] | type[Spelled]] = {"cnn": Convolved, "lstm": Spelled}


class SpelledWords(nn.Module):
    """[E[word]; spelling], `width` wide together, then positions (if `place` brings any in) and dropout.

    A batch holds each of its distinct words' characters once: `spellings` (distinct, characters), and `which`
    (batch, n) says which of them stands where.
    """

    def __init__(
        self, size: int, width: int, spelling: Convolved | Spelled, place: nn.Module | None, dropout: nn.Module
    ) -> None:
        super().__init__()
        own = width - spelling.width
        if own < 1:
            raise ValueError(
                f"the spelling's width {spelling.width} leaves nothing of the width {width} for words: "
                "reduce tokens.spelling_width or increase model.width"
            )
        self.table = nn.Embedding(size, own, padding_idx=PAD)
        nn.init.normal_(self.table.weight, std=own**-0.5)
        with torch.no_grad():
            self.table.weight[PAD] = 0
        self.spelling, self.place, self.dropout = spelling, place, dropout
        self.scale = 1.0 if place is None else math.sqrt(own)  # beside positions, as in `Embedding`

    def forward(self, ids: Tensor, positions: Tensor, spellings: Tensor, which: Tensor) -> Tensor:
        x = torch.cat((self.table(ids) * self.scale, self.spelling(spellings)[which]), -1)
        if self.place is not None:
            x = self.place(x, positions)
        embedded: Tensor = self.dropout(x)
        return embedded
