"""Scans: y_i combines x_0 to x_i along one dim; and differences and integrals along one."""

from __future__ import annotations

from math import inf, nan

import numpy as np

from miniflow.dispatch.call_errors import takes_tensors
from miniflow.dispatch.dispatcher import Op, call
from miniflow.errors import ArgumentError, ShapeError
from miniflow.ops.indexing import where
from miniflow.ops.joining import cat
from miniflow.ops.method import method
from miniflow.ops.padding import pad
from miniflow.ops.promotion import Number, cast, require_floating
from miniflow.ops.reduction import INT64, Extreme
from miniflow.ops.views import wrap_dim
from miniflow.sbp import each_row, letters_but, signatures
from miniflow.tensor import Tensor, constant_like


class Scan(Op):
    """An op along `dim` that combines each element with those before it, or behind it if `reverse`."""

    amp = "clear"

    @classmethod
    def infer(cls, x, *, dim, reverse):
        wrap_dim(cls.function_name, dim, len(x.shape))
        return x.shape, x.dtype

    sbp = each_row


class Cumsum(Scan):
    """y_i = x_0 + ... + x_i"""

    amp = None

    def sbp(x, *, ranks, dim, reverse):
        x_dims = letters_but(x.ndim, dim)
        return signatures([x_dims], [x_dims], linear=[[0]])

    def backward(ctx, dy):
        return call(Cumsum, dy, dim=ctx.attrs["dim"], reverse=not ctx.attrs["reverse"])


class Cumprod(Scan):
    """y_i = x_0 ... x_i; dx_k is the product of all before x_k, times dy_k + x_{k+1} (dy_{k+1} + x_{k+2} (...))."""

    amp = None
    saves = ("x",)

    def backward(ctx, dy):
        (x,) = ctx.saved
        dim, count = ctx.attrs["dim"], x._array.shape[ctx.attrs["dim"]]
        if count == 0:
            return dy
        x, dy = x.movedim(dim, -1), dy.movedim(dim, -1)
        before = pad(call(Cumprod, x.narrow(-1, 0, count - 1), dim=-1, reverse=False), (1, 0), value=1.0)
        return (before * _recurrence(pad(x.narrow(-1, 1, count - 1), (0, 1)), dy)).movedim(-1, dim)


class Logcumsumexp(Scan):
    """y_i = log(exp(x_0) + ... + exp(x_i)); dx_k = exp(x_k - y_k) (dy_k + exp(y_k - y_{k+1}) (dy_{k+1} + ...))."""

    amp = None
    saves = ("x", "y")

    def backward(ctx, dy):
        x, y = ctx.saved
        dim, count = ctx.attrs["dim"], x._array.shape[ctx.attrs["dim"]]
        if count == 0:
            return dy
        x, y, dy = (t.movedim(dim, -1) for t in (x, y.nan_to_num(nan, inf), dy))
        before, after = y.narrow(-1, 0, count - 1), y.narrow(-1, 1, count - 1)
        ratios = where(before.minimum(after) == inf, 0.0, before - after).exp()
        return ((x - y).exp() * _recurrence(pad(ratios, (0, 1)), dy)).movedim(-1, dim)


class CumulativeMax(Scan):
    """y_i = the largest of x_0 to x_i; from the first NaN on, NaN."""


class CumulativeMin(Scan):
    """y_i = the smallest of x_0 to x_i; from the first NaN on, NaN."""


def _recurrence(a: Tensor, x: Tensor) -> Tensor:
    """r_k = x_k + a_k r_{k+1} along the last dim, by doubling: log2(n) steps of differentiable ops."""
    step = 1
    while step < x._array.shape[-1]:
        x = x + a * pad(x, (-step, step))
        a = a * pad(a, (-step, step))
        step *= 2
    return x


def _scan(op: type[Scan], x: Tensor, dim: int) -> Tensor:
    """A tensor of no dims counts as one of one dim."""
    dim, shape = wrap_dim(op.function_name, dim, x._array.ndim), x._array.shape
    return call(op, x, dim=dim, reverse=False) if shape else call(op, x.reshape(1), dim=0, reverse=False).reshape(())


def _in_dtype(x: Tensor, dtype: object) -> Tensor:
    return cast(x, dtype if dtype is not None else INT64 if x._array.dtype.kind in "biu" else x.dtype)


@method(in_place=True)
def cumsum(input: Tensor, dim: int, *, dtype: object = None) -> Tensor:
    """The sums x_0 + ... + x_i along `dim`.

    Args:
        input: any shape.
        dim: the dim.
        dtype: what to add in, and the dtype of the result; by default int64 for integers and bool.

    Raises:
        DimError: for a dim that does not exist.

    >>> import miniflow as flow
    >>> flow.tensor([1, 2, 3]).cumsum(0).tolist()
    [1, 3, 6]

    Source: `torch.cumsum`.
    """
    return _scan(Cumsum, _in_dtype(input, dtype), dim)


@method(in_place=True)
def cumprod(input: Tensor, dim: int, *, dtype: object = None) -> Tensor:
    """The products x_0 ... x_i along `dim`; the arguments are those of `cumsum`. `torch.cumprod`."""
    return _scan(Cumprod, _in_dtype(input, dtype), dim)


