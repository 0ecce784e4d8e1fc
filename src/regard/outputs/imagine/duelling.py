"""Duels: a GAN, whose generator makes new things, and whose critic says how real a thing looks.

It has no metric to stop on: it trains to the end and keeps the last weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray

from regard import metrics
from regard.data.survey import Survey
from regard.errors import UserError
from regard.inference.passes import Passes
from regard.inputs.input import Chosen, Input, Row
from regard.inspection import page
from regard.inspection.page import Exhibit
from regard.inspection.view import Drawing, View
from regard.metrics.likeness import diversity
from regard.network import Network
from regard.outputs.imagine.comparison import MOST, compared, spread_over, values_of
from regard.outputs.imagine.duel import TURNS, AdversarialHead
from regard.outputs.imagine.maker import Imagined, Maker, Things, in_batches, normal
from regard.outputs.imagine.network import adversarial
from regard.outputs.imagine.portraits import DUEL_PORTRAITS, attention_portrait
from regard.outputs.imagine.settings import ImagineSettings, SaganKind, choose
from regard.outputs.output import Held, Looked, halves

COLLAPSED = 30.0  # per cent of the data's diversity; what has less is the same thing again and again
TRIED = 100  # things that collapse is looked for in


class Duels(Maker):
    """A generator against a critic. Classes are those of the labels, if there are any and they are wanted."""

    turns: ClassVar[tuple[str, ...]] = TURNS
    portraits: ClassVar[Mapping[str, str]] = DUEL_PORTRAITS

    def __init__(self, things: Things, how: SaganKind, latent: int) -> None:
        super().__init__(things)
        self.latent = latent
        self.classes = len(things.labels) if how.conditional and len(things.labels) > 1 else 1

    @classmethod
    def choose(cls, seen: Survey, reading: dict[str, Any]) -> Chosen:
        return choose(seen, reading)

    @classmethod
    def made(cls, config: ImagineSettings, input: Input[Any], learned: Things) -> Self:
        del input
        assert isinstance(config.model, SaganKind)
        return cls(learned, config.model, config.output.latent)

    def network(self, config: ImagineSettings, input: Input[Any]) -> tuple[Input[Any], Network]:
        assert isinstance(config.model, SaganKind)
        return adversarial(config.model, input, self.things.shape, self.latent, self.classes)

    def predictions(self, counts: NDArray[np.int32]) -> tuple[float, ...]:
        return (float(len(counts)),)

    # ---- new things -----------------------------------------------------------------------------------------------

    def new(self, passes: Passes, count: int, seed: int, label: str | None = None) -> NDArray[Any]:
        """Return made things: of one class, or of all in turn."""
        if label is not None:
            labels = torch.full((count,), self.number(label))
            if self.classes == 1:
                raise UserError("--label: this model was trained without classes (model.conditional): leave it out.")
        else:
            labels = torch.arange(count) % self.classes
        z = normal(seed, count, self.latent)
        return in_batches(passes, duel_of(passes).made, z, labels)

    def near(self, passes: Passes, source: Any, count: int, noise: float, seed: int) -> NDArray[Any]:
        del passes, source, count, noise, seed
        raise UserError("--near: a GAN does not know the code of an example: train a vae (output.kind) for that.")

    def between(self, passes: Passes, one: Any, other: Any, count: int) -> NDArray[Any]:
        del passes, one, other, count
        raise UserError("--between: a GAN does not know the code of an example: train a vae (output.kind) for that.")

    def described(self, passes: Passes, rows: Sequence[Row]) -> list[Imagined | None]:
        def work(source: Any, numbers: list[int]) -> list[Imagined]:
            del numbers
            found = duel_of(passes).of(passes.network.features(source))[:, 0, 0]
            return [Imagined({"realness": round(x, 6)}, {}) for x in found.tolist()]

        return passes.each(rows, work)

    # ---- scores ---------------------------------------------------------------------------------------------------

    def evaluate(
        self, passes: Passes, held: Held, how: Any, *, quick: bool, samples: int, **measures: Any
    ) -> tuple[list[metrics.Score], list[str]]:
        del how, samples
        if quick:  # nothing tells when to stop
            return [], []
        made = self.new(passes, min(MOST, max(len(held.items), 100)), metrics.SEED)
        return compared(passes, held, made, measures.get("training"), measures.get("features")), []

    def warnings(self, passes: Passes, held: Held, scores: Sequence[metrics.Score]) -> list[str]:
        del scores
        rows = spread_over(halves(passes.input, held.rows)[0], TRIED)
        if len(rows) < 2:
            return []
        real = values_of(passes, rows).reshape(len(rows), -1)
        made = self.new(passes, TRIED, metrics.SEED).reshape(TRIED, -1).astype(np.float64)
        found = diversity(made, real)
        if found >= COLLAPSED:
            return []
        return [
            f"the generator has collapsed: two of its things differ by {found:.0f} % of what two of the data do. "
            "Try a lower model.generator_rate, or a larger training.budget"
        ]

    # ---- looking --------------------------------------------------------------------------------------------------

    def portray(self, name: str, named: Mapping[str, Passes], held: Held, answer: str | None) -> Any:
        del name, held
        return attention_portrait(self, next(iter(named.values())), answer)

    def exhibit(self, passes: Passes, source: Any, answer: Imagined, looked: Looked) -> Exhibit:
        """Return where the critic looked, and which places decided."""
        view, count = passes.view(source), len(passes.view(source).names)
        seen = {name: one for name, one in looked.seen.items() if name.startswith("backbone")}
        own = [] if view.grid is None else page.maps(seen, lambda _: ("source", "source"), view)
        maps = [one for one in own if np.shape(one.weights)[-2:] == (count, count)]
        influence = passes.influence(looked.batch, torch.tensor([0]))
        title = f"how real it looks: {answer.numbers['realness']:.2f}"
        drawing = Drawing(view.columns(influence[0]), view.shown, title=title, what="size of the gradient")
        return Exhibit.of(
            view, View(["realness"]), [page.influence(influence), *maps], passes.input.text(source), drawing
        )


def duel_of(passes: Passes) -> AdversarialHead:
    """Return the head of a GAN."""
    head = passes.network.head
    assert isinstance(head, AdversarialHead)
    return head
