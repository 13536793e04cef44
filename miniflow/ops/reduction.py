"""Reductions: sums, products, extrema and where they are, log-sum-exp, all and any.

`dim` is an int, a tuple of ints, or None (and ()) for all dims; `keepdim` leaves them with size 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod as product
from typing import NamedTuple

import numpy as np

from miniflow.dispatch.dispatcher import Op, call, run_kernel
from miniflow.errors import ShapeError
from miniflow.ops.gather import ScatterAdd
from miniflow.ops.method import method
from miniflow.ops.padding import pad
from miniflow.ops.promotion import as_float, cast, require_floating
from miniflow.ops.shape import Expand, View
from miniflow.ops.views import input_shape, wrap_dim, wrap_dims
from miniflow.sbp import Signature, letters, letters_but, signatures
from miniflow.tensor import Tensor, constant_like

Dim = int | Sequence[int] | None
INT64 = np.dtype(np.int64)


def reduced_shape(op: str, shape: tuple[int, ...], dim: Dim, keepdim: bool) -> tuple[int, ...]:
    """The shape that a reduction leaves.

    Raises:
        DimError: for dims that do not exist or come twice.
    """
    if dim is None and not keepdim:
        return ()
    if type(dim) is int and -len(shape) <= dim < len(shape):  # the most common case
        dim %= len(shape)
        return shape[:dim] + (1,) * bool(keepdim) + shape[dim + 1 :]
    dims = wrap_dims(op, dim, len(shape))
    return tuple([1 if d in dims else n for d, n in enumerate(shape) if keepdim or d not in dims])


def nonempty(op: str, shape: tuple[int, ...], dim: Dim) -> None:
    """Refuse to reduce no elements.

    Raises:
        ShapeError: if a dim to be reduced has size 0.
    """
    if 0 in shape and 0 in [shape[d] for d in wrap_dims(op, dim, len(shape))]:
        raise ShapeError(f"{op}: got shape {tuple(shape)} and dim={dim}: no elements to reduce; expected at least one")


def as_dims(dim: Dim) -> int | tuple[int, ...] | None:
    """`dim` as an attribute: lists become tuples, NumPy's integers those of Python."""
    return tuple(dim) if isinstance(dim, list) else int(dim) if isinstance(dim, np.integer) else dim


def keep_dims(y: Tensor, shape: tuple[int, ...], dim: Dim, keepdim: bool) -> Tensor:
    """A result of reducing `shape`, with its reduced dims back as size 1."""
    if keepdim or not shape:
        return y
    return call(View, y, shape=reduced_shape("", shape, dim, True))


def expand_reduced(dy: Tensor, shape: tuple[int, ...], attrs: dict) -> Tensor:
    """A cotangent repeated over the dims that were reduced: a view."""
    dim = attrs["dim"]
    if dim is not None and dim != 0:  # broadcasting puts back the first dims by itself
        dy = keep_dims(dy, shape, dim, attrs["keepdim"])
    return call(Expand, dy, shape=shape)


def reduced_signatures(
    x: Any, dim: Dim, keepdim: bool, linear: bool = False, results: int = 1, reduced_by: str | None = None
) -> list[Signature]:
    """The signatures of a reduction; over dims that are split, the result of a linear one is a partial sum, and
    `reduced_by` makes that of others from those of the parts."""
    dims = wrap_dims("", dim, x.ndim)
    x_dims = letters(x.ndim) if linear or reduced_by else letters_but(x.ndim, *dims)
    result_dims = "".join(["." if d in dims else c for d, c in enumerate(x_dims) if keepdim or d not in dims])
    # narrower integers wrap around before they are added
    is_linear = linear and (x.dtype.kind in "fV" or x.dtype == INT64)
    return signatures([x_dims], [result_dims] * results, linear=[[0]] if is_linear else [], reduced_by=reduced_by)


def is_split(x: Tensor, dim: Dim) -> bool:
    """Whether a dim that is to be reduced is split among the ranks of a global tensor."""
    return x.is_global and not {entry.dim for entry in x.sbp}.isdisjoint(wrap_dims("", dim, x.ndim))


