"""Examples of a run for its page: which sources they are, and whether they were answered rightly."""

from types import SimpleNamespace
from typing import Any

from regard.data.example import Example
from regard.outputs.output import Held, Item
from regard.runs.examples import _nodes


def test_labels_of_nodes_with_blanks_in_them_are_compared_as_wholes() -> None:
    naming = SimpleNamespace(units=lambda text, names: f"{text} {names[0]}")
    input = SimpleNamespace(
        naming=naming, text=str, view=lambda source: SimpleNamespace(unit_names=lambda: ["a", "b", "c"])
    )
    task: Any = SimpleNamespace(input=input, output=SimpleNamespace(reads="tag"))
    item = Item(Example("graph", "", "f", 1), ["New\u00a0York Rome Paris"])
    found = list(_nodes(task, Held([item], []), ["New\u00a0York York Paris"]))
    assert found == [("graph a", "New\u00a0York", True), ("graph b", "Rome", False), ("graph c", "Paris", True)]
