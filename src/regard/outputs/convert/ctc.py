"""Connectionist temporal classification as an auxiliary head (Graves et al. 2006; Watanabe et al. 2017).

    p(y | x) = Σ_π Π_t p(π_t | x),   p(π_t | x) = softmax(W h_t + b)

over all ways π of saying y with a token or a blank at each vector h_t. It shows the encoder early which vector says
what; the blank has the place of PAD in the vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import ctc_loss

from regard.attention import Context
from regard.layers.roles import chosen_among
from regard.text.tokenizer import END, PAD


class CTC(nn.Module):
    """A softmax over the vocabulary for each vector of the encoder."""

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.output = chosen_among(nn.Linear(width, size))

    def logs(self, memory: Context) -> tuple[Tensor, Tensor]:
        """Return log p of each token at each vector (batch, n, vocabulary), and the number of real vectors."""
        lengths = (memory.where() >= 0).expand(memory.values.shape[:2]).sum(-1)
        logits = self.output(memory.values)
        return (logits if logits.dtype == torch.float64 else logits.float()).log_softmax(-1), lengths

    def loss(self, memory: Context, ids: Tensor, real: Tensor) -> Tensor:
        """Return the sum of −log p(y | x), y being ids (batch, m) up to the END; rows that are too short for their
        transcript count as 0."""
        logs, lengths = self.logs(memory)
        said = real & (ids != END)
        lost: Tensor = ctc_loss(
            logs.transpose(0, 1), ids[said], lengths, said.sum(-1), blank=PAD, reduction="none", zero_infinity=True
        )
        return torch.where(lengths > 0, lost, torch.zeros_like(lost)).sum()
