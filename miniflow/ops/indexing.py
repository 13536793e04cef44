"""`x[index]` and `x[index] = value` by PyTorch's rules, slices along one dim, masks, and `where`.

As in PyTorch, an index is applied in two steps. Its *basic* part, of ints, slices, None and Ellipsis, is a view
(`Slice`). Its *advanced* part, of lists, integer tensors and boolean masks, then picks elements of that view into a
copy (`Index`): all its parts are converted to coordinates, broadcast together and stacked into one integer tensor of
shape (k, *B), whose row j holds the coordinates along dim `dims[j]`.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from miniflow.backends.memory import peek, to_host
from miniflow.dispatch.call_errors import refuse_operand
from miniflow.dispatch.dispatcher import Op, call, run_kernel
from miniflow.dispatch.tape import modes
from miniflow.dtype import can_cast, fitting, int64, of_scalar
from miniflow.errors import DTypeError, IndexRangeError, ShapeError
from miniflow.formulas import scalar
from miniflow.ops import split_dims
from miniflow.ops.creation import zeros
from miniflow.ops.joining import stack
from miniflow.ops.method import method
from miniflow.ops.pointwise import pointwise, public_function_of
from miniflow.ops.promotion import Number, broadcast_shape, cast, promote, result_type, to_device
from miniflow.ops.shape import View, check_broadcast
from miniflow.ops.split_dims import batch_dim
from miniflow.ops.views import (
    Slice,
    adjoint_signatures,
    check_count,
    check_in_range,
    input_shape,
    out_of_range,
    sliced_shape,
    split_as_input,
    without_split,
    wrap_dim,
)
from miniflow.sbp import letters, signatures
from miniflow.tensor import Tensor, constant_like


@method
def select(input: Tensor, dim: int, index: int) -> Tensor:
    """The view `x[..., index, ...]` at `dim`, which disappears.

    Raises:
        DimError: for a dim that does not exist.
        IndexRangeError: for an index outside the dim; negative ones count from the end.

    >>> import miniflow as flow
    >>> flow.tensor([[1, 2], [3, 4]]).select(1, -1).tolist()
    [2, 4]

    Source: `torch.select`.
    """
    shape = input._array.shape
    if not shape:
        raise ShapeError("select: got a 0-dim tensor; expected at least 1 dim: use x.item() for its value")
    dim = wrap_dim("select", dim, len(shape))
    if not -shape[dim] <= index < shape[dim]:
        raise out_of_range("select", index, dim, shape)
    return call(Slice, input, index=(slice(None),) * dim + (int(index), ...))


@method
def narrow(input: Tensor, dim: int, start: int, length: int) -> Tensor:
    """The view of `length` elements from `start` on, along `dim`.

    Args:
        input: at least 1 dim.
        dim: the dim to shorten.
        start: the first index; negative ones count from the end.
        length: how many, at least 0.

    Raises:
        DimError: for a dim that does not exist.
        IndexRangeError: if the part reaches outside the tensor.

    >>> import miniflow as flow
    >>> flow.arange(5).narrow(0, 1, 3).tolist()
    [1, 2, 3]

    Source: `torch.narrow`.
    """
    shape = input._array.shape
    if not shape:
        raise ShapeError("narrow: got a 0-dim tensor; expected at least 1 dim: unsqueeze it")
    dim = wrap_dim("narrow", dim, len(shape))
    size, first = shape[dim], int(start) + shape[dim] if start < 0 else int(start)
    if length < 0 or not 0 <= first <= size - length:
        expected = f"start from {-size} to {size}, and start + length inside the dim"
        got = f"start={start} and length={length} for dim {dim} of size {size}"
        raise IndexRangeError(f"narrow: got {got}; expected {expected}")
    return call(Slice, input, index=(slice(None),) * dim + (slice(first, first + int(length)), ...))


INDEX_DTYPES = [np.dtype(name) for name in ("int8", "int16", "int32", "int64")]
Coordinates = tuple[int, Any]  # a dim, and the coordinates along it
PLAIN = (int, type(None), type(Ellipsis))  # what NumPy takes in a basic index as it is


def get_item(x: Tensor, index: Any) -> Tensor:
    """`x[index]`: a view for ints, slices, None and Ellipsis, a copy where lists, tensors or masks pick elements.

    Args:
        x: any shape.
        index: one of, or a tuple of: int, slice with a positive step, None, Ellipsis, bool, integer list, integer
            Tensor or NumPy array, boolean mask. As in PyTorch, the picked elements take the place of the indexed dims
            if those are neighbours, else in front.

    Raises:
        IndexRangeError: for an index outside its dim, too many indices, a mask of another shape, a step below 1.
        ShapeError: for indices that cannot be broadcast together.
        DTypeError: for indices that are neither integers nor bool.

    >>> import miniflow as flow
    >>> x = flow.arange(6).view(2, 3)
    >>> x[1, :2].tolist(), x[:, [2, 0]].tolist(), x[x > 3].tolist()
    ([3, 4], [[2, 0], [5, 3]], [4, 5])

    Source: PyTorch, "Tensor indexing API"; NumPy, "Indexing on ndarrays".
    """
    parts = index if index.__class__ is tuple else (index,)
    if all(part.__class__ in PLAIN or part.__class__ is slice and _is_plain(part) for part in parts):
        return call(Slice, x, index=parts if Ellipsis in parts else (*parts, ...))
    if isinstance(index, Tensor) and index._array.dtype == np.int64 and index._array.ndim and x._array.ndim:
        index = to_device(index, x._device)
        return call(Index, x, call(View, index, shape=(1, *index._array.shape)), dims=(0,))
    basic, advanced = parse_index("getitem", x._array.shape, index)
    if not advanced:
        return call(Slice, x, index=basic)
    if any(part is not Ellipsis and part != slice(None) for part in basic):
        x = call(Slice, x, index=basic)
    if len(advanced) == 1 and _is_mask(advanced[0][1]):
        return _pick_by_mask(x, *advanced[0])
    dims, coordinates = stack_coordinates("getitem", x._array.shape, advanced)
    return call(Index, x, _on_device_of(x, coordinates), dims=dims)


def _is_mask(part: Any) -> bool:
    return isinstance(part, np.ndarray) and part.dtype == np.bool_


def _on_device_of(x: Tensor, coordinates: np.ndarray | Tensor) -> Tensor:
    return constant_like(x, coordinates) if isinstance(coordinates, np.ndarray) else to_device(coordinates, x._device)


def _is_plain(part: slice) -> bool:
    return part.start.__class__ in PLAIN and part.stop.__class__ in PLAIN and part.step in (None, 1)


def _pick_by_mask(x: Tensor, dim: int, mask: np.ndarray) -> Tensor:
    """The elements where a mask over dims `dim`, `dim + 1` ... is true; those dims are flattened first."""
    shape, stop = x._array.shape, dim + mask.ndim
    _check_mask("getitem", mask, dim, shape)
    flat = x.reshape(shape[:dim] + (mask.size,) + shape[stop:])
    return call(Index, flat, constant_like(x, np.flatnonzero(mask)[None]), dims=(dim,))


def parse_index(op: str, shape: tuple[int, ...], index: Any) -> tuple[tuple, list[Coordinates]]:
    """Split an index into its basic and its advanced part.

    Returns:
        the basic part, which holds exactly one Ellipsis and a full slice in place of each dim with an advanced index;
        and for each advanced index the dim, in the tensor that the basic part leaves, that it indexes.
    """
    parts = [_classify(op, part) for part in (index if isinstance(index, tuple) else (index,))]
    consumed = sum(_dims_taken(part) for part in parts)
    check_count(op, sum(part is Ellipsis for part in parts), consumed, shape)
    basic, advanced, dim = [], [], 0
    for part in parts:
        if part is Ellipsis:
            basic.append(part)
            dim += len(shape) - consumed
        elif isinstance(part, np.ndarray | Tensor):
            if part.ndim == 0 and _is_mask(part):  # a new dim of size 1, of which one or no element is picked
                basic.append(None)
                advanced.append((dim, np.flatnonzero(part)))
            else:
                basic += [slice(None)] * _dims_taken(part)
                advanced.append((dim, part))
            dim += _dims_taken(part) or 1
        else:
            basic.append(part)
            dim += not isinstance(part, int)
    if not any(part is Ellipsis for part in basic):
        basic.append(...)
    return tuple(basic), advanced


def _slice_of_ints(op: str, part: slice) -> slice:
    """A slice with plain Python ints; steps below 1 are refused."""
    step = 1 if part.step is None else int(part.step.__index__())
    if step < 1:
        raise IndexRangeError(
            f"{op}: got a slice with step {step}; step must be greater than zero: use flip() to reverse a dim"
        )
    bounds = [None if bound is None else bound.__index__() for bound in (part.start, part.stop)]
    return slice(*bounds, None if step == 1 else step)


def _classify(op: str, part: Any) -> Any:
    """An int, slice, None, Ellipsis, or for everything else a NumPy array of integers or bool.

    While a graph is being recorded, integer tensors, whose values may change from call to call, stay tensors.
    """
    if part is None or part is Ellipsis or type(part) is int:
        return part
    if isinstance(part, slice):
        return _slice_of_ints(op, part)
    if modes.tracer is not None and isinstance(part, Tensor):
        if part._array.dtype in INDEX_DTYPES:
            return part
        if part._array.dtype == np.bool_ and not modes.tracer.is_constant(part):
            call(Nonzero, part)  # which the tracer refuses
    array = part._host_array() if isinstance(part, Tensor) else np.asarray(part)
    if array.size == 0 and not isinstance(part, Tensor | np.ndarray):
        array = array.astype(np.int64)
    if array.dtype == np.uint8 and isinstance(part, Tensor | np.ndarray):
        raise DTypeError(
            f"{op}: got an index of uint8, which may mean a mask or positions; convert it with .bool() or .long()"
        )
    if array.dtype.kind not in "biu":
        expected = "ints, slices, None, Ellipsis, or tensors and lists of integers or bool"
        got = f"an index of type {type(part).__name__} and dtype {array.dtype}"
        raise DTypeError(f"{op}: got {got}; expected {expected}")
    return int(array) if array.ndim == 0 and array.dtype != np.bool_ else array


def _dims_taken(part: Any) -> int:
    if part is None or part is Ellipsis:
        return 0
    return part.ndim if _is_mask(part) else 1


def _check_mask(op: str, mask: np.ndarray, dim: int, shape: tuple[int, ...]) -> None:
    if mask.shape != shape[dim : dim + mask.ndim]:
        got = f"a mask of shape {mask.shape} for the dims from {dim} on of a tensor of shape {tuple(shape)}"
        raise IndexRangeError(f"{op}: got {got}; expected {tuple(shape[dim : dim + mask.ndim])}")


def stack_coordinates(
    op: str, shape: tuple[int, ...], advanced: list[Coordinates]
) -> tuple[tuple[int, ...], np.ndarray | Tensor]:
    """The indexed dims, and the coordinates along them broadcast together and stacked: int64 (k, *B)."""
    dims, coordinates = [], []
    for dim, index in advanced:
        if _is_mask(index):
            _check_mask(op, index, dim, shape)
            coordinates += index.nonzero()
            dims += range(dim, dim + index.ndim)
        else:
            coordinates.append(index)
            dims.append(dim)
    shape = coordinates[0].shape if len(coordinates) == 1 else broadcast_shape(op, *[c.shape for c in coordinates])
    if any(isinstance(c, Tensor) for c in coordinates):
        tensors = [c if isinstance(c, Tensor) else Tensor._wrap(c) for c in coordinates]
        return tuple(dims), stack([cast(t, int64).expand(shape) for t in tensors])
    coordinates = [c if c.shape == shape else np.broadcast_to(c, shape) for c in coordinates]
    return tuple(dims), np.array(coordinates, np.int64)  # a copy, which the caller cannot change later


class Index(Op):
    """y[..., b, ...] = x[..., index[0, b], ..., index[k - 1, b], ...] with index[j] at dim `dims[j]`, b over B."""

    amp = "clear"
    saves = ("index",)
    checks_values = "infer"

    def infer(x, index, *, dims):
        check_coordinates("getitem", x.shape, index, dims)
        return picked_shape(x.shape, index.shape[1:], dims), x.dtype

    def sbp(x, index, *, ranks, dims):
        x_dims, index_dims, result_dims = picked_letters(x.ndim, index.ndim - 1, dims)
        return signatures([x_dims, index_dims], [result_dims], linear=[[0]])

    def on_shard(op, arrays, attrs, shard):
        (x, index), dims, shape = arrays, attrs["dims"], shard.wholes[0].shape
        if split_dims.is_whole(shard.operands[0], shape, dims):
            return run_kernel(op, arrays, attrs)
        check_coordinates("getitem", shape, index, dims)
        positions, rows = split_dims.rows_of_part(index, dims, shape, shard.operands[0])
        picked = run_kernel(op, [x, rows], attrs)
        return split_dims.spread(picked, positions, batch_dim(dims), index.ndim - 1, split_dims.sizes(shard.result))

    def backward(ctx, dy):
        return call(IndexIntoZeros, dy, *ctx.saved, shape=input_shape(ctx), **ctx.attrs, **split_as_input(ctx)), None


class IndexIntoZeros(Op):
    """zeros of `shape` to which every element of x is added at its index: the adjoint of `Index`."""

    saves = ("index",)
    checks_values = "infer"

    def infer(x, index, *, dims, shape, split=()):
        check_coordinates("getitem", shape, index, dims)
        return shape, x.dtype

    def sbp(x, index, *, ranks, dims, shape, split=()):
        x_dims, batch_dims, result_dims = picked_letters(len(shape), index.ndim - 1, dims)
        return adjoint_signatures([result_dims, batch_dims], x_dims, split)

    def on_shard(op, arrays, attrs, shard):
        (x, index), dims, attrs = arrays, attrs["dims"], without_split(attrs)
        if split_dims.is_whole(shard.result, shard.shape, dims):
            return run_kernel(op, arrays, attrs)
        check_coordinates("getitem", shard.shape, index, dims)
        positions, rows = split_dims.rows_of_part(index, dims, shard.shape, shard.result)
        at = batch_dim(dims)
        picked = split_dims.run("Index", split_dims.with_flat_batch(x, at, index.ndim - 1), positions, dims=(at,))
        return run_kernel(op, [picked, rows], attrs)

    def backward(ctx, dy):
        return call(Index, dy, *ctx.saved, dims=ctx.attrs["dims"]), None


def check_coordinates(op: str, shape: tuple[int, ...], index: Any, dims: tuple[int, ...]) -> None:
    """Refuse coordinates outside their dim; negative ones count from the end.

    Raises:
        IndexRangeError: for the first that is outside.
    """
    values = peek(index)
    if values is not None:
        for i, dim in enumerate(dims):
            check_in_range(op, values[i : i + 1], dim, shape, negative=True)


def picked_shape(shape: tuple, batch: tuple, dims: tuple[int, ...]) -> tuple:
    """The shape of `Index`: B in place of the indexed dims if they are neighbours, else in front."""
    rest, at = [n for d, n in enumerate(shape) if d not in dims], batch_dim(dims)
    return (*rest[:at], *batch, *rest[at:])


def picked_letters(ndim: int, batch: int, dims: tuple[int, ...]) -> tuple[str, str, str]:
    """For `sbp.signatures`: letters for the dims of x, of the index, and of the result of `Index`."""
    x_dims, batch_dims = letters(ndim), letters(batch, ndim)
    return x_dims, "." + batch_dims, "".join(picked_shape(tuple(x_dims), tuple(batch_dims), dims))


def locate(op: str, x: Tensor, index: Any, value: Any) -> tuple[Tensor, Tensor | None, dict]:
    """The inputs of `SetItem` after `x`, and its attributes; the coordinates are checked by its `infer`.

    Args:
        x: any shape.
        index: as for `get_item`. Where it names an element several times, the last value counts.
        value: a number, array or Tensor that broadcasts to the shape of `x[index]`; it is cast to the dtype of `x`.

    Raises:
        IndexRangeError, DTypeError: as `get_item`.
        ShapeError: if `value` cannot be broadcast to the shape of `x[index]`.
    """
    basic, advanced = parse_index(op, x._array.shape, index)
    shape = sliced_shape(op, x._array.shape, basic)
    dims, coordinates = stack_coordinates(op, shape, advanced) if advanced else ((), None)
    if advanced:
        coordinates = _on_device_of(x, coordinates)
        shape = picked_shape(shape, coordinates._array.shape[1:], dims)
    value = _as_value(x, value)
    while value._array.ndim > len(shape) and value._array.shape[0] == 1:
        value = value.reshape(value._array.shape[1:])
    check_broadcast(op, value._array.shape, shape)
    return value, coordinates, {"basic": basic, "dims": dims}


NUMBERS = (bool, int, float, np.bool_, np.integer, np.floating)


def _as_value(x: Tensor, value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return cast(value if value._array.ndim else to_device(value, x._device), x.dtype)
    if isinstance(value, NUMBERS):
        return constant_like(x, np.asarray(fitting("setitem", value, x.dtype), x._array.dtype))
    array = np.asarray(value)
    if array.dtype.kind not in "biuf" and array.dtype != x._array.dtype:
        expected = "a number, an array or a Tensor"
        raise DTypeError(f"setitem: got a value of type {type(value).__name__}; expected {expected}")
    return constant_like(x, array.astype(x._array.dtype))


class SetItem(Op):
    """x with `value` in place of x[basic][index]; `index` and `dims` as for `Index`, None for a basic index."""

    amp = "clear"
    computes_in_first = True
    saves = ("index",)
    broadcasts = True
    checks_values = "infer"

    def infer(x, value, index, *, basic, dims):
        if index is not None:
            check_coordinates("setitem", sliced_shape("setitem", x.shape, basic), index, dims)
        return x.shape, x.dtype

    def sbp(x, value, index, *, ranks, basic, dims):
        view = Slice if index is None else super(Slice, Slice)  # without the dims that are sliced
        (x_dims,), (view_dims,) = view.common_dims(x.shape, {"index": basic})
        value_dims = "".join([c for d, c in enumerate(view_dims) if d not in dims])
        if index is not None:
            value_dims = value_dims[: batch_dim(dims)] + "." * (index.ndim - 1) + value_dims[batch_dim(dims) :]
        value_dims = value_dims[len(value_dims) - value.ndim :]
        value_dims = "".join([c if n != 1 else "." for c, n in zip(value_dims, value.shape, strict=True)])
        return signatures([x_dims, value_dims, None if index is None else "." * index.ndim], [x_dims], linear=[[0, 1]])

    def on_shard(op, arrays, attrs, shard):
        (x, value, index), basic, dims = arrays, attrs["basic"], attrs["dims"]
        shape, part = shard.wholes[0].shape, shard.operands[0]
        if index is None:
            parts = split_dims.parts_of_slice(basic, shape, part)
            if parts is None:
                return split_dims.run("Clone", x)
            source, (*target, _) = parts
            target = target[len(target) - value.ndim :]  # of the dims that the value has
            target = [slice(None) if n == 1 else part for part, n in zip(target, value.shape, strict=True)]
            value = split_dims.run("Slice", value, index=(..., *target))
            return run_kernel(op, [x, value, None], attrs | {"basic": source})
        (x_dims,), (view_dims,) = super(Slice, Slice).common_dims(shape, {"index": basic})
        indexed = tuple([x_dims.index(view_dims[d]) if view_dims[d] != "." else None for d in dims])
        if None in indexed or split_dims.is_whole(part, shape, indexed):
            return run_kernel(op, arrays, attrs)
        check_coordinates("setitem", shape, index, indexed)
        positions, rows = split_dims.rows_of_part(index, indexed, shape, part)
        picked = picked_shape(sliced_shape("setitem", x.shape, basic), index.shape[1:], dims)
        values = split_dims.run("Expand", value, shape=picked)
        values = split_dims.with_flat_batch(values, batch_dim(dims), index.ndim - 1)
        return run_kernel(op, [x, split_dims.run("Index", values, positions, dims=(batch_dim(dims),)), rows], attrs)

    def backward(ctx, dy):
        (index,) = ctx.saved
        basic, dims = ctx.attrs["basic"], ctx.attrs["dims"]
        dx = dvalue = None
        if ctx.needs[0]:
            dx = call(SetItem, dy, constant_like(dy, np.zeros((), dy._array.dtype)), index, basic=basic, dims=dims)
        if ctx.needs[1]:
            dvalue = call(Slice, dy, index=basic)
            if index is not None:
                shape = dvalue._array.shape
                dvalue = _gradient_of_values(call(Index, dvalue, index, dims=dims), index, shape, dims)
        return dx, dvalue, None


def _gradient_of_values(dvalue: Tensor, index: Tensor, shape: tuple[int, ...], dims: tuple[int, ...]) -> Tensor:
    """The gradient of the values, zero where a later one replaced it, which is found by writing and reading numbers."""
    sizes, batch = [shape[d] for d in dims], index._array.shape[1:]
    numbers = constant_like(index, np.arange(prod(batch)).reshape(batch))
    attrs = {"dims": tuple(range(len(dims)))}
    written = call(SetItem, zeros(*sizes, dtype=int64, device=index._device), numbers, index, basic=(...,), **attrs)
    last = call(Index, written, index, **attrs) == numbers
    if modes.tracer is None and to_host(last._array).all():
        return dvalue
    trailing = len(shape) - dims[-1] - 1 if dims[-1] - dims[0] == len(dims) - 1 else len(shape) - len(dims)
    return where(last.reshape(batch + (1,) * trailing), dvalue, 0.0)


class Nonzero(Op):
    """The coordinates (count, ndim) of the elements that are not zero; no gradient."""

    shape_depends_on_values = True

    def infer(x):
        return (int(np.count_nonzero(to_host(x))), len(x.shape)), np.dtype(np.int64)


@pointwise(amp="clear", in_place=False)
def where(condition: bool, x, y):
    """x where the condition holds, else y."""
    return scalar.where(condition, x, y)


where.gradient("x")(lambda dy, condition: scalar.where(condition, dy, 0))
where.gradient("y")(lambda dy, condition: scalar.where(condition, 0, dy))


@public_function_of(where)
def where(
    condition: Tensor, input: Tensor | Number | None = None, other: Tensor | Number | None = None
) -> Tensor | tuple:
    """input where `condition` holds, else other; all three are broadcast. Alone, `condition.nonzero(as_tuple=True)`.

    A condition of integers holds where it is not 0.

    >>> import miniflow as flow
    >>> x = flow.tensor([-1.0, 2.0])
    >>> flow.where(x > 0, x, 0.0)
    tensor([0., 2.], dtype=miniflow.float32)

    Raises:
        DTypeError: for a condition of floats.

    Source: `torch.where`; `oneflow.where`, which takes integers.
    """
    if input is None and other is None:
        return condition.nonzero(as_tuple=True)
    if isinstance(condition, bool):
        return input if condition else other
    if not isinstance(condition, Tensor):
        refuse_operand(condition, "where", parameter="condition")
    if condition.dtype.category == 1:
        condition = condition != 0
    x, y = promote(input, other, "where")
    if not isinstance(x, Tensor) and not isinstance(y, Tensor):
        x = constant_like(condition, np.asarray(x, result_type(x, y).numpy))
    return call(where.op, condition, x, y)


@method(in_place=True)
def masked_fill(input: Tensor, mask: Tensor, value: Tensor | Number) -> Tensor:
    """A copy of `input` with `value` where `mask` is true.

    Args:
        input: any shape.
        mask: bool, or integers, which are true but for 0; broadcast with `input`.
        value: a number, or a 0-dim tensor, to which the gradient flows.

    Raises:
        ShapeError: if the shapes cannot be broadcast, or `value` has dims.
        DTypeError: if the mask is of floats, or the dtype of `input` cannot hold `value`.

    >>> import miniflow as flow
    >>> x = flow.tensor([1.0, -2.0])
    >>> x.masked_fill(x < 0, 0.0).tolist()
    [1.0, 0.0]

    Source: `torch.Tensor.masked_fill`.
    """
    if isinstance(value, Tensor) and value._array.ndim:
        raise ShapeError(f"masked_fill: got a value of shape {tuple(value.shape)}; expected a number or a 0-dim tensor")
    value_dtype = value.dtype if isinstance(value, Tensor) else of_scalar(value)
    if not can_cast(value_dtype, input.dtype):
        raise DTypeError(
            f"masked_fill: got the value {value!r} for a tensor of {input.dtype}, which cannot hold it: convert one"
        )
    value = cast(value, input.dtype) if isinstance(value, Tensor) else fitting("masked_fill", value, input.dtype)
    return where(mask, value, input)


@method
def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """The elements of `input` where `mask` is true, in row-major order, as a copy of 1 dim.

    Args:
        input: any shape.
        mask: bool, broadcast with `input`.

    Raises:
        ShapeError: if the shapes cannot be broadcast.
        DTypeError: if the mask is not bool.

    >>> import miniflow as flow
    >>> x = flow.tensor([[1, 2], [3, 4]])
    >>> x.masked_select(x > 2).tolist()
    [3, 4]

    Source: `torch.masked_select`.
    """
    if mask._array.dtype != np.bool_:
        raise DTypeError(f"masked_select: got a mask of {mask.dtype}; expected bool: compare, or use .bool()")
    shape = broadcast_shape("masked_select", input._array.shape, mask._array.shape)
    return get_item(input.expand(shape), mask.expand(shape)).reshape(-1)


@method
def nonzero(input: Tensor, as_tuple: bool = False) -> Tensor | tuple[Tensor, ...]:
    """Where `input` is not zero (or false): int64 coordinates in row-major order.

    Args:
        input: any shape.
        as_tuple: one tensor (count,) for each dim, fit to index with: `x[x.nonzero(as_tuple=True)]`.

    Returns:
        shape (count, ndim), or the tuple; of a global tensor broadcast.

    >>> import miniflow as flow
    >>> flow.tensor([[0, 5], [6, 0]]).nonzero().tolist()
    [[0, 1], [1, 0]]

    Source: `torch.nonzero`.
    """
    if as_tuple:
        coordinates = argwhere(input.reshape(1) if input._array.ndim == 0 else input)
        return tuple([call(Slice, coordinates, index=(..., d)) for d in range(coordinates._array.shape[1])])
    return argwhere(input)


@method
def argwhere(input: Tensor) -> Tensor:
    """`x.nonzero()`."""
    if input.is_global and modes.tracer is None:  # all ranks look at all of it
        return constant_like(input, np.argwhere(input._array.numpy()))
    return call(Nonzero, input)
