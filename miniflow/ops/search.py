"""Searching in sorted tensors, counting, and which values there are."""

from __future__ import annotations

import numpy as np

from miniflow.dispatch import Op, call
from miniflow.dtype import can_cast, fitting, float32, of_scalar
from miniflow.errors import ArgumentError, DTypeError, ShapeError
from miniflow.operands import takes_tensors
from miniflow.ops.comparison import ge, gt
from miniflow.ops.creation import full, ones_like, zeros
from miniflow.ops.index import Nonzero, get_item
from miniflow.ops.method import method
from miniflow.ops.piecewise import where
from miniflow.ops.promotion import Number, broadcast_shape, cast, promote, require_floating
from miniflow.ops.reduce import INT64, Dim
from miniflow.ops.slice import Slice
from miniflow.tensor import Tensor, constant_like


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
        given = f"sequences of shape {rows._array.shape} and an input of shape {shape}"
        raise ShapeError(f"searchsorted: got {given}; expected equal leading dims")
    beyond = gt if right or side == "right" else ge
    found = zeros(values.shape, dtype=INT64, device=values._place)
    for step in [1 << bit for bit in reversed(range(size.bit_length()))]:
        probe = found + step
        behind = ~beyond(rows.gather(-1, probe.clamp(max=size) - 1), values)
        found = where(behind & (probe <= size), probe, found)
    return cast(found.reshape(shape), np.int32 if out_int32 else INT64)


@takes_tensors
def bucketize(input: Tensor | Number, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """The number of the bucket between sorted `boundaries`, shape (n,), that each element falls into.

    Args:
        right: a bucket includes its lower boundary, not its upper one.

    Source: `torch.bucketize`.
    """
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)


@method
def count_nonzero(input: Tensor, dim: Dim = None) -> Tensor:
    """How many elements over `dim` are not zero: int64. `torch.count_nonzero`."""
    return (input != 0).sum(dim)


@method
def histc(input: Tensor, bins: int = 100, min: Number = 0, max: Number = 0) -> Tensor:
    """How many elements fall into each of `bins` equal parts of [min, max]; others, and NaN, are not counted.

    Args:
        input: floating, any shape.
        bins: how many.
        min, max: the bounds; where both are equal the smallest and the largest element.

    Raises:
        DTypeError: for integers and bool.
        ArgumentError: for min > max, or no bins.

    >>> import miniflow as flow
    >>> flow.tensor([1.0, 2.0, 1.0]).histc(bins=4, min=0, max=3).tolist()
    [0.0, 2.0, 1.0, 0.0]

    Source: `torch.histc`.
    """
    require_floating("histc", input._array)
    if bins < 1 or min > max:
        raise ArgumentError(f"histc: got bins={bins}, min={min}, max={max}; expected at least one bin, and min <= max")
    x = input.detach().reshape(-1)
    low, high = min, max
    if min == max and x._array.size:
        low, high = x.amin(), x.amax()
        flat = low == high
        low, high = where(flat, low - 1, low), where(flat, high + 1, high)
    within = (x >= low) & (x <= high)
    bin = ((x - low) * bins / (high - low)).floor().clamp(0, bins - 1)
    bin = cast(where(within, bin, 0.0), INT64)
    return zeros(bins, dtype=x.dtype, device=x._place).scatter_add(0, bin, cast(within, x.dtype))


@method
def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """How often each of 0, 1, 2 ... occurs, or the sums of the weights there.

    Its length is one more than the largest element: nn.Graph, which has no values, refuses it.

    Args:
        input: integers from 0 on, of 1 dim.
        weights: as many; the result is float32 for float32, else float64.
        minlength: the least length of the result.

    Raises:
        ShapeError: for other dims.
        DTypeError: for floats.
        ArgumentError: for a negative element or `minlength`.

    >>> import miniflow as flow
    >>> flow.tensor([0, 2, 2]).bincount(minlength=4).tolist()
    [1, 0, 2, 0]

    Source: `torch.bincount`.
    """
    if input._array.ndim != 1 or weights is not None and weights._array.shape != input._array.shape:
        given = "" if weights is None else f" and weights of shape {weights._array.shape}"
        raise ShapeError(f"bincount: got shape {input._array.shape}{given}; expected one dim")
    if input._array.dtype.kind not in "iu":
        raise DTypeError(f"bincount: got {input.dtype}; expected integers: use .long()")
    empty = input._array.size == 0
    if minlength < 0 or not empty and input.amin().item() < 0:
        raise ArgumentError(f"bincount: got minlength={minlength} or a negative element; expected none below 0")
    length = max(minlength, 0 if empty else input.amax().item() + 1)
    kind = INT64 if weights is None else weights.dtype if weights.dtype is float32 else np.float64
    counted = ones_like(input) if weights is None else weights
    return zeros(length, dtype=kind, device=input._place).scatter_add(0, cast(input, INT64), cast(counted, kind))


class Unique(Op):
    """The different elements or slices, for each input element or slice which it is, and how often each occurs."""

    outputs = ("values", "inverse", "counts")
    shape_depends_on_values = True

    def infer(x, *, dim, consecutive):
        return None


def _unique(x: Tensor, dim: int | None, consecutive: bool, inverse: bool, counts: bool) -> Tensor | tuple[Tensor, ...]:
    kind = x.dtype
    half = kind.is_floating_point and kind.itemsize == 2
    found = call(Unique, cast(x, float32) if half else x, dim=dim, consecutive=consecutive)
    values = cast(found[0], kind)
    chosen = (values, *[y for y, wanted in zip(found[1:], (inverse, counts), strict=True) if wanted])
    return chosen if len(chosen) > 1 else values


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
        return full(x.shape, invert, dtype=np.bool_, device=x._place)
    rows = tests.reshape(-1).msort()
    place = searchsorted(rows, x).clamp(max=tests._array.size - 1)
    found = rows.gather(0, place.reshape(-1)).reshape(x.shape) == x
    return ~found if invert else found


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
    kind = value.dtype if isinstance(value, Tensor) else of_scalar(value)
    if not can_cast(kind, input.dtype):
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
        shape (count, ndim), or the tuple.

    >>> import miniflow as flow
    >>> flow.tensor([[0, 5], [6, 0]]).nonzero().tolist()
    [[0, 1], [1, 0]]

    Source: `torch.nonzero`.
    """
    if as_tuple:
        found = call(Nonzero, input.reshape(1) if input._array.ndim == 0 else input)
        return tuple([call(Slice, found, index=(..., d)) for d in range(found._array.shape[1])])
    return call(Nonzero, input)


@method
def argwhere(input: Tensor) -> Tensor:
    """`x.nonzero()`."""
    return call(Nonzero, input)
