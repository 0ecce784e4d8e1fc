"""A pass of which only the shapes are computed.

Inside `Shadow`, floating-point tensors have a shape and no values: they lie on torch's meta device. Integers and truth
values are computed as ever, so that a network that looks at its positions, masks or edges takes the way it would take.
A batch of any size through a model of any size takes a second and next to no memory.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from regard.layers.products import products

META, CPU = torch.device("meta"), torch.device("cpu")
aten = torch.ops.aten
T = TypeVar("T")


def shape_of(x: Any) -> Any:
    """Return a tensor of this shape without values; anything else as it is."""
    if not isinstance(x, Tensor) or x.is_meta:
        return x
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=META)


def tensors_in(things: Iterable[Any]) -> Iterator[Tensor]:
    """Yield the tensors among the arguments of an operation: torch's own walk over any structure takes longer."""
    for each in things:
        if isinstance(each, Tensor):
            yield each
        elif isinstance(each, list | tuple):
            yield from tensors_in(each)


def _mapped(x: Any) -> Any:
    if isinstance(x, list | tuple):
        return type(x)(_mapped(each) for each in x)
    return shape_of(x)


def shapes_of(things: T) -> T:
    """Return a structure whose floating-point tensors have no values; integers keep theirs."""
    found: T = tree_map(lambda x: shape_of(x) if isinstance(x, Tensor) and x.is_floating_point() else x, things)
    return found


def without_weights(network: nn.Module) -> nn.Module:
    """Return a copy of a network whose weights have no values. Nothing of them is copied."""
    known: dict[int, Any] = {}
    for parameter in network.parameters():
        known[id(parameter)] = nn.Parameter(shape_of(parameter.detach()), requires_grad=parameter.requires_grad)
    for buffer in network.buffers():
        known[id(buffer)] = shapes_of(buffer) if buffer.is_floating_point() else buffer.detach().clone()
    return copy.deepcopy(network, known)


