"""The CPU kernels: NumPy where it is fast, numba where it is not. Importing this package registers them all."""

from miniflow.backends.cpu import process

process.wait_passively()
process.keep_freed_memory()
process.accept_infinities()

from miniflow.backends.cpu import (  # noqa: E402, F401
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
