"""Loss scaling: products with a number, and one pass over all gradients that looks for inf and nan."""

from __future__ import annotations

import numpy as np

from miniflow.backends.cpu.loss_scale import EXPONENTS
from miniflow.backends.cuda.array import bits, contiguous, full
from miniflow.backends.cuda.copy import copy_into
from miniflow.backends.cuda.launch import launch
from miniflow.backends.cuda.multi_tensor import padded, split_into_launches
from miniflow.backends.cuda.pointwise import pointwise
from miniflow.backends.registry import kernel
from miniflow.kernels import non_finite as kernels


@kernel("cuda", half="native")
def scale_loss(y, x, *, scale):
    pointwise("mul", y, x, scale)


@kernel("cuda", half="native")
def unscale_gradient(y, x, *, scale):
    pointwise("mul", y, x, 1.0 / scale)


@kernel("cuda", half="native")
def any_non_finite(y, *gradients):
    flag = full((), 0, np.int32, y.device_index)
    words = [bits(contiguous(g)).reshape(-1) for g in gradients]
    elements = kernels.THREADS * kernels.WORDS
    for mask, positions, starts in split_into_launches(gradients, elements, lambda g: EXPONENTS[g.dtype]):
        arrays = padded([words[i] for i in positions])
        launch(kernels.any_with_all_bits, starts[-1], kernels.THREADS, starts, arrays, mask, flag.reshape((1,)))
    copy_into(y, flag)