class Reduction(Op):
    """An op over `dim`."""

    requires = ""  # "floats", or "elements": at least one
    result: np.dtype | None = None  # the dtype of the result; None for that of the input
    widens = False  # integers and bool are reduced in int64
    reduced_by: str | None = None  # the operator that makes the result of those of parts

    @classmethod
    def infer(cls, x, *, dim, keepdim, **attrs):
        if cls.requires == "floats":
            require_floating(cls.function_name, x)
        elif cls.requires:
            nonempty(cls.function_name, x.shape, dim)
        dtype = INT64 if cls.widens and x.dtype.kind in "biu" else cls.result or x.dtype
        return reduced_shape(cls.function_name, x.shape, dim, keepdim), dtype

    @classmethod
    def sbp(cls, x, *, ranks, dim, keepdim, **attrs):
        return reduced_signatures(x, dim, keepdim, reduced_by=cls.reduced_by)


class Sum(Reduction):
    """y = sum of x over `dim`; integers and bool in int64."""

    amp = "gray"
    widens = True

    def sbp(x, *, ranks, dim, keepdim):
        return reduced_signatures(x, dim, keepdim, linear=True)

    def backward(ctx, dy):
        return expand_reduced(dy, input_shape(ctx), ctx.attrs)


@method(checked=False)
def sum(input: Tensor, dim: Dim = None, keepdim: bool = False, *, dtype: object = None) -> Tensor:
    """The sum of the elements over `dim`.

    Args:
        input: any shape.
        dim: the dims to add up; all if None.
        keepdim: leave the reduced dims with size 1.
        dtype: what to add in, and the dtype of the result; by default int64 for integers and bool.

    Raises:
        DimError: for dims that do not exist or come twice.

    >>> import miniflow as flow
    >>> flow.tensor([[1.0, 2.0], [3.0, 4.0]]).sum(0).tolist()
    [4.0, 6.0]

    Source: `torch.sum`.
    """
    if dtype is not None:  # modulo 2^n the sum of integers is the same in any wider dtype
        return cast(sum(cast(input, dtype), dim, keepdim), dtype)
    return call(Sum, input, dim=dim if dim is None or dim.__class__ is int else as_dims(dim), keepdim=keepdim)


class Mean(Reduction):
    """y = sum of x over `dim`, divided by the number of its terms."""

    requires = "floats"

    def sbp(x, *, ranks, dim, keepdim):
        return reduced_signatures(x, dim, keepdim, linear=True)

    def on_shard(op, arrays, attrs, shard):
        shard_count, total_count = (term_count(x.shape, attrs["dim"]) for x in (arrays[0], shard.wholes[0]))
        if shard_count == total_count:
            return run_kernel(Mean, arrays, attrs)
        y = run_kernel(Mean if shard_count else Sum, arrays, attrs)  # a sum of all might overflow in half precision
        return run_kernel(Op.by_name["Mul"], [y, shard_count / total_count], {})

    def backward(ctx, dy):
        shape, dim = input_shape(ctx), ctx.attrs["dim"]
        return expand_reduced(dy / float(term_count(shape, dim) or 1), shape, ctx.attrs)


def term_count(shape: tuple[int, ...], dim: Dim) -> int:
    """How many elements of `shape` go into one result of a reduction."""
    return product([shape[d] for d in wrap_dims("", dim, len(shape))]) if shape else 1


@method(checked=False)
def mean(input: Tensor, dim: Dim = None, keepdim: bool = False, *, dtype: object = None) -> Tensor:
    """The mean of the elements over `dim`; NaN for no elements.

    Args:
        input: floating, any shape.
        dim: the dims to reduce; all if None.
        keepdim: leave the reduced dims with size 1.
        dtype: cast to it first.

    Raises:
        DTypeError: for integers and bool.
        DimError: for dims that do not exist or come twice.

    >>> import miniflow as flow
    >>> flow.tensor([[1.0, 2.0], [3.0, 4.0]]).mean(1).tolist()
    [1.5, 3.5]

    Source: `torch.mean`.
    """
    if dtype is not None:
        input = cast(input, dtype)
    return call(Mean, input, dim=dim if dim is None or dim.__class__ is int else as_dims(dim), keepdim=keepdim)


