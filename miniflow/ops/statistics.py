"""Variance, sums and means without NaN, norms, medians, quantiles, the most frequent value, histograms."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import numpy as np

from miniflow.dispatch.call_errors import takes_tensors
from miniflow.dispatch.dispatcher import call
from miniflow.dtype import float32
from miniflow.errors import ArgumentError, DTypeError, ShapeError
from miniflow.ops.arithmetic import ceil
from miniflow.ops.creation import ones_like, zeros
from miniflow.ops.indexing import where
from miniflow.ops.loss_scale import in_float32
from miniflow.ops.method import method
from miniflow.ops.padding import pad
from miniflow.ops.promotion import Number, cast, require_floating
from miniflow.ops.reduction import (
    INT64,
    Dim,
    Extreme,
    Reduction,
    as_dims,
    expand_reduced,
    is_split,
    nonempty,
    reduced_signatures,
    term_count,
)
from miniflow.ops.scans import CumulativeMax, positions
from miniflow.ops.sorting import as_extreme, in_order
from miniflow.ops.views import wrap_dim
from miniflow.tensor import Tensor, constant_like


def deviation(x: Tensor, attrs: dict) -> Tensor:
    """(x - mean) / (n - correction): half of the derivative of the variance."""
    dim = attrs["dim"]
    degrees = float(term_count(x._array.shape, dim) - attrs["correction"])
    return (x - x.mean(dim, keepdim=True)) * (1.0 / degrees if degrees > 0 else inf)


class Var(Reduction):
    """y = sum of (x - mean)^2 over `dim`, divided by n - correction."""

    saves = ("x",)
    requires = "floats"

    def backward(ctx, dy):
        (x,) = ctx.saved
        return expand_reduced(dy, x._array.shape, ctx.attrs) * 2.0 * deviation(x, ctx.attrs)


class Std(Reduction):
    """The square root of `Var`; where it is 0, the gradient is 0."""

    saves = ("x", "y")
    requires = "floats"

    def backward(ctx, dy):
        x, y = ctx.saved
        flat = y == 0
        scale = where(flat, 0.0, dy / where(flat, 1.0, y))
        return expand_reduced(scale, x._array.shape, ctx.attrs) * deviation(x, ctx.attrs)


def _moment(op: type[Reduction], input, dim, unbiased, keepdim, correction) -> Tensor:
    """PyTorch has two ways to say what to subtract from n: `correction`, or `unbiased`, which may come alone."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if unbiased is not None and correction is not None:
        got = f"unbiased={unbiased} and correction={correction}"
        raise DTypeError(f"{op.function_name}: got {got}; expected one of them")
    if correction is None:
        correction = 0 if unbiased is False else 1
    if is_split(input, dim):
        return _moment_of_parts(op, input, dim, correction, keepdim)
    return call(op, input, dim=as_dims(dim), correction=correction, keepdim=keepdim)


def _moment_of_parts(op: type[Reduction], x: Tensor, dim: Dim, correction: Number, keepdim: bool) -> Tensor:
    """The variance over dims that are split, or its root: what the ranks send are the mean, and a sum."""
    require_floating(op.function_name, x._array)
    dtype = x.dtype
    (x,) = in_float32(x)
    degrees = float(term_count(x.shape, dim) - correction)
    square = ((x - x.mean(dim, keepdim=True)) ** 2).sum(dim, keepdim) * (1.0 / degrees if degrees > 0 else inf)
    if op is Std:
        flat = square == 0
        square = where(flat, 0.0, where(flat, 1.0, square).sqrt())
    return cast(square, dtype)


@method(checked=False)
def var(
    input: Tensor, dim: Dim = None, unbiased: bool | None = None, keepdim: bool = False, *,
    correction: Number | None = None,
) -> Tensor:  # fmt: skip
    """The variance over `dim`: sum of (x - mean)^2 / (n - correction).

    Args:
        input: floating, any shape.
        dim: the dims to reduce; all if None.
        unbiased: True for correction=1 (the default), False for correction=0.
        keepdim: leave the reduced dims with size 1.
        correction: what to subtract from the number of terms n.

    Returns:
        NaN where no degree of freedom is left.

    Raises:
        DTypeError: for integers and bool.
        DimError: for dims that do not exist or come twice.

    >>> import miniflow as flow
    >>> flow.tensor([1.0, 2.0, 3.0]).var().item(), flow.tensor([1.0, 3.0]).var(correction=0).item()
    (1.0, 1.0)

    Source: `torch.var`.
    """
    return _moment(Var, input, dim, unbiased, keepdim, correction)


