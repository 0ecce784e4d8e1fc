"""Passes of rows through a network: in order, within a budget, watched or with a gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.attention import Context
from regard.data.batches import by_budget, in_shares
from regard.inference.stop import refuse_stopped
from regard.inference.threads import side_by_side
from regard.inputs.input import Batch, Input, Row, Source, moved
from regard.inspection.recording import Seen, attentions, paused, watch
from regard.inspection.saliency import saliency
from regard.inspection.view import View
from regard.network import Network, StatesHead

BUDGET = 8192  # elements answered at once
SHARE = 400  # elements, read and written, that are worth a thread of their own


class Rows(Protocol):
    """Work on a padded batch of rows, with their numbers; a result for each."""

    def __call__(self, source: Source, numbers: list[int]) -> Iterable[Any]: ...


class Passes:
    """Passes of rows through a network: sorted by length, cut by budget, and back in order. `others` are the passes of
    models that answer together with this one, `most` the elements of a row that the network reads at once; `stop` is
    asked between two batches and two steps of decoding whether to give up."""

    def __init__(
        self,
        input: Input[Any],
        network: Network,
        most: int,
        others: Sequence[Passes] = (),
        stop: Callable[[], bool] | None = None,
    ) -> None:
        self.input, self.network, self.most, self.others, self.stop = input, network, most, tuple(others), stop

    def length(self, row: Row) -> int:
        """Return what a row costs in a batch."""
        return round(len(row[0]) * self.input.fields[0].tokens)

    def each(
        self, rows: Sequence[Row], work: Rows, *, sizes: Sequence[int] | None = None, budget: int | None = None
    ) -> list[Any]:
        """Return what `work` makes of each row that is not empty, None for the others.

        `sizes` say what each row costs where that is not its length; work of such rows is spread over threads.
        """
        if self.network.training:
            self.network.eval()
        numbers = [i for i, row in enumerate(rows) if len(row[0])]
        cost = sizes or [self.length(row) + 2 for row in rows]
        order = sorted(numbers, key=lambda i: (cost[i], len(rows[i][0])))
        found: list[Any] = [None] * len(rows)
        if sizes is None:
            parts = list(by_budget(order, list(cost), budget or BUDGET))
        else:
            parts = in_shares(order, list(cost), budget or BUDGET, SHARE, torch.get_num_threads())

        @torch.no_grad()
        def run(chosen: list[int]) -> list[Any]:
            refuse_stopped(self.stop)
            with paused():  # a thread has neither the caller's `no_grad` nor its context variables
                return list(work(self.collate([rows[i] for i in chosen]), chosen))

        results = map(run, parts) if sizes is None else side_by_side(run, parts)
        for chosen, some in zip(parts, results, strict=True):
            for i, result in zip(chosen, some, strict=True):
                found[i] = result
        return found

    def in_parts(self, rows: Sequence[Row], work: Rows) -> list[list[Any]]:
        """Return the results for the parts of each row, where rows that are too long are read in parts."""
        parts = [(i, part) for i, row in enumerate(rows) for part in self.input.parts(row, self.most)]
        results: list[list[Any]] = [[] for _ in rows]
        for (i, _), result in zip(parts, self.each([part for _, part in parts], work), strict=True):
            results[i].append(result)
        return results

    def in_chunks(self, row: Row, size: int) -> Iterator[tuple[Source, slice]]:
        """Yield a long row in chunks of about `size` elements, the neighbours that features look at included, and which
        elements of each chunk are its own. What the network says of these is what it says of the whole row."""
        reach = self.network.reach
        assert reach is not None
        step = getattr(self.network.stem, "reduction", 1)
        back, ahead = (-(-n // step) * step for n in reach)
        size = -(-max(size - back - ahead, back + ahead, 1) // step) * step  # that own are at least half of a chunk
        for start in range(0, len(row[0]), size):
            first, last = max(0, start - back), min(len(row[0]), start + size + ahead)
            source = self.collate([tuple(field[first:last] for field in row)])
            where = torch.arange(first, last, device=source.positions.device)
            own = slice(start - first, min(start + size, len(row[0])) - first)
            yield source._replace(positions=where), own

    def first_parts(self, sources: Sequence[Any]) -> list[Row]:
        """Return the rows of some sources, as far as the network reads at once."""
        return [next(iter(self.input.parts(row, self.most)), row) for row in self.input.encode(sources)]

    def collate(self, rows: Sequence[Row]) -> Source:
        return moved(self.input.collate(rows), self.network.device)

    def view(self, source: Any) -> View:
        """Return what pictures show of a source, a name for each vector that the network's stem makes of it."""
        view = self.input.view(source)
        if view.picture is None:
            return view
        with torch.no_grad(), paused():
            context: Context = self.network.stem(self.collate(self.first_parts([source])))
        return view.laid(context.values.shape[1], context.grid)

    # ---- where the network looks ------------------------------------------------------------------------------------

    @torch.no_grad()
    def scores(self, batch: Batch) -> Tensor:
        """Return the network's scores of one batch, as a watch around it sees them."""
        return self.network.eval().by_torch(moved(batch, self.network.device))

    def watched(self, batch: Batch) -> dict[str, Seen]:
        """Return where each attention that works on a batch looked, by its name."""
        with watch(self.network, [*attentions(self.network)]) as seen:
            self.scores(batch)
        return {name: layer for name, layer in seen.items() if layer.calls}

    def influence(self, batch: Batch, chosen: Tensor) -> NDArray[np.float32]:
        """Return how much the score of each choice (answers,) for the first row depends on each of its vectors, by the
        gradient: (answers, vectors)."""
        network = self.network.eval()
        head, choice = network.head, chosen.to(network.device).unsqueeze(-1)
        assert isinstance(head, StatesHead)

        def scores(vectors: Context) -> Tensor:
            return head.of(network.backbone(vectors))[0].gather(-1, choice).squeeze(-1)

        with torch.no_grad():
            vectors = network.stem(moved(batch.source, network.device))
        return saliency(vectors, scores)
