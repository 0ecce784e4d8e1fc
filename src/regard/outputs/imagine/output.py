"""Imagine: autoencoders and VAEs, which make their input again from a code, and new things from new codes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard import metrics
from regard.data.survey import Survey
from regard.errors import UserError
from regard.inference.passes import Passes
from regard.inputs.input import Chosen, Input, Row
from regard.inspection import page
from regard.inspection.page import Exhibit
from regard.inspection.view import Drawing, View
from regard.network import Network
from regard.outputs.abilities import Settles
from regard.outputs.imagine.codes import Code, CodeHead, totals
from regard.outputs.imagine.comparison import MOST, compared
from regard.outputs.imagine.duelling import Duels
from regard.outputs.imagine.maker import Imagined, Maker, Things, in_batches, normal, restored
from regard.outputs.imagine.measuring import measured
from regard.outputs.imagine.network import coded, vectors_of
from regard.outputs.imagine.portraits import PORTRAITS, portrait
from regard.outputs.imagine.settings import CodeSettings, ImagineSettings, LossSettings, SaganKind, choose
from regard.outputs.output import Held, Looked, halves

SHOWN = 40  # numbers of a code that a picture has room for


class Imagine(Maker, Settles):
    """Codes in between. `rows` is m, the rows of a batch, for what β means beside (x − x̂)²."""

    portraits: ClassVar[Mapping[str, str]] = PORTRAITS

    def __init__(self, things: Things, how: CodeSettings, loss: LossSettings, vectors: int, rows: int) -> None:
        super().__init__(things)
        self.code_settings, self.loss_settings, self.vectors = how, loss, vectors
        beta, n = loss.beta, loss.rows
        self.weight = 1.0 if beta is None or n is None else beta * n / rows  # of the second sum beside the first

    @classmethod
    def choose(cls, seen: Survey, reading: dict[str, Any]) -> Chosen:
        return choose(seen, reading)

    @classmethod
    def made(cls, config: ImagineSettings, input: Input[Any], learned: Things) -> Imagine | Duels:
        if isinstance(config.model, SaganKind):
            return Duels(learned, config.model, config.output.latent)
        cost = sum(
            field.tokens * (learned.row[0] if not number else 1)
            for number, field in enumerate((*input.fields, *cls.fields))
        )
        rows = max(1, int(config.training.budget // cost))
        return cls(learned, config.output, config.loss, vectors_of(config, input, learned.row), rows)

    def settled(self, counts: NDArray[np.int32]) -> dict[str, Any]:
        return {"loss.rows": len(counts)}

    def network(self, config: ImagineSettings, input: Input[Any]) -> tuple[Input[Any], Network]:
        return coded(config, input, self.things.shape, self.vectors)

    def predictions(self, counts: NDArray[np.int32]) -> tuple[float, ...]:
        loss, terms = self.loss_settings, 2 if self.code_settings.kind == "vae" else 1
        return totals(len(counts), loss.beta, loss.rows)[:terms]

    # ---- codes ----------------------------------------------------------------------------------------------------

    def codes(self, passes: Passes, rows: Sequence[Row]) -> list[tuple[Tensor, Tensor | None] | None]:
        """Return μ and log σ of the code of each stored thing; None for an empty one."""

        def work(source: Any, numbers: list[int]) -> list[tuple[Tensor, Tensor | None]]:
            del numbers
            code: Code = head_of(passes).code(passes.network.features(source))
            sigmas = [None] * len(code.mean) if code.log_sigma is None else [*code.log_sigma.cpu()]
            return list(zip(code.mean.cpu(), sigmas, strict=True))

        return passes.each(rows, work)

    def means(self, passes: Passes, rows: Sequence[Row]) -> NDArray[np.float32]:
        """Return μ of things that are not empty, (things, latent)."""
        return np.stack([found[0].numpy() for found in self.codes(passes, rows) if found is not None])

    def decoded(self, passes: Passes, codes: NDArray[Any] | Tensor) -> NDArray[Any]:
        """Return the values of codes, (codes, …shape)."""
        return in_batches(passes, head_of(passes).decoded, torch.as_tensor(codes, dtype=torch.float32))

    def described(self, passes: Passes, rows: Sequence[Row]) -> list[Imagined | None]:
        input = restored(passes)

        def work(source: Any, numbers: list[int]) -> list[Imagined]:
            del numbers
            head = head_of(passes)
            code = head.code(passes.network.features(source)).mean
            made = head.decoded(code)
            errors = input.distance(source.values[0], made).tolist()
            return [
                Imagined({"error": round(error, 6), "code": [round(x, 6) for x in z]}, input.written(values))
                for error, z, values in zip(errors, code.tolist(), made.cpu().numpy(), strict=True)
            ]

        return passes.each(rows, work)

    # ---- new things -----------------------------------------------------------------------------------------------

    def new(self, passes: Passes, count: int, seed: int, label: str | None = None) -> NDArray[Any]:
        """Return decoded codes of N(0, I), also of an autoencoder, whose own codes have another distribution."""
        if label is not None:
            raise UserError("--label: codes of an autoencoder belong to no class: leave it out, or train a sagan.")
        return self.decoded(passes, normal(seed, count, self.code_settings.latent))

    def near(self, passes: Passes, source: Any, count: int, noise: float, seed: int) -> NDArray[Any]:
        z = self.means(passes, passes.input.encode([source]))
        return self.decoded(passes, torch.from_numpy(z) + noise * normal(seed, count, z.shape[1]))

    def between(self, passes: Passes, one: Any, other: Any, count: int) -> NDArray[Any]:
        a, b = self.means(passes, passes.input.encode([one, other]))
        share = np.linspace(0, 1, count)[:, None]
        return self.decoded(passes, (1 - share) * a + share * b)

    # ---- scores ---------------------------------------------------------------------------------------------------

    def evaluate(
        self, passes: Passes, held: Held, how: Any, *, quick: bool, samples: int, **measures: Any
    ) -> tuple[list[metrics.Score], list[str]]:
        del how
        scores = measured(self, passes, halves(passes.input, held.rows)[0], samples)
        if not quick:
            made = self.new(passes, min(MOST, max(len(held.items), 100)), metrics.SEED)
            scores += compared(passes, held, made, measures.get("training"), measures.get("features"))
        return scores, []

    def warnings(self, passes: Passes, held: Held, scores: Sequence[metrics.Score]) -> list[str]:
        del passes, held
        if any(score.name == "active_dimensions" and score.value == 0 for score in scores):
            return [
                "the codes have collapsed: no number of any code says anything about its thing. Try a lower loss.beta"
            ]
        return []

    # ---- looking --------------------------------------------------------------------------------------------------

    def portray(self, name: str, named: Mapping[str, Passes], held: Held, answer: str | None) -> Any:
        return portrait(self, name, named, held, answer)

    def exhibit(self, passes: Passes, source: Any, answer: Imagined, looked: Looked) -> Exhibit:
        view = passes.view(source)
        shown = min(SHOWN, self.code_settings.latent)
        influence = np.concatenate([passes.influence(looked.batch, torch.tensor([i])) for i in range(shown)])
        names = [f"z{i + 1} = {answer.numbers['code'][i]:.2f}" for i in range(shown)]
        own = page.maps(looked.seen, lambda _: ("source", "source"), view)
        fitting = [one for one in own if np.shape(one.weights)[-2:] == (len(view.names),) * 2]
        maps = [page.influence(view.filled(influence)), *fitting]
        title = f"what each number of the code depends on; error {answer.numbers['error']:.2f}"
        drawing = Drawing(view.columns(view.filled(influence)), view.shown, names, title, "share of the influence")
        tokens = [name.replace(" ", "") for name in names]  # a page writes blanks out
        return Exhibit.of(view, View(tokens), maps, passes.input.text(source), drawing)


def head_of(passes: Passes) -> CodeHead:
    """Return the head of an autoencoder."""
    head = passes.network.head
    assert isinstance(head, CodeHead)
    return head
