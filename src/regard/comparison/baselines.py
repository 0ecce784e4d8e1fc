"""Simple baselines that every comparison has: networks that look at each element alone, or at its neighbours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from regard.comparison.variants import Variant
from regard.config import Config
from regard.errors import UserError
from regard.inputs import INPUTS
from regard.models.settings import Kind
from regard.runs import settings

NEAR = 4  # elements that a local window looks back, and ahead if it may


def simple_variants(
    base: Config, known: Sequence[tuple[Variant, Config]], common: Sequence[str] = ()
) -> Iterator[tuple[Variant, Config]]:
    """Yield the simple networks that the task knows for this input, but those that are among the variants already.

    DeepSets and a window of neighbours are kinds of their own where labels come out; elsewhere the same network looks
    at neighbours only. `common` are settings of all variants: of another kind those are taken that it has.
    """
    kinds = settings.kinds_of(type(base))
    asked = [
        (kind, [f"model.kind={kind}", *(change for change in common if _has(kinds[kind], change))])
        for kind in INPUTS[base.input].baselines
        if kind in kinds
    ]
    if {"attention", "reach"} <= {*type(base.model).model_fields} and "window" not in kinds:
        asked.append(("local window", ["model.attention=local", f"model.reach={NEAR}"]))
    width = getattr(base.model, "width", None)
    for name, changes in asked:
        variant = Variant(name, (*changes, *([f"model.width={width}"] if width else [])), simple=True)
        try:
            config = settings.override(base, [*variant.changes])
        except UserError:  # it does not go with another setting
            continue
        if all(config.model != other.model and variant.slug != one.slug for one, other in known):
            yield variant, config


def _has(kind: type[Kind], change: str) -> bool:
    """Return True for a setting of the model, other than its kind, that models of this kind have."""
    section, _, name = change.partition("=")[0].strip().partition(".")
    return section == "model" and name != "kind" and name in kind.model_fields
