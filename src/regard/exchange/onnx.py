"""`regard export --to onnx` and `predict --engine onnx`: networks that answer by one pass, for onnxruntime.

The graph begins at the arrays of a `Source` and ends at the scores of the head: (batch, answers, choices). Reading,
Viterbi, labels and everything else that is no arithmetic stay in Python. One graph serves batches of any size and rows
of any length. It was compared with torch on rows of the run's data, alone and together, before it gets its name.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.attention import Edges
from regard.errors import UserError
from regard.exchange import conversion
from regard.inputs.input import Batch, Row, Source
from regard.inputs.node_stem import NodeStem
from regard.network import Network, StatesHead
from regard.outputs.fill.head import FillHead, Hidden
from regard.outputs.output import Held, halves
from regard.runs import checksums
from regard.runs.model import Model, load

TOLERANCE = 1e-4  # between the scores of a model and of what was exported of it
OPSET = 20
GRAPH, SMALL, ABOUT = "model.onnx", "model.int8.onnx", "about.json"
FOLDER = "onnx"  # in a run folder
TRACED = 5  # rows that the graph is made from
ALONE = 20  # about so many rows are compared one by one
MADE_UP = (3, 5, 9, 14, 7)  # elements of rows where the data of the run is not there
QUANTISED = ["MatMul", "Gather"]  # Gemm and LSTM become products of matrices before; convolutions stay as they are
Say = Callable[[str], None]


def library() -> Any:
    """Return the module of onnxruntime."""
    try:
        return importlib.import_module("onnxruntime")
    except ImportError as error:
        raise UserError("onnxruntime is not installed: install it with `pip install 'regard[onnx]'`.") from error


def refuse(model: Model) -> None:
    """Refuse a model that has no such graph, with the reason."""
    task, network = model.task, model.network
    if not isinstance(network.head, StatesHead | FillHead):
        raise UserError(
            f"A model that {task.does} is not exported to ONNX, because its answers are written step by step: use "
            "ctranslate2, or the torch engine."
        )
    if isinstance(network.stem, NodeStem) and network.stem.around is not None:
        raise UserError(
            f"nodes.neighbours is {task.input.how.neighbours}: ONNX cannot express it, because such a model looks up "  # type: ignore[attr-defined]
            "neighbours in the graph's file while it computes."
        )
    if task.others:
        raise UserError("ONNX knows one model: leave --with out, or use --engine torch.")


# ---- arrays ----------------------------------------------------------------------------------------------------------


def arrays_of(batch: Batch) -> dict[str, Tensor]:
    """Return the arrays of a batch by their names in the graph."""
    source, rows = batch.source, batch.source.values[0].shape[0]
    found = {f"values{i}": values for i, values in enumerate(source.values)}
    found["positions"] = source.positions.expand(rows, -1).contiguous()
    units = source.units
    if isinstance(source.mask, Edges):
        names = ("row", "receiver", "sender", "features", "strength")
        found |= {name: part for name in names if (part := getattr(source.mask, name)) is not None}
        if units is None:  # each node for itself
            where = torch.arange(found["positions"].shape[1])
            units = torch.where(found["positions"] >= 0, where, -1)
    if units is not None:
        found["units"] = units
    if isinstance(batch.target, Hidden):
        found |= {"hidden": batch.target.hidden, "order": batch.target.order}
    return found


def batch_of(arrays: dict[str, Tensor]) -> Batch:
    """Return the batch of these arrays."""
    values = tuple(array for name, array in arrays.items() if name.startswith("values"))
    edges = None
    if "row" in arrays:
        parts = (arrays.get(name) for name in ("row", "receiver", "sender", "features", "strength"))
        edges = Edges(*parts)  # type: ignore[arg-type]
    hidden = Hidden(values[0], arrays["hidden"], arrays["order"]) if "hidden" in arrays else None
    return Batch(Source(values, arrays["positions"], edges, arrays.get("units")), hidden)


class ScoresGraph(nn.Module):
    """The scores of a network as a function of named arrays."""

    def __init__(self, network: Network, names: Sequence[str]) -> None:
        super().__init__()
        self.network, self.names = network, tuple(names)

    def forward(self, *arrays: Tensor) -> Tensor:
        return self.network.by_torch(batch_of(dict(zip(self.names, arrays, strict=True))))


class OnnxScores:
    """A graph as the engine of a network."""

    def __init__(self, path: Path) -> None:
        runtime = library()
        options = runtime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = torch.get_num_threads(), 1
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # others want the cores, too
        try:
            self.session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # of many classes without a common base
            raise UserError(f"{path} cannot be run by onnxruntime: {_first_line(error)}.") from error
        self.names = [each.name for each in self.session.get_inputs()]

    def __call__(self, batch: Batch) -> Tensor:
        arrays = arrays_of(batch)
        given = {name: np.ascontiguousarray(arrays[name].numpy()) for name in self.names}
        try:
            return torch.from_numpy(self.session.run(None, given)[0])
        except Exception as error:  # of many classes without a common base
            raise UserError(
                f"onnxruntime cannot compute this batch: {_first_line(error)}; use --engine torch."
            ) from error

    def about(self) -> dict[str, Any]:
        """Return the names, types and shapes of what goes in and comes out."""
        sides = {"inputs": self.session.get_inputs(), "outputs": self.session.get_outputs()}
        return {
            side: [{"name": each.name, "type": each.type, "shape": list(each.shape)} for each in some]
            for side, some in sides.items()
        }


# ---- the graph -------------------------------------------------------------------------------------------------------


def write_graph(model: Model, some: Sequence[Batch], path: Path) -> None:
    """Write the graph of a model that is traced with the first batch: sizes that differ in the others may be any. What
    cannot be traced is refused."""
    _module("onnxscript")
    arrays, *others = map(arrays_of, some)
    free = tuple(
        {d: torch.export.Dim.AUTO for d in range(a.dim()) if any(each[name].shape[d] != a.shape[d] for each in others)}
        for name, a in arrays.items()
    )
    with torch.no_grad(), _quiet():
        model.network.eval().by_torch(some[0])  # what is laid out once is laid out now
        try:
            program: Any = torch.onnx.export(
                ScoresGraph(model.network, [*arrays]), tuple(arrays.values()),
                dynamo=True, optimize=False, opset_version=OPSET, verbose=False, input_names=[*arrays],
                output_names=["scores"], dynamic_shapes=(free,),
            )  # fmt: skip
            program.save(str(path), external_data=False)
        except Exception as error:
            kind = getattr(model.config.model, "kind", "")
            raise UserError(
                f"model.kind is {kind}: ONNX cannot express it with these settings, because what is computed depends "
                f"on the numbers of a batch ({_first_line(error.__cause__ or error)}): use --engine torch."
            ) from error


def _write_apart(run: Path, path: Path) -> None:
    """Write the graph of a run in a process of its own: the exporter holds some sizes of a first graph for those of the
    next one in the same process."""
    done = subprocess.run(
        [sys.executable, "-c", f"import {__name__} as onnx; onnx.trace()", str(run), str(path)],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    if done.returncode:
        raise UserError(
            (done.stderr.strip().splitlines() or ["The graph could not be written: use --engine torch."])[-1]
        )


def trace() -> None:
    """Write the graph of the run that is the first argument of this process to the file that is the second."""
    model = load(sys.argv[1])
    try:
        write_graph(model, batches(model, examples(model)), Path(sys.argv[2]))
    except UserError as error:
        sys.exit(str(error))


def examples(model: Model) -> list[Row]:
    """Return rows to make the graph from and to compare with: of the run's data, or made up where it is not there."""
    input = model.task.input
    _, rows, _ = conversion.compared(model)
    found = [part for row in halves(input, rows)[0] for part in input.parts(row, model.task.most)[:1]]
    if not found and input.alphabet is not None:
        draw, size = np.random.default_rng(1), input.alphabet.size
        texts = [input.alphabet.decode(draw.integers(min(4, size - 1), size, n).tolist()) for n in MADE_UP]
        found = [part for row in input.encode(texts) for part in input.parts(row, model.task.most)[:1]]
    if not found and len(input.fields) == 1:
        found = [(_made_up(input.fields[0].dtype, (n, *input.fields[0].shape)),) for n in MADE_UP]
        found = [part for row in found for part in input.parts(row, model.task.most)[:1]]
    if not found:
        raise UserError("The training data is not there, and ONNX makes its graph from a row of it: restore the data.")
    return found if len(found) > 1 else found * 2  # of one row alone it would not be seen that there may be several


