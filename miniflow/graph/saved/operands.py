"""What instructions a program from a file may have.

Ops check what users give them. But gradients are called by the tape alone, whose operands fit by construction, and so
most of their shape rules take them on trust, as compiled kernels do: operands of the wrong shape would be read behind
their end. A file is not the tape. Here stand the rules that such ops would have, and what values attributes may take.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from miniflow.device import device
from miniflow.errors import CheckpointError
from miniflow.formulas.scalar import expression
from miniflow.graph.codegen.expressions import parts_of
from miniflow.graph.ir import Instruction, Scalar, Slot
from miniflow.graph.saved.attributes import OF_GLOBAL_TENSORS, check_attributes, require
from miniflow.graph.saved.values import checked
from miniflow.nn.utils.clip_grad import ClipGradNorm
from miniflow.ops.diagonal import Diagonal
from miniflow.ops.indexing import picked_shape
from miniflow.ops.normalization import BatchNorm, LayerNorm
from miniflow.ops.pointwise import Pointwise
from miniflow.ops.pooling import AdaptiveAvgPool2d, AvgPool2d, MaxPool2d
from miniflow.ops.promotion import ToDevice
from miniflow.ops.recurrence import SAVED
from miniflow.ops.views import sliced_shape
from miniflow.ops.windows import Unfold
from miniflow.parallel.dispatch import make_plan
from miniflow.parallel.global_array import GlobalArray
from miniflow.parallel.tensors import Boxing

REFUSED = (ValueError, TypeError, IndexError, AttributeError, KeyError, ArithmeticError, MemoryError, RecursionError)
ABSENT = {  # beside weights and biases
    ("ScatterAdd", "x"), ("SetItem", "index"), ("Recurrent", "c"), ("RecurrentGrad", "c"), ("RecurrentGrad", "dc_last"),
}  # fmt: skip


def check_instruction(instruction: Instruction, at: str, makers: dict[Slot, Instruction] | None = None) -> None:
    """Refuse an instruction unless its attributes make sense and its outputs are what the op makes of its inputs.

    Args:
        at: its place, for the message.
        makers: the instructions before it, by their outputs.

    Raises:
        CheckpointError: naming place and reason.
    """
    op = instruction.op
    try:
        check_attributes(op, instruction.attrs)
        expected = inferred(instruction)
        if op.__name__ in RULES:
            attrs = {name: value for name, value in instruction.attrs.items() if name != OF_GLOBAL_TENSORS}
            operands = [unboxed(x, makers or {}) for x in instruction.inputs]
            RULES[op.__name__](*operands, makers=makers or {}, **attrs)
    except REFUSED as error:
        reason = f"{type(error).__name__}: {error}"
        raise CheckpointError(f"load: {at}: {op.__name__} does not accept its operands ({reason:.300})") from error
    got = [(slot.shape, slot.dtype, slot.device) for slot in instruction.outputs]
    if got != expected:
        kinds = [", ".join(f"{d} {list(s)} on {p}" for s, d, p in kind) or "none" for kind in (got, expected)]
        raise CheckpointError(f"load: {at}: {op.__name__} is said to give {kinds[0]}; it gives {kinds[1]}")


def inferred(instruction: Instruction) -> list[tuple[tuple[int, ...], np.dtype, device]]:
    """Shape, dtype and device of each output."""
    op, slots = instruction.op, [x for x in instruction.inputs if isinstance(x, Slot)]
    if op is Boxing:
        return [boxed(*instruction.inputs, **instruction.attrs)]
    every = [slot.device for slot in [*slots, *filter(None, [instruction.unless])]]
    places = {where.placement if where.is_global else where for where in every}
    require(len(places) == 1, f"operands on {len(places)} devices")
    place = instruction.attrs["target"] if op is ToDevice else every[0]
    if op.groups:
        check_groups(instruction)
    if instruction.unless is not None:
        is_flag = (instruction.unless.shape, instruction.unless.dtype) == ((), np.dtype(bool))
        require(op.groups and is_flag, "only updates can be left out, and a 0-dim bool says when")
    if instruction.mutates:
        changed = [instruction.inputs[position] for position in instruction.mutates]
        return [(x.shape, x.dtype, x.device) for x in changed]
    check_kinds(instruction)
    result = op.infer(*instruction.inputs, **instruction.attrs)
    kinds = [result] if op.single else result
    places = laid_out(instruction) if place.is_global else [place] * len(kinds)
    pairs = zip(kinds, places, strict=True)
    return [(tuple(int(n) for n in shape), np.dtype(dtype), where) for (shape, dtype), where in pairs]


def boxed(x: Slot, *, placement: Any, sbp: Any, grad_sbp: Any, source: Any) -> tuple:
    """Shape, dtype and layout of a global array in another layout."""
    require(isinstance(x, Slot) and x.is_global, "what is no global array")
    require(source == (x.device.placement, x.device.sbp), f"the layout {source!r:.80} of its operand")
    require(grad_sbp is None or len(grad_sbp) <= 32, "a layout of its gradient")
    return x.shape, x.dtype, checked(placement, sbp, "attrs", x.shape, x.dtype)


def laid_out(instruction: Instruction) -> list[Any]:
    """The layouts of the results; those that the file says are taken if they lie on the same placement."""
    arrays = [GlobalArray(x.device, {}) if isinstance(x, Slot) else x for x in instruction.inputs]
    results = make_plan(instruction.op, tuple(arrays), instruction.attrs).results
    given = [slot.device for slot in instruction.outputs]
    is_same = len(given) == len(results) and all(
        mine.is_global and mine.placement == theirs.placement for mine, theirs in zip(given, results, strict=True)
    )
    return given if is_same else results


def check_kinds(instruction: Instruction) -> None:
    """None stands only for operands that may be absent, a number only where it would be broadcast."""
    names = [p.name for p in inspect.signature(instruction.op.infer).parameters.values()]
    for position, x in enumerate(instruction.inputs):
        name = names[min(position, len(names) - 1)]
        if issubclass(instruction.op, Pointwise):
            expression(parts_of(instruction)[0])  # raises if the formula does not take such operands
            continue
        absent = x is None and (name in ("weight", "bias") or (instruction.op.__name__, name) in ABSENT)
        is_number = x is not None and instruction.op.broadcasts
        require(isinstance(x, Slot) or absent or is_number, f"{x!r:.40} for {name}")


def check_groups(instruction: Instruction) -> None:
    """The inputs of an update come in groups of equal length; what belongs to one parameter has its shape."""
    each, rest = divmod(len(instruction.inputs), instruction.op.groups)
    require(each and not rest, f"{len(instruction.inputs)} inputs for {instruction.op.groups} groups")
    for i in range(each):
        column = instruction.inputs[i::each]
        if instruction.op is ClipGradNorm:
            require(isinstance(column[1], Slot) and column[1].shape == (), "a norm that is not 0-dim")
            column = column[:1]
        for group, x in enumerate(column):
            needed = instruction.op.optional.get(group)
            option = None if needed is None else instruction.attrs[needed]
            absent = needed is not None and (isinstance(option, Scalar) or not option)
            require(isinstance(x, Slot) or x is None and absent, f"nothing for group {group}")
        shapes = {x.shape for x in column if x is not None}
        require(len(shapes) == 1, f"the shapes {shapes} for one parameter")
    for name in instruction.op.per_parameter:
        count = len(instruction.attrs[name])
        require(count == each, f"{name} of {count} parameters instead of {each}")


def like(slot: Slot, shape: tuple[int, ...]) -> Slot:
    """A stand-in for an array of another shape, for shape rules."""
    return slot.like(shape=tuple(shape))


# operands of ops that trust the tape


def same_shape(x: Slot, y: Slot, **_: Any) -> None:
    """Both operands have one shape."""
    require(x.shape == y.shape, f"shapes {x.shape} and {y.shape}")


def softmax_grad(dy: Slot, y: Slot, *, dim: int, **_: Any) -> None:
    """The operands have one shape, and `dim` is one of theirs."""
    same_shape(dy, y)
    ndim = max(len(y.shape), 1)
    require(-ndim <= dim < ndim, f"dim {dim}")


def adjoint(forward: Callable[..., Any], what: Slot, shape: tuple[int, ...], **attrs: Any) -> None:
    """`what` has the shape that `forward` gives to an array of `shape`."""
    result = forward(like(what, shape), **attrs)[0]
    require(tuple(result) == what.shape, f"shape {what.shape}; the forward op gives {tuple(result)}")


def unboxed(x: Any, makers: dict[Slot, Instruction]) -> Any:
    """The slot of which the layout was changed: it has the same values."""
    while x in makers and makers[x].op is Boxing:
        x = makers[x].inputs[0]
    return x


def made_by(slot: Any, position: int, makers: dict[Slot, Instruction], *ops: str) -> Instruction:
    """The instruction that made `slot` as its output `position`, which must be of one of some ops."""
    maker = makers.get(slot)
    require(
        maker is not None and maker.op.__name__ in ops and maker.outputs[position] is slot,
        f"an operand that is not output {position} of {' or '.join(ops)}",
    )
    return maker.with_(inputs=[unboxed(x, makers) for x in maker.inputs])


def max_pool_grad(dy, index, *, size, makers) -> None:
    maker = made_by(index, 1, makers, MaxPool2d.__name__)
    require(dy.shape == index.shape, f"shapes {dy.shape} and {index.shape}")
    require(tuple(size) == maker.inputs[0].shape[2:], f"size {size} for an image of shape {maker.inputs[0].shape}")


def cross_entropy_grad(dy, x, target, weight, lse, total, *, makers, **attrs) -> None:
    maker = made_by(lse, 1, makers, "CrossEntropy")
    require(maker.inputs == [x, target, weight] and maker.outputs[2] is total, "operands of another loss")
    require(attrs == maker.attrs, "other attributes than those of the loss")
    require(dy.shape == maker.outputs[0].shape, f"a cotangent of shape {dy.shape}")


def layer_norm_grad(dy, x, weight, mean, rstd, *, dims, makers) -> None:
    maker = made_by(mean, 1, makers, "LayerNorm")
    require(maker.outputs[2] is rstd and maker.attrs["dims"] == dims, "statistics of another layer norm")
    LayerNorm.infer(x, weight, None, dims=dims, eps=0.0)
    require(dy.shape == x.shape == maker.inputs[0].shape, f"shapes {dy.shape} and {x.shape}")


def batch_norm_grad(dy, x, weight, mean, var, *, makers, **_) -> None:
    kinds = BatchNorm.infer(x, weight, None, eps=0.0)
    for statistic, (shape, _dtype) in zip((mean, var), kinds[1:], strict=True):
        require(statistic.shape == tuple(shape), f"statistics of shape {statistic.shape}")
    require(dy.shape == x.shape, f"shapes {dy.shape} and {x.shape}")


def embedding_grad(dy, indices, **_) -> None:
    require(indices.dtype.kind in "iu" and dy.shape[:-1] == indices.shape and dy.ndim, f"a cotangent {dy.shape}")


def one_dim(x: Slot, *_: Any, dim: int, shape: tuple[int, ...] | None = None, **__: Any) -> None:
    """`dim` is one of x, or of `shape`, and not counted from the end."""
    require(0 <= dim < max(len(x.shape if shape is None else shape), 1), f"dim {dim}")


def coordinates(index: Slot, dims: tuple[int, ...], ndim: int) -> None:
    """The rows of `index` are integers that belong to `dims`, which are not counted from the end, and ascend."""
    require(index.dtype.kind in "iu", f"coordinates of {index.dtype}")
    require(len(index.shape) >= 1 and index.shape[0] == len(dims) > 0, f"coordinates of shape {index.shape}")
    ascends = isinstance(dims, tuple) and list(dims) == sorted(set(dims))
    require(ascends and 0 <= dims[0] and dims[-1] < ndim, f"dims {dims}")


def cat(*xs, dim, sizes, makers) -> None:
    one_dim(xs[0], dim=dim)
    require([x.shape[dim] for x in xs] == list(sizes), f"sizes {sizes}")


def fold_add(x, *, shape, makers, **attrs) -> None:
    one_dim(x, shape=shape, **attrs)
    adjoint(Unfold.infer, x, shape, **attrs)


def index_into_zeros(x, index, *, dims, shape, makers) -> None:
    coordinates(index, dims, len(shape))
    wanted = picked_shape(tuple(shape), index.shape[1:], dims)
    require(x.shape == wanted, f"shape {x.shape} instead of {wanted}")


def set_item(x, value, index, *, basic, dims, makers) -> None:
    shape = sliced_shape("setitem", x.shape, tuple(basic))
    if index is not None:
        coordinates(index, dims, len(shape))
        shape = picked_shape(shape, index.shape[1:], dims)
    require(np.broadcast_shapes(value.shape, shape) == tuple(shape), f"a value of shape {value.shape}")


def scatter_add(x, index, src, *, shape, dim, makers) -> None:
    require(x is None or x.shape == tuple(shape), "another shape than the first operand's")
    scattered(index, src, tuple(shape), dim)


def scattered(index: Slot, src: Slot, shape: tuple[int, ...], dim: int) -> None:
    require(src.shape == index.shape and len(index.shape) == len(shape), f"shapes {src.shape} and {index.shape}")
    require(0 <= dim < max(len(shape), 1), f"dim {dim}")
    fits = all(n <= size for d, (n, size) in enumerate(zip(index.shape, shape, strict=True)) if d != dim)
    require(fits, f"an index of shape {index.shape} for {shape}")


def recurrent(x, h, c, weight, bias, dh=None, dc=None, *others, cell, sizes, reverse, makers) -> None:
    (rows, hidden), (gates, memory) = (sum(sizes), weight.shape[-1]), SAVED.get(cell, (0, 0))
    columns, state, row = max(gates, 1) * hidden, (sizes[0], hidden), (rows, hidden)
    wanted = [(rows, columns), state, state, (columns, hidden), (columns,), state, state, row, row]
    wanted += [(rows, gates * hidden), (rows, memory * hidden)]
    given = list(zip((x, h, c, weight, bias, dh, dc, *others), wanted, strict=False))
    memories = (c, dc) if others else (c,)
    fits = all(slot is None or (slot.shape, slot.dtype) == (shape, h.dtype) for slot, shape in given)
    require(list(sizes) == sorted(sizes, reverse=True), f"sizes {sizes}")
    require(fits and all((slot is None) == (cell != "lstm") for slot in memories), "operands of another layer")


def view_scatter(x, values, *, steps, makers) -> None:
    place = x
    for op, attrs in steps:
        check_attributes(op, attrs)
        shape, _ = op.infer(place, **attrs)
        if op is Unfold:
            one_dim(place, **attrs)
        place = like(x, shape)
    require(place.shape == values.shape and x.dtype == values.dtype, f"values of shape {values.shape}")


RULES: dict[str, Callable[..., None]] = {
    **dict.fromkeys(("SoftmaxGrad", "LogSoftmaxGrad"), softmax_grad),
    "AdaptiveAvgPool2dGrad": lambda dy, *, size, makers: adjoint(
        AdaptiveAvgPool2d.infer, dy, (*dy.shape[:2], *size), output_size=dy.shape[2:]
    ),
    "AvgPool2dGrad": lambda dy, *, size, makers, **windows: adjoint(
        AvgPool2d.infer, dy, (*dy.shape[:2], *size), **windows
    ),
    "BatchNormGrad": batch_norm_grad,
    **dict.fromkeys(("Gather", "Unfold"), one_dim),
    "Cat": cat,
    "CrossEntropyGrad": cross_entropy_grad,
    "DiagonalIntoZeros": lambda x, *, shape, makers, **attrs: adjoint(Diagonal.infer, x, shape, **attrs),
    "Dropout": lambda x, *, p, makers, **_: require(0 <= p <= 1, f"p={p}"),
    "EmbeddingGrad": embedding_grad,
    "FoldAdd": fold_add,
    "Index": lambda x, index, *, dims, makers: coordinates(index, dims, len(x.shape)),
    "IndexIntoZeros": index_into_zeros,
    "LayerNorm": lambda x, *_, dims, makers, eps: require(dims <= len(x.shape), f"dims {dims}"),
    "LayerNormGrad": layer_norm_grad,
    "Recurrent": recurrent,
    "RecurrentGrad": lambda dy, dh, dc, h, c, weight, *saved, **attrs: recurrent(
        None, h, c, weight, None, dh, dc, dy, *saved, **attrs
    ),
    "MaxPool2dGrad": max_pool_grad,
    "Scatter": lambda x, index, src, *, dim, makers: scattered(index, src, x.shape, dim),
    "ScatterAdd": scatter_add,
    "SetItem": set_item,
    "SliceIntoZeros": lambda x, *, shape, index, makers: require(
        x.shape == sliced_shape("slice", tuple(shape), tuple(index)), f"shape {x.shape}"
    ),
    "Stack": lambda *xs, dim, makers: require(0 <= dim <= len(xs[0].shape), f"dim {dim}"),
    "ViewScatter": view_scatter,
}  # fmt: skip
