"""The network that converts: encoder, decoder, and a softmax over the target's vocabulary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from regard.inputs.embedding import Embedding, positions_of
from regard.inputs.tokens import END, PAD, START
from regard.outputs.softmax import logits_of, token_loss


class Batch(NamedTuple):
    """Padded ids; the target ends with END and does not begin with START."""

    source: Tensor  # (batch, n)
    target: Tensor  # (batch, m)


@dataclass(frozen=True)
class State:
    """Between two steps of decoding: the encoder's memory until the decoder has taken it up, then its own state."""

    memory: Any
    decoder: Any
    position: int

    def reorder(self, index: Tensor) -> State:
        if self.decoder is not None:
            return State(None, self.decoder.reorder(index), self.position)
        rows = [_rows(part, index) for part in self.memory]
        return State(type(self.memory)(*rows), None, self.position)


def _rows(part: Any, index: Tensor) -> Any:
    """The rows `index` of one field of a memory: states (batch, …), shared positions (n,), hidden states by layer."""
    if isinstance(part, tuple):
        return tuple(hidden[:, index] for hidden in part)
    return part[index] if part.dim() > 1 else part


class Converter(nn.Module):
    """Encoder, decoder, and a softmax over the target's vocabulary: p(y_t | y_<t, x) = softmax(W o_t + b).

    The two backbones share an interface: `encoder(x, positions) -> memory` and
    `decoder(x, positions, memory, state, keep=…) -> features, state`.
    """

    def __init__(
        self,
        source: Embedding,
        target: Embedding,
        encoder: nn.Module,
        decoder: nn.Module,
        *,
        tied: bool,
        closed: bool = False,
    ) -> None:
        super().__init__()
        self.closed = closed
        self.source, self.target, self.encoder, self.decoder = source, target, encoder, decoder
        size, width = target.table.weight.shape
        self.head = nn.Linear(width, size)
        nn.init.zeros_(self.head.bias)
        if tied:
            self.head.weight = target.table.weight

    def encode(self, source: Tensor) -> Any:
        """What the encoder makes of each source; if it is `closed`, with END behind it, as targets have."""
        if self.closed:
            lengths = (source != PAD).sum(1, keepdim=True)
            source = pad(source, (0, 1), value=PAD).scatter(1, lengths, END)
        positions = positions_of(source)
        return self.encoder(self.source(source, positions), positions)

    def features(self, batch: Batch) -> Tensor:
        """What the decoder says of each target token, given those before it (teacher forcing): (batch, m, width)."""
        # Shifted right: START in front; END at the last place of a row is not an input.
        given = torch.cat((batch.target.new_full((len(batch.target), 1), START), batch.target[:, :-1]), 1)
        positions = positions_of(given.masked_fill(batch.target == PAD, PAD))
        features: Tensor = self.decoder(self.target(given, positions), positions, self.encode(batch.source))[0]
        return features

    def forward(self, batch: Batch) -> Tensor:
        """Logits for each target token, (batch, m, vocabulary)."""
        logits: Tensor = self.head(self.features(batch))
        return logits

    def loss(self, batch: Batch, smoothing: float = 0.0) -> tuple[Tensor, int]:
        """The sum of −log p over the target's tokens with label smoothing (Szegedy et al. 2016), and their number."""
        real = batch.target != PAD
        # Padding is dropped before the largest matrix product of the model, not after it.
        wanted = batch.target[real]
        return token_loss(self.features(batch)[real], self.head.weight, self.head.bias, wanted, smoothing), len(wanted)

    def start(self, source: Tensor) -> State:
        """The state before the first step of decoding."""
        return State(self.encode(source), None, 0)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """One step: the last tokens (rows,) to logits for the next ones (rows, vocabulary)."""
        positions = torch.tensor([state.position], device=tokens.device)
        x = self.target(tokens.unsqueeze(1), positions)
        features, decoder = self.decoder(x, positions, state.memory, state.decoder, keep=True)
        return logits_of(features[:, -1], self.head), State(None, decoder, state.position + 1)