def _made_up(dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    draw = np.random.default_rng(1)
    return draw.integers(0, 256, shape).astype(dtype) if "u" in dtype else draw.standard_normal(shape).astype(dtype)


def batches(model: Model, rows: Sequence[Row]) -> list[Batch]:
    """Return rows as batches of several sizes: the first one makes the graph, all are compared."""
    input, by_length = model.task.input, sorted(rows, key=lambda row: len(row[0]))
    few = by_length[:: max(1, len(rows) // TRACED)][-TRACED:]
    made = _hidden if isinstance(model.network.head, FillHead) else lambda source: Batch(source, None)
    alone = [[row] for row in by_length[:: max(1, len(rows) // ALONE)]]  # sizes that may be any differ somewhere
    some = [made(input.collate(each)) for each in (few, *alone, few[-1:], rows[:13])]
    several = [few[-count:] for count in range(len(few), 1, -1)]
    traced = (made(input.collate(each, extra)) for extra in (3, 4, 6, 9) for each in several)
    return [next((first for first in traced if _telling([first, *some])), made(input.collate(few, 3))), *some]


def _telling(some: Sequence[Batch]) -> bool:
    """Return True if sizes that are the same in the first batch are the same in all: by chance they may be equal in
    one, such as the number of rows and their length, and then the graph would hold that they always are."""
    found: dict[int, tuple[int, ...]] = {}
    each = [arrays_of(batch) for batch in some]
    sizes = [tuple(a[name].shape[d] for a in each) for name, array in each[0].items() for d in range(array.dim())]
    return all(found.setdefault(size[0], size) == size for size in sizes if len({*size}) > 1)


def _hidden(source: Source) -> Batch:
    """Return a batch of which every third element is hidden, and the last one of each row."""
    where = source.positions.expand(source.values[0].shape[0], -1)
    hidden = (where >= 0) & ((where % 3 == 1) | (where == where.amax(-1, keepdim=True)))
    return Batch(source, Hidden(source.values[0], hidden, hidden.long()))


@torch.no_grad()
def compared(model: Model, graph: OnnxScores, some: Sequence[Batch]) -> float:
    """Return the largest difference of scores to the torch model; refuse more than the tolerance."""
    difference = 0.0
    for batch in some:
        expected, found = model.network.eval().by_torch(batch), graph(batch)
        if expected.shape != found.shape:
            raise UserError("The graph has the size of one batch fixed in it: use --engine torch.")
        real = batch.source.real
        apart = (expected - found).abs().amax(-1)
        apart = apart[real] if apart.shape == real.shape else apart
        difference = max(difference, float(apart.max()) if apart.numel() else 0.0)
    if not difference <= TOLERANCE:
        raise UserError(
            f"What onnxruntime makes of this model differs by {difference:.1e} in its scores, expected {TOLERANCE:.0e} "
            "at most: use --engine torch."
        )
    return difference


# ---- int8 ------------------------------------------------------------------------------------------------------------


def write_small(graph: Path, small: Path) -> None:
    """Write a graph with the matrices and tables in 8 bits; activations are scaled to 8 bits batch by batch."""
    onnx = _module("onnx")
    with _quiet():
        plain = onnx.load(str(graph))
        del plain.graph.value_info[:]  # shapes of what is between: they are wrong once products are written otherwise
        _fold(onnx, plain.graph)
        _untie(plain.graph)
        quantisation = importlib.import_module("onnxruntime.quantization")
        quantisation.quantize_dynamic(
            plain, str(small), op_types_to_quantize=QUANTISED, weight_type=quantisation.QuantType.QInt8,
            per_channel=True, reduce_range=True,
        )  # fmt: skip


def _fold(onnx: Any, graph: Any) -> None:
    """Turn matrices once and for all: a product with the transpose of a matrix has none that could be quantised."""
    tables = {table.name: table for table in graph.initializer}
    for node in [node for node in graph.node if node.op_type == "Transpose" and node.input[0] in tables]:
        order = next(([*kept.ints] for kept in node.attribute if kept.name == "perm"), None)
        turned = onnx.numpy_helper.to_array(tables[node.input[0]]).transpose(order)
        graph.initializer.append(onnx.numpy_helper.from_array(turned.copy(order="C"), node.output[0]))
        graph.node.remove(node)
    used = {name for node in graph.node for name in node.input}
    for name in tables.keys() - used:
        graph.initializer.remove(tables[name])


def _untie(graph: Any) -> None:
    """Give every product a matrix of its own: those of Gemm are turned in place, and a table may be one as well."""
    tables = {table.name: table for table in graph.initializer}
    for node in (node for node in graph.node if node.op_type == "Gemm"):
        used = sum([*other.input].count(node.input[1]) for other in graph.node)
        if node.input[1] in tables and used > 1:
            copy = graph.initializer.add()
            copy.CopyFrom(tables[node.input[1]])
            copy.name = node.input[1] = f"{node.name}.matrix"


def loss_of(model: Model, graph: OnnxScores, small: OnnxScores) -> str:
    """Return in one line the share of held-out answers in int8 that are those in float32, and the metric of both."""
    items, rows, _ = conversion.compared(model)
    if not items:
        return "int8: not compared with float32, because the data of the run is not there"
    network, found, before = model.network, [], model.network.engine
    try:
        for engine in (graph, small):
            network.engine = engine
            found.append(model.task.evaluate(Held(items, rows), quick=True, samples=0))
    finally:
        network.engine = before
    (one, (first, *_)), (other, (second, *_)) = ((answers, scores) for scores, answers in found)
    unit = first.unit and f" {first.unit}"
    metric = f"{first.name} {second.value:.2f}{unit} instead of {first.value:.2f}{unit}"
    if not one:
        return f"int8: {metric} on {len(items)} held-out items"
    same = 100 * sum(a == b for a, b in zip(one, other, strict=True)) / len(one)
    return f"int8: {same:.1f} % of {len(one)} held-out answers are the same as in float32; {metric}"


# ---- export and engine -----------------------------------------------------------------------------------------------


def export(model: Model, folder: Path, say: Say) -> float:
    """Write a new folder with the graph in float32 and in int8; return the largest difference of scores."""
    refuse(model)
    library()
    conversion.refuse_taken(folder)
    difference, line = conversion.write(folder, lambda partial: _fill(model, partial, folder))
    say(line)
    return difference


def use(model: Model, say: Say, *, int8: bool) -> None:
    """Let a model answer by onnxruntime; the graph is made if there is no sound one in the run folder."""
    refuse(model)
    library()
    folder = model.folder / FOLDER
    with conversion.alone(model.folder):
        origin = conversion.origin(model)
        if not conversion.sound(folder, origin, SMALL):
            difference, line = conversion.write(folder, lambda partial: _fill(model, partial, folder, origin))
            say(f"{folder}: exported to ONNX; scores differ by at most {difference:.1e}")
            if int8:
                say(line)
        model.network.engine = OnnxScores(folder / (SMALL if int8 else GRAPH))


def _fill(model: Model, partial: Path, folder: Path, origin: bytes | None = None) -> tuple[float, str]:
    """Write all files of an export; return the largest difference of scores, and what int8 costs."""
    some = batches(model, examples(model))
    with checksums.writing(folder):
        _write_apart(model.folder, partial / GRAPH)
        graph = OnnxScores(partial / GRAPH)
        difference = compared(model, graph, some)
        write_small(partial / GRAPH, partial / SMALL)
        line = loss_of(model, graph, OnnxScores(partial / SMALL))
        sizes = {name: (partial / name).stat().st_size for name in (GRAPH, SMALL)}
        about = {**graph.about(), "difference": difference, "int8": line, "bytes": sizes, "opset": OPSET}
        (partial / ABOUT).write_text(json.dumps(about, indent=1, ensure_ascii=False), encoding="utf-8")
        if origin is not None:
            (partial / conversion.ORIGIN).write_bytes(origin)
    return difference, line


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(f"{name} is not installed: install it with `pip install 'regard[onnx]'`.") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporter's notes about packages that nobody asked for out of the log."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return (text.splitlines()[0] if text else type(error).__name__).rstrip(". ")[:200]
