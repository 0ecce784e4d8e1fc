"""Networks along edges against PyTorch Geometric, in one run: `python -m benchmarks.graphs --data data`.

A training step on Cora (forward, backward, Adam) of GAT and of GCN; the attention layer alone; and the time per edge
and the memory of attention along 10⁵ to 10⁷ random edges.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, dropout, elu

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.measure import alternate, peak_memory, ratio, report

from regard.attention import Edges
from regard.models.graph import gat
from regard.runs.build import build, read
from regard.runs.settings import override
from regard.task import Task
from regard.training.allocator import keep_memory
from regard.training.choose import choose
from regard.training.prepare import learn

GCN = ["model.kind=gcn", "model.width=16", "model.dropout=0.5"]


def ours(path: str, changes: list[str], rate: float) -> Callable[[], object]:
    """A step of our network on the training nodes, collating included."""
    config, _, seen = choose([path])
    config = override(config, changes)
    task: Task = build(config, learn(config, seen, None))
    rows = list(task.rows(read(config, config.data.train)))
    optimiser = torch.optim.Adam(task.network.parameters(), lr=rate, weight_decay=5e-4)
    task.network.train()

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        (task.network(task.batch(rows)).sum() / 140).backward()
        optimiser.step()

    return step


class TheirGat(nn.Module):
    """GAT as PyG's example has it."""

    def __init__(self, features: int) -> None:
        from torch_geometric.nn import GATConv

        super().__init__()
        self.one = GATConv(features, 8, heads=8, dropout=0.6)
        self.two = GATConv(64, 7, heads=1, concat=False, dropout=0.6)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        x = elu(self.one(dropout(x, 0.6, self.training), edges))
        found: Tensor = self.two(dropout(x, 0.6, self.training), edges)
        return found


class TheirGcn(nn.Module):
    """GCN as PyG's example has it, its weights of edges computed once."""

    def __init__(self, features: int) -> None:
        from torch_geometric.nn import GCNConv

        super().__init__()
        self.one, self.two = GCNConv(features, 16, cached=True), GCNConv(16, 7, cached=True)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        x = self.one(dropout(x, 0.5, self.training), edges).relu()
        found: Tensor = self.two(dropout(x, 0.5, self.training), edges)
        return found


def theirs(path: str, kind: type[nn.Module], rate: float) -> Callable[[], object]:
    with np.load(path) as arrays:
        x = torch.zeros(*arrays["feat_shape"].tolist())
        x[arrays["feat_row"], arrays["feat_col"]] = torch.from_numpy(arrays["feat_val"])
        pairs = torch.from_numpy(arrays["edges"].astype(np.int64)).T
        labels, chosen = torch.from_numpy(arrays["labels"].astype(np.int64)), torch.from_numpy(arrays["train_idx"])
    x, edges = x / x.sum(1, keepdim=True).clamp(min=1), torch.cat((pairs, pairs.flip(0)), 1)
    network = kind(x.shape[1])
    optimiser = torch.optim.Adam(network.parameters(), lr=rate, weight_decay=5e-4)
    network.train()

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        cross_entropy(network(x, edges)[chosen], labels[chosen]).backward()
        optimiser.step()

    return step


def layers(path: str) -> dict[str, Callable[[], object]]:
    """The attention layer of GAT alone, 64 → 8 × 8, with its matrix, forward and backward."""
    from torch_geometric.nn import GATConv

    with np.load(path) as arrays:
        pairs = torch.from_numpy(arrays["edges"].astype(np.int64)).T
        count = int(arrays["feat_shape"][0])
    both = torch.cat((pairs, pairs.flip(0)), 1)
    x = torch.randn(count, 64, requires_grad=True)
    other = GATConv(64, 8, heads=8, dropout=0.6)
    how: dict[str, Any] = {"dropout": 0.0, "skip": False, "norm": False, "edge_width": 0}
    layer = gat(layers=2, width=64, heads=8, attention_dropout=0.6, **how)[1].layers[0]
    matrix = nn.Linear(64, 64, bias=False)
    own = torch.arange(count)
    sender, receiver = torch.cat((both[0], own)), torch.cat((both[1], own))
    order = receiver.argsort(stable=True)
    edges = Edges(torch.zeros_like(order), receiver[order], sender[order])

    def mine() -> None:
        layer(matrix(x).unsqueeze(0), own, edges).sum().backward()

    def their() -> None:
        elu(other(x, both)).sum().backward()

    return {"ours": mine, "PyG": their}


def many(count: int) -> Callable[[], object]:
    """Attention along random edges, ten into each node on average, forward and backward."""
    torch.manual_seed(0)
    nodes = count // 10
    receiver, sender = torch.randint(nodes, (count,)).sort().values, torch.randint(nodes, (count,))
    edges = Edges(torch.zeros(count, dtype=torch.long), receiver, sender)
    how: dict[str, Any] = {"dropout": 0.0, "skip": False, "norm": False, "edge_width": 0}
    layer = gat(layers=2, width=32, heads=1, attention_dropout=0.0, **how)[1].layers[0]
    x = torch.randn(1, nodes, 32, requires_grad=True)
    where = torch.arange(nodes)
    return lambda: layer(x, where, edges).sum().backward()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=40)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    keep_memory()  # as a training does
    path = str(given.data / "graph_cora" / "cora.npz")
    pairs: dict[str, dict[str, Callable[[], object]]] = {
        "GAT, a step on Cora": {"ours": ours(path, [], 5e-3), "PyG": theirs(path, TheirGat, 5e-3)},
        "GCN, a step on Cora": {"ours": ours(path, GCN, 1e-2), "PyG": theirs(path, TheirGcn, 1e-2)},
        "GAT, a layer alone": layers(path),
    }
    rows: list[dict[str, Any]] = []
    for what, candidates in pairs.items():
        times = alternate(candidates, given.repeats)
        ms = {f"{name} ms": 1000 * statistics.median(each) for name, each in times.items()}
        rows.append({"what": f"{what}: ours ÷ PyG", **ratio(times, "ours", "PyG"), **ms})
    sizes = (10**5, 10**6, 10**7)
    calls = {f"{size:.0e}": many(size) for size in sizes}
    times = alternate(calls, 5, time.process_time)  # other programs on the machine do not count
    per_edge = {name: [t / float(name) for t in each] for name, each in times.items()}
    for size in sizes:
        name = f"{size:.0e}"
        code = f"from benchmarks.graphs import many; call = many({size}); mark(); call()"
        rows.append({
            "what": f"time per edge, {name} ÷ 1e+05 edges", **ratio(per_edge, name, "1e+05"),
            "ours ms": 1000 * statistics.median(times[name]), "bytes an edge": peak_memory(code) * 2**20 / size,
        })  # fmt: skip
    report("graphs", rows)


if __name__ == "__main__":
    main()
