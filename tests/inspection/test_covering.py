"""Covering: in every input a part is hidden, and its effect is what a direct computation says."""

import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.commands.show import show
from regard.data.graph import Graph
from regard.data.graphs import GraphSource
from regard.data.sound import samples_of
from regard.errors import UserError
from regard.inputs.input import Batch
from regard.inspection.view import View
from regard.text.cutting import places, without
from tests.runs.test_old_runs import OLD
from tests.test_matrix import FITTING, train

NUMBER = re.compile(r"-?\d+\.\d+")


@pytest.mark.parametrize(
    ("text", "names", "number", "left"),
    [
        ("the boy reads", ["the", "boy", "reads"], 1, "the reads"),
        ("the boy reads", ["the", "boy", "reads"], 0, "boy reads"),
        ("the boy reads", ["the", "boy", "reads"], 2, "the boy"),
        ("Le Garçon, oui.", ["le", "garçon,", "oui."], 1, "Le oui."),
        ("abca", ["a", "b", "c", "a"], 3, "abc"),
        ("a b", ["a", "␣", "b"], 1, "ab"),
        ("日本語", ["日本", "語"], 0, "語"),
    ],
)
def test_a_text_without_a_token(text: str, names: list[str], number: int, left: str) -> None:
    place = places(names, text)[number]
    assert place is not None
    assert without(text, *place) == left


def test_what_is_not_written_there_has_no_place() -> None:
    assert places(["the", "<unk>", "reads"], "the boy reads") == [(0, 3), None, (8, 13)]


# ---- inputs


def parts_of(task: Any, source: Any) -> tuple[View, list[Any]]:
    view = task.passes.view(source)
    return view, task.input.coverable(source, view)


@pytest.fixture(scope="module", params=[(i, o) for i, o in FITTING if i != "series"], ids="-".join)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Any]:
    source, task = request.param
    folder = tmp_path_factory.mktemp("covering")
    model = train(folder, "run", source, task)
    held = model.held([next(path for path in folder.iterdir() if path.is_file())])
    return folder, model, held.items[0].example.source


