"""What instructions a program from a file may have.

Each op says by its shape rule what it makes of its operands, and refuses others. A file may also hold what functions
and the tape never hand to an op: here stands what shape rules take on trust, and that gradients take from the op
before them what compiled kernels read without looking: operands of the wrong shape would be read behind their end.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from miniflow.device import device
from miniflow.dispatch.dispatcher import Op
from miniflow.formulas.scalar import expression
from miniflow.graph.codegen.expressions import parts_of
from miniflow.graph.ir import Instruction, Scalar, Slot, with_numbers
from miniflow.graph.saved.attributes import OF_GLOBAL_TENSORS, check_attributes, require
from miniflow.graph.saved.values import FAILURES, Refused, layout_of, refuse
from miniflow.nn.utils.clip_grad import ClipGradNorm
from miniflow.ops.gather import check_reach
from miniflow.ops.indexing import picked_shape
from miniflow.ops.pointwise import Pointwise
from miniflow.ops.pooling import AdaptiveAvgPool2d, AvgPool2d
from miniflow.ops.promotion import ToDevice
from miniflow.ops.views import IntoZeros, sliced_shape
from miniflow.parallel.dispatch import make_plan
from miniflow.parallel.global_array import GlobalArray
from miniflow.parallel.tensors import Boxing

ABSENT = {  # beside weights and biases
    ("ScatterAdd", "x"), ("SetItem", "index"), ("Recurrent", "c"), ("RecurrentGrad", "c"), ("RecurrentGrad", "dc_last"),
}  # fmt: skip


def check_instruction(instruction: Instruction, numbers: dict[str, Any], makers: dict[Slot, Instruction]) -> None:
    """Refuse an instruction unless its attributes make sense and its outputs are what the op makes of its inputs.

    Args:
        numbers: what its `Scalar`s are now, by name.
        makers: the instructions before it, by their outputs.

    Raises:
        Refused: with the reason.
    """
    op = instruction.op
    try:
        check_attributes(op, {name: with_numbers(value, numbers) for name, value in instruction.attrs.items()})
        expected = inferred(instruction)
        check_operands(op, instruction.inputs, instruction.attrs)
        if op.__name__ in OF_ONE_FORWARD:
            check_gradient(instruction, makers)
    except FAILURES as error:
        reason = f"{type(error).__name__}: {error}"
        raise Refused(f"{op.__name__} does not accept its operands ({reason:.300})") from error
    got = [(slot.shape, slot.dtype, slot.device) for slot in instruction.outputs]
    if got != expected:
        refuse(got, f"{expected}, which {op.__name__} makes of its operands")


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
    return x.shape, x.dtype, layout_of(placement, sbp, x.shape, x.dtype)


def laid_out(instruction: Instruction) -> list[Any]:
    """The layouts of the results; those that the file says are taken if they lie on the same placement."""
    arrays = [GlobalArray(x.device, {}) if isinstance(x, Slot) else x for x in instruction.inputs]
    results = make_plan(instruction.op, tuple(arrays), instruction.attrs).results
    stated = [slot.device for slot in instruction.outputs]
    is_same = len(stated) == len(results) and all(
        mine.is_global and mine.placement == theirs.placement for mine, theirs in zip(stated, results, strict=True)
    )
    return stated if is_same else results


def check_kinds(instruction: Instruction) -> None:
    """None stands only for operands that may be absent, a number only where it would be broadcast."""
    op, names = instruction.op, operand_names(instruction.op)
    if issubclass(op, Pointwise):
        expression(parts_of(instruction)[0])  # raises if the formula does not take such operands
        return
    for position, x in enumerate(instruction.inputs):
        name = names[min(position, len(names) - 1)]
        absent = x is None and (name in ("weight", "bias") or (op.__name__, name) in ABSENT)
        if not (isinstance(x, Slot) or absent or x is not None and op.broadcasts):
            raise ValueError(f"{x!r:.40} for {name}")


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


# what shape rules take on trust


def check_gradient(instruction: Instruction, makers: dict[Slot, Instruction]) -> None:
    """The gradient of an op that saves results for it alone, such as statistics or where maxima lie, has to be that of
    one instruction: with the operands, results and attributes of that, and cotangents of the shapes of its results."""
    attrs, forward = instruction.attrs, Op.by_name[instruction.op.__name__.removesuffix("Grad")]
    operands = dict(zip(operand_names(instruction.op), [unboxed(x, makers) for x in instruction.inputs], strict=True))
    maker = next((makers.get(x) for name, x in operands.items() if name in forward.outputs[1:]), None)
    require(maker is not None and maker.op is forward, f"operands that are not results of {forward.__name__}")
    known = dict(zip(operand_names(forward), [unboxed(x, makers) for x in maker.inputs], strict=True))
    known |= {"size": maker.inputs[0].shape[2:]} | maker.attrs | dict(zip(forward.outputs, maker.outputs, strict=True))
    for name, value in {**operands, **attrs}.items():
        require(name not in known or value == known[name], f"another {name} than the {forward.__name__} before it")
    for name, x in operands.items():
        result = known.get(name[1:], maker.outputs[0]) if name[0] == "d" and name not in known else x
        require(x is None or (x.shape, x.dtype) == (result.shape, result.dtype), f"a cotangent {name}: {x}")


@functools.cache
def operand_names(op: type[Op]) -> list[str]:
    """The names of the operands of an op."""
    parameters = inspect.signature(op.infer).parameters.values()
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL)]


def unboxed(x: Any, makers: dict[Slot, Instruction]) -> Any:
    """The slot of which the layout was changed: it has the same values."""
    while x in makers and makers[x].op is Boxing:
        x = makers[x].inputs[0]
    return x


def one_dim(x: Slot, *_: Any, dim: int, shape: tuple[int, ...] | None = None, **__: Any) -> None:
    """`dim` is one of x, or of `shape`, and not counted from the end."""
    require(0 <= dim < max(len(x.shape if shape is None else shape), 1), f"dim {dim}")


def cat(*xs: Slot, dim: int, sizes: Sequence[int]) -> None:
    """`sizes` are those of the operands."""
    one_dim(xs[0], dim=dim)
    require([x.shape[dim] for x in xs] == list(sizes), f"sizes {sizes}")


def coordinates(index: Slot, dims: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of what they pick: the rows of `index` are integers for `dims`, which ascend."""
    require(index.dtype.kind in "iu" and index.shape[:1] == (len(dims),) != (0,), f"coordinates {index}")
    require(list(dims) == sorted({*dims} & {*range(len(shape))}), f"dims {dims}")
    return picked_shape(tuple(shape), index.shape[1:], dims)


