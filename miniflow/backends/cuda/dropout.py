"""Dropout: one pass, and at most one more launch for the elements after the last block of four."""

from __future__ import annotations

import numpy as np

from miniflow.backends.cpu.random import name_of_draw
from miniflow.backends.cuda.array import DeviceArray, bits, contiguous, empty
from miniflow.backends.cuda.launch import each, launch
from miniflow.backends.registry import register
from miniflow.kernels import dropout as kernels


@register("cuda", "Dropout")
def dropout(x: DeviceArray, *, p: float, seed: int, offset: int) -> tuple[DeviceArray, DeviceArray]:
    y, keep = empty(x.shape, x.dtype, x.device_index), empty(x.shape, np.bool_, x.device_index)
    if x.size == 0:
        return y, keep
    flat = [contiguous(x).reshape(-1), y.reshape(-1), bits(keep.reshape(-1))]
    threshold, scale = np.uint64(round(p * 2**32)), x.dtype.type(0 if p == 1 else 1 / (1 - p))
    arguments = (*flat, *name_of_draw(seed, offset), threshold, scale)
    each(kernels.drop, x.size // 4, *arguments)
    if x.size % 4:
        launch(kernels.drop_rest, 1, 4, *arguments)
    return y, keep


@register("cuda", "DropoutMask")
def dropout_mask(*, shape: tuple[int, ...], p: float, seed: int, offset: int, device) -> DeviceArray:
    keep = empty(shape, np.bool_, device.index)
    if keep.size:
        arguments = bits(keep.reshape(-1)), *name_of_draw(seed, offset), np.uint64(round(p * 2**32))
        each(kernels.draw_mask, keep.size // 4, *arguments)
        if keep.size % 4:
            launch(kernels.draw_rest_of_mask, 1, 4, *arguments)
    return keep


@register("cuda", "DropoutGrad")
def dropout_grad(dy: DeviceArray, keep: DeviceArray, *, scale: float) -> DeviceArray:
    dx = empty(dy.shape, dy.dtype, dy.device_index)
    if dy.size == 0:
        return dx
    flat = [contiguous(dy).reshape(-1), bits(contiguous(keep).reshape(-1)), dx.reshape(-1)]
    each(kernels.scale_kept, dy.size, *flat, dy.dtype.type(scale))
    return dx
