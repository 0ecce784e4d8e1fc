"""Graphs as data: one graph whose nodes are labelled, or many graphs that are labelled.

`cora.npz` may have nodes for training, validation and test: `cora.npz/train` are the first of these, `mutag.npz/fold3`
the graphs of a fold. `mutag.npz#5` is the sixth graph of a file, and `cora.npz@17` node 17 of a graph.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from regard.data.example import Example
from regard.data.format import Format, are_labels
from regard.data.graph import Graph, Ints
from regard.data.graph_forms import graph_form, graphs_of
from regard.data.lines import UTF_8, Fault, OnFault
from regard.data.tagged import NO_BREAK
from regard.errors import UserError

PART = re.compile(r"train|valid|test|fold\d+")
PICKED = re.compile(r"(?P<path>.+?)(?:#(?P<number>\d+))?(?:@(?P<nodes>[^@/]+))?")
LARGE_NODES, LARGE_EDGES = 100_000, 2_000_000  # of a graph that is read in pieces
PIECE = 1024  # nodes that are labelled at once in such a graph
KEPT = 4  # files whose graphs are kept: a training reads three parts of one file

_known: dict[tuple[str, int, int], list[Graph]] = {}


@dataclass(frozen=True, eq=False)
class GraphSource:
    """A graph of a file, and the nodes that are asked for; None: all. `text` is how the command line names it."""

    graph: Graph | None  # None: nothing was named
    file: str = ""
    number: int | None = None  # of several graphs in a file
    part: str = ""
    asked: Ints | None = None
    picked: bool = False  # nodes were named one by one
    piece: int = 0

    def __str__(self) -> str:
        return self.text + (f" ({self.piece})" if self.piece else "")

    @property
    def text(self) -> str:
        if self.graph is None:
            return ""
        path = f"{self.file}/{self.part}" if self.part else self.file
        number = "" if self.number is None else f"#{self.number}"
        names = ",".join(self.graph.name(int(i)) for i in self.asked) if self.picked and self.asked is not None else ""
        return path + number + (f"@{names}" if names else "")

    @property
    def home(self) -> str:
        """The name of the graph without the nodes that are asked for."""
        return self.file + ("" if self.number is None else f"#{self.number}")


def located(path: Path | str) -> tuple[str, str]:
    """Return the file of a path, and the part of it that the path leads to."""
    path = Path(path)
    if not path.exists() and PART.fullmatch(path.name) and path.parent.exists():
        return str(path.parent), path.name
    return str(path), ""


def graphs_in(paths: Sequence[Path | str]) -> list[Graph]:
    """Return the graphs of a file, or of an edge list and its table of nodes; the last few are kept."""
    first = os.stat(paths[0]) if Path(paths[0]).exists() else None
    if first is None:
        raise UserError(f"{paths[0]}: there is no such file; check the name and the folder.")
    key = ("\n".join(map(str, paths)), first.st_mtime_ns, first.st_size)
    if key not in _known:
        found = graphs_of(paths)
        while len(_known) >= KEPT:
            _known.pop(next(iter(_known)))
        _known[key] = found
    return _known[key]


# ---- recognising ----------------------------------------------------------------------------------------------------


def recognise_graphs(paths: Sequence[Path], task: str | None) -> Format | None:
    """Return the format of files that hold graphs; None for others."""
    places = [located(path) for path in paths]
    kinds = [graph_form([file]) for file, _ in places]
    joined = len(paths) == 2 and graph_form([file for file, _ in places]) == "tables"
    if not joined and not all(kinds):
        return None
    if task == "continue":
        raise UserError(f"{paths[0]} holds graphs, and the task continue needs an alphabet: choose tag or classify.")
    files = [file for file, _ in places]
    graphs = graphs_in(files if joined else files[:1])
    wanted = task or _task_of(graphs)
    _refuse_unlabelled(files[0], graphs, wanted)
    described = f"{_described(graphs)}, {'node table and edge list' if joined else kinds[0]}"
    alone = (
        len(graphs) == 1 and len(paths) <= 2 and wanted == "tag" and not places[0][1] and (joined or len(paths) == 1)
    )
    splits = _splits(files[0], graphs, wanted) if (alone or len(paths) == 1) and not places[0][1] else ()
    made = alone and not graphs[0].splits
    kind = "graph tables" if joined else "graphs"
    return Format(kind, 1, described, task=wanted, input="nodes", splits=splits, cut=made)


def _task_of(graphs: Sequence[Graph]) -> str:
    labels = [graph.label for graph in graphs if graph.label is not None]
    if not labels:
        return "tag"
    texts = [str(i) for i in range(len(labels))]
    words = sum(len(label.split()) for label in labels) / len(labels)
    return "classify" if are_labels(labels, texts) or (words < 2 and len(set(labels)) < 50) else "convert"


def _refuse_unlabelled(file: str, graphs: Sequence[Graph], task: str) -> None:
    if task == "tag" and not any(len(graph.labelled) for graph in graphs):
        found = sorted({word.partition("=")[0] for graph in graphs for words in graph.words or () for word in words})
        some = f" (one of {', '.join(found)}, perhaps: rename it)" if found else ""
        raise UserError(
            f"{file}: no node has a label, expected `labels` of an NPZ file, or a column or attribute `label`{some}; "
            "for whole graphs choose --task classify."
        )
    if task != "tag" and all(graph.label is None for graph in graphs):
        raise UserError(
            f"{file}: no graph has a label, expected `graph_labels` for {task}; for nodes choose --task tag."
        )


def _described(graphs: Sequence[Graph]) -> str:
    nodes, edges = sum(graph.count for graph in graphs), sum(len(graph.edges) for graph in graphs)
    if len(graphs) == 1:
        return f"a graph of {nodes:,} nodes and {edges:,} edges (an undirected one is two)"
    return f"{len(graphs):,} graphs of {nodes / len(graphs):.1f} nodes and {edges / len(graphs):.1f} edges on average"


def _splits(file: str, graphs: Sequence[Graph], task: str) -> tuple[tuple[str, str], ...]:
    """Return the parts of a file that are for training, validation and test."""
    if len(graphs) == 1 and task == "tag":
        names = {*graphs[0].splits} or {"train"}
        names |= {"valid"} if "train" in names else set()  # some of train, see `chosen_nodes`
    else:
        names = {graph.part for graph in graphs}
    known = tuple((name, f"{file}/{name}") for name in ("train", "valid", "test") if name in names)
    return known if ("train" in names and len(known) > 1) else ()


# ---- reading --------------------------------------------------------------------------------------------------------


def read_graphs(
    path: Path | str, form: Format, report: OnFault, encoding: str = UTF_8
) -> Iterator[Example[GraphSource, str]]:
    """Yield the examples of a file: labelled nodes of each graph, or labelled graphs."""
    del encoding
    file, part = located(path)
    yield from _examples([file], part, form, report)


def read_graph_tables(
    paths: Sequence[Path | str], form: Format, report: OnFault, encoding: str = UTF_8
) -> Iterator[Example[GraphSource, str]]:
    """Yield the examples of an edge list and its table of nodes; a part of either is a part of both."""
    del encoding
    places = [located(path) for path in paths]
    part = next((part for _, part in places if part), "")
    yield from _examples([file for file, _ in places], part, form, report)


def _examples(files: list[str], part: str, form: Format, report: OnFault) -> Iterator[Example[GraphSource, str]]:
    graphs = graphs_in(files)
    several = len(graphs) > 1
    found = 0
    for number, graph in enumerate(graphs):
        if several and part and graph.part != part:
            continue
        found += 1
        source = GraphSource(graph, files[0], number if several else None, "" if several else part)
        if form.task == "tag":
            yield from _tagged(source, number, report)
        elif graph.label is None:
            report(Fault(files[0], number + 1, f"graph {number} has no label; give it one, or remove it", "no label"))
        else:
            yield Example(source, graph.label, files[0], number + 1, str(source), tuple(files[1:]))
    if not found:
        raise UserError(f"{files[0]}: there is no graph in the part {part!r}.")


def _tagged(source: GraphSource, number: int, report: OnFault) -> Iterator[Example[GraphSource, str]]:
    graph = source.graph
    assert graph is not None
    assert graph.labels is not None or not len(graph.labelled)
    nodes = chosen_nodes(graph, source.part)
    if not len(nodes):
        where = f" of the part {source.part!r}" if source.part else ""
        report(Fault(source.file, number + 1, f"graph {number}: no node{where} has a label", "no label"))
        return
    step = PIECE if is_large(graph) else len(nodes)
    for piece, start in enumerate(range(0, len(nodes), step)):
        some = nodes[start : start + step]
        tags = " ".join(str(graph.labels[i]).replace(" ", NO_BREAK) for i in some)  # type: ignore[index]
        asked = None if len(some) == graph.count else some
        one = GraphSource(graph, source.file, source.number, source.part, asked, piece=piece)
        yield Example(one, tags, source.file, number + 1, str(one))


def is_large(graph: Graph) -> bool:
    return graph.count > LARGE_NODES or len(graph.edges) > LARGE_EDGES


def chosen_nodes(graph: Graph, part: str) -> Ints:
    """Return the labelled nodes of a part; unless a file says so, a tenth is for validation, by a hash of the name."""
    labelled = graph.labelled
    if not part:
        return labelled
    if part in graph.splits and (part != "train" or "valid" in graph.splits):
        own: Ints = graph.splits[part][np.isin(graph.splits[part], labelled)]
        return own
    nodes: Ints = graph.splits.get("train", labelled)
    nodes = nodes[np.isin(nodes, labelled)]
    if part not in ("train", "valid"):
        return nodes[:0]
    held = np.array([zlib.crc32(graph.name(int(i)).encode()) % 10 == 0 for i in nodes], dtype=bool)
    if held.all() or not held.any():
        held = np.arange(len(nodes)) % 10 == 9
    found: Ints = nodes[held if part == "valid" else ~held]
    return found


# ---- the command line -----------------------------------------------------------------------------------------------


def named_graph(text: str) -> GraphSource:
    """Return the graph that a text of the command line names: FILE, FILE#3, FILE@17, FILE#3@1,2 or FILE/test."""
    if not text.strip():
        return GraphSource(None)
    file, part, number, names = _parsed(text)
    graphs = graphs_in([file])
    if number is None and len(graphs) > 1:
        raise UserError(f"{file} has {len(graphs):,} graphs: name one, such as {file}#0.")
    if (number or 0) >= len(graphs):
        raise UserError(f"{text}: there is no graph {number}, expected 0 to {len(graphs) - 1}.")
    graph = graphs[number or 0]
    kept = None if len(graphs) == 1 else number
    if names:
        return GraphSource(graph, file, kept, part, _named_nodes(graph, names, file), picked=True)
    asked = chosen_nodes(graph, part) if part and len(graphs) == 1 else None
    return GraphSource(graph, file, kept, part if len(graphs) == 1 else "", asked)


