"""Linear algebra under PyTorch's names: `flow.linalg.solve(A, B)`."""

from miniflow.ops.diagonal import diagonal as _diagonal
from miniflow.ops.factorization import cholesky, det, eigh, eigvalsh, inv, pinv, qr, slogdet, solve, svd, svdvals
from miniflow.ops.matmul import matmul
from miniflow.ops.matrix_functions import (
    cond,
    cross,
    lstsq,
    matrix_exp,
    matrix_norm,
    matrix_power,
    matrix_rank,
    multi_dot,
    norm,
    solve_triangular,
    vector_norm,
)
from miniflow.tensor import Tensor

__all__ = [
    "cholesky", "cond", "cross", "det", "diagonal", "eigh", "eigvalsh", "inv", "lstsq", "matmul", "matrix_exp",
    "matrix_norm", "matrix_power", "matrix_rank", "multi_dot", "norm", "pinv", "qr", "slogdet", "solve",
    "solve_triangular", "svd", "svdvals", "vector_norm",
]  # fmt: skip


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The diagonals of matrices, a view. `torch.linalg.diagonal`."""
    return _diagonal(A, offset, dim1, dim2)
