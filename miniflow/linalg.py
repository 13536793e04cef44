"""Linear algebra under PyTorch's names: `flow.linalg.solve(A, B)`."""

from miniflow.names import functions as _functions
from miniflow.ops.slice import diagonal as _diagonal
from miniflow.tensor import Tensor

_NAMES = _functions(
    linalg="cholesky cross det eigh eigvalsh inv matrix_exp matrix_power matrix_rank multi_dot pinv qr slogdet solve "
    "svd svdvals",
    matmul="matmul",
    matrix_norm="matrix_norm norm vector_norm",
)
globals().update(_NAMES)
__all__ = [*_NAMES, "diagonal"]


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The diagonals of matrices, a view. `torch.linalg.diagonal`."""
    return _diagonal(A, offset, dim1, dim2)
