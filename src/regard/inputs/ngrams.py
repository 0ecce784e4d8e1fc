"""Vectors for runs of tokens: what a letter sounds like is often decided by its neighbours."""

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from regard.inputs.tokens import PAD

MODULUS = 2**31 - 1  # a prime: codes stay below it, and a product with FACTOR below 2⁶³
FACTOR = 1_000_003


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
    al. 2022, 2.1). N-grams share `buckets` rows by hashing, as in fastText (Bojanowski et al. 2017, 3.2), so that none
    has to be written down. Padding is the same as what is beyond the end: a sequence has one answer in every batch.
    """

    def __init__(self, longest: int, buckets: int, width: int) -> None:
        super().__init__()
        self.longest, self.buckets = longest, buckets
        self.table = nn.Embedding(buckets, width)
        nn.init.normal_(self.table.weight, std=0.5 * width**-0.5)  # all of them together about as large as a token

    def forward(self, ids: Tensor) -> Tensor:
        rows = torch.stack([codes(ids, size) % self.buckets for size in range(2, self.longest + 1)])
        summed: Tensor = self.table(rows).sum(0)
        return summed * (ids != PAD).unsqueeze(-1)
