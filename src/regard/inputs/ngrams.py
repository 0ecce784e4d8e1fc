"""Vectors for runs of tokens: what a letter sounds like is often decided by its neighbours."""

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from regard.inputs.tokens import PAD

MODULUS = 2**31 - 1  # a prime: codes stay below it, and a product with FACTOR below 2⁶³
FACTOR = 1_000_003
NOTHING = 0  # the row of padding and of what is forgotten: always zero


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
    has to be written down. In training each is forgotten with probability `forget`: a new text has many that were never
    seen, whose rows are still zero, and the network has to know how to do without them. Padding is the same as what is
    beyond the end: a sequence has one answer in every batch.
    """

    def __init__(self, longest: int, buckets: int, width: int, *, forget: float = 0.3) -> None:
        super().__init__()
        self.longest, self.buckets, self.forget = longest, buckets, forget
        self.table = nn.Embedding(1 + buckets, width, padding_idx=NOTHING)
        nn.init.zeros_(self.table.weight)

    def forward(self, ids: Tensor) -> Tensor:
        rows = torch.stack([1 + codes(ids, size) % self.buckets for size in range(2, self.longest + 1)])
        gone = (ids == PAD).expand(rows.shape)
        if self.training:
            gone = gone | (torch.rand(rows.shape, device=ids.device) < self.forget)
        summed: Tensor = self.table(rows.masked_fill(gone, NOTHING)).sum(0)
        return summed
