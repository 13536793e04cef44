"""Loss scaling: products with a number, and one pass over all gradients that looks for inf and nan."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from miniflow.backends.cpu.loss_scale import EXPONENTS
from miniflow.backends.cuda.array import DeviceArray, bits, contiguous, full
from miniflow.backends.cuda.elementwise import run
from miniflow.backends.cuda.launch import launch
from miniflow.backends.registry import KERNELS, register
from miniflow.kernels import elementwise
from miniflow.kernels import non_finite as kernels

TOGETHER = 8  # arrays in a launch: they are arguments, of which CUDA takes 4 KB


@register("cuda", "ScaleLoss")
def scale_loss(x: DeviceArray, *, scale: float) -> DeviceArray:
    return run(elementwise.mul, (x, scale))


@register("cuda", "UnscaleGradient")
def unscale_gradient(x: DeviceArray, *, scale: float) -> DeviceArray:
    return run(elementwise.mul, (x, 1.0 / scale))


@register("cuda", "AnyNonFinite", half="native")
def any_non_finite(*gradients: DeviceArray) -> DeviceArray:
    found = full((1,), 0, np.int32, gradients[0].device_index)
    for mask in dict.fromkeys(EXPONENTS[g.dtype] for g in gradients):
        mine = [bits(contiguous(g)).reshape(-1) for g in gradients if EXPONENTS[g.dtype] == mask and g.size]
        for first in range(0, len(mine), TOGETHER):
            _look(mine[first : first + TOGETHER], mask, found)
    return KERNELS["cuda"]["ToInteger"](found, dtype=np.dtype(np.bool_)).reshape(())


def _look(words: Sequence[DeviceArray], mask: np.unsignedinteger, found: DeviceArray) -> None:
    """One launch. It has always the same number of arrays, so that it is compiled once; the last have no blocks."""
    each = kernels.THREADS * kernels.WORDS
    blocks = [-(-x.size // each) for x in words]
    missing = TOGETHER - len(words)
    starts = (*accumulate(blocks, initial=0), *[sum(blocks)] * missing)
    launch(kernels.any_with_all_bits, sum(blocks), kernels.THREADS, starts, (*words, *words[:1] * missing), mask, found)