class Prod(Reduction):
    """y = product of x over one dim or all; dy/dx_i is the product of the others, right also where x has zeros."""

    saves = ("x",)
    widens = True
    reduced_by = "mul"

    def backward(ctx, dy):
        (x,) = ctx.saved
        shape, dim = x._array.shape, ctx.attrs["dim"]
        dx = expand_reduced(dy, shape, ctx.attrs) if shape else dy.reshape(())
        if x._array.size < 2:
            return dx
        row = x.reshape(-1) if dim is None else x.movedim(dim, -1)
        others = product_of_others(row)
        return dx * (others.reshape(shape) if dim is None else others.movedim(-1, dim))


def product_of_others(x: Tensor) -> Tensor:
    """For each element along the last dim the product of all others, in differentiable ops."""
    before = pad(x, (1, -1), value=1.0).cumprod(-1)
    after = pad(x.flip(-1), (1, -1), value=1.0).cumprod(-1).flip(-1)
    return before * after


@method
def prod(input: Tensor, dim: int | None = None, keepdim: bool = False, *, dtype: object = None) -> Tensor:
    """The product of the elements along one dim, or of all; 1 for none.

    Args:
        input: any shape.
        dim: one dim, or None for all elements.
        keepdim: leave the reduced dim with size 1.
        dtype: what to multiply in, and the dtype of the result; by default int64 for integers and bool.

    Raises:
        DimError: for a dim that does not exist.

    >>> import miniflow as flow
    >>> flow.tensor([[1.0, 2.0], [3.0, 4.0]]).prod(0).tolist()
    [3.0, 8.0]

    Source: `torch.prod`.
    """
    if dtype is not None:
        return cast(prod(cast(input, dtype), dim, keepdim), dtype)
    dim = None if dim is None else wrap_dim("prod", dim, input._array.ndim)
    return call(Prod, input, dim=as_dims(dim), keepdim=keepdim)


class Any(Reduction):
    """Whether any element over `dim` is not zero."""

    result = np.dtype(np.bool_)
    reduced_by = "maximum"


class All(Reduction):
    """Whether all elements over `dim` are not zero."""

    result = np.dtype(np.bool_)
    reduced_by = "minimum"


@method(checked=False)
def any(input: Tensor, dim: Dim = None, keepdim: bool = False) -> Tensor:
    """Whether any element over `dim` is true, or not zero; false for no elements.

    Raises:
        DimError: for dims that do not exist or come twice.

    >>> import miniflow as flow
    >>> flow.tensor([[0, 1], [0, 0]]).any(1).tolist()
    [True, False]

    Source: `torch.any`.
    """
    return call(Any, input, dim=as_dims(dim), keepdim=keepdim)


@method(checked=False)
def all(input: Tensor, dim: Dim = None, keepdim: bool = False) -> Tensor:
    """Whether all elements over `dim` are true, or not zero; true for no elements.

    Raises:
        DimError: for dims that do not exist or come twice.

    >>> import miniflow as flow
    >>> flow.tensor([[2, 1], [0, 1]]).all(1).tolist()
    [True, False]

    Source: `torch.all`.
    """
    return call(All, input, dim=as_dims(dim), keepdim=keepdim)


class Extremum(Reduction):
    """The largest or smallest element over `dim`; equal ones share the gradient evenly."""

    amp = "clear"
    saves = ("x", "y")
    requires = "elements"

    def backward(ctx, dy):
        x, y = ctx.saved
        shape, attrs = x._array.shape, ctx.attrs
        values = x.detach()
        chosen = values == expand_reduced(y.detach(), shape, attrs)
        if attrs["dim"] is None:  # `max` and `min`, where NaNs share the gradient; with `amax` all of it is NaN
            chosen = chosen | (values != values)
        chosen = cast(chosen, x.dtype)
        share = chosen / chosen.sum(attrs["dim"], keepdim=True)
        return expand_reduced(dy, shape, attrs) * share


class Amax(Extremum):
    """y = the largest x over `dim`; NaN wins."""

    reduced_by = "maximum"


class Amin(Extremum):
    """y = the smallest x over `dim`; NaN wins."""

    reduced_by = "minimum"