@method
def logcumsumexp(input: Tensor, dim: int) -> Tensor:
    """log(exp(x_0) + ... + exp(x_i)) along `dim`, without overflow.

    Raises:
        DTypeError: for integers and bool.
        DimError: for a dim that does not exist.

    Source: `torch.logcumsumexp`.
    """
    require_floating("logcumsumexp", input._array)
    return _scan(Logcumsumexp, input, dim)


@method
def cummax(input: Tensor, dim: int) -> Extreme:
    """The largest of x_0 to x_i along `dim`, and where it stands: of equal ones the last.

    Raises:
        DimError: for a dim that does not exist.

    >>> import miniflow as flow
    >>> flow.tensor([1, 3, 2]).cummax(0)
    Extreme(values=tensor([1, 3, 3], dtype=miniflow.int64), indices=tensor([0, 1, 1], dtype=miniflow.int64))

    Source: `torch.cummax`.
    """
    return _cumulative(CumulativeMax, input, dim)


@method
def cummin(input: Tensor, dim: int) -> Extreme:
    """The smallest of x_0 to x_i along `dim`, and where it stands; as `cummax` otherwise. `torch.cummin`."""
    return _cumulative(CumulativeMin, input, dim)


def _cumulative(op: type[Scan], x: Tensor, dim: int) -> Extreme:
    """x_j is the extremum of x_0 to x_j, or NaN, at its own place: the last such j up to i is the index."""
    dim = wrap_dim(op.function_name, dim, x._array.ndim)
    if not x._array.shape:
        values, indices = _cumulative(op, x.reshape(1), 0)
        return Extreme(values.reshape(()), indices.reshape(()))
    values = x.detach()
    is_extremum = (values == call(op, values, dim=dim, reverse=False)) | values.isnan()
    indices = call(CumulativeMax, where(is_extremum, positions(x, dim), 0), dim=dim, reverse=False)
    return Extreme(x.gather(dim, indices), indices)


def positions(x: Tensor, dim: int) -> Tensor:
    """0, 1, 2 ... along `dim`, to be broadcast with `x`: int64."""
    shape = [1] * x._array.ndim
    shape[dim] = x._array.shape[dim]
    return constant_like(x, np.arange(shape[dim]).reshape(shape))


@method
def diff(
    input: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """The differences x_{i+1} - x_i along `dim`, `n` times over; for bools whether the two differ.

    Args:
        input: at least 1 dim.
        n: how often.
        dim: the dim.
        prepend, append: joined to `input` along `dim` first, unless n is 0.

    Raises:
        ArgumentError: for a negative `n`.
        ShapeError: for a tensor of no dims.
        DimError: for a dim that does not exist.

    >>> import miniflow as flow
    >>> flow.tensor([1, 3, 2]).diff().tolist()
    [2, -1]

    Source: `torch.diff`.
    """
    if n < 0:
        raise ArgumentError(f"diff: got n={n}; expected a number of times, at least 0")
    if not input.ndim:
        raise ShapeError("diff: got a tensor of no dims; expected at least 1 dim")
    if n == 0:
        return input.clone()
    dim = wrap_dim("diff", dim, input.ndim)
    parts = [x for x in (prepend, input, append) if x is not None]
    x = cat(parts, dim) if len(parts) > 1 else input
    for _ in range(min(n, x._array.shape[dim])):  # nothing is left after as many
        count = max(x._array.shape[dim] - 1, 0)
        following, preceding = x.narrow(dim, min(1, x._array.shape[dim]), count), x.narrow(dim, 0, count)
        x = following != preceding if x._array.dtype == np.bool_ else following - preceding
    return x


@takes_tensors
def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: Number | None = None, dim: int = -1) -> Tensor:
    """The integral along `dim` by the trapezoidal rule: sum of (x_{i+1} - x_i) (y_i + y_{i+1}) / 2.

    Args:
        y: the values; integers are added in int64.
        x: where they were taken: one dim, or broadcast with `y`.
        dx: the distance between them where `x` is absent; 1 by default.
        dim: the dim.

    Raises:
        ShapeError: for tensors of no dims.
        DimError: for a dim that does not exist.

    Source: `torch.trapezoid`.
    """
    if not y.ndim or x is not None and not x.ndim:
        raise ShapeError("trapezoid: got a tensor of no dims; expected at least 1 dim")
    y = _in_dtype(y, None)
    dim, count = wrap_dim("trapezoid", dim, y._array.ndim), max(y._array.shape[dim] - 1, 0)
    heights = y.narrow(dim, 0, count) + y.narrow(dim, y._array.shape[dim] - count, count)
    if x is None:
        return heights.sum(dim) * ((1 if dx is None else dx) / 2)
    if x._array.ndim == 1:
        x = x.reshape([-1 if d == dim else 1 for d in range(y._array.ndim)])
    return (heights * diff(x, dim=dim - y._array.ndim)).sum(dim) * 0.5


trapz = trapezoid
