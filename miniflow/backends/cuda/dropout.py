"""Dropout: one pass, and at most one more launch for the elements after the last block of four."""

from __future__ import annotations

from typing import Any

import numpy as np

from miniflow.backends.cpu.random import name_of_draw, threshold
from miniflow.backends.cuda.array import DeviceArray, bits, contiguous
from miniflow.backends.cuda.launch import each, launch
from miniflow.backends.cuda.random import draw
from miniflow.backends.registry import kernel
from miniflow.kernels import dropout as kernels


@kernel("cuda")
def dropout(out: tuple[DeviceArray, DeviceArray], x: DeviceArray, *, p: float, seed: int, offset: int) -> None:
    y, keep = out
    flat = contiguous(x).reshape(-1), y.reshape(-1), bits(keep.reshape(-1))
    arguments = (*flat, *name_of_draw(seed, offset), threshold(p), x.dtype.type(0 if p == 1 else 1 / (1 - p)))
    each(kernels.drop, x.size // 4, *arguments)
    if x.size % 4:
        launch(kernels.drop_rest, 1, 4, *arguments)


@kernel("cuda")
def dropout_mask(keep: DeviceArray, *, shape: tuple[int, ...], p: float, seed: int, offset: int, device: Any) -> None:
    draw(bits(keep), kernels.draw_mask, np.uint8, *name_of_draw(seed, offset), threshold(p))
