"""Pictures of an evaluation: the confusion matrix, and a contact sheet of the examples that were most surely wrong."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from regard import metrics, pictures
from regard.errors import UserError
from regard.outputs.detect.output import detections
from regard.outputs.output import Item
from regard.runs.model import Model

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_CLASSES = 100  # of a confusion matrix that can be read
SHOWN = 40  # pictures of a contact sheet
LETTERS = 14  # of a name, with room for its probability


def draw(model: Model, items: Sequence[Item], answers: Sequence[str], folder: Path) -> list[Path]:
    """Write what can be drawn of an evaluation of labels into a folder; return the files."""
    if model.task.output.reads not in ("classify", "detect"):
        raise UserError(f"--pictures draws labels that were taken for others, and this model {model.task.does}.")
    folder.mkdir(parents=True, exist_ok=True)
    if model.task.output.reads == "detect":
        return [pictures.save(precision_recall(items, answers), folder / "precision_recall.png")]
    expected = [[str(label) for label in item.expected] for item in items]
    names, counts = metrics.confusion(answers, expected)
    written = []
    if len(names) <= MOST_CLASSES:
        written.append(pictures.save(pictures.confusion(counts, names), folder / "confusion.png"))
    wrong = [i for i, answer in enumerate(answers) if answer not in expected[i]]
    views = {i: model.task.input.view(items[i].example.source) for i in wrong[:SHOWN]}
    shown = _surest(model, items, wrong) if views and next(iter(views.values())).picture is not None else []
    if shown:
        found = [model.task.input.view(items[i].example.source).picture for i, _ in shown]
        titles = [title_of(answers[i], share, expected[i][0]) for i, share in shown]
        title = f"{len(wrong):,} of {len(items):,} are wrong; the surest of them:"
        sheet = pictures.contact_sheet([p for p in found if p is not None], titles, title)
        written.append(pictures.save(sheet, folder / "contact.png"))
    return written


def title_of(answer: str, share: float, expected: str) -> str:
    """Return two lines above a picture; a long name is cut before the probability, not behind it."""
    short = answer if len(answer) <= LETTERS else answer[: LETTERS - 1] + "…"
    return f"{short} ({100 * share:.0f} %)\nnot {expected}"


def precision_recall(items: Sequence[Item], answers: Sequence[str]) -> Figure:
    """Draw the precision of each class at each recall, for an IoU of 0.5 or more."""
    graded = metrics.graded(*detections(items, answers))
    found = {name: 100 * metrics.precisions(each)[0] for name, each in graded.items()}
    lines = {f"{name} ({line.mean():.0f} %)": line.tolist() for name, line in found.items()}
    recalls = [100 * recall for recall in metrics.RECALLS.tolist()]
    return pictures.curves(recalls, lines, "recall, %", "precision, %", title="Precision and recall, IoU ≥ 0.5 (AP50)")


def _surest(model: Model, items: Sequence[Item], wrong: Sequence[int]) -> list[tuple[int, float]]:
    """Return the wrong answers with the greatest probabilities."""
    found = model.answers([items[i].example.source for i in wrong])
    ranked = [(i, float(answer.probabilities[answer.label])) for i, answer in zip(wrong, found, strict=True)]
    return sorted(ranked, key=lambda each: -each[1])[:SHOWN]
