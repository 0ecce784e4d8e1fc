"""Convert: a sequence in, a sequence out whose length the model decides (translation, pronunciation, inflection …)."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear

from regard import metrics, search
from regard.data.batches import pad
from regard.errors import UserError
from regard.inputs.embedding import Embedding, positions_of
from regard.inputs.tokens import END, PAD, START, Tokenizer
from regard.watching import attentions, paused, watch, watched


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
        self, source: Embedding, target: Embedding, encoder: nn.Module, decoder: nn.Module, *, tied: bool
    ) -> None:
        super().__init__()
        self.source, self.target, self.encoder, self.decoder = source, target, encoder, decoder
        size, width = target.table.weight.shape
        self.head = nn.Linear(width, size)
        nn.init.zeros_(self.head.bias)
        if tied:
            self.head.weight = target.table.weight

    def encode(self, source: Tensor) -> Any:
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
        logits = linear(self.features(batch)[real], self.head.weight, self.head.bias)
        loss = cross_entropy(logits, batch.target[real], reduction="sum", label_smoothing=smoothing)
        return loss, int(real.sum())

    def start(self, source: Tensor) -> State:
        """The state before the first step of decoding."""
        return State(self.encode(source), None, 0)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """One step: the last tokens (rows,) to logits for the next ones (rows, vocabulary)."""
        positions = torch.tensor([state.position], device=tokens.device)
        x = self.target(tokens.unsqueeze(1), positions)
        features, decoder = self.decoder(x, positions, state.memory, state.decoder, keep=True)
        return self.head(features[:, -1]), State(None, decoder, state.position + 1)


@dataclass(frozen=True)
class Answer:
    """One converted text, with its log-probability and what is needed to ask where the model looked."""

    text: str
    score: float
    normalised: float
    finished: bool
    ids: list[int]


@dataclass(frozen=True)
class Search:
    """How answers are looked for. Sampling if `seed` is given, greedy for a beam of 1, beam search otherwise."""

    beam: int = 5
    n_best: int = 1
    length_penalty: float = 1.0
    minimum: int = 0
    factor: float = 3.0
    longest: int = 256
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None
    budget: int = 8192  # source tokens of a batch, every hypothesis counted

    def limits(self, lengths: Sequence[int]) -> search.Limits:
        most = [min(self.longest, int(self.factor * (n + 3) + 3)) for n in lengths]
        return search.Limits(minimum=self.minimum, maximum=[max(self.minimum, n) for n in most])


class Convert:
    """A network with its vocabularies: texts in, texts out."""

    def __init__(self, network: Converter, source: Tokenizer, target: Tokenizer) -> None:
        self.network, self.source, self.target = network, source, target

    def rows(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[list[int], list[int]]]:
        """Source ids, and target ids with the end: what is stored and batched."""
        sources, targets = zip(*pairs, strict=True) if pairs else ((), ())
        encoded = zip(self.source.encode_batch(list(sources)), self.target.encode_batch(list(targets)), strict=True)
        return [(ids, [*target, END]) for ids, target in encoded]

    @staticmethod
    def batch(rows: Sequence[Sequence[Any]]) -> Batch:
        source, target = (torch.from_numpy(pad([row[side] for row in rows])) for side in (0, 1))
        return Batch(source, target)

    @torch.no_grad()
    def predict(self, texts: Sequence[str], how: Search) -> list[list[Answer]]:
        """The best answers to each text. Long and short texts are searched apart; an empty text has an empty answer."""
        self.network.eval()
        ids = self.source.encode_batch(list(texts))
        order = sorted((i for i, row in enumerate(ids) if row), key=lambda i: len(ids[i]))
        answers: list[list[Answer]] = [[Answer("", 0.0, 0.0, True, [])] for _ in texts]
        for chosen in _by_budget(order, [len(row) for row in ids], how.budget // max(1, how.beam)):
            with paused():
                found = self._search([ids[i] for i in chosen], how, chosen)
            for i, hypotheses in zip(chosen, found, strict=True):
                answers[i] = [
                    Answer(self.target.decode(h.tokens), h.score, h.normalised, h.finished, h.tokens)
                    for h in hypotheses
                ]
        if watched():
            self.look([(ids[i], answers[i][0].ids) for i in range(len(texts))])
        return answers

    def look(self, rows: Sequence[tuple[Sequence[int], Sequence[int]]]) -> None:
        """One pass over known answers, for whoever is watching."""
        with torch.no_grad():
            self.network.features(self.batch([(np.array(s or [END]), np.array([*t, END])) for s, t in rows]))

    def _search(self, ids: list[list[int]], how: Search, numbers: list[int]) -> list[list[search.Hypothesis]]:
        source = torch.from_numpy(pad([np.array(row) for row in ids]))
        given: dict[str, Any] = {
            "start": START, "end": END, "pad": PAD, "limits": how.limits([len(row) for row in ids])
        }  # fmt: skip
        state = self.network.start(source)
        if how.seed is not None:
            draws: dict[str, Any] = {"temperature": how.temperature, "top_k": how.top_k, "top_p": how.top_p}
            seeds = [how.seed * 1_000_003 + number for number in numbers]
            return [[h] for h in search.sample(self.network.step, state, len(ids), seeds=seeds, **draws, **given)]
        if how.beam == 1:
            return [[h] for h in search.greedy(self.network.step, state, len(ids), **given)]
        size: dict[str, Any] = {"size": how.beam, "n_best": how.n_best, "length_penalty": how.length_penalty}
        return search.beam(self.network.step, state, len(ids), **size, **given)

    @torch.no_grad()
    def alignments(self, rows: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[NDArray[np.float32]]:
        """For each (source ids, answer ids) the weights (answer tokens + end, source tokens), a mean over heads.

        Of several layers the last but one is taken: it aligns best in deep decoders (Garg et al. 2019, 4.3).
        """
        layers = self.crossing()
        if not layers:
            raise UserError("This model has no attention between target and source, so there is nothing to align.")
        with watch(self.network, layers[max(0, len(layers) - 2)]) as seen:
            self.look(rows)
        (layer,) = seen.values()
        weights = layer.weights.mean(1).numpy()
        return [weights[i, : len(target) + 1, : len(source)] for i, (source, target) in enumerate(rows)]

    def crossing(self) -> list[str]:
        """The names of the layers through which the target looks at the source."""
        return [name for name in attentions(self.network) if name.endswith((".cross", ".glimpse"))]

    def kind(self) -> metrics.Kind:
        """Which metrics fit: running text, space-separated symbols, or strings of characters."""
        kinds: dict[str, metrics.Kind] = {"symbols": "symbols", "characters": "characters"}
        return kinds.get(self.target.level, "text")

    def evaluate(
        self, pairs: Sequence[tuple[str, Sequence[str]]], how: Search, samples: int = metrics.SAMPLES
    ) -> tuple[list[metrics.Score], list[str]]:
        """The metrics that fit on (source, references), first the one that training stops on; and the answers."""
        answers = [found[0].text for found in self.predict([source for source, _ in pairs], how)]
        references = [[unicodedata.normalize("NFC", text) for text in texts] for _, texts in pairs]
        return metrics.evaluate(answers, references, kind=self.kind(), samples=samples), answers


def _by_budget(order: list[int], lengths: list[int], budget: int) -> Iterator[list[int]]:
    """Consecutive texts, shortest first, whose padded sources fit the budget."""
    chosen: list[int] = []
    for i in order:
        if chosen and (len(chosen) + 1) * lengths[i] > budget:
            yield chosen
            chosen = []
        chosen.append(i)
    if chosen:
        yield chosen
