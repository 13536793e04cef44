"""Questions about tensors whose answers are Python values."""

from __future__ import annotations

from typing import Any

from miniflow.errors import ShapeError
from miniflow.ops.method import method
from miniflow.tensor import Tensor


def is_tensor(obj: Any) -> bool:
    """Whether an object is a tensor. `torch.is_tensor`."""
    return isinstance(obj, Tensor)


def numel(input: Tensor) -> int:
    """The number of elements. `torch.numel`."""
    return input.numel()


def is_floating_point(input: Tensor) -> bool:
    """Whether the dtype is a floating one. `torch.is_floating_point`."""
    return input.is_floating_point()


@method
def is_nonzero(input: Tensor) -> bool:
    """Whether the only element is not zero.

    Raises:
        ShapeError: for another number of elements.

    Source: `torch.is_nonzero`.
    """
    if input.numel() != 1:
        raise ShapeError(f"is_nonzero: got {input.numel()} elements; expected one: use any() or all()")
    return bool(input.item())
