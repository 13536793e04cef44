"""Sorting, the k largest elements, searching in sorted tensors, and which values there are.

One op finds the order; `gather` picks the elements, so that gradients of any order follow. NaN is larger than all
numbers, as in PyTorch.
"""

from __future__ import annotations

import numpy as np

from miniflow.dispatch.call_errors import takes_tensors
from miniflow.dispatch.composite import composite
from miniflow.dispatch.dispatcher import Op, call
from miniflow.dtype import float32
from miniflow.errors import ArgumentError, ShapeError
from miniflow.ops.comparison import ge, gt
from miniflow.ops.creation import full, zeros
from miniflow.ops.indexing import where
from miniflow.ops.method import method
from miniflow.ops.promotion import Number, cast, promote
from miniflow.ops.reduction import INT64, Extreme
from miniflow.ops.views import wrap_dim
from miniflow.sbp import each_row
from miniflow.tensor import Tensor, constant_like


class Argsort(Op):
    """Where the first `count` elements of the order along `dim` stand; equal ones stay in theirs if `stable`."""

    def infer(x, *, dim, descending, count, stable):
        return (*x.shape[:dim], count, *x.shape[dim + 1 :]), INT64

    sbp = each_row


def in_order(
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
    return Extreme(*in_order("sort", input, dim, descending, stable=stable))


@method
def argsort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    """Where the elements in order along `dim` stood: the indices of `sort`. `torch.argsort`."""
    return in_order("argsort", input.detach(), dim, descending, stable=stable)[1]


@method
def msort(input: Tensor) -> Tensor:
    """The elements in order along the first dim. `torch.msort`."""
    return in_order("msort", input, 0)[0]


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
    return Extreme(*in_order("topk", input, dim, largest, int(k)))


def as_extreme(pair: list[Tensor], dim: int, keepdim: bool) -> Extreme:
    """Elements and where they stood, of size 1 along `dim`, without that dim unless `keepdim`."""
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
        return Extreme(*in_order("kthvalue", input, dim, count=k))
    return as_extreme([y.narrow(dim, k - 1, 1) for y in in_order("kthvalue", input, dim, count=k)], dim, keepdim)


@takes_tensors
def searchsorted(
    sorted_sequence: Tensor,
    input: Tensor | Number,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """Where the elements of `input` are to be inserted into sorted rows so that these stay sorted: int64.

    Bisection: log2(n + 1) steps of gather and comparison.

    Args:
        sorted_sequence: shape (n,), or (..., n) with the leading dims of `input`; in ascending order along the last.
        input: any shape for a sequence of one dim, else (..., m); or a number.
        out_int32: the result is int32.
        right: behind equal elements, not in front of them. So says side="right" too.
        side: "left" or "right".
        sorter: the indices that sort `sorted_sequence`, if it is not sorted.

    Raises:
        ShapeError: for leading dims that differ, or a sequence of no dims.
        ArgumentError: for another side.

    >>> import miniflow as flow
    >>> flow.searchsorted(flow.tensor([1, 3, 5]), flow.tensor([3, 6])).tolist()
    [1, 3]

    Source: `torch.searchsorted`.
    """
    if side not in (None, "left", "right"):
        raise ArgumentError(f"searchsorted: got side={side!r}; expected 'left' or 'right'")
    if not sorted_sequence.ndim:
        raise ShapeError("searchsorted: got a sequence of no dims; expected at least 1 dim")
    rows = sorted_sequence if sorter is None else sorted_sequence.gather(-1, sorter)
    if not isinstance(input, Tensor):
        input = constant_like(rows, np.asarray(input))
    rows, values = promote(rows.detach(), input.detach(), "searchsorted")
    shape, size = values._array.shape, rows._array.shape[-1]
    if rows._array.ndim == 1:
        values = values.reshape(-1)
    elif rows._array.shape[:-1] != shape[:-1]:
        got = f"sequences of shape {rows._array.shape} and an input of shape {shape}"
        raise ShapeError(f"searchsorted: got {got}; expected equal leading dims")
    is_beyond = gt if right or side == "right" else ge
    counts = zeros(values.shape, dtype=INT64, device=values._device)
    for step in [1 << bit for bit in reversed(range(size.bit_length()))]:
        probe = counts + step
        is_before = ~is_beyond(rows.gather(-1, probe.clamp(max=size) - 1), values)
        counts = where(is_before & (probe <= size), probe, counts)
    return cast(counts.reshape(shape), np.int32 if out_int32 else INT64)


@takes_tensors
def bucketize(input: Tensor | Number, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """The number of the bucket between sorted `boundaries`, shape (n,), that each element falls into.

    Args:
        right: a bucket includes its lower boundary, not its upper one.

    Source: `torch.bucketize`.
    """
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)


class Unique(Op):
    """The different elements or slices, for each input element or slice which it is, and how often each occurs."""

    outputs = ("values", "inverse", "counts")
    shape_depends_on_values = True

    def infer(x, *, dim, consecutive):
        return None


def _unique(x: Tensor, dim: int | None, consecutive: bool, inverse: bool, counts: bool) -> Tensor | tuple[Tensor, ...]:
    dtype = x.dtype
    half = dtype.is_floating_point and dtype.itemsize == 2
    results = call(Unique, cast(x, float32) if half else x, dim=dim, consecutive=consecutive)
    values = cast(results[0], dtype)
    returned = (values, *[y for y, is_wanted in zip(results[1:], (inverse, counts), strict=True) if is_wanted])
    return returned if len(returned) > 1 else values


@method
def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Tensor | tuple[Tensor, ...]:
    """The different elements in ascending order, or along `dim` the different slices; no gradient.

    The shape of the result depends on values: nn.Graph refuses it.

    Args:
        input: any shape.
        sorted: accepted as in PyTorch; the values are sorted without it too.
        return_inverse: also, for each element of `input`, which of the values it is.
        return_counts: also how often each occurs.
        dim: the dim whose slices are compared; None for single elements.

    >>> import miniflow as flow
    >>> [y.tolist() for y in flow.tensor([3, 1, 3]).unique(return_counts=True)]
    [[1, 3], [1, 2]]

    Source: `torch.unique`.
    """
    return _unique(input, dim, False, return_inverse, return_counts)


@method
def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Tensor | tuple[Tensor, ...]:
    """The elements, or slices, that differ from the one before them; as `unique` otherwise.

    Source: `torch.unique_consecutive`.
    """
    return _unique(input, dim, True, return_inverse, return_counts)


def isin(
    elements: Tensor | Number, test_elements: Tensor | Number, *, assume_unique: bool = False, invert: bool = False
) -> Tensor:
    """Whether each of `elements` is one of `test_elements`: bool.

    Args:
        elements, test_elements: any shapes; one of them may be a number.
        assume_unique: accepted as in PyTorch; nothing is saved by it.
        invert: whether it is none of them.

    >>> import miniflow as flow
    >>> flow.isin(flow.tensor([1, 2, 3]), flow.tensor([3, 1])).tolist()
    [True, False, True]

    Source: `torch.isin`.
    """
    x, tests = promote(elements, test_elements, "isin")
    x = x if isinstance(x, Tensor) else constant_like(tests, np.asarray(x, tests._array.dtype))
    tests = tests if isinstance(tests, Tensor) else constant_like(x, np.asarray(tests, x._array.dtype))
    if tests._array.size == 0:
        return full(x.shape, invert, dtype=np.bool_, device=x._device)
    rows = tests.reshape(-1).msort()
    positions = searchsorted(rows, x).clamp(max=tests._array.size - 1)
    is_equal = rows.gather(0, positions.reshape(-1)).reshape(x.shape) == x
    return ~is_equal if invert else is_equal
