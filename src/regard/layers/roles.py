"""Roles of parameters that their shapes do not show, stated by whoever builds a layer; optimisers and warm starts ask.

A module's attribute `roles` maps the names of its own parameters to one of these. Most layers need none: `nn.Embedding`
is a table, the matrices of `nn.Linear` and of RNNs map states to states.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeVar

from torch import nn

Role = Literal["table", "choice", "between", "grid"]
TABLE: Role = "table"  # a row is looked up for each token, position or distance
CHOICE: Role = "choice"  # an output layer: a row for each class or token that is chosen among
GRID: Role = "grid"  # a table (rows, columns, width) over the places of a picture, interpolated for other sizes
BETWEEN: Role = "between"  # a matrix from states to states
Module = TypeVar("Module", bound=nn.Module)
MATRICES = (nn.Linear, nn.RNNBase, nn.RNNCellBase)


def chosen_among(layer: Module) -> Module:
    """Mark an output layer, whose rows are the classes or tokens that a model chooses among."""
    layer.roles = {name: CHOICE for name, _ in layer.named_parameters(recurse=False)}  # type: ignore[assignment]
    return layer


def roles_of(network: nn.Module) -> Iterator[tuple[str, nn.Parameter, Role | None]]:
    """Yield the name, the parameter and the role of every parameter, tied ones once: a tied table is a table."""
    found: dict[int, Role | None] = {}
    for module in network.modules():
        for name, parameter in module.named_parameters(recurse=False):
            role = _role(module, name, parameter)
            if id(parameter) not in found or role == TABLE:
                found[id(parameter)] = role
    for name, parameter in network.named_parameters():
        yield name, parameter, found[id(parameter)]


def _role(module: nn.Module, name: str, parameter: nn.Parameter) -> Role | None:
    stated: dict[str, Role] = getattr(module, "roles", {})
    if name in stated:
        return stated[name]
    if isinstance(module, nn.Embedding | nn.EmbeddingBag):
        return TABLE
    return BETWEEN if isinstance(module, MATRICES) and parameter.dim() == 2 else None