def test_one_part_alone_is_hidden(made: tuple[Path, Any, Any]) -> None:
    _, model, source = made
    task = model.task
    view, parts = parts_of(task, source)
    assert len(parts) > 1
    part = parts[len(parts) // 2]
    covered = task.input.cover(source, view, part)
    before, after = task.input.encode([source])[0], task.input.encode([covered])[0]
    if isinstance(source, GraphSource):
        assert isinstance(covered.graph, Graph)
        gone = {*map(tuple, source.graph.edges.tolist())} - {*map(tuple, covered.graph.edges.tolist())}
        assert len(source.graph.edges) - len(covered.graph.edges) == len(gone) == 1
        ((sender, receiver),) = gone
        assert part.name == f"{source.graph.name(sender)} → {source.graph.name(receiver)}"
    elif view.grid is not None:
        was, strip = (np.concatenate(np.asarray(row[0]), axis=1) for row in (before, after))  # a picture, or frames
        changed = np.argwhere((was != strip).any(-1))
        row, column = divmod(part.vectors[0] - (len(view.names) - view.grid[0] * view.grid[1]), view.grid[1])
        size = task.input.how.size // view.grid[0]
        assert {(r // size, c // size) for r, c in changed.tolist()} <= {(row, column)}
        cell = strip[row * size : (row + 1) * size, column * size : (column + 1) * size]
        assert np.allclose(cell, 255 * np.asarray(task.input.mean), atol=0.51)
    elif view.sound is not None:
        (samples, rate), (silent, _) = samples_of(source), samples_of(covered)
        changed = np.flatnonzero(samples != silent) / rate / view.sound.step
        assert changed.min() >= part.vectors[0] - 0.01
        assert changed.max() <= part.vectors[-1] + 1.01
        assert len(before[0]) == len(after[0])
    else:
        assert covered != source
        assert len(covered) < len(source) or "\ufffd" in covered


def test_the_effect_equals_a_direct_computation(made: tuple[Path, Any, Any]) -> None:
    folder, model, source = made
    task, name = model.task, model.config.task
    source = task.trial(source)  # of a text to fill in, one with a blank
    first = task.output.looked_at(task.passes, source, "b" if name == "continue" else None)
    shown = task.exhibit(source, "b" if name == "continue" else None, "each")
    view, parts = parts_of(task, source)
    assert shown.effects is not None
    assert len(shown.effects.covered) == len(shown.parts) > 1
    for number, (text, each) in [*shown.effects.covered.items()][:3]:
        part = next(each for each in parts if each.name == shown.parts[number].name)
        covered = task.input.cover(source, view, part)
        if name == "continue":
            assert text is None  # what would be drawn says little
        else:
            assert text == said(task, task.answers([covered])[0])
        directly = DIRECT[name](task, covered, first)
        assert each is None if directly is None else each == pytest.approx(directly, abs=1e-5)
    map_of_effects = shown.maps[-1].name.startswith("effect of covering")
    assert map_of_effects == (name != "imagine")  # whose answers are numbers, and not more or less probable
    path = show(model, [task.input.text(source)], folder / "covered.html", cover=True)
    assert '"effects":{' in path.read_text("utf-8")


def said(task: Any, answer: Any) -> str:
    if task.output.reads != "detect":
        return str(task.output.as_target(answer))
    counts = Counter(answer.boxes[i].label for i in answer.kept)
    return ", ".join(f"{count} {label}" for label, count in counts.items()) or "nothing"


def alike(one: str, other: str) -> bool:
    """Return whether two answers have the same words, and the same numbers but for rounding."""
    numbers = ([*map(float, NUMBER.findall(text))] for text in (one, other))
    return NUMBER.sub("0", one) == NUMBER.sub("0", other) and next(numbers) == pytest.approx(next(numbers), rel=1e-3)


def of_label(task: Any, covered: Any, first: Any) -> list[float]:
    return [task.answers([covered])[0].probabilities[first.label]]


def of_tags(task: Any, covered: Any, first: Any) -> list[float]:
    scores = task.network.scores(task.output.known(task.passes, [covered], [first]))[0].softmax(-1)
    picked = [task.output.classes.names.index(tag) for tag in first.tags]
    return list(scores[range(len(picked)), picked].tolist())


def of_tokens(task: Any, covered: Any, first: Any) -> list[float]:
    batch = task.output.known(task.passes, [covered], [first])
    with torch.no_grad():
        scores = task.network.scores(batch)[0]
    losses = torch.nn.functional.cross_entropy(scores, batch.target.ids[0], reduction="none")
    return list((-losses).exp().tolist())


def of_continuation(task: Any, covered: str, first: Any) -> list[float]:
    ids = [*task.output.prompt(task.input, covered), *first.ids]
    batch = Batch(task.input.collate([(ids[:-1],)]), torch.tensor([ids[1:]]))
    with torch.no_grad():
        shares = task.network.scores(batch)[0].softmax(-1)
    return [float(shares[len(ids) - 1 - k, ids[-k]]) for k in range(len(first.ids), 0, -1)]


def of_blank(task: Any, covered: str, first: Any) -> list[float]:
    """The same word among all that could stand there."""
    every = task.answers([covered], n_best=task.input.alphabet.size)[0].guesses
    return [sum(float(np.exp(log)) for log, words in every if words == first.guesses[0][1])]


def of_things(task: Any, covered: Any, first: Any) -> list[float]:
    guesses = task.answers([covered], threshold=0.0)[0].boxes
    with torch.no_grad():
        scores = task.network.scores(Batch(task.input.collate(task.input.encode([covered])), None))[0]
    names, found = task.output.classes.names, []
    for query in first.shown:
        label = first.boxes[query].label
        found.append(float(scores[query, : len(names) + 1].softmax(-1)[names.index(label)]))
        if guesses[query].label == label:
            assert guesses[query].score == pytest.approx(found[-1], abs=1e-5)
    return found


DIRECT: dict[str, Any] = {
    "classify": of_label, "tag": of_tags, "convert": of_tokens, "continue": of_continuation, "fill": of_blank,
    "detect": of_things, "imagine": lambda *_: None,
}  # fmt: skip


def test_the_map_of_effects_holds_what_each_element_loses() -> None:
    model = regard.load(OLD / "convert_recurrent")
    source = model.task.input.read(
        random.Random(0).choice((OLD / "pairs.tsv").read_text("utf-8").splitlines()).split("\t")[0]
    )
    shown = model.task.exhibit(source, None, "each")
    assert shown.effects is not None
    assert shown.effects.each is not None
    weights = np.asarray(shown.maps[-1].weights)[0, 0]
    assert weights.shape == (len(shown.target), len(shown.source))
    for number, (_, after) in shown.effects.covered.items():
        assert after is not None
        columns = list(shown.parts[number].vectors)
        assert np.allclose(weights[:, columns].sum(-1), np.subtract(shown.effects.each, after))


def test_drawn_continuations_and_blanks_have_probabilities() -> None:
    model = regard.load(OLD / "continue_gpt")
    shown = model.task.exhibit("the cat", "a", "each")
    assert shown.effects is not None
    head = model.network.head
    ids = model.task.output.prompt(model.task.input, "the cata")
    nats = head.surprise(model.network, ids, 48, 24)  # type: ignore[operator, union-attr]
    assert shown.effects.each == pytest.approx([float(np.exp(-nats[-1]))], abs=1e-5)
    assert shown.elements == range(len(shown.source) - 1, len(shown.source))
    model = regard.load(OLD / "fill_bert")
    filled = model.task.exhibit("the ___ sees a dog", None, "each")
    assert filled.effects is not None
    assert filled.effects.each is not None
    own = model.answers(["the ___ sees a dog"])[0]
    assert filled.effects.each[0] == pytest.approx(float(np.exp(own.guesses[0][0])), abs=1e-5)
    assert len(filled.effects.covered) >= 3


def test_pictures_do_not_hold_effects(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cover goes with \.html and \.npz"):
        show(regard.load(OLD / "classify"), ["a"], tmp_path / "x.png", cover=True)
