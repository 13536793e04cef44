"""Tensors with some elements replaced or combined with others: by indices, masks, and parts given by strides."""

from __future__ import annotations

from math import nan
from typing import Any

import numpy as np

from miniflow.dispatch.dispatcher import call
from miniflow.errors import ArgumentError, DTypeError, ShapeError, refusal
from miniflow.ops.arithmetic import mul
from miniflow.ops.comparison import maximum, minimum
from miniflow.ops.creation import full, ones_like, zeros_like
from miniflow.ops.diagonal import Diagonal
from miniflow.ops.gather import Scatter, ScatterAdd, check_reach, coordinates_of
from miniflow.ops.indexing import Index, IndexIntoZeros, SetItem, locate, where
from miniflow.ops.inplace import ViewScatter
from miniflow.ops.method import method
from miniflow.ops.padding import pad
from miniflow.ops.promotion import Number, cast
from miniflow.ops.reduction import INT64
from miniflow.ops.sorting import Argsort
from miniflow.ops.views import Slice, wrap_dim
from miniflow.tensor import Tensor


def source_for(op: str, x: Tensor, dim: int, index: Tensor, src: Tensor | Number) -> Tensor:
    """The part of `src` that `index` reaches, in its shape."""
    check_reach(op, index._array, x._array.shape, dim)
    if not isinstance(src, Tensor):
        return full(index.shape, src, dtype=x.dtype, device=x._device)
    shape = index._array.shape
    if src._array.dtype != x._array.dtype:
        expected = f"one dtype: use src.to({x.dtype})"
        raise DTypeError(f"{op}: got a tensor of {x.dtype} and a src of {src.dtype}; expected {expected}")
    if src._array.ndim != len(shape) or any(n > size for n, size in zip(shape, src._array.shape, strict=True)):
        raise refusal(ShapeError, op, "no larger index", index=index, src=src)
    return src if src._array.shape == shape else call(Slice, src, index=(*[slice(n) for n in shape], ...))


@method(in_place=True)
def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """A copy of `input` with the elements of `src` added at the places that `index` names along `dim`.

    Args:
        input: any shape.
        dim: the dim that `index` counts along.
        index: integers in [0, size of dim), of as many dims as `input`. Places that repeat add up, on the CPU in a
            fixed order, on a cuda device by atomics, so that the last bits may differ from run to run.
        src: at least as large as `index`.

    Raises:
        ShapeError, IndexRangeError, DTypeError: for an index or a src that does not fit.
        DimError: for a dim that does not exist.

    >>> import miniflow as flow
    >>> flow.zeros(3).scatter_add(0, flow.tensor([0, 0, 2]), flow.ones(3)).tolist()
    [2.0, 0.0, 1.0]

    Source: `torch.scatter_add`.
    """
    shape = input._array.shape
    dim = wrap_dim("scatter_add", dim, len(shape))
    return call(ScatterAdd, input, index, source_for("scatter_add", input, dim, index, src), dim=dim, shape=shape)


@method(in_place=True)
def index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Number = 1) -> Tensor:
    """A copy of `input` with `alpha * source` added to the slices that `index` names along `dim`.

    Args:
        input: shape (..., n, ...) with n at `dim`.
        dim: the dim that `index` counts along.
        index: integers in [0, n), shape (m,). Slices that repeat add up, on the CPU in the order of `index`, on a cuda
            device by atomics, so that the last bits may differ from run to run.
        source: shape (..., m, ...), of x's dtype.
        alpha: a factor.

    Raises:
        IndexRangeError, ShapeError, DTypeError: for an index or a source that does not fit.
        DimError: for a dim that does not exist.

    >>> import miniflow as flow
    >>> flow.zeros(2).index_add(0, flow.tensor([1, 1]), flow.tensor([3.0, 4.0])).tolist()
    [0.0, 7.0]

    Source: `torch.index_add`.
    """
    if source._array.dtype != input._array.dtype:
        raise DTypeError(f"index_add: got a tensor of {input.dtype} and a source of {source.dtype}; expected one dtype")
    dim = wrap_dim("index_add", dim, input._array.ndim)
    shape = input._array.shape
    if not shape:
        if source._array.shape:
            raise refusal(ShapeError, "index_add", "a source of no dims", source=source, index=index, input=input)
        return index_add(input.reshape(1), 0, index, source.reshape(1), alpha=alpha).reshape(())
    coordinates = coordinates_of("index_add", index, dim, shape)
    expected = (*shape[:dim], coordinates._array.size, *shape[dim + 1 :])
    if source._array.shape != expected:
        raise refusal(ShapeError, "index_add", expected, source=source, index=index, input=input)
    source = source if alpha == 1 else cast(source * alpha, source.dtype)
    return input + call(IndexIntoZeros, source, coordinates, dims=(dim,), shape=shape)


