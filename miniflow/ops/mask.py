"""Boolean masks: filling where they are true, and picking what is true."""

from __future__ import annotations

import numpy as np

from miniflow.dispatch import call
from miniflow.dtype import can_cast, fitting, of_scalar
from miniflow.errors import DTypeError, ShapeError
from miniflow.ops.index import Nonzero, get_item
from miniflow.ops.method import method
from miniflow.ops.piecewise import where
from miniflow.ops.promotion import Number, broadcast_shape, cast
from miniflow.ops.slice import Slice
from miniflow.tensor import Tensor


@method(in_place=True)
def masked_fill(input: Tensor, mask: Tensor, value: Tensor | Number) -> Tensor:
    """A copy of `input` with `value` where `mask` is true.

    Args:
        input: any shape.
        mask: bool, broadcast with `input`.
        value: a number, or a 0-dim tensor, to which the gradient flows.

    Raises:
        ShapeError: if the shapes cannot be broadcast, or `value` has dims.
        DTypeError: if the mask is not bool, or the dtype of `input` cannot hold `value`.

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