def into_zeros(x: Slot, index: Slot, *, dims: tuple[int, ...], shape: tuple[int, ...]) -> None:
    """x has the shape of what the coordinates pick."""
    require(x.shape == coordinates(index, dims, shape), f"shape {x.shape}")


def set_item(x: Slot, value: Slot, index: Slot | None, *, basic: tuple, dims: tuple[int, ...]) -> None:
    """The value broadcasts to the shape of its place."""
    shape = sliced_shape("setitem", x.shape, tuple(basic))
    shape = shape if index is None else coordinates(index, dims, shape)
    require(np.broadcast_shapes(value.shape, shape) == tuple(shape), f"a value of shape {value.shape}")


def scatter(x: Slot | None, index: Slot, src: Slot, *, dim: int, shape: tuple[int, ...] | None = None) -> None:
    """There are as many values as indices, which do not reach out of the other dims."""
    shape = x.shape if shape is None else tuple(shape)
    fits = src.shape == index.shape and (x is None or x.shape == shape)
    require(fits, f"shapes {x}, {index} and {src}")
    one_dim(src, dim=dim)
    check_reach("scatter", index, shape, dim)


def adjoint(x: Slot, forward: type[Op], shape: tuple[int, ...], **attrs: Any) -> None:
    """x has the shape of what `forward` makes of an array of `shape`."""
    require(tuple(forward.infer(x.like(shape=shape), **attrs)[0]) == x.shape, f"shape {x.shape}")


def view_scatter(x: Slot, values: Slot, *, steps: tuple) -> None:
    """The views lead to a place of the shape of what is written there."""
    place = x
    for op, attrs in steps:
        check_attributes(op, attrs)
        check_operands(op, [place], attrs)
        shape, _ = op.infer(place, **attrs)
        place = x.like(shape=tuple(shape))
    require(place.shape == values.shape and x.dtype == values.dtype, f"values of shape {values.shape}")


def check_operands(op: type[Op], operands: list[Any], attrs: dict[str, Any]) -> None:
    """Refuse what the shape rule of an op does not look at."""
    attrs = {name: value for name, value in attrs.items() if name != OF_GLOBAL_TENSORS}
    if issubclass(op, IntoZeros):
        adjoint(*operands, op.of, **attrs)
    RULES.get(op.__name__, lambda *_, **__: None)(*operands, **attrs)


OF_ONE_FORWARD = ("CrossEntropyGrad", "LayerNormGrad", "MaxPool2dGrad", "RecurrentGrad")
RULES: dict[str, Callable[..., None]] = {
    "AdaptiveAvgPool2dGrad": lambda dy, *, size: adjoint(
        dy, AdaptiveAvgPool2d, (*dy.shape[:2], *size), output_size=dy.shape[2:]
    ),
    "AvgPool2dGrad": lambda dy, *, size, **windows: adjoint(dy, AvgPool2d, (*dy.shape[:2], *size), **windows),
    **dict.fromkeys(("FoldAdd", "Gather", "Unfold"), one_dim),
    **dict.fromkeys(("Scatter", "ScatterAdd"), scatter),
    "Cat": cat,
    "Dropout": lambda x, *, p, **_: require(0 <= p <= 1, f"p={p}"),
    "LayerNorm": lambda x, *_, dims, eps: require(dims <= len(x.shape), f"dims {dims}"),
    "Index": lambda x, index, *, dims: coordinates(index, dims, x.shape),
    "IndexIntoZeros": into_zeros,
    "SetItem": set_item,
    "Stack": lambda *xs, dim: require(0 <= dim <= len(xs[0].shape), f"dim {dim}"),
    "ViewScatter": view_scatter,
}
