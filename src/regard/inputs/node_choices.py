"""Choosing settings for graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from regard.data.graph import Graph, Sparse
from regard.data.graphs import is_large
from regard.data.survey import Survey
from regard.inputs.input import Chosen, Use


def chosen(seen: Survey, use: Use) -> Chosen:
    """Return how these graphs are read, and networks and trainings that suit them."""
    graphs = [*{id(source.graph): source.graph for source in seen.sources}.values()]
    nodes, why = _reading(graphs)
    found: dict[str, Any] = {"nodes": nodes, "data": {"longest": max(256, *(graph.count for graph in graphs))}}
    carried = 16 if graphs[0].carried is not None else 0
    sections, reasons = _models(seen, graphs, use, carried)
    return found | sections, why | reasons


def _reading(graphs: Sequence[Graph]) -> Chosen:
    first = graphs[0]
    nodes: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    if isinstance(first.numbers, Sparse):
        nodes["scaling"] = "rows" if bool((first.numbers.amounts >= 0).all()) else "none"
        reasons["nodes.scaling"] = "features are counts of words: their shares in each node say more than their sums"
    elif first.numbers is not None:
        nodes["scaling"] = "standard"
        reasons["nodes.scaling"] = "features are measured in different units: each is scaled to mean 0 and deviation 1"
    if first.numbers is None and first.words is None:
        nodes["degrees"] = True
        reasons["nodes.degrees"] = "nodes have no features: how many neighbours they have is one"
    if any(map(is_large, graphs)):
        nodes |= {"neighbours": 10, "hops": 2}
        reasons["nodes.neighbours"] = "a large graph: around each node 10 neighbours are drawn at each hop in training"
    return nodes, reasons


def _models(seen: Survey, graphs: Sequence[Graph], use: Use, carried: int) -> Chosen:
    """Return settings of the network and the training; what is read whole is trained on for a number of steps."""
    large = any(map(is_large, graphs))
    if use is Use.UNITS:
        labelled = sum(len(source.asked) if source.asked is not None else source.graph.count for source in seen.sources)
        model: dict[str, Any] = {"kind": "gat", "layers": 2, "width": 64, "heads": 8, "edge_width": carried}
        few = labelled < 2000
        model |= {"dropout": 0.6, "attention_dropout": 0.6} if few else {"dropout": 0.2, "attention_dropout": 0.0}
        training = {"rate": 5e-3, "decay": 0.5 if few else 0.0, "warmup": 10, "smoothing": 0.0, "schedule": "constant"}
        training |= {"budget": 4096, "average": 1} | ({} if large else {"steps": 500, "every": 10})
        reasons = {
            "model.kind": "attention along edges: `regard show` tells which neighbours decided",
            "model.dropout": f"{labelled:,} labelled nodes are {'few' if few else 'many'}: {model['dropout']}",
        }
        return {"model": model, "training": training}, reasons
    if use is Use.LABEL:
        model = {"kind": "graph", "layers": 3, "width": 64, "dropout": 0.1, "skip": True, "norm": True}
        model["edge_width"] = carried
        training = {
            "rate": 2e-3,
            "decay": 0.01,
            "warmup": 50,
            "smoothing": 0.0,
            "budget": 2048,
            "steps": 1500,
            "every": 30,
        }
        reasons = {
            "model.kind": "a node and the sum of its neighbours: how many there are counts, as it does in molecules",
            "output.pooling": "the mean over nodes does not depend on the size of a graph",
        }
        sections: dict[str, Any] = {"model": model, "training": training, "output": {"pooling": "mean"}}
        return sections, reasons
    encoder = {"kind": "gatv2", "layers": 2, "width": 64, "heads": 4, "dropout": 0.1, "edge_width": carried}
    return {"encoder": encoder}, {"encoder.kind": "attention along edges reads the graph"}
