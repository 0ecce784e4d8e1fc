"""The model card of a run: its data, its scores, and how to use it."""

from __future__ import annotations

import json
from collections.abc import Sequence

from regard import metrics
from regard.runs import checksums
from regard.runs.folder import quoted
from regard.runs.model import Model


def write_card(model: Model, facts: Sequence[str], found: dict[str, list[metrics.Score]]) -> None:
    """Write README.md and results.json: facts as a list, and the scores on each set of data."""
    config, run = model.config, quoted(model.folder)
    lines = [
        f"# {model.folder.name}",
        "",
        f"A model of the kind {getattr(config.model, 'kind', config.task)} that {model.task.does}, trained on "
        f"{' and '.join(config.data.train)}.",
        "",
        *(f"- {fact}" for fact in facts),
        *([f"- started from {config.training.start}"] if config.training.start else []),
        f"- train it again: `regard train {quoted(model.folder / 'config.yaml')} -o {quoted(f'{model.folder}-again')}`",
        f"- use it: `regard predict {run} \"…\"`, `regard show {run} \"…\" -o picture.png`",
    ]  # fmt: skip
    for name, scores in found.items():
        lines += ["", f"## {name.capitalize()}", "", "```", metrics.render(scores), "```"]
    results = {name: metrics.as_json(scores) for name, scores in found.items()}
    card = {"README.md": "\n".join(lines) + "\n", "results.json": json.dumps(results, indent=1)}
    checksums.publish(model.folder, {name: text.encode() for name, text in card.items()})
