"""The backend of the cuda device: it launches the kernels of `miniflow.kernels` on `DeviceArray`s.

Importing it registers its kernels; that happens when the first tensor on a cuda device is made.
"""

from miniflow.backends.cuda import (  # noqa: F401
    accumulate,
    activation,
    arg_reduce,
    clip_grad,
    conv,
    copy,
    dropout,
    elementwise,
    embedding,
    index,
    join,
    loss,
    loss_scale,
    matmul,
    norm,
    norm_activation,
    optim,
    pool,
    random,
    reduce,
    shape,
    softmax,
    sparse,
    triangle,
)
