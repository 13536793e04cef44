"""Loss scaling: products with a number, and one pass over all gradients that looks for inf and nan."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from miniflow.backends.cpu.loss_scale import EXPONENTS
from miniflow.backends.cuda.array import DeviceArray, bits, contiguous, full
from miniflow.backends.cuda.copy import copy_into
from miniflow.backends.cuda.launch import each, launch
from miniflow.backends.registry import kernel
from miniflow.kernels import non_finite as kernels

TOGETHER = 8  # arrays in a launch: they are arguments, of which CUDA takes 4 KB


@kernel("cuda")
def scale_loss(y: DeviceArray, x: DeviceArray, *, scale: float) -> None:
    each(kernels.scale, x.size, contiguous(x).reshape((x.size,)), x.dtype.type(scale), y.reshape((x.size,)))


@kernel("cuda")
def unscale_gradient(y: DeviceArray, x: DeviceArray, *, scale: float) -> None:
    scale_loss(y, x, scale=1.0 / scale)


@kernel("cuda", half="native")
def any_non_finite(y: DeviceArray, *gradients: DeviceArray) -> None:
    found = full((), 0, np.int32, y.device_index)
    for mask in dict.fromkeys(EXPONENTS[g.dtype] for g in gradients):
        mine = [bits(contiguous(g)).reshape(-1) for g in gradients if EXPONENTS[g.dtype] == mask and g.size]
        for first in range(0, len(mine), TOGETHER):
            _look(mine[first : first + TOGETHER], mask, found.reshape((1,)))
    copy_into(y, found)


def _look(words: Sequence[DeviceArray], mask: np.unsignedinteger, found: DeviceArray) -> None:
    """One launch. It has always the same number of arrays, so that it is compiled once; the last have no blocks."""
    blocks = [-(-x.size // (kernels.THREADS * kernels.WORDS)) for x in words]
    missing = TOGETHER - len(words)
    starts = (*accumulate(blocks, initial=0), *[sum(blocks)] * missing)
    launch(kernels.any_with_all_bits, sum(blocks), kernels.THREADS, starts, (*words, *words[:1] * missing), mask, found)
