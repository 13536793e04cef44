"""The backend of the cuda device: it launches the kernels of `miniflow.kernels` on `DeviceArray`s.

Importing it registers its kernels; that happens when the first tensor on a cuda device is made.
"""

from miniflow.backends.cuda import (  # noqa: F401
    accumulate,
    arg_reduce,
    batch_norm,
    clip_grad,
    conv,
    copy,
    dropout,
    embedding,
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