@method(checked=False)
def std(
    input: Tensor, dim: Dim = None, unbiased: bool | None = None, keepdim: bool = False, *,
    correction: Number | None = None,
) -> Tensor:  # fmt: skip
    """The standard deviation over `dim`, the square root of `var`.

    >>> import miniflow as flow
    >>> flow.tensor([1.0, 5.0]).std(correction=0).item()
    2.0

    Source: `torch.std`.
    """
    return _moment(Std, input, dim, unbiased, keepdim, correction)


@takes_tensors
def var_mean(
    input: Tensor, dim: Dim = None, unbiased: bool | None = None, keepdim: bool = False, *,
    correction: Number | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The pair of `var` and `mean` over `dim`.

    >>> import miniflow as flow
    >>> [y.item() for y in flow.var_mean(flow.tensor([1.0, 3.0]), correction=0)]
    [1.0, 2.0]

    Source: `torch.var_mean`.
    """
    y = _moment(Var, input, dim, unbiased, keepdim, correction)
    return y, input.mean(None if isinstance(dim, bool) else dim, keepdim)


@takes_tensors
def std_mean(
    input: Tensor, dim: Dim = None, unbiased: bool | None = None, keepdim: bool = False, *,
    correction: Number | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The pair of `std` and `mean` over `dim`. `torch.std_mean`."""
    y = _moment(Std, input, dim, unbiased, keepdim, correction)
    return y, input.mean(None if isinstance(dim, bool) else dim, keepdim)


@method
def nansum(input: Tensor, dim: Dim = None, keepdim: bool = False, *, dtype: object = None) -> Tensor:
    """The sum over `dim`, with 0 for NaN. `torch.nansum`."""
    return where(input.isnan(), 0, input).sum(dim, keepdim, dtype=dtype)


@method
def nanmean(input: Tensor, dim: Dim = None, keepdim: bool = False, *, dtype: object = None) -> Tensor:
    """The mean over `dim` of the elements that are not NaN; NaN if there are none. `torch.nanmean`."""
    total = nansum(input, dim, keepdim, dtype=dtype)
    return total / cast((input == input).sum(dim, keepdim), total.dtype)


class Norm(Reduction):
    """y = (sum of |x|^p over `dim`)^(1/p) for a p other than 0 and infinity; where y is 0, the gradient is 0."""

    saves = ("x", "y")
    requires = "floats"

    def sbp(x, *, ranks, dim, keepdim, p):
        return reduced_signatures(x, dim, keepdim, reduced_by="hypot" if p == 2 else None)

    def backward(ctx, dy):
        x, y = ctx.saved
        shape, attrs, p = x._array.shape, ctx.attrs, ctx.attrs["p"]
        flat = y == 0
        scale = where(flat, 0.0, dy / where(flat, 1.0, y) ** (p - 1))
        if p != 2:
            zero = x == 0
            x = where(zero, 0.0, x.sign() * abs(where(zero, 1.0, x)) ** (p - 1))
        return expand_reduced(scale, shape, attrs) * x


@method
def norm(
    input: Tensor, p: Number | str | None = "fro", dim: Dim = None, keepdim: bool = False, dtype: object = None
) -> Tensor:
    """The p-norm of the elements over `dim`, as one vector: (sum of |x|^p)^(1/p).

    Args:
        input: floating, any shape.
        p: the exponent; inf for the largest |x|, -inf for the smallest, 0 for the number of elements that are not
            zero, "fro" or None for 2.
        dim: the dims to reduce; all if None.
        keepdim: leave the reduced dims with size 1.
        dtype: cast to it first.

    Raises:
        DTypeError: for integers and bool, or an unknown p.
        DimError: for dims that do not exist or come twice.

    >>> import miniflow as flow
    >>> x = flow.tensor([3.0, -4.0])
    >>> x.norm().item(), x.norm(1).item(), x.norm(float("inf")).item()
    (5.0, 7.0, 4.0)

    Source: `torch.norm`.
    """
    if dtype is not None:
        input = cast(input, dtype)
    require_floating("norm", input._array)
    p = 2.0 if p in ("fro", None) else p
    if isinstance(p, str):
        raise DTypeError(f"norm: got p={p!r}; expected a number, inf, -inf or 'fro'")
    if p in (inf, -inf):
        return abs(input).amax(dim, keepdim) if p > 0 else abs(input).amin(dim, keepdim)
    if p == 0:
        return where(input != 0, 1.0, input.sign()).sum(dim, keepdim)  # the gradient of `sign` is 0
    if p == 1:
        return abs(input).sum(dim, keepdim)
    return call(Norm, input, p=float(p), dim=as_dims(dim), keepdim=keepdim)


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


def _median(op: str, x: Tensor, dim: int | None, keepdim: bool, rank_of: Callable) -> Tensor | Extreme:
    """The element at place(size, numbers) of the order: numbers says how many elements are not NaN."""
    if dim is None:
        if x.is_floating_point() and not x.numel():
            return x.mean()
        y = _median(op, x.detach().reshape(-1), 0, False, rank_of).values
        return _shared(x, y) if x.requires_grad else y
    nonempty(op, x._array.shape, dim)
    if not x._array.shape:
        return Extreme(*in_order(op, x, dim))
    dim, (values, indices) = wrap_dim(op, dim, x._array.ndim), in_order(op, x, dim)
    rank = rank_of(x._array.shape[dim], (values == values).sum(dim, keepdim=True))
    return as_extreme([y.gather(dim, rank) for y in (values, indices)], dim, keepdim)


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
    values, original = in_order("mode", input, dim)
    if not input._array.shape:
        return Extreme(values, original)
    dim, size = wrap_dim("mode", dim, input._array.ndim), input._array.shape[dim]
    differ = values.narrow(dim, 1, size - 1) != values.narrow(dim, 0, size - 1)
    indices_along = positions(values, dim)
    start = where(differ, indices_along.narrow(dim, 1, size - 1), 0)
    start = pad(start, (0, 0) * (values._array.ndim - 1 - dim) + (1, 0))
    length = indices_along - call(CumulativeMax, start, dim=dim, reverse=False)
    last = length.argmax(dim, keepdim=True)
    return as_extreme([y.gather(dim, last) for y in (values, original)], dim, keepdim)


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
    values, size = in_order(op, x, -1)[0], x._array.shape[-1]
    numbers = cast((values == values).sum(-1, keepdim=True), x.dtype)
    rank = q.reshape(-1) * (numbers - 1.0)
    rank = where(numbers == size, rank, size - 1.0) if op == "quantile" else rank.clamp(0.0)
    if interpolation == "nearest":
        y = values.gather(-1, cast(rank.round(), INT64))
    else:
        below = rank.floor()
        weight = WEIGHTS[interpolation](rank - below)
        lower, upper = (values.gather(-1, cast(ranks, INT64)) for ranks in (below, rank.ceil()))
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
    return zeros(bins, dtype=x.dtype, device=x._device).scatter_add(0, bin, cast(within, x.dtype))


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
        got = "" if weights is None else f" and weights of shape {weights._array.shape}"
        raise ShapeError(f"bincount: got shape {input._array.shape}{got}; expected one dim")
    if input._array.dtype.kind not in "iu":
        raise DTypeError(f"bincount: got {input.dtype}; expected integers: use .long()")
    empty = input._array.size == 0
    if minlength < 0 or not empty and input.amin().item() < 0:
        raise ArgumentError(f"bincount: got minlength={minlength} or a negative element; expected none below 0")
    length = max(minlength, 0 if empty else input.amax().item() + 1)
    dtype = INT64 if weights is None else weights.dtype if weights.dtype is float32 else np.float64
    summands = ones_like(input) if weights is None else weights
    return zeros(length, dtype=dtype, device=input._device).scatter_add(0, cast(input, INT64), cast(summands, dtype))
