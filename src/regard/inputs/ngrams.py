"""Vectors for runs of tokens: what a letter sounds like is often decided by its neighbours."""

from collections.abc import Iterable
from itertools import islice
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import pad

from regard.data.batches import pad as padded
from regard.text.tokenizer import PAD

MODULUS = 2**31 - 1  # a prime: codes stay below it, and a product with FACTOR below 2⁶³
FACTOR = 1_000_003
NOTHING = 0  # the row of padding and of what is forgotten: always zero
LEAST = 10  # times that an n-gram has to be seen; those of fewer say more about their texts than about the language
TOGETHER = 4096  # sequences that are counted at once


def codes(ids: Tensor, size: int) -> Tensor:
    """For each token of (batch, n) a number that stands for the `size` tokens around it, with PAD beyond both ends.

    The run at i is x_(i − ⌊size/2⌋) … x_(i + ⌈size/2⌉ − 1). Other runs have other numbers, but for chances of 1 in 2³¹.
    """
    before = size // 2
    wide = pad(ids, (before, size - 1 - before), value=PAD)
    code = torch.full_like(ids, size)
    for place in range(size):
        code = (code * FACTOR + wide[:, place : place + ids.shape[1]] + 1) % MODULUS
    return code


class Ngrams(nn.Module):
    """y_i = Σ_n E[code(n tokens around i) mod buckets], n = 2 … longest; zero for padding.

    A vector for each n-gram, which is looked up rather than computed: much is remembered at the price of a sum (Roy et
    al. 2022). N-grams share `buckets` rows by hashing, as in fastText (Bojanowski et al. 2017, 3.2), so that none
    has to be written down. Padding is the same as what is beyond the end: a sequence has one answer in every batch.

    Rare n-grams would be names of the few texts they occur in, which would then be learned by heart: only what `know`
    has found often enough is learned, and the rows of the others stay zero. In training each is forgotten with
    probability `forget`, for a new text has many of those others, and the network has to know how to do without.
    """

    known: Tensor

    def __init__(self, longest: int, buckets: int, width: int, *, forget: float = 0.3) -> None:
        super().__init__()
        self.longest, self.buckets, self.forget = longest, buckets, forget
        self.table = nn.Embedding(1 + buckets, width, padding_idx=NOTHING)
        nn.init.zeros_(self.table.weight)
        self.register_buffer("known", torch.ones(1 + buckets, dtype=torch.bool), persistent=False)

    def know(self, sequences: Iterable[NDArray[Any]], least: int = LEAST) -> None:
        """Learn no n-gram from now on whose row has occurred less than `least` times in these sequences of ids."""
        counts, remaining = torch.zeros(1 + self.buckets, dtype=torch.long), iter(sequences)
        while some := list(islice(remaining, TOGETHER)):
            rows = self._rows(torch.from_numpy(padded(some)))
            counts += torch.bincount(rows.flatten(), minlength=1 + self.buckets)
        self.known.copy_(counts >= least)

    def _rows(self, ids: Tensor) -> Tensor:
        """The rows of the n-grams around each token, (sizes, batch, n)."""
        rows = torch.stack([1 + codes(ids, size) % self.buckets for size in range(2, self.longest + 1)])
        return rows.masked_fill(ids == PAD, NOTHING)

    def forward(self, ids: Tensor) -> Tensor:
        rows = self._rows(ids)
        if self.training:
            gone = ~self.known[rows] | (torch.rand(rows.shape, device=ids.device) < self.forget)
            rows = rows.masked_fill(gone, NOTHING)
        summed: Tensor = self.table(rows).sum(0)
        return summed
