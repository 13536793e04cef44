"""The CPU kernels: NumPy where it is fast, numba where it is not. Importing this package registers them all."""

import miniflow.hostcuda.cache  # noqa: F401  (says where numba keeps machine code: before the first function is compiled)

# isort: split
from miniflow.backends.cpu import (  # noqa: F401
    accumulate,
    batch_norm,
    cast,
    clip_grad,
    conv,
    index,
    join,
    layer_norm,
    loss,
    loss_scale,
    matmul,
    optim,
    pointwise,
    pool,
    random,
    recurrent,
    reduce,
    scan,
    shape,
    softmax,
    sort,
    sparse,
    triangle,
)
