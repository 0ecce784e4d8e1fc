"""A check of graphs before training: the faults that all examples have, and counts of nodes, edges and labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np

from regard.data.check import DataReport, Part, Read, check_parts
from regard.data.example import Example, counted
from regard.data.format import Format
from regard.data.graph import Graph, Sparse
from regard.data.graphs import GraphSource
from regard.data.lines import OnFault
from regard.data.statistics import shares


def check_graphs(train: Part, others: Sequence[Part], encoding: str, read: Read) -> DataReport:
    """Report faults as for all data, and describe the graphs of the training data."""
    graphs: dict[int, Graph] = {}  # by identity: one graph may have many examples

    def reading(
        paths: Sequence[Path | str], form: Format, report: OnFault, code: str
    ) -> Iterator[Example[GraphSource, str]]:
        for example in read(paths, form, report, code):
            if paths is train.paths and example.source.graph is not None:
                graphs[id(example.source.graph)] = example.source.graph
            yield example

    report = check_parts(train, others, encoding, reading)
    return replace(report, about=tuple(describe([*graphs.values()], train.form.task)))


def describe(graphs: Sequence[Graph], task: str) -> Iterator[str]:
    """Yield lines about the sizes, features and labels of graphs."""
    nodes, edges = [graph.count for graph in graphs], [len(graph.edges) for graph in graphs]
    alone = sum(int(np.sum(np.diff(graph.offsets) == 0)) for graph in graphs)
    most = max((int(graph.degrees.max(initial=0)) for graph in graphs), default=0)
    if len(graphs) > 1:
        yield (
            f"{counted(len(graphs), 'graph')}: half of them have at most {median(nodes):,.0f} nodes and "
            f"{median(edges):,.0f} edges, the largest {max(nodes):,} and {max(edges):,}"
        )
    yield (
        f"{counted(sum(nodes), 'node')}, {counted(sum(edges), 'edge')} (an undirected one is two): "
        f"at most {most:,} lead to a node, none to {alone:,} of them"
    )
    yield f"features of a node: {counted(_numbers(graphs), 'number')}, {counted(_words(graphs), 'word')}"
    if task == "tag":
        named = Counter(label for graph in graphs for label in graph.labels or () if label is not None)
        yield f"{named.total():,} of {counted(sum(nodes), 'node')} have a label"
        yield shares(named, "label")
    elif task == "classify":
        yield shares(Counter(graph.label for graph in graphs if graph.label is not None), "label")


def _numbers(graphs: Iterable[Graph]) -> int:
    found = (graph.numbers for graph in graphs if graph.numbers is not None)
    return max((each.width if isinstance(each, Sparse) else each.shape[1] for each in found), default=0)


def _words(graphs: Iterable[Graph]) -> int:
    return len({word for graph in graphs for words in graph.words or () for word in words})
