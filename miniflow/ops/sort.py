"""Sorting, and what is read off a sorted dim: the k largest, medians, quantiles, the most frequent value.

One op finds the order; `gather` picks the elements, so that gradients of any order follow. NaN is larger than all
numbers, as in PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import numpy as np

from miniflow.composite import composite
from miniflow.dispatch import Op, call
from miniflow.errors import ArgumentError, DTypeError, ShapeError
from miniflow.ops.extremum import Extreme
from miniflow.ops.method import method
from miniflow.ops.pad import pad
from miniflow.ops.piecewise import ceil, where
from miniflow.ops.promotion import cast, require_floating
from miniflow.ops.reduce import INT64, nonempty
from miniflow.ops.scan import CumulativeMax, positions
from miniflow.ops.shape import wrap_dim
from miniflow.sbp import each_row
from miniflow.tensor import Tensor, constant_like


class Argsort(Op):
    """Where the first `count` elements of the order along `dim` stand; equal ones stay in theirs if `stable`."""

    def infer(x, *, dim, descending, count, stable):
        return (*x.shape[:dim], count, *x.shape[dim + 1 :]), INT64

    sbp = each_row


def _order(
    op: str, x: Tensor, dim: int, descending: bool = False, count: int | None = None, stable: bool = False
) -> tuple[Tensor, Tensor]:
    """The elements in order along `dim`, and where they stood."""
    dim = wrap_dim(op, dim, x._array.ndim)
    size = x._array.shape[dim] if x._array.shape else 1
    count = size if count is None else count
    if not 0 <= count <= size:
        raise ShapeError(f"{op}: got k={count} for dim {dim} of shape {x._array.shape}; expected from 0 to {size}")
    if not x._array.shape:
        values, indices = ordered(x.reshape(1), 0, descending, 1, stable)
        return values.reshape(()), indices.reshape(())
    return ordered(x, dim, descending, count, stable)


@composite
def ordered(x: Tensor, dim: int, descending: bool, count: int, stable: bool) -> tuple[Tensor, Tensor]:
    """The first `count` elements in order along `dim`, and where they stood."""
    indices = call(Argsort, x.detach(), dim=dim, descending=descending, count=count, stable=stable)
    return x.gather(dim, indices), indices


@method
def sort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Extreme:
    """The elements in order along `dim`, and where they stood.

    Args:
        input: any shape.
        dim: the dim.
        descending: from the largest to the smallest.
        stable: equal ones stay in their order.

    Raises:
        DimError: for a dim that does not exist.

    >>> import miniflow as flow
    >>> values, indices = flow.tensor([3, 1, 2]).sort()
    >>> values.tolist(), indices.tolist()
    ([1, 2, 3], [1, 2, 0])

    Source: `torch.sort`.
    """
    return Extreme(*_order("sort", input, dim, descending, stable=stable))


@method
def argsort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    """Where the elements in order along `dim` stood: the indices of `sort`. `torch.argsort`."""
    return _order("argsort", input.detach(), dim, descending, stable=stable)[1]


@method
def msort(input: Tensor) -> Tensor:
    """The elements in order along the first dim. `torch.msort`."""
    return _order("msort", input, 0)[0]


@method
def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Extreme:
    """The `k` largest elements along `dim`, or the smallest, and where they stand.

    Args:
        input: any shape.
        k: how many, at most the size of `dim`. Of a tensor of no dims the element is taken for k = 0 too.
        dim: the dim.
        largest: the largest, not the smallest.
        sorted: in order; they are so without it too.

    Raises:
        ShapeError: for a `k` above the size of `dim`.
        DimError: for a dim that does not exist.

    >>> import miniflow as flow
    >>> flow.tensor([3, 1, 2]).topk(2).indices.tolist()
    [0, 2]

    Source: `torch.topk`.
    """
    return Extreme(*_order("topk", input, dim, largest, int(k)))


def _extreme(pair: list[Tensor], dim: int, keepdim: bool) -> Extreme:
    return Extreme(*[y if keepdim else y.squeeze(dim) for y in pair])


@method
def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Extreme:
    """The `k`-th smallest element along `dim`, counted from 1, and where it stands.

    Raises:
        ShapeError: for a `k` that is not from 1 to the size of `dim`.
        DimError: for a dim that does not exist.

    Source: `torch.kthvalue`.
    """
    if k < 1:
        raise ShapeError(f"kthvalue: got k={k}; expected at least 1")
    if not input._array.shape:
        return Extreme(*_order("kthvalue", input, dim, count=k))
    return _extreme([y.narrow(dim, k - 1, 1) for y in _order("kthvalue", input, dim, count=k)], dim, keepdim)


@method
def median(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor | Extreme:
    """The middle element: of an even number the lower one, NaN if there is one.

    Args:
        input: any shape.
        dim: the dim; without it of all elements, and the result is the value alone, whose equals share the gradient.
        keepdim: leave the dim with size 1.

    Raises:
        ShapeError: for no elements along the dim, or no integers at all; no floats have the median NaN.
        DimError: for a dim that does not exist.

    >>> import miniflow as flow
    >>> flow.tensor([3.0, 1.0, 2.0, 9.0]).median().item()
    2.0

    Source: `torch.median`.
    """
    return _median("median", input, dim, keepdim, lambda size, numbers: where(numbers < size, numbers, (size - 1) // 2))


@method
def nanmedian(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor | Extreme:
    """The median of the elements that are not NaN; as `median` otherwise. `torch.nanmedian`."""
    return _median("nanmedian", input, dim, keepdim, lambda size, numbers: (numbers - 1).clamp(0) // 2)


def _median(op: str, x: Tensor, dim: int | None, keepdim: bool, place: Callable) -> Tensor | Extreme:
    """The element at place(size, numbers) of the order: numbers says how many elements are not NaN."""
    if dim is None:
        if x.is_floating_point() and not x.numel():
            return x.mean()
        y = _median(op, x.detach().reshape(-1), 0, False, place).values
        return _shared(x, y) if x.requires_grad else y
    nonempty(op, x._array.shape, dim)
    if not x._array.shape:
        return Extreme(*_order(op, x, dim))
    dim, (values, indices) = wrap_dim(op, dim, x._array.ndim), _order(op, x, dim)
    at = place(x._array.shape[dim], (values == values).sum(dim, keepdim=True))
    return _extreme([y.gather(dim, at) for y in (values, indices)], dim, keepdim)


def _shared(x: Tensor, y: Tensor) -> Tensor:
    """y, whose gradient all elements of x that are equal to it share evenly."""
    equal = (x == y) | (x != x) & (y != y)
    return where(y > 0, where(equal, x, -inf).max(), where(equal, x, inf).min())


@method
def mode(input: Tensor, dim: int = -1, keepdim: bool = False) -> Extreme:
    """The most frequent element along `dim`, of several the smallest, and one of the places where it stands.

    Raises:
        ShapeError: for no elements.
        DimError: for a dim that does not exist.

    >>> import miniflow as flow
    >>> flow.tensor([2, 1, 1, 2, 3]).mode().values.item()
    1

    Source: `torch.mode`.
    """
    nonempty("mode", input._array.shape, dim)
    values, indices = _order("mode", input, dim)
    if not input._array.shape:
        return Extreme(values, indices)
    dim, size = wrap_dim("mode", dim, input._array.ndim), input._array.shape[dim]
    differ = values.narrow(dim, 1, size - 1) != values.narrow(dim, 0, size - 1)
    at = positions(values, dim)
    start = where(differ, at.narrow(dim, 1, size - 1), 0)
    start = pad(start, (0, 0) * (values._array.ndim - 1 - dim) + (1, 0))
    length = at - call(CumulativeMax, start, dim=dim, reverse=False)
    last = length.argmax(dim, keepdim=True)
    return _extreme([y.gather(dim, last) for y in (values, indices)], dim, keepdim)


WEIGHTS = {  # of the upper of two elements, at a fraction of the way to it
    "linear": lambda fraction: fraction,
    "lower": lambda fraction: fraction * 0.0,
    "higher": ceil,
    "midpoint": lambda fraction: fraction.ceil() * 0.5,
}


def _quantile(op, input, q, dim, keepdim, interpolation) -> Tensor:
    """`quantile` and `nanquantile`."""
    x = input
    require_floating(op, x._array)
    nonempty(op, x._array.shape, dim if dim is None else wrap_dim(op, dim, x._array.ndim))
    if interpolation != "nearest" and interpolation not in WEIGHTS:
        raise ArgumentError(f"{op}: got interpolation={interpolation!r}; expected 'nearest' or one of {list(WEIGHTS)}")
    if not isinstance(q, Tensor):
        if not 0 <= q <= 1:
            raise ArgumentError(f"{op}: got q={q}; expected a number from 0 to 1")
        q = constant_like(x, np.asarray(q, x._array.dtype))
    if q._array.dtype != x._array.dtype:
        raise DTypeError(f"{op}: got {x.dtype} and a q of {q.dtype}; expected one dtype")
    if q._array.ndim > 1:
        raise ShapeError(f"{op}: got a q of shape {q._array.shape}; expected at most 1 dim")
    shape, ndim = x._array.shape, x._array.ndim
    x = x.reshape(-1) if dim is None or not shape else x.movedim(dim, -1)
    values, size = _order(op, x, -1)[0], x._array.shape[-1]
    numbers = cast((values == values).sum(-1, keepdim=True), x.dtype)
    rank = q.reshape(-1) * (numbers - 1.0)
    rank = where(numbers == size, rank, size - 1.0) if op == "quantile" else rank.clamp(0.0)
    if interpolation == "nearest":
        y = values.gather(-1, cast(rank.round(), INT64))
    else:
        below = rank.floor()
        weight = WEIGHTS[interpolation](rank - below)
        lower, upper = (values.gather(-1, cast(at, INT64)) for at in (below, rank.ceil()))
        y = lower + weight * (upper - lower)
    y = y.movedim(-1, 0)
    if keepdim:
        y = y.reshape((-1, *[1] * ndim)) if dim is None else y.unsqueeze(wrap_dim(op, dim, ndim) + 1) if ndim else y
    return y if q._array.ndim else y.squeeze(0)


@method
def quantile(
    input: Tensor, q: Tensor | float, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """The values below which lie the fractions `q` of the elements along `dim`; NaN if there is one.

    Args:
        input: floating, any shape.
        q: from 0 to 1: a number, or a tensor of at most 1 dim, which becomes the first dim of the result.
        dim: the dim; all elements if None.
        keepdim: leave the reduced dim with size 1.
        interpolation: between the two elements next to q (n - 1): "linear", "lower", "higher", "midpoint", "nearest".

    Raises:
        ShapeError: for no elements, or a `q` of more dims.
        DTypeError: for integers, or a `q` of another dtype than `input`.
        ArgumentError: for another interpolation, or a number q outside of [0, 1].

    >>> import miniflow as flow
    >>> flow.tensor([3.0, 1.0, 2.0, 9.0]).quantile(0.5).item()
    2.5

    Source: `torch.quantile`.
    """
    return _quantile("quantile", input, q, dim, keepdim, interpolation)


@method
def nanquantile(
    input: Tensor, q: Tensor | float, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """The quantile of the elements that are not NaN; as `quantile` otherwise. `torch.nanquantile`."""
    return _quantile("nanquantile", input, q, dim, keepdim, interpolation)