@method(in_place=True)
def scatter_reduce(
    input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """A copy of `input` in which the elements of `src` are combined at the places that `index` names along `dim`.

    Args:
        input: any shape.
        dim: the dim that `index` counts along.
        index: integers in [0, size of dim), of as many dims as `input`.
        src: at least as large as `index`.
        reduce: "sum", "prod", "mean", "amax" or "amin". Of equal extrema the last one in `src` gets the gradient.
        include_self: the elements of `input` take part; else they stay only where `index` names no place.

    Raises:
        ArgumentError: for another reduction.
        ShapeError, IndexRangeError, DTypeError: for an index or a src that does not fit.
        DimError: for a dim that does not exist.

    >>> import miniflow as flow
    >>> flow.ones(2).scatter_reduce(0, flow.tensor([0, 0]), flow.tensor([2.0, 5.0]), "amax").tolist()
    [5.0, 1.0]

    Source: `torch.scatter_reduce`.
    """
    if reduce not in ("sum", "prod", "mean", "amax", "amin"):
        raise ArgumentError(f"scatter_reduce: got reduce={reduce!r}; expected 'sum', 'prod', 'mean', 'amax' or 'amin'")
    dim = wrap_dim("scatter_reduce", dim, input._array.ndim)
    src = source_for("scatter_reduce", input, dim, index, src)
    if not input._array.shape:
        flat = [x.reshape(1) for x in (input, index, src)]
        return scatter_reduce(flat[0], 0, *flat[1:], reduce, include_self=include_self).reshape(())
    shape = input._array.shape
    counts = call(ScatterAdd, None, index, ones_like(src), dim=dim, shape=shape)
    if reduce in ("sum", "mean"):
        base = input if include_self else where(counts == 0, input, zeros_like(input))
        y = call(ScatterAdd, base, index, src, dim=dim, shape=shape)
        if reduce == "sum":
            return y
        count = counts + 1 if include_self else counts.clamp(1)
        return y / count if y.is_floating_point() else y // count
    if reduce == "prod":
        y = _product_at(input, dim, index, src)
    else:
        y = _extremum_at(input, dim, index, src, smallest=reduce == "amin")
    if include_self:
        y = {"prod": mul, "amax": maximum, "amin": minimum}[reduce](input, y)
    return where(counts == 0, input, y)


@method(in_place=True)
def index_reduce(
    input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """A copy of `input` in which the slices of `source` are combined with those that `index` names along `dim`.

    Args:
        input: shape (..., n, ...) with n at `dim`.
        index: integers in [0, n), shape (m,).
        source: shape (..., m, ...), of the dtype of `input`.
        reduce: "prod", "mean", "amax" or "amin"; the rest as of `scatter_reduce`.

    Raises:
        ArgumentError: for another reduction.
        ShapeError, IndexRangeError, DTypeError: for an index or a source that does not fit.

    >>> import miniflow as flow
    >>> flow.ones(2).index_reduce(0, flow.tensor([0, 0]), flow.tensor([2.0, 5.0]), "prod").tolist()
    [10.0, 1.0]

    Source: `torch.index_reduce`.
    """
    if reduce not in ("prod", "mean", "amax", "amin"):
        raise ArgumentError(f"index_reduce: got reduce={reduce!r}; expected 'prod', 'mean', 'amax' or 'amin'")
    dim, shape = wrap_dim("index_reduce", dim, input._array.ndim), input._array.shape
    expected = (*shape[:dim], index._array.size, *shape[dim + 1 :]) if shape else ()
    if index._array.ndim > 1 or source._array.shape != expected or not shape and index._array.size != 1:
        got = f"an index of shape {index._array.shape} and a source of shape {source._array.shape}"
        raise ShapeError(f"index_reduce: got {got}; expected one dim, and {expected}")
    indices = index.reshape([-1 if d == dim else 1 for d in range(source._array.ndim)]).expand(source.shape)
    return scatter_reduce(input, dim, indices, source, reduce, include_self=include_self)


def _extremum_at(x: Tensor, dim: int, index: Tensor, src: Tensor, smallest: bool) -> Tensor:
    """`src` is written in order, so that the last at each place counts."""
    order = call(Argsort, src.detach(), dim=dim, descending=smallest, count=src._array.shape[dim], stable=True)
    y = call(Scatter, x, index.gather(dim, order), src.gather(dim, order), dim=dim)
    if not smallest or not src.is_floating_point():
        return y
    missing = cast(src.isnan(), src.dtype)  # NaN wins, but comes first in a descending order
    return where(call(ScatterAdd, None, index, missing, dim=dim, shape=x._array.shape) > 0, nan, y)


def _product_at(x: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """In the order of the index, the products of all elements of one place so far, by doubling; the last one counts."""
    count = src._array.shape[dim]
    order = call(Argsort, index, dim=dim, descending=False, count=count, stable=True)
    indices, products = index.gather(dim, order), src.gather(dim, order)
    trailing, step = (0, 0) * (src._array.ndim - 1 - dim), 1
    while step < count:
        shift = (*trailing, step, -step)
        is_same = indices == pad(indices, shift, value=-1)
        products = products * where(is_same, pad(products, shift, value=1), ones_like(products))
        step *= 2
    return call(Scatter, x, indices, products, dim=dim)


@method(in_place=True)
def scatter(
    input: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor | Number | None = None,
    *,
    value: Number | None = None,
    reduce: str | None = None,
) -> Tensor:
    """A copy of `input` with the elements of `src` at the places that `index` names along `dim`: `gather` reversed.

    Args:
        input: any shape.
        dim: the dim that `index` counts along.
        index: integers in [0, size of dim), of as many dims as `input`. Where it names a place twice, the last counts.
        src: at least as large as `index`, or one number.
        value: the number, by its other name.
        reduce: "add" or "multiply": combine with the elements that are there.

    Raises:
        ShapeError, IndexRangeError, DTypeError: for an index or a src that does not fit.
        DimError: for a dim that does not exist.
        ArgumentError: for another reduction.

    >>> import miniflow as flow
    >>> flow.zeros(2, 3).scatter(1, flow.tensor([[2], [0]]), 1.0).tolist()
    [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]

    Source: `torch.scatter`.
    """
    src = value if src is None else src
    if reduce is None:
        dim = wrap_dim("scatter", dim, input._array.ndim)
        return call(Scatter, input, index, source_for("scatter", input, dim, index, src), dim=dim)
    if reduce not in ("add", "multiply"):
        raise ArgumentError(f"scatter: got reduce={reduce!r}; expected None, 'add' or 'multiply'")
    if not isinstance(src, Tensor):
        src = full(index.shape, src, dtype=input.dtype, device=input._device)
    return scatter_reduce(input, dim, index, src, "sum" if reduce == "add" else "prod")


@method(in_place=True)
def index_fill(input: Tensor, dim: int, index: Tensor, value: Tensor | Number) -> Tensor:
    """A copy of `input` with `value` in the slices that `index` names along `dim`.

    Args:
        input: any shape.
        dim: the dim that `index` counts along.
        index: integers in [-n, n), shape (m,); negative ones count from the end.
        value: a number, or a tensor of no dims.

    Raises:
        IndexRangeError, ShapeError, DTypeError: for an index that does not fit.
        DimError: for a dim that does not exist.

    Source: `torch.Tensor.index_fill`.
    """
    if isinstance(value, Tensor) and value._array.ndim:
        raise ShapeError(f"index_fill: got a value of shape {value._array.shape}; expected a number or no dims")
    return _set_slices("index_fill", input, dim, index, value)


@method(in_place=True)
def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """A copy of `input` with the slices of `source` in place of those that `index` names; of several the last counts.

    Args:
        input: shape (..., n, ...) with n at `dim`.
        dim: the dim that `index` counts along.
        index: integers in [0, n), shape (m,).
        source: shape (..., m, ...), of the dtype of `input`.

    Raises:
        IndexRangeError, ShapeError, DTypeError: for an index or a source that does not fit.
        DimError: for a dim that does not exist.

    Source: `torch.index_copy`.
    """
    dim, shape = wrap_dim("index_copy", dim, input._array.ndim), input._array.shape
    expected = (*shape[:dim], index._array.size, *shape[dim + 1 :]) if shape else ()
    if source._array.dtype != input._array.dtype:
        raise DTypeError(f"index_copy: got {input.dtype} and a source of {source.dtype}; expected one dtype")
    if source._array.shape != expected:
        raise ShapeError(f"index_copy: got a source of shape {source._array.shape}; expected {expected}")
    return _set_slices("index_copy", input, dim, index, source, shape)


def _set_slices(
    op: str, x: Tensor, dim: int, index: Tensor, value: Tensor | Number, shape: tuple[int, ...] | None = None
) -> Tensor:
    """With a `shape`, negative indices are refused."""
    dim = wrap_dim(op, dim, x._array.ndim)
    if not x._array.shape:
        return _set_slices(op, x.reshape(1), 0, index, value, None if shape is None else (1,)).reshape(())
    coordinates = coordinates_of(op, index, dim, shape)
    value = value if isinstance(value, Tensor) else full((), value, dtype=x.dtype, device=x._device)
    return call(SetItem, x, cast(value, x.dtype), coordinates, basic=(...,), dims=(dim,))


@method(in_place=True)
def index_put(input: Tensor, indices: tuple[Tensor, ...], values: Tensor, accumulate: bool = False) -> Tensor:
    """A copy of `input` with `values` at `input[indices]`: replaced, or added.

    Args:
        input: any shape.
        indices: tensors of integers or bool, as in `input[indices]`.
        values: broadcast to the shape of `input[indices]`, of the dtype of `input`.
        accumulate: add; places that repeat add up.

    Raises:
        IndexRangeError, ShapeError, DTypeError: for indices or values that do not fit.

    >>> import miniflow as flow
    >>> i = flow.tensor([1, 1])
    >>> flow.zeros(2).index_put((i,), flow.ones(2), accumulate=True).tolist()
    [0.0, 2.0]

    Source: `torch.Tensor.index_put`.
    """
    if values._array.dtype != input._array.dtype:
        raise DTypeError(f"index_put: got {input.dtype} and values of {values.dtype}; expected one dtype")
    indices = tuple([i.reshape(1) if isinstance(i, Tensor) and not i.ndim else i for i in indices])
    value, coordinates, attrs = locate("index_put", input, indices, values)
    if not accumulate:
        return call(SetItem, input, value, coordinates, **attrs)
    dims, shape = attrs["dims"], input._array.shape
    value = value.expand(Index.infer(input._array, coordinates._array, dims=dims)[0])
    return input + call(IndexIntoZeros, value, coordinates, dims=dims, shape=shape)


@method
def take(input: Tensor, index: Tensor) -> Tensor:
    """The elements that `index` names in the flattened tensor, in the shape of `index`. `torch.take`."""
    flat = call(Index, input.reshape(-1), coordinates_of("take", index.reshape(-1)), dims=(0,))
    return flat.reshape(index.shape)


@method(in_place=True)
def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """A copy of `input` with `source` at the places that `index` names in the flattened tensor.

    Args:
        index: integers; negative ones count from the end.
        source: as many elements as `index`, of the dtype of `input`.
        accumulate: add; places that repeat add up.

    Source: `torch.put`.
    """
    flat = index_put(input.reshape(-1), (index.reshape(-1),), source.reshape(-1), accumulate)
    return flat.reshape(input.shape)


@method(in_place=True)
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """A copy of `input` in which the elements of `source`, in row-major order, take the places where `mask` is true.

    Args:
        input: any shape.
        mask: bool, broadcast to the shape of `input`.
        source: at least as many elements as are true, of the dtype of `input`.

    Raises:
        DTypeError: for a mask that is not bool, or another dtype.
        IndexRangeError: for too few elements.

    >>> import miniflow as flow
    >>> flow.zeros(3).masked_scatter(flow.tensor([True, False, True]), flow.tensor([5.0, 6.0])).tolist()
    [5.0, 0.0, 6.0]

    Source: `torch.Tensor.masked_scatter`.
    """
    if mask._array.dtype != np.bool_ or source._array.dtype != input._array.dtype:
        got = f"{input.dtype}, a mask of {mask.dtype} and a source of {source.dtype}"
        raise DTypeError(f"masked_scatter: got {got}; expected bool for the mask, and else one dtype")
    numbers = (cast(mask, INT64).expand(input.shape).reshape(-1).cumsum(0) - 1).clamp(0)
    source = source.reshape(-1)
    if source._array.size == 0:
        source = pad(source, (0, 1))
    return where(mask, take(source, numbers).reshape(input.shape), input)


@method
def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """A copy of `input` with `src` in place of `input.select(dim, index)`. `torch.select_scatter`."""
    return _scattered("select_scatter", input, src, dim, index)


@method
def slice_scatter(
    input: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    """A copy of `input` with `src` in place of `input[start:end:step]` along `dim`. `torch.slice_scatter`."""
    return _scattered("slice_scatter", input, src, dim, slice(start, end, None if step == 1 else step))


def _scattered(op: str, x: Tensor, src: Tensor, dim: int, part: Any) -> Tensor:
    index = (*[slice(None)] * wrap_dim(op, dim, x._array.ndim), part, ...)
    _same_shape(op, src, Slice.infer(x._array, index=index)[0])
    return call(SetItem, x, cast(src, x.dtype), None, basic=index, dims=())


@method
def diagonal_scatter(input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A copy of `input` with `src` in place of `input.diagonal(offset, dim1, dim2)`. `torch.diagonal_scatter`."""
    diagonal = input.diagonal(offset, dim1, dim2)
    _same_shape("diagonal_scatter", src, diagonal._array.shape)
    attrs = {"offset": offset, "dim1": dim1, "dim2": dim2}
    return call(ViewScatter, input, cast(src, input.dtype), steps=((Diagonal, attrs),))


def _same_shape(op: str, src: Tensor, expected: tuple[int, ...]) -> None:
    if src._array.shape != tuple(expected):
        raise ShapeError(f"{op}: got a src of shape {src._array.shape}; expected {tuple(expected)}")
