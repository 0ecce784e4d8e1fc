"""The network that writes: a backbone that only looks back, and a softmax over the next token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad

from regard.inputs.embedding import Embedding, positions_of
from regard.inputs.tokens import PAD, UNKNOWN
from regard.outputs.softmax import logits_of, token_loss

PIECE = 512  # tokens that a state takes up at once
TOGETHER = 8192  # tokens of windows that are read in one pass


@dataclass(frozen=True)
class Writing:
    """Between two steps: the tokens of each row that are still seen, padded in front, and what the backbone keeps."""

    ids: Tensor  # (rows, n)
    state: Any  # None: nothing has been read yet

    def reorder(self, index: Tensor) -> Writing:
        return Writing(self.ids[index], self.state and self.state.reorder(index))


class Writer(nn.Module):
    """p(x_t | x_<t) = softmax(W h_(t−1) + b), h = backbone(embedding(x)).

    The backbone is called as `backbone(x, positions, state, keep=…) -> features, state` and looks only back. A row is
    read at once, or `segment` tokens at a time with what the backbone keeps of those before. `window` is the most
    tokens that may be read together, where the backbone has a limit.
    """

    def __init__(
        self,
        embedding: Embedding,
        backbone: nn.Module,
        *,
        tied: bool = True,
        bias: bool = True,
        segment: int | None = None,
        window: int | None = None,
    ) -> None:
        super().__init__()
        self.embedding, self.backbone, self.segment, self.window = embedding, backbone, segment, window
        size, width = embedding.table.weight.shape
        self.head = nn.Linear(width, size, bias=bias)
        nn.init.normal_(self.head.weight, std=0.02)
        if bias:
            nn.init.zeros_(self.head.bias)
        if tied:
            self.head.weight = embedding.table.weight

    def features(self, ids: Tensor) -> Tensor:
        """What is known at each of (batch, n) tokens about the next: (batch, n, width)."""
        positions = positions_of(ids)
        if self.segment is None or ids.shape[1] <= self.segment:
            features: Tensor = self.backbone(self.embedding(ids, positions), positions)[0]
            return features
        return self._read(ids, positions, None, self.segment)[0]

    def _read(self, ids: Tensor, positions: Tensor, state: Any, piece: int) -> tuple[Tensor, Any]:
        """Features of what follows a state, `piece` tokens at a time, and the state after it."""
        found = []
        for start in range(0, ids.shape[1], piece):
            some = positions[..., start : start + piece]
            x = self.embedding(ids[:, start : start + piece], some)
            features, state = self.backbone(x, some, state, keep=True)
            found.append(features)
        return torch.cat(found, 1), state

    def forward(self, ids: Tensor) -> Tensor:
        """Logits for the token after each, (batch, n, vocabulary)."""
        logits: Tensor = self.head(self.features(ids))
        return logits

    def loss(self, ids: Tensor, smoothing: float = 0.0) -> tuple[Tensor, int]:
        """The sum of −log p over all tokens of (batch, n) but each row's first, and their number."""
        given, wanted = ids[:, :-1], ids[:, 1:]
        real = wanted != PAD
        wanted = wanted[real]
        return token_loss(self.features(given)[real], self.head.weight, self.head.bias, wanted, smoothing), len(wanted)

    # ---- measuring ------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def surprise(self, ids: Sequence[int], context: int, stride: int) -> np.ndarray[Any, np.dtype[np.float64]]:
        """−log p of every token of a text but the first, in nats: (n − 1,).

        Where the network has a window: in windows of `context` tokens that move on by `stride`; each counts for the
        tokens that no window before it has predicted. Otherwise in one walk whose state runs through the whole text.
        """
        self.eval()
        stream = torch.tensor(ids)
        found = self._windows(stream, context, stride) if self.window else self._walk(stream)
        return torch.cat([*found]).double().numpy()

    def _walk(self, stream: Tensor) -> Iterator[Tensor]:
        given, state = stream[None, :-1], None
        for start in range(0, given.shape[1], PIECE):
            some = given[:, start : start + PIECE]
            positions = torch.arange(start, start + some.shape[1])
            features, state = self._read(some, positions, state, PIECE)
            yield self._unlikely(features[0], stream[1 + start : 1 + start + PIECE])

    def _windows(self, stream: Tensor, context: int, stride: int) -> Iterator[Tensor]:
        last = len(stream) - 1  # tokens to be given; token i predicts token i + 1
        ends = [*range(min(context, last), last, stride), last]
        several = max(1, TOGETHER // context)
        done = 0
        for chosen in (ends[i : i + several] for i in range(0, len(ends), several)):
            rows = [stream[max(0, end - context) : end] for end in chosen]
            width = max(len(row) for row in rows)
            features = self.features(torch.stack([pad(row, (0, width - len(row)), value=PAD) for row in rows]))
            for row, end, own in zip(rows, chosen, features, strict=True):
                new = end - done
                yield self._unlikely(own[len(row) - new : len(row)], stream[done + 1 : end + 1])
                done = end

    def _unlikely(self, features: Tensor, wanted: Tensor) -> Tensor:
        return cross_entropy(self.head(features), wanted, reduction="none")

    # ---- writing --------------------------------------------------------------------------------------------------

    def start(self, prompts: Sequence[Sequence[int]]) -> Writing:
        """The state before the first step: prompts of one token at least, of which a window sees the end."""
        seen = [list(prompt[-self.window :] if self.window else prompt) for prompt in prompts]
        width = max(len(row) for row in seen)
        return Writing(torch.tensor([[PAD] * (width - len(row)) + row for row in seen]), None)

    def step(self, tokens: Tensor, before: Writing) -> tuple[Tensor, Writing]:
        """One step: the tokens just written (rows,) to logits for the next (rows, vocabulary), never the unknown one.

        The first step reads the prompts and takes no tokens. A row that has filled the window begins anew with the
        last half of it, whatever the others do: so it writes the same beside any others.
        """
        ids, state = before.ids, before.state
        if state is not None:
            ids = torch.cat((ids, tokens.unsqueeze(1)), 1)
            if self.window and bool((self._lengths(ids) > self.window).any()):
                ids, state = self._last_half(ids, self.window), None
        if state is None:
            positions = (ids != PAD).cumsum(1) - 1  # −1 for the padding in front
            features, state = self._read(ids, positions, None, PIECE)
        else:
            features, state = self._read(ids[:, -1:], self._lengths(ids).unsqueeze(1) - 1, state, PIECE)
        logits = logits_of(features[:, -1], self.head)
        logits[:, UNKNOWN] = -torch.inf
        return logits, Writing(ids, state)

    @staticmethod
    def _lengths(ids: Tensor) -> Tensor:
        return (ids != PAD).sum(1)

    def _last_half(self, ids: Tensor, window: int) -> Tensor:
        """The rows that are longer than the window without their beginning, and no column that is padding for all."""
        lengths, half = self._lengths(ids), max(1, window // 2)
        kept = torch.where(lengths > window, half, lengths)
        dropped = torch.arange(ids.shape[1]) < (ids.shape[1] - kept).unsqueeze(1)
        return ids.masked_fill(dropped, PAD)[:, ids.shape[1] - int(kept.max()) :]