class Shadow(TorchDispatchMode):
    """The mode. `seen(function, arguments, result)` is told of every operation."""

    def __init__(self, seen: Callable[[Any, Any, Any], None] = lambda *_: None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._seen = seen
        self._fused = _Fused()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # to skip it, torch would load its compiler: seconds, and nothing is compiled here

    def __enter__(self) -> Any:
        self._fused.__enter__()  # type: ignore[no-untyped-call]
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._fused.__exit__(*error)  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, function: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = [*tensors_in(args), *tensors_in(kwargs.values())]
        if not tensors:
            result = _made(function, args, kwargs)
        elif any(each.is_meta or each.is_floating_point() for each in tensors):
            special = SPECIAL.get(function.overloadpacket, _shaped)
            result = special(function, args, kwargs)
        else:
            result = shapes_of(function(*args, **_here(kwargs)))
        self._seen(function, (args, kwargs), result)
        return result


# ---- operations ------------------------------------------------------------------------------------------------------


def _here(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return arguments that keep integers where they have values."""
    return kwargs | {"device": CPU} if kwargs.get("device") is not None else kwargs


def _made(function: Any, args: Any, kwargs: Any) -> Any:
    """Return a tensor that is made of plain numbers."""
    if not any(argument.name == "device" for argument in function._schema.arguments):
        return shapes_of(function(*args, **kwargs))
    found = function(*args, **kwargs | {"device": META})
    return found if found.is_floating_point() else function(*args, **kwargs | {"device": CPU})


def _shaped(function: Any, args: Any, kwargs: Any) -> Any:
    """Return what has only a shape; integers that follow from shapes alone have values."""
    dtype = kwargs.get("dtype")
    if function.overloadpacket in LIKE and dtype is not None and not dtype.is_floating_point:
        return function(torch.empty(args[0].shape), *args[1:], **_here(kwargs))
    kwargs = kwargs | {"device": META} if kwargs.get("device") is not None else kwargs
    return function(*_mapped(args), **{name: _mapped(value) for name, value in kwargs.items()})


def _indexed(function: Any, args: Any, kwargs: Any) -> Any:
    """Index by truth values: they have values, so that the number of what is chosen is known."""
    index: list[Any] = []
    for each in args[1]:
        index += each.nonzero().unbind(-1) if isinstance(each, Tensor) and each.dtype is torch.bool else [each]
    return _shaped(function, (args[0], index, *args[2:]), kwargs)


def _packed(_: Any, args: Any, __: Any) -> Any:
    """Pack padded rows, with the real lengths."""
    x, lengths, first = args
    sizes = torch.ops.aten._pack_padded_sequence(torch.empty(*x.shape[:2], 1), lengths, first)[1]
    return x.new_empty(int(lengths.sum()), *x.shape[2:], device=META), sizes


def _pack_backward(_: Any, args: Any, __: Any) -> Any:
    gradient, size = args[:2]
    return gradient.new_empty(size, device=META)


def _unpacked(_: Any, args: Any, __: Any) -> Any:
    """Pad packed rows, with the real sizes."""
    x, sizes, first, value, total = args
    lengths = torch.ops.aten._pad_packed_sequence(torch.empty(len(x), 1), sizes, first, value, total)[1]
    n, rows = max(total, len(sizes)), int(sizes[0])
    return x.new_empty(*((rows, n) if first else (n, rows)), *x.shape[1:], device=META), lengths


def _reduced(_: Any, args: Any, kwargs: Any) -> Any:
    """Reduce segments, of which there are as many as offsets, but one."""
    return args[0].new_empty(len(kwargs["offsets"]) - 1, *args[0].shape[1:], device=META)


def _ctc(_: Any, args: Any, __: Any) -> Any:
    """CTC keeps the forward variables of every frame: of each symbol of a target, and of the blanks around them."""
    frames, rows = args[0].shape[:2]
    longest = int(torch.as_tensor(args[3]).max())
    shape = (rows, frames, 2 * longest + 1)
    return args[0].new_empty(rows, device=META), args[0].new_empty(shape, device=META)


SPECIAL: dict[Any, Callable[[Any, Any, Any], Any]] = {
    aten.index: _indexed,
    aten.index_put: _indexed,
    aten.index_put_: _indexed,
    aten._index_put_impl_: _indexed,
    aten._pack_padded_sequence: _packed,
    aten._pack_padded_sequence_backward: _pack_backward,
    aten._pad_packed_sequence: _unpacked,
    aten.segment_reduce: _reduced,
    aten._ctc_loss: _ctc,
    aten._ctc_loss_backward: lambda _, args, __: args[1].new_empty(args[1].shape, device=META),
}
LIKE = {aten.new_zeros, aten.new_ones, aten.new_full, aten.new_empty, aten.zeros_like, aten.ones_like, aten.full_like}
LIKE |= {aten.empty_like}


# ---- fused kernels ---------------------------------------------------------------------------------------------------


class _Fused(TorchFunctionMode):
    """Fused kernels as fused: on the meta device torch would take plain forms, which hold more or less."""

    def __torch_function__(self, function: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(function, "__name__", "") == "lstm" and isinstance(args[1], list | tuple):
            return _with_room(function(*args, **kwargs), args)
        if function is not scaled_dot_product_attention:
            return function(*args, **kwargs)
        q, k, v = args[:3]
        mask = kwargs.get("attn_mask")
        alike = q.dim() == 4 and q.shape[-1] == k.shape[-1] == v.shape[-1]
        if not alike or (mask is not None and mask.requires_grad and torch.is_grad_enabled()):
            return function(*args, **kwargs)
        if mask is not None and mask.dtype is torch.bool:
            mask = q.new_zeros(mask.shape)
        return FusedAttention.apply(q, k, v, mask)  # type: ignore[no-untyped-call]


CELL = 12  # numbers for each state that plain cells keep and the fast kernel does not
PADDED = 1.08  # the fast kernel's rows begin at round addresses


def _with_room(found: Any, args: Any) -> Any:
    """Return what an LSTM over padded rows gives; until it is differentiated, it keeps the room of its fast kernel.

    For each of t steps oneDNN keeps four gates; for t + 1 the states of two layers, cells and all gradients.
    """
    states, *last = found
    if not states.requires_grad:
        return found
    rows, t = states.shape[:2] if args[8] else states.shape[1::-1]
    h, directions = args[1][0].shape[-1], 2 if args[7] else 1
    numbers = 0.0
    for layer in range(args[4]):
        wide = max(h, h * directions if layer else args[0].shape[-1])
        kept = PADDED * (4 * h * t + 2 * (t + 1) * (2 * wide + 4 * h)) - CELL * h * t
        numbers += directions * rows * max(0.0, kept)
    return _Holding.apply(states, states.new_empty(int(numbers))), *last  # type: ignore[no-untyped-call]


class _Holding(Function):
    """y = x, and memory that is kept until its gradient has been computed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, room: Tensor) -> Tensor:
        ctx.save_for_backward(room)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:  # noqa: ARG004
        return gradients[0], None


class FusedAttention(Function):
    """The shapes that fused attention keeps: its arguments, its answer, and a number for each query."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        batch, heads, m, _ = q.shape
        products(4 * batch * heads * m * k.shape[-2] * q.shape[-1])
        y = torch.empty_like(q)
        ctx.save_for_backward(q, k, v, mask, y, q.new_empty(batch, heads, m))
        return y

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        q, k, v = ctx.saved_tensors[:3]
        batch, heads, m = q.shape[:3]
        products(8 * batch * heads * m * k.shape[-2] * q.shape[-1])
        return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v), None