@method(checked=False)
def amax(input: Tensor, dim: Dim = (), keepdim: bool = False) -> Tensor:
    """The largest element over `dim`; NaN if there is one. Equal elements share the gradient evenly.

    Args:
        input: any shape.
        dim: the dims to reduce; all if () or None.
        keepdim: leave the reduced dims with size 1.

    Raises:
        ShapeError: for no elements.
        DimError: for dims that do not exist or come twice.

    >>> import miniflow as flow
    >>> flow.tensor([[1, 2], [3, 0]]).amax((0, 1)).item()
    3

    Source: `torch.amax`.
    """
    return call(Amax, input, dim=() if dim is None else as_dims(dim), keepdim=keepdim)


@method(checked=False)
def amin(input: Tensor, dim: Dim = (), keepdim: bool = False) -> Tensor:
    """The smallest element over `dim`; as `amax` otherwise.

    >>> import miniflow as flow
    >>> flow.tensor([[1, 2], [3, 0]]).amin(1).tolist()
    [1, 0]

    Source: `torch.amin`.
    """
    return call(Amin, input, dim=() if dim is None else as_dims(dim), keepdim=keepdim)


class MinMax(NamedTuple):
    """What `aminmax` returns."""

    min: Tensor
    max: Tensor


@method
def aminmax(input: Tensor, *, dim: int | None = None, keepdim: bool = False) -> MinMax:
    """The smallest and the largest element, along one dim or of all, as `amin` and `amax`. `torch.aminmax`."""
    return MinMax(amin(input, dim, keepdim), amax(input, dim, keepdim))


class ExtremumAlong(Op):
    """The largest or smallest element along one dim, and its first index, which gets the gradient."""

    amp = "clear"
    outputs = ("values", "indices")
    nondifferentiable = ("indices",)
    saves = ("indices",)

    @classmethod
    def infer(cls, x, *, dim, keepdim):
        name = cls.function_name.removesuffix("_dim")
        dim = wrap_dim(name, dim, len(x.shape))
        nonempty(name, x.shape, dim)
        shape = reduced_shape(name, x.shape, dim, keepdim)
        return [(shape, x.dtype), (shape, INT64)]

    def sbp(x, *, ranks, dim, keepdim):
        return reduced_signatures(x, dim, keepdim, results=2)

    def backward(ctx, dy):
        (indices,) = ctx.saved
        shape, dim, keepdim = input_shape(ctx), ctx.attrs["dim"], ctx.attrs["keepdim"]
        dy, indices = keep_dims(dy, shape, dim, keepdim), keep_dims(indices, shape, dim, keepdim)
        return call(ScatterAdd, None, indices, dy, dim=wrap_dim("max", dim, len(shape)), shape=shape)


class MaxDim(ExtremumAlong):
    """The largest element along `dim` and its index; NaN wins."""


class MinDim(ExtremumAlong):
    """The smallest element along `dim` and its index; NaN wins."""


class Extreme(NamedTuple):
    """What `max` and `min` return for a dim."""

    values: Tensor
    indices: Tensor


@method
def max(input: Tensor, dim: int | Tensor | None = None, keepdim: bool = False) -> Tensor | Extreme:
    """The largest element: of all, along one dim, or of two tensors element by element.

    Args:
        input: any shape.
        dim: None for all elements, whose equals share the gradient evenly; a dim, where the first of equal elements
            gets it; or a second tensor, as `maximum`.
        keepdim: leave the reduced dim with size 1.

    Returns:
        a tensor; for a dim, the named tuple `(values, indices)`.

    Raises:
        ShapeError: for no elements.
        DimError: for a dim that does not exist.

    >>> import miniflow as flow
    >>> values, indices = flow.tensor([[1, 5], [7, 2]]).max(1)
    >>> values.tolist(), indices.tolist()
    ([5, 7], [1, 0])

    Source: `torch.max`.
    """
    if isinstance(dim, Tensor):
        return input.maximum(dim)
    if dim is None:
        return call(Amax, input, dim=None, keepdim=keepdim)
    return _extreme(MaxDim, input, as_dims(dim), keepdim)


def _extreme(op: type[Op], x: Tensor, dim: int, keepdim: bool) -> Extreme:
    if not is_split(x, dim):
        return Extreme(*call(op, x, dim=dim, keepdim=keepdim))
    indices = _first_index(Amax if op is MaxDim else Amin, x, dim)
    values = x.gather(dim, indices)
    return Extreme(values, indices) if keepdim else Extreme(values.squeeze(dim), indices.squeeze(dim))


