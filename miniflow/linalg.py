"""Linear algebra under PyTorch's names: `flow.linalg.solve(A, B)`."""

from miniflow.ops.linalg import (
    cholesky,
    cross,
    det,
    eigh,
    eigvalsh,
    inv,
    lstsq,
    matrix_exp,
    matrix_power,
    matrix_rank,
    multi_dot,
    pinv,
    qr,
    slogdet,
    solve,
    solve_triangular,
    svd,
    svdvals,
)
from miniflow.ops.matmul import matmul
from miniflow.ops.matrix_norm import cond, matrix_norm, norm, vector_norm
from miniflow.ops.slice import diagonal as _diagonal
from miniflow.tensor import Tensor

__all__ = [
    "cholesky", "cond", "cross", "det", "diagonal", "eigh", "eigvalsh", "inv", "lstsq", "matmul", "matrix_exp",
    "matrix_norm", "matrix_power", "matrix_rank", "multi_dot", "norm", "pinv", "qr", "slogdet", "solve",
    "solve_triangular", "svd", "svdvals", "vector_norm",
]  # fmt: skip


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The diagonals of matrices, a view. `torch.linalg.diagonal`."""
    return _diagonal(A, offset, dim1, dim2)
