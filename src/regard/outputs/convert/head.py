"""The head that writes a sequence: a decoder, and a softmax over the target's vocabulary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.attention import Context
from regard.inputs.embedding import Embedding
from regard.inputs.input import Batch, Source
from regard.layers.roles import chosen_among
from regard.layers.softmax import logits_of, token_loss
from regard.models.show_attend_tell import doubly_stochastic
from regard.network import Head, Network
from regard.outputs.convert.ctc import CTC
from regard.text.tokenizer import START


class Written(NamedTuple):
    """Padded ids of targets, which end with END and do not begin with START, and their positions."""

    ids: Tensor  # (batch, m)
    positions: Tensor  # (m,) or (batch, m); −1 is padding

    @property
    def real(self) -> Tensor:
        return (self.positions >= 0).expand(len(self.ids), -1)


@dataclass(frozen=True)
class DecodingState:
    """Between two steps of decoding: the encoder's memory until the decoder has taken it up, then its own state."""

    memory: Context | None
    decoder: Any
    position: int

    def reorder(self, index: Tensor) -> DecodingState:
        if self.decoder is not None:
            return DecodingState(None, self.decoder.reorder(index), self.position)
        assert self.memory is not None
        return DecodingState(self.memory.reorder(index), None, self.position)


class ConvertHead(Head):
    """p(y_t | y_<t, x) = softmax(W o_t + b), o_t what the decoder makes of y_<t and the features of x.

    `smoothing` is label smoothing (Szegedy et al. 2016), `penalty` that on places a decoder never looks at. With `ctc`
    the loss is (1 − λ) · −log p + λ · −log p_ctc, λ being its `share` (Watanabe et al. 2017).
    """

    def __init__(
        self,
        target: Embedding,
        decoder: nn.Module,
        *,
        tied: bool,
        smoothing: float = 0.0,
        penalty: float = 0.0,
        ctc: CTC | None = None,
        share: float = 0.0,
    ) -> None:
        super().__init__()
        self.target, self.decoder, self.smoothing, self.penalty = target, decoder, smoothing, penalty
        self.ctc, self.share = ctc, share
        size, width = target.table.weight.shape
        self.output = chosen_among(nn.Linear(width, size))
        nn.init.zeros_(self.output.bias)
        if tied:
            self.output.weight = target.table.weight

    def features(self, body: Network, batch: Batch) -> tuple[Tensor, Any]:
        """Return what the decoder says of each target token, given those before it (teacher forcing), and its state."""
        return self.decoded(body.features(batch.source), batch.target)

    def decoded(self, memory: Context, target: Written) -> tuple[Tensor, Any]:
        """Return the same for the features of a source."""
        # Shifted right: START in front; END at the last place of a row is not an input.
        given = torch.cat((target.ids.new_full((len(target.ids), 1), START), target.ids[:, :-1]), 1)
        x = Context(self.target(given, target.positions), target.positions)
        found: tuple[Tensor, Any] = self.decoder(x, memory)
        return found

    def forward(self, body: Network, batch: Batch) -> Tensor:
        """Return logits for each target token, (batch, m, vocabulary)."""
        logits: Tensor = self.output(self.features(body, batch)[0])
        return logits

    def loss(self, body: Network, batch: Batch, turn: str) -> Tensor:  # noqa: ARG002
        """Return the sum of −log p over the target's tokens and of the penalty; and that of CTC, if there is a head for
        it."""
        real, memory = batch.target.real, body.features(batch.source)
        # Padding is dropped before the largest matrix product of the model, not after it.
        found, state = self.decoded(memory, batch.target)
        features, wanted = found[real], batch.target.ids[real]
        loss = token_loss(features, self.output.weight, self.output.bias, wanted, self.smoothing)
        if self.penalty:
            loss = loss + self.penalty * doubly_stochastic(state)
        if self.ctc is None:
            return loss.unsqueeze(0)
        other = self.ctc.loss(memory, batch.target.ids, real)
        return torch.stack(((1 - self.share) * loss, self.share * other))

    def start(self, body: Network, source: Source) -> DecodingState:
        """Return the state before the first step of decoding."""
        return DecodingState(body.features(source), None, 0)

    def step(self, tokens: Tensor, state: DecodingState) -> tuple[Tensor, DecodingState]:
        """Go one step: from the last tokens (rows,) to logits for the next ones (rows, vocabulary)."""
        device = self.output.weight.device
        positions = torch.tensor([state.position], device=device)
        x = Context(self.target(tokens.to(device).unsqueeze(1), positions), positions)
        features, decoder = self.decoder(x, state.memory, state.decoder, keep=True)
        return logits_of(features[:, -1], self.output), DecodingState(None, decoder, state.position + 1)