def _first_index(op: type[Op], x: Tensor, dim: int) -> Tensor:
    """The first index of the extremum along a dim that is split, which stays with size 1: by two small all-reduces."""
    x, dim = x.detach(), wrap_dim("max", dim, x.ndim)
    extremum, n = call(op, x, dim=dim, keepdim=True), x.shape[dim]
    is_extremum = (x == extremum) | (x != x)  # there are NaNs where the extremum is one
    positions = constant_like(x, np.arange(n).reshape((n,) + (1,) * (x.ndim - 1 - dim)))
    return call(Amin, positions.where(is_extremum, n), dim=dim, keepdim=True)


@method
def min(input: Tensor, dim: int | Tensor | None = None, keepdim: bool = False) -> Tensor | Extreme:
    """The smallest element; as `max` otherwise.

    >>> import miniflow as flow
    >>> flow.tensor([[1, 5], [7, 2]]).min(0).values.tolist()
    [1, 2]

    Source: `torch.min`.
    """
    if isinstance(dim, Tensor):
        return input.minimum(dim)
    if dim is None:
        return call(Amin, input, dim=None, keepdim=keepdim)
    return _extreme(MinDim, input, as_dims(dim), keepdim)


class Position(Reduction):
    """The first index of the largest or smallest element; no gradient."""

    requires = "elements"
    result = INT64

    @classmethod
    def infer(cls, x, *, dim, keepdim):
        dim = None if dim is None else wrap_dim(cls.function_name, dim, len(x.shape))
        return super().infer(x, dim=dim, keepdim=keepdim)


class Argmax(Position):
    """The first index of the largest element along `dim`, or in the flattened tensor; NaN wins."""


class Argmin(Position):
    """The first index of the smallest element along `dim`, or in the flattened tensor; NaN wins."""


@method(checked=False)
def argmax(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The int64 index of the largest element along `dim`, or in the flattened tensor; the first of equal ones.

    Raises:
        ShapeError: for no elements.
        DimError: for a dim that does not exist.

    >>> import miniflow as flow
    >>> flow.tensor([[1, 5], [7, 2]]).argmax().item()
    2

    Source: `torch.argmax`.
    """
    return _position(Argmax, input, as_dims(dim), keepdim)


def _position(op: type[Op], x: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    if dim is None or not is_split(x, dim):
        return call(op, x, dim=dim, keepdim=keepdim)
    indices = _first_index(Amax if op is Argmax else Amin, x, dim)
    return indices if keepdim else indices.squeeze(dim)


@method(checked=False)
def argmin(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The int64 index of the smallest element; as `argmax` otherwise.

    >>> import miniflow as flow
    >>> flow.tensor([[1, 5], [7, 2]]).argmin(1).tolist()
    [0, 1]

    Source: `torch.argmin`.
    """
    return _position(Argmin, input, as_dims(dim), keepdim)


@method
def count_nonzero(input: Tensor, dim: Dim = None) -> Tensor:
    """How many elements over `dim` are not zero: int64. `torch.count_nonzero`."""
    return (input != 0).sum(dim)


class Logsumexp(Reduction):
    """y = log(sum of exp(x) over `dim`); dy/dx = exp(x - y), the softmax."""

    saves = ("x", "y")
    requires = "floats"

    def backward(ctx, dy):
        x, y = ctx.saved
        shape = x._array.shape
        return expand_reduced(dy, shape, ctx.attrs) * (x - expand_reduced(y, shape, ctx.attrs)).exp()


@method(checked=False)
def logsumexp(input: Tensor, dim: Dim, keepdim: bool = False) -> Tensor:
    """log(sum of exp(x)) over `dim`, as m + log(sum of exp(x - m)) with m the largest x: nothing overflows.

    Args:
        input: any shape; integers and bools are computed in the default floating dtype.
        dim: the dims to reduce.
        keepdim: leave the reduced dims with size 1.

    Raises:
        DimError: for dims that do not exist or come twice.

    >>> import miniflow as flow
    >>> flow.tensor([1000.0, -1000.0]).logsumexp(0).item()
    1000.0

    Source: `torch.logsumexp`.
    """
    return call(Logsumexp, as_float(input), dim=as_dims(dim), keepdim=keepdim)
