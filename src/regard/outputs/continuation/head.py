"""The head that writes on: a softmax over the next element, for backbones that only look back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

from regard.attention import Context
from regard.inputs.input import Batch, Source, positions_from
from regard.layers.roles import chosen_among
from regard.layers.softmax import logits_of, token_loss
from regard.network import Head, Network
from regard.text.tokenizer import PAD, UNKNOWN

PIECE = 512  # tokens that a state takes up at once
TOGETHER = 8192  # tokens of windows that are read in one pass


@dataclass(frozen=True)
class Writing:
    """Between two steps: the tokens of each row that may be read again, padded in front, and the backbone's state."""

    ids: Tensor  # (rows, n)
    lengths: Tensor  # (rows,)
    state: Any  # None: nothing has been read yet

    def reorder(self, index: Tensor) -> Writing:
        return Writing(self.ids[index], self.lengths[index], self.state and self.state.reorder(index))


class ContinueHead(Head):
    """p(x_t | x_<t) = softmax(W h_(t−1) + b), h the features of the elements before.

    A row is read at once, or `segment` elements at a time with what the backbone keeps of those before. `window` is
    the most elements that may be read together, where the backbone has a limit; an `endless` one, whose state does not
    grow, writes on beyond it. `table`: the output layer is this one.
    """

    def __init__(
        self,
        size: int,
        width: int,
        *,
        table: nn.Embedding | None = None,
        bias: bool = True,
        segment: int | None = None,
        window: int | None = None,
        endless: bool = False,
        smoothing: float = 0.0,
    ) -> None:
        super().__init__()
        self.segment, self.window, self.smoothing = segment, window, smoothing
        self.limit = None if endless else window  # of what is seen in writing
        self.output = chosen_among(nn.Linear(width, size, bias=bias))
        nn.init.normal_(self.output.weight, std=0.02)
        if bias:
            nn.init.zeros_(self.output.bias)
        if table is not None:
            self.output.weight = table.weight

    def features(self, body: Network, source: Source) -> Tensor:
        """Return what is known at each element about the next: (batch, n, width)."""
        ids, positions = source.values[0], source.positions
        if self.segment is None or ids.shape[1] <= self.segment:
            return body.features(source).values
        return self._read(body, ids, positions, None, self.segment)[0]

    def _read(self, body: Network, ids: Tensor, positions: Tensor, state: Any, piece: int) -> tuple[Tensor, Any]:
        """Return features of what follows a state, `piece` elements at a time, and the state after it."""
        found = []
        for start in range(0, ids.shape[1], piece):
            part = Source((ids[:, start : start + piece],), positions[..., start : start + piece])
            context: Context = body.stem(part)
            features, state = body.backbone.steps(context, state)  # type: ignore[operator]
            found.append(features.values)
        return torch.cat(found, 1), state

    def forward(self, body: Network, batch: Batch) -> Tensor:
        """Return logits for the element after each, (batch, n, alphabet)."""
        logits: Tensor = self.output(self.features(body, batch.source))
        return logits

    def loss(self, body: Network, batch: Batch, turn: str) -> Tensor:  # noqa: ARG002
        """Return the sum of −log p over the elements that follow."""
        real, wanted = batch.source.real, batch.target
        features = self.features(body, batch.source)[real]
        return token_loss(features, self.output.weight, self.output.bias, wanted[real], self.smoothing).unsqueeze(0)

    # ---- measuring ------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def surprise(self, body: Network, ids: Sequence[int], context: int, stride: int) -> NDArray[np.float64]:
        """Return −log p of every element but the first, in nats: (n − 1,).

        Where the network has a window: in windows of `context` elements that move on by `stride`; each counts for the
        elements that no window before it has predicted. Otherwise in one walk whose state runs through all of them.
        """
        body.eval()
        stream = torch.tensor(ids, device=body.device)
        found = self._windows(body, stream, context, stride) if self.window else self._walk(body, stream)
        total: NDArray[np.float64] = torch.cat([*found]).double().cpu().numpy()
        return total

    def _walk(self, body: Network, stream: Tensor) -> Iterator[Tensor]:
        given, state = stream[None, :-1], None
        for start in range(0, given.shape[1], PIECE):
            some = given[:, start : start + PIECE]
            positions = torch.arange(start, start + some.shape[1], device=stream.device)
            features, state = self._read(body, some, positions, state, PIECE)
            yield self._unlikely(features[0], stream[1 + start : 1 + start + PIECE])

    def _windows(self, body: Network, stream: Tensor, context: int, stride: int) -> Iterator[Tensor]:
        last = len(stream) - 1  # elements to be given; element i predicts element i + 1
        ends = [*range(min(context, last), last, stride), last]
        several = max(1, TOGETHER // context)
        done = 0
        for chosen in (ends[i : i + several] for i in range(0, len(ends), several)):
            rows = [stream[max(0, end - context) : end] for end in chosen]
            ids = pad_sequence(rows, batch_first=True, padding_value=PAD)
            positions = positions_from([len(row) for row in rows], ids.shape[1]).to(stream.device)
            features = self.features(body, Source((ids,), positions))
            for row, end, own in zip(rows, chosen, features, strict=True):
                new = end - done
                yield self._unlikely(own[len(row) - new : len(row)], stream[done + 1 : end + 1])
                done = end

    def _unlikely(self, features: Tensor, wanted: Tensor) -> Tensor:
        return cross_entropy(self.output(features), wanted, reduction="none")

    # ---- writing --------------------------------------------------------------------------------------------------

    def start(self, prompts: Sequence[Sequence[int]]) -> Writing:
        """Return the state before the first step: prompts of one element at least, of which a window sees the end."""
        seen = [list(prompt[-self.limit :] if self.limit else prompt) for prompt in prompts]
        width = max(len(row) for row in seen)
        ids = torch.tensor([[PAD] * (width - len(row)) + row for row in seen])
        return Writing(ids, torch.tensor([len(row) for row in seen]), None)

    def step(self, body: Network, tokens: Tensor, before: Writing) -> tuple[Tensor, Writing]:
        """Go one step: from what was just written (rows,) to logits for the next (rows, alphabet), never the unknown.

        The first step reads the prompts and takes no tokens. A row that has filled the window begins anew with the
        last half of it, whatever the others do: so it writes the same beside any others.
        """
        ids, lengths, state = before.ids, before.lengths, before.state
        if state is not None:
            new = tokens.unsqueeze(1)
            ids, lengths = torch.cat((ids, new), 1) if self.limit else new, lengths + 1
            if self.limit and bool((lengths > self.limit).any()):
                ids, lengths, state = *_last_half(ids, lengths, self.limit), None
        device = body.device
        if state is None:
            positions = (torch.arange(ids.shape[1]) - (ids.shape[1] - lengths)[:, None]).clamp(min=-1)
            features, state = self._read(body, ids.to(device), positions.to(device), None, PIECE)
        else:
            where = (lengths - 1).unsqueeze(1).to(device)
            features, state = self._read(body, ids[:, -1:].to(device), where, state, PIECE)
        logits = logits_of(features[:, -1], self.output)
        logits[:, UNKNOWN] = -torch.inf
        return logits, Writing(ids, lengths, state)


def _last_half(ids: Tensor, lengths: Tensor, window: int) -> tuple[Tensor, Tensor]:
    """Return the rows that are longer than the window without their beginning, and no column that is all padding."""
    kept = torch.where(lengths > window, max(1, window // 2), lengths)
    dropped = torch.arange(ids.shape[1]) < (ids.shape[1] - kept).unsqueeze(1)
    return ids.masked_fill(dropped, PAD)[:, ids.shape[1] - int(kept.max()) :], kept
