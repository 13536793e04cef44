"""The backend of the cuda device: it launches the kernels of `miniflow.kernels` on `DeviceArray`s.

Importing it registers its kernels; that happens when the first tensor on a cuda device is made.
"""

from miniflow.backends.cuda import (  # noqa: F401
    activation,
    arg_reduce,
    conv,
    copy,
    dropout,
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