def graph_texts(text: str) -> list[str]:
    """Return a text for each graph that a text of the command line names: a file may hold several."""
    if not text.strip():
        return [text]
    file, part, number, _ = _parsed(text)
    graphs = graphs_in([file])
    if number is not None or len(graphs) == 1:
        return [text]
    return [f"{file}#{i}" for i, graph in enumerate(graphs) if not part or graph.part == part]


def with_nodes(text: str, names: Sequence[str]) -> str:
    """Return the text that names some nodes of a graph."""
    return f"{text}@{','.join(names)}"


def _parsed(text: str) -> tuple[str, str, int | None, list[str]]:
    if Path(text).exists() or Path(located(text)[0]).exists():
        return *located(text), None, []
    found = PICKED.fullmatch(text)
    assert found is not None
    file, part = located(found["path"])
    if not Path(file).exists():
        raise UserError(
            f"{file}: there is no such file; expected a graph, such as cora.npz, or node 17 of it, cora.npz@17."
        )
    number = None if found["number"] is None else int(found["number"])
    return file, part, number, found["nodes"].split(",") if found["nodes"] else []


def _named_nodes(graph: Graph, names: Sequence[str], file: str) -> Ints:
    unknown = next((name for name in names if name not in graph.numbered), None)
    if unknown is not None:
        some = ", ".join(list(graph.numbered)[:3])
        raise UserError(f"{file}: there is no node {unknown!r}, expected one such as {some}.")
    return np.array([graph.numbered[name] for name in names], dtype=np.int64)
