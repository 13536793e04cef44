"""Loss scaling: products with a number, and one pass over all gradients that looks for inf and nan."""

from __future__ import annotations

import numpy as np

from miniflow.backends.cpu.loss_scale import EXPONENTS
from miniflow.backends.cuda.array import DeviceArray, bits, contiguous, full
from miniflow.backends.cuda.copy import copy_into
from miniflow.backends.cuda.launch import launch
from miniflow.backends.cuda.pointwise import pointwise
from miniflow.backends.cuda.together import padded, together
from miniflow.backends.registry import kernel
from miniflow.kernels import non_finite as kernels


@kernel("cuda", half="native")
def scale_loss(y: DeviceArray, x: DeviceArray, *, scale: float) -> None:
    pointwise("mul", y, x, scale)


@kernel("cuda", half="native")
def unscale_gradient(y: DeviceArray, x: DeviceArray, *, scale: float) -> None:
    pointwise("mul", y, x, 1.0 / scale)


@kernel("cuda", half="native")
def any_non_finite(y: DeviceArray, *gradients: DeviceArray) -> None:
    found = full((), 0, np.int32, y.device_index)
    words = [bits(contiguous(g)).reshape(-1) for g in gradients]
    for mask, some, starts in together(gradients, kernels.THREADS * kernels.WORDS, lambda g: EXPONENTS[g.dtype]):
        arrays = padded([words[i] for i in some])
        launch(kernels.any_with_all_bits, starts[-1], kernels.THREADS, starts, arrays, mask, found.reshape((1,)))
    copy_into(y, found)
