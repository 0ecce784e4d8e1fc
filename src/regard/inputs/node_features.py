"""Features of nodes as a network takes them: sparse columns, dense numbers, and where a node lies in its graph.

Positions: the k eigenvectors of the Laplacian I − D^−½ A D^−½ with the smallest eigenvalues but the first, which is
0 (Dwivedi et al. 2023): they vary smoothly along edges. Or the chance of a random walk from a node to be there after
1 … k steps again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from regard.data.graph import Floats, Graph, Sparse
from regard.errors import UserError

DEGREES = 65  # columns for the number of neighbours; the last stands for more
MOST_WORDS = 20_000  # names among features that are known
DENSE_LAPLACIAN = 400  # nodes up to which all eigenvectors are computed
WALKED = 5_000  # nodes of a graph whose random walks are computed


class NodeFacts(NamedTuple):
    """The widths, the scale and the names of features, learned from graphs."""

    numbers: int  # columns of sparse numbers
    words: Sequence[str]  # features that are names, a column each
    degrees: int  # columns of the number of neighbours
    dense: int  # dense numbers and positions
    mean: Sequence[float]
    deviation: Sequence[float]
    weighted: bool  # edges have weights
    carried: int  # features of an edge

    @property
    def columns(self) -> int:
        return self.numbers + len(self.words) + self.degrees


def learn_facts(graphs: Sequence[Graph], how: Any) -> NodeFacts:
    """Learn from graphs; all must have the same features."""
    first = graphs[0]
    sparse, dense = first.numbers.width if isinstance(first.numbers, Sparse) else 0, _width(first)
    words: dict[str, int] = {}
    for graph in graphs:
        for some in graph.words or ():
            for word in some:
                words[word] = words.get(word, 0) + 1
    mean, deviation = np.zeros(dense), np.ones(dense)
    if dense and how.scaling == "standard":
        every = np.concatenate([graph.numbers for graph in graphs if _width(graph) == dense])
        mean, deviation = every.mean(0), every.std(0)
    places = how.frequencies if how.positions != "none" else 0
    return NodeFacts(
        sparse,
        sorted(sorted(words, key=lambda word: -words[word])[:MOST_WORDS]),
        DEGREES if how.degrees or not (sparse or dense or words or places) else 0,
        dense + places,
        [round(float(x), 7) for x in mean],
        [round(float(x), 7) or 1.0 for x in deviation],
        any(graph.strength is not None for graph in graphs),
        0 if first.carried is None else first.carried.shape[1],
    )


def _width(graph: Graph) -> int:
    return graph.numbers.shape[1] if isinstance(graph.numbers, np.ndarray) else 0


def node_features(graph: Graph, facts: NodeFacts, how: Any, where: str) -> tuple[Sparse, Floats]:
    """Return the features of all nodes: sparse columns, and dense numbers (n, dense)."""
    _refuse_other(graph, facts, where)
    parts = [_numbers(graph, how)] if facts.numbers else []
    if facts.words:
        parts.append(_words(graph, facts.words))
    if facts.degrees:
        degrees = np.minimum(graph.degrees, facts.degrees - 1)
        ones = np.ones(graph.count, np.int64)
        parts.append(Sparse(ones, degrees, np.ones(graph.count, np.float32), facts.degrees))
    dense: list[Floats] = []
    if facts.mean:
        scaled = (np.asarray(graph.numbers) - np.array(facts.mean, np.float32)) / np.array(facts.deviation, np.float32)
        dense.append(scaled.astype(np.float32))
    if how.positions != "none":
        dense.append((laplacian if how.positions == "laplacian" else returns)(graph, how.frequencies, where))
    empty = np.zeros((graph.count, 0), np.float32)
    return side_by_side(parts, graph.count), np.concatenate([*dense, empty], 1)


def _refuse_other(graph: Graph, facts: NodeFacts, where: str) -> None:
    """Refuse features of other widths than those of the training."""
    sparse = graph.numbers.width if isinstance(graph.numbers, Sparse) else 0
    found = (sparse, 0 if sparse else _width(graph))
    expected = (facts.numbers, len(facts.mean))
    if found != expected:
        raise UserError(f"{where}: nodes have {sum(found):,} features, expected {sum(expected):,} as in training.")
    carried = 0 if graph.carried is None else graph.carried.shape[1]
    if carried != facts.carried and len(graph.edges):
        raise UserError(f"{where}: edges have {carried} features, expected {facts.carried} as in training.")


def _numbers(graph: Graph, how: Any) -> Sparse:
    found = graph.numbers
    assert isinstance(found, Sparse)
    if how.scaling != "rows":
        return found
    owner = np.repeat(np.arange(graph.count), found.counts)
    total = np.bincount(owner, found.amounts, graph.count)
    total[total == 0] = 1
    return found._replace(amounts=(found.amounts / total[owner]).astype(np.float32))


def _words(graph: Graph, known: Sequence[str]) -> Sparse:
    number = {word: i for i, word in enumerate(known)}
    rows = [sorted({number[word] for word in some if word in number}) for some in graph.words or [()] * graph.count]
    counts = np.array([len(row) for row in rows], np.int64)
    columns = np.array([column for row in rows for column in row], np.int64)
    return Sparse(counts, columns, np.ones(len(columns), np.float32), len(known))


def side_by_side(parts: Sequence[Sparse], count: int) -> Sparse:
    """Return the columns of several sparse matrices, one beside the other."""
    if len(parts) == 1:
        return parts[0]
    rows, columns, amounts, width = [], [], [], 0
    for part in parts:
        rows.append(np.repeat(np.arange(count), part.counts))
        columns.append(part.columns + width)
        amounts.append(part.amounts)
        width += part.width
    if not parts:
        return Sparse(np.zeros(count, np.int64), np.empty(0, np.int64), np.empty(0, np.float32), 0)
    row, column = np.concatenate(rows), np.concatenate(columns)
    order = np.lexsort((column, row))
    return Sparse(np.bincount(row, minlength=count), column[order], np.concatenate(amounts)[order], width)


def _adjacency(graph: Graph) -> Any:
    from scipy.sparse import csr_matrix

    ones = np.ones(len(graph.edges))
    found = csr_matrix((ones, (graph.edges[:, 1], graph.edges[:, 0])), shape=(graph.count, graph.count))
    return found.maximum(found.T)


def laplacian(graph: Graph, count: int, where: str = "") -> Floats:
    """Return `count` eigenvectors of the normalised Laplacian (n, count), scaled by √n; zeros where there are fewer.

    The sign of an eigenvector means nothing; here its largest number is positive, and in training signs are drawn.
    """
    from scipy.sparse import diags, identity
    from scipy.sparse.linalg import ArpackError, eigsh

    adjacency = _adjacency(graph)
    degree = np.asarray(adjacency.sum(1)).ravel()
    root = diags(1 / np.sqrt(np.maximum(degree, 1)))
    matrix = identity(graph.count) - root @ adjacency @ root
    wanted = min(count + 1, graph.count)
    if graph.count <= max(DENSE_LAPLACIAN, 2 * wanted):
        vectors = np.linalg.eigh(matrix.toarray())[1][:, 1:wanted]
    else:
        try:
            start = np.random.default_rng(0).random(graph.count)
            values, found = eigsh(matrix, wanted, sigma=-0.01, v0=start)
        except (ArpackError, RuntimeError) as error:
            raise UserError(
                f"{where}: its Laplacian has no eigenvectors ({error}); set nodes.positions=walk."
            ) from error
        vectors = found[:, np.argsort(values)][:, 1:]
    vectors = vectors * np.sign(vectors[np.abs(vectors).argmax(0), np.arange(vectors.shape[1])])
    padded = np.zeros((graph.count, count), np.float32)
    padded[:, : vectors.shape[1]] = vectors * np.sqrt(graph.count)
    return padded


def returns(graph: Graph, count: int, where: str = "") -> Floats:
    """Return the chances that a random walk from each node is there again after 1 … `count` steps, (n, count)."""
    from scipy.sparse import diags

    if graph.count > WALKED:
        raise UserError(
            f"{where}: random walks on {graph.count:,} nodes take too much memory, expected at most {WALKED:,}: "
            "set nodes.positions=laplacian."
        )
    adjacency = _adjacency(graph)
    step = diags(1 / np.maximum(np.asarray(adjacency.sum(1)).ravel(), 1)) @ adjacency
    power, found = step, np.zeros((graph.count, count), np.float32)
    for number in range(count):
        found[:, number] = power.diagonal()
        power = power @ step
    return found
