"""The largest and the smallest element, and their indices."""

from __future__ import annotations

from typing import NamedTuple

from miniflow.dispatch import Op, call
from miniflow.ops.gather import ScatterAdd
from miniflow.ops.method import method
from miniflow.ops.promotion import cast
from miniflow.ops.reduce import (
    INT64,
    Dim,
    Reduction,
    as_dims,
    expand_reduced,
    keep_dims,
    nonempty,
    reduced_shape,
    reduced_signatures,
)
from miniflow.ops.shape import input_shape, wrap_dim
from miniflow.tensor import Tensor


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


class Amin(Extremum):
    """y = the smallest x over `dim`; NaN wins."""


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
    return Extreme(*call(MaxDim, input, dim=as_dims(dim), keepdim=keepdim))


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
    return Extreme(*call(MinDim, input, dim=as_dims(dim), keepdim=keepdim))


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
    return call(Argmax, input, dim=as_dims(dim), keepdim=keepdim)


@method(checked=False)
def argmin(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The int64 index of the smallest element; as `argmax` otherwise.

    >>> import miniflow as flow
    >>> flow.tensor([[1, 5], [7, 2]]).argmin(1).tolist()
    [0, 1]

    Source: `torch.argmin`.
    """
    return call(Argmin, input, dim=as_dims(dim), keepdim=keepdim)
