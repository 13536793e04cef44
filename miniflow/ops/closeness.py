"""Whether tensors are equal, or nearly so."""

from __future__ import annotations

from miniflow.ops.method import method
from miniflow.ops.reduce import all
from miniflow.tensor import Tensor


@method
def isclose(input: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Tensor:
    """Whether |input - other| <= atol + rtol |other|, elementwise; equal infinities are close.

    Args:
        equal_nan: NaN is close to NaN.

    >>> import miniflow as flow
    >>> flow.isclose(flow.tensor([1.0, 2.0]), flow.tensor([1.0, 2.1])).tolist()
    [True, False]

    Source: `torch.isclose`.
    """
    close = (input == other) | (abs(input - other) <= atol + rtol * abs(other)) & other.isfinite()
    return close | input.isnan() & other.isnan() if equal_nan else close


@method
def allclose(input: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    """Whether all elements are close, as `isclose` says. `torch.allclose`."""
    return all(isclose(input, other, rtol, atol, equal_nan)).item()


@method
def equal(input: Tensor, other: Tensor) -> bool:
    """Whether both tensors have one shape and the same elements. `torch.equal`."""
    return input.shape == other.shape and all(input == other).item()
