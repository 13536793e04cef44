"""The CPU kernels: NumPy where it is fast, numba where it is not. Importing this package registers them all."""

from miniflow.backends.cpu import (  # noqa: F401
    activation,
    conv,
    elementwise,
    embedding,
    index,
    join,
    loss,
    matmul,
    norm,
    optim,
    pool,
    random,
    reduce,
    shape,
    softmax,
    triangle,
)
