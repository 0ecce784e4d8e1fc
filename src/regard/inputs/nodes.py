"""Graphs as an input: a vector for each node, and edges along which nodes look at each other."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field as Setting
from torch import nn

from regard.attention import Edges
from regard.config import Section
from regard.data.draws import Draws
from regard.data.format import Format
from regard.data.graph import Floats, Graph, Ints, Sparse
from regard.data.graph_forms import json_graph
from regard.data.graphs import GraphSource, graph_texts, named_graph, recognise_graphs, with_nodes
from regard.data.recognition import Files
from regard.data.store import Field
from regard.data.survey import Survey
from regard.errors import UserError
from regard.inputs import node_choices
from regard.inputs.input import Chosen, Covers, Input, Naming, Opens, Row, Source, Use, positions_from
from regard.inputs.node_features import NodeFacts, learn_facts, node_features
from regard.inputs.node_stem import NodeStem
from regard.inspection.view import Coverable, GraphView, View
from regard.layers.stem import Stem

FILE = "nodes.json"
SENT_NODES, SENT_EDGES = 20_000, 200_000  # of a graph that a stranger sends
GRAPHS = ("graphs", "graph tables")  # kinds of data


class NodeSettings(Section):
    """Features of nodes, and the reading of large graphs."""

    scaling: Literal["none", "rows", "standard"] = Setting(
        "none", description="features: as they are, divided by the sum of a node's, or to mean 0 and deviation 1"
    )
    degrees: bool = Setting(False, description="the number of neighbours is a feature")
    positions: Literal["none", "laplacian", "walk"] = Setting(
        "none", description="where a node lies: eigenvectors of the Laplacian, or chances of random walks to return"
    )
    frequencies: int = Setting(8, ge=1, le=256, description="numbers that say where a node lies")
    loops: bool = Setting(True, description="each node looks at itself too")
    neighbours: int = Setting(
        0,
        ge=0,
        le=10**6,
        description="neighbours drawn for each node and hop in training; 0: all, graphs are read whole",
    )
    hops: int = Setting(3, ge=1, le=100, description="how far a node sees: layers along edges; for gcn one more")


class Nodes(Input[GraphSource], Opens, Covers):
    """Graphs in. `facts` is what was learned of features; large graphs are read around the nodes that are asked for."""

    name = "nodes"
    noun = "graphs"
    accepts = "application/json,.json"
    offers: ClassVar[frozenset[str]] = frozenset(("units to label",))
    naming: ClassVar[Naming | None] = Naming(graph_texts, with_nodes)

    def __init__(self, facts: NodeFacts, how: NodeSettings) -> None:
        self.facts, self.how = facts, how
        self.sampled = how.neighbours > 0
        self._features: WeakKeyDictionary[Graph, tuple[Sparse, Floats]] = WeakKeyDictionary()
        self._graphs: list[Graph] = []  # that rows refer to, where they are read in parts
        self._numbers: dict[str, int] = {}
        whole: tuple[Field, ...] = (
            Field("nodes", "<u4"),  # how many features of each are not 0
            Field("columns", "<u4", tokens=0),
            Field("amounts", "<f4", tokens=0),
            Field("edges", "<u4", (2,), tokens=0),
            Field("asked", "<u4", tokens=0),
        )
        if facts.dense:
            whole += (Field("dense", "<f4", (facts.dense,), tokens=0),)
        if facts.weighted:
            whole += (Field("strength", "<f4", tokens=0),)
        if facts.carried:
            whole += (Field("carried", "<f4", (facts.carried,), tokens=0),)
        self._names = [field.name for field in whole]
        self.fields = (Field("nodes", "<u4"), Field("graph", "|u1", tokens=0)) if self.sampled else whole

    # ---- from files and settings ------------------------------------------------------------------------------------

    @staticmethod
    def settings(use: Use) -> type[Section]:  # noqa: ARG004
        return NodeSettings

    @staticmethod
    def files(use: Use) -> tuple[str, ...]:  # noqa: ARG004
        return (FILE,)

    @classmethod
    def recognise(cls, files: Files, task: str | None) -> Format | None:
        if files.format not in ("", *GRAPHS):
            return None
        return recognise_graphs(files.paths, task)

    @classmethod
    def learn(cls, how: NodeSettings, use: Use, sources: Sequence[GraphSource], origin: Input[Any] | None) -> Self:
        del use
        if isinstance(origin, Nodes):
            return cls(origin.facts, how)
        graphs = {id(source.graph): source.graph for source in sources if source.graph is not None}
        return cls(learn_facts([*graphs.values()], how), how)

    @classmethod
    def load(cls, folder: Path, how: NodeSettings, use: Use, names: Mapping[str, str]) -> Self:
        del use, names
        try:
            return cls(NodeFacts(**json.loads((folder / FILE).read_text(encoding="utf-8"))), how)
        except (ValueError, TypeError) as error:
            raise UserError(f"{folder / FILE} is damaged ({error}): restore it, or train again.") from error

    def contents(self) -> dict[str, bytes]:
        return {FILE: json.dumps(self.facts._asdict(), ensure_ascii=False).encode()}

    # ---- from graphs to vectors -------------------------------------------------------------------------------------

    def read(self, line: str) -> GraphSource:
        return named_graph(line)

    def open(self, content: bytes, media: str) -> GraphSource:
        if not media.startswith(("application/json", "application/octet-stream")):
            raise UserError("The media type does not fit this model, expected application/json.")
        if self.sampled:
            raise UserError(
                "This model looks up neighbours in the file of its graph (nodes.neighbours), so it cannot read a graph "
                "that is sent: use `regard predict`."
            )
        try:
            graph = json_graph("the graph", json.loads(content))
        except (ValueError, RecursionError, UserError, TypeError, OverflowError):  # which may repeat what was sent
            raise UserError(
                "The graph cannot be read: expected a JSON object with `nodes` and `edges`, as in the training data."
            ) from None
        if graph.count > SENT_NODES or len(graph.edges) > SENT_EDGES:
            raise UserError(f"The graph is too large: expected at most {SENT_NODES:,} nodes and {SENT_EDGES:,} edges.")
        return GraphSource(graph, "the graph")

    def sample(self) -> GraphSource:
        """Return a ring with features of 0; nothing where graphs are read in parts from their files."""
        if self.sampled:
            return GraphSource(None)
        count, facts = max(8, self.how.frequencies + 3), self.facts
        where, none = np.arange(count), np.zeros(0, np.int64)
        sparse = Sparse(np.zeros(count, np.int64), none, none.astype(np.float32), facts.numbers)
        graph = Graph(
            count,
            np.stack((where, (where + 1) % count), 1),
            sparse if facts.numbers else np.zeros((count, len(facts.mean)), np.float32) if facts.mean else None,
            [[] for _ in where] if facts.words else None,
            strength=np.ones(count, np.float32) if facts.weighted else None,
            carried=np.zeros((count, facts.carried), np.float32) if facts.carried else None,
        )
        return GraphSource(graph, "the graph")

    @staticmethod
    def unreadable(source: Any) -> str:  # noqa: ARG004
        return ""

    def encode(self, sources: Sequence[GraphSource]) -> list[Row]:
        return [self._encoded(source) for source in sources]

    def _encoded(self, source: GraphSource) -> Row:
        graph = source.graph
        if graph is None:
            return tuple(np.zeros((0, *field.shape), field.dtype) for field in self.fields)
        self._known(graph, source.home)
        asked = np.arange(graph.count) if source.asked is None else source.asked
        if self.sampled:
            return asked.astype(np.uint32), np.frombuffer(source.home.encode(), np.uint8)
        if source.picked:  # what they see is enough
            nodes, edges = graph.around(asked, self.how.hops)
            return self._row(graph, nodes, edges, np.arange(len(asked)))
        nodes, edges = np.arange(graph.count), np.arange(len(graph.edges))
        return self._row(graph, nodes, edges, np.empty(0, np.int64) if source.asked is None else asked)

    def _known(self, graph: Graph, home: str) -> tuple[Sparse, Floats]:
        """Return the features of all nodes of a graph, which are computed once."""
        if graph not in self._features:
            self._features[graph] = node_features(graph, self.facts, self.how, home)
        return self._features[graph]

    def _row(self, graph: Graph, nodes: Ints, edges: Ints, asked: Ints) -> Row:
        """Return the arrays of some nodes and edges of a graph; loops are added, and edges sorted by receiver."""
        sparse, dense = self._known(graph, "")
        few = len(nodes) < graph.count
        sparse = sparse.of(nodes) if few else sparse
        pairs = graph.edges[edges]
        if few or len(asked):
            place = np.full(graph.count, -1, np.int64)
            place[nodes] = np.arange(len(nodes))
            pairs = place[pairs]
        loops = len(nodes) if self.how.loops else 0
        pairs = np.concatenate((pairs, np.repeat(np.arange(loops)[:, None], 2, 1)))
        order = np.lexsort((pairs[:, 0], pairs[:, 1]))
        row: list[NDArray[Any]] = [sparse.counts, sparse.columns, sparse.amounts, pairs[order], asked]
        if self.facts.dense:
            row.append(dense[nodes] if few else dense)
        if self.facts.weighted:
            weights = np.ones(len(edges), np.float32) if graph.strength is None else graph.strength[edges]
            row.append(np.concatenate((weights, np.ones(loops, np.float32)))[order])
        if self.facts.carried:
            empty = np.zeros((loops, self.facts.carried), np.float32)
            own = (
                np.zeros((len(edges), self.facts.carried), np.float32)
                if graph.carried is None
                else graph.carried[edges]
            )
            row.append(np.concatenate((own, empty))[order])
        return tuple(row)

    def units(self, row: Row) -> int:
        if self.sampled:
            return len(row[0])
        return len(row[4]) or len(row[0])

    def parts(self, row: Row, most: int) -> list[Row]:
        """Return a graph whole, or where it is read in parts, so many nodes at a time."""
        if not self.sampled:
            return [row] if len(row[0]) else []
        return [(row[0][start : start + most], row[1]) for start in range(0, len(row[0]), most)]

    def collate(self, rows: Sequence[Row], extra: int = 0) -> Source:
        if not self.sampled:
            return self._collated(rows, extra)
        lengths = [len(row[0]) for row in rows]
        asked = torch.full((len(rows), max(lengths, default=0) + extra), -1)
        for i, row in enumerate(rows):
            asked[i, : lengths[i]] = torch.from_numpy(np.asarray(row[0], np.int64))
        graphs = torch.tensor([self._number(bytes(np.asarray(row[1], np.uint8)).decode()) for row in rows])
        return Source((asked, graphs), positions_from(lengths, asked.shape[1]))

    def _number(self, home: str) -> int:
        """Return the number of the graph of this name; its file is opened when it is first used."""
        if home not in self._numbers:
            graph = named_graph(home).graph
            assert graph is not None
            self._known(graph, home)
            self._numbers[home] = len(self._graphs)
            self._graphs.append(graph)
        return self._numbers[home]

    def around(self, source: Source, draw: np.random.Generator | None) -> Source:
        """Return what the nodes that are asked for can see: all of it, or neighbours that are drawn."""
        asked, numbers = source.values
        rows = []
        for nodes, number in zip(asked.cpu().numpy(), numbers.tolist(), strict=True):
            graph, wanted = self._graphs[number], nodes[nodes >= 0]
            most = self.how.neighbours if draw is not None else 0
            seen, edges = graph.around(wanted, self.how.hops, most, draw)
            rows.append(self._row(graph, seen, edges, np.arange(len(wanted))))
        found = self._collated(rows, 0)
        units = torch.where(asked >= 0, torch.arange(asked.shape[1], device=asked.device), -1)
        return found._replace(units=units.cpu())

    def _collated(self, rows: Sequence[Row], extra: int) -> Source:
        parts: dict[str, list[NDArray[Any]]] = {
            name: [np.asarray(row[i]) for row in rows] for i, name in enumerate(self._names)
        }
        lengths = [len(counts) for counts in parts["nodes"]]
        width = max(lengths, default=0) + extra
        counts = torch.zeros(len(rows), width, dtype=torch.long)
        dense = torch.zeros(len(rows), width, self.facts.dense)
        for i, own in enumerate(parts["nodes"]):
            counts[i, : len(own)] = torch.from_numpy(own.astype(np.int64))
            if self.facts.dense:
                dense[i, : len(own)] = torch.from_numpy(np.array(parts["dense"][i]))
        columns = torch.from_numpy(np.concatenate(parts["columns"]).astype(np.int64))
        amounts = torch.from_numpy(np.concatenate(parts["amounts"]).astype(np.float32))
        return Source(
            (counts, columns, amounts, dense),
            positions_from(lengths, width),
            self._edges(parts),
            _units(parts["asked"], lengths),
        )

    def _edges(self, parts: dict[str, list[NDArray[Any]]]) -> Edges:
        pairs = torch.from_numpy(np.concatenate(parts["edges"]).astype(np.int64))
        each = torch.tensor([len(own) for own in parts["edges"]])
        row = torch.repeat_interleave(torch.arange(len(each)), each)
        carried = torch.from_numpy(np.concatenate(parts["carried"])) if "carried" in parts else None
        strength = torch.from_numpy(np.concatenate(parts["strength"])) if "strength" in parts else None
        return Edges(row, pairs[:, 1], pairs[:, 0], carried, strength)

    def vary(self, source: Source, draws: Draws) -> Source:  # noqa: ARG002
        return source  # neighbours are drawn by the stem

    def module(self, stem: Stem) -> NodeStem:
        if stem.pixels is not None:
            raise ValueError("this network reads pixels, and graphs have none: choose another kind, such as gat")
        if self.marks or stem.whole is not None:
            raise ValueError("graphs have no alphabet and no marks: choose another model.kind or output.pooling")
        if stem.place is not None:
            raise ValueError(
                "nodes have no order: set model.position=none; nodes.positions=laplacian says where a node lies"
            )
        if stem.reach > self.how.hops:
            raise ValueError(f"nodes.hops is {self.how.hops}, expected at least {stem.reach}, as far as the model sees")
        if stem.edges and not self.facts.carried:
            raise ValueError("model.edge_width asks for features of edges, and these graphs have none: set it to 0")
        signs = self.how.frequencies if self.how.positions == "laplacian" else 0
        look = self.around if self.sampled else None
        return NodeStem(self.facts.columns, self.facts.dense, self.facts.carried, stem, signs=signs, around=look)

    def prepare(self, module: nn.Module, rows: Callable[[], Iterator[Row]]) -> None:
        """Need no rows."""

    # ---- for people -------------------------------------------------------------------------------------------------

    def view(self, source: GraphSource) -> View:
        graph = source.graph
        if graph is None:
            return View([], listed=True)
        if source.picked:
            assert source.asked is not None
            nodes, edges = graph.around(source.asked, self.how.hops)
            seen = graph.within(nodes, edges)
            names = [graph.name(int(i)) for i in nodes]
            own = list(range(len(source.asked)))
            return View(names, units=own, listed=True, scene=GraphView(seen.edges, seen.labels, centres=own))
        if self.sampled:
            return View(self._asked_names(source), listed=True)
        names = [graph.name(i) for i in range(graph.count)]
        units: list[int] | None = None if source.asked is None else source.asked.tolist()
        return View(names, units=units, listed=True, scene=GraphView(graph.edges, graph.labels))

    @staticmethod
    def _asked_names(source: GraphSource) -> list[str]:
        graph = source.graph
        assert graph is not None
        return [graph.name(int(i)) for i in (range(graph.count) if source.asked is None else source.asked)]

    def coverable(self, source: GraphSource, view: View) -> list[Coverable]:  # noqa: ARG002
        """Return the edges, each as the way from its sender to its receiver."""
        if view.scene is None or self.sampled:
            return []
        pairs = view.scene.edges.tolist()
        return [Coverable(f"{view.names[a]} → {view.names[b]}", (a,), b) for a, b in pairs]

    def cover(self, source: GraphSource, view: View, part: Coverable) -> GraphSource:  # noqa: ARG002
        """Return the graph without an edge."""
        graph = source.graph
        assert graph is not None
        assert part.receiver is not None
        nodes = np.arange(graph.count)
        if source.picked and source.asked is not None:
            nodes, _ = graph.around(source.asked, self.how.hops)
        kept = (graph.edges != nodes[[part.vectors[0], part.receiver]]).any(1)
        strength = None if graph.strength is None else graph.strength[kept]
        carried = None if graph.carried is None else graph.carried[kept]
        less = replace(graph, edges=graph.edges[kept], strength=strength, carried=carried)
        if not self.how.degrees and self.how.positions == "none":  # features of nodes do not depend on edges
            self._features[less] = self._known(graph, source.home)
        return replace(source, graph=less)

    def text(self, source: GraphSource) -> str:
        return source.text

    def length(self, source: GraphSource) -> int:
        return 0 if source.graph is None else source.graph.count

    # ---- choosing ---------------------------------------------------------------------------------------------------

    @classmethod
    def choose(cls, seen: Survey, use: Use) -> Chosen:
        return node_choices.chosen(seen, use)


def _units(asked: Sequence[NDArray[Any]], lengths: Sequence[int]) -> torch.Tensor | None:
    """Return the nodes that are asked for, (batch, m), −1 for none; None: all of each graph."""
    if not any(len(own) for own in asked):
        return None
    chosen = [own if len(own) else np.arange(count) for own, count in zip(asked, lengths, strict=True)]
    units = torch.full((len(chosen), max(map(len, chosen))), -1)
    for i, own in enumerate(chosen):
        units[i, : len(own)] = torch.from_numpy(own.astype(np.int64))
    return units
