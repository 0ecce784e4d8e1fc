"""From settings to a task: input, output, and the network between them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from regard import inputs
from regard.config import Config
from regard.costs.shadow import Shadow
from regard.data.example import Example
from regard.data.format import Format
from regard.data.lines import OnFault
from regard.errors import UserError
from regard.inputs import INPUTS
from regard.inputs.input import Input
from regard.machine import is_shortage, memory
from regard.network import Network
from regard.outputs import OUTPUTS
from regard.outputs.abilities import Learns
from regard.outputs.output import Output
from regard.runs import checkpoint, upgrade
from regard.task import Task

Parts = tuple[Input[Any], Output[Any]]


def build(config: Config, parts: Parts) -> Task:
    """Return the task of these settings, with fresh weights from their seed."""
    count = sum(math.prod(shape) for shape in shapes(config, parts).values())
    if 4 * count > memory():
        raise UserError(
            f"The model is too large for this machine: {count:,} weights need {4 * count / 1e9:,.0f} GB, there are "
            f"{memory() / 1e9:,.0f} GB of memory: reduce model.width, model.layers or tokens.size."
        )
    torch.manual_seed(config.training.seed)
    input, network = _network(config, parts)
    return Task(input, parts[1], network, config.data.longest)


def unfilled(config: Config, parts: Parts) -> Task:
    """Return the task of these settings with whatever its memory holds as weights: they are to be loaded.

    Memory that nobody has written to is only promised: a model that does not fit its file costs nothing.
    """
    with _Unfilled():
        input, network = _network(config, parts)
    return Task(input, parts[1], network, config.data.longest)


def weightless(config: Config, parts: Parts) -> Task:
    """Return the task of these settings with a network that has shapes and no weights, to be traced."""
    with Shadow(), _Unfilled():
        input, network = _network(config, parts)
    return Task(input, parts[1], network, config.data.longest)


def shapes(config: Config, parts: Parts) -> checkpoint.Shapes:
    """Return names and shapes of the tensors of the model that settings describe; none of them is allocated."""
    with torch.device("meta"), _Unfilled():
        return checkpoint.shapes_of(_network(config, parts)[1])


def parameters(config: Config, parts: Parts) -> int:
    """Return the number of weights of the model that settings describe; none of them is allocated."""
    with torch.device("meta"), _Unfilled():
        return sum(parameter.numel() for parameter in _network(config, parts)[1].parameters())


class _Unfilled(TorchFunctionMode):
    """Weights that are replaced need no random numbers; on the meta device torch would load its compiler for them.

    Nothing may depend on what was not drawn: torch's `trunc_normal_` would draw again until it likes what it sees.
    """

    def __torch_function__(self, function: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        filling = getattr(function, "__module__", None) == torch.nn.init.__name__
        if filling or function in (torch.Tensor.normal_, torch.Tensor.uniform_):
            return args[0] if args else given["tensor"]
        return function(*args, **given)


def _network(config: Config, parts: Parts) -> tuple[Input[Any], Network]:
    input, output = parts
    try:
        return output.network(config, input)
    except ValueError as error:  # of settings that do not go together
        raise UserError(f"The model cannot be built: {error}.") from error
    except (RuntimeError, MemoryError) as error:
        if not is_shortage(error):
            raise
        raise UserError(
            f"The model is too large for this machine ({error}): reduce model.width or model.layers."
        ) from error


def files_of(config: Config, *, old: bool = False) -> tuple[str, ...]:
    """Return the names of the files in a run folder that hold what input and output learned."""
    output = OUTPUTS[config.task]
    renamed = upgrade.files(config.task, old=old)
    return tuple(renamed.get(name, name) for name in (*INPUTS[config.input].files(output.use), *output.files))


def load_parts(config: Config, folder: Path, *, old: bool = False) -> Parts:
    """Load what input and output learned from a run folder."""
    output = OUTPUTS[config.task]
    names = upgrade.files(config.task, old=old)
    input = INPUTS[config.input].load(folder, config.reading, output.use, names)
    return input, output.made(config, input, output.load(folder) if issubclass(output, Learns) else None)


def form_of(config: Config, paths: Sequence[str | Path]) -> Format:
    """Return the form of files that hold data for these settings. Other files than those of the training may have
    another form: then they are recognised for themselves."""
    data = config.data
    how = {"format": data.format, "columns": data.columns}
    strict = [*map(str, paths)] == data.train
    return inputs.recognise(paths, OUTPUTS[config.task].reads, data.encoding, config.input, **how, strict=strict)


def read(config: Config, paths: Sequence[str | Path], on_fault: OnFault | None = None) -> Iterator[Example[Any, Any]]:
    """Yield the examples of files, read as the settings say."""
    return inputs.read(paths, form_of(config, paths), on_fault, config.data.encoding)
