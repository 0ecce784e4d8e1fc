"""The head that answers with a set: queries, their decoder, a class and a box for each."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from regard.attention import Context, padding
from regard.attention.masks import document
from regard.backbones.queries import Guess, QueryDecoder, grid_places
from regard.inputs.input import Batch
from regard.layers.boxes import corners, moved
from regard.layers.roles import chosen_among
from regard.network import Head, Network
from regard.outputs.detect.matching import Matches, Objects, SetWeights, box_loss, match, set_loss
from regard.outputs.detect.noise import Noise, spoilt

GONE = 0.3  # of a box must still be in a picture that was moved; less of it is not to be found
FIRST_SIZE = 0.25  # of an anchor, in shares of the picture
RARE = 0.02  # the first probability of each class


class DetectHead(Head):
    """Queries ask the features of a picture; each answers with a class, or "no object", and a box.

    `auxiliary`: every layer of the decoder has the loss of the last one (Carion et al. 2020, 3.2). `dense` is the
    weight of a loss on the features themselves: each place shall say the class of the smallest box that it is in, or
    "no object".
    """

    def __init__(
        self,
        decoder: QueryDecoder,
        width: int,
        classes: int,
        queries: int,
        *,
        weights: SetWeights,
        noise: Noise,
        auxiliary: bool = True,
        dense: float = 0.0,
    ) -> None:
        super().__init__()
        self.decoder, self.weights, self.noise, self.auxiliary = decoder, weights, noise, auxiliary
        self.classes = chosen_among(nn.Linear(width, classes + 1))
        with torch.no_grad():
            self.classes.bias.fill_(math.log(RARE))
            self.classes.bias[-1] = 0.0
        self.content = nn.Parameter(torch.empty(queries, width))
        nn.init.normal_(self.content, std=0.02)
        self.asked = nn.Parameter(torch.empty(queries, 4 if decoder.places else width))
        if decoder.places:
            with torch.no_grad():
                self.asked.copy_(first_anchors(queries).logit())
        else:
            nn.init.normal_(self.asked)
        self.names = nn.Embedding(classes, width) if noise.groups else None
        self.dense, self.shares = chosen_among(nn.Linear(width, classes + 1)) if dense else None, dense

    def forward(self, body: Network, batch: Batch) -> Tensor:
        """Return logits of classes and of "no object", and the box, of each query: (batch, queries, classes + 5)."""
        memory = body.features(batch.source)
        states, boxes = self.decoder(*self._queries(len(memory.values)), memory)[-1]
        return torch.cat((self.classes(states), boxes), -1)

    def _queries(self, rows: int) -> tuple[Context, Tensor]:
        content, asked = (each.expand(rows, -1, -1) for each in (self.content, self.asked))
        return Context(content), asked.sigmoid() if self.decoder.places else asked

    def loss(self, body: Network, batch: Batch, turn: str) -> Tensor:  # noqa: ARG002
        """Return the sums of the terms: classes, boxes, and if there are any, denoising and the places' own."""
        things = visible(batch.target, batch.source.change)
        memory = body.features(batch.source)
        queries, asked = self._queries(len(memory.values))
        count = asked.shape[1]
        if self.noise.groups:
            queries, asked, wanted = self._with_spoilt(queries, asked, things)
        guesses = self.decoder(queries, asked, memory)
        guesses = guesses if self.auxiliary else guesses[-1:]
        own = [Guess(states[:, :count], boxes[:, :count]) for states, boxes in guesses]
        terms = [self.set_terms(own, things)]
        if self.noise.groups:
            mended = [Guess(states[:, count:], boxes[:, count:]) for states, boxes in guesses]
            terms.append(self._mending(mended, wanted))
        if self.dense is not None:
            terms.append(self.shares * self._places(self.dense, memory, things))
        return torch.cat([term.reshape(-1) for term in terms])

    def set_terms(self, guesses: list[Guess], things: Objects) -> Tensor:
        """Return the sums over all layers, each matched for itself, of classes and of boxes."""
        found = []
        for states, boxes in guesses:
            logits = self.classes(states)
            pairs: Matches = match(logits, boxes, things, self.weights)
            found.append(set_loss(logits, boxes, things, pairs, self.weights))
        return torch.stack(found).sum(0)

    def _with_spoilt(self, queries: Context, asked: Tensor, things: Objects) -> tuple[Context, Tensor, Objects]:
        """Return the queries with those of all groups of denoising behind them, and what these shall answer."""
        assert self.names is not None
        given = spoilt(things, self.noise, self.names.num_embeddings)
        values = torch.cat((queries.values, self.names(given.classes)), 1)
        count, extra = asked.shape[1], given.classes.shape[1]
        device = values.device
        where = torch.arange(count + extra, device=device).expand(len(values), -1)
        real = torch.cat((torch.ones(len(values), count, dtype=torch.bool, device=device), given.was.real), 1)
        group = (torch.arange(extra, device=device) // max(1, things.classes.shape[1])) + 1
        ids = torch.cat((torch.zeros(count, dtype=torch.long, device=device), group))
        rule = padding & document(ids)
        found = Context(values, torch.where(real, where, -1), rule)
        return found, torch.cat((asked, given.boxes), 1), given.was

    def _mending(self, guesses: list[Guess], wanted: Objects) -> Tensor:
        real, total = wanted.real, []
        for states, boxes in guesses:
            logits = self.classes(states[real])
            label = cross_entropy(logits, wanted.classes[real], reduction="sum")
            total.append(self.weights.label * label + box_loss(boxes[real], wanted.boxes[real], self.weights))
        return torch.stack(total).sum()

    @staticmethod
    def _places(layer: nn.Linear, memory: Context, things: Objects) -> Tensor:
        """Return the sum over pictures of the mean loss of their places."""
        assert memory.grid is not None
        logits = layer(memory.values[:, memory.values.shape[1] - memory.grid[1] * memory.grid[2] :])
        wanted = classes_of_places(memory, things, logits.shape[-1] - 1)
        loss = cross_entropy(logits.mT, wanted, reduction="none")
        return loss.mean(1).sum()


def classes_of_places(memory: Context, things: Objects, none: int) -> Tensor:
    """Return the class of the smallest box that the middle of each place is in, or `none`: (batch, places)."""
    if not things.classes.shape[1]:
        return torch.full((len(memory.values), grid_places(memory)[0].shape[0]), none, device=memory.values.device)
    middle = grid_places(memory)[0] + 0.5
    edges = corners(things.boxes)[:, None]  # (batch, 1, m, 4)
    inside = ((middle[:, None] >= edges[..., :2]) & (middle[:, None] <= edges[..., 2:])).all(-1)
    area = things.boxes[..., 2:].prod(-1)[:, None].expand_as(inside)
    size = area.masked_fill(~(inside & things.real[:, None]), math.inf)
    least, which = size.min(-1)
    return torch.where(least < math.inf, things.classes.gather(1, which), none)


def visible(things: Objects, change: Tensor | None) -> Objects:
    """Return where things are in pictures that were varied; those that are hardly in them any more are none."""
    if change is None or not things.classes.shape[1]:
        return things
    boxes, left = moved(things.boxes, change)
    gone = left < GONE
    order = gone.long().argsort(dim=1, stable=True)  # those that are left stand first, as the matching expects them
    boxes = boxes.gather(1, order.unsqueeze(-1).expand(-1, -1, 4))
    return Objects(things.classes.masked_fill(gone, -1).gather(1, order), boxes)


def first_anchors(count: int) -> Tensor:
    """Return boxes (count, 4) spread evenly over the picture: points of a Kronecker sequence (the plastic number)."""
    steps = torch.arange(1, count + 1, dtype=torch.float64)[:, None] * torch.tensor(
        [0.7548776662466927, 0.5698402909980532]
    )
    middle = 0.05 + 0.9 * (0.5 + steps).frac()
    return torch.cat((middle, torch.full_like(middle, FIRST_SIZE)), -1).float()
