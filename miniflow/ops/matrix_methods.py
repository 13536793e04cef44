"""What `flow.linalg` has that is a function of `flow` and a method of tensors too, with the parameters of those."""

from __future__ import annotations

from miniflow.dispatch.call_errors import takes_tensors
from miniflow.errors import ShapeError
from miniflow.ops import factorization, matrix_functions
from miniflow.ops.method import method
from miniflow.tensor import Tensor


@method
def det(input: Tensor) -> Tensor:
    """`flow.linalg.det`. `torch.det`."""
    return factorization.det(input)


@method
def slogdet(input: Tensor) -> factorization.SlogdetResult:
    """`flow.linalg.slogdet`. `torch.slogdet`."""
    return factorization.slogdet(input)


@method
def inverse(input: Tensor) -> Tensor:
    """`flow.linalg.inv`. `torch.inverse`."""
    return factorization.inv(input)


@method
def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """`flow.linalg.pinv` without singular values up to rcond times the largest. `torch.pinverse`."""
    return factorization.pinv(input, rtol=rcond)


@method
def matrix_power(input: Tensor, n: int) -> Tensor:
    """`flow.linalg.matrix_power`. `torch.matrix_power`."""
    return matrix_functions.matrix_power(input, n)


@method
def matrix_exp(input: Tensor) -> Tensor:
    """`flow.linalg.matrix_exp`. `torch.matrix_exp`."""
    return matrix_functions.matrix_exp(input)


@takes_tensors
def chain_matmul(*matrices: Tensor) -> Tensor:
    """`flow.linalg.multi_dot` of several arguments. `torch.chain_matmul`."""
    return matrix_functions.multi_dot(matrices)


@method
def cross(input: Tensor, other: Tensor, dim: int | None = None) -> Tensor:
    """`flow.linalg.cross` along `dim`, by default the first dim of 3 elements. `torch.cross`."""
    if dim is None:
        if 3 not in input.shape:
            raise ShapeError(f"cross: got {tuple(input.shape)}; expected a dim of 3 elements")
        dim = tuple(input.shape).index(3)
    return matrix_functions.cross(input, other, dim=dim)
